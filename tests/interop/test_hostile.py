"""Ten thousand malformed OpenFlow messages: the switch answers each with an error of the specification, or closes the
connection cleanly. Throughout, it forwards and answers its controller, and its memory stays bounded.

The messages are damaged golden vectors, seeded. `crates/control/agent/tests/it/malformed.rs` tests the library in the same
way; this test covers the whole daemon, its memory as counted by the kernel, and its ports.
"""

import random
import re
import socket
import struct
import threading

import pytest

import openflow as of
from switches import Millrace, free_port, wait_for

SEED = 20
FRAMED = 20_000
BATCH = 100
CUT = 1_000
DISORDERLY = 1_000
# Allowed growth of the process during the second half: caches and fragments, not the messages.
GROWTH_MAX_KIB = 16 * 1024

# br0 is attacked; the same worker serves br1. In each, a packet sent to port 1 arrives at 2, is sent to 3, arrives at 4,
# and goes to the controller.
PORTS = [(1, "link:a"), (2, "link:a"), (3, "link:b"), (4, "link:b")]


class Bystander:
    """A controller whose bridge forwards packets for the test."""

    def __init__(self, port):
        self.client = of.Client(port)
        self.count = 0
        self.restore()

    def restore(self):
        """Restores the bridge after changes of the attacker."""
        everything = of.oxm_match()
        entry = lambda port, to: of.flow_add(of.oxm_match((0, struct.pack("!I", port))), of.output(to))
        ups = [
            of.message(of.PORT_MOD, struct.pack("!I4x6s2xIII4x", number, mac, 0, 0x65, 0))
            for number, mac in getattr(self, "macs", {}).items()
        ]
        self.client.send(
            of.message(of.ROLE_REQUEST, struct.pack("!I4xQ", 1, 0)),
            of.message(of.SET_CONFIG, struct.pack("!HH", 0, 0xFFFF)),
            of.flow_mod(3, everything, table=0xFF),
            of.message(of.GROUP_MOD, struct.pack("!HBxI", 2, 0, 0xFFFFFFFC)),
            *ups,
            entry(2, 3),
            entry(4, of.CONTROLLER),
        )
        errors = [whole for _, kind, _, whole in self.client.barrier() if kind == of.ERROR]
        # The groups do not exist yet: that error is allowed, others are not.
        assert all(struct.unpack_from("!H", whole, 8)[0] == 6 for whole in errors), errors
        if not hasattr(self, "macs"):
            self.client.send(of.message(18, struct.pack("!HH4x", 13, 0), xid=5))
            body = self.client.until(19)[3][16:]
            self.macs = {
                struct.unpack_from("!I", body, at)[0]: body[at + 8 : at + 14] for at in range(0, len(body), 64)
            }

    def stay(self):
        """Answers the echo requests of the switch: it closes the connection of a controller that is silent."""
        self.client.barrier()

    def carry(self, count=1):
        """Sends packets through the bridge, and checks that each arrives, unchanged and in order."""
        for _ in range(count):
            self.count += 1
            frame = bytes.fromhex("0200000000010200000000021234") + struct.pack("!Q", self.count) + bytes(42)
            self.client.send(of.packet_out(1, frame))
            while True:
                whole = self.client.until(of.PACKET_IN)[3]
                match_size = struct.unpack_from("!H", whole, 26)[0]
                if whole[24 + match_size + (-match_size % 8) + 2 :] == frame:
                    break


@pytest.fixture
def switch(tmp_path):
    other_port = free_port()
    second = "\n".join(
        ["[[bridge]]", 'name = "br1"', 'dpid = "0000000000000002"', f'listen = ["ptcp:{other_port}"]']
        + [
            line
            for number, device in PORTS
            for line in ["[[bridge.port]]", f'name = "q{number}"', f"number = {number}", f'device = "{device}x"']
        ]
    )
    millrace = Millrace(tmp_path, ports=PORTS)
    with millrace.config.open("a") as config:
        config.write(second + "\n")
    millrace.other_port = other_port
    with millrace:
        yield millrace
        log = millrace.log.read_text()
        assert "panicked" not in log and " ERROR " not in log, log[-4000:]


