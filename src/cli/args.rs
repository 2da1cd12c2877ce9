//! The command line as typed: clap and nothing else. What the words mean is decided in [`super::job`].

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Offline, filesystem-aware TRIM: finds what is free on an unmounted volume and tells the drive.
///
/// coldtrim reads the allocation structures of a volume that nobody uses, proves which bytes are free, and discards
/// them by the best way that the device offers. It works where the operating system sends no TRIM: behind USB
/// bridges, on FAT and exFAT, on image files.
#[derive(Debug, Parser)]
#[command(name = "coldtrim", version, max_term_width = 100, after_long_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  coldtrim list                           which drives there are, and what could trim them
  coldtrim map /dev/sdb                   what is free on every volume of the disk (changes nothing)
  coldtrim trim -n /dev/sdb1              what would be discarded, and how (changes nothing)
  coldtrim trim /dev/sdb1                 show it, ask, do it
  coldtrim probe /dev/sdb                 what an enclosure claims, and what follows (changes nothing)
  coldtrim verify /dev/sdb1               does TRIM make it faster? (writes into free space)
  coldtrim demo                           the main job on small images; needs no root and no drive

Exit codes:
  0 done, or nothing to do      1 failed                       2 wrong usage, or a question and nobody to answer
  3 refused for safety          4 no working way to discard    5 partly done
  6 probe or verify: harmful    130 answered \"no\", or interrupted between two commands";

/// Options that every command takes.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Print one JSON object (schema "coldtrim/1") on standard output
    #[arg(long, global = true)]
    pub json: bool,
    /// Print only what was asked for and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Say more, such as which locks of the reading process this kernel lacks
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// When to use colours
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: ColorArg,
    /// How to show progress, on standard error
    #[arg(long, global = true, value_name = "HOW", default_value = "auto")]
    pub progress: ProgressArg,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorArg {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ProgressArg {
    /// A bar on a terminal, plain lines elsewhere
    #[default]
    Auto,
    /// A line every few seconds
    Plain,
    /// A JSON object a line
    Json,
    None,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show drives, how they are attached, what is on them, and which routes could trim them
    ///
    /// Reads sysfs and the first blocks of each device. Sends no SCSI, ATA or NVMe command.
    List(ListArgs),
    /// Show what is free on TARGET, and why anything is refused; changes nothing
    Map(MapArgs),
    /// Discard the free space of TARGET
    ///
    /// Reads the map, rounds it inwards to what the device can discard, shows the plan, asks, and sends it. The whole
    /// disk is claimed for the run. Deleted files can then no longer be recovered.
    Trim(TrimArgs),
    /// Ask DEVICE, its bridge and its drive what they claim about discarding, and say what follows
    ///
    /// Changes nothing unless `--test` is given. Sends commands that only ask (INQUIRY, READ CAPACITY, IDENTIFY). Claims prove nothing: `trim` tries a route in
    /// free space before it uses it.
    Probe(ProbeArgs),
    /// Measure what TRIM does to the speed of TARGET, and say how sure that is
    ///
    /// Writes test data into free space, before, after a pause, and after TRIM: the result is the third against the second.
    /// Tries the route first, compares what is in use before and after, and discards everything that it wrote.
    Verify(VerifyArgs),
    /// Run the main job on small images that the program carries, and check the result
    ///
    /// Needs no root and no drive: copies the images to a temporary folder, trims them by punching holes, and
    /// compares every file with what the real filesystem driver wrote.
    Demo(DemoArgs),
    /// Print a completion script for SHELL
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Every verb as typed, for words that make no command.
pub const VERBS: &[&str] = &["list", "map", "trim", "probe", "verify", "demo", "completions"];

impl Command {
    /// The verb as typed.
    pub fn name(&self) -> &'static str {
        match self {
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Trim(_) => "trim",
            Self::Probe(_) => "probe",
            Self::Verify(_) => "verify",
            Self::Demo(_) => "demo",
            Self::Completions { .. } => "completions",
        }
    }
}

#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only these devices (default: all)
    #[arg(value_name = "DEVICE")]
    pub devices: Vec<PathBuf>,
}

