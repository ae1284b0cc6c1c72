#!/usr/bin/env python3
"""Runs test programs that cargo has built, one after another, and tells how long each took.

    scripts/run-tests.py quick untimed     those in which time is virtual, or plays no part
    scripts/run-tests.py quick timed       those that start brokers, and wait for them
    scripts/run-tests.py quick measured    those that measure what this machine can do, and need it for themselves
    scripts/run-tests.py quick engine      those of an engine, whose servers' program NATS_SERVER names; the others leave these out

The first argument is the profile. `cargo test` would run all of them in one go, and cannot choose by package without building much of it once more: which
features of a dependency are wanted depends on the packages that are chosen. What waits for real brokers leaves most of a machine idle, and what computes needs
all of it: side by side, the latter with less priority, they take two thirds of the time.
"""

import json
import os
import pathlib
import subprocess
import sys
import time

# Their tests start brokers, and know what is too late.
TIMED = {"whimbrel", "whimbrel-server", "whimbrel-client"}
# What they model depends on what a commit and an event cost here, as they find it: beside others those cost too much.
MEASURED = {"whimbrel tests/lab.rs"}
# What tests an engine is a part of a program, and starts servers of its own: two tests at a time.
ENGINE = {"whimbrel-engine tests/nats/main.rs": [], "whimbrel tests/it/main.rs": ["engine::"]}


def group(package, name):
    """To which of the three a test program belongs."""
    return "measured" if name in MEASURED else "timed" if package in TIMED else "untimed"


def programs(profile):
    """Each test program with its package, that one's directory, and a name; builds what is not built."""
    build = ["cargo", "test", "--locked", "--workspace", "--profile", profile, "--no-run", "--message-format=json-render-diagnostics"]
    told = subprocess.run(build, stdout=subprocess.PIPE, text=True, check=True).stdout
    for line in told.splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and message["executable"] and message["profile"]["test"]:
            place = pathlib.Path(message["manifest_path"]).parent
            source = pathlib.Path(message["target"]["src_path"]).relative_to(place)
            yield place.name, place, f"{place.name} {source}", message["executable"]


def main():
    profile, which = sys.argv[1:]
    chosen = [one for one in programs(profile) if (one[2] in ENGINE if which == "engine" else group(one[0], one[2]) == which)]
    environment = dict(os.environ)
    if which != "engine":
        environment.pop("NATS_SERVER", None)
    assert chosen, f"no test program is {which}"
    failed, took = [], []
    for _, place, name, program in sorted(chosen):
        print(f"\n     Running {name}", flush=True)
        began = time.monotonic()
        only = [*ENGINE[name], "--test-threads", "2"] if which == "engine" else []
        ended = subprocess.run([program, *only], cwd=place, env={**environment, "CARGO_MANIFEST_DIR": str(place)}).returncode
        took.append((time.monotonic() - began, name))
        if ended:
            failed.append(f"{name} (exit code {ended})")
    print("\nthose that took longest: " + ", ".join(f"{name} {seconds:.0f} s" for seconds, name in sorted(took, reverse=True)[:6]))
    if failed:
        print("failed: " + ", ".join(failed))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
