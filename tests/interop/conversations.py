"""Conversations of application protocols as captures: each protocol whose records intrusion prevention writes, made with scapy
and with Python's own TLS."""

import ssl
import struct

from scapy.layers.dns import DNS, DNSQR, DNSRR
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import wrpcap

CLIENT, SERVER = "10.0.0.1", "10.0.0.2"


class Capture:
    """Frames in the order in which they are added, a millisecond apart."""

    def __init__(self):
        self.frames = []
        self.next_port = 40000

    def add(self, packet):
        frame = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / packet
        frame.time = 1_700_000_000 + len(self.frames) / 1000
        self.frames.append(frame)

    def tcp(self, port, messages, client_port=None):
        """Adds a connection: handshake, messages as (from the client, bytes) with their acknowledgments, close."""
        if client_port is None:
            client_port, self.next_port = self.next_port, self.next_port + 1
        sent = {True: 1000, False: 5000}

        def segment(from_client, flags, data=b""):
            ends = (CLIENT, SERVER, client_port, port) if from_client else (SERVER, CLIENT, port, client_port)
            acknowledged = 0 if flags == "S" else sent[not from_client]
            tcp = TCP(sport=ends[2], dport=ends[3], flags=flags, seq=sent[from_client], ack=acknowledged, window=65535)
            self.add(IP(src=ends[0], dst=ends[1]) / tcp / Raw(data))
            sent[from_client] += len(data) + ("S" in flags or "F" in flags)

        segment(True, "S")
        segment(False, "SA")
        segment(True, "A")
        for from_client, data in messages:
            for at in range(0, len(data), 1400):
                segment(from_client, "PA", data[at:at + 1400])
                segment(not from_client, "A")
        segment(True, "FA")
        segment(False, "FA")
        segment(True, "A")

    def udp(self, port, messages):
        """Adds datagrams of one flow, as (from the client, payload)."""
        client_port, self.next_port = self.next_port, self.next_port + 1
        for from_client, payload in messages:
            ends = (CLIENT, SERVER, client_port, port) if from_client else (SERVER, CLIENT, port, client_port)
            self.add(IP(src=ends[0], dst=ends[1]) / UDP(sport=ends[2], dport=ends[3]) / payload)

    def write(self, path):
        wrpcap(str(path), self.frames)
        return path


def http():
    body = b"%PDF-1.7 not quite"
    # A byte that is not UTF-8 is in the header, and the content type has a parameter.
    request = b"GET /file\xff.pdf?a=b HTTP/1.1\r\nHost: example.com:8080\r\nUser-Agent: tests\r\nReferer: http://a/\r\nX-Forwarded-For: 192.0.2.9\r\n\r\n"
    answer = b"HTTP/1.1 206 Partial\r\nContent-Type: application/pdf; a=b\r\nContent-Range: bytes 0-17/18\r\nContent-Length: 18\r\n\r\n" + body
    post = b"POST /login HTTP/1.1\r\nHost: example.com\r\nContent-Length: 5\r\n\r\na=b&c"
    moved = b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"
    return [(True, request), (False, answer), (True, post), (False, moved)]