def resident_kib(switch):
    """Returns the daemon's memory as counted by the kernel."""
    with open(f"/proc/{switch.process.pid}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+) kB", status.read())[1])


def fix(data, xid):
    """Returns the same message with a correct length and another xid: the damage is inside."""
    return data[:2] + struct.pack("!HI", len(data), xid) + data[8:]


def damaged(rng, vectors, xid):
    """Returns a damaged message with correct boundaries, and the only possible error, if there is one."""
    data = bytearray(rng.choice(vectors))
    expected = None
    match rng.randrange(10):
        case 0:
            data[0] = rng.choice([0, 1, 2, 3, 5, 6, 0x84, 255])
            # Errors are not answered with errors; a late HELLO may offer any version, and changes nothing.
            expected = "OFPBRC_BAD_VERSION" if data[1] not in (of.HELLO, of.ERROR) else None
        case 1:
            data[1] = rng.choice([30, 31, 77, 255, 6, 8, 10, 11, 12, 19, 21, 23, 25, 27])
            expected = "OFPBRC_BAD_TYPE"
        case 2:
            data = of.message(18, struct.pack("!HH4x", rng.randrange(14, 0xFFFF), 0)) + rng.randbytes(rng.randrange(40))
            expected = "OFPBRC_BAD_MULTIPART"
        case 3:
            data = of.message(rng.choice([5, 7, 20, 26])) + rng.randbytes(rng.randrange(1, 200))
            expected = "OFPBRC_BAD_LEN"
        case 4:
            data = of.message(4, rng.randbytes(rng.choice([8, 9, 64, 1000])))
            expected = "OFPBRC_BAD_EXPERIMENTER"
        case 5:
            del data[rng.randrange(8, len(data) + 1) :]
        case 6:
            data += rng.randbytes(rng.randrange(1, 300))
        case 7:
            # Change a length, a type or a count inside.
            if len(data) >= 10:
                at = rng.randrange(8, len(data) - 1) & ~1
                data[at : at + 2] = struct.pack("!H", rng.choice([0, 1, 3, 4, 7, 8, 9, 0x7FFF, 0xFFF8, 0xFFFF]))
        case 8:
            # Append the end of another message.
            other = rng.choice(vectors)
            data[rng.randrange(8, len(data) + 1) :] = other[rng.randrange(8, len(other) + 1) :]
        case 9:
            for _ in range(rng.randrange(1, 9)):
                if len(data) > 8:
                    data[rng.randrange(8, len(data))] = rng.randrange(256)
    if rng.randrange(200) == 0:
        data += rng.randbytes(60_000 - len(data))
        expected = expected if expected in ("OFPBRC_BAD_VERSION", "OFPBRC_BAD_TYPE", "OFPBRC_BAD_MULTIPART") else None
    return fix(bytes(data), xid), expected


def check_error(whole, sent):
    """Checks that an error is in the specification, and contains at least 64 bytes of the request (OpenFlow 1.3.5, section 7.4.4)."""
    kind, code = struct.unpack_from("!HH", whole, 8)
    if (kind, code) == (0, 0):
        return "OFPHFC_INCOMPATIBLE"
    assert (kind, code) in of.ERRORS, f"{kind}, {code} for {sent.hex()}"
    quoted = whole[12:]
    if kind == 0xFFFF:
        experimenter, quoted = quoted[:4], quoted[4:]
        assert experimenter == b"ONF\0", experimenter
    assert sent.startswith(quoted) and len(quoted) >= min(len(sent), 64), f"{quoted.hex()} of {sent.hex()}"
    return of.ERRORS[kind, code]


