#!/usr/bin/env python3
"""A second opinion on Linux md arrays: where every chunk lies, written from Documentation/admin-guide/md.rst, md(4) and
the pictures in drivers/md, sector by sector and without a formula that is used elsewhere in this repository.

    md_array.py size  SPEC                     bytes of the array
    md_array.py lay   SPEC IMAGE MEMBER...     writes the members, with their records, so that they hold IMAGE
    md_array.py read  SPEC IMAGE MEMBER...     puts IMAGE together from the members; fails where copies or parity differ
    md_array.py carry SPEC MEMBER < RANGES     the ranges of member number MEMBER for free ranges of the array

SPEC is JSON: version, level, layout, chunk (bytes), sizes (bytes of each member), offset (of the data, bytes), and
optionally: room (bytes for data of each), uuid, name, events (a list), roles (a list), features, resync, size (bytes used of each), zone_layout, said_level, said_layout.
"""
import json, struct, sys

SECTOR = 512


def record_place(version, size):
    sectors = size // SECTOR
    return {"0.90": (sectors & ~127) - 128, "1.0": (sectors - 16) & ~7, "1.1": 0, "1.2": 8}[version] * SECTOR


class Array:
    def __init__(self, spec):
        self.spec = spec
        self.level, self.chunk = spec["level"], spec.get("chunk", 0)
        self.layout, self.sizes = spec.get("layout", 0), spec["sizes"]
        self.count = len(self.sizes)
        self.version = spec["version"]
        self.offset = spec.get("offset", 0)
        self.room = spec.get("room") or [self._room(size) for size in self.sizes]
        used = min(self.room)
        if self.level not in (-1, 0, 1):
            used -= used % self.chunk
        self.used = spec.get("size", used)
        self.pieces = list(self._pieces())

    def _room(self, size):
        place = record_place(self.version, size)
        if self.version in ("0.90", "1.0"):
            room = place - self.offset
            return room if self.version == "0.90" else room - 4096 * 2  # a little is kept for a bitmap
        return size - self.offset - 8192

    def _pieces(self):
        """(bytes, [(member, byte behind the data offset)]) of every piece of the array, in order. With parity the list has
        one place, and `self.stripes` says what is in each row."""
        whole = [room - room % self.chunk if self.chunk else room for room in self.room]
        n, chunk = self.count, self.chunk
        self.stripes = []
        if self.level == -1:
            for member, room in enumerate(whole):
                yield room, [(member, 0)]
        elif self.level == 1:
            yield self.used, [(member, 0) for member in range(n)]
        elif self.level == 0:
            yield from self._zones(whole)
        elif self.level == 10:
            yield from self._copies()
        else:
            for row in range(self.used // chunk):
                order = self._row(row)
                self.stripes.append(row * chunk)
                for member in order:
                    yield chunk, [(member, row * chunk)]

    def _zones(self, whole):
        """Rows of one chunk on every member that is long enough."""
        number = 0
        rows = max(whole) // self.chunk
        for row in range(rows):
            here = [member for member, room in enumerate(whole) if room >= (row + 1) * self.chunk]
            if self.spec.get("zone_layout", 2) == 1:
                # original: the number of the chunk in the array says whose turn it is
                turn = {(number + step) % len(here): None for step in range(len(here))}
                order = [here[place] for place in turn]
            else:
                order = here
            for member in order:
                number += 1
                yield self.chunk, [(member, row * self.chunk)]

    def _copies(self):
        near, far, by_rows = self.layout & 255, self.layout >> 8 & 255, self.layout >> 16 & 1
        n, chunk = self.count, self.chunk
        rows = self.used // chunk
        if far == 1:
            # every chunk is written `near` times, one place after the other, row by row
            places = [(place % n, place // n * chunk) for place in range(rows * n)]
            for first in range(0, len(places) - near + 1, near):
                yield chunk, places[first : first + near]
            return
        share = rows // far
        for row in range(share):
            for member in range(n):
                copies = []
                for copy in range(far):
                    line = row * far + copy if by_rows else copy * share + row
                    copies.append(((member + copy) % n, line * chunk))
                yield chunk, copies

    def _row(self, row):
        """The members of a row in the order of their data; parity is what is left."""
        n, layout = self.count, self.layout
        members = list(range(n))
        if self.level == 4:
            return members[:-1]
        if self.level == 5:
            return self._one(members, layout, row)
        if layout >= 16 and layout < 20:
            return self._one(members[:-1], layout - 16, row)
        if layout == 20:
            return members[1:-1]
        if layout == 4:
            return members[2:]
        if layout == 5:
            return members[:-2]
        first = self._first_of_two(row)
        second = (first - 1) % n if layout == 10 else (first + 1) % n
        if layout in (2, 3, 10):
            start = (first if layout == 10 else second) + 1
            turned = [(start + k) % n for k in range(n)]
        else:
            turned = members
        return [member for member in turned if member not in (first, second)]

    def _first_of_two(self, row):
        """The member with the first parity of a RAID6 row where both move."""
        n, step = self.count, row % self.count
        left = n - 1 - step
        return {0: left, 1: step, 2: left, 3: step, 8: step, 9: n - 1 - (row + 1) % n, 10: left}[self.layout]

    def _sum(self, row):
        """The member that holds the exclusive or of a row's data: the only parity, or the first."""
        if self.level == 6 and self.layout in (0, 1, 2, 3, 8, 9, 10):
            return self._first_of_two(row)
        return min(m for m in range(self.count) if m not in self._row(row))

    @staticmethod
    def _one(members, layout, row):
        n = len(members)
        parity = {0: n - 1 - row % n, 1: row % n, 2: n - 1 - row % n, 3: row % n, 4: 0, 5: n - 1}[layout]
        turned = members[parity + 1 :] + members[:parity] if layout in (2, 3) else members
        return [member for member in turned if member != parity]

    def size(self):
        return sum(length for length, _ in self.pieces)

    def lay(self, image, paths):
        data = open(image, "rb").read()
        assert len(data) == self.size(), (len(data), self.size())
        disks = [bytearray(b"\xa5" * size) for size in self.sizes]
        at = 0
        for length, places in self.pieces:
            for member, start in places:
                begin = self.offset + start
                disks[member][begin : begin + length] = data[at : at + length]
            at += length
        for row, start in enumerate(self.stripes):
            begin = self.offset + start
            disks[self._sum(row)][begin : begin + self.chunk] = self._xor(disks, self._row(row), begin)
        for member, path in enumerate(paths):
            self.record(disks[member], member)
            open(path, "wb").write(disks[member])

    def _xor(self, disks, members, begin):
        total = 0
        for member in members:
            total ^= int.from_bytes(disks[member][begin : begin + self.chunk], "little")
        return total.to_bytes(self.chunk, "little")

    def read(self, image, paths):
        disks = [open(path, "rb").read() for path in paths]
        with open(image, "wb") as out:
            for length, places in self.pieces:
                copies = {disks[m][self.offset + start : self.offset + start + length] for m, start in places}
                assert len(copies) == 1, f"the copies at {places} differ"
                out.write(copies.pop())
        for row, start in enumerate(self.stripes):
            every = self._xor(disks, self._row(row) + [self._sum(row)], self.offset + start)
            assert not any(every), f"the parity of row {row} is wrong"

    def carry(self, member, ranges):
        """Free ranges of the array as ranges of a member, joined."""
        if self.stripes:
            data = len(self._row(0)) * self.chunk
            found = []
            for row in range(len(self.stripes)):
                if any(start <= row * data and (row + 1) * data <= start + length for start, length in ranges):
                    found.append((self.offset + row * self.chunk, self.chunk))
        else:
            found = []
            at = 0
            for length, places in self.pieces:
                for start, size in ranges:
                    low, high = max(start, at), min(start + size, at + length)
                    if low < high:
                        found += [(self.offset + s + low - at, high - low) for m, s in places if m == member]
                at += length
        joined = []
        for start, length in sorted(found):
            if joined and joined[-1][0] + joined[-1][1] == start:
                joined[-1][1] += length
            else:
                joined.append([start, length])
        return joined

    def record(self, disk, member):
        if self.version == "0.90":
            self.record_0_90(disk, member)
        else:
            self.record_1(disk, member)

    def record_1(self, disk, member):
        spec, place = self.spec, record_place(self.version, self.sizes[member])
        roles = spec.get("roles", list(range(self.count)))
        features = spec.get("features", 0)
        layout = spec.get("said_layout", self.layout)
        if self.level == 0 and spec.get("states_layout", True):
            features |= 0x1000
            layout = spec.get("zone_layout", 2)
        used = 0 if self.level in (-1, 0) else self.used // SECTOR
        head = struct.pack("<IIII16s32sQiIQIIiIQIIII", 0xA92B4EFC, 1, features, 0,
            bytes.fromhex(spec.get("uuid", "11" * 16)), spec.get("name", "lab:r").encode(), 0, spec.get("said_level", self.level), layout, used,
            self.chunk // SECTOR, spec.get("count", self.count), spec.get("bitmap", 0), 0, 0, 0, 0, 0, 0)
        head += struct.pack("<QQQQII16sBBHiQQQII32s", self.offset // SECTOR, self.room[member] // SECTOR,
            spec.get("super", place // SECTOR), 0, member, 0, bytes([member] * 16), 0, 9, spec.get("bad_size", 0),
            spec.get("bad_at", 0), 0, spec.get("events", [7] * self.count)[member], spec.get("resync", 2**64 - 1), 0,
            max(len(roles), 8), b"")
        assert len(head) == 256
        head += b"".join(struct.pack("<H", role) for role in roles + [0xFFFF] * (8 - len(roles)))
        total = sum(struct.unpack(f"<{len(head) // 4}I", head))
        total = (total & 0xFFFFFFFF) + (total >> 32)
        head = head[:0xD8] + struct.pack("<I", (total + spec.get("damage", 0)) & 0xFFFFFFFF) + head[0xDC:]
        disk[place : place + 4096] = head.ljust(4096, b"\0")

    def record_0_90(self, disk, member):
        spec, place = self.spec, record_place(self.version, self.sizes[member])
        order = spec.get("order", "<")
        words = [0] * 1024
        words[0], words[1], words[2] = 0xA92B4EFC, 0, spec.get("minor", 90)
        words[5] = words[13] = words[14] = words[15] = int(spec.get("uuid", "11" * 16)[:8], 16)
        words[7], words[8] = self.level & 0xFFFFFFFF, self.used // 1024
        words[9] = words[10] = self.count
        words[33] = spec.get("state", 1)
        events = spec.get("events", [7] * self.count)[member]
        words[39], words[40] = (events, 0) if order == "<" else (0, events)
        words[64], words[65] = self.layout, self.chunk
        for index in range(self.count):
            words[128 + 32 * index : 133 + 32 * index] = [index, 0, 0, index, 6]
        words[992:997] = [member, 0, 0, spec.get("roles", list(range(self.count)))[member], 6]
        total = sum(words)
        words[38] = ((total & 0xFFFFFFFF) + (total >> 32) + spec.get("damage", 0)) & 0xFFFFFFFF
        disk[place : place + 4096] = struct.pack(f"{order}1024I", *words)


def main():
    verb, array = sys.argv[1], Array(json.loads(sys.argv[2]))
    if verb == "size":
        print(array.size())
    elif verb == "lay":
        array.lay(sys.argv[3], sys.argv[4:])
    elif verb == "read":
        array.read(sys.argv[3], sys.argv[4:])
    else:
        ranges = [tuple(map(int, line.split())) for line in sys.stdin]
        for start, length in array.carry(int(sys.argv[3]), ranges):
            print(start, length)


main()