def anomalous_http():
    return [(True, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            (False, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")]


def dns():
    question = DNSQR(qname="www.example.com", qtype="A")
    answers = [DNSRR(rrname="www.example.com", type="CNAME", ttl=60, rdata="example.com"),
               DNSRR(rrname="example.com", type="A", ttl=60, rdata="192.0.2.1")]
    authority = DNSRR(rrname="example.com", type="NS", ttl=60, rdata="ns.example.com")
    return [(True, DNS(id=7, rd=1, qd=[question])), (False, DNS(id=7, qr=1, rd=1, ra=1, qd=[question], an=answers, ns=[authority]))]


def tls(key, certificate):
    """Returns the bytes of a real handshake with TLS 1.2, whose certificate is in clear."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    server.set_alpn_protocols(["http/1.1"])
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.set_alpn_protocols(["h2", "http/1.1"])
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    pipes = {True: ssl.MemoryBIO(), False: ssl.MemoryBIO()}
    ends = {True: client.wrap_bio(pipes[False], pipes[True], server_hostname="www.example.com"),
            False: server.wrap_bio(pipes[True], pipes[False], server_side=True)}
    messages = []
    for turn in range(8):
        from_client = turn % 2 == 0
        try:
            ends[from_client].do_handshake()
        except ssl.SSLWantReadError:
            pass
        # The bytes leave the pipe for the capture, and go back for the other end.
        data = pipes[from_client].read()
        if data:
            messages.append((from_client, data))
            pipes[from_client].write(data)
    return messages


def smtp():
    mail = (b"From: a@example.com\r\nTo: b@example.com\r\nSubject: report\r\nDate: Mon, 2 Jan 2026 03:04:05 +0000\r\n"
            b"Message-ID: <1@example.com>\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n"
            b"--x\r\nContent-Type: text/plain\r\n\r\nsee http://example.com/a\r\n"
            b"--x\r\nContent-Type: application/pdf; name=\"report.pdf\"\r\nContent-Disposition: attachment; filename=\"report.pdf\"\r\n"
            b"Content-Transfer-Encoding: base64\r\n\r\nJVBERi0xLjcK\r\n--x--\r\n.\r\n")
    return [(False, b"220 mail\r\n"), (True, b"EHLO client\r\n"), (False, b"250 mail\r\n"), (True, b"MAIL FROM:<a@example.com>\r\n"),
            (False, b"250 ok\r\n"), (True, b"RCPT TO:<b@example.com>\r\n"), (False, b"250 ok\r\n"), (True, b"DATA\r\n"),
            (False, b"354 go on\r\n"), (True, mail), (False, b"250 ok\r\n"), (True, b"QUIT\r\n"), (False, b"221 bye\r\n")]


def ftp():
    return [(False, b"220 files\r\n"), (True, b"USER anonymous\r\n"), (False, b"331 password\r\n"), (True, b"PASS a@b\r\n"),
            (False, b"230-welcome\r\n230 in\r\n"), (True, b"PASV\r\n"), (False, b"227 Entering Passive Mode (10,0,0,2,195,80)\r\n"),
            (True, b"RETR data.txt\r\n"), (False, b"150 here\r\n")]


def ssh():
    return [(False, b"SSH-2.0-OpenSSH_9.2\r\n"), (True, b"SSH-2.0-PuTTY_0.80\r\n")]


def smb():
    def message(flags, body, command=0):
        header = b"\xfeSMB" + struct.pack("<HHIHHIIQIIQ16x", 64, 0, 0, command, 1, flags, 0, 0, 0xfeff, 0, 0)
        return struct.pack(">I", len(header) + len(body)) + header + body

    request = struct.pack("<HHHHI16sQ", 36, 2, 1, 0, 0, b"c" * 16, 0) + struct.pack("<HH", 0x0202, 0x0210)
    answer = struct.pack("<HHHH16sIIIIQQHHI", 65, 1, 0x0210, 0, b"s" * 16, 0, 65536, 65536, 65536, 0, 0, 128, 0, 0)
    share = r"\\server\files".encode("utf-16-le")
    connect = struct.pack("<HHHH", 9, 0, 72, len(share)) + share
    return [(True, message(0, request)), (False, message(1, answer)), (True, message(0, connect, command=3))]


def sip():
    head = b"Via: SIP/2.0/UDP a\r\nFrom: <sip:a@example.com>\r\nTo: <sip:b@example.com>\r\nCall-ID: 1\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
    return [(True, Raw(b"OPTIONS sip:b@example.com SIP/2.0\r\n" + head)), (False, Raw(b"SIP/2.0 200 OK\r\n" + head))]


def modbus():
    return [(True, bytes.fromhex("000100000006010300000002")), (False, bytes.fromhex("00010000000701030400010002"))]


def dnp3():
    def with_crc(data):
        crc = 0
        for byte in data:
            crc ^= byte
            for _ in range(8):
                crc = crc >> 1 ^ (0xA6BC if crc & 1 else 0)
        return data + struct.pack("<H", ~crc & 0xFFFF)

    def frame(control, source, destination, user):
        return with_crc(b"\x05\x64" + bytes([5 + len(user), control]) + struct.pack("<HH", destination, source)) + with_crc(user)

    return [(True, frame(0xC4, 1, 2, bytes.fromhex("c0c0013c0206"))), (False, frame(0x44, 2, 1, bytes.fromhex("c0c0810000")))]


def every_protocol(key, certificate):
    """Returns a capture with a conversation of each protocol, an anomaly, and packets without a transport."""
    capture = Capture()
    for port, messages in ((80, http()), (80, anomalous_http()), (443, tls(key, certificate)), (25, smtp()), (21, ftp()), (22, ssh()),
                           (445, smb()), (502, modbus()), (20000, dnp3())):
        capture.tcp(port, messages)
    # The connection that PASV announced.
    capture.tcp(50000, [(False, b"data over ftp\n")])
    capture.udp(53, dns())
    capture.udp(5060, sip())
    capture.add(IP(src=CLIENT, dst=SERVER) / ICMP() / Raw(b"ping"))
    capture.add(IP(src=CLIENT, dst=SERVER, proto=99) / Raw(b"ninety-nine"))
    return capture