/// What to look at, and how hard.
#[derive(Debug, Clone, Args)]
pub struct TargetArgs {
    /// A block device, LABEL=, UUID=, or an image file; the members of an array are named together
    #[arg(value_name = "TARGET", required = true)]
    pub targets: Vec<String>,
    /// Where the volume begins inside TARGET (takes K, M, G, T = powers of 1024, KB, MB, GB, TB = of 1000)
    #[arg(long, value_name = "BYTES", value_parser = super::size::parse)]
    pub offset: Option<u64>,
    /// How long the part of TARGET is that may be looked at
    #[arg(long, value_name = "BYTES", value_parser = super::size::parse)]
    pub size: Option<u64>,
    /// Of an array with copies, look at this member alone: one of the TARGETs
    #[arg(long, value_name = "PATH")]
    pub member: Option<String>,
    /// Expect this filesystem; anything else is refused
    #[arg(long, value_name = "NAME")]
    pub fs: Option<String>,
    /// Only this partition (repeatable)
    #[arg(long, value_name = "N")]
    pub partition: Vec<u32>,
    /// Read the volume a second time, file by file, and refuse if a file's data is called free
    #[arg(long, overrides_with = "no_witness")]
    pub witness: bool,
    /// No second reading, also where it is the default (FAT, exFAT, HFS+, and NTFS with an erased log)
    #[arg(long)]
    pub no_witness: bool,
    /// Consent to a named loss (repeatable); the refusal that it lifts says which and what may be lost
    #[arg(long, value_name = "NAME", value_parser = super::job::parse_consent)]
    pub accept: Vec<coldtrim_parsers::volume::Consent>,
}

#[derive(Debug, Args)]
pub struct MapArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// How to print it
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: MapFormatArg,
    /// Draw it into FILE: a bar for every disk and array, with what is used, free, kept and refused
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// What `map` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MapFormatArg {
    /// A summary for people
    Text,
    /// The whole map with its ranges as one JSON object
    Json,
    /// A free extent a line: START LENGTH, in bytes from the start of TARGET
    Ranges,
    /// A free extent a line: START COUNT, in sectors of the whole disk
    Lba,
    /// For hdparm --trim-sector-ranges-stdin
    Hdparm,
    /// For sg_unmap --in=FILE
    #[value(name = "sg_unmap")]
    SgUnmap,
    /// blkdiscard commands
    Blkdiscard,
    /// nvme dsm commands
    Nvme,
    /// A ddrescue map file: + used, ? free
    Ddrescue,
}

#[derive(Debug, Args)]
pub struct TrimArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Show what would be discarded and how, and send nothing (every range: --save-plan FILE)
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// How to tell the device
    #[arg(long, value_name = "ROUTE", default_value = "auto")]
    pub via: String,
    /// Leave out free extents that are smaller (default: the device's granularity)
    #[arg(long, value_name = "SIZE", value_parser = super::size::parse)]
    pub min_extent: Option<u64>,
    /// Also discard gaps between partitions, extents that no logical volume of LVM2 takes, and the bodies of swap areas
    #[arg(long)]
    pub unallocated: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    /// Do not try the route in free space first (the report then says that nothing was proved)
    #[arg(long)]
    pub no_canary: bool,
    /// Write the plan to FILE, to be reviewed; sends nothing
    #[arg(long, value_name = "FILE")]
    pub save_plan: Option<PathBuf>,
    /// Go on only if the plan is still exactly the one in FILE
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Discard at most so many bytes a second
    #[arg(long, value_name = "BYTES", value_parser = super::size::parse)]
    pub max_rate: Option<u64>,
    /// Write every command and its answer to FILE
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Measure first, in a few minutes and with at most 5 % of the free space (4G), what it does to the speed
    #[arg(long, conflicts_with_all = ["dry_run", "save_plan", "no_canary", "unallocated"])]
    pub verify: bool,
}

