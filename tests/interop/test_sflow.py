"""sFlow of a running switch, read by tshark, sfacctd (pmacct) and sfcapd (nfdump): nothing is malformed, and the totals that they
compute are those of the switch. `MILLRACE_SFLOW_DATAGRAMS=1000000` runs a long form, whose readers must keep up with an unpaced
switch: `make exchange-check` does.
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import threading

import pytest

from switches import Millrace, end, run, wait_for

LONG = int(os.environ.get("MILLRACE_SFLOW_DATAGRAMS", "0"))
RATE = 20
PACKETS = 40_000
# The number of datagrams that tshark reads in the long form of the test.
TSHARK_DATAGRAMS = 50_000

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the counters of lost datagrams are those of a namespace of root")


def frame(number):
    """Returns a UDP packet; sizes differ, and every fourth has a VLAN tag."""
    size = 40 + number % 1200
    udp = struct.pack("!HHHH", 1024 + number % 500, 53, 8 + size, 0) + bytes(size)
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), number & 0xffff, 0, 64, 17, 0,
                         bytes([10, 0, number % 7, 1]), bytes([192, 0, 2, 1]))
    tag = struct.pack("!HH", 0x8100, 100) if number % 4 == 0 else b""
    return bytes([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]) + tag + b"\x08\x00" + header + udp


def write_capture(path, frames, link=1):
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, link))
        for data in frames:
            file.write(struct.pack("<IIII", 0, 0, len(data), len(data)) + data)


def udp_frame(payload):
    """Returns a datagram to the port of sFlow, as Ethernet frame."""
    udp = struct.pack("!HHHH", 6343, 6343, 8 + len(payload), 0) + payload
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, bytes([127, 0, 0, 1]), bytes([127, 0, 0, 1]))
    return bytes(12) + b"\x08\x00" + header + udp


# socket(7); Python does not name it.
SO_RCVBUFFORCE = 33


class Sink:
    """A collector that keeps the first datagrams, and counts all."""

    def __init__(self, keep):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # A capture file is read at once, and so many datagrams arrive before this process has the processor.
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.kept, self.len, self.keep = [], 0, keep
        self.thread = threading.Thread(target=self.receive, daemon=True)
        self.thread.start()

    def receive(self):
        while data := self.socket.recv(65535):
            self.len += 1
            if len(self.kept) < self.keep:
                self.kept.append(data)


class Sfacctd:
    """pmacct's collector. It multiplies each sample by its rate, and prints totals by interface when it ends."""

    def __init__(self, folder, port):
        self.port, self.output = port, folder / "sfacctd.json"
        config = folder / "sfacctd.conf"
        config.write_text(
            f"daemonize: false\nsfacctd_ip: 127.0.0.1\nsfacctd_port: {port}\nsfacctd_renormalize: true\n"
            "sfacctd_pipe_size: 2000000\nplugins: print[a]\naggregate[a]: in_iface, out_iface\nplugin_buffer_size: 10240\n"
            "plugin_pipe_size: 10240000\nprint_output: json\nprint_refresh_time: 86400\n"
            f"print_output_file: {self.output}\n"
        )
        self.log = (folder / "sfacctd.log").open("w+")
        self.process = subprocess.Popen(["sfacctd", "-f", config], stdout=self.log, stderr=self.log)
        wait_for("sfacctd listens", lambda: listens(port))

    def totals(self):
        """Ends sfacctd, and returns {(input, output): (packets, bytes)}."""
        wait_until_read(self.port)
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=60)
        wait_for("the output of sfacctd", lambda: self.output.exists() and self.output.read_text())
        lines = [json.loads(line) for line in self.output.read_text().splitlines() if line.startswith("{")]
        assert "ERROR" not in pathlib.Path(self.log.name).read_text()
        return {(int(line["iface_in"]), int(line["iface_out"])): (line["packets"], line["bytes"]) for line in lines}


class Sfcapd:
    """nfdump's collector. It writes a file of flows, each multiplied by the rate of its sample."""

    def __init__(self, folder, port):
        self.folder, self.port = folder / "sfcapd", port
        self.folder.mkdir()
        self.log = (folder / "sfcapd.log").open("w+")
        self.process = subprocess.Popen(
            ["sfcapd", "-b", "127.0.0.1", "-p", str(port), "-w", self.folder, "-t", "3600", "-B", "2000000"],
            stdout=self.log, stderr=self.log,
        )
        wait_for("sfcapd listens", lambda: listens(port))

    def totals(self):
        """Ends sfcapd, and returns (packets, bytes, sequence errors)."""
        wait_until_read(self.port)
        end(self.process)
        return totals_of_nfdump(self.folder)


def totals_of_nfdump(folder):
    """Returns (packets, bytes, sequence failures) of all files of a collector, which begins another one with each hour of the clock."""
    totals = [0, 0, 0]
    for file in folder.glob("nfcapd.2*"):
        values = dict(line.split(": ", 1) for line in run("nfdump", "-I", "-r", file).splitlines() if ": " in line)
        for at, name in enumerate(("Packets", "Bytes", "Sequence failures")):
            totals[at] += int(values[name])
    return tuple(totals)


def listens(port):
    """Returns true if a UDP socket of this namespace has the port."""
    return any(line.split()[1].endswith(f":{port:04X}") for line in open("/proc/net/udp").read().splitlines()[1:])


