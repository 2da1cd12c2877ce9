#!/usr/bin/env python3
"""LVM2 volume groups without LVM: lays images of logical volumes over files, and says where their bytes lie.

  lvm_group.py lay   SPEC IMAGES PV...         IMAGES: a JSON object, volume -> file (or null for nothing)
  lvm_group.py read  SPEC VOLUME OUT PV...     puts the volume together again
  lvm_group.py carry SPEC VOLUME NUMBER        standard input: START LENGTH lines of the volume; prints those of that PV
  lvm_group.py spare SPEC NUMBER               the bytes of a PV that no logical volume takes

SPEC (JSON): sizes (bytes of each PV), start (bytes before the first extent), extent (bytes), volumes: a list of
  {name, segments: [{count, chunk, places: [[pv, extent], ...]}]}                      linear or striped
  {name, kind: raid1|mirror, count, copies: [[[pv, extent, count], ...], ...], records: [[pv, extent], ...]}
and what a test changes: generation (a number, or one for each PV), flags, pv_flags, extra (text of more volumes), lines (text
of the group), damage, pending, ring, ignored, silent, uuids.

Written from the description of the format; shares no code with coldtrim. Every sector is looked up one by one.
"""
import json
import struct
import sys
import zlib

SECTOR = 512
AREA = 4096


def crc(data):
    return ~zlib.crc32(data, ~0xF597A6CF & 0xFFFFFFFF) & 0xFFFFFFFF


def dashed(text):
    cuts = [0, 6, 10, 14, 18, 22, 26, 32]
    return "-".join(text[a:b] for a, b in zip(cuts, cuts[1:]))


def uuid_of(spec, pv):
    if "uuids" in spec:
        return spec["uuids"][pv]
    return ("pv%d" % pv + spec.get("mark", "A") * 32)[:32]


def sector_places(spec, volume):
    """For every sector of the volume the (pv, sector) pairs that hold it."""
    extent, start = spec["extent"] // SECTOR, spec["start"] // SECTOR
    if "copies" in volume:
        columns = []
        for copy in volume["copies"]:
            column = []
            for pv, first, count in copy:
                base = start + first * extent
                column += [(pv, base + i) for i in range(count * extent)]
            columns.append(column[: volume["count"] * extent])
        return list(zip(*columns))
    sectors = []
    for segment in volume["segments"]:
        places = segment["places"]
        if len(places) == 1:
            pv, first = places[0]
            base = start + first * extent
            sectors += [((pv, base + i),) for i in range(segment["count"] * extent)]
            continue
        chunk = segment["chunk"] // SECTOR
        row = 0
        while row * chunk * len(places) < segment["count"] * extent:
            for pv, first in places:
                base = start + first * extent + row * chunk
                sectors += [((pv, base + i),) for i in range(chunk)]
            row += 1
    return sectors


def stripes(spec, places):
    return "stripes = [" + ", ".join('"pv%d", %d' % (pv, first) for pv, first in places) + "]"


def linear_text(name, pieces, flags):
    out, at = "%s {\nid = \"%s\"\nstatus = [%s]\nsegment_count = %d\n" % (name, dashed((name + "B" * 32)[:32]), flags, len(pieces)), 0
    for number, (pv, first, count) in enumerate(pieces, 1):
        out += "segment%d {\nstart_extent = %d\nextent_count = %d\ntype = \"striped\"\nstripe_count = 1\nstripes = [\"pv%d\", %d]\n}\n" % (
            number, at, count, pv, first)
        at += count
    return out + "}\n"


