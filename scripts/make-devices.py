#!/usr/bin/env python3
"""Makes the shipped device models (share/devices) anew from what was measured.

    scripts/make-devices.py BIN_DIR DATA share/devices

DATA has gpu/h100.db.xz and gpu/h200.db.xz, profiles of weft's kernels, and v100/matmul.csv, products
that Alpa measured. The H100's curves begin with guesses, the H200's with the H100's; those of devices
that nobody measured are the H100's: the fractions of their datasheets that its kernels reach. Their
bounds are widened by half. Numbers of datasheets, and of links, stand here with their source.
"""
import copy
import csv
import json
import lzma
import os
import sqlite3
import subprocess
import sys
import tempfile

GUESS = {
    "move": {"launch_us": 1.5, "memory": 0.9, "cache": 0.7, "row_us": 0.01},
    "product": {"launch_us": 2, "peak": 0.85, "fill": 150, "balance": 20, "memory": 0.8, "quantum": 0.5},
    "attention": {"launch_us": 5, "peak": 0.5, "width": 32, "fill": 64, "positions": 1.2, "lengths": 0.6},
}
A100_LINK = "fitted to all-reduces of 2 to 8 A100 of one node published with vTrain"
ASSUMED = "assumed, after published NCCL bus bandwidths"


def link(launch, round_us, reached, within, source):
    return {"launch_us": launch, "round_us": round_us, "reached": reached, "message": reached,
            "within": within, "from": source}


def node(device, host, levels):
    return {"device": device, "host_bandwidth": host, "latency_us": 5, "links": levels}


def level(name, bandwidth, latency, lanes=1):
    out = {"level": name, "bandwidth": bandwidth, "latency_us": latency}
    return {**out, "lanes": lanes} if lanes > 1 else out


def infiniband(gigabits, adapters):
    return level("between", gigabits * 1e9 / 8 * adapters, 10, adapters)


NVSWITCH = {"node": link(30, 6.8, 0.72, 0.2, A100_LINK), "cross": link(35, 8, 0.8, 0.5, ASSUMED)}
HOPPER = {"node": link(30, 6.8, 0.78, 0.3, "scaled from the A100's"), "cross": NVSWITCH["cross"]}
PROTOCOLS = {"bulk_us": 20, "bulk_round_us": 2, "slow": 3}
CUBE = {"node": {**link(30, 5, 0.8, 0.5, ASSUMED), **PROTOCOLS},
        "cross": {**link(35, 10, 0.8, 0.5, ASSUMED), **PROTOCOLS}}
PCIE = {"node": link(20, 10, 0.7, 0.5, ASSUMED), "cross": link(35, 10, 0.8, 0.5, ASSUMED)}

# name: (bytes, where from): what no plan may have of them is in lib/plan/reserve.c; share/clusters say the same
MEMORY = {
    "h100": (85_016_000_000, "gives it, measured (79.18 GiB)"),
    "h200": (150_109_000_000, "reports it (139.80 GiB in messages of PyTorch)"),
    "a100-80gb": (84_986_000_000, "reports it (79.15 GiB in messages of PyTorch)"),
    "a100-40gb": (42_298_834_944, "reports it (39.39 GiB by its sample deviceQuery, driver of CUDA 12.2)"),
    "v100": (34_080_000_000, "reports it (31.74 GiB in messages of PyTorch)"),
    "rtx4090": (25_250_627_584, "reports it (23.52 GiB by its sample deviceQuery, driver of CUDA 13.0; 23.64 by that of 12.4)"),
    "rtx3090": (25_206_325_248, "reports it (23.48 GiB by its sample deviceQuery, driver of CUDA 12.4; 23.67 by that of 11.4)"),
}

