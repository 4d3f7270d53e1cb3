"""Queues, rates and policers of ports, between two hosts in namespaces: throughput by iperf3, delay by ping, statistics by
ovs-ofctl, and changes while packets flow. The tests run without DPDK: the hosts have tap devices.
"""

import json
import os
import re
import statistics
import subprocess
import time

import pytest

from namespaces import cables, inside, made
from switches import Millrace, run, wait_for

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root"), pytest.mark.measures]
ONE, TWO = "mr-q1", "mr-q2"
ADDRESSES = {ONE: "10.78.0.1", TWO: "10.78.0.2"}


def configure(switch, number, **settings):
    """Changes settings of a port over REST."""
    def edit(config):
        config["bridge"][0]["port"][number - 1] |= settings
    switch.change(edit)


@pytest.fixture
def namespaces():
    with made(*ADDRESSES):
        yield


@pytest.fixture
def switch(tmp_path, namespaces):
    ports = [(1, "tap:mr-qt1"), (2, "tap:mr-qt2")]
    with Millrace(tmp_path, ports=ports) as switch:
        for interface, (namespace, address) in zip(("mr-qt1", "mr-qt2"), ADDRESSES.items()):
            run("ip", "link", "set", interface, "netns", namespace)
            inside(namespace, "ip", "address", "add", f"{address}/24", "dev", interface)
            inside(namespace, "ip", "link", "set", interface, "up")
        switch.ofctl("add-flow", "actions=NORMAL")
        # The pings that wait for readiness must not queue behind the traffic under test.
        switch.ofctl("add-flow", "priority=40000,icmp,in_port=1,actions=set_queue:7,NORMAL")
        wait_for("an answer", lambda: subprocess.run(
            ["ip", "netns", "exec", ONE, "ping", "-c", "1", "-W", "1", ADDRESSES[TWO]],
            capture_output=True, timeout=60, check=False).returncode == 0)
        yield switch


