"""`millrace bench exchange` in short: the whole runs, its gates hold, and its report has the plots. Needs root."""

import json
import os
import subprocess

import pytest

from switches import ROOT, TARGET

pytestmark = [
    pytest.mark.measures,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]
# Times and rates of a busy machine have no bound here.
HELD = ["frames at a wrong tenant", "frames lost otherwise",
        "frames of circuits that nobody changed, twice or out of order", "switches that ended",
        "ends of the engine that nobody ordered", "answers 5xx", "changes rolled back", "audit chain intact"]


def test_the_bench_runs_the_soak_judges_it_and_draws_it(tmp_path):
    out = tmp_path / "out"
    command = [TARGET / "millrace-bench", "bench", "exchange", "--seconds", "8", "--rate", "4", "--changes", "5", "--tenants", "16",
               "--sources", ROOT, "--out", out]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["case"].split(" ", 1)[1]: row for row in json.loads((out / "exchange.json").read_text())}
    assert all(row["reached"] is not None for row in rows.values()), done.stdout
    assert all(rows[name]["met"] for name in HELD), done.stdout
    for name in ("frames of circuits that nobody changed", "changes accepted a second", "filters that came or went",
                 "kills of the engine", "cuts of a trunk"):
        assert rows[name]["reached"] > 0, f"{name}: {done.stdout}"
    assert not any("memory" in name for name in rows), "memory is not judged in seconds"
    records = [json.loads(line) for line in (out / "exchange.jsonl").read_text().splitlines()]
    samples = [record for record in records if record.get("kind") == "sample"]
    assert len(samples) > 3 and samples[-1]["engine_mb"] and all(samples[-1]["switches_mb"]), samples
    subprocess.run([TARGET / "millrace-bench", "report", out], check=True, capture_output=True, timeout=120)
    page = (out / "report.html").read_text()
    assert "An exchange for a week (E11)" in page and "Resident memory" in page
