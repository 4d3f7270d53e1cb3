"""IPFIX of a running switch, read by a collector of this test, by nfcapd (nfdump), by nfacctd (pmacct) and by tshark, and beside the
IPFIX of a real Open vSwitch for the same packets.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess

import pytest

import ipfix
from namespaces import cables, packet_socket, packet_socket_here
from ovsdb import Following, Real
from switches import Millrace, end, run, wait_for
from test_ovsdb import PAIRS, wired
from test_sflow import free_udp_port, listens, totals_of_nfdump, udp_frame, wait_until_read, write_capture

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root")

# Ends of cables: of the host, and of the switch.
CABLES = [("mr-ix0", "mr-ix1"), ("mr-ix2", "mr-ix3")]
NEAR, FAR = bytes([2, 0, 0, 0, 0, 1]), bytes([2, 0, 0, 0, 0, 2])
# RFC 7270, section 4.12.
FORWARDED, DENIED = 64, 129


def ethernet(kind, payload, vlan=None):
    tag = b"" if vlan is None else struct.pack("!HH", 0x8100, vlan)
    return FAR + NEAR + tag + struct.pack("!H", kind) + payload


def ipv4(protocol, payload, tos=0, ttl=64, number=1):
    header = struct.pack("!BBHHHBBH4s4s", 0x45, tos, 20 + len(payload), number, 0, ttl, protocol, 0, bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]))
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xffff) + (total >> 16)
    checksum = ~((total & 0xffff) + (total >> 16)) & 0xffff
    return header[:10] + struct.pack("!H", checksum) + header[12:] + payload


def udp(sport, dport, size):
    return struct.pack("!HHHH", sport, dport, 8 + size, 0) + bytes(size)


def tcp(sport, dport, flags, size=0):
    return struct.pack("!HHIIBBHHH", sport, dport, 1, 1, 5 << 4, flags, 1000, 0, 0) + bytes(size)


def ipv6(protocol, payload):
    source, destination = bytes.fromhex("20010db8" + "00" * 11 + "01"), bytes.fromhex("20010db8" + "00" * 11 + "02")
    return struct.pack("!IHBB", 6 << 28 | 0x28 << 20 | 0x12345, len(payload), protocol, 64) + source + destination + payload


# Frames, each with the number of times that it is sent.
FRAMES = [
    (ethernet(0x0800, ipv4(17, udp(1000, 53, 100), tos=0xb8)), 40),
    (ethernet(0x0800, ipv4(17, udp(1001, 53, 500))), 10),
    (ethernet(0x0800, ipv4(6, tcp(2000, 80, 0x02))), 1),
    (ethernet(0x0800, ipv4(6, tcp(2000, 80, 0x10, 900))), 20),
    (ethernet(0x0800, ipv4(1, bytes([8, 0]) + bytes(30))), 5),
    (ethernet(0x86dd, ipv6(17, udp(3000, 443, 200))), 15),
    (ethernet(0x0800, ipv4(17, udp(1000, 99, 60)), vlan=100), 7),
    (ethernet(0x88b5, bytes(50)), 3),
]
PACKETS = sum(count for _, count in FRAMES)


def send(opened):
    for frame, count in FRAMES:
        for _ in range(count):
            opened.send(frame)


def switch_with(folder, collectors, settings="", extra=""):
    texts = ", ".join(f'"{collector}"' for collector in collectors)
    return Millrace(folder, ports=[(1, f"kernel:{CABLES[0][1]}"), (2, f"kernel:{CABLES[1][1]}")],
                    extra=f'ipfix = {{ collectors = [{texts}], sampling_rate = 1{settings} }}\n{extra}')


def state(switch):
    return json.loads(switch.cli("show", "ipfix", "br0", "--json"))["br0"][0]


def passed(switch):
    """Sends the frames, and waits until the switch has sampled all of them."""
    with packet_socket_here(CABLES[0][0]) as sender:
        send(sender)
    wait_for("samples of all packets", lambda: state(switch)["samples"] >= PACKETS)


def test_the_records_of_flows_are_those_of_the_packets_and_no_number_is_missing(tmp_path):
    with cables(*CABLES), ipfix.Udp() as one, ipfix.Udp() as other, \
            switch_with(tmp_path, [f"udp:127.0.0.1:{one.port}", f"udp:127.0.0.1:{other.port}"],
                        ", domain = 77, point = 5, active_timeout_s = 1, idle_timeout_s = 1, template_interval_s = 1") as switch:
        switch.ofctl("add-flow", "priority=1,actions=2")
        switch.ofctl("add-flow", "priority=2,dl_type=0x88b5,actions=drop")
        passed(switch)
        for collector in (one, other):
            wait_for("all packets", lambda collector=collector: sum(
                packets for packets, _ in ipfix.flows(collector.receive().records).values()) == PACKETS)
            assert collector.gaps == 0 and {domain for _, _, domain in collector.headers} == {77}
        found = one.records
        by_port = {(record["protocol"], record["sport"], record["dport"]): record for record in found if "protocol" in record}
        first = by_port[17, 1000, 53]
        assert (first["version"], first["tos"], first["ttl"], first["source"], first["destination"]) == (4, 0xb8, 64, "10.0.0.1", "10.0.0.2")
        assert (first["input"], first["output"], first["status"], first["point"], first["selector"]) == (1, 2, FORWARDED, 5, 1)
        assert (first["from_mac"], first["to_mac"], first["type"]) == (NEAR.hex(), FAR.hex(), 0x0800)
        sums = ipfix.flows(found)
        octets = {key[4:]: value for key, value in sums.items() if key[5] == 17}
        assert octets["10.0.0.2", 17, 1000, 53] == (40, 40 * 128) and octets["10.0.0.2", 17, 1001, 53] == (10, 10 * 528)
        tcp_records = [record for record in found if record.get("protocol") == 6]
        flags = 0
        for record in tcp_records:
            flags |= record["tcp_flags"]
        assert flags == 0x12
        assert by_port[1, 0, 0]["icmp"] == 0x0800
        six = by_port[17, 3000, 443]
        assert (six["version"], six["label"], six["tos"], six["type"]) == (6, 0x12345, 0x28, 0x86dd)
        assert by_port[17, 1000, 99]["vlan"] == 100 and by_port[17, 1000, 99]["post_vlan"] == 100
        dropped = [record for record in found if record["type"] == 0x88b5]
        assert {record["status"] for record in dropped} == {DENIED} and sum(record["packets"] for record in dropped) == 3
        assert all(record["start_ms"] <= record["end_ms"] for record in found)
        # Options: the sampler, the names of the ports, and the counts of the exporter; templates come again.
        wait_for("options", lambda: any(option.get("exported_messages") for option in one.receive().options))
        selectors = [option for option in one.options if "algorithm" in option]
        assert (selectors[0]["selector"], selectors[0]["algorithm"], selectors[0]["probability"], selectors[0]["space"]) == (1, 4, 1.0, 0)
        assert {(option["input"], option["name"]) for option in one.options if "name" in option} == {(1, "p1"), (2, "p2")}
        shown = state(switch)
        assert shown["records"] == len(one.records) and shown["lost"] == 0 and shown["pool"] == PACKETS
        assert "udp:127.0.0.1" in switch.cli("show", "ipfix")


def test_a_collector_over_tcp_gets_templates_first_and_again_after_a_cut(tmp_path):
    with cables(*CABLES), ipfix.Tcp() as collector, \
            switch_with(tmp_path, [f"tcp:127.0.0.1:{collector.port}"], ", active_timeout_s = 0") as switch:
        switch.ofctl("add-flow", "priority=1,actions=2")
        wait_for("a connection", lambda: collector.sessions and state(switch)["collectors"][0]["connected"])
        passed(switch)
        session = collector.sessions[0]
        wait_for("all packets", lambda: sum(record["packets"] for record in session.records) == PACKETS)
        assert len(session.records) == PACKETS, "without a timeout, each packet is a record"
        assert session.gaps == 0 and session.templates
        collector.cut()
        wait_for("another connection", lambda: len(collector.sessions) == 2 and collector.sessions[1].templates)
        passed_before = state(switch)["samples"]
        with packet_socket_here(CABLES[0][0]) as sender:
            send(sender)
        wait_for("all packets again", lambda: sum(record["packets"] for record in collector.sessions[1].records) == PACKETS)
        assert collector.sessions[1].gaps == 0 and collector.sessions[1].headers[0][1] == 0, "a session begins at zero"
        assert state(switch)["samples"] == passed_before + PACKETS


def test_a_collector_that_is_not_there_is_named_and_what_it_missed_is_counted(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with cables(*CABLES), switch_with(tmp_path, [f"tcp:127.0.0.1:{port}"], ", active_timeout_s = 0, message_size = 600") as switch:
        wait_for("the reason", lambda: "refused" in (state(switch)["collectors"][0]["last_error"] or ""))
        assert not state(switch)["collectors"][0]["connected"]
        switch.ofctl("add-flow", "priority=1,actions=2")
        # 256 messages wait, of a few records each.
        with packet_socket_here(CABLES[0][0]) as sender:
            def is_full():
                send(sender)
                return state(switch)["collectors"][0]["not_sent"]
            wait_for("records that are not sent", is_full)
        metrics = switch.rest.get("http://localhost/metrics", timeout=60).text
        assert 'millrace_ipfix_connected{bridge="br0",collector="tcp:127.0.0.1' in metrics


def test_records_of_packets_have_the_first_bytes_of_the_frames(tmp_path):
    with cables(*CABLES), ipfix.Udp() as one, \
            switch_with(tmp_path, [f"udp:127.0.0.1:{one.port}"], ', records = "packets", frame_size = 64') as switch:
        switch.ofctl("add-flow", "priority=1,actions=2")
        passed(switch)
        wait_for("all packets", lambda: len(one.receive().records) == PACKETS)
        assert one.gaps == 0
        sent = [frame for frame, count in FRAMES for _ in range(count)]
        assert sorted(record["frame"] for record in one.records) == sorted(frame[:64] for frame in sent)
        assert sorted(record["size"] for record in one.records) == sorted(map(len, sent))


def test_nfcapd_nfacctd_and_tshark_agree_with_the_switch(tmp_path):
    missing = [tool for tool in ("tshark", "nfacctd", "nfcapd", "nfdump") if not shutil.which(tool)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (scripts/setup.sh collectors)")
    kept = []
    with cables(*CABLES), contextlib.ExitStack() as stack:
        sink = stack.enter_context(ipfix.Udp())
        read = sink.message
        sink.message = lambda data: (kept.append(data), read(data))
        nfcapd, nfacctd = Nfcapd(tmp_path, free_udp_port()), Nfacctd(tmp_path, free_udp_port())
        collectors = [f"udp:127.0.0.1:{port}" for port in (sink.port, nfcapd.port, nfacctd.port)]
        with switch_with(tmp_path / "switch", collectors, ", active_timeout_s = 1, idle_timeout_s = 1") as switch:
            switch.ofctl("add-flow", "priority=1,actions=2")
            passed(switch)
            wait_for("all packets", lambda: sum(packets for packets, _ in ipfix.flows(sink.receive().records).values()) == PACKETS)
            expected = sum(octets for _, octets in ipfix.flows(sink.records).values())
        assert nfcapd.totals() == (PACKETS, expected, 0)
        totals = nfacctd.totals()
        assert totals[1000, 53] == (40, 40 * 128) and totals[3000, 443] == (15, 15 * 248), totals
    write_capture(tmp_path / "ipfix.pcap", map(udp_frame, kept))
    shown = run("tshark", "-r", tmp_path / "ipfix.pcap", "-d", "udp.port==6343,cflow", "-V")
    assert "Malformed" not in shown and shown.count("Version: 10") == len(kept), shown[:2000]


class Nfcapd:
    """nfdump's collector."""

    def __init__(self, folder, port):
        self.folder, self.port = folder / "nfcapd", port
        self.folder.mkdir()
        self.log = (folder / "nfcapd.log").open("w+")
        self.process = subprocess.Popen(["nfcapd", "-b", "127.0.0.1", "-p", str(port), "-w", self.folder, "-t", "3600"],
                                        stdout=self.log, stderr=self.log)
        wait_for("nfcapd listens", lambda: listens(port))

    def totals(self):
        """Ends nfcapd, and returns (packets, bytes, sequence failures)."""
        wait_until_read(self.port)
        end(self.process)
        return totals_of_nfdump(self.folder)