def volume_text(spec, volume):
    flags = ", ".join('"%s"' % flag for flag in volume.get("flags", ["READ", "WRITE", "VISIBLE"]))
    name = volume["name"]
    head = "%s {\nid = \"%s\"\nstatus = [%s]\nflags = []\ncreation_host = \"a\\\"b\"\t# said }\n" % (name, dashed((name + "C" * 32)[:32]), flags)
    if "copies" in volume:
        kind, count = volume["kind"], volume["count"]
        hidden = '"READ", "WRITE"' + "".join(', "%s"' % flag for flag in volume.get("image_flags", []))
        out = head + "segment_count = 1\nsegment1 {\nstart_extent = 0\nextent_count = %d\ntype = \"%s\"\nregion_size = 1024\n" % (count, kind)
        others = ""
        if kind == "raid1":
            pairs = []
            for number, copy in enumerate(volume["copies"]):
                pairs += ['"%s_rmeta_%d", "%s_rimage_%d"' % (name, number, name, number)]
                pv, first = volume["records"][number]
                others += linear_text("%s_rmeta_%d" % (name, number), [(pv, first, 1)], '"READ", "WRITE"')
                others += linear_text("%s_rimage_%d" % (name, number), copy, hidden)
            out += "device_count = %d\nraids = [%s]\n" % (len(volume["copies"]), ", ".join(pairs))
        else:
            if volume["records"]:
                out += "mirror_log = \"%s_mlog\"\n" % name
                pv, first = volume["records"][0]
                others += linear_text("%s_mlog" % name, [(pv, first, 1)], '"READ", "WRITE"')
            images = []
            for number, copy in enumerate(volume["copies"]):
                images.append('"%s_mimage_%d", 0' % (name, number))
                others += linear_text("%s_mimage_%d" % (name, number), copy, hidden)
            out += "mirror_count = %d\nmirrors = [%s]\n" % (len(images), ", ".join(images))
        return out + "}\n}\n" + others
    out, at = head + "segment_count = %d\n" % volume.get("segment_count", len(volume["segments"])), 0
    for number, segment in enumerate(volume["segments"], 1):
        out += "segment%d {\nstart_extent = %d\nextent_count = %d\ntype = \"%s\"\nstripe_count = %d\n" % (
            number, at, segment["count"], segment.get("kind", "striped"), len(segment["places"]))
        if len(segment["places"]) > 1:
            out += "stripe_size = %d\n" % (segment["chunk"] // SECTOR)
        out += stripes(spec, segment["places"]) + "\n}\n"
        at += segment["count"]
    return out + "}\n"


def text(spec, pv):
    generation = spec.get("generation", 7)
    if isinstance(generation, list):
        generation = generation[pv]
    flags = ", ".join('"%s"' % flag for flag in spec.get("flags", ["RESIZEABLE", "READ", "WRITE"]))
    out = "%s {\nid = \"%s\"\nseqno = %d\nformat = \"lvm2\" # informational\nstatus = [%s]\nflags = []\n" % (
        spec.get("name", "vg"), dashed(spec.get("id", "G" * 32)), generation, flags)
    out += "extent_size = %d\nmax_lv = 0\n%s\nphysical_volumes {\n" % (spec["extent"] // SECTOR, spec.get("lines", ""))
    for number, size in enumerate(spec["sizes"]):
        count = spec["counts"][number] if "counts" in spec else (size - spec["start"]) // spec["extent"]
        flags = ", ".join('"%s"' % flag for flag in spec.get("pv_flags", {}).get(str(number), ["ALLOCATABLE"]))
        out += "pv%d {\nid = \"%s\"\ndevice = \"/dev/was%d\"\nstatus = [%s]\ndev_size = %d\npe_start = %d\npe_count = %d\n}\n" % (
            number, dashed(uuid_of(spec, number)), number, flags, size // SECTOR, spec["start"] // SECTOR, count)
    out += "}\n"
    body = "".join(volume_text(spec, volume) for volume in spec["volumes"]) + spec.get("extra", "")
    if body:
        out += "logical_volumes {\n" + body + "}\n"
    out += "}\n# Generated by a test\ncontents = \"Text Format Volume Group\"\nversion = 1\ndescription = \"\"\ncreation_time = %d\n" % (1000 + pv)
    return out.encode() + b"\0"


def write_labels(spec, pv, file):
    where = spec.get("label_sector", 1)
    area = spec["start"] - AREA
    size = spec["sizes"][pv]
    label = bytearray(SECTOR)
    label[:8] = b"LABELONE"
    struct.pack_into("<Q", label, 8, where)
    struct.pack_into("<I", label, 20, 32)
    label[24:32] = b"LVM2 001"
    label[32:64] = uuid_of(spec, pv).encode()
    places = [] if pv in spec.get("silent", []) else [(AREA, area)]
    if spec.get("second"):
        places.append((size - spec["second"], spec["second"]))
    words = [size, spec["start"], 0, 0, 0]
    for place in places:
        words += place
    words += [0, 0]
    struct.pack_into("<%dQ" % len(words), label, 64, *words)
    struct.pack_into("<II", label, 64 + 8 * len(words), 2, 1)
    struct.pack_into("<I", label, 16, crc(bytes(label[20:])))
    if spec.get("damage") == "label" and pv == 0:
        label[100] ^= 1
    file.seek(where * SECTOR)
    file.write(label)
    for start, length in places:
        body = text(spec, pv)
        # A text that passes the end of its area goes on behind the head.
        offset = length - len(body) // 2 // SECTOR * SECTOR if spec.get("ring") else 1024
        ring = bytearray(length)
        for index, byte in enumerate(body):
            at = offset + index
            ring[at if at < length else at - length + SECTOR] = byte
        head = bytearray(SECTOR)
        head[4:20] = b" LVM2 x[5A%r0N*>"
        flags = 1 if pv in spec.get("ignored", []) else 0
        struct.pack_into("<IQQQQII", head, 20, 1, start, length, offset, len(body), crc(body), flags)
        if spec.get("pending"):
            struct.pack_into("<QQII", head, 64, 4096, 100, 1, 0)
        struct.pack_into("<I", head, 0, crc(bytes(head[4:])))
        if spec.get("damage") == "head" and pv == 0:
            head[400] ^= 1
        if spec.get("damage") == "text" and pv == 0:
            ring[offset + 10] ^= 1
        ring[:SECTOR] = head
        file.seek(start)
        file.write(ring)


def write_records(spec, volume, files):
    at = lambda pv, extent: spec["start"] + extent * spec["extent"]
    ones = (1 << 64) - 1
    for number, (pv, extent) in enumerate(volume["records"]):
        files[pv].seek(at(pv, extent))
        if volume["kind"] == "mirror":
            regions = volume.get("regions", 11)
            files[pv].write(struct.pack("<IIQ", 0x4D695272, 2, regions).ljust(1024, b"\0"))
            bits = (1 << regions) - 1 & ~volume.get("dirty", 0)
            files[pv].write(bits.to_bytes((regions + 7) // 8, "little"))
            continue
        change = volume.get("record", {}) if number == 1 else {}
        record = struct.pack("<IIIIQQQQIIII", change.get("magic", 0x64526D44), 1, len(volume["copies"]),
                             change.get("position", number), change.get("events", 9), change.get("failed", 0),
                             change.get("recovery", ones), change.get("resync", ones), 1, 0, 0, change.get("flags", 0))
        files[pv].write(record.ljust(4096, b"\0"))
        # The write-intent bitmap: 1 MiB a bit.
        sync = volume["count"] * spec["extent"] // SECTOR
        bitmap = struct.pack("<II16sQQQIIIIII", 0x6D746962, 4, b"", 9, 9, sync, 0, 1 << 20, 5, 0, 0, 0).ljust(256, b"\0")
        files[pv].write(bitmap + bytes([change.get("bits", 0)]).ljust(512, b"\0"))


def lay(spec, images, paths):
    files = []
    for number, path in enumerate(paths):
        with open(path, "wb") as made:
            # What lies in no volume is somebody's, as far as anybody knows.
            for at in range(0, spec["sizes"][number], 1 << 20):
                made.write(b"\xA5" * min(1 << 20, spec["sizes"][number] - at))
        files.append(open(path, "r+b"))
    for number, file in enumerate(files):
        file.seek(0)
        file.write(bytes(AREA))
        write_labels(spec, number, file)
    for volume in spec["volumes"]:
        image = images.get(volume["name"])
        if image:
            with open(image, "rb") as source:
                for places in sector_places(spec, volume):
                    data = source.read(SECTOR).ljust(SECTOR, b"\0")
                    for pv, sector in places:
                        files[pv].seek(sector * SECTOR)
                        files[pv].write(data)
        if "copies" in volume:
            write_records(spec, volume, files)


def volume_named(spec, name):
    return next(volume for volume in spec["volumes"] if volume["name"] == name)


def printed(sectors):
    """Runs of sorted sectors, as START LENGTH in bytes."""
    start = end = None
    for sector in sectors:
        if sector != end:
            if start is not None:
                print(start * SECTOR, (end - start) * SECTOR)
            start = sector
        end = sector + 1
    if start is not None:
        print(start * SECTOR, (end - start) * SECTOR)


def carry(spec, name, number):
    places = sector_places(spec, volume_named(spec, name))
    held = set()
    for line in sys.stdin:
        start, length = map(int, line.split())
        assert start % SECTOR == 0 and length % SECTOR == 0
        for at in range(start // SECTOR, (start + length) // SECTOR):
            held.update(sector for pv, sector in places[at] if pv == number)
    printed(sorted(held))


def spare(spec, number):
    extent, start = spec["extent"] // SECTOR, spec["start"] // SECTOR
    taken = set()
    for volume in spec["volumes"]:
        taken.update(sector for places in sector_places(spec, volume) for pv, sector in places if pv == number)
        for pv, first in volume.get("records", []):
            if pv == number:
                taken.update(range(start + first * extent, start + (first + 1) * extent))
    count = (spec["sizes"][number] - spec["start"]) // spec["extent"]
    printed([sector for sector in range(start, start + count * extent) if sector not in taken])


def main():
    verb, spec = sys.argv[1], json.loads(sys.argv[2])
    if verb == "lay":
        lay(spec, json.loads(sys.argv[3]), sys.argv[4:])
    elif verb == "read":
        files = [open(path, "rb") for path in sys.argv[5:]]
        with open(sys.argv[4], "wb") as out:
            for places in sector_places(spec, volume_named(spec, sys.argv[3])):
                pv, sector = places[0]
                files[pv].seek(sector * SECTOR)
                out.write(files[pv].read(SECTOR))
    elif verb == "carry":
        carry(spec, sys.argv[3], int(sys.argv[4]))
    elif verb == "spare":
        spare(spec, int(sys.argv[3]))


main()
