#!/usr/bin/env python3
"""Free ranges of an XFS image, in bytes: an independent, slow and simple reader for the tests.

It does not read the trees of free extents at all. Every block is free unless something owns it: each group's headers,
free list and tree blocks (found by following all trees from the AGF and AGI), the log, the inodes' blocks, and both forks
of every used inode, shared extents and staged copies. Written from "XFS Algorithms & Data Structures"; it checks nothing:
the images it is given are sound and their data device is the whole story.
"""
import mmap
import struct
import sys


def main(path):
    with open(path, "rb") as file:
        image = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def at(position, layout):
        return struct.unpack_from(">" + layout, image, position)

    block, blocks = at(4, "IQ")
    log_start, root = at(0x30, "QQ")
    group_blocks, groups = at(0x54, "II")
    log_blocks, version, sector, inode_size = at(0x60, "IHHH")
    inode_bits, group_bits = image[0x7B], image[0x7C]
    v5 = version & 15 == 5
    if not v5 and not version & 0x800:
        sector = 512
    ro_compat, incompat = at(0xD4, "II") if v5 else (0, 0)
    used = bytearray(blocks)

    def mark(first, count):
        assert first + count <= blocks
        used[first:first + count] = b"\1" * count

    def place(number):
        return (number >> group_bits) * group_blocks + (number & ((1 << group_bits) - 1))

    def tree(base, root, height, key, record):
        """Marks the blocks of a group's tree, gives its records' positions."""
        mark(base + root, 1)
        start = (base + root) * block
        level, count = at(start + 4, "HH")
        assert level == height
        head = 56 if v5 else 16
        if level == 0:
            return [start + head + record * k for k in range(count)]
        most = (block - head) // (key + 4)
        found = []
        for k in range(count):
            found += tree(base, at(start + head + most * key + 4 * k, "I")[0], height - 1, key, record)
        return found

    def extents(position, count):
        for k in range(count):
            high, low = at(position + 16 * k, "QQ")
            mark(place((high & 0x1FF) << 43 | low >> 21), low & 0x1FFFFF)

    def file_tree(position, length, height, count):
        if height == 0:
            return extents(position, count)
        most = length // 16
        for k in range(count):
            child = place(at(position + 8 * most + 8 * k, "Q")[0])
            mark(child, 1)
            head = 72 if v5 else 24
            level, below = at(child * block + 4, "HH")
            assert level == height - 1
            file_tree(child * block + head, block - head, level, below)

    def fork(position, length, form, count):
        if form == 2:
            extents(position, count)
        elif form == 3:
            level, records = at(position, "HH")
            file_tree(position + 4, length - 4, level, records)

    def inode(position):
        assert image[position:position + 2] == b"IN"
        head = 176 if image[position + 4] >= 3 else 100
        room = inode_size - head
        data = image[position + 0x52] * 8 or room
        count, attributes = at(position + 0x4C, "IH")
        if head == 176 and at(position + 120, "Q")[0] & 16:
            count, attributes = at(position + 24, "Q")[0], at(position + 0x4C, "I")[0]
        if not at(position + 0x5A, "H")[0] & 1:  # not on the realtime device
            fork(position + head, data, image[position + 5], count)
        if data < room:
            fork(position + head + data, room - data, image[position + 0x53], attributes)

    if log_start:
        mark(place(log_start), log_blocks)
    for group in range(groups):
        base = group * group_blocks
        mark(base, -(-4 * sector // block))
        agf, agi = base * block + sector, base * block + 2 * sector
        roots, levels = at(agf + 0x10, "III"), at(agf + 0x1C, "III")
        for which in (0, 1):
            tree(base, roots[which], levels[which] - 1, 8, 8)
        if ro_compat & 2:
            tree(base, roots[2], levels[2] - 1, 40, 24)
        if ro_compat & 4:
            shared, height = at(agf + 0x58, "II")
            for record in tree(base, shared, height - 1, 4, 12):
                start, count = at(record, "II")
                mark(base + (start & 0x7FFFFFFF), count)
        first, _last, count = at(agf + 0x28, "III")
        head = 36 if v5 else 0
        slots = (sector - head) // 4
        for k in range(count):
            mark(base + at(base * block + 3 * sector + head + 4 * ((first + k) % slots), "I")[0], 1)
        if ro_compat & 1:
            free_root, height = at(agi + 0x148, "II")
            tree(base, free_root, height - 1, 4, 16)
        inode_root, height = at(agi + 0x14, "II")
        for record in tree(base, inode_root, height - 1, 4, 16):
            start, holes, _, free = at(record, "IHHQ")
            if not incompat & 2:
                holes = 0
            for k in range(64):
                if holes >> (k // 4) & 1:
                    continue
                where = base + (start + k >> inode_bits)
                mark(where, 1)
                if not free >> k & 1:
                    inode(where * block + (start + k & (1 << inode_bits) - 1) * inode_size)

    edge = None
    for b in range(blocks + 1):
        free = b < blocks and not used[b]
        if free and edge is None:
            edge = b
        if not free and edge is not None:
            print(edge * block, (b - edge) * block)
            edge = None


main(sys.argv[1])
