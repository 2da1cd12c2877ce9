"""The lab's agent: process 1 of the guest. Runs what the test says over a virtio-serial port.

Request:  ID VERB ARGUMENT LENGTH\n  then LENGTH bytes
Reply:    ID STATUS LENGTH LENGTH\n  then standard output and standard error
  run     ARGUMENT seconds at most; the bytes are for sh. STATUS: exit code, -SIGNAL, or "timeout"
  signal  ARGUMENT is a signal's number; the bytes are the ID of a running command, whose process group gets it
  peek    the bytes are the ID of a running command; the reply holds its output so far
  node    the bytes are a drive's serial number; the reply holds its node, or nothing
  sysfs   the bytes are a pattern below /sys; the reply holds the contents of the first match, or a link's last name
  flush   the bytes are a node: what the kernel holds of it is written and forgotten
  volume  the bytes are arguments for volume.py, which runs here in a thread: starting Python takes a second or more
Commands run side by side. When the host goes away, the guest switches itself off.
"""
import glob
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import volume  # noqa: E402: beside this file, where Python's isolated mode does not look

# Filesystems, RAID and the rest come by themselves when they are used; scsi_debug and vhci_hcd by `modprobe` in a test.
DRIVERS = (("sd_mod", "sg", "virtio_scsi", "ahci", "nvme"), ("xhci_pci", "uas", "usb_storage", "loop", "dm_mod", "fuse"))
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def switch_off():
    with open("/proc/sysrq-trigger", "w") as trigger:
        trigger.write("o")
    signal.pause()


def stay_process_one():
    """Reaps what nobody waits for; the agent proper is a child. Returns in the child only."""
    agent = os.fork()
    if agent == 0:
        return
    while True:
        pid, _ = os.wait()
        if pid == agent:
            print("lab agent: ended", flush=True)
            switch_off()


def load(*groups):
    """Each group in a process of its own: half the time on two processors."""
    children = [subprocess.Popen(["/sbin/modprobe", "-a", *modules], env=ENVIRONMENT) for modules in groups]
    if any([child.wait() for child in children]):
        raise SystemExit("lab agent: modprobe failed")


def open_port():
    for name in glob.glob("/sys/class/virtio-ports/*/name"):
        with open(name) as file:
            if file.read().strip() == "coldtrim.lab":
                return os.open("/dev/" + name.split("/")[-2], os.O_RDWR)
    raise SystemExit("lab agent: no virtio-serial port named coldtrim.lab")


def serial_numbers(disk):
    """All that sysfs says: NVMe and USB have a file `serial` on the way up, SCSI the raw VPD page 80h."""
    folder = os.path.realpath("/sys/block/" + disk + "/device")
    try:
        with open(folder + "/vpd_pg80", "rb") as file:
            yield file.read()[4:].decode("latin-1").strip(" \0")
    except OSError:
        pass
    while folder.startswith("/sys/devices/"):
        if not folder.rsplit("/", 1)[1].startswith("usb"):  # a host controller's serial is its PCI address
            try:
                with open(folder + "/serial") as file:
                    yield file.read().strip()
            except OSError:
                pass
        folder = os.path.dirname(folder)


def node(serial):
    for disk in os.listdir("/sys/block"):
        if serial in serial_numbers(disk):
            return "/dev/" + disk
    return ""


def sysfs(pattern):
    found = sorted(glob.glob("/sys/" + pattern))
    if not found:
        raise FileNotFoundError("/sys/" + pattern)
    if os.path.islink(found[0]):
        return os.path.basename(os.readlink(found[0]))
    with open(found[0]) as file:
        return file.read().strip()


def call(function, argument):
    """Status, output and errors as a command would leave them."""
    try:
        return 0, (function(argument) or "").encode(), b""
    except BaseException:  # SystemExit and whatever else: the agent must live
        return 1, b"", traceback.format_exc().encode()


class Agent:
    def __init__(self, port):
        self.port = port
        self.lock = threading.Lock()
        self.running = {}
        self.unread = b""

    def reply(self, number, status, output=b"", errors=b""):
        data = b"%s %s %d %d\n" % (number, str(status).encode(), len(output), len(errors)) + output + errors
        with self.lock:
            while data:
                data = data[os.write(self.port, data):]

    def read(self, enough):
        while not enough(self.unread):
            data = os.read(self.port, 1 << 16)
            if not data:
                switch_off()
            self.unread += data

    def request(self):
        self.read(lambda data: b"\n" in data)
        head, self.unread = self.unread.split(b"\n", 1)
        number, verb, argument, length = head.split(b" ")
        self.read(lambda data: len(data) >= int(length))
        body, self.unread = self.unread[:int(length)], self.unread[int(length):]
        return number, verb, argument, body

    def start(self, number, seconds, command):
        """The process is there when this returns, so that a request that follows finds it."""
        output, errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        child = subprocess.Popen(
            ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
            env=ENVIRONMENT, cwd="/root", start_new_session=True)
        self.running[number] = child.pid, output, errors
        threading.Thread(target=self.finish, args=(number, float(seconds), child), daemon=True).start()

    def finish(self, number, seconds, child):
        late = threading.Event()

        def too_late():
            late.set()
            os.killpg(child.pid, signal.SIGKILL)

        timer = threading.Timer(seconds, too_late)
        timer.daemon = True
        timer.start()
        status = child.wait()
        timer.cancel()
        _, output, errors = self.running.pop(number)
        with output, errors:
            self.reply(number, "timeout" if late.is_set() else status, contents(output), contents(errors))

    def answer(self, number, function, argument):
        self.reply(number, *call(function, argument))

    def serve(self):
        self.reply(b"0", 0)
        while True:
            number, verb, argument, body = self.request()
            if verb == b"run":
                self.start(number, argument, body)
            elif verb == b"volume":
                threading.Thread(target=self.answer, args=(number, volume.main, body.decode().split()), daemon=True).start()
            elif verb in CALLS:
                self.answer(number, CALLS[verb], body.decode())
            elif body not in self.running:
                self.reply(number, 1, errors=b"that command is not running")
            elif verb == b"signal":
                os.killpg(self.running[body][0], int(argument))
                self.reply(number, 0)
            else:
                _, output, errors = self.running[body]
                self.reply(number, 0, contents(output), contents(errors))


CALLS = {b"node": node, b"sysfs": sysfs, b"flush": volume.flush}


def contents(file):
    """Without moving the position that the running command shares."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)


def main():
    stay_process_one()
    os.environ.update(ENVIRONMENT)
    os.makedirs("/root", exist_ok=True)
    with open("/proc/sys/kernel/printk", "w") as file:
        file.write("7")
    load(("virtio_console",))
    port = open_port()
    load(*DRIVERS)
    Agent(port).serve()


if __name__ == "__main__":
    main()
