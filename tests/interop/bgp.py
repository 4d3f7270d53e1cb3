"""A BGP speaker of a few lines, which sends what a test gives it: unicast routes and flow specifications, many in a second."""

import contextlib
import ipaddress
import select
import socket
import struct
import threading
import time

from switches import wait_for

MARKER = b"\xff" * 16
OPEN, UPDATE, NOTIFICATION, KEEPALIVE = 1, 2, 3, 4
FAMILIES = ((1, 1), (2, 1), (1, 133), (2, 133))
# Extended community traffic-rate-bytes 0 (RFC 8955, section 7.1): drop.
DROP = bytes.fromhex("8006000000000000")


def message(kind, body=b""):
    """Returns a message."""
    return MARKER + struct.pack("!HB", 19 + len(body), kind) + body


def nlri(prefix):
    """Returns the encoding of a prefix."""
    network = ipaddress.ip_network(prefix)
    return bytes([network.prefixlen]) + network.network_address.packed[: (network.prefixlen + 7) // 8]


def attribute(flags, kind, value):
    """Returns a path attribute."""
    return bytes([flags | 0x10, kind]) + struct.pack("!H", len(value)) + value


def flow(destination, components=b""):
    """Returns a flow specification with a destination, and further components as bytes."""
    network = ipaddress.ip_network(destination)
    offset = b"\0" if network.version == 6 else b""
    rule = b"\x01" + nlri(destination)[:1] + offset + nlri(destination)[1:] + components
    return (bytes([len(rule)]) if len(rule) < 240 else struct.pack("!H", 0xF000 | len(rule))) + rule


class Speaker:
    """A router of an AS that connects to a peer from an address."""

    def __init__(self, peer, local, asn, router_id="192.0.2.200"):
        self.asn, self.local = asn, local

        def connected():
            # The peer may not listen yet.
            with contextlib.suppress(ConnectionRefusedError):
                return socket.create_connection(peer, source_address=(local, 0), timeout=60)
        self.socket = wait_for(f"a connection to {peer}", connected)
        capabilities = b"".join(struct.pack("!BBHBB", 1, 4, afi, 0, safi) for afi, safi in FAMILIES)
        capabilities += struct.pack("!BBI", 65, 4, asn)
        body = struct.pack("!BHH4sBBB", 4, asn if asn < 65536 else 23456, 90, socket.inet_aton(router_id), len(capabilities) + 2, 2,
                           len(capabilities))
        self.socket.sendall(message(OPEN, body + capabilities))
        self.is_established, self.ended, self.lock = threading.Event(), None, threading.Lock()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()
        assert self.is_established.wait(60), f"no session with {peer}: {self.ended}"

    def _read(self):
        received, alive = b"", time.monotonic()
        while True:
            if time.monotonic() - alive > 20:
                self._send(message(KEEPALIVE))
                alive = time.monotonic()
            try:
                if not select.select([self.socket], [], [], 1)[0]:
                    continue
                data = self.socket.recv(65536)
            except (OSError, ValueError):
                # `close` has closed the socket, whose descriptor is -1 then.
                return
            if not data:
                return
            received += data
            while len(received) >= 19:
                size, kind = struct.unpack_from("!HB", received, 16)
                if len(received) < size:
                    break
                body, received = received[19:size], received[size:]
                if kind == OPEN:
                    self._send(message(KEEPALIVE))
                elif kind == KEEPALIVE:
                    self.is_established.set()
                elif kind == NOTIFICATION:
                    self.ended = body

    def _send(self, data):
        with self.lock:
            self.socket.sendall(data)

    def _attributes(self, *more):
        path = struct.pack("!BBI", 2, 1, self.asn)
        return attribute(0x40, 1, b"\0") + attribute(0x40, 2, path) + b"".join(more)

    def update(self, withdrawn=b"", attributes=b"", routes=b""):
        """Sends an UPDATE."""
        body = struct.pack("!H", len(withdrawn)) + withdrawn + struct.pack("!H", len(attributes)) + attributes + routes
        self._send(message(UPDATE, body))

    def announce(self, *prefixes):
        """Announces prefixes of IPv4."""
        for at in range(0, len(prefixes), 500):
            hop = attribute(0x40, 3, socket.inet_aton(self.local))
            self.update(attributes=self._attributes(hop), routes=b"".join(map(nlri, prefixes[at : at + 500])))

    def withdraw(self, *prefixes):
        """Withdraws prefixes of IPv4."""
        for at in range(0, len(prefixes), 500):
            self.update(withdrawn=b"".join(map(nlri, prefixes[at : at + 500])))

    def flows(self, rules, afi=1):
        """Announces flow specifications that drop."""
        for at in range(0, len(rules), 50):
            reach = attribute(0x80, 14, struct.pack("!HBBB", afi, 133, 0, 0) + b"".join(rules[at : at + 50]))
            self.update(attributes=self._attributes(reach, attribute(0xC0, 16, DROP)))

    def withdraw_flows(self, rules, afi=1):
        """Withdraws flow specifications."""
        for at in range(0, len(rules), 50):
            self.update(attributes=attribute(0x80, 15, struct.pack("!HB", afi, 133) + b"".join(rules[at : at + 50])))

    def close(self):
        with self.lock:
            self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