# name: (about, multiprocessors, flops of f32, bf16, f16, bytes/s, cache bytes, cache bytes/s, node, links)
CHIPS = {
    "h100": (
        "NVIDIA H100 SXM with 80 GB. Datasheet: 67 Tflop/s in f32, 989 in bf16 and f16 without sparsity, "
        "3.35 TB/s, NVLink 450 GB/s each way, eight adapters of 400 Gb/s in a DGX H100; the cache's "
        "5.5 TB/s are of published microbenchmarks",
        132, 67e12, 989e12, 989e12, 3.35e12, 50e6, 5.5e12,
        node("h100-80gb", 64e9, [level("node", 450e9, 5), infiniband(400, 8)]), HOPPER),
    "h200": (
        "NVIDIA H200 SXM. Datasheet: as the H100, but 141 GB at 4.8 TB/s",
        132, 67e12, 989e12, 989e12, 4.8e12, 50e6, 5.5e12,
        node("h200", 64e9, [level("node", 450e9, 5), infiniband(400, 8)]), HOPPER),
    "a100-80gb": (
        "NVIDIA A100 SXM with 80 GB. Datasheet: 19.5 Tflop/s in f32, 312 in bf16 and f16, 2,039 GB/s, "
        "NVLink 300 GB/s each way, eight adapters of 200 Gb/s in a DGX A100; the cache's 4.4 TB/s are of "
        "published microbenchmarks",
        108, 19.5e12, 312e12, 312e12, 2.039e12, 40e6, 4.4e12,
        node("a100-80gb", 32e9, [level("node", 300e9, 5), infiniband(200, 8)]), NVSWITCH),
    "a100-40gb": (
        "NVIDIA A100 SXM with 40 GB: as that with 80 GB, but 1,555 GB/s",
        108, 19.5e12, 312e12, 312e12, 1.555e12, 40e6, 4.4e12,
        node("a100-40gb", 32e9, [level("node", 300e9, 5), infiniband(200, 8)]), NVSWITCH),
    "v100": (
        "NVIDIA V100 SXM2. Datasheet: 15.7 Tflop/s in f32, 125 in f16, 900 GB/s, six NVLinks of 25 GB/s "
        "each way; network: AWS p3.16xlarge, 25 Gb/s a node; the cache's 2.2 TB/s are of published "
        "microbenchmarks",
        80, 15.7e12, 0, 125e12, 900e9, 6e6, 2.2e12,
        node("v100-32gb", 16e9, [{**level("node", 150e9, 30, 6), "cube": True}, infiniband(25, 1)]), CUBE),
    "rtx4090": (
        "NVIDIA GeForce RTX 4090. Datasheet: 82.6 Tflop/s in f32, 165 in bf16 and f16 with sums in f32, "
        "1,008 GB/s, PCIe 4 of 16 lanes; the cache's 5 TB/s are of published microbenchmarks",
        128, 82.6e12, 165e12, 165e12, 1.008e12, 72e6, 5e12,
        node("4090", 25e9, [level("node", 25e9, 10), infiniband(100, 1)]), PCIE),
    "rtx3090": (
        "NVIDIA GeForce RTX 3090. Datasheet: 35.6 Tflop/s in f32, 71 in bf16 and f16 with sums in f32, "
        "936 GB/s, PCIe 4 of 16 lanes; the cache's 2 TB/s are assumed",
        82, 35.6e12, 71e12, 71e12, 936e9, 6e6, 2e12,
        node("3090", 25e9, [level("node", 25e9, 10), infiniband(100, 1)]), PCIE),
}


def device(name, curves):
    about, sm, f32, bf16, f16, bandwidth, cache, cache_bandwidth, usual, links = CHIPS[name]
    memory, source = MEMORY[name]
    flops = {k: v for k, v in (("f32", f32), ("bf16", bf16), ("f16", f16)) if v}
    return {"format": "weft-device/1", "name": name, "about": f"{about}. Memory as CUDA {source}",
            "multiprocessors": sm, "flops": flops, "bandwidth": bandwidth,
            "cache": {"bytes": cache, "bandwidth": cache_bandwidth},
            "node": {**usual, "memory": memory}, "links": links,
            "curves": curves}


def guessed():
    return {k: {**v, "within": 1, "from": "guessed"} for k, v in GUESS.items()}


def scaled(curves):
    """Another device's: no rows stand behind them here, so their bounds are wider."""
    out = {}
    for name, c in curves.items():
        c = {k: v for k, v in c.items() if k != "rows"}
        out[name] = {**c, "within": round(max(0.25, 1.5 * c["within"]), 4), "from": "scaled from the H100's"}
    return out


def fit(bin_dir, database, like, work):
    """Curves of a profile, as weft-profile-fit finds them."""
    begin = os.path.join(work, "like.json")
    with open(begin, "w", encoding="ascii") as f:
        json.dump(like, f)
    out = subprocess.run([os.path.join(bin_dir, "weft-profile-fit"), "-q", "-p", database, "--like", begin],
                         check=True, capture_output=True, text=True)
    return json.loads(out.stdout)["curves"]


