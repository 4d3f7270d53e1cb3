"""Guests of the lab: virtual machines on Debian's cloud kernel, with vhost-user NICs of a Millrace switch. They communicate
through it, one of them forwards in a chain of flow entries, and all of them outlive the switch.

The tests need root, QEMU and the guests' kernel: `scripts/setup.sh guests`. Guests are emulated (TCG) unless KVM works.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

from guest import needs_guests
from switches import TARGET, run, wait_for

pytestmark = needs_guests
NAME = "guests-test"
FILE = f"""
name = "{NAME}"
[[guest]]
name = "vm1"
ip = "10.0.0.1/24"
tso = true
[[guest]]
name = "vm2"
ip = "10.0.0.2/24"
tso = true
[[guest]]
name = "hop"
forward = true
[[host]]
name = "h1"
ip = "10.0.0.3/24"
[[switch]]
name = "br0"
kind = "millrace"
device = "af_packet"    # takes no GSO packets, as a wire
fail_mode = "secure"
ports = ["vm1", "vm2", "hop", "hop", "h1"]
"""
VM1, VM2, HOP_NEAR, HOP_FAR, H1 = 1, 2, 3, 4, 5
DIRECT = [(VM1, VM2), (VM2, VM1)]
CHAIN = [(VM1, HOP_NEAR), (HOP_FAR, VM2), (VM2, HOP_FAR), (HOP_NEAR, VM1)]


class Lab:
    def __init__(self, folder):
        self.file = folder / "lab.toml"
        self.file.write_text(FILE)
        self.environment = os.environ | {"MILLRACED": str(TARGET / "millraced")}

    def millrace(self, *arguments, bound=60, check=True):
        done = subprocess.run([TARGET / "millrace", "lab", *arguments], env=self.environment, capture_output=True,
                              text=True, timeout=bound)
        assert not check or done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done

    def __enter__(self):
        self.millrace("down", NAME, check=False)
        try:
            done = self.millrace("up", str(self.file), bound=300)
            print(done.stderr)
        except BaseException:
            self.millrace("down", NAME, check=False)
            raise
        return self

    def __exit__(self, *_):
        self.millrace("down", NAME)

    def run(self, node, *command, check=True, bound=60):
        return self.millrace("run", "--lab", NAME, node, *command, check=check, bound=bound)

    def flows(self, pairs):
        """Returns the connected ports."""
        target = "tcp:127.0.0.1:6653"
        self.run("br0", "ovs-ofctl", "-O", "OpenFlow13", "del-flows", target)
        for here, there in pairs:
            self.run("br0", "ovs-ofctl", "-O", "OpenFlow13", "add-flow", target, f"in_port={here},actions=output:{there}")

    def counts(self, port):
        """Returns the packets and bytes that a port received and sent."""
        text = self.run("br0", "ovs-ofctl", "-O", "OpenFlow13", "dump-ports", "tcp:127.0.0.1:6653", str(port)).stdout
        return [int(number) for pair in re.findall(r"pkts=(\d+), bytes=(\d+)", text) for number in pair]

    def received(self, port):
        return self.counts(port)[0]

    def pings(self, count=3, bound=60):
        def once():
            return self.run("vm1", "ping", "-c", str(count), "-W", "1", "10.0.0.2", check=False).returncode == 0

        return wait_for("vm2 answers vm1", once, bound)

    def iperf(self, seconds=3, server="vm2", address="10.0.0.2", client="vm1"):
        """Returns the rate of one TCP stream in Mbit/s."""
        self.run(server, "sh", "-c", "pidof iperf3 || iperf3 -s -D")
        # 5201 in hexadecimal, in state LISTEN.
        wait_for("iperf3 listens", lambda: self.run(server, "sh", "-c", "cat /proc/net/tcp6 /proc/net/tcp | grep -q ':1451 .* 0A '",
                                                    check=False).returncode == 0)
        text = self.run(client, "iperf3", "-J", "-t", str(seconds), "-c", address).stdout
        return json.loads(text)["end"]["sum_received"]["bits_per_second"] / 1e6

    def daemon(self):
        status = json.loads(self.millrace("--json", "status", NAME).stdout)
        return next(daemon for daemon in status[0]["daemons"] if daemon["role"] == "millraced")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with Lab(tmp_path_factory.mktemp("guests")) as lab:
        yield lab


def test_two_guests_ping_and_iperf3_through_the_switch(lab):
    lab.flows(DIRECT)
    lab.pings()
    rate = lab.iperf()
    print(f"one TCP stream from guest to guest: {rate:.0f} Mbit/s")
    assert rate > 1
    assert "driver: virtio_net" in lab.run("vm1", "ethtool", "-i", "eth0").stdout
    assert lab.run("vm1", "sh", "-c", "exit 7", check=False).returncode == 7


def test_a_guest_leaves_the_cutting_of_tcp_to_the_switch_and_another_takes_it_whole(lab):
    """The test measures with and without TSO, in turn; the sending guest's ethtool shows the setting."""
    lab.flows(DIRECT)
    lab.pings()
    rates, sizes = {"on": [], "off": []}, {}
    # A guest that waits for its core sends what its window allows, which may be little, in some rounds.
    for _ in range(5):
        for tso, found in rates.items():
            lab.run("vm1", "ethtool", "-K", "eth0", "tso", tso)
            before = lab.counts(VM1) + lab.counts(VM2)
            found.append(lab.iperf(2))
            now = lab.counts(VM1) + lab.counts(VM2)
            packets, size, _, _, _, _, to_packets, to_size = [b - a for a, b in zip(before, now)]
            sizes[tso] = (size / packets, to_size / to_packets)
        assert max(sizes["off"]) < 1_522, sizes
        if min(sizes["on"]) > 4_000:
            break
    lab.run("vm1", "ethtool", "-K", "eth0", "tso", "on")
    print(f"Mbit/s with {rates['on']} and without {rates['off']}; bytes a packet (from, to): {sizes}")
    assert min(sizes["on"]) > 4_000, sizes


