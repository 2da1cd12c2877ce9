//! The reader process: every lock really locks, and nothing that comes out of it is believed.
//!
//! The reader is a second copy of the running program, so this test program is its own reader: with `__read` as its
//! first argument it serves a request with a reading function of its own, which misbehaves as the request asks for
//! (in the field `expect`). With `__try` it closes one lock only and tries what that lock must prevent.

use coldtrim::sandbox::{
    Limits, Reading, SandboxError, SandboxLayer, confine, is_asked, read_stack, read_stack_within, serve,
};
use coldtrim_parsers::container::Part;
use coldtrim_parsers::free_map::{DeclaredFree, FreeMapBuilder, Grid};
use coldtrim_parsers::stack::{Content, FoundTable, Layer, Node, Options, Stack};
use coldtrim_parsers::units::{BlockSize, ByteRange};
use coldtrim_parsers::volume::{Finding, Volume};
use libtest_mimic::{Arguments, Failed, Trial};
use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const KIB: u64 = 1024;

fn main() {
    if is_asked() {
        serve(misbehave);
    }
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, mode, what] = arguments.as_slice()
        && mode == "__try"
    {
        println!("{}", try_one(what));
        return;
    }
    libtest_mimic::run(&Arguments::from_args(), trials()).exit();
}

// ---- in the child ----

fn misbehave(layers: &[Layer<'_>], options: &Options) -> Stack {
    let wanted = options.expect.clone().unwrap_or_default();
    let mut stack = Stack { nodes: vec![honest(&layers[0])], ..Stack::default() };
    match wanted.as_str() {
        "honest" => {}
        "label" => volume_of(&mut stack).label = Some("\u{1b}[2Jme\u{202e}too".to_owned()),
        "remark" => volume_of(&mut stack).findings.push(Finding::warning("a\nb")),
        "silent" => stack.nodes.clear(),
        "outside" => stack.nodes[0].range = range(0, layers[0].source.len() + 1),
        "device" => stack.nodes[0].device = 1,
        "narrow" => stack.nodes[0].range = range(0, 8 * KIB),
        "twice" => stack.nodes.push(stack.nodes[0].clone()),
        "gap" => stack.tables.push(table(range(4 * KIB, 8 * KIB))),
        "gap-outside" => stack.tables.push(table(range(63 * KIB, 65 * KIB))),
        "long" => volume_of(&mut stack).label = Some("x".repeat(1 << 20)),
        "garbage" => print!("all is free"),
        "exit" => std::process::exit(0),
        "panic" => panic!("the disk asked for it"),
        "deep" => assert!(deep(1) > 0),
        "loop" => spin(),
        "memory" => assert!(!vec![1_u8; 8 << 30].is_empty()),
        "chatter" => (0..100_000).for_each(|_| eprintln!("{}", "x".repeat(100))),
        "open" => drop(File::open("/dev/null")),
        "create" => drop(File::create("/tmp/coldtrim-sandbox-test")),
        "list" => drop(std::fs::read_dir("/")),
        "stat" => drop(std::fs::metadata("/")),
        "unlink" => drop(std::fs::remove_file("/tmp/coldtrim-sandbox-test")),
        "ioctl" => drop(std::io::stdin().is_terminal()),
        "socket" => drop(std::net::UdpSocket::bind("127.0.0.1:0")),
        "unix-socket" => drop(std::os::unix::net::UnixDatagram::unbound()),
        "process" => drop(Command::new("/bin/true").status()),
        "exec" => drop(Command::new("/bin/true").exec()),
        "thread" => drop(std::thread::Builder::new().spawn(|| ())),
        "signal" => drop(nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGTERM)),
        "sleep" => std::thread::sleep(Duration::from_millis(1)),
        "receive" => drop(nix::sys::socket::recv(0, &mut [0; 8], nix::sys::socket::MsgFlags::MSG_DONTWAIT)),
        "user" => drop(nix::unistd::setuid(nix::unistd::Uid::from_raw(0))),
        other => panic!("no such misbehaviour: {other}"),
    }
    stack
}

