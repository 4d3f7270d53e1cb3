#!/usr/bin/env python3
"""A receiver that only listens: it puts files together from a capture of a transfer and a key log.

    millrace send data/ TICKET --key-log keys.txt        while  tcpdump -w capture.pcap udp port 7800  runs
    receiver.py capture.pcap keys.txt DIRECTORY

It is the second implementation of docs/transport-protocol.md, made from that page and from RFCs alone: QUIC packets are opened
with the key log, HELLO, OFFER and the manifest are read from their streams, and data packets are opened with keys from the TLS
exporter. A file is written if every extent of it has the value that the sender announced, and the sender did not withdraw it.
"""

import pathlib
import struct
import sys

from protocol import Content, DataPackets, Manifest, messages
from quic import Connection, export


def datagrams(capture):
    """Yields source, destination and payload of the UDP datagrams with a payload of a pcap file (Ethernet, raw IP, Linux cooked)."""
    data = pathlib.Path(capture).read_bytes()
    orders = {b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">", b"\xa1\xb2\x3c\x4d": ">"}
    if data[:4] not in orders or len(data) < 24:
        raise SystemExit(f"{capture} is no pcap file; expected one of `tcpdump -w` (for pcapng: `editcap -F pcap`)")
    order = orders[data[:4]]
    link = struct.unpack(order + "I", data[20:24])[0]
    skips = {1: 14, 101: 0, 113: 16, 276: 20}
    if link not in skips:
        raise SystemExit(f"{capture} has link type {link}; expected Ethernet, raw IP or Linux cooked ({', '.join(map(str, skips))})")
    skip = skips[link]
    at = 24
    while at + 16 <= len(data):
        size = struct.unpack(order + "I", data[at + 8 : at + 12])[0]
        packet = data[at + 16 : at + 16 + size][skip:]
        at += 16 + size
        if len(packet) < 20:
            continue
        if packet[0] >> 4 == 4 and packet[9] == 17:
            udp, hosts = packet[(packet[0] & 15) * 4 :], (packet[12:16], packet[16:20])
        elif packet[0] >> 4 == 6 and packet[6] == 17:
            udp, hosts = packet[40:], (packet[8:24], packet[24:40])
        else:
            continue
        if len(udp) <= 8:
            continue
        source, destination, length = struct.unpack(">HHH", udp[:6])
        if length > 8:
            yield (hosts[0], source), (hosts[1], destination), udp[8:length]


def connections(key_log):
    """Yields a connection for each client random of a key log."""
    secrets = {}
    for line in pathlib.Path(key_log).read_text().splitlines():
        label, *fields = line.split()
        if len(fields) == 2:
            secrets.setdefault(fields[0], {})[label] = bytes.fromhex(fields[1])
    for found in secrets.values():
        names = ("CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0", "EXPORTER_SECRET")
        if all(name in found for name in names):
            yield Connection(*(found[name] for name in names))


class Session:
    """A session as the control channel describes it."""

    def __init__(self, connection):
        self.manifest = self.content = self.connection = self.root = None
        self.values, manifest, ended = {}, b"", False
        # The numbers of files that changed while they were sent: their bytes read as zeros from then on.
        self.withdrawn = set()
        for direction in (0, 1):
            for stream in connection.streams(direction):
                for kind, body in messages(stream):
                    if kind == 1:
                        body.varint()
                        aead = body.take(1)[0]
                        self.content = Content(body.take(32), aead)
                    elif kind == 2:
                        manifest += body.take(body.varint())
                    elif kind == 3:
                        ended = True
                    elif kind == 8:
                        self.connection = body.varint()
                    elif kind == 9:
                        extent = body.varint()
                        self.values[extent] = body.take(32)
                    elif kind == 11:
                        self.withdrawn.add(body.varint())
                    elif kind == 17:
                        self.root = body.take(32)
        if ended:
            self.manifest = Manifest(manifest)
        self.keys = export(connection.exporter_secret, b"EXPERIMENTAL millrace pairwise keys", 32)

    def is_complete(self):
        return None not in (self.manifest, self.content, self.connection)


def read_session(capture, key_log):
    """Returns the session of a capture, and the datagrams that are no QUIC packets."""
    captured = list(datagrams(capture))
    for connection in connections(key_log):
        client = None
        for source, _, payload in captured:
            # The one who dials sends the first long header.
            if client is None and payload[0] & 0xC0 == 0xC0:
                client = source
            if payload[0] & 0xC0:
                connection.take(0 if source == client else 1, payload)
        session = Session(connection)
        if session.is_complete():
            return session, [payload for _, _, payload in captured if not payload[0] & 0xC0]
    raise SystemExit("the capture has no session whose keys are in the log")


def receive(session, data):
    """Returns the bytes of the session as packets bring them, the extents that are verified, and the names of drops."""
    manifest = session.manifest
    packets = DataPackets(session.connection, session.keys[:16], session.content)
    space, have = bytearray(manifest.bytes), bytearray(manifest.bytes)
    unit = manifest.extent_size >> 20
    for datagram in data:
        if opened := packets.take(datagram):
            extent, offset, payload = opened
            start = extent * manifest.extent_size + offset * unit
            space[start : start + len(payload)] = payload
            have[start : start + len(payload)] = b"\1" * len(payload)
    verified = []
    for extent in range(manifest.extents()):
        part = slice(extent * manifest.extent_size, min((extent + 1) * manifest.extent_size, manifest.bytes))
        if all(have[part]) and manifest.value(extent, bytes(space[part])) == session.values.get(extent):
            verified.append(extent)
    return space, verified, packets.dropped


def write_files(manifest, space, verified, directory, withdrawn=frozenset()):
    """Writes the files whose extents are all verified, but not the withdrawn ones; returns their paths."""
    directory = pathlib.Path(directory)
    written = []
    for path in manifest.directories:
        (directory / path.decode(errors="surrogateescape")).mkdir(parents=True, exist_ok=True)
    for number, (path, size, segments, address) in enumerate(manifest.files):
        data = sum(length for _, length in segments)
        extents = range(address // manifest.extent_size, -(-(address + data) // manifest.extent_size) if data else 0)
        if number in withdrawn or not all(extent in verified for extent in extents):
            continue
        target = directory / path.decode(errors="surrogateescape")
        with open(target, "wb") as file:
            file.truncate(size)
            for offset, length in segments:
                file.seek(offset)
                file.write(space[address : address + length])
                address += length
        written.append(path)
    for path, target in manifest.links:
        link = directory / path.decode(errors="surrogateescape")
        if isinstance(target, bytes):
            link.symlink_to(target.decode(errors="surrogateescape"))
        elif manifest.files[target][0] in written:
            link.hardlink_to(directory / manifest.files[target][0].decode(errors="surrogateescape"))
    return written


def main():
    capture, key_log, directory = sys.argv[1:]
    session, data = read_session(capture, key_log)
    space, verified, dropped = receive(session, data)
    written = write_files(session.manifest, space, set(verified), directory, session.withdrawn)
    # An extent whose files were all withdrawn may have no value: it counts as 32 zero bytes.
    root = session.manifest.root([session.values.get(extent, bytes(32)) for extent in range(session.manifest.extents())])
    files = f"{len(written)} of {len(session.manifest.files)} files, {len(session.withdrawn)} withdrawn"
    print(f"{files}, {len(verified)} extents verified, dropped: {dropped}")
    if session.root is not None and session.root != root:
        raise SystemExit("the receipt names another root")
    if len(written) < len(session.manifest.files):
        raise SystemExit(3)


if __name__ == "__main__":
    main()
