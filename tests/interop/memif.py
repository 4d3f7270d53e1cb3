"""A minimal memif 2.0, both client and server, that can send any message and write any value: what a compromised process
could put into the memory that it shares with the switch, or into its messages.

The client creates one memory file: a ring each way, and a buffer for each descriptor. The server maps the client's memory.
"""

import array
import contextlib
import mmap
import os
import socket
import struct
import time

ACK, HELLO, INIT, ADD_REGION, ADD_RING, CONNECT, CONNECTED, DISCONNECT = range(1, 9)
MESSAGE = 128
VERSION = 0x0200
COOKIE = 0x3E31F20
TO_SERVER, TO_CLIENT = 0, 1
NEXT = 1

LOG2 = 6
RING = 1 << LOG2
BUFFER = 2048
RING_SIZE = 4096
BUFFERS = 2 * RING_SIZE
MEMORY = BUFFERS + 2 * RING * BUFFER
HEAD, TAIL, FLAGS, DESCRIPTORS = 6, 64, 4, 128
F_ADD_SEALS, F_SEAL_SHRINK = 1033, 2


class Gone(Exception):
    """The switch has closed the connection."""


def send_message(line, kind, body=b"", files=(), size=MESSAGE):
    """Sends a message, with file descriptors."""
    message = (struct.pack("<H", kind) + body).ljust(MESSAGE, b"\0")
    message = message[:size].ljust(size, b"\xff")
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
    try:
        line.sendmsg([message], ancillary)
    except (BrokenPipeError, ConnectionResetError) as gone:
        raise Gone from gone


