#!/usr/bin/env python3
"""Random tables of a chain of five ops; what weft-search finds against the best of all configurations.

    best.py WEFT_SEARCH COUNT

prints a line for each, "SEED FOUND_MS BEST_MS BOUND_MS", and exits 1 where the first two differ or the
bound is above the best. Two devices: one stage with tp, dp, algorithm and marks of every op, or two
with one device each.
"""
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile

import score as aceso

OPS = ["conv1", "bn1", "block-0-0-conv1", "block-0-0-relu", "fc"]
SIZES = (1, 2, 4)


def write(folder, rng):
    for mbs, tp in itertools.product(SIZES, (1, 2)):
        sizes = {}
        for op in OPS:
            size = rng.randint(1, 40) * mbs
            sizes[op] = (size, size, rng.uniform(1, 30) / (tp if "conv" in op else 1),
                         rng.uniform(20, 60) * mbs, rng.uniform(0, 20), rng.uniform(0, 20))
        for algo in (0, 1):
            with open("%s/resnet_tiny_mbs%d_tp%d_algo%d.csv" % (folder, mbs, tp, algo), "w") as f:
                f.write("op_name,f,b,i,o,w,a,fr,br\n")
                for op in OPS:
                    us = rng.uniform(300, 1000) * (mbs + 0.3) / (0.5 + 0.5 * tp)
                    f.write("%s,%.3f,%.3f,%d,%d,%.3f,%.3f,%.3f,%.3f\n" % (
                        (op, us, 2 * us * rng.uniform(0.8, 1.2)) + sizes[op]))
    for prim in ("all_gather", "all_to_all"):
        with open("%s/prim_resnet_tiny_%s_2gpus.csv" % (folder, prim), "w") as f:
            f.write("size,ms\n" + "".join("%d,%.3f\n" % (i, 0.1 + 0.02 * i) for i in range(300)))
    with open(folder + "/p2p_intra_node.csv", "w") as f:
        f.write("1,2,4,8,16\n7,8,9,10,11\n")


def marks(n, first):
    """All that keep what may not be computed again: the result of conv1."""
    for m in itertools.product((0, 1), repeat=n):
        if not (first == 0 and n > 1 and m[0] and m[1]):
            yield list(m)


def algorithms(ops):
    """Of ops that are not split: those that have two may have either."""
    return [list(x) for x in itertools.product(*((0, 1) if "conv" in op else (0,) for op in ops))]


def configs(micro):
    base = {"model_name": "resnet", "model_size": "tiny", "num_layers": [],
            "global_batch_size": 16, "micro_batch_size": micro}
    n = len(OPS)
    for cut in range(1, n):
        parts = [(0, cut), (cut, n)]
        ones = [[1] * (b - a) for a, b in parts]
        for both in itertools.product(*(list(marks(b - a, a)) for a, b in parts)):
            for algo in itertools.product(*(algorithms(OPS[a:b]) for a, b in parts)):
                yield dict(base, num_stages=2, num_gpus=[1, 1],
                           num_ops_in_each_stage=[cut, n - cut],
                           model_parallel_size_of_each_op=ones,
                           data_parallel_size_of_each_op=ones,
                           algo_of_each_op=list(algo), recompute_ops=list(both))
    choices = [[(1, 2, 0), (2, 1, 0)] + ([(1, 2, 1), (2, 1, 1)] if "conv" in op else [])
               for op in OPS]
    for layout in itertools.product(*choices):
        for m in marks(n, 0):
            tp, dp, algo = (list(x) for x in zip(*layout))
            if micro % 2 == 0 or 2 not in dp:
                yield dict(base, num_stages=1, num_gpus=[2], num_ops_in_each_stage=[n],
                           model_parallel_size_of_each_op=[tp],
                           data_parallel_size_of_each_op=[dp], algo_of_each_op=[algo],
                           recompute_ops=[m])


def best_of_all(folder, limit):
    cache, best = {}, None
    tables = aceso.Tables(folder, "resnet_tiny")
    band = tables.band("p2p_intra_node.csv")
    for micro in SIZES:
        for c in configs(micro):
            times, first, fits = [], 0, True
            for s in range(c["num_stages"]):
                key = json.dumps([micro, s, c["num_stages"], first] + [c[k][s] for k in (
                    "model_parallel_size_of_each_op", "algo_of_each_op", "recompute_ops")])
                if key not in cache:
                    ops = OPS[first:first + c["num_ops_in_each_stage"][s]]
                    stage = aceso.Stage(tables, "resnet", c, s, ops, band, band)
                    cache[key] = (stage.ms, stage.mb)
                first += c["num_ops_in_each_stage"][s]
                times.append(cache[key][0])
                fits = fits and cache[key][1] <= limit
            time = (16 // micro - 1) * max(times) + sum(times)
            if fits and (best is None or time < best):
                best = time
    return best


def search(binary, folder, limit):
    """Its time and its bound; None, None where there is no plan."""
    out = subprocess.run([binary, "--cost", "aceso:" + folder, "-m", "resnet:tiny", "-b", "16",
                          "--devices", "2", "--memory", "%dM" % limit],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if out.returncode == 1:
        return None, None
    scored = aceso.score(folder, json.loads(out.stdout), 2)
    assert max(scored["memory_mb"]) <= limit
    bound = re.search(r"no plan takes less than ([0-9.]+) ms", out.stderr)
    return scored["time_ms"], float(bound.group(1))


def main():
    good = True
    for seed in range(int(sys.argv[2])):
        rng = random.Random(seed)
        with tempfile.TemporaryDirectory() as folder:
            write(folder, rng)
            limit = rng.choice((250, 350, 450, 600, 900))
            best = best_of_all(folder, limit)
            found, bound = search(sys.argv[1], folder, limit)
            print(seed, found, best, bound, flush=True)
            good = good and (found == best if best is None or found is None
                             else abs(found - best) < 1e-6 * best)
            good = good and (bound is None or bound <= best + 0.006)
    sys.exit(not good)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    main()
