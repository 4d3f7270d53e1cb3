"""Peers of memif ports that violate the protocol: clients and servers, in messages and in shared memory. Whatever they send, the
switch keeps running, two correct peers communicate, and the hostile peer's memory contains none of their data. After a
violation in memory, the switch closes the connection with a reason; the peer may connect again.
"""

import contextlib
import fcntl
import os
import random
import socket
import struct
import time

import pytest

import memif as mm
from switches import wait_for
from test_hostile_vnics import MALLORY, SECRET, Net
from test_vnics import pytestmark  # noqa: F401 - pytest reads it

EVE = 4
FRAME = b"\x02" * 60
BOTH = [mm.TO_SERVER, mm.TO_CLIENT]
DIRECTIONS = ["to the server", "to the client"]


class MemifNet(Net):
    """The same with memif, and a port that connects to a hostile server."""

    # The size of a buffer of the switch, which a hostile peer may fill.
    longest = 2048

    def __init__(self, folder):
        eve = folder / "eve"
        self.eve = mm.Server(eve)
        super().__init__(folder, kind="memif", driver=mm.Client, more=[(EVE, f"memif:{eve},role=client,id=5")])
        self.switch.ofctl("add-flow", f"in_port={EVE},actions=output:{EVE},output:2")

    def mallory(self, **kwargs):
        return mm.Client(self.paths[MALLORY], **kwargs)

    def close(self):
        self.eve.listener.close()
        super().close()


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    net = MemifNet(tmp_path_factory.mktemp("memif"))
    yield net
    net.close()


def is_live(net, number):
    """Returns true if a port is live, from the list of all ports."""
    ports = net.switch.ofctl("dump-ports-desc").split(f"{number}(p{number})")[1]
    return "LIVE" in ports.split("state:")[1].split("\n")[0]


def errors(net, number):
    text = net.switch.ofctl("dump-ports", str(number))
    return int(text.split("errs=")[1].split(",")[0])


def wild(**descriptor):
    """Returns a violation: all descriptors of a ring, made available at once."""

    def violate(memory, ring, *_):
        for at in range(mm.RING):
            memory.descriptor(ring, at, **{"length": 100, **descriptor})
        memory.head(ring, memory.head(ring) + mm.RING)

    return violate


def ahead(memory, ring, *_):
    memory.head(ring, 60_000)


def one_too_many(memory, ring, *_):
    memory.head(ring, memory.head(ring) + mm.RING + 1)


def back(memory, ring, seen):
    """Decreases the index after the switch has read it."""
    memory.head(ring, memory.head(ring) + 5)
    wait_for("the switch has seen it", lambda: (seen(), memory.tail(ring) == 5)[1])
    memory.head(ring, memory.head(ring) - 4)


def long_ago(memory, ring, *_):
    memory.head(ring, memory.head(ring) - 1)


# Invalid properties of a client's memory, each with a word of the reason.
IN_RING = {
    "a region that is not there": (wild(region=1), "region 1"),
    "the highest region": (wild(region=0xFFFF), "region 65535"),
    "an offset past the end": (wild(offset=mm.MEMORY), "exceeds the region"),
    "the highest offset": (wild(offset=0xFFFF_FFFF), "exceeds the region"),
    "offset and length that wrap": (wild(offset=0xFFFF_FF00, length=0x200), "exceeds the region"),
    "a length of 4 GiB": (wild(length=0xFFFF_FFFF), "exceeds the region"),
    "a length of all and a byte": (wild(length=mm.MEMORY + 1), "exceeds the region"),
    "over the end of the memory": (wild(offset=mm.MEMORY - 20), "exceeds the region"),
    "more than a ring holds": (ahead, "ring index moved"),
    "one more than a ring holds": (one_too_many, "ring index moved"),
    "less than before": (back, "ring index moved"),
    "less than at first": (long_ago, "ring index moved"),
}


@pytest.mark.parametrize("violation", IN_RING)
@pytest.mark.parametrize("ring", BOTH, ids=DIRECTIONS)
def test_a_peer_whose_ring_violates_the_protocol_is_disconnected(net, violation, ring):
    violate, reason = IN_RING[violation]
    before = errors(net, MALLORY)
    with net.mallory() as mallory:
        mallory.begin()
        mallory.share()
        mallory.rings()
        mallory.connect()
        violate(mallory, ring, lambda: net.to_mallory(100))
        if ring == mm.TO_CLIENT:
            wait_for("the violation", lambda: (net.to_mallory(100), errors(net, MALLORY) > before)[1])
        assert reason in mallory.reason()
        net.check(mallory)
    assert errors(net, MALLORY) > before
    wait_for("the link is down", lambda: not is_live(net, MALLORY))


