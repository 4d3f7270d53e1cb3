"""Millrace in the place of ovs-vswitchd: ovs-vsctl and ovs-ofctl unchanged, beside a real Open vSwitch, and what goes wrong."""

import contextlib
import itertools
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import threading
import time

import pytest

from namespaces import inside, made, packet_socket, received
from ovsdb import Following, Real
from ovsdb_script import PAIRS, SCRIPT, SCRIPT_PAIRS, rows, run_script
from switches import run, wait_for

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root"),
    pytest.mark.skipif(shutil.which("ovs-vsctl") is None, reason="Open vSwitch is missing: scripts/setup.sh installs it"),
]

# Columns whose values differ from those of a real ovs-vswitchd, each with the reason (docs/ovsdb.md#differences).
DIFFERENCES = {
    ("Open_vSwitch", "ovs_version"): "set if it is empty, which ovs-ctl does for the real one",
    ("Open_vSwitch", "db_version"): "set if it is empty, which ovs-ctl does for the real one",
    ("Open_vSwitch", "iface_types"): "the types that Millrace has",
    ("Open_vSwitch", "datapath_types"): "one datapath has both names",
    ("Open_vSwitch", "dpdk_version"): "empty without DPDK",
    ("Controller", "status"): "texts of errors",
    ("Interface", "status"): "the driver as Millrace names it, without versions",
    ("Interface", "link_speed"): "a tap device has no speed",
    ("Interface", "duplex"): "a tap device has no speed",
    ("Interface", "mtu"): "the MTU of a tap device does not follow other ports of its bridge",
}

# A real Open vSwitch sets this error, and clears it whenever it looks at all interfaces again.
UNSTEADY = {("Interface", "lonely", "error")}


@contextlib.contextmanager
def wired(namespace, pairs):
    """Makes a namespace with pairs of interfaces that send nothing by themselves."""
    with made(namespace):
        for knob in ("all", "default"):
            inside(namespace, "sysctl", "-qw", f"net.ipv6.conf.{knob}.disable_ipv6=1")
        for one, other in pairs:
            run("ip", "-n", namespace, "link", "add", one, "type", "veth", "peer", "name", other)
            for name in (one, other):
                run("ip", "-n", namespace, "link", "set", name, "up")
        yield


@pytest.fixture
def switch(tmp_path):
    with wired("mr-ovsdb", PAIRS), Following(tmp_path, namespace="mr-ovsdb") as following:
        yield following


def frame(number, vlan=None, to=b"\xff" * 6):
    tag = b"" if vlan is None else struct.pack("!HH", 0x8100, vlan)
    return to + bytes([2, 0, 0, 0, 0, number]) + tag + b"\x88\xb5" + bytes([number]) + bytes(50)


class Ends:
    """The other ends of the ports of a switch: raw sockets that remember where test frames arrive."""

    def __init__(self, namespace, ports):
        self.sockets = {port: packet_socket(namespace, f"x{port}") for port in ports}
        self.found = set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for opened in self.sockets.values():
            opened.close()

    def send(self, number, sent):
        self.found = set()
        self.sockets[number].send(sent)

    def look(self, bound=0.0):
        """Returns the ports where the frame has arrived, each with its VLAN."""
        for port, opened in self.sockets.items():
            for got, control in received(opened, bound):
                if b"\x88\xb5" in got[12:20]:
                    tci = [struct.unpack("IIIHHHH", data) for _, kind, data in control if kind == 8]
                    self.found.add((port, tci[0][5] & 0xFFF if tci and tci[0][0] & 0x10 else None))
        return self.found


#: The time in s after which a frame that has not arrived was dropped; a late one would be missed, never invented.
QUIET_S = 0.2


def assert_arrives(namespace, number, sent, wanted):
    """Sends a frame into a port; it must leave at the wanted ports, and at no other."""
    with Ends(namespace, (1, 2)) as ends:
        ends.send(number, sent)
        wait_for("the frame", lambda: {port for port, _ in ends.look()} >= wanted)
        time.sleep(QUIET_S)
        assert {port for port, _ in ends.look()} == wanted


