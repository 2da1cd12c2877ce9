#!/usr/bin/env python3
"""Writes an APFS container for the tests: `apfs_make.py OUT key=value ...`; prints the free ranges it made.

mkapfs makes one empty volume with 4 KiB blocks. This makes what else the format allows: every block size, several
volumes with files, snapshots, free queues, both rings wrapped or in fragments, address blocks, a space manager of
several blocks, a jumpstart, keybags. At 4 KiB apfsck must find nothing to complain about (but for what it does not
know at all). Layouts after Apple's "Apple File System Reference".
"""
import random
import struct
import sys
from itertools import accumulate

MODULUS = (1 << 32) - 1
PHYSICAL, EPHEMERAL = 0x40000000, 0x80000000
UUID = bytes(range(16, 32))


def fletcher(data):
    words = struct.unpack("<%dI" % (len(data) // 4), data)
    low, high = sum(words), sum(accumulate(words))
    first = MODULUS - (low + high) % MODULUS
    return (MODULUS - (low + first) % MODULUS) << 32 | first


def crc32c(data):
    crc = MODULUS
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


def seal(oid, xid, kind, subtype, body, size):
    data = struct.pack("<QQII", oid, xid, kind, subtype) + body
    assert len(data) + 8 <= size, "object too large"
    data += bytes(size - 8 - len(data))
    return struct.pack("<Q", fletcher(data)) + data


class Container:
    def __init__(self, path, options):
        self.option = {"block": 4096, "blocks": 131072, "seed": 1, "volumes": 1, "files": 0, "fill": 0, "queue": 0,
                       "wrap": 0, "fragments": 0, "cabs": 0, "wide": 1, "snapshots": 0, "jumpstart": 0, "keybags": 0,
                       "encrypted": 0, "unclean": 0, "old": 1, "depth": 0}
        self.option.update(options)
        self.size, self.count = self.option["block"], self.option["blocks"]
        self.random = random.Random(self.option["seed"])
        self.file = open(path, "wb")
        self.file.truncate(self.size * self.count + self.option.get("tail", 0))
        self.xid = 7
        self.used = {}
        self.chunk = 8 * self.size
        self.next_oid = 1024

    # --- blocks -------------------------------------------------------------------------------------------------

    def is_used(self, block):
        return self.used.get(block // self.chunk, 0) >> block % self.chunk & 1

    def mark(self, start, count=1):
        while count:
            part = min(count, self.chunk - start % self.chunk)
            bits = ((1 << part) - 1) << start % self.chunk
            old = self.used.get(start // self.chunk, 0)
            assert old & bits == 0, "block used twice"
            self.used[start // self.chunk] = old | bits
            start, count = start + part, count - part

    def allocate(self, count=1, scatter=True):
        """A free run, from a random place on, or the first one."""
        high = min(self.count, self.option.get("reach", self.count))
        # apfsck wants no object with a reserved identifier, and those of physical objects are block numbers.
        low = 1024 if high > 8192 else 0
        block = self.random.randrange(low, high - count) if scatter else low
        for _ in range(2):
            run = 0
            while block < high:
                run = 0 if self.is_used(block) else run + 1
                block += 1
                if run == count:
                    self.mark(block - count, count)
                    return block - count
            block = low
        raise SystemExit("full")

    def write(self, block, data):
        self.file.seek(block * self.size)
        self.file.write(data)

    def oid(self):
        self.next_oid += 1
        return self.next_oid - 1

    # --- trees --------------------------------------------------------------------------------------------------

    def node(self, oid, kind, subtype, records, level, fixed, info):
        root = info is not None
        toc, keys, values = b"", b"", b""
        end = self.size - (40 if root else 0)
        for key, value in records:
            if value is None:
                back = 0xFFFF
            else:
                values = value + values
                back = len(values)
            width = 0 if value is None else len(value)
            toc += struct.pack("<HH", len(keys), back) if fixed else struct.pack("<4H", len(keys), len(key), back, width)
            keys += key
        # Trees of fixed sizes have room for the contents of a full node from the start.
        full = (self.size - 0x38) // (fixed[0] + (8 if level else fixed[1]) + 4) * 4 if fixed else 64
        toc_space = max(full, len(toc))
        free = end - 0x38 - toc_space - len(keys) - len(values)
        assert free >= 0, "node too full"
        flags = (1 if root else 0) | (0 if level else 2) | (4 if fixed else 0)
        body = struct.pack("<HHI8H", flags, level, len(records), 0, toc_space, len(keys), free, 0xFFFF, 0, 0xFFFF, 0)
        body += toc + bytes(toc_space - len(toc)) + keys + bytes(free) + values + (info or b"")
        return seal(oid, self.xid, kind, subtype, body, self.size)

    def tree(self, records, fixed, storage, subtype, place, flags):
        """Writes a tree and gives the identifier of its root. `place()` gives an identifier and a writer."""
        records = sorted(records, key=lambda record: record[0])
        longest_key = max([len(record[1]) for record in records] or [0])
        longest_value = max([len(record[2] or b"") for record in records] or [0])
        levels = [[(key, value) for _, key, value in records]]
        total, level = 0, 0
        while True:
            nodes, room = [[]], 0
            limit = self.option["depth"] or 10 ** 9
            budget = self.size - 0x38 - 40 - 80
            for key, value in levels[-1]:
                cost = 16 + len(key) + len(value or b"")
                if nodes[-1] and (room + cost > budget or len(nodes[-1]) >= limit):
                    nodes.append([])
                    room = 0
                nodes[-1].append((key, value))
                room += cost
            total += len(nodes)
            if len(nodes) == 1:
                break
            above = []
            for part in nodes:
                oid, write = place()
                write(self.node(oid, storage | 3, subtype, part, level, fixed, None))
                above.append((part[0][0], struct.pack("<Q", oid)))
            levels.append(above)
            level += 1
        sizes = fixed or (0, 0)
        info = struct.pack("<IIIIIIQQ", flags, self.size, *sizes, longest_key if not fixed else sizes[0],
                           longest_value if not fixed else sizes[1], len(records), total)
        oid, write = place()
        write(self.node(oid, storage | 2, subtype, levels[-1], level, fixed, info))
        return oid

    def physical(self):
        block = self.allocate()
        self.volume_blocks = getattr(self, "volume_blocks", 0) + 1
        return block, lambda data: self.write(block, data)

    def object_map(self, entries, flags=1):
        """`entries`: (oid, xid, block)."""
        records = [((oid, xid), struct.pack("<QQ", oid, xid), struct.pack("<IIQ", 0, self.size, block))
                   for oid, xid, block in entries]
        root = self.tree(records, (16, 16), PHYSICAL, 0xB, self.physical, 0x12)
        block, write = self.physical()
        body = struct.pack("<IIIIQQQQQ", flags, 0, PHYSICAL | 2, PHYSICAL | 2, root, 0, 0, 0, 0)
        write(seal(block, self.xid, PHYSICAL | 0xB, 0, body, self.size))
        return block

    # --- volumes ------------------------------------------------------------------------------------------------

    def inode(self, oid, parent, name, mode, links, size=None, alloced=0):
        def field(kind, flags, data):
            return struct.pack("<BBH", kind, flags, len(data)), data + bytes(-len(data) % 8)
        fields = [field(4, 2, name.encode() + b"\0")]
        if size is not None:
            fields.append(field(8, 0x20, struct.pack("<5Q", size, alloced, 0, size, 0)))
        extra = b"".join(head for head, _ in fields)
        data = b"".join(data for _, data in fields)
        value = struct.pack("<QQ4QQiIIIIIHHQ", parent, oid, 0, 0, 0, 0, 0x8000, links, 0, 1, 0, 0, 0, mode, 0, 0)
        return ((oid, 3, 0), struct.pack("<Q", oid | 3 << 60), value + struct.pack("<HH", len(fields), len(data)) + extra + data)

    def entry(self, parent, name, oid, kind):
        wide = b"".join(struct.pack("<I", ord(letter)) for letter in name)
        size_hash = (crc32c(wide) & 0x3FFFFF) << 10 | len(name) + 1
        key = struct.pack("<QI", parent | 9 << 60, size_hash) + name.encode() + b"\0"
        return ((parent, 9, size_hash), key, struct.pack("<QQH", oid, 0, kind))

    def volume(self, index):
        self.volume_blocks = 0
        name = "volume%d" % index
        catalog = [self.entry(1, "root", 2, 4), self.entry(1, "private-dir", 3, 4)]
        references, next_id = [], 16
        blocks_of_files = 0
        files = [run for run in self.extents if run[0] % self.option["volumes"] == index]
        for _, runs in files:
            oid, file_name = next_id, "file%d" % next_id
            next_id += 1
            total = sum(length for _, length in runs)
            blocks_of_files += total
            size = total * self.size
            catalog += [self.inode(oid, 2, file_name, 0o100644, 1, size, size), self.entry(2, file_name, oid, 8)]
            catalog.append(((oid, 6, 0), struct.pack("<Q", oid | 6 << 60), struct.pack("<I", 1)))
            at = 0
            for start, length in runs:
                key = struct.pack("<QQ", oid | 8 << 60, at)
                catalog.append(((oid, 8, at), key, struct.pack("<QQQ", length * self.size, start, 0)))
                at += length * self.size
                value = struct.pack("<QQi", length | 1 << 60, oid, 1)
                references.append((start, struct.pack("<Q", start | 2 << 60), value))
                self.fill(start, length, index, oid)
        catalog += [self.inode(2, 1, "root", 0o40755, len(files)), self.inode(3, 1, "private-dir", 0o40755, 0)]
        snapshots = []
        for number in range(self.option["snapshots"]):
            start = self.allocate(5)
            self.fill(start, 5, index, 900 + number)
            tree = self.tree([(start, struct.pack("<Q", start | 2 << 60), struct.pack("<QQi", 5 | 1 << 60, 900, 1))],
                             None, PHYSICAL, 0xF, self.physical, 0x50)
            copy, write = self.physical()
            write(seal(copy, self.xid, PHYSICAL | 0xD, 0, b"APSB", self.size))
            label = b"snap%d\0" % number
            value = struct.pack("<QQQQQIIH", tree, copy, 0, 0, 0, PHYSICAL | 2, 0, len(label)) + label
            snapshots.append(((1, number), struct.pack("<Q", 2 + number | 1 << 60), value))
            snapshots.append(((11, number), struct.pack("<QH", 11 << 60 | (1 << 60) - 1, len(label)) + label,
                              struct.pack("<Q", 2 + number)))
        nodes = []

        def virtual():
            block, oid = self.allocate(), self.oid()
            self.volume_blocks += 1
            nodes.append((oid, self.xid, block))
            return oid, lambda data: self.write(block, data)
        root = self.tree(catalog, None, 0, 0xE, virtual, 0x40)
        object_map = self.object_map(nodes, 0)
        extent_tree = self.tree(references, None, PHYSICAL, 0xF, self.physical, 0x50)
        snapshot_tree = self.tree(snapshots, None, PHYSICAL, 0x10, self.physical, 0x50)
        oid = self.oid()
        block = self.allocate()
        blocks = self.volume_blocks + blocks_of_files
        body = b"APSB" + struct.pack("<IQQQQQQQ", index, 2, 0, 1, 0, 0, 0, blocks)
        body += struct.pack("<HHIIIHH", 5, 0, 0, 6, 0, 1, 0)
        body += struct.pack("<III", 2, PHYSICAL | 2, PHYSICAL | 2)
        body += struct.pack("<QQQQ", object_map, root, extent_tree, snapshot_tree)
        body += struct.pack("<QQQQQQQQ", 0, 0, next_id, len(files), 0, 0, 0, self.option["snapshots"])
        body += struct.pack("<QQ", blocks, 0) + bytes([index] * 16) + struct.pack("<Q", 0)
        body += struct.pack("<Q", 0 if self.option["encrypted"] else 1)
        body += b"coldtrim tests".ljust(32, b"\0") + struct.pack("<QQ", 0, 2) + bytes(48 * 8)
        body += name.encode().ljust(256, b"\0") + struct.pack("<IHH", 3, 0, 0)
        self.write(block, seal(oid, self.xid, 0xD, 0, body, self.size))
        return oid, block

    def fill(self, start, length, volume, oid):
        """Blocks that name themselves; at most a few of a long run."""
        for block in range(start, start + min(length, 3)):
            self.write(block, (b"volume %d file %d block %d\n" % (volume, oid, block)).ljust(64, b".") * (self.size // 64))

    # --- the container ------------------------------------------------------------------------------------------

    def area(self, count):
        """Blocks of a ring in their order, and how the superblock names it."""
        pieces = self.option["fragments"]
        if not pieces:
            start = 1
            while self.is_used(start):
                start += 1
            self.mark(start, count)
            return list(range(start, start + count)), count, start
        blocks, records = [], []
        for piece in range(pieces):
            length = count - len(blocks) if piece == pieces - 1 else count // pieces
            start = self.allocate(length)
            records.append((len(blocks), struct.pack("<Q", len(blocks)), struct.pack("<QQ", start, length)))
            blocks += range(start, start + length)
        root = self.tree(records, (8, 16), PHYSICAL, 0, self.physical, 0x10)
        return blocks, count | 0x80000000, root

    def make(self):
        option = self.option
        self.mark(0)
        chunk_count = -(-self.count // self.chunk)
        per_cib, per_cab = (self.size - 0x28) // 32, (self.size - 0x28) // 8
        cib_count = -(-chunk_count // per_cib)
        cab_count = -(-cib_count // per_cab) if option["cabs"] else 0
        pool_size = max(3 * (chunk_count + cib_count + cab_count), option.get("pool", 0))
        bitmap_size = -(-pool_size // self.chunk)
        wide = option["wide"]
        if not cab_count:
            wide = max(wide, -(-(2600 + 50 * bitmap_size + 8 * cib_count) // self.size))
        queue_nodes = 4 + option["queue"] // 4 + (self.count // 60 if option["fill"] else 0)
        descriptors, descriptor_count, descriptor_base = self.area(8)
        data_blocks, data_count, data_base = self.area(2 * (wide + queue_nodes) + 8)
        bitmap_ring = self.allocate(16 * bitmap_size, scatter=False)
        pool = self.allocate(pool_size, scatter=False)
        reserve = [self.allocate() for _ in range(option.get("reserve", 0))]
        self.extents = []
        for number in range(option["files"]):
            runs = []
            for _ in range(self.random.randint(1, 4)):
                length = self.random.randint(1, option.get("longest", 40))
                runs.append((self.allocate(length), length))
            self.extents.append((number, runs))
        if option["fill"] or option.get("last"):
            self.mark_last()
        keybags = [(0, 0), (0, 0)]
        if option["keybags"]:
            keybags = [(self.allocate(2), 2), (self.allocate(1), 1)]
        jumpstart = self.jumpstart() if option["jumpstart"] else 0
        for block in reserve:
            self.used[block // self.chunk] &= ~(1 << block % self.chunk)
        volumes = [self.volume(index) for index in range(option["volumes"])]
        object_map = self.object_map([(oid, self.xid, block) for oid, block in volumes])
        main_queue = self.queue_entries(option["queue"], self.allocate)
        if option["fill"]:
            main_queue += self.everything_else(option["fill"])
        self.finish(locals())

    def mark_last(self):
        if not self.is_used(self.count - 1):
            self.mark(self.count - 1)
            self.extents.append((len(self.extents), [(self.count - 1, 1)]))

    def everything_else(self, percent):
        """Queue entries for this part of the free blocks: nothing of it may be called free."""
        runs = []
        for chunk in range(-(-self.count // self.chunk)):
            first = chunk * self.chunk
            for block in range(first, min(first + self.chunk, self.count)):
                if not self.is_used(block) and (percent >= 100 or self.random.randrange(100) < percent):
                    if runs and runs[-1][1] + runs[-1][2] == block:
                        runs[-1][2] += 1
                    else:
                        runs.append([3, block, 1])
        for _, start, length in runs:
            self.mark(start, length)
        return [tuple(run) for run in runs]

    def queue_entries(self, count, allocate):
        entries = []
        for number in range(count):
            length = self.random.choice([1, 1, 2, 7])
            entries.append((2 + number % 3, allocate(length), length))
        return entries

    def jumpstart(self):
        block, driver = self.allocate(), self.allocate(3)
        body = b"JSDR" + struct.pack("<III", 1, 3 * self.size, 1) + bytes(128) + struct.pack("<QQ", driver, 3)
        self.write(block, seal(block, self.xid, PHYSICAL | 0x14, 0, body, self.size))
        return block

    def finish(self, given):
        option, size = self.option, self.size
        data_blocks, descriptors = given["data_blocks"], given["descriptors"]
        # Where the newest checkpoint lies in its rings: with wrap=1 behind the last block comes the first.
        start = len(data_blocks) - 1 if option["wrap"] else 3
        used = [0]
        objects = []

        def store(oid, data, kind, subtype):
            place = [data_blocks[(start + used[0] + i) % len(data_blocks)] for i in range(len(data) // size)]
            used[0] += len(place)
            for i, block in enumerate(place):
                self.write(block, data[i * size:(i + 1) * size])
            objects.append(struct.pack("<IIIIQQQ", kind, subtype, len(data), 0, 0, oid, place[0]))

        reaper, manager = self.oid(), self.oid()

        def ephemeral():
            oid = self.oid()
            return oid, lambda data: store(oid, data, struct.unpack_from("<I", data, 24)[0], 9)

        def queue(entries):
            records = [((xid, block), struct.pack("<QQ", xid, block), None if length == 1 else struct.pack("<Q", length))
                       for xid, block, length in entries]
            return self.tree(records, (16, 8), EPHEMERAL, 9, ephemeral, 0xC)

        pool, pool_size = given["pool"], given["pool_size"]
        pool_next = [0]

        def pool_block():
            # Every third block, so that the pool looks used for a while.
            place = pool_next[0]
            pool_next[0] += 1
            return pool + place * 3 % pool_size + place * 3 // pool_size

        cibs, free_total = [], 0
        used_pool = set()
        chunk_records = []
        for index in range(given["chunk_count"]):
            first = index * self.chunk
            count = min(self.chunk, self.count - first)
            bits = self.used.get(index, 0)
            free = count - bin(bits).count("1")
            free_total += free
            bitmap = 0
            if bits or self.option.get("bitmaps"):
                bitmap = pool_block()
                used_pool.add(bitmap)
                self.write(bitmap, bits.to_bytes(size, "little"))
            chunk_records.append(struct.pack("<QQIIQ", self.xid, first, count, free, bitmap))
        per_cib, per_cab = given["per_cib"], given["per_cab"]

        def lists(entries, per_block, kind):
            blocks = []
            for index in range(0, len(entries), per_block):
                block = pool_block()
                used_pool.add(block)
                part = entries[index:index + per_block]
                body = struct.pack("<II", len(blocks), len(part)) + b"".join(part)
                self.write(block, seal(block, self.xid, PHYSICAL | kind, 0, body, size))
                blocks.append(block)
            return blocks

        cibs = lists(chunk_records, per_cib, 7)
        addresses = cibs
        if given["cab_count"]:
            addresses = lists([struct.pack("<Q", block) for block in cibs], per_cab, 6)
        # What the pool's queue holds is still used in the pool's bitmap.
        rest = [block for block in range(pool, pool + pool_size) if block not in used_pool]
        pool_queue = [(self.xid - 1, block, 1) for block in rest[:min(len(rest), option["queue"])]]
        used_pool.update(block for _, block, _ in pool_queue)
        bitmap_size = given["bitmap_size"]
        bits = sum(1 << block - pool for block in used_pool) if pool_size < 100000 else self.big(used_pool, pool)
        turn = 3 * bitmap_size
        self.write(given["bitmap_ring"] + turn, bits.to_bytes(size * bitmap_size, "little"))
        main_queue = given["main_queue"]
        pool_root, main_root = queue(pool_queue), queue(main_queue)
        total = lambda entries: sum(length for _, _, length in entries)
        oldest = lambda entries: min([xid for xid, _, _ in entries] or [0])
        body = struct.pack("<4I", size, self.chunk, per_cib, per_cab)
        xid_at = 2520
        place_at = xid_at + 8 * bitmap_size
        next_at = place_at + -(-2 * bitmap_size // 8) * 8
        address_at = next_at + 32 * bitmap_size
        body += struct.pack("<QQIIQIIQ", self.count, given["chunk_count"], given["cib_count"], given["cab_count"],
                            free_total, address_at, 0, 0)
        body += struct.pack("<QQIIQIIQ", 0, 0, 0, 0, 0, address_at + 8 * len(addresses), 0, 0)
        body += struct.pack("<IIQIIQQQQ", 1, 16, pool_size, bitmap_size, 16 * bitmap_size, given["bitmap_ring"], pool, 0, 0)
        # The most nodes that a queue may have: not documented; what apfsck expects.
        twice = 2 if self.count * self.size > 1 << 30 else 1
        limits = [3 * (given["chunk_count"] + 751) // 1127 - 1, 1 + twice * ((self.count - 1) // 4544)]
        limits = [3 if limit == 2 else limit for limit in limits]
        for entries, root, limit in ((pool_queue, pool_root, limits[0]), (main_queue, main_root, limits[1]), ([], 0, 0)):
            body += struct.pack("<QQQHHIQ", total(entries), root, oldest(entries), limit & 0xFFFF, 0, 0, 0)
        head, tail = 4 * bitmap_size, (turn - 1) % (16 * bitmap_size)
        # Behind the structure: transaction, place and free list of the pool's bitmaps, then the addresses.
        body += struct.pack("<HHIIIII", head, tail, xid_at, place_at, next_at, 1, 2520)
        ring = 16 * bitmap_size
        following = [(place + 1) % ring if (place - head) % ring < (tail - head) % ring else 0xFFFF for place in range(ring)]
        body = body.ljust(xid_at - 32, b"\0") + struct.pack("<%dQ" % bitmap_size, *[self.xid] * bitmap_size)
        body = body.ljust(place_at - 32, b"\0") + struct.pack("<%dH" % bitmap_size, *range(turn, turn + bitmap_size))
        body = body.ljust(next_at - 32, b"\0") + struct.pack("<%dH" % ring, *following)
        body = body.ljust(address_at - 32, b"\0") + struct.pack("<%dQ" % len(addresses), *addresses)
        store(manager, seal(manager, self.xid, EPHEMERAL | 5, 0, body, size * max(given["wide"], 1)), EPHEMERAL | 5, 0)
        body = struct.pack("<4Q4I3QII", 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, size - 0x70)
        store(reaper, seal(reaper, self.xid, EPHEMERAL | 0x11, 0, body, size), EPHEMERAL | 0x11, 0)
        assert used[0] <= len(data_blocks)
        self.checkpoint(given, objects, descriptors, manager, reaper, start, used[0])
        self.file.close()
        self.report()

    def big(self, blocks, base):
        bits = bytearray(max(blocks) - base >> 3 and (max(blocks) - base) // 8 + 1)
        for block in blocks:
            bits[block - base >> 3] |= 1 << (block - base & 7)
        return int.from_bytes(bits, "little")

    def checkpoint(self, given, objects, descriptors, manager, reaper, data_index, data_length):
        option, ring = self.option, len(descriptors)
        per_map = option.get("per_map", (self.size - 0x28) // 40)
        parts = [objects[i:i + per_map] for i in range(0, len(objects), per_map)]
        assert len(parts) + 1 <= ring
        index = ring - 1 if option["wrap"] else 4 if len(parts) < 3 else 0
        place = [descriptors[(index + i) % ring] for i in range(len(parts) + 1)]

        def superblock(xid, uuid=UUID):
            body = b"NXSB" + struct.pack("<IQQQQ", self.size, self.count, 0, 0, 2) + uuid
            body += struct.pack("<QQ", self.next_oid, xid + 1)
            body += struct.pack("<IIQQ", given["descriptor_count"], given["data_count"], given["descriptor_base"], given["data_base"])
            body += struct.pack("<6I", (index + len(place)) % ring, (data_index + data_length) % len(given["data_blocks"]),
                                index, len(place), data_index, data_length)
            body += struct.pack("<QQQII", manager, given["object_map"], reaper, 0, min(100, -(-self.size * self.count // (1 << 29))))
            oids = [oid for oid, _ in given["volumes"]]
            body += struct.pack("<100Q", *(oids + [0] * (100 - len(oids)))) + bytes(256) + bytes(24)
            body += struct.pack("<QQ", 4 if option["encrypted"] else 0, given["jumpstart"]) + bytes(16)
            bags = given["keybags"]
            body += struct.pack("<QQ", *bags[0]) + struct.pack("<4Q", 0x100040001 if self.count * self.size < 128 << 20 else 0x800040001, 0, 0, 0)
            body += bytes(48) + struct.pack("<QQ", *bags[1])
            return seal(1, xid, EPHEMERAL | 1, 0, body, self.size)

        for number, (block, part) in enumerate(zip(place, parts)):
            body = struct.pack("<II", 1 if number == len(parts) - 1 else 0, len(part)) + b"".join(part)
            self.write(block, seal(block, self.xid, PHYSICAL | 0xC, 0, body, self.size))
        self.write(place[-1], superblock(self.xid))
        self.write(0, superblock(self.xid - 1 if option["unclean"] else self.xid))
        rest = [block for block in descriptors if block not in place]
        if option["old"] and len(rest) >= 2:
            # An older checkpoint, and what another container has left behind.
            self.write(rest[0], superblock(self.xid - 1))
            self.write(rest[1], superblock(self.xid + 9, bytes(16)))

    def report(self):
        current = None
        for chunk in range(-(-self.count // self.chunk)):
            first, bits = chunk * self.chunk, self.used.get(chunk, 0)
            count = min(self.chunk, self.count - first)
            text = bin(bits | 1 << count)[:2:-1] if bits else None
            runs = [(0, count)] if not bits else []
            at = 0
            while text is not None and (at := text.find("0", at)) >= 0:
                end = text.find("1", at)
                end = count if end < 0 else end
                runs.append((at, end))
                at = end
            for start, end in runs:
                if current and current[1] == first + start:
                    current[1] = first + end
                else:
                    if current:
                        print(current[0] * self.size, (current[1] - current[0]) * self.size)
                    current = [first + start, first + end]
        if current:
            print(current[0] * self.size, (current[1] - current[0]) * self.size)


def main():
    options = {key: int(value) for key, value in (word.split("=") for word in sys.argv[2:])}
    Container(sys.argv[1], options).make()


main()