#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// The disk, or a partition on it: the whole disk is asked
    #[arg(value_name = "DEVICE")]
    pub device: String,
    /// Leave out serial numbers and other marks of this one unit, so that the report can be shared
    #[arg(long)]
    pub anonymous: bool,
    /// Also ask for the NVMe drive behind a USB bridge, by the bridge maker's own commands (JMicron, ASMedia, Realtek)
    ///
    /// Only identity, and only on bridges that can be nothing else: such commands mean other things elsewhere. The disk is
    /// claimed while they run.
    #[arg(long)]
    pub vendor_id: bool,
    /// Find out what is true: write patterns into free space, discard them by every route, and read what happened
    #[arg(long)]
    pub test: bool,
    /// Test this route only (repeatable; default: those that trim would choose by itself)
    #[arg(long, value_name = "ROUTE", requires = "test")]
    pub via: Vec<String>,
    /// Test in these bytes of the disk instead of free space; what is there is lost
    #[arg(long, value_name = "START:LENGTH", requires = "test", value_parser = super::size::parse_area)]
    pub scratch: Option<coldtrim_parsers::units::ByteRange>,
    /// Write at most this many bytes of test patterns
    #[arg(long, value_name = "SIZE", requires = "test", default_value = "256M", value_parser = super::size::parse)]
    pub budget: u64,
    /// Watch the device for so many seconds afterwards: some bridges reset themselves half a minute later
    #[arg(long, value_name = "SECONDS", requires = "test", default_value_t = 75)]
    pub settle: u64,
    /// Print the udev rule by which the kernel itself trims from now on, with the measured limit, and nothing else
    #[arg(long, requires = "test")]
    pub udev: bool,
    /// Also leave one pattern in free space, to be looked at after the device was without power
    #[arg(long, requires = "test", conflicts_with = "udev")]
    pub power_cycle: bool,
    /// Finish a test that --power-cycle began, after the device was unplugged and plugged in again
    #[arg(long, requires = "test", conflicts_with_all = ["power_cycle", "udev", "via"])]
    pub resume: bool,
    /// Do not ask before writing
    #[arg(long, requires = "test")]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct VerifyArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// How to tell the device
    #[arg(long, value_name = "ROUTE", default_value = "auto")]
    pub via: String,
    /// Which protocol: bst (before, a pause, TRIM: the only one with a control, and with a verdict on speed), or one from the
    /// field for its curves: vertex, hardwarefr, continutest, slc-cache, snia-wsat, steady
    #[arg(long, value_name = "NAME", default_value = "bst")]
    pub preset: String,
    /// How thorough: full, quick (about ten minutes on a SATA drive), smoke (a minute, on a small or simulated drive)
    #[arg(long, value_name = "LENGTH", default_value = "full")]
    pub length: LengthArg,
    /// Write at most this many bytes (default: 5 % of the free space and of the drive, at most 32G, 8G where quick; twice
    /// the free space, at most 512M, where smoke)
    #[arg(long, value_name = "SIZE", value_parser = super::size::parse)]
    pub budget: Option<u64>,
    /// Let the drive rest at most so many seconds between two passes (default: 600; 120 where quick, 15 where smoke)
    #[arg(long, value_name = "SECONDS")]
    pub settle: Option<u32>,
    /// Where random numbers begin: the same seed writes to the same places
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Write the report to FILE: one page with plots, which needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write every sample to FILE, a line each
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

/// How thorough a measurement is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LengthArg {
    Full,
    Quick,
    Smoke,
}

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Keep the images in this folder
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,
    /// Only this filesystem
    #[arg(long, value_name = "NAME")]
    pub fs: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_verb_is_listed() {
        let command = Cli::command();
        assert_eq!(command.get_subcommands().map(clap::Command::get_name).collect::<Vec<_>>(), VERBS);
    }
}
