#!/usr/bin/env python3
"""The CPU's kernels beside PyTorch's: every line of kernel-bench, and the same in PyTorch right after it.

    scripts/bench-kernels.py [--build BUILD] [--threads N] [--cpu] [--seconds S] [--below R] [PART...]

PART is gemm, attention, rows or conv (all). Prints microseconds of weft and of PyTorch (eager), the best of
the repetitions that fit the time, and PyTorch's over weft's: above 1, weft is ahead. --below lists only what is
less than R. kernel-bench waits while PyTorch is measured, so both meet the same machine. What PyTorch
makes it allocates; weft's memory is planned. Sums over a batch norm's group count as part of the norm.
"""
import argparse
import re
import subprocess
import time

import torch
import torch.nn.functional as F

aten = torch.ops.aten


class Lines:
    """PyTorch's counterpart of each line: a function without arguments, or None."""

    def __init__(self):
        self.dtype = torch.float32
        self.shape = self.before = None

    def make(self, *sizes, std=1.0):
        return (std * torch.randn(sizes)).to(self.dtype)

    def gradient(self, f, *inputs):
        """The backward pass of f alone."""
        inputs = [x.detach().requires_grad_() for x in inputs]
        y = f(*inputs)
        dy = torch.randn_like(y)
        return lambda: torch.autograd.grad(y, inputs, dy, retain_graph=True)

    # ---- rows -------------------------------------------------------------------------------

    def header(self, line):
        m = re.match(r"# (\w+): (\d+) rows of (\d+), vocabulary (\d+)", line)
        if m:
            self.shape = [int(x) for x in m.groups()[1:]]
        m = re.match(r"# (\w+): (\d+) maps of (\d+)x\d+, (\d+) channels", line)
        if m:
            self.shape = [int(x) for x in m.groups()[1:]]

    def row(self, name):
        rows, n, vocab = self.shape
        make = self.make
        x, dy, g = make(rows, n), make(rows, n), make(n)
        if name == "layernorm":
            return lambda: aten.native_layer_norm(x, [n], g, g, 1e-5)
        if name == "layernorm backward":
            _, mean, rstd = aten.native_layer_norm(x, [n], g, g, 1e-5)
            return lambda: aten.native_layer_norm_backward(dy, x, [n], mean, rstd, g, g, [True] * 3)
        if name == "rms norm":
            return lambda: F.rms_norm(x, [n], g, 1e-5)
        if name == "rms norm backward":
            return self.gradient(lambda x, g: F.rms_norm(x, [n], g, 1e-5), x, g)
        if name == "add":
            return lambda: x + dy
        if name == "rotary":
            return self.rotary(x.view(rows // 256, 256, n // 64, 64))
        if name == "dropout":
            return lambda: aten.native_dropout(x, 0.1, True)
        if name == "initial values":
            return lambda: x.normal_(0, 0.02)
        ids = torch.arange(rows) * 37 % 1024
        if name == "embedding":
            table = make(vocab, n)
            return lambda: F.embedding(ids, table)
        if name == "embedding backward":
            return lambda: aten.embedding_dense_backward(dy, ids, 1024, -1, False)
        return self.wide_row(name, rows, n, vocab, ids)

    def wide_row(self, name, rows, n, vocab, ids):
        if name.startswith(("gelu", "swiglu", "bias")):
            x, z, dy = (self.make(rows, 4 * n) for _ in range(3))
            glu = lambda x, z: F.silu(x) * z
            return {"gelu, 4 x as wide": lambda: F.gelu(x, approximate="tanh"),
                    "gelu backward": lambda: aten.gelu_backward(dy, x, approximate="tanh"),
                    "swiglu, 4 x as wide": lambda: glu(x, z),
                    "swiglu backward": self.gradient(glu, x, z),
                    "bias gradient, 4 x as wide": lambda: dy.sum(0)}[name]
        if name.startswith("cross-entropy"):
            logits = self.make(rows, vocab)
            if name == "cross-entropy":
                return lambda: F.cross_entropy(logits, ids)
            return self.gradient(lambda x: F.cross_entropy(x, ids), logits)
        if name.startswith("adamw"):
            p = torch.randn(12 * n * n)
            p.grad = torch.randn_like(p)
            return torch.optim.AdamW([p], fused=True).step
        if name == "sum of squares":
            x = torch.randn(12 * n * n)
            return lambda: torch.linalg.vector_norm(x)
        return None

    def rotary(self, x):
        angle = torch.arange(256)[:, None] * 1e4 ** (-torch.arange(32) / 32)
        cos, sin = (f(angle).repeat(1, 2)[:, None].to(self.dtype) for f in (torch.cos, torch.sin))
        return lambda: x * cos + torch.cat((-x[..., 32:], x[..., :32]), -1) * sin

    # ---- products and attention -------------------------------------------------------------

    def linear(self, m, n, k, bias):
        x, w, dy, b = self.make(m, k), self.make(k, n), self.make(m, n), self.make(n)
        self.before = {"dX": lambda: dy @ w.T, "dW": lambda: x.T @ dy,
                       "dW + db": lambda: (x.T @ dy, dy.sum(0))}
        return (lambda: torch.addmm(b, x, w)) if bias else lambda: x @ w

    def attention(self, b, h, s, d, causal, positions):
        q, k, v = (x.transpose(1, 2) for x in self.make(b, s, 3, h, d).unbind(2))
        mask = [self.make(1, h, s, s)] if positions else []
        run = lambda q, k, v, m=None: F.scaled_dot_product_attention(q, k, v, m, is_causal=causal)
        self.before = self.gradient(run, q, k, v, *mask)
        return lambda: run(q, k, v, *mask)

    # ---- images -----------------------------------------------------------------------------

    def images(self, *sizes):
        return self.make(*sizes).to(memory_format=torch.channels_last)

    def convolution(self, batch, size, cin, cout, taps, stride):
        x = self.images(batch, cin, size, size)
        w = self.images(cout, cin, taps, taps)
        pad = taps // 2
        y = F.conv2d(x, w, None, stride, pad)
        dy = torch.randn_like(y)
        back = lambda *mask: aten.convolution_backward(
            dy, x, w, [0], [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1, [*mask, False])
        self.before = {"dX": lambda: back(True, False), "dW": lambda: back(False, True)}
        return lambda: F.conv2d(x, w, None, stride, pad)

    def maps(self, name):
        batch, size, n = self.shape
        x, g = self.images(batch, n, size, size), torch.randn(n)
        norm = lambda x, g: F.batch_norm(x, None, None, g, g, True)
        pool = lambda x: F.max_pool2d(x, 3, 2, 1)
        return {"batchnorm": lambda: lambda: norm(x, g),
                "batchnorm backward": lambda: self.gradient(norm, x, g),
                "maximum of 3x3 / 2": lambda: lambda: pool(x),
                "maximum of 3x3 / 2, backward": lambda: self.gradient(pool, x)}[name]()

    def of(self, name):
        m = re.match(r"gpt.* (\d+)x(\d+)x(\d+)( \+ bias)?$", name)
        if m:
            return self.linear(*(int(x) for x in m.groups()[:3]), m[4])
        m = re.match(r"gpt.* (dX|dW( \+ db)?)$", name)
        if m:
            return self.before[m[1]]
        m = re.match(r"attention b=(\d+) h=(\d+) s=(\d+) d=(\d+)( causal)?( positions)?$", name)
        if m:
            return self.attention(*(int(x) for x in m.groups()[:4]), bool(m[5]), bool(m[6]))
        if name == "backward, 5 products":
            return self.before
        m = re.match(r"conv (\d+)x (\d+)x\d+, (\d+) to (\d+), (\d)x\d( / 2)?$", name)
        if m:
            return self.convolution(*(int(x) for x in m.groups()[:5]), 2 if m[6] else 1)
        if name in ("dX", "dW"):
            return self.before[name]
        if name.startswith(("batchnorm", "maximum")):
            return self.maps(name)
        if name.startswith(("gpt", "both", "attention")):
            self.before = None
            return None
        return self.row(name)


def best(f, seconds, clock):
    f()
    least, until = float("inf"), time.perf_counter() + seconds
    while True:
        start = clock()
        f()
        least = min(least, clock() - start)
        if time.perf_counter() > until:
            return 1e6 * least


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/gcc")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cpu", action="store_true", help="processor time of the calling thread")
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--below", type=float, default=float("inf"))
    parser.add_argument("part", nargs="*")
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    clock = time.thread_time if o.cpu else time.perf_counter
    bench = subprocess.Popen(
        [o.build + "/tests/bench/kernel-bench", "--turns", "-t", str(o.threads), "-s", f"{o.seconds}s",
         *["--cpu"] * o.cpu, *o.part], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    lines, sums = Lines(), 0.0
    print(f"{'':44s} {'':4s} {'weft us':>10s} {'PyTorch us':>10s}")
    for line in bench.stdout:
        m = re.match(r"(.{44}) +([\d.]+) us", line)
        if not m:
            lines.header(line)
            continue
        name, us = m[1].strip(), float(m[2])
        dtype = "bf16" if "bf16," in line else "f32"
        lines.dtype = torch.bfloat16 if dtype == "bf16" else torch.float32
        if name in ("batchnorm moments", "batchnorm backward, sums"):
            sums = us
        else:
            f = lines.of(name)
            us, sums = us + sums, 0.0
            theirs = best(f, o.seconds, clock) if f else None
            if f and theirs / us < o.below:
                print(f"{m[1]} {dtype:4s} {us:10.1f} {theirs:10.1f} {theirs / us:6.2f}", flush=True)
        bench.stdin.write("\n")
        bench.stdin.flush()


main()
