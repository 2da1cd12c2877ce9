//! Seconds since 1970, and the date that they are on.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY: u64 = 86_400;
/// Days of the 400 years after which the calendar repeats.
const ERA: u64 = 146_097;

/// Now.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The date (UTC) as `2026-12-03`.
///
/// Counted in years that begin in March, so that the day that is not in every year is the last one.
pub fn date(seconds: u64) -> String {
    // From the first of March of the year 0.
    let days = (seconds / DAY).saturating_add(719_468);
    let (era, day) = (days / ERA, days % ERA);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    // Five months from March on have 153 days, and so have the next five.
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day_of_month:02}", era * 400 + year + next_year)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let expected = [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_709_164_800, "2024-02-29"),
            (1_735_689_599, "2024-12-31"),
            (1_735_689_600, "2025-01-01"),
            (1_796_256_000, "2026-12-03"),
            (4_107_542_400, "2100-03-01"),
        ];
        for (seconds, text) in expected {
            assert_eq!(date(seconds), text, "{seconds}");
        }
    }
}
