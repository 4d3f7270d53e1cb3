"""The second implementation of docs/transport-protocol.md: a receiver in Python that reads a capture of a real transfer."""

import json
import os
import pathlib
import re
import select
import shutil
import socket
import struct
import subprocess
import sys
import threading

import pytest

from switches import TARGET

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECEIVER = ROOT / "examples" / "second-receiver"
DISSECTOR = ROOT / "contrib" / "wireshark" / "millrace.lua"
MILLRACE = TARGET / "millrace"
BOUND = 120
sys.path.insert(0, str(RECEIVER))


class Relay:
    """Passes datagrams between a sender and a receiver, drops some of the sender's, and writes the others to a pcap file.

    Of the sender's QUIC packets with a short header, those from the second to the sixth are lost, so that it sends probes."""

    def __init__(self, receiver, capture, drop_every):
        self.receiver, self.drop_every = receiver, drop_every
        self.near, self.far = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        for end in (self.near, self.far):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            end.bind(("127.0.0.1", 0))
        self.capture = open(capture, "wb")
        # Link type 101: raw IP.
        self.capture.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 101))
        self.dropped, self.stop = 0, threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        sender, count, short = None, 0, 0
        while not self.stop.is_set():
            for end in select.select([self.near, self.far], [], [], 0.05)[0]:
                datagram, source = end.recvfrom(65_536)
                if end is self.near:
                    sender, count = source, count + 1
                    is_short = datagram[0] & 0xC0 == 0x40
                    short += is_short
                    if is_short and 2 <= short <= 6 or count % self.drop_every == 0:
                        self.dropped += 1
                        continue
                    self.write(source, self.receiver, datagram)
                    self.far.sendto(datagram, self.receiver)
                elif sender:
                    self.write(self.receiver, sender, datagram)
                    self.near.sendto(datagram, sender)

    def write(self, source, destination, datagram):
        udp = struct.pack(">HHHH", source[1], destination[1], 8 + len(datagram), 0) + datagram
        addresses = b"".join(socket.inet_aton(host) for host, _ in (source, destination))
        packet = struct.pack(">BBHIBBH", 0x45, 0, 20 + len(udp), 0, 64, 17, 0) + addresses + udp
        self.capture.write(struct.pack("<IIII", 0, 0, len(packet), len(packet)) + packet)

    def close(self):
        self.stop.set()
        self.thread.join()
        self.capture.close()


@pytest.fixture(scope="module")
def transfer(tmp_path_factory):
    """A captured transfer: its directory with source, target, capture and key log."""
    folder = tmp_path_factory.mktemp("second-receiver")
    source = folder / "data"
    (source / "deep" / "empty").mkdir(parents=True)
    (source / "large").write_bytes(os.urandom((1 << 20) + 12_345))
    for number in range(20):
        (source / "deep" / f"{number}").write_bytes(os.urandom(number * 997))
    with open(source / "sparse", "wb") as file:
        file.truncate(8 << 20)
        file.seek(5 << 20)
        file.write(os.urandom(50_000))
    (source / "link").symlink_to("deep/3")
    (source / "other name").hardlink_to(source / "large")
    (folder / "in").mkdir()

    def millrace(*words, **options):
        return [MILLRACE, "--json", *map(str, words)], {"cwd": folder, "text": True, **options}

    def key(name):
        command, options = millrace("courier", "key", "--identity", name)
        return json.loads(subprocess.check_output(command, **options))["key"]

    words = ("receive", "in", "--once", "--listen", "127.0.0.1:0", "--allow", key("a.key"), "--identity", "b.key")
    command, options = millrace(*words, stdout=subprocess.PIPE)
    receiver = subprocess.Popen(command, **options)
    listening = json.loads(receiver.stdout.readline())
    host, port = listening["address"].rsplit(":", 1)
    relay = Relay((host, int(port)), folder / "capture.pcap", 40)
    try:
        to = f"{listening['key']}@127.0.0.1:{relay.near.getsockname()[1]}"
        words = ("send", "data/", to, "--identity", "a.key", "--rate", "100Mbps", "--key-log", "keys.txt")
        command, options = millrace(*words, stdout=subprocess.DEVNULL)
        assert subprocess.run(command, timeout=BOUND, **options).returncode == 0
        assert receiver.wait(BOUND) == 0
    finally:
        receiver.kill()
        relay.close()
    assert relay.dropped > 0
    return folder


