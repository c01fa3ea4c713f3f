#!/usr/bin/env python3
"""Chakra traces that weft-predict wrote, read with protobuf's own parser.

    $PYTHON scripts/check-chakra.py DIR

Needs the package protobuf. Messages are described by the fields of et_def.proto (mlcommons/chakra) that
are written; none may have another. Every node waits for nodes that stand before it; each send has the one
receive of its ends, tag and size; all ranks of a group have the same collectives in the same order. Then all
is replayed by the rules of ASTRA-sim's workload layer (Workload.cc, HardwareResource.cc), with messages that
take no time, once by all dependencies and once by data alone, as Chakra's own feeder has them: every node must
end. Without messages that is after the step that weft-predict says. Prints how many there are of each; ends
with status 1 where something is wrong.
"""
import collections
import heapq
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
COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7


def messages():
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    for name, fields in FIELDS.items():
        m = file.message_type.add(name=name)
        if name == "AttributeProto":
            m.oneof_decl.add(name="value")
        for field, number, kind in fields:
            f = m.field.add(name=field, number=number,
                            label=F.LABEL_REPEATED if kind[-1] == "*" else F.LABEL_OPTIONAL)
            if field.endswith("_val"):
                f.oneof_index = 0
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
    """A value that is not there, not even as 0, ends ASTRA-sim."""
    assert all(a.WhichOneof("value") for a in node.attr), node
    return {a.name: getattr(a, a.WhichOneof("value")) for a in node.attr}


class Replay:
    """Time of a step in which a rank does one computation and one collective, message or copy at a time."""
    def __init__(self, ranks, groups, control):
        self.ranks, self.groups, self.now, self.events, self.done = ranks, groups, 0, [], 0
        self.busy = [collections.Counter() for _ in ranks]
        self.begun = [collections.Counter() for _ in ranks]  # collectives of a group
        self.met, self.awaited, self.sent = *(collections.defaultdict(list) for _ in range(2)), collections.Counter()
        self.children = [collections.defaultdict(list) for _ in ranks]
        self.left, self.free = [{} for _ in ranks], [[] for _ in ranks]
        for rank, nodes in enumerate(ranks):
            for number, (node, _) in nodes.items():
                parents = set(node.data_deps) | set(node.ctrl_deps if control else ())
                self.left[rank][number] = len(parents)
                for parent in parents:
                    self.children[rank][parent].append(number)
                if not parents:
                    heapq.heappush(self.free[rank], number)

    def end(self, at, rank, number):
        heapq.heappush(self.events, (at, rank, number))

    def begin(self, rank, number, node, a):
        if node.type in (SEND, RECEIVE):
            message = a["comm_src"], a["comm_dst"], a["comm_tag"]
            if node.type == SEND:
                self.end(self.now, rank, number)
                self.sent[message] += 1
            else:
                self.awaited[message].append((rank, number))
            if self.sent[message] and self.awaited[message]:
                self.sent[message] -= 1
                self.end(self.now, *self.awaited[message].pop(0))
        elif node.type == COLLECTIVE:
            group = a["pg_name"]
            met = self.met[group, self.begun[rank][group]]
            self.begun[rank][group] += 1
            met.append((rank, number))
            if len(met) == len(self.groups[group]):
                for r, n in met:
                    self.end(self.now + self.ranks[r][n][0].duration_micros, r, n)
        else:
            self.end(self.now + node.duration_micros, rank, number)

    def begin_all(self, rank):
        later = []
        while self.free[rank]:
            number = heapq.heappop(self.free[rank])
            node, a = self.ranks[rank][number]
            kind = node.type == COMPUTE
            if node.type != RECEIVE and self.busy[rank][kind]:
                later.append(number)
                continue
            self.busy[rank][kind] += node.type != RECEIVE
            self.begin(rank, number, node, a)
        for number in later:
            heapq.heappush(self.free[rank], number)

    def run(self):
        for rank in range(len(self.ranks)):
            self.begin_all(rank)
        while self.events:
            self.now, rank, number = heapq.heappop(self.events)
            node, self.done = self.ranks[rank][number][0], self.done + 1
            self.busy[rank][node.type == COMPUTE] -= node.type != RECEIVE
            for child in self.children[rank][number]:
                self.left[rank][child] -= 1
                if not self.left[rank][child]:
                    heapq.heappush(self.free[rank], child)
            self.begin_all(rank)
        nodes = sum(map(len, self.ranks))
        assert self.done == nodes, f"{nodes - self.done} of {nodes} nodes never end when replayed"
        return self.now


def check(folder):
    metadata, node_class = messages()
    with open(os.path.join(folder, "comm_groups.json")) as f:
        groups = json.load(f)
    assert "0" not in groups, "group 0 is all ranks for ASTRA-sim"
    total, ends, traces = collections.Counter(), collections.Counter(), []
    collectives = collections.defaultdict(dict)
    ranks = sorted(int(n.split(".")[1]) for n in os.listdir(folder) if n.endswith(".et"))
    assert ranks == list(range(len(ranks))), ranks
    for rank in ranks:
        first, *rest = stream(os.path.join(folder, f"weft.{rank}.et"))
        assert metadata.FromString(first).version
        seen = {}
        traces.append(seen)
        for data in rest:
            node = node_class.FromString(data)
            assert node.SerializeToString(deterministic=True), node
            assert not (set(node.ctrl_deps) | set(node.data_deps)) - set(seen), node
            assert node.id not in seen and node.name and node.type, node
            a = attributes(node)
            seen[node.id] = node, a
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
    times = {Replay(traces, groups, control).run() for control in (True, False)}
    assert len(times) == 1, f"replayed in {times} us, by all dependencies and by data alone"
    print(f"{len(ranks)} ranks, {total['nodes']} nodes, {total['collectives']} collectives, "
          f"{total['messages']} messages of {total['bytes']} bytes; rank 0: {total['us']} us in nodes; replayed in {times.pop()} us")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        check(sys.argv[1])
    except AssertionError as e:
        sys.exit(f"{sys.argv[1]}: {e}")
