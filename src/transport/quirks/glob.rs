//! Glob patterns of the kernel's tables (lib/glob.c): `*`, `?` and `[abc]`, over the whole name.

/// True when `pattern` covers all of `name`.
pub fn matches(pattern: &str, name: &str) -> bool {
    covers(pattern.as_bytes(), name.as_bytes())
}

fn covers(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        ([b'*', later @ ..], _) => {
            (0..=name.len()).any(|skipped| covers(later, name.get(skipped..).unwrap_or_default()))
        }
        ([b'[', class @ ..], [byte, name @ ..]) => match class.iter().position(|end| *end == b']') {
            Some(end) => {
                let (members, later) = class.split_at(end);
                members.contains(byte) && covers(later.get(1..).unwrap_or_default(), name)
            }
            None => false,
        },
        ([b'?', pattern @ ..], [_, name @ ..]) => covers(pattern, name),
        ([expected, pattern @ ..], [byte, name @ ..]) => expected == byte && covers(pattern, name),
        _ => false,
    }
}
