#!/usr/bin/env python3
"""odd-settings.py BIN_DIR: searches beside a full grid, where settings are odd.

T5, Wide-ResNet, MoE and Llama on 6, 12, 24 and 96 devices behind odd links; memory from the least
that any plan of the grid needs upwards. For each setting the grid has every plan that weft-plan makes
of pp, tp, dp, cp, ep, sp, ZeRO, recompute, schedule and micro-batch, and weft-predict judges them.
Prints, for each setting, the step of the search over that of the grid's best plan; then whether more
memory ever made a slower plan, and whether --from P ended slower than P.

  EVERY=N   every N-th of the 24 ladders of memory, from FIRST (1) on
  ONLY=WORD the ladders whose line holds WORD
  CACHE=DIR predictions of the grids stay there
  JOBS=N    predictions at once (2)

A plan of the grid is left out only where another one shows that it cannot be the best of a setting:
where the same plan as 1f1b, with ZeRO 1 and without recompute is slower by more than its whole bubble
and a tenth. Exit 1 where a search is behind its grid, more memory is slower, or --from is.
"""
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

NEAR = 1 + 1e-6  # Both times come from the same simulator; only their last digits are printed apart.
STEPS = (1.0, 1.15, 1.4, 2.0, 4.0)  # of the least memory: a rung each

# Nodes, devices a node, then bytes per second and microseconds within and between nodes, Tflop/s.
MACHINES = {
    "six": (1, 6, 11e9, 9, None, None, 52),
    "twelve": (2, 6, 6e9, 9, 30e9, 17, 78),
    "day": (4, 6, 11e9, 4, 190e9, 12, 52),
    "three": (3, 8, 6e9, 9, 30e9, 17, 78),
    "rack": (12, 8, 40e9, 6, 3e9, 25, 100),
    "broad": (16, 6, 150e9, 5, 12e9, 20, 120),
}
# Model, sizes, machine, samples, type.
LADDERS = [
    ("t5:770M", "layers=4", "six", 48, "fp32"),
    ("t5:3B", "layers=6", "day", 96, "fp32"),
    ("t5:3B", "layers=12", "three", 96, "bf16"),
    ("t5:770M", "layers=12", "twelve", 48, "fp32"),
    ("t5:3B", "layers=6", "rack", 192, "bf16"),
    ("t5:770M", "layers=6,dec_layers=3", "broad", 192, "fp32"),
    ("wide-resnet:250M", "blocks3=4", "six", 48, "fp32"),
    ("wide-resnet:500M", "blocks3=4", "twelve", 96, "fp32"),
    ("wide-resnet:1B", "blocks3=6", "day", 96, "fp32"),
    ("wide-resnet:250M", "blocks3=4", "three", 192, "bf16"),
    ("wide-resnet:1B", "blocks3=6", "rack", 384, "bf16"),
    ("wide-resnet:2B", "blocks3=4", "broad", 192, "fp32"),
    ("moe:380M", "layers=4", "six", 48, "fp32"),
    ("moe:690M", "layers=6", "twelve", 48, "fp32"),
    ("moe:1.3B", "layers=8", "day", 96, "fp32"),
    ("moe:1.3B", "layers=6", "three", 96, "bf16"),
    ("moe:10B", "layers=6", "rack", 192, "bf16"),
    ("mixtral:8x7B", "layers=4", "broad", 192, "bf16"),
    ("llama:1B", "layers=6", "six", 24, "fp32"),
    ("llama:1B", "layers=12", "twelve", 48, "bf16"),
    ("llama:7B", "layers=12", "day", 96, "fp32"),
    ("llama:1B", "layers=8", "three", 96, "fp32"),
    ("llama:7B", "layers=6", "rack", 192, "bf16"),
    ("llama:1B", "layers=16", "broad", 384, "bf16"),
]


def cluster(machine):
    """The document of a machine, without memory."""
    nodes, devices, inside, inside_us, between, between_us, tflops = MACHINES[machine]
    links = [{"level": "node", "bandwidth": inside, "latency_us": inside_us}]
    if nodes > 1:
        links.append({"level": "between", "bandwidth": between, "latency_us": between_us})
    return {"format": "weft-cluster/1", "nodes": nodes, "devices_per_node": devices, "device": "odd",
            "flops": {"f32": tflops * 1e12, "bf16": tflops * 1e12, "f16": tflops * 1e12},
            "bandwidth": 900e9, "latency_us": 9, "links": links}


