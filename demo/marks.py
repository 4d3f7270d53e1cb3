#!/usr/bin/env python3
"""Shows what a NIC that classifies does for a switch: `demo/marks.py PROGRAMS`, as root, in namespaces of its own (scripts/apart.sh).

MPLS and QinQ packets of 16 flows go through a switch with two workers: first from an interface of the kernel with one queue,
then from `millrace-nic`, which sends each flow to the queue of its worker and marks packets of heavy flows. At last the
device puts wrong marks beside its packets, and the switch compares them.
"""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

FLOWS = 16
BATCH = 512
PACKETS = 20 * BATCH
BOUND = 60

CONFIG = """
[system]
state_dir = "{folder}/state"
workers = 2
[api]
socket = "{folder}/api.sock"
[[bridge]]
name = "br0"
listen = ["ptcp:16653"]
[[bridge.port]]
name = "p1"
number = 1
device = "{device}"
{settings}
[[bridge.port]]
name = "p2"
number = 2
device = "kernel:dm1a"
[[bridge.port]]
name = "p3"
number = 3
device = "kernel:dm2a"
"""


def run(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True, timeout=BOUND).stdout


def until(what, condition):
    """Returns the first true value of a condition within the bound."""
    deadline = time.monotonic() + BOUND
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.002)
    sys.exit(f"demo: {what}: not within {BOUND} s")


def packet(number):
    """Returns a packet of a flow: even flows have two labels, odd ones two tags."""
    flow = number % FLOWS
    udp = struct.pack("!HHHH", 1000 + flow, 2000, 40, 0) + struct.pack("!II", 0x4D524D52, flow) + bytes(24)
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 60, 0, 0, 64, 17, 0, bytes([10, 0, 0, 1]), bytes([10, 0, 1, flow]))
    total = sum(struct.unpack("!10H", ip))
    total = (total & 0xFFFF) + (total >> 16)
    ip = ip[:10] + struct.pack("!H", ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF) + ip[12:]
    macs = bytes([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1])
    if flow % 2 == 0:
        return macs + struct.pack("!HII", 0x8847, (100 + flow) << 12 | 64, (7 << 12) | 0x140) + ip + udp
    return macs + struct.pack("!HHHHH", 0x88A8, 5, 0x8100, 7, 0x0800) + ip + udp


