"""What a NIC says about a frame: a slow classifier, written from docs/nic-interface.md alone by one who had not read the model."""

M64 = (1 << 64) - 1
LAYER_IP, LAYER_L4, LAYER_ARP, LAYER_MPLS, LAYER_PBB, FRAGMENT_FIRST, FRAGMENT_LATER = 1, 2, 4, 8, 0x10, 0x40, 0xC0
VXLAN, GENEVE, GTP, MPLS = 1, 2, 3, 4
WINDOW, STEPS = 128, 24

# Field of the key: (lowest bit, bits).
KEY = {"eth_dst": (0, 48), "eth_type": (48, 16), "eth_src": (64, 48), "vlan_vid": (112, 13), "vlan_pcp": (125, 3), "src_high": (128, 64),
       "src_low": (192, 64), "dst_high": (256, 64), "dst_low": (320, 64), "l4_src": (384, 16), "l4_dst": (400, 16), "in_port": (416, 8),
       "layers": (424, 8), "ip_proto": (432, 8), "dscp_ecn": (440, 8), "mpls": (448, 24), "pbb_isid": (472, 24), "tcp_flags": (496, 12)}


def number(data, at, size):
    return int.from_bytes(data[at:at + size], "big")


def mix(a, b):
    product = (a & M64) * (b & M64)
    return (product >> 64) ^ (product & M64)


