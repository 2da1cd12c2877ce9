//! Sizes as people type and read them.

/// Parses `4096`, `64K`, `1.5G`, `10MB`: K, M, G, T (also KiB, MiB, ...) are powers of 1024; KB, MB, GB, TB of 1000.
pub fn parse(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = factor(unit.trim()).ok_or_else(|| {
        format!("'{}' is no unit; take K, M, G, T (powers of 1024) or KB, MB, GB, TB (powers of 1000)", unit.trim())
    })?;
    scaled(number, factor).ok_or_else(|| format!("'{text}' is no size in whole bytes"))
}

fn factor(unit: &str) -> Option<u64> {
    let power = |letter: char| "KMGTP".find(letter.to_ascii_uppercase()).and_then(|p| u32::try_from(p + 1).ok());
    let mut letters = unit.chars();
    match (letters.next(), letters.as_str()) {
        (None, _) | (Some('B' | 'b'), "") => Some(1),
        (Some(letter), "" | "iB" | "ib") => 1024_u64.checked_pow(power(letter)?),
        (Some(letter), "B" | "b") => 1000_u64.checked_pow(power(letter)?),
        _ => None,
    }
}

/// `number` (decimal, perhaps with a point) times `factor`; none unless the result is a whole number.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits: u64 = format!("{whole}{fraction}").parse().ok()?;
    let divisor = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let product = digits.checked_mul(factor)?;
    (product % divisor == 0).then_some(product / divisor)
}

/// `START:LENGTH`, each as a size.
pub fn parse_area(text: &str) -> Result<coldtrim_parsers::units::ByteRange, String> {
    let (start, len) = text.split_once(':').ok_or("expected START:LENGTH, such as 10G:1G")?;
    let area = coldtrim_parsers::units::ByteRange::with_len(parse(start)?, parse(len)?);
    area.ok_or_else(|| "expected at least one byte, before the end of all numbers".to_owned())
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_as_people_type_them() {
        assert_eq!(parse("0"), Ok(0));
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("64K"), Ok(65536));
        assert_eq!(parse("64kib"), Ok(65536));
        assert_eq!(parse("10MB"), Ok(10_000_000));
        assert_eq!(parse("1.5G"), Ok(1_610_612_736));
        assert_eq!(parse("2T"), Ok(2 << 40));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "K", ".", "1.2.3", "-1", "12Q", "1.0001", "99999999999999999999", "20000000T", "1 KiBB"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
