//! Whether one set of values lies below another, whatever their distribution: the Mann-Whitney test.

use super::real_len;

/// The number of standard deviations by which `low` lies below `high`; positive when it does. About 3.09 is p = 0.001
/// for one side. The normal approximation is good from twenty values on.
pub fn below(low: &[f64], high: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> =
        low.iter().map(|value| (*value, true)).chain(high.iter().map(|value| (*value, false))).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut rank_sum, mut ties, mut done) = (0.0, 0.0, 0_usize);
    for equal in all.chunk_by(|a, b| a.0 == b.0) {
        let count = real_len(equal.len());
        let rank = real_len(done) + (count + 1.0) / 2.0;
        rank_sum += rank * real_len(equal.iter().filter(|(_, is_low)| *is_low).count());
        ties += count.powi(3) - count;
        done = done.saturating_add(equal.len());
    }
    let (n, m) = (real_len(low.len()), real_len(high.len()));
    let total = n + m;
    let u = rank_sum - n * (n + 1.0) / 2.0;
    let variance = n * m / 12.0 * ((total + 1.0) - ties / (total * (total - 1.0)));
    if variance > 0.0 { (n * m / 2.0 - u) / variance.sqrt() } else { 0.0 }
}
