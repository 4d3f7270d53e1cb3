"""Stand-alone functions (`millrace-nf --vhost`) behind vhost-user ports of Millrace and of Open vSwitch with DPDK, steered by
flow entries; switches are killed and restarted.
"""

import contextlib
import os
import pathlib
import re
import subprocess

import pytest

from switches import TARGET, Millrace, OpenVSwitch, wait_for

OVS_DPDK = pathlib.Path("/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk")
# From 02:..:01 to 02:..:02; each function exchanges the addresses.
FRAME = "02000000000202000000000188b5" + 46 * "00"
FIRST, SECOND = 11, 12
FRAMES = 50


class Function:
    """A macswap at a socket, which is restarted when it ends, as by a supervisor."""

    def __init__(self, socket, log):
        self.log, self.process = log, None
        self.command = [TARGET / "millrace-nf", "--vhost", socket, "--function", "macswap", "--descriptors", "256"]

    def start(self):
        self.log.write_text("")
        with self.log.open("a") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        return self

    def is_connected(self):
        return "connected to" in self.log.read_text()

    def ended(self):
        """Waits until the function has ended by itself, and returns its output."""
        wait_for("the end of the function", lambda: self.process.poll() is not None)
        return self.log.read_text()

    def stop(self):
        self.process.kill()
        self.process.wait(timeout=60)


class OpenVSwitchDpdk(OpenVSwitch):
    """A private Open vSwitch with DPDK and two vhost-user ports."""

    def start(self):
        database = self._start_database()
        extra = f"--no-pci --no-huge --legacy-mem -m 512 --no-telemetry --file-prefix ovs{os.getpid()}"
        self._vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:dpdk-init=true",
                    "other_config:dpdk-lcore-mask=0x1", "other_config:pmd-cpu-mask=0x2",
                    "other_config:per-port-memory=true", f'other_config:dpdk-extra="{extra}"')
        self._spawn(OVS_DPDK, database, "--disable-system", f"--unixctl={self.folder}/vs.ctl")
        self._vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "protocols=OpenFlow13",
                    "fail-mode=secure")
        for number in (FIRST, SECOND):
            self._vsctl("add-port", "br0", f"f{number}", "--", "set", "interface", f"f{number}",
                        "type=dpdkvhostuser", f"ofport_request={number}")
        return self


@pytest.fixture(params=["millrace", "ovs-dpdk"])
def switch(request, tmp_path):
    """A switch with two vhost-user ports, whose sockets are f11 and f12 in a folder."""
    folder = tmp_path / "switch"
    if request.param == "millrace":
        folder.mkdir()
        ports = [(number, f"vhost:{folder}/f{number}") for number in (FIRST, SECOND)]
        with Millrace(folder, ports) as switch:
            yield switch
        return
    if os.geteuid() != 0 or not OVS_DPDK.exists():
        pytest.skip("Open vSwitch with DPDK needs root and openvswitch-switch-dpdk")
    with OpenVSwitchDpdk(folder) as switch:
        yield switch


def send(switch, count):
    """Sends frames to the first function, one after the other."""
    for _ in range(count):
        switch.ofctl("packet-out", f"in_port=controller,packet={FRAME},actions=output:{FIRST}")


def passed(switch, match):
    """Returns the packet counter of an entry."""
    found = re.search(r"n_packets=(\d+)", switch.ofctl("dump-flows", match))
    return int(found.group(1)) if found else 0


@contextlib.contextmanager
def functions(folder, tmp_path):
    """Waits until both functions are connected."""
    both = [Function(folder / f"f{number}", tmp_path / f"f{number}.log") for number in (FIRST, SECOND)]
    try:
        for function in both:
            function.start()
        wait_for("functions", lambda: all(function.is_connected() for function in both))
        yield both
    finally:
        for function in both:
            function.stop()


def test_flow_entries_lead_through_functions_behind_either_switch(switch, tmp_path):
    there, back = "dl_src=02:00:00:00:00:02", "dl_src=02:00:00:00:00:01"
    switch.ofctl("add-flow", f"in_port={FIRST},{there},actions=output:{SECOND}")
    switch.ofctl("add-flow", f"in_port={SECOND},{back},actions=drop")
    with functions(switch.folder, tmp_path):
        # Frames that are sent before a link is up are lost.
        wait_for("the way through both", lambda: send(switch, 1) or passed(switch, f"in_port={SECOND}"))
        before = passed(switch, f"in_port={SECOND}")
        send(switch, FRAMES)
        wait_for("frames", lambda: passed(switch, f"in_port={SECOND}") >= before + FRAMES)


def test_a_function_ends_with_a_killed_switch_and_finds_the_next_one(tmp_path):
    folder = tmp_path / "switch"
    folder.mkdir()
    ports = [(number, f"vhost:{folder}/f{number}") for number in (FIRST, SECOND)]
    with Millrace(folder, ports) as switch:
        with functions(folder, tmp_path) as both:
            switch.stop(9)
            for function in both:
                assert "the switch has closed the connection" in function.ended()
                # The restarted function waits for the switch.
                function.start()
            switch.start()
            switch.ofctl("add-flow", f"in_port={FIRST},actions=drop")
            wait_for("functions", lambda: all(function.is_connected() for function in both))
            wait_for("a frame", lambda: send(switch, 1) or passed(switch, f"in_port={FIRST}"))
