"""An OpenFlow 1.3 client that can send any message: messages are bytes, and nothing is checked before it is sent.

It has what a hostile peer and its observer need; field layouts are those of OpenFlow 1.3.5.
"""

import pathlib
import socket
import struct

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "crates" / "control" / "openflow" / "tests" / "golden"

HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY = 0, 1, 2, 3
PACKET_IN, FLOW_REMOVED, PORT_STATUS, PACKET_OUT = 10, 11, 12, 13
FLOW_MOD, GROUP_MOD, PORT_MOD, BARRIER_REQUEST, BARRIER_REPLY, ROLE_REQUEST, METER_MOD = (
    14, 15, 16, 20, 21, 24, 29)
SET_CONFIG = 9
CONTROLLER = 0xFFFFFFFD
ANY = 0xFFFFFFFF
NO_BUFFER = 0xFFFFFFFF

# Every (type, code) of OpenFlow 1.3.5, section 7.4.4.
ERRORS = {
    (int(kind), int(code)): name
    for name, kind, code in (line.split() for line in (GOLDEN / "errors.txt").read_text().splitlines())
}
# Errors of bundles (ONF extension 230), which are experimenter errors.
ERRORS |= {(0xFFFF, code): f"OFPBFC {code - 2300}" for code in range(2300, 2316)}


def golden():
    """Returns valid requests by name, as os-ken and ovs-ofctl encode them."""
    return {path.stem: bytes.fromhex(path.read_text().strip()) for path in sorted(GOLDEN.glob("*.hex"))}


def message(kind, body=b"", xid=0, version=4):
    """Returns a message with a correct length."""
    return struct.pack("!BBHI", version, kind, 8 + len(body), xid) + body


def oxm_match(*fields):
    """Returns a match of (field, value bytes)."""
    tlvs = b"".join(struct.pack("!HBB", 0x8000, field << 1, len(value)) + value for field, value in fields)
    size = 4 + len(tlvs)
    return struct.pack("!HH", 1, size) + tlvs + bytes(-size % 8)


def output(port):
    """Returns an output action; to the controller, it sends the whole packet."""
    return struct.pack("!HHIH6x", 0, 16, port, 0xFFFF)


def flow_add(match, actions, priority=100, table=0):
    """Returns a flow_mod that adds an entry with apply_actions."""
    instruction = struct.pack("!HH4x", 4, 8 + len(actions)) + actions
    return flow_mod(0, match + instruction, priority, table)


def flow_mod(command, rest, priority=0, table=0):
    """Returns a flow_mod; `rest` is match and instructions."""
    fixed = struct.pack(
        "!QQBBHHHIIIH2x", 0, 0, table, command, 0, 0, priority, NO_BUFFER, ANY, ANY, 0
    )
    return message(FLOW_MOD, fixed + rest)


def packet_out(port, frame):
    """Returns a packet_out of a frame to one port."""
    actions = output(port)
    return message(PACKET_OUT, struct.pack("!IIH6x", NO_BUFFER, CONTROLLER, len(actions)) + actions + frame)


class Client:
    """One connection. `sent` is for the caller: sent messages by xid."""

    def __init__(self, port, hello=True):
        self.stream = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.xid = 0x70000000
        self.sent = {}
        if hello:
            self.send(message(HELLO, xid=1))
            assert self.receive()[1] == HELLO

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.stream.close()

    def send(self, *messages):
        self.stream.sendall(b"".join(messages))

    def receive(self):
        """Returns the next message as (version, type, xid, whole message), or None if the peer has closed the connection."""
        while True:
            if len(self.buffer) >= 8:
                version, kind, size, xid = struct.unpack_from("!BBHI", self.buffer)
                assert version == 4 and size >= 8, self.buffer[:8].hex()
                if len(self.buffer) >= size:
                    whole, self.buffer = self.buffer[:size], self.buffer[size:]
                    return version, kind, xid, whole
            part = self.stream.recv(65536)
            if not part:
                assert not self.buffer, "the connection ends inside a message"
                return None
            self.buffer += part

    def next(self):
        """Returns the next message but echo requests, which it answers."""
        while True:
            got = self.receive()
            assert got is not None, "the switch closed the connection"
            if got[1] != ECHO_REQUEST:
                return got
            self.send(message(ECHO_REPLY, got[3][8:], got[2]))

    def until(self, *kinds):
        """Returns the first message of one of the types; earlier messages are discarded."""
        while True:
            got = self.next()
            if got[1] in kinds:
                return got

    def barrier(self):
        """Waits until the switch has executed all requests, and returns the messages that it sent meanwhile."""
        self.xid += 1
        self.send(message(BARRIER_REQUEST, xid=self.xid))
        said = []
        while True:
            got = self.next()
            if got[1] == BARRIER_REPLY and got[2] == self.xid:
                return said
            said.append(got)

    def echo(self, body=b"are you there"):
        """Requests an echo; messages before the reply are discarded."""
        self.xid += 1
        self.send(message(ECHO_REQUEST, body, self.xid))
        while True:
            got = self.until(ECHO_REPLY)
            if got[2] == self.xid:
                assert got[3][8:] == body
                return
