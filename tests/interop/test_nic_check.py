"""`make nic-check`: out/bench/nic.json has a row for each gate N1 to N21, and a row that is not measured says so."""

import importlib.util
import json
import os
import subprocess

import pytest

from switches import ROOT

SCRIPT = ROOT / "scripts/nic-check.py"
GATES = {f"N{number}" for number in range(1, 22)}


@pytest.fixture(scope="module")
def check():
    spec = importlib.util.spec_from_file_location("nic_check", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_gate_has_a_row_and_without_a_run_it_says_that_it_is_not_measured(tmp_path):
    subprocess.run([SCRIPT, "none"], env=os.environ | {"NIC_ROWS": str(tmp_path)}, check=True, timeout=60, capture_output=True)
    rows = json.loads((tmp_path / "nic.json").read_text())
    assert [row["case"] for row in rows] == sorted(GATES, key=lambda gate: int(gate[1:]))
    for row in rows:
        assert row["met"] is None and row["gate"], row
        assert row["reached"].startswith(("not measured", "not built")), row


def test_rows_of_a_step_replace_those_of_its_last_run_and_leave_others(tmp_path):
    kept = {"case": "N1 RTL against model, ten", "gate": "0 differences", "reached": "measured: 0", "met": True, "step": "rtl"}
    (tmp_path / "nic.json").write_text(json.dumps([kept, {"case": "N4", "gate": "", "reached": "not measured", "met": None}]))
    subprocess.run([SCRIPT, "none"], env=os.environ | {"NIC_ROWS": str(tmp_path)}, check=True, timeout=60, capture_output=True)
    rows = json.loads((tmp_path / "nic.json").read_text())
    assert rows[0] == kept and len(rows) == len(GATES)


def test_figures_are_judged_by_their_gates_and_parts_are_never_met(check):
    text = "test x ... N15: [0.911, 0.906] of an oracle\n.N6: 12000 flow_mods a second with offload, 12500 without: 0.96, 0 operations\n"
    assert check.figures(text) == {
        "N15": ["[0.911, 0.906] of an oracle"],
        "N6": ["12000 flow_mods a second with offload, 12500 without: 0.96, 0 operations"],
    }
    judged = [check.verdict("N6", f"{rate} flow_mods a second with offload, 1 without: {ratio}, 0", True) for rate, ratio in [(12000, 0.96), (9000, 0.96), (12000, 0.9)]]
    assert judged == [True, False, False]
    assert [check.verdict("N17", f"50 kills: 0 wrong, back in {seconds} s", True) for seconds in (0.4, 1.2)] == [True, False]
    assert (check.verdict("N16", "", True), check.verdict("N16", "", False)) == (None, False)
    assert {gate for steps in check.STEPS.values() for _, _, gates in steps for gate in gates} <= set(check.GATES)
