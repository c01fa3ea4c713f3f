#!/usr/bin/env python3
"""Scores an Aceso configuration by Aceso's published formulas, without any of weft's code.

    score.py FOLDER CONFIG.json [--per-node N]

prints {"time_ms", "memory_mb": [of each stage]}. The tables are read as the artifact reads them
(aceso_cost_model.py, model_ops_info.py): plain dictionaries by file name and op name.
"""
import csv
import json
import math
import os
import sys

EMPTY_MS = 100000


class Tables:
    def __init__(self, folder, name):
        self.folder, self.name, self.ops, self.files, self.prims = folder, name, {}, {}, {}

    def read(self, file):
        path = os.path.join(self.folder, file)
        if not os.path.exists(path):
            return None
        with open(path, newline="") as f:
            return [row for row in csv.reader(f) if row]

    def cell(self, op, mbs, tp, algo):
        key = (mbs, tp, algo)
        if key not in self.files:
            rows = self.read("%s_mbs%d_tp%d_algo%d.csv" % (self.name, mbs, tp, algo))
            self.files[key] = {r[0]: [float(v) for v in r[1:]] for r in rows[1:]} if rows else {}
        return self.files[key].get(op, [1e6] * 8)

    def collective_ms(self, prim, devices, size):
        if prim in (None, "split"):
            return 0
        key = (prim, devices)
        if key not in self.prims:
            rows = self.read("prim_%s_%s_%dgpus.csv" % (self.name, prim, devices))
            self.prims[key] = {r[0]: float(r[1]) for r in rows[1:]} if rows else {}
        for s in (size, size - 1):
            if "{:.0f}".format(s) in self.prims[key]:
                return self.prims[key]["{:.0f}".format(s)]
        return EMPTY_MS

    def band(self, file):
        rows = self.read(file)
        return [float(v) for v in rows[1]] if rows else None


def send_us(size, band):
    if size <= 0:
        return 0
    index = int(math.log(size, 2))
    if index >= 1:
        index -= 1
    return size / ((band[-1] if index >= len(band) else band[index]) * 0.001)


def spec(op, tp, dp, algo, is_input):
    """(replicas, dims) of what an op takes or makes; None: nothing is said."""
    sequence, hidden = (tp, (1, dp, 1)), (1, (1, dp, tp))
    heads, batch = (1, (dp, tp, 1)), (tp, (dp, 1, 1))
    if op == "encoder-embedding":
        return None if is_input else sequence
    if op == "final-layernorm":
        return sequence if is_input else batch
    if op == "gpt-post-process":
        return batch if is_input else None
    if op in ("enc-attention-qkv", "enc-MLP-GEMM-1"):
        return sequence if is_input == (algo == 0) else hidden
    if op in ("enc-attention-dense", "enc-MLP-GEMM-2"):
        return hidden if is_input == (algo == 0) else sequence
    if op == "enc-attention-score":
        return hidden if is_input else heads
    if op in ("enc-attention-softmax", "enc-attention-dropout"):
        return heads
    if op == "enc-attention-context":
        return heads if is_input else hidden
    if op == "enc-MLP-gelu":
        return hidden
    return sequence if op.startswith("enc-") else batch


def primitives(a, b):
    """Forward and backward primitive, and devices."""
    if a is None or b is None or a == b:
        return None, None, 0
    (r1, d1), (r2, d2) = a, b
    if r1 > r2:
        for i in range(3):
            if d1[i] < d2[i]:
                return "split", "all_gather", r1 // r2
    else:
        for i in range(3):
            if d1[i] > d2[i]:
                if r1 < r2:
                    return "all_gather", "split", d1[i] // d2[i]
                for j in range(3):
                    if j != i and d1[j] < d2[j]:
                        return "all_to_all", "all_to_all", d1[i] // d2[i]
    raise ValueError("no way from %s to %s" % (a, b))


def shared(op):
    return (op in ("enc-attention-softmax", "bn1") or "-bn3" in op
            or ("-downsample" in op and "0-0" not in op))


def is_break(op):
    return op == "enc-1st-layernorm" or "-conv1" in op


def kept(op, activations):
    return 1.5 * activations if op == "enc-attention-dropout" else 0 if shared(op) else activations


def saved_and_peak(ops, cells, rc):
    saved = run = peak = 0
    for i in range(len(ops) - 1):
        if not (rc[i] and rc[i + 1]):
            peak, run = max(peak, run), 0
            continue
        size = kept(ops[i], cells[i][5])
        run += size
        if shared(ops[i]) or ops[i] == "enc-attention-dropout":
            saved += size
            continue
        if not is_break(ops[i + 1]):
            saved += size
        if is_break(ops[i + 1]) or i + 1 == len(ops) - 1:
            peak, run = max(peak, run), 0
    return saved, peak