class Iperf:
    """Starts iperf3 from the first host to the second."""

    def __init__(self):
        self.processes = []

    def begin(self, *arguments):
        """Starts to send."""
        self.end()
        server = ["ip", "netns", "exec", TWO, "iperf3", "-s", "-1"]
        self.processes.append(subprocess.Popen(server, stdout=subprocess.DEVNULL))
        wait_for("the server listens", lambda: inside(TWO, "ss", "-Hltn", "sport = :5201"))
        client = ["ip", "netns", "exec", ONE, "iperf3", "-c", ADDRESSES[TWO], "-t", "600", *arguments]
        self.processes.append(subprocess.Popen(client, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def begin_udp(self, rate):
        self.begin("-u", "-b", rate, "-l", "1400")

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()
        self.processes = []


@pytest.fixture
def iperf(switch):
    iperf = Iperf()
    yield iperf
    iperf.end()


def received(namespace=TWO, interface="mr-qt2"):
    """Returns the bytes that a host has received, from the Ethernet header on, and the times before and after they were read."""
    before = time.monotonic()
    counters = json.loads(run("ip", "-n", namespace, "-s", "-j", "link", "show", interface))
    return counters[0]["stats64"]["rx"]["bytes"], before, time.monotonic()


def mbps_now(size):
    """Returns the least rate in Mbit/s at which the second host can have received the next `size` bytes: a busy machine takes
    a while to read a counter."""
    bytes_before, began, _ = received()
    bytes_after, _, ended = wait_for("bytes come", lambda: (lambda now: now[0] >= bytes_before + size and now)(received()))
    return (bytes_after - bytes_before) * 8 / (ended - began) / 1e6


def assert_limited_to(rate, size, share=0.96, attempts=12):
    """Asserts that `size` bytes at a time arrive at no more than a rate in Mbit/s, and once at this share of it.

    While a busy machine does not run the sender, a policer's bucket overflows and a queue runs empty. The rate of that time is
    lost, so one attempt can measure less.
    """
    rates = []
    for _ in range(attempts):
        rates.append(mbps_now(size))
        assert rates[-1] < rate * 1.04, f"{rates} Mbit/s through {rate}"
        if rates[-1] > rate * share:
            return
    raise AssertionError(f"{rates} Mbit/s through {rate}")


def queue_stats(switch, number):
    numbers = dict(re.findall(r"(\w+)=(\d+)", switch.ofctl("queue-stats", "2", str(number))))
    return {name: int(numbers[name]) for name in ("bytes", "pkts", "errors")}


def pings(count, **kwargs):
    """Returns round-trip times in milliseconds by sequence number, from 1."""
    text = inside(ONE, "ping", "-i", "0.05", "-c", str(count), "-W", "3", ADDRESSES[TWO], **kwargs)
    return {int(number): float(trip) for number, trip in re.findall(r"icmp_seq=(\d+) .*time=([\d.]+)", text)}


def test_a_port_and_a_queue_shape_to_their_rates_while_these_change(switch, iperf):
    configure(switch, 2, rate="50Mbps")
    iperf.begin_udp("120M")
    for rate in (50, 20):
        configure(switch, 2, rate=f"{rate}Mbps")
        before = queue_stats(switch, 0)["errors"]
        wait_for("the queue overflows", lambda: queue_stats(switch, 0)["errors"] > before + 100)
        assert_limited_to(rate, rate * 250_000)
    # TCP fills the available rate.
    configure(switch, 2, rate=None, queue=[{"id": 0, "max_rate": "40Mbps", "length": 300}])
    iperf.begin()
    wait_for("TCP is up to speed", lambda: queue_stats(switch, 0)["errors"] > before + 200)
    assert_limited_to(40, 10_000_000, share=0.9)


def test_a_strict_priority_queue_answers_at_once_while_the_other_overflows(switch, iperf):
    configure(switch, 2, rate="20Mbps", queue=[{"id": 7, "priority": 7, "min_rate": "1Mbps"}])
    iperf.begin_udp("80M")
    wait_for("queue 0 overflows", lambda: queue_stats(switch, 0)["errors"] > 1000)
    before = queue_stats(switch, 7)["pkts"]
    # A busy machine makes echoes late in some trials.
    for trial in range(1, 6):
        urgent = pings(20)
        # None is lost; but ping ends before the last replies if they take longer than twice the others.
        assert list(urgent) == list(range(1, len(urgent) + 1)) and len(urgent) >= 18, urgent
        wait_for("all echoes are counted", lambda trial=trial: queue_stats(switch, 7)["pkts"] == before + 20 * trial)
        if statistics.median(urgent.values()) < 30:
            break
    else:
        pytest.fail(f"the last of five trials: {urgent}")
    assert queue_stats(switch, 7)["errors"] == 0
    switch.ofctl("mod-flows", "--strict", "priority=40000,icmp,in_port=1,actions=NORMAL")
    # In queue 0, packets that are not dropped wait behind a thousand others, which take more than half a second.
    for _ in range(5):
        waiting = list(pings(60, check=False).values())
        if len(waiting) >= 3 and statistics.median(waiting) > 200:
            break
    else:
        pytest.fail(f"the last of five trials: {waiting}")
    iperf.end()
    drops = json.loads(switch.cli("show", "drops", "--json"))
    assert any(drop["reason"] == "queue_full" and drop["packets"] > 1000 for drop in drops), drops


def test_queues_read_back_over_openflow_rest_and_the_command_line(switch):
    configure(switch, 2, queue=[{"id": 3, "max_rate": "5Mbps", "weight": 9}, {"id": 7, "priority": 2}])
    listed = switch.ofctl("queue-get-config", "2")
    assert [int(number) for number in re.findall(r"queue (\d+):", listed)] == [0, 3, 7], listed
    stats = switch.ofctl("queue-stats")
    assert len(re.findall(r"port \S+ queue \d+: bytes=\d+, pkts=\d+, errors=0, duration=", stats)) == 3, stats
    assert "OFPQOFC_BAD_QUEUE" in switch.ofctl_errors("queue-stats", "2", "4")
    assert "OFPQOFC_BAD_PORT" in switch.ofctl_errors("queue-get-config", "9")
    shown = switch.cli("show", "queues")
    assert re.search(r"p2 +3 +0 +9 +- +5Mbps", shown), shown
    configure(switch, 2, queue=[])
    wait_for("no queues", lambda: switch.cli("show", "queues").strip() == "no port has queues")


def test_a_policer_lets_through_its_rate_and_counts_colors(switch, iperf):
    policer = {"kind": "trtcm-4115", "cir": "20Mbps", "eir": "10Mbps", "yellow": {"action": "pass", "dscp": 12}}
    configure(switch, 1, policer=policer)
    iperf.begin_udp("80M")
    wait_for("it has something to do", lambda: received()[0] > 2_000_000)
    assert_limited_to(30, 7_500_000)
    iperf.end()
    port = json.loads(switch.cli("show", "policers", "--json"))["br0"][0]["policer"]
    green, yellow, red = (port[color]["packets"] for color in ("green", "yellow", "red"))
    assert abs(green / yellow / 2 - 1) < 0.1 and red > green, port
    assert switch.cli("show", "policers").count("drop") == 1
    configure(switch, 1, policer=None)
    assert "no port has a policer" in switch.cli("show", "policers")


def test_rates_are_told_as_shares_of_the_speed_of_a_port(tmp_path):
    with cables(("mr-qv1", "mr-qv2")):
        ports = [(1, "net_af_packet1,iface=mr-qv1")]
        with Millrace(tmp_path, ports=ports, system="memory_mib = 128", dpdk=True) as switch:
            wait_for("the link is up", lambda: "LIVE" in switch.ofctl("show"))
            configure(switch, 1, queue=[{"id": 1, "min_rate": "50Mbps", "max_rate": "2Gbps"}, {"id": 2}])
            listed = switch.ofctl("queue-get-config", "1")
            # The kernel reports 10 Gbit/s for a veth pair.
            assert re.search(r"queue 1:\s+min_rate:0.5%\s+max_rate:20.0%", listed), listed
            assert listed.count("min_rate") == 1, listed
