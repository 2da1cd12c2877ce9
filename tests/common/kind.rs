//! The kinds of volume that a family of test images has: a row for each feature that matters.

/// One kind of volume.
pub struct Kind {
    pub name: &'static str,
    /// What mkfs is told.
    pub options: &'static str,
    /// A usual size in KiB.
    pub kib: u64,
    /// False when the running kernel may not be able to mount it.
    pub mounts: bool,
}

pub const fn kind(name: &'static str, options: &'static str, kib: u64) -> Kind {
    Kind { name, options, kib, mounts: true }
}

pub const fn unmountable(name: &'static str, options: &'static str, kib: u64) -> Kind {
    Kind { name, options, kib, mounts: false }
}

/// The row with this name.
pub fn by_name(kinds: &'static [Kind], name: &str) -> &'static Kind {
    kinds.iter().find(|kind| kind.name == name).unwrap_or_else(|| panic!("no kind of volume is called {name}"))
}
