"""Verifies an exported audit chain: verify_audit.py FILE PUBLIC_KEY [HEADS]. Written from docs/audit-chain.md, RFC 8785 and RFC 8032."""
import hashlib
import json
import sys

# Ed25519 (RFC 8032, section 5.1): the field, the constant of the curve, the order and the base point of the group.
P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
ORDER = 2**252 + 27742317777372353535851937790883648493


def x_of(y, sign):
    """Returns the x coordinate of a point, or None if there is none."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    if x * x % P != square or (x == 0 and sign):
        return None
    return x if x & 1 == sign else P - x


def add(a, b):
    """Adds two points in affine coordinates by the complete formula of the twisted Edwards curve."""
    (x1, y1), (x2, y2) = a, b
    k = D * x1 * x2 * y1 * y2 % P
    x = (x1 * y2 + x2 * y1) * pow(1 + k, -1, P) % P
    return x, (y1 * y2 + x1 * x2) * pow(1 - k, -1, P) % P


def multiply(factor, point):
    result = (0, 1)
    while factor:
        if factor & 1:
            result = add(result, point)
        point, factor = add(point, point), factor >> 1
    return result


def decode(data):
    number = int.from_bytes(data, "little")
    y = number & ((1 << 255) - 1)
    x = x_of(y, number >> 255) if y < P else None
    return None if x is None else (x, y)


BASE_Y = 4 * pow(5, -1, P) % P
BASE = (x_of(BASE_Y, 0), BASE_Y)


def signature_is_valid(key, message, signature):
    r, a, s = decode(signature[:32]), decode(key), int.from_bytes(signature[32:], "little")
    if len(signature) != 64 or r is None or a is None or s >= ORDER:
        return False
    digest = hashlib.sha512(signature[:32] + key + message).digest()
    return multiply(s, BASE) == add(r, multiply(int.from_bytes(digest, "little") % ORDER, a))


def canonical(value):
    """Returns the canonical form (RFC 8785) of a value without fractions, as bytes."""
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))
        return b"{" + b",".join(canonical(name) + b":" + canonical(value[name]) for name in names) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(canonical, value)) + b"]"
    return json.dumps(value, ensure_ascii=False).encode()


class Chain:
    """The entries and signatures that were read so far. A line that is refused leaves it as it was."""

    def __init__(self, key):
        self.key, self.hashes, self.previous, self.signed = key, {}, "0" * 64, 0

    def take(self, line):
        """Reads a line of the export; raises ValueError if it violates the chain."""
        if "signature" in line:
            head = canonical({name: line[name] for name in ("hash", "serial", "time")})
            if self.hashes.get(line["serial"]) != line["hash"]:
                raise ValueError(f"entry {line['serial']} is missing or not the one that was signed")
            if not signature_is_valid(self.key, head, bytes.fromhex(line["signature"])):
                raise ValueError(f"the signature of entry {line['serial']} is wrong")
            self.signed = line["serial"]
            return
        entry, serial = line["entry"], len(self.hashes) + 1
        if entry["serial"] != serial:
            raise ValueError(f"entry {serial} is missing")
        if entry["previous"] != self.previous:
            raise ValueError(f"entry {serial} does not follow the entry before it")
        if hashlib.sha256(canonical(entry)).hexdigest() != line["hash"]:
            raise ValueError(f"entry {serial} was changed")
        self.hashes[serial] = self.previous = line["hash"]


def verify(lines, key):
    """Returns the number of entries and the newest signed one; raises ValueError with the first violation."""
    chain = Chain(key)
    for line in lines:
        chain.take(line)
    return len(chain.hashes), chain.signed


if __name__ == "__main__":
    try:
        lines = []
        for path in (sys.argv[1], *sys.argv[3:]):
            with open(path, encoding="utf-8") as export:
                lines.extend(map(json.loads, export))
        entries, newest = verify(lines, bytes.fromhex(sys.argv[2]))
    except ValueError as reason:
        sys.exit(print(f"not valid: {reason}") or 1)
    print(f"valid: {entries} entries, signed up to entry {newest}")
