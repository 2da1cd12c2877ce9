//! Numbers as people read them.

/// `1536` as `1.5 KiB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let steps = (n.ilog2() / 10).min(6);
    let unit = usize::try_from(steps).ok().and_then(|s| UNITS.get(s - 1)).unwrap_or(&"EiB");
    let scale = 1_u128 << (10 * steps);
    let tenths = (u128::from(n) * 10 + scale / 2) / scale;
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

/// `1234567` as `1,234,567`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Both: `1.2 MiB (1,234,567 bytes)`.
pub fn exact(n: u64) -> String {
    format!("{} ({} bytes)", bytes(n), grouped(n))
}

/// `3 extents`, `1 extent`.
pub fn count(n: u64, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{} {what}{plural}", grouped(n))
}

/// Seconds as `1 h 02 min`, `3 min 04 s` or `5 s`.
pub fn duration(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s:02} s"),
        (h, m, _) => format!("{h} h {m:02} min"),
    }
}

/// `part` of `whole` in whole per cent, never rounded up to 100.
pub fn percent(part: u64, whole: u64) -> u64 {
    if whole == 0 {
        return 0;
    }
    u64::try_from(u128::from(part) * 100 / u128::from(whole)).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_and_grouped() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(1 << 40), "1.0 TiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(grouped(1), "1");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(count(1, "extent"), "1 extent");
        assert_eq!(count(2000, "extent"), "2,000 extents");
        assert_eq!(duration(3_725), "1 h 02 min");
        assert_eq!(duration(65), "1 min 05 s");
        assert_eq!(percent(999, 1000), 99);
    }
}
