//! What earlier tests found of a device: shown, and heeded where it asks for more care.

use crate::memory::{Bridge, MemoryError, Past, PastRoute, Pending, Record, Store, Unit, time};
use crate::report::human;
use crate::target::Target;
use crate::target::facts::{Attachment, DiskFacts, UsbFacts};
use crate::verify::Verdict;

/// All that names a unit and that a test of it depends on.
pub fn unit(disk: &DiskFacts) -> Unit {
    let usb = match &disk.attachment {
        Attachment::Usb(usb) => Some(usb),
        _ => None,
    };
    let bridge = |usb: &UsbFacts| Bridge { vendor: usb.vendor_id, product: usb.product_id, release: usb.release };
    Unit {
        bridge: usb.map(bridge),
        bridge_serial: usb.and_then(|usb| usb.serial.clone()),
        driver: usb.and_then(|usb| usb.driver.clone()),
        vendor: disk.vendor.clone(),
        model: disk.model.clone(),
        revision: disk.revision.clone(),
        serial: disk.serial.clone(),
        size: disk.size,
    }
}

/// What is remembered of a target, and what could not be read of it, in words.
pub fn of(target: &Target) -> (Past, Vec<String>) {
    let Some(disk) = target.disk() else { return (Past::default(), Vec::new()) };
    match Store::open().past(&unit(disk)) {
        Ok((past, strange)) => (past, strange.iter().map(not_read).collect()),
        Err(error) => (Past::default(), vec![not_read(&error)]),
    }
}

fn not_read(error: &MemoryError) -> String {
    format!("what earlier tests found could not be read: {error}")
}

/// Keeps the results of a test for later runs, and what of it waits; an earlier one that waits is given up.
pub fn keep(
    disk: &DiskFacts,
    results: impl Iterator<Item = PastRoute>,
    pending: Option<Pending>,
) -> Result<(), MemoryError> {
    let (store, mut record) = known(disk)?;
    results.for_each(|result| record.learn(result));
    record.pending = pending;
    store.keep(&record)
}

/// Keeps that a route failed its trial by doing harm.
pub fn keep_harm(disk: &DiskFacts, route: &str, why: &str) -> Result<(), MemoryError> {
    let (store, mut record) = known(disk)?;
    record.learn(PastRoute {
        name: route.to_owned(),
        when: time::now(),
        verdict: Verdict::Harmful(String::new()).to_string(),
        reason: Some(why.to_owned()),
        largest: None,
        rejected: None,
        late: None,
    });
    store.keep(&record)
}

fn known(disk: &DiskFacts) -> Result<(Store, Record), MemoryError> {
    let (store, unit) = (Store::open(), unit(disk));
    let record = store.record(&unit)?.unwrap_or_else(|| Record::new(unit));
    Ok((store, record))
}

/// Every result, for people: what was found when, and how much that says.
pub fn words(past: &Past) -> Vec<String> {
    of_this(past).chain(past.others.iter().map(of_another)).collect()
}

/// The same of other units only where it is a warning.
pub fn warnings(past: &Past) -> Vec<String> {
    let bad = past.others.iter().filter(|known| known.objection().is_some());
    of_this(past).chain(bad.map(of_another)).collect()
}

fn of_this(past: &Past) -> impl Iterator<Item = String> + '_ {
    past.this.iter().map(|known| format!("an earlier test of this unit found {}", of_route(known)))
}

fn of_another(known: &PastRoute) -> String {
    format!("an earlier test of another unit with this bridge and firmware found {}", of_route(known))
}

fn of_route(known: &PastRoute) -> String {
    let reason = known.reason.iter().map(|reason| format!(" ({reason})"));
    let largest = known.largest.iter().map(|bytes| format!(", up to {} in one command", human::bytes(*bytes)));
    let late = known.late.iter().map(|late| format!(", and afterwards: {late}"));
    let more: String = reason.chain(largest).chain(late).collect();
    format!("{} {}{more} on {}; that proves nothing today", known.name, known.verdict, time::date(known.when))
}
