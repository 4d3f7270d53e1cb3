"""`scripts/deny.sh`, which `make lint` runs, where the database of advisories can be reached, is an old copy, or is not there.
A program in the place of cargo plays `cargo deny`.
"""

import os
import subprocess

import pytest

from switches import ROOT, run

CARGO = """#!/bin/sh
echo "$*" >> "$CARGO_HOME/calls"
case "$*" in
"deny fetch db") exit "$FETCH" ;;
*"check advisories") exit "$ADVISORIES" ;;
esac
"""


@pytest.fixture
def home(tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("cargo", "cargo-deny"):
        (programs / name).write_text(CARGO)
        (programs / name).chmod(0o755)
    return tmp_path


def deny(home, fetch=1, advisories=0, **variables):
    """Returns the exit status, the output, and the calls of cargo."""
    environment = os.environ | {"PATH": f"{home}/programs:{os.environ['PATH']}", "CARGO_HOME": str(home), "FETCH": str(fetch),
                                "ADVISORIES": str(advisories), "MILLRACE_ADVISORIES": ""} | variables
    done = subprocess.run([ROOT / "scripts" / "deny.sh"], env=environment, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr, (home / "calls").read_text().splitlines()


def copy_of_the_database(home):
    folder = home / "advisory-dbs" / "advisory-db-1a2b"
    folder.mkdir(parents=True)
    git = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@example.net"]
    run("git", "init", "-q", folder)
    run(*git, "commit", "-q", "--allow-empty", "-m", "advisories", "--date=2026-10-01T00:00:00Z",
        env=os.environ | {"GIT_COMMITTER_DATE": "2026-10-01T00:00:00Z"})


def test_the_database_of_today_decides_where_it_can_be_reached(home):
    status, output, calls = deny(home, fetch=0)
    assert (status, calls[0]) == (0, "deny check bans licenses sources")
    assert "of today" in output and calls[-1] == "deny check advisories"
    assert deny(home, fetch=0, advisories=1)[0] == 1


def test_a_copy_decides_where_there_is_no_network_and_is_called_old(home):
    copy_of_the_database(home)
    status, output, calls = deny(home)
    assert status == 0 and "OLD" in output and "2026-10-01" in output
    assert calls[-1] == "deny --offline check advisories"
    assert deny(home, advisories=1)[0] == 1
    assert deny(home, MILLRACE_ADVISORIES="required")[0] == 1


def test_without_network_and_copy_the_script_says_that_nothing_was_checked(home):
    status, output, calls = deny(home)
    assert status == 0 and "NOT CHECKED" in output
    assert not [call for call in calls if call.endswith("check advisories")]
    assert deny(home, MILLRACE_ADVISORIES="required")[0] == 1