def unpack(packed, work):
    path = os.path.join(work, os.path.basename(packed)[:-3])
    with lzma.open(packed) as f, open(path, "wb") as out:
        out.write(f.read())
    return path


SCHEMA = """PRAGMA application_id=0x77656674; PRAGMA user_version=3;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE op (device TEXT, instr TEXT, shape TEXT, dtype TEXT, median_us REAL, spread REAL,
  repeats INTEGER, source TEXT, machine TEXT, measured_at TEXT,
  PRIMARY KEY (device, instr, shape, dtype)) WITHOUT ROWID;
CREATE TABLE comm (device TEXT, collective TEXT, group_size INTEGER, stride INTEGER, groups INTEGER,
  link TEXT, bytes INTEGER, median_us REAL, spread REAL, repeats INTEGER, source TEXT, machine TEXT,
  measured_at TEXT, PRIMARY KEY (device, collective, group_size, stride, groups, link, bytes));
CREATE TABLE overlap (device TEXT, collective TEXT, link TEXT, fraction REAL, machine TEXT,
  measured_at TEXT);
CREATE TABLE algorithm (device TEXT, problem TEXT, library INTEGER, shape TEXT, dtype TEXT,
  dtype_y TEXT, algorithm TEXT, workspace INTEGER, least_us REAL, machine TEXT, measured_at TEXT);"""


def products(table, work):
    """A profile of square products."""
    path = os.path.join(work, "v100.db")
    db = sqlite3.connect(path)
    db.executescript(SCHEMA)
    with open(table, encoding="ascii") as f:
        for r in csv.DictReader(f):
            n = int(r["n"])
            if n and r["clamped"] == "0":
                db.execute("INSERT INTO op VALUES ('v100','linear',?,?,?,0.0,1,'measured','','')",
                           (f"{n},{n},{n},0,0", r["dtype"], 1e6 * float(r["time_s"])))
    db.commit()
    db.close()
    return path


LOOP_US = 17  # what an empty turn of Alpa's loop takes


def v100(bin_dir, data, like, work):
    """Products as measured; the rest as on the H100, and so the other products."""
    curves = scaled(like)
    table = os.path.join(data, "v100", "matmul.csv")
    fitted = fit(bin_dir, products(table, work), device("v100", guessed()), work)
    for name, dtype in (("f16", "f16"), ("f32", None)):
        c = fitted["linear" + (f".{dtype}" if dtype else "")]
        c = {**c, "launch_us": round(max(3, c["launch_us"] - LOOP_US), 3),
             "from": f"fitted to square products in {name} published with Alpa"}
        for op in ("linear", "linear_dx", "linear_dw", "matmul", "matmul_dw"):
            curves[op + (f".{dtype}" if dtype else "")] = c
            curves.pop(op + ".bf16", None)
    return curves


def write(folder, doc):
    """Canonical, a curve a line."""
    doc = copy.deepcopy(doc)
    curves = doc.pop("curves")
    head = json.dumps(doc, indent=2, sort_keys=True)[:-2]  # without the last line, a brace
    lines = ",\n".join(f"    {json.dumps(k)}: {json.dumps(curves[k], sort_keys=True)}" for k in sorted(curves))
    with open(os.path.join(folder, doc["name"] + ".json"), "w", encoding="ascii") as f:
        f.write(f'{head},\n  "curves": {{\n{lines}\n  }}\n}}\n')


def main():
    bin_dir, data, folder = sys.argv[1:4]
    with tempfile.TemporaryDirectory() as work:
        gpu = os.path.join(data, "gpu")
        h100 = fit(bin_dir, unpack(os.path.join(gpu, "h100.db.xz"), work), device("h100", guessed()), work)
        write(folder, device("h100", h100))
        write(folder, device("h200", fit(bin_dir, unpack(os.path.join(gpu, "h200.db.xz"), work),
                                         device("h200", scaled(h100)), work)))
        for name in ("a100-80gb", "a100-40gb", "rtx4090", "rtx3090"):
            write(folder, device(name, scaled(h100)))
        write(folder, device("v100", v100(bin_dir, data, h100, work)))


if __name__ == "__main__":
    main()
