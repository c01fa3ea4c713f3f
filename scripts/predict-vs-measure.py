#!/usr/bin/env python3
"""Prediction against measurement on the cores of this machine.

  scripts/predict-vs-measure.py BIN [WORK_DIR] [SET...]     (make predict-here)

A set is a list of plans for ranks of one thread: "families" has 40 plans of eight families on 1, 2 and 4 ranks, "gpt"
25 plans of one GPT on 2 ranks, "demo" plans like those of make demo. What the plans of a family need is profiled with as
many ranks at work as they have; every plan is predicted, and all are trained in turns, round after round. Each plan has
a line: the predicted step, the median of the rounds' medians, how far these differ, and the error. The regret is what the
plan that is predicted best loses on the best one, among the plans of a family on as many ranks. Profiles and times stay
in WORK_DIR and are not measured again. By the environment: ROUNDS=5, STEPS=6 (of which the first two do not count),
TIME=100ms (longest for a row of the profile), ONLY (families, between spaces). Nothing else should need the machine.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

BIN = os.path.abspath(sys.argv[1])
WORK = sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp()
SETS = sys.argv[3:] or ["families"]
ROUNDS = int(os.environ.get("ROUNDS", "5"))
STEPS = int(os.environ.get("STEPS", "6"))
TIME = os.environ.get("TIME", "100ms")
ONLY = os.environ.get("ONLY", "").split()
CORES = os.cpu_count()
WARM = 2
os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")

# Of each family the model, its sizes and the batch; then ranks and the words of weft-plan.
FAMILIES = {
    "gpt": ("gpt:nano", "layers=4,hidden=256,heads=8,seq=256,vocab=1024", 16, [
        (1, "--micro-batch 16"), (1, "--micro-batch 4 --recompute full"),
        (2, "--dp 2 --micro-batch 4 --zero 1"), (2, "--pp 2 --micro-batch 2"), (4, "--tp 2 --dp 2 --micro-batch 8")]),
    "llama": ("llama:nano", "layers=4", 16, [
        (1, "--micro-batch 8"), (1, "--micro-batch 2"),
        (2, "--tp 2 --sp --micro-batch 8"), (2, "--dp 2 --micro-batch 8"), (4, "--pp 2 --dp 2 --micro-batch 4")]),
    "t5": ("t5:nano", "layers=2", 16, [
        (1, "--micro-batch 16"), (1, "--micro-batch 4"),
        (2, "--dp 2 --micro-batch 16"), (2, "--tp 2 --micro-batch 8"), (4, "--dp 4 --micro-batch 16")]),
    "moe": ("moe:nano", "layers=4,experts=4", 16, [
        (1, "--micro-batch 8"), (1, "--micro-batch 4 --recompute full"),
        (2, "--dp 2 --ep 2 --micro-batch 8"), (2, "--pp 2 --micro-batch 4"), (4, "--dp 4 --micro-batch 16")]),
    "bert": ("bert:nano", "", 32, [
        (1, "--micro-batch 16"), (1, "--micro-batch 8 --recompute selective"),
        (2, "--dp 2 --micro-batch 32 --zero 2"), (2, "--tp 2 --micro-batch 16"), (4, "--pp 2 --tp 2 --micro-batch 8")]),
    "vit": ("vit:nano", "", 64, [
        (1, "--micro-batch 32"), (1, "--micro-batch 16"),
        (2, "--dp 2 --micro-batch 64"), (2, "--pp 2 --micro-batch 16"), (4, "--dp 2 --pp 2 --micro-batch 32")]),
    "wide-resnet": ("wide-resnet:nano", "base=16", 32, [
        (1, "--micro-batch 32"), (1, "--micro-batch 8"),
        (2, "--dp 2 --micro-batch 32"), (2, "--dp 2 --micro-batch 8 --zero 1"), (4, "--dp 4 --micro-batch 32")]),
    "mlp": ("mlp:mnist", "hidden=1024", 256, [
        (1, "--micro-batch 256"), (1, "--micro-batch 64"),
        (2, "--dp 2 --micro-batch 256"), (2, "--tp 2 --micro-batch 256"), (4, "--dp 2 --tp 2 --micro-batch 256")]),
}


def gpt_plans():
    """One mesh axis over what a person can split, and two stages cut in several places."""
    def one(name, micro, dims, **more):
        return name, {"micro_batch": micro, "stages": [{"mesh": "a:2", "layout": {"a": dims}, **more}]}

    def two(name, micro, blocks, schedule="1f1b", **more):
        return name, {"micro_batch": micro, "schedule": schedule,
                      "stages": [{"ops": ["wte", "wpe"] + blocks, **more}, more]}

    every, half = ["heads", "ffn", "vocab"], ["layer.0-1"]
    plans = [one(f"dp-{m}", m, "batch") for m in (16, 8, 4, 2)]
    plans += [one("dp-16-zero", 16, "batch", zero=1), one("dp-4-recompute", 4, "batch", recompute="all"),
              one("tp-16", 16, every), one("tp-4", 4, every), one("tp-8-novocab", 8, ["heads", "ffn"]),
              one("sp-16", 16, every + ["seq"]), one("sp-4", 4, every + ["seq"]), one("ffn-8", 8, ["ffn", "batch"]),
              one("heads-8", 8, ["heads", "batch"]), one("vocab-8", 8, ["vocab", "batch"]),
              one("hidden-8", 8, ["hidden", "heads"]), one("seq-mlp-8", 8, ["heads", "seq"])]
    plans += [two(f"pp-half-{m}", m, half) for m in (16, 8, 4, 2)]
    plans += [two("pp-half-4-gpipe", 4, half, "gpipe"), two("pp-one-4", 4, ["layer.0"]),
              two("pp-three-4", 4, ["layer.0-2"]),
              two("pp-cut-4", 4, half + ["layer.2.ln1", "layer.2.qkv", "layer.2.attn"]),
              two("pp-recompute-4", 4, half, recompute="all")]
    model, sizes, batch, _ = FAMILIES["gpt"]
    head = {"format": "weft-plan/1", "model": model, "set": sizes, "batch": batch}
    return [("gpt", 2, name, {**head, **rest}) for name, rest in plans]


def family_plans():
    for family, (model, sizes, batch, plans) in FAMILIES.items():
        for ranks, words in plans:
            made = output(BIN + "/weft-plan", "-m", model, *(["--set", sizes] if sizes else []),
                          "-b", str(batch), *words.split())
            yield family, ranks, words.replace("--micro-batch", "-b").replace("--", ""), json.loads(made)


def demo_plans():
    head = {"format": "weft-plan/1", "model": "gpt:nano", "set": "layers=4,hidden=128,heads=4,seq=128", "batch": 16}
    yield "demo", 2, "data", {**head, "micro_batch": 8, "stages": [{"mesh": "dp:2", "layout": {"dp": "batch"}}]}
    yield "demo", 2, "tensor", {**head, "micro_batch": 8, "stages": [
        {"mesh": "tp:2", "layout": {"tp": ["heads", "ffn", "vocab"]}}]}
    yield "demo", 2, "pipeline", {**head, "micro_batch": 4, "stages": [{"ops": ["wte", "wpe", "layer.0-1"]}, {}]}


def output(*words):
    return subprocess.run(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, check=True).stdout


def job(ranks, *words):
    return output("mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *words)


class Plan:
    def __init__(self, where, number, family, ranks, name, doc):
        self.group, self.ranks, self.name = (family, ranks), ranks, name
        self.path = f"{where}-{number:02d}.json"
        self.db = f"{where}-{family}-{ranks}.db"
        self.times, self.predicted = f"{self.path[:-5]}.ms", 0.0
        with open(self.path, "w", encoding="utf-8") as f:
            json.dump(doc, f)

    def predict(self):
        self.predicted = 1e3 * json.loads(output(BIN + "/weft-predict", "-q", "-p", self.db, self.path))["time"]

    def measure(self):
        """Adds the median step of a run, ms."""
        lines = job(self.ranks, BIN + "/weft-run", "-q", "--threads", "1", "-n", str(STEPS), "--validation", "0", self.path)
        steps = [json.loads(line)["step_ms"] for line in lines.splitlines()]
        with open(self.times, "a", encoding="ascii") as f:
            print(statistics.median(steps[WARM:]), file=f)

    def rounds(self):
        if not os.path.exists(self.times):
            return []
        with open(self.times, encoding="ascii") as f:
            return [float(x) for x in f]


def profile(plans, ranks, db):
    """Collectives once for each number of ranks; what the plans compute on top."""
    shared = f"{WORK}/comm-{ranks}.db"
    if ranks > 1 and not os.path.exists(shared):
        job(ranks, BIN + "/weft-profile-comm", "-q", "--threads", "1", "--device", "here", "-p", shared + ".part",
            "--max-bytes", "64M", "--time", TIME)
        os.rename(shared + ".part", shared)
    if os.path.exists(db):
        return
    if ranks > 1:
        with open(shared, "rb") as f, open(db + ".part", "wb") as out:
            out.write(f.read())
    output(BIN + "/weft-profile-op", "-q", "--plan", ",".join(p.path for p in plans), "-p", db + ".part",
           "--device", "here", "--threads", "1", "--ranks", str(ranks), "--over", str(-(-ranks // CORES)),
           "--time", TIME)
    os.rename(db + ".part", db)


def ranked(x):
    """Ranks from 1, equal values share theirs."""
    return [sum(a < b for a in x) + 0.5 * (sum(a == b for a in x) + 1) for b in x]


def correlation(x, y):
    x, y = ranked(x), ranked(y)
    mx, my = statistics.mean(x), statistics.mean(y)
    top = sum((a - mx) * (b - my) for a, b in zip(x, y))
    return top / (sum((a - mx) ** 2 for a in x) * sum((b - my) ** 2 for b in y)) ** 0.5


def table(plans, measured):
    print(f"{'plan':42s} {'predicted':>12s} {'measured':>12s} {'rounds':>8s} {'error':>8s}")
    for p in plans:
        m, r = measured[p], p.rounds()
        print(f"{f'{p.group[0]}-{p.ranks} {p.name}':42s} {p.predicted:9.1f} ms {m:9.1f} ms "
              f"{100 * (max(r) / min(r) - 1):6.1f} % {100 * (p.predicted / m - 1):+6.1f} %")


def verdict(plans, measured):
    errors = [p.predicted / measured[p] - 1 for p in plans]
    regrets = []
    for group in sorted({p.group for p in plans}):
        mine = [p for p in plans if p.group == group]
        if len(mine) > 1:
            chosen = min(mine, key=lambda p: p.predicted)
            regrets.append(measured[chosen] / min(measured[p] for p in mine) - 1)
    print(f"{len(plans)} plans: median error {100 * statistics.median(map(abs, errors)):.1f} %, "
          f"worst {100 * max(map(abs, errors)):.1f} %, bias {100 * statistics.median(errors):+.1f} %, "
          f"rank correlation {correlation([p.predicted for p in plans], [measured[p] for p in plans]):.3f}, "
          f"regret {100 * statistics.mean(regrets):.1f} % in the mean, {100 * max(regrets):.1f} % at most")


def main():
    os.makedirs(WORK, exist_ok=True)
    sets = {"gpt": gpt_plans, "families": family_plans, "demo": demo_plans}
    for name in SETS:
        plans = [Plan(f"{WORK}/{name}", i, *p) for i, p in enumerate(sets[name]()) if not ONLY or p[0] in ONLY]
        for group in sorted({p.group for p in plans}):
            print(f"predict-vs-measure: profiling for {group[0]} on {group[1]} ranks", file=sys.stderr)
            mine = [p for p in plans if p.group == group]
            profile(mine, group[1], mine[0].db)
        for r in range(ROUNDS):
            print(f"predict-vs-measure: round {r + 1} of {ROUNDS}", file=sys.stderr)
            for p in plans:
                if len(p.rounds()) <= r:
                    p.measure()
        for p in plans:
            p.predict()
        measured = {p: statistics.median(p.rounds()) for p in plans}
        table(plans, measured)
        verdict(plans, measured)


main()
