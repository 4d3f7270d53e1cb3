"""sFlow and IPFIX of a running switch, read by goflow2: it understands every datagram, and its totals are those of the switch and of the
collector of this test. The packets are so many and so various as those of the tests beside other collectors.
"""

import contextlib
import ipaddress
import json
import os
import pathlib
import re
import subprocess

import pytest
import requests

import ipfix
from namespaces import cables, packet_socket_here
from switches import ROOT, Millrace, end, free_port, wait_for
from test_ipfix import CABLES, PACKETS, passed, switch_with
from test_sflow import Sink, frame, free_udp_port, listens

GOFLOW2 = ROOT / "target" / "goflow2" / "goflow2"
RATE = 5
# Packets that differ, and the bytes of a check sum that sFlow counts (frame_length).
KINDS = 400
FCS = 4
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root"),
    pytest.mark.skipif(not GOFLOW2.exists(), reason="goflow2: scripts/setup.sh goflow2 builds it"),
]


class Goflow2:
    """The collector, which writes a line of JSON for each flow. One worker, as several would read records before their templates."""

    def __init__(self, folder, kind):
        self.port, self.page, self.output = free_udp_port(), free_port(), folder / f"{kind}.json"
        self.log = (folder / f"{kind}.log").open("w+")
        self.process = subprocess.Popen(
            [GOFLOW2, "-listen", f"{kind}://127.0.0.1:{self.port}?workers=1", "-addr", f"127.0.0.1:{self.page}", "-transport.file", self.output,
             "-templates.path", "/templates"], stdout=self.log, stderr=self.log)
        wait_for("goflow2 listens", lambda: listens(self.port))

    def flows(self):
        """Returns the flows that are written whole. Several threads write objects and ends of lines, in any order."""
        text = self.output.read_text() if self.output.exists() else ""
        found, at = [], 0
        with contextlib.suppress(json.JSONDecodeError):
            while rest := text[at:].lstrip():
                one, length = json.JSONDecoder().raw_decode(rest)
                at = len(text) - len(rest) + length
                found.append(one)
        return found

    def count(self, metric):
        """Returns the sum of a metric over its labels."""
        text = requests.get(f"http://127.0.0.1:{self.page}/metrics", timeout=60).text
        return sum(float(value) for value in re.findall(rf"^{metric}(?:{{.*}})? (\S+)$", text, re.MULTILINE))

    def no_errors(self, datagrams):
        """It has read so many datagrams, and complained about none."""
        wait_for("goflow2 reads all datagrams", lambda: self.count("goflow2_flow_traffic_packets_total") == datagrams)
        for metric in ("goflow2_flow_process_nf_errors_total", "goflow2_flow_process_sf_errors_total", "goflow2_flow_dropped_packets_total"):
            assert self.count(metric) == 0, f"{metric}: {pathlib.Path(self.log.name).read_text()}"
        text = pathlib.Path(self.log.name).read_text()
        assert "level=error" not in text and "level=warn" not in text, text

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end(self.process)
        self.log.close()


def test_flows_of_ipfix_are_those_of_the_switch(tmp_path):
    with cables(*CABLES), ipfix.Udp() as collector, Goflow2(tmp_path, "netflow") as goflow2, \
            switch_with(tmp_path / "switch", [f"udp:127.0.0.1:{port}" for port in (collector.port, goflow2.port)],
                        ", active_timeout_s = 1, idle_timeout_s = 1") as switch:
        switch.ofctl("add-flow", "priority=1,actions=2")
        passed(switch)
        # Both count the same messages, the one by its headers.
        wait_for("all packets", lambda: sum(packets for packets, _ in ipfix.flows(collector.receive().records).values()) == PACKETS)
        wait_for("all packets in goflow2", lambda: sum(one["packets"] for one in goflow2.flows()) == PACKETS)
        switch.stop()
        goflow2.no_errors(len(collector.receive().headers))
        flows = goflow2.flows()
        assert len(flows) == len(collector.records) and {one["type"] for one in flows} == {"IPFIX"}
        assert summary(flows) == summary_of_records(collector.records)
        sample = next(one for one in flows if one["src_port"] == 1000 and one["dst_port"] == 53)
        assert (sample["src_addr"], sample["dst_addr"], sample["proto"], sample["in_if"], sample["out_if"]) == ("10.0.0.1", "10.0.0.2", "UDP", 1, 2)
        assert sample["ip_tos"] == 0xb8, sample