# Unusual values that harm nobody: the switch may keep the connection.
ODD = {
    "a length of nothing": wild(length=0),
    "every flag": wild(flags=0xFFFE),
    "a chain without end": wild(flags=mm.NEXT),
    "a frame of all the memory": wild(length=mm.MEMORY),
    "buffers that are rings": wild(offset=0, length=2 * mm.RING_SIZE),
    "all buffers the same": wild(offset=mm.BUFFERS),
    "a byte": wild(length=1),
}


@pytest.mark.parametrize("violation", ODD)
@pytest.mark.parametrize("ring", BOTH, ids=DIRECTIONS)
def test_an_unusual_value_affects_no_other_peer(net, violation, ring):
    with net.mallory() as mallory:
        mallory.begin()
        mallory.share()
        mallory.rings()
        mallory.connect()
        ODD[violation](mallory, ring)
        net.to_mallory()
        net.check(mallory)


def test_random_memory_stops_nobody(net):
    dice = random.Random(7)
    for _ in range(20):
        with net.mallory().run() as mallory, contextlib.suppress(mm.Gone):
            for _ in range(10):
                for ring in BOTH:
                    for at in range(mm.RING):
                        mallory.descriptor(ring, at, dice.choice([0, 0, 1, dice.randrange(65536)]),
                                        dice.choice([0, 0, 0, 1, dice.randrange(65536)]),
                                        dice.choice([0, 1, 60, 1500, BIG := 65536, dice.randrange(2**32)]) % (BIG + 1),
                                        dice.choice([mm.BUFFERS, dice.randrange(mm.MEMORY), dice.randrange(2**32)]))
                    mallory.head(ring, mallory.head(ring) + dice.choice([1, 3, mm.RING, 300]))
                for _ in range(20):
                    mallory.put(dice.randrange(2 * mm.RING_SIZE - 8), "<Q", dice.randrange(2**64))
            net.to_mallory(100)
            net.talk()
    net.check(mallory)


def message(kind, body=b"", **kwargs):
    """Returns a violation that sends a message, with an eventfd by default."""

    def violate(client):
        kwargs.setdefault("files", [client.event])
        options = dict(kwargs)
        mm.send_message(client.line, kind, body, options.pop("files"), **options)

    return violate


def region(index=0, size=mm.MEMORY):
    return message(mm.ADD_REGION, struct.pack("<HQ", index, size))


def ring(**kwargs):
    def violate(client):
        client.share()
        mm.send_message(client.line, mm.ADD_RING, mm.add_ring(mm.TO_SERVER, **kwargs), [client.event])

    return violate


def connect_with(*rings):
    def violate(client):
        client.share()
        for one in rings:
            client.request(mm.ADD_RING, one, [client.event])
        mm.send_message(client.line, mm.CONNECT, mm.name("x"))

    return violate


def many_regions(client):
    for index in range(1000):
        client.request(mm.ADD_REGION, struct.pack("<HQ", index, 1), [client.file])


def large_regions(client):
    for index in range(8):
        client.request(mm.ADD_REGION, struct.pack("<HQ", index, 1 << 28), [client.file])


def a_file(open_file, size=4096):
    """Returns a violation that shares a region whose file is invalid."""

    def violate(client):
        file = open_file()
        client.request(mm.ADD_REGION, struct.pack("<HQ", 0, size), [file])
        os.close(file)
        for direction in BOTH:
            client.request(mm.ADD_RING, mm.add_ring(direction, offset=0, log2=2), [client.event])
        mm.send_message(client.line, mm.CONNECT, mm.name("x"))

    return violate


def a_pipe():
    read, write = os.pipe()
    os.close(write)
    return read


def no_cookie(client):
    client.share()
    client.put(0, "<I", 0x1234)
    client.rings()
    mm.send_message(client.line, mm.CONNECT, mm.name("x"))


def again(kind):
    """Returns a violation that repeats a message after the handshake."""

    def violate(client):
        client.share()
        client.rings()
        client.connect()
        mm.send_message(client.line, kind, bytes(60), [client.event])

    return violate


