//! `coldtrim probe`: what the bridge, the drive and the kernel claim about discarding, where they contradict each
//! other, and what follows.

mod power;
mod results;
mod test;
mod udev;
mod vendor;

pub use test::Refused;

use super::job::{Output, TestJob, UsageError};
use super::survey::identify;
use super::{Ending, device, past};
use crate::memory::{Past, PastRoute, time};
use crate::report::{Reason, SCHEMA, human};
use crate::target::facts::{Attachment, DiskFacts, Kind, Rotation};
use crate::target::{Intent, Opener, Target, suitable};
use crate::transport::claims::ScsiClaims;
use crate::transport::{Applies, DeviceFacts, ErrorKind, ReadAfterDiscard, Route, TRANSPORTS};
use crate::verify::claims::{contradictions, why_the_kernel_does_not};
use anyhow::{Result, anyhow};
use coldtrim_parsers::text::{printable, quoted};
use serde::Serialize;
use std::fs::File;
use std::io::Write;

/// Everything that was claimed.
#[derive(Serialize)]
struct Answer {
    schema: &'static str,
    command: &'static str,
    /// As the kernel sees it.
    disk: DiskFacts,
    /// What the disk says; absent where it speaks no SCSI.
    scsi: Option<ScsiClaims>,
    /// Two layers that cannot both be right.
    contradictions: Vec<String>,
    /// Why the kernel sends no discard by itself.
    kernel: Option<String>,
    /// What speaks against trimming this disk at all.
    reasons: Vec<Reason>,
    /// How many of them are of the device, not of this machine.
    #[serde(skip)]
    of_device: usize,
    /// What is remembered, in words.
    #[serde(skip)]
    known: Vec<String>,
    /// What of that could not be read.
    #[serde(skip)]
    unread: Vec<String>,
    /// Every route, in the order in which `auto` tries them.
    routes: Vec<RouteAnswer>,
    /// What earlier tests found.
    remembered: Vec<Remembered>,
    /// What the drive behind the bridge says by the bridge maker's own commands, when that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    vendor: Option<vendor::VendorAnswer>,
    /// What the routes really did, when that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    test: Option<results::Results>,
    exit_code: u8,
}

/// What became of a route when it was asked for its limits.
#[derive(Serialize)]
struct RouteAnswer {
    name: &'static str,
    prospect: Prospect,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<RouteLimits>,
    notes: Vec<String>,
}

/// A result of an earlier test.
#[derive(Serialize)]
struct Remembered {
    /// Whether it was this very unit, or another one with this bridge and firmware.
    this_unit: bool,
    /// The day.
    date: String,
    #[serde(flatten)]
    result: PastRoute,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Prospect {
    /// `auto` would try it.
    WorthTrying,
    /// Only `--via` chooses it.
    OnlyWhenNamed,
    /// It cannot be used here.
    Impossible,
}

#[derive(Serialize)]
struct RouteLimits {
    granularity: u64,
    alignment: u64,
    max_ranges: u64,
    max_command_bytes: u64,
    reads_after_discard: ReadAfterDiscard,
}

/// Runs the verb.
pub fn run(spec: &str, anonymous: bool, vendor_id: bool, test: Option<&TestJob>, output: &Output) -> Result<Ending> {
    let target = Opener::default().open(spec, Intent::Read, &identify)?;
    let disk = askable(&target, spec)?;
    let mut answer = ask(&target, disk)?;
    drop(target);
    for note in &answer.unread {
        say!("coldtrim: {note}");
    }
    let mut ending = Ending::Done;
    if vendor_id {
        let (told, end) = vendor::ask(spec)?;
        answer.vendor = Some(told);
        ending = end;
        answer.exit_code = ending.code();
    }
    if let Some(job) = test {
        let results = if job.resume { power::resume(spec, job, output)? } else { test::run(spec, job, output)? };
        ending = results.ending();
        answer.exit_code = ending.code();
        answer.test = Some(results);
    }
    if anonymous {
        answer.make_anonymous();
    }
    if test.is_some_and(|job| job.udev) {
        return answer.hand_over(ending);
    }
    if output.json {
        super::print_json(&answer)?;
    } else {
        print(&mut std::io::stdout().lock(), &answer, output)?;
    }
    Ok(ending)
}

/// The disk, when there is hardware behind the name that can be asked.
fn askable<'a>(target: &'a Target, spec: &str) -> Result<&'a DiskFacts, UsageError> {
    let nothing = |what, advice: String| Err(UsageError::NothingToAsk(spec.to_owned(), what, advice));
    let Some(disk) = target.disk() else {
        return nothing(
            "an image file",
            format!("`coldtrim trim -n {}` shows what can be discarded in it", quoted(spec)),
        );
    };
    let below = match (&disk.stands_for, disk.slaves.first()) {
        (_, Some(slave)) => format!("ask the disk below it: `coldtrim probe /dev/{slave}`"),
        (Some(file), None) => format!("it stands for {file}"),
        (None, None) => "`coldtrim list` shows the disks".to_owned(),
    };
    match disk.kind {
        Kind::Loop => nothing("a loop device", below),
        Kind::DeviceMapper => nothing("a device-mapper node", below),
        Kind::Md => nothing("an md array", below),
        Kind::Optical => nothing("an optical drive", "on it the same commands mean other things".to_owned()),
        _ => Ok(disk),
    }
}

