"""os-ken's conformance suite: every case of match and action, and one of groups and meters of each kind, shortened."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
RUN = pathlib.Path(run.__file__)


def outcome(tmp_path, *arguments, bound):
    """The results of a run, and what it printed."""
    results = tmp_path / "results.jsonl"
    done = subprocess.run([sys.executable, RUN, "--out", results, *arguments],
                          capture_output=True, text=True, timeout=bound)
    assert results.exists(), done.stdout + done.stderr
    print(done.stdout)
    return [json.loads(line) for line in results.read_text().splitlines()], done.stdout


def test_every_case_of_match_and_action_passes(tmp_path):
    results, report = outcome(tmp_path, "match", "action", bound=120)
    assert len(results) == 940 and all(result["passed"] for result in results), report