class Nfacctd:
    """pmacct's collector, which prints totals by ports when it ends."""

    def __init__(self, folder, port):
        self.port, self.output = port, folder / "nfacctd.json"
        config = folder / "nfacctd.conf"
        config.write_text(
            f"daemonize: false\nnfacctd_ip: 127.0.0.1\nnfacctd_port: {port}\nplugins: print[a]\naggregate[a]: src_port, dst_port\n"
            f"print_output: json\nprint_refresh_time: 86400\nprint_output_file: {self.output}\n")
        self.log = (folder / "nfacctd.log").open("w+")
        self.process = subprocess.Popen(["nfacctd", "-f", config], stdout=self.log, stderr=self.log)
        wait_for("nfacctd listens", lambda: listens(port))

    def totals(self):
        """Ends nfacctd, and returns {(source port, destination port): (packets, bytes)}."""
        wait_until_read(self.port)
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=60)
        wait_for("the output of nfacctd", lambda: self.output.exists() and self.output.read_text())
        lines = [json.loads(line) for line in self.output.read_text().splitlines() if line.startswith("{")]
        assert "ERROR" not in pathlib.Path(self.log.name).read_text()
        return {(int(line["port_src"]), int(line["port_dst"])): (line["packets"], line["bytes"]) for line in lines}