fn ask(target: &Target, disk: &DiskFacts) -> Result<Answer> {
    let file = target.disk_reader()?;
    let facts = device::facts_of_disk(disk);
    let scsi = match disk.kind {
        Kind::Scsi => Some(ScsiClaims::read(&file, &facts).map_err(|error| {
            let advice = error.advice();
            anyhow!("{}: {}; next: {advice}", disk.node.display(), error.with_causes())
        })?),
        _ => None,
    };
    let (known, unread) = past::of(target);
    let routes = TRANSPORTS.iter().filter_map(|route| route_answer(route, &file, &facts, &known)).collect();
    target.must_be_unchanged()?;
    let node = &quoted(&disk.node.to_string_lossy());
    // What belongs to the device comes first: the rest names mount points and processes of this machine.
    let mut of_device = suitable::findings(disk, target.partition());
    if disk.rotation != Rotation::Rotating && scsi.as_ref().and_then(ScsiClaims::rotates) == Some(true) {
        of_device.push(suitable::rotates(&disk.node));
    }
    let of_machine = target.findings().into_iter().filter(|finding| !of_device.contains(finding)).collect::<Vec<_>>();
    let reason = |finding| Reason::new(finding, node, &[]);
    let reasons: Vec<Reason> = of_device.iter().chain(&of_machine).map(reason).collect();
    Ok(Answer {
        schema: SCHEMA,
        command: "probe",
        contradictions: scsi.as_ref().map(|claims| contradictions(disk, claims)).unwrap_or_default(),
        kernel: why_the_kernel_does_not(disk, scsi.as_ref()),
        disk: disk.clone(),
        scsi,
        reasons,
        of_device: of_device.len(),
        routes,
        remembered: remembered(&known),
        known: past::words(&known),
        unread,
        vendor: None,
        test: None,
        exit_code: Ending::Done.code(),
    })
}

