"""Fields of EVE JSON that the documentation and the public tests of Suricata name: details, Ethernet addresses, labels of traffic, and
the fields of LDAP, multicast DNS, EtherNet/IP, BitTorrent and NFS."""

import base64
import hashlib
import json
import struct
import subprocess

from scapy.layers.dns import DNS, DNSQR, DNSRR, DNSRRSRV
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import wrpcap

import conversations
from certificates import Authority
from switches import TARGET, run
from test_eve import validator

RULES = r"""
alert http any any -> any any (msg:"labelled"; flow:to_server; http.uri; content:"/a"; flowbits:set,traffic/id/tool; flowbits:set,traffic/label/lab; flowbits:set,plain; reference:url,example.com/x; reference:cve,2026-1; sid:1;)
alert tcp any any -> any 25 (msg:"a packet with data"; dsize:>0; sid:2;)
"""


def read(folder, capture, *arguments):
    """Returns the records of a capture, each of which conforms to the schema."""
    (folder / "rules").write_text(RULES)
    capture.write(folder / "day.pcap")
    return records(folder, *arguments)


def records(folder, *arguments):
    out = folder / "eve.json"
    run(TARGET / "millrace", "ips", "read", folder / "day.pcap", "--rules", folder / "rules", "--eve", out, "--eve-version", "8", *arguments)
    found = [json.loads(line) for line in out.read_text().splitlines()]
    valid = validator()
    for record in found:
        errors = [f"{error.json_path}: {error.message}" for error in valid.iter_errors(record)]
        assert not errors, (record, errors)
    return found


def named(found, kind):
    return [record for record in found if record["event_type"] == kind]


def get():
    return [(True, b"GET /a HTTP/1.1\r\nHost: example.com\r\nAccept: */*\r\n\r\n"),
            (False, b"HTTP/1.1 200 OK\r\nServer: tests\r\nContent-Length: 2\r\n\r\nok")]


def test_details_and_ethernet_addresses_are_there_if_they_are_asked_for(tmp_path):
    key, certificate = Authority(tmp_path, "details").sign("www.example.com", "DNS:www.example.com")
    capture = conversations.Capture()
    capture.tcp(80, get())
    capture.tcp(443, conversations.tls(key, certificate))
    capture.tcp(25, conversations.smtp())
    plain = read(tmp_path, capture)
    found = records(tmp_path, "--details", "--ethernet", "--packets")
    http = named(found, "http")[0]["http"]
    assert http["request_headers"] == [{"name": "Host", "value": "example.com"}, {"name": "Accept", "value": "*/*"}]
    assert [header["name"] for header in http["response_headers"]] == ["Server", "Content-Length"]
    tls = named(found, "tls")[0]["tls"]
    der = base64.b64decode(tls["certificate"])
    assert tls["chain"][0] == tls["certificate"]
    digest = hashlib.sha1(der).hexdigest()
    assert tls["fingerprint"] == ":".join(digest[at:at + 2] for at in range(0, 40, 2))
    assert tls["client_handshake"]["version"] == "TLS 1.2" and tls["server_handshake"]["cipher"] in tls["client_handshake"]["ciphers"]
    email = named(found, "smtp")[0]["email"]
    assert email["url"] == ["example.com/a"] and email["subject_md5"] == hashlib.md5(b"report").hexdigest()
    alert = next(one for one in named(found, "alert") if one["alert"]["signature_id"] == 1)
    assert alert["alert"]["references"] == ["http://example.com/x", "cve,2026-1"] and "sid:1;" in alert["alert"]["rule"]
    alert = next(one for one in named(found, "alert") if one["alert"]["signature_id"] == 2)
    assert alert["payload_length"] == len(base64.b64decode(alert["payload"])) and alert["packet_info"] == {"linktype": 1, "linktype_name": "EN10MB"}
    # The client is the source of each record, whoever sent the packet that completed it.
    client = {"src_mac": "02:00:00:00:00:01", "dest_mac": "02:00:00:00:00:02", "ether_type": 2048}
    assert alert["ether"] == client
    # All frames of the capture have the same addresses; those of the server's packets are exchanged.
    assert {tuple(record["ether"].values()) for record in found if "ether" in record} == {
        tuple(client.values()), ("02:00:00:00:00:02", "02:00:00:00:00:01", 2048)}
    for record in plain:
        kept = json.dumps(record)
        for name in ("request_headers", "certificate", "client_handshake", "subject_md5", "references", "ether\"", "rule\"", "payload_length"):
            assert name not in kept, (name, record)


def test_bits_of_a_flow_are_labels_and_metadata_of_its_records(tmp_path):
    capture = conversations.Capture()
    capture.tcp(80, get())
    found = read(tmp_path, capture, "--netflow")
    for kind, count in (("alert", 1), ("flow", 1), ("netflow", 2)):
        list_of = named(found, kind)
        assert len(list_of) == count
        for record in list_of:
            assert record["traffic"] == {"id": ["tool"], "label": ["lab"]} and record["metadata"] == {"flowbits": ["plain"]}, record
    assert {(record["netflow"]["min_ttl"], record["netflow"]["max_ttl"]) for record in named(found, "netflow")} == {(64, 64)}


def element(tag, *parts):
    content = b"".join(parts)
    return bytes([tag, len(content)]) + content


