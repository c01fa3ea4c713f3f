#!/usr/bin/env python3
"""Predictions without the hardware, beside what others measured on it (make repro-truth WEFT_DATA=...).

    scripts/repro-truth.py BIN_DIR [DATA [OUT]]

One table per set, with the aim beside; a set that DATA lacks is left out with a line. OUT gets a picture per
set, predicted against measured, and of each profile how fast products and the optimizer run at which size, by
rows and by curves that were not fitted to them; and the tables that were drawn. The sets:
steps of Megatron as Korthikanti et al. published them (arXiv 2205.05198, tables 3 and 5: these stand
here), on which nothing was fitted; steps of vTrain, of which the half that the runtime was fitted to is
drawn by a seed and the other half tried; all-reduces among A100; and rows of a profile that a curve was
not fitted to, with how many of them lie within the bounds that the curve gives.
"""
import bisect
import collections
import csv
import importlib.machinery
import json
import lzma
import math
import os
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

SEED = 20261125

# name, layers, hidden, heads, stages, chunks, batch, micro-batch, seconds with full and selective recomputation
KORTHIKANTI = [
    ("22B", 48, 6144, 64, 1, 1, 4, 4, 1.42, 1.10),
    ("175B", 96, 12288, 96, 8, 3, 64, 1, 18.13, 13.75),
    ("530B", 105, 20480, 128, 35, 3, 280, 1, 49.05, 37.83),
    ("1T", 128, 25600, 160, 64, 1, 512, 1, 94.42, 71.49),
]

# states, activations without recomputation, with sequence parallelism and selective recomputation
KORTHIKANTI_GIB = {
    "22B": (45.5625, 59.25, 9.5625),
    "175B": (45.5625, 66.84375, 12.3515625),
    "530B": (31.640625, 114.0234375, 23.076171875),
    "1T": (32.958984375, 131.25, 26.5625),
}
MEGATRON_FIXED = 2 << 30  # fixed_memory of share/runtimes/megatron.json


class Weft:
    """The tools, by name."""

    def __init__(self, bin_dir):
        self.bin = bin_dir

    def run(self, tool, args, text=None):
        return subprocess.run([os.path.join(self.bin, "weft-" + tool), "-q", *args], input=text, check=True,
                              capture_output=True, text=True).stdout

    def step_s(self, plan_args, predict_args):
        plan = self.run("plan", plan_args)
        return json.loads(self.run("predict", [*predict_args, "-"], plan))["time"]


def gpt(layers, hidden, heads, seq, vocab):
    return ["-m", "gpt:1.3B", "--set", f"layers={layers},hidden={hidden},heads={heads},seq={seq},"
            f"vocab={vocab},dropout=0.1,tied=1", "--dtype", "fp16"]


def all_of(function, items):
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, items))


def ranks(x):
    order = sorted(range(len(x)), key=lambda i: x[i])
    out = [0] * len(x)
    for place, i in enumerate(order):
        out[i] = place
    return out


def spearman(a, b):
    a, b = ranks(a), ranks(b)
    mean = (len(a) - 1) / 2
    return sum((x - mean) * (y - mean) for x, y in zip(a, b)) / sum((x - mean) ** 2 for x in a)


def line(what, figure, aim):
    print(f"{what:<62}{figure:>24}   {aim}")


def absent(path):
    print(f"left out: {path} is not there")


# ---- pictures --------------------------------------------------------------------------------------
OUT = None  # a folder, where pictures are asked for

AGAINST = """set xlabel 'predicted, {unit}'; set ylabel 'measured, {unit}'; set logscale xy; set grid
set key bottom right; set size ratio -1; set format xy '%g'
plot for [f in "{files}"] f.'.tsv' using 1:2 with points pointtype 7 pointsize 0.4 title f, \\
    '{first}.tsv' using 1:1 with lines linecolor rgb '#888888' title 'equal'
"""
RATES = """set xlabel '{size}'; set ylabel '{rate}'; set logscale x; set grid; set key top left; set format x '%g'
plot '{first}.tsv' using 1:2 with points pointtype 7 pointsize 0.5 title 'rows', \\
    '' using 1:3 with points pointtype 6 pointsize 0.5 title 'curves that were not fitted to them'
"""


