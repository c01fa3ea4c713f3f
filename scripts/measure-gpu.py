#!/usr/bin/env python3
"""Everything that is to be measured on a GPU, in parts that take ten minutes at most, with a log of each.

    measure-gpu.py BUILD LOGS [PART...]

Parts, in the order in which they are run: check (check-gpu.sh), training (GPT-2 beside PyTorch, compiled as a
whole), blocks (the same, compiled block by block), families, prediction, every, large, attention, convolution,
epilogues and profile (bench-gpu.py), start (how long a model takes to its second step, by phase, and a
checkpoint), images (a ResNet-50 on images from a file, beside its prediction), seeing (what --timing and --trace
cost, and what they show), real (real-run.py). doc/gpu.md says which part prints which figure. What a part prints
is in LOGS/PART.log, and what bench-gpu.py measures in BUILD/bench-gpu.jsonl as well; a part that fails leaves
the others. With WEFT_GPU (pack-gpu.sh) weft's programs are run with the libraries of its folder. By the
environment: TEXT, a file for the real run (the sources of Python's library), SECONDS_OF=600 of it, START, models
to start ("gpt:1.3B"), and ON=cpu, which tries what needs no GPU at tiny sizes.
"""
import contextlib
import glob
import io
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
bench = __import__("bench-gpu")
CPU = bench.DEVICE == "cpu"
SMALL = "layers=1,hidden=32,heads=2,seq=32,vocab=256"


def weft(build, name, *args):
    """What a program of weft printed, on both streams, and how it ended."""
    return bench.run([f"{build}/bin/{name}", *args])


def plan_file(folder, preset, sizes, batch, dtype="bf16"):
    plan = dict(bench.plan_of(preset, {}, batch, batch, dtype), set=sizes)
    path = f"{folder}/plan.json"
    with open(path, "w", encoding="ascii") as f:
        json.dump(plan, f)
    return path


def steps_of(out):
    """The steps that were printed, or SystemExit with the reason."""
    if out.returncode:
        raise SystemExit(bench.why(out))
    return [x for x in map(json.loads, out.stdout.splitlines()) if "loss" in x]


# ---- parts that are neither tests nor beside PyTorch ---------------------------------------------

def start(build):
    """From the command to the second step; what -v says of the phases; a checkpoint, written and read."""
    for model in os.environ.get("START", "gpt:nano" if CPU else "gpt:1.3B").split():
        with tempfile.TemporaryDirectory() as folder:
            path, kept = plan_file(folder, model, SMALL if CPU else "", 8), f"{folder}/kept"
            begin = time.monotonic()
            steps_of(weft(build, "weft-run", "-q", "--device", bench.DEVICE, "-n", "2", path))
            print(f"{model}: {time.monotonic() - begin:.1f} s from the command to its end behind the second step")
            for steps, args in (2, ()), (3, ("--resume", kept)):
                out = weft(build, "weft-run", "-v", "--device", bench.DEVICE, "-n", str(steps), "--save", kept, *args,
                           path)
                steps_of(out)
                print(*re.findall(r".* took [0-9.]+ s.*", out.stderr), sep="\n")


def images(build):
    """Steps on images from a file, of which the host reads each anew, beside their prediction."""
    preset, sizes, batch, side = ("wide-resnet:nano", "image=16", 4, 16) if CPU else (
        "wide-resnet:250M", "group=64,base=64,width=1", 64, 224)
    count = 8 * batch
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/images.idx", "wb") as f:
            f.write(b"\0\0\x08\x04" + struct.pack(">4I", count, side, side, 3))
            for _ in range(count):
                f.write(os.urandom(3 * side * side))
        with open(f"{folder}/labels.idx", "wb") as f:
            f.write(b"\0\0\x08\x01" + struct.pack(">I", count) + bytes(i % 10 for i in range(count)))
        path, db = plan_file(folder, preset, sizes, batch), f"{folder}/p.db"
        out = weft(build, "weft-profile-op", "-q", "--plan", path, "--device", bench.DEVICE, "--time", "20ms", "-p", db)
        said = weft(build, "weft-predict", "-p", db, path) if not out.returncode else out
        for name, data in ("synthetic", "synthetic"), ("from a file", f"{folder}/images.idx,{folder}/labels.idx"):
            steps = steps_of(weft(build, "weft-run", "-q", "--device", bench.DEVICE, "-n", "20", "--profile", db,
                                  "--data", data, path))[3:]
            ms, host = (bench.median([x.get(key, 0) for x in steps]) for key in ("step_ms", "host_ms"))
            told = 1e-3 * json.loads(said.stdout)["time_us"] if not said.returncode else float("nan")
            print(f"{preset} {sizes}, {batch} images of {side} x {side}, {name}: {told:.1f} ms "
                  f"predicted, {ms:.1f} measured ({100 * (told / ms - 1):+.1f} %), host {host:.1f} ms")


