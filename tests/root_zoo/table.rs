//! The bridges, and what must happen behind each of them.

use super::bridge::{Bridge, PLAIN, Return, SAT, UNMAP};

pub struct Row {
    pub name: &'static str,
    /// For the published table.
    pub about: &'static str,
    pub bridge: Bridge,
    /// For `coldtrim trim`.
    pub arguments: &'static str,
    pub verdict: &'static str,
    pub route: &'static str,
    pub exit: i32,
    /// Exactly the free space must read otherwise afterwards.
    pub all_discarded: bool,
    /// The verdict of `probe --test --resume` after a loss of power, where that is tried.
    pub after_power: Option<&'static str>,
}

const fn row(name: &'static str, about: &'static str, bridge: Bridge) -> Row {
    Row {
        name,
        about,
        bridge,
        arguments: "",
        verdict: "works (zeroes)",
        route: "unmap",
        exit: 0,
        all_discarded: true,
        after_power: None,
    }
}

impl Row {
    const fn by(self, arguments: &'static str, route: &'static str) -> Self {
        Self { arguments, route, ..self }
    }

    const fn then(self, after_power: &'static str) -> Self {
        Self { after_power: Some(after_power), ..self }
    }

    const fn ends(self, verdict: &'static str, exit: i32) -> Self {
        Self { verdict, exit, all_discarded: false, ..self }
    }
}

pub const ROWS: &[Row] = &[
    row("good-unmap", "good UNMAP", UNMAP).then("works (zeroes)"),
    row("forgets", "remembers discards until the power goes", Bridge { forgets: true, ..UNMAP }).then("unstable"),
    row("good-sat16", "good ATA PASS-THROUGH(16)", SAT).by("", "sat16"),
    row("sat12-only", "ATA PASS-THROUGH(12) only", Bridge { sat_12: true, ..PLAIN }).by("--via sat12", "sat12"),
    row("sat12-auto", "ATA PASS-THROUGH(12) only, not named", Bridge { sat_12: true, ..PLAIN })
        .by("", "-")
        .ends("-", 4),
    row("writesame", "WRITE SAME(16) only", Bridge { write_same: true, claims: 0x40, ..PLAIN })
        .by("--via writesame16", "writesame16"),
    row("lbpme-0", "UNMAP works, LBPME is 0", Bridge { provisioned: false, ..UNMAP }),
    row("ignores", "claims UNMAP and ignores it", Bridge { aim: |first, _| (first, 0), ..UNMAP })
        .ends("no evidence", 0),
    row("rejects", "claims UNMAP and rejects it", Bridge { rejects: true, ..UNMAP }).ends("rejected", 4),
    row("4-mib", "rejects commands above 4 MiB", Bridge { most_bytes: 4 << 20, ..UNMAP }),
    row("one-range", "claims 63 descriptors, takes one", Bridge { most_descriptors: 1, ..UNMAP }),
    row(
        "endless",
        "claims no limit, takes 8 MiB",
        Bridge { limits: Some((u32::MAX, u32::MAX)), most_bytes: 8 << 20, ..UNMAP },
    ),
    row("4096-over-512", "blocks of 4096 bytes over sectors of 512", Bridge { block: 8, ..SAT }).by("", "sat16"),
    row("sat-shifted", "ATA addresses are shifted", Bridge { sat_shift: 2048, ..SAT })
        .by("", "sat16")
        .ends("harmful", 3),
    row("sat-other", "ATA commands reach another disk", Bridge { sat_other_disk: true, ..SAT })
        .by("", "sat16")
        .ends("harmful", 3),
    row("encrypts", "encrypts: discarded blocks are never zero", Bridge { encrypts: true, ..UNMAP })
        .ends("works (content undefined)", 0),
    row("lazy", "discards a little later", Bridge { lazy: Some(300), ..UNMAP }).ends("works (zeroes)", 0),
    row("lazier", "discards much later", Bridge { lazy: Some(3_600_000), ..UNMAP })
        .ends("no evidence", 0)
        .then("works (zeroes)"),
    row("one-after", "discards one block too many after", Bridge { aim: |first, count| (first, count + 1), ..UNMAP })
        .ends("harmful", 3),
    row(
        "one-before",
        "discards one block too many before",
        Bridge { aim: |first, count| (first - 1, count + 1), ..UNMAP },
    )
    .ends("harmful", 3),
    row("rounds-out", "rounds outwards to 64 KiB", Bridge { aim: outwards, ..UNMAP }).ends("harmful", 3),
    row("drops-data", "drops what goes with the command", Bridge { payload: 0, ..UNMAP }).ends("no evidence", 0),
    row("truncates", "passes on 16 bytes of the list", Bridge { payload: 16, ..UNMAP }).ends("no evidence", 0),
    row("resets", "resets after a success", Bridge { resets_after: Some(1), ..UNMAP }).ends("unstable", 3),
    row("invents", "invents IDENTIFY data", Bridge { invents_identity: true, ..SAT }).by("", "-").ends("-", 4),
    row("no-pages", "UNMAP works, no VPD pages", Bridge { limits: None, ..UNMAP }).by("", "-").ends("-", 4),
    row("residue", "reports success and a residue", Bridge { residue: true, ..UNMAP }).ends("unstable", 3),
    row("swaps", "swaps the bytes of the count", Bridge { swaps_count: true, ..UNMAP }).ends("unstable", 3),
    row("rotates", "a rotating disk that knows UNMAP", Bridge { rotation: 5400, ..UNMAP }).by("", "-").ends("-", 3),
];