def draw(name, title, series, template, **words):
    """series: name -> rows, each a table of its own."""
    if not OUT:
        return
    os.makedirs(OUT, exist_ok=True)
    files = {label: f"{name}-{label}".replace(" ", "-").strip("-") for label in series}
    for label, rows in series.items():
        with open(os.path.join(OUT, files[label] + ".tsv"), "w", encoding="ascii") as f:
            f.writelines("\t".join(f"{x:.6g}" for x in r) + "\n" for r in rows)
    if not shutil.which("gnuplot"):
        print("    not drawn: gnuplot is not installed (make deps-plots)")
        return
    text = template.format(files=" ".join(files.values()), first=next(iter(files.values())), **words)
    head = f"set terminal svg size 800,700 font 'sans-serif,13' background 'white'; set output '{name}.svg'\n"
    subprocess.run(["gnuplot"], input=f"{head}set title '{title}' noenhanced\n{text}", text=True, check=True, cwd=OUT)


def against(name, title, unit, series):
    """series: name -> [(predicted, measured)]."""
    draw(name, title, series, AGAINST, unit=unit)


# ---- Megatron's published steps ------------------------------------------------------------------
def korthikanti(weft):
    rows = []
    for name, layers, hidden, heads, stages, chunks, batch, micro, full, selective in KORTHIKANTI:
        for recompute, measured in (("full", full), ("selective", selective)):
            args = [*gpt(layers, hidden, heads, 2048, 51200), "--tp", "8", "--pp", str(stages), "-b", str(batch),
                    "--micro-batch", str(micro), "--recompute", recompute, "--cluster", f"a100-80gb:{stages}x8"]
            args += ["--sp"] if recompute == "selective" else []
            args += ["--schedule", "interleaved", "--chunks", str(chunks)] if chunks > 1 else []
            rows.append((f"{name} {recompute}", measured, args))
    times = all_of(lambda r: weft.step_s(r[2], ["--runtime", "megatron"]), rows)
    print("Steps of Megatron-LM on A100 (Korthikanti et al. 2022): seconds measured, predicted, off")
    against("korthikanti", "Steps of Megatron-LM on A100 (Korthikanti et al. 2022)", "s",
            {"steps": [(t, r[1]) for r, t in zip(rows, times)]})
    for (name, measured, _), t in zip(rows, times):
        line(name, f"{measured:.2f} {t:.2f} {100 * (t / measured - 1):+.1f} %", "within 8 %")


def korthikanti_memory(weft):
    """GiB of figure 1 of the paper, as Calculon's validation has them: states of the layers alone (without
    the vocabulary: a stage that lacks it, where there is one), activations of the first stage."""
    print("\nTheir memory, GiB of a device: published, predicted, off")
    for name, layers, hidden, heads, stages, chunks, batch, micro, _, _ in KORTHIKANTI:
        states, *activations = KORTHIKANTI_GIB[name]
        for how, published in zip((["--recompute", "none"], ["--recompute", "selective", "--sp"]), activations):
            args = [*gpt(layers, hidden, heads, 2048, 51200), "--tp", "8", "--pp", str(stages), "-b", str(batch),
                    "--micro-batch", str(micro), "--cluster", f"a100-80gb:{stages}x8", *how]
            args += ["--schedule", "interleaved", "--chunks", str(chunks)] if chunks > 1 else []
            got = json.loads(weft.run("predict", ["--memory", "--runtime", "megatron", "-"], weft.run("plan", args)))
            first, other = got["stages"][0]["memory"], got["stages"][min(1, stages - 1)]["memory"]
            kept = (first["activations"] + first["runtime"] - MEGATRON_FIXED) / 2**30
            line(f"{name} activations, {how[1]}", f"{published:.1f} {kept:.1f} {100 * (kept / published - 1):+.1f} %",
                 "within 5 %")
        held = sum(other[k] for k in ("parameters", "gradients", "optimizer")) / 2**30
        line(f"{name} states", f"{states:.1f} {held:.1f} {100 * (held / states - 1):+.1f} %", "within 5 %")


