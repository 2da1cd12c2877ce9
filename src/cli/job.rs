//! From words to a checked job: what is here has passed every test that needs no device.

use super::args::{
    ColorArg, Command, LengthArg, MapFormatArg, OutputArgs, ProbeArgs, ProgressArg, TargetArgs, TrimArgs, VerifyArgs,
};
use crate::measure::Length;
use crate::measure::preset::{PRESETS, Preset, preset};
use crate::report::progress::Mode;
use crate::report::text::Paint;
use coldtrim_parsers::stack::{Depth, Options, WitnessMode};
use coldtrim_parsers::units::ByteRange;
use coldtrim_parsers::volume::Consent;
use std::io::IsTerminal;
use std::path::PathBuf;

/// How to print.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// One JSON object on standard output.
    pub json: bool,
    /// Only what was asked for.
    pub quiet: bool,
    /// More words.
    pub verbose: bool,
    /// Colours on standard output.
    pub paint: Paint,
    /// Progress on standard error.
    pub progress: Mode,
}

impl Output {
    /// Says nothing.
    pub const SILENT: Self =
        Self { json: false, quiet: true, verbose: false, paint: Paint { colours: false }, progress: Mode::Silent };

    /// Decides colours and progress by what the two outputs are.
    pub fn new(args: &OutputArgs) -> Self {
        let colours = match args.color {
            ColorArg::Always => true,
            ColorArg::Never => false,
            ColorArg::Auto => std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
        };
        let progress = match args.progress {
            ProgressArg::Auto if args.quiet => Mode::Silent,
            ProgressArg::Auto if std::io::stderr().is_terminal() => Mode::Bar,
            ProgressArg::Auto | ProgressArg::Plain => Mode::Plain,
            ProgressArg::Json => Mode::Json,
            ProgressArg::None => Mode::Silent,
        };
        Self { json: args.json, quiet: args.quiet, verbose: args.verbose > 0, paint: Paint { colours }, progress }
    }
}

/// What to look at.
#[derive(Debug, Clone)]
pub struct Scope {
    /// As typed.
    pub targets: Vec<String>,
    /// Where the volume begins inside each target, in bytes.
    pub offset: u64,
    /// How many bytes from there, if not all.
    pub size: Option<u64>,
    /// The one member of an array that is meant, as typed.
    pub member: Option<String>,
    /// Whether what device-mapper makes is translated to the devices below.
    pub below: bool,
    /// What to look for.
    pub options: Options,
    /// The losses that the user accepts.
    pub accept: Vec<Consent>,
}

/// A `trim`.
#[derive(Debug, Clone)]
pub struct TrimJob {
    /// What to look at.
    pub scope: Scope,
    /// Send nothing.
    pub dry_run: bool,
    /// The route by name, or none for `auto`.
    pub via: Option<String>,
    /// Smallest extent in bytes.
    pub min_extent: Option<u64>,
    /// Gaps between partitions too.
    pub unallocated: bool,
    /// Do not ask.
    pub yes: bool,
    /// Try the route in free space first.
    pub canary: bool,
    /// Where to write the plan.
    pub save_plan: Option<PathBuf>,
    /// The plan that this run must equal.
    pub plan: Option<PathBuf>,
    /// Bytes a second.
    pub max_rate: Option<u64>,
    /// Where to write every command.
    pub log: Option<PathBuf>,
    /// Measure first what it does to the speed.
    pub verify: bool,
}

impl TrimJob {
    /// A trim of one target, as if nothing else had been typed.
    pub fn of(target: String) -> Self {
        Self {
            scope: Scope {
                member: None,
                below: true,
                targets: vec![target],
                offset: 0,
                size: None,
                options: Options::default(),
                accept: Vec::new(),
            },
            dry_run: false,
            via: None,
            min_extent: None,
            unallocated: false,
            yes: true,
            canary: true,
            save_plan: None,
            plan: None,
            max_rate: None,
            log: None,
            verify: false,
        }
    }
}

/// A `probe --test`.
#[derive(Debug, Clone)]
pub struct TestJob {
    /// These routes; those of `auto` when empty.
    pub via: Vec<String>,
    /// Bytes of the disk to use in place of free space.
    pub scratch: Option<ByteRange>,
    /// Most bytes to write.
    pub budget: u64,
    /// Seconds to watch the device afterwards.
    pub settle: u64,
    /// Only the udev rule.
    pub udev: bool,
    /// Leave something to be looked at after a loss of power.
    pub power_cycle: bool,
    /// Look at it.
    pub resume: bool,
    /// Do not ask.
    pub yes: bool,
}

/// A `verify`.
#[derive(Debug, Clone)]
pub struct VerifyJob {
    /// What to look at and how to tell the device.
    pub trim: TrimJob,
    /// The protocol from the field; none for the experiment with a control.
    pub preset: Option<&'static Preset>,
    /// How thorough.
    pub length: Length,
    /// Most bytes to write.
    pub budget: Option<u64>,
    /// Most seconds of a pause.
    pub settle: Option<f64>,
    /// Where random numbers begin.
    pub seed: Option<u64>,
    /// Where the page goes.
    pub html: Option<PathBuf>,
    /// Where the table goes.
    pub csv: Option<PathBuf>,
}