/// A volume over the whole layer whose free blocks are those that hold 'F'.
fn honest(layer: &Layer<'_>) -> Node {
    let block = BlockSize::new(4 * KIB).unwrap();
    let blocks = block.whole_blocks(layer.source.len());
    let mut builder = FreeMapBuilder::new(Grid::new(0, block, blocks).unwrap());
    for index in 0..blocks {
        let mut buffer = [0; 4096];
        layer.source.read_at(index * 4 * KIB, &mut buffer).unwrap();
        if buffer.iter().all(|byte| *byte == b'F') {
            builder.free(index, 1).unwrap();
        }
    }
    let volume = Volume {
        needs_witness: false,
        format: "test".to_owned(),
        label: None,
        uuid: None,
        size: layer.source.len(),
        block_size: 4 * KIB,
        free: builder.finish(DeclaredFree::Unknown).unwrap(),
        findings: Vec::new(),
    };
    let part: Option<Part> = None;
    let content = Content::Volume { volume: Box::new(volume), testimony: Vec::new() };
    Node { device: 0, range: range(0, layer.source.len()), part, content }
}

fn volume_of(stack: &mut Stack) -> &mut Volume {
    match &mut stack.nodes[0].content {
        Content::Volume { volume, .. } => volume,
        other => panic!("{other:?}"),
    }
}

fn table(gap: ByteRange) -> FoundTable {
    FoundTable {
        device: 0,
        format: "gpt".to_owned(),
        sector_size: 512,
        parts: Vec::new(),
        gaps: vec![gap],
        no_gaps: None,
        warnings: Vec::new(),
    }
}

fn range(start: u64, end: u64) -> ByteRange {
    ByteRange::new(start, end).unwrap()
}

fn spin() {
    let mut number = 1_u64;
    loop {
        number = std::hint::black_box(number.wrapping_mul(3));
    }
}

#[allow(unconditional_recursion)]
fn deep(level: u64) -> u64 {
    let room = std::hint::black_box([level; 64]);
    deep(level + 1) + room[5]
}

/// One lock alone: what the filter would hide behind a kill.
fn try_one(what: &str) -> String {
    let mut shortfalls = Vec::new();
    match what {
        "privileges" => {
            confine::drop_privileges(&mut shortfalls).expect("privileges can be dropped");
            format!("{shortfalls:?}\n{}", std::fs::read_to_string("/proc/self/status").expect("own status"))
        }
        "files" => {
            let before = File::open("/etc/passwd").is_ok();
            confine::forbid_files(&mut shortfalls).expect("Landlock");
            let port = std::net::TcpListener::bind("127.0.0.1:0");
            format!("{before} {} {} {shortfalls:?}", errno(File::open("/etc/passwd")), errno(port))
        }
        "limits" => {
            confine::limit(&Limits::for_bytes(0)).expect("limits");
            confine::forbid_more().expect("limits");
            std::fs::read_to_string("/proc/self/limits").unwrap_or_else(|error| error.to_string())
        }
        other => panic!("no such lock: {other}"),
    }
}

fn errno<T>(result: std::io::Result<T>) -> i32 {
    result.err().and_then(|error| error.raw_os_error()).unwrap_or(0)
}

// ---- in the parent ----

fn layer() -> SandboxLayer {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    for index in 0..16 {
        let byte = if index % 3 == 2 { b'F' } else { b'u' };
        file.write_all(&[byte; 4096]).expect("a temporary file can be written");
    }
    let read_only = File::open(file.path()).expect("it can be opened");
    SandboxLayer { file: read_only, offset: 0, len: 64 * KIB, sector_size: 512 }
}

fn asking(what: &str) -> Options {
    Options { expect: Some(what.to_owned()), ..Options::default() }
}

fn small() -> Limits {
    Limits { memory: 512 << 20, cpu_seconds: 20, wall: Duration::from_secs(30), answer: 1 << 20 }
}

fn read_within(what: &str, limits: &Limits) -> Result<Reading, SandboxError> {
    read_stack_within(vec![layer()], &asking(what), &AtomicBool::new(false), limits)
}

fn read(what: &str) -> Result<Reading, SandboxError> {
    read_within(what, &small())
}

fn expect(condition: bool, found: impl std::fmt::Debug) -> Result<(), Failed> {
    if condition { Ok(()) } else { Err(format!("{found:?}").into()) }
}

fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial("an_honest_answer_comes_through", an_honest_answer_comes_through),
        trial("a_part_of_a_file_is_read_at_its_offset", a_part_of_a_file_is_read_at_its_offset),
        trial("it_works_without_root", it_works_without_root),
        trial("privileges_are_gone", privileges_are_gone),
        trial("landlock_alone_denies_files_and_ports", landlock_alone_denies_files_and_ports),
        trial("limits_are_set", limits_are_set),
        trial("inherited_descriptors_are_closed", inherited_descriptors_are_closed),
        trial("a_writable_descriptor_is_not_handed_over", a_writable_descriptor_is_not_handed_over),
        trial("a_panic_is_a_refusal_with_its_words", a_panic_is_a_refusal_with_its_words),
        trial("too_much_memory_is_a_refusal", || killed("memory", "SIGABRT")),
        trial("endless_recursion_is_a_refusal", || killed("deep", "SIGABRT")),
        trial("too_much_time_is_a_refusal", too_much_time_is_a_refusal),
        trial("an_interrupt_stops_the_reader", an_interrupt_stops_the_reader),
        trial("words_are_made_printable", words_are_made_printable),
        trial("overhead_is_small", overhead_is_small),
    ];
    for call in [
        "open",
        "create",
        "list",
        "stat",
        "unlink",
        "ioctl",
        "socket",
        "unix-socket",
        "process",
        "exec",
        "thread",
        "signal",
        "sleep",
        "receive",
        "user",
    ] {
        trials.push(trial(format!("denied_{call}"), move || killed(call, "SIGSYS")));
    }
    for (lie, words) in [
        ("silent", "nothing about device 0"),
        ("outside", "passes the end of a device"),
        ("device", "which was not asked for"),
        ("narrow", "reaches to byte 65536 of only 8192"),
        ("twice", "overlap"),
        ("gap", "overlap"),
        ("gap-outside", "passes the end of a device"),
        ("garbage", "not usable"),
        ("exit", "do not decode"),
        ("long", "longer than 1048576 bytes"),
        ("chatter", "complains without end"),
    ] {
        trials.push(trial(format!("a_lie_is_refused_{lie}"), move || nonsense(lie, words)));
    }
    trials
}

fn trial(name: impl Into<String>, run: impl FnOnce() -> Result<(), Failed> + Send + 'static) -> Trial {
    Trial::test(name, run)
}

fn killed(what: &str, expected: &str) -> Result<(), Failed> {
    match read(what) {
        Err(ref error @ SandboxError::Killed { ref signal, .. }) => {
            expect(signal == expected && error.is_refusal(), error.to_string())
        }
        other => Err(format!("{other:?}").into()),
    }
}

fn nonsense(what: &str, expected: &str) -> Result<(), Failed> {
    match read(what) {
        Err(ref error @ SandboxError::Nonsense(_)) => {
            let words = error.to_string();
            expect(words.contains(expected) && error.is_refusal(), words)
        }
        other => Err(format!("{other:?}").into()),
    }
}

fn free_of(reading: &Reading) -> Vec<(u64, u64)> {
    match &reading.stack.nodes[0].content {
        Content::Volume { volume, .. } => volume.free.ranges().iter().map(|r| (r.start(), r.end())).collect(),
        other => panic!("{other:?}"),
    }
}

fn an_honest_answer_comes_through() -> Result<(), Failed> {
    let reading = read_stack(vec![layer()], &asking("honest"), &AtomicBool::new(false))?;
    let expected: Vec<(u64, u64)> = (0..16).filter(|i| i % 3 == 2).map(|i| (i * 4096, i * 4096 + 4096)).collect();
    expect(free_of(&reading) == expected, &reading)
}

fn a_part_of_a_file_is_read_at_its_offset() -> Result<(), Failed> {
    let part = SandboxLayer { offset: 8 * KIB, len: 8 * KIB, ..layer() };
    let reading = read_stack(vec![part], &asking("honest"), &AtomicBool::new(false))?;
    expect(free_of(&reading) == [(0, 4096)], &reading)?;
    let past = SandboxLayer { offset: u64::MAX, ..layer() };
    let refused = read_stack(vec![past], &asking("honest"), &AtomicBool::new(false));
    expect(matches!(refused, Err(SandboxError::Layer { index: 0, .. })), &refused)
}

/// As root this runs one honest case as another user; other users do so by running this program at all.
fn it_works_without_root() -> Result<(), Failed> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", "an_honest_answer_comes_through"]);
    if nix::unistd::geteuid().is_root() {
        command.uid(65_533).gid(65_533);
    }
    let output = command.output()?;
    expect(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("1 passed"), &output)
}