def products(total, parts):
    """All tuples of so many factors whose product is total."""
    if parts == 1:
        return [(total,)]
    return [(d,) + rest for d in range(1, total + 1) if total % d == 0
            for rest in products(total // d, parts - 1)]


class Grid:
    """The plans of one ladder and what weft-predict says of them: words -> (us, bytes)."""

    def __init__(self, tools, ladder, folder):
        self.tools, self.folder = tools, folder
        self.model, self.sizes, self.machine, self.batch, self.dtype = ladder
        self.file = os.path.join(folder, "-".join(map(str, ladder)).replace("/", "_") + ".json")
        self.cluster = os.path.join(folder, self.machine + ".json")
        with open(self.cluster, "w") as f:
            json.dump(cluster(self.machine), f)
        self.known = json.load(open(self.file)) if os.path.exists(self.file) else {}
        nodes, devices = MACHINES[self.machine][:2]
        self.devices = nodes * devices

    def make(self, words):
        """The plan of these words, or None where weft-plan refuses them."""
        made = subprocess.run(
            [self.tools + "/weft-plan", "-q", "-m", self.model, "--set", self.sizes, "-b", str(self.batch),
             "--dtype", self.dtype, "--cluster", self.cluster] + words.split(), capture_output=True)
        return made.stdout if made.returncode == 0 else None

    def predict(self, words):
        """(microseconds, bytes) of a plan, or None."""
        plan = self.make(words)
        if plan is None:
            return None
        said = subprocess.run([self.tools + "/weft-predict", "-q", "--cluster", self.cluster, "-"],
                              input=plan, capture_output=True)
        if said.returncode != 0:
            return None
        said = json.loads(said.stdout)
        return said["time_us"], said["memory"]

    def ask(self, pool, all_words):
        """Predicts what is not yet known."""
        new = [w for w in dict.fromkeys(all_words) if w not in self.known]
        for words, said in zip(new, pool.map(self.predict, new)):
            self.known[words] = said
        if new:
            with open(self.file + ".new", "w") as f:
                json.dump(self.known, f)
            os.replace(self.file + ".new", self.file)

    def shapes(self):
        """(pp, tp, dp, cp, ep, micro-batch) of all plans."""
        experts = self.model.startswith(("moe", "mixtral"))
        images = self.model.startswith("wide")
        for pp, tp, dp, cp in products(self.devices, 4):
            if images and cp > 1:
                continue
            for ep in [e for e in range(1, dp + 1) if dp % e == 0] if experts else [1]:
                for samples in (1, 2, 4, 8, 16):
                    micro = dp * samples
                    if self.batch % micro == 0 and (pp == 1 or self.batch // micro >= 2):
                        yield pp, tp, dp, cp, ep, micro

    @staticmethod
    def words(shape, zero, recompute, schedule, sp):
        """The words of weft-plan for a plan."""
        pp, tp, dp, cp, ep, micro = shape
        out = f"--pp {pp} --tp {tp} --dp {dp} --micro-batch {micro} --recompute {recompute}"
        out += f" --cp {cp}" if cp > 1 else ""
        out += f" --ep {ep}" if ep > 1 else ""
        out += f" --zero {zero}" if zero else ""
        out += " --sp" if sp else ""
        out += " --schedule interleaved --chunks 2" if schedule == "interleaved" else f" --schedule {schedule}"
        return out

    def base(self, shape, recompute="none"):
        """The plan of a shape whose step says what its variants can take at least."""
        return self.words(shape, 1 if shape[2] > 1 else 0, recompute, "1f1b", shape[1] > 1)

    def smallest(self, shape):
        """The plan of a shape that needs the least memory, as far as words can say it."""
        return self.words(shape, 3 if shape[2] > 1 else 0, "full", "1f1b", shape[1] > 1)

    def variants(self, shape):
        """All plans of a shape."""
        pp, tp, dp = shape[:3]
        for zero, recompute, schedule, sp in itertools.product(
                range(4) if dp > 1 else [0], ["none", "selective", "full"],
                ["1f1b", "gpipe", "zero-bubble", "interleaved"] if pp > 1 else ["1f1b"],
                [False, True] if tp > 1 else [False]):
            yield self.words(shape, zero, recompute, schedule, sp)

    def least_us(self, shape):
        """No variant takes less: the base's step less its bubble, and a tenth for how ZeRO, sp and the
        schedules move communication."""
        said = self.known[self.base(shape)]
        micros = self.batch // shape[5]
        return said and 0.9 * said[0] * micros / (micros + shape[0] - 1)

    def best(self, memory):
        """(microseconds, words) of the fastest known plan within the memory."""
        fits = [(said[0], words) for words, said in self.known.items() if said and said[1] <= memory]
        return min(fits, default=(math.inf, None))

    def ladder(self, pool):
        """The rungs of memory; the plans that could be best on one of them are known afterwards."""
        shapes = list(self.shapes())
        self.ask(pool, [w for s in shapes for w in (self.base(s), self.smallest(s))])
        least = min(self.known[self.smallest(s)][1] for s in shapes if self.known[self.smallest(s)])
        rungs = [math.ceil(least * step) for step in STEPS]
        shapes = sorted((s for s in shapes if self.least_us(s)), key=self.least_us)
        for shape in shapes:
            if any(self.least_us(shape) < self.best(rung)[0] for rung in rungs):
                self.ask(pool, self.variants(shape))
        return rungs


class Searches:
    """weft-search on the rungs of a ladder."""

    def __init__(self, tools, grid):
        self.tools, self.grid = tools, grid
        said = subprocess.run([tools + "/weft-search", "-h"], capture_output=True, text=True).stdout
        self.slack = ["--slack", "0"] if "--slack" in said else []

    def run(self, memory, *more):
        """(microseconds, CPU seconds) of a search."""
        g = self.grid
        before = os.times()
        done = subprocess.run(
            [self.tools + "/weft-search", "-q", "-m", g.model, "--set", g.sizes, "-b", str(g.batch), "--dtype",
             g.dtype, "--cluster", g.cluster, "--memory", str(memory), *self.slack, *more],
            capture_output=True)
        after = os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        if done.returncode != 0:
            return math.inf, used
        return json.loads(done.stdout)["provenance"]["predicted"]["time_us"], used


def climb(tools, ladder, folder, pool, tally):
    """Prints one ladder, and adds to the tally."""
    grid = Grid(tools, ladder, folder)
    rungs = grid.ladder(pool)
    name = f"{grid.model} {grid.sizes} {grid.machine}:{grid.devices} {grid.dtype}"
    search, faster = Searches(tools, grid), math.inf
    for rung, memory in enumerate(rungs):
        found, used = search.run(memory)
        best, words = grid.best(memory)
        ratio = found / best
        tally["ratios"].append((ratio, name, memory))
        notes = [] if ratio <= NEAR else [f"BEHIND {words}"]
        if found > faster * NEAR:
            notes.append(f"SLOWER than with less memory ({faster / 1e3:.1f} ms)")
            tally["memory"] += 1
        faster = min(faster, found)
        if rung in (0, 2):
            notes += started(grid, search, memory, best, words, tally)
        print(f"{name:52} {memory:12d} {found / 1e3:12.3f} {best / 1e3:12.3f} {ratio:8.4f} {used:6.1f} s  "
              + "; ".join(notes), flush=True)


def started(grid, search, memory, best, words, tally):
    """Searches from the grid's best plan; says where that ends slower."""
    plan = os.path.join(grid.folder, "from.json")
    with open(plan, "wb") as f:
        f.write(grid.make(words))
    found, _ = search.run(memory, "--from", plan)
    if found <= best * NEAR:
        return []
    tally["from"] += 1
    return [f"--from that plan: {found / best:.4f} of it"]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    tools, folder = os.path.realpath(sys.argv[1]), os.environ.get("CACHE") or tempfile.mkdtemp()
    os.makedirs(folder, exist_ok=True)
    every, first = int(os.environ.get("EVERY", 1)), int(os.environ.get("FIRST", 1))
    chosen = [ladder for i, ladder in enumerate(LADDERS, 1)
              if i % every == first % every and os.environ.get("ONLY", "") in " ".join(map(str, ladder))]
    tally = {"ratios": [], "memory": 0, "from": 0}
    print(f"{'setting':52} {'memory':>12} {'found (ms)':>12} {'grid (ms)':>12} {'ratio':>8} {'CPU':>8}")
    with ThreadPoolExecutor(int(os.environ.get("JOBS", 2))) as pool:
        for ladder in chosen:
            climb(tools, ladder, folder, pool, tally)
    ratios = [r for r, _, _ in tally["ratios"]]
    worst = max(tally["ratios"])
    behind = sum(r > NEAR for r in ratios)
    finite = [math.log(r) for r in ratios if r < math.inf]
    print(f"{len(ratios)} settings: geometric mean {math.exp(sum(finite) / len(finite)):.4f}, worst {worst[0]:.4f}"
          f" ({worst[1]}, {worst[2]} bytes), {behind} behind the grid, {tally['memory']} slower with more memory, "
          f"{tally['from']} slower than the plan that they came from")
    sys.exit(behind + tally["memory"] + tally["from"] > 0)


main()