def faults(switch):
    return {fault["row"]: fault["reason"] for fault in switch.shown()["faults"] if fault["refused"]}


def test_a_script_leaves_the_rows_and_the_forwarding_of_a_real_open_vswitch(tmp_path):
    ports = range(1, 7)
    with wired("mr-ours", SCRIPT_PAIRS), wired("mr-real", SCRIPT_PAIRS), \
            Following(tmp_path / "ours", namespace="mr-ours") as ours, Real(tmp_path / "real", namespace="mr-real") as real:
        answers = [run_script(database) for database in (ours, real)]
        for line, mine, theirs in zip(SCRIPT, *answers, strict=True):
            assert "create" in line or mine == theirs, (line, mine, theirs)

        def difference():
            mine, theirs = rows(ours), rows(real)
            return {key: (mine.get(key), theirs.get(key)) for key in mine.keys() | theirs.keys()
                    if mine.get(key) != theirs.get(key) and (key[0], key[2]) not in DIFFERENCES and key not in UNSTEADY}

        # States of links come a moment after a command.
        with contextlib.suppress(AssertionError):
            wait_for("equal rows", lambda: not difference())
        assert not difference(), json.dumps({str(key): value for key, value in difference().items()}, indent=1)
        # Access ports, trunks and the untagged network of br0: e1 (all), e3 (200), e4 (10, 20, 30), e6 (77).
        with Ends("mr-ours", ports) as mine, Ends("mr-real", ports) as theirs:
            for number, vlan in itertools.product((1, 3, 4, 6), (None, 10, 77, 200, 300)):
                for ends in (mine, theirs):
                    ends.send(number, frame(number, vlan))
                time.sleep(QUIET_S)
                wait_for(f"equal arrivals of VLAN {vlan} from port {number}", lambda: mine.look() == theirs.look())


def test_a_command_returns_when_the_switch_has_done_it(switch):
    switch.vsctl("add-br", "br0")
    for number in (1, 2):
        switch.vsctl("add-port", "br0", f"e{number}")
    assert_arrives("mr-ovsdb", 1, frame(1), {2})
    assert switch.get("Interface", "e2", "ofport") == "2"
    switch.vsctl("set-fail-mode", "br0", "secure")
    assert_arrives("mr-ovsdb", 1, frame(1), set())  # A secure bridge without entries forwards nothing.
    switch.ofctl("add-flow", "br0", "in_port=1,actions=2")
    assert_arrives("mr-ovsdb", 1, frame(1), {2})
    switch.vsctl("del-port", "br0", "e2")
    assert "(e2)" not in switch.ofctl("show", "br0")
    switch.vsctl("del-br", "br0")
    assert switch.rest.get(f"{switch.url}/bridges", timeout=60).json() == []
    assert switch.shown_current()["cur_cfg"] == int(switch.get("Open_vSwitch", ".", "cur_cfg"))


def test_what_a_row_asks_in_vain_is_named_everywhere_and_heals(switch):
    switch.vsctl("add-br", "br0")
    said = switch.vsctl_error("add-port", "br0", "e9")
    assert "Error detected while setting up 'e9'" in said and "there is no interface `e9`" in said, said
    assert switch.get("Interface", "e9", "ofport") == "-1"
    said = switch.vsctl_error("add-port", "br0", "g1", "--", "set", "Interface", "g1", "type=geneve", "options:remote_ip=1.2.3.4")
    assert "type geneve is not available" in said, said
    switch.vsctl("--", "--id=@m", "create", "Mirror", "name=m", "--", "set", "Bridge", "br0", "mirrors=@m")
    assert set(faults(switch)) == {"Interface g1", "Mirror m"}, faults(switch)
    problems = switch.rest.get(f"{switch.url}/status", timeout=60).json()["problems"]
    assert {"ovsdb, Interface g1", "ovsdb, Mirror m", "bridge br0, port e9"} <= {problem["subject"] for problem in problems}
    assert "type geneve" in switch.log.read_text()
    shown = switch.cli("show", "ovsdb")
    assert "following" in shown and "geneve" in shown and "expected output_port or output_vlan" in shown, shown
    # One row does not prevent another.
    switch.vsctl("add-port", "br0", "e1")
    assert int(switch.get("Interface", "e1", "ofport")) > 0
    run("ip", "-n", "mr-ovsdb", "link", "add", "e9", "type", "veth", "peer", "name", "x9")
    wait_for("the port", lambda: switch.get("Interface", "e9", "ofport") != "-1")
    wait_for("no error", lambda: switch.get("Interface", "e9", "error") == "[]")