def summary(flows):
    """Returns the sums of packets and bytes by what identifies a flow, of goflow2."""
    sums = {}
    for one in flows:
        key = (one["etype"], one["src_addr"], one["dst_addr"], one["src_port"], one["dst_port"], one["vlan_id"])
        packets, octets = sums.get(key, (0, 0))
        sums[key] = (packets + one["packets"], octets + one["bytes"])
    return sums


def summary_of_records(records):
    """The same of the records of a collector."""
    sums = {}
    names = {0x0800: "IPv4", 0x86dd: "IPv6"}

    def address(text):
        return str(ipaddress.IPv6Address(bytes.fromhex(text))) if len(text) == 32 else text

    for one in records:
        key = (names.get(one["type"], ""), address(one.get("source", "")), address(one.get("destination", "")), one.get("sport", 0),
               one.get("dport", 0), one.get("vlan", 0))
        packets, octets = sums.get(key, (0, 0))
        sums[key] = (packets + one["packets"], octets + one.get("octets", one.get("layer2_octets", 0)))
    return sums


def test_samples_of_sflow_are_those_of_the_switch(tmp_path):
    with contextlib.ExitStack() as stack:
        stack.enter_context(cables(*CABLES))
        goflow2, sink = stack.enter_context(Goflow2(tmp_path, "sflow")), Sink(0)
        collectors = ", ".join(f'"127.0.0.1:{port}"' for port in (sink.port, goflow2.port))
        extra = f'sflow = {{ agent = "192.0.2.1", collectors = [{collectors}], sampling_rate = {RATE}, polling_interval_s = 1 }}'
        switch = stack.enter_context(Millrace(tmp_path / "switch", extra=extra, ports=[
            (number, f"kernel:{pair[1]}") for number, pair in enumerate(CABLES, 1)]))
        switch.ofctl("add-flow", "in_port=1,actions=2")

        def port():
            shown = json.loads(switch.cli("show", "sflow", "br0", "--json"))["br0"][0]
            return next(one for one in shown["ports"] if one["number"] == 1)

        sent = 0
        with packet_socket_here(CABLES[0][0]) as sender:
            def is_sampled():
                nonlocal sent
                for number in range(200):
                    sender.send(frame(number % KINDS))
                sent += 200
                return port()["samples"] >= 400

            wait_for("samples", is_sampled)
        wait_for("the packets", lambda: switch.port_packets(2)[1] == sent)
        wait_for("counter samples", lambda: port()["counter_samples"])
        wait_for("the samples in goflow2", lambda: len(goflow2.flows()) >= port()["samples"])
        one = port()
        switch.stop()
        goflow2.no_errors(sink.len)
        flows = goflow2.flows()
        assert len(flows) == one["samples"] and one["lost"] == 0
        assert {(flow["type"], flow["sampling_rate"], flow["sampler_address"], flow["in_if"], flow["out_if"]) for flow in flows} == \
            {("SFLOW_5", RATE, "192.0.2.1", 1, 2)}
        print(f"{len(flows)} samples of {one['pool']} packets, {sink.len} datagrams")
        # Port and size of a sample say which packet it was.
        known = {(1024 + number, number % 4 == 0, FCS + len(frame(number))) for number in range(KINDS)}
        assert {(flow["src_port"], flow["vlan_id"] == 100, flow["bytes"]) for flow in flows} <= known
        assert {flow["dst_port"] for flow in flows} == {53} and {flow["etype"] for flow in flows} == {"IPv4"}
        # An estimate of the packets that were sent, within four standard deviations.
        estimate = sum(flow["sampling_rate"] * flow["packets"] for flow in flows)
        assert abs(estimate / sent - 1) < 4 * ((1 - 1 / RATE) / len(flows)) ** 0.5
