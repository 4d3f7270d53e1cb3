"""Measures routing beside dpdk-l3fwd: the row R6 of `millrace bench route` (docs/gates.md, "The router").

    net_pcap (4,096 packets from memory, without end) -- [ one core: Millrace, or l3fwd ] -- net_pcap (one packet; takes all)

Both have the same 65,536 routes of /24 and one next hop, whose packet tells a bridge where it is; each packet has a random
destination in them. The programs run in turn,
each alone, several times; the rate is what leaves, and the row is the ratio of the medians. l3fwd is DPDK's example
(`scripts/setup.sh l3fwd` builds it with `--lookup=fib`), without its demand for checksums by the device, which a replayed file
cannot meet. Needs root and a namespace of its own (scripts/apart.sh).

Usage: MILLRACE_TARGET=target/release scripts/apart.sh target/venv/bin/python tests/interop/beside_l3fwd.py [ROUNDS]
"""

import contextlib
import ipaddress
import json
import pathlib
import random
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from live_routes import say  # noqa: E402
from namespaces import inside, made  # noqa: E402
from switches import ROOT, Millrace, end, opened, wait_for  # noqa: E402

L3FWD = ROOT / "target" / "l3fwd" / "l3fwd"
NAMESPACE = "mr-l3fwd"
ROUTES, PACKETS = 65_536, 4096
ROUTER_MAC, HOST_MAC, NEXT_MAC = "02:00:00:00:00:10", "02:00:00:00:00:11", "02:00:00:00:00:20"
# The core of the forwarding thread. The control threads of both programs wait elsewhere.
CORE = 1
# The time in s before a measurement and of it.
WARM_UP_S, WINDOW_S = 1, 2
# The drivers of the same devices: without `tx_pcap`, packets are counted and freed.
SOURCE, SINK = "net_pcap0,rx_pcap={}/packets.pcap,infinite_rx=1", "net_pcap1,rx_pcap={}/hello.pcap"

CONFIG = f"""
[system]
state_dir = "{{folder}}/state"
worker_cores = [{CORE}]
idle = "busy"
huge_pages = "off"
[api]
socket = "{{folder}}/api.sock"
[[vrf]]
name = "main"
netns = "{NAMESPACE}"
[[bridge]]
name = "west"
fail_mode = "standalone"
[[bridge]]
name = "east"
fail_mode = "standalone"
[[bridge.port]]
name = "p1"
number = 1
device = "{{sink}}"
[[interface]]
name = "w0"
vrf = "main"
bridge = "west"
mac = "{ROUTER_MAC}"
address = ["10.0.10.1/24"]
[[interface]]
name = "e0"
vrf = "main"
bridge = "east"
address = ["10.0.20.1/24"]
"""


def prefixes():
    """Returns the prefixes: 16.0.0.0/24 and those that follow."""
    return [f"{ipaddress.IPv4Address((16 << 24) + (number << 8))}/24" for number in range(ROUTES)]


def checksum(header):
    """Returns the checksum of an IPv4 header whose own is 0 (RFC 1071)."""
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(number, destination):
    """Returns a UDP packet in a frame of 64 bytes, without the frame check sequence."""
    begin = struct.pack("!BBHHHBBH", 0x45, 0, 46, number, 0, 64, socket.IPPROTO_UDP, 0)
    addresses = ipaddress.IPv4Address("10.0.10.2").packed + destination.to_bytes(4)
    header = begin[:10] + struct.pack("!H", checksum(begin + addresses)) + addresses
    ethernet = bytes.fromhex((ROUTER_MAC + HOST_MAC).replace(":", "")) + b"\x08\x00"
    return ethernet + header + struct.pack("!HHHH", 1000 + number, 2000, 26, 0) + bytes(18)


def write_capture(path, packets):
    """Writes packets as a file of libpcap."""
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for packet in packets:
            file.write(struct.pack("<IIII", 0, 0, len(packet), len(packet)) + packet)


def write_captures(folder):
    """Writes the packets to route, and the one of the next hop (of an EtherType for experiments, IEEE 802)."""
    rng = random.Random(1)
    destinations = [(16 << 24) + (rng.randrange(ROUTES) << 8) + rng.randrange(1, 255) for _ in range(PACKETS)]
    write_capture(folder / "packets.pcap", [frame(number, to) for number, to in enumerate(destinations)])
    hello = bytes.fromhex(("ff:ff:ff:ff:ff:ff" + NEXT_MAC).replace(":", "")) + b"\x88\xb5" + bytes(46)
    write_capture(folder / "hello.pcap", [hello])


