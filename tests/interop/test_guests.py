"""Guests of the lab: virtual machines on Debian's cloud kernel, with vhost-user NICs of a Millrace switch. They talk through
it, one of them forwards in a chain of flow entries, and all of them outlive the switch.

Needs root, QEMU and the guests' kernel: `scripts/setup.sh guests`. Emulated (TCG) unless KVM really works.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest

from switches import TARGET, run, wait_for

KERNELS = [pathlib.Path(root) / "boot" for root in (os.environ.get("MILLRACE_GUEST", "/var/cache/millrace/guest"), "/")]
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root"),
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not there: scripts/setup.sh guests"),
    pytest.mark.skipif(
        not any(list(boot.glob("vmlinuz-*cloud*")) for boot in KERNELS),
        reason="no kernel for guests: scripts/setup.sh guests",
    ),
]
NAME = "guests-test"
FILE = f"""
name = "{NAME}"
[[guest]]
name = "vm1"
ip = "10.0.0.1/24"
[[guest]]
name = "vm2"
ip = "10.0.0.2/24"
[[guest]]
name = "hop"
forward = true
[[switch]]
name = "br0"
kind = "millrace"
fail_mode = "secure"
ports = ["vm1", "vm2", "hop", "hop"]
"""
VM1, VM2, HOP_NEAR, HOP_FAR = 1, 2, 3, 4
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
        self.millrace("down", NAME)
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
        """Ports that are connected, and no others."""
        target = "tcp:127.0.0.1:6653"
        self.run("br0", "ovs-ofctl", "-O", "OpenFlow13", "del-flows", target)
        for here, there in pairs:
            self.run("br0", "ovs-ofctl", "-O", "OpenFlow13", "add-flow", target, f"in_port={here},actions=output:{there}")

    def received(self, port):
        text = self.run("br0", "ovs-ofctl", "-O", "OpenFlow13", "dump-ports", "tcp:127.0.0.1:6653", str(port)).stdout
        return int(re.search(r"rx pkts=(\d+)", text)[1])

    def pings(self, count=3, bound=30):
        def once():
            return self.run("vm1", "ping", "-c", str(count), "-W", "1", "10.0.0.2", check=False).returncode == 0

        return wait_for("vm2 answers vm1", once, bound)

    def iperf(self, seconds=3):
        """Mbit/s of one TCP stream."""
        self.run("vm2", "sh", "-c", "pidof iperf3 || iperf3 -s -D")
        text = self.run("vm1", "iperf3", "-J", "-t", str(seconds), "-c", "10.0.0.2").stdout
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


def test_a_guest_forwards_in_a_chain(lab):
    lab.flows(CHAIN)
    before = lab.received(HOP_FAR)
    lab.pings()
    assert lab.received(HOP_FAR) >= before + 3
    rate = lab.iperf()
    print(f"one TCP stream through a guest that forwards: {rate:.0f} Mbit/s")
    assert lab.received(HOP_FAR) > before + 100


def test_a_switch_that_is_killed_under_its_guests_comes_back_and_they_go_on(lab):
    """Three times. Nothing is done to the guests: their NICs find the switch, which is told its entries anew."""
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
            wait_for("it is gone", lambda: not pathlib.Path(f"/proc/{pid}/exe").exists())
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
            process.wait(timeout=20)
