#!/usr/bin/env python3
"""Makes the vectors of docs/transport-protocol.md for sets of files, with a BLAKE3 of its own (after the paper, section 2)."""

import pathlib
import struct

IV = [0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19]
ORDER = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8]
CHUNK_START, CHUNK_END, PARENT, ROOT, CONTEXT, MATERIAL = 1, 2, 4, 8, 32, 64
MASK = 0xFFFFFFFF


def compress(chain, words, counter, size, flags):
    state = chain + IV[:4] + [counter & MASK, counter >> 32, size, flags]

    def mix(a, b, c, d, x, y):
        for add, right, left in ((x, 16, 12), (y, 8, 7)):
            state[a] = (state[a] + state[b] + add) & MASK
            state[d] ^= state[a]
            state[d] = (state[d] >> right | state[d] << (32 - right)) & MASK
            state[c] = (state[c] + state[d]) & MASK
            state[b] ^= state[c]
            state[b] = (state[b] >> left | state[b] << (32 - left)) & MASK

    for turn in range(7):
        for column in range(4):
            mix(column, 4 + column, 8 + column, 12 + column, words[2 * column], words[2 * column + 1])
        for at, (b, c, d) in enumerate(((5, 10, 15), (6, 11, 12), (7, 8, 13), (4, 9, 14))):
            mix(at, b, c, d, words[8 + 2 * at], words[9 + 2 * at])
        words = [words[index] for index in ORDER]
    return [state[at] ^ state[at + 8] for at in range(8)]


def words_of(block):
    return list(struct.unpack("<16I", block.ljust(64, b"\0")))


def value_of_chunk(chunk, number, key, flags, root):
    chain = key
    blocks = [chunk[at : at + 64] for at in range(0, len(chunk), 64)] or [b""]
    for at, block in enumerate(blocks):
        last = at == len(blocks) - 1
        bits = flags | (CHUNK_START if at == 0 else 0) | (CHUNK_END if last else 0) | (ROOT if last and root else 0)
        chain = compress(chain, words_of(block), number, len(block), bits)
    return chain


def tree(data, offset=0, key=None, flags=0, root=True):
    """Returns the value of a subtree whose input begins at an offset; `root`: of the whole input."""
    key = key or IV
    if len(data) <= 1024:
        return value_of_chunk(data, offset // 1024, key, flags, root)
    left = 1024
    while left * 2 < len(data):
        left *= 2
    pair = tree(data[:left], offset, key, flags, False) + tree(data[left:], offset + left, key, flags, False)
    return compress(key, pair, 0, 64, flags | PARENT | (ROOT if root else 0))


def raw(words):
    return struct.pack("<8I", *words)


def derive(context, data):
    return raw(tree(data, key=tree(context, flags=CONTEXT), flags=MATERIAL))


def number(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def signed(value):
    return number((value << 1) ^ (value >> 63))


def text(value):
    return number(len(value)) + value


def time(seconds, nanoseconds):
    return signed(seconds) + number(nanoseconds)


def manifest():
    out = b"MRFS\x01" + b"\0"
    out += bytes([1]) + number(0) + text(b"d") + number(0o755) + time(1700000000, 0)
    out += bytes([2]) + number(1) + text(b"/a") + number(0o644) + time(1700000000, 5)
    out += number(20000) + time(1700000001, 0) + number(0)
    out += bytes([3]) + number(0) + text(b"l") + number(0o777) + time(1700000000, 0) + text(b"d/a")
    out += bytes([0]) + number(3)
    return out + raw(tree(out))


def main():
    assert raw(tree(b"")).hex().startswith("af1349b9f5f9a1a6a0404dea36dcc949")
    content = bytes(at * 7 % 251 for at in range(20000))
    groups = [raw(tree(content[:16384], 0, root=False)), raw(tree(content[16384:], 16384, root=False))]
    extent = raw(tree(content, 0, root=False))
    encoded = manifest()
    lines = {
        "manifest": encoded,
        "group 0": groups[0],
        "group 1": groups[1],
        "extent 0": extent,
        "root": derive(b"millrace 2026 fileset root of a set", encoded[-32:] + extent),
    }
    out = "".join(f"{name}: {value.hex()}\n" for name, value in lines.items())
    pathlib.Path(__file__).with_name("set.txt").write_text(out)


main()
