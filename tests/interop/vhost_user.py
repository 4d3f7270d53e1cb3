"""A minimal virtio-net driver over vhost-user that can send any message and write any value: what a compromised guest could
put into the memory that it shares with the switch (virtio 1.1, and QEMU, "Vhost-user Protocol").

One memory file holds two rings, with descriptors, available and used entries, and the buffers. A `Packed` driver has one
descriptor area for each ring; flags in the descriptors show their owner.
"""

import contextlib
import mmap
import os
import socket
import struct
import time

GET_FEATURES, SET_FEATURES, SET_OWNER, SET_MEM_TABLE = 1, 2, 3, 5
SET_VRING_NUM, SET_VRING_ADDR, SET_VRING_BASE, GET_VRING_BASE = 8, 9, 10, 11
SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ENABLE = 12, 13, 18
VERSION, REPLY = 1, 4
VERSION_1, PACKED = 1 << 32, 1 << 34
# Feature bits: the other side may complete checksums, and segment TCP, of sent and of received packets.
CSUM, HOST_TSO4, HOST_TSO6 = 1 << 0, 1 << 11, 1 << 12
GUEST_CSUM, GUEST_TSO4, GUEST_TSO6 = 1 << 1, 1 << 7, 1 << 8
OFFLOADS = CSUM | HOST_TSO4 | HOST_TSO6 | GUEST_CSUM | GUEST_TSO4 | GUEST_TSO6
NEXT, WRITE, INDIRECT = 1, 2, 4
RECEIVE, TRANSMIT = 0, 1

RING = 256
MEMORY = 2 << 20
BUFFER = 2048
HEADER = 12
# The address of the driver's memory for the guest, and for its process.
GUEST, USER = 0x10_0000, 0x7F00_0000_0000
DESC, AVAIL, USED, RING_SIZE = 0x0, 0x1000, 0x2000, 0x4000
BUFFERS = 2 * RING_SIZE


class Gone(Exception):
    """The switch has closed the connection."""


