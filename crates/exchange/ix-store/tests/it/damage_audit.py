"""Damages each entry of an exported audit chain in each way, and has the verifier find it: damage_audit.py FILE PUBLIC_KEY.

All that stands in the file before a damage is valid, and is read once: a damage at any entry of a long chain is what the verifier
meets after the undamaged entries before it.
"""
import copy
import hashlib
import json
import sys

from verify_audit import Chain, canonical


def finds(chain, lines):
    """Returns true if the verifier refuses one of the lines behind those that it has read. Forgets the lines."""
    length, previous, signed = len(chain.hashes), chain.previous, chain.signed
    try:
        for line in lines:
            chain.take(line)
    except ValueError:
        return True
    finally:
        while len(chain.hashes) > length:
            chain.hashes.popitem()
        chain.previous, chain.signed = previous, signed
    return False


def damages(line, after):
    """Yields the name of each damage of an entry, and the lines of the file from that entry on."""
    for name in line["entry"]:
        changed = copy.deepcopy(line)
        changed["entry"][name] = {"number": 7}
        yield f"{name} changed", [changed, *after]
        changed["hash"] = hashlib.sha256(canonical(changed["entry"])).hexdigest()
        yield f"{name} changed, and its hash", [changed, *after]
        without = copy.deepcopy(line)
        del without["entry"][name]
        if name not in ("serial", "previous"):
            yield f"{name} missing", [without, *after]
    yield "missing", after
    yield "doubled", [line, line, *after]
    if after and "entry" in after[0]:
        yield "swapped", [after[0], line, *after[1:]]


lines = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
chain, count, missed = Chain(bytes.fromhex(sys.argv[2])), 0, []
heads = [line for line in lines if "signature" in line]
entries = [line for line in lines if "entry" in line]
for at, line in enumerate(entries):
    # Each damage is found at the entry after it at the latest, or by the signatures at the end.
    for name, damaged in damages(line, [*entries[at + 1:at + 3], *heads[-1:]]):
        count += 1
        if not finds(chain, damaged):
            missed.append(f"entry {at + 1}: {name}")
    chain.take(line)
for head in heads:
    chain.take(head)
print(f"{count - len(missed)} of {count} damages of {len(entries)} entries were found")
sys.exit("\n".join(missed) or None)