def seeing(build):
    """What watching costs: the mean of steps of which one in eight is watched; and where the time goes."""
    preset, sizes, batch = ("gpt:nano", SMALL, 4) if CPU else ("gpt:gpt2", "vocab=50304", 16)
    with tempfile.TemporaryDirectory() as folder:
        path, means = plan_file(folder, preset, sizes, batch), {}
        for args in (), ("--timing",), ("--trace", f"{folder}/trace.json"):
            out = weft(build, "weft-run", "-q", "--device", bench.DEVICE, "-n", "35", *args, path)
            times = [x["step_ms"] for x in steps_of(out)[3:]]
            means[args[0] if args else "plain"] = sum(times) / len(times)
            if args == ("--timing",):
                print(out.stderr.strip())
        for how, ms in means.items():
            print(f"{how:9} {ms:8.2f} ms a step, {100 * (ms / means['plain'] - 1):+.1f} %")
        with open(f"{folder}/trace.json", encoding="utf-8") as f:
            print(f"the trace has {len(json.load(f)['traceEvents'])} events")


OWN = {"start": start, "images": images, "seeing": seeing}


# ---- the others ----------------------------------------------------------------------------------

def text_file(folder):
    """Python's own library, as one text."""
    path = f"{folder}/text"
    with open(path, "wb") as out:
        for name in sorted(glob.glob(os.path.join(os.path.dirname(os.__file__), "**/*.py"), recursive=True)):
            if "site-packages" not in name:
                with open(name, "rb") as f:
                    out.write(f.read())
    return path


def command_of(part, build, folder):
    """The command of a part, and what its environment has besides."""
    script = os.path.join(HERE, "bench-gpu.py")
    if part == "check":
        return ["bash", os.path.join(HERE, "check-gpu.sh"), build], {"BUDGET": "240"}
    if part == "real":
        text = os.environ.get("TEXT") or text_file(folder)
        return [sys.executable, os.path.join(HERE, "real-run.py"), build, text,
                os.environ.get("SECONDS_OF", "600")], {}
    if part in ("training", "blocks"):
        return [sys.executable, script, build, "training"], {"BUDGET": "480", "COMPILE": "model" if part == "training"
                                                             else "blocks"}
    return [sys.executable, script, build, part], {"BUDGET": "480"}


PARTS = ["check", "training", "blocks", "families", "prediction", "every", "large", "attention", "convolution",
         "epilogues", "profile", "start", "images", "seeing", "real"]


def own_part(part, build, log):
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            OWN[part](build)
        status = 0
    except (SystemExit, OSError, ValueError, KeyError) as e:
        status = 1
        print(f"{part}: {e}", file=said)
    log.write(said.getvalue())
    return status


def run_part(part, build, logs):
    begin = time.monotonic()
    bench.END = begin + 480  # of own parts
    path = os.path.join(logs, f"{part}.log")
    with tempfile.TemporaryDirectory() as folder, open(path, "w", encoding="utf-8") as log:
        if part in OWN:
            status = own_part(part, build, log)
        else:
            command, more = command_of(part, build, folder)
            # A packed folder's programs have its libraries; tests are started by it, PyTorch has its own.
            if part == "check" and "WEFT_GPU" in os.environ:
                command = [os.environ["WEFT_GPU"], "check"]
            status = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False,
                                    env=dict(os.environ, **more)).returncode
    with open(path, encoding="utf-8") as f:
        lines = f.read().splitlines()
    print(f"==== {part}: status {status}, {time.monotonic() - begin:.0f} s, {path}")
    print(*[x for x in lines if not x.startswith("ok ")][-40:], sep="\n", flush=True)
    return status


def main():
    build, logs, *parts = sys.argv[1:]
    unknown = [x for x in parts if x not in PARTS]
    if unknown:
        print(f"measure-gpu: no part {' '.join(unknown)}; there are {' '.join(PARTS)}", file=sys.stderr)
        return 2
    os.makedirs(logs, exist_ok=True)
    bad = [part for part in parts or PARTS if run_part(part, os.path.abspath(build), logs)]
    print("# failed:", *(bad or ["none"]))
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
