//! Words of strangers on a terminal of ours.

/// Text without control characters and without marks that turn the direction of writing: labels and names come from
/// anywhere, and a terminal obeys what it is shown.
pub fn printable(text: &str) -> String {
    let harmless = |c: char| {
        let turns = matches!(c, '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || turns { char::REPLACEMENT_CHARACTER } else { c }
    };
    text.chars().map(harmless).collect()
}

/// The same of a name on a disk, which need not be UTF-8.
pub fn printable_name(name: &[u8]) -> String {
    printable(&String::from_utf8_lossy(name))
}