# ---- vTrain --------------------------------------------------------------------------------------
def vtrain_step(weft, r):
    tp, dp, pp = int(r["tp"]), int(r["dp"]), int(r["pp"])
    vocab = -(-50257 // (128 * tp)) * 128 * tp
    args = [*gpt(r["layers"], r["hidden"], r["heads"], r["seq"], vocab), "--reduce", "fp16", "--tp", str(tp),
            "--dp", str(dp), "--pp", str(pp), "-b", r["batch"], "--micro-batch",
            str(int(r["micro_batch_of_a_replica"]) * dp), "--recompute", "full"]
    gpus = int(r["gpus"])
    cluster = f"a100-40gb:{gpus}" if gpus <= 8 else f"a100-80gb:{gpus // 8}x8"
    return 1e3 * weft.step_s([*args, "--cluster", cluster], ["--runtime", "megatron"])


def compare(name, rows, times, aim):
    off = sorted(abs(t / float(r["step_ms"]) - 1) for r, t in zip(rows, times))
    order = spearman([float(r["step_ms"]) for r in rows], times)
    line(f"{name}: {len(rows)} rows, median and nine of ten off, Spearman",
         f"{100 * statistics.median(off):.1f} % {100 * off[len(off) * 9 // 10]:.1f} % {order:.3f}", aim)


def vtrain(weft, path):
    with open(path, encoding="ascii") as f:
        rows = list(csv.DictReader(f))
    random.Random(SEED).shuffle(rows)
    half = len(rows) // 2
    times = all_of(lambda r: vtrain_step(weft, r), rows)
    print("\nSteps of Megatron-DeepSpeed on A100 (vTrain, MICRO 2024; profiled there: 8.4 %)")
    compare("fitted to (host, message, collective, loss)", rows[:half], times[:half], "")
    compare("the other half", rows[half:], times[half:], "median 7 %, Spearman 0.97")
    pairs = [(t, float(r["step_ms"])) for r, t in zip(rows, times)]
    against("vtrain", "Steps of Megatron-DeepSpeed on 2 to 8 A100 (vTrain)", "ms",
            {"fitted to": pairs[:half], "the other half": pairs[half:]})


# ---- collectives ---------------------------------------------------------------------------------
def all_reduces(path, model):
    """By the form of link_curve.c, on one node: a ring, or a tree."""
    with open(model, encoding="ascii") as f:
        doc = json.load(f)
    link, bandwidth = doc["links"]["node"], doc["node"]["links"][0]["bandwidth"] * 1e-6
    pairs = []
    with open(path, encoding="ascii") as f:
        for r in csv.DictReader(f):
            g, size, measured = int(r["gpus"]), int(r["bytes"]), float(r["all_reduce_us"])
            moved = 2 * (g - 1) / g * size / (link["reached"] * bandwidth)
            ring = link["launch_us"] + (g - 1) * link["round_us"] + moved
            up_down = 2 * (g - 1).bit_length() * link["round_us"]
            tree = link["launch_us"] + up_down + 2 * size / (0.85 * link["reached"] * bandwidth)
            pairs.append((min(ring, tree), measured))
    off = [abs(t / us - 1) for t, us in pairs]
    against("allreduce", "All-reduces among 2 to 8 A100 of one node (vTrain)", "us", {"": pairs})
    print("\nAll-reduces among 2 to 8 A100 of one node (vTrain)")
    off.sort()
    line(f"{len(off)} rows, mean and nine of ten off",
         f"{100 * statistics.mean(off):.1f} % {100 * off[len(off) * 9 // 10]:.1f} %", "")


# ---- collectives and products of V100s ---------------------------------------------------------------
def schema():
    """Tables of a profile, as make-devices.py writes them."""
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "make-devices.py")
    return importlib.machinery.SourceFileLoader("make_devices", here).load_module().SCHEMA


