#!/usr/bin/env python3
"""Faults at random instants under weft-keep, and what they cost.

  scripts/repro-faults.py BIN [N] [SEED]     (make repro-faults N=500)

A small GPT is trained by two ranks, or by one on each of HOSTS=3 emulated hosts, each with its own agent, a copy of
its checkpoints in a peer's memory, and a remote shell that starts a session. N times, at an instant drawn from the seed,
a rank, mpirun or the supervisor is killed with SIGKILL, or (one in ten) a rank is stopped with SIGSTOP; "saving" and
"resuming" are kills of a rank that writes a checkpoint, or starts and reads one; of several hosts, "agent" is one of an
agent, whose loss interrupts nothing, and "host" of all processes of a host, whose memory is removed, too. Every event is
logged. Behind the last one the run is stopped by SIGTERM, and the same steps are done without faults. At the end stands
a table: from the fault to the next finished step, steps done twice, and whether each loss is that of the run that nobody
disturbed (of several hosts but for rounding, since a run goes on with fewer ranks where one is left out). FAULTS_HANG is
the least silence that is a hang (2s), FAULTS_KINDS the kinds to draw from.
"""
import glob
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

BIN = os.path.abspath(sys.argv[1])
N = int(sys.argv[2]) if len(sys.argv) > 2 else 20
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 1
HOSTS = int(os.environ.get("HOSTS", "0"))
KINDS = os.environ.get("FAULTS_KINDS", "rank,mpirun,supervisor,saving,resuming" +
                       (",agent,host" if HOSTS else "")).split(",")
PHASES = {"saving": [5, 7], "resuming": [1, 2]}  # enum beat_phase
HEADER = 32  # bytes, lib/keep/beat.c
HANG = os.environ.get("FAULTS_HANG", "2s")
PLAN = {
    "format": "weft-plan/1", "model": "gpt:nano", "batch": 12 if HOSTS else 8,
    "set": "layers=2,hidden=96,heads=4,seq=32,dropout=0.1",
    "stages": [{"mesh": f"dp:{HOSTS or 2}", "layout": {"dp": "batch"}, "zero": 1}],
}
RSH = '#!/bin/sh\nhost=$1\nshift\nexec setsid sh -c "echo \\$\\$ >>sessions.$host; $*"\n'
WORDS = ["-q", "--threads", "1", "--warmup", "10", "--decay-steps", "1000"]


class Run:
    """The supervisor, and the metrics that come out of it, with the time of each."""

    def __init__(self, folder):
        self.folder, self.seen = folder, []
        self.said = open(os.path.join(folder, "said"), "a", encoding="utf-8")
        self.start()

    def start(self):
        run = [BIN + "/weft-run", *WORDS, "-n", "1000000", "--save", "ck", "--memory-every", "1"]
        hosts = ["--peers", "1", "--retry", "1s", "-H", ",".join(f"{h}:1" for h in host_names())] if HOSTS else []
        self.p = subprocess.Popen([BIN + "/weft-keep", "--hang", HANG, *hosts, "--", *run, "plan.json"],
                                  cwd=self.folder, stdout=subprocess.PIPE, stderr=self.said)
        self.reader = threading.Thread(target=self.read, args=(self.p.stdout,))
        self.reader.start()

    def read(self, pipe):
        for line in pipe:
            self.seen.append((time.monotonic(), json.loads(line)))

    def children(self, pid):
        try:
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
                return [int(x) for x in f.read().split()]
        except OSError:
            return []

    def named(self, pids, name):
        out = []
        for pid in pids:
            try:
                with open(f"/proc/{pid}/comm", encoding="ascii") as f:
                    if f.read().strip() == name:
                        out.append(pid)
            except OSError:
                pass
        return out

    def victims(self, what):
        mpirun = self.named(self.children(self.p.pid), "mpirun")
        if what in PHASES:
            return self.in_phase(PHASES[what])
        if what == "supervisor":
            return [self.p.pid]
        if what == "mpirun":
            return mpirun
        if what == "agent":
            return [p for p in self.named(filter(str.isdigit, os.listdir("/proc")), "weft-keep") if self.is_agent(p)]
        if what == "host":
            return host_names()
        return self.in_phase(range(1, 100))

    def is_agent(self, pid):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                return b"--agent" in f.read() and os.readlink(f"/proc/{pid}/cwd") == self.folder
        except OSError:
            return False

    def memory(self):
        """The folder of this run in shared memory."""
        for path in glob.glob(f"/dev/shm/weft-keep-{os.getuid()}-*/beats"):
            with open(path, "rb") as f:
                data = f.read(HEADER)
            if len(data) == HEADER and struct.unpack_from("<q", data, 24)[0] == self.p.pid:
                return os.path.dirname(path)
        return None

    def in_phase(self, phases):
        """Ranks that are there now, by their beats in shared memory."""
        out = []
        for path in [self.memory() + "/beats"] if self.memory() else []:
            with open(path, "rb") as f:
                data = f.read()
            for at in range(HEADER, len(data), struct.unpack_from("<q", data, 8)[0]):
                pid, phase = struct.unpack_from("<qq", data, at)
                if pid and phase in phases and os.path.exists(f"/proc/{pid}"):
                    out.append(pid)
        return out

    def over(self):
        return self.p.poll() is not None


