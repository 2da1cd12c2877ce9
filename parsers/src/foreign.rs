//! Formats that are recognised and left alone, each with a sentence that helps. What is neither here nor in
//! [`FORMATS`](crate::fs::FORMATS) is unknown, and unknown data is never free.

use crate::error::ParseError;
use crate::source::Source;
use crate::units::from_usize;

/// Where a signature lies.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    /// This many bytes behind the start of the layer.
    Start(u64),
    /// This many bytes before the end of the layer.
    End(u64),
}

/// One format that coldtrim knows and does not trim.
pub struct Foreign {
    /// Name for messages.
    pub name: &'static str,
    /// Signatures: any one of them is enough.
    pub marks: &'static [(Place, &'static [u8])],
    /// What to do instead.
    pub advice: &'static str,
    /// True when it holds no filesystem by design, so that leaving it alone is no refusal.
    pub kept: bool,
}

impl Foreign {
    /// True when one of the signatures is there.
    pub fn probe(&self, source: &dyn Source) -> Result<bool, ParseError> {
        for (place, magic) in self.marks {
            let at = match place {
                Place::Start(at) => Some(*at),
                Place::End(back) => source.len().checked_sub(*back),
            };
            if let Some(at) = at
                && has_bytes(source, at, magic)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// True when `magic` lies at `at`; false when the source ends before.
pub fn has_bytes(source: &dyn Source, at: u64, magic: &[u8]) -> Result<bool, ParseError> {
    let end = at.checked_add(from_usize(magic.len()));
    if end.is_none_or(|end| end > source.len()) {
        return Ok(false);
    }
    let mut found = vec![0; magic.len()];
    source.read_at(at, &mut found).map_err(|e| ParseError::io(at, e))?;
    Ok(found == magic)
}

/// Every format that is recognised and left alone.
pub static FOREIGN: &[Foreign] = &[Foreign {
    name: "LUKS",
    marks: &[(Place::Start(0), b"LUKS\xBA\xBE"), (Place::Start(0), b"SKUL\xBA\xBE")],
    advice: "open it and name the opened mapping: cryptsetup open DEVICE NAME",
    kept: false,
}];
