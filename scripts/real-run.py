#!/usr/bin/env python3
"""A real run: the same model on the same text, by weft and by PyTorch, for the same number of steps.

    scripts/real-run.py BUILD TEXT [SECONDS]

Both begin with the weights that weft draws from seed 1, take the bytes of TEXT but for its last tenth as
tokens, and follow weft-run's schedule of learning rates; SECONDS (600) is how long weft trains. Each cuts the
text into samples and goes through them in an order of its own, so the losses of a step differ by what samples
differ: prints the mean loss of each twentieth of the steps with its standard error, and how far apart the two
are in these errors; the milliseconds of a step; and writes all losses to BUILD/real-run.jsonl.

MODEL (gpt:gpt2) and SET (vocab=50304) say which model, BATCH how many samples a step (16), ON=cpu trains on
the CPU, which is for trying the script: ON=cpu MODEL=gpt:nano SET=layers=2 BATCH=4. PyTorch is compiled
(COMPILE=no: it is not); matrices are multiplied in bf16 on both sides.
"""
import json
import math
import os
import subprocess
import sys
import tempfile
import time

DEVICE = os.environ.get("ON", "cuda")
MODEL, SET = os.environ.get("MODEL", "gpt:gpt2"), os.environ.get("SET", "vocab=50304")
BATCH = int(os.environ.get("BATCH", "16"))
PEAK, BLOCKS = 6e-4, 20
PACKED = [os.environ["WEFT_GPU"]] if "WEFT_GPU" in os.environ else []  # of pack-gpu.sh: its folder's libraries


def weft(build, plan, *args):
    """The steps that it prints."""
    out = subprocess.run([*PACKED, f"{build}/bin/weft-run", "-q", "--device", DEVICE, "--lr", str(PEAK), *args, plan],
                         stdout=subprocess.PIPE, text=True, check=True)
    return [x for x in map(json.loads, out.stdout.splitlines()) if "loss" in x]


def rate(step, steps):
    """As weft-run has it: a tenth of the steps is warm-up, then half a cosine down to a tenth of the peak."""
    warmup, least = steps // 10, PEAK / 10
    if step < warmup:
        return PEAK * (step + 1) / warmup
    t = (step - warmup) / max(1, steps - warmup)
    return least + 0.5 * (PEAK - least) * (1 + math.cos(math.pi * t))


def pytorch(checkpoint, text, steps):
    """Losses and milliseconds of all steps."""
    import numpy as np
    import torch
    side = __import__("bench-pytorch")
    models = __import__("pytorch_models")
    family, case = MODEL.split(":")[0], side.sizes_of(MODEL, SET or "-")
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    weights = {name: t.to(DEVICE) for name, t in models.load_checkpoint(checkpoint).items()}
    model = side.Model(family, case, weights)
    opt = side.optimizer_of("adamw", model.weights)
    run = model if os.environ.get("COMPILE") == "no" else torch.compile(model)
    tokens, seq = np.fromfile(text, np.uint8), case["seq"]
    tokens = tokens[:len(tokens) * 9 // 10]
    samples = (len(tokens) - 1) // seq
    order, out = [], []
    for step in range(steps):
        while len(order) < BATCH:
            order += np.random.default_rng(1 + step).permutation(samples).tolist()
        chosen, order = order[:BATCH], order[BATCH:]
        rows = np.stack([tokens[i * seq:i * seq + seq + 1] for i in chosen]).astype(np.int64)
        for group in opt.param_groups:
            group["lr"] = rate(step, steps)
        start = time.perf_counter()
        ids = torch.from_numpy(rows).to(DEVICE)
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = run(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        out.append({"loss": loss.item(), "step_ms": 1e3 * (time.perf_counter() - start)})
    return out


def mean(x):
    return sum(x) / len(x)


def middle(steps):
    times = sorted(x["step_ms"] for x in steps[len(steps) // 10:])
    return times[len(times) // 2]


def compare(ours, theirs):
    """A line for each block of steps; returns the distances in standard errors."""
    far = []
    print(f"{'steps':>13} {'weft':>16} {'PyTorch':>16} {'apart':>6}")
    for i in range(BLOCKS):
        begin, end = len(ours) * i // BLOCKS, len(ours) * (i + 1) // BLOCKS
        if end - begin < 2:
            continue
        a, b = ([x["loss"] for x in side[begin:end]] for side in (ours, theirs))
        # Within a block losses fall: what differs between neighbours is the samples.
        error = [math.sqrt(mean([(x[k] - x[k - 1]) ** 2 for k in range(1, len(x))]) / 2 / len(x)) for x in (a, b)]
        far.append((mean(a) - mean(b)) / math.hypot(*error))
        print(f"{begin:6}-{end - 1:6} {mean(a):8.4f} ±{error[0]:6.4f} {mean(b):8.4f} ±{error[1]:6.4f} {far[-1]:+6.1f}")
    return far


def main():
    build, text = sys.argv[1:3]
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 600
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/plan.json"
        with open(path, "w", encoding="ascii") as f:
            json.dump({"format": "weft-plan/1", "model": MODEL, "set": SET, "batch": BATCH, "micro_batch": BATCH,
                       "dtype": "bf16", "stages": [{}]}, f)
        trial = weft(build, path, "--data", text, "-n", "8")
        steps = max(BLOCKS * 2, int(1e3 * seconds / middle(trial)))
        subprocess.run([*PACKED, f"{build}/bin/weft-run", "-q", "--device", DEVICE, "-n", "1", "--lr", "0", "--save",
                        f"{folder}/begin", path], stdout=subprocess.DEVNULL, check=True)
        ours = weft(build, path, "--data", text, "-n", str(steps))
        theirs = pytorch(f"{folder}/begin", text, steps)
    far = compare(ours, theirs)
    print(f"# {steps} steps: weft {middle(ours):.1f} ms, PyTorch {middle(theirs):.1f} ms; losses apart by "
          f"{math.sqrt(mean([x * x for x in far])):.1f} standard errors, root of the mean square")
    with open(os.path.join(build, "real-run.jsonl"), "w", encoding="ascii") as f:
        for i, (a, b) in enumerate(zip(ours, theirs)):
            print(json.dumps({"step": i, "weft": a["loss"], "pytorch": b["loss"]}), file=f)


if __name__ == "__main__":
    main()
