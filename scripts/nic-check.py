#!/usr/bin/env python3
"""Runs what the gates N1 to N21 need, and writes rows {case, gate, reached, met} to out/bench/nic.json: `make nic-check`.

    nic-check.py [STEP ...]   rtl, model, marks, rebinds, moves, drops, planner, switch, rte-flow, bench; `none` for rows only

Without a step: all. A gate of which no step ran has a row with `met` null and a `reached` that says so. Each `reached` begins
with the word that says where it comes from: measured, synthesised or modelled. `make bench-nic` runs the step `bench`
alone, with release programs; rows of other steps stay as the last run of them left them.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = Path(os.environ.get("NIC_ROWS", ROOT / "out/bench"))
ROWS = OUT / "nic.json"
RTL_ROWS = ROOT / "out/bench/nic-rtl.json"
LONG = {"MILLRACE_NIC_LONG": "1"}
PYTEST = [ROOT / "scripts/apart.sh", ROOT / "target/venv/bin/python", "-m", "pytest", "-q", "-s"]
CARGO = ["cargo", "test", "--locked", "--release"]

# Gate, its text, and why it has no figure if no step gave one.
GATES = {
    "N1": ("RTL against model, 10,000,000 frames: 0 differences", ""),
    "N2": ("model against FlowHash and FlowKey, 1,000,000 mutations; scapy oracle, 2,000 frames: 0 differences", ""),
    "N3": ("switch with marks beside a switch without: same packets, counters, events", ""),
    "N4": ("1,000,000 rebinds with a tag of 4 bits: 0 wrong", ""),
    "N5": ("each fault: 0 wrong at verify; found under trust", ""),
    "N6": ("10,000 flow_mods a second for 60 s: 0 operations by them, 0.95 of the rate without offload", ""),
    "N7": ("10,000 moves of buckets, 32 queues, stalls: 0 reordered, 0 lost, each within 20 ms", ""),
    "N8": ("RTL at wire rate, each frame size, worst headers: 0 drops by the core", ""),
    "N9": ("ten: 100 MHz, 70 % of cells, 85 % of EBR; forty: 40,000 LUT, 50,000 FF, 64 DSP, 128 URAM", ""),
    "N10": ("proofs: all unbounded, in 10 minutes", ""),
    "N11": ("one worker, ideal device, ratio to off: verify 1.05, trust 1.25", ""),
    "N12": ("mean of QinQ, MPLS, PBB, GRE, VXLAN: verify 1.15, trust 1.6", ""),
    "N13": ("auto 0.98 of off on all cases; a flood of new flows: under 100 operations a second", ""),
    "N14": ("MPLS and QinQ, two queues by dispatch against one: 1.5 on two free cores", ""),
    "N15": ("planner: 0.9 of an oracle 2 s after a change, 2,000 operations a second", ""),
    "N16": ("rte_flow through fake-flow on three DPDK releases: rule meant = rule parsed back, marks arrive, reasons", ""),
    "N17": ("device killed, hung, restarted under load, 100 times: 0 wrong, others lose 0, back in 1 s", ""),
    "N18": ("fuzzers, 10^8 runs: no crash; line coverage 98 %", ""),
    "N19": ("parity flips, 10^5: each a miss and counted, 0 wrong", ""),
    "N20": ("page of E10: modelled against measured: within 10 %", ""),
    "N21": ("drops by the device, 1,000 changes a second, 10,000,000 drops: 0 dropped after the change that ended its rule; exact counters", ""),
}

# Step: (environment, command, gates whose verdict is the exit status, with what `reached` says if no line does).
STEPS = {
    "model": [(LONG, [*CARGO, "-p", "millrace-nic-model"], {"N2": "the tests of millrace-nic-model, long form"})],
    "marks": [
        ({"MILLRACE_CASES": "20000"}, [*CARGO, "-p", "millrace-pipeline", "--test", "it", "marks::"], {"N3": "2,500 cases, without moves of buckets"}),
        ({}, [*CARGO, "-p", "millrace-nic"], {}),
    ],
    "rebinds": [(LONG, [*CARGO, "-p", "millrace-datapath", "--lib", "rebinds::", "--", "--nocapture"], {"N4": ""})],
    "moves": [(LONG, [*CARGO, "-p", "millrace-datapath", "--lib", "moves::", "--", "--nocapture"], {"N7": ""})],
    "drops": [(LONG, [*CARGO, "-p", "millrace-datapath", "--test", "it", "drops::", "--", "--nocapture"], {"N21": ""})],
    "planner": [
        (LONG, [*CARGO, "-p", "millrace-offload", "--", "--nocapture"], {"N15": "", "N13": "0 operations in a flood of new flows; the governor on all cases is not measured"}),
    ],
    "switch": [(LONG, [*PYTEST, "tests/interop/test_offload.py"], {"N5": "", "N6": "", "N17": ""})],
    "rte-flow": [({}, [*PYTEST, "tests/interop/test_rte_flow.py"], {"N16": "the DPDK release of this machine only"})],
}
# Gates of which a step measures a part: such a row is never met, whatever its part says.
PARTS = {"N3", "N13", "N16"}


def row(case, gate, reached, met):
    print(f"{'met' if met else 'not measured in full' if met is None else 'NOT MET'}: {case}: {reached} (gate: {gate})", flush=True)
    return {"case": case, "gate": gate, "reached": reached, "met": met}


def figures(text):
    """Returns the lines `N6: ...` that tests print, by gate."""
    found = {}
    for gate, figure in re.findall(r"(?:^|[\s.])(N\d+): (.*)$", text, re.MULTILINE):
        found.setdefault(gate, []).append(figure.strip())
    return found


def verdict(gate, figure, passed):
    """Returns whether a gate is met: what a figure must reach beyond the test's own bounds."""
    if passed is None or not passed:
        return passed
    if gate in PARTS:
        return None
    if gate == "N6":
        rate, ratio = re.match(r"(\d+) flow_mods a second with offload, .*: ([\d.]+),", figure).groups()
        return int(rate) >= 10_000 and float(ratio) >= 0.95
    if gate == "N7":
        return "; 0 took more than 20 ms" in figure
    if gate == "N21":
        changes, drops = re.match(r"\d+ changes, (\d+) a second, .*; (\d+) drops", figure).groups()
        return True if int(changes) >= 950 and int(drops) >= 10_000_000 else None
    if gate == "N17":
        return float(re.search(r"back in ([\d.]+) s", figure).group(1)) <= 1.0
    return True


