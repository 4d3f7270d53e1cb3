"""Bonds of an Open vSwitch database, with a real Open vSwitch at the other end, and `ovs-appctl` on both."""

import os
import re
import shutil

import pytest

from namespaces import cables, packet_socket_here, received
from ovsdb import Following
from switches import run, wait_for
from test_lag import CABLES, FAR_HOST, HOST, MEMBERS, PARTNERS, PORT, Partner
from test_ovsdb import frame

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root"),
    pytest.mark.skipif(shutil.which("ovs-vsctl") is None, reason="Open vSwitch is missing: scripts/setup.sh installs it"),
]


@pytest.fixture
def switch(tmp_path):
    with cables(*CABLES), Following(tmp_path / "ours") as following:
        following.vsctl("add-br", "br-bonds", "--", "add-port", "br-bonds", PORT)
        yield following


def appctl(switch, *arguments, check=True):
    """Returns the output of Debian's `ovs-appctl`, which finds the process by its pidfile."""
    return run("ovs-appctl", *arguments, env=switch.environment, check=check)


def enabled(switch):
    return sorted(re.findall(r"^member (\S+): enabled", appctl(switch, "bond/show", "bond0"), re.MULTILINE))


def arrives(number, vlan=None):
    """True if a frame from the host reaches the host behind the partner."""
    with packet_socket_here(HOST) as sender, packet_socket_here(FAR_HOST) as receiver:
        sender.send(frame(number, vlan))
        return any(got[12:20].find(b"\x88\xb5") >= 0 for got, _ in received(receiver, 0.5))


def test_a_bond_with_lacp_is_a_lag_and_its_state_is_in_the_database(switch, tmp_path):
    bond = ("bond_mode=balance-tcp", "lacp=passive", "other_config:lacp-time=fast")
    switch.vsctl("add-bond", "br-bonds", "bond0", *MEMBERS, "lacp=active", "bond_mode=balance-tcp", "other_config:lacp-time=fast")
    numbers = {switch.get("Interface", name, "ofport") for name in MEMBERS}
    assert len(numbers) == 1 and int(numbers.pop()) > 0, "the interfaces of a bond have the number of its port"
    with Partner(tmp_path / "theirs", *bond) as partner:
        wait_for("both interfaces carry packets", lambda: enabled(switch) == sorted(MEMBERS))
        wait_for("and there", lambda: partner.enabled() == sorted(PARTNERS))
        for name in MEMBERS:
            wait_for("the partner is heard", lambda name=name: switch.get("Interface", name, "lacp_current") == "true")
        macs = {switch.get("Interface", name, "mac_in_use") for name in MEMBERS}
        wait_for("the active interface", lambda: switch.get("Port", "bond0", "bond_active_slave") in macs)
        wait_for("a frame passes", lambda: arrives(1))
        # Both programs print the same lines, apart from values.
        mine, theirs = appctl(switch, "lacp/show", "bond0"), partner.appctl("lacp/show", "bond0")
        assert labels(mine) == labels(theirs), f"{mine}\n{theirs}"
        mine, theirs = appctl(switch, "bond/show", "bond0"), partner.appctl("bond/show", "bond0")
        assert labels(mine) == labels(theirs) - {"next rebalance"}, f"{mine}\n{theirs}"
        run("ip", "link", "set", PARTNERS[0], "down")
        wait_for("one interface left", lambda: enabled(switch) == [MEMBERS[1]])
        wait_for("a frame passes", lambda: arrives(2))
    assert not [fault for fault in switch.shown()["faults"] if fault["refused"]], switch.shown()["faults"]
    switch.vsctl("del-port", "br-bonds", "bond0")
    assert appctl(switch, "bond/list").splitlines()[1:] == []


def labels(text):
    """Returns the words before the first colon of each line, without the names of members."""
    lines = (line.strip() for line in text.splitlines() if ":" in line)
    return {re.sub(r"^(member) \S+", r"\1", line).split(":")[0].strip() for line in lines}


def test_a_bond_without_lacp_has_one_interface_and_the_next_one_takes_over(switch, tmp_path):
    switch.vsctl("add-bond", "br-bonds", "bond0", *MEMBERS, "bond_mode=active-backup")
    # The partner knows of no bond: two ports of one bridge, which a second interface in use would make a loop.
    with Partner(tmp_path / "theirs", is_bond=False):
        wait_for("one interface carries packets", lambda: len(enabled(switch)) == 1)
        wait_for("a frame passes", lambda: arrives(1))
        first = enabled(switch)[0]
        run("ip", "link", "set", PARTNERS[MEMBERS.index(first)], "down")
        wait_for("the other one", lambda: enabled(switch) and enabled(switch) != [first])
        wait_for("a frame passes", lambda: arrives(2))


def test_a_bond_that_cannot_be_had_is_an_error_of_its_interfaces(switch):
    said = switch.vsctl_error("add-bond", "br-bonds", "bond0", *MEMBERS, "bond_mode=balance-tcp")
    assert "balance-tcp needs LACP" in said, said
    assert switch.get("Interface", MEMBERS[0], "ofport") == "-1"
    switch.vsctl("set", "Port", "bond0", "lacp=active")
    assert int(switch.get("Interface", MEMBERS[0], "ofport")) > 0
    said = switch.vsctl_error("--", "add-bond-iface", "bond0", "nowhere0")
    assert "nowhere0" in said, said
    assert switch.get("Interface", "nowhere0", "ofport") == "-1"


def test_ovs_appctl_finds_the_switch_and_shows_and_flushes_what_it_learned(switch, tmp_path):
    switch.vsctl("add-port", "br-bonds", MEMBERS[0])
    with packet_socket_here(HOST) as sender:
        sender.send(frame(5))
        sender.send(frame(6, vlan=7))
    wait_for("learned", lambda: len(appctl(switch, "fdb/show", "br-bonds").splitlines()) == 3)
    lines = appctl(switch, "fdb/show", "br-bonds").splitlines()
    assert lines[0] == " port  VLAN  MAC                Age"
    number = switch.get("Interface", PORT, "ofport")
    found = {(port, vlan, mac) for port, vlan, mac, _ in (line.split() for line in lines[1:])}
    assert found == {(number, "0", "02:00:00:00:00:05"), (number, "7", "02:00:00:00:00:06")}
    assert appctl(switch, "fdb/flush", "br-bonds") == "table successfully flushed\n"
    assert appctl(switch, "fdb/show", "br-bonds").splitlines() == lines[:1]
    assert "Millrace" in appctl(switch, "version") and "fdb/show" in appctl(switch, "list-commands")
    for command, said in [(("fdb/show", "br9"), "no such bridge"), (("fdb/show",), "requires at least 1 argument"),
                          (("dpctl/show",), "is not a valid command"), (("bond/show", "bond9"), "no such bond")]:
        answer = run("sh", "-c", 'ovs-appctl "$@" 2>&1 || true', "appctl", *command, env=switch.environment)
        assert said in answer, (command, answer)
    pid = (switch.run_dir / "ovs-vswitchd.pid").read_text().strip()
    assert int(pid) == switch.process.pid
    # The socket stays while the server is away, and goes with the process.
    switch.kill_database()
    wait_for("the server is away", lambda: switch.shown()["state"] == "connecting")
    assert "Millrace" in appctl(switch, "version")
    switch.stop()
    assert not list(switch.run_dir.glob("ovs-vswitchd.*"))
