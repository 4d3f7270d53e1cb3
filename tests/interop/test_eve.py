"""EVE JSON of intrusion prevention, judged by a complete implementation of JSON Schema, by SuricataLog, and by EveBox where
`make ips-check` has built it."""

import asyncio
import base64
import collections
import contextlib
import hashlib
import itertools
import json
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, CookedLinux, Dot1Q, Ether, Loopback
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw
from scapy.utils import PcapWriter, rdpcap, wrpcap

import conversations
from certificates import Authority
from switches import ROOT, TARGET, end, run, wait_for

SCHEMA = ROOT / "docs" / "eve.schema.json"
RULES = r"""
alert http any any -> any any (msg:"a file is asked for"; flow:to_server; http.uri; content:".pdf"; flowbits:set,asked; classtype:misc-attack; metadata:created_at 2026_01_02, tag a, tag b; sid:1; rev:2;)
alert http any any -> any any (msg:"the file comes"; flow:to_client; flowbits:isset,asked; file.data; content:"%PDF"; sid:2;)
alert dns any any -> any any (msg:"a name"; dns.query; content:"example"; sid:3;)
alert icmp any any -> any any (msg:"a ping"; itype:8; sid:4;)
drop tcp any any -> any 22 (msg:"no shell"; flow:established,to_server; content:"PuTTY"; sid:5;)
rejectboth tcp any any -> any 25 (msg:"no mail"; flow:established,to_server; content:"QUIT"; sid:6;)
rejectsrc udp any any -> any 5060 (msg:"no calls"; content:"OPTIONS"; sid:7;)
"""
RECORDS = {"http", "dns", "tls", "smtp", "ftp", "ssh", "smb", "sip", "modbus", "dnp3"}
EVERY = RECORDS | {"alert", "anomaly", "fileinfo", "flow", "ftp_data", "stats"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eve")
    (folder / "rules").write_text(RULES)
    keys = Authority(folder, "eve").sign("www.example.com", "DNS:www.example.com")
    conversations.every_protocol(*keys).write(folder / "day.pcap")
    return folder


def read(folder, *arguments):
    """Returns the records of the capture."""
    out = folder / "eve.json"
    run(TARGET / "millrace", "ips", "read", folder / "day.pcap", "--rules", folder / "rules", "--eve", out, *arguments)
    return [json.loads(line) for line in out.read_text().splitlines()]


def validator():
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def by_type(records):
    return collections.Counter(record["event_type"] for record in records)


@pytest.mark.parametrize(("mode", "version"), list(itertools.product(("ids", "ips"), ("7", "8"))))
def test_every_record_conforms_to_the_schema_in_each_mode_and_layout(folder, mode, version):
    records = read(folder, "--mode", mode, "--eve-version", version, "--packets")
    valid = validator()
    for record in records:
        errors = [f"{error.json_path}: {error.message}" for error in valid.iter_errors(record)]
        assert not errors, (record, errors)
    # In line, the call is rejected before its record is complete.
    expected = EVERY if mode == "ids" else EVERY - {"sip"} | {"drop"}
    assert set(by_type(records)) == expected


def test_the_schema_refuses_a_record_with_another_name_or_type(folder):
    valid = validator()
    record = next(record for record in read(folder) if record["event_type"] == "http")
    assert valid.is_valid(record)
    for change in ({"flow_id": "1"}, {"srcip": "10.0.0.1"}, {"timestamp": "yesterday"}, {"http": {"status": "200", "length": 1}},
                   {"event_type": "web"}):
        assert not valid.is_valid(record | change), change


def test_records_have_the_values_of_the_conversations(folder):
    records = read(folder, "--mode", "ips", "--packets")

    def first(kind, condition=lambda record: True):
        return next(record for record in records if record["event_type"] == kind and condition(record))

    def alert(sid):
        return first("alert", lambda record: record["alert"]["signature_id"] == sid)

    asked = first("http", lambda record: record["http"]["http_method"] == "GET")["http"]
    assert asked["url"] == "/file\\xff.pdf?a=b" and asked["hostname"] == "example.com" and asked["http_port"] == 8080
    assert (asked["status"], asked["http_content_type"], asked["content_range"]["raw"]) == (206, "application/pdf", "bytes 0-17/18")
    part = first("fileinfo", lambda record: record["app_proto"] == "http")["fileinfo"]
    assert (part["magic"], part["start"], part["end"]) == ("PDF document", 0, 17)
    tls = first("tls")["tls"]
    assert (tls["sni"], tls["version"], tls["client_alpns"]) == ("www.example.com", "TLS 1.2", ["h2", "http/1.1"])
    assert "CN=www.example.com" in tls["subject"] and len(tls["ja3"]["hash"]) == 32 and tls["ja4"].startswith("t12d")
    assert first("smtp")["email"]["attachment"] == ["report.pdf"]
    assert first("ftp", lambda record: record["ftp"].get("command") == "PASV")["ftp"]["dynamic_port"] == 50000
    answer = first("dns", lambda record: record["dns"]["type"] == "answer")["dns"]
    assert [(resource["rrtype"], resource["rdata"]) for resource in answer["answers"]] == [("CNAME", "example.com"), ("A", "192.0.2.1")]
    assert alert(1)["metadata"]["flowbits"] == ["asked"] and alert(1)["alert"]["metadata"]["tag"] == ["a", "b"]
    assert alert(2)["files"][0]["size"] == 18
    # "ping" in Base64.
    assert alert(4)["payload"] == "cGluZw=="
    assert alert(5)["alert"]["action"] == "blocked" and alert(5)["verdict"] == {"action": "drop"}
    assert alert(6)["verdict"] == {"action": "drop", "reject-target": "both", "reject": ["tcp-reset"]}
    assert alert(7)["verdict"] == {"action": "drop", "reject-target": "to_client", "reject": ["icmp-prohib"]}


def named(records, kind, condition=lambda record: True):
    """Returns the first record of a type that meets a condition."""
    return next(record for record in records if record["event_type"] == kind and condition(record))


@pytest.mark.parametrize("version", ("7", "8"))
def test_an_answer_groups_its_data_and_its_source_is_that_of_the_layout(folder, version):
    records = read(folder, "--eve-version", version)
    names = {"7": ("query", "answer"), "8": ("request", "response")}[version]
    asked, answered = (named(records, "dns", lambda record, name=name: record["dns"]["type"] == name) for name in names)
    assert answered["dns"]["grouped"] == {"CNAME": ["example.com"], "A": ["192.0.2.1"]}
    assert (asked["src_ip"], asked["dest_port"]) == (conversations.CLIENT, 53)
    # In the layout of Suricata 8 the server is the source of a response.
    source = {"7": (conversations.CLIENT, conversations.SERVER), "8": (conversations.SERVER, conversations.CLIENT)}[version]
    assert (answered["src_ip"], answered["dest_ip"]) == source
    if version == "8":
        assert answered["dns"]["version"] == 3 and answered["dns"]["queries"] == [{"rrname": "www.example.com", "rrtype": "A"}]
        assert (answered["src_port"], asked["dns"]["version"]) == (53, 3)


def test_the_source_of_a_file_is_the_end_that_sends_it(folder):
    records = read(folder)
    document = named(records, "fileinfo", lambda record: record["fileinfo"].get("magic") == "PDF document" and record["app_proto"] == "http")
    assert (document["src_ip"], document["src_port"]) == (conversations.SERVER, 80)
    form = named(records, "fileinfo", lambda record: record["app_proto"] == "smtp")
    assert (form["src_ip"], form["dest_port"]) == (conversations.CLIENT, 25)


def test_a_mail_has_the_part_of_it_that_was_seen(folder, tmp_path):
    assert named(read(folder), "smtp")["email"]["status"] == "PARSE_DONE"
    cut = conversations.smtp()
    at = next(at for at, (_, data) in enumerate(cut) if data.startswith(b"From:"))
    for size, status in ((20, "HEADER_STARTED"), (300, "BODY_STARTED")):
        capture = conversations.Capture()
        capture.tcp(25, [*cut[:at], (True, cut[at][1][:size])])
        capture.write(tmp_path / "day.pcap")
        (tmp_path / "rules").write_text(RULES)
        assert named(read(tmp_path), "smtp")["email"]["status"] == status, size


def test_frames_are_records_if_they_are_asked_for(folder):
    assert "frame" not in by_type(read(folder))
    valid = validator()
    for mode in ("ids", "ips"):
        frames = [record for record in read(folder, "--mode", mode, "--frames") if record["event_type"] == "frame"]
        for record in frames:
            assert not list(valid.iter_errors(record)), record
        kinds = {(record["app_proto"], record["frame"]["type"]) for record in frames}
        assert {("http", "request"), ("http", "response"), ("http", "stream"), ("tls", "pdu"), ("dns", "pdu"), ("smtp", "command_line")} <= kinds
        first = next(record for record in frames if (record["app_proto"], record["frame"]["type"]) == ("http", "request"))
        frame = first["frame"]
        payload = base64.b64decode(frame["payload"])
        assert (first["dest_port"], frame["direction"], frame["stream_offset"], frame["complete"]) == (80, "toserver", 0, True)
        printable = "".join(chr(byte) if 32 <= byte < 127 or byte in b"\r\n" else "." for byte in payload)
        assert len(payload) == frame["length"] and frame["payload_printable"] == printable
        answer = next(record for record in frames if record["frame"]["type"] == "response")
        assert answer["src_port"] == 80


def test_a_trace_of_a_rule_over_frames_names_the_frame(folder, tmp_path):
    (tmp_path / "rules").write_text('alert http any any -> any any (frame:http1.request; content:"GET "; startswith; sid:1;)\n')
    shown = run(TARGET / "millrace", "ips", "trace", folder / "day.pcap", "--sid", "1", "--rules", tmp_path / "rules")
    assert re.search(r"frame http1\.request \d+, from 0, \d+ bytes: alert", shown), shown


def test_messages_of_modbus_and_dnp3_have_the_fields_of_their_standards(folder):
    records = read(folder)
    modbus = named(records, "modbus")["modbus"]
    assert modbus["request"] == {
        "transaction_id": 1, "protocol_id": 0, "unit_id": 1, "function_raw": 3, "function_code": "RdHoldRegs",
        "access_type": "READ | HOLDING", "category": "PUBLIC_ASSIGNED", "error_flags": "NONE", "read": {"address": 0, "quantity": 2}}
    assert modbus["response"]["read"] == {"data": "\0\x01\0\x02"}
    request, response = (record["dnp3"] for record in records if record["event_type"] == "dnp3")
    assert (request["type"], request["src"], request["dst"]) == ("request", 1, 2)
    assert request["control"] == {"dir": True, "pri": True, "fcb": False, "fcv": False, "function_code": 4}
    assert request["application"] == {
        "control": {"fir": True, "fin": True, "con": False, "uns": False, "sequence": 0}, "function_code": 1,
        "objects": [{"group": 60, "variation": 2, "qualifier": 6, "prefix_code": 0, "range_code": 6, "start": 0, "stop": 0, "count": 0}],
        "complete": True}
    assert (response["type"], response["iin"]) == ("response", {"indicators": []})


def test_a_flow_has_the_bytes_of_its_frames_its_seconds_and_its_connection(folder):
    records = read(folder)
    frames = rdpcap(str(folder / "day.pcap"))
    flow = named(records, "flow", lambda record: record["dest_port"] == 25)
    of_flow = [frame for frame in frames if TCP in frame and flow["src_port"] in (frame[TCP].sport, frame[TCP].dport)]
    sizes = [sum(len(frame) for frame in of_flow if frame[IP].src == end) for end in (conversations.CLIENT, conversations.SERVER)]
    assert [flow["flow"]["bytes_toserver"], flow["flow"]["bytes_toclient"]] == sizes
    assert flow["flow"]["age"] == int(of_flow[-1].time) - int(of_flow[0].time)
    assert flow["flow"]["tx_cnt"] >= 1 and flow["flow"]["state"] == "closed"
    assert flow["tcp"] == {"tcp_flags": "1b", "tcp_flags_ts": "1b", "tcp_flags_tc": "1b", "fin": True, "syn": True, "psh": True,
                           "ack": True, "state": "closed"}
    assert "tcp" not in named(records, "flow", lambda record: record["proto"] == "UDP")


def test_a_connection_without_handshake_is_midstream_in_its_alerts_and_its_flow(tmp_path):
    (tmp_path / "rules").write_text('alert http any any -> any any (http.method; content:"GET"; sid:1;)\n')
    for first, expected in ((3, True), (0, None)):
        capture = conversations.Capture()
        capture.tcp(80, conversations.http())
        capture.frames = capture.frames[first:]
        capture.write(tmp_path / "day.pcap")
        for mode in ("ids", "ips"):
            records = read(tmp_path, "--mode", mode, "--midstream")
            for kind in ("alert", "flow"):
                assert named(records, kind)["flow"].get("midstream") is expected, (first, mode, kind)


def test_a_connection_whose_end_points_begin_another_ends_as_reused(tmp_path):
    capture = conversations.Capture()
    for _ in range(2):
        capture.tcp(80, conversations.http(), client_port=45000)
    # Of the third connection only the SYN is seen.
    third = IP(src=conversations.CLIENT, dst=conversations.SERVER) / TCP(sport=45000, dport=80, flags="S", seq=77)
    capture.add(third)
    # The second connection has other sequence numbers than the first.
    for frame in capture.frames[len(capture.frames) // 2:-1]:
        for name in ("seq", "ack"):
            if getattr(frame[TCP], name):
                setattr(frame[TCP], name, getattr(frame[TCP], name) + 1_000_000)
    capture.write(tmp_path / "day.pcap")
    (tmp_path / "rules").write_text(RULES)
    flows = [record for record in read(tmp_path) if record["event_type"] == "flow"]
    assert [flow["flow"]["reason"] for flow in flows] == ["tcp_reuse", "tcp_reuse", "shutdown"]
    assert flows[2]["tcp"] == {"tcp_flags": "02", "tcp_flags_ts": "02", "tcp_flags_tc": "00", "syn": True, "state": "syn_sent"}


def test_an_alert_in_a_tunnel_names_the_outermost_packet_and_addresses_of_ipv6_are_in_full(tmp_path):
    inner = IP(src="10.1.0.1", dst="10.1.0.2") / UDP(sport=9, dport=5060) / Raw(b"OPTIONS here")
    vxlan = IPv6(src="2001:db8::1", dst="2001:db8::2") / UDP(sport=4000, dport=4789) / VXLAN(vni=7) / Ether() / inner
    twice = IP(src="192.0.2.1", dst="192.0.2.2") / vxlan
    capture = conversations.Capture()
    for packet in (vxlan, twice, inner):
        capture.add(packet)
    capture.write(tmp_path / "day.pcap")
    (tmp_path / "rules").write_text('alert udp any any -> any 5060 (content:"OPTIONS"; sid:1;)\n')
    alerts = [record for record in read(tmp_path) if record["event_type"] == "alert"]
    full = {"src_ip": "2001:0db8:0000:0000:0000:0000:0000:0001", "src_port": 4000,
            "dest_ip": "2001:0db8:0000:0000:0000:0000:0000:0002", "dest_port": 4789, "proto": "UDP", "depth": 1, "pcap_cnt": 1, "pkt_src": "wire/pcap"}
    around = {"src_ip": "192.0.2.1", "dest_ip": "192.0.2.2", "proto": "IPv6", "depth": 2, "pcap_cnt": 2, "pkt_src": "wire/pcap"}
    assert [record.get("tunnel") for record in alerts] == [full, around, None]
    valid = validator()
    assert all(valid.is_valid(record) for record in alerts)


def function(folder, capture, *arguments):
    """Runs the function ids over a capture; returns its events and its output."""
    out = folder / "function.json"
    output = run(TARGET / "millrace", "nf", "run", "ids", "--setting", f"rules={folder / 'rules'}", "--setting", f"export=file:{out}",
                 "--read", capture, *arguments)
    return [json.loads(line) for line in out.read_text().splitlines()], output


def without_numbers(records):
    """Returns records without what differs between a function and `ips read`: numbers of flows and packets, and statistics."""
    own = {"flow_id", "pcap_cnt", "pcap_filename"}
    kept = [{name: value for name, value in record.items() if name not in own} for record in records if record["event_type"] != "stats"]
    return sorted(json.dumps(record, sort_keys=True) for record in kept)


def test_a_function_over_a_capture_writes_the_events_that_it_counts(folder):
    records, output = function(folder, folder / "day.pcap")
    assert without_numbers(records) == without_numbers(read(folder))
    valid = validator()
    assert all(valid.is_valid(record) for record in records)
    counted = dict(line.split() for line in output.splitlines() if len(line.split()) == 2)
    alerts = by_type(records)["alert"]
    assert alerts > 0 and int(counted["alerts"]) == alerts and int(counted["events_lost"]) == 0


# The link types of tcpdump.org, and the layer of each.
LINKS = {"raw": (101, None), "loopback": (0, Loopback(type=2)), "cooked": (113, CookedLinux(proto=0x800)), "ipv4": (228, None)}


@pytest.mark.parametrize("name", LINKS)
def test_a_function_reads_captures_of_other_link_types(folder, tmp_path, name):
    number, layer = LINKS[name]
    frames = rdpcap(str(folder / "day.pcap"))
    with PcapWriter(str(tmp_path / "other.pcap"), linktype=number) as writer:
        for frame in frames:
            packet = frame[IP] if layer is None else layer / frame[IP]
            packet.time = frame.time
            writer.write(packet)
    records, _ = function(folder, tmp_path / "other.pcap", "--write", tmp_path / "passed.pcap")
    # Of the records only the bytes of flows and the frames differ: they have no Ethernet header of their own.
    plain, _ = function(folder, folder / "day.pcap")
    assert without_numbers(records) == without_numbers(plain)
    assert [bytes(frame[IP]) for frame in rdpcap(str(tmp_path / "passed.pcap"))] == [bytes(frame[IP]) for frame in frames]


def test_directions_of_flows_and_packets_of_arp_are_records_if_asked(folder, tmp_path):
    client, server = "02:00:00:00:00:01", "02:00:00:00:00:02"
    asked = Ether(src=client, dst="ff:ff:ff:ff:ff:ff") / ARP(op=1, hwsrc=client, psrc="192.0.2.1", pdst="192.0.2.2")
    answered = Ether(src=server, dst=client) / Dot1Q(vlan=7) / ARP(op=2, hwsrc=server, psrc="192.0.2.2", hwdst=client, pdst="192.0.2.1")
    query = Ether(src=client, dst=server) / IP(src="192.0.2.1", dst="192.0.2.2") / UDP(sport=40000, dport=9) / Raw(b"x" * 100)
    alone = Ether(src=client, dst=server) / IP(src="192.0.2.1", dst="192.0.2.3") / UDP(sport=40001, dport=9) / Raw(b"x")
    answer = Ether(src=server, dst=client) / IP(src="192.0.2.2", dst="192.0.2.1") / UDP(sport=9, dport=40000) / Raw(b"y" * 200)
    wrpcap(str(tmp_path / "day.pcap"), [asked, answered, query, answer, query, alone])
    (tmp_path / "rules").write_text(RULES)
    records = read(tmp_path, "--netflow", "--arp")
    valid = validator()
    for record in records:
        assert valid.is_valid(record), record
    request, reply = (record for record in records if record["event_type"] == "arp")
    assert request["arp"] == {"hw_type": "ethernet", "proto_type": "ipv4", "opcode": "request", "src_mac": client, "src_ip": "192.0.2.1",
                              "dest_mac": "00:00:00:00:00:00", "dest_ip": "192.0.2.2"}
    assert (request["pcap_cnt"], request["pkt_src"], "src_ip" in request) == (1, "wire/pcap", False)
    assert (reply["arp"]["opcode"], reply["arp"]["dest_mac"], reply["vlan"]) == ("reply", client, [7])
    directions = sorted((record["src_ip"], record["src_port"], record["dest_port"], record["netflow"]["pkts"], record["netflow"]["bytes"])
                        for record in records if record["event_type"] == "netflow")
    # A direction without packets has no record.
    assert directions == [("192.0.2.1", 40000, 9, 2, 284), ("192.0.2.1", 40001, 9, 1, 43), ("192.0.2.2", 9, 40000, 1, 242)]
    assert {"netflow", "arp"}.isdisjoint(by_type(read(tmp_path)))


def test_a_function_says_how_many_frames_of_a_damaged_capture_it_read(folder, tmp_path):
    capture = (folder / "day.pcap").read_bytes()
    (tmp_path / "cut.pcap").write_bytes(capture[:-5])
    count = len(rdpcap(str(folder / "day.pcap"))) - 1
    command = [TARGET / "millrace", "nf", "run", "ids", "--setting", f"rules={folder / 'rules'}", "--read", tmp_path / "cut.pcap"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0 and f"after {count} frames" in ended.stderr and f"{count} packets" in ended.stdout


STORING = r"""
alert http any any -> any any (msg:"a file"; http.uri; content:".pdf"; filestore:both; sid:1;)
alert http any any -> any any (msg:"a new host"; http.host; dataset:set,hosts,type string,state sets/hosts.lst; sid:2;)
alert ip any any -> any any (msg:"known to attack"; iprep:src,BadHosts,>,50; sid:3;)
1,BadHosts,Hosts that attack
10.0.0.0/30,1,99
"""


@pytest.mark.parametrize("program", ("ips read", "nf run"))
def test_files_sets_and_reputations_of_rules_are_stored_and_read(folder, tmp_path, program):
    (tmp_path / "rules").write_text(STORING)
    data = tmp_path / "data"
    (tmp_path / "day.pcap").write_bytes((folder / "day.pcap").read_bytes())

    def run_once():
        if program == "ips read":
            return read(tmp_path, "--data", data)
        return function(tmp_path, tmp_path / "day.pcap", "--setting", f"data={data}")[0]

    def alerts(records):
        return collections.Counter(record["alert"]["signature_id"] for record in records if record["event_type"] == "alert")

    first = run_once()
    content = b"%PDF-1.7 not quite"
    digest = hashlib.sha256(content).hexdigest()
    assert [path.relative_to(data / "filestore") for path in (data / "filestore").rglob("*") if path.is_file()] == [
        pathlib.Path(digest[:2], digest)]
    assert (data / "filestore" / digest[:2] / digest).read_bytes() == content
    stored = [record["fileinfo"] for record in first if record["event_type"] == "fileinfo" and record["fileinfo"]["stored"]]
    assert [file["sha256"] for file in stored] == [digest]
    hosts = (data / "sets" / "hosts.lst").read_text().split()
    assert "example.com" in [base64.b64decode(host).decode() for host in hosts]
    assert alerts(first)[2] == len(hosts) and alerts(first)[3] > 0
    # The next run knows the hosts.
    assert alerts(run_once())[2] == 0 and (data / "sets" / "hosts.lst").read_text().split() == hosts


def test_a_set_is_written_nowhere_outside_of_its_folder(tmp_path):
    for name in ("/etc/hosts.lst", "../hosts.lst", "a/../../hosts.lst"):
        (tmp_path / "rules").write_text(f"alert http any any -> any any (http.host; dataset:set,hosts,type string,save {name}; sid:1;)\n")
        checked = subprocess.run([TARGET / "millrace", "ips", "check", tmp_path / "rules"], capture_output=True, text=True, timeout=60)
        assert "expected a name beneath the directory for data" in checked.stdout + checked.stderr, name


def test_suricatalog_counts_our_flows_user_agents_and_payloads(folder):
    filters, log, report = (pytest.importorskip(f"suricatalog.{name}") for name in ("filter", "log", "report"))
    records = read(folder, "--packets")
    handler = log.EveLogHandler()

    def accepted(wanted):
        return list(handler.get_events(eve_files=[folder / "eve.json"], data_filter=wanted))

    assert accepted(filters.AlwaysTrueFilter()) == records
    alerts = filters.OnlyAlertsFilter()
    alerts.timestamp = filters.parse_timestamp("2023-01-01T00:00:00.000000+0000")
    assert [record["alert"]["signature_id"] for record in accepted(alerts)] == [
        record["alert"]["signature_id"] for record in records if record["event_type"] == "alert"]
    with_payload = [record for record in records if record["event_type"] == "alert" and record.get("payload")]
    assert accepted(filters.WithPrintablePayloadFilter()) == with_payload and with_payload

    flows, agents = report.AggregatedFlowProtoReport(), report.TopUserAgents()
    agents.agents = {}

    async def ingest():
        for record in records:
            await flows.ingest_data(record)
            await agents.ingest_data(record)

    asyncio.run(ingest())
    assert flows.port_proto_count[("UDP", 53)] == 1 and flows.port_proto_count[("TCP", 80)] == 2
    assert agents.agents["tests"] >= 1


def evebox():
    """Returns the program that `make ips-check` builds, or that is on PATH."""
    built = ROOT / "target" / "evebox" / "bin" / "evebox"
    return built if built.exists() else shutil.which("evebox")


@contextlib.contextmanager
def oneshot(folder, program, eve):
    """Starts EveBox over a file of events; yields its database once all events are in it."""
    database, log = folder / "evebox.sqlite", (folder / "evebox.log").open("w")
    environment = os.environ | {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    command = [program, "oneshot", "--no-open", "--host", "127.0.0.1", "--database-filename", database, eve]
    process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, start_new_session=True)
    try:
        text = pathlib.Path(log.name)

        def started():
            assert process.poll() is None, text.read_text()
            return "Server started at" in text.read_text()

        wait_for("EveBox has read the events", started, 60)
        with contextlib.closing(sqlite3.connect(database)) as connection:
            yield connection
    finally:
        end(process)
        log.close()


def test_evebox_lists_and_counts_our_alerts(folder):
    program = evebox()
    if not program:
        pytest.skip("EveBox is not there: `make ips-check` builds it")
    records = read(folder, "--mode", "ips", "--packets")
    with oneshot(folder, program, folder / "eve.json") as database:
        rows = [json.loads(source) for (source,) in database.execute("SELECT source FROM events")]
    assert by_type(rows) == by_type(records)

    def alerts(events):
        return collections.Counter((event["alert"]["signature_id"], event["alert"]["action"]) for event in events if event["event_type"] == "alert")

    assert alerts(rows) == alerts(records) and sum(alerts(rows).values()) >= 7
