#!/usr/bin/env python3
"""Fills an empty exFAT volume made by mkfs.exfat with files, for tests on hosts without a driver.

exfat_writer.py IMAGE SEED [full] [bitmap] [bad]

Files and folders with and without a FAT chain, some of them deleted again. `full` leaves no free cluster, `bitmap`
moves the allocation bitmap into scattered clusters, `bad` marks some clusters bad. fsck.exfat must find the result clean.
"""
import random
import struct
import sys

END, BAD = 0xFFFFFFFF, 0xFFFFFFF7


def rotate(total, byte, bits):
    return ((total << bits - 1 | total >> 1) + byte) & (1 << bits) - 1


class Volume:
    def __init__(self, path, rng):
        self.image, self.rng = open(path, "r+b"), rng
        boot = self.read(0, 512)
        fat, _, heap, self.count, self.root = struct.unpack_from("<5I", boot, 80)
        sector = 1 << boot[108]
        self.cluster, self.heap, self.fat_at = sector << boot[109], heap * sector, fat * sector
        self.fat = list(struct.unpack(f"<{self.count + 2}I", self.read(self.fat_at, 4 * (self.count + 2))))
        root = self.data(self.root)
        self.entries = [root[n:n + 32] for n in range(0, self.cluster, 32)]
        self.entries = self.entries[:self.entries.index(bytes(32))]
        self.bitmap_entry = next(n for n, e in enumerate(self.entries) if e[0] == 0x81)
        self.bitmap, self.bitmap_len = struct.unpack_from("<IQ", self.entries[self.bitmap_entry], 20)
        bits = b"".join(self.data(c) for c in self.chain(self.bitmap))
        self.used = [bool(bits[n // 8] >> n % 8 & 1) for n in range(self.count)]

    def read(self, at, count):
        self.image.seek(at)
        return self.image.read(count)

    def place(self, cluster):
        return self.heap + (cluster - 2) * self.cluster

    def data(self, cluster):
        return self.read(self.place(cluster), self.cluster)

    def chain(self, cluster):
        found = []
        while cluster != END:
            found.append(cluster)
            cluster = self.fat[cluster]
        return found

    def free(self):
        return [n + 2 for n, used in enumerate(self.used) if not used]

    def take(self, count, contiguous):
        """Clusters for something new, or None when there are not enough (in a row)."""
        free = self.free()
        if contiguous:
            starts = [i for i in range(len(free) - count + 1) if free[i + count - 1] == free[i] + count - 1]
            if not starts:
                return None
            start = self.rng.choice(starts)
            clusters = free[start:start + count]
        else:
            if len(free) < count:
                return None
            clusters = self.rng.sample(free, count)
            for a, b in zip(clusters, clusters[1:] + [None]):
                self.fat[a] = b or END
        for cluster in clusters:
            self.used[cluster - 2] = True
        return clusters

    def release(self, clusters):
        for cluster in clusters:
            self.used[cluster - 2] = False

    def write(self, clusters, data):
        for n, cluster in enumerate(clusters):
            self.image.seek(self.place(cluster))
            self.image.write(data[n * self.cluster:(n + 1) * self.cluster].ljust(self.cluster, b"\0"))

    def entry_set(self, name, size, clusters, contiguous, folder):
        units = name.encode("utf-16-le")
        digest = 0
        for byte in name.upper().encode("utf-16-le"):
            digest = rotate(digest, byte, 16)
        names = [b"\xC1\0" + units[n:n + 30].ljust(30, b"\0") for n in range(0, len(units), 30)]
        flags = 3 if contiguous and clusters else 1
        stream = struct.pack("<BBBBHHQIIQ", 0xC0, flags, 0, len(name), digest, 0, size, 0, clusters[0] if clusters else 0, size)
        primary = struct.pack("<BBHHHIIIBBBBB7x", 0x85, 1 + len(names), 0, 0x10 if folder else 0x20, 0, *[0x52210000] * 3, 0, 0, 0, 0, 0)
        total = 0
        for n, byte in enumerate(b"".join([primary, stream] + names)):
            if n not in (2, 3):
                total = rotate(total, byte, 16)
        return [primary[:2] + struct.pack("<H", total) + primary[4:], stream] + names

    def file(self, name, size, contiguous):
        """Clusters and entries of a new file, or None."""
        clusters = self.take(-(-size // self.cluster), contiguous) if size else []
        if clusters is None:
            return None
        self.write(clusters[:2], self.rng.randbytes(min(size, 2 * self.cluster)))
        return clusters, self.entry_set(name, size, clusters, contiguous, False)

    def folder(self, name, entries, contiguous):
        data = b"".join(entries)
        clusters = self.take(max(1, -(-len(data) // self.cluster)), contiguous)
        self.write(clusters, data)
        return clusters, self.entry_set(name, len(clusters) * self.cluster, clusters, contiguous, True)

    def finish(self):
        """Root directory (longer if it must be), bitmap, FAT and PercentInUse (which the checksum leaves out)."""
        root = self.chain(self.root)
        more = -(-32 * (len(self.entries) + 1) // self.cluster) - len(root)
        if more > 0:
            extra = self.take(more, False)
            self.fat[root[-1]] = extra[0]
            root += extra
        bits = int("".join("1" if used else "0" for used in reversed(self.used)), 2)
        self.write(self.chain(self.bitmap), bits.to_bytes(self.bitmap_len, "little"))
        self.write(root, b"".join(self.entries))
        self.image.seek(self.fat_at)
        self.image.write(struct.pack(f"<{self.count + 2}I", *self.fat))
        self.image.seek(0x70)
        self.image.write(bytes([100 * sum(self.used) // self.count]))
        self.image.close()


def main():
    rng, options = random.Random(int(sys.argv[2])), sys.argv[3:]
    volume = Volume(sys.argv[1], rng)
    if "bad" in options:
        for cluster in rng.sample(volume.free(), min(7, len(volume.free()) // 4)):
            volume.fat[cluster], volume.used[cluster - 2] = BAD, True
    if "bitmap" in options:
        old = volume.chain(volume.bitmap)
        volume.bitmap = volume.take(len(old), False)[0]
        volume.release(old)
        entry = volume.entries[volume.bitmap_entry]
        volume.entries[volume.bitmap_entry] = entry[:20] + struct.pack("<I", volume.bitmap) + entry[24:]
    largest = max(1, len(volume.free()) // 12) * volume.cluster
    for depth in range(3):
        inner = []
        for n in range(6):
            made = volume.file(f"file {depth} {n} with a somewhat longer name.bin", rng.randrange(largest), rng.random() < 0.5)
            if made and rng.random() < 0.4:
                volume.release(made[0])
                inner += [bytes([e[0] & 0x7F]) + e[1:] for e in made[1]]
            elif made:
                inner += made[1]
        if len(volume.free()) > 8 + len(inner) * 32 // volume.cluster:
            inner += volume.folder("inner", [], True)[1]
            volume.entries += volume.folder(f"folder {depth}", inner, rng.random() < 0.5)[1]
        else:
            volume.entries += inner
    if "full" in options:
        # The root directory grows first, so that it finds its clusters.
        filler = volume.entry_set("rest", 0, [], False, False)
        need = -(-32 * (len(volume.entries) + len(filler) + 1) // volume.cluster) - len(volume.chain(volume.root))
        rest = len(volume.free()) - max(need, 0)
        volume.entries += volume.file("rest", rest * volume.cluster, False)[1]
    volume.finish()


main()
