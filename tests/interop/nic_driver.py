"""A driver of the NIC, written from docs/nic-interface.md alone by one who had not read the switch's: a second implementation.

Where this driver and the device disagree, one of them or the page is wrong.
"""

import mmap
import os
import socket
import struct
import time

MAGIC, MAJOR = b"MRNC", 1
ID, VERSION, CAP_QUEUES, CAP_ROWS, CAP_PORTS, STATUS, CONTROL, CAP_MEMORY = range(0, 32, 4)
HASH_KEY, TABLE_KEY, TPID, TUNNEL_PORT, CYCLES, GENERATION, CAP_DROPS = 0x20, 0x50, 0x90, 0xA0, 0xC0, 0xC8, 0xCC
COUNT, NO_BUFFER = 0x100, 0x180

(NOP, STAGE, WRITE_ROW, CLEAR_ROW, WRITE_TERNARY, CLEAR_TERNARY, SET_MASK, SET_BUCKETS, COMMIT, FENCE, READ_COUNT, READ_DROPS) = range(12)
OK, UNKNOWN, RANGE, BUSY = range(4)
FRAMES, FIFO_FULL, BAD_FCS, BAD_LENGTH, PARITY, DROPPED, NO_BUFFERS, RECEIVED = range(8)
PHASE, IS_FENCE, MARK, HASH, COMPLETE, IP_CHECKSUM, L4_CHECKSUM, TRUNCATED, ERROR = (1 << bit for bit in range(9))

# Lowest bit of each field of a command.
FIELDS = {"opcode": 0, "select": 8, "first": 16, "tag": 32, "index": 64, "form": 96, "fenced": 104, "mark": 128, "queue": 160,
          "override": 165, "drop": 166, "class_": 168, "words": 256, "queues": 128}
RING_HEADER, DESCRIPTOR = 128, 16
PRODUCER, CONSUMER = 6, 64


def poll_for(what, condition, bound=60.0):
    """Returns the first true value of `condition`. A command takes microseconds, so the pauses are short."""
    deadline = time.monotonic() + bound
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {bound} s"
        time.sleep(0.00005)
    return value


class Completion:
    """A completion of a queue: a frame, or a fence if `flags` has IS_FENCE."""

    SHAPE = struct.Struct("<IIHHHHIBBBBBBBBI")
    NAMES = ("mark", "hash", "buffer", "length", "bucket", "flags", "generation", "l3", "l4", "inner_l3", "inner_l4", "kind", "tags",
             "labels", "class_", "time")

    def __init__(self, raw):
        for name, value in zip(self.NAMES, self.SHAPE.unpack(raw)):
            setattr(self, name, value)
        self.frame = b""