def receive_message(line):
    """Returns (type, body, file descriptors) of the next message."""
    try:
        data, ancillary, _, _ = line.recvmsg(MESSAGE + 1, 4096)
    except ConnectionResetError as gone:
        raise Gone from gone
    if not data:
        raise Gone
    files = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            files.frombytes(content[: len(content) // 4 * 4])
    return struct.unpack_from("<H", data)[0], data[2:], list(files)


def name(text):
    return text.encode().ljust(32, b"\0")


def init(number=0, version=VERSION, mode=0):
    return struct.pack("<HIB", version, number, mode) + bytes(24) + name("test")


def add_ring(direction, index=0, region=0, offset=None, log2=LOG2, header=0):
    """Adds the ring of a direction at its offset in the memory, unless another is given."""
    offset = direction * RING_SIZE if offset is None else offset
    return struct.pack("<HHHIBH", 1 - direction, index, region, offset, log2, header)


class Memory:
    """The memory that both sides map: indices, descriptors and buffers, which can be read and written freely."""

    def __init__(self, file, size=MEMORY):
        self.file, self.memory = file, mmap.mmap(file, size)
        # An index is written in one store: `pack_into` writes zeros first, which would be a protocol violation.
        self.halves = memoryview(self.memory).cast("H")
        self.places = {TO_SERVER: 0, TO_CLIENT: RING_SIZE}
        self.length = RING

    def put(self, place, form, *values):
        struct.pack_into(form, self.memory, place, *values)

    def get(self, place, form):
        return struct.unpack_from(form, self.memory, place)[0]

    def head(self, ring, value=None):
        return self._index(ring, HEAD, value)

    def tail(self, ring, value=None):
        return self._index(ring, TAIL, value)

    def _index(self, ring, at, value):
        place = (self.places[ring] + at) // 2
        if value is None:
            return self.halves[place]
        self.halves[place] = value % 65536
        return value

    def descriptor(self, ring, at, flags=0, region=0, length=BUFFER, offset=0):
        self.put(self._place(ring, at), "<HHIII", flags, region, length, offset, 0)

    def described(self, ring, at):
        """Returns (flags, region, length, offset)."""
        return struct.unpack_from("<HHII", self.memory, self._place(ring, at))

    def _place(self, ring, at):
        return self.places[ring] + DESCRIPTORS + 16 * (at % self.length)


def call(path):
    """Connects. A full accept queue is no refusal."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line.settimeout(60)
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(BlockingIOError):
            line.connect(str(path))
            return line
        assert time.monotonic() < deadline, "the switch lets nobody in"
        time.sleep(0.01)


class Client(Memory):
    """A connection to the socket of a memif port of the switch."""

    def __init__(self, path, number=0, sealed=True, size=MEMORY):
        self.line = call(path)
        self.number = number
        # MFD_ALLOW_SEALING
        file = os.memfd_create("memif", 2)
        os.ftruncate(file, size)
        if sealed:
            import fcntl

            fcntl.fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK)
        super().__init__(file, size)
        self.event = os.eventfd(0, os.EFD_NONBLOCK)
        self.received = 0

    def close(self):
        self.line.close()
        os.close(self.file)
        os.close(self.event)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def request(self, kind, body=b"", files=(), **kwargs):
        """Sends a message that requires an acknowledgement, and returns the type of the answer."""
        send_message(self.line, kind, body, files, **kwargs)
        return receive_message(self.line)[0]

    def begin(self):
        """Runs the part of the handshake before memory is shared."""
        assert receive_message(self.line)[0] == HELLO
        assert self.request(INIT, init(self.number)) == ACK

    def share(self):
        for ring in (TO_SERVER, TO_CLIENT):
            self.put(self.places[ring], "<I", COOKIE)
            for at in range(RING):
                self.descriptor(ring, at, offset=self.buffer(ring, at))
        assert self.request(ADD_REGION, struct.pack("<HQ", 0, len(self.memory)), [self.file]) == ACK

    def rings(self, **kwargs):
        for ring in (TO_SERVER, TO_CLIENT):
            assert self.request(ADD_RING, add_ring(ring, **kwargs), [self.event]) == ACK

    def connect(self):
        assert self.request(CONNECT, name("test")) == CONNECTED

    def run(self):
        """Runs the whole handshake of a correct client, and supplies receive buffers."""
        self.begin()
        self.share()
        self.rings()
        self.connect()
        self.put(RING_SIZE + FLAGS, "<H", 1)
        self.head(TO_CLIENT, RING)
        return self

    def buffer(self, ring, at):
        return BUFFERS + (ring * RING + at % RING) * BUFFER

    def send(self, frame):
        """Sends a frame, if there is room."""
        head = self.head(TO_SERVER)
        if (head - self.tail(TO_SERVER)) % 65536 >= RING:
            return
        place = self.buffer(TO_SERVER, head)
        self.memory[place : place + len(frame)] = frame
        self.descriptor(TO_SERVER, head, length=len(frame), offset=place)
        self.head(TO_SERVER, head + 1)

    def receive(self, bound):
        """Returns the next received frame, or None."""
        deadline = time.monotonic() + bound
        while self.tail(TO_CLIENT) == self.received:
            if time.monotonic() > deadline:
                return None
            time.sleep(0.002)
        _, _, length, _ = self.described(TO_CLIENT, self.received)
        place = self.buffer(TO_CLIENT, self.received)
        frame = bytes(self.memory[place : place + length])
        self.descriptor(TO_CLIENT, self.received, offset=place)
        self.received = (self.received + 1) % 65536
        self.head(TO_CLIENT, self.received + RING)
        return frame

    def reason(self, bound=60):
        """Returns the reason in the switch's DISCONNECT."""
        self.line.settimeout(bound)
        while True:
            kind, body, _ = receive_message(self.line)
            if kind == DISCONNECT:
                return body[4:100].rstrip(b"\0").decode()


class Server:
    """A socket that the switch connects to as a client."""

    def __init__(self, path):
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.settimeout(60)
        self.listener.bind(str(path))
        self.listener.listen()

    def accept(self):
        """Accepts the switch's connection; connections that it has closed meanwhile are skipped."""
        while True:
            line = self.listener.accept()[0]
            try:
                # The switch waits for HELLO; a message before it is a DISCONNECT.
                line.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except BlockingIOError:
                return Guest(line)
            except ConnectionResetError:
                pass
            line.close()


class Guest:
    """The switch, connected as a client."""

    def __init__(self, line):
        self.line, self.memory, self.files = line, None, []
        self.line.settimeout(60)

    def close(self):
        self.line.close()
        for file in self.files:
            os.close(file)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def greet(self, oldest=VERSION, newest=VERSION, regions=0, to_client=0, to_server=0, log2=LOG2):
        send_message(self.line, HELLO, name("test") + struct.pack("<HHHHHB", oldest, newest, regions, to_client, to_server, log2))

    def let_in(self):
        """Runs the whole handshake of a correct server, and returns the memory that the switch shares."""
        places = {}
        while True:
            kind, body, files = receive_message(self.line)
            self.files += files
            if kind == ADD_REGION:
                size = struct.unpack_from("<HQ", body)[1]
                self.memory = Memory(files[0], size)
            if kind == ADD_RING:
                flags, index, _, offset, log2, _ = struct.unpack_from("<HHHIBH", body)
                if index == 0:
                    places[TO_SERVER if flags & 1 else TO_CLIENT] = offset
                self.memory.length = 1 << log2
            if kind == CONNECT:
                break
            send_message(self.line, ACK)
        self.memory.places = places
        send_message(self.line, CONNECTED, name("test"))
        return self.memory

    def is_left(self, bound=60):
        """Returns true if the switch closes the connection."""
        self.line.settimeout(bound)
        with contextlib.suppress(TimeoutError):
            try:
                while True:
                    receive_message(self.line)
            except Gone:
                return True
        return False
