#!/usr/bin/env python3
"""The free blocks of an HFS+ volume, START LENGTH in bytes: a short reader of its own, from TN1150."""
import struct
import sys

image = open(sys.argv[1], "rb")


def read(at, size):
    image.seek(at)
    return image.read(size)


base = 0
outer = read(1024, 512)
if outer[:2] == b"BD":
    unit, = struct.unpack_from(">I", outer, 20)
    first, = struct.unpack_from(">H", outer, 28)
    start, = struct.unpack_from(">H", outer, 0x7E)
    base = first * 512 + start * unit
head = read(base + 1024, 512)
block, total, said = struct.unpack_from(">III", head, 40)
get = lambda offset: [e for e in struct.iter_unpack(">II", head[offset + 16:offset + 80]) if e[1]]
wanted, = struct.unpack_from(">I", head, 112 + 12)
bitmap, tree = get(112), get(192)
if sum(n for _, n in bitmap) < wanted:
    nodes = b"".join(read(base + s * block, n * block) for s, n in tree)
    size, = struct.unpack_from(">H", nodes, 32)
    more = {}
    for at in range(0, len(nodes), size):
        node = nodes[at:at + size]
        if node[8] != 0xFF:
            continue
        for index in range(struct.unpack_from(">H", node, 10)[0]):
            offset, = struct.unpack_from(">H", node, size - 2 - 2 * index)
            kind, owner, before = struct.unpack_from(">xxBxII", node, offset)
            if (owner, kind) == (6, 0):
                more[before] = [e for e in struct.iter_unpack(">II", node[offset + 12:offset + 76]) if e[1]]
    for before in sorted(more):
        bitmap += more[before]
bits = b"".join(read(base + s * block, n * block) for s, n in bitmap)
free, run = 0, None
for number in range(total + 1):
    clear = number < total and not bits[number >> 3] & 0x80 >> (number & 7)
    free += clear
    if clear and run is None:
        run = number
    elif not clear and run is not None:
        print(base + run * block, (number - run) * block)
        run = None
assert free == said, (free, said)