class Stage:
    def __init__(self, t, family, config, s, ops, in_band, out_band):
        micro = config["micro_batch_size"]
        tp = config["model_parallel_size_of_each_op"][s]
        dp = config["data_parallel_size_of_each_op"][s]
        algo, rc = config["algo_of_each_op"][s], config["recompute_ops"][s]
        n = len(ops)
        assert len(tp) == len(dp) == len(algo) == len(rc) == n
        for i in range(n):
            assert tp[i] * dp[i] == config["num_gpus"][s] and micro % dp[i] == 0
        cells = [t.cell(ops[i], micro // dp[i], tp[i], algo[i]) for i in range(n)]
        out = t.cell(ops[-1], micro // dp[-1], tp[0], algo[-1])[3]
        us = sum(c[0] + c[1] for c in cells) + sum(c[0] for c, r in zip(cells, rc) if r)
        us += send_us(cells[0][2], in_band) + send_us(out, out_band)
        for i in range(1, n):
            if family == "t5":
                assert (tp[i], dp[i]) == (tp[0], dp[0]), "T5's runtime cannot convert"
                continue
            forward, backward, devices = primitives(
                spec(ops[i - 1], tp[i - 1], dp[i - 1], algo[i - 1], False),
                spec(ops[i], tp[i], dp[i], algo[i], True))
            for prim in (forward, backward):
                us += 1000 * t.collective_ms(prim, devices, cells[i][2])
        self.ms = us / 1000
        weights = sum(c[4] for c in cells)
        held = cells[0][2] + sum(kept(o, c[5]) for o, c in zip(ops, cells))
        saved, peak = saved_and_peak(ops, cells, rc)
        reserved = max([c[6] for c in cells[:-1]] + [0]) + max([c[7] for c in cells[:-1]] + [0])
        main, opt = (0, 2) if family == "resnet" else (2, 4)
        behind = config["num_stages"] - 1 - s
        self.mb = ((1 + main + 1 + opt) * weights + (held - saved) * (behind + 1) + peak
                   + max(reserved, weights))


def op_list(t, family, config):
    mbs = next(m for m in range(1, 1 << 12)
               if os.path.exists(os.path.join(t.folder, "%s_mbs%d_tp1_algo0.csv" % (t.name, m))))
    rows = [r[0] for r in t.read("%s_mbs%d_tp1_algo0.csv" % (t.name, mbs))[1:]]
    layers = config["num_layers"]
    if family == "gpt":
        return rows[:1] + rows[1:14] * layers + rows[14:]
    if family == "t5":
        return rows[:1] + rows[1:14] * layers + rows[14:16] + rows[16:37] * layers + rows[37:]
    return rows


def score(folder, config, per_node):
    name, size = config["model_name"], config["model_size"]
    family = "gpt" if name == "scale-layer" else name
    size = "scale-layer" if name == "scale-layer" else size
    t = Tables(folder, "%s_%s" % (family, "11B" if (family, size) == ("t5", "22B") else size))
    ops = op_list(t, family, config)
    inside = t.band("p2p_intra_node.csv")
    between = t.band("p2p_inter_node.csv") or inside
    counts = config["num_ops_in_each_stage"]
    assert sum(counts) == len(ops), (sum(counts), len(ops))
    assert config["global_batch_size"] % config["micro_batch_size"] == 0
    stages, first, gpus = [], 0, 0
    for s in range(config["num_stages"]):
        bands = [between if gpus > 0 and gpus % per_node == 0 else inside]
        gpus += config["num_gpus"][s]
        bands.append(between if gpus % per_node == 0 else inside)
        stages.append(Stage(t, family, config, s, ops[first:first + counts[s]], *bands))
        first += counts[s]
    n = config["global_batch_size"] // config["micro_batch_size"]
    times = [s.ms for s in stages]
    return {"time_ms": (n - 1) * max(times) + sum(times), "memory_mb": [s.mb for s in stages],
            "gpus": gpus}


if __name__ == "__main__":
    node = int(sys.argv[4]) if len(sys.argv) > 4 and sys.argv[3] == "--per-node" else 1 << 30
    with open(sys.argv[2]) as config_file:
        print(json.dumps(score(sys.argv[1], json.load(config_file), node)))
