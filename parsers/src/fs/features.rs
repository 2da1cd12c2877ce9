//! Feature bits by name, as several formats have them.

/// A bit, its name, and whether a map can be made in its presence.
pub(super) type Row = (u32, &'static str, bool);

/// The names of the bits that are set and not understood: refused by a row, or in none.
pub(super) fn not_understood(rows: &[Row], bits: u32) -> Vec<String> {
    (0..32)
        .filter_map(|shift| 1_u32.checked_shl(shift))
        .filter(|bit| bits & bit != 0)
        .filter_map(|bit| match rows.iter().find(|row| row.0 == bit) {
            Some((_, _, true)) => None,
            Some((_, name, false)) => Some((*name).to_owned()),
            None => Some(format!("unknown bit {bit:#x}")),
        })
        .collect()
}