def rate(count):
    """Returns the packets a second that a counter counts."""
    wait_for("packets leave", lambda: count() > 0)
    time.sleep(WARM_UP_S)
    before, begun = count(), time.monotonic()
    time.sleep(WINDOW_S)
    after, ended = count(), time.monotonic()
    return (after - before) / (ended - begun)


def millrace(folder):
    """Returns the rate of Millrace."""
    with made(NAMESPACE):
        switch = Millrace(folder / "m", dpdk=True)
        switch.config.write_text(CONFIG.format(folder=switch.folder, sink=SINK.format(folder)))
        with switch:
            wait_for("e0 is up", lambda: "LOWER_UP" in inside(NAMESPACE, "ip", "link", "show", "e0", check=False))
            inside(NAMESPACE, "ip", "neigh", "replace", "10.0.20.2", "lladdr", NEXT_MAC, "nud", "permanent", "dev", "e0")
            lines = "".join(f"route add {prefix} via 10.0.20.2\n" for prefix in prefixes())
            inside(NAMESPACE, "ip", "-batch", "-", input=lines)
            wait_for("the routes", lambda: ask(switch, "vrfs")[0]["ipv4_routes"] >= ROUTES)
            port = {"name": "p1", "number": 1, "device": SOURCE.format(folder)}
            switch.rest.put(f"{switch.url}/config/bridges/west/ports/p1", json=port, timeout=60).raise_for_status()
            return rate(lambda: ask(switch, "bridges/east/ports")[0]["tx"]["packets"])


def ask(switch, path):
    """Returns an answer of the REST API."""
    answer = switch.rest.get(f"{switch.url}/{path}", timeout=60)
    answer.raise_for_status()
    return answer.json()


def l3fwd(folder):
    """Returns the rate of l3fwd, as DPDK's telemetry counts it."""
    (folder / "v4").write_text("".join(f"R{prefix} 1\n" for prefix in prefixes()))
    (folder / "v6").write_text("R2001:0db8:0000:0000:0000:0000:0000:0000/48 1\n")
    eal = ["--lcores", f"0@{CORE}", "--no-pci", "--no-huge", "-m", "512", "--file-prefix", NAMESPACE,
           "--vdev", SOURCE.format(folder), "--vdev", SINK.format(folder)]
    own = ["-p", "0x3", "--lookup", "fib", "--config", "(0,0,0)", "--parse-ptype", "--no-numa",
           "--rule_ipv4", folder / "v4", "--rule_ipv6", folder / "v6"]
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((folder / "l3fwd.log").open("w"))
        process = subprocess.Popen([L3FWD, *eal, "--", *own], stdout=log, stderr=log)
        stack.callback(end, process)
        line = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))

        def is_connected():
            assert process.poll() is None, (folder / "l3fwd.log").read_text()[-2000:]
            with contextlib.suppress(OSError):
                line.connect(f"/var/run/dpdk/{NAMESPACE}/dpdk_telemetry.v2")
                return True

        wait_for("l3fwd has telemetry", is_connected)
        line.settimeout(60)
        line.recv(1 << 16)

        def sent():
            line.send(b"/ethdev/stats,1")
            return json.loads(line.recv(1 << 16))["/ethdev/stats"]["opackets"]

        return rate(sent)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    assert L3FWD.exists(), f"{L3FWD} is not there: scripts/setup.sh l3fwd"
    rates = {millrace: [], l3fwd: []}
    with tempfile.TemporaryDirectory(prefix="mr-l3fwd-") as name:
        folder = pathlib.Path(opened(name))
        write_captures(folder)
        for _ in range(rounds):
            for program, found in rates.items():
                found.append(program(folder))
    ours, theirs = (statistics.median(rates[program]) for program in (millrace, l3fwd))
    say("packets routed by 65,536 routes", ours, "packets/s")
    say("packets routed by l3fwd", theirs, "packets/s")
    say("rate of routing / rate of dpdk-l3fwd", ours / theirs, "")


if __name__ == "__main__":
    main()
