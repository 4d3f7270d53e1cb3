"""The log of the switch as entries of the journal: received by a socket that stands for journald, and by systemd-journald itself."""

import json
import os
import pathlib
import shutil
import socket
import subprocess

import pytest

from switches import Millrace, end, run, wait_for

JOURNALD = "/lib/systemd/systemd-journald"
PORT_ADDED = "93d4a7a867584efc8987d264a3135cd0"
APPLIED = "512721e9514a4bf5b9eae2a0bdb87f75"


def fields(entry):
    """Reads an entry as journald does (systemd.io, "Native Journal Protocol")."""
    found = {}
    while entry:
        head, _, entry = entry.partition(b"\n")
        name, equals, value = head.partition(b"=")
        if not equals:
            size = int.from_bytes(entry[:8], "little")
            value, entry = entry[8:8 + size], entry[8 + size + 1:]
        found[name.decode()] = value.decode()
    return found


class Sink:
    """A socket that stands for journald."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.entries = []

    def read(self):
        while True:
            try:
                self.entries.append(fields(self.socket.recv(1 << 20, socket.MSG_DONTWAIT)))
            except BlockingIOError:
                return self.entries

    def find(self, **wanted):
        return [entry for entry in self.read() if all(entry.get(name) == value for name, value in wanted.items())]


def logging_to(folder, place):
    switch = Millrace(folder, ports=[(1, "memory")])
    switch.command += ["--log-to", place]
    return switch


def test_each_event_is_an_entry_with_fields_and_a_message_id(tmp_path):
    sink = Sink(tmp_path / "journal")
    with logging_to(tmp_path / "switch", f"journal:{tmp_path}/journal") as switch:
        (added,) = wait_for("the port", lambda: sink.find(MESSAGE_ID=PORT_ADDED))
        assert (added["MILLRACE_BRIDGE"], added["MILLRACE_PORT"], added["MILLRACE_NUMBER"]) == ("br0", "p1", "1")
        assert added["MESSAGE"].startswith("port added bridge=br0 port=p1") and added["PRIORITY"] == "6"
        assert added["SYSLOG_IDENTIFIER"] == "millraced" and added["MILLRACE_TARGET"].startswith("millrace_agent")
        assert added["CODE_FILE"].endswith("ports.rs") and int(added["CODE_LINE"]) > 0
        switch.change(lambda config: config["bridge"][0]["port"].append({"name": "p2", "number": 2, "device": "kernel:nowhere0"}))
        (problem,) = wait_for("the problem", lambda: [entry for entry in sink.find(PRIORITY="4") if "nowhere0" in entry["MESSAGE"]][:1])
        assert problem["MILLRACE_OBJECT"] == "bridge br0, port p2" and "nowhere0" in problem["MILLRACE_REASON"]
        # One entry for each revision says who changed what.
        audit = wait_for("the revision", lambda: [entry for entry in sink.find(MESSAGE_ID=APPLIED) if entry["MILLRACE_CHANGES"]])[-1]
        assert audit["MILLRACE_ORIGIN"] == "local" and "port p2" in audit["MILLRACE_CHANGES"] and audit["MILLRACE_AUTHOR"]
        assert audit["MILLRACE_REVISION"] == problem["MILLRACE_REVISION"]
        assert switch.log.read_text() == "", "nothing is written twice"
    assert wait_for("the end", lambda: [entry for entry in sink.read() if entry["MESSAGE"] == "stopped"])


def test_a_journal_that_is_not_there_is_an_error_and_auto_means_lines_outside_of_a_service(tmp_path):
    switch = logging_to(tmp_path / "one", "journal:/nowhere/socket")
    done = subprocess.run(switch.command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "/nowhere/socket" in done.stderr and "expected the socket of systemd-journald" in done.stderr
    with logging_to(tmp_path / "two", "auto") as switch:
        wait_for("a line", lambda: "port added" in switch.log.read_text())


@pytest.mark.skipif(os.geteuid() != 0, reason="journald needs root")
@pytest.mark.skipif(not pathlib.Path(JOURNALD).exists() or not shutil.which("journalctl"), reason="systemd is missing")
@pytest.mark.skipif(os.path.exists("/run/systemd"), reason="a journal runs here: scripts/apart.sh gives an own /run")
def test_journalctl_finds_events_by_their_fields(tmp_path):
    pathlib.Path("/run/systemd/journal").mkdir(parents=True)
    pathlib.Path("/run/log/journal").mkdir(parents=True)
    journald = subprocess.Popen([JOURNALD], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        def shown(*matches):
            lines = run("journalctl", "-D", "/run/log/journal", "-o", "json", "--no-pager", "-q", *matches, check=False).splitlines()
            return [json.loads(line) for line in lines]

        def keeps_an_entry():
            """True if journald keeps what it gets; its socket is there before it listens, and after it ended."""
            try:
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                    sender.connect("/run/systemd/journal/socket")
                    sender.send(b"MESSAGE=ready\n")
            except OSError:
                return False
            return bool(shown("MESSAGE=ready"))

        wait_for("journald", lambda: keeps_an_entry() or journald.poll() is not None)
        if journald.poll() is not None:
            pytest.skip("systemd-journald does not run in this container")

        with logging_to(tmp_path, "journal"):
            (entry,) = wait_for("the entry", lambda: shown("MILLRACE_BRIDGE=br0", "MILLRACE_PORT=p1", f"MESSAGE_ID={PORT_ADDED}"))
        assert entry["MESSAGE"].startswith("port added bridge=br0 port=p1") and entry["_COMM"] == "millraced"
        assert shown("MILLRACE_BRIDGE=br9") == []
    finally:
        end(journald)
        shutil.rmtree("/run/systemd")
        shutil.rmtree("/run/log")