def host_names():
    return [f"127.0.0.{2 + i}" for i in range(HOSTS)]


def kill(run, what, victim):
    """False where it was gone before."""
    if what != "host":
        try:
            os.kill(int(victim), signal.SIGSTOP if what == "stop" else signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True
    memory = run.memory()
    with open(f"{run.folder}/sessions.{victim}", encoding="ascii") as f:
        subprocess.run(["pkill", "-KILL", "-s", ",".join(f.read().split())], check=False)
    if memory:
        shutil.rmtree(f"{memory}/host-{host_names().index(victim)}", ignore_errors=True)
    return True


def reference(folder, steps):
    run = [BIN + "/weft-run", *WORDS, "-n", str(steps), "plan.json"]
    out = subprocess.run(["mpirun", "-n", str(HOSTS or 2), *run], cwd=folder,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    return {m["step"]: m["loss"] for m in map(json.loads, out.splitlines())}


def strike(run, what, rng):
    """One fault; returns the time until the next step that was finished, or None at the end."""
    # Anywhere, the start of an attempt and the reading of its state included.
    time.sleep(0 if what == "resuming" else rng.uniform(0.05, 1.5))
    if what == "resuming":  # so something must have died first
        for pid in run.victims("rank")[:1]:
            os.kill(pid, signal.SIGKILL)
        time.sleep(rng.uniform(0.2, 0.7))
    until = time.monotonic() + 1
    while not run.over():
        # An attempt that was faster than this has no rank in that phase any more.
        pids = run.victims(what if time.monotonic() < until or what not in PHASES else "rank")
        if pids:
            break
        time.sleep(0.0005 if what in PHASES else 0.005)
    if run.over():
        return None
    pid, step = rng.choice(pids), run.seen[-1][1]["step"] if run.seen else 0
    before, at = len(run.seen), time.monotonic()
    if not kill(run, what, pid):
        return None
    killed = time.monotonic()
    if what == "supervisor":
        run.p.wait()
        run.reader.join()
        before = len(run.seen)
        run.start()
    # What the dead had printed before may still be in the pipe; ranks need longer than this to start.
    while not run.over():
        new = [t for t, _ in run.seen[before:] if t > killed + 0.15]
        if new:
            print(f"{what} {pid} at step {step}: next step after {new[0] - at:.2f} s", flush=True)
            return new[0] - at
        time.sleep(0.002)
    return None


def main():
    rng = random.Random(SEED)
    for name in ("OMPI_MCA_rmaps_base_oversubscribe", "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        os.environ.setdefault(name, "1")
    with tempfile.TemporaryDirectory() as name:
        folder = os.path.realpath(name)
        if HOSTS:
            with open(folder + "/rsh", "w", encoding="ascii") as f:
                f.write(RSH)
            os.chmod(folder + "/rsh", 0o755)
            # The daemons of one machine would write what they know of it to one place of its memory.
            os.environ.update(OMPI_MCA_rtc_hwloc_vmhole="none", OMPI_MCA_plm_rsh_agent=folder + "/rsh",
                              OMPI_MCA_oob_tcp_if_include="lo",
                              OMPI_MCA_btl_tcp_if_include="lo")
        with open(os.path.join(folder, "plan.json"), "w", encoding="utf-8") as f:
            json.dump(PLAN, f)
        print(f"seed {SEED}, {N} faults", flush=True)
        run, took = Run(folder), {}
        for i in range(N):
            what = "stop" if i % 10 == 9 else rng.choice(KINDS)
            seconds = strike(run, what, rng)
            if seconds is not None:
                took.setdefault(what, []).append(seconds)
            if run.over():
                break
        if not run.over():
            run.p.terminate()
        status = run.p.wait()
        run.reader.join()
        with open(folder + "/said", encoding="utf-8") as f:
            said = f.read()
        if not run.seen:
            sys.exit(said)
        if status != 5:
            print(*said.splitlines()[-8:], sep="\n")
        want = reference(folder, max(m["step"] for _, m in run.seen))
        got = [m for _, m in run.seen]
        report = subprocess.run([BIN + "/weft-keep", "--report", "-C", "ck"], cwd=folder,
                                stdout=subprocess.PIPE, text=True, check=True).stdout
    print(f"\n{'fault':<12}{'times':>6}{'median':>9}{'worst':>9}   from it to the next step, s")
    for what, seconds in sorted(took.items()):
        seconds.sort()
        print(f"{what:<12}{len(seconds):>6}{seconds[len(seconds) // 2]:>9.2f}{seconds[-1]:>9.2f}")
    exact = 1e-5 if HOSTS else 0
    wrong = [m["step"] for m in got if abs(m["loss"] - want[m["step"]]) > exact * want[m["step"]]]
    twice = len(got) - len({m["step"] for m in got})
    count = sum(map(len, took.values()))
    print(f"status {status}; steps missing: {len(set(want) - {m['step'] for m in got})}; "
          f"printed twice: {twice} in {count} faults; losses that differ: {len(wrong)}")
    print(report, end="")
    # A supervisor that dies with the last line in the pipe loses that line, not that step.
    return status != 5 or len(wrong) > 0 or (twice > count and not HOSTS)


if __name__ == "__main__":
    sys.exit(main())
