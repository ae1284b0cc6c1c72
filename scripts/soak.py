#!/usr/bin/env python3
"""Runs the main job for hours, lets its brokers fail now and then, and watches what they use: memory, open files and disk must stay flat.

    scripts/soak.py WHIMBREL [--hours H] [--kill-every DURATION|never] [--out DIR] [--demo-args "..."]

Samples every broker process of the job. A broker that is killed is started again as another process, which has less than the one before had in the end: so memory and files
are judged for each process by itself, and disk for each broker, as its data directory stays. The median of the last quarter may exceed that of the quarter after the warm-up
(which is the first quarter, and ten minutes at least) by a tenth and a fixed allowance at most. Processes that did not live for long enough, 20 minutes, are not judged; of each
broker one has to be. Writes into DIR

    soak.json   the verdict, all samples, and what the job has found
    soak.svg    memory, files and disk over time
    job.log     what the job said meanwhile

Ends with status 1, and says what grew, if something does, or if the job itself finds a broken promise.
"""

import argparse
import datetime
import html
import json
import math
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
# How long it takes at least until caches are full, in seconds: under the load of the job without other arguments memory grows for seven minutes.
WARM_UP = 600
# What may come on top of a tenth: an allocator's arenas, a few connections, a segment of the journal.
ALLOWANCE = {"memory_kib": 8192, "files": 16, "disk_kib": 65536}
# What begins anew with a process; the rest goes on with the broker.
OF_PROCESS = ("memory_kib", "files")
OF_BROKER = ("disk_kib",)
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
# What is drawn: measure, title, and by what it is divided.
PANELS = (("memory_kib", "resident memory, MiB", 1024), ("files", "open files", 1), ("disk_kib", "data directory, MiB", 1024))


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


