//! Words of strangers on a terminal of ours, and in commands that a user may copy.

/// True for a mark that turns the direction of writing.
fn turns(c: char) -> bool {
    matches!(c, '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// Text without control characters and without marks that turn the direction of writing: labels and names come from
/// anywhere, and a terminal obeys what it is shown.
pub fn printable(text: &str) -> String {
    let harmless = |c: char| if c.is_control() || turns(c) { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(harmless).collect()
}

/// A word for a shell: quoted when it needs to be, and never with anything that a terminal would obey.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    if !word.chars().any(|c| c.is_control() || turns(c)) {
        return format!("'{}'", word.replace('\'', "'\\''"));
    }
    let escaped = |c: char| match c {
        '\\' | '\'' => format!("\\{c}"),
        // As bytes: what a number of a character means depends on the locale.
        c if c.is_control() || turns(c) => c.to_string().bytes().map(|byte| format!("\\x{byte:02x}")).collect(),
        c => c.to_string(),
    };
    format!("$'{}'", word.chars().map(escaped).collect::<String>())
}

/// [`printable`] of a name on a disk, which need not be UTF-8.
pub fn printable_name(name: &[u8]) -> String {
    printable(&String::from_utf8_lossy(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_see_more_than_one() {
        for plain in ["/dev/sdb1", "a-b_c.img", "UUID:1,2+3@4%"] {
            assert_eq!(quoted(plain), plain);
        }
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("sp ace"), "'sp ace'");
        assert_eq!(quoted("it's; $(id)"), "'it'\\''s; $(id)'");
        assert_eq!(quoted("a\n'\\\u{202E}b"), "$'a\\x0a\\'\\\\\\xe2\\x80\\xaeb'");
        assert_eq!(printable(&quoted("\x1b[2J")), "$'\\x1b[2J'", "nothing is lost to the terminal");
    }
}
