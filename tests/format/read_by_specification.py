#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A second reader of golden files, written from spec/format.md and format/*.fbs alone.

read_by_specification.py FOLDER: decodes FOLDER/*.flagstone, works out from the manifest where everything lies in the
rank files, compares that with their indexes, and all of it with FOLDER/description.json. Digests are not checked here
(Python has no XXH3); that is the C++ tests' part. Exits 1 with the first difference.
"""

import json
import math
import pathlib
import struct
import sys

PAGE = 4096
MAGIC = bytes.fromhex("89464c41470d0a1a")
# spec/format.md, "Element types": name and size by number.
DTYPES = (
    "uint8:1 int8:1 int16:2 int32:4 int64:8 uint16:2 uint32:4 uint64:8 bool:1 float16:2 bfloat16:2 float32:4 float64:8 "
    "complex32:4 complex64:8 complex128:16 float8_e4m3fn:1 float8_e5m2:1 float8_e4m3fnuz:1 float8_e5m2fnuz:1 "
    "float8_e8m0fnu:1 float4_e2m1fn_x2:1 qint8:1 quint8:1 qint32:4 quint4x2:1 quint2x4:1 bits1x8:1 bits2x4:1 bits4x2:1 "
    "bits8:1 bits16:2 uint1:1 uint2:1 uint3:1 uint4:1 uint5:1 uint6:1 uint7:1 int1:1 int2:1 int3:1 int4:1 int5:1 int6:1 "
    "int7:1"
).split()
NAMES = [entry.split(":")[0] for entry in DTYPES]
SIZES = {entry.split(":")[0]: int(entry.split(":")[1]) for entry in DTYPES}


def up(value, multiple):
    return -(-value // multiple) * multiple


def require(found, expected, what):
    if found != expected:
        sys.exit(f"{what}: found {found!r}, expected {expected!r}")


class Table:
    """A FlatBuffers table: fields by id, with the schema's defaults."""

    def __init__(self, data, at):
        self.data, self.at = data, at
        self.vtable = at - struct.unpack_from("<i", data, at)[0]
        self.size = struct.unpack_from("<H", data, self.vtable)[0]

    @staticmethod
    def root(data, identifier):
        require(data[4:8], identifier, "file identifier")
        return Table(data, struct.unpack_from("<I", data, 0)[0])

    def place(self, field):
        entry = 4 + 2 * field
        offset = struct.unpack_from("<H", self.data, self.vtable + entry)[0] if entry < self.size else 0
        return self.at + offset if offset else None

    def scalar(self, field, kind, default=0):
        place = self.place(field)
        return default if place is None else struct.unpack_from("<" + kind, self.data, place)[0]

    def target(self, field):
        place = self.place(field)
        return None if place is None else place + struct.unpack_from("<I", self.data, place)[0]

    def table(self, field):
        return Table(self.data, self.target(field))

    def vector(self, field, kind):
        """Scalars or structs: `kind` is what struct.unpack takes for one element."""
        start = self.target(field)
        if start is None:
            return []
        count = struct.unpack_from("<I", self.data, start)[0]
        values = list(struct.iter_unpack("<" + kind, self.data[start + 4 : start + 4 + count * struct.calcsize("<" + kind)]))
        return [value[0] if len(value) == 1 else value for value in values]

    def tables(self, field):
        start = self.target(field)
        if start is None:
            return []
        count = struct.unpack_from("<I", self.data, start)[0]
        places = [start + 4 + 4 * i for i in range(count)]
        return [Table(self.data, place + struct.unpack_from("<I", self.data, place)[0]) for place in places]

    def bytes(self, field):
        start = self.target(field)
        if start is None:
            return b""
        count = struct.unpack_from("<I", self.data, start)[0]
        return self.data[start + 4 : start + 4 + count]

    def text(self, field):
        return self.bytes(field).decode("utf-8")


def float_json(bits):
    number = struct.unpack("<d", bits)[0]
    if number != number:
        return {"float": f"nan:{int.from_bytes(bits, 'little'):016x}"}
    # C's %a has no trailing zeros.
    mantissa, exponent = number.hex().split("p")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return {"float": mantissa + "p" + exponent}


class PlainData:
    """One value after the other; `sizes` collects the arrays whose bytes lie in segments."""

    def __init__(self, data, inline):
        self.data, self.at, self.inline, self.sizes = data, 0, inline, []

    def take(self, count):
        self.at += count
        require(self.at <= len(self.data), True, "plain data ends")
        return self.data[self.at - count : self.at]

    def number(self, kind):
        return struct.unpack("<" + kind, self.take(struct.calcsize("<" + kind)))[0]

    def value(self):
        tag = self.number("B")
        if tag == 0:
            return None
        if tag == 1:
            return bool(self.number("B"))
        if tag == 2:
            return self.number("q")
        if tag == 3:
            return float_json(self.take(8))
        if tag == 4:
            return self.take(self.number("I")).decode("utf-8")
        if tag == 5:
            return {"bytes": self.take(self.number("I")).hex()}
        if tag == 6:
            return [self.value() for _ in range(self.number("I"))]
        if tag == 7:
            return {"dict": [[self.value(), self.value()] for _ in range(self.number("I"))]}
        require(tag, 8, "tag")
        dtype = NAMES[self.number("B")]
        shape = [self.number("Q") for _ in range(self.number("B"))]
        size = math.prod(shape) * SIZES[dtype]
        if size > 4096 and not self.inline:
            self.sizes.append(size)
            data = b""
        else:
            data = self.take(size)
        return {"array": {"dtype": dtype, "shape": shape, "bytes": data.hex()}}

    @staticmethod
    def whole(data, inline):
        reader = PlainData(data, inline)
        value = reader.value()
        require(reader.at, len(data), "bytes of a value")
        return value, reader.sizes


def read_header(data):
    require(data[:8], MAGIC, "magic")
    kind, major, minor = struct.unpack_from("<IHH", data, 8)
    require(struct.unpack_from("<I", data, 32)[0], 0x01020304, "endianness")
    require(any(data[36:64]) or any(data[136:PAGE]), False, "header padding")
    features, save_id, rank, world, length, offset, size, digest = struct.unpack_from("<Q16sIIQQQ16s", data, 64)
    require(length, len(data), "file length")
    require(up(offset + size, PAGE), length, "end of the index")
    require(any(data[offset + size :]), False, "index padding")
    return {
        "kind": kind,
        "version": f"{major}.{minor}",
        "required_features": features,
        "save_id": save_id.hex(),
        "rank": rank,
        "world_size": world,
        "file_length": length,
        "index_offset": offset,
        "index_length": size,
        "index_digest": digest.hex(),
    }


def read_ranks(ranges):
    return [{"first": first, "count": count, "stride": stride} for first, count, stride in ranges]


def read_cut(partition):
    kind, cut = partition.scalar(6, "B"), partition.table(7)
    if kind == 1:
        return {"rule": "flat", "cuts": cut.vector(0, "Q")}
    if kind == 2:
        return {"rule": "per_tensor", "unit": ["element", "row"][cut.scalar(0, "B")]}
    if kind == 3:
        axes = [
            {
                "size": axis.scalar(0, "I", 1),
                "placement": axis.scalar(1, "B"),
                "dimension": axis.scalar(2, "I"),
                "split_factor": axis.scalar(3, "I", 1),
            }
            for axis in cut.tables(0)
        ]
        return {"rule": "mesh", "axes": axes}
    if kind == 4:
        return {"rule": "whole", "owners": cut.vector(0, "I")}
    if kind == 5:
        return {"rule": "replicated", "storing": cut.vector(0, "I")}
    require(kind, 6, "cut rule")
    keys = ("rank_index", "member", "begin", "end")
    return {"rule": "explicit", "pieces": [dict(zip(keys, piece)) for piece in cut.vector(0, "IIQQ")]}


def read_members(table, shapes):
    """Tensors, and boxes of them: for each of `boxed` its offsets and sizes, one behind the other."""
    members = [{"tensor": tensor} for tensor in table.vector(3, "I")]
    bounds = table.vector(8, "Q")
    for member in table.vector(4, "I"):
        dimensions = len(shapes[members[member]["tensor"]])
        members[member]["box"] = [bounds[:dimensions], bounds[dimensions : 2 * dimensions]]
        bounds = bounds[2 * dimensions :]
    require(bounds, [], "numbers behind the boxes")
    return members


def read_partition(table, shapes):
    roles = [
        {
            "name": role.text(0),
            "dtype": NAMES[role.scalar(1, "B")],
            "form": ["aligned", "attached", "plain"][role.scalar(2, "B")],
            "shapes": [shape.vector(0, "Q") for shape in role.tables(3)],
            "block": role.scalar(4, "Q", 1),
            "chunk_bytes": role.scalar(5, "I"),
        }
        for role in table.tables(5)
    ]
    return {
        "id": table.text(0),
        "ranks": read_ranks(table.vector(1, "III")),
        "replicas": [read_ranks(replica.vector(0, "III")) for replica in table.tables(2)],
        "members": read_members(table, shapes),
        "roles": roles,
        "cut": read_cut(table),
    }


def read_layout(table):
    tensors = [
        {
            "name": tensor.text(0),
            "dtype": NAMES[tensor.scalar(1, "B")],
            "shape": tensor.vector(2, "Q"),
            "kind": ["parameter", "buffer"][tensor.scalar(3, "B")],
            "group": tensor.scalar(4, "I", None),
            "trainable": bool(tensor.scalar(5, "B", 1)),
            "aliases": [alias.text(0) for alias in tensor.tables(6)],
        }
        for tensor in table.tables(1)
    ]
    groups = [group.bytes(0) for group in table.tables(3)]
    return {
        "world_size": table.scalar(0, "I"),
        "tensors": tensors,
        "partitions": [read_partition(table, [tensor["shape"] for tensor in tensors]) for table in table.tables(2)],
        "groups": [PlainData.whole(data, True)[0] if data else None for data in groups],
    }


def read_manifest(header, index):
    table = Table.root(index, b"FSMF")
    keys = ("file_length", "index_length", "index_digest", "rank")
    files = [dict(zip(keys, entry[:4])) for entry in table.vector(3, "QQ16sII")]
    client, sizes = PlainData.whole(table.bytes(4), False)
    manifest = {
        "save_id": header["save_id"],
        "required_features": header["required_features"],
        "step": table.scalar(0, "q", None),
        "committed_at": table.scalar(1, "q"),
        "layout": read_layout(table.table(2)),
        "files": [{**file, "index_digest": file["index_digest"].hex()} for file in files],
        "client_state": client,
    }
    return manifest, sizes


def read_index(index):
    table = Table.root(index, b"FSRI")
    state, sizes = PlainData.whole(table.bytes(9), False)
    plain = []
    for column in table.tables(8):
        values = PlainData(column.bytes(3), True)
        for member in column.vector(2, "I"):
            plain.append(
                {"partition": column.text(0), "role": column.text(1), "member": member, "value": values.value()}
            )
    segments = [
        {
            "partition": segment.text(0),
            "role": segment.text(1),
            "offset": segment.scalar(2, "Q"),
            "bytes": segment.scalar(3, "Q"),
            "chunk_bytes": segment.scalar(4, "I"),
            "first_chunk": segment.scalar(5, "Q"),
        }
        for segment in table.tables(3)
    ]
    save_id = table.place(0)
    out = {
        "save_id": index[save_id : save_id + 16].hex(),
        "rank": table.scalar(1, "I"),
        "world_size": table.scalar(2, "I"),
        "segments": segments,
        "digests_offset": table.scalar(4, "Q"),
        "digest_count": table.scalar(5, "Q"),
        "index_offset": table.scalar(6, "Q"),
        "page_digests": [struct.pack("<Q", digest).hex() for digest in table.vector(7, "Q")],
    }
    # The description leaves an empty list out.
    if plain:
        out["plain"] = plain
    out["rank_state"] = state
    return out, sizes


def chunk(indexes, pieces):
    """torch.chunk, with empty lists for what is missing."""
    share = -(-len(indexes) // pieces)
    return [indexes[i * share : (i + 1) * share] for i in range(pieces)]


def local_elements(shape, axes, position):
    """spec/format.md, "Mesh": the size of a position's local tensor, 0 where it stores nothing."""
    coordinates = []
    for axis in reversed(axes):
        coordinates.insert(0, position % axis["size"])
        position //= axis["size"]
    if any(c > 0 for c, axis in zip(coordinates, axes) if axis["placement"] == 0):
        return 0
    elements = 1
    for dimension, size in enumerate(shape):
        indexes = list(range(size))
        for coordinate, axis in zip(coordinates, axes):
            if axis["placement"] == 0 or axis["dimension"] != dimension:
                continue
            parts = chunk(indexes, axis["split_factor"] if axis["placement"] == 2 else 1)
            indexes = [index for part in parts for index in chunk(part, axis["size"])[coordinate]]
        elements *= len(indexes)
    return elements


def stored_slices(layout, partition, position, ranks):
    """spec/format.md, "Slices": (member, begin, end) of a position in the rank list."""
    cut, elements, first = partition["cut"], [], []
    shapes = []
    for member in partition["members"]:
        shape = member["box"][1] if "box" in member else layout["tensors"][member["tensor"]]["shape"]
        shapes.append(shape)
        elements.append(math.prod(shape))
        first.append(shape[0] if shape else 1)
    members = range(len(elements))
    if cut["rule"] == "mesh":
        local = [local_elements(shape, cut["axes"], position) for shape in shapes]
        return [(m, 0, local[m]) for m in members if local[m] > 0]
    if cut["rule"] == "whole":
        return [(m, 0, elements[m]) for m in members if cut["owners"][m] == position]
    if cut["rule"] == "replicated":
        return [(m, 0, elements[m]) for m in members if cut["storing"][m] == position]
    if cut["rule"] == "explicit":
        pieces = [piece for piece in cut["pieces"] if piece["rank_index"] == position]
        return [(piece["member"], piece["begin"], piece["end"]) for piece in pieces]
    slices, start = [], 0
    for m in members:
        if cut["rule"] == "flat":
            begin = max(cut["cuts"][position], start) - start
            end = min(cut["cuts"][position + 1], start + elements[m]) - start
            start += elements[m]
        elif elements[m] == 0:
            continue
        else:
            units = elements[m] if cut["unit"] == "element" else first[m]
            piece = -(-units // ranks) * (elements[m] // units)
            begin, end = min(position * piece, elements[m]), min((position + 1) * piece, elements[m])
        if begin < end:
            slices.append((m, begin, end))
    return slices


def segment_bytes(layout, partition, role, position, ranks):
    alone = partition["cut"]["rule"] in ("whole", "replicated")
    length = 0
    for member, begin, end in stored_slices(layout, partition, position, ranks):
        count = math.prod(role["shapes"][member]) if role["form"] == "attached" else end - begin
        length = (up(length, 64) if alone else length) + count * SIZES[role["dtype"]]
    return length


def places(layout, rank, state_sizes, client_sizes):
    """spec/format.md, "Places"."""
    wanted = []
    for partition in layout["partitions"]:
        ranges = partition["ranks"]
        ranks = [entry["first"] + i * entry["stride"] for entry in ranges for i in range(entry["count"])]
        if rank not in ranks:
            continue
        for role in partition["roles"]:
            if role["form"] != "plain":
                length = segment_bytes(layout, partition, role, ranks.index(rank), len(ranks))
                wanted.append((partition["id"], role["name"], length, role["chunk_bytes"]))
    wanted += [("", "rank_state", size, 65536) for size in state_sizes]
    wanted += [("", "client_state", size, 65536) for size in client_sizes if rank == 0]
    segments, offset, chunk = [], PAGE, 0
    for partition, role, length, chunk_bytes in wanted:
        if length == 0:
            continue
        segments.append(
            {
                "partition": partition,
                "role": role,
                "offset": offset,
                "bytes": length,
                "chunk_bytes": chunk_bytes,
                "first_chunk": chunk,
            }
        )
        offset += up(length, PAGE)
        chunk += -(-up(length, PAGE) // chunk_bytes)
    return {
        "segments": segments,
        "digests_offset": offset,
        "digest_count": chunk,
        "index_offset": offset + PAGE * -(-chunk // 512),
    }


def main():
    folder = pathlib.Path(sys.argv[1])
    description = json.loads((folder / "description.json").read_text(encoding="utf-8"))
    data = (folder / "manifest.flagstone").read_bytes()
    header = read_header(data)
    manifest, client_sizes = read_manifest(header, data[PAGE : PAGE + header["index_length"]])
    require({"header": header, "manifest": manifest}, description["manifest.flagstone"], "manifest")
    for rank in range(header["world_size"]):
        name = f"rank-{rank:05d}.{header['save_id'][:8]}.flagstone"
        data = (folder / name).read_bytes()
        header_of_rank = read_header(data)
        start = header_of_rank["index_offset"]
        index, state_sizes = read_index(data[start : start + header_of_rank["index_length"]])
        for key, value in places(manifest["layout"], rank, state_sizes, client_sizes).items():
            require(index[key], value, f"{name}, {key}")
        begins = [data[s["offset"] : s["offset"] + min(s["bytes"], 32)].hex() for s in index["segments"]]
        expected = description[name]
        require(header_of_rank, expected["header"], f"header of {name}")
        require(index, expected["index"], f"index of {name}")
        require(begins, expected["segments_begin_with"], f"segments of {name}")
        require(len(description), header["world_size"] + 1, "files")
    print(f"{len(description)} files read by the specification")


if __name__ == "__main__":
    main()