MESSAGES = {
    "type 0": message(0),
    "type 9": message(9),
    "the highest type": message(0xFFFF),
    "half a message": message(mm.CONNECT, size=64),
    "a byte": message(mm.CONNECT, size=1),
    "a message too long": message(mm.CONNECT, size=4000),
    "a message of nothing but files": message(mm.CONNECT, size=1, files=range(3)),
    "an acknowledgement": message(mm.ACK),
    "a greeting": message(mm.HELLO, bytes(43)),
    "an interface twice": message(mm.INIT, mm.init()),
    "that it is connected": message(mm.CONNECTED, mm.name("x")),
    "a connection of nothing": message(mm.CONNECT, mm.name("x")),
    "a region without a file": message(mm.ADD_REGION, struct.pack("<HQ", 0, mm.MEMORY), files=[]),
    "a region that is not next": region(index=1),
    "the highest region": region(index=0xFFFF),
    "a region of nothing": region(size=0),
    "a region of everything": region(size=2**64 - 1),
    "a region that is negative": region(size=2**63),
    "regions without end": many_regions,
    "regions larger than may be": large_regions,
    "a file of a disk": a_file(lambda: os.open("/usr/bin/env", os.O_RDONLY)),
    "a device": a_file(lambda: os.open("/dev/zero", os.O_RDWR)),
    "a pipe": a_file(a_pipe),
    "a socket": a_file(lambda: socket.socket(socket.AF_UNIX).detach()),
    "a file that is shorter": a_file(lambda: os.memfd_create("short")),
    "a file that may only be read": a_file(lambda: os.open("/proc/self/maps", os.O_RDONLY)),
    "a ring in a region that is not there": ring(region=1),
    "a ring past the end": ring(offset=mm.MEMORY),
    "a ring over the end": ring(offset=mm.MEMORY - 64),
    "a ring at the highest offset": ring(offset=0xFFFF_FFF0),
    "a ring that is not aligned": ring(offset=1),
    "a ring that has no end": ring(log2=64),
    "the longest ring": ring(log2=255),
    "a ring longer than the memory": ring(log2=14, offset=4 * mm.RING_SIZE),
    "a ring that was not offered": ring(index=1),
    "the highest ring": ring(index=0xFFFF),
    "a private header": ring(header=64),
    "a ring without a file": lambda client: (client.share(), mm.send_message(client.line, mm.ADD_RING, mm.add_ring(0))),
    "a ring twice": connect_with(mm.add_ring(0), mm.add_ring(0)),
    "rings one way": connect_with(mm.add_ring(0)),
    "rings the other way": connect_with(mm.add_ring(1)),
    "a ring that does not begin as one": no_cookie,
    "another region after the handshake": again(mm.ADD_REGION),
    "another connection": again(mm.CONNECT),
    "rings after the handshake": again(mm.ADD_RING),
}


@pytest.mark.parametrize("violation", MESSAGES)
def test_a_peer_whose_messages_violate_the_protocol_is_disconnected(net, violation):
    with net.mallory() as mallory:
        mallory.begin()
        with contextlib.suppress(mm.Gone):
            MESSAGES[violation](mallory)
            assert mallory.reason(), "it is ports why"
        net.check(mallory)


FIRST = {
    "another version": (mm.INIT, mm.init(version=0x0300)),
    "another interface": (mm.INIT, mm.init(number=77)),
    "another mode": (mm.INIT, mm.init(mode=1)),
    "memory before anything": (mm.ADD_REGION, struct.pack("<HQ", 0, 4096)),
    "a connection before anything": (mm.CONNECT, mm.name("x")),
}


@pytest.mark.parametrize("violation", FIRST)
def test_a_peer_whose_first_message_is_invalid_is_disconnected(net, violation):
    with net.mallory() as mallory:
        mm.send_message(mallory.line, *FIRST[violation], files=[mallory.file])
        assert mallory.reason()
        net.check(mallory)


def test_memory_that_is_taken_back_ends_nobody_else(net):
    """A file without seals shrinks, in steps and at once, while rings are full."""
    for sizes in ([0], [mm.BUFFERS + 4096, mm.RING_SIZE, 4096, 0]):
        with net.mallory(sealed=False).run() as mallory:
            for _ in range(mm.RING):
                mallory.send(FRAME)
            net.talk()
            # Python must not access it either from here on.
            for size in sizes:
                os.ftruncate(mallory.file, size)
                net.to_mallory(100)
                net.talk()
            assert mallory.reason()
            net.talk()
    wait_for("the link is down", lambda: not is_live(net, MALLORY))


