#!/usr/bin/env python3
"""The PyTorch side of `make bench`: trains a model of pytorch_models.py, eager and compiled.

    bench-pytorch.py MODEL:SIZE SIZES BATCH OPTIMIZER THREADS RANKS CHECKPOINT

SIZES are name=value,... (or -) as in the plan's "set"; CHECKPOINT is a folder that weft-run wrote: its
weights are where training begins. With two ranks the model is split over the batch by DDP (gloo).

Builds the model, compiles it (torch.compile, inductor) and prints one line: the seconds which that
took, or `null` where it cannot be done. Then each line of stdin, `eager N` or `compile N`, is a turn:
one step, and N steps whose median milliseconds are printed. With CLOCK=cpu in the environment
it is processor time.
"""
import json
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn

import pytorch_models as models

SHARE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "share/models")
FAMILIES = {"gpt": models.gpt, "llama": models.llama, "transformer": models.transformer, "t5": models.t5,
            "moe": models.moe, "mlp": models.mlp, "wide-resnet": models.wide_resnet}
clock = time.process_time if os.environ.get("CLOCK") == "cpu" else time.perf_counter


def sizes_of(model, changes):
    """The sizes of a model file, its preset and the plan, whose expressions are Python's but for /."""
    family, preset = model.split(":")
    with open(os.path.join(SHARE, family + ".json")) as f:
        text = json.load(f)
    sizes = dict(text["sizes"], **text["presets"][preset])
    sizes.update(pair.split("=") for pair in changes.split(",") if changes != "-")
    words = {"ceil": lambda a, b: -(-a // b), "floor": lambda a, b: a // b, "min": min, "max": max}

    class Names(dict):
        def __missing__(self, name):
            return value(sizes[name])

    def value(expression):
        return eval(str(expression).replace("/", "//"), {}, Names(words))

    return {name: value(expression) for name, expression in sizes.items()}


def batch_of(family, case, batch):
    """Inputs and targets of one step: what they are does not matter, routers learn to spread them."""
    ids = lambda n: torch.randint(1, case["vocab"], (batch, n))
    if family == "t5":
        answers = ids(case["target_seq"])
        inputs = ids(case["seq"])
        return (inputs, answers.roll(1, 1)), (inputs, answers)
    if family in ("mlp", "wide-resnet"):
        pixels = case.get("pixels", 3 * case.get("image", 0) ** 2)
        return torch.rand(batch, pixels), torch.randint(0, case["classes"], (batch,))
    tokens = ids(case["seq"] + 1)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def laid_out(t):
    """Weights of convolutions stand in memory as PyTorch wants them beside channels-last images."""
    if t.dim() != 4:
        return t
    t = t.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    return t.permute(2, 3, 1, 0)


class Model(nn.Module):
    """From inputs and targets to the loss."""

    def __init__(self, family, case, weights):
        super().__init__()
        self.forward_of, self.case, self.weights = FAMILIES[family], case, {}
        self.loss = models.target_loss if family == "t5" else models.one_loss
        for name, t in weights.items():
            if models.is_statistic(name):
                self.register_buffer(name.replace(".", "_"), t)
                self.weights[name] = t
            else:
                self.weights[name] = nn.Parameter(laid_out(t) if family == "wide-resnet" else t)
                self.register_parameter(name.replace(".", "_"), self.weights[name])

    def forward(self, inputs, targets):
        result = self.forward_of(self.weights, self.case, inputs)
        if isinstance(result, tuple):
            return self.loss(self.case, result[0], targets) + result[1]
        return self.loss(self.case, result, targets)


def optimizer_of(kind, weights):
    groups = [{"params": [t for n, t in weights.items() if t.requires_grad and models.decays(n, t) == on],
               "weight_decay": 0.1 * on} for on in (True, False)]
    if kind == "adamw":
        return torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), fused=True)
    return torch.optim.SGD(groups, lr=1e-3, momentum=0.9, fused=True)


class Trainer:
    def __init__(self, family, case, batch, optimizer, weights, ranks):
        self.model = Model(family, case, weights)
        self.opt = optimizer_of(optimizer, self.model.weights)
        self.batch = batch_of(family, case, batch // ranks)
        eager = self.model
        if ranks > 1:
            eager = nn.parallel.DistributedDataParallel(eager, gradient_as_bucket_view=True)
        self.ways = {"eager": eager}
        self.compile_s = None
        if os.environ.get("COMPILE") != "no":
            self.compile(eager)

    def compile(self, eager):
        compiled = torch.compile(eager)
        start = time.perf_counter()
        try:
            self.step(compiled)
        except Exception as e:
            print(f"torch.compile: {str(e).splitlines()[0]}", file=sys.stderr)
            return
        self.compile_s = time.perf_counter() - start
        self.ways["compile"] = compiled

    def step(self, model):
        self.opt.zero_grad(set_to_none=True)
        loss = model(*self.batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        return loss.item()

    def turn(self, way, steps):
        if way not in self.ways:
            return None
        times = []
        for _ in range(steps + 1):
            start = clock()
            self.step(self.ways[way])
            times.append(1e3 * (clock() - start))
        times = sorted(times[1:])
        return times[len(times) // 2]


def serve(rank, args, meeting):
    model, changes, batch, optimizer, threads, ranks, checkpoint = args
    torch.set_num_threads(int(threads))
    torch.manual_seed(1 + rank)
    if int(ranks) > 1:
        dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=int(ranks))
    trainer = Trainer(model.split(":")[0], sizes_of(model, changes), int(batch), optimizer,
                      models.load_checkpoint(checkpoint), int(ranks))
    say = lambda x: rank == 0 and print(json.dumps(x), flush=True)
    say(trainer.compile_s)
    while True:
        turn = [sys.stdin.readline() if rank == 0 else None]
        if int(ranks) > 1:
            dist.broadcast_object_list(turn)
        if not turn[0]:
            break
        way, steps = turn[0].split()
        say(trainer.turn(way, int(steps)))
    if int(ranks) > 1:
        dist.destroy_process_group()


def main():
    args, ranks = sys.argv[1:], int(sys.argv[6])
    with tempfile.TemporaryDirectory() as folder:
        meeting = os.path.join(folder, "meeting")
        others = torch.multiprocessing.spawn(serve_other, (args, meeting), ranks - 1, join=False)
        serve(0, args, meeting)
        others.join()


def serve_other(index, args, meeting):
    serve(index + 1, args, meeting)


if __name__ == "__main__":
    main()