fn outwards(first: u64, count: u64) -> (u64, u64) {
    let (start, end) = (first / 128 * 128, (first + count).next_multiple_of(128));
    (start, end - start)
}

/// A bridge on which one command must end in one way: it goes away in the middle, or has commands of its own.
pub struct Case {
    pub name: &'static str,
    /// For the published table.
    pub about: &'static str,
    pub bridge: Bridge,
    /// What is run on it, the node is added.
    pub command: &'static str,
    pub exit: i32,
    /// One of these must be told: who notices first that a device has left depends on the moment.
    pub words: &'static [&'static str],
}

const fn leaver(name: &'static str, about: &'static str, bridge: Bridge, words: &'static [&'static str]) -> Case {
    Case { name, about, bridge, command: "trim --yes --json --no-witness", exit: 5, words }
}

const GONE: &[&str] = &["has removed it", "No such device", "not there any more"];

pub const LEAVERS: &[Case] = &[
    leaver("goes", "leaves the bus after a success", leaves(Return::Never), GONE),
    leaver("renamed", "leaves and comes back under another name", leaves(Return::AsItWas), GONE),
    leaver("comes-smaller", "comes back under another name and smaller", leaves(Return::Smaller), GONE),
    leaver(
        "shrinks",
        "tells that its capacity has changed",
        Bridge { resets_after: Some(3), attention: (0x2A, 9), ..UNMAP },
        &["capacity has changed"],
    ),
    Case {
        command: "probe --test --yes --json --settle 12 --budget 4M",
        exit: 3,
        ..leaver("late", "resets itself long after the last success", Bridge { late: Some(8000), ..UNMAP }, &["reset"])
    },
];

/// The first discard is the trial's.
const fn leaves(how: Return) -> Bridge {
    Bridge { leaves_after: Some((3, how)), ..UNMAP }
}

const JMS583: Bridge = Bridge { usb: (0x152d, 0x0583, 0x0214), vendor: "JMicron ", ..UNMAP };

const fn tunnel(
    name: &'static str,
    about: &'static str,
    bridge: Bridge,
    exit: i32,
    words: &'static [&'static str],
) -> Case {
    Case { name, about, bridge, command: "probe --vendor-id --json", exit, words }
}

/// Bridges that are asked by their maker's own commands, or must not be.
pub const TUNNELS: &[Case] = &[
    tunnel("jmicron", "NVMe behind JMicron's own commands", Bridge { tunnel: true, ..JMS583 }, 0, &["ZOO NVME"]),
    tunnel(
        "jmicron-sata",
        "SATA behind the numbers of the same bridge",
        Bridge { sat_16: true, sat_12: true, ..JMS583 },
        3,
        &["may be a SATA bridge"],
    ),
];