def checksum_of(header):
    """The one's complement sum of a header's words of 16 bits: 0xffff if its checksum is right."""
    total = sum(number(header, at, 2) for at in range(0, len(header), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


class Missing(Exception):
    """A header is not there in full."""


class Parse:
    """One walk over a frame: the key, the hash, and what a completion says."""

    def __init__(self, frame, in_port, tpids, tunnels, keys):
        self.frame, self.window = frame, frame[:WINDOW]
        self.tpids, self.tunnels, self.k = tpids, tunnels, keys
        self.at, self.end = 0, len(self.window)
        self.network = self.ends = self.kind = 0
        self.openflow = self.flow = True
        self.key = dict.fromkeys(KEY, 0)
        self.key["in_port"] = in_port
        self.l3 = self.l4 = self.inner_l3 = self.inner_l4 = 0
        self.tags = self.labels = self.steps = 0
        self.complete, self.checksum, self.version, self.ip_end = True, False, 0, None
        # What is between the outermost Ethernet header and `at` is tags.
        self.only_tags = True
        step = self.ethernet
        while step and (self.openflow or self.flow):
            if self.steps == STEPS:
                self.complete = False
                break
            self.steps += 1
            try:
                step = step()
            except Missing:
                break
        self.truncated = self.ip_end is not None and len(frame) < self.ip_end
        hashed = mix(self.ends ^ (self.kind * self.k[3] & M64) ^ self.k[4], self.network ^ self.k[5])
        self.hash, self.bucket = hashed >> 32, hashed >> 54

    def there(self, size, at=None):
        """Whether `size` bytes are there; notes that the parse is incomplete if they are beyond the window."""
        at = self.at if at is None else at
        if at + size <= self.end:
            return True
        if self.end == len(self.window) and len(self.frame) > WINDOW:
            self.complete = False
        return False

    def need(self, size):
        if not self.there(size):
            raise Missing

    def take(self, offset, size):
        return number(self.window, self.at + offset, size)

    def end_of(self, address, port):
        return mix(((address << 16) | port) ^ self.k[0], self.k[1])

    def v6(self, address):
        return mix((address >> 64) ^ self.k[2], (address & M64) ^ self.k[3]) >> 16

    def set_ends(self, a, b, port_a=0, port_b=0):
        self.addresses = a, b
        self.ends = (self.end_of(a, port_a) + self.end_of(b, port_b)) & M64

    def join(self, n):
        self.network = ((self.network << 21 | self.network >> 43) & M64) ^ n

    def close(self):
        self.openflow = self.flow = False

    # which header is next
    def by_ethertype(self, ethertype):
        if ethertype in (value for value, _ in self.tpids if value):
            return lambda: self.vlan(ethertype)
        self.only_tags = False
        if ethertype < 0x600:
            return self.ieee_802_3()
        if ethertype == 0x0806:
            if self.openflow and self.there(28) and self.window[self.at:self.at + 6] == bytes.fromhex("000108000604"):
                self.key["layers"] |= LAYER_ARP
                self.l3 = self.at
            return self.close()
        if ethertype == 0x6558:
            self.openflow = False
            return self.ethernet
        if ethertype in (0x8847, 0x8848):
            self.before_labels = self.network
            return self.label
        steps = {0x88E7: self.pbb, 0x0800: self.ipv4, 0x86DD: self.ipv6}
        return steps.get(ethertype) or self.close()

    def by_protocol(self, protocol):
        if self.version == 6 and protocol in (0, 43, 44, 51, 60):
            return lambda: self.extension(protocol)
        if protocol in (6, 17, 33, 132, 136):
            return lambda: self.ports(protocol)
        if protocol in (1, 58):
            return lambda: self.icmp(protocol)
        if protocol in (4, 41, 47):
            self.openflow = False
            return {4: self.ipv4, 41: self.ipv6, 47: self.gre}[protocol]
        return self.close()

    # headers
    def ethernet(self):
        self.need(14)
        dst, src, ethertype = self.take(0, 6), self.take(6, 6), self.take(12, 2)
        if self.openflow:
            self.key.update(eth_dst=dst, eth_src=src, eth_type=ethertype)
        if self.flow:
            self.set_ends(dst, src)
            self.kind = ethertype
        self.at += 14
        return self.by_ethertype(ethertype)

    def vlan(self, tpid):
        self.need(4)
        tci, ethertype = self.take(0, 2), self.take(2, 2)
        known = next(known for value, known in self.tpids if value == tpid)
        if self.openflow:
            if known and self.only_tags:
                if not self.key["vlan_vid"]:
                    self.key.update(vlan_vid=0x1000 | tci & 0xFFF, vlan_pcp=tci >> 13)
                self.key["eth_type"] = ethertype
            else:
                self.openflow = False
        self.join(tci & 0xFFF)
        self.kind = ethertype
        self.tags += 1
        self.at += 4
        return self.by_ethertype(ethertype)

    def ieee_802_3(self):
        if self.openflow:
            self.key["eth_type"] = 0x05FF
        self.kind = 0x05FF
        if self.there(8) and self.take(0, 6) == 0xAAAA03000000 and self.take(6, 2) >= 0x600:
            return self.snap
        return self.close()

    def snap(self):
        ethertype = self.take(6, 2)
        if self.openflow:
            self.key["eth_type"] = ethertype
        self.kind = ethertype
        self.at += 8
        return self.by_ethertype(ethertype)

    def pbb(self):
        self.need(18)
        isid, dst, src, ethertype = self.take(1, 3), self.take(4, 6), self.take(10, 6), self.take(16, 2)
        if self.openflow:
            self.key["pbb_isid"] = isid
            self.key["layers"] |= LAYER_PBB
            self.l3 = self.at
            self.openflow = False
        self.join(isid)
        self.set_ends(dst, src)
        self.kind = ethertype
        self.at += 18
        return self.by_ethertype(ethertype)

    def label(self):
        self.need(4)
        entry = self.take(0, 4)
        label, tc, bottom = entry >> 12, entry >> 9 & 7, entry >> 8 & 1
        if self.openflow:
            self.key["mpls"] = label | tc << 20 | bottom << 23
            self.key["layers"] |= LAYER_MPLS
            self.l3 = self.at
            self.openflow = False
        self.join(label)
        self.labels += 1
        self.at += 4
        if not bottom:
            return self.label
        step, skip = self.recognize()
        if step:
            self.network = self.before_labels
            self.at += skip
            return step
        if self.at > 50 and len(self.frame) > WINDOW:
            self.complete = False
        return self.close()

    def is_ipv4(self, at):
        if at + 20 > self.end or self.window[at] >> 4 != 4:
            return False
        size = 4 * (self.window[at] & 15)
        valid = size >= 20 and at + size <= self.end and number(self.window, at + 2, 2) >= size
        return valid and checksum_of(self.window[at:at + size]) == 0xFFFF

    def is_ipv6(self, at):
        return at + 40 <= self.end and self.window[at] >> 4 == 6 and self.window[at + 6] in (0, 6, 17, 43, 44, 47, 50, 58, 60, 89, 132)

    def is_ethernet(self, at):
        if at + 14 > self.end:
            return False
        ethertype = number(self.window, at + 12, 2)
        if ethertype == 0x0800:
            return self.is_ipv4(at + 14)
        if ethertype == 0x86DD:
            return self.is_ipv6(at + 14)
        return ethertype in (0x0806, 0x8100, 0x88A8, 0x9100, 0x88E7, 0x8847, 0x8848)

    def recognize(self):
        if self.is_ipv4(self.at):
            return self.ipv4, 0
        if self.is_ipv6(self.at):
            return self.ipv6, 0
        if self.is_ethernet(self.at):
            return self.ethernet, 0
        if self.at < self.end and self.window[self.at] >> 4 == 0 and self.is_ethernet(self.at + 4):
            return self.ethernet, 4
        return None, 0

    def ipv4(self):
        self.need(20)
        size, total = 4 * (self.window[self.at] & 15), self.take(2, 2)
        if self.window[self.at] >> 4 != 4 or size < 20 or total < size:
            return self.close()
        src, dst, protocol, fragment = self.take(12, 4), self.take(16, 4), self.take(9, 1), self.take(6, 2)
        there = self.there(size)
        first, later = fragment & 0x3FFF == 0x2000, fragment & 0x1FFF != 0
        if self.openflow:
            if there:
                self.key.update(src_low=src, dst_low=dst, dscp_ecn=self.take(1, 1), ip_proto=protocol)
                self.key["layers"] |= LAYER_IP | (FRAGMENT_LATER if later else FRAGMENT_FIRST if first else 0)
                self.l3, self.ip_end = self.at, self.at + total
                self.checksum = checksum_of(self.window[self.at:self.at + size]) == 0xFFFF
                self.key_version = 4
            else:
                self.openflow = False
        if self.flow:
            self.set_ends(src, dst)
            self.kind = protocol
            self.inner_l3 = self.at
            self.flow = there and not first and not later
        if later or not there:
            return self.close()
        self.version = 4
        self.payload_end = self.at + total
        self.end = min(self.end, self.payload_end)
        self.at += size
        return self.by_protocol(protocol)

    def ipv6(self):
        self.need(40)
        if self.window[self.at] >> 4 != 6:
            return self.close()
        src, dst, protocol = self.take(8, 16), self.take(24, 16), self.take(6, 1)
        self.payload_end = self.at + 40 + self.take(4, 2)
        if self.openflow:
            self.key.update(src_high=src >> 64, src_low=src & M64, dst_high=dst >> 64, dst_low=dst & M64, ip_proto=protocol,
                            dscp_ecn=self.take(0, 2) >> 4 & 0xFF)
            self.key["layers"] |= LAYER_IP
            self.l3, self.ip_end = self.at, self.payload_end
            self.key_version = 6
        if self.flow:
            self.set_ends(self.v6(src), self.v6(dst))
            self.kind = protocol
            self.inner_l3 = self.at
        self.version = 6
        self.end = min(self.end, self.payload_end)
        self.at += 40
        return self.by_protocol(protocol)

    def extension(self, this):
        self.need(8)
        following, length, fragment = self.take(0, 1), self.take(1, 1), self.take(2, 2)
        size = 8 if this == 44 else 4 * (length + 2) if this == 51 else 8 * (length + 1)
        self.need(size)
        if self.openflow:
            self.key["ip_proto"] = following
        if self.flow:
            self.kind = following
        if this == 44:
            self.flow = False
            if self.openflow and fragment >> 3:
                self.key["layers"] |= FRAGMENT_LATER
                self.openflow = False
            elif self.openflow and fragment & 1:
                self.key["layers"] |= FRAGMENT_FIRST
        self.at += size
        return self.by_protocol(following)

    def ports(self, protocol):
        src, dst = self.take(0, 2), self.take(2, 2)
        if self.openflow:
            payload = self.payload_end - self.at
            first = self.key["layers"] & FRAGMENT_LATER == FRAGMENT_FIRST
            valid = False
            if protocol == 6:
                valid = self.there(20) and 20 <= 4 * (self.take(12, 1) >> 4) <= payload
            elif protocol == 17:
                valid = self.there(8) and self.take(4, 2) >= 8 and (first or self.take(4, 2) <= payload)
            elif protocol == 132:
                valid = self.there(12)
            if valid:
                self.key.update(l4_src=src, l4_dst=dst)
                self.key["layers"] |= LAYER_L4
                self.l4 = self.at
                if protocol == 6:
                    self.key["tcp_flags"] = self.take(12, 2) & 0xFFF
            self.openflow = False
        if not self.flow:
            return None
        self.need(4)
        self.set_ends(*self.addresses, src, dst)
        self.inner_l4 = self.at
        tunnel = next((kind for port, kind in self.tunnels if kind in (VXLAN, GENEVE, GTP, MPLS) and port == dst), 0) if protocol == 17 else 0
        if not tunnel or not self.there(8):
            return self.close()
        self.at += 8
        if tunnel == MPLS:
            self.before_labels = self.network
        return {VXLAN: self.vxlan, GENEVE: self.geneve, GTP: self.gtp, MPLS: self.label}[tunnel]

    def icmp(self, protocol):
        if self.openflow:
            if (protocol, self.version) in ((1, 4), (58, 6)) and self.there(8 if protocol == 1 else 4):
                self.key.update(l4_src=self.take(0, 1), l4_dst=self.take(1, 1))
                self.key["layers"] |= LAYER_L4
                self.l4 = self.at
            self.openflow = False
        if self.flow and self.there(8) and self.take(0, 1) in ((3, 4, 5, 11, 12) if protocol == 1 else (1, 2, 3, 4)):
            self.at += 8
            return self.ipv4 if protocol == 1 else self.ipv6
        return self.close()

    def gre(self):
        self.need(4)
        flags, ethertype = self.take(0, 2), self.take(2, 2)
        if flags & 0x4007:
            return self.close()
        size = 4 + 4 * sum(1 for flag in (0x8000, 0x2000, 0x1000) if flags & flag)
        self.need(size)
        self.at += size
        return self.by_ethertype(ethertype)

    def vxlan(self):
        self.need(8)
        if not self.take(0, 1) & 8:
            return self.close()
        self.join(self.take(4, 3))
        self.at += 8
        return self.ethernet

    def geneve(self):
        self.need(8)
        if self.take(0, 1) >> 6:
            return self.close()
        vni, ethertype, size = self.take(4, 3), self.take(2, 2), 8 + 4 * (self.take(0, 1) & 0x3F)
        self.need(size)
        self.join(vni)
        self.at += size
        return self.by_ethertype(ethertype)

    def gtp(self):
        self.need(8)
        first, type_ = self.take(0, 1), self.take(1, 1)
        if first >> 4 != 3 or type_ != 255:
            return self.close()
        size = 12 if first & 7 else 8
        self.need(size)
        following = self.take(11, 1) if first & 4 else 0
        self.at += size
        return self.gtp_next(following)

    def gtp_next(self, following):
        if following:
            return self.gtp_extension
        if not self.there(1):
            return self.close()
        return {4: self.ipv4, 6: self.ipv6}.get(self.window[self.at] >> 4) or self.close()

    def gtp_extension(self):
        self.need(1)
        size = 4 * self.take(0, 1)
        if not size:
            return self.close()
        self.need(size)
        following = self.take(size - 1, 1)
        self.at += size
        return self.gtp_next(following)

    # results
    def words(self):
        packed = 0
        for name, (low, bits) in KEY.items():
            assert self.key[name] >> bits == 0, name
            packed |= self.key[name] << low
        return [packed >> 64 * w & M64 for w in range(8)]

    def kind_bits(self):
        layers = self.key["layers"]
        bits = {4: 1, 6: 2}[self.key_version] if layers & LAYER_IP else 0
        bits |= layers & (LAYER_ARP | LAYER_MPLS | LAYER_PBB) and {LAYER_ARP: 4, LAYER_MPLS: 8, LAYER_PBB: 16}[layers & 0x1C]
        return bits | {0: 0, FRAGMENT_FIRST: 0x20, FRAGMENT_LATER: 0x40}[layers & 0xC0]


class Tables:
    """The tables of a device."""

    def __init__(self, table_key, ways=4, row_bits=9):
        self.t, self.ways, self.row_bits = table_key, ways, row_bits
        self.rows, self.ternary, self.banks, self.ports = {}, {}, {}, {}
        self.buckets, self.shadow = [0] * 1024, [0] * 1024

    def copy(self):
        other = Tables(self.t, self.ways, self.row_bits)
        other.rows, other.ternary, other.banks, other.ports = dict(self.rows), dict(self.ternary), dict(self.banks), dict(self.ports)
        other.buckets, other.shadow = list(self.buckets), list(self.shadow)
        return other

    def row(self, words, way):
        """The row of a way for a masked key."""
        t = self.t
        hashed = 0
        for i in range(4):
            hashed ^= mix(words[2 * i] ^ t[2 * i], words[2 * i + 1] ^ t[2 * i + 1])
        return hashed >> 16 * way & ((1 << self.row_bits) - 1)

    def masked(self, words, port):
        """A key under the mask of a port."""
        return [word & mask for word, mask in zip(words, self.banks[self.ports[port][0]])]

    def compared(self, parse):
        """What the ternary table compares."""
        words, six = parse.words(), parse.key["eth_type"] == 0x86DD
        return [words[0], words[6], words[2 if six else 3], words[4 if six else 5]]

    def look_up(self, parse):
        """The action of a frame as (mark, queue or None, drop, class), or None."""
        words, compared = parse.words(), self.compared(parse)
        for index in sorted(self.ternary):
            value, mask, action = self.ternary[index]
            if not any((c ^ v) & m for c, v, m in zip(compared, value, mask)):
                return action
        bank, form = self.ports.get(parse.key["in_port"], (0, 0))
        if form and parse.complete and not parse.truncated:
            key = self.masked(words, parse.key["in_port"])
            for way in range(self.ways):
                found = self.rows.get((way, self.row(key, way)))
                if found and found[0] == form and found[1] == key:
                    return found[2]
        return None
