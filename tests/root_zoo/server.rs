//! The side of the bridges, inside the guest: attaches them, tells what they have seen, and plugs them in again.

use super::bridge::{Return, Unit};
use super::drive::Drive;
use super::table::{LEAVERS, ROWS, TUNNELS};
use super::usbip;
use std::fmt::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A bridge on the guest's bus.
struct Attached {
    name: &'static str,
    unit: Arc<Mutex<Unit>>,
    port: u32,
    /// It has left for good.
    gone: bool,
}

/// All bridges at once. Tells their nodes in files, and what they have seen whenever a file asks for it.
pub fn serve(image: &str, folder: &Path, names: &[String]) {
    let image = Arc::new(std::fs::read(image).expect("the image"));
    let rows = ROWS.iter().map(|row| (row.name, row.bridge));
    let all = rows.chain(LEAVERS.iter().chain(TUNNELS).map(|case| (case.name, case.bridge)));
    let mut units: Vec<Attached> = all
        .filter(|(name, _)| names.iter().any(|wanted| wanted == name))
        .map(|(name, bridge)| {
            let unit = Arc::new(Mutex::new(Unit::new(bridge, Drive::new(Arc::clone(&image)))));
            Attached { name, port: usbip::attach(Arc::clone(&unit), name), unit, gone: false }
        })
        .collect();
    units.iter().for_each(|unit| unit.note_node(folder));
    std::fs::write(folder.join("ready"), "").expect("a note");
    loop {
        for unit in &mut units {
            unit.answer(folder);
            unit.come_back(folder);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Attached {
    fn lock(&self) -> std::sync::MutexGuard<'_, Unit> {
        self.unit.lock().expect("no panic")
    }

    fn note_node(&self, folder: &Path) {
        let node = usbip::wait_for_node(self.name);
        std::fs::write(folder.join(format!("{}.node", self.name)), node.display().to_string()).expect("a note");
    }

    /// Does what a file asks for: tells what was seen, or plugs the bridge in again.
    fn answer(&mut self, folder: &Path) {
        let file = |kind: &str| folder.join(format!("{}.{kind}", self.name));
        if file("ask").exists() {
            let unit = self.lock();
            let mut text = String::new();
            for (first, count) in unit.drive.differences() {
                let _ = writeln!(text, "changed {first} {count}");
            }
            for line in &unit.log {
                let _ = writeln!(text, "log {line}");
            }
            std::fs::write(file("part"), text).expect("a note");
            std::fs::rename(file("part"), file("state")).expect("a note");
            std::fs::remove_file(file("ask")).expect("a note");
        }
        let plug = file("plug");
        if let Ok(sectors) = std::fs::read_to_string(&plug) {
            usbip::detach(self.port);
            let mut unit = self.lock();
            unit.lost_power();
            unit.drive.sectors = sectors.trim().parse().expect("a number of sectors");
            drop(unit);
            self.attach_again(folder);
            std::fs::remove_file(plug).expect("a note");
        }
    }

    /// Comes back after it has left by itself, where it does that.
    fn come_back(&mut self, folder: &Path) {
        let Some(how) = self.lock().left.filter(|_| !self.gone) else { return };
        usbip::wait_until_gone(self.name);
        if how == Return::Never {
            self.gone = true;
            return;
        }
        let mut unit = self.lock();
        unit.drive.sectors -= if how == Return::Smaller { 2048 } else { 0 };
        unit.left = None;
        drop(unit);
        self.attach_again(folder);
    }

    fn attach_again(&mut self, folder: &Path) {
        usbip::wait_until_gone(self.name);
        self.port = usbip::attach(Arc::clone(&self.unit), self.name);
        self.note_node(folder);
        self.lock().log.push("is there again".to_owned());
    }
}
