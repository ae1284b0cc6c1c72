#!/usr/bin/env python3
"""Runs the main job for hours and watches what its brokers use: memory, open files and disk must stay flat.

    scripts/soak.py WHIMBREL [--hours H] [--demo-args "..."]

Samples every broker process of the job. Of each of them the median of the last quarter may exceed that of the second quarter (the first is warm-up) by a tenth and
a fixed allowance at most. Ends with status 1, and says what grew, if one does, or if the job itself finds a broken promise.
"""

import argparse
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

# Samples per quarter at least; with fewer, medians say nothing.
LEAST = 8
# What may come on top of a tenth: an allocator's arenas, a few connections, a segment of the journal.
ALLOWANCE = {"memory_kib": 8192, "files": 16, "disk_kib": 65536}


def children(pid):
    """The processes that a process has started, and theirs."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            for child in task.read_text().split():
                found += [int(child)] + children(int(child))
        except OSError:
            continue
    return found


def arguments(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def value_of(words, flag):
    for at, word in enumerate(words):
        if word == flag and at + 1 < len(words):
            return words[at + 1]
        if word.startswith(flag + "="):
            return word.split("=", 1)[1]
    return None


def disk(directory):
    total = 0
    for place, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks
            except OSError:
                continue
    return total // 2


def sample(pid, data):
    status = Path(f"/proc/{pid}/status").read_text()
    memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
    files = len(os.listdir(f"/proc/{pid}/fd"))
    return {"memory_kib": memory, "files": files, "disk_kib": disk(data) if data else 0}


def brokers(job):
    """The broker processes of the job: what they are called, and where their data are."""
    for pid in children(job):
        words = arguments(pid)
        if "serve" in words:
            data = value_of(words, "--data")
            yield value_of(words, "--name") or data or str(pid), pid, data


def grown(samples):
    """What grew: measure, from, to."""
    quarter = len(samples) // 4
    if quarter < LEAST:
        return None
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]
    found = []
    for measure, allowance in ALLOWANCE.items():
        before, after = (statistics.median(one[measure] for one in part) for part in (early, late))
        if after > before * 1.1 + allowance:
            found.append((measure, before, after))
    return found


def watch(job, end, every):
    samples = {}
    began = time.monotonic()
    while time.monotonic() < end and job.poll() is None:
        for name, pid, data in brokers(job.pid):
            try:
                samples.setdefault(name, []).append(sample(pid, data))
            except (OSError, StopIteration):
                continue
        if sys.stderr.isatty():
            passed = time.monotonic() - began
            now = "  ".join(f"{name}: {rows[-1]['memory_kib'] // 1024} MiB" for name, rows in samples.items())
            print(f"\r{passed / 60:6.1f} min  {now}", end="", file=sys.stderr)
        time.sleep(every)
    return samples


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("whimbrel")
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--demo-args", default="")
    asked = parser.parse_args()
    seconds = asked.hours * 3600
    # Processes that are killed begin anew, and would hide what grows.
    command = [asked.whimbrel, "demo", "--json", "--kill-every", "never", "--duration", f"{int(seconds)}s"]
    job = subprocess.Popen(command + shlex.split(asked.demo_args), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    samples = watch(job, time.monotonic() + seconds, max(0.5, seconds / 1000))
    try:
        said, _ = job.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        job.send_signal(signal.SIGKILL)
        sys.exit("the job did not end within five minutes after its time")
    failed = job.returncode != 0
    if failed:
        print(f"the job ended with status {job.returncode}: a promise was broken, or it could not run")
    if not samples:
        sys.exit("no broker was seen: the job did not start one")
    for name, rows in samples.items():
        first, last = rows[len(rows) // 4], rows[-1]
        print(f"{name}: {len(rows)} samples; after a quarter {json.dumps(first)}, at the end {json.dumps(last)}")
        found = grown(rows)
        if found is None:
            sys.exit(f"{name}: too few samples; let it run longer")
        for measure, before, after in found:
            print(f"{name}: {measure} grew from {before:.0f} to {after:.0f}")
            failed = True
    try:
        json.loads(said)
    except ValueError:
        print("the job printed no summary")
        failed = True
    print("flat" if not failed else "not flat")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
