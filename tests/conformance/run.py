"""Runs os-ken's conformance patterns against `millraced` and prints the score: `make conformance`.

    run.py [--out FILE] [--every N] [--bound SECONDS] [--seconds S] [--peer] [--device tap|kernel|af_packet] [PATTERN...]

A PATTERN is part of a path below os-ken's folder of patterns (`match`, `action/17`, `meter`); the default is all of them.
With `--out FILE` each result is appended to FILE at once, and cases that passed there are not run again: an interrupted run
is resumed, and failed cases are repeated, by the same command.
"""

import argparse
import collections
import json
import os
import pathlib
import sys
import tempfile

import testbed


def patterns():
    """Returns the folder with os-ken's patterns for OpenFlow 1.3."""
    import os_ken.tests

    return pathlib.Path(os_ken.tests.__file__).parent / "switch" / "of13"


def cases(wanted=()):
    """Returns every case as (file, index), in order, of the files whose path contains one of `wanted`."""
    chosen = []
    for path in sorted(patterns().rglob("*.json"), key=testbed.natural):
        name = str(path.relative_to(patterns()))
        if not wanted or any(part in name for part in wanted):
            tests = [entry for entry in json.loads(path.read_text()) if not isinstance(entry, str)]
            chosen += [(path, index) for index in range(len(tests))]
    return chosen


def plan_of(chosen):
    """Returns cases in the tester's format."""
    files = collections.OrderedDict()
    for path, index in chosen:
        files.setdefault(str(path), []).append(index)
    return list(files.items())


def group_of(result):
    """Returns the folder of a result: match, action, group or meter."""
    return pathlib.Path(result["file"]).relative_to(patterns()).parts[0]


def load(path):
    """Returns the newest result of each case in a file of an earlier run, by (file, index)."""
    lines = path.read_text().splitlines() if path and path.exists() else []
    return {(result["file"], result["index"]): result for result in map(json.loads, lines)}


def summary(chosen, results):
    """Prints the score and the failures, by pattern."""
    passed = sum(result["passed"] for result in results)
    lines = [f"OpenFlow 1.3 conformance (os-ken): {passed} of {len(chosen)}"]
    asked = collections.Counter(path.relative_to(patterns()).parts[0] for path, _ in chosen)
    by_group = collections.Counter(group_of(result) for result in results if result["passed"])
    lines += [f"  {group:<8}{by_group[group]:>5} of {asked[group]}" for group in sorted(asked)]
    failed = collections.OrderedDict()
    for result in results:
        if not result["passed"]:
            failed.setdefault(result["pattern"], []).append(result)
    for pattern, members in failed.items():
        lines.append(f"\n{pattern}: {len(members)} failed")
        lines += [f"  {member['case']}\n      {member['detail'][:400]}" for member in members]
    done = {(result["file"], result["index"]) for result in results}
    missing = [f"  {path.name} case {index}" for path, index in chosen if (str(path), index) not in done]
    if missing:
        lines += ["\nnot reached in time:"] + missing
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pattern", nargs="*")
    parser.add_argument("--out", type=pathlib.Path, help="results as JSON lines; cases that passed there are not run again")
    parser.add_argument("--every", type=int, default=1, help="only every N-th case")
    parser.add_argument("--bound", type=float, default=3600, help="seconds that it may take")
    parser.add_argument("--peer", action="store_true", help="Open vSwitch in the place of millraced")
    parser.add_argument("--device", choices=testbed.DEVICES, default="tap", help="how millraced is at its cables")
    parser.add_argument("--seconds", help="how long rates are measured (the patterns say 30)")
    asked = parser.parse_args()
    if asked.seconds:
        os.environ["CONFORMANCE_SECONDS"] = asked.seconds
    testbed.enter_namespace()
    chosen = cases(asked.pattern)[:: asked.every]
    before = load(asked.out)
    due = [(path, index) for path, index in chosen if not before.get((str(path), index), {}).get("passed")]
    if len(due) < len(chosen):
        print(f"{len(chosen) - len(due)} cases passed before; {len(due)} are run")

    def progress(result):
        print("." if result["passed"] else "F", end="", flush=True)
        if asked.out:
            with asked.out.open("a") as out:
                out.write(json.dumps(result) + "\n")

    if not due:
        print(summary(chosen, [before[str(path), index] for path, index in chosen]))
        return
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder, testbed.Testbed(folder, asked.peer, asked.device) as bed:
        new = bed.run_cases(plan_of(due), asked.bound, progress)
        if not new:
            print((pathlib.Path(folder) / "tester.log").read_text(), file=sys.stderr)
    known = before | {(result["file"], result["index"]): result for result in new}
    results = [known[str(path), index] for path, index in chosen if (str(path), index) in known]
    print("\n" + summary(chosen, results))
    sys.exit(sum(result["passed"] for result in results) != len(chosen))


if __name__ == "__main__":
    main()
