#!/usr/bin/env python3
"""Runs two builds of one criterion bench in turn and prints how much slower the second is.

    scripts/compare-benches.py BEFORE AFTER [--rounds N] [--limit PERCENT] [FILTER...]

BEFORE and AFTER are executables of `cargo bench --no-run`; copy the first before the change. Each round runs both, in
alternating order, with samples of about a millisecond, most of which no other work on the machine interrupts. The result is
the minimum time of all samples; the median is printed beside it. The exit status is 1 if the minimum time of a bench grew by
more than the limit.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile


def measure(program, filters):
    """Returns the nanoseconds of one iteration in each sample, by bench."""
    options = ["--bench", "--noplot", "--nresamples", "1001", "--warm-up-time", "0.2", "--measurement-time", "0.3", "--sample-size", "200"]
    times = {}
    for one in filters or [""]:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([program, *options, *filter(None, [one])], capture_output=True, check=True,
                           env=os.environ | {"CRITERION_HOME": folder})
            for file in pathlib.Path(folder).rglob("new/sample.json"):
                sample = json.loads(file.read_text())
                name = "/".join(file.relative_to(folder).parts[:-2])
                times[name] = [time / iters for time, iters in zip(sample["times"], sample["iters"])]
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--limit", type=float, default=3.0)
    parser.add_argument("filter", nargs="*")
    given = parser.parse_intermixed_args()
    times = {}
    for number in range(given.rounds):
        sides = [("before", given.before), ("after", given.after)]
        for side, program in sides if number % 2 == 0 else reversed(sides):
            for name, samples in measure(program, given.filter).items():
                times.setdefault(name, {"before": [], "after": []})[side].extend(samples)
    print(f"{'bench':<36} {'before ns':>10} {'after ns':>10} {'least':>8} {'median':>8}   of {given.rounds} rounds")
    too_slow = []
    for name, sides in times.items():
        before, after = min(sides["before"]), min(sides["after"])
        least = 100 * (after / before - 1)
        median = 100 * (statistics.median(sides["after"]) / statistics.median(sides["before"]) - 1)
        print(f"{name:<36} {before:>10.1f} {after:>10.1f} {least:>+7.1f}% {median:>+7.1f}%")
        if least > given.limit:
            too_slow.append(name)
    if too_slow:
        sys.exit(f"slower by more than {given.limit} %: {', '.join(too_slow)}")


if __name__ == "__main__":
    main()
