"""The LOCAL port: the machine itself takes part in the bridge's network, through a tap device with the name of the bridge. The
test runs without DPDK; the host at port 1 has a tap device, too, in a namespace of its own.
"""

import os
import subprocess

import pytest

from namespaces import inside, made
from switches import Millrace, run, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root")
LOCAL, HOST = "mr-local", "mr-host"


@pytest.fixture
def namespaces():
    with made(LOCAL, HOST):
        yield


@pytest.fixture
def switch(tmp_path, namespaces):
    with Millrace(tmp_path, ports=[(1, "tap:mr-p1")], extra='local = "tap"') as switch:
        for interface, namespace, address in (("br0", LOCAL, "10.77.0.1/24"), ("mr-p1", HOST, "10.77.0.2/24")):
            run("ip", "link", "set", interface, "netns", namespace)
            inside(namespace, "ip", "address", "add", address, "dev", interface)
            inside(namespace, "ip", "link", "set", interface, "up")
        yield switch


def ping(namespace, address, *options):
    command = ["ip", "netns", "exec", namespace, "ping", "-c", "1", "-W", "1", *options, address]
    return subprocess.run(command, capture_output=True, timeout=60).returncode == 0


def local_packets(switch):
    text = switch.ofctl("dump-ports", "LOCAL")
    return [int(part.split("=")[1]) for part in text.replace(",", " ").split() if part.startswith("pkts=")]


def test_a_host_pings_the_local_port_through_normal_and_through_entries(switch):
    assert "LOCAL(br0)" in switch.ofctl("show")
    switch.ofctl("add-flow", "actions=NORMAL")
    wait_for("an answer through NORMAL", lambda: ping(HOST, "10.77.0.1"))
    assert ping(LOCAL, "10.77.0.2", "-W", "20")
    switch.ofctl("del-flows")
    assert not ping(HOST, "10.77.0.1")
    switch.ofctl("add-flow", "in_port=1,actions=LOCAL")
    switch.ofctl("add-flow", "in_port=LOCAL,actions=output:1")
    before = local_packets(switch)
    wait_for("an answer through entries", lambda: ping(HOST, "10.77.0.1"))
    after = local_packets(switch)
    assert after[0] > before[0] and after[1] > before[1], (before, after)
    # A packet of the largest size arrives complete: there is no offload, and no truncation.
    assert ping(HOST, "10.77.0.1", "-W", "20", "-s", "1472", "-M", "do")
    switch.ofctl("del-flows")
    switch.ofctl("add-flow", "actions=FLOOD")
    wait_for("an answer through FLOOD", lambda: ping(HOST, "10.77.0.1"))


def test_a_packet_out_reaches_the_local_port(switch):
    sent = local_packets(switch)[1]

    def is_sent():
        # Until the switch has detected that the interface is up, packets to it are dropped.
        switch.ofctl("packet-out", "in_port=CONTROLLER packet=020000000002020000000001" + "88b5" + "00" * 46
                     + " actions=output:LOCAL")
        return local_packets(switch)[1] > sent

    wait_for("the packet is counted", is_sent)


def test_without_the_right_to_make_interfaces_the_switch_says_so_and_runs(tmp_path):
    openflow = tmp_path / "openflow.sock"
    switch = Millrace(tmp_path, ports=[(1, "memory")], extra='local = "tap"', listen=[f"punix:{openflow}"])
    # A network namespace of its own: no interface of another test is in it.
    switch.command = ["unshare", "--net", "setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", *switch.command]
    with switch:
        wait_for("it says so", lambda: "CAP_NET_ADMIN" in switch.log.read_text())
        links = run("nsenter", f"--net=/proc/{switch.process.pid}/ns/net", "ip", "-o", "link").splitlines()
        assert [line.split(":")[1].strip() for line in links] == ["lo"]
        ports = run("ovs-ofctl", "-O", "OpenFlow13", "show", f"unix:{openflow}")
        assert "1(p1)" in ports and "LOCAL" not in ports
        assert "br0" in switch.cli("show", "ports")
