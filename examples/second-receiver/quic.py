"""The streams of a QUIC connection in a capture, with a key log (RFC 9000, RFC 9001, draft-ietf-tls-keylogfile, and
draft-ietf-quic-ack-frequency, since a sender asks for acknowledgements when its last packets were lost).

Only what a passive reader needs: 1-RTT packets are opened, STREAM frames are put in order, all other frames are skipped.
"""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, Hash
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from protocol import Reader


def expand_label(secret, label, context, size):
    """HKDF-Expand-Label (RFC 8446, section 7.1). A secret of 48 bytes is one of SHA-384."""
    hash_function = SHA384() if len(secret) == 48 else SHA256()
    label = b"tls13 " + label
    info = size.to_bytes(2, "big") + bytes([len(label)]) + label + bytes([len(context)]) + context
    return HKDFExpand(hash_function, size, info).derive(secret)


def export(secret, label, size):
    """The TLS exporter without a context (RFC 8446, section 7.5)."""
    def digest_of_nothing():
        return Hash(SHA384() if len(secret) == 48 else SHA256()).finalize()

    derived = expand_label(secret, label, digest_of_nothing(), len(secret))
    return expand_label(derived, b"exporter", digest_of_nothing(), size)


class Keys:
    """The packet protection of one direction."""

    def __init__(self, secret, cipher):
        size = {"aes128": 16, "aes256": 32, "chacha": 32}[cipher]
        self.cipher = cipher
        self.aead = (ChaCha20Poly1305 if cipher == "chacha" else AESGCM)(expand_label(secret, b"quic key", b"", size))
        self.iv = expand_label(secret, b"quic iv", b"", 12)
        self.header = expand_label(secret, b"quic hp", b"", size)

    def mask(self, sample):
        if self.cipher == "chacha":
            return Cipher(algorithms.ChaCha20(self.header, sample), None).encryptor().update(b"\0" * 5)
        return Cipher(algorithms.AES(self.header), modes.ECB()).encryptor().update(sample)[:5]

    def open(self, packet, id_size, largest):
        """Returns number and frames of a short-header packet; `None` if it is not protected by these keys."""
        start = 1 + id_size
        if len(packet) < start + 20:
            return None
        mask = self.mask(packet[start + 4 : start + 20])
        first = packet[0] ^ (mask[0] & 0x1F)
        length = (first & 3) + 1
        low = bytes(a ^ b for a, b in zip(packet[start : start + length], mask[1:]))
        window = 1 << 8 * length
        number = (largest + 1 & ~(window - 1)) + int.from_bytes(low, "big")
        number = min((n for n in (number - window, number, number + window) if n >= 0), key=lambda n: abs(n - largest - 1))
        nonce = bytes(a ^ b for a, b in zip(self.iv, number.to_bytes(12, "big")))
        try:
            return number, self.aead.decrypt(nonce, packet[start + length :], bytes([first]) + packet[1:start] + low)
        except InvalidTag:
            return None


# Frames that consist of numbers only: RESET_STREAM, STOP_SENDING, MAX_*, *_BLOCKED, RETIRE_CONNECTION_ID and ACK_FREQUENCY.
NUMBERS = {0x04: 3, 0x05: 2, 0x11: 2, 0x15: 2, 0xAF: 4} | dict.fromkeys((0x10, 0x12, 0x13, 0x14, 0x16, 0x17, 0x19), 1)


def streams_in(frames):
    """Yields stream number, offset and bytes of each STREAM frame."""
    reader = Reader(frames)
    while reader.at < len(frames):
        kind = reader.varint()
        if kind in (0x00, 0x01, 0x1E, 0x1F):  # PADDING, PING, HANDSHAKE_DONE, IMMEDIATE_ACK
            continue
        if kind in (0x02, 0x03):  # ACK
            reader.varint(), reader.varint()
            count = reader.varint()
            for _ in range(1 + 2 * count + (3 if kind == 0x03 else 0)):
                reader.varint()
        elif kind in (0x06, 0x07):  # CRYPTO, NEW_TOKEN
            if kind == 0x06:
                reader.varint()
            reader.take(reader.varint())
        elif 0x08 <= kind <= 0x0F:  # STREAM
            stream = reader.varint()
            offset = reader.varint() if kind & 4 else 0
            yield stream, offset, reader.take(reader.varint() if kind & 2 else len(frames) - reader.at)
        elif kind == 0x18:  # NEW_CONNECTION_ID
            reader.varint(), reader.varint()
            reader.take(reader.take(1)[0] + 16)
        elif kind in (0x1A, 0x1B):  # PATH_CHALLENGE, PATH_RESPONSE
            reader.take(8)
        elif kind in (0x1C, 0x1D):  # CONNECTION_CLOSE
            reader.varint()
            if kind == 0x1C:
                reader.varint()
            reader.take(reader.varint())
        elif kind in NUMBERS:
            for _ in range(NUMBERS[kind]):
                reader.varint()
        else:
            raise ValueError(f"a frame of the unknown type {kind:#x}")


class Connection:
    """One connection, read passively. Direction 0 is from the one who dials."""

    def __init__(self, client_secret, server_secret, exporter_secret):
        self.exporter_secret = exporter_secret
        ciphers = ["aes256"] if len(client_secret) == 48 else ["aes128", "chacha"]
        self.keys = [[Keys(secret, cipher) for cipher in ciphers] for secret in (client_secret, server_secret)]
        self.id_sizes, self.largest, self.parts = [None, None], [-1, -1], {}

    def take(self, direction, datagram):
        """Takes a datagram that is no data packet; returns true if it has a packet of this connection."""
        while datagram and datagram[0] & 0x80:
            reader = Reader(datagram)
            reader.take(5)
            reader.take(reader.take(1)[0])
            # The peer's packets will carry this number in front.
            self.id_sizes[1 - direction] = len(reader.take(reader.take(1)[0]))
            kind = datagram[0] >> 4 & 3
            if kind == 3:  # Retry
                return False
            if kind == 0:  # Initial
                reader.take(reader.varint())
            reader.take(reader.varint())
            datagram = datagram[reader.at :]
        size = self.id_sizes[direction]
        if not datagram or size is None:
            return False
        for keys in self.keys[direction]:
            if opened := keys.open(datagram, size, self.largest[direction]):
                number, frames = opened
                self.largest[direction] = max(self.largest[direction], number)
                for stream, offset, data in streams_in(frames):
                    self.parts.setdefault((direction, stream), {})[offset, len(data)] = data
                return True
        return False

    def stream(self, direction, number):
        """Returns the bytes of a stream up to the first gap."""
        data = b""
        for (offset, _), part in sorted(self.parts.get((direction, number), {}).items()):
            if offset > len(data):
                break
            data += part[len(data) - offset :]
        return data

    def streams(self, direction):
        """Returns the streams on which one side wrote."""
        return [self.stream(direction, number) for of, number in sorted(self.parts) if of == direction]
