#!/usr/bin/env python3
"""Two Millrace routers and one kernel router run OSPF and BGP by FRR; a link is cut under traffic, and the gap is printed.

    h1 -- r1 (Millrace) ---------- r2 (Millrace) -- h2
              \\                     /
               +---- r3 (kernel) ----+

Usage: MILLRACE_TARGET=target/demo demo/routing.py, as root. The topology is that of the tests (tests/interop/router_topology.py).
"""

import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/interop"))

from millrace_router import FpmRouter, Router  # noqa: E402
from router_topology import Topology, address, is_installed, network  # noqa: E402
from switches import opened, wait_for  # noqa: E402

# The interval of the packets in ms: the resolution of the gap.
INTERVAL_MS = 5


class Stream:
    """Numbered echo requests from one host to another, for a `with` statement."""

    def __init__(self, topology, source, destination):
        self.command = ["ip", "netns", "exec", topology.names[source], "ping", "-n", "-D", "-W", "1", "-i", str(INTERVAL_MS / 1000), destination]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        """Ends the stream, and returns the numbers of the answers in order of arrival."""
        if self.process.poll() is None:
            self.process.terminate()
        text, _ = self.process.communicate(timeout=20)
        return [int(number) for number in re.findall(r"icmp_seq=(\d+) ttl", text)]

    def wait_answers(self, topology, host, count):
        """Waits until this many echo requests have reached a host."""
        def received():
            text = topology.inside(host, "cat", "/proc/net/snmp")
            names, values = re.findall(r"^Icmp: (.*)$", text, re.M)[:2]
            return int(dict(zip(names.split(), values.split()))["InEchos"])

        start = received()
        wait_for(f"{count} packets at {host}", lambda: received() >= start + count, 20)


def longest_gap(numbers):
    """Returns the greatest number of packets that were lost in a row."""
    ordered = sorted(set(numbers))
    return max((later - earlier - 1 for earlier, later in zip(ordered, ordered[1:])), default=0)


def path_of(topology):
    """Returns the path from h1 to h2 as a text."""
    return " -> ".join(hop or "*" for hop in topology.trace("h1", address("h2", 4)))


def main():
    if not is_installed():
        print("Not shown: FRR is not installed. To fix it: scripts/setup.sh routers")
        return
    with tempfile.TemporaryDirectory(prefix="mr-demo-routing-") as folder:
        inner = pathlib.Path(folder) / "run" / "routers"
        inner.mkdir(parents=True)
        # r1 takes its routes from zebra by FPM, r2 from the kernel by netlink.
        with Topology(opened(inner), prefix="mr-demo-rt", kinds={"r1": FpmRouter, "r2": Router}) as topology:
            topology.wait_converged()
            wait_for("h1 reaches h2", lambda: topology.ping("h1", address("h2", 4)))
            router = topology.routers["r1"]
            print("$ millrace show vrfs        # r1, routes by FPM")
            print(router.switch.cli("show", "vrfs").rstrip())
            shown = router.millrace("show", "routes", "main", "--to", address("h2", 4))["main"][0]
            print(f"r1 reaches {network('h2', 4)} by {shown['protocol']}; the path from h1 to h2: {path_of(topology)}")
            with Stream(topology, "h1", address("h2", 4)) as stream:
                stream.wait_answers(topology, "h2", 100)
                topology.cut("r1", "r2")
                topology.wait_routes("r1", 4, network("h2", 4), {"r1-r3"}, 20)
                stream.wait_answers(topology, "h2", 100)
                numbers = stream.end()
            gap = longest_gap(numbers)
            print(f"The link of r1 and r2 is cut under {1000 // INTERVAL_MS} packets a second: {gap} lost in a row, a gap of about"
                  f" {gap * INTERVAL_MS} ms.")
            print(f"The path is now {path_of(topology)}: by r3, whose kernel forwards.")


if __name__ == "__main__":
    main()