def test_sealed_memory_cannot_be_taken_back(net):
    with net.mallory().run() as mallory:
        with pytest.raises(PermissionError):
            os.ftruncate(mallory.file, 0)
        # Released pages read as zeros; that is no violation.
        fallocate(mallory.file, 0, mm.MEMORY)
        net.to_mallory()
        net.check(mallory)


def fallocate(file, offset, size):
    """Punches a hole into the file."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
    assert libc.fallocate(file, 3, ctypes.c_long(offset), ctypes.c_long(size)) == 0


def test_a_peer_that_was_disconnected_may_connect_again(net):
    for _ in range(3):
        with net.mallory().run() as mallory:
            ahead(mallory, mm.TO_SERVER)
            assert "index" in mallory.reason()
        before = net.switch.port_packets(MALLORY)[0]
        with net.mallory().run() as correct:
            correct.send(FRAME)
            wait_for("it is heard again", lambda: net.switch.port_packets(MALLORY)[0] > before)
    assert "peer connection closed" in net.switch.log.read_text()


def test_one_that_floods_and_one_that_takes_no_packet_cost_others_nothing_but_time(net):
    with net.mallory().run() as mallory:
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            for _ in range(mm.RING):
                mallory.send(FRAME)
            net.alice.send(bytes(60))
            net.bob.receive(0)
        # The peer returns none of the received buffers.
        net.to_mallory()
        net.check(mallory)


def test_many_who_knock_and_say_nothing_keep_nobody_out(net):
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.callback(mm.call(net.paths[MALLORY]).close)
        with net.mallory().run() as correct:
            wait_for("the link is up", lambda: is_live(net, MALLORY))
            net.check(correct)


def test_one_that_comes_and_goes_without_end_costs_others_nothing_but_time(net):
    for _ in range(200):
        mm.call(net.paths[MALLORY]).close()
    for _ in range(30):
        net.mallory().run().close()
    with net.mallory().run() as mallory:
        net.check(mallory)


def test_an_eventfd_that_blocks_delays_nobody(net):
    """The client requests interrupts with an eventfd that is full, a full pipe, and a file that is not writable."""
    full = os.eventfd(0)
    os.eventfd_write(full, 2**64 - 2)
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, bytes(4096))
    os.set_blocking(write, True)
    kept = os.memfd_create("kept")
    for event in (full, write, kept):
        with net.mallory() as mallory:
            os.close(mallory.event)
            mallory.event = os.dup(event)
            mallory.run()
            mallory.put(mm.RING_SIZE + mm.FLAGS, "<H", 0)
            for _ in range(3):
                net.to_mallory(100)
                while mallory.receive(0.1):
                    pass
            net.check(mallory)
    assert os.fstat(kept).st_size == 0
    for file in (full, read, write, kept):
        os.close(file)
    # A usable eventfd is signalled.
    with net.mallory().run() as correct:
        correct.put(mm.RING_SIZE + mm.FLAGS, "<H", 0)
        wait_for("the event", lambda: (net.to_mallory(100), rings(correct))[1])


def rings(client):
    with contextlib.suppress(BlockingIOError):
        return os.eventfd_read(client.event)
    return 0


# Hostile servers, to which the switch connects as a client.


def shared(net):
    """The switch's connection, and the memory that it shared."""
    for _ in range(10):
        guest = net.eve.accept()
        try:
            guest.greet()
            return guest, guest.let_in()
        except mm.Gone:
            # The switch had waited for this connection's greeting too long, and has made another one.
            guest.close()
    raise AssertionError("the switch leaves each connection before it is greeted")


@pytest.mark.parametrize("ring", BOTH, ids=DIRECTIONS)
@pytest.mark.parametrize("far", [mm.RING + 1, 60_000, -1, 0x8000])
def test_a_server_with_an_invalid_index_is_disconnected(net, ring, far):
    before = errors(net, EVE)
    guest, memory = shared(net)
    with guest:
        memory.tail(ring, far)
        wait_for("the violation", lambda: (net.to_mallory(100, EVE), errors(net, EVE) > before)[1])
        assert guest.is_left()
        net.talk()
        assert memory.memory.find(SECRET) == -1