class Driver:
    """A connection to the socket of a vhost-user port."""

    def __init__(self, path, memory=MEMORY, buffer=BUFFER, features=VERSION_1):
        self.buffer, self.features = buffer, features
        memory = max(memory, BUFFERS + 2 * RING * buffer)
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.settimeout(60)
        self.stream.connect(str(path))
        self.fd = os.memfd_create("guest")
        os.ftruncate(self.fd, memory)
        self.memory = mmap.mmap(self.fd, memory)
        # Indices are written in one store: `pack_into` writes zeros first.
        self.halves = memoryview(self.memory).cast("H")
        self.events = []
        self.offered = [0, 0]
        self.seen = [0, 0]
        # Header of the frame that was received last.
        self.header = b""

    def close(self):
        self.stream.close()
        os.close(self.fd)
        for event in self.events:
            os.close(event)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # Messages

    def send_message(self, request, payload=b"", fds=(), size=None):
        """Sends a message."""
        header = struct.pack("<III", request, VERSION, len(payload) if size is None else size)
        try:
            socket.send_fds(self.stream, [header + payload], list(fds))
        except (BrokenPipeError, ConnectionResetError) as gone:
            raise Gone from gone

    def ask(self, request, payload=b""):
        """Sends a message, and returns the payload of the reply."""
        self.send_message(request, payload)
        head = self._read(12)
        return self._read(struct.unpack("<III", head)[2])

    def _read(self, size):
        data = b""
        while len(data) < size:
            try:
                part = self.stream.recv(size - len(data))
            except ConnectionResetError as gone:
                raise Gone from gone
            if not part:
                raise Gone
            data += part
        return data

    def begin(self):
        """Runs the part of the handshake before memory is shared."""
        self.send_message(SET_OWNER)
        offered = struct.unpack("<Q", self.ask(GET_FEATURES))[0]
        self.send_message(SET_FEATURES, struct.pack("<Q", self.features & offered))
        return offered

    def share(self, regions=None, fds=None):
        """Sends the memory table: (guest address, size, user address, offset in the file) of each region."""
        regions = [(GUEST, len(self.memory), USER, 0)] if regions is None else regions
        table = b"".join(struct.pack("<QQQQ", *region) for region in regions)
        fds = [self.fd] * len(regions) if fds is None else fds
        self.send_message(SET_MEM_TABLE, struct.pack("<II", len(regions), 0) + table, fds)

    def ring(self, number, length=RING, base=0, addresses=None):
        """Configures a ring, and starts it."""
        at = USER + number * RING_SIZE
        desc, used, avail = addresses or (at + DESC, at + USED, at + AVAIL)
        self.send_message(SET_VRING_NUM, struct.pack("<II", number, length))
        self.send_message(SET_VRING_BASE, struct.pack("<II", number, base))
        self.send_message(SET_VRING_ADDR, struct.pack("<IIQQQQ", number, 0, desc, used, avail, 0))
        for request in (SET_VRING_CALL, SET_VRING_KICK):
            self.events.append(os.eventfd(0))
            self.send_message(request, struct.pack("<Q", number), self.events[-1:])

    def run(self):
        """Runs the whole handshake of a correct driver, and supplies receive buffers."""
        self.begin()
        self.share()
        for number in (RECEIVE, TRANSMIT):
            self.ring(number)
        for _ in range(RING // 2):
            self.offer_buffer()
        return self

    # Rings

    def put(self, offset, *values, form):
        struct.pack_into(form, self.memory, offset, *values)

    def descriptor(self, number, at, address, size, flags=0, following=0):
        self.put(number * RING_SIZE + DESC + 16 * at, address, size, flags, following, form="<QIHH")

    def offer(self, number, at, ahead=1):
        """Makes the descriptor chain that starts at `at` available, and advances the index by `ahead`."""
        ring = number * RING_SIZE + AVAIL
        self.put(ring + 4 + 2 * (self.offered[number] % RING), at, form="<H")
        self.offered[number] = (self.offered[number] + ahead) % 65536
        self.halves[(ring + 2) // 2] = self.offered[number]

    def used(self, number):
        return struct.unpack_from("<H", self.memory, number * RING_SIZE + USED + 2)[0]

    def buffer_offset(self, number, at):
        """Returns the offset of a buffer in the memory."""
        return BUFFERS + (number * RING + at) * self.buffer

    def offer_buffer(self):
        at = self.offered[RECEIVE] % RING
        self.descriptor(RECEIVE, at, GUEST + self.buffer_offset(RECEIVE, at), self.buffer, WRITE)
        self.offer(RECEIVE, at)

    def has_room(self, number):
        return (self.offered[number] - self.used(number)) % 65536 < RING

    def send(self, frame, header=bytes(HEADER)):
        """Sends as a correct driver does: only if there is room."""
        if not self.has_room(TRANSMIT):
            return
        at = self.offered[TRANSMIT] % RING
        offset = self.buffer_offset(TRANSMIT, at)
        self.memory[offset : offset + HEADER + len(frame)] = header + frame
        self.descriptor(TRANSMIT, at, GUEST + offset, HEADER + len(frame))
        self.offer(TRANSMIT, at)

    def receive(self, bound):
        """Returns the next received frame, or None."""
        deadline = time.monotonic() + bound
        while self.used(RECEIVE) == self.seen[RECEIVE]:
            if time.monotonic() > deadline:
                return None
            time.sleep(0.002)
        ring = RECEIVE * RING_SIZE + USED + 4
        at, size = struct.unpack_from("<II", self.memory, ring + 8 * (self.seen[RECEIVE] % RING))
        self.seen[RECEIVE] = (self.seen[RECEIVE] + 1) % 65536
        offset = self.buffer_offset(RECEIVE, at)
        self.header = bytes(self.memory[offset : offset + HEADER])
        frame = bytes(self.memory[offset + HEADER : offset + size])
        self.offer_buffer()
        return frame

    def is_gone(self, bound=60):
        """Returns true if the switch closes the connection."""
        self.stream.settimeout(bound)
        with contextlib.suppress(ConnectionResetError, TimeoutError):
            while self.stream.recv(4096):
                pass
            return True
        return False


# Flags of a packed descriptor: available and used, which are compared with the wrap counter of the writer.
AVAILABLE, IS_USED = 1 << 7, 1 << 15


class Packed(Driver):
    """The same with packed rings. Descriptors are stored until their chain is made available."""

    def __init__(self, path, features=VERSION_1, **kwargs):
        super().__init__(path, features=features | PACKED, **kwargs)
        self.links = [{}, {}]
        # Descriptor counters, over two wraps.
        self.placed = [0, 0]

    def ring(self, number, length=RING, base=0x8000_8000, addresses=None):
        super().ring(number, length, base, addresses)

    def descriptor(self, number, at, address, size, flags=0, following=0):
        self.links[number][at] = (address, size, flags, following)

    def raw(self, number, slot, address, size, name, flags):
        self.put(number * RING_SIZE + DESC + 16 * slot, address, size, name, flags, form="<QIHH")

    def mine(self, number, count=0):
        """Returns the flags of a descriptor that is made available, `count` positions after the next one."""
        return IS_USED if (self.placed[number] + count) % (2 * RING) >= RING else AVAILABLE

    def offer(self, number, at, ahead=1):
        chain, name = [], at
        while len(chain) < RING:
            address, size, flags, at = self.links[number].get(at, (0, 0, 0, 0))
            chain.append((address, size, flags))
            if not flags & NEXT:
                break
        for count, (address, size, flags) in reversed(list(enumerate(chain))):
            slot = (self.placed[number] + count) % RING
            self.raw(number, slot, address, size, name % 65536, flags | self.mine(number, count))
        self.placed[number] = (self.placed[number] + len(chain)) % (2 * RING)
        self.offered[number] += 1

    def has_room(self, number):
        """Returns true if the next descriptor was used, or there was none."""
        at = number * RING_SIZE + DESC + 16 * (self.placed[number] % RING) + 14
        flags = struct.unpack_from("<H", self.memory, at)[0]
        return bool(flags & AVAILABLE) == bool(flags & IS_USED)

    def receive(self, bound):
        deadline = time.monotonic() + bound
        at = self.seen[RECEIVE] % RING
        used = AVAILABLE | IS_USED if self.seen[RECEIVE] < RING else 0
        ring = RECEIVE * RING_SIZE + DESC + 16 * at
        while struct.unpack_from("<H", self.memory, ring + 14)[0] & (AVAILABLE | IS_USED) != used:
            if time.monotonic() > deadline:
                return None
            time.sleep(0.002)
        size, name = struct.unpack_from("<IH", self.memory, ring + 8)
        self.seen[RECEIVE] = (self.seen[RECEIVE] + 1) % (2 * RING)
        offset = self.buffer_offset(RECEIVE, name)
        self.header = bytes(self.memory[offset : offset + HEADER])
        frame = bytes(self.memory[offset + HEADER : offset + size])
        self.offer_buffer()
        return frame