def end_at_once(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def grown(samples, measures):
    """What grew: measure, from, to. `None`: there are too few samples to say."""
    quarter = len(samples) // 4
    warm = [row for row in samples[quarter:] if row["at_s"] - samples[0]["at_s"] >= WARM_UP]
    if quarter < LEAST or len(warm) < 2 * quarter:
        return None
    early, late = warm[:quarter], warm[-quarter:]
    found = []
    for measure in measures:
        before, after = (statistics.median(one[measure] for one in part) for part in (early, late))
        if after > before * 1.1 + ALLOWANCE[measure]:
            found.append((measure, before, after))
    return found


def watch(job, end, every):
    """Samples until the time is over, the job has ended, or somebody interrupts it: of each broker its processes, one after the other, each with its samples."""
    seen = {}
    began = time.monotonic()
    try:
        while time.monotonic() < end and job.poll() is None:
            for name, pid, data in brokers(job.pid):
                try:
                    row = {"at_s": round(time.monotonic() - began, 1), **sample(pid, data)}
                except (OSError, StopIteration):
                    continue
                processes = seen.setdefault(name, [])
                if not processes or processes[-1]["pid"] != pid:
                    processes.append({"pid": pid, "samples": []})
                processes[-1]["samples"].append(row)
            if sys.stderr.isatty():
                passed = time.monotonic() - began
                now = "  ".join(f"{name}: {processes[-1]['samples'][-1]['memory_kib'] // 1024} MiB" for name, processes in seen.items())
                print(f"\r{passed / 60:6.1f} min  {now}", end="", file=sys.stderr)
            time.sleep(every)
    except KeyboardInterrupt:
        # The job is interrupted by the same key, and ends in good order. What was seen until then is judged.
        print("interrupted", file=sys.stderr)
    return seen


def judge(seen):
    """Says of each process, and of each broker, what it used, and gives what is wrong."""
    wrong = []
    for name, processes in seen.items():
        is_judged = False
        for number, process in enumerate(processes, 1):
            which = name if len(processes) == 1 else f"{name}, process {number} of {len(processes)}"
            rows = process["samples"]
            found = grown(rows, OF_PROCESS)
            process["judged"] = found is not None
            if found is None:
                minutes = (rows[-1]["at_s"] - rows[0]["at_s"]) / 60
                print(f"{which}: {len(rows)} samples in {minutes:.1f} min, too few to be judged")
                continue
            is_judged = True
            first, last = ({measure: row[measure] for measure in ALLOWANCE} for row in (rows[len(rows) // 4], rows[-1]))
            print(f"{which}: {len(rows)} samples; after a quarter {json.dumps(first)}, at the end {json.dumps(last)}")
            wrong += [f"{which}: {measure} grew from {before:.0f} to {after:.0f}" for measure, before, after in found]
        if not is_judged:
            wrong.append(f"{name}: too few samples of each of its processes; let it run longer, or kill less often")
        of_all = grown([row for process in processes for row in process["samples"]], OF_BROKER)
        wrong += [f"{name}: {measure} grew from {before:.0f} to {after:.0f}" for measure, before, after in of_all or []]
    return wrong


def ticks(most):
    """Round numbers from 0 to at least this one, some five of them."""
    rough = max(most, 1e-9) / 5
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [step * number for number in range(math.ceil(most / step) + 1)] if most > 0 else [0, 1]


def text(x, y, what, anchor="start", colour="#333"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{html.escape(what)}</text>'


def line(one, other, style):
    return f'<line x1="{one[0]:.1f}" y1="{one[1]:.1f}" x2="{other[0]:.1f}" y2="{other[1]:.1f}" {style}/>'


def panel(seen, measure, title, unit, top, seconds):
    """One measure over time, a curve for each process; a dotted line where a broker was started again."""
    left, width, height = 70, 800, 160
    most = max(row[measure] for processes in seen.values() for process in processes for row in process["samples"]) / unit
    over = ticks(most)
    in_hours = seconds >= 7200
    span = seconds / (3600 if in_hours else 60)
    x = lambda at_s: left + width * at_s / seconds
    y = lambda value: top + height * (1 - value / over[-1])
    parts = [text(left, top - 8, title)]
    for value in over:
        parts += [line((left, y(value)), (left + width, y(value)), 'stroke="#ddd"'), text(left - 6, y(value) + 4, f"{value:g}", "end")]
    for at in ticks(span):
        if at <= span:
            parts.append(text(left + width * at / span, top + height + 16, f"{at:g}{' h' if in_hours else ' min'}", "middle"))
    for (name, processes), colour in zip(seen.items(), COLOURS * (1 + len(seen) // len(COLOURS))):
        for number, process in enumerate(processes):
            rows = process["samples"]
            if number > 0:
                at = x(rows[0]["at_s"])
                parts.append(line((at, top), (at, top + height), f'stroke="{colour}" stroke-dasharray="2 4" stroke-opacity="0.6"'))
            points = " ".join(f"{x(row['at_s']):.1f},{y(row[measure] / unit):.1f}" for row in rows)
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"><title>{html.escape(name)}</title></polyline>')
    return parts


def chart(seen, title):
    """All measures, one below the other."""
    seconds = max(1.0, max(process["samples"][-1]["at_s"] for processes in seen.values() for process in processes))
    parts = [text(70, 22, title)]
    for number, (name, colour) in enumerate(zip(seen, COLOURS * (1 + len(seen) // len(COLOURS)))):
        parts.append(text(70 + 130 * number, 42, f"— {name}", colour=colour))
    for number, (measure, what, unit) in enumerate(PANELS):
        parts += panel(seen, measure, what, unit, 80 + 220 * number, seconds)
    parts.append(text(70, 80 + 220 * len(PANELS) - 8, "Dotted lines: a broker was started again after it had been killed."))
    size = f'width="900" height="{80 + 220 * len(PANELS) + 10}"'
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([begin, *parts, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("whimbrel")
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--kill-every", default="10m", help="how often a broker is killed, or a link cut, slow or lossy for seconds, on average, or never; a process has to live for 20 minutes to be judged")
    parser.add_argument("--out", type=Path, default=Path("soak-out"), help="where the report is written")
    parser.add_argument("--demo-args", default="")
    asked = parser.parse_args()
    seconds = asked.hours * 3600
    asked.out.mkdir(parents=True, exist_ok=True)
    command = [asked.whimbrel, "demo", "--json", "--kill-every", asked.kill_every, "--duration", f"{int(seconds)}s", *shlex.split(asked.demo_args)]
    began = datetime.datetime.now().astimezone()
    with open(asked.out / "job.log", "wb") as log:
        job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
    seen = watch(job, time.monotonic() + seconds, max(0.5, seconds / 1000))
    wrong = []
    try:
        said, _ = job.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        # What it has started would outlive it.
        left = children(job.pid)
        job.kill()
        for pid in left:
            end_at_once(pid)
        said, _ = job.communicate()
        wrong.append("the job did not end within five minutes after its time")
    if job.returncode != 0:
        wrong.append(f"the job ended with status {job.returncode}: a promise was broken, or it could not run; {asked.out / 'job.log'} says which")
    if not seen:
        wrong.append("no broker was seen: the job did not start one")
    wrong += judge(seen)
    try:
        summary = json.loads(said)
    except ValueError:
        summary = None
        wrong.append("the job printed no summary")
    for one in wrong:
        print(one)
    verdict = "not flat" if wrong else "flat"
    told = {"verdict": verdict, "wrong": wrong, "began": began.isoformat(timespec="seconds"), "command": command, "brokers": seen, "job": summary}
    (asked.out / "soak.json").write_text(json.dumps(told) + "\n")
    if seen:
        (asked.out / "soak.svg").write_text(chart(seen, f"{began:%Y-%m-%d %H:%M}, {asked.hours:g} h, kill every {asked.kill_every}: {verdict}"))
    print(f"report: {asked.out}")
    print(verdict)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