def test_ten_thousand_malformed_messages_are_answered_and_traffic_goes_on(switch):
    rng = random.Random(SEED)
    vectors = list(of.golden().values())
    victim, bystander = Bystander(switch.openflow_port), Bystander(switch.other_port)
    victim.carry()
    counts = {"framed": 0, "cut": 0, "disorderly": 0}
    seen, before = {}, None

    attacker = of.Client(switch.openflow_port)
    for round_ in range(FRAMED // BATCH):
        framed(rng, vectors, attacker, counts, seen)
        bystander.carry()
        if round_ % 5 == 4:
            victim.restore()
            victim.carry()
            attacker.close()
            attacker = of.Client(switch.openflow_port)
        if round_ == FRAMED // BATCH // 2:
            before = resident_kib(switch)
    attacker.close()
    for number in range(CUT):
        cut(rng, vectors, switch, counts)
        if number % 100 == 99:
            bystander.carry()
            victim.stay()
    while counts["disorderly"] < DISORDERLY:
        disorderly(rng, vectors, switch, counts)
        if counts["disorderly"] % 20 == 0:
            bystander.carry()
            victim.stay()

    assert sum(counts.values()) >= 10_000
    victim.restore()
    victim.carry(100)
    bystander.carry(100)
    victim.client.echo()
    wait_for(
        "the attackers are forgotten",
        lambda: switch.cli("show", "controllers").count("connected") == 2,
    )
    grown = resident_kib(switch) - before
    print(f"{counts}, {len(seen)} errors of the specification, {before} KiB and {grown:+} KiB: {seen}")
    assert grown < GROWTH_MAX_KIB, f"{grown} KiB"
    assert len(seen) >= 30, seen


def framed(rng, vectors, client, counts, seen):
    """Sends a batch over one connection, which must stay open."""
    batch = {}
    for _ in range(BATCH):
        counts["framed"] += 1
        xid = counts["framed"]
        batch[xid] = damaged(rng, vectors, xid)
    client.send(*(data for data, _ in batch.values()))
    client.sent |= {xid: data for xid, (data, _) in batch.items()}
    errors = {}
    for _, kind, xid, whole in client.barrier():
        if kind == of.ERROR:
            # Only the error of an incomplete multipart request may arrive in a later batch.
            name = check_error(whole, client.sent[xid])
            assert xid in batch or name == "OFPBRC_MULTIPART_BUFFER_OVERFLOW", f"{name}: {whole.hex()}"
            assert xid not in errors, f"two errors for {client.sent[xid].hex()}"
            errors[xid] = name
            seen[name] = seen.get(name, 0) + 1
    for xid, (data, expected) in batch.items():
        assert expected is None or errors.get(xid) == expected, f"{errors.get(xid)}, not {expected}: {data.hex()}"


def at_end(client, sent):
    """Returns the messages until the switch closes; it must close without a reset, which would lose data."""
    said = []
    while got := client.receive():
        if got[1] == of.ERROR:
            said.append(check_error(got[3], sent))
    return said


def cut(rng, vectors, switch, counts):
    """Returns a message with wrong boundaries, for a connection of its own."""
    counts["cut"] += 1
    data = bytearray(rng.choice(vectors))
    with of.Client(switch.openflow_port) as client:
        if rng.randrange(2):
            # The length is less than a header's.
            data[2:4] = struct.pack("!H", rng.randrange(8))
            client.send(bytes(data[:8]))
            assert at_end(client, bytes(data[:8])) == ["OFPBRC_BAD_LEN"]
        else:
            # The peer closes in the middle.
            data[2:4] = struct.pack("!H", rng.randrange(len(data) + 1, 0x10000))
            client.send(bytes(data))
            client.stream.shutdown(socket.SHUT_WR)
            assert at_end(client, bytes(data)) == []


def disorderly(rng, vectors, switch, counts):
    """Returns an invalid sequence: no HELLO, a useless HELLO, another HELLO."""
    with of.Client(switch.openflow_port, hello=False) as client:
        case = rng.randrange(4)
        if case == 0:
            first = rng.choice([data for data in vectors if data[1] != of.HELLO])
            counts["disorderly"] += 1
            client.send(first)
            said = at_end(client, first)
            assert said == ([] if first[1] == of.ERROR else ["OFPBRC_BAD_TYPE"]), said
        elif case == 1:
            # No common version: less than 1.3, or a bitmap without it.
            first = rng.choice([
                of.message(of.HELLO, version=rng.choice([1, 2, 3])),
                of.message(of.HELLO, struct.pack("!HHI", 1, 8, 1 << rng.choice([1, 2, 3, 5, 6]))),
                of.message(of.HELLO, struct.pack("!HHI", 1, 8, 0), version=6),
            ])
            counts["disorderly"] += 1
            client.send(first)
            assert at_end(client, first) == ["OFPHFC_INCOMPATIBLE"]
        elif case == 2:
            # A HELLO with invalid elements is ignored or refused.
            first = fix(of.message(of.HELLO) + rng.randbytes(rng.randrange(1, 100)), 3)
            counts["disorderly"] += 1
            client.send(first)
            client.stream.shutdown(socket.SHUT_WR)
            said = at_end(client, first)
            assert set(said) <= {"OFPHFC_INCOMPATIBLE", "OFPBRC_BAD_LEN"}, said
        else:
            # More HELLOs, and unsolicited replies, on an established connection.
            client.send(of.message(of.HELLO, xid=1))
            assert client.receive()[1] == of.HELLO
            sent = {}
            for xid in range(2, 12):
                kind = rng.choice([of.HELLO, of.ECHO_REPLY, of.BARRIER_REPLY, of.PACKET_IN, of.PORT_STATUS])
                sent[xid] = of.message(kind, rng.randbytes(rng.randrange(40)), xid)
            counts["disorderly"] += len(sent)
            client.send(*sent.values())
            for _, kind, xid, whole in client.barrier():
                if kind == of.ERROR:
                    check_error(whole, sent[xid])


def test_a_peer_that_asks_and_never_reads_costs_little_and_holds_nobody_up(switch):
    victim, bystander = Bystander(switch.openflow_port), Bystander(switch.other_port)
    entries = [
        of.flow_add(of.oxm_match((5, struct.pack("!H", 0x9000 + number // 256)), (0, struct.pack("!I", number))),
                    of.output(2), table=1)
        for number in range(1, 2001)
    ]
    victim.client.send(*entries)
    errors = [got for got in victim.client.barrier() if got[1] == of.ERROR]
    assert not errors
    before = resident_kib(switch)
    everything = struct.pack("!HH4xB3xII4xQQ", 1, 0, 0xFF, of.ANY, of.ANY, 0, 0) + of.oxm_match()
    greedy = [of.Client(switch.openflow_port) for _ in range(4)]
    stop = threading.Event()

    def ask(client):
        client.stream.settimeout(0.5)
        request = of.message(18, everything) + of.message(of.ECHO_REQUEST, bytes(60_000))
        try:
            while not stop.is_set():
                client.stream.sendall(request)
        except OSError:
            pass

    threads = [threading.Thread(target=ask, args=(client,)) for client in greedy]
    for thread in threads:
        thread.start()
    for _ in range(20):
        victim.carry()
        bystander.carry(5)
        stop.wait(0.1)
    stop.set()
    for thread in threads:
        thread.join()
    grown = resident_kib(switch) - before
    for client in greedy:
        client.close()
    victim.carry(10)
    print(f"four peers that do not read: {grown:+} KiB")
    # Each connection may have its backlog (4 MiB), its outbox, and one long reply.
    assert grown < 64 * 1024, f"{grown} KiB"


def test_peers_that_connect_and_say_nothing_do_not_keep_a_controller_out(switch):
    victim = Bystander(switch.openflow_port)
    silent = [of.Client(switch.openflow_port, hello=False) for _ in range(150)]
    victim.carry(10)
    victim.client.echo()

    def comes_in():
        try:
            with of.Client(switch.openflow_port) as late:
                late.echo()
                return True
        except (OSError, TypeError):
            return False

    wait_for("a late controller comes in", comes_in, bound=60)
    for client in silent:
        client.close()
