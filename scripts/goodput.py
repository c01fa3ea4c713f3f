#!/usr/bin/env python3
"""Goodput of a run under weft-keep while ranks die, beside what weft-predict says of the same.

  scripts/goodput.py BIN [MINUTES] [SEED] [HOSTS]     (make goodput MINUTES=30)

A small GPT is trained by two ranks, or by one on each of HOSTS emulated hosts with copies in a peer's memory. Behind
every EVERY steps in the mean (60; exponential gaps drawn from the seed) a rank is killed with SIGKILL, in the middle of
a step. Goodput is the time of the steps that were not lost over the time from the first start to the end: the
journal's, and once more from the lines of metrics. weft-predict gets the mean time between failures, and what the run has
measured of a step, a checkpoint and a restart. Nothing else should need the machine meanwhile.
"""
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

BIN = os.path.abspath(sys.argv[1])
MINUTES = float(sys.argv[2]) if len(sys.argv) > 2 else 3
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 1
HOSTS = int(sys.argv[4]) if len(sys.argv) > 4 else 0
EVERY = float(os.environ.get("EVERY", "60"))
RANKS = HOSTS or 2
MODEL = os.environ.get("MODEL", "layers=4,hidden=128,heads=4,seq=128,dropout=0.1")
BATCH = int(os.environ.get("BATCH", "96"))
PLAN = {"format": "weft-plan/1", "model": "gpt:nano", "batch": BATCH, "set": MODEL,
        "cluster": {"format": "weft-cluster/1", "nodes": 1, "devices_per_node": RANKS, "device": "cpu-1t",
                    "flops": 118e9, "bandwidth": 15e9, "latency_us": 0.5,
                    "links": [{"level": "node", "bandwidth": 6e9, "latency_us": 5}]},
        "stages": [{"mesh": f"dp:{RANKS}", "layout": {"dp": "batch"}, "zero": 1}]}
RSH = '#!/bin/sh\nshift\nexec setsid sh -c "$*"\n'


def named(name, folder):
    """Processes of this name that work in this folder."""
    out = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm", encoding="ascii") as f:
                if f.read().strip() == name and os.readlink(f"/proc/{pid}/cwd") == folder:
                    out.append(int(pid))
        except OSError:
            pass
    return out


def start(folder):
    words, env = [BIN + "/weft-keep", "-v"], dict(
        os.environ, OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_ALLOW_RUN_AS_ROOT="1",
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    if HOSTS:
        with open(folder + "/rsh", "w", encoding="ascii") as f:
            f.write(RSH)
        os.chmod(folder + "/rsh", 0o755)
        # The daemons of one machine would write what they know of it to one place of its memory.
        env.update(OMPI_MCA_rtc_hwloc_vmhole="none", OMPI_MCA_plm_rsh_agent=folder + "/rsh",
                   OMPI_MCA_oob_tcp_if_include="lo",
                   OMPI_MCA_btl_tcp_if_include="lo")
        words += ["--peers", "1", "-H", ",".join(f"127.0.0.{2 + i}:1" for i in range(HOSTS))]
    words += ["--", BIN + "/weft-run", "-q", "--threads", "1", "-n", "1000000", "--save", "ck", "plan.json"]
    with open(folder + "/said", "w", encoding="utf-8") as said:
        return subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=said)


def follow(run, seen):
    for line in run.stdout:
        seen.append((time.monotonic(), json.loads(line)))


def strike(run, seen, rng, until, folder):
    """Kills a rank behind each gap until the time is over; returns how many."""
    kills, at = 0, rng.expovariate(1 / EVERY)
    while time.monotonic() < until and run.poll() is None:
        time.sleep(0.02)  # the ranks need the cores
        if len(seen) < at:
            continue
        done = len({m["step"] for _, m in list(seen)})
        ranks = named("weft-run", folder) if seen and done >= at else []
        if len(ranks) < RANKS:
            continue
        time.sleep(rng.random() * 1e-3 * seen[-1][1]["step_ms"])
        try:
            os.kill(rng.choice(ranks), signal.SIGKILL)
        except ProcessLookupError:
            continue
        kills, before = kills + 1, len(seen)
        print(f"kill {kills} behind step {seen[-1][1]['step']}", flush=True)
        at = done + rng.expovariate(1 / EVERY)
        while len(seen) == before and run.poll() is None:
            time.sleep(0.005)
    return kills


def number(text, pattern, default=0.0):
    found = re.search(pattern, text)
    return float(found.group(1)) if found else default


def predict(folder, step_s, report, kills, wall):
    """weft-predict's goodput for what was measured, over many runs as long as a hundred of this one."""
    checkpoint = number(report, r"a checkpoint takes ([0-9.]+) s")
    interval = number(report, r"one every ([0-9.]+) s is best", step_s)
    restart = max(0.0, number(report, r"next finished step ([0-9.]+) s") - step_s)
    # Scenarios have hours between failures. Goodput depends on ratios alone: a second stands for an hour.
    scenario = {"format": "weft-scenario/1", "seed": SEED, "hours": 100 * wall,
                "failures": {"mtbf_hours": RANKS * wall / max(kills, 1), "restart_s": 3600 * restart,
                             "checkpoint_s": 3600 * checkpoint, "every_s": 3600 * max(step_s, interval)}}
    with open(folder + "/scenario.json", "w", encoding="ascii") as f:
        json.dump(scenario, f)
    out = subprocess.run([BIN + "/weft-predict", "--scenario", "scenario.json", "plan.json"], cwd=folder,
                         stdout=subprocess.PIPE, check=True).stdout
    return json.loads(out)["scenario"]["runs"][0]


def main():
    rng, seen = random.Random(SEED), []
    with tempfile.TemporaryDirectory() as name:
        folder = os.path.realpath(name)
        with open(folder + "/plan.json", "w", encoding="ascii") as f:
            json.dump(PLAN, f)
        begin = time.monotonic()
        run = start(folder)
        reader = threading.Thread(target=follow, args=(run, seen))
        reader.start()
        kills = strike(run, seen, rng, begin + 60 * MINUTES, folder)
        run.terminate()
        status = run.wait()
        wall = time.monotonic() - begin
        reader.join()
        if not seen:
            with open(folder + "/said", encoding="utf-8") as f:
                sys.exit(f.read())
        report = subprocess.run([BIN + "/weft-keep", "--report", "-C", "ck"], cwd=folder, stdout=subprocess.PIPE,
                                text=True, check=True).stdout
        steps = {m["step"]: 1e-3 * m["step_ms"] for _, m in seen}
        step_s = sorted(steps.values())[len(steps) // 2]
        want = predict(folder, step_s, report, kills, wall)
    got = number(report, r"goodput ([0-9.]+) %")
    print(report, end="")
    print(f"status {status}, {kills} kills, {len(steps)} steps of {step_s:.3f} s (median) in {wall:.0f} s, "
          f"{len(seen) - len(steps)} done twice; by their lines goodput {100 * sum(steps.values()) / wall:.1f} %")
    print(f"predicted {100 * want['goodput']:.1f} % (by the formula {100 * want['expected']:.1f} %): "
          f"measured {got:.1f} %")
    return status != 5


if __name__ == "__main__":
    sys.exit(main())
