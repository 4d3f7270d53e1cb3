#!/usr/bin/env python3
"""Makes the golden vectors of docs/transport-protocol.md with another implementation of the primitives (pyca/cryptography).

Run it in this folder; the Rust tests compare their own output with the files.
"""

import struct

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand


def rotl(x, b):
    return ((x << b) | (x >> (64 - b))) & 0xFFFFFFFFFFFFFFFF


def siphash24(key, data):
    """SipHash-2-4 as in the paper of Aumasson and Bernstein (2012)."""
    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    mask = 0xFFFFFFFFFFFFFFFF

    def rounds(n):
        for _ in range(n):
            v[0] = (v[0] + v[1]) & mask
            v[1] = rotl(v[1], 13) ^ v[0]
            v[0] = rotl(v[0], 32)
            v[2] = (v[2] + v[3]) & mask
            v[3] = rotl(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & mask
            v[3] = rotl(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & mask
            v[1] = rotl(v[1], 17) ^ v[2]
            v[2] = rotl(v[2], 32)

    end = len(data) - len(data) % 8
    for at in range(0, end, 8):
        (word,) = struct.unpack("<Q", data[at : at + 8])
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    word = int.from_bytes(data[end:], "little") | (len(data) & 0xFF) << 56
    v[3] ^= word
    rounds(2)
    v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return struct.pack("<Q", v[0] ^ v[1] ^ v[2] ^ v[3])


SECRET = bytes(range(32))
PAIRWISE = bytes(range(100, 116))
COUNTER = 0x100001
ADDRESS = 3 << 20 | 5  # extent 3, offset 5
CONNECTION, NUMBER = 0x01020304, 0xABCDEF


def expand(label, length):
    info = label + struct.pack(">Q", COUNTER >> 20)
    return HKDFExpand(hashes.SHA256(), length, info).derive(SECRET)


counter = COUNTER.to_bytes(5, "big")
iv = expand(b"millrace iv", 12)
nonce = bytes(a ^ b for a, b in zip(iv, COUNTER.to_bytes(12, "big"), strict=True))
plain = ADDRESS.to_bytes(7, "big") + b"millrace"
sealed = AESGCM(expand(b"millrace subkey", 16)).encrypt(nonce, plain, counter)
shared = counter + sealed
clear = b"\x00" + CONNECTION.to_bytes(4, "big") + NUMBER.to_bytes(3, "big")
head = clear + siphash24(PAIRWISE, clear + counter + shared[-16:])

with open("shared_part.hex", "w") as file:
    file.write(sealed.hex() + "\n")
with open("data_packet.hex", "w") as file:
    file.write((head + shared).hex() + "\n")
