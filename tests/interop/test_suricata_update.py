"""The lines of docs/ips.md that update rules every night, run as they are written: with the real `suricata-update`, with a
source and without network.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from switches import TARGET, Millrace, run, wait_for

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "ips.md"
PROGRAM = pathlib.Path(sys.executable).with_name("suricata-update")

pytestmark = [
    pytest.mark.skipif(not PROGRAM.exists(), reason="suricata-update is not installed"),
    pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash"),
]


def lines_of(heading):
    """Returns the first block of shell lines below a heading of the page."""
    below = PAGE.read_text().split(f"### {heading}\n", 1)[1]
    return below.split("```sh\n", 1)[1].split("```", 1)[0]


def rules(count, words="abc"):
    """Returns a rule file."""
    rule = 'alert tcp any any -> any any (msg:"test {0}"; content:"{1}"; sid:{0}; rev:1;)\n'
    return "".join(rule.format(number, words) for number in range(1, count + 1))


class Operator:
    """A switch whose hop has the rule file of the page, in another folder, and the operator who updates it."""

    def __init__(self, folder):
        self.folder = folder
        self.file = folder / "rules" / "suricata.rules"
        self.file.parent.mkdir()
        self.file.write_text(rules(10))
        chain = f"""
[[bridge.chain]]
name = "edge"
number = 100
far = 101
[[bridge.chain.hop]]
name = "ips"
function = "ips"
settings = ["rules={self.file}", "flows=1024", "memory_mib=64"]
"""
        self.switch = Millrace(folder / "switch", extra=chain)

    def shared(self):
        """Returns the state of the hop's rules."""
        listed = json.loads(self.switch.cli("nf", "list", "--json"))
        return listed[0]["chains"][0]["hops"][0]["shared"]

    def update(self, *source):
        """Runs the lines of the page; returns the exit status and the output."""
        programs = self.folder / "programs"
        programs.mkdir(exist_ok=True)
        # The page names no data folder and no source: those are of the machine.
        data = self.folder / "data"
        extra = " ".join(["--data-dir", str(data), *source])
        for name, command in (("suricata-update", f'"{PROGRAM}" "$@" {extra}'), ("millrace", f'"{TARGET}/millrace" "$@"')):
            script = programs / name
            script.write_text(f"#!/bin/sh\nexec {command}\n")
            script.chmod(0o755)
        lines = lines_of("Update rules every night").replace("/etc/millrace", str(self.folder))
        environment = self.switch.environment | {"PATH": f"{programs}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-c", lines], capture_output=True, text=True, env=environment, timeout=120, check=False
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def operator(tmp_path):
    operator = Operator(tmp_path)
    with operator.switch:
        wait_for("the rules are loaded", lambda: operator.shared()["state"] == "loaded")
        yield operator


def test_the_lines_of_the_page_load_the_rules_of_a_source(operator, tmp_path):
    source = tmp_path / "source.rules"
    source.write_text(rules(12))
    status, output = operator.update("--url", f"file://{source}")
    assert status == 0, output
    assert operator.shared()["summary"].startswith("12 rules"), output


def test_without_network_the_lines_of_the_page_fail_and_the_rules_in_use_stay(operator):
    status, output = operator.update()
    assert status != 0, output
    assert "Failed to fetch" in output
    assert operator.file.read_text() == rules(10)
    assert operator.shared() | {"loads": 1} == operator.shared()
    assert operator.shared()["summary"].startswith("10 rules")


def test_a_source_without_rules_fails_at_the_check(operator, tmp_path):
    source = tmp_path / "source.rules"
    source.write_text("# nothing\n")
    status, output = operator.update("--url", f"file://{source}")
    assert status != 0, output
    assert operator.file.read_text() == rules(10)


@pytest.mark.parametrize("text", ["", rules(4)], ids=["no rules", "less than half"])
def test_a_reload_of_a_file_that_lost_its_rules_fails_and_the_hop_shows_it(operator, text):
    operator.file.write_text(text)
    done = subprocess.run(
        [TARGET / "millrace", "nf", "reload", "br0", "edge", "ips"],
        capture_output=True,
        text=True,
        env=operator.switch.environment,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "what was loaded before stays in use" in done.stderr
    assert operator.shared()["state"] == "failed"
    assert operator.shared()["summary"].startswith("10 rules")
    assert "edge/ips failed: 10 rules" in operator.switch.cli("nf", "list")


def test_a_switch_that_starts_without_rules_has_a_hop_that_is_down(tmp_path):
    operator = Operator(tmp_path)
    operator.file.write_text("")
    with operator.switch:
        wait_for("the load has failed", lambda: operator.shared()["state"] == "failed")
        assert operator.shared()["failure"].startswith("no rules in 1 file")


def test_the_real_program_writes_an_empty_file_without_network(tmp_path):
    """This is why the page has `--fail`, and the switch refuses a set without rules."""
    run(PROGRAM, "--suricata-version", "8.0.0", "--no-test", "--no-reload", "--data-dir", tmp_path, "--output", tmp_path / "out")
    assert (tmp_path / "out" / "suricata.rules").read_text() == ""
