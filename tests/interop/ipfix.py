"""A collector of IPFIX, written after RFC 7011 alone: templates, records, and sequence numbers."""

import socket
import struct
import threading

from namespaces import SO_RCVBUFFORCE, entered

# Elements by IANA's number: the names that tests use, and the kind of their values.
ELEMENTS = {
    1: ("octets", int), 2: ("packets", int), 4: ("protocol", int), 5: ("tos", int), 6: ("tcp_flags", int), 7: ("sport", int),
    8: ("source", socket.inet_ntoa), 10: ("input", int), 11: ("dport", int), 12: ("destination", socket.inet_ntoa),
    14: ("output", int), 27: ("source", bytes.hex), 28: ("destination", bytes.hex), 31: ("label", int), 32: ("icmp", int),
    40: ("exported_octets", int), 41: ("exported_messages", int), 42: ("exported_records", int), 56: ("from_mac", bytes.hex),
    58: ("vlan", int), 59: ("post_vlan", int), 60: ("version", int), 61: ("direction", int), 80: ("to_mac", bytes.hex),
    82: ("name", bytes.decode), 83: ("description", bytes.decode), 89: ("status", int), 136: ("reason", int), 138: ("point", int),
    139: ("icmp", int), 149: ("domain", int), 152: ("start_ms", int), 153: ("end_ms", int), 166: ("not_sent", int), 192: ("ttl", int),
    244: ("priority", int), 256: ("type", int), 302: ("selector", int), 304: ("algorithm", int), 305: ("interval", int),
    306: ("space", int), 311: ("probability", lambda value: struct.unpack("!d", value)[0]), 312: ("size", int),
    315: ("frame", bytes), 323: ("time_ms", int), 352: ("layer2_octets", int),
}


class Session:
    """One transport session: what its messages said."""

    def __init__(self):
        self.templates, self.records, self.options, self.headers = {}, [], [], []
        self.expected = {}
        self.gaps = 0

    def message(self, data):
        """Reads a message."""
        version, length, exported, sequence, domain = struct.unpack_from("!HHIII", data)
        assert (version, length) == (10, len(data)), data[:16]
        self.headers.append((exported, sequence, domain))
        if sequence != self.expected.setdefault(domain, 0):
            self.gaps += 1
        at, count = 16, 0
        while at < length:
            kind, size = struct.unpack_from("!HH", data, at)
            assert size >= 4 and at + size <= length
            body, at = data[at + 4:at + size], at + size
            if kind < 256:
                self.templates_of(kind, body)
            else:
                count += self.records_of(kind, body)
        self.expected[domain] = (sequence + count) % (1 << 32)

    def templates_of(self, kind, body):
        at = 0
        while at + 4 <= len(body):
            number, count = struct.unpack_from("!HH", body, at)
            at += 4
            if kind == 3:
                at += 2
            fields = []
            for _ in range(count):
                element, size = struct.unpack_from("!HH", body, at)
                at += 4
                if element & 0x8000:
                    at += 4
                    element = None
                fields.append((element, size))
            self.templates[number] = (kind == 3, fields)

    def records_of(self, kind, body):
        is_option, fields = self.templates[kind]
        at, count = 0, 0
        # What is left and shorter than a record is padding.
        shortest = sum(1 if size == 65535 else size for _, size in fields)
        while at + shortest <= len(body):
            record = {"template": kind}
            for element, size in fields:
                if size == 65535:
                    size, at = body[at], at + 1
                    if size == 255:
                        size, at = struct.unpack_from("!H", body, at)[0], at + 2
                value, at = body[at:at + size], at + size
                if element in ELEMENTS:
                    name, read = ELEMENTS[element]
                    record[name] = int.from_bytes(value, "big") if read is int else read(value)
            (self.options if is_option else self.records).append(record)
            count += 1
        return count


class Udp(Session):
    """A collector over UDP, in a namespace if one is named."""

    def __init__(self, namespace=None):
        super().__init__()
        with entered(namespace):
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]

    def receive(self):
        """Reads the messages that have arrived."""
        while True:
            try:
                self.message(self.socket.recv(65535, socket.MSG_DONTWAIT))
            except BlockingIOError:
                return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


class Tcp:
    """A collector over TCP, which accepts one connection after another. Each has a session of its own."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.sessions, self.connections = [], []
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            session = Session()
            self.connections.append(connection)
            self.sessions.append(session)
            stream = connection.makefile("rb")
            try:
                while header := stream.read(4):
                    session.message(header + stream.read(struct.unpack("!HH", header)[1] - 4))
            except (OSError, ValueError, struct.error):
                pass

    def cut(self):
        """Closes the connection that stands."""
        self.connections[-1].shutdown(socket.SHUT_RDWR)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in self.connections:
            connection.close()
        self.thread.join(timeout=60)


def flows(records):
    """Returns the sums of the records by flow."""
    sums = {}
    for record in records:
        key = tuple(record.get(name) for name in ("from_mac", "to_mac", "type", "source", "destination", "protocol", "sport", "dport"))
        packets, octets = sums.get(key, (0, 0))
        sums[key] = (packets + record["packets"], octets + record.get("octets", 0))
    return sums