def test_operations_of_ldap_have_names_and_values(tmp_path):
    def message(identifier, operation):
        return element(0x30, element(2, bytes([identifier])), operation)

    def text(value):
        return element(4, value.encode())

    change = element(0x30, element(10, b"\2"), element(0x30, text("cn"), element(0x31, text("Anna"))))
    capture = conversations.Capture()
    capture.tcp(389, [
        (True, message(1, element(0x66, text("uid=a"), element(0x30, change)))),
        (False, message(1, element(0x67, element(10, b"\0"), text(""), text("")))),
        (True, message(2, element(0x6e, text("uid=a"), element(0x30, text("cn"), text("Anna"))))),
        (False, message(2, element(0x6f, element(10, b"\6"), text(""), text(""))))])
    modified, compared = (record["ldap"] for record in named(read(tmp_path, capture), "ldap"))
    assert modified["request"]["modify_request"] == {
        "object": "uid=a",
        "changes": [{"operation": "replace", "modification": {"attribute_type": "cn", "attribute_values": ["Anna"]}}]}
    assert modified["responses"][0]["modify_response"] == {"result_code": "success", "matched_dn": "", "message": ""}
    assert compared["request"]["compare_request"]["attribute_value_assertion"] == {"description": "cn", "value": "Anna"}
    assert compared["responses"][0]["compare_response"]["result_code"] == "compare_true"


def test_multicast_dns_has_data_by_type(tmp_path):
    answers = [DNSRR(rrname="_http._tcp.local", type="PTR", ttl=60, rdata="a._http._tcp.local"),
               DNSRR(rrname="a._http._tcp.local", type="TXT", ttl=60, rdata=[b"path=/", b"v=1"]),
               DNSRRSRV(rrname="a._http._tcp.local", ttl=60, port=80, target="a.local")]
    capture = conversations.Capture()
    question = IP(src="10.0.0.1", dst="224.0.0.251") / UDP(sport=5353, dport=5353)
    capture.add(question / DNS(qd=[DNSQR(qname="_http._tcp.local", qtype="PTR")], rd=0))
    capture.add(IP(src="10.0.0.2", dst="224.0.0.251") / UDP(sport=5353, dport=5353) / DNS(qr=1, aa=1, rd=0, qd=[], an=answers))
    asked, told = (record["mdns"] for record in named(read(tmp_path, capture), "mdns"))
    assert (asked["type"], asked["queries"]) == ("request", [{"rrname": "_http._tcp.local", "rrtype": "ptr"}])
    assert (told["type"], told["flags"]) == ("response", ["aa"])
    assert told["answers"] == [
        {"rrname": "_http._tcp.local", "ptr": "a._http._tcp.local"},
        {"rrname": "a._http._tcp.local", "txt": ["path=/", "v=1"]},
        {"rrname": "a._http._tcp.local", "srv": {"priority": 0, "weight": 0, "port": 80, "name": "a.local"}}]


def test_ethernet_ip_bittorrent_and_nfs_have_the_fields_of_their_standards(tmp_path):
    def encapsulated(command, body):
        return struct.pack("<HHIIQI", command, len(body), 0, 0, 0, 0) + body

    identity = struct.pack("<H16xHHHBBHI", 1, 1, 14, 58, 21, 2, 0x60, 7) + b"\3PLC\xff"
    item = struct.pack("<HHH", 1, 0x0c, len(identity)) + identity
    peer = bytes([192, 0, 2, 1]) + struct.pack(">H", 6881)
    node = b"n" * 20 + bytes(range(16)) + struct.pack(">H", 80)
    response = b"d1:rd2:id20:" + b"i" * 20 + b"6:nodes638:" + node + b"6:valuesl6:" + peer + b"ee1:t2:aa1:y1:re"
    query = b"d1:ad2:id20:" + b"i" * 20 + b"9:info_hash20:" + b"h" * 20 + b"e1:q9:get_peers1:t2:aa1:y1:qe"
    handle = b"123456789\0\0\0"
    call = struct.pack(">10I", 9, 0, 2, 100003, 3, 1, 0, 0, 0, 0) + struct.pack(">I", 9) + handle
    reply = struct.pack(">7I", 9, 1, 0, 0, 0, 0, 0)
    capture = conversations.Capture()
    capture.tcp(44818, [(True, encapsulated(0x63, b"")), (False, encapsulated(0x63, item))])
    capture.udp(6881, [(True, Raw(query)), (False, Raw(response))])
    capture.udp(2049, [(True, Raw(call)), (False, Raw(reply))])
    found = read(tmp_path, capture)
    asked, told = (record["enip"] for record in named(found, "enip"))
    assert asked == {"request": {"command": "ListIdentity", "status": "Success"}}
    assert (told["response"]["identity"]["product_name"], told["response"]["identity"]["revision"]) == ("PLC", "21.2")
    answer = named(found, "bittorrent_dht")[1]["bittorrent_dht"]["response"]
    assert answer["values"] == [{"ip": "192.0.2.1", "port": 6881}]
    assert answer["nodes6"][0]["ip"] == "0001:0203:0405:0607:0809:0a0b:0c0d:0e0f" and answer["nodes6"][0]["port"] == 80
    # The CRC-32 of the digits 1 to 9.
    assert named(found, "nfs")[0]["nfs"]["hhash"] == "cbf43926"


def test_options_without_events_are_refused(tmp_path):
    (tmp_path / "rules").write_text(RULES)
    wrpcap(str(tmp_path / "day.pcap"), [Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / UDP()])
    for option in ("--details", "--ethernet"):
        refused = subprocess.run([TARGET / "millrace", "ips", "read", tmp_path / "day.pcap", "--rules", tmp_path / "rules", option],
                                 capture_output=True, text=True, timeout=60)
        assert refused.returncode != 0 and "--eve" in refused.stderr