def test_a_bridge_has_one_owner_and_both_sides_are_told_the_remedy(switch):
    switch.vsctl("add-br", "br0")
    answer = switch.rest.put(f"{switch.url}/config/bridges/br0", json={"tables": 9}, timeout=60)
    assert answer.status_code == 409 and "use ovs-vsctl" in answer.text and "millrace own br0 --local" in answer.text, answer.text
    switch.cli("bridge", "add", "br1")
    said = switch.vsctl_error("add-br", "br1")
    assert "bridge br1 belongs to local" in said and "millrace own br1 --origin ovsdb" in said, said
    switch.cli("own", "br1", "--origin", "ovsdb")
    wait_for("no error", lambda: switch.get("Interface", "br1", "error") == "[]")
    assert "ovsdb" in switch.cli("show", "history")
    # What the database says of a bridge that it lost is an error of its row; the bridge stays as it is.
    switch.cli("own", "br0", "--local")
    wait_for("an error", lambda: "belongs to local" in switch.get("Interface", "br0", "error"))
    switch.vsctl("del-br", "br0")
    assert "br0" in [bridge["name"] for bridge in switch.rest.get(f"{switch.url}/bridges", timeout=60).json()]


def test_while_the_configuration_is_locked_the_database_waits_and_then_goes_on(switch):
    lock = switch.rest.post(f"{switch.url}/lock?author=test", timeout=60)
    assert lock.ok, lock.text
    switch.vsctl("--no-wait", "add-br", "br0")
    wait_for("the database waits", lambda: switch.shown()["waits_for"])
    assert switch.rest.get(f"{switch.url}/bridges", timeout=60).json() == []
    token = lock.json()["token"]
    released = switch.rest.delete(f"{switch.url}/lock", headers={"Lock-Token": token}, timeout=60)
    assert released.ok, released.text
    wait_for("the bridge", lambda: switch.rest.get(f"{switch.url}/bridges", timeout=60).json())


def test_nothing_is_lost_while_the_server_is_down_and_numbers_survive_either_daemon(switch):
    switch.vsctl("add-br", "br0")
    for number in (3, 1, 2):
        switch.vsctl("add-port", "br0", f"e{number}")
    switch.vsctl("del-port", "br0", "e1")
    before = {row["name"]: row["ofport"] for row in switch.rows("Interface")}
    with contextlib.closing(packet_socket("mr-ovsdb", "x3")) as sender, \
            contextlib.closing(packet_socket("mr-ovsdb", "x2")) as receiver:
        count = 500
        down = threading.Thread(target=switch.kill_database)
        down.start()
        for _ in range(count):
            sender.send(frame(3))
            time.sleep(0.001)
        down.join()
        arrived = (data for data, _ in received(receiver, 60) if b"\x88\xb5" in data[12:20])
        got = sum(1 for _ in itertools.islice(arrived, count))
        assert got == count
    wait_for("the switch says so", lambda: "closed" in (switch.shown()["last_error"] or "") or switch.shown()["last_error"])
    problems = switch.rest.get(f"{switch.url}/status", timeout=60).json()["problems"]
    assert any(problem["subject"].startswith("ovsdb unix:") for problem in problems), problems
    switch.start_database()
    switch.wait_until_following()
    switch.vsctl("set", "Port", "e2", "tag=7")
    switch.kill_switch()
    switch.start_switch()
    switch.wait_until_following()
    switch.vsctl("set", "Port", "e2", "tag=8")
    assert {row["name"]: row["ofport"] for row in switch.rows("Interface")} == before