def wait_until_read(port):
    """Waits until no datagram waits in the receive buffer of a UDP port of this namespace: a collector reads none when it is ended."""
    def is_read():
        fields = next(line.split() for line in open("/proc/net/udp").read().splitlines()[1:] if line.split()[1].endswith(f":{port:04X}"))
        return int(fields[4].split(":")[1], 16) == 0
    wait_for(f"UDP port {port} is read", is_read)


def free_udp_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def receive_errors():
    """Returns the number of datagrams that found a receive buffer of this namespace full."""
    names, values = [line.split() for line in open("/proc/net/snmp") if line.startswith("Udp:")]
    return int(values[names.index("RcvbufErrors")])


def test_three_readers_agree_with_the_switch(tmp_path):
    missing = [tool for tool in ("tshark", "sfacctd", "sfcapd", "nfdump") if not shutil.which(tool)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (scripts/setup.sh collectors)")
    frames = [frame(number) for number in range(PACKETS)]
    write_capture(tmp_path / "in.pcap", frames)
    sink = Sink(TSHARK_DATAGRAMS if LONG else PACKETS)
    ports = free_udp_port(), free_udp_port()
    collectors = ", ".join(f'"127.0.0.1:{port}"' for port in (sink.port, *ports))
    source = f"pcap:rx={tmp_path}/in.pcap" + (",loop=true" if LONG else "")
    extra = f'sflow = {{ agent = "192.0.2.1", collectors = [{collectors}], sampling_rate = {RATE}, polling_interval_s = 1 }}'
    lost_before = receive_errors()
    sfacctd, sfcapd = Sfacctd(tmp_path, ports[0]), Sfcapd(tmp_path, ports[1])
    switch = Millrace(tmp_path / "switch", ports=[(2, "pcap:tx=/dev/null")], extra=extra)

    def port_of(sflow):
        return next(port for port in sflow["ports"] if port["number"] == 1)

    def state():
        return json.loads(switch.cli("show", "sflow", "br0", "--json"))["br0"][0]

    with switch:
        switch.ofctl("add-flow", "in_port=1,actions=set_field:02:00:00:00:00:09->eth_dst,output:2")
        add_source = lambda: switch.change(
            lambda config: config["bridge"][0]["port"].append({"name": "p1", "number": 1, "device": source}))
        add_source()
        if LONG:
            wait_for("the datagrams", lambda: sink.len >= LONG, bound=3600)
            switch.change(lambda config: config["bridge"][0]["port"][1].update(sampling_rate=0))
        else:
            # A capture file is read at once, on a busy machine before the new port is sampled; then it is read again.
            for _ in range(5):
                wait_for("the packets", lambda: switch.port_packets(1)[0] == PACKETS, bound=60)
                try:
                    wait_for("samples", lambda: port_of(state())["samples"], bound=2)
                    break
                except AssertionError:
                    switch.change(lambda config: config["bridge"][0]["port"].pop())
                    add_source()
        wait_for("counter samples", lambda: all(port["counter_samples"] for port in state()["ports"]))

        def is_quiet():
            # A capture file is read at once: packets before the first plan with the port are in no pool. Nothing follows when the
            # numbers stay the same for longer than a sample waits.
            before = port_of(state())
            threading.Event().wait(1)
            now = state()
            is_received = now["collectors"][0]["datagrams"] <= sink.len
            return before["samples"] and before["samples"] == port_of(now)["samples"] and is_received and port_of(now)

        one = wait_for("all datagrams", is_quiet, bound=60)
        assert LONG or one["pool"] <= PACKETS
        assert all(collector["errors"] == 0 for collector in state()["collectors"])
    assert receive_errors() == lost_before, "a reader was too slow, so totals cannot agree"
    samples = one["samples"]
    expected = samples * RATE
    print(f"{sink.len} datagrams, {samples} samples of {one['pool']} packets, {one['lost']} lost in the switch")

    by_interface = sfacctd.totals()
    print(f"sfacctd: {by_interface}; the pool is {one['pool']}")
    # sfacctd does not multiply by the rate: it divides the growth of the pool by the number of samples.
    assert set(by_interface) == {(1, 2)} and abs(by_interface[1, 2][0] - one["pool"]) <= 20 * RATE
    packets, bytes_, failures = sfcapd.totals()
    print(f"sfcapd: {packets} packets, {bytes_} bytes, {failures} sequence failures")
    assert (packets, failures) == (expected, 0)

    write_capture(tmp_path / "sflow.pcap", map(udp_frame, sink.kept))
    read = ["tshark", "-r", tmp_path / "sflow.pcap", "-d", "udp.port==6343,sflow"]
    assert run_long(*read, "-Y", "_ws.malformed && !icmp", "-T", "fields", "-e", "frame.number") == ""
    if not LONG:
        assert run_long(*read, "-Y", "sflow", "-T", "fields", "-e", "frame.number").count("\n") == len(sink.kept)
        text = run_long(*read, "-V")
        assert text.count("Sampling rate: 1 out of 20 packets") == samples
        assert "Incoming 802.1Q VLAN: 100" in text and "Interface index: 2" in text


def run_long(*command):
    """Runs a command without a time limit, and returns its output."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