fn alone(what: &str) -> Result<String, Failed> {
    let output = Command::new("/proc/self/exe").args(["__try", what]).output()?;
    expect(output.status.success(), &output)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn privileges_are_gone() -> Result<(), Failed> {
    let status = alone("privileges")?;
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let nothing = ["0000000000000000"];
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        expect(field(set) == nothing, (set, field(set)))?;
    }
    expect(field("NoNewPrivs:") == ["1"], &status)?;
    if nix::unistd::geteuid().is_root() {
        expect(field("CapBnd:") == nothing, field("CapBnd:"))?;
        expect(field("Uid:") == ["65534"; 4] && field("Gid:") == ["65534"; 4], &status)?;
        expect(field("Groups:").is_empty(), field("Groups:"))?;
    }
    Ok(())
}

fn landlock_alone_denies_files_and_ports() -> Result<(), Failed> {
    let words = alone("files")?;
    let denied = nix::libc::EACCES;
    let without = words.contains("no Landlock") && !std::path::Path::new("/sys/kernel/security/landlock").exists();
    expect(words.starts_with(&format!("true {denied} ")) || without, &words)
}

fn limits_are_set() -> Result<(), Failed> {
    // Once nothing may be opened any more, the list of limits is out of reach too: that says it for all of them.
    expect(alone("limits")?.contains("Too many open files"), alone("limits")?)
}

/// A descriptor that leaks into this process must not reach the reader: while that still runs, our own closing of
/// the pipe is the last one.
fn inherited_descriptors_are_closed() -> Result<(), Failed> {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    let (reader, writer) = std::io::pipe()?;
    fcntl(&writer, FcntlArg::F_SETFD(FdFlag::empty()))?;
    let stop: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let busy = std::thread::spawn(|| read_stack_within(vec![layer()], &asking("loop"), stop, &small()));
    std::thread::sleep(Duration::from_millis(500));
    drop(writer);
    let (done, closed) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send({ reader }.read(&mut [0; 1])));
    let end = closed.recv_timeout(Duration::from_secs(5));
    stop.store(true, Ordering::Relaxed);
    let result = busy.join();
    expect(matches!(result, Ok(Err(SandboxError::Interrupted))), &result)?;
    expect(matches!(end, Ok(Ok(0))), &end)
}

fn a_writable_descriptor_is_not_handed_over() -> Result<(), Failed> {
    let writable = SandboxLayer { file: tempfile::tempfile()?, ..layer() };
    let refused = read_stack(vec![writable], &asking("honest"), &AtomicBool::new(false));
    expect(matches!(refused, Err(SandboxError::Layer { index: 0, .. })), &refused)
}

fn a_panic_is_a_refusal_with_its_words() -> Result<(), Failed> {
    match read("panic") {
        Err(ref error @ SandboxError::Failed { ref words, .. }) => {
            expect(words.contains("the disk asked for it") && error.is_refusal(), error)
        }
        other => Err(format!("{other:?}").into()),
    }
}

fn too_much_time_is_a_refusal() -> Result<(), Failed> {
    let by_clock = read_within("loop", &Limits { wall: Duration::from_millis(300), ..small() });
    expect(matches!(by_clock, Err(SandboxError::TimedOut(_))), &by_clock)?;
    let by_processor = read_within("loop", &Limits { cpu_seconds: 1, ..small() });
    expect(matches!(&by_processor, Err(SandboxError::Killed { signal, .. }) if signal == "SIGXCPU"), &by_processor)
}

fn an_interrupt_stops_the_reader() -> Result<(), Failed> {
    let stop: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(300));
        stop.store(true, Ordering::Relaxed);
    });
    let started = Instant::now();
    let result = read_stack_within(vec![layer()], &asking("loop"), stop, &small());
    expect(matches!(result, Err(SandboxError::Interrupted)), &result)?;
    expect(started.elapsed() < Duration::from_secs(5), started.elapsed())
}

fn words_are_made_printable() -> Result<(), Failed> {
    let mut reading = read("label")?;
    let label = volume_of(&mut reading.stack).label.clone();
    expect(label.as_deref() == Some("\u{fffd}[2Jme\u{fffd}too"), label)?;
    let mut reading = read("remark")?;
    let message = volume_of(&mut reading.stack).findings[0].message.clone();
    expect(message == "a\u{fffd}b", message)
}

fn overhead_is_small() -> Result<(), Failed> {
    let times: Result<Vec<Duration>, Failed> = (0..20)
        .map(|_| {
            let started = Instant::now();
            read("honest")?;
            Ok(started.elapsed())
        })
        .collect();
    let mut times = times?;
    times.sort_unstable();
    println!("the reader process costs {:?} (median of {}), {:?} at best", times[10], times.len(), times[0]);
    expect(times[0] < Duration::from_millis(250), &times)
}
