"""Peers of vhost-user ports that violate the protocol: addresses, lengths, indices, rings and memory, in messages and in shared
memory. Whatever they send, the switch keeps running, two correct peers communicate, and the hostile peer's memory contains none
of their data.
"""

import contextlib
import os
import pathlib
import random
import struct
import tempfile
import time

import pytest

import vhost_user as vu
from switches import Millrace, wait_for
from test_vnics import SYSTEM, pytestmark  # noqa: F401 - pytest reads it

ALICE, BOB, MALLORY = 1, 2, 3
SECRET = b"for Bob alone: nobody else may read this"
FRAME = bytes.fromhex("02000000000202000000000188b5") + SECRET
TRIES = 100


KINDS = {"plain": ("", vu.Driver), "tso": (",tso=on", vu.Driver), "packed": ("", vu.Packed), "packed-tso": (",tso=on", vu.Packed)}


@pytest.fixture(scope="module", params=KINDS)
def net(tmp_path_factory, request):
    options, driver = KINDS[request.param]
    net = Net(tmp_path_factory.mktemp("hostile"), options, driver=driver)
    yield net
    net.close()


class Net:
    """A switch with two correct peers, and a socket for a hostile one, which may leave segmentation to the switch."""

    # The size of a buffer of the switch. Guests of ports without `tso` get an MTU of 1,500 bytes and may send more.
    longest = 2048

    def __init__(self, folder, options="", kind="vhost", driver=vu.Driver, more=()):
        self.driver = driver
        self.paths = {number: folder / f"s{number}" for number in (ALICE, BOB, MALLORY)}
        ports = [(number, f"{kind}:{path}{options if number == MALLORY else ''}") for number, path in self.paths.items()]
        ports += more
        self.switch = Millrace(folder / "millrace", ports=ports, system=SYSTEM, dpdk=True).start()
        try:
            self.switch.ofctl("add-flow", f"in_port={ALICE},actions=output:{BOB}")
            self.switch.ofctl("add-flow", f"in_port={MALLORY},actions=output:{MALLORY},output:{BOB}")
            wait_for("the sockets", lambda: all(path.exists() for path in self.paths.values()))
            self.alice, self.bob = [driver(self.paths[number]).run() for number in (ALICE, BOB)]
            self.talk()
        except BaseException:
            self.switch.stop()
            raise

    def talk(self):
        """Sends Alice's packets to Bob, who may receive others, too."""
        # A number of attempts, not a time: the machine may pause.
        for _ in range(TRIES):
            assert self.switch.process.poll() is None, self.switch.log.read_text()[-4000:]
            self.alice.send(FRAME)
            while frame := self.bob.receive(0.2):
                if SECRET in frame:
                    assert frame == FRAME
                    return
                assert len(frame) <= self.longest, "longer than what a port without the option takes"
        pytest.fail("correct peers no longer receive each other's packets")

    def mallory(self, **kwargs):
        return self.driver(self.paths[MALLORY], features=vu.VERSION_1 | vu.OFFLOADS, **kwargs)

    def check(self, mallory):
        """After each violation: the switch runs, the correct peers communicate, and the hostile one has received none of it."""
        for _ in range(5):
            self.talk()
        with contextlib.suppress(ValueError):
            assert mallory.memory.find(SECRET) == -1, "mallory reads packets of others"

    def to_mallory(self, packets=300, number=MALLORY):
        """Sends the hostile peer more packets than its ring has room for."""
        actions = ",".join([f"output:{number}"] * 100)
        for _ in range(packets // 100):
            self.switch.ofctl("packet-out", f"in_port=controller,packet={'ff' * 60},actions={actions}")

    def close(self):
        self.alice.close()
        self.bob.close()
        assert self.switch.stop() == 0, self.switch.log.read_text()[-4000:]


END = vu.GUEST + vu.MEMORY
WILD = 0xDEAD_0000_0000


def chain(*links):
    """Returns a violation: descriptors at the start of a ring, made available many times."""

    def violate(driver, number):
        for at, link in enumerate(links):
            driver.descriptor(number, at, *link)
        for _ in range(40):
            driver.offer(number, 0)

    return violate


def ahead(driver, number):
    """Advances the index by more than the ring's size."""
    driver.descriptor(number, 0, vu.GUEST + vu.BUFFERS, 100)
    driver.offer(number, 0, ahead=60_000)


def beyond(driver, number):
    """Makes descriptors available that the ring does not have."""
    for at in (vu.RING, 1000, 0x7FFF, 0xFFFF):
        driver.offer(number, at)


def back(driver, number):
    """Decreases the index."""
    driver.descriptor(number, 0, vu.GUEST + vu.BUFFERS, 100)
    driver.offer(number, 0, ahead=5)
    driver.offer(number, 0, ahead=-4)


IN_RING = {
    "an address that is nowhere": chain((WILD, 100)),
    "an address of zero": chain((0, 100)),
    "the highest address": chain((2**64 - 50, 100)),
    "a length of 4 GiB": chain((vu.GUEST + vu.BUFFERS, 0xFFFF_FFFF)),
    "a length of zero": chain((vu.GUEST + vu.BUFFERS, 0)),
    "less than a header": chain((vu.GUEST + vu.BUFFERS, 5)),
    "a header and no more": chain((vu.GUEST + vu.BUFFERS, vu.HEADER)),
    "over the end of the memory": chain((END - 20, 1000)),
    "a next one that the ring does not have": chain((vu.GUEST + vu.BUFFERS, 100, vu.NEXT, 0xFFFF)),
    "a circle": chain((vu.GUEST + vu.BUFFERS, 100, vu.NEXT, 1), (vu.GUEST + vu.BUFFERS, 100, vu.NEXT, 0)),
    "itself next": chain((vu.GUEST + vu.BUFFERS, 100, vu.NEXT, 0)),
    "a table that is nowhere": chain((WILD, 64, vu.INDIRECT)),
    "a table of 4 GiB": chain((vu.GUEST, 0xFFFF_FFF0, vu.INDIRECT)),
    "a table in itself": chain((vu.GUEST, 16, vu.INDIRECT)),
    "the other direction": chain((vu.GUEST + vu.BUFFERS, 100, vu.WRITE)),
    "more than a ring holds": ahead,
    "places that a ring does not have": beyond,
    "less than before": back,
}


# Violations that the switch cannot detect: an empty frame, and an index decreased before it was read.
FORGIVEN = {"a header and no more", "less than before"}
# A packed ring has no indices, and an incomplete chain may be one that is still being written.
SPLIT_ONLY = {"more than a ring holds", "places that a ring does not have", "a next one that the ring does not have", "a circle",
              "itself next"}


@pytest.mark.parametrize("violation", IN_RING)
@pytest.mark.parametrize("number", [vu.TRANSMIT, vu.RECEIVE], ids=["sent", "received"])
def test_a_ring_that_violates_the_protocol_affects_only_its_own_connection(net, violation, number):
    with net.mallory() as mallory:
        mallory.begin()
        mallory.share()
        for ring in (vu.RECEIVE, vu.TRANSMIT):
            mallory.ring(ring)
        IN_RING[violation](mallory, number)
        if number == vu.RECEIVE:
            net.to_mallory()
        net.check(mallory)
        forgiven = violation in FORGIVEN or (violation in SPLIT_ONLY and net.driver is vu.Packed)
        forgiven |= violation == "the other direction" and number == vu.RECEIVE
        if forgiven:
            return

        def is_noticed():
            # Packets are sent only after the port's link is up.
            if number == vu.RECEIVE:
                net.to_mallory(100)
            return mallory.is_gone(0.5)

        wait_for("somebody notices", is_noticed)


def everything_at_once(driver, number):
    """Makes all descriptors of the ring one chain, which continues into the next round."""
    for slot in range(vu.RING):
        driver.raw(number, slot, vu.GUEST + vu.BUFFERS, 100, 0, vu.NEXT | vu.AVAILABLE)


def both_at_once(driver, number):
    """Marks descriptors as available and used."""
    for slot in range(vu.RING):
        driver.raw(number, slot, vu.GUEST + vu.BUFFERS, 100, slot, vu.AVAILABLE | vu.IS_USED)


def anew_while_it_is_used(driver, number):
    """Overwrites the used ring while the switch may write it."""
    for _ in range(200):
        for slot in range(0, vu.RING, 16):
            driver.raw(number, slot, WILD, 100, 0xFFFF, vu.AVAILABLE)
            driver.raw(number, slot, vu.GUEST + vu.BUFFERS, 100, slot, vu.IS_USED)


def events(driver, number):
    """Writes invalid event suppression values."""
    driver.put(number * vu.RING_SIZE + vu.AVAIL, 0xFFFF, 0xFFFF, form="<HH")
    for _ in range(40):
        driver.descriptor(number, 0, vu.GUEST + vu.BUFFERS, 1000, 0 if number == vu.TRANSMIT else vu.WRITE)
        driver.offer(number, 0)


def tables(driver, number):
    """Writes indirect tables in tables, alongside other descriptors, and of invalid sizes."""
    table = vu.BUFFERS
    flags = 0 if number == vu.TRANSMIT else vu.WRITE
    for at in range(64):
        driver.put(table + 16 * at, vu.GUEST + table, 64, vu.NEXT | flags | (vu.INDIRECT if at % 3 else 0), at + 1, form="<QIHH")
    for size in (0, 1, 15, 16, 17, 1024, 65536):
        driver.descriptor(number, 0, vu.GUEST + table, size, vu.INDIRECT)
        driver.offer(number, 0)


IN_PACKED_RING = {
    "one chain that is all": everything_at_once,
    "offered and used": both_at_once,
    "written over": anew_while_it_is_used,
    "events that there are not": events,
    "tables of all kinds": tables,
}


@pytest.mark.parametrize("violation", IN_PACKED_RING)
@pytest.mark.parametrize("number", [vu.TRANSMIT, vu.RECEIVE], ids=["sent", "received"])
def test_a_packed_ring_that_violates_the_protocol_affects_no_other_peer(net, violation, number):
    if net.driver is not vu.Packed:
        pytest.skip("its rings are split")
    with net.mallory() as mallory:
        mallory.begin()
        mallory.share()
        for ring in (vu.RECEIVE, vu.TRANSMIT):
            mallory.ring(ring)
        IN_PACKED_RING[violation](mallory, number)
        net.to_mallory()
        net.check(mallory)


def test_random_descriptors_stop_nobody(net):
    dice = random.Random(7)
    places = [0, 1, vu.GUEST, vu.GUEST + vu.BUFFERS, END - 1, END, WILD, 2**64 - 1]
    for _ in range(20):
        with net.mallory() as mallory:
            mallory.begin()
            mallory.share()
            for ring in (vu.RECEIVE, vu.TRANSMIT):
                mallory.ring(ring)
            for _ in range(40):
                for number in (vu.RECEIVE, vu.TRANSMIT):
                    for at in range(vu.RING):
                        address = dice.choice(places) + dice.choice([0, 1, dice.randrange(vu.MEMORY)])
                        size = dice.choice([0, 1, 12, 60, 1500, 65535, dice.randrange(2**32)])
                        mallory.descriptor(number, at, address % 2**64, size, dice.randrange(8), dice.randrange(vu.RING + 2))
                    for _ in range(20):
                        mallory.offer(number, dice.randrange(vu.RING + 1), ahead=dice.choice([1, 1, 1, 300]))
            net.to_mallory(100)
            net.talk()
    net.check(mallory)


TCP = struct.pack(">HHIIHHHH", 1000, 80, 1, 1, 0x5010, 1000, 0, 0)
HEADERS = {
    "a checksum past the end": struct.pack("<BBHHHHH", 1, 0, 0, 0, 65535, 65535, 0),
    "a checksum that begins nowhere": struct.pack("<BBHHHHH", 1, 0, 0, 0, 14, 65535, 0),
    "segments of nothing": struct.pack("<BBHHHHH", 1, 1, 65535, 0, 34, 16, 0),
    "segments of a byte each": struct.pack("<BBHHHHH", 1, 1, 54, 1, 34, 16, 0),
    "every bit": b"\xff" * vu.HEADER,
    "segments of zero": struct.pack("<BBHHHHH", 1, 1, 54, 0, 34, 16, 0),
    "segments longer than all": struct.pack("<BBHHHHH", 1, 1, 54, 65535, 34, 16, 0),
    "segments longer than the MTU": struct.pack("<BBHHHHH", 1, 1, 54, 1461, 34, 16, 0),
    "segments of forty bytes": struct.pack("<BBHHHHH", 1, 1, 54, 40, 34, 16, 0),
    "no headers": struct.pack("<BBHHHHH", 1, 1, 0, 1400, 34, 16, 0),
    "no checksum": struct.pack("<BBHHHHH", 0, 1, 54, 1400, 0, 0, 0),
    "IPv6 and it is not": struct.pack("<BBHHHHH", 1, 4, 54, 1400, 34, 16, 0),
    "UDP and it is not": struct.pack("<BBHHHHH", 1, 3, 54, 1400, 34, 6, 0),
    "a kind that there is not": struct.pack("<BBHHHHH", 1, 77, 54, 1400, 34, 16, 0),
    "congestion and segments": struct.pack("<BBHHHHH", 1, 0x81, 54, 1400, 34, 16, 0),
    "many buffers": struct.pack("<BBHHHHH", 1, 1, 54, 1400, 34, 16, 65535),
}


@pytest.mark.parametrize("violation", HEADERS)
@pytest.mark.parametrize("frame", ["short", "tcp", "udp6", "long", "long and short of it"])
def test_an_invalid_header_affects_no_other_peer(net, violation, frame):
    ethernet = FRAME[:12]
    frames = {
        "short": b"\x02" * 14,
        "tcp": ethernet + bytes.fromhex("080045000030000040004006000000000000ffffffff") + b"\0" * 24,
        "udp6": ethernet + bytes.fromhex("86dd60000000fff01140") + b"\x11" * 40,
        "long": ethernet + bytes.fromhex("08004500ea6000004000400600000a0000010a000002") + TCP + b"x" * 59_960,
        # The IP length is shorter than the frame.
        "long and short of it": ethernet + bytes.fromhex("080045000fa000004000400600000a0000010a000002") + TCP + b"x" * 59_960,
    }
    with net.mallory(buffer=1 << 16).run() as mallory:
        for _ in range(50):
            mallory.send(frames[frame], HEADERS[violation])
        net.check(mallory)


@pytest.mark.parametrize("size", [70_000, 1 << 20, 30 << 20])
def test_one_descriptor_for_more_than_a_packet_stops_nobody(net, size):
    """The driver exhausts the buffers of its own port, and of no other."""
    with net.mallory(memory=32 << 20).run() as mallory:
        header = HEADERS["no checksum"]
        mallory.memory[vu.BUFFERS : vu.BUFFERS + len(header)] = header
        for at in range(20):
            mallory.descriptor(vu.TRANSMIT, at, vu.GUEST + vu.BUFFERS, size)
            mallory.offer(vu.TRANSMIT, at)
        net.check(mallory)


def memory(regions, fds=None):
    def violate(driver):
        driver.begin()
        driver.share(regions, fds)
        for ring in (vu.RECEIVE, vu.TRANSMIT):
            driver.ring(ring)

    return violate


def rings(**kwargs):
    def violate(driver):
        driver.begin()
        driver.share()
        for ring in (vu.RECEIVE, vu.TRANSMIT):
            driver.ring(ring, **kwargs)
        for _ in range(10):
            driver.offer_buffer()
            driver.send(b"\x02" * 60)

    return violate


def message(*arguments, **kwargs):
    def violate(driver):
        driver.begin()
        driver.share()
        driver.send_message(*arguments, **kwargs)

    return violate


def noise(driver):
    driver.stream.sendall(random.Random(5).randbytes(4000))


def on_a_disk(driver):
    """Returns a file whose page faults may take arbitrarily long."""
    with tempfile.TemporaryFile(dir=pathlib.Path(__file__).parent) as file:
        file.truncate(vu.MEMORY)
        memory([WHOLE], [file.fileno()])(driver)


def in_a_pipe(driver):
    for end in os.pipe():
        with contextlib.suppress(vu.Gone):
            memory([WHOLE], [end])(driver)
        os.close(end)


def deaf(driver):
    """Sends requests, and does not read the replies."""
    driver.stream.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        for _ in range(100_000):
            driver.send_message(vu.GET_FEATURES)


def half(driver):
    """Sends half a message, and never the rest."""
    driver.stream.sendall(struct.pack("<III", vu.SET_MEM_TABLE, vu.VERSION, 40)[:7])


def many_files(driver):
    driver.send_message(vu.SET_OWNER, fds=[driver.fd] * 30)


def again_and_again(driver):
    """Changes memory and rings continuously, at any time, while packets arrive."""
    dice = random.Random(11)
    driver.begin()
    for _ in range(300):
        match dice.randrange(6):
            case 0 | 1:
                driver.share()
            case 2 | 3:
                driver.ring(dice.randrange(2), base=dice.choice([0, 1, 0x8000_8000, 0xFFFF_FFFF, 255]))
            case 4:
                driver.ask(vu.GET_VRING_BASE, struct.pack("<II", dice.randrange(2), 0))
            case 5:
                driver.send_message(vu.SET_VRING_ENABLE, struct.pack("<II", dice.randrange(2), dice.randrange(2)))
        driver.offer_buffer()
        driver.send(b"\x02" * 60)


WHOLE = (vu.GUEST, vu.MEMORY, vu.USER, 0)
MESSAGES = {
    "no memory at all": memory([]),
    "memory of no size": memory([(vu.GUEST, 0, vu.USER, 0)]),
    "more memory than there is": memory([(vu.GUEST, 1 << 46, vu.USER, 0)]),
    "memory that wraps": memory([(vu.GUEST, 2**64 - 4096, vu.USER, 8192)]),
    "an offset past the file": memory([(vu.GUEST, vu.MEMORY, vu.USER, 1 << 30)]),
    "an offset that is no page": memory([(vu.GUEST, vu.MEMORY - 4096, vu.USER, 17)]),
    "more regions than may be": memory([WHOLE] * 9, [0] * 8),
    "a count of regions that is a violation": message(vu.SET_MEM_TABLE, struct.pack("<II", 0xFFFF, 0)),
    "regions without files": memory([WHOLE], []),
    "a file that is none": memory([WHOLE], [1]),
    "overlapping regions": memory([WHOLE, WHOLE]),
    "a file shorter than the region": memory([(vu.GUEST, 64 * vu.MEMORY, vu.USER, 0)]),
    "rings outside the memory": rings(addresses=(WILD, WILD, WILD)),
    "rings at the end of the memory": rings(addresses=(vu.USER + vu.MEMORY - 16,) * 3),
    "rings that are not aligned": rings(addresses=(vu.USER + 1, vu.USER + 0x2001, vu.USER + 0x1003)),
    "rings of no length": rings(length=0),
    "rings of three": rings(length=3),
    "rings too long": rings(length=65535),
    "rings that began elsewhere": rings(base=60_000),
    "a ring that there is not": message(vu.SET_VRING_NUM, struct.pack("<II", 0xFFFF_FFF0, 256)),
    "a ring of a thousand": message(vu.SET_VRING_BASE, struct.pack("<II", 1000, 256)),
    "a request that there is not": message(200, b"\0" * 8),
    "a size that is a violation": message(vu.SET_VRING_NUM, struct.pack("<II", 0, 256), size=0xFFFF_FFFF),
    "less than it says": message(vu.SET_MEM_TABLE, b"", size=8),
    "noise": noise,
    "a file on a disk": on_a_disk,
    "a pipe": in_a_pipe,
    "more files than may be": many_files,
    "questions without end": deaf,
    "half a message": half,
    "changes without end": again_and_again,
    "features that were not offered": message(vu.SET_FEATURES, struct.pack("<Q", 2**64 - 1)),
    "a log of what is written": message(6, struct.pack("<QQ", vu.MEMORY, 0)),
    "a table of memory for an answer": message(vu.SET_MEM_TABLE, struct.pack("<II", 1, 0), size=0x7FFF_FFFF),
}


@pytest.mark.parametrize("violation", MESSAGES)
def test_messages_that_violate_the_protocol_stop_nobody(net, violation):
    with net.mallory() as mallory:
        with contextlib.suppress(vu.Gone, BrokenPipeError):
            MESSAGES[violation](mallory)
            time.sleep(0.05)
        net.check(mallory)


def test_memory_that_is_taken_back_while_the_switch_reads_it_ends_nobody_else(net):
    """Memory shrinks while rings are full, in steps and at once, and the same peer may connect again."""
    for sizes in ([0], [vu.BUFFERS + 4096, vu.RING_SIZE, 4096, 0]):
        with net.mallory().run() as mallory:
            for _ in range(100):
                mallory.send(b"\x02" * 60)
            net.talk()
            # Python must not access it either from here on.
            for size in sizes:
                os.ftruncate(mallory.fd, size)
                net.to_mallory(100)
                net.talk()
        net.talk()
    with net.mallory().run() as correct:
        before = net.switch.port_packets(MALLORY)[0]
        correct.send(b"\x02" * 60)
        wait_for("it is heard again", lambda: net.switch.port_packets(MALLORY)[0] > before)


def test_one_that_floods_and_one_that_takes_no_packet_cost_others_nothing_but_time(net):
    with net.mallory().run() as mallory:
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            # The ring stays full; the driver returns no buffers.
            for _ in range(vu.RING):
                mallory.send(b"\x02" * 60)
            net.alice.send(FRAME)
            net.bob.receive(0)
        net.to_mallory()
        net.check(mallory)


def full_eventfd():
    """Returns an eventfd on which the next write blocks."""
    event = os.eventfd(0)
    os.eventfd_write(event, 2**64 - 2)
    return [event]


def full_pipe():
    ends = os.pipe()
    os.set_blocking(ends[1], False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(ends[1], bytes(4096))
    os.set_blocking(ends[1], True)
    return ends[::-1]


def memory_as_eventfd():
    return [os.memfd_create("event")]


@pytest.mark.parametrize("event", [full_eventfd, full_pipe, memory_as_eventfd])
def test_an_eventfd_that_blocks_delays_nobody(net, event):
    with net.mallory().run() as mallory:
        files = event()
        for number in (vu.RECEIVE, vu.TRANSMIT):
            mallory.send_message(vu.SET_VRING_CALL, struct.pack("<Q", number), files[:1])
        for _ in range(20):
            mallory.send(b"\x02" * 60)
            net.to_mallory(100)
            net.talk()
        net.check(mallory)
        if event is memory_as_eventfd:
            assert os.fstat(files[0]).st_size == 0, "a file was written to that is not an eventfd"
        for file in files:
            os.close(file)


def test_a_ring_that_was_said_to_stop_is_left_alone_under_load(net):
    """After the reply, a driver may use its memory for any purpose."""
    with net.mallory().run() as driver:
        net.to_mallory(100)
        driver.ask(vu.GET_VRING_BASE, struct.pack("<II", vu.RECEIVE, 0))
        before = bytes(driver.memory)
        net.to_mallory(300)
        net.talk()
        assert bytes(driver.memory) == before


def test_the_log_has_the_reason_of_each_disconnection(net):
    assert "peer connection closed" in net.switch.log.read_text()
