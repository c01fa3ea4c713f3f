#!/usr/bin/env python3
"""weft beside PyTorch on one GPU, and its predictions beside measurements.

    bench-gpu.py BUILD_DIR [PART...]

Parts: peak (a matrix product), training (GPT-2 of 124M, 350M and 1.3B parameters in bf16), families (other
models, of pytorch_models.py on PyTorch's side, compiled as a whole), prediction (plans that differ in
micro-batch, accumulation, recompute and dtype), every (predictions of every family, with accumulation,
recompute and offload, and the memory of two ranks that share the GPU), large (gpt:6.7B, offloaded), profile
(how long gpt:1.3B takes), attention (each kind of its kernels, and cuDNN's), convolution (weft's kernels,
cuDNN, and the faster one), epilogues (GELU and gradients of biases in the products, and behind them).
PyTorch's side is torch.compile, flash attention and fused AdamW under autocast; each of its models is a
process of its own, whose memory is free again when weft's turn comes. To compile a whole model takes
a minute, so each block is compiled, which is one compilation for all, and all around the blocks;
COMPILE=model compiles the whole (of families always the whole is compiled). Model flops of a token are 6 N +
6 L C T: N all parameters, L layers, C hidden, T sequence. Results are printed as they come, and are JSON lines in BUILD_DIR/bench-gpu.jsonl; a part
that fails leaves those of the others. By the environment: STEPS=20 of a measurement, MODELS="124M 350M",
FAMILIES="llama-1B t5-770M", and BUDGET=240 seconds, after which nothing new is begun.
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback

DEVICE = os.environ.get("ON", "cuda")  # cpu: families alone, tiny, to try the script
STEPS = int(os.environ.get("STEPS", "20"))
END = time.monotonic() + float(os.environ.get("BUDGET", "240"))
# name: preset, sizes, micro-batch
MODELS = {
    "124M": ("gpt:gpt2", dict(layers=12, hidden=768, heads=12, seq=1024, vocab=50304, tied=1), 16),
    "350M": ("gpt:350M", dict(layers=24, hidden=1024, heads=16, seq=1024, vocab=50304, tied=1), 16),
    "1.3B": ("gpt:1.3B", dict(layers=24, hidden=2048, heads=16, seq=1024, vocab=50304, tied=1), 8),
}
# name: preset, what it is set to, micro-batch, optimizer; sizes that PyTorch's side needs shapes for come from
# the same model with the fewest layers.
FAMILIES = {
    "llama-1B": ("llama:1B", "seq=2048", "layers=1", 4),
    "llama-160M": ("llama:160M", "seq=8192", "layers=1", 2),
    "t5-770M": ("t5:770M", "seq=512,target_seq=128", "layers=1", 16),
    "moe-380M": ("moe:380M", "", "layers=2", 16),
    "resnet-50": ("wide-resnet:250M", "group=64,base=64,width=1", "", 64),
    "wide-resnet-250M": ("wide-resnet:250M", "group=32", "", 32),
}


if DEVICE == "cpu":
    small = "hidden=64,heads=2,layers=2,vocab=64"
    FAMILIES = {"gpt": ("gpt:nano", f"{small},seq=32", "", 2),
                "llama": ("llama:nano", f"{small},kv_heads=1,ffn=128,seq=32", "", 2),
                "t5": ("t5:nano", f"{small},ffn=128,seq=32,target_seq=16", "", 2),
                "moe": ("moe:nano", f"{small},seq=32", "", 2), "wide-resnet": ("wide-resnet:nano", "", "", 4)}


def parameters(s):
    c = s["hidden"]
    return s["layers"] * (12 * c * c + 13 * c) + (s["vocab"] + s["seq"]) * c + 2 * c


def flops_of_token(s):
    return 6 * parameters(s) + 6 * s["layers"] * s["hidden"] * s["seq"]


def late(what):
    if time.monotonic() < END:
        return False
    print(f"# {what}: left out, the time is over (BUDGET)")
    return True


def median(x):
    x = sorted(x)
    return x[len(x) // 2] if x else None


# ---- weft ----------------------------------------------------------------------------------------

def plan_of(preset, sizes, batch, micro, dtype="bf16", recompute=None):
    stage = {"recompute": recompute} if recompute else {}
    return {"format": "weft-plan/1", "model": preset, "set": ",".join(f"{k}={v}" for k, v in sizes.items()),
            "batch": batch, "micro_batch": micro, "dtype": dtype, "stages": [stage]}


def run(command):
    """What it printed and its status; 124 where it took two minutes more than there were."""
    limit = max(END - time.monotonic(), 0) + 120
    if "WEFT_GPU" in os.environ and command[0] != sys.executable:
        command = [os.environ["WEFT_GPU"], *command]  # of pack-gpu.sh: with the libraries of its folder
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"stopped after {limit:.0f} s")
    except OSError as e:
        return subprocess.CompletedProcess(command, 127, "", str(e))


def why(out):
    """The lines of the error, or how it ended where it says none."""
    lines = [line for line in out.stderr.splitlines() if "error:" in line or "hint:" in line]
    return " ".join(lines or out.stderr.strip().splitlines()[-1:]) or f"status {out.returncode}"


def train(bin_dir, plan, steps, profile=None, ranks=1):
    """Metrics of the steps behind the first three, or the reason why there are none; products as the profile says."""
    launch = ["mpirun", "--oversubscribe", "-n", str(ranks)] if ranks > 1 else []
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(plan, f)
        f.flush()
        out = run([*launch, f"{bin_dir}/weft-run", "--device", DEVICE, "-n", str(steps + 3),
                   *(["--profile", profile] if profile else []), f.name])
    if out.returncode:
        return None, why(out)
    lines = [json.loads(line) for line in out.stdout.splitlines()]
    for line in out.stderr.splitlines():
        if "beside" in line:
            print("#", line)
    return lines[3:], None


# ---- PyTorch -------------------------------------------------------------------------------------

def torch_model(s):
    import torch.nn as nn
    import torch.nn.functional as F

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            c = s["hidden"]
            self.ln1, self.ln2 = nn.LayerNorm(c), nn.LayerNorm(c)
            self.qkv, self.proj = nn.Linear(c, 3 * c), nn.Linear(c, c)
            self.fc1, self.fc2 = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (y.view(b, t, s["heads"], -1).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(c, 2))
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
            x = x + self.proj(a)
            return x + self.fc2(F.gelu(self.fc1(self.ln2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(s["vocab"], s["hidden"]), nn.Embedding(s["seq"], s["hidden"])
            self.blocks = nn.ModuleList(Block() for _ in range(s["layers"]))
            self.ln = nn.LayerNorm(s["hidden"])
            self.head = nn.Linear(s["hidden"], s["vocab"], bias=False)
            self.head.weight = self.wte.weight
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)

        def forward(self, ids, targets, places):
            x = self.begin(ids, places)
            for block in self.blocks:
                x = block(x)
            return self.end(x, targets)

        def begin(self, ids, places):
            return self.wte(ids) + self.wpe(places)

        def end(self, x, targets):
            return F.cross_entropy(self.head(self.ln(x)).flatten(0, 1), targets.flatten())

    return Gpt()


def torch_compiled(model):
    """Blocks are the same code, so that one compilation serves them all."""
    import torch
    if os.environ.get("COMPILE") == "model":
        return torch.compile(model)
    for block in model.blocks:
        block.compile()
    model.begin, model.end = torch.compile(model.begin), torch.compile(model.end)
    return model


def print_training(model, opt, forward):
    """Trains some steps; the first five warm up. Prints time and memory of a step, losses and parameters."""
    import torch
    synchronize, most = torch.cuda.synchronize, torch.cuda.max_memory_allocated
    if DEVICE == "cpu":
        synchronize = most = lambda: 0
    times, losses = [], []
    for _ in range(STEPS + 5):
        synchronize()
        start = time.perf_counter()
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = forward()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        losses.append(loss.item())
        synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    print(json.dumps({"step_ms": median(times[5:]), "bytes": most(), "losses": losses,
                      "parameters": sum(p.numel() for p in model.parameters())}))


def torch_train(name):
    """Milliseconds of a step and bytes, on stdout."""
    import torch
    _, s, batch = MODELS[name]
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    with torch.device(DEVICE):
        model = torch_model(s)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    compiled = torch_compiled(model)
    ids = torch.randint(0, s["vocab"], (batch, s["seq"] + 1), device=DEVICE)
    x, y, places = ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), torch.arange(s["seq"], device=DEVICE)
    print_training(model, opt, lambda: compiled(x, y, places))


def weights_of(case, few, device):
    """Random weights of a model by weft's names, of the shapes that a checkpoint with the fewest layers has."""
    import re
    import torch
    import pytorch_models as models
    weights = {}
    for name, t in models.load_checkpoint(few).items():
        repeated = re.match(r"(layer|enc|dec|pair)\.0\.", name)
        times = 1
        if repeated and not name.endswith("attn.positions"):
            times = {"pair": case["layers"] // 2, "dec": case.get("dec_layers", case["layers"])}.get(
                repeated[1], case["layers"])
        for i in range(times):
            own = re.sub(r"^(\w+)\.0\.", rf"\1.{i}.", name) if repeated else name
            weights[own] = (0.02 * torch.randn(t.shape, device=device) if models.decays(name, t)
                            else t.clone().to(device))
    return weights


