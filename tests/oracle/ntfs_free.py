#!/usr/bin/env python3
"""Prints the free ranges of an NTFS image, `START LENGTH` in bytes, one a line.

An opinion that shares no code with coldtrim: it reads $Bitmap with the fewest possible steps (boot sector, record 0,
record 6, attribute lists by brute force: every record is looked at, and those that say that they continue record 6
are taken) and checks almost nothing. Also `--files`: what every record's runs occupy; `--files` output is
`START LENGTH RECORD KIND`. Source of the layout: the NTFS documentation of the Linux-NTFS project.
"""
import struct
import sys


def word(data, at, fmt):
    return struct.unpack_from("<" + fmt, data, at)[0]


class Image:
    def __init__(self, path):
        self.file = open(path, "rb")
        boot = self.at(0, 512)
        self.sector = word(boot, 11, "H")
        spc = boot[13]
        self.cluster = self.sector * (spc if spc <= 128 else 1 << (256 - spc))
        size = word(boot, 64, "b")
        self.record = size * self.cluster if size > 0 else 1 << -size
        self.clusters = word(boot, 40, "Q") * self.sector // self.cluster
        mft = word(boot, 48, "Q") * self.cluster
        self.mft = [(mft, self.record)]
        # $MFT's runs by fixed-point iteration: known runs show more records, which may show more runs.
        while True:
            pieces = sorted(
                (vcn, runs)
                for number, base, kind, name, vcn, runs, sizes in self.outside()
                if kind == 0x80 and not name and base == 0 and runs is not None
            )
            found = [(lcn * self.cluster, n * self.cluster) for _, runs in pieces for lcn, n in runs]
            if found == self.mft:
                break
            self.mft = found

    def at(self, position, length):
        self.file.seek(position)
        return self.file.read(length)

    def records(self):
        """(number, bytes) of every record in use."""
        data = b"".join(self.at(position, length) for position, length in self.mft)
        for number in range(len(data) // self.record):
            raw = bytearray(data[number * self.record:(number + 1) * self.record])
            if raw[:4] != b"FILE":
                continue
            usa = word(raw, 4, "H")
            for i in range(1, word(raw, 6, "H")):
                raw[i * 512 - 2:i * 512] = raw[usa + 2 * i:usa + 2 * i + 2]
            if word(raw, 22, "H") & 1:
                yield number, bytes(raw)

    def outside(self):
        """(number, base, kind, name, vcn, runs, sizes) of every non-resident attribute."""
        for number, raw in self.records():
            base = word(raw, 32, "Q") & (1 << 48) - 1 if word(raw, 32, "Q") else number
            at = word(raw, 20, "H")
            while at + 4 <= len(raw) and word(raw, at, "I") != 0xFFFFFFFF:
                kind, length = word(raw, at, "I"), word(raw, at + 4, "I")
                if length == 0:
                    break
                if raw[at + 8]:
                    name = raw[at + word(raw, at + 10, "H"):][:2 * raw[at + 9]].decode("utf-16le")
                    yield (number, base, kind, name, word(raw, at + 16, "Q"),
                           self.runs(raw, at + word(raw, at + 32, "H")), struct.unpack_from("<3Q", raw, at + 40))
                at += length

    @staticmethod
    def runs(raw, at):
        """[(lcn or None, clusters)]"""
        lcn, found = 0, []
        while raw[at]:
            low, high = raw[at] & 15, raw[at] >> 4
            count = int.from_bytes(raw[at + 1:at + 1 + low], "little")
            if high:
                lcn += int.from_bytes(raw[at + 1 + low:at + 1 + low + high], "little", signed=True)
                found.append((lcn, count))
            else:
                found.append((None, count))
            at += 1 + low + high
        return found

    def free(self):
        pieces = sorted((vcn, runs) for _, base, kind, name, vcn, runs, _ in self.outside()
                        if base == 6 and kind == 0x80 and not name)
        bits = b"".join(self.at(lcn * self.cluster, n * self.cluster) for _, runs in pieces for lcn, n in runs)
        used = (bits[i >> 3] >> (i & 7) & 1 for i in range(self.clusters))
        start = None
        for i, bit in enumerate(used):
            if not bit and start is None:
                start = i
            if bit and start is not None:
                yield start * self.cluster, (i - start) * self.cluster
                start = None
        if start is not None:
            yield start * self.cluster, (self.clusters - start) * self.cluster


def main():
    image = Image(sys.argv[-1])
    if "--files" in sys.argv:
        for number, _, kind, _, _, runs, _ in image.outside():
            for lcn, count in runs:
                if lcn is not None:
                    print(lcn * image.cluster, count * image.cluster, number, hex(kind))
    else:
        for start, length in image.free():
            print(start, length)


main()
