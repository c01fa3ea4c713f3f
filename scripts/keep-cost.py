#!/usr/bin/env python3
"""What weft-keep costs a run in which nothing fails.

  scripts/keep-cost.py BIN [ROUNDS] [STEPS]     (make keep-cost)

A GPT is trained by two ranks in turns: by mpirun alone, under weft-keep without checkpoints in memory, and under
weft-keep with one every EVERY (20) steps. Each round gives a ratio of the median steps, with the supervisor over
without. A step with a checkpoint in memory is compared with the median of the steps around it: that is the stall, beside
the time that the same bytes take to be copied by as many processes at once. Nothing else should need the machine.
"""
import ctypes
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time

BIN = os.path.abspath(sys.argv[1])
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 15
STEPS = int(sys.argv[3]) if len(sys.argv) > 3 else 100
EVERY = int(os.environ.get("EVERY", "20"))
MODEL = os.environ.get("MODEL", "layers=4,hidden=256,heads=4,seq=64")
BATCH = int(os.environ.get("BATCH", "8"))
RANKS, WARM = 2, 5
KEEP = BIN + "/weft-keep"
PLAN = {"format": "weft-plan/1", "model": "gpt:nano", "batch": BATCH, "set": MODEL,
        "stages": [{"mesh": f"dp:{RANKS}", "layout": {"dp": "batch"}, "zero": 1}]}


def processor_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def steps_of(folder, words, *options):
    """Seconds from each line of metrics to the next, the first steps left out, and the share of a core that the
    process itself had, which only watches."""
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    run = [BIN + "/weft-run", "-q", "--threads", "1", "-n", str(STEPS + WARM + 1), *options, "plan.json"]
    p = subprocess.Popen([*words, *run], cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    begin, at, used = time.monotonic(), [], 0
    for line in p.stdout:
        m = json.loads(line)
        if "loss" in m:
            at.append(time.monotonic())
            used = processor_s(p.pid)
    if p.wait() != 0 or len(at) < STEPS:
        sys.exit(f"{' '.join(words[:1])}: ended with {p.returncode} behind {len(at)} steps")
    return [b - a for a, b in zip(at[WARM:], at[WARM + 1:])], used / (at[-1] - begin)


def copy(size, seconds):
    a, b = ctypes.create_string_buffer(size), ctypes.create_string_buffer(size)
    ctypes.memmove(a, b, size)
    begin, n = time.monotonic(), 0
    while time.monotonic() < begin + 0.3:
        ctypes.memmove(a, b, size)
        n += 1
    seconds.put((time.monotonic() - begin) / n)


def copy_s(size):
    """As long as the slowest of RANKS processes takes to copy so many bytes each, all at once."""
    seconds = multiprocessing.Queue()
    all_of = [multiprocessing.Process(target=copy, args=(size, seconds)) for _ in range(RANKS)]
    for p in all_of:
        p.start()
    took = [seconds.get() for _ in all_of]
    for p in all_of:
        p.join()
    return max(took)


def state_bytes(folder):
    """Of the fullest rank: what a checkpoint in memory holds of it."""
    text = subprocess.run([BIN + "/weft-predict", "--memory", "plan.json"], cwd=folder, stdout=subprocess.PIPE,
                          check=True).stdout
    of = json.loads(text)["stages"][0]["memory"]
    return of["parameters"] + of["optimizer"]


def main():
    ratios, cores, stalls, shares = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/plan.json", "w", encoding="ascii") as f:
            json.dump(PLAN, f)
        for i in range(ROUNDS):
            alone, _ = steps_of(folder, ["mpirun", "-n", str(RANKS)])
            kept, share = steps_of(folder, [KEEP, "--disk-only", "--"], "--save", f"a{i}", "--save-every", "0")
            saved, _ = steps_of(folder, [KEEP, "--"], "--save", f"b{i}", "--memory-every", str(EVERY))
            cores.append(share)
            ratios.append(statistics.median(kept) / statistics.median(alone))
            plain = statistics.median(saved)
            # The one behind the warm steps is WARM + 2.
            with_one = [s for k, s in enumerate(saved) if (k + WARM + 2) % EVERY == 0]
            stalls += [s - plain for s in with_one]
            shares.append(sum(s - plain for s in with_one) / sum(saved))
            print(f"round {i + 1}: {1e3 * statistics.median(alone):.1f} ms a step alone, "
                  f"{1e3 * statistics.median(kept):.1f} kept, {1e3 * plain:.1f} with memory", flush=True)
        size = state_bytes(folder)
    print(f"supervisor: {100 * statistics.median(ratios) - 100:+.2f} % of a step (median of {ROUNDS} pairs, "
          f"{100 * min(ratios) - 100:+.2f} to {100 * max(ratios) - 100:+.2f}); "
          f"itself it has {100 * statistics.median(cores):.2f} % of a core")
    print(f"checkpoint in memory: {1e3 * statistics.median(stalls):.1f} ms (median of {len(stalls)}, worst "
          f"{1e3 * max(stalls):.1f}); to copy its {size / 1e6:.1f} MB of a rank takes {1e3 * copy_s(size):.1f} ms")
    print(f"one every {EVERY} steps: {100 * statistics.median(shares):.2f} % of the time")


if __name__ == "__main__":
    main()
