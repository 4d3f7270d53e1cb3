"""Records of the simulator (docs/nic-interface.md, "Records of a simulator"), written and read without the code of the model."""

import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

FRAME, COMMAND, BUFFERS, TAKE, STALL, FLIP, CONFIG, END = range(1, 9)
COMPLETION, DROP, COMMAND_COMPLETION, COUNT = range(0x81, 0x85)
CONTROL, HASH_KEY, TABLE_KEY, TPID, TUNNEL_PORT = 0x18, 0x20, 0x50, 0x90, 0xA0
VXLAN, GENEVE, GTP_U, MPLS = 1, 2, 3, 4
QUEUES = 32
FLAG_FENCE, FLAG_MARK, FLAG_COMPLETE, FLAG_IP_CHECKSUM = 1 << 1, 1 << 2, 1 << 4, 1 << 5


def record(kind: int, body: bytes = b"") -> bytes:
    return struct.pack("<IB", 1 + len(body), kind) + body


def frame(data: bytes, port: int = 0, stall: int = 0) -> bytes:
    return record(FRAME, struct.pack("<BBH", port, 0, stall) + data)


def command(opcode: int, tag: int = 0, select: int = 0, first: int = 0, index: int = 0, form: int = 0, body: bytes = b"",
            at: int = 16) -> bytes:
    data = bytearray(64)
    struct.pack_into("<BBHIIB", data, 0, opcode, select, first, tag, index, form)
    data[at:at + len(body)] = body
    return record(COMMAND, struct.pack("<H", 0) + bytes(data))


def flip(way: int, row: int, bit: int) -> bytes:
    return record(FLIP, struct.pack("<BIH", way, row, bit))


def buffers(queue: int, numbers: list[int]) -> bytes:
    return record(BUFFERS, struct.pack("<B", queue) + b"".join(struct.pack("<H", number) for number in numbers))


def take(queue: int, number: int) -> bytes:
    return record(TAKE, struct.pack("<BH", queue, number))


def enable(keys: list[int]) -> bytes:
    """Returns the records that configure a device as the switch does; `keys` are k0 to k5 and t0 to t7."""
    out = b""

    def write(offset: int, value: int) -> None:
        nonlocal out
        out += record(CONFIG, struct.pack("<HI", offset, value))

    for at, key in enumerate(keys):
        write(HASH_KEY + 8 * at, key & 0xFFFFFFFF)
        write(HASH_KEY + 8 * at + 4, key >> 32)
    for at, value in enumerate([0x18100, 0x188A8, 0x9100]):
        write(TPID + 4 * at, value)
    tunnels = [(2152, GTP_U), (4789, VXLAN), (6081, GENEVE), (6635, MPLS), (8472, VXLAN)]
    for at, (port, kind) in enumerate(tunnels):
        write(TUNNEL_PORT + 4 * at, port | kind << 16)
    write(CONTROL, 1)
    return out


@dataclass
class Completion:
    queue: int
    mark: int
    hash: int
    buffer: int
    length: int
    bucket: int
    flags: int
    generation: int
    l3: int
    l4: int
    inner_l3: int
    inner_l4: int
    kind: int
    tags: int
    labels: int
    klass: int


def completion(body: bytes) -> Completion:
    fields = struct.unpack_from("<IIHHHHI8B", body, 1)
    return Completion(body[0], *fields)


def run(simulator: Path, records: bytes, env: dict[str, str] | None = None) -> list[tuple[int, bytes]]:
    """Returns kind and body of each record that the simulator puts out."""
    told = subprocess.run([str(simulator)], input=records, stdout=subprocess.PIPE, check=True, timeout=600, env=env)
    out, at = [], 0
    while at < len(told.stdout):
        length, kind = struct.unpack_from("<IB", told.stdout, at)
        out.append((kind, told.stdout[at + 5:at + 4 + length]))
        at += 4 + length
    return out
