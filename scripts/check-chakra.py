#!/usr/bin/env python3
"""Chakra traces that weft-predict wrote, read with protobuf's own parser.

    $PYTHON scripts/check-chakra.py DIR

Needs the package protobuf. Messages are described by the fields of et_def.proto (mlcommons/chakra) that
are written; none may have another. Every node waits for nodes that stand before it; each send has the one
receive of its ends, tag and size; all ranks of a group have the same collectives in the same order. Prints
how many there are of each; ends with status 1 where something is wrong.
"""
import collections
import json
import os
import sys

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

F = descriptor_pb2.FieldDescriptorProto
FIELDS = {
    "AttributeProto": [("name", 1, "STRING"), ("int32_val", 7, "INT32"), ("int64_val", 9, "INT64"),
                       ("uint64_val", 13, "UINT64"), ("bool_val", 27, "BOOL"), ("string_val", 29, "STRING")],
    "GlobalMetadata": [("version", 1, "STRING")],
    "Node": [("id", 1, "UINT64"), ("name", 2, "STRING"), ("type", 3, "INT32"), ("ctrl_deps", 4, "UINT64*"),
             ("data_deps", 5, "UINT64*"), ("duration_micros", 7, "UINT64"), ("attr", 10, "AttributeProto*")],
}
SEND, RECEIVE, COLLECTIVE = 5, 6, 7


def messages():
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    for name, fields in FIELDS.items():
        m = file.message_type.add(name=name)
        for field, number, kind in fields:
            f = m.field.add(name=field, number=number,
                            label=F.LABEL_REPEATED if kind[-1] == "*" else F.LABEL_OPTIONAL)
            kind = kind.rstrip("*")
            if kind in FIELDS:
                f.type, f.type_name = F.TYPE_MESSAGE, ".ChakraProtoMsg." + kind
            else:
                f.type = getattr(F, "TYPE_" + kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName("ChakraProtoMsg." + n))
            for n in ("GlobalMetadata", "Node")]


def stream(path):
    with open(path, "rb") as f:
        data = f.read()
    at = 0
    while at < len(data):
        size = shift = 0
        while True:
            size |= (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                break
        yield data[at:at + size]
        at += size


def attributes(node):
    return {a.name: next(v for k, v in ((f.name, v) for f, v in a.ListFields()) if k != "name")
            if len(a.ListFields()) > 1 else 0 for a in node.attr}


def check(folder):
    metadata, node_class = messages()
    with open(os.path.join(folder, "comm_groups.json")) as f:
        groups = json.load(f)
    total, ends = collections.Counter(), collections.Counter()
    collectives = collections.defaultdict(dict)
    ranks = sorted(int(n.split(".")[1]) for n in os.listdir(folder) if n.endswith(".et"))
    assert ranks == list(range(len(ranks))), ranks
    for rank in ranks:
        first, *rest = stream(os.path.join(folder, f"weft.{rank}.et"))
        assert metadata.FromString(first).version
        seen = set()
        for data in rest:
            node = node_class.FromString(data)
            assert node.SerializeToString(deterministic=True), node
            assert not set(node.ctrl_deps) - seen and not set(node.data_deps) - seen, node
            assert node.id not in seen and node.name and node.type, node
            seen.add(node.id)
            a = attributes(node)
            total["nodes"] += 1
            total["us"] += node.duration_micros if rank == 0 else 0
            if node.type in (SEND, RECEIVE):
                assert (a["comm_src"] if node.type == SEND else a["comm_dst"]) == rank, node
                ends[a["comm_src"], a["comm_dst"], a["comm_tag"], a["comm_size"]] += 1 if node.type == SEND else -1
                total["messages"] += node.type == SEND
                total["bytes"] += a["comm_size"] if node.type == SEND else 0
            elif node.type == COLLECTIVE:
                assert rank in groups[a["pg_name"]], node
                collectives[a["pg_name"]].setdefault(rank, []).append((a["comm_type"], a["comm_size"]))
                total["collectives"] += 1
            else:
                assert "num_ops" in a and "tensor_size" in a, node
    assert not any(ends.values()), [k for k, v in ends.items() if v]
    for group, by_rank in collectives.items():
        assert sorted(by_rank) == sorted(groups[group]), group
        assert len({tuple(c) for c in by_rank.values()}) == 1, group
    print(f"{len(ranks)} ranks, {total['nodes']} nodes, {total['collectives']} collectives, "
          f"{total['messages']} messages of {total['bytes']} bytes; rank 0: {total['us']} us in nodes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        check(sys.argv[1])
    except AssertionError as e:
        sys.exit(f"{sys.argv[1]}: {e}")
