#!/usr/bin/env python3
"""Free ranges of an F2FS image, in bytes: an independent, slow and simple reader for the tests.

It does not read the segment information table at all. A block of the main area is used when it holds a node (the node
address table and its journal say where each lies) or when a node points at it. Written from Linux
include/linux/f2fs_fs.h and Documentation/filesystems/f2fs.rst; it checks nothing: the images it is given are sound.
"""
import mmap
import struct
import sys

BLOCK, SEGMENT = 4096, 512
NULL, NEW, COMPRESSED = 0, 0xFFFFFFFF, 0xFFFFFFFE


def main(path):
    with open(path, "rb") as file:
        image = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def at(position, layout):
        return struct.unpack_from("<" + layout, image, position)

    sb = 1024
    checkpoint, _sit, nat, _ssa, start = at(sb + 76, "5I")
    nat_segments, _, main_segments = at(sb + 60, "3I")
    node_table, meta_table = at(sb + 100, "2I")
    payload, = at(sb + 1664, "I")
    features, = at(sb + 2180, "I")
    pack = max((checkpoint, checkpoint + SEGMENT), key=lambda block: at(block * BLOCK, "Q"))
    head = pack * BLOCK
    flags, _total, summaries = at(head + 132, "3I")
    sit_bytes, nat_bytes = at(head + 156, "2I")
    bitmap_at = head + 192
    if flags & 0x400:
        bitmap_at += 4
    elif not payload:
        bitmap_at += sit_bytes
    bitmap = image[bitmap_at:bitmap_at + nat_bytes]

    places = {}
    for k in range(nat_segments // 2 * SEGMENT):
        second = bitmap[k // 8] & (0x80 >> k % 8)
        block = nat + 2 * (k // SEGMENT) * SEGMENT + k % SEGMENT + (SEGMENT if second else 0)
        if not any(image[block * BLOCK:(block + 1) * BLOCK]):
            continue
        for e in range(455):
            places[k * 455 + e], = at(block * BLOCK + 9 * e + 5, "I")
    journal = (pack + summaries) * BLOCK + (0 if flags & 4 else 7 * 512)
    for e in range(at(journal, "H")[0]):
        number, _version, _inode, place = at(journal + 2 + 13 * e, "IBII")
        places[number] = place
    used = bytearray(main_segments * SEGMENT)

    def mark(block):
        if block not in (NULL, NEW, COMPRESSED):
            used[block - start] = 1

    numbers_in_block = 1018
    for number, place in places.items():
        if number in (node_table, meta_table) or place in (NULL, NEW):
            continue
        mark(place)
        node = place * BLOCK
        found, inode, flag = at(node + 4072, "3I")
        assert found == number
        where = flag >> 3
        first, count = 0, numbers_in_block
        if number == inode:
            mode, _advise, inline = at(node, "HBB")
            if mode >> 12 not in (4, 8, 10) or inline & 6:
                continue
            extra, attributes = at(node + 360, "2H") if inline & 0x20 else (0, 0)
            if not (features & 0x40 and inline & 0x20):
                attributes = 50 if inline & 1 else 0
            first, count = 360 + extra, 923 - extra // 4 - attributes
        elif where == 0x1FFFFFFF or where in (3, 4 + numbers_in_block, 5 + 2 * numbers_in_block):
            continue
        elif where >= 6 + 2 * numbers_in_block and (where - 6 - 2 * numbers_in_block) % (numbers_in_block + 1) == 0:
            continue
        for block in at(node + first, "%dI" % count):
            mark(block)

    edge = None
    for b in range(len(used) + 1):
        free = b < len(used) and not used[b]
        if free and edge is None:
            edge = b
        if not free and edge is not None:
            print((start + edge) * BLOCK, (b - edge) * BLOCK)
            edge = None


main(sys.argv[1])
