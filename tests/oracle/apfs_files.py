#!/usr/bin/env python3
"""Files of an APFS container with one unencrypted volume and a catalog of one node or two levels: `apfs_files.py IMAGE`.

Prints a manifest: path, size, SHA-256 of the bytes that the extents hold, extents in bytes from the start. Reads the
catalog alone, through both object maps; never the space manager.
"""
import hashlib
import json
import struct
import sys


def number(data, at, size=8):
    return int.from_bytes(data[at:at + size], "little")


class Container:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.size = number(self.data, 0x24, 4)
        self.top = self.block(0)  # as of the last clean unmount

    def block(self, index):
        return self.data[index * self.size:(index + 1) * self.size]

    def records(self, data, locate, key_size=0, value_size=0):
        flags, level, count, toc, length = struct.unpack_from("<HHIHH", data, 0x20)
        keys, end = 0x38 + toc + length, self.size - (40 if flags & 1 else 0)
        for slot in range(count):
            if flags & 4:
                key, value = struct.unpack_from("<HH", data, 0x38 + toc + 4 * slot)
                key_length, value_length = key_size, value_size
            else:
                key, key_length, value, value_length = struct.unpack_from("<4H", data, 0x38 + toc + 8 * slot)
            if level:
                yield from self.records(self.block(locate(number(data, end - value))), locate, key_size, value_size)
            else:
                yield data[keys + key:keys + key + key_length], data[end - value:end - value + value_length]

    def object_map(self, block):
        tree = self.block(number(self.block(block), 0x30))
        newest = {}
        for key, value in self.records(tree, lambda block: block, 16, 16):
            oid, xid = struct.unpack("<QQ", key)
            newest[oid] = max(newest.get(oid, (0, 0)), (xid, number(value, 8)))
        return {oid: block for oid, (_, block) in newest.items()}

    def files(self):
        volume = self.block(self.object_map(number(self.top, 0xA0))[number(self.top, 0xB8)])
        nodes = self.object_map(number(volume, 0x80))
        names, streams, extents = {}, {}, {}
        for key, value in self.records(self.block(nodes[number(volume, 0x88)]), nodes.get):
            oid, kind = number(key, 0) & (1 << 60) - 1, number(key, 0) >> 60
            if kind == 9:
                names[number(value, 0)] = (oid, key[12:].rstrip(b"\0").decode())
            elif kind == 8:
                length, block = struct.unpack_from("<QQ", value)
                extents.setdefault(oid, []).append((number(key, 8), block * self.size, length & (1 << 56) - 1))
            elif kind == 3 and number(value, 80, 2) & 0o170000 == 0o100000:
                streams[oid] = (number(value, 8), self.stream_size(value))
        for oid, (private, size) in sorted(streams.items()):
            yield self.path(names, oid), size, [run[1:] for run in sorted(extents.get(private, []))]

    @staticmethod
    def stream_size(inode):
        count = number(inode, 92, 2)
        at = 96 + 4 * count
        for field in range(count):
            kind, _, length = struct.unpack_from("<BBH", inode, 96 + 4 * field)
            if kind == 8:
                return number(inode, at)
            at += -(-length // 8) * 8
        return 0

    @staticmethod
    def path(names, oid):
        parts = []
        while oid != 2:
            oid, name = names[oid]
            parts.insert(0, name)
        return "/".join(parts)


def main():
    container = Container(sys.argv[1])
    files = []
    for path, size, extents in container.files():
        held = b"".join(container.data[start:start + length] for start, length in extents)[:size]
        digest = hashlib.sha256(held).hexdigest()
        files.append({"path": path, "size": size, "sha256": digest, "extents": [list(run) for run in extents]})
    print(json.dumps({"format": "apfs", "files": files}, indent=1))


main()