def run_step(name):
    rows = []
    for environment, command, gates in STEPS[name]:
        print("+", *command, flush=True)
        done = subprocess.run([str(part) for part in command], cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)
        passed, found = done.returncode == 0, figures(done.stdout)
        if not passed:
            print(done.stdout[-4000:] + done.stderr[-4000:])
        for gate, text in gates.items():
            figure = "; ".join(found.get(gate, [])) or text
            if not passed:
                figure = f"failed: {' '.join(map(str, command))}"
            elif not figure:
                figure, passed = "not measured: the test printed no figure", None
            rows.append(row(gate, GATES[gate][0], f"measured: {figure}" if passed else figure, verdict(gate, figure, passed)))
    return rows


def rtl():
    subprocess.run([sys.executable, ROOT / "rtl/check.py"], cwd=ROOT)
    return json.loads(RTL_ROWS.read_text()) if RTL_ROWS.exists() else []


def bench(arguments):
    """Returns the rows of `millrace bench nic`, which measures or models, and says which."""
    folder = OUT / "nic-marks"
    command = [ROOT / "target/release/millrace", "bench", "nic", "--out", folder, *arguments]
    done = subprocess.run([str(part) for part in command], cwd=ROOT)
    file = folder / "nic.json"
    if done.returncode or not file.exists():
        return []
    rows = []
    for one in json.loads(file.read_text()):
        reached = one["reason"] or "not measured" if one["reached"] is None else f"{one['reached']:.4g} {one['unit']}".strip()
        words = f"{reached} ({one['asked']})" if one["asked"] else reached
        rows.append({"case": one["case"], "gate": one["gate"], "reached": words, "met": one["met"]})
    return rows


def gate_of(case):
    found = re.match(r"N\d+", case)
    return found.group() if found else None


def complete(rows):
    """Adds a row for each gate without one."""
    present = {gate_of(one["case"]) for one in rows}
    for gate, (text, reason) in GATES.items():
        if gate not in present:
            rows.append({"case": gate, "gate": text, "reached": reason or "not measured: no run of its step is recorded", "met": None})
    return sorted(rows, key=lambda one: int((gate_of(one["case"]) or "N99")[1:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ["rtl", *STEPS, "bench"]
    parser.add_argument("steps", nargs="*", choices=[*names, "none", []], metavar="STEP")
    parser.add_argument("--bench", default="--quick --governed 60", help="options of `millrace bench nic` (--quick --governed 60)")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    kept = [(one["step"], one) for one in (json.loads(ROWS.read_text()) if ROWS.exists() else []) if "step" in one]
    for step in options.steps or names:
        if step == "none":
            continue
        if step == "rtl":
            new = rtl()
        elif step == "bench":
            new = bench(options.bench.split())
        else:
            new = run_step(step)
        kept = [(name, one) for name, one in kept if name != step] + [(step, {**one, "step": step}) for one in new]
    rows = complete([one for _, one in kept])
    ROWS.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    unmet = [one["case"] for one in rows if one["met"] is False]
    print(f"{ROWS}: {len(rows)} rows; not met: {', '.join(unmet) or 'none'}")
    sys.exit(1 if unmet and options.steps != ["none"] else 0)


if __name__ == "__main__":
    main()