def test_a_host_on_a_wire_gets_segments_from_a_guest_and_a_guest_hears_it(lab):
    lab.flows([(VM1, H1), (H1, VM1)])
    wait_for("it answers", lambda: lab.run("vm1", "ping", "-c", "1", "-W", "1", "10.0.0.3", check=False).returncode == 0, 60)
    server = subprocess.Popen(["ip", "netns", "exec", f"mr-{NAME}-h1", "iperf3", "-s"], stdout=subprocess.DEVNULL)
    try:
        wait_for("it listens", lambda: "5201" in lab.run("h1", "ss", "-ltn").stdout)
        for _ in range(5):
            before = lab.counts(VM1) + lab.counts(H1)
            text = lab.run("vm1", "iperf3", "-J", "-t", "3", "-c", "10.0.0.3").stdout
            now = lab.counts(VM1) + lab.counts(H1)
            packets, size, _, _, _, _, to_packets, to_size = [b - a for a, b in zip(before, now)]
            print(f"from the guest {size / packets:.0f} bytes a packet, to the wire {to_size / to_packets:.0f}")
            assert to_size / to_packets < 1_515
            if size / packets > 4_000:
                break
        else:
            pytest.fail("packets from the guest were no larger in any of five rounds")
        end = json.loads(text)["end"]
        print(f"{end['sum_received']['bits_per_second'] / 1e6:.0f} Mbit/s, {end['sum_sent']['retransmits']} sent again")
        assert end["sum_received"]["bytes"] > 1_000_000
    finally:
        server.kill()
        server.wait(timeout=60)


def test_a_guest_forwards_in_a_chain(lab):
    lab.flows(CHAIN)
    before = lab.received(HOP_FAR)
    lab.pings()
    assert lab.received(HOP_FAR) >= before + 3
    rate = lab.iperf()
    print(f"one TCP stream through a guest that forwards: {rate:.0f} Mbit/s")
    assert lab.received(HOP_FAR) > before + 100


def has_ended(pid):
    """Returns true if all threads of a process have ended, so that its files are closed; releasing memory before takes a while."""
    process = pathlib.Path(f"/proc/{pid}")
    try:
        is_dead = (process / "stat").read_text().rsplit(") ", 1)[1].startswith("Z")
        return is_dead and len(list((process / "task").iterdir())) == 1
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_switch_that_is_killed_under_its_guests_comes_back_and_they_go_on(lab):
    """The switch is killed three times. The guests are not touched: their NICs reconnect to the switch, which gets its entries again."""
    lab.flows(CHAIN)
    lab.pings()
    pid = lab.daemon()["process"]["pid"]
    command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
    variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")[:-1]
    environment = dict(variable.split("=", 1) for variable in variables)
    processes, times = [], []
    try:
        for _ in range(3):
            began = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            wait_for("it is gone", lambda: has_ended(pid), 60)
            processes.append(subprocess.Popen(["ip", "netns", "exec", f"mr-{NAME}-br0", *command], env=environment,
                                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            pid = processes[-1].pid
            wait_for("it listens", lambda: lab.run("br0", "ovs-ofctl", "-O", "OpenFlow13", "show", "tcp:127.0.0.1:6653",
                                                   check=False).returncode == 0, 60)
            lab.flows(CHAIN)
            lab.pings(count=1, bound=60)
            times.append(time.monotonic() - began)
        uptime = float(lab.run("vm1", "cat", "/proc/uptime").stdout.split()[0])
        assert uptime > sum(times), "the guests were not begun again"
        print("traffic through a guest again after", ", ".join(f"{t:.1f}" for t in times), "s from the kill on")
        lab.iperf(1)
    finally:
        for process in processes:
            process.kill()
            process.wait(timeout=60)