def torch_family(name, few):
    """As torch_train(), of a model of pytorch_models.py that is compiled as a whole."""
    import torch
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    side = __import__("bench-pytorch")
    preset, changes, _, batch = FAMILIES[name]
    family, case = preset.split(":")[0], side.sizes_of(preset, changes or "-")
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    model = side.Model(family, case, weights_of(case, few, DEVICE))
    opt = side.optimizer_of("adamw", model.weights)
    with torch.device(DEVICE):
        inputs, targets = side.batch_of(family, case, batch)
    compiled = torch.compile(model)
    print_training(model, opt, lambda: compiled(inputs, targets))


def torch_peak():
    """Flops per second of a product of random bf16 matrices."""
    import torch
    n, times = 8192, []
    a, b = (torch.randn(n, n, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(30):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        a @ b
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    print(json.dumps({"flops": 2 * n ** 3 / (1e-3 * median(times[10:])), "name": torch.cuda.get_device_name()}))


def torch_attention(shapes):
    """Microseconds of causal attention, forward and backward, as weft counts them: operands lie as they do there.
    A line for each of the shapes (batch, heads, sequence, columns)."""
    import torch
    import torch.nn.functional as F
    for batch, heads, seq, dim in json.loads(shapes):
        qkv = torch.randn(batch, seq, 3, heads, dim, device=DEVICE, dtype=torch.bfloat16)
        q, k, v = (x.transpose(1, 2).detach().requires_grad_() for x in qkv.unbind(2))
        dy = torch.randn_like(q)
        times = {"forward": [], "backward": []}
        for _ in range(30):
            at = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
            at[0].record()
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            at[1].record()
            y.backward(dy)
            at[2].record()
            at[2].synchronize()
            times["forward"].append(1e3 * at[0].elapsed_time(at[1]))
            times["backward"].append(1e3 * at[1].elapsed_time(at[2]))
        print(json.dumps({what: median(us[10:]) for what, us in times.items()}), flush=True)


def torch_convolution(shapes):
    """Microseconds of the three passes in bf16, channels-last, by the fastest that cuDNN has: a line for each of
    the shapes (batch, height and width, channels, channels out, taps, stride)."""
    import torch
    torch.backends.cudnn.benchmark = True
    for batch, size, cin, cout, taps, stride in json.loads(shapes):
        def random(*sizes):
            return torch.randn(*sizes, device=DEVICE, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
        x, w, windows = random(batch, cin, size, size), random(cout, cin, taps, taps), ([stride] * 2, [taps // 2] * 2, [1] * 2)
        dy = random(*torch.ops.aten.convolution(x, w, None, *windows, False, [0, 0], 1).shape)
        times = {}
        for name, mask in ("conv2d", None), ("conv2d_dx", [True, False, False]), ("conv2d_dw", [False, True, False]):
            times[name] = []
            for _ in range(30):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                for _ in range(5):
                    if mask:
                        torch.ops.aten.convolution_backward(dy, x, w, None, *windows, False, [0, 0], 1, mask)
                    else:
                        torch.ops.aten.convolution(x, w, None, *windows, False, [0, 0], 1)
                end.record()
                end.synchronize()
                times[name].append(1e3 * begin.elapsed_time(end) / 5)
        print(json.dumps({what: median(us[10:]) for what, us in times.items()}), flush=True)


def torch_side(*args):
    """The objects that a process of PyTorch prints; those before it failed, if it did."""
    out = run([sys.executable, __file__, "--torch", *args])
    if out.returncode:
        print("# PyTorch:", why(out))
    return [json.loads(line) for line in out.stdout.splitlines() if line.startswith("{")]


# ---- parts ---------------------------------------------------------------------------------------

class Bench:
    def __init__(self, build):
        self.build, self.bin = build, os.path.join(build, "bin")
        self.log = open(os.path.join(build, "bench-gpu.jsonl"), "a")
        self.peak_flops = None

    def note(self, **row):
        print(json.dumps(row), file=self.log, flush=True)

    def peak(self):
        for found in torch_side("peak"):
            self.peak_flops = found["flops"]
            print(f"# {found['name']}: a product of 8192 x 8192 x 8192 in bf16 runs at {1e-12 * self.peak_flops:.0f} Tflop/s")
            self.note(part="peak", **found)

    def training(self):
        if not self.peak_flops:
            self.peak()
        print(f"{'model':6} {'weft ms':>9} {'host ms':>8} {'PyTorch ms':>10} {'ratio':>6} {'tokens/s':>9} {'MFU':>6} "
              f"{'GB':>6} {'PyTorch':>7}")
        for name in os.environ.get("MODELS", " ".join(MODELS)).split():
            if late(name):
                return
            preset, sizes, micro = MODELS[name]
            lines, reason = train(self.bin, plan_of(preset, sizes, micro, micro), STEPS)
            there = (torch_side("train", name) or [{}])[-1]
            if not lines:
                print(f"{name:6} weft: {reason}; PyTorch: {there}", flush=True)
                self.note(part="training", model=name, error=reason, pytorch_ms=there.get("step_ms"))
                continue
            ms, tokens = median([x["step_ms"] for x in lines]), micro * sizes["seq"]
            rate = tokens / (1e-3 * ms)
            mfu = rate * flops_of_token(sizes) / self.peak_flops if self.peak_flops else float("nan")
            other = there.get("step_ms", float("nan"))
            host = median([x.get("host_ms", 0) for x in lines])
            print(f"{name:6} {ms:9.1f} {host:8.1f} {other:10.1f} {other / ms:6.2f} {rate:9.0f} {100 * mfu:5.1f}% "
                  f"{1e-9 * lines[0]['bytes']:6.1f} {1e-9 * there.get('bytes', 0):7.1f}", flush=True)
            self.note(part="training", model=name, step_ms=ms, host_ms=host, pytorch_ms=other, tokens_per_s=rate,
                      mfu=mfu, bytes=lines[0]["bytes"], losses=[x["loss"] for x in lines])

    def families(self):
        print(f"{'model':17} {'weft ms':>9} {'host ms':>8} {'PyTorch ms':>10} {'ratio':>6} {'GB':>6} {'PyTorch':>7}")
        for name in os.environ.get("FAMILIES", " ".join(FAMILIES)).split():
            if late(name):
                return
            preset, changes, few, batch = FAMILIES[name]
            plan = dict(plan_of(preset, {}, batch, batch), set=changes)
            lines, reason = train(self.bin, plan, STEPS)
            with tempfile.TemporaryDirectory() as folder:
                there = self.family_there(name, plan, few, folder)
            if not lines:
                print(f"{name:17} weft: {reason}; PyTorch: {there}", flush=True)
                self.note(part="families", model=name, error=reason, pytorch_ms=there.get("step_ms"))
                continue
            ms, host = (median([x.get(key, 0) for x in lines]) for key in ("step_ms", "host_ms"))
            other = there.get("step_ms", float("nan"))
            print(f"{name:17} {ms:9.1f} {host:8.1f} {other:10.1f} {other / ms:6.2f} {1e-9 * lines[0]['bytes']:6.1f} "
                  f"{1e-9 * there.get('bytes', 0):7.1f}", flush=True)
            self.note(part="families", model=name, plan=plan, step_ms=ms, host_ms=host, pytorch_ms=other,
                      bytes=lines[0]["bytes"], pytorch_bytes=there.get("bytes"))

    def family_there(self, name, plan, few, folder):
        """What PyTorch takes; shapes are those of a checkpoint of few layers."""
        small = dict(plan, dtype="fp32", set=",".join(x for x in (plan["set"], few) if x))
        with open(f"{folder}/plan.json", "w") as f:
            json.dump(small, f)
        out = run([f"{self.bin}/weft-run", "-q", "--device", DEVICE, "-n", "1", "--lr", "0", "--save",
                   f"{folder}/few", f"{folder}/plan.json"])
        if out.returncode:
            return {"error": why(out)}
        return (torch_side("family", name, f"{folder}/few") or [{}])[-1]

    def every(self):
        """Plans of every family, each profiled as it is: plain, with accumulation, recompute and offload."""
        few = [("gpt:gpt2", "layers=6", 8), ("llama:160M", "layers=6,seq=2048", 4), ("t5:770M", "layers=6,seq=512,"
               "target_seq=128", 8), ("moe:380M", "layers=4", 8), ("transformer:220M", "layers=6", 8),
               ("wide-resnet:250M", "group=32,base=64", 32), ("mlp:mnist", "layers=8", 512)]
        ways = [(1, {}), (3, {}), (1, {"recompute": "all"}), (2, {"offload": ["optimizer"]})]
        plans = [{"format": "weft-plan/1", "model": model, "set": sizes, "batch": k * micro, "micro_batch": micro,
                  "dtype": dtype, "stages": [stage]}
                 for k, stage in ways for model, sizes, micro in few for dtype in ("bf16", "fp32")]
        errors, wrong = [], 0
        with tempfile.TemporaryDirectory() as folder:
            db, path = f"{folder}/p.db", f"{folder}/plan.json"
            for i, plan in enumerate(plans):
                if late(f"plans from {i} of {len(plans)} on"):
                    break
                with open(path, "w") as f:
                    json.dump(plan, f)
                out = run([f"{self.bin}/weft-profile-op", "-q", "--plan", path, "--device", "cuda", "--time", "20ms",
                           "-p", db])
                print(f"{plan['model']:17}", "offloaded" if "offload" in plan["stages"][0] else "", end=" ")
                row = self.predict(plan, path, db) if not out.returncode else print(why(out))
                if row:
                    self.note(part="every", **plan, **row)
                    errors.append(row["error"])
                    wrong += not row["memory_right"]
        wrong += self.shared(few)
        if errors:
            sizes = [abs(e) for e in errors]
            print(f"# {len(errors)} plans of every family: median error {100 * median(sizes):.1f} %, worst "
                  f"{100 * max(sizes):.1f} %, memory wrong in {wrong}")

    def shared(self, few):
        """Two ranks that share the GPU, each with half of the samples: the memory of each as predicted, and what a
        step takes, which nothing predicts. Returns how many have another memory."""
        wrong = 0
        for model, sizes, micro in few:
            if late("ranks that share the GPU"):
                break
            plan = {"format": "weft-plan/1", "model": model, "set": sizes, "batch": 2 * micro,
                    "micro_batch": 2 * micro, "dtype": "bf16",
                    "stages": [{"mesh": "dp:2", "layout": {"dp": "batch"}}]}
            with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
                json.dump(plan, f)
                f.flush()
                out = run([f"{self.bin}/weft-predict", "--cluster", "h100:2", f.name])
            lines, reason = train(self.bin, plan, 5, None, 2)
            if out.returncode or not lines:
                print(f"{model:17} two ranks:", why(out) if out.returncode else reason, flush=True)
                continue
            told, took = json.loads(out.stdout)["stages"][0]["memory"]["total"], lines[0]["bytes"]
            wrong += told != took
            ms = median([x["step_ms"] for x in lines])
            print(f"{model:17} two ranks: {ms:8.1f} ms, {told} bytes each predicted, {took} measured", flush=True)
            self.note(part="shared", **plan, step_ms=ms, predicted_bytes=told, measured_bytes=took)
        return wrong

    def large(self):
        """gpt:6.7B on this one GPU, as weft-search plans it, predicted and measured."""
        if late("gpt:6.7B"):
            return
        with tempfile.TemporaryDirectory() as folder:
            db, path = f"{folder}/p.db", f"{folder}/plan.json"
            out = run([f"{self.bin}/weft-search", "-q", "-m", "gpt:6.7B", "--cluster", "h100-8", "--devices", "1",
                       "-b", "8", "--dtype", "bf16", "-o", path])
            if not out.returncode:
                out = run([f"{self.bin}/weft-profile-op", "-q", "--plan", path, "--device", "cuda", "--time", "20ms",
                           "-p", db])
            if out.returncode:
                print("# gpt:6.7B:", why(out))
                return
            with open(path) as f:
                plan = json.load(f)
            row = self.predict(plan, path, db)
            if row:
                self.note(part="large", plan=plan, **row)

    def prediction(self):
        sizes = dict(layers=8, hidden=768, heads=12, seq=1024, vocab=50304, tied=1)
        plans = [plan_of("gpt:gpt2", sizes, micro * k, micro, dtype, recompute) for dtype in ("bf16", "fp32")
                 for micro in (2, 4, 8) for k in (1, 3) for recompute in (None, "all")]
        random.Random(1).shuffle(plans)  # of every sort some, should the time be over
        errors, wrong = [], 0
        with tempfile.TemporaryDirectory() as folder:
            db = f"{folder}/p.db"
            for dtype in ("bf16", "fp32"):
                if late(f"profile in {dtype}"):
                    return
                out = run([f"{self.bin}/weft-profile-op", "-q", "-m", plans[0]["model"], "--set", plans[0]["set"],
                           "--dtype", dtype, "--max-devices", "1", "--micro-batch", "2,4,8", "--device", "cuda",
                           "--time", "50ms", "-p", db])
                if out.returncode:
                    print(f"# profile in {dtype}: {why(out)}")
            for i, plan in enumerate(plans):
                if late(f"plans from {i} on"):
                    break
                row = self.predict(plan, f"{folder}/plan.json", db)
                if row:
                    self.note(part="plan", **plan, **row)
                    errors.append(row["error"])
                    wrong += not row["memory_right"]
        if errors:
            middle = median([abs(e) for e in errors])
            print(f"# {len(errors)} plans: median error {100 * middle:.1f} %, memory wrong in {wrong}")
            self.note(part="prediction", plans=len(errors), median=middle, errors=errors, memory_wrong=wrong)

    def predict(self, plan, path, db):
        """What is said of a plan beside what is measured; None where either fails."""
        with open(path, "w") as f:
            json.dump(plan, f)
        out = run([f"{self.bin}/weft-predict", "-p", db, path])
        lines, reason = train(self.bin, plan, 5, db)
        if out.returncode or not lines:
            print("# not predicted:", why(out) if out.returncode else reason, flush=True)
            return None
        said, ms = json.loads(out.stdout), median([x["step_ms"] for x in lines])
        told = 1e-3 * said["time_us"]
        print(f"{plan['dtype']} micro-batch {plan['micro_batch']} of {plan['batch']:2}, recompute "
              f"{plan['stages'][0].get('recompute', 'none'):4}: {told:8.1f} ms predicted, {ms:8.1f} measured, "
              f"{100 * (told / ms - 1):+6.1f} %", flush=True)
        return {"predicted_ms": told, "measured_ms": ms, "error": told / ms - 1,
                "memory_right": said["stages"][0]["memory"]["total"] == lines[0]["bytes"]}

    def profile(self):
        if late("profile of gpt:1.3B"):
            return
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            out = run([f"{self.bin}/weft-profile-op", "-q", "-m", "gpt:1.3B", "--dtype", "bf16", "--device", "cuda",
                       "--max-devices", "1", "--micro-batch", "1,2,4,8", "-p", f"{folder}/p.db"])
            took = time.perf_counter() - start
        print(f"# profile of gpt:1.3B: {took:.1f} s" + (f": {why(out)}" if out.returncode else ""), flush=True)
        self.note(part="profile", seconds=took, status=out.returncode)

    def beside(self, part, keys, title):
        """Kernels that tests/gpu/gpu-PART times, beside PyTorch's of the same shapes."""
        if late(part):
            return
        out = run([f"{self.build}/tests/gpu/gpu-{part}", "bench"])
        rows = [json.loads(line) for line in out.stdout.splitlines() if line.startswith("{")]
        if out.returncode or not rows:
            print(f"# {part}:", *(line for line in out.stdout.splitlines() if not line.startswith("{")), why(out))
        if not rows:
            return

        def shape_of(row):
            return tuple(row[key] for key in keys)
        shapes = sorted({shape_of(row) for row in rows})
        there = dict(zip(shapes, torch_side(part, json.dumps(shapes))))
        print(f"{title}: Tflop/s, and PyTorch's time in bf16 as a multiple")
        for row in rows:
            shape = shape_of(row)
            ratio = there.get(shape, {}).get(row["pass"], float("nan")) / row["us"]
            print(f"{row['kernels']:9} {row['dtype']:4} {'x'.join(str(n) for n in shape):20} {row['pass']:9} "
                  f"{row['tflops']:7.1f} {ratio:6.2f}", flush=True)
            self.note(part=part, pytorch=there.get(shape), **row)

    def attention(self):
        self.beside("attention", ("batch", "heads", "seq", "dim"), "attention, causal")

    def epilogues(self):
        """What it brings to do GELU, its gradient and a bias' gradient in the products: of GPT-2's layers."""
        if late("epilogues"):
            return
        out = run([f"{self.build}/tests/gpu/gpu-epilogues", "bench"])
        rows = [json.loads(line) for line in out.stdout.splitlines() if line.startswith("{")]
        if not rows:
            print("# epilogues:", out.stdout.strip(), why(out))
            return
        print("epilogues: microseconds one by one, in one, and of the way that is taken")
        for apart in (row for row in rows if row["way"] == "apart"):
            us = {row["way"]: row["us"] for row in rows
                  if all(row[key] == apart[key] for key in ("pass", "rows", "hidden"))}
            print(f"{apart['pass']:8} {apart['rows']:6} x {apart['hidden']:4} "
                  + " ".join(f"{us.get(way, float('nan')):8.1f}" for way in ("apart", "fused", "faster")), flush=True)
            self.note(part="epilogues", rows=apart["rows"], hidden=apart["hidden"], us=us, **{"pass": apart["pass"]})

    def convolution(self):
        self.beside("convolution", ("batch", "size", "cin", "cout", "taps", "stride"), "convolution")


def main():
    if sys.argv[1] == "--torch":
        part, *args = sys.argv[2:]
        return {"peak": torch_peak, "train": torch_train, "family": torch_family, "attention": torch_attention,
                "convolution": torch_convolution}[part](*args)
    bench, failed = Bench(sys.argv[1]), False
    for part in sys.argv[2:] or ["peak", "training", "prediction", "profile", "attention", "convolution", "epilogues"]:
        start = time.monotonic()
        try:
            getattr(bench, part)()
        except Exception:
            failed = True
            print(f"# {part}:", traceback.format_exc().replace("\n", "\n# "))
        print(f"# {part}: {time.monotonic() - start:.0f} s", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