/// Asks a route for its limits. Routes that are only used when named are not even asked, because their first byte may
/// mean something else here. None for routes that belong to another kind of device.
fn route_answer(route: &'static Route, file: &File, facts: &DeviceFacts, known: &Past) -> Option<RouteAnswer> {
    let plain = |prospect, reason: String| {
        Some(RouteAnswer { name: route.name, prospect, reason, limits: None, notes: Vec::new() })
    };
    let reason = match (route.applies)(facts) {
        Applies::No(reason) => return plain(Prospect::Impossible, reason.to_owned()),
        Applies::WhenNamed(reason) => return plain(Prospect::OnlyWhenNamed, reason.to_owned()),
        Applies::Auto(reason) => reason,
    };
    if let Some(objection) = known.objection(route.name) {
        return plain(Prospect::OnlyWhenNamed, objection);
    }
    let transport = match (route.open)(file, facts) {
        Ok(transport) => transport,
        Err(error) => return plain(Prospect::Impossible, unprefixed(&error, route.name)),
    };
    let limits = transport.limits();
    Some(RouteAnswer {
        name: route.name,
        prospect: Prospect::WorthTrying,
        reason: reason.to_owned(),
        limits: Some(RouteLimits {
            granularity: limits.granularity(),
            alignment: limits.alignment(),
            max_ranges: limits.max_ranges(),
            max_command_bytes: limits.max_command_bytes(),
            reads_after_discard: transport.read_after_discard(),
        }),
        notes: transport.notes().to_vec(),
    })
}

fn remembered(known: &Past) -> Vec<Remembered> {
    let of = |this_unit| {
        move |result: &PastRoute| Remembered { this_unit, date: time::date(result.when), result: result.clone() }
    };
    known.this.iter().map(of(true)).chain(known.others.iter().map(of(false))).collect()
}

/// The error without the route's name, which stands in front of it anyway.
fn unprefixed(error: &crate::transport::TransportError, name: &str) -> String {
    let text = error.with_causes();
    let hint = if error.kind() == ErrorKind::Permission { "; run it with sudo" } else { "" };
    format!("{}{hint}", text.strip_prefix(&format!("{name}: ")).unwrap_or(&text))
}

impl Answer {
    /// Prints the udev rule, or says why there is none.
    fn hand_over(&self, ending: Ending) -> Result<Ending> {
        let granularity = |name: &str| {
            let route = self.routes.iter().find(|route| route.name == name);
            route.and_then(|route| route.limits.as_ref()).map(|limits| limits.granularity)
        };
        match self.test.as_ref().map(|results| udev::rule(&self.disk, results, granularity)) {
            Some(Ok(rule)) => {
                std::io::stdout().lock().write_all(rule.as_bytes())?;
                Ok(ending)
            }
            Some(Err(why)) => {
                say!("coldtrim: {why}");
                Ok(if ending == Ending::Done { Ending::NoRoute } else { ending })
            }
            None => Ok(ending),
        }
    }

    fn make_anonymous(&mut self) {
        self.disk.serial = None;
        if let Attachment::Usb(usb) = &mut self.disk.attachment {
            usb.serial = None;
        }
        if let Some(scsi) = &mut self.scsi {
            scsi.make_anonymous();
        }
        if let Some(vendor) = &mut self.vendor {
            vendor.make_anonymous();
        }
        self.reasons.truncate(self.of_device);
    }
}

fn print(out: &mut dyn Write, answer: &Answer, output: &Output) -> std::io::Result<()> {
    let disk = &answer.disk;
    let facts = [Some(human::bytes(disk.size)), device::model(disk), device::attachment(disk)];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    writeln!(out, "{}  {}", output.paint.bold(&disk.node.display().to_string()), printable(&facts.join(", ")))?;
    if let Attachment::Usb(usb) = &disk.attachment {
        let speed = usb.speed.as_deref().unwrap_or("unknown");
        writeln!(out, "  bridge firmware {:04x}, link of {speed} Mbit/s", usb.release)?;
    }
    if let Some(scsi) = &answer.scsi {
        print_claims(out, scsi)?;
    }
    if let Some(vendor) = &answer.vendor {
        vendor.print(out)?;
    }
    match &answer.kernel {
        Some(reason) => writeln!(out, "  the kernel sends no discard by itself: {reason}")?,
        None => {
            writeln!(out, "  the kernel discards by itself, up to {} at once", human::bytes(disk.discard.max_bytes))?
        }
    }
    for line in &answer.contradictions {
        writeln!(out, "  {} {}", output.paint.warn("contradiction:"), printable(line))?;
    }
    for reason in &answer.reasons {
        writeln!(out, "  {} {}", output.paint.warn("note:"), printable(&reason.message))?;
    }
    for line in &answer.known {
        writeln!(out, "  {} {line}", output.paint.warn("remembered:"))?;
    }
    writeln!(out, "routes:")?;
    answer.routes.iter().try_for_each(|route| print_route(out, route))?;
    match &answer.test {
        None => print_conclusion(out, answer),
        Some(results) => results.print(out, output),
    }
}

