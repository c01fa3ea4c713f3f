#!/usr/bin/env python3
"""Where the time of a training step goes on an H100, computed: no GPU is asked.

    gpu-roofline.py BUILD_DIR [MODEL...]

For the models of bench-gpu.py (124M, 350M, 1.3B) it takes the instructions of a step with their flops and
bytes (weft-predict --trace), makes launches of them as lib/cuda does (cuda_pair.h, cuda_multi.h), and gives
each the longer of its flops at the rate that its kind reaches and its bytes at the bandwidth that is
reached, and what a launch in a graph costs. Beside it stands what PyTorch does for the same (torch.compile,
flash attention, fused AdamW under autocast), as bench-gpu.py runs it: the same products, and the crossings
of memory that its kernels make, which are reasoned here and not measured.
"""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict

HERE = os.path.dirname(os.path.abspath(__file__))
# Reached on an H100: bytes and, by products of bf16, flops a second (of a large one PEAK was seen; those of a
# layer are smaller); of causal attention on 1024 tokens by mma.sync, by columns of a head, assumed.
PEAK, PRODUCT, BANDWIDTH, LAUNCH = 798e12, 600e12, 2.6e12, 2.5e-6
ATTENTION = {64: 300e12, 128: 350e12}
# Backward, as flops are counted (10 for a score and column): in one pass, with float atomics in dQ; weft's two
# passes take so many times as long (by cycles of products, shared memory and cache).
ATTENTION_BACKWARD = {64: 240e12, 128: 300e12}
TWO_PASSES = {64: 1459 / 1216, 128: 4608 / 3392}
TOGETHER = 64  # tensors of a launch: CUDA_MULTI_MOST

PARTS = ["products", "head", "attention", "attention, backward", "GELU", "norms and residuals", "cross-entropy",
         "embedding", "gradients of biases", "rounding of weights", "zeroing of gradients", "norm and clip", "AdamW"]
PART_OF = {"attention": "attention", "attention_bwd": "attention, backward", "gelu": "GELU", "gelu_dx": "GELU",
           "embedding": "embedding", "embedding_dw": "embedding", "bias": "embedding", "bias_dw": "embedding",
           "layernorm": "norms and residuals", "layernorm_bwd": "norms and residuals", "add": "norms and residuals",
           "cross_entropy": "cross-entropy", "cross_entropy_dx": "cross-entropy", "sum_squares": "norm and clip",
           "adamw": "AdamW", "narrow": "rounding of weights", "fill": "zeroing of gradients"}
# Kernels of an instruction, where it is not one.
LAUNCHES = {"attention_bwd": 3, "cross_entropy": 2, "layernorm_bwd": 2, "bias_dw": 2, "embedding_dw": 4}
# Two in one launch (cuda_pair.h): of the crossings of the second alone, those that are left.
PAIRS = {("linear", "gelu"): 1 / 2, ("linear_dx", "gelu_dx"): 1 / 3, ("add", "layernorm"): 1 / 2,
         ("layernorm_bwd", "add"): 1 / 3}


