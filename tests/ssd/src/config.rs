//! What a drive is made of, and published drives in small.

/// Model nanoseconds.
pub type Nanos = u64;

/// Where the cleaner writes the pages that it moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fronts {
    /// Between those of the host. The drive heals slowly.
    Mixed,
    /// Into blocks of their own. The drive heals in one sequential pass.
    Separate,
}

/// A cache of fast pages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slc {
    /// Cache that is always there, as a share of the capacity.
    pub fixed: f64,
    /// Cache that is lent out of unmapped pages, as a share of them.
    pub of_unmapped: f64,
    /// One page, programmed fast.
    pub program: Nanos,
    /// How many pages of a block hold data while it is used for the cache: one of so many.
    pub divisor: u32,
    /// So long after the last command the cache begins to be emptied.
    pub fold_after: Nanos,
}

/// Cleaning while nobody asks for anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idle {
    /// It stops with so many free blocks.
    pub target: u32,
    /// It begins so long after the last command.
    pub after: Nanos,
}

/// What becomes of a discard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrimMode {
    /// The pages are unmapped before the answer.
    Obey,
    /// It is answered, and that was all.
    Ignore,
    /// The pages are unmapped in the first pause that begins so much later.
    Late(Nanos),
}

/// The drive's and the bridge's way with discards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trim {
    /// What is done.
    pub mode: TrimMode,
    /// Only whole groups of so many pages are unmapped; 1 for single pages.
    pub granule: u32,
    /// Only the first so many pages of a command count.
    pub most: Option<u32>,
    /// The bridge adds so many pages to the start.
    pub shift: i64,
    /// The bridge multiplies the length.
    pub stretch: u32,
}

/// What a discarded page reads as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readback {
    /// Zeros.
    Zeros,
    /// What was there.
    OldData,
}

/// A drive that gets hot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttle {
    /// Programmed pages without a pause of 0.2 s after which it is hot; then programming takes twice as long.
    pub after: u64,
}

/// A drive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// Pages that the host sees.
    pub pages: u32,
    /// Flash beyond them, as a share.
    pub spare: f64,
    /// Pages of a block.
    pub block_pages: u32,
    /// One page.
    pub program: Nanos,
    /// One page.
    pub read: Nanos,
    /// One block.
    pub erase: Nanos,
    /// One page over the cable.
    pub link: Nanos,
    /// One command.
    pub command: Nanos,
    /// How far the flash may lag behind the answers.
    pub buffer: Nanos,
    /// Where the cleaner writes.
    pub fronts: Fronts,
    /// The cache, if there is one.
    pub slc: Option<Slc>,
    /// Cleaning in pauses, if there is any.
    pub idle: Option<Idle>,
    /// Discards.
    pub trim: Trim,
    /// What discarded pages read as.
    pub readback: Readback,
    /// Heat, if it matters.
    pub throttle: Option<Throttle>,
    /// Deviation of the time that a page takes, averaged over [`NOISE_PAGES`], as a share.
    pub noise: f64,
    /// Seed of the noise.
    pub seed: u64,
}

/// The noise keeps its value for so many pages, so that it does not average out within a chunk of a measurement.
pub const NOISE_PAGES: u32 = 64;

const MILLISECOND: Nanos = 1_000_000;

/// A TRIM that does what it should.
pub const OBEYS: Trim = Trim { mode: TrimMode::Obey, granule: 1, most: None, shift: 0, stretch: 1 };

/// Pages of `mebibytes`.
pub const fn pages(mebibytes: u32) -> u32 {
    mebibytes * 256
}

/// The 2009 class: one write front, little spare, no cache (OCZ Vertex, 159 MB/s new and 25.6 MB/s worn).
pub fn vertex(mebibytes: u32) -> Config {
    Config {
        pages: pages(mebibytes),
        spare: 0.10,
        block_pages: 128,
        program: 58_000,
        read: 12_000,
        erase: 400_000,
        link: 15_000,
        command: 20_000,
        buffer: 8 * MILLISECOND,
        fronts: Fronts::Mixed,
        slc: None,
        idle: None,
        trim: OBEYS,
        readback: Readback::Zeros,
        throttle: None,
        noise: 0.0,
        seed: 1,
    }
}

/// Most SATA drives since: the cleaner has its own front.
pub fn separate(mebibytes: u32) -> Config {
    Config { fronts: Fronts::Separate, ..vertex(mebibytes) }
}

/// QLC with an SLC cache that is lent out of free space (Crucial P1 1 TB: 975 MB/s in the cache, 80 MB/s behind it).
pub fn p1(mebibytes: u32) -> Config {
    Config {
        spare: 0.09,
        block_pages: 64,
        program: 372_000,
        read: 40_000,
        erase: 50_000,
        link: 8_000,
        fronts: Fronts::Separate,
        slc: Some(Slc { fixed: 0.01, of_unmapped: 0.12, program: 30_500, divisor: 4, fold_after: 500 * MILLISECOND }),
        ..vertex(mebibytes)
    }
}
