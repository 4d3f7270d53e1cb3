"""Every command of docs/from-open-vswitch.md, in the order of the page, on a running switch with real interfaces."""

import os
import pathlib
import re
import socket
import subprocess
import threading

import pytest

from namespaces import cables
from switches import ROOT, TARGET, Millrace

PAGE = ROOT / "docs" / "from-open-vswitch.md"
MANAGEMENT = "/run/millrace/br0.mgmt"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="interfaces need root")


def commands():
    """Returns the commands of the right columns of the tables, in order."""
    found = []
    for line in PAGE.read_text().splitlines():
        cells = line.strip().strip("|").split(" | ")
        if line.startswith("|") and len(cells) == 2:
            found += [span for span in re.findall(r"`([^`]+)`", cells[1]) if span.startswith(("millrace ", "ovs-ofctl "))]
    return found


@pytest.fixture(name="arp")
def arp_on_eth3():
    """Sends a broadcast on eth3 again and again, for captures."""
    frame = bytes.fromhex("ffffffffffff" + "020000000009" + "0806" + "0001080006040001" + "020000000009" + "00" * 40)
    ended = threading.Event()

    def send():
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
            sender.bind(("peer3", 0))
            while not ended.wait(0.05):
                sender.send(frame)

    with cables(("eth3", "peer3"), ("eth4", "peer4")):
        thread = threading.Thread(target=send)
        thread.start()
        yield
        ended.set()
        thread.join()


@pytest.mark.usefixtures("arp")
def test_every_command_of_the_page_does_what_it_promises(tmp_path):
    pathlib.Path(MANAGEMENT).parent.mkdir(parents=True, exist_ok=True)
    work = tmp_path / "work"
    work.mkdir()
    (work / "flows.txt").write_text("# two entries\npriority=1,arp,actions=flood\npriority=2,icmp,actions=drop\n")
    bond = '[[bridge.lag]]\nname = "bond0"\n[[bridge.lag.member]]\nname = "m1"\nnumber = 11\ndevice = "memory"\n'
    switch = Millrace(tmp_path / "switch", ports=[(1, "memory"), (2, "memory"), (5, "lag:bond0")],
                      listen=[f"punix:{MANAGEMENT}"], system="keep_flows = true", extra=bond)
    listed = commands()
    assert len(listed) > 70, "the page has lost its commands"
    with switch:
        environment = switch.environment | {"PATH": f"{TARGET}:{os.environ['PATH']}"}
        for command in listed:
            done = subprocess.run(["bash", "-c", command], cwd=work, env=environment, capture_output=True, text=True,
                                  timeout=60, check=False)
            # `doctor` reports what this machine lacks by its status.
            allowed = (0, 1) if command == "millrace doctor" else (0,)
            assert done.returncode in allowed, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
            if command.endswith("> switch.toml"):
                # The editor of the page.
                with (work / "switch.toml").open("a") as edited:
                    edited.write('[[bridge]]\nname = "br2"\n')


def test_the_page_names_every_command_of_the_command_line_that_an_operator_of_a_switch_needs():
    page = " ".join(commands())
    for command in ("bridge add", "bridge set", "bridge remove", "port add", "port set", "port remove", "controller add",
                    "controller remove", "flow add", "flow mod", "flow del", "flow save", "fdb flush", "trace", "capture",
                    "apply", "diff", "confirm", "rollback", "log", "doctor", "watch"):
        assert f"millrace {command}" in page, command
