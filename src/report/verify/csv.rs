//! Every sample as a line of a table.

use super::VerifyReport;
use std::io::{self, Write};

/// Writes the table: a line for each chunk of each pass.
pub fn print(out: &mut dyn Write, report: &VerifyReport) -> io::Result<()> {
    writeln!(out, "pass,name,what,chunk,end_bytes,end_seconds,bytes,seconds,bytes_per_second,counted")?;
    for (number, named) in report.passes.iter().enumerate() {
        let (mut bytes, mut seconds) = (0_u64, 0.0);
        for (index, chunk) in named.pass.chunks.iter().enumerate() {
            bytes = bytes.saturating_add(chunk.bytes);
            seconds += chunk.seconds;
            writeln!(
                out,
                "{number},{},{},{index},{bytes},{seconds:.6},{},{:.6},{:.0},{}",
                named.name,
                named.what,
                chunk.bytes,
                chunk.seconds,
                chunk.speed(),
                u8::from(named.pass.counted.contains(&index))
            )?;
        }
    }
    Ok(())
}
