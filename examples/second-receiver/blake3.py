"""BLAKE3 with chaining values of subtrees, from the paper (O'Connor, Aumasson, Neves, Wilcox-O'Hearn, "BLAKE3", 2020).

Chunks of one input are hashed side by side, by numpy; so are the nodes of one level of the tree.
"""

import numpy

IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
CHUNK_START, CHUNK_END, PARENT, ROOT, DERIVE_KEY_CONTEXT, DERIVE_KEY_MATERIAL = 1, 2, 4, 8, 32, 64
CHUNK = 1024
BLOCK = 64


def _compress(chaining, block, counters, length, flags):
    """Returns the first 8 words of the compression of many blocks: `chaining` has 8, `block` 16 arrays of 32-bit words."""
    ones = numpy.ones_like(block[0])
    v = list(chaining) + [ones * numpy.uint32(word) for word in IV[:4]]
    v += [(counters & 0xFFFFFFFF).astype(numpy.uint32), (counters >> 32).astype(numpy.uint32)]
    v += [ones * numpy.uint32(length), ones * numpy.uint32(flags)]
    m = list(block)

    def rotate(word, by):
        return (word >> numpy.uint32(by)) | (word << numpy.uint32(32 - by))

    def mix(a, b, c, d, x, y):
        v[a] = v[a] + v[b] + x
        v[d] = rotate(v[d] ^ v[a], 16)
        v[c] = v[c] + v[d]
        v[b] = rotate(v[b] ^ v[c], 12)
        v[a] = v[a] + v[b] + y
        v[d] = rotate(v[d] ^ v[a], 8)
        v[c] = v[c] + v[d]
        v[b] = rotate(v[b] ^ v[c], 7)

    for _ in range(7):
        for column in range(4):
            mix(column, 4 + column, 8 + column, 12 + column, m[2 * column], m[2 * column + 1])
        for diagonal in range(4):
            places = [4 * row + (diagonal + row) % 4 for row in range(4)]
            mix(*places, m[8 + 2 * diagonal], m[9 + 2 * diagonal])
        m = [m[index] for index in PERMUTATION]
    return [v[index] ^ v[index + 8] for index in range(8)]


def _words(data, blocks):
    """Returns the 16 words of a block of each of many inputs."""
    array = numpy.frombuffer(data, dtype="<u4").reshape(blocks, 16)
    return [array[:, index].astype(numpy.uint32) for index in range(16)]


def _chunks(data, first, key, flags, is_only):
    """Returns the chaining values of the chunks of an input, the first of which has the number `first`."""
    whole = len(data) // CHUNK
    values = []
    parts = [(data[: whole * CHUNK], whole)] if whole else []
    if len(data) % CHUNK or not whole:
        parts.append((data[whole * CHUNK :], 1))
    for part, count in parts:
        size = len(part) // count
        counters = numpy.arange(first + len(values), first + len(values) + count, dtype=numpy.uint64)
        chaining = [numpy.full(count, word, dtype=numpy.uint32) for word in key]
        blocks = max(1, -(-size // BLOCK))
        for index in range(blocks):
            length = min(BLOCK, size - index * BLOCK) if size else 0
            rows = [part[at * size + index * BLOCK :][:length].ljust(BLOCK, b"\0") for at in range(count)]
            of_block = flags | (CHUNK_START if index == 0 else 0)
            if index == blocks - 1:
                of_block |= CHUNK_END | (ROOT if is_only else 0)
            chaining = _compress(chaining, _words(b"".join(rows), count), counters, length, of_block)
        values += list(zip(*(words.tolist() for words in chaining)))
    return values


def _tree(values, key, flags, is_root):
    """Returns the chaining value above those of chunks. Pairs of each level are merged; an odd last one moves up unchanged."""
    while len(values) > 1:
        pairs = len(values) // 2
        data = b"".join(numpy.array(value, dtype="<u4").tobytes() for value in values[: 2 * pairs])
        of_node = flags | PARENT | (ROOT if is_root and len(values) == 2 else 0)
        chaining = [numpy.full(pairs, word, dtype=numpy.uint32) for word in key]
        counters = numpy.zeros(pairs, dtype=numpy.uint64)
        merged = _compress(chaining, _words(data, pairs), counters, BLOCK, of_node)
        values = list(zip(*(words.tolist() for words in merged))) + values[2 * pairs :]
    return values[0]


def _bytes(value):
    return numpy.array(value, dtype="<u4").tobytes()


def chaining_value(data, offset=0):
    """Returns the value of a subtree, never that of a root, whose input begins at `offset` of a larger one."""
    return _bytes(_tree(_chunks(data, offset // CHUNK, IV, 0, False), IV, 0, False))


def _hash(data, key, flags):
    is_only = len(data) <= CHUNK
    return _bytes(_tree(_chunks(data, 0, key, flags, is_only), key, flags, True))


def digest(data):
    """Returns the BLAKE3 digest."""
    return _hash(data, IV, 0)


def derive_key(context, data):
    """Returns the digest in key derivation mode."""
    key = numpy.frombuffer(_hash(context.encode(), IV, DERIVE_KEY_CONTEXT), dtype="<u4")
    return _hash(data, tuple(int(word) for word in key), DERIVE_KEY_MATERIAL)
