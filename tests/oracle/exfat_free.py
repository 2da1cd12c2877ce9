#!/usr/bin/env python3
"""An independent reading of an exFAT volume, from Microsoft's specification: `START LENGTH` of each free extent."""
import struct
import sys

image = open(sys.argv[1], "rb")


def at(position, count):
    image.seek(position)
    return image.read(count)


boot = at(0, 512)
fat, _, heap, count, root = struct.unpack_from("<5I", boot, 80)
sector, cluster = 1 << boot[108], 1 << boot[108] + boot[109]


def content(first):
    """The bytes of a chain."""
    data = b""
    while 2 <= first < count + 2:
        data += at(heap * sector + (first - 2) * cluster, cluster)
        first = struct.unpack("<I", at(fat * sector + 4 * first, 4))[0]
    return data


for entry in struct.iter_unpack("<BB18sIQ", content(root)):
    if entry[0] == 0x81:
        bits = int.from_bytes(content(entry[3])[:entry[4]], "little")
        break

text = format(bits, "b").zfill(count)[::-1][:count] + "1"
table = at(fat * sector, 4 * (count + 2))
bad = [n - 2 for n, (value,) in enumerate(struct.iter_unpack("<I", table)) if value == 0xFFFFFFF7]
chars = bytearray(text.encode())
for number in bad:
    chars[number] = ord("1")
end = 0
while (start := chars.find(b"0", end)) >= 0:
    end = chars.find(b"1", start)
    print(heap * sector + start * cluster, (end - start) * cluster)
