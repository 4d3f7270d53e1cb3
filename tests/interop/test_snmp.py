"""The switch as objects of SNMP: millrace-mgmt as a subagent of Debian's snmpd, read by snmpwalk and snmpget."""

import os
import re
import shutil
import socket
import subprocess
import time

import pytest

from namespaces import cables, packet_socket_here
from switches import TARGET, Millrace, end, free_port, run, wait_for
from test_ovsdb import frame

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root"),
    pytest.mark.skipif(shutil.which("snmpd") is None or shutil.which("snmpwalk") is None,
                       reason="snmpd is missing: scripts/setup.sh management installs it"),
]

CABLES = [("mr-sn0", "mr-sn1"), ("mr-sn2", "mr-sn3")]
IF_NAME, IF_DESCR, IF_OPER = "1.3.6.1.2.1.31.1.1.1.1", "1.3.6.1.2.1.2.2.1.2", "1.3.6.1.2.1.2.2.1.8"
HC_IN_UCAST, FDB_PORT, BASE_PORT_IF = "1.3.6.1.2.1.31.1.1.1.7", "1.3.6.1.2.1.17.7.1.2.2.1.2", "1.3.6.1.2.1.17.1.4.1.2"


class Snmpd:
    """Debian's snmpd as the master agent, with the switch in the context `sw` (community `switch`) or in the default one (`public`)."""

    def __init__(self, folder, arguments=(), writes=False):
        self.folder, self.port, self.trap_port = folder, free_port(), free_port()
        folder.mkdir(parents=True, exist_ok=True)
        self.socket = folder / "agentx"
        config = folder / "snmpd.conf"
        config.write_text("\n".join([
            "master agentx", f"agentXSocket {self.socket}", "agentXTimeout 10", "rocommunity public 127.0.0.1",
            "com2sec -Cn sw switchsec default switch", "group switchgroup v2c switchsec", "view everything included .1",
            f"access switchgroup sw v2c noauth exact everything {'everything' if writes else 'none'} none", f"trap2sink 127.0.0.1:{self.trap_port} public"]) + "\n")
        self.log = folder / "snmpd.log"
        environment = os.environ | {"SNMP_PERSISTENT_DIR": str(folder / "persistent")}
        self.process = subprocess.Popen(
            ["snmpd", "-f", "-Lf", self.log, "-C", "-c", config, "-p", folder / "pid", *arguments, f"udp:127.0.0.1:{self.port}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        wait_for("snmpd", self.socket.exists)

    def walk(self, oid, community="switch"):
        """Returns the values by the part of their identifier behind `oid`; none while the agent has no such objects."""
        text = run("snmpbulkwalk", "-v2c", "-c", community, "-On", "-Oe", "-r", "1", "-t", "20", f"127.0.0.1:{self.port}", oid, check=False)
        rows = re.findall(r"^\.([\d.]+) = (?:[\w-]+: )?(.*)$", text, re.MULTILINE)
        return {name.removeprefix(f"{oid}."): value.strip('"') for name, value in rows if name.startswith(f"{oid}.") and "No Such" not in value}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end(self.process)


class Mgmt:
    """`millrace-mgmt` with AgentX alone."""

    def __init__(self, folder, switch, snmpd, context="sw"):
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "mgmt.toml"
        config.write_text("\n".join([
            f'switch = "unix:{switch.api_socket}"', "[netconf]", "enabled = false", "[gnmi]", 'socket = ""',
            "[agentx]", "enabled = true", f'master = "{snmpd.socket}"', f'context = "{context}"']) + "\n")
        self.log = folder / "mgmt.log"
        with self.log.open("a") as log:
            self.process = subprocess.Popen([TARGET / "millrace-mgmt", "serve", "--config", config], stdout=log, stderr=log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end(self.process)


@pytest.fixture
def switch(tmp_path):
    with cables(*CABLES), Millrace(tmp_path / "switch", ports=[(1, f"kernel:{CABLES[0][1]}"), (2, f"kernel:{CABLES[1][1]}")],
                                   fail_mode="standalone") as one:
        yield one


def ports(snmpd, community="switch"):
    """Waits for both ports, and returns their names by their numbers."""
    return wait_for("the ports", lambda: sorted((found := snmpd.walk(IF_NAME, community)).values()) == ["p1", "p2"] and found)


def test_a_walk_shows_ports_counters_and_addresses_and_numbers_survive_restarts(switch, tmp_path):
    with Snmpd(tmp_path / "snmpd") as snmpd:
        with Mgmt(tmp_path / "mgmt", switch, snmpd):
            names = ports(snmpd)
            index = {name: number for number, name in names.items()}
            assert snmpd.walk(IF_DESCR)[index["p1"]] == "br0 p1"
            with packet_socket_here(CABLES[0][0]) as sender:
                for _ in range(20):
                    sender.send(frame(5, vlan=7))
            wait_for("the packets", lambda: snmpd.walk(HC_IN_UCAST).get(index["p1"]) == "20")
            wait_for("the address", lambda: snmpd.walk(FDB_PORT) == {"7.2.0.0.0.0.5": "1"})
            assert snmpd.walk(BASE_PORT_IF) == {"1": index["p1"], "2": index["p2"]}
            # The kernel's interfaces are in the default context, and the switch's are not.
            assert not set(snmpd.walk(IF_NAME, "public").values()) & {"p1", "p2"}
        wait_for("no objects without the subagent", lambda: not snmpd.walk(IF_NAME))
        switch.stop()
        switch.start()
        with Mgmt(tmp_path / "mgmt", switch, snmpd):
            assert ports(snmpd) == names


def test_a_link_that_fails_is_a_trap_and_a_row(switch, tmp_path):
    with Snmpd(tmp_path / "snmpd") as snmpd, Mgmt(tmp_path / "mgmt", switch, snmpd):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as traps:
            traps.bind(("127.0.0.1", snmpd.trap_port))
            traps.settimeout(60)
            index = {name: number for number, name in ports(snmpd).items()}
            run("ip", "link", "set", CABLES[0][0], "down")
            wait_for("the row", lambda: snmpd.walk(IF_OPER).get(index["p1"]) == "2")
            # snmpTrapOID.0 = linkDown, in BER: 43 are the first two parts of 1.3.
            wanted = bytes([43, 6, 1, 6, 3, 1, 1, 5, 3])
            while wanted not in traps.recv(65535):
                pass
            run("ip", "link", "set", CABLES[0][0], "up")
            wait_for("the row", lambda: snmpd.walk(IF_OPER).get(index["p1"]) == "1")


def test_in_the_default_context_the_switch_is_all_there_is_if_snmpd_has_no_interfaces(switch, tmp_path):
    with Snmpd(tmp_path / "snmpd", ["-I", "-ifTable,ifXTable,interfaces,ipCidrRouteTable,inetCidrRouteTable"]) as snmpd, \
            Mgmt(tmp_path / "mgmt", switch, snmpd, context=""):
        ports(snmpd, "public")


def test_a_walk_of_a_thousand_ports_takes_seconds(tmp_path):
    """The long form has the bound of the acceptance list, 2 s; otherwise a hundred ports, and no bound."""
    count = 1000 if os.environ.get("MILLRACE_OVSDB_LONG") else 100
    with Millrace(tmp_path / "switch", ports=[(number, "memory") for number in range(1, count + 1)]) as switch, \
            Snmpd(tmp_path / "snmpd") as snmpd, Mgmt(tmp_path / "mgmt", switch, snmpd):
        wait_for("the ports", lambda: len(snmpd.walk(IF_NAME)) == count, 120)
        began = time.monotonic()
        rows = len(snmpd.walk("1.3.6.1.2.1.31.1.1"))
        assert rows >= 11 * count, rows
        took = time.monotonic() - began
        print(f"a walk of {count} ports: {took:.2f} s")
        assert count == 100 or took < 2