def new_profile(path):
    for old in (path, path + "-wal", path + "-shm"):
        if os.path.exists(old):
            os.remove(old)
    db = sqlite3.connect(path)
    db.executescript(schema())
    return db


def v100_collectives(path):
    """The clean rows, with the bytes that a profile of weft counts."""
    out = []
    with open(path, encoding="ascii") as f:
        for r in csv.DictReader(f):
            n, g, size = int(r["size_elements"]), int(r["group_size"]), int(r["size_bytes"])
            if r["time_s"] == "inf" or n < 1 or r["noop"] != "0" or r["clamped"] != "0" or g < 2:
                continue
            out.append({"mesh": f"{r['mesh_hosts']}x{r['mesh_devices_per_host']}", "hosts": int(r["mesh_hosts"]),
                        "op": r["op"], "dtype": r["dtype"], "g": g, "stride": int(r["stride"]), "elements": n,
                        "groups": int(r["num_groups"]), "link": "node" if r["hosts_spanned"] == "1" else "cross",
                        "bytes": size // g if r["op"] == "all_to_all" else size, "us": 1e6 * float(r["time_s"])})
    return out


def put_collectives(path, rows, kind):
    db = new_profile(path)
    db.executemany("INSERT OR REPLACE INTO comm VALUES (?,?,?,?,?,?,?,?,0,1,'measured','','')",
                   [(kind(r), r["op"], r["g"], r["stride"], r["groups"], r["link"], r["bytes"], r["us"])
                    for r in rows])
    db.commit()
    db.close()
    return path


def answered(weft, train, test, kind, cluster):
    """(measured, predicted, within, instruction, shape) of each row of a profile, by curves through another's."""
    args = ["-p", train, "--device", kind, "--cluster", cluster, "--check", test, "--text"]
    lines = weft.run("profile-fit", args).splitlines()[1:]
    return [(float(w[0]), float(w[1]), float(w[2]) / 100, w[3], w[4]) for w in map(str.split, lines)]


def judge_rows(name, found, expected, aim):
    off = sorted(abs(t / us - 1) for us, t, *_ in found)
    inside = sum(us / t <= 1 + part and t / us <= 1 + part for us, t, part, *_ in found)
    line(f"{name}: {len(found)} rows, mean, median off, within bounds",
         f"{100 * statistics.mean(off):.2f} % {100 * statistics.median(off):.2f} % {100 * inside / len(off):.0f} %", aim)
    if len(found) != expected:
        print(f"    {expected - len(found)} rows were not answered")
    return [(t, us) for us, t, *_ in found]


def split_collectives(weft, name, train, test, kinds, aim, work):
    """kinds: the profile's kind of a row, and the cluster that it ran on."""
    paths = [put_collectives(os.path.join(work, f"v100-{side}.db"), rows, kinds)
             for side, rows in (("train", train), ("test", test))]
    found = []
    for kind in sorted({kinds(r) for r in test}):
        cluster = "v100:" + (kind.split("-")[1] if "x" in kind else "4x8")
        found += answered(weft, *paths, kind, cluster)
    return judge_rows(name, found, len(test), aim)


def three_of_each(rows):
    curves = collections.defaultdict(list)
    for r in rows:
        curves[r["mesh"], r["op"], r["dtype"], r["g"], r["stride"]].append(r)
    train, test = [], []
    for c in curves.values():
        c.sort(key=lambda r: r["elements"])
        chosen = {round(i * (len(c) - 1) / 2) for i in range(3)}
        for i, r in enumerate(c):
            (train if i in chosen else test).append(r)
    return train, test


def v100(weft, path, work):
    rows = v100_collectives(path)

    def own(r):  # curves of each mesh and type alone
        return f"v100-{r['mesh']}-{r['dtype']}"

    def parts(of_train):
        return [r for r in rows if of_train(r)], [r for r in rows if not of_train(r)]

    print("\nCollectives by NCCL on nodes of 8 V100 (Alpa's; to beat: 2.5, 5.5, 27.9, 18.0 %)")
    splits = {
        "odd sizes": ("even sizes, odd asked", *parts(lambda r: int(math.log2(r["elements"])) % 2 == 0), own, "mean 2 %"),
        "probes": ("3 probes of each curve", *three_of_each(rows), own, "mean 4 %"),
        "larger": ("up to 2^20 elements, larger asked", *parts(lambda r: r["elements"] <= 2**20), own, "mean 12 %"),
        "four nodes": ("up to 2 nodes, 4 asked", *parts(lambda r: r["hosts"] <= 2), lambda r: f"v100-{r['dtype']}",
                       "mean 12 %"),
    }
    for label, split in splits.items():
        against("v100-" + label.replace(" ", "-"), f"Collectives by NCCL on V100: {split[0]}", "us",
                {"": split_collectives(weft, *split, work)})


def by_line(rows, n):
    """The time of a product of n by the line, in n cubed, through the rows beside it."""
    after = min(max(bisect.bisect([m for m, _ in rows], n), 1), len(rows) - 1)
    (a, at), (b, bt) = rows[after - 1], rows[after]
    return at + (bt - at) * (n**3 - a**3) / (b**3 - a**3)


def v100_products(weft, path, work):
    """Every second row, asked of the others. Those that Alpa found slower than larger ones it replaced by lines
    between others ("clamped"), which lines meet by construction; so the rest is judged by itself too."""
    with open(path, encoding="ascii") as f:
        rows = [r for r in csv.DictReader(f) if int(r["n"])]
    print("\nSquare products on a V100 (Alpa's; to beat: 3.1 % in f16, 1.3 % in f32; every second asked)")
    series = {}
    for dtype, aim in (("f16", "mean 2.5 %"), ("f32", "mean 1 %")):
        of = [r for r in rows if r["dtype"] == dtype]
        paths = []
        for side in (0, 1):
            paths.append(os.path.join(work, f"products-{side}.db"))
            db = new_profile(paths[-1])
            db.executemany("INSERT INTO op VALUES ('v100','linear',?,?,?,0.0,1,'measured','','')",
                           [(f"{r['n']},{r['n']},{r['n']},0,0", dtype, 1e6 * float(r["time_s"])) for r in of[side::2]])
            db.commit()
            db.close()
        found = answered(weft, *paths, "v100", "v100:1")
        series[dtype] = judge_rows(dtype, found, len(of[1::2]), aim)
        clean = {int(r["n"]): 1e6 * float(r["time_s"]) for r in of[1::2] if r["clamped"] == "0"}
        judge_rows(f"{dtype} as measured", [x for x in found if int(x[4].split(",")[0]) in clean], len(clean), "")
        known = [(int(r["n"]), 1e6 * float(r["time_s"])) for r in of[0::2]]
        lines = [abs(by_line(known, n) / us - 1) for n, us in clean.items()]
        line(f"{dtype} as measured, by lines: mean off", f"{100 * statistics.mean(lines):.2f} %", "")
    against("v100-products", "Square products on a V100", "us", series)


# ---- profiles ------------------------------------------------------------------------------------
def unpack(packed, work):
    path = os.path.join(work, os.path.basename(packed)[:-3])
    with lzma.open(packed) as f, open(path, "wb") as out:
        out.write(f.read())
    return path


def halves(database, work):
    """Two profiles, of every second row each; by a hash, so that a shape falls to either by chance."""
    paths = []
    for side in (0, 1):
        path = os.path.join(work, f"half{side}-{os.path.basename(database)}")
        with open(database, "rb") as f, open(path, "wb") as out:
            out.write(f.read())
        db = sqlite3.connect(path)
        keys = db.execute("SELECT device, instr, shape, dtype FROM op ORDER BY 2, 3, 4").fetchall()
        random.Random(SEED).shuffle(keys)
        db.executemany("DELETE FROM op WHERE device=? AND instr=? AND shape=? AND dtype=?", keys[side::2])
        db.commit()
        db.close()
        paths.append(path)
    return paths


def table(weft, database, like):
    """instruction -> rows, median, what four of five keep to, in percent: of rows not fitted to, by the curve and
    the rows of the other half beside it, as a profile answers."""
    out = {}
    for words in map(str.split, weft.run("profile-fit", ["-p", database, "--like", like, "--text"]).splitlines()[1:]):
        out[words[0]] = (int(words[1]), float(words[5]), float(words[6]))
    return out


def picture(weft, kind, database, work):
    """Rows of either half by curves through the other, and how fast what they say runs."""
    halved = halves(database, work)
    rows = sum((answered(weft, mine, other, kind, f"{kind}:1") for mine, other in (halved, halved[::-1])), [])
    families = {"products": ("linear", "matmul"), "attention": ("attention",), "others": ("",)}
    series = {f: [] for f in families}
    rates = {"products": [], "adamw": []}
    for us, t, _, name, shape in rows:
        family = next(f for f, starts in families.items() if name.startswith(starts))
        series[family].append((t, us))
        numbers = [int(x) for x in shape.split(",")]
        if name.startswith("linear"):
            flops = 2 * numbers[0] * numbers[1] * numbers[2]
            rates["products"].append((flops, flops / us / 1e6, flops / t / 1e6))
        elif name == "adamw":
            rates["adamw"].append((numbers[0], 28 * numbers[0] / us / 1e6, 28 * numbers[0] / t / 1e6))
    against(kind, f"{len(rows)} rows of the {kind}, each half by curves through the other", "us", series)
    draw(f"{kind}-products", f"linear, linear_dx, linear_dw on the {kind}", {"": rates["products"]}, RATES,
         size="operations", rate="Tflop/s")
    draw(f"{kind}-adamw", f"adamw on the {kind}", {"": rates["adamw"]}, RATES, size="parameters",
         rate="TB/s (28 bytes a parameter)")


def covered(weft, database, like, work):
    """Rows of one half within the bounds of curves fitted to the other: of how many, how many."""
    parts = halves(database, work)
    inside = rows = 0
    for mine, other in (parts, parts[::-1]):
        found = json.loads(weft.run("profile-fit", ["-p", mine, "--like", like, "--check", other]))
        inside, rows = inside + found["inside"], rows + found["rows"]
    return inside, rows


def profile(weft, kind, packed, like, work):
    database = unpack(packed, work)
    print(f"\nRows of the {kind}'s profile that curves were not fitted to, beginning with {like}")
    off = table(weft, database, like)
    for op in ("linear.bf16", "linear_dx.bf16", "linear_dw.bf16", "attention.bf16", "attention_bwd.bf16", "adamw"):
        if op in off:
            n, median, most = off[op]
            line(f"{op}: {n} rows, median and four of five off", f"{median:.1f} % {most:.1f} %", "median 8 %")
    inside, rows = covered(weft, database, like, work)
    line(f"{rows} rows: within the bounds that the curves give", f"{100 * inside / rows:.1f} %", "80 %")
    if OUT:
        picture(weft, kind.lower(), database, work)


# ---- a device after a few probes -----------------------------------------------------------------
STEPS = [
    ("gpt:1.3B", "-b 16 --micro-batch 2"), ("gpt:1.3B", "-b 16 --micro-batch 4 --tp 8"),
    ("gpt:1.3B", "-b 32 --micro-batch 8 --dp 4"), ("llama:7B", "-b 8 --micro-batch 1"),
    ("llama:7B", "-b 16 --micro-batch 4 --tp 4"), ("llama:7B", "-b 16 --micro-batch 2 --tp 8"),
    ("t5:770M", "-b 16 --micro-batch 8"), ("t5:770M", "-b 16 --micro-batch 2 --tp 2"),
    ("moe:1.3B", "-b 16 --micro-batch 4"), ("moe:1.3B", "-b 16 --micro-batch 4 --tp 4"),
]


def computing_us(weft, database, kind, plan):
    """What the stages of a plan compute: collectives are not what is asked."""
    args = ["-p", database, "--datasheets", "--device", kind, plan]
    return sum(s["compute_us"] for s in json.loads(weft.run("predict", args))["stages"])


def probed(weft, like, target, kind, count, plans, work):
    """A profile of the target out of so many of its rows, and another device's: (predicted, measured) of steps."""
    database = os.path.join(work, f"probed-{kind}-{count}.db")
    for path in (database, database + "-wal", database + "-shm"):
        if os.path.exists(path):
            os.remove(path)
    weft.run("profile-op", [*(w for p in plans for w in ("--plan", p)), "--probes", str(count), "--like", like,
                            "--from", target, "--device", kind, "-p", database])
    return [(computing_us(weft, database, kind, p), computing_us(weft, target, kind, p)) for p in plans]


def off_of(pairs):
    return sorted(abs(t / us - 1) for t, us in pairs)


def probes(weft, like, target, kind, work):
    plans = []
    for i, (model, how) in enumerate(STEPS):
        plans.append(os.path.join(work, f"step{i}.json"))
        weft.run("plan", ["-m", model, "--dtype", "bf16", "--cluster", f"{kind}:8", *how.split(), "-o", plans[-1]])
    print(f"\nWhat {len(plans)} steps of four families compute on the {kind}, from the other's rows and a few of its own")
    series = {}
    for count, aim in ((0, 6), (20, 3), (60, 2)):
        pairs = sum((probed(weft, like, target, kind, count, [p], work) for p in plans), [])
        series[f"{count} probes"] = pairs
        each = off_of(pairs)
        line(f"{count} probes for each plan: median and worst off",
             f"{100 * statistics.median(each):.1f} % {100 * each[-1]:.1f} %", f"within {aim} %")
    for count, aim in ((20, 3), (60, 2)):
        together = off_of(probed(weft, like, target, kind, count, plans, work))
        line(f"{count} probes for all {len(plans)} plans together",
             f"{100 * statistics.median(together):.1f} % {100 * together[-1]:.1f} %", f"within {aim} %")
    against(f"probes-{kind}", f"What steps compute on the {kind}, from the rows of the other", "us", series)


def both_probes(weft, data, work):
    paths = [unpack(os.path.join(data, "gpu", f"{kind}.db.xz"), work) for kind in ("h100", "h200")]
    probes(weft, *paths, "h200", work)
    probes(weft, *paths[::-1], "h100", work)


def main():
    global OUT  # pylint: disable=global-statement
    weft = Weft(sys.argv[1])
    OUT = sys.argv[3] if len(sys.argv) > 3 else None
    data = sys.argv[2] if len(sys.argv) > 2 else ""
    devices = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "share", "devices")
    korthikanti(weft)
    korthikanti_memory(weft)
    with tempfile.TemporaryDirectory() as work:
        sets = [
            ("steps/vtrain-a100-h1024.csv", lambda p: vtrain(weft, p)),
            ("steps/vtrain-a100-allreduce.csv",
             lambda p: all_reduces(p, os.path.join(devices, "a100-40gb.json"))),
            ("v100/collectives.csv", lambda p: v100(weft, p, work)),
            ("v100/matmul.csv", lambda p: v100_products(weft, p, work)),
            ("gpu/h100.db.xz", lambda p: profile(weft, "H100", p, "h200", work)),
            ("gpu/h200.db.xz", lambda p: profile(weft, "H200", p, "h100", work)),
            ("gpu", lambda p: both_probes(weft, data, work)),
        ]
        for name, judge in sets:
            path = os.path.join(data, name)
            if data and os.path.exists(path):
                judge(path)
            else:
                absent(path if data else f"WEFT_DATA/{name}")


if __name__ == "__main__":
    main()
