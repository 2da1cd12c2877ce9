#!/usr/bin/env python3
"""btrfs_free.py IMAGE...: free bytes of a btrfs filesystem, by the format's documentation. Shares no code with coldtrim.

All devices of the filesystem are given. Prints START LENGTH of each free range of the first one. No checksum is looked
at, and the answer is kept sector by sector in a byte array for each device: slow, plain, and hard to get wrong.
"""
import struct
import sys

FIRST_MIB, STRIPE = 1 << 20, 1 << 16
SUPERBLOCKS = (1 << 16, 1 << 26, 1 << 38)


class Device:
    def __init__(self, path):
        self.file = open(path, "rb")
        self.head = self.read(SUPERBLOCKS[0], 4096)
        assert self.head[64:72] == b"_BHRfS_M", path
        self.id, self.size = struct.unpack_from("<QQ", self.head, 0xC9)

    def read(self, at, length):
        self.file.seek(at)
        data = self.file.read(length)
        assert len(data) == length, (at, length)
        return data


class Filesystem:
    def __init__(self, paths):
        self.order = [Device(path) for path in paths]
        self.devices = {device.id: device for device in self.order}
        head = self.order[0].head
        self.root, self.chunk_root = struct.unpack_from("<QQ", head, 0x50)
        self.sector, self.node = struct.unpack_from("<II", head, 0x90)
        array = head[0x32B:0x32B + struct.unpack_from("<I", head, 0xA0)[0]]
        self.chunks = []
        while array:
            start = struct.unpack_from("<Q", array, 9)[0]
            self.chunks.append(self.chunk(start, array[17:]))
            array = array[17 + 48 + 32 * struct.unpack_from("<H", array, 17 + 44)[0]:]
        self.chunks = [self.chunk(key[2], data) for key, data in self.items(self.chunk_root) if key[1] == 228]

    @staticmethod
    def chunk(start, data):
        length, _, _, kind = struct.unpack_from("<QQQQ", data)
        count, sub = struct.unpack_from("<HH", data, 44)
        stripes = [struct.unpack_from("<QQ", data, 48 + 32 * k) for k in range(count)]
        assert kind & 0x180 == 0
        return start, length, kind, sub, stripes

    def places(self, logical):
        """(device, byte) of every copy of the byte at `logical`."""
        start, _, kind, sub, stripes = next(c for c in self.chunks if c[0] <= logical < c[0] + c[1])
        number, inside = divmod(logical - start, STRIPE)
        if kind & 0x08:
            row, column = divmod(number, len(stripes))
            return [(stripes[column][0], stripes[column][1] + row * STRIPE + inside)]
        if kind & 0x40:
            row, column = divmod(number, len(stripes) // sub)
            pair = stripes[column * sub:column * sub + sub]
            return [(device, at + row * STRIPE + inside) for device, at in pair]
        return [(device, at + logical - start) for device, at in stripes]

    def items(self, block):
        """Every (key, data) of the tree whose root is at `block`."""
        device, at = self.places(block)[0]
        data = self.devices[device].read(at, self.node)
        assert struct.unpack_from("<Q", data, 48)[0] == block
        count, level = struct.unpack_from("<IB", data, 96)
        for k in range(count):
            if level:
                yield from self.items(struct.unpack_from("<Q", data, 101 + 33 * k + 17)[0])
            else:
                key = struct.unpack_from("<QBQ", data, 101 + 25 * k)
                offset, size = struct.unpack_from("<II", data, 101 + 25 * k + 17)
                yield key, data[101 + offset:101 + offset + size]

    def free(self):
        sector = self.sector
        maps = {device.id: bytearray(b"\1") * (device.size // sector) for device in self.order}
        roots = {key[0]: struct.unpack_from("<Q", data, 176)[0] for key, data in self.items(self.root) if key[1] == 132}
        for key, data in self.items(roots[4]):
            if key[1] == 204:  # a part of a device that belongs to a chunk
                length = struct.unpack_from("<Q", data, 24)[0]
                maps[key[0]][key[2] // sector:(key[2] + length) // sector] = bytes(length // sector)
        used = set()
        for (start, kind, offset), _ in self.items(roots[2]):
            if kind in (168, 169):
                length = offset if kind == 168 else self.node
                used.update(range(start, start + length, sector))
        for start, length, *_ in self.chunks:
            for logical in range(start, start + length, sector):
                if logical not in used:
                    for device, at in self.places(logical):
                        maps[device][at // sector] = 1
        for states in maps.values():
            for start, length in [(0, FIRST_MIB)] + [(at, STRIPE) for at in SUPERBLOCKS]:
                end = min((start + length) // sector, len(states))
                if start // sector < end:
                    states[start // sector:end] = bytes(end - start // sector)
        return maps[self.order[0].id], sector


def main():
    states, sector = Filesystem(sys.argv[1:]).free()
    at = states.find(1)
    while at >= 0:
        end = states.find(0, at)
        end = len(states) if end < 0 else end
        print(at * sector, (end - at) * sector)
        at = states.find(1, end)


if __name__ == "__main__":
    main()
