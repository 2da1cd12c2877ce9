"""Makes a volume with real files on a drive of the lab, and checks it afterwards. Runs in the guest.

  volume.py make DISK FORMAT TABLE SEED MANIFEST   partition (none, mbr, gpt), mkfs, fill, delete; prints NODE START SIZE in bytes
  volume.py check NODE FORMAT MANIFEST             mount afresh read-only, compare every file with the manifest, fsck without repair

The same seed gives the same files. MANIFEST lines: SHA-256, two spaces, path.
"""
import fcntl
import hashlib
import os
import random
import subprocess
import sys
import time

BLKRRPART, BLKFLSBUF = 0x125F, 0x1261
# mkfs never discards: the pattern that lies on the drive must stay, or an unplanned discard could not be seen.
FORMATS = {
    # name: (mkfs, type for mount, fsck that repairs nothing)
    "ext2": (["mkfs.ext2", "-q", "-F", "-E", "nodiscard"], "ext2", ["e2fsck", "-fn"]),
    "ext3": (["mkfs.ext3", "-q", "-F", "-E", "nodiscard"], "ext3", ["e2fsck", "-fn"]),
    "ext4": (["mkfs.ext4", "-q", "-F", "-E", "nodiscard"], "ext4", ["e2fsck", "-fn"]),
    "fat12": (["mkfs.fat", "-F", "12", "-s", "64"], "vfat", ["fsck.fat", "-n"]),
    "fat16": (["mkfs.fat", "-F", "16"], "vfat", ["fsck.fat", "-n"]),
    "fat32": (["mkfs.fat", "-F", "32", "-s", "1"], "vfat", ["fsck.fat", "-n"]),
    "exfat": (["mkfs.exfat", "-q"], "exfat", ["fsck.exfat", "-n"]),
    "ntfs": (["mkntfs", "-q", "-Q", "-F"], "ntfs-3g", ["ntfsfix", "-n"]),
    "xfs": (["mkfs.xfs", "-q", "-f", "-K"], "xfs", ["xfs_repair", "-n"]),
    "btrfs": (["mkfs.btrfs", "-q", "-f", "-K"], "btrfs", ["btrfs", "check", "--readonly"]),
    "f2fs": (["mkfs.f2fs", "-q", "-f", "-t", "0"], "f2fs", ["fsck.f2fs", "--dry-run"]),
}
SECTOR = 512  # the unit of sysfs, whatever the drive's own is


def run(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise SystemExit("%s: exit %d\n%s" % (" ".join(command), done.returncode, done.stdout.decode(errors="replace")))


def ioctl(node, request):
    descriptor = os.open(node, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, request)
    finally:
        os.close(descriptor)


def sysfs(path):
    with open("/sys/class/block/" + path) as file:
        return int(file.read())


def partition(disk, table):
    """The volume's node. One partition, less than the disk: what lies before and behind it must stay untouched.
    The MBR one begins at sector 63, as old disks do: no multiple of any granule."""
    if table == "none":
        return disk
    name = os.path.basename(disk)
    sector = sysfs(name + "/queue/logical_block_size")
    size = sysfs(name + "/size") * SECTOR
    start = 63 * sector if table == "mbr" else 1 << 20
    length = (size - start - (1 << 20)) // sector
    # GPT is written by a script as well: sfdisk zeroes old signatures unless told not to, and asks nothing.
    kind = "label: dos\n" if table == "mbr" else "label: gpt\n"
    subprocess.run(["sfdisk", "--quiet", "--wipe", "never", "--wipe-partitions", "never", "--no-reread", "--no-tell-kernel", disk],
                   input=kind + "start=%d, size=%d\n" % (start // sector, length), text=True, check=True)
    ioctl(disk, BLKRRPART)
    node = disk + ("p1" if disk[-1].isdigit() else "1")
    for _ in range(100):
        if os.path.exists(node):
            return node
        time.sleep(0.05)
    raise SystemExit(node + " did not appear")


def mounted(node, kind, options):
    place = "/run/lab/" + os.path.basename(node)
    os.makedirs(place, exist_ok=True)
    run("mount", "-t", kind, "-o", options, node, place)
    return place


class Filler:
    """Creates, grows and removes files until about four fifths of the space was written, then removes half of the rest."""

    def __init__(self, place, seed):
        self.place = place
        self.random = random.Random(seed)
        self.files = {}  # path -> running hash of the contents
        self.folders = [""]
        self.count = 0

    def space(self):
        status = os.statvfs(self.place)
        return status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize

    def size(self):
        """Many small, some large; also 0, and never a multiple of anything."""
        return min(int(self.random.lognormvariate(9.5, 2.2)), 3 << 20)

    def write(self, path, size):
        data = self.random.randbytes(size)
        with open(self.place + path, "ab") as file:
            file.write(data)
        self.files.setdefault(path, hashlib.sha256()).update(data)

    def create(self):
        self.count += 1
        if self.count % 12 == 0:
            folder = "%s/folder %d" % (self.random.choice(self.folders), self.count)
            os.mkdir(self.place + folder)
            self.folders.append(folder)
        name = "%s/%s%d.bin" % (self.random.choice(self.folders), self.random.choice(("f", "a rather long name of file number ")), self.count)
        self.write(name, self.size())

    def remove(self, path):
        os.remove(self.place + path)
        del self.files[path]

    def pick(self):
        return self.random.choice(sorted(self.files))

    def fill(self):
        total = self.space()[1]
        while self.space()[0] > total // 5 and self.count < 400:
            action = self.random.random()
            if action < 0.7 or not self.files:
                self.create()
            elif action < 0.85:
                self.write(self.pick(), self.size())
            else:
                self.remove(self.pick())
            if self.random.random() < 0.05:
                os.sync()  # so that what comes later cannot take the place of what is not yet written
        os.sync()
        for path in self.random.sample(sorted(self.files), len(self.files) // 2):
            self.remove(path)


def make(disk, form, table, seed, manifest):
    mkfs, kind, _ = FORMATS[form]
    node = partition(disk, table)
    run(*mkfs, node)
    place = mounted(node, kind, "rw")
    filler = Filler(place, int(seed))
    filler.fill()
    run("umount", place)
    with open(manifest, "w") as file:
        for path in sorted(filler.files):
            file.write("%s  %s\n" % (filler.files[path].hexdigest(), path))
    ioctl(disk, BLKFLSBUF)
    name = os.path.basename(node)
    start = sysfs(name + "/start") * SECTOR if table != "none" else 0
    print(node, start, sysfs(name + "/size") * SECTOR)


def hashes(place):
    found = {}
    for folder, folders, files in os.walk(place):
        if folder == place and "lost+found" in folders:
            folders.remove("lost+found")
        for name in files:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[path[len(place):]] = hashlib.sha256(file.read()).hexdigest()
    return found


def check(node, form, manifest):
    _, kind, fsck = FORMATS[form]
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")
    ioctl(node, BLKFLSBUF)
    with open(manifest) as file:
        expected = dict(reversed(line.rstrip("\n").split("  ", 1)) for line in file)
    place = mounted(node, kind, "ro")
    found = hashes(place)
    run("umount", place)
    run(*fsck, node)
    if found != expected:
        wrong = sorted(path for path in expected.keys() | found.keys() if expected.get(path) != found.get(path))
        raise SystemExit("%d of %d files are not as written: %s" % (len(wrong), len(expected), wrong[:5]))
    print("%d files as written" % len(found))


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](*sys.argv[2:])
