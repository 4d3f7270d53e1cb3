"""Emulated paths over interfaces of the kernel: delay, loss, rate and order as the kernel's own stamps show them.

Bounds are wide enough for two busy cores; `millrace bench wan` judges distributions. Needs root.
"""

import contextlib
import itertools
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

import pytest

import namespaces
import wan_path
from switches import TARGET, Millrace, run, wait_for
from wan_path import HOSTS, NEAR, Emulator, captures, hosts, median, send

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
MS = 1_000_000


# Frames before those that are judged: the kernel begins to stamp a while after a socket has asked for it.
WARM_UP = 50


def delays(count, size=64, interval=0.001):
    """The delays in ns of frames from entry to arrival."""
    sent = WARM_UP + count
    with captures() as (sender, entry, arrival):
        send(sender, range(sent), size, interval)
        entered, arrived = dict(entry.read(sent)), dict(arrival.read(sent))
    assert len(entered) == sent == len(arrived)
    return [arrived[number] - entered[number] for number in range(WARM_UP, sent)]


def undisturbed(values):
    """The 10th percentile: on a busy machine the emulator is away from its core for a while, which only adds to a delay."""
    return sorted(values)[len(values) // 10]


@pytest.mark.measures
def test_a_delay_is_as_asked_and_no_frame_is_early(tmp_path):
    with hosts(), Emulator(tmp_path) as emulator:
        base = undisturbed(delays(300))
        for asked in (5, 50):
            emulator.set("--delay", f"{asked}ms")
            # A busy machine makes frames late in some trials, never early.
            for _ in range(5):
                measured = delays(300)
                assert min(measured) >= asked * MS, min(measured)
                error = undisturbed(measured) - asked * MS - base
                print(f"{asked} ms: error {error} ns, {base} ns without delay, median {median(measured) - asked * MS}, worst {max(measured) - asked * MS}")
                if error < 1 * MS:
                    break
            else:
                pytest.fail(f"{asked} ms: error {error} ns in the last of five trials, {base} ns without delay")


def test_lost_frames_are_those_that_the_counters_name_and_as_many_as_asked(tmp_path):
    count = 4000
    with hosts(), Emulator(tmp_path, "--loss", "10%", "--seed", "5") as emulator, captures() as (sender, _, arrival):
        reader = Reading(arrival, count)
        send(sender, range(count), interval=0.0001)
        wait_for("all frames are offered", lambda: emulator.direction()["offered"] == count)
        status = emulator.direction()
        lost = {drop["reason"]: drop["frames"] for drop in status["drops"]}
        assert list(lost) == ["loss_bernoulli"] and status["in_flight"] == 0
        arrived = reader.wait(count - lost["loss_bernoulli"])
        assert len(arrived) == count - lost["loss_bernoulli"]
        # Five standard deviations of a binomial distribution.
        assert abs(lost["loss_bernoulli"] - count * 0.1) < 5 * (count * 0.1 * 0.9) ** 0.5
        page = emulator.cli("show")
        assert "dropped: loss_bernoulli" in page and "a_to_b realised" in page


class Reading:
    """Reads stamped frames in a thread of its own."""

    def __init__(self, arrival, count):
        self.found, self.arrival, self.count, self.is_wanted = [], arrival, count, True
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        while self.is_wanted and len(self.found) < self.count:
            self.found += self.arrival.read(self.count - len(self.found), bound=0.2)

    def wait(self, count, bound=60):
        """All frames, when so many have arrived or the bound has passed."""
        with contextlib.suppress(AssertionError):
            wait_for("all frames", lambda: len(self.found) >= count, bound)
        self.is_wanted = False
        self.thread.join()
        return self.found


@pytest.mark.measures
def test_frames_leave_at_the_rate_asked(tmp_path):
    count, size, rate, fewest = 1200, 1000, 10_000_000, 300
    # Ethernet framing: the payload and 18 bytes, which is the frame and its check sequence.
    asked = 8 * (size + 4) * 10**9 / rate
    with hosts(), Emulator(tmp_path, "--rate", "10Mbps", "--queue", "2s") as emulator, captures() as (sender, _, arrival):
        for _ in range(5):
            offered = emulator.direction()["offered"]
            reader = Reading(arrival, count)
            send(sender, range(count), size)
            wait_for("all frames are offered", lambda: emulator.direction()["offered"] == offered + count)
            full_since = time.time_ns()
            arrived = sorted(stamp for _, stamp in reader.wait(count))
            assert len(arrived) == count
            # While frames arrive, the queue is empty whenever a busy machine keeps their sender from its core.
            times = [stamp for stamp in arrived if stamp > full_since]
            if len(times) >= fewest:
                break
        else:
            pytest.fail(f"in five trials fewer than {fewest} frames waited when all had been offered: {len(times)}")
    # A busy machine makes frames late, never early: the earliest of each half are where the rate puts them.
    offsets, half = [stamp - number * asked for number, stamp in enumerate(times)], len(times) // 2
    drift = (min(offsets[half:]) - min(offsets[:half])) / (half * asked)
    assert abs(drift) < 0.02, f"{drift:.4f} of the time between frames, {asked:.0f} ns, of {len(times)} frames"


def test_a_queue_holds_as_many_frames_as_asked(tmp_path):
    with hosts(), Emulator(tmp_path, "--rate", "1kbps", "--queue", "10packets") as emulator, captures() as (sender, _, _):
        # A frame takes 8 s: all are there before the second one leaves.
        for number in range(40):
            sender.send(wan_path.frame(number, 1000))
        status = wait_for("all are offered", lambda: (found := emulator.direction())["offered"] == 40 and found)
        dropped = {drop["reason"]: drop["frames"] for drop in status["drops"]}
        # Ten wait, one is being sent; on a busy machine one or two have left before the last one arrives.
        assert 40 - 11 - 3 <= dropped["queue_full"] <= 40 - 10, dropped


def test_jitter_keeps_the_order_unless_reordering_is_asked_for(tmp_path):
    count = 500
    with hosts(), Emulator(tmp_path, "--delay", "20ms", "--jitter", "8ms") as emulator:
        warnings = emulator.direction()["warnings"]
        assert any("mean" in warning for warning in warnings), warnings
        for order, is_kept in (("ordered", True), ("reordering", False)):
            emulator.set("--order", order)
            with captures() as (sender, _, arrival):
                send(sender, range(count), interval=0.0005)
                numbers = [number for number, _ in arrival.read(count)]
            assert sorted(numbers) == list(range(count))
            assert (numbers == sorted(numbers)) is is_kept, order


def test_settings_change_under_traffic_without_loss_or_reordering(tmp_path):
    changes = 30
    with hosts(), Emulator(tmp_path, "--delay", "20ms") as emulator, captures() as (sender, _, arrival):
        reader, sent, made = Reading(arrival, sys.maxsize), 0, threading.Event()

        def until_all_are_made():
            nonlocal sent
            for number in itertools.takewhile(lambda _: not made.is_set(), itertools.count()):
                send(sender, [number])
                sent += 1
                time.sleep(0.001)

        sending = threading.Thread(target=until_all_are_made)
        sending.start()
        try:
            for change in range(changes):
                before = sent
                emulator.set("--delay", f"{5 + change % 20}ms", "--jitter", "1ms" if change % 2 else "none")
                wait_for("frames are sent under these settings", lambda: sent > before + 20)
        finally:
            made.set()
            sending.join()
        numbers = [number for number, _ in reader.wait(sent)]
    assert numbers == list(range(sent))


def state_of(interface):
    """Returns the state of an interface that a program could have changed."""
    link = run("ip", "-d", "link", "show", interface)
    details = re.findall(r"(mtu \d+|qdisc \S+|promiscuity \d+|allmulti \d+|<[^>]*>)", link)
    return details, run("ip", "addr", "show", interface), run("tc", "qdisc", "show", "dev", interface)


def test_kill_9_leaves_no_interface_changed_and_traffic_flows_again(tmp_path):
    with hosts():
        before = [state_of(near) for near in NEAR]
        with Emulator(tmp_path, "--delay", "1ms") as emulator:
            namespaces.inside(HOSTS[0], "ping", "-c", "1", "-W", "20", "10.0.0.2")
            assert state_of(NEAR[0])[0] != before[0][0], "promiscuous while it runs"
            emulator.kill()
            assert [state_of(near) for near in NEAR] == before
            emulator.start()
            namespaces.inside(HOSTS[0], "ping", "-c", "1", "-W", "20", "10.0.0.2")
        assert [state_of(near) for near in NEAR] == before
        assert not emulator.socket.exists()


def test_hosts_with_offloads_exchange_tcp_and_frames_on_the_path_are_no_longer_than_the_mtu(tmp_path):
    with hosts(offloads=True), Emulator(tmp_path, "--delay", "2ms", "--rate", "200Mbps", "--queue", "100ms") as emulator:
        server = subprocess.Popen(["ip", "netns", "exec", HOSTS[1], "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
        try:
            wait_for("the server listens", lambda: ":5201" in namespaces.inside(HOSTS[1], "ss", "-ltn"))
            namespaces.inside(HOSTS[0], "iperf3", "-c", "10.0.0.2", "-n", "8M")
        finally:
            server.kill()
            server.wait(timeout=60)
        status = emulator.direction()
        sizes = status["released_bytes"] / status["released"]
        # iperf3 ends when it has written all; part of that is still in its socket. GSO packets would be some hundred.
        assert sizes <= 1514 and status["offered"] >= 3000, status
        assert status["delay_given"]["count"] == status["released"] + status["in_flight"]


def pings(address):
    """Returns the output of ping for three packets of 1428 bytes that routers must not fragment."""
    size = 1428 - (48 if ":" in address else 28)
    return subprocess.run(["ip", "netns", "exec", HOSTS[0], "ping", "-M", "do", "-s", str(size), "-c", "3", "-i", "0.2", "-W",
                           "5", address], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60).stdout


def with_ipv6():
    """Gives the hosts the addresses fd00::1 and fd00::2."""
    for number, host in enumerate(HOSTS, 1):
        namespaces.inside(host, "sh", "-c", "echo 0 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6")
        namespaces.inside(host, "ip", "addr", "add", f"fd00::{number}/64", "dev", "eth0", "nodad")


RECEIVER = """
import socket
connection = socket.create_server(("10.0.0.2", 5201)).accept()[0]
while connection.recv(65536):
    pass
"""
SENDER = """
import socket
with socket.create_connection(("10.0.0.2", 5201), 60) as connection:
    connection.sendall(bytes(2 << 20))
"""


def transfer():
    """Sends 2 MiB over TCP from host a to host b, and waits until b has them all."""
    receiver = subprocess.Popen(["ip", "netns", "exec", HOSTS[1], sys.executable, "-c", RECEIVER])
    try:
        wait_for("the receiver listens", lambda: ":5201" in namespaces.inside(HOSTS[1], "ss", "-ltn"))
        namespaces.inside(HOSTS[0], sys.executable, "-c", SENDER)
        assert receiver.wait(timeout=60) == 0
    finally:
        receiver.kill()
        receiver.wait(timeout=60)


def test_packets_over_the_mtu_are_answered_by_icmp_and_hosts_learn_the_path_mtu(tmp_path):
    """Linux discovers the path MTU (RFC 1191, RFC 8201) from the emulator's answers: with echoes and with TCP, with offloads."""
    with hosts(offloads=True), Emulator(tmp_path, "--mtu", "1300", "--over-mtu", "too-big") as emulator:
        with_ipv6()
        transfer()
        wait_for("the bytes are counted", lambda: emulator.direction()["released_bytes"] > 2 << 20)
        assert emulator.direction()["icmp_errors_sent"] >= 1
        assert "mtu 1300" in namespaces.inside(HOSTS[0], "ip", "route", "get", "10.0.0.2")
        # Linux refuses a packet before it sends it, if it knows that the packet is too long.
        assert "mtu=1300" in pings("10.0.0.2")
        said = pings("fd00::2")
        assert "1300" in said and " 0 received" in said, said
        assert "mtu 1300" in namespaces.inside(HOSTS[0], "ip", "-6", "route", "get", "fd00::2")
        namespaces.inside(HOSTS[0], "ping", "-M", "do", "-s", "1252", "-c", "1", "-W", "20", "fd00::2")
        assert "answered by ICMP" in emulator.cli("show")


def test_what_cannot_be_had_is_refused_with_what_was_expected():
    for options, expected in (
        (("--delay=-1ms",), "delay"),
        (("--rate", "0bps"), "rate"),
        (("--jitter", "5ms,cauchy"), "jitter"),
        (("--loss", "120%"), "loss"),
        (("--memory", "1KiB", "--rate", "1Gbps"), "memory"),
        (("--delay", "10ms"), "memory"),
    ):
        done = subprocess.run([TARGET / "millrace", "wan", "between", "lo", "mr-nowhere", *options],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and expected in done.stderr, (options, done.stderr)
    done = subprocess.run([TARGET / "millrace", "wan", "between", "lo", "mr-nowhere", "--memory", "4MiB"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "mr-nowhere" in done.stderr


WAN = """
[[wan]]
name = "geo"
path = { delay = "30ms", rate = "50Mbps" }
b_to_a = { delay = "10ms" }
[[bridge]]
name = "left"
fail_mode = "standalone"
port = [{ name = "h", number = 1, device = "kernel:%s" }, { name = "w", number = 2, device = "wan:geo,a" }]
[[bridge]]
name = "right"
fail_mode = "standalone"
port = [{ name = "h", number = 1, device = "kernel:%s" }, { name = "w", number = 2, device = "wan:geo,b" }]
"""


def test_a_path_between_two_bridges_changes_over_rest_under_traffic(tmp_path):
    config = WAN % NEAR
    with hosts(), Daemon(tmp_path, config) as daemon:
        assert min(rtts()) >= 40
        patch = {"path": {"delay": "5ms"}, "b_to_a": {"delay": None}}
        daemon.rest.patch(f"{daemon.url}/config/wans/geo", json=patch, timeout=60,
                          headers={"content-type": "application/merge-patch+json"}).raise_for_status()
        wait_for("the change is in force", lambda: daemon.path()["directions"][1]["settings"]["delay"] == "5ms")
        # A busy machine makes echoes late, never early.
        assert min(wait_for("an echo without the former delay", lambda: (found := rtts()) and min(found) < 35 and found)) >= 10
        daemon.cli("wan", "set", "geo", "--delay", "25ms", "--a-to-b", "loss=0%")
        wait_for("the change is in force", lambda: daemon.path()["directions"][0]["settings"]["delay"] == "25ms")
        assert min(rtts()) >= 50
        path = daemon.path()
        assert path["ends"] == ["left/w", "right/w"] and path["directions"][0]["released"] > 0
        assert 'millrace_wan_released_packets_total{wan="geo",direction="a_to_b"}' in daemon.metrics()
        daemon.cli("wan", "set", "geo", "--mtu", "1300", "--over-mtu", "too-big", "--delay", "1ms")
        wait_for("the change is in force", lambda: "mtu" in daemon.path()["directions"][0]["settings"])
        assert "1300" in pings("10.0.0.2")
        assert "mtu 1300" in namespaces.inside(HOSTS[0], "ip", "route", "get", "10.0.0.2")
        refused = daemon.rest.patch(f"{daemon.url}/config/wans/geo", json={"path": {"delay": "-5ms"}}, timeout=60,
                                    headers={"content-type": "application/merge-patch+json"})
        assert refused.status_code in (400, 422) and "delay" in refused.text


def rtts():
    """The round-trip times of five echoes in ms."""
    text = namespaces.inside(HOSTS[0], "ping", "-c", "5", "-i", "0.1", "-W", "20", "10.0.0.2")
    return [float(value) for value in re.findall(r"time=([\d.]+)", text)]


class Daemon(Millrace):
    """A switch with a configuration of its own."""

    def __init__(self, folder, text):
        super().__init__(folder / "m")
        head = f'[system]\nstate_dir = "{self.folder / "state"}"\n[api]\nsocket = "{self.api_socket}"\n'
        self.config.write_text(head + text)

    def path(self):
        return self.rest.get(f"{self.url}/wans/geo", timeout=60).json()

    def metrics(self):
        return self.rest.get(self.url.replace("/api/v1", "") + "/metrics", timeout=60).text


LAB = """
name = "mr-wan"
[[host]]
name = "h1"
ip = "10.0.0.1/24"
[[host]]
name = "h2"
ip = "10.0.0.2/24"
[[switch]]
name = "br0"
kind = "linux-bridge"
ports = ["h1"]
[[link]]
ends = ["br0", "h2"]
wan = { delay = "15ms", rate = "100Mbps", b_to_a = { delay = "25ms" } }
"""


def test_a_link_of_a_lab_has_an_emulated_path_and_nothing_is_left_of_it(tmp_path):
    millrace = str(TARGET / "millrace")
    lab = pathlib.Path(tmp_path) / "lab.toml"
    lab.write_text(LAB)
    try:
        run(millrace, "lab", "up", str(lab))
        text = run(millrace, "lab", "run", "h1", "ping", "-c", "3", "-i", "0.1", "-W", "20", "10.0.0.2")
        times = [float(value) for value in re.findall(r"time=([\d.]+)", text)]
        # On a busy machine ping ends before the last reply: it waits for two round-trip times.
        assert times and min(times) >= 40, text
        shown = run(millrace, "lab", "run", "wan.1", millrace, "wan", "show")
        assert "a_to_b  delay 15ms" in shown, shown
    finally:
        run(millrace, "lab", "down", "mr-wan", check=False)
    # Who takes over the processes of the lab reads their exit status a moment later.
    wait_for("no emulator is left", lambda: "millrace-wan" not in run("ps", "-eo", "args"))