def tree(folder):
    """Each path below a folder with its bytes, or its target."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
    return found


def test_a_receiver_made_from_the_page_puts_the_files_together(transfer):
    out = transfer / "out"
    out.mkdir()
    words = [sys.executable, RECEIVER / "receiver.py", transfer / "capture.pcap", transfer / "keys.txt", out]
    run = subprocess.run(words, capture_output=True, text=True, timeout=BOUND)
    assert run.returncode == 0, run.stdout + run.stderr
    assert tree(out) == tree(transfer / "data") == tree(transfer / "in")


def test_a_byte_that_is_wrong_in_the_capture_costs_the_file_and_no_other(transfer):
    import receiver as second

    session, data = second.read_session(transfer / "capture.pcap", transfer / "keys.txt")

    def costs_an_extent(index):
        _, verified, _ = second.receive(session, data[:index] + data[index + 1 :])
        return len(verified) < session.manifest.extents()

    # A packet whose bytes no other one carries: those of packets that a sender took for lost come twice.
    forged = next(index for index, datagram in enumerate(data) if datagram[0] == 0 and costs_an_extent(index))
    damaged = bytearray(data[forged])
    damaged[40] ^= 1
    space, verified, dropped = second.receive(session, data[:forged] + [bytes(damaged)] + data[forged + 1 :])
    assert dropped["forged"] == 1
    assert 0 < len(verified) < session.manifest.extents()


def test_the_vectors_of_the_page_are_reproduced():
    import blake3
    import protocol

    page = (ROOT / "docs" / "transport-protocol.md").read_text()

    def vector(name):
        """The bytes after a name in the page's vectors, over several lines."""
        found = re.search(rf"^{name} +((?:[0-9a-f ]+(?:\n  +)?)+)$", page, re.MULTILINE)
        return bytes.fromhex(found[1])

    secret, pairwise = bytes(range(32)), bytes(range(0x64, 0x74))
    shared = protocol.Content(secret, 0).seal(0x100001, 3, 5, b"millrace")
    assert shared == vector("seal counter") + vector("ciphertext") + vector("tag")
    head = protocol.head(0, 0x01020304, 0xABCDEF, pairwise, shared[:5] + shared[-16:])
    assert head == vector("head")
    packets = protocol.DataPackets(0x01020304, pairwise, protocol.Content(secret, 0))
    packets.next = 0xABCDEF
    assert packets.take(b"\x01" + head[1:] + shared) is None and packets.dropped["mac"] == 0
    assert packets.take(head + shared) == (3, 5, b"millrace")
    assert packets.take(head + shared) is None and packets.dropped["replay"] == 1

    kind, body = next(protocol.messages(vector("KEEP")))
    assert (kind, body.ranges()) == (7, [range(2, 5), range(9, 1_000)])
    kind, body = next(protocol.messages(vector("VERIFIED")))
    assert (kind, body.varint()) == (12, 70_000)

    manifest = protocol.Manifest(vector("manifest"))
    assert manifest.files == [(b"d/a", 20_000, [(0, 20_000)], 0)]
    data = bytes(7 * index % 251 for index in range(20_000))
    assert blake3.chaining_value(data[: protocol.GROUP]) == vector("group 0")
    assert blake3.chaining_value(data[protocol.GROUP :], protocol.GROUP) == vector("group 1")
    assert manifest.value(0, data) == vector("extent 0")
    assert manifest.root([manifest.value(0, data)]) == vector("root")


def test_a_file_that_the_sender_withdraws_is_not_written(tmp_path):
    import blake3
    import receiver as second

    entries = b"".join(bytes([2, 0, 1]) + name + bytes(7) for name in (b"a", b"b")) + bytes([4, 0, 1]) + b"c\0" + bytes([4, 0, 1]) + b"d\1"
    data = b"MRFS\x01\0" + entries + bytes([0, 4])
    data += blake3.digest(data)

    def varint(number):
        return struct.pack(">H", 0x4000 | number)

    def message(kind, body):
        return varint(1 + len(body)) + bytes([kind]) + body

    class Captured:
        exporter_secret = bytes(32)

        def streams(self, direction):
            control = message(2, varint(len(data)) + data) + message(3, b"")
            return [] if direction else [control, message(11, b"\1\7changed")]

    session = second.Session(Captured())
    assert session.withdrawn == {1}
    written = second.write_files(session.manifest, b"", set(), tmp_path, session.withdrawn)
    assert written == [b"a"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c"]


def test_captures_of_other_formats_are_refused_and_odd_packets_are_skipped(tmp_path):
    import receiver as second

    capture = tmp_path / "capture"
    header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 101)
    for data, reason in ((b"\x0a\x0d\x0d\x0a" + bytes(24), "no pcap file"), (header[:-4] + struct.pack("<I", 127), "link type 127")):
        capture.write_bytes(data)
        with pytest.raises(SystemExit, match=reason):
            list(second.datagrams(capture))

    def packet(payload, cut=None):
        udp = struct.pack(">HHHH", 1, 2, 8 + len(payload), 0) + payload
        whole = (struct.pack(">BBHIBBH", 0x45, 0, 20 + len(udp), 0, 64, 17, 0) + bytes(8) + udp)[:cut]
        return struct.pack("<IIII", 0, 0, len(whole), len(whole)) + whole

    capture.write_bytes(header + packet(b"") + packet(b"x", 0) + packet(b"x", 22) + packet(b"x", 28) + packet(b"whole"))
    assert [payload for _, _, payload in second.datagrams(capture)] == [b"whole"]


