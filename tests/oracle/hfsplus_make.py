#!/usr/bin/env python3
"""Writes an HFS+ image for tests: no mkfs exists in Debian 12. Written from Apple's Technical Note TN1150.

    hfsplus_make.py IMAGE SEED key=value...

size (bytes), block, node (bytes of a catalog node), files, fill (percent of the room), pieces (most extents of a fork),
bitmap (pieces of the allocation file), journal (none, empty, little, unused, full), hfsx (0/1), wrapper (0/1),
dirty (0/1), bad (extents of bad blocks), attributes (0/1).

Every used block of a file is filled with bytes that name the file. Prints the free blocks, as the writer knows them:
START LENGTH in bytes from the start of the image.
"""
import os
import random
import struct
import sys

FORK = ">QII16I"


def fork(size, extents, block):
    """80 bytes; the caller puts extents behind the eighth into the overflow file."""
    flat = [n for extent in (extents + [(0, 0)] * 8)[:8] for n in extent]
    return struct.pack(FORK, size, block, sum(count for _, count in extents), *flat)


def tree(leaves, node, key_length, attributes, kind, room):
    """A B-tree from sorted (key, data) records: nodes as bytes. Leaves first, then each level of index nodes."""
    nodes = {}
    fixed = attributes & 4 == 0

    def pack(records, level, number, back, forward):
        body = struct.pack(">IIbBHH", forward, back, -1 if level == 1 else 0, level, len(records), 0)
        offsets = []
        for record in records:
            offsets.append(len(body))
            body += record
        offsets.append(len(body))
        tail = b"".join(struct.pack(">H", offset) for offset in reversed(offsets))
        return body + bytes(node - len(body) - len(tail)) + tail

    def split(records):
        groups, used = [[]], 14 + 2
        for key, record in records:
            if used + len(record) + 2 > node:
                groups.append([])
                used = 14 + 2
            groups[-1].append((key, record))
            used += len(record) + 2
        return groups

    next_number, level, depth, root, first, last = 1, 1, 0, 0, 0, 0
    records = [(key, struct.pack(">H", len(key)) + key + data) for key, data in leaves]
    while records:
        groups = split(records)
        numbers = list(range(next_number, next_number + len(groups)))
        next_number += len(groups)
        for index, group in enumerate(groups):
            back = numbers[index - 1] if index else 0
            forward = numbers[index + 1] if index + 1 < len(groups) else 0
            nodes[numbers[index]] = pack([r for _, r in group], level, numbers[index], back, forward)
        if level == 1:
            first, last = numbers[0], numbers[-1]
        depth, root = level, numbers[0]
        if len(groups) == 1:
            break
        up = []
        for number, group in zip(numbers, groups):
            key = group[0][0]
            stored = key + bytes(key_length - len(key)) if fixed else key
            up.append((key, struct.pack(">H", len(key)) + stored + struct.pack(">I", number)))
        records, level = up, level + 1
    total = max(room, next_number)
    header = struct.pack(">IIbBHH", 0, 0, 1, 0, 3, 0)
    header += struct.pack(">HIIIIHHIIHIBBI64x", depth, root, len(leaves), first, last, node, key_length, total,
                          total - next_number, 0, node, 0, kind, attributes)
    header += bytes(128)
    bits = bytearray(node - len(header) - 8)
    assert total <= len(bits) * 8, "map nodes are not written here"
    for number in range(next_number):
        bits[number // 8] |= 0x80 >> number % 8
    header += bytes(bits) + struct.pack(">HHHH", node - 8, 248, 120, 14)
    return [header] + [nodes.get(number, bytes(node)) for number in range(1, total)]


class Image:
    def __init__(self, seed, options):
        self.rng = random.Random(seed)
        get = lambda name, default: int(options.get(name, default))
        self.block, self.node = get("block", 4096), get("node", 4096)
        self.size, self.hfsx = get("size", 8 << 20), get("hfsx", 0)
        self.options, self.get = options, get
        self.total = self.size // self.block
        self.free = [True] * self.total
        self.data = {}  # block -> bytes
        self.overflow = []  # (file, fork type, start block, eight extents)
        self.mark(0, -(-1536 // self.block))
        # The block of the second header, or the last one(s) when it lies behind them.
        last = -(-1024 // self.block)
        self.mark(self.total - last, last)

    def mark(self, start, count):
        for number in range(start, start + count):
            assert self.free[number], number
            self.free[number] = False

    def take(self, count, pieces):
        """`count` free blocks in at most about `pieces` extents."""
        extents, left = [], count
        while left:
            want = left if pieces <= 1 else min(left, self.rng.randint(1, max(1, 2 * left // pieces)))
            pieces -= 1
            at = self.rng.randrange(self.total)
            run = self.find(at, want)
            self.mark(*run)
            if extents and sum(extents[-1]) == run[0]:
                extents[-1] = (extents[-1][0], extents[-1][1] + run[1])
            else:
                extents.append(run)
            left -= run[1]
        return extents

    def find(self, at, want):
        for offset in range(self.total):
            start = (at + offset) % self.total
            if self.free[start]:
                count = 1
                while count < want and start + count < self.total and self.free[start + count]:
                    count += 1
                return start, count
        raise SystemExit("no room")

    def write(self, extents, content):
        at = 0
        for start, count in extents:
            for number in range(start, start + count):
                self.data[number] = content[at:at + self.block]
                at += self.block

    def file(self, number, kind, size, pieces):
        """A fork of `size` bytes: its 80 bytes; further extents go to the overflow file."""
        extents = self.take(-(-size // self.block), pieces)
        self.spill(number, kind, extents)
        word = struct.pack(">IIQ", 0x46494C45, number, kind)
        self.write(extents, word * (-(-size // self.block) * self.block // 16))
        return fork(size, extents, self.block)

    def spill(self, number, kind, extents):
        before = sum(count for _, count in extents[:8])
        for index in range(8, len(extents), 8):
            part = extents[index:index + 8]
            self.overflow.append((number, kind, before, part))
            before += sum(count for _, count in part)

    def special(self, nodes, number, pieces):
        content = b"".join(nodes)
        content += bytes(-len(content) % self.block)
        extents = self.take(len(content) // self.block, pieces)
        self.spill(number, 0, extents)
        self.write(extents, content)
        return fork(len(content), extents, self.block)


def catalog_key(parent, name):
    return struct.pack(">IH", parent, len(name)) + name.encode("utf-16-be")


def overflow_records(image):
    records = []
    for number, kind, before, part in image.overflow:
        flat = [n for extent in (part + [(0, 0)] * 8)[:8] for n in extent]
        records.append((struct.pack(">BBII", kind, 0, number, before), struct.pack(">16I", *flat)))
    # Keys are compared by file, fork, start.
    return sorted(records, key=lambda r: (r[0][2:6], r[0][0], r[0][6:]))


def build(image):
    get, rng, block = image.get, image.rng, image.block
    bitmap_bytes = -(-image.total // 8)
    bitmap_extents = image.take(-(-bitmap_bytes // block), get("bitmap", 1))
    image.spill(6, 0, bitmap_extents)
    journal, info_block, attributes = image.options.get("journal", "none"), 0, 0x100
    if journal != "none":
        attributes |= 0x2000
        (info_block, _), = image.take(1, 1)
        area = image.find(rng.randrange(image.total // 2), max(8, 65536 // block))
        image.mark(*area)
        offset, size = area[0] * block, area[1] * block
        flags = 5 if journal == "unused" else 1
        image.data[info_block] = struct.pack(">I32xQQ", flags, offset, size)
        order = "<" if journal == "little" else ">"
        end = 1024 if journal == "full" else 512
        head = lambda check: struct.pack(order + "IIQQQIIII", 0x4A4E4C78, 0x12345678, 512, end, size, 4096, check, 512, 1)
        check = 0
        for byte in head(0)[:44]:
            check = ((check << 8) & 0xFFFFFFFF) ^ ((check + byte) & 0xFFFFFFFF)
        image.write([area], bytes(area[1] * block) if journal == "unused" else head(~check & 0xFFFFFFFF))
    # Tables first, as far as their size is known, so that files fill what is left.
    count = get("files", 10)
    per_file = 800
    catalog_nodes = 8 + (count + 4) * per_file // image.node
    reserve = catalog_nodes * image.node // block + 64 + get("attributes", 0) * 16
    room = max(0, sum(image.free) - reserve)
    budget = room * get("fill", 50) // 100
    records = [(catalog_key(1, "Test volume"), None), (catalog_key(2, ""), None)]
    folder = struct.pack(">HHIII16x4x16x16x16xII", 1, 0, count, 2, 0, 0, 0)
    records[0] = (records[0][0], folder)
    records[1] = (records[1][0], struct.pack(">HHI", 3, 0, 1) + struct.pack(">H", 11) + "Test volume".encode("utf-16-be"))
    for index in range(count):
        number, name = 16 + index, "file%06d" % index
        forks = []
        for kind in (0, 0xFF):
            left = budget // max(1, 2 * (count - index))
            blocks = min(budget, rng.randint(0, 2 * left) if index + 1 < count else budget if kind else left)
            budget -= blocks
            size = max(0, blocks * block - rng.randrange(block)) if blocks else 0
            used = -(-size // block)
            forks.append(image.file(number, kind, size, rng.randint(1, get("pieces", 1))) if used else fork(0, [], block))
        body = struct.pack(">HHII", 2, 2, 0, number) + struct.pack(">5I", *[3_000_000_000] * 5)
        body += struct.pack(">IIBBHI", 0, 0, 0, 0, 0o100644, 1) + bytes(32) + bytes(8)
        records.append((catalog_key(2, name), body + forks[0] + forks[1]))
        thread = struct.pack(">HHIH", 4, 0, 2, len(name)) + name.encode("utf-16-be")
        records.append((catalog_key(number, ""), thread))
    records.sort(key=lambda r: (r[0][:4], r[0][6:]))
    for _ in range(get("bad", 0)):
        extents = image.take(rng.randint(1, 3), 1)
        before = sum(c for n, _, _, part in image.overflow if n == 5 for _, c in part)
        image.overflow.append((5, 0, before, extents))
    compare = 0xBC if image.hfsx else 0xCF
    catalog = image.special(tree(records, image.node, 516, 6, compare if image.hfsx else 0, catalog_nodes), 4,
                            get("pieces", 1) if get("scatter", 0) else 1)
    attribute_fork = fork(0, [], block)
    if get("attributes", 0):
        extents = image.take(4, 2)
        image.write(extents, b"ATTRIBUTE FORK.." * (4 * block // 16))
        name = "com.example.big"
        key = struct.pack(">HIIH", 0, 16, 0, len(name)) + name.encode("utf-16-be")
        data = struct.pack(">II", 0x20, 0) + fork(4 * block, extents, block)
        small = struct.pack(">HIIH", 0, 17, 0, 1) + "a".encode("utf-16-be")
        inline = struct.pack(">IIII", 0x10, 0, 0, 4) + b"text"
        attribute_fork = image.special(tree([(key, data), (small, inline)], max(4096, image.node), 266, 6, 0, 4), 8, 1)
    extents_node = min(4096, image.node)
    entries = overflow_records(image)
    extents_nodes = tree(entries, extents_node, 10, 2, 0, 4 + 120 * len(entries) // extents_node)
    content = b"".join(extents_nodes)
    content += bytes(-len(content) % block)
    place = image.find(0, len(content) // block)
    tries = 0
    while place[1] * block < len(content):
        tries += 1
        place = image.find((place[0] + place[1] + 1) % image.total, len(content) // block)
        assert tries < image.total, "no room for the extents overflow file"
    image.mark(*place)
    image.write([place], content)
    extents_fork = fork(len(content), [place], block)
    bits = bytearray(sum(c for _, c in bitmap_extents) * block)
    for number, free in enumerate(image.free):
        if not free:
            bits[number // 8] |= 0x80 >> number % 8
    image.write(bitmap_extents, bytes(bits))
    if get("dirty", 0):
        attributes &= ~0x100
    header = struct.pack(">2sHI4sI", b"HX" if image.hfsx else b"H+", 5 if image.hfsx else 4, attributes,
                         b"HFSJ" if journal != "none" else b"10.0", info_block)
    header += struct.pack(">IIII", 3_000_000_000, 3_000_000_000, 0, 3_000_000_000)
    header += struct.pack(">IIIIIIIIIIQ", count, 0, block, image.total, sum(image.free), 0, block, block, 16 + count, 1, 1)
    header += bytes(24) + struct.pack(">Q", rng.getrandbits(64))
    header += fork(len(bits), bitmap_extents, block) + extents_fork + catalog + attribute_fork + fork(0, [], block)
    assert len(header) == 512
    return header


def main():
    path, seed = sys.argv[1], int(sys.argv[2])
    options = dict(word.split("=") for word in sys.argv[3:])
    image = Image(seed, options)
    header = build(image)
    base = 0
    device = os.path.exists(path) and not os.path.isfile(path)
    # An image is made anew; a device keeps its size and what lies in its free blocks.
    with open(path, "r+b" if device else "wb") as out:
        if int(options.get("wrapper", 0)):
            unit = 4096
            blocks = -(-image.size // unit)
            base = 16 * 512 + 2 * unit
            master = bytearray(512)
            master[0:2] = b"BD"
            struct.pack_into(">HI", master, 0x12, blocks + 4, unit)
            struct.pack_into(">H", master, 0x1C, 16)
            struct.pack_into(">2sHH", master, 0x7C, b"H+", 2, blocks)
            out.truncate(base + blocks * unit + 1024)
            out.seek(1024)
            out.write(master)
            image.size = blocks * unit
        elif not device:
            out.truncate(image.size)
        for number, content in image.data.items():
            out.seek(base + number * image.block)
            out.write(content)
        for at in (1024, image.size // 512 * 512 - 1024):
            out.seek(base + at)
            out.write(header)
    start = None
    for number, free in enumerate(image.free + [False]):
        if free and start is None:
            start = number
        if not free and start is not None:
            print(base + start * image.block, (number - start) * image.block)
            start = None


main()
