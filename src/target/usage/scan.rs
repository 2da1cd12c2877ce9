//! The lists themselves: mounts, swap, holders, loop devices, open descriptors, locks.

use super::{Process, Use, User};
use crate::target::sys;
use crate::target::sysfs::{DeviceNumber, Roots, entries, text};
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What is looked for: the numbers of the nodes, or an image file.
pub(super) enum Wanted {
    Nodes(BTreeMap<DeviceNumber, PathBuf>),
    Image {
        path: PathBuf,
        device: u64,
        inode: u64,
        /// Its size, where it lies on an overlay filesystem: the same file has another device number in the layer below
        /// (Documentation/filesystems/overlayfs.rst, "Inode properties").
        on_overlay: Option<u64>,
    },
}

impl Wanted {
    fn node(&self, number: DeviceNumber) -> Option<&Path> {
        match self {
            Self::Nodes(nodes) => nodes.get(&number).map(PathBuf::as_path),
            Self::Image { .. } => None,
        }
    }

    /// The name of an image, where that still leads to it.
    pub(super) fn at_its_name(&self) -> Option<PathBuf> {
        let Self::Image { path, .. } = self else { return None };
        self.file(path).map(Path::to_owned)
    }

    /// The node or image that this path leads to, whatever it is called: a node may be made anywhere.
    fn file(&self, path: &Path) -> Option<&Path> {
        let seen = sys::seen(path).ok()?;
        match self {
            Self::Nodes(_) => self.node(DeviceNumber::from_raw(seen.block?)),
            Self::Image { path, device, inode, on_overlay } => {
                let is_below = *on_overlay == Some(seen.size) && seen.block.is_none();
                (seen.inode == *inode && (seen.device == *device || is_below)).then_some(path.as_path())
            }
        }
    }
}

/// Who uses any of the nodes or the image.
pub(super) fn of_nodes(roots: &Roots, wanted: &Wanted) -> Vec<User> {
    let mut users = mounts(roots, wanted);
    users.extend(swaps(roots, wanted));
    users.extend(filesystems(roots, wanted));
    users.extend(loops(roots, wanted));
    users.extend(openers(roots, wanted));
    users
}

/// `holders/`: every device made from this one.
pub(super) fn holders(roots: &Roots, node: &Path, sysfs: &Path) -> Vec<User> {
    let named = |device: String| {
        let name = text(&roots.sys.join("class/block").join(&device), "dm/name");
        User { node: node.to_owned(), by: Use::Holder { device, name } }
    };
    entries(&sysfs.join("holders")).into_iter().map(named).collect()
}

/// Numbers of the processes that can be seen.
fn processes(roots: &Roots) -> Vec<u32> {
    entries(&roots.proc).iter().filter_map(|name| name.parse().ok()).collect()
}

fn process(roots: &Roots, id: u32) -> Process {
    let name = text(&roots.proc.join(id.to_string()), "comm").unwrap_or_else(|| "?".to_owned());
    Process { id, name }
}

/// Mounts in our namespace, then in every other one that can be seen.
fn mounts(roots: &Roots, wanted: &Wanted) -> Vec<User> {
    let namespace = |who: &str| std::fs::read_link(roots.proc.join(who).join("ns/mnt")).ok();
    let mut seen: Vec<PathBuf> = namespace("self").into_iter().collect();
    let mut users = mounts_of(roots, "self", None, wanted);
    for id in processes(roots) {
        let who = id.to_string();
        let Some(space) = namespace(&who) else { continue };
        if !seen.contains(&space) {
            // Services with a namespace of their own start with a copy of ours: the same place is named once.
            let found = mounts_of(roots, &who, Some(process(roots, id)), wanted);
            let new: Vec<User> =
                found.into_iter().filter(|user| !users.iter().any(|old| is_same_place(old, user))).collect();
            users.extend(new);
            seen.push(space);
        }
    }
    users
}

fn is_same_place(one: &User, other: &User) -> bool {
    match (&one.by, &other.by) {
        (Use::Mount { at: here, .. }, Use::Mount { at: there, .. }) => one.node == other.node && here == there,
        _ => false,
    }
}

fn mounts_of(roots: &Roots, who: &str, seen_by: Option<Process>, wanted: &Wanted) -> Vec<User> {
    let table = std::fs::read(roots.proc.join(who).join("mountinfo")).unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    let of_line = |line: &str| {
        let mount = Mount::parse(line)?;
        let node = wanted.node(mount.number).or_else(|| wanted.node(number_of_node(roots, &mount.source)?))?;
        Some(User { node: node.to_owned(), by: Use::Mount { at: mount.at, seen_by: seen_by.clone() } })
    };
    table.lines().filter_map(of_line).collect()
}

/// One line of mountinfo (proc_pid_mountinfo(5)).
pub(in crate::target) struct Mount {
    /// Number of the filesystem's device; not that of a disk for btrfs and other multi-device filesystems.
    pub number: DeviceNumber,
    /// Mount point.
    pub at: String,
    /// What was mounted, as given to mount(2).
    pub source: String,
}

