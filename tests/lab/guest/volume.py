"""Makes a volume with real files on a drive of the lab, and checks it afterwards. Runs in the guest.

  volume.py make DISK FORMAT TABLE SEED MANIFEST   partition (none, mbr, gpt), mkfs, fill, delete; prints NODE START SIZE in bytes
  volume.py check NODE FORMAT MANIFEST             mount afresh read-only, compare every file byte by byte, fsck without repair

The same seed gives the same files. A file is made of pieces of one random text, so that under emulation neither making
nor checking it costs a hash or fresh random numbers, and nothing here starts a process that it can do without. MANIFEST: lines OFFSET+LENGTH[,OFFSET+LENGTH...] PATH.
"""
import ctypes
import fcntl
import functools
import glob
import os
import random
import subprocess
import sys
import time

ORACLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../oracle/")
NODE, SIZE = "NODE", "size=BYTES"  # stand for the volume's own in the commands below
BLKRRPART, BLKFLSBUF = 0x125F, 0x1261
# mkfs never discards: the pattern that lies on the drive must stay, or an unplanned discard could not be seen.
FORMATS = {
    # name: (mkfs, type for mount, fsck that repairs nothing)
    "ext2": (["mkfs.ext2", "-q", "-F", "-E", "nodiscard"], "ext2", ["e2fsck", "-fn"]),
    "ext3": (["mkfs.ext3", "-q", "-F", "-E", "nodiscard"], "ext3", ["e2fsck", "-fn"]),
    "ext4": (["mkfs.ext4", "-q", "-F", "-E", "nodiscard"], "ext4", ["e2fsck", "-fn"]),
    "fat12": (["mkfs.fat", "-F", "12"], "vfat", ["fsck.fat", "-n"]),
    "fat16": (["mkfs.fat", "-F", "16"], "vfat", ["fsck.fat", "-n"]),
    "fat32": (["mkfs.fat", "-F", "32"], "vfat", ["fsck.fat", "-n"]),
    "exfat": (["mkfs.exfat"], "exfat", ["fsck.exfat", "-n"]),
    # Debian's one checker of HFS+, hpfsck, takes every volume for empty; the reader compares the bitmap with the counters.
    "hfsplus": (["/usr/bin/python3", ORACLE + "hfsplus_make.py", NODE, "1", "files=0", SIZE], "hfsplus",
                ["/usr/bin/python3", ORACLE + "hfsplus_free.py"]),
    "ntfs": (["mkntfs", "-q", "-Q", "-F"], "ntfs-3g", ["ntfsfix", "-n"]),
    "xfs": (["mkfs.xfs", "-q", "-f", "-K"], "xfs", ["xfs_repair", "-n"]),
    "btrfs": (["mkfs.btrfs", "-q", "-f", "-K"], "btrfs", ["btrfs", "check", "--readonly"]),
    "f2fs": (["mkfs.f2fs", "-q", "-f", "-t", "0"], "f2fs", ["fsck.f2fs", "--dry-run"]),
}
# FAT32 is only FAT32 with 65525 clusters or more, FAT12 only with fewer than 4085.
FAT_CLUSTERS = {"fat12": 2000, "fat16": 11000, "fat32": 90000}
SECTOR = 512  # the unit of sysfs, whatever the drive's own is
TEXT = 6 << 20
MOST = 16 << 20  # bytes written to one volume, however large it is
LARGEST = 2 << 20
FILES = 240