impl VerifyJob {
    /// The short form around a trim.
    pub fn short(trim: TrimJob) -> Self {
        Self {
            trim,
            preset: None,
            length: Length::Short,
            budget: None,
            settle: None,
            seed: None,
            html: None,
            csv: None,
        }
    }
}

/// A checked job.
#[derive(Debug, Clone)]
pub enum Job {
    /// `list`
    List(Vec<PathBuf>),
    /// `map`
    Map(Scope, MapFormatArg, Option<PathBuf>),
    /// `trim`
    Trim(TrimJob),
    /// `probe`
    Probe {
        /// As typed.
        device: String,
        /// Without the marks of one unit.
        anonymous: bool,
        /// By the bridge maker's own commands, too.
        vendor_id: bool,
        /// Not only claims: what is true.
        test: Option<TestJob>,
    },
    /// `verify`
    Verify(VerifyJob),
    /// `demo`
    Demo {
        /// Keep the images here.
        keep: Option<PathBuf>,
        /// Only this filesystem.
        fs: Option<String>,
    },
    /// `completions`
    Completions(clap_complete::Shell),
}

/// Words that are each right, but not together.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// `--via` takes the names of the table of routes.
    #[error("there is no route '{0}'; there are: auto, {1}")]
    UnknownRoute(String, String),
    /// `--fs` takes the names of the table of formats.
    #[error("coldtrim knows no filesystem '{0}'; it knows: {1}")]
    UnknownFormat(String, String),
    /// A volume of nothing.
    #[error("--size 0 leaves nothing to look at")]
    EmptySize,
    /// A run that would never end.
    #[error("--max-rate 0 would never end; leave it out to run without a limit")]
    NoRate,
    /// A place that is not there.
    #[error("--offset and --size name bytes behind the end of {0}, which has {1} bytes")]
    Outside(String, u64),
    /// A volume that would reach into what is somebody else's.
    #[error(
        "the bytes that --offset and --size name on {path} end at byte {end}, but {what} ends at byte {bound}: the table \
         of partitions is believed; name the partition with --partition, or give a --size that stays inside"
    )]
    ReachesOut {
        /// The target.
        path: String,
        /// Where the named bytes end.
        end: u64,
        /// The partition or the space between two.
        what: String,
        /// Where that ends.
        bound: u64,
    },
    /// A volume of which only the start was named, where nothing tells its end.
    #[error(
        "--offset names no end, and the partition table of {path} cannot tell it ({why}); name the end too, with --size"
    )]
    NoEnd {
        /// The target.
        path: String,
        /// What is wrong with the table.
        why: String,
    },
    /// A partition that is not there.
    #[error("there is no partition {1} on {0}; see which there are without --partition")]
    NoPartition(String, u32),
    /// A member that is not among the targets.
    #[error(
        "--member {0} is none of the targets; name it as one, with the other members of its array where they are here"
    )]
    NoMember(String),
    /// The same bytes twice.
    #[error("{0} and {1} are the same device, or one is a part of the other; name it once")]
    Twice(String, String),
    /// Measurements of several drives would disturb one another.
    #[error("verify measures one drive at a time; name one target")]
    OneTarget,
    /// `--preset` takes the names of the table of protocols.
    #[error("there is no preset '{0}'; there are: bst, {1}")]
    UnknownPreset(String, String),
    /// A measurement without writing.
    #[error("--budget 0 leaves nothing to measure with")]
    NoBudget,
    /// JSON is an answer of its own.
    #[error("--json and --format {0} are two answers to one question; give one of them")]
    TwoFormats(String),
    /// A rule is an answer of its own.
    #[error("--udev prints a udev rule and nothing else; leave --json out")]
    RuleOrJson,
    /// A question to nobody.
    #[error("{0} is {1}, with no enclosure and no drive of its own to ask; {2}")]
    NothingToAsk(String, &'static str, String),
    /// Two plans.
    #[error("--save-plan writes a plan to be reviewed and --plan runs a reviewed one; give one of them")]
    TwoPlans,
}

