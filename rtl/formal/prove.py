#!/usr/bin/env python3
"""Proves the properties of `formal/*.sv` with pyosys and abc (`pdr`, or induction over some cycles): without a bound in time.

    formal/prove.py [NAME ...]     proves all, or those named; prints one line each; exits with 1 if one fails
    formal/prove.py --json FILE    also writes the rows
    formal/prove.py --mutants      removes a guard at a time from the modules of two proofs: none may be proven

A proof reads its own file and the modules it names, in the strictest front end (`read_verilog -formal`). Memories are
shallow and words narrow; time is unbounded.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

RTL = Path(__file__).resolve().parent.parent
SECONDS_MAX = int(os.environ.get("NIC_PROOF_SECONDS", "600"))


@dataclass
class Proof:
    name: str
    properties: str
    modules: list[str]
    engine: str = "pdr"
    steps: int = 20
    defines: list[str] = field(default_factory=list)
    file: str = ""


PROOFS = [
    Proof("fifo_lut", "loses, doubles and swaps no word", ["mem", "fifo"], file="fifo"),
    Proof("fifo_block", "loses, doubles and swaps no word", ["mem", "fifo"], file="fifo", defines=["BLOCK"]),
    Proof("bucket_table", "a lookup sees one copy, the active one", ["mem", "bucket_table"]),
    Proof("queue_counter", "a count is between 0 and the maximum", ["mem", "queue_counter"]),
    Proof("ternary_table", "a hit is the lowest valid rule that matches", ["mem", "ternary_table"],
          engine="ind", steps=4, defines=["PROOF_WATCHED"]),
    Proof("exact_table", "a hit is a valid row with even parity, the port's form and the key; the lowest way",
          ["mem", "exact_table"], engine="ind", steps=22, defines=["PROOF_WITHOUT_BLOCKS"]),
    Proof("dispatcher", "one completion or one drop for each frame, in order, with its own beats; the reserve is kept",
          ["mem", "queue_counter", "dispatcher"], engine="ind", steps=4, defines=["PROOF_WITHOUT_CONTENTS", "PROOF_WITHOUT_BLOCKS"]),
    Proof("sequencer", "a table is written, and a fence is sent, only while a command is executed; rows have even parity",
          ["mem", "sequencer"], engine="ind", steps=4, defines=["PROOF_WITHOUT_CONTENTS", "PROOF_WITHOUT_BLOCKS"]),
    Proof("ingress", "heads, ends and beats of each frame that is not dropped; markers are between heads",
          ["mem", "fifo", "last_beat", "ingress"], engine="ind", steps=4, defines=["PROOF_WITHOUT_CONTENTS", "PROOF_WITHOUT_BLOCKS"]),
    Proof("order", "results leave the parser in the order of arrival, and none passes a command", ["mem", "fifo", "parser"],
          engine="ind", steps=4, defines=["PROOF_CONTENTS"]),
    Proof("order_wide", "the same, with five engines and beats of 512 bits", ["mem", "fifo", "parser"], file="order",
          engine="ind", steps=4, defines=["PROOF_CONTENTS", "WIDE"]),
    Proof("engine", "a walk takes at most 24 steps, and slots are given back once", ["mem", "parser_window", "ipv4_sum", "parser_fields", "parser_engine"],
          engine="ind", steps=4, defines=["PROOF_WITHOUT_CONTENTS", "PROOF_WITHOUT_BLOCKS"]),
]

# The proof, the file, an expression, and what it becomes.
MUTANTS = [
    ("ternary_table", "ternary_table.sv", "(matched[r])", "(matched[r] && r != 0)"),
    ("ternary_table", "ternary_table.sv", "if (matched[r]) lowest <= r", "if (matched[RULES - 1 - r]) lowest <= RULES - 1 - r"),
    ("ternary_table", "ternary_table.sv", "clear) valid <= valid & ~selected", "clear) valid <= valid"),
    ("ternary_table", "ternary_table.sv", "(write) begin\n            valid <= valid & ~selected", "(write) begin\n            valid <= valid"),
    ("ternary_table", "ternary_table.sv", "word_at == 4'd15", "word_at == 4'd14"),
    ("ternary_table", "ternary_table.sv", "i < FOURS; i = i + 1) all", "i < FOURS - 1; i = i + 1) all"),
    ("ternary_table", "ternary_table.sv", "& mask) == 0", "& mask & 4'd7) == 0"),
    ("ternary_table", "ternary_table.sv", "old | selected : old & ~selected", "selected : 0"),
    ("order", "parser.sv", "done_slots[order_slot] && end_valid", "|done && end_valid"),
    ("order", "parser.sv", "!order_command && done_slots", "done_slots"),
    ("order", "parser.sv", "!loading && any && !order_full", "!loading && !order_full"),
    ("order", "parser.sv", "!loading && any && !order_full", "!loading && any"),
    ("order", "parser.sv", "result_take && order_engine == e", "result_take && order_engine <= e"),
    ("order", "parser.sv", "if (idle[at[2:0]]) chosen", "if (!idle[at[2:0]]) chosen"),
    ("order", "parser.sv", "result_take || command_done;", "result_take;"),
]

SCRIPT = """
import sys
from pyosys import libyosys
design = libyosys.Design()
for line in sys.stdin.read().splitlines():
    libyosys.run_pass(line, design)