class Api(http.client.HTTPConnection):
    """The REST API of the switch over its Unix socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=BOUND)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Switch:
    """A switch with two workers between three cables, behind a device for its first port."""

    def __init__(self, programs, folder, device, settings):
        self.programs, self.folder = programs, folder
        (folder / "switch.toml").write_text(CONFIG.format(folder=folder, device=device, settings=settings))
        with (folder / "millraced.log").open("a") as log:
            command = [programs / "millraced", "--no-dpdk", "--config", folder / "switch.toml"]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        until("the switch is ready", self.is_ready)
        # Labels of MPLS and addresses behind tags: even flows leave by p2, odd ones by p3.
        for flow in range(FLOWS):
            match = f"mpls,mpls_label={100 + flow}" if flow % 2 == 0 else f"ip,nw_dst=10.0.1.{flow}"
            run("ovs-ofctl", "-O", "OpenFlow13", "add-flow", "tcp:127.0.0.1:16653", f"{match},actions=output:{2 + flow % 2}")
        self.wire, self.ends, self.sent = opened("dm0p"), [opened("dm1b"), opened("dm2b")], 0
        until("the link of p1 is up", lambda: self.port()["link"] == "up")

    def get(self, path):
        api = Api(self.folder / "api.sock")
        with contextlib.closing(api):
            api.request("GET", path)
            return json.loads(api.getresponse().read())

    def is_ready(self):
        with contextlib.suppress(OSError, ValueError):
            return self.get("/ready")["ready"]
        return False

    def port(self):
        return next(port for port in self.get("/api/v1/bridges/br0/ports") if port["name"] == "p1")

    def workers(self):
        """Returns the packets that each worker processed, and the number that one handed to the other."""
        workers = self.get("/api/v1/workers")
        return [worker["packets"] for worker in workers], sum(worker["handed_off"] for worker in workers)

    def send(self, packets):
        """Sends packets of all flows in turn, and returns the number that left by a wrong port."""
        wrong = 0
        for number in range(packets):
            with contextlib.suppress(OSError):
                self.wire.send(packet(number))
                self.sent += 1
            if number % BATCH == BATCH - 1:
                # No faster than the slowest part takes them, the NIC in software.
                until("packets are processed", lambda: sum(self.workers()[0]) >= self.sent)
                wrong += self.wrong()
        return wrong + self.wrong()

    def wrong(self):
        wrong = 0
        for parity, end in enumerate(self.ends):
            with contextlib.suppress(BlockingIOError):
                while True:
                    received = end.recv(2048)
                    at = received.find(b"MRMR")
                    wrong += at > 0 and received[at + 7] % 2 != parity
        return wrong

    def close(self):
        for one in (self.wire, *self.ends):
            one.close()
        self.process.terminate()
        self.process.wait(timeout=BOUND)


def opened(interface):
    one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    one.bind((interface, 3))
    one.setblocking(False)
    return one


def main():
    programs = pathlib.Path(sys.argv[1])
    for name in ("dm0", "dm1", "dm2"):
        one, other = (name + "w", name + "p") if name == "dm0" else (name + "a", name + "b")
        run("ip", "link", "add", one, "type", "veth", "peer", "name", other)
        for end in (one, other):
            pathlib.Path(f"/proc/sys/net/ipv6/conf/{end}/disable_ipv6").write_text("1")
            run("ip", "link", "set", end, "up")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        print(f"{'packets of 16 flows, MPLS and QinQ, from':44} {'worker 0':>10} {'worker 1':>10} {'handed off':>11}")

        def show_workers(title):
            (one, two), handed = switch.workers()
            print(f"{title:44} {one:>10} {two:>10} {handed:>11}")

        switch = Switch(programs, folder, "kernel:dm0w", "queues = 1")
        switch.send(PACKETS)
        show_workers("an interface with one queue")
        switch.close()
        path, nic_log = folder / "nic.sock", (folder / "nic.log").open("w")
        command = [programs / "millrace-nic", "--wire", "kernel:dm0w", "--socket", path, "--queues", "2", "--fault", "wrong-marks"]
        nic = subprocess.Popen(command, stdout=nic_log, stderr=nic_log)
        until("millrace-nic listens", path.exists)
        switch = Switch(programs, folder, f"nic:{path}", 'offload = { mode = "verify" }')
        wrong = switch.send(PACKETS)
        show_workers("a NIC with a queue for each worker")

        def send_until(what, condition):
            def met():
                nonlocal wrong
                wrong += switch.send(PACKETS // 4)
                return condition(switch.port()["offload_status"])

            until(what, met)
            return switch.port()["offload_status"]

        before = send_until("marks are in use", lambda offload: offload["entries"] == FLOWS and offload["used"] > PACKETS // 2)
        print(f"\nAll {before['entries']} flows have entries in the device. {before['used']} packets were found by their marks.")
        print("Now the device puts the mark of another flow on every second packet.")
        nic.send_signal(signal.SIGUSR1)
        after = send_until("wrong marks are found", lambda offload: offload["mismatches"] > PACKETS // 8)
        print(f"{after['mismatches']} wrong marks were found, and {wrong} packets left by a wrong port.")
        os.environ["MILLRACE_API"] = f"unix:{folder}/api.sock"
        print("\n$ millrace show offload")
        print(run(programs / "millrace", "show", "offload"), end="")
        switch.close()
        nic.terminate()
        nic.wait(timeout=BOUND)
        if wrong or not after["distrusted"]:
            sys.exit("demo: a packet left by a wrong port, or the device was not caught")


if __name__ == "__main__":
    main()
