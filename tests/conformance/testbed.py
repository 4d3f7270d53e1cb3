"""Two switches, three links and a controller, as os-ken's tester requires, in a network namespace of its own.

The switch under test is `millraced` with three tap devices, or with three kernel interfaces (`kernel:u1`); the tester is
Open vSwitch's user-space datapath, whose ports are the other ends. Both restore a VLAN tag that the kernel removed, with
its TPID.
"""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

INTEROP = pathlib.Path(__file__).resolve().parents[1] / "interop"
sys.path.insert(0, str(INTEROP))

import switches  # noqa: E402: needs the path of the line above
from switches import Millrace, run, wait_for  # noqa: E402: needs the path of the line above

PORTS = (1, 2, 3)
CONTROLLER = "tcp:127.0.0.1:6633"
# The bound in seconds for an answer and for a packet. Many cases fail with Open vSwitch in the place of `millraced`.
WAIT_S, PEER_WAIT_S = 20, 3
TARGET_DPID, TESTER_DPID = "0000000000000001", "0000000000000002"


def enter_namespace():
    """Restarts this program in a network namespace that ends with it, unless it is in one already."""
    if os.environ.get("CONFORMANCE_NAMESPACE") != "1":
        os.environ["CONFORMANCE_NAMESPACE"] = "1"
        os.execvp("unshare", ["unshare", "--net", "--", sys.executable, *sys.argv])
    run("ip", "link", "set", "lo", "up")
    # No host is in this namespace: disable neighbour and router solicitation.
    for scope in ("all", "default"):
        pathlib.Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6").write_text("1")


class OpenVSwitch(switches.OpenVSwitch):
    """An Open vSwitch with kernel interfaces as ports, and a controller."""

    def __init__(self, folder, bridges):
        """`bridges` are pairs: a datapath id, and the prefix of its interfaces' names."""
        super().__init__(folder)
        self.bridges = bridges

    def start(self):
        """Starts the switch; its interfaces exist already."""
        database = self._start_database()
        # The flow cache of Open vSwitch lags behind its barriers: without a cache every packet is looked up in the tables.
        self._vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:flow-limit=0",
                    "other_config:emc-insert-inv-prob=0", "other_config:vlan-limit=2")
        self._spawn("ovs-vswitchd", database, "--disable-system", f"--unixctl={self.folder}/vs.ctl")
        for dpid, prefix in self.bridges:
            self._add_bridge(f"br-{prefix}", dpid, prefix)
        return self

    def _add_bridge(self, name, dpid, prefix):
        self._vsctl("add-br", name, "--", "set", "bridge", name, "datapath_type=netdev", "protocols=OpenFlow13",
                    "fail-mode=secure", f"other-config:datapath-id={dpid}", "other-config:disable-in-band=true")
        for number in PORTS:
            interface = f"{prefix}{number}"
            self._vsctl("add-port", name, interface, "--", "set", "interface", interface, f"ofport_request={number}")
        self._vsctl("set-controller", name, CONTROLLER)


def veths():
    """Returns links between two switches that create no interfaces themselves: `u` and a number, `t` and a number."""
    for number in PORTS:
        run("ip", "link", "add", f"u{number}", "type", "veth", "peer", "name", f"t{number}")
        for name in (f"u{number}", f"t{number}"):
            run("ip", "link", "set", name, "up")


# How `millraced` attaches to a link: it creates the interface itself or not; its device; and it needs DPDK or not.
DEVICES = {
    "tap": (True, "net_tap{0},iface=t{0}", True),
    "kernel": (False, "kernel:u{0}", False),
    "af_packet": (False, "net_af_packet{0},iface=u{0}", True),
}


class Testbed:
    """Both switches, connected; `run_cases` runs the controller on them.

    The switch under test may be Open vSwitch, too (`peer`): its score is known, and so verifies the verdicts.
    """

    def __init__(self, folder, peer=False, device="tap"):
        self.folder = pathlib.Path(folder)
        self.makes_cables, text, dpdk = DEVICES[device]
        ports = [(number, text.format(number)) for number in PORTS]
        self.peer = peer
        self.target = Millrace(self.folder / "millrace", ports=ports, controllers=[CONTROLLER], dpdk=dpdk,
                               system='memory_mib = 128\nhuge_pages = "off"')
        bridges = [(TESTER_DPID, "t")] + [(TARGET_DPID, "u")] * peer
        self.openvswitch = OpenVSwitch(self.folder / "openvswitch", bridges)

    def __enter__(self):
        try:
            if self.peer or not self.makes_cables:
                veths()
            if not self.peer:
                self.target.start()
            wait_for("the cables are there", lambda: {f"t{n}" for n in PORTS} <= interfaces())
            self.openvswitch.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.openvswitch.stop()
        self.target.stop()

    def run_cases(self, plan, bound, progress=lambda result: None):
        """Runs the cases of a plan, a list of (file, indices), within `bound` seconds, and returns their results in order.

        Cases that were not reached in time are missing.
        """
        results = self.folder / "results.jsonl"
        results.write_text("")
        environment = os.environ | {"CONFORMANCE_PLAN": json.dumps(plan), "CONFORMANCE_RESULTS": str(results),
                                    "CONFORMANCE_WAIT": str(PEER_WAIT_S if self.peer else WAIT_S)}
        manager = pathlib.Path(sys.executable).with_name("osken-manager")
        command = [manager, "--ofp-tcp-listen-port", CONTROLLER.rsplit(":", 1)[1],
                   "--test-switch-target", TARGET_DPID, "--test-switch-tester", TESTER_DPID,
                   str(pathlib.Path(__file__).with_name("tester.py"))]
        deadline = time.monotonic() + bound
        with (self.folder / "tester.log").open("w") as log:
            controller = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            seen = 0
            while controller.poll() is None and time.monotonic() < deadline:
                seen = report(results, seen, progress)
                time.sleep(0.2)
        finally:
            if controller.poll() is None:
                controller.send_signal(signal.SIGKILL)
            controller.wait(timeout=switches.STOP_BOUND)
        report(results, seen, progress)
        return [json.loads(line) for line in results.read_text().splitlines()]


def interfaces():
    """Returns the names of this namespace's network interfaces."""
    return {name for _, name in socket.if_nameindex()}


def report(results, seen, progress):
    """Reports new results to `progress`, and returns the number of results."""
    lines = results.read_text().splitlines()
    for line in lines[seen:]:
        progress(json.loads(line))
    return len(lines)


def natural(name):
    """Returns the sort key of os-ken: the file name."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(name))]