impl Mount {
    /// `36 35 98:0 /root /mnt rw,noatime shared:1 - ext4 /dev/sda1 rw`.
    pub(in crate::target) fn parse(line: &str) -> Option<Self> {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(2);
        let number = DeviceNumber::parse(front.next()?)?;
        let at = unescaped(front.nth(1)?);
        Some(Self { number, at, source: unescaped(back.split(' ').nth(1)?) })
    }
}

/// The kernel writes blank, tab, newline and backslash as `\040` and so on.
pub(in crate::target) fn unescaped(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('\\') {
        plain.push_str(before);
        let code = behind.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                plain.push(char::from(code));
                rest = behind.get(3..).unwrap_or_default();
            }
            None => {
                plain.push('\\');
                rest = behind;
            }
        }
    }
    plain.push_str(rest);
    plain
}

/// The number of the device that a node such as `/dev/mapper/vg-root` leads to.
fn number_of_node(roots: &Roots, node: &str) -> Option<DeviceNumber> {
    let inside = Path::new(node).strip_prefix("/dev").ok()?;
    let resolved = roots.dev.join(inside).canonicalize().ok()?;
    let name = resolved.file_name()?.to_str()?;
    DeviceNumber::parse(&text(&roots.sys.join("class/block").join(name), "dev")?)
}

/// /proc/swaps: a header, then a path and a type a line.
fn swaps(roots: &Roots, wanted: &Wanted) -> Vec<User> {
    let table = std::fs::read_to_string(roots.proc.join("swaps")).unwrap_or_default();
    let of_line = |line: &str| {
        let path = unescaped(line.split_whitespace().next()?);
        let node = match wanted {
            Wanted::Nodes(_) => wanted.node(number_of_node(roots, &path)?)?,
            Wanted::Image { .. } => wanted.file(Path::new(&path))?,
        };
        Some(User { node: node.to_owned(), by: Use::Swap })
    };
    table.lines().skip(1).filter_map(of_line).collect()
}

/// Mounted btrfs filesystems list all their devices, also those that no mount names.
fn filesystems(roots: &Roots, wanted: &Wanted) -> Vec<User> {
    let all = roots.sys.join("fs/btrfs");
    let of_one = |uuid: &String| {
        let devices = all.join(uuid).join("devices");
        let numbers = entries(&devices)
            .into_iter()
            .filter_map(move |name| DeviceNumber::parse(&text(&devices.join(name), "dev")?));
        let nodes: Vec<PathBuf> = numbers.filter_map(|number| wanted.node(number).map(Path::to_owned)).collect();
        nodes.into_iter().map(|node| User { node, by: Use::Filesystem(uuid.clone()) }).collect::<Vec<_>>()
    };
    entries(&all).iter().flat_map(of_one).collect()
}

/// Loop devices over a block device or an image. The ioctl knows the file itself; where it is not allowed, sysfs knows
/// the path (with ` (deleted)` behind it when the name is gone).
fn loops(roots: &Roots, wanted: &Wanted) -> Vec<User> {
    let block = roots.sys.join("block");
    let of_one = |name: String| {
        let path = text(&block.join(&name), "loop/backing_file")?;
        let node = by_ioctl(roots, &name, wanted).or_else(|| by_path(roots, &path, wanted))?;
        Some(User { node: node.to_owned(), by: Use::Loop(name) })
    };
    entries(&block).into_iter().filter(|name| name.starts_with("loop")).filter_map(of_one).collect()
}

fn by_ioctl<'a>(roots: &Roots, name: &str, wanted: &'a Wanted) -> Option<&'a Path> {
    let info = sys::loop_info(&File::open(roots.dev.join(name)).ok()?).ok()?;
    match wanted {
        Wanted::Nodes(_) if info.rdevice != 0 => wanted.node(DeviceNumber::from_raw(info.rdevice)),
        Wanted::Nodes(_) => None,
        Wanted::Image { path, device, inode, on_overlay } => {
            (info.inode == *inode && (info.device == *device || on_overlay.is_some())).then_some(path)
        }
    }
}

fn by_path<'a>(roots: &Roots, backing: &str, wanted: &'a Wanted) -> Option<&'a Path> {
    match wanted {
        Wanted::Nodes(_) => wanted.node(number_of_node(roots, backing)?),
        Wanted::Image { path, .. } => {
            let bare = backing.strip_suffix(" (deleted)").unwrap_or(backing);
            (path.to_str() == Some(bare)).then_some(path)
        }
    }
}

/// Programs that have the node or image open. Only root sees those of other users ([`unseen`] counts them).
fn openers(roots: &Roots, wanted: &Wanted) -> Vec<User> {
    let others = processes(roots).into_iter().filter(|id| *id != std::process::id());
    others.flat_map(|id| open_in(roots, id, wanted).into_iter().chain(mapped_in(roots, id, wanted))).collect()
}

