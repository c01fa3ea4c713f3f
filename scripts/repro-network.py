#!/usr/bin/env python3
"""Where a slow network turns data parallelism into a pipeline: predicted, and measured.

  scripts/repro-network.py BIN [WORK_DIR]     (make repro-network; root, network namespaces)

Two ranks of one thread stand on two "hosts" (scripts/netns.sh), which a token bucket joins at RATES. At every rate the
collectives and messages are profiled, the step of a GPT is predicted under data parallelism and under a pipeline of two
stages, and both are trained in turns, ROUNDS (3) times. The rate at which both take as long follows from the ratio of
the two steps, by its logarithm between the rates. The hosts' network code runs on the cores that the ranks have.
"""
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BIN = os.path.abspath(sys.argv[1])
WORK = sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp()
RATES = os.environ.get("RATES", "10gbit 3gbit 1gbit 300mbit 100mbit").split()
ROUNDS = int(os.environ.get("ROUNDS", "3"))
STEPS = int(os.environ.get("STEPS", "5"))
TIME = os.environ.get("TIME", "100ms")
WARM = 2
HEAD = {"format": "weft-plan/1", "model": "gpt:nano", "set": "layers=4,hidden=512,heads=8,seq=128,vocab=1024", "batch": 16,
        "cluster": {"format": "weft-cluster/1", "nodes": 2, "devices_per_node": 1, "device": "here"}}
PLANS = {
    "data": {**HEAD, "micro_batch": 16, "stages": [{"mesh": "dp:2", "layout": {"dp": "batch"}}]},
    "pipeline": {**HEAD, "micro_batch": 2, "stages": [{"ops": ["wte", "wpe", "layer.0-1"]}, {}]},
}


def output(*words):
    return subprocess.run(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, check=True).stdout


def hosts(rate, *words):
    out = output(HERE + "/netns.sh", "-r", rate, *words)
    if out.startswith("# SKIP"):
        sys.exit(out.strip())
    return out


def bits(rate):
    return float(rate[:-4]) * {"g": 1e9, "m": 1e6}[rate[-4]]


def predict(db, path):
    return 1e3 * json.loads(output(BIN + "/weft-predict", "-q", "-p", db, path))["time"]


def measure(rate, path):
    lines = hosts(rate, BIN + "/weft-run", "-q", "--threads", "1", "-n", str(STEPS), "--validation", "0", path)
    return statistics.median(json.loads(line)["step_ms"] for line in lines.splitlines()[WARM:])


def crossover(ratios):
    """Of (bits/s, data over pipeline) from fast to slow, the rate at which the ratio passes 1."""
    for (fast, a), (slow, b) in zip(ratios, ratios[1:]):
        if a <= 1 < b:
            share = math.log(1 / a) / math.log(b / a)
            return fast * (slow / fast) ** share
    return math.nan


def main():
    os.makedirs(WORK, exist_ok=True)
    paths = {}
    for name, doc in PLANS.items():
        paths[name] = f"{WORK}/{name}.json"
        with open(paths[name], "w", encoding="utf-8") as f:
            json.dump(doc, f)
    ops = WORK + "/ops.db"
    if not os.path.exists(ops):
        output(BIN + "/weft-profile-op", "-q", "--plan", ",".join(paths.values()), "-p", ops + ".part", "--device", "here",
               "--threads", "1", "--ranks", "2", "--time", TIME)
        os.rename(ops + ".part", ops)
    ratios = {"predicted": [], "measured": []}
    print(f"{'rate':>8s} {'plan':10s} {'predicted':>12s} {'measured':>12s} {'error':>8s}")
    for rate in RATES:
        db = f"{WORK}/{rate}.db"
        if not os.path.exists(db):
            with open(ops, "rb") as f, open(db + ".part", "wb") as out:
                out.write(f.read())
            hosts(rate, BIN + "/weft-profile-comm", "-q", "--threads", "1", "--device", "here", "-p", db + ".part",
                  "--max-bytes", "64M", "--time", TIME)
            os.rename(db + ".part", db)
        predicted = {name: predict(db, path) for name, path in paths.items()}
        rounds = [{name: measure(rate, path) for name, path in paths.items()} for _ in range(ROUNDS)]
        measured = {name: statistics.median(r[name] for r in rounds) for name in paths}
        for name in paths:
            print(f"{rate:>8s} {name:10s} {predicted[name]:9.1f} ms {measured[name]:9.1f} ms "
                  f"{100 * (predicted[name] / measured[name] - 1):+6.1f} %", flush=True)
        for kind, times in (("predicted", predicted), ("measured", measured)):
            ratios[kind].append((bits(rate), times["data"] / times["pipeline"]))
    where = {kind: crossover(r) for kind, r in ratios.items()}
    print(f"data parallelism and the pipeline take as long at {1e-6 * where['measured']:.0f} Mb/s, "
          f"predicted {1e-6 * where['predicted']:.0f} Mb/s")


main()
