"""The page docs/nic-interface.md as a specification: a driver and a classifier that were written from it alone, in Python, attach to
`millrace-nic`, and find what they expect in each completion, status and counter.
"""

import collections
import contextlib
import random
import subprocess

import pytest

import nic_driver as nd
from nic_driver import Nic, poll_for
from nic_frames import Frames
from nic_oracle import KEY, Parse, Tables
from switches import TARGET, wait_for

NIC = TARGET / "millrace-nic"
SWITCH = [(0x8100, 1), (0x88A8, 1), (0x9100, 0)], [(2152, 3), (4789, 1), (8472, 1), (6081, 2), (6635, 4)]

pytestmark = pytest.mark.skipif(not NIC.exists(), reason="millrace-nic is not built")


def write_capture(path, frames):
    """A capture file of pcap, with the times 1 s, 2 s and so on."""
    head = (0xA1B2C3D4).to_bytes(4, "little") + bytes.fromhex("0200 0400 00000000 00000000 ffff0000 01000000")
    records = (b"".join(number.to_bytes(4, "little") for number in (at, 0, len(frame), len(frame))) + frame for at, frame in enumerate(frames, 1))
    path.write_bytes(head + b"".join(records))


def read_capture(path):
    data, at, frames = path.read_bytes(), 24, []
    order = "big" if data[0] == 0xA1 else "little"
    while at < len(data):
        size = int.from_bytes(data[at + 8:at + 12], order)
        frames.append(data[at + 16:at + 16 + size])
        at += 16 + size
    return frames


@contextlib.contextmanager
def device(folder, frames, *options, repeat=False):
    """A NIC whose wire brings these frames once, or again and again, and the path of its socket."""
    socket, log = folder / "nic.sock", folder / "nic.log"
    write_capture(folder / "rx.pcap", frames)
    wire = f"pcap:rx={folder / 'rx.pcap'},tx={folder / 'tx.pcap'}{',loop=true' if repeat else ''}"
    with log.open("w") as out:
        process = subprocess.Popen([NIC, "--wire", wire, "--socket", socket, *options], stdout=out, stderr=out)
    try:

        def is_ready():
            assert process.poll() is None, log.read_text()
            return "ready" in log.read_text()

        wait_for("millrace-nic", is_ready)
        yield socket
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        process.wait(timeout=60)