/// The number of processes whose open files are not shown to us.
pub(in crate::target) fn unseen(roots: &Roots) -> usize {
    let is_closed = |id: &u32| {
        let files = std::fs::read_dir(roots.proc.join(id.to_string()).join("fd"));
        files.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    };
    processes(roots).iter().filter(|id| is_closed(id)).count()
}

/// Programs that can write by a mapping, whose descriptor may be closed long since (proc_pid_maps(5)).
fn mapped_in(roots: &Roots, id: u32, wanted: &Wanted) -> Option<User> {
    let directory = roots.proc.join(id.to_string());
    let maps = std::fs::read(directory.join("maps")).unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    let mut shared = maps.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        rest.get(..4).is_some_and(|rights| rights.contains('w') && rights.ends_with('s')).then_some(range)
    });
    let node = shared.find_map(|range| wanted.file(&directory.join("map_files").join(range)))?.to_owned();
    Some(User { node, by: Use::Open { process: process(roots, id), writes: true } })
}

fn open_in(roots: &Roots, id: u32, wanted: &Wanted) -> Vec<User> {
    let directory = roots.proc.join(id.to_string());
    let descriptors = entries(&directory.join("fd"));
    let of_one = |descriptor: &String| {
        let link = directory.join("fd").join(descriptor);
        let node = wanted.file(&link)?.to_owned();
        let info = std::fs::read_to_string(directory.join("fdinfo").join(descriptor)).unwrap_or_default();
        let writes = open_flags(&info).is_none_or(|flags| flags & 3 != 0);
        Some(User { node, by: Use::Open { process: process(roots, id), writes } })
    };
    descriptors.iter().filter_map(of_one).collect()
}

/// The flags in an fdinfo file (proc_pid_fdinfo(5)), which are octal.
fn open_flags(info: &str) -> Option<u64> {
    let value = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
    u64::from_str_radix(value.trim(), 8).ok()
}

/// The locks of others on a file according to /proc/locks (proc_pid_locks(5)), each with its owner where the kernel tells
/// one; `kind` are words that the line must have.
fn locks(roots: &Roots, device: u64, inode: u64, kind: &[&str]) -> Vec<Option<Process>> {
    let number = DeviceNumber::from_raw(device);
    let place = format!("{:02x}:{:02x}:{inode}", number.major, number.minor);
    let table = std::fs::read_to_string(roots.proc.join("locks")).unwrap_or_default();
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let at = fields.iter().position(|field| *field == place)?;
        kind.iter().all(|word| fields.contains(word)).then_some(())?;
        // Locks of an open file description belong to no process (-1).
        Some(fields.get(at.checked_sub(1)?)?.parse::<u32>().ok())
    };
    let owners = table.lines().filter_map(of_line).filter(|owner| *owner != Some(std::process::id()));
    owners.map(|owner| owner.map(|id| process(roots, id))).collect()
}

/// The process that holds a lock on a file, where the kernel tells one.
pub(in crate::target) fn lock_owner(roots: &Roots, metadata: &Metadata) -> Option<Process> {
    locks(roots, metadata.dev(), metadata.ino(), &[]).into_iter().flatten().next()
}

/// The process with a write lease on a file, which is the only one that has it open.
pub(in crate::target) fn leased(roots: &Roots, metadata: &Metadata) -> Option<Option<Process>> {
    locks(roots, metadata.dev(), metadata.ino(), &["LEASE", "WRITE"]).into_iter().next()
}

/// What a loop device stands on.
pub(super) enum Backing {
    /// A block device.
    Device(DeviceNumber),
    /// A file.
    File(Wanted),
}

/// What the loop device of this name stands on; the ioctl knows the file itself, whatever its name leads to by now.
pub(super) fn backing(roots: &Roots, name: &str, node: &Path) -> Option<Backing> {
    let path = text(&roots.sys.join("block").join(name), "loop/backing_file")?;
    let path = PathBuf::from(path.strip_suffix(" (deleted)").unwrap_or(&path));
    let (device, inode, block) = match File::open(node).and_then(|file| sys::loop_info(&file)) {
        Ok(info) => (info.device, info.inode, Some(info.rdevice).filter(|number| *number != 0)),
        Err(_) => {
            let seen = sys::seen(&path).ok()?;
            (seen.device, seen.inode, seen.block)
        }
    };
    Some(match block {
        Some(number) => Backing::Device(DeviceNumber::from_raw(number)),
        None => Backing::File(Wanted::Image { path, device, inode, on_overlay: None }),
    })
}

/// Who uses the file behind a loop device.
pub(super) fn of_backing_file(roots: &Roots, wanted: &Wanted) -> Vec<User> {
    let mut users = of_nodes(roots, wanted);
    if let Wanted::Image { path, device, inode, .. } = wanted {
        let locked = locks(roots, *device, *inode, &[]).into_iter();
        users.extend(locked.map(|owner| User { node: path.clone(), by: Use::Locked(owner) }));
    }
    users
}
