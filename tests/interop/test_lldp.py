"""LLDP with lldpd and with Open vSwitch over a cable: each side knows the other, notices changes, and notices that the other goes away.
A dissector reads the frames."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from namespaces import cables, packet_socket_here, receive
from switches import Millrace, OpenVSwitch, end, run, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root")
needs_lldpd = pytest.mark.skipif(shutil.which("lldpd") is None, reason="lldpd is missing: scripts/setup.sh routers installs it")
OURS, THEIRS = "mr-ll0", "mr-ll1"
LLDP = 'lldp = { system_name = "sw7", system_description = "test switch", management = ["192.0.2.7", "2001:db8::7"] }'


class Lldpd:
    """lldpd at the other end of the cable."""

    def __init__(self, folder):
        # lldpd gives up its rights and then opens the socket: the folder of a test is closed to it.
        self.socket = pathlib.Path(f"/run/mr-lldpd-{os.getpid()}.sock")
        self.log = folder / "lldpd.log"
        self.process = None

    def __enter__(self):
        pathlib.Path("/run/lldpd").mkdir(exist_ok=True)
        with self.log.open("w") as log:
            command = ["lldpd", "-d", "-I", THEIRS, "-u", self.socket]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for("lldpd", lambda: self.socket.exists())
        return self

    def __exit__(self, *_):
        end(self.process)
        self.socket.unlink(missing_ok=True)

    def cli(self, *arguments):
        return run("lldpcli", "-u", self.socket, *arguments, check=False)

    def neighbour(self):
        """Returns (system name, its description) of the only neighbour; `None` without one."""
        found = json.loads(self.cli("-f", "json", "show", "neighbors", "details") or "{}")
        interfaces = found.get("lldp", {}).get("interface")
        return interfaces and interfaces[THEIRS]


def neighbours(switch):
    ports = json.loads(switch.cli("show", "lldp", "br0", "--json"))
    return ports["br0"][0]["lldp"]["neighbours"]


@pytest.fixture
def cable():
    with cables((OURS, THEIRS)):
        yield


def followed(switch):
    """Returns what those see who follow the events of LLDP, by port."""
    state = switch.rest.get(f"{switch.url}/state?kinds=lldp", timeout=60).json()["state"]
    return state["lldp"]


@needs_lldpd
def test_lldpd_and_the_switch_know_each_other_until_one_says_farewell(tmp_path, cable):
    switch = Millrace(tmp_path / "millrace", ports=[(1, f"kernel:{OURS}")], extra=LLDP)
    with Lldpd(tmp_path) as lldpd, switch:
        # lldpd sends each 30 s and has begun before the switch was there.
        lldpd.cli("update")
        wait_for("our neighbour", lambda: neighbours(switch))
        (known,) = neighbours(switch)
        assert known["system_name"] == run("uname", "-n").strip()
        assert known["port_description"] == THEIRS and "Debian" in known["system_description"]
        assert 0 < known["expires_in_s"] <= 120
        assert THEIRS in switch.cli("show", "lldp")
        wait_for("their neighbour", lldpd.neighbour)
        ((name, chassis),) = lldpd.neighbour()["chassis"].items()
        assert (name, chassis["descr"]) == ("sw7", "test switch")
        assert chassis["id"] == {"type": "mac", "value": "00:00:00:00:00:01"}
        assert sorted(chassis["mgmt-ip"]) == ["192.0.2.7", "2001:db8::7"]
        assert {"type": "Bridge", "enabled": True} in [chassis["capability"]] + list(chassis["capability"])
        port = lldpd.neighbour()["port"]
        assert port["id"] == {"type": "ifname", "value": "p1"}
        assert (port["descr"], port["mfs"]) == (f"kernel:{OURS}", "1522")
        # A change of ours is told at once, a change of theirs, too.
        switch.change(lambda config: config["bridge"][0]["lldp"].update(system_name="sw8"))
        wait_for("our new name", lambda: "sw8" in lldpd.neighbour()["chassis"])
        lldpd.cli("configure", "system", "hostname", "peer9")
        lldpd.cli("update")
        wait_for("their new name", lambda: neighbours(switch)[0]["system_name"] == "peer9")
        wait_for("the event", lambda: followed(switch)["br0/p1"]["neighbours"][0]["system_name"] == "peer9")
        # A port without LLDP says farewell and forgets its neighbours; the default is both directions.
        switch.change(lambda config: config["bridge"][0]["port"][0].update(lldp="off"))
        wait_for("our farewell", lambda: not lldpd.neighbour())
        assert "no port has LLDP" in switch.cli("show", "lldp")
        switch.change(lambda config: config["bridge"][0]["port"][0].pop("lldp"))
        wait_for("their neighbour again", lldpd.neighbour)
        lldpd.cli("update")
        wait_for("our neighbour again", lambda: neighbours(switch))
        end(lldpd.process)
        wait_for("their farewell", lambda: not neighbours(switch))
        wait_for("the event", lambda: not followed(switch))


@needs_lldpd
def test_the_switch_says_farewell_when_it_stops(tmp_path, cable):
    switch = Millrace(tmp_path / "millrace", ports=[(1, f"kernel:{OURS}")], extra=LLDP)
    with Lldpd(tmp_path) as lldpd:
        with switch:
            wait_for("their neighbour", lldpd.neighbour)
        wait_for("our farewell", lambda: not lldpd.neighbour())


@needs_lldpd
def test_frames_of_lldp_reach_the_tables_only_where_the_port_does_not_take_them(tmp_path, cable):
    switch = Millrace(tmp_path / "millrace", ports=[(1, f"kernel:{OURS}"), (2, "link:a"), (3, "link:a")], extra=LLDP)
    with Lldpd(tmp_path) as lldpd, switch:
        switch.ofctl("add-flow", "dl_type=0x88cc,actions=2")
        lldpd.cli("update")
        wait_for("our neighbour", lambda: neighbours(switch))
        assert "n_packets=0" in switch.ofctl("dump-flows")
        switch.change(lambda config: config["bridge"][0]["port"][0].update(lldp="send"))
        lldpd.cli("update")
        wait_for("a frame in the tables", lambda: "n_packets=0" not in switch.ofctl("dump-flows"))


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed (apt-get install tshark)")
def test_frames_are_what_a_dissector_expects(tmp_path, cable):
    switch = Millrace(tmp_path / "millrace", ports=[(1, f"kernel:{OURS}")], extra=LLDP)
    with packet_socket_here(THEIRS) as line, switch:
        frame = receive(line, lambda frame: frame[12:14] == b"\x88\xcc")
    capture = tmp_path / "lldp.pcap"
    header = bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000")
    capture.write_bytes(header + bytes(8) + len(frame).to_bytes(4, "little") * 2 + frame)
    text = run("tshark", "-n", "-V", "-r", capture)
    assert "Malformed" not in text and "Expert Info" not in text, text
    for words in ("System Name = sw7", "System Description = test switch", "192.0.2.7", "2001:db8::7", "Maximum Frame Size"):
        assert words in text, (words, text)


class Peer(OpenVSwitch):
    """Open vSwitch at the other end of the cable."""

    def start(self):
        return self.start_netdev("ovs-ll", "--", "add-port", "ovs-ll", THEIRS)

    def set_lldp(self, is_on):
        self._vsctl("--timeout=50", "set", "interface", THEIRS, f"lldp:enable={str(is_on).lower()}")

    def counts(self):
        """Returns the counters of LLDP, by name. Open vSwitch shows no neighbour that does not speak Auto Attach."""
        text = self.appctl("autoattach/statistics", "ovs-ll")
        return {name.strip(): int(value) for name, value in re.findall(r"^([a-z ]+):\s*(\d+)$", text, re.MULTILINE)}


def test_open_vswitch_and_the_switch_know_each_other(tmp_path, cable):
    switch = Millrace(tmp_path / "millrace", ports=[(1, f"kernel:{OURS}")], extra=LLDP)
    with switch, Peer(tmp_path / "ovs") as peer:
        peer.set_lldp(True)
        wait_for("our neighbour", lambda: neighbours(switch))
        (known,) = neighbours(switch)
        # It names itself after the interface.
        assert (known["chassis"], known["port"]) == (pathlib.Path(f"/sys/class/net/{THEIRS}/address").read_text().strip(), THEIRS)
        assert known["system_description"].startswith("openvswitch") and known["capabilities"] == ["bridge"]
        wait_for("their neighbour", lambda: peer.counts()["insert cnt"] == 1)
        # A change is told at once, and is of the same neighbour. Nothing of it is malformed to them.
        before = peer.counts()["rx cnt"]
        switch.change(lambda config: config["bridge"][0]["lldp"].update(system_name="sw8"))
        wait_for("our change", lambda: peer.counts()["rx cnt"] > before)
        counts = peer.counts()
        assert (counts["insert cnt"], counts["rx discarded cnt"], counts["drop cnt"]) == (1, 0, 0), counts
        # Open vSwitch 3.1 takes the farewell, and keeps the neighbour (seen): it forgets none before its time.
        before = peer.counts()["rx cnt"]
        switch.change(lambda config: config["bridge"][0]["port"][0].update(lldp="off"))
        wait_for("our farewell", lambda: peer.counts()["rx cnt"] > before)
        assert peer.counts()["rx discarded cnt"] == 0