impl Job {
    /// Checks what was typed.
    pub fn new(command: Command, output: &Output) -> Result<Self, UsageError> {
        Ok(match command {
            Command::List(args) => Self::List(args.devices),
            Command::Map(args) => {
                let format = match (output.json, args.format) {
                    (true, MapFormatArg::Text | MapFormatArg::Json) => MapFormatArg::Json,
                    (true, other) => return Err(UsageError::TwoFormats(format!("{other:?}").to_lowercase())),
                    (false, format) => format,
                };
                Self::Map(scope(args.target)?, format, args.svg)
            }
            Command::Trim(args) => Self::Trim(trim(args)?),
            Command::Probe(args) => {
                args.via.iter().try_for_each(|name| known_route(name))?;
                if args.udev && output.json {
                    return Err(UsageError::RuleOrJson);
                }
                let ProbeArgs {
                    device,
                    anonymous,
                    vendor_id,
                    test,
                    via,
                    scratch,
                    budget,
                    settle,
                    udev,
                    power_cycle,
                    resume,
                    yes,
                } = args;
                let test = test.then_some(TestJob { via, scratch, budget, settle, udev, power_cycle, resume, yes });
                Self::Probe { device, anonymous, vendor_id, test }
            }
            Command::Verify(args) => Self::Verify(verify(args)?),
            Command::Demo(args) => Self::Demo { keep: args.keep, fs: args.fs },
            Command::Completions { shell } => Self::Completions(shell),
        })
    }
}

fn scope(args: TargetArgs) -> Result<Scope, UsageError> {
    if args.size == Some(0) {
        return Err(UsageError::EmptySize);
    }
    if let Some(name) = &args.fs {
        known_format(name)?;
    }
    let witness = match (args.witness, args.no_witness) {
        (_, true) => WitnessMode::Never,
        (true, false) => WitnessMode::Always,
        (false, false) => WitnessMode::WhereNeeded,
    };
    if let Some(member) = args.member.as_ref().filter(|member| !args.targets.contains(member)) {
        return Err(UsageError::NoMember(member.clone()));
    }
    Ok(Scope {
        member: args.member,
        below: true,
        targets: args.targets,
        offset: args.offset.unwrap_or(0),
        size: args.size,
        options: Options { witness, partitions: args.partition, expect: args.fs, depth: Depth::Whole },
        accept: args.accept,
    })
}

fn known_route(name: &str) -> Result<(), UsageError> {
    if crate::transport::route(name).is_some() {
        return Ok(());
    }
    let names: Vec<&str> = crate::transport::TRANSPORTS.iter().map(|route| route.name).collect();
    Err(UsageError::UnknownRoute(name.to_owned(), names.join(", ")))
}

fn known_format(name: &str) -> Result<(), UsageError> {
    let formats = coldtrim_parsers::fs::FORMATS;
    if formats.iter().any(|format| format.name() == name || format.variants().contains(&name)) {
        return Ok(());
    }
    let names = formats.iter().flat_map(|format| format.variants().iter().copied());
    Err(UsageError::UnknownFormat(name.to_owned(), names.collect::<Vec<_>>().join(", ")))
}

fn trim(args: TrimArgs) -> Result<TrimJob, UsageError> {
    let via = (args.via != "auto").then_some(args.via);
    via.as_deref().map_or(Ok(()), known_route)?;
    if args.save_plan.is_some() && args.plan.is_some() {
        return Err(UsageError::TwoPlans);
    }
    if args.verify && args.target.targets.len() != 1 {
        return Err(UsageError::OneTarget);
    }
    if args.max_rate == Some(0) {
        return Err(UsageError::NoRate);
    }
    Ok(TrimJob {
        scope: scope(args.target)?,
        dry_run: args.dry_run,
        via,
        min_extent: args.min_extent,
        unallocated: args.unallocated,
        yes: args.yes,
        canary: !args.no_canary,
        save_plan: args.save_plan,
        plan: args.plan,
        max_rate: args.max_rate,
        log: args.log,
        verify: args.verify,
    })
}

fn known_preset(name: &str) -> Result<&'static Preset, UsageError> {
    preset(name).ok_or_else(|| {
        let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        UsageError::UnknownPreset(name.to_owned(), names.join(", "))
    })
}

fn verify(args: VerifyArgs) -> Result<VerifyJob, UsageError> {
    let via = (args.via != "auto").then_some(args.via);
    via.as_deref().map_or(Ok(()), known_route)?;
    if args.target.targets.len() != 1 {
        return Err(UsageError::OneTarget);
    }
    if args.budget == Some(0) {
        return Err(UsageError::NoBudget);
    }
    let preset = (args.preset != "bst").then(|| known_preset(&args.preset)).transpose()?;
    let trim = TrimJob { scope: scope(args.target)?, via, yes: args.yes, ..TrimJob::of(String::new()) };
    Ok(VerifyJob {
        trim,
        preset,
        length: match args.length {
            LengthArg::Full => Length::Full,
            LengthArg::Quick => Length::Quick,
            LengthArg::Smoke => Length::Smoke,
        },
        budget: args.budget,
        settle: args.settle.map(f64::from),
        seed: args.seed,
        html: args.html,
        csv: args.csv,
    })
}

/// The consents by name, for clap.
pub fn parse_consent(text: &str) -> Result<Consent, String> {
    let known = Consent::ALL.iter().copied().find(|consent| consent.name() == text);
    known.ok_or_else(|| {
        let names: Vec<&str> = Consent::ALL.iter().map(|consent| consent.name()).collect();
        format!("there is no consent '{text}'; there are: {}", names.join(", "))
    })
}
