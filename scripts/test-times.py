#!/usr/bin/env python3
"""Prints the slowest tests and build units of the last `make test`, from target/test-times."""

import json
import pathlib
import re
import sys

TIMES = pathlib.Path(__file__).resolve().parents[1] / "target" / "test-times"
SHOWN = 20


def build_units(text):
    """Returns (seconds, name) of each build unit in the page that `cargo --timings` writes."""
    start = text.index("UNIT_DATA = ") + len("UNIT_DATA = ")
    units, _ = json.JSONDecoder().raw_decode(text, start)
    return [(unit["duration"], f'{unit["name"]} {unit["version"]}{unit["target"]}') for unit in units]


def rust_tests(text):
    """Returns (seconds, name) of each test, as `--report-time` prints them below the name of their program."""
    program, tests = "", []
    for line in text.splitlines():
        if running := re.match(r"\s*Running .*\(.*/(\w+)-[0-9a-f]+\)", line):
            package = re.search(r"Running (\S+)", line)[1]
            program = running[1] if running[1] != "it" else f"it ({package})"
        elif test := re.match(r"test (\S+).* \.\.\. .*<([0-9.]+)s>", line):
            tests.append((float(test[2]), f"{program} {test[1]}"))
    return tests


def python_tests(text):
    """Returns (seconds, name) of each test and fixture, as `--durations` prints them."""
    lines = re.findall(r"^([0-9.]+)s (call|setup|teardown) +(.+)$", text, re.MULTILINE)
    return [(float(seconds), f"{name} ({phase})" if phase != "call" else name) for seconds, phase, name in lines]


def show(title, timed):
    """Prints the slowest items, and the sum of all durations."""
    print(f"{title}: {len(timed)}, {sum(seconds for seconds, _ in timed):.0f} s together")
    for seconds, name in sorted(timed, reverse=True)[:SHOWN]:
        print(f"{seconds:8.1f} s  {name}")


def main():
    """Prints the times that exist, or an error if there are none."""
    read = [("build units of programs", "build.html", build_units), ("build units of tests", "build-tests.html", build_units),
            ("tests in Rust", "rust.log", rust_tests), ("tests in Python", "python.log", python_tests)]
    found = [(title, parse((TIMES / name).read_text())) for title, name, parse in read if (TIMES / name).exists()]
    if not found:
        sys.exit(f"test-times: {TIMES} has nothing: run `make test` first")
    for title, timed in found:
        show(title, timed)


if __name__ == "__main__":
    main()