@pytest.mark.parametrize("length", [mm.BUFFER * 8, 65536, 2**32 - 1])
def test_a_server_that_says_more_than_a_buffer_holds_is_left(net, length):
    before = errors(net, EVE)
    guest, memory = shared(net)
    with guest:
        wait_for("buffers", lambda: memory.head(mm.TO_CLIENT) == mm.RING)
        for at in range(mm.RING):
            memory.descriptor(mm.TO_CLIENT, at, length=length)
        memory.tail(mm.TO_CLIENT, mm.RING)
        wait_for("the violation", lambda: errors(net, EVE) > before)
        assert guest.is_left()
        net.talk()


def test_a_server_cannot_have_the_switch_read_or_write_elsewhere(net):
    """The server replaces regions and offsets of the switch."""
    guest, memory = shared(net)
    with guest:
        wait_for("buffers", lambda: memory.head(mm.TO_CLIENT) == mm.RING)
        for ring in BOTH:
            for at in range(mm.RING):
                memory.descriptor(ring, at, region=9, offset=0xFFFF_F000, length=60)
        before = net.switch.port_packets(EVE)[0]
        memory.tail(mm.TO_CLIENT, mm.RING)
        wait_for("it is heard", lambda: net.switch.port_packets(EVE)[0] >= before + mm.RING)
        wait_for("what the switch sends", lambda: (net.to_mallory(100, EVE), memory.described(mm.TO_SERVER, 0)[:2] == (0, 0))[1])
        assert memory.described(mm.TO_SERVER, 0)[3] < len(memory.memory)
        assert is_live(net, EVE)
        net.talk()
        assert memory.memory.find(SECRET) == -1


def test_a_server_that_scribbles_everywhere_stops_nobody(net):
    dice = random.Random(11)
    for _ in range(5):
        guest, memory = shared(net)
        with guest:
            for _ in range(300):
                memory.put(dice.randrange(len(memory.memory) - 8), "<Q", dice.randrange(2**64))
                memory.put(memory.places[dice.choice(BOTH)] + dice.randrange(1024), "<Q", dice.randrange(2**64))
            net.to_mallory(100, EVE)
            net.talk()


def test_the_memory_of_the_switch_is_sealed_and_holds_nothing_else(net):
    guest, memory = shared(net)
    with guest:
        for size in (0, 2 * len(memory.memory)):
            with pytest.raises(PermissionError):
                os.ftruncate(guest.files[0], size)
        # F_GET_SEALS: shrink, grow, and no other seals.
        assert fcntl.fcntl(guest.files[0], 1034) & 7 == 7
        for _ in range(5):
            net.talk()
        assert memory.memory.find(SECRET) == -1


GREETINGS = {
    "another version": lambda guest: guest.greet(oldest=0x0300, newest=0x0300),
    "versions that are upside down": lambda guest: guest.greet(oldest=0x0300, newest=0x0100),
    "nothing but rings of one": lambda guest: guest.greet(log2=0),
    "rings without end": lambda guest: guest.greet(log2=255, to_client=0xFFFF, to_server=0xFFFF),
    "that it is connected": lambda guest: mm.send_message(guest.line, mm.CONNECTED, mm.name("x")),
    "an acknowledgement": lambda guest: mm.send_message(guest.line, mm.ACK),
    "half a message": lambda guest: mm.send_message(guest.line, mm.HELLO, size=20),
    "a message too long": lambda guest: mm.send_message(guest.line, mm.HELLO, size=5000),
    "noise": lambda guest: guest.line.send(random.Random(5).randbytes(128)),
    "a farewell": lambda guest: mm.send_message(guest.line, mm.DISCONNECT, bytes(100)),
    "nothing": lambda guest: None,
}


@pytest.mark.parametrize("violation", GREETINGS)
def test_a_server_that_greets_wrongly_stops_nobody(net, violation):
    with net.eve.accept() as guest:
        with contextlib.suppress(mm.Gone):
            GREETINGS[violation](guest)
            for _ in range(3):
                mm.send_message(guest.line, mm.ACK)
        net.talk()


def test_a_server_that_was_left_is_visited_again(net):
    guest, _ = shared(net)
    with guest:
        wait_for("the link is up", lambda: is_live(net, EVE))
    wait_for("the link is down", lambda: not is_live(net, EVE))
    guest, _ = shared(net)
    with guest:
        wait_for("the link is up again", lambda: is_live(net, EVE))
