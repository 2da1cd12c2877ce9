#!/usr/bin/env python3
"""Free ranges of an APFS container, read a second time and another way: `apfs_free.py IMAGE`.

Written from Apple's "Apple File System Reference" alone. Prints `START LENGTH` in bytes. It takes the newest
superblock of the descriptor area, follows the checkpoint map to the space manager, and turns every bitmap into one
large integer, counted against its record.
"""
import mmap
import re
import struct
import sys


def number(data, at, size=8):
    return int.from_bytes(data[at:at + size], "little")


def fletcher(data):
    words = struct.unpack("<%dI" % (len(data) // 4), data)
    low = high = 0
    for word in words:
        low += word
        high += low
    modulus = (1 << 32) - 1
    first = modulus - (low + high) % modulus
    return (modulus - (low + first) % modulus) << 32 | first


class Image:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.block_size = number(self.bytes, 0x24, 4)
        self.block_count = number(self.bytes, 0x28)

    def block(self, index):
        return self.bytes[index * self.block_size:(index + 1) * self.block_size]

    def valid(self, index):
        data = self.block(index)
        assert number(data, 0) == fletcher(data[8:]), "checksum of block %d" % index
        return data

    def tree(self, root):
        """Pairs of key and value of a tree with fixed sizes and physical children."""
        info = self.block(root)[-40:]
        key_size, value_size = number(info, 8, 4), number(info, 12, 4)

        def node(index):
            data = self.valid(index)
            flags, level, count, toc, toc_size = struct.unpack_from("<HHIHH", data, 0x20)
            keys = 0x38 + toc + toc_size
            end = len(data) - (40 if flags & 1 else 0)
            for slot in range(count):
                key, value = struct.unpack_from("<HH", data, 0x38 + toc + 4 * slot)
                if level:
                    yield from node(number(data, end - value))
                else:
                    yield (data[keys + key:keys + key + key_size], data[end - value:end - value + value_size])
        return node(root)

    def area(self, count, base):
        if count & 0x80000000 == 0:
            return list(range(base, base + count))
        blocks = []
        for _, value in self.tree(base):
            start, length = struct.unpack("<QQ", value)
            blocks += range(start, start + length)
        return blocks


def newest(image, descriptors):
    found = []
    for index in descriptors:
        data = image.block(index)
        if data[0x20:0x24] == b"NXSB" and data[0x48:0x58] == image.block(0)[0x48:0x58]:
            if number(data, 0) == fletcher(data[8:]):
                found.append((number(data, 16), index))
    return image.block(max(found)[1])


def space_manager(image):
    zero = image.valid(0)
    descriptors = image.area(number(zero, 0x68, 4), number(zero, 0x70))
    top = newest(image, descriptors)
    area = image.area(number(top, 0x6C, 4), number(top, 0x78))
    wanted = number(top, 0x98)
    for step in range(number(top, 0x8C, 4) - 1):
        maps = image.valid(descriptors[(number(top, 0x88, 4) + step) % len(descriptors)])
        for slot in range(number(maps, 0x24, 4)):
            size, oid, place = struct.unpack_from("<8xI12xQQ", maps, 0x28 + 40 * slot)
            if oid == wanted:
                start = area.index(place)
                data = b"".join(image.block(area[(start + i) % len(area)]) for i in range(size // image.block_size))
                assert number(data, 0) == fletcher(data[8:]), "checksum of the space manager"
                return data
    raise SystemExit("no space manager")


def chunks(image):
    manager = space_manager(image)
    cibs, cabs, free, offset = struct.unpack_from("<IIQI", manager, 0x40)
    addresses = [number(manager, offset + 8 * i) for i in range(cabs or cibs)]
    if cabs:
        lists = [image.valid(block) for block in addresses]
        addresses = [number(data, 0x28 + 8 * i) for data in lists for i in range(number(data, 0x24, 4))]
    assert len(addresses) == cibs, "count of chunk-info blocks"
    for address in addresses:
        data = image.valid(address)
        for slot in range(number(data, 0x24, 4)):
            _, first, count, left, bitmap = struct.unpack_from("<QQIIQ", data, 0x28 + 32 * slot)
            yield first, count & 0xFFFFF, left & 0xFFFFF, bitmap


def ranges(image):
    current = None
    for first, count, left, bitmap in chunks(image):
        if bitmap == 0:
            runs = [(0, count)]
        else:
            bits = bin(1 << count | int.from_bytes(image.block(bitmap), "little") & (1 << count) - 1)[:2:-1]
            runs = [match.span() for match in re.finditer("0+", bits)]
        assert sum(end - start for start, end in runs) == left, "free count of the chunk at %d" % first
        for start, end in runs:
            if current and current[1] == first + start:
                current[1] = first + end
            else:
                if current:
                    yield current
                current = [first + start, first + end]
    if current:
        yield current


def main():
    image = Image(sys.argv[1])
    for start, end in ranges(image):
        print(start * image.block_size, (end - start) * image.block_size)


main()
