"""Random frames for a parser: chains of headers of every kind, right and wrong, cut at any byte and changed at random."""

import struct

from nic_oracle import checksum_of

TPIDS = [0x8100, 0x8100, 0x88A8, 0x9100]
SIZE_MAX = 1500


class Frames:
    """A source of frames over a few addresses and ports, so that entries for one frame match others."""

    def __init__(self, random, few=3, deep=14):
        self.random, self.deep = random, deep
        self.macs = [random.randbytes(6) for _ in range(few)]
        self.v4 = [random.randbytes(4) for _ in range(few)]
        self.v6 = [random.randbytes(16) for _ in range(few)]
        self.ports = [random.getrandbits(16) for _ in range(few)]
        self.vids = [0, *(random.getrandbits(12) for _ in range(few))]

    def one_of(self, *pairs):
        """One of (weight, value)."""
        weights, values = zip(*pairs)
        return self.random.choices(values, weights)[0]

    def in_(self, n):
        return self.random.randrange(n) == 0

    def pick(self, values):
        return self.random.choice(values)

    def some(self, limit):
        return self.random.randbytes(self.random.randrange(limit))

    def frame(self):
        random = self.random
        data = self.stack() if self.in_(5) else self.ethernet(0)
        cut = random.randrange(9)
        if cut == 0:
            data = data[:self.pick([126, 127, 128, 129, 130])] + bytes(self.pick([0, 0, 1, 40]))
        elif cut == 1:
            data = data[:random.randrange(14, 140)]
        elif cut == 2:
            data += bytes(random.randrange(120))
        if self.in_(4):
            changed = bytearray(data)
            for _ in range(random.randrange(1, 4)):
                changed[random.randrange(min(len(changed), 128))] = random.getrandbits(8)
            data = bytes(changed)
        return data.ljust(14, b"\0")[:SIZE_MAX]

    def stack(self):
        """About as many headers as a parser takes steps, cut where it matters."""
        random, macs = self.random, self.pick(self.macs) + self.pick(self.macs)
        count = random.randrange(15, 28)
        kind = random.randrange(3)
        if kind == 0:
            labels = b"".join(struct.pack(">I", 16 << 12 | (n == count - 1) << 8) for n in range(count))
            data = macs + b"\x88\x47" + labels + self.pick([self.ipv4, self.ipv6, self.ethernet])(9)
        elif kind == 1:
            count = random.randrange(12)
            data = macs + struct.pack(">HIHBB", 0x86DD, 6 << 28, 200, 0, 9) + self.pick(self.v6) + self.pick(self.v6)
            data += b"".join(bytes([self.pick([0, 43, 60]), 0]) + bytes(6) for _ in range(count)) + bytes(40)
            return data[:self.pick([9999, 54 + 8 * count, random.randrange(54, 150)])]
        else:
            tags = b"".join(struct.pack(">HH", self.pick(TPIDS), self.pick(self.vids)) for _ in range(count))
            ethertype, rest = self.payload(12)
            data = macs + tags + struct.pack(">H", ethertype) + rest
        return data[:self.pick([9999, 9999, 128, 14 + 4 * count, random.randrange(60, 150)])]

    def ethernet(self, depth):
        ethertype, rest = self.payload(depth + 1)
        return self.pick(self.macs) + self.pick(self.macs) + struct.pack(">H", ethertype) + rest

    def payload(self, depth):
        """An EtherType, and what it announces."""
        random = self.random
        kind = "other" if depth > self.deep else self.one_of((5, "tag"), (1, "pbb"), (1, "arp"), (3, "mpls"), (1, "bridged"), (6, "ipv4"),
                                                               (5, "ipv6"), (1, "802.3"), (1, "other"))
        if kind == "tag":
            ethertype, rest = self.payload(depth + 1)
            return self.pick(TPIDS), struct.pack(">HH", random.getrandbits(4) << 12 | self.pick(self.vids), ethertype) + rest
        if kind == "pbb":
            return 0x88E7, random.randbytes(1) + self.pick(self.macs)[:3] + self.ethernet(depth)
        if kind == "arp":
            return 0x0806, self.pick([bytes.fromhex("000108000604"), random.randbytes(6)]) + random.randbytes(self.pick([21, 22, 40]))
        if kind == "mpls":
            return self.pick([0x8847, 0x8848]), self.labels(depth)
        if kind == "bridged":
            return 0x6558, self.ethernet(depth)
        if kind == "ipv4":
            return 0x0800, self.ipv4(depth)
        if kind == "ipv6":
            return 0x86DD, self.ipv6(depth)
        if kind == "802.3" and self.in_(2):
            ethertype, rest = self.payload(depth + 1)
            return random.randrange(0x600), bytes.fromhex("aaaa03000000") + struct.pack(">H", ethertype) + rest
        return random.randrange(0x600) if kind == "802.3" else random.getrandbits(16), self.some(40)

    def labels(self, depth):
        random = self.random
        count = self.one_of((5, 1), (3, 2), (2, 3), (1, random.randrange(1, 26)))
        labels = (self.pick([0, 2, 16, 17, random.getrandbits(20)]) << 12 | random.getrandbits(3) << 9 for _ in range(count))
        stack = b"".join(struct.pack(">I", label | (n == count - 1) << 8) for n, label in enumerate(labels))
        word = bytes([0, 0, 0, random.getrandbits(8)])
        kind = self.one_of((4, "ipv4"), (2, "ipv6"), (2, "ethernet"), (2, "word"), (1, "other"))
        if kind == "other":
            return stack + self.some(60)
        return stack + (word + self.ethernet(depth + 1) if kind == "word" else getattr(self, kind)(depth + 1))

    def length(self, right):
        """The right length of something, or another."""
        wrong = max(0, right + self.pick([-8, -1, 1, 8, 100, -right]))
        return min(self.one_of((10, right), (1, wrong), (1, self.random.randrange(right + 60))), 65535)

    def ipv4(self, depth):
        random = self.random
        options = bytes(4 * self.one_of((5, 0), (1, random.randrange(1, 11))))
        later = random.randrange(1, 0x2000)
        fragment = self.one_of((8, 0), (4, 0x4000), (2, 0x2000), (1, later), (1, later | 0x2000))
        protocol, rest = self.transport(depth + 1, 4)
        size = 20 + len(options)
        first = self.one_of((40, 0x40 | size // 4), (1, random.getrandbits(8)))
        header = struct.pack(">BBHHHBBH", first, self.pick([0, 0xB8, random.getrandbits(8)]), self.length(size + len(rest)),
                             random.getrandbits(16), fragment, 64, protocol, 0)
        header += self.pick(self.v4) + self.pick(self.v4) + options
        checksum = self.one_of((15, 0xFFFF ^ checksum_of(header)), (1, random.getrandbits(16)))
        return header[:10] + struct.pack(">H", checksum) + header[12:] + rest

    def ipv6(self, depth):
        random = self.random
        protocol, rest = self.transport(depth + 1, 6)
        first = self.one_of((40, 6), (1, random.getrandbits(4))) << 28 | self.pick([0, 0xB8, random.getrandbits(8)]) << 20 | random.getrandbits(20)
        return struct.pack(">IHBB", first, self.length(len(rest)), protocol, 64) + self.pick(self.v6) + self.pick(self.v6) + rest

    def port_pair(self):
        return struct.pack(">HH", self.pick(self.ports), self.pick(self.ports))

    def transport(self, depth, version):
        """A protocol, and what it announces."""
        random = self.random
        data = self.some(30)
        kind = "other" if depth > self.deep else self.one_of((8, "tcp"), (8, "udp"), (3, "ports"), (3, "icmp"), (3, "ip"), (4, "gre"),
                                                               (8, "tunnel"), (8 if version == 6 else 1, "extension"), (1, "other"))
        if kind == "tcp":
            offset = self.pick([5, 5, 6, 8, random.getrandbits(4)])
            flags = bytes([offset << 4 | random.getrandbits(4)]) + random.randbytes(7)
            return 6, self.port_pair() + random.randbytes(8) + flags + bytes(4 * max(0, offset - 5)) + data
        if kind == "udp":
            return 17, self.port_pair() + struct.pack(">HH", self.length(8 + len(data)), 0) + data
        if kind == "ports":
            return self.pick([33, 132, 136]), self.port_pair() + self.some(20)
        if kind == "icmp":
            protocol = self.pick([1, 58])
            types = [0, 8, 3, 4, 5, 11, 12] if protocol == 1 else [128, 135, 1, 2, 3, 4]
            quoted = (self.ipv4 if protocol == 1 else self.ipv6)(depth + 1)
            return protocol, bytes([self.pick(types), random.getrandbits(2)]) + random.randbytes(6) + self.pick([b"", quoted, quoted, quoted])
        if kind == "ip":
            protocol, packet = self.pick([(4, self.ipv4), (41, self.ipv6)])
            return protocol, packet(depth + 1)
        if kind == "gre":
            flags = self.pick([0, 0x2000, 0x8000, 0x3000, 0xB000, random.getrandbits(16)])
            ethertype, rest = self.payload(depth + 1)
            return 47, struct.pack(">HH", flags, ethertype) + bytes(4 * (flags & 0xB000).bit_count()) + rest
        if kind == "extension":
            this = self.pick([0, 43, 44, 50, 51, 60, 135])
            following, rest = self.transport(depth + 1, version)
            if this == 44:
                offset = random.randrange(1, 8192) << 3
                return 44, struct.pack(">BBHI", following, random.getrandbits(8), self.pick([0, 1, offset, offset | 1]), 7) + rest
            length = self.one_of((4, 0), (2, 1), (1, random.randrange(12)))
            return this, bytes([following, length]) + bytes((4 * (length + 2) if this == 51 else 8 * (length + 1)) - 2) + rest
        if kind == "tunnel":
            port, rest = self.pick([self.vxlan, self.geneve, self.gtp, lambda depth: (6635, self.labels(depth))])(depth + 1)
            return 17, struct.pack(">HHHH", self.pick(self.ports), port, min(8 + len(rest), 65535), 0) + rest
        return random.getrandbits(8), data

    def vxlan(self, depth):
        flags = self.one_of((9, 8), (1, self.random.getrandbits(8)))
        return self.pick([4789, 8472]), bytes([flags, 0, 0, 0]) + self.pick(self.macs)[:3] + b"\0" + self.ethernet(depth)

    def geneve(self, depth):
        ethertype, rest = self.payload(depth)
        options = self.pick([0, 0, 1, 5])
        first = self.one_of((9, 0), (1, self.random.getrandbits(2) << 6)) | options
        return 6081, struct.pack(">BBH", first, 0, ethertype) + self.pick(self.macs)[:3] + b"\0" + bytes(4 * options) + rest

    def gtp(self, depth):
        random = self.random
        flags = self.pick([0, 0, 1, 2, 4, 4, 7])
        rest = self.one_of((9, self.ipv4(depth)), (9, self.ipv6(depth)), (1, self.some(20)))
        first, kind = self.one_of((9, 0x30), (1, random.getrandbits(4) << 4)) | flags, self.one_of((9, 255), (1, random.getrandbits(8)))
        header = struct.pack(">BBHI", first, kind, len(rest), random.getrandbits(32))
        if flags:
            extensions = random.randrange(3) if flags & 4 else 0
            # Without the flag E, the type that is there says nothing.
            header += random.randbytes(3) + bytes([0x85 if extensions or not flags & 4 and self.in_(2) else 0])
            for left in reversed(range(extensions)):
                size = self.one_of((6, 1), (3, 2), (1, 0))
                header += bytes([size]) + random.randbytes(max(0, 4 * size - 2)) + bytes([0x85 if left else 0])
        return 2152, header + rest
