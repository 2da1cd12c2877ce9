#!/usr/bin/env python3
"""Free ranges of an ext2/3/4 image, in bytes: an independent, slow and simple reader for the tests.

Written from Linux Documentation/filesystems/ext4 (blockgroup, group_descr, bitmaps, super), one block at a time, as a
plain list of booleans. It checks nothing: the images it is given are sound.
"""
import struct
import sys


def main(path):
    image = open(path, "rb")

    def at(position, layout):
        image.seek(position)
        return struct.unpack("<" + layout, image.read(struct.calcsize("<" + layout)))

    def number(position):
        return at(position, "I")[0]

    sb = 1024
    compat, incompat, ro_compat = at(sb + 0x5C, "III") if number(sb + 0x4C) else (0, 0, 0)
    wide, meta_bg = incompat & 0x80, incompat & 0x10
    checksummed = ro_compat & (0x10 | 0x400)
    block = 1024 << number(sb + 0x18)
    ratio = (1024 << number(sb + 0x1C)) // block if ro_compat & 0x200 else 1
    blocks = number(sb + 4) + ((number(sb + 0x150) << 32) if wide else 0)
    first_data, per_group, inodes = number(sb + 0x14), number(sb + 0x20), number(sb + 0x28)
    inode_size = at(sb + 0x58, "H")[0] if number(sb + 0x4C) else 128
    size = at(sb + 0xFE, "H")[0] if wide else 32
    first_meta = number(sb + 0x104)
    groups = -(-(blocks - first_data) // per_group)
    per_block = block // size
    descriptor_blocks = -(-groups // per_block)
    reserved = at(sb + 0xCE, "H")[0] if compat & 0x10 else 0
    table_blocks = -(-inodes * inode_size // block)

    powers = {base ** k for base in (3, 5, 7) for k in range(1, 24)}

    def copy_here(group):
        if group == 0:
            return True
        if compat & 0x200:
            return group in at(sb + 0x24C, "II")
        return group == 1 or not ro_compat & 1 or group in powers

    def descriptor_place(index):
        if not meta_bg or index < first_meta:
            return (1 if block == 1024 else 0) + 1 + index
        group = index * per_block
        start = first_data + group * per_group
        if group == 0 and block == 1024 and first_data == 0:
            start = 1
        return start + (1 if copy_here(group) else 0)

    used = bytearray(b"\1") * blocks
    metadata = bytearray(blocks)

    def mark(first, count):
        for b in range(first, min(first + count, blocks)):
            metadata[b] = 1

    todo = []
    if block == 1024:
        mark(0, 1)
    for group in range(groups):
        place = descriptor_place(group // per_block) * block + group % per_block * size
        low = at(place, "IIIHHHH")
        high = at(place + 32, "III") if size >= 64 else (0, 0, 0)
        bitmap, inode_bitmap, table = (l | h << 32 for l, h in zip(low, high))
        start = first_data + group * per_group
        mark(bitmap, 1)
        mark(inode_bitmap, 1)
        mark(table, table_blocks)
        base = 1 if start == 0 and block == 1024 else start
        index = group // per_block
        if copy_here(group):
            mark(base, 1)
            base += 1
            if not meta_bg:
                mark(base, descriptor_blocks + reserved)
            elif index < first_meta:
                mark(base, first_meta)
        if meta_bg and index >= first_meta and group % per_block in (0, 1, per_block - 1):
            mark(base, 1)
        todo.append((start, bitmap, bool(checksummed and low[6] & 2)))

    for start, bitmap, uninit in todo:
        image.seek(bitmap * block)
        bits = image.read(block)
        for k in range(per_group // ratio):
            cluster = start + k * ratio
            if cluster >= blocks:
                break
            whole = range(cluster, min(cluster + ratio, blocks))
            taken = any(metadata[b] for b in whole) if uninit else bits[k // 8] >> (k % 8) & 1
            if not taken:
                for b in whole:
                    used[b] = 0

    start = None
    for b in range(blocks + 1):
        free = b < blocks and not used[b]
        if free and start is None:
            start = b
        if not free and start is not None:
            print(start * block, (b - start) * block)
            start = None


main(sys.argv[1])