def run(*command, said=""):
    done = subprocess.run(command, input=said.encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
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
    name = os.path.basename(disk)
    if glob.glob("/sys/block/%s/%s*" % (name, name)):
        ioctl(disk, BLKRRPART)  # those of an earlier case, whose table was overwritten from the host
    if table == "none":
        return disk
    sector = sysfs(name + "/queue/logical_block_size")
    size = sysfs(name + "/size") * SECTOR
    start = 63 * sector if table == "mbr" else 1 << 20
    length = (size - start - (1 << 20)) // sector
    # sfdisk zeroes old signatures unless told not to.
    # first-lba, because otherwise a disk's optimal I/O size moves it.
    kind = "label: dos\n" if table == "mbr" else "label: gpt\nfirst-lba: %d\n" % (start // sector)
    run("sfdisk", "--quiet", "--wipe", "never", "--wipe-partitions", "never", "--no-reread", "--no-tell-kernel", disk,
        said=kind + "start=%d, size=%d\n" % (start // sector, length))
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


@functools.cache
def random_text():
    """Bytes of which none is zero: a file's block that was discarded by mistake cannot be equal to it by chance."""
    return random.Random("text").randbytes(TEXT).translate(bytes([1, *range(1, 256)]))


class Filler:
    """Creates, grows and removes files until two thirds of the space are taken or enough is written, then removes half."""

    def __init__(self, place, seed):
        self.place = place
        self.text = random_text()
        self.random = random.Random(seed)
        self.files = {}  # path -> pieces of the text
        self.folders = [""]
        self.count = 0
        self.written = 0

    def full(self):
        status = os.statvfs(self.place)
        return status.f_bavail * 3 < status.f_blocks or self.written > MOST

    def size(self):
        """Many small, some large, some empty; rarely a multiple of anything."""
        return min(int(self.random.lognormvariate(9.5, 2.2)), LARGEST)

    def write(self, path, size):
        offset = self.random.randrange(TEXT - LARGEST)
        with open(self.place + path, "ab") as file:
            file.write(self.text[offset:offset + size])
        self.files.setdefault(path, []).append((offset, size))
        self.written += size

    def create(self):
        self.count += 1
        if self.count % 12 == 0:
            folder = "%s/folder %d" % (self.random.choice(self.folders), self.count)
            os.mkdir(self.place + folder)
            self.folders.append(folder)
        kind = self.random.choice(("f", "a rather long name of file number "))
        self.write("%s/%s%d.bin" % (self.random.choice(self.folders), kind, self.count), self.size())

    def remove(self, path):
        os.remove(self.place + path)
        del self.files[path]

    def pick(self):
        return self.random.choice(sorted(self.files))

    def fill(self):
        while not self.full() and self.count < FILES:
            action = self.random.random()
            if action < 0.7 or not self.files:
                self.create()
            elif action < 0.85:
                self.write(self.pick(), self.size())
            else:
                self.remove(self.pick())
            if self.count % 40 == 20:
                sync(self.place)  # so that what comes later cannot take the place of what is not yet written
        sync(self.place)
        for path in self.random.sample(sorted(self.files), len(self.files) // 2):
            self.remove(path)


def sync(place):
    """This filesystem alone: other tests have theirs."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
            raise OSError(ctypes.get_errno(), "syncfs", place)
    finally:
        os.close(descriptor)


def pieces(found):
    return ",".join("%d+%d" % piece for piece in found)


def fat_cluster(disk, size, clusters):
    """Sectors in a cluster: a power of two that makes about so many clusters."""
    sector = sysfs(os.path.basename(disk) + "/queue/logical_block_size")
    return 1 << max(0, (size // sector // clusters).bit_length() - 1)


def make(disk, form, table, seed, manifest):
    mkfs, kind, _ = FORMATS[form]
    node = partition(disk, table)
    if form in FAT_CLUSTERS:
        mkfs = mkfs + ["-s", str(fat_cluster(disk, sysfs(os.path.basename(node) + "/size") * SECTOR, FAT_CLUSTERS[form]))]
    named = {NODE: node, SIZE: "size=%d" % (sysfs(os.path.basename(node) + "/size") * SECTOR)}
    run(*[named.get(word, word) for word in mkfs], *([] if NODE in mkfs else [node]))
    place = mounted(node, kind, "rw")
    filler = Filler(place, seed)
    filler.fill()
    run("umount", place)
    with open(manifest, "w") as file:
        for path in sorted(filler.files):
            file.write("%s %s\n" % (pieces(filler.files[path]), path))
    flush(disk)
    name = os.path.basename(node)
    start = sysfs(name + "/start") * SECTOR if table != "none" else 0
    return "%s %d %d" % (node, start, sysfs(name + "/size") * SECTOR)


def read_manifest(manifest):
    """Path -> what the file must hold."""
    with open(manifest) as file:
        lines = file.read().splitlines()
    text = memoryview(random_text())
    expected = {}
    for line in lines:
        spans, path = line.split(" ", 1)
        spans = [tuple(map(int, span.split("+"))) for span in spans.split(",")]
        expected[path] = b"".join(text[offset:offset + size] for offset, size in spans)
    return expected


def paths(place):
    for folder, folders, files in os.walk(place):
        if folder == place and "lost+found" in folders:
            folders.remove("lost+found")
        for name in files:
            yield os.path.join(folder, name)[len(place):]


def compare(place, expected):
    wrong = set(expected)
    for path in paths(place):
        with open(place + path, "rb") as file:
            if file.read() == expected.get(path):
                wrong.discard(path)
            else:
                wrong.add(path)
    return sorted(wrong)


def check(node, form, manifest):
    _, kind, fsck = FORMATS[form]
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")
    flush(node)
    expected = read_manifest(manifest)
    place = mounted(node, kind, "ro")
    try:
        wrong = compare(place, expected)
    finally:
        run("umount", place)
    if wrong:
        raise SystemExit("%d of %d files are not as written: %s" % (len(wrong), len(expected), wrong[:5]))
    run(*fsck, node)
    return "%d files as written" % len(expected)


def flush(node):
    ioctl(node, BLKFLSBUF)


def main(arguments):
    return {"make": make, "check": check}[arguments[0]](*arguments[1:])


if __name__ == "__main__":
    print(main(sys.argv[1:]))