def bench():
    spec = importlib.util.spec_from_file_location("bench_gpu", os.path.join(HERE, "bench-gpu.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Step:
    """Launches, flops, bytes and seconds of each part."""

    def __init__(self):
        self.parts = defaultdict(lambda: [0, 0.0, 0.0, 0.0])

    def add(self, part, launches, moved, flops=0.0, rate=PRODUCT):
        """Flops that are no product's hide behind the bytes."""
        bound = max(moved / BANDWIDTH, flops / rate if part in PARTS[:4] else 0)
        for i, x in enumerate((launches, flops, moved, bound + LAUNCH * launches)):
            self.parts[part][i] += x

    def total(self):
        return [sum(part[i] for part in self.parts.values()) for i in range(4)]


def instructions(build, plan):
    """(opcode, what it is about, flops, bytes) of those that compute, in their order."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plan.json")
        with open(path, "w") as f:
            json.dump(plan, f)
        out = subprocess.run([os.path.join(build, "bin", "weft-predict"), "--datasheets", "--trace", "-", "--cluster",
                              os.path.join(HERE, "..", "share", "clusters", "h100-8.json"),
                              "-o", os.path.join(folder, "out.json"), path], check=True, stdout=subprocess.PIPE)
    for e in json.loads(out.stdout)["traceEvents"]:
        if e["ph"] == "X" and "bytes" in e["args"]:
            code, _, about = e["name"].partition(" ")
            yield code, about, e["args"]["flops"], e["args"]["bytes"]


def weft(instrs, dim):
    """A step as its captured regions launch it."""
    step, counts, before = Step(), defaultdict(int), None
    for code, about, flops, moved in instrs:
        part = PART_OF.get(code) or ("head" if about == "head" else "products")
        rate = {"attention": ATTENTION[dim], "attention_bwd": ATTENTION_BACKWARD[dim] / TWO_PASSES[dim]}.get(code, PRODUCT)
        launches = LAUNCHES.get(code, 1)
        if code in ("sum_squares", "adamw", "narrow"):
            launches = int(counts[code] % TOGETHER == 0 and code != "narrow")
            counts[code] += 1
            moved *= 1 / 3 if code == "narrow" else 1  # it is written where the step is taken
        elif (before, code) in PAIRS:
            launches, moved = 0, moved * PAIRS[before, code]
        step.add(part, launches, moved, flops, rate)
        before = code
    return step


def pytorch(s, batch, instrs, n):
    """A step of n parameters. Elements of 16 bits but for the sums of residuals, which are floats because the
    embedding is, and the gradients of weights. Crossings are given in bytes an element, in the order of kernels."""
    step, tensors = Step(), sum(code == "adamw" for code, *_ in instrs)
    tokens, dim, layers = batch * s["seq"], s["hidden"] // s["heads"], s["layers"]
    wide, logits, table = tokens * s["hidden"], tokens * s["vocab"], s["vocab"] * s["hidden"]
    for code, about, flops, moved in instrs:
        if code in ("linear", "linear_dx", "linear_dw"):
            step.add("head" if about == "head" else "products", 1, moved, flops)
        elif code == "attention":
            step.add(code, 1, moved, flops, ATTENTION[dim])
        elif code == "attention_bwd":
            step.add("attention, backward", 3, moved + 12 * wide, flops, ATTENTION_BACKWARD[dim])  # dQ in floats
    for _ in range(layers):
        step.add("GELU", 2, (4 + 6) * 4 * wide)  # x and y; dy, x and dx
        step.add("gradients of biases", 8, 2 * (3 + 1 + 4 + 1) * wide)  # dy of each product again
        # Sum and norm: 4 and 2 are read, 4 and 2 written. Their gradients: dy 2, x 4, of the sum 4; 4 and 2 written.
        step.add("norms and residuals", 2 + 4, 2 * (12 + 16) * wide)
    step.add("norms and residuals", 3, (12 + 16) * wide)
    step.add("cross-entropy", 4, 6 * logits)  # read; read and written
    step.add("embedding", 4, (8 + 8) * wide + 16 * table)  # backward into zeros, and added to the head's gradient
    step.add("rounding of weights", 2 * (tensors // 2), 6 * n + 6 * n)  # of weights, and of their gradients to floats
    step.add("norm and clip", 8, 12 * n)  # read; read and written
    step.add("AdamW", 8, 28 * n)  # gradient, weight and two moments are read, three written
    return step


def show(name, ours, theirs, flops):
    print(f"{name + ':':22} {'launches':>8} {'Tflop':>7} {'GB':>7} {'ms':>7} {'share':>6} | {'PyTorch GB':>10} {'ms':>7}")
    all_ours, all_theirs = ours.total(), theirs.total()
    for part in PARTS + ["all"]:
        a, b = (ours.parts[part], theirs.parts[part]) if part != "all" else (all_ours, all_theirs)
        print(f"{part:22} {a[0]:8} {1e-12 * a[1]:7.2f} {1e-9 * a[2]:7.2f} {1e3 * a[3]:7.2f} {100 * a[3] / all_ours[3]:5.1f}% "
              f"| {1e-9 * b[2]:10.2f} {1e3 * b[3]:7.2f}")
    mfu = [100 * flops / PEAK / x[3] for x in (all_ours, all_theirs)]
    print(f"model flops {1e-12 * flops:.2f} T: utilization of {1e-12 * PEAK:.0f} Tflop/s {mfu[0]:.1f} %, PyTorch {mfu[1]:.1f} %, "
          f"ratio {all_theirs[3] / all_ours[3]:.2f}\n")


def main():
    b, build = bench(), sys.argv[1]
    for name in sys.argv[2:] or b.MODELS:
        preset, sizes, batch = b.MODELS[name]
        instrs = list(instructions(build, b.plan_of(preset, sizes, batch, batch)))
        show(name, weft(instrs, sizes["hidden"] // sizes["heads"]), pytorch(sizes, batch, instrs, b.parameters(sizes)),
             b.flops_of_token(sizes) * batch * sizes["seq"])


if __name__ == "__main__":
    main()