@pytest.mark.skipif(shutil.which("ovs-vsctl") is None, reason="Open vSwitch is missing: scripts/setup.sh installs it")
def test_a_row_of_ovsdb_gives_the_records_of_a_real_open_vswitch(tmp_path):
    namespaces = ("mr-ixours", "mr-ixreal")
    found = []
    with wired(namespaces[0], PAIRS[:2]), wired(namespaces[1], PAIRS[:2]), \
            Following(tmp_path / "ours", namespace=namespaces[0]) as ours, Real(tmp_path / "real", namespace=namespaces[1]) as real:
        for database, namespace in zip((ours, real), namespaces, strict=True):
            run("ip", "-n", namespace, "link", "set", "lo", "up")
            with ipfix.Udp(namespace) as collector:
                database.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "fail_mode=secure",
                               "--", "add-port", "br0", "e1", "--", "add-port", "br0", "e2")
                database.ofctl("add-flow", "br0", "in_port=1,actions=2")
                database.vsctl("--", "--id=@i", "create", "IPFIX", f'targets="127.0.0.1:{collector.port}"', "sampling=1",
                               "obs_domain_id=123", "obs_point_id=456", "--", "set", "Bridge", "br0", "ipfix=@i")
                with contextlib.closing(packet_socket(namespace, "x1")) as sender:
                    send(sender)

                def ingress(collector=collector):
                    # Open vSwitch reports each packet a second time as it leaves.
                    return [record for record in collector.receive().records if record.get("direction") == 0]

                wait_for("all packets", lambda: sum(record["packets"] for record in ingress()) >= PACKETS)
                found.append(ingress())
                # Open vSwitch tells the state of its exporter in the domain 0.
                assert {domain for _, _, domain in collector.headers} - ({0} if database is real else set()) == {123}
                assert {record["point"] for record in found[-1]} == {456}
    mine, theirs = found
    assert summary(mine) == summary(theirs)


def summary(records):
    """Returns the sums by flow, and what a flow has in all of its records. Ports of ICMP are zero in one and the type in the other."""
    sums = {}
    for record in records:
        has_ports = record.get("protocol") in (6, 17)
        key = (record["from_mac"], record["to_mac"], record["type"], record.get("source"), record.get("destination"), record.get("protocol"),
               record.get("sport") if has_ports else None, record.get("dport") if has_ports else None, record.get("version"),
               record.get("tos"), record.get("ttl"), record.get("vlan") or None, record.get("label"))
        packets, octets = sums.get(key, (0, 0))
        sums[key] = (packets + record["packets"], octets + record.get("octets", 0) * (record.get("version") is not None))
    return sums