fn print_claims(out: &mut dyn Write, scsi: &ScsiClaims) -> std::io::Result<()> {
    let inquiry = &scsi.inquiry;
    let names = format!("{} {}, revision {}", inquiry.vendor, inquiry.product, inquiry.revision);
    writeln!(out, "  INQUIRY: {}", printable(&names))?;
    let pages: Vec<String> = scsi.pages.iter().map(|code| format!("{code:02x}h")).collect();
    writeln!(out, "  VPD pages: {}", if pages.is_empty() { "none".to_owned() } else { pages.join(" ") })?;
    if let Some(limits) = &scsi.limits {
        let (blocks, ranges) = (limits.max_unmap_blocks, limits.max_unmap_descriptors);
        writeln!(out, "  UNMAP: at most {blocks} blocks in {ranges} ranges, granules of {}", limits.unmap_granularity)?;
    }
    if let Some(page) = &scsi.provisioning {
        let bit = |bit: bool| u8::from(bit);
        let (unmap, long, short) = (bit(page.unmap), bit(page.write_same_16), bit(page.write_same_10));
        writeln!(out, "  LBPU {unmap}, LBPWS {long}, LBPWS10 {short}, LBPRZ {}", bit(page.reads_zeros))?;
    }
    if let Some(details) = scsi.capacity_16.and_then(|capacity| capacity.details) {
        writeln!(out, "  LBPME {}, LBPRZ {}", u8::from(details.provisioned), u8::from(details.reads_zeros))?;
    }
    if let Some(drive) = &scsi.ata {
        let knows = if drive.trim { "knows TRIM" } else { "knows no TRIM" };
        let names = format!("{}, firmware {}", drive.model, drive.firmware);
        writeln!(out, "  ATA drive: {}, {knows}", printable(&names))?;
    }
    scsi.unanswered.iter().try_for_each(|question| writeln!(out, "  not answered: {question}"))
}

fn print_route(out: &mut dyn Write, route: &RouteAnswer) -> std::io::Result<()> {
    let words = match route.prospect {
        Prospect::WorthTrying => "worth trying",
        Prospect::OnlyWhenNamed => "only when named",
        Prospect::Impossible => "not here",
    };
    writeln!(out, "  {:<12} {words}: {}", route.name, printable(&route.reason))?;
    if let Some(limits) = &route.limits {
        let most = human::bytes(limits.max_command_bytes);
        let granule = human::bytes(limits.granularity);
        writeln!(out, "               up to {most} in {} ranges, granules of {granule}", limits.max_ranges)?;
    }
    route.notes.iter().try_for_each(|note| writeln!(out, "               {}", printable(note)))
}

fn print_conclusion(out: &mut dyn Write, answer: &Answer) -> std::io::Result<()> {
    let worth = answer.routes.iter().find(|route| route.prospect == Prospect::WorthTrying);
    let usb = matches!(answer.disk.attachment, Attachment::Usb(_));
    match worth {
        None => writeln!(out, "Nothing here claims to discard in a way that coldtrim would choose by itself."),
        Some(route) if usb => writeln!(
            out,
            "These are claims. `coldtrim trim` tries {} in free space, with guards around it, before it uses it.",
            route.name
        ),
        Some(route) => writeln!(out, "`coldtrim trim` would use {}.", route.name),
    }
}