class Ring:
    """A ring in shared memory, of `len_` descriptors; an entry has `width` of them. Indices count entries."""

    def __init__(self, memory, offset, len_, width=1):
        self.memory, self.at, self.len, self.width = memory, offset, len_ // width, width
        self.size = RING_HEADER + DESCRIPTOR * len_
        # Entries put in, or taken, so far.
        self.index = 0

    def _half(self, offset):
        return self.memory[self.at + offset:self.at + offset + 2].cast("H")

    def write_producer(self, index):
        self._half(PRODUCER)[0] = index & 0xFFFF

    def entry(self):
        at = self.at + RING_HEADER + DESCRIPTOR * self.width * (self.index % self.len)
        return self.memory[at:at + DESCRIPTOR * self.width]

    def phase(self):
        """The phase that an entry written in this pass has."""
        return 1 - (self.index // self.len) % 2

    # producer
    def room(self):
        return self.len - (self.index - self._half(CONSUMER)[0]) % 65536

    def put(self, raw):
        self.entry()[:len(raw)] = raw
        self.index += 1
        self.write_producer(self.index)

    # consumer
    def took(self):
        self.index += 1
        self._half(CONSUMER)[0] = self.index & 0xFFFF


class Nic:
    """A NIC attached at the socket `path`."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(os.fspath(path))
        message, descriptors, _, _ = socket.recv_fds(self.socket, 64, 1)
        if len(message) != 8 or message[:4] != MAGIC or len(descriptors) != 1:
            raise ValueError(f"the device sent {message!r} with {len(descriptors)} descriptors")
        if struct.unpack("<I", message[4:])[0] >> 16 != MAJOR:
            raise ValueError(f"version {message[4:].hex()}, expected major {MAJOR}")
        size = os.fstat(descriptors[0]).st_size
        self.map = mmap.mmap(descriptors[0], size)
        os.close(descriptors[0])
        self.memory = memoryview(self.map)
        self.registers = self.memory[:4096].cast("I")
        if self.read(ID) != int.from_bytes(MAGIC, "little"):
            raise ValueError(f"register ID is {self.read(ID):#x}")
        queues = self.read(CAP_QUEUES)
        self.queues, self.banks, self.rules = queues & 0xFF, queues >> 8 & 0xFF, queues >> 16
        rows = self.read(CAP_ROWS)
        self.row_bits, self.ways = rows & 0xFF, rows >> 8 & 0xFF
        self.ports, self.drop_counters = self.read(CAP_PORTS), self.read(CAP_DROPS)
        memory = self.read(CAP_MEMORY)
        self.ring_len, self.buffer_size = 1 << (memory & 0xFF), (memory >> 16) * 64
        self._lay_out()

    def _lay_out(self):
        at = 4096

        def ring(len_, width=1):
            nonlocal at
            made = Ring(self.memory, at, len_, width)
            at += made.size
            return made

        self.commands, self.answers = ring(256, 4), ring(256)
        self.free, self.completions, self.transmit = [], [], []
        for _ in range(self.queues):
            self.free.append(ring(self.ring_len))
            self.completions.append(ring(2 * self.ring_len, 2))
            self.transmit.append(ring(self.ring_len))
        buffers = self.ring_len * self.buffer_size
        self.receive_at = [at + 2 * queue * buffers for queue in range(self.queues)]
        self.transmit_at = [at + (2 * queue + 1) * buffers for queue in range(self.queues)]
        self.layout_size = at + 2 * self.queues * buffers

    def close(self):
        """Detaches: the device ends with the connection."""
        self.socket.close()

    # registers
    def read(self, offset):
        return self.registers[offset // 4]

    def write(self, offset, value):
        self.registers[offset // 4] = value

    def read_64(self, offset):
        while True:
            upper, lower, again = (self.read(at) for at in (offset + 4, offset, offset + 4))
            if upper == again:
                return upper << 32 | lower

    def post_all(self, number):
        """Gives each queue its first buffers."""
        for queue in range(self.queues):
            for buffer in range(number):
                self.post(queue, buffer)

    def enable(self, hash_key, table_key, tpids, tunnel_ports):
        for base, keys in ((HASH_KEY, hash_key), (TABLE_KEY, table_key)):
            for n, key in enumerate(keys):
                self.write(base + 8 * n, key & 0xFFFFFFFF)
                self.write(base + 8 * n + 4, key >> 32)
        for base, len_, values in ((TPID, 4, tpids), (TUNNEL_PORT, 8, tunnel_ports)):
            for n in range(len_):
                value, extra = values[n] if n < len(values) else (0, 0)
                self.write(base + 4 * n, value | extra << 16)
        self.write(CONTROL, 1)
        poll_for("STATUS.ready", lambda: self.read(STATUS) & 1)

    def disable(self):
        self.write(CONTROL, 0)
        poll_for("the end of STATUS.ready", lambda: not self.read(STATUS) & 1)
        self.memory[4096:self.receive_at[0]] = bytes(self.receive_at[0] - 4096)
        self._lay_out()

    # commands
    def submit(self, opcode, **fields):
        """Puts a command into the ring, with `fields` by their names on the page; False if there is no room."""
        if self.commands.room() == 0:
            return False
        number = opcode
        for name, value in fields.items():
            number |= value << FIELDS[name]
        self.commands.put(number.to_bytes(64, "little"))
        return True

    def answer(self):
        """The next completion of a command as (tag, status, value), or None."""
        entry = self.answers.entry()
        if entry[6] & 1 != self.answers.phase():
            return None
        tag, status, _, value = struct.unpack("<IHHQ", entry)
        self.answers.took()
        return tag, status, value

    def command(self, opcode, **fields):
        """Gives a command, and returns status and value of its completion."""
        assert self.submit(opcode, **fields)
        tag, status, value = poll_for(f"the completion of command {opcode}", self.answer)
        assert tag == fields.get("tag", 0)
        return status, value

    def stage(self, words):
        """Stages eight words: a key, a mask, or value and mask of a rule."""
        for half in (0, 1):
            number = sum(word << 64 * at for at, word in enumerate(words[4 * half:4 * half + 4]))
            assert self.command(STAGE, select=half, words=number) == (OK, 0)

    def set_buckets(self, queues, first=0):
        """Writes the queues of buckets from `first` to the shadow copy."""
        for at in range(0, len(queues), 48):
            part = bytes(queues[at:at + 48])
            assert self.command(SET_BUCKETS, select=len(part), first=first + at, queues=int.from_bytes(part, "little")) == (OK, 0)

    # frames
    def post(self, queue, buffer):
        self.free[queue].put(struct.pack("<H", buffer))

    def receive(self, queue):
        """The next completion of a queue with its frame, or None. Its buffer is posted again."""
        ring = self.completions[queue]
        entry = ring.entry()
        if entry[14] & 1 != ring.phase():
            return None
        completion = Completion(bytes(entry))
        if not completion.flags & IS_FENCE:
            if completion.buffer >= self.ring_len or completion.length > self.buffer_size:
                raise ValueError(f"buffer {completion.buffer}, length {completion.length}")
            at = self.receive_at[queue] + completion.buffer * self.buffer_size
            completion.frame = bytes(self.memory[at:at + completion.length])
            self.post(queue, completion.buffer)
        ring.took()
        return completion

    def send(self, queue, frame):
        """Puts a frame into the transmit ring; False if it is full."""
        ring = self.transmit[queue]
        if ring.room() == 0:
            return False
        at = self.transmit_at[queue] + ring.index % self.ring_len * self.buffer_size
        self.memory[at:at + len(frame)] = frame
        ring.put(struct.pack("<Q", len(frame)))
        return True

