"""A switch whose first port has a device that marks packets: senders, receivers, and what the switch says of its offload."""

import contextlib
import signal
import socket
import struct
import subprocess

from namespaces import SO_RCVBUFFORCE, cables
from switches import TARGET, Millrace, wait_for

NIC = TARGET / "millrace-nic"

FLOWS = 4
BATCH = 1024

PORTS = """
[[bridge.port]]
name = "p1"
number = 1
device = "{device}"
offload = {{ mode = "{mode}" }}
[[bridge.port]]
name = "p2"
number = 2
device = "kernel:{ends[0]}"
[[bridge.port]]
name = "p3"
number = 3
device = "kernel:{ends[1]}"
"""


def checksum(header):
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF


def frame(flow, number, between=b"", source=None):
    """Returns a UDP packet of a flow with a number in its payload, and with these bytes between its addresses and EtherType.
    `source` is its source port, if it is not that of the flow.
    """
    payload = struct.pack("!II", 0x4D52, number) + bytes(24)
    udp = struct.pack("!HHHH", source or 1000 + flow, 2000, 8 + len(payload), 0)
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28 + len(payload), 0, 0, 64, 17, 0, bytes([10, 0, 0, 1]), bytes([10, 0, 1, flow]))
    header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
    macs = bytes([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0x10 + flow])
    return macs + between + struct.pack("!H", 0x0800) + header + udp + payload


def flow_of(received):
    """Returns the flow of a received frame; None for others."""
    # The kernel may take the outer tag out of the frame.
    at = received.find(b"\x0a\x00\x00\x01\x0a\x00\x01")
    return received[at + 7] if at > 0 and b"\x4d\x52" in received else None


def opened(interface):
    """Returns a socket that sends and receives frames of an interface, and does not wait."""
    one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    one.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)
    one.bind((interface, 3))
    one.setblocking(False)
    return one


class Bed:
    """A switch between three cables. Frames of even flows belong to p2, those of odd ones to p3."""

    def __init__(self, folder, device, mode, wire, ends, frames, system, **options):
        """`wire` and `ends` are the interfaces behind p1, p2 and p3; `ends` are pairs of the switch's end and ours."""
        self.frames, self.sent = frames, 0
        ports = PORTS.format(device=device, mode=mode, ends=[near for near, _ in ends])
        self.switch = Millrace(folder, extra=ports, system=system, **options)
        self.wire, self.ends = opened(wire), [opened(far) for _, far in ends]

    def port(self):
        ports = self.switch.rest.get(f"{self.switch.url}/bridges/br0/ports", timeout=60).json()
        return next(port for port in ports if port["name"] == "p1")

    def offload(self):
        return self.port()["offload_status"]

    def is_up(self):
        return self.port()["link"] == "up"

    def counted(self):
        """Returns the packets that all flow entries counted."""
        dumped = self.switch.ofctl("dump-flows").replace(",", " ").split()
        return sum(int(part.split("=")[1]) for part in dumped if part.startswith("n_packets="))

    def set_offload(self, offload):
        def edit(config):
            port = next(port for port in config["bridge"][0]["port"] if port["name"] == "p1")
            port.pop("offload", None)
            if offload is not None:
                port["offload"] = offload

        self.switch.change(edit)

    def send(self, flows=range(FLOWS)):
        """Sends a batch of frames of some flows in turn, as far as the cable takes them."""
        for number in range(BATCH):
            with contextlib.suppress(OSError):
                self.wire.send(self.frames(flows[number % len(flows)], self.sent))
                self.sent += 1

    def received(self):
        """Returns the flows of the frames that have arrived at both other ports."""
        flows = []
        for end in self.ends:
            arrived = []
            with contextlib.suppress(BlockingIOError):
                while True:
                    flow = flow_of(end.recv(2048))
                    if flow is not None:
                        arrived.append(flow)
            flows.append(arrived)
        return flows

    def wrong(self):
        """Returns the number of frames that arrived at the wrong port."""
        even, odd = self.received()
        return sum(flow % 2 for flow in even) + sum(1 - flow % 2 for flow in odd)

    def send_until(self, what, condition, flows=range(FLOWS), bound=60.0):
        """Sends until the offload of p1 meets a condition, and returns the number of frames at a wrong port meanwhile. It may take
        `bound` seconds."""
        wrong = 0

        def met():
            nonlocal wrong
            self.send(flows)
            wrong += self.wrong()
            return condition(self.offload())

        wait_for(what, met, bound)
        return wrong

    def settle(self):
        """Waits until sent frames have left the switch, and returns the number of frames at a wrong port."""
        wrong, before = 0, None

        def is_still():
            nonlocal wrong, before
            wrong += self.wrong()
            now = [self.switch.port_packets(number) for number in (1, 2, 3)]
            before, last = now, before
            return now == last

        wait_for("sent frames leave", is_still)
        return wrong + self.wrong()

    def close(self):
        for one in (self.wire, *self.ends):
            one.close()


def tagged(flow, number):
    """Returns a packet of a flow behind a VLAN tag and a service tag."""
    return frame(flow, number, between=struct.pack("!HHHH", 0x88A8, 5, 0x8100, 7))


class Wired(Bed):
    """A NIC in software on one end of a cable, and a switch behind it."""

    def __init__(self, folder, mode, options):
        self.path, self.options, self.nic = folder / "nic.sock", options, None
        self.log = folder / "nic.log"
        ends = [("of1a", "of1b"), ("of2a", "of2b")]
        super().__init__(folder, f"nic:{self.path}", mode, "of0p", ends, tagged, 'workers = 2\nspread = "off"')

    def start_nic(self):
        command = [NIC, "--wire", "kernel:of0w", "--socket", self.path, *self.options]
        with self.log.open("a") as log:
            self.nic = subprocess.Popen(command, stdout=log, stderr=log)

        def listens():
            assert self.nic.poll() is None, f"millrace-nic has ended:\n{self.log.read_text()}"
            # A connection of the test would be taken for a switch's.
            return self.path.exists()

        wait_for("the socket of millrace-nic", listens)

    def stop_nic(self):
        self.nic.send_signal(signal.SIGCONT)
        self.nic.kill()
        self.nic.wait(timeout=60)
        self.path.unlink(missing_ok=True)

    def close(self):
        if self.nic:
            self.stop_nic()
        super().close()


def options_of(fault):
    """Returns the options of a NIC with four queues that may have a fault."""
    return ["--queues", "4", *(["--fault", fault] if fault else [])]


@contextlib.contextmanager
def wired(folder, mode="trust", fault=None, options=None):
    """Begins with links up and a flow entry for each flow. `options` are those of a NIC without faults."""
    options = options or options_of(fault)
    with cables(("of0w", "of0p"), ("of1a", "of1b"), ("of2a", "of2b")):
        bed = Wired(folder, mode, options)
        try:
            bed.start_nic()
            with bed.switch as switch:
                for flow in range(FLOWS):
                    switch.ofctl("add-flow", f"priority=5,ip,nw_dst=10.0.1.{flow},actions=output:{2 + flow % 2}")
                wait_for("the link of p1", bed.is_up)
                yield bed
        finally:
            bed.close()
