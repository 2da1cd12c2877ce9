//! The metadata areas of a physical volume: rings of texts, the valid one of which the head points to.
//!
//! ```text
//! |head, 512 bytes| old text | .. | valid text, part 2 ... ~ ~ ... valid text, part 1|
//!                 ^ a text that passes the end goes on here
//! ```

use super::config::{self, Section};
use super::label::{Label, SUM_START};
use super::ondisk::RawMetadata;
use crate::container::crc32;
use crate::error::{Mismatch, ParseError};
use crate::source::{Source, read_struct, read_vec};
use crate::units::{ByteRange, add};

const HEAD: u64 = 512;
const MAGIC: &[u8; 16] = b" LVM2 x[5A%r0N*>";
/// Bytes of a text; LVM2's own areas have one MiB, large sites a few.
const MOST_TEXT: u64 = 16 << 20;

/// Every valid text on a physical volume. Areas that are not kept up to date count for nothing.
pub(super) fn texts(source: &dyn Source, label: &Label) -> Result<Vec<Section>, ParseError> {
    let mut found = Vec::new();
    for area in &label.metadata {
        if let Some(text) = text(source, *area)? {
            let root = config::parse(&text).map_err(|fault| ParseError::corrupt(area.start(), fault))?;
            found.push(root);
        }
    }
    Ok(found)
}

/// The valid text of one area; none when it is empty or ignored.
fn text(source: &dyn Source, area: ByteRange) -> Result<Option<Vec<u8>>, ParseError> {
    let at = area.start();
    let head = read_vec(source, at, HEAD)?;
    let raw: RawMetadata = read_struct(source, at)?;
    let sum = crc32::continued(SUM_START, head.get(4..).unwrap_or_default());
    if raw.crc.get() != sum {
        let found = u64::from(raw.crc.get());
        return Err(ParseError::corrupt(at, Mismatch::hex("the sum of the metadata's head", sum.into(), found)));
    }
    if raw.magic != *MAGIC {
        return Err(ParseError::corrupt(at, "the metadata area has another magic number"));
    }
    if raw.version.get() != 1 {
        return Err(ParseError::unsupported(at, Mismatch::new("the metadata's version", 1, raw.version.get())));
    }
    if ByteRange::with_len(raw.start.get(), raw.size.get()) != Some(area) {
        let found = format!("{} bytes at {}", raw.size.get(), raw.start.get());
        return Err(ParseError::corrupt(at, Mismatch::new("the metadata area", area, found)));
    }
    let [valid, pending] = &raw.locations;
    if pending.offset.get() != 0 {
        let why = "a change of the volume group was begun and neither finished nor taken back";
        return Err(ParseError::unsupported(at, why));
    }
    if valid.offset.get() == 0 || valid.flags.get() & 1 != 0 {
        return Ok(None);
    }
    let text = ring(source, area, valid.offset.get(), valid.size.get())?;
    let sum = crc32::continued(SUM_START, &text);
    if valid.crc.get() != sum {
        return Err(ParseError::corrupt(at, Mismatch::hex("the metadata's sum", sum.into(), valid.crc.get().into())));
    }
    Ok(Some(text))
}

/// `size` bytes at `offset` of an area, going on behind its head where they pass its end.
fn ring(source: &dyn Source, area: ByteRange, offset: u64, size: u64) -> Result<Vec<u8>, ParseError> {
    let room = area.len().saturating_sub(HEAD);
    if offset < HEAD || offset >= area.len() || size > room.min(MOST_TEXT) {
        let found = format!("{size} bytes at {offset}");
        let expected = format!("at most {} bytes inside of {}", room.min(MOST_TEXT), area.len());
        return Err(ParseError::corrupt(area.start(), Mismatch::new("the place of the metadata", expected, found)));
    }
    let before_end = size.min(area.len().saturating_sub(offset));
    let mut text = read_vec(source, add(area.start(), offset, "the metadata's place")?, before_end)?;
    let again = add(area.start(), HEAD, "the start of the ring")?;
    text.extend(read_vec(source, again, size.saturating_sub(before_end))?);
    Ok(text)
}