def test_another_database_at_the_same_address_replaces_the_bridges(switch):
    switch.vsctl("add-br", "old")
    switch.replace_database()
    switch.wait_until_following()
    switch.vsctl("add-br", "new")
    assert [bridge["name"] for bridge in switch.rest.get(f"{switch.url}/bridges", timeout=60).json()] == ["new"]


def test_a_real_vswitchd_and_millrace_exclude_each_other(tmp_path):
    with wired("mr-ovsdb", []), Real(tmp_path, namespace="mr-ovsdb") as real:
        real.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
        following = Following(tmp_path, namespace="mr-ovsdb")
        try:
            following.start_switch()
            wait_for("the switch waits", lambda: following.shown()["state"] == "waiting_for_lock")
            assert following.rest.get(f"{following.url}/bridges", timeout=60).json() == []
            real.process.send_signal(signal.SIGTERM)
            real.process.wait(timeout=60)
            following.wait_until_following()
            following.vsctl("add-br", "br1")
            names = [bridge["name"] for bridge in following.rest.get(f"{following.url}/bridges", timeout=60).json()]
            assert names == ["br0", "br1"]
        finally:
            following.stop()


class Hostile:
    """A server that says what a test gives it to every client."""

    def __init__(self, path, speak):
        pathlib.Path(path).unlink(missing_ok=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.speak = speak
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                with client, contextlib.suppress(OSError):
                    self.speak(client)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()


def schema_then(rows_of_tables):
    """Returns a speaker that answers as ovsdb-server does, with these rows."""
    schema = json.loads(pathlib.Path("/usr/share/openvswitch/vswitch.ovsschema").read_text())

    def speak(client):
        def answer(number, result):
            client.sendall(json.dumps({"id": number, "result": result, "error": None}).encode())

        client.recv(65536)
        answer(0, {"locked": True})
        answer(1, schema)
        client.recv(65536)
        answer(2, [False, "0", rows_of_tables])
        while client.recv(65536):
            pass

    return speak


def memory_of(pid):
    """Returns the resident memory of a process in bytes."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


ROW = "00000000-0000-0000-0000-00000000000b"


@pytest.mark.parametrize(("speak", "said"), [
    (lambda client: client.sendall(b'{"a":' + b"[" * 100_000), "nested more than"),
    (lambda client: client.sendall(b'{"a":"' + b"x" * (65 << 20)), "more than 67108864 bytes"),
    (lambda client: client.sendall(b"HTTP/1.1 200 OK\r\n\r\n"), "expected a JSON object"),
    (lambda client: client.sendall(b'{"id":7,"result":[]}'), "expected the id of a request"),
    (schema_then({"Bridge": {ROW: {"initial": {"name": {"no": "value"}}}}}), "no value of a column"),
    (schema_then({"Bridge": {"zero": {"initial": {}}}}), "expected the UUIDs"),
    (schema_then([]), "expected an object"),
], ids=["depth", "size", "http", "reply", "value", "uuid", "rows"])
def test_a_hostile_server_costs_its_connection_and_nothing_else(switch, speak, said):
    switch.vsctl("add-br", "br0")
    for number in (1, 2):
        switch.vsctl("add-port", "br0", f"e{number}")
    before = memory_of(switch.process.pid)
    switch.kill_database()
    with Hostile(switch.socket, speak):
        wait_for("the error", lambda: said in (switch.shown()["last_error"] or ""))
        assert memory_of(switch.process.pid) - before < 300 << 20
        assert_arrives("mr-ovsdb", 1, frame(1), {2})


def test_a_server_that_mixes_types_loses_rows_and_not_the_switch(switch):
    odd = {"Open_vSwitch": {ROW: {"initial": {"bridges": ["uuid", ROW], "next_cfg": 1}}},
           "Bridge": {ROW: {"initial": {"name": 7, "ports": "none", "other_config": 5}}}}
    switch.vsctl("add-br", "br0")
    switch.kill_database()
    with Hostile(switch.socket, schema_then(odd)):
        wait_for("the fault", lambda: any(row.startswith("Bridge") for row in faults(switch)))
        assert switch.shown()["state"] == "following"
