//! Starting and ending QEMU.

use super::drives::Spec;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest that any guest lives, whatever becomes of the test that started it.
const LIFETIME_SECONDS: &str = "5400";
/// How long a guest may take to switch itself off once its channel is closed.
const FAREWELL: Duration = Duration::from_secs(15);
/// Boot options that only save time or keep drives simple; `usb-storage.delay_use` is a wait for real cables.
const KERNEL_OPTIONS: &str = "console=ttyS0 loglevel=4 panic=-1 nokaslr mitigations=off apparmor=0 audit=0 \
    random.trust_cpu=on no_timer_check cryptomgr.notests usb-storage.delay_use=0";

/// QEMU under `timeout`, so that it ends even when this process is killed and the guest hangs.
pub struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let deadline = Instant::now() + FAREWELL;
        while Instant::now() < deadline {
            if matches!(self.0.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        if let Ok(pid) = i32::try_from(self.0.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM); // `timeout` hands it on, and kills five seconds later
        }
        let _ = self.0.wait();
    }
}

/// A folder of this process for backing files and logs; those of processes that have ended are removed.
pub fn fresh_folder() -> Result<PathBuf, String> {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for entry in std::fs::read_dir(base).map_err(|e| format!("{}: {e}", base.display()))?.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|n| n.strip_prefix("lab-")).and_then(|n| n.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = std::fs::remove_dir_all(entry.path()); // another run may be removing it as well
        }
    }
    static BOOTS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let boot = BOOTS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let folder = base.join(format!("lab-{}-{boot}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(folder)
}

pub fn serial_log(folder: &Path) -> PathBuf {
    folder.join("serial.log")
}

/// Starts QEMU; the stream is the host's end of the command channel.
pub fn start(folder: &Path, drives: &[Spec]) -> Result<(Process, UnixStream), String> {
    let kernel = prepare()?;
    // A socket's path has room for 107 bytes, which a deep target folder does not fit.
    let sockets = tempfile::tempdir().map_err(|e| format!("a temporary folder: {e}"))?;
    let socket = sockets.path().join("channel");
    let listener = UnixListener::bind(&socket).map_err(|e| format!("{}: {e}", socket.display()))?;
    let messages = folder.join("qemu.log");
    let log = std::fs::File::create(&messages).map_err(|e| format!("{}: {e}", messages.display()))?;
    let child = Command::new("timeout")
        .args(["--kill-after=5", LIFETIME_SECONDS])
        .args(arguments(&kernel, folder, &socket, drives))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(|e| format!("timeout (package coreutils) cannot be run: {e}"))?;
    let mut process = Process(child);
    let stream = accept(&listener, &mut process.0)
        .map_err(|e| format!("QEMU did not start: {e}\n{}", std::fs::read_to_string(&messages).unwrap_or_default()))?;
    Ok((process, stream))
}

/// QEMU connects as soon as it has read its arguments, long before the guest boots.
fn accept(listener: &UnixListener, qemu: &mut Child) -> Result<UnixStream, String> {
    listener.set_nonblocking(true).map_err(|e| e.to_string())?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(false).map_err(|e| e.to_string())?;
            return Ok(stream);
        }
        if let Ok(Some(status)) = qemu.try_wait() {
            return Err(format!("it ended with {status}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err("it did not open its channel in 60 s".to_owned())
}

/// Fetches the kernel when it is not there yet; the folder it is in.
fn prepare() -> Result<PathBuf, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/prepare");
    // The folder named target/tmp is cargo's own way to say where target/ is.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().ok_or("no target folder")?;
    let output = Command::new(&script)
        .env("CARGO_TARGET_DIR", target)
        .output()
        .map_err(|e| format!("{}: {e}", script.display()))?;
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && !folder.is_empty() {
        return Ok(folder.into());
    }
    Err(format!("{}: {}\n{}", script.display(), output.status, String::from_utf8_lossy(&output.stderr)))
}

fn arguments(kernel: &Path, folder: &Path, socket: &Path, drives: &[Spec]) -> Vec<String> {
    let kernel = kernel.display();
    let agent = super::guest_file("agent.py");
    // Software emulation always: where /dev/kvm exists an ordinary guest kernel may hang on it.
    let mut line = "qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 1536 -machine pc -nodefaults \
        -no-user-config -display none -no-reboot -device virtio-serial-pci -device virtserialport,chardev=channel,name=coldtrim.lab \
        -device virtio-9p-pci,fsdev=host,mount_tag=host -device virtio-9p-pci,fsdev=share,mount_tag=share \
        -fsdev local,id=host,path=/,readonly=on,multidevs=remap,security_model=none"
        .split_whitespace()
        .map(str::to_owned)
        .collect::<Vec<_>>();
    let mut add = |option: &str, value: String| line.extend([option.to_owned(), value]);
    add("-kernel", format!("{kernel}/vmlinuz"));
    add("-initrd", format!("{kernel}/initramfs.gz"));
    add("-append", format!("{KERNEL_OPTIONS} lab.kernel={kernel} lab.agent={agent}"));
    add("-serial", format!("file:{}", comma_safe(&serial_log(folder))));
    add("-chardev", format!("socket,id=channel,path={}", comma_safe(socket)));
    add("-fsdev", format!("local,id=share,path={},security_model=none", comma_safe(&folder.join("share"))));
    for (option, value) in super::drives::CONTROLLERS {
        add(option, (*value).to_owned());
    }
    for drive in drives {
        let from = match &drive.socket {
            Some(socket) => {
                let path = comma_safe(socket);
                format!("cache=none,detect-zeroes=off,file.driver=nbd,file.server.type=unix,file.server.path={path}")
            }
            None => format!("cache=writeback,file={}", comma_safe(&folder.join(format!("{}.raw", drive.name)))),
        };
        add("-drive", format!("if=none,id={},format=raw,discard=unmap,{from}", drive.name));
        if !drive.bridge.is_empty() {
            add("-device", drive.bridge.to_owned());
        }
        add("-device", format!("{},drive={},serial={}", drive.device, drive.name, drive.name));
    }
    line
}

/// In QEMU's options a comma in a value is written twice.
fn comma_safe(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}
