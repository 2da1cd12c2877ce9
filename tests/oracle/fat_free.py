#!/usr/bin/env python3
"""An independent reading of a FAT volume, from Microsoft's fatgen103: prints `START LENGTH` of each free extent.

fat_free.py [--bad] IMAGE      with --bad: clusters that are free or marked bad, which is what partclone calls free
"""
import array
import struct
import sys


def entries(image, clusters, at, size):
    """The table's entries 2 .. clusters + 1 of the copy at byte `at`, and which value means bad."""
    image.seek(at)
    table = image.read(size)
    if clusters < 4085 and not fat32(image):
        bits = int.from_bytes(table, "little")
        return [bits >> (12 * n) & 0xFFF for n in range(2, clusters + 2)], 0xFF7
    if not fat32(image):
        return array.array("H", table[:2 * (clusters + 2)])[2:], 0xFFF7
    return [n & 0x0FFFFFFF for n in array.array("I", table[:4 * (clusters + 2)])[2:]], 0x0FFFFFF7


def fat32(image):
    image.seek(22)
    return image.read(2) == b"\0\0"


def main():
    with_bad = sys.argv[1] == "--bad"
    image = open(sys.argv[-1], "rb")
    sector, per_cluster, reserved, copies, root, small, _, fat_small = struct.unpack("<HBHBHHBH", image.read(24)[11:])
    image.seek(32)
    large, fat_large = struct.unpack("<II", image.read(8))
    fat_sectors = fat_small or fat_large
    data = reserved + copies * fat_sectors + -(-root * 32 // sector)
    clusters = ((small or large) - data) // per_cluster
    table, bad = entries(image, clusters, reserved * sector, fat_sectors * sector)
    size = per_cluster * sector
    start = None
    for number, value in enumerate(list(table) + [1]):
        free = value == 0 or (with_bad and value == bad)
        if free and start is None:
            start = number
        elif not free and start is not None:
            print(data * sector + start * size, (number - start) * size)
            start = None


main()