"""


SOURCES = Path(os.environ.get("NIC_SOURCES", RTL / "src"))


def sources(proof: Proof, folder: Path) -> list[str]:
    package = os.environ.get("NIC_PACKAGE", str(RTL / "pkg/millrace_nic_pkg.sv"))
    return [package, *(str(folder / f"{module}.sv") for module in proof.modules),
            str(RTL / "formal" / f"{proof.file or proof.name}.sv")]


def commands(proof: Proof, folder: Path, modules: Path = SOURCES) -> list[str]:
    defines = " ".join(f"-D{define}" for define in ["PROOF", *proof.defines])
    read = f"read_verilog -sv -formal {defines} {' '.join(sources(proof, modules))}"
    begin = [read, "hierarchy -check -top proof", "proc", "flatten", "opt -full", "async2sync", "chformal -lower"]
    return [*begin, "memory_map", "setundef -undriven -anyseq", "opt -full", "formalff -clk2ff -ff2anyinit", "delete -output",
            "opt -full", "techmap", "opt -fast", "setundef -anyseq", "aigmap", "opt_clean",
            f"write_aiger -I -B -zinit -no-startoffset {folder}/proof.aig"]


def run(command: list[str], text: str | None = None) -> subprocess.CompletedProcess:
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=SECONDS_MAX)


def mutant(name: str, file: str, old: str, new: str) -> dict:
    """Proves with one expression changed, which must fail."""
    proof = next(proof for proof in PROOFS if proof.name == name)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(SOURCES, folder, dirs_exist_ok=True)
        text = (Path(folder) / file).read_text()
        if text.count(old) != 1:
            sys.exit(f"mutant of `{name}`: {file} has `{old}` {text.count(old)} times, expected once")
        (Path(folder) / file).write_text(text.replace(old, new))
        told = prove(proof, Path(folder))
    found = told["reached"].startswith("NOT proven: abc")
    new, old = " ".join(new.split()), " ".join(old.split())
    return {"case": f"mutant of {name}: `{new}` for `{old}`", "gate": "not proven",
            "reached": f"{'found' if found else 'NOT found'}: {told['reached']}", "met": found}


def prove(proof: Proof, modules: Path = SOURCES) -> dict:
    begun = time.monotonic()
    row = {"case": f"proof {proof.name}", "gate": f"unbounded: {proof.properties}"}
    keep = os.environ.get("NIC_PROOFS_KEEP")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(keep) / proof.name if keep else Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            made = run([sys.executable, "-c", SCRIPT], "\n".join(commands(proof, folder, modules)))
            (folder / "yosys.log").write_text(made.stdout + made.stderr)
            if made.returncode:
                errors = [line for line in (made.stdout + made.stderr).splitlines() if "ERROR" in line]
                return {**row, "reached": f"does not compile: {errors[:1]}", "met": False}
            abc = shutil.which("yosys-abc") or "abc"
            engine = "pdr" if proof.engine == "pdr" else f"ind -F {proof.steps}"
            told = run([abc, "-c", f"read_aiger {folder}/proof.aig; fold; orpos; strash; {engine}"])
            is_proven = "Property proved" in told.stdout or "Networks are equivalent" in told.stdout
            how = "abc pdr" if proof.engine == "pdr" else f"abc, induction over at most {proof.steps} cycles"
            (folder / "engine.log").write_text(told.stdout + told.stderr)
        except subprocess.TimeoutExpired:
            is_proven, how = False, f"no answer in {SECONDS_MAX} s"
    seconds = time.monotonic() - begun
    return {**row, "reached": f"{'proven' if is_proven else 'NOT proven'}: {how}, {seconds:.1f} s", "met": is_proven}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--mutants", action="store_true")
    options = parser.parse_args()
    chosen = [proof for proof in PROOFS if not options.names or proof.name in options.names]
    unknown = set(options.names) - {proof.name for proof in PROOFS}
    if unknown:
        parser.error(f"no proof {', '.join(sorted(unknown))}; there are {', '.join(proof.name for proof in PROOFS)}")
    rows = []
    with ThreadPoolExecutor(2) as pool:
        results = pool.map(lambda one: mutant(*one), MUTANTS) if options.mutants else pool.map(prove, chosen)
        for row in results:
            print(f"{row['case']}: {row['reached']}", flush=True)
            rows.append(row)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(row["met"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
