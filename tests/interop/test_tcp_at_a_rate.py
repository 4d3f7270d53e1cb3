"""TCP gets the rate of a meter without burst size, and of a contract of an exchange, at the delays of a LAN and of a WAN.

The hosts have the default offloads of virtual Ethernet, so that a meter sees GSO packets of up to 64 KiB.
"""

import json
import os
import shutil
import subprocess

import pytest

import namespaces
from switches import Millrace, free_port, wait_for
from wan_path import HOSTS, NEAR, hosts

pytestmark = [
    pytest.mark.measures,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(not shutil.which("iperf3"), reason="iperf3 is not installed"),
]
SECONDS = 6

CONFIG = """
[system]
state_dir = "{folder}/state"
[api]
socket = "{folder}/api.sock"
[[wan]]
name = "path"
path = {{ delay = "{delay}", rate = "1Gbps" }}
[[bridge]]
name = "left"
listen = ["ptcp:{port}"]
port = [{{ name = "h", number = 1, device = "kernel:{near[0]}" }}, {{ name = "w", number = 2, device = "wan:path,a" }}]
[[bridge]]
name = "right"
fail_mode = "standalone"
port = [{{ name = "h", number = 1, device = "kernel:{near[1]}" }}, {{ name = "w", number = 2, device = "wan:path,b" }}]
"""


class Path(Millrace):
    """Two bridges with an emulated path between them."""

    def __init__(self, folder, delay):
        super().__init__(folder)
        self.openflow_port = free_port()
        self.config.write_text(CONFIG.format(folder=self.folder, delay=delay, port=self.openflow_port, near=NEAR))


def rate_of_tcp():
    """The rate in Mbit/s at which host 2 receives from host 1."""
    server = subprocess.Popen(["ip", "netns", "exec", HOSTS[1], "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
    try:
        wait_for("the server listens", lambda: namespaces.inside(HOSTS[1], "ss", "-Hltn", "sport = :5201"))
        text = namespaces.inside(HOSTS[0], "iperf3", "-J", "-c", "10.0.0.2", "-t", str(SECONDS), timeout=120)
    finally:
        server.kill()
        server.wait(timeout=60)
    return json.loads(text)["end"]["sum_received"]["bits_per_second"] / 1e6


# The meter of a contract is that of `millrace-ix-plan`: `builder.rs`, `BURST_MILLIS`.
METERS = {
    "without burst": "kbps,band=type=drop,rate={rate}",
    "contract": "kbps,burst,band=type=drop,rate={rate},burst_size={burst}",
}


@pytest.mark.parametrize("delay", ["0ms", "500us", "25ms"])
def test_tcp_gets_the_rate_of_a_meter_without_burst(tmp_path, delay):
    with hosts(offloads=True), Path(tmp_path / "m", delay) as switch:
        for kind, meter in METERS.items():
            for mbps in (20, 100):
                switch.ofctl("del-meters")
                switch.ofctl("add-meter", "meter=1," + meter.format(rate=mbps * 1000, burst=mbps * 200))
                switch.ofctl("add-flow", "priority=1,in_port=1,actions=meter:1,output:2")
                switch.ofctl("add-flow", "priority=1,in_port=2,actions=output:1")
                # A busy machine takes time from a flow, and never adds to it.
                got = []
                while len(got) < 8 and max(got, default=0) < 0.9 * mbps:
                    got.append(rate_of_tcp())
                print(f"{kind}, {mbps} Mbit/s, one-way delay {delay}: {[round(rate, 1) for rate in got]}")
                # The burst adds 200 ms of the rate.
                assert 0.9 * mbps <= max(got) <= 1.1 * mbps, (kind, mbps, got)