def test_a_manifest_whose_paths_lead_elsewhere_is_refused():
    import blake3
    import protocol

    def manifest(*paths):
        entries = b"".join(bytes([2, 0, len(path)]) + path + bytes(7) for path in paths)
        data = b"MRFS\x01\0" + entries + bytes([0, len(paths)])
        return protocol.Manifest(data + blake3.digest(data))

    assert [path for path, *_ in manifest(b"a", b"b").files] == [b"a", b"b"]
    for paths in ((b"../x",), (b"/x",), (b"d/x",), (b".",), (b"a\0",), (b".millrace-x",), (b"",), (b"b", b"a"), (b"a", b"a")):
        with pytest.raises(ValueError, match="the manifest has"):
            manifest(*paths)


def test_frames_of_all_types_are_skipped_to_the_streams():
    import quic

    stream = bytes([0x0E, 4, 7, 2]) + b"ab"
    before = {
        "PADDING": "00", "PING": "01", "ACK": "02 05 00 01 02 00 01", "ACK_ECN": "03 05 00 00 02 01 02 03",
        "RESET_STREAM": "04 04 00 07", "STOP_SENDING": "05 04 00", "CRYPTO": "06 00 02 aabb", "NEW_TOKEN": "07 02 aabb",
        "MAX_DATA": "10 05", "MAX_STREAM_DATA": "11 04 05", "MAX_STREAMS": "12 05", "DATA_BLOCKED": "14 05",
        "STREAM_DATA_BLOCKED": "15 04 05", "STREAMS_BLOCKED": "16 05", "NEW_CONNECTION_ID": "18 01 00 04 01020304" + "00" * 16,
        "RETIRE_CONNECTION_ID": "19 01", "PATH_CHALLENGE": "1a" + "00" * 8, "PATH_RESPONSE": "1b" + "00" * 8,
        "CONNECTION_CLOSE": "1c 00 06 01 78", "HANDSHAKE_DONE": "1e", "IMMEDIATE_ACK": "1f", "ACK_FREQUENCY": "40af 00 02 19 01",
    }
    for name, frame in before.items():
        assert list(quic.streams_in(bytes.fromhex(frame) + stream)) == [(4, 7, b"ab")], name
    with pytest.raises(ValueError, match="0x21"):
        list(quic.streams_in(bytes([0x21, 0]) + stream))


def test_the_sessions_line_of_the_key_log_has_the_keys_that_tls_exports(transfer):
    import receiver as second

    session, _ = second.read_session(transfer / "capture.pcap", transfer / "keys.txt")
    line = next(line for line in (transfer / "keys.txt").read_text().splitlines() if line.startswith("MILLRACE_SESSION"))
    connection, aead, secret, to_receiver, to_sender = map(bytes.fromhex, line.split()[1:])
    assert int.from_bytes(connection, "big") == session.connection
    assert (aead[0], secret) == (session.content.aead, session.content.secret)
    assert to_receiver + to_sender == session.keys


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed (apt-get install tshark)")
def test_wireshark_dissects_all_packet_types_and_decrypts_addresses(transfer):
    import protocol
    import receiver as second

    names = ["type", "connection", "number", "extent", "offset", "payload_start", "feedback.credit", "report.next"]
    fields = [word for name in names for word in ("-e", f"millrace.{name}")]
    port = next(second.datagrams(transfer / "capture.pcap"))[1][1]
    words = ["tshark", "-X", f"lua_script:{DISSECTOR}", "-o", f"millrace.port:{port}"]
    words += ["-o", f"millrace.key_log:{transfer / 'keys.txt'}", "-r", str(transfer / "capture.pcap"), "-Y", "millrace", "-T", "fields", "-E", "separator=|", *fields]
    words += ["-e", "millrace.malformed"]
    run = subprocess.run(words, capture_output=True, text=True, timeout=BOUND)
    rows = [line.split("|") for line in run.stdout.splitlines()]
    session, data = second.read_session(transfer / "capture.pcap", transfer / "keys.txt")
    assert len(rows) == len(data), run.stderr
    # A probe for a closed port is no packet of a session.
    pairs = [(row, datagram) for row, datagram in zip(rows, data) if datagram != b"\0"]
    rows, data = zip(*pairs)
    assert {row[0] for row in rows} == {"0", "1", "2"}
    assert not any(row[-1] for row in rows)
    packets = protocol.DataPackets(session.connection, session.keys[:16], session.content)
    for row, datagram in zip(rows, data):
        assert int(row[1], 16) == session.connection and int(row[2]) == int.from_bytes(datagram[5:8], "big")
        if opened := packets.take(datagram):
            extent, offset, payload = opened
            assert (int(row[3]), int(row[4]), row[5]) == (extent, offset, payload[:9].hex())
        else:
            assert row[6] or row[7]
