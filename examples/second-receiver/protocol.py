"""Packets, messages, manifests and digests of the transport, from docs/transport-protocol.md alone."""

import hmac
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

import blake3

GROUP = 16 << 10
MESSAGE_NAMES = {0: "HELLO", 1: "OFFER", 2: "MANIFEST", 3: "MANIFEST END", 7: "KEEP", 8: "ACCEPT", 9: "VALUE", 17: "COMPLETE"}


def siphash(key, data):
    """Returns SipHash-2-4 as 8 bytes in little-endian order."""
    mask = (1 << 64) - 1
    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rotate(word, by):
        return ((word << by) | (word >> (64 - by))) & mask

    def rounds(count):
        for _ in range(count):
            v[0] = (v[0] + v[1]) & mask
            v[1] = rotate(v[1], 13) ^ v[0]
            v[0] = rotate(v[0], 32)
            v[2] = (v[2] + v[3]) & mask
            v[3] = rotate(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & mask
            v[3] = rotate(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & mask
            v[1] = rotate(v[1], 17) ^ v[2]
            v[2] = rotate(v[2], 32)

    padded = data + b"\0" * (7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return struct.pack("<Q", v[0] ^ v[1] ^ v[2] ^ v[3])


class Content:
    """The AEAD of a content secret, with a subkey for each 2^20 seals."""

    def __init__(self, secret, aead):
        self.secret, self.aead, self.subkeys = secret, aead, {}

    def expand(self, label, index, size):
        return HKDFExpand(SHA256(), size, label + struct.pack(">Q", index)).derive(self.secret)

    def subkey(self, counter):
        index = counter >> 20
        if index not in self.subkeys:
            kind, size = ((AESGCM, 16), (ChaCha20Poly1305, 32))[self.aead]
            key = kind(self.expand(b"millrace subkey", index, size))
            self.subkeys[index] = key, self.expand(b"millrace iv", index, 12)
        key, iv = self.subkeys[index]
        return key, bytes(a ^ b for a, b in zip(iv, counter.to_bytes(12, "big")))

    def seal(self, counter, extent, offset, payload):
        """Returns the shared part of a DATA packet."""
        key, nonce = self.subkey(counter)
        aad = counter.to_bytes(5, "big")
        return aad + key.encrypt(nonce, (extent << 20 | offset).to_bytes(7, "big") + payload, aad)

    def open(self, shared):
        """Returns extent, offset and payload of a shared part; `None` if its tag is wrong."""
        key, nonce = self.subkey(int.from_bytes(shared[:5], "big"))
        try:
            plain = key.decrypt(nonce, shared[5:], shared[:5])
        except InvalidTag:
            return None
        address = int.from_bytes(plain[:7], "big")
        return address >> 20, address & 0xFFFFF, plain[7:]


def head(packet_type, connection, number, key, authenticated):
    """Returns the head of a packet."""
    first = struct.pack(">BI", packet_type << 1, connection) + (number & 0xFFFFFF).to_bytes(3, "big")
    return first + siphash(key, first + authenticated)


class DataPackets:
    """Takes the DATA packets of one connection; counts what it drops, by name."""

    def __init__(self, connection, key, content):
        self.connection, self.key, self.content = connection, key, content
        self.next, self.accepted = 0, set()
        self.dropped = {"mac": 0, "replay": 0, "forged": 0}

    def take(self, datagram):
        """Returns extent, offset and payload; `None` if the datagram is dropped or another connection's."""
        if len(datagram) < 45 or datagram[0] != 0 or int.from_bytes(datagram[1:5], "big") != self.connection:
            return None
        if not hmac.compare_digest(siphash(self.key, datagram[:8] + datagram[16:21] + datagram[-16:]), datagram[8:16]):
            self.dropped["mac"] += 1
            return None
        number = self.expand(int.from_bytes(datagram[5:8], "big"))
        if number in self.accepted:
            self.dropped["replay"] += 1
            return None
        opened = self.content.open(datagram[16:])
        if opened is None:
            self.dropped["forged"] += 1
            return None
        self.accepted.add(number)
        self.next = max(self.next, number + 1)
        return opened

    def expand(self, low):
        """Returns the number with these 24 bits that is nearest to the next one (RFC 9000, appendix A.3)."""
        candidates = [(self.next & ~0xFFFFFF) + low + step for step in (-(1 << 24), 0, 1 << 24)]
        return min((number for number in candidates if number >= 0), key=lambda number: abs(number - self.next))


class Reader:
    """Reads fields of a message or of a manifest."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        if self.at + size > len(self.data):
            raise ValueError(f"{size} bytes are missing")
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self):
        """Returns a variable-length integer (RFC 9000, section 16)."""
        first = self.take(1)[0]
        return int.from_bytes(bytes([first & 0x3F]) + self.take((1 << (first >> 6)) - 1), "big")

    def leb128(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    def signed(self):
        value = self.leb128()
        return value >> 1 ^ -(value & 1)

    def blob(self):
        return self.take(self.leb128())

    def ranges(self):
        end, ranges = 0, []
        for _ in range(self.varint()):
            start = end + self.varint()
            end = start + self.varint()
            ranges.append(range(start, end))
        return ranges


def messages(stream):
    """Yields the messages of a stream, each as type and body; the length in front of a message counts its type."""
    reader = Reader(stream)
    while reader.at < len(stream):
        size = reader.varint()
        if size == 0:
            raise ValueError("a message without a type")
        body = reader.take(size)
        yield body[0], Reader(body[1:])


class Manifest:
    """A decoded manifest: files by number with path, size, data segments and address."""

    def __init__(self, data):
        reader = Reader(data)
        if reader.take(5) != b"MRFS\x01":
            raise ValueError("no manifest of version 1")
        flags = reader.take(1)[0]
        self.extent_size = 16 << 20 if flags & 1 else 1 << 20
        # Directories in order; the values have no meaning.
        self.directories, self.files, self.links, path, address = {}, [], [], b"", 0
        while kind := reader.take(1)[0]:
            shared = reader.leb128()
            path = self.checked(path, path[:shared] + reader.blob())
            if kind == 4:
                self.links.append((path, reader.leb128()))
                continue
            reader.leb128(), reader.signed(), reader.leb128()
            if flags & 2:
                reader.leb128(), reader.leb128()
                for _ in range(reader.leb128()):
                    reader.blob(), reader.blob()
            if kind == 1:
                self.directories[path] = None
            elif kind == 3:
                self.links.append((path, reader.blob()))
            else:
                address = self.file(reader, path, address)
        reader.leb128()
        self.digest = reader.take(32)
        if blake3.digest(data[: reader.at - 32]) != self.digest:
            raise ValueError("the digest of the manifest is wrong")
        self.bytes = address

    def checked(self, last, path):
        """Returns the path of an entry, if it is valid and comes after `last` and its directory: no path leads elsewhere."""
        names = path.split(b"/")
        if len(path) > 4_095 or any(
            not 1 <= len(name) <= 255 or name in (b".", b"..") or b"\0" in name or name.startswith(b".millrace-") for name in names
        ):
            raise ValueError(f"the manifest has the path {path!r}")
        if last and names <= last.split(b"/"):
            raise ValueError(f"the manifest has {path!r} after {last!r}")
        if len(names) > 1 and b"/".join(names[:-1]) not in self.directories:
            raise ValueError(f"the manifest has {path!r} without its directory")
        return path

    def file(self, reader, path, address):
        """Reads a file's entry; returns the address after its data."""
        size = reader.leb128()
        reader.signed(), reader.leb128()
        count, end, segments = reader.leb128(), 0, []
        for _ in range(count - 1):
            start = end + reader.leb128()
            end = start + reader.leb128()
            segments.append((start, end - start))
        if count == 0 and size:
            segments = [(0, size)]
        data = sum(length for _, length in segments)
        if data >= 64 * self.extent_size:
            address = -(-address // self.extent_size) * self.extent_size
        self.files.append((path, size, segments, address))
        return address + data

    def extents(self):
        return -(-self.bytes // self.extent_size)

    def hash_offset(self, extent):
        """Returns where the input of the extent's subtree begins."""
        start = extent * self.extent_size
        end = min(start + self.extent_size, self.bytes)
        for _, _, segments, address in self.files:
            behind = address + sum(length for _, length in segments)
            if address <= start and end <= behind and address % self.extent_size == 0:
                return start - address
        return 0

    def value(self, extent, data):
        """Returns the value of an extent."""
        return blake3.chaining_value(data, self.hash_offset(extent))

    def root(self, values):
        """Returns the root over the values of all extents."""
        return blake3.derive_key("millrace 2026 fileset root of a set", self.digest + b"".join(values))
