//! What a series of measured chunks says, and how sure that is. Pure and repeatable: the same series and seed give the
//! same answer to the bit.

pub mod knee;
pub mod rank;
pub mod ratio;
pub mod series;
pub mod settle;
pub mod steady;

#[cfg(test)]
mod tests;

/// A count as a real number; exact below 2^53, which no run reaches.
#[allow(clippy::as_conversions)] // there is no other way; the rounding is far below any noise
pub fn real(count: u64) -> f64 {
    count as f64
}

/// A length in memory as a real number.
pub fn real_len(count: usize) -> f64 {
    real(self::count(count))
}

/// A length in memory as a count.
pub fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// A positive real number cut to a count; numbers that are none give 0.
#[allow(clippy::as_conversions)] // saturates, which is what is wanted
pub fn whole(number: f64) -> u64 {
    number as u64
}

/// The middle of `values`, which are put in order; 0 of nothing.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match (values.get(half), values.len() % 2) {
        (None, _) => 0.0,
        (Some(middle), 1) => *middle,
        (Some(above), _) => f64::midpoint(*above, values.get(half.wrapping_sub(1)).copied().unwrap_or(*above)),
    }
}