class Session:
    """A driver, and what the tables of its device have been at each generation."""

    def __init__(self, nic, rng, tpids, tunnels, buffers=None):
        self.nic, self.random, self.tpids, self.tunnels = nic, rng, tpids, tunnels
        self.keys = [rng.getrandbits(64) for _ in range(6)]
        self.tables = Tables([rng.getrandbits(64) for _ in range(8)], nic.ways, nic.row_bits)
        self.generations = [self.tables.copy()]
        nic.enable(self.keys, self.tables.t, tpids, tunnels)
        nic.post_all(buffers or nic.ring_len)

    def parse(self, frame):
        return Parse(frame, 0, self.tpids, self.tunnels, self.keys)

    def changed(self):
        self.generations.append(self.tables.copy())
        assert self.nic.read(nd.GENERATION) == len(self.generations) - 1

    def action(self):
        rng = self.random
        drop = rng.randrange(8) == 0
        mark = rng.randrange(64) if drop else rng.choice([0, rng.getrandbits(32)])
        return mark, rng.choice([None, rng.randrange(32)]), drop, rng.randrange(16)

    def done(self, opcode, action=None, **fields):
        if action:
            mark, queue, drop, class_ = action
            fields |= {"mark": mark, "drop": int(drop), "class_": class_, "override": int(queue is not None), "queue": queue or 0}
        assert self.nic.command(opcode, **fields) == (nd.OK, 0)

    def set_mask(self):
        rng = self.random
        bank, form = rng.randrange(self.nic.banks), rng.choice([0, *range(1, 16)])
        mask = [0] * 8
        for low, bits in KEY.values():
            if rng.randrange(5) < 3:
                mask[low // 64] |= ((1 << bits) - 1) << low % 64
        self.nic.stage(mask)
        self.done(nd.SET_MASK, select=0, index=bank, form=form)
        self.tables.banks[bank], self.tables.ports[0] = mask, (bank, form)
        self.changed()

    def write_row(self, frame):
        rng, tables = self.random, self.tables
        _, form = tables.ports.get(0, (0, 0))
        if not form:
            return self.set_mask()
        key, way, action = tables.masked(self.parse(frame).words(), 0), rng.randrange(self.nic.ways), self.action()
        row, form = tables.row(key, way), rng.choice([form, form, form, rng.randrange(1, 16)])
        self.nic.stage(key)
        self.done(nd.WRITE_ROW, action, select=way, index=row, form=form)
        tables.rows[way, row] = form, key, action
        return self.changed()

    def clear_row(self):
        way, row = self.random.choice([*self.tables.rows, (0, 1)])
        self.done(nd.CLEAR_ROW, select=way, index=row)
        self.tables.rows.pop((way, row), None)
        self.changed()

    def write_ternary(self, frame):
        rng = self.random
        value = self.tables.compared(self.parse(frame))
        mask = [rng.choice([0, 0, (1 << 64) - 1, rng.getrandbits(64) & rng.getrandbits(64)]) for _ in range(4)]
        if not any(mask):
            mask[0] = 0xFFFF << 48
        index, action = rng.randrange(self.nic.rules), self.action()
        self.nic.stage(value + mask)
        self.done(nd.WRITE_TERNARY, action, index=index)
        self.tables.ternary[index] = value, mask, action
        self.changed()

    def clear_ternary(self):
        index = self.random.choice([*self.tables.ternary, 0])
        self.done(nd.CLEAR_TERNARY, index=index)
        self.tables.ternary.pop(index, None)
        self.changed()

    def set_buckets(self, first, queues):
        self.nic.set_buckets(queues, first)
        self.tables.shadow[first:first + len(queues)] = queues

    def commit(self, **fence):
        self.done(nd.COMMIT, **fence)
        self.tables.buckets, self.tables.shadow = self.tables.shadow, self.tables.buckets
        self.changed()

    def change(self, frames):
        """Gives one random change to the tables; `frames` are those that entries are made for."""
        rng, frame = self.random, self.random.choice(frames)
        kind = rng.choices(["row", "clear row", "ternary", "clear ternary", "mask", "buckets"], [12, 2, 4, 2, 1, 2])[0]
        if kind == "row":
            self.write_row(frame)
        elif kind == "clear row":
            self.clear_row()
        elif kind == "ternary":
            self.write_ternary(frame)
        elif kind == "clear ternary":
            self.clear_ternary()
        elif kind == "mask":
            self.set_mask()
        else:
            count = rng.randrange(1, 49)
            self.set_buckets(rng.randrange(1025 - count), [rng.randrange(32) for _ in range(count)])

    def expected(self, frame, generation):
        """Queue and completion of a frame, or the mark of the entry that drops it."""
        parse, tables = self.parse(frame), self.generations[generation]
        mark, queue, drop, class_ = tables.look_up(parse) or (0, None, False, 0)
        if drop:
            return mark, None
        queue = tables.buckets[parse.bucket] if queue is None else queue
        flags = {nd.HASH: True, nd.MARK: mark, nd.COMPLETE: parse.complete, nd.IP_CHECKSUM: parse.checksum, nd.TRUNCATED: parse.truncated}
        return queue if queue < self.nic.queues else 0, {
            "mark": mark, "hash": parse.hash, "length": len(frame), "bucket": parse.bucket, "flags": sum(bit for bit, on in flags.items() if on),
            "generation": generation, "l3": parse.l3 // 2, "l4": parse.l4 // 2, "inner_l3": parse.inner_l3 // 2,
            "inner_l4": parse.inner_l4 // 2, "kind": parse.kind_bits(), "tags": parse.tags, "labels": parse.labels, "class_": class_}

    def check(self, queue, completion):
        expected_queue, expected = self.expected(completion.frame, completion.generation)
        assert expected is not None, f"an entry drops {completion.frame.hex()}"
        found = {name: getattr(completion, name) for name in expected}
        found["flags"] &= ~nd.PHASE
        assert (queue, found) == (expected_queue, expected), completion.frame.hex()

    def counter(self, number, queue=0):
        status, value = self.nic.command(nd.READ_COUNT, select=number, first=queue)
        assert status == nd.OK
        return value

    def received(self):
        """The completions that are there, by queue."""
        return {queue: list(iter(lambda queue=queue: self.nic.receive(queue), None)) for queue in range(self.nic.queues)}


def odd_configuration(rng):
    """TPIDs that are EtherTypes of other headers, and one port for several tunnels."""
    tpids = [(rng.choice([0x8100, 0x88A8, 0x9100, 0x0100, 0x0800, 0x0806, 0x6558, 0x86DD, 0x8847, 0x88E7, 0]), rng.randrange(2)) for _ in range(4)]
    return tpids, [(rng.choice([0, 2152, 4789, 6081, 6635, 8472]), rng.randrange(8)) for _ in range(8)]


@pytest.mark.parametrize("seed", range(6))
def test_each_frame_has_the_completion_that_the_page_says(tmp_path, seed):
    rng = random.Random(seed)
    source = Frames(rng)
    frames = [source.frame() for _ in range(250)]
    frames += [rng.choice(frames) for _ in range(250)]
    with device(tmp_path, frames, "--queues", str(rng.choice([1, 3, 4, 32]))) as path:
        nic = Nic(path)
        assert nic.layout_size == len(nic.map)
        session = Session(nic, rng, *(SWITCH if seed % 2 else odd_configuration(rng)))
        for _ in range(150):
            session.change(frames)
        # The device takes frames from its wire only now: with the first COMMIT.
        assert session.counter(nd.FRAMES) == 0
        session.set_buckets(0, [rng.randrange(nic.queues) for _ in range(1024)])
        session.commit()
        wanted, dropped = collections.defaultdict(list), collections.Counter()
        for frame in frames:
            queue, completion = session.expected(frame, len(session.generations) - 1)
            if completion:
                wanted[queue].append(frame)
            else:
                dropped[queue] += len(frame) << 32 | 1
        found = collections.defaultdict(list)

        def all_are_there():
            for queue, completions in session.received().items():
                for completion in completions:
                    session.check(queue, completion)
                    found[queue].append(completion.frame)
            return sum(map(len, found.values())) == sum(map(len, wanted.values())) and session.counter(nd.FRAMES) == len(frames)

        poll_for("all frames", all_are_there)
        assert found == wanted
        drops = sum(total & 0xFFFFFFFF for total in dropped.values())
        assert [session.counter(number) for number in range(6)] == [len(frames), 0, 0, 0, 0, drops]
        poll_for("the registers", lambda: [nic.read_64(nd.COUNT + 8 * number) for number in range(6)] == [len(frames), 0, 0, 0, 0, drops])
        for mark in range(64):
            counts = [nic.command(nd.READ_DROPS, select=half, index=mark) for half in (0, 1)]
            assert counts == [(nd.OK, dropped[mark] & 0xFFFFFFFF), (nd.OK, dropped[mark] >> 32)], mark
        for queue in range(nic.queues):
            assert (session.counter(nd.RECEIVED, queue), session.counter(nd.NO_BUFFERS, queue)) == (len(wanted[queue]), 0)


def test_commands_take_effect_between_two_frames_and_a_fence_separates_them_in_each_queue(tmp_path):
    rng = random.Random(7)
    source = Frames(rng)
    frames = [source.frame() for _ in range(200)]
    with device(tmp_path, frames, "--queues", "4", repeat=True) as path:
        session = Session(Nic(path), rng, *SWITCH, buffers=32)
        session.set_buckets(0, [rng.randrange(4) for _ in range(1024)])
        session.commit()
        fences, last = collections.defaultdict(list), [0] * 4
        checked = 0

        def take():
            nonlocal checked
            for queue, completions in session.received().items():
                for completion in completions:
                    assert completion.generation >= last[queue], "completions of a queue are in order"
                    last[queue] = completion.generation
                    if completion.flags & nd.IS_FENCE:
                        assert (completion.length, completion.buffer) == (0, 0)
                        # The fence of a COMMIT comes with its generation: what went before it has the one before.
                        assert session.generations[completion.generation].buckets == moves[completion.mark]
                        fences[queue].append(completion.mark)
                    else:
                        session.check(queue, completion)
                        checked += 1
            return checked

        moves = []
        for number in range(40):
            for _ in range(5):
                session.change(frames)
            session.set_buckets(rng.randrange(977), [rng.randrange(4) for _ in range(48)])
            moves.append(list(session.tables.shadow))
            session.commit(fenced=1, index=number)
            more = checked
            poll_for("frames after the commit", lambda more=more: take() > more)
        poll_for("all fences", lambda: take() and all(len(fences[queue]) == 40 for queue in range(4)))
        assert all(fences[queue] == list(range(40)) for queue in range(4))
        # A reader that is late loses frames, and the device counts them.
        total = session.counter(nd.FRAMES)
        counted = [session.counter(number, queue) for number in (nd.RECEIVED, nd.NO_BUFFERS) for queue in range(4)]
        assert sum(counted) + session.counter(nd.DROPPED) >= total >= checked


def test_what_the_device_does_not_have_is_refused_with_the_status_of_the_page(tmp_path):
    with device(tmp_path, [], "--queues", "3") as path:
        nic = Nic(path)
        session = Session(nic, random.Random(3), *SWITCH)
        rows = 1 << nic.row_bits
        refused = [
            (nd.UNKNOWN, 12, {}), (nd.UNKNOWN, 255, {}), (nd.RANGE, nd.STAGE, {"select": 2}), (nd.RANGE, nd.WRITE_ROW, {"form": 0}),
            (nd.RANGE, nd.WRITE_ROW, {"form": 1, "select": nic.ways}), (nd.RANGE, nd.WRITE_ROW, {"form": 1, "index": rows}),
            (nd.RANGE, nd.WRITE_ROW, {"form": 1, "index": 0xFFFFFFFF}), (nd.RANGE, nd.CLEAR_ROW, {"select": nic.ways}),
            (nd.RANGE, nd.CLEAR_ROW, {"index": rows}), (nd.RANGE, nd.WRITE_TERNARY, {"index": nic.rules}),
            (nd.RANGE, nd.CLEAR_TERNARY, {"index": nic.rules}), (nd.RANGE, nd.SET_MASK, {"index": nic.banks}),
            (nd.RANGE, nd.SET_MASK, {"select": nic.ports}), (nd.RANGE, nd.SET_BUCKETS, {"select": 0}), (nd.RANGE, nd.SET_BUCKETS, {"select": 49}),
            (nd.RANGE, nd.SET_BUCKETS, {"select": 2, "first": 1023}), (nd.RANGE, nd.SET_BUCKETS, {"select": 1, "queues": 32}),
            (nd.RANGE, nd.READ_COUNT, {"select": 8}), (nd.RANGE, nd.READ_COUNT, {"select": nd.RECEIVED, "first": 32}),
            (nd.RANGE, nd.READ_DROPS, {"index": nic.drop_counters}), (nd.RANGE, nd.READ_DROPS, {"select": 2}),
        ]
        for status, opcode, fields in refused:
            assert nic.command(opcode, tag=0xFFFFFFFF, **fields) == (status, 0), (opcode, fields)
        assert nic.read(nd.GENERATION) == 0
        taken = [(nd.WRITE_ROW, {"form": 15, "select": nic.ways - 1, "index": rows - 1}), (nd.CLEAR_ROW, {"index": rows - 1}),
                 (nd.CLEAR_TERNARY, {"index": nic.rules - 1}), (nd.SET_MASK, {"index": nic.banks - 1}),
                 (nd.SET_BUCKETS, {"select": 1, "first": 1023, "queues": 31}), (nd.READ_COUNT, {"select": nd.RECEIVED, "first": 31}),
                 (nd.READ_DROPS, {"select": 1, "index": nic.drop_counters - 1}), (nd.NOP, {})]
        for opcode, fields in taken:
            session.done(opcode, **fields)
        assert nic.read(nd.GENERATION) == 4
        # Fences until a queue has no free completion; the commit that is refused changes nothing.
        sent = 0
        while nic.command(nd.FENCE, index=sent) == (nd.OK, 0):
            sent += 1
        assert sent == nic.ring_len
        assert nic.command(nd.COMMIT, fenced=1, index=5) == (nd.BUSY, 0) and nic.read(nd.GENERATION) == 4
        marks = {queue: [completion.mark for completion in completions] for queue, completions in session.received().items()}
        assert marks == {queue: list(range(sent)) for queue in range(3)}
        session.done(nd.FENCE, index=1)


def test_rings_go_round_and_a_device_that_is_reset_is_empty(tmp_path):
    rng = random.Random(9)
    source = Frames(rng)
    frames = [source.frame() for _ in range(100)]
    sent = []
    with device(tmp_path, frames, "--queues", "2", repeat=True) as path:
        nic = Nic(path)
        for _ in range(3):
            session = Session(nic, rng, *SWITCH)
            assert nic.read(nd.GENERATION) == 0 and session.counter(nd.FRAMES) == 0
            # As many commands as the ring holds, three times round the ring of their completions.
            for first in range(0, 768, 64):
                assert all(nic.submit(nd.NOP, tag=first + at) for at in range(64))
                for at in range(64):
                    assert poll_for("a completion", nic.answer) == (first + at, nd.OK, 0)
            session.commit()
            taken = 0
            while taken < 3 * nic.ring_len:
                for queue, completions in session.received().items():
                    taken += len(completions)
                    for completion in completions:
                        session.check(queue, completion)
            # All buckets of this device are at queue 0.
            assert session.counter(nd.RECEIVED, 1) == 0
            for frame in frames:
                poll_for("room to send", lambda frame=frame: nic.send(0, frame))
                sent.append(frame)
            poll_for("the frames to leave", lambda: nic.transmit[0].room() == nic.ring_len)
            nic.disable()
    assert read_capture(tmp_path / "tx.pcap") == sent


def test_wrong_numbers_of_a_driver_are_ignored_and_the_next_driver_is_served(tmp_path):
    frame = bytes(range(64))
    with device(tmp_path, [bytes(65), bytes(64), bytes(1514)], "--queues", "2", "--frame-size", "64") as path:
        nic = Nic(path)
        session = Session(nic, random.Random(1), *SWITCH)
        # A buffer and a size that no ring has, and indices that are far ahead.
        poll_for("room for a buffer", nic.free[0].room)
        nic.free[0].put(b"\xff\xff")
        nic.transmit[0].put((65).to_bytes(8, "little"))
        assert nic.send(0, frame)
        for ring in (nic.commands, nic.free[1], nic.transmit[1]):
            ring.write_producer(ring.index + 1000)
        poll_for("the frame to leave", lambda: nic.transmit[0].room() == nic.ring_len)
        assert nic.answer() is None
        for ring in (nic.commands, nic.free[1], nic.transmit[1]):
            ring.write_producer(ring.index)
        session.commit()
        poll_for("the frame that fits", lambda: session.received()[0])
        assert [session.counter(number) for number in (nd.FRAMES, nd.BAD_LENGTH)] == [1, 2]
        # Another driver is turned away while this one is attached.
        with pytest.raises((ValueError, OSError)):
            Nic(path)
        nic.close()

        def attached():
            with contextlib.suppress(ValueError, OSError):
                return Nic(path)

        session = Session(wait_for("the next driver to be attached", attached), random.Random(2), *SWITCH)
        assert session.counter(nd.FRAMES) == 0
    assert read_capture(tmp_path / "tx.pcap") == [frame]
    assert (tmp_path / "nic.log").read_text().count("out of range") < 40
