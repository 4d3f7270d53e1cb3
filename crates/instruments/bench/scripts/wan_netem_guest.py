#!/usr/bin/env python3
"""Runs the kernel's netem in a guest on Debian's cloud kernel, and the emulator's model with the same settings, and prints asked and
realised figures side by side.

    scripts/setup.sh guests && crates/instruments/bench/scripts/wan_netem_guest.py [--frames 4000] [--json FILE]

The guest is emulated unless --kvm is given, so its clock is off by a fraction of a millisecond: the script compares distributions,
loss and correlation, and no microseconds. Frames are sent and stamped by netem_guest.c, which shares no code with the emulator. Ours are
draws in virtual time (millrace-wan-outcomes). Root is not needed.
"""

import argparse
import json
import math
import os
import pathlib
import re
import shutil
import stat
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[3]
INTERVAL_US = 1000
WAIT_MS = 500
BOUND_S = 600
# A name, the options of netem, the settings of the emulator, and the figures asked for.
CASES = (
    ("constant", "delay 50ms", ("delay=50ms",), {"mean": 50, "sd": 0}),
    ("uniform", "delay 50ms 5ms", ("delay=50ms", "jitter=5ms", "order=reordering"), {"mean": 50, "sd": 5 / math.sqrt(3)}),
    ("normal", "delay 50ms 5ms distribution normal", ("delay=50ms", "jitter=5ms,normal", "order=reordering"),
     {"mean": 50, "sd": 5, "correlation": 0}),
    ("normal, 50 % correlated", "delay 50ms 5ms 50% distribution normal",
     ("delay=50ms", "jitter=5ms,normal,correlation=50%", "order=reordering"), {"mean": 50, "sd": 5, "correlation": 0.5}),
    ("loss 5 %", "loss 5%", ("loss=5%",), {"loss_percent": 5, "run": 1 / 0.95}),
    ("loss 5 %, 50 % correlated", "loss 5% 50%", ("loss=5%,correlation=50%",), {"loss_percent": 5}),
    ("Gilbert-Elliott", "loss gemodel 1% 10%", ("loss=ge:p=1%,r=10%,bad=100%,good=0%",),
     {"loss_percent": 100 / 11, "run": 10}),
)
FIGURES = ("mean", "sd", "correlation", "loss_percent", "run", "reordered")
RECORD = struct.Struct("<QQQQII")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--frames", type=int, default=4000, help="frames of each case, one a millisecond (4000)")
    arguments.add_argument("--json", type=pathlib.Path, help="write the figures to this file, too")
    arguments.add_argument("--outcomes", type=pathlib.Path, help="millrace-wan-outcomes; the one of this checkout unless given")
    arguments.add_argument("--kvm", action="store_true", help="use KVM, whose clock is better than that of an emulated processor")
    options = arguments.parse_args()
    outcomes = options.outcomes or found_outcomes()
    boot = pathlib.Path(os.environ.get("MILLRACE_GUEST", "/var/cache/millrace/guest"))
    kernel = next(iter(sorted(boot.glob("boot/vmlinuz-*cloud*"))), None)
    modules = {name: next(iter(boot.rglob(f"{name}.ko")), None) for name in ("veth", "sch_netem")}
    missing = [name for name in ("qemu-system-x86_64", "busybox", "tc", "gcc") if not shutil.which(name)]
    missing += [name for name, path in (("the guests' kernel", kernel), *modules.items()) if path is None]
    if missing:
        sys.exit(f"wan_netem_guest: {', '.join(missing)}: not found. To fix it: scripts/setup.sh guests")
    with tempfile.TemporaryDirectory() as folder:
        image = pathlib.Path(folder) / "initrd"
        image.write_bytes(archive(contents(pathlib.Path(folder), modules.values(), options.frames)))
        netem = in_guest(kernel, image, options.kvm)
    rows = []
    for number, (name, text, settings, asked) in enumerate(CASES):
        rows.append({"case": name, "netem_options": text, "settings": settings, "asked": asked, "netem": netem.get(number),
                     "millrace": modelled(outcomes, options.frames, settings)})
    print_table(rows, kernel.name.removeprefix("vmlinuz-"))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"kernel": kernel.name, "frames": options.frames, "rows": rows}, indent=1) + "\n")
    if any(row["netem"] is None for row in rows):
        sys.exit("wan_netem_guest: the guest did not measure every case")


def found_outcomes():
    """The program that draws outcomes in virtual time."""
    for profile in ("release", "debug"):
        program = pathlib.Path(os.environ.get("MILLRACE_TARGET", ROOT / "target" / profile)) / "millrace-wan-outcomes"
        if program.is_file():
            return program
    return sys.exit("wan_netem_guest: millrace-wan-outcomes is not built. To fix it: cargo build -p millrace-wan-emulator")


def contents(folder, modules, frames):
    """The files of the guest: path, bytes, and whether it is a program."""
    program = folder / "netem_guest"
    subprocess.run(["gcc", "-O2", "-static", "-o", program, HERE / "netem_guest.c", "-lm"], check=True)
    files = {"/netem_guest": program, "/bin/busybox": shutil.which("busybox")}
    for tool in ("ip", "tc"):
        path = shutil.which(tool, path="/usr/sbin:/sbin:/usr/bin:/bin")
        files[f"/bin/{tool}"] = path
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        files.update({library: library for library in re.findall(r"(/\S+) \(0x", listed)})
    tables = next(pathlib.Path("/usr/lib").rglob("tc/normal.dist"), None)
    if tables:
        files[str(tables)] = tables
    for module in modules:
        files[f"/{module.name}"] = module
    # Full paths: the shell has applets named ip and tc.
    lines = ["#!/bin/busybox sh", "/bin/busybox mount -t proc proc /proc", "export PATH=/bin",
             *(f"busybox insmod /{module.name}" for module in modules),
             "/bin/ip link add v0 type veth peer name v1", "/bin/ip link set v0 up", "/bin/ip link set v1 up"]
    for number, (_, text, _, _) in enumerate(CASES):
        lines += [f"/bin/tc qdisc add dev v0 root netem limit 100000 {text} && echo CASE {number} && "
                  f"/netem_guest v0 v1 {frames} {INTERVAL_US} {WAIT_MS}", "/bin/tc qdisc del dev v0 root"]
    lines.append("busybox poweroff -f")
    init = folder / "init"
    init.write_text("\n".join(lines) + "\n")
    return {**files, "/init": init}


def archive(files):
    """A file system for the kernel (cpio, "newc"; Linux, Documentation/driver-api/early-userspace/buffer-format)."""
    entries = {"/proc": None, "/dev": None}
    for path in files:
        for parent in list(pathlib.PurePosixPath(path).parents)[-2::-1]:
            entries[str(parent)] = None
    entries.update(files)
    image = bytearray()

    def add(name, mode, data, device=(0, 0)):
        path = name.lstrip("/").encode() + b"\0"
        numbers = (len(image) + 1, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(path), 0)
        image.extend(b"070701" + b"".join(b"%08X" % number for number in numbers) + path)
        image.extend(bytes(-len(image) % 4) + data)
        image.extend(bytes(-len(image) % 4))

    for name, source in entries.items():
        if source is None:
            add(name, stat.S_IFDIR | 0o755, b"")
        else:
            add(name, stat.S_IFREG | 0o755, pathlib.Path(source).read_bytes())
    add("/dev/console", stat.S_IFCHR | 0o600, b"", (5, 1))
    add("TRAILER!!!", 0, b"")
    return bytes(image)


def in_guest(kernel, image, uses_kvm):
    """The figures of netem by number of the case."""
    accelerator = ["-enable-kvm", "-cpu", "host"] if uses_kvm else ["-accel", "tcg", "-cpu", "max"]
    command = ["qemu-system-x86_64", *accelerator, "-m", "512", "-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio",
               "-kernel", kernel, "-initrd", image, "-append", "console=ttyS0 quiet panic=-1"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BOUND_S, errors="replace")
    figures = {}
    for number, line in re.findall(r"CASE (\d+)\s+FIGURES (.*)", done.stdout):
        figures[int(number)] = summary({key: float(value) for key, value in re.findall(r"(\w+)=(\S+)", line)})
    if not figures:
        sys.exit(f"wan_netem_guest: the guest measured nothing: {done.stdout[-2000:]}{done.stderr[-500:]}")
    return figures


def summary(raw):
    return {**{key: raw[key] for key in ("mean", "sd", "correlation", "reordered", "p1", "p50", "p99")},
            "loss_percent": 100 * raw["lost"] / raw["frames"], "run": raw["lost"] / max(raw["runs"], 1)}


def modelled(program, frames, settings):
    """The figures of the emulator's model."""
    output = subprocess.run([program, str(frames), f"{INTERVAL_US}us", "60", "1", *settings], stdout=subprocess.PIPE, check=True).stdout
    delays = [None] * frames
    releases = []
    for frame, at, sent, _, reason, _ in RECORD.iter_unpack(output):
        if reason == 0:
            delays[frame] = (at - sent) / 1e6
            releases.append((at, frame))
    known = sorted(delay for delay in delays if delay is not None)
    mean = sum(known) / len(known)
    variance = sum((delay - mean) ** 2 for delay in known) / len(known)
    pairs = [(a - mean) * (b - mean) for a, b in zip(delays, delays[1:]) if None not in (a, b)]
    order = [frame for _, frame in sorted(releases)]
    edges = zip([0.0, *delays], delays)
    raw = {"frames": frames, "lost": frames - len(known), "mean": mean, "sd": math.sqrt(variance),
           "runs": sum(now is None and before is not None for before, now in edges),
           "correlation": sum(pairs) / len(pairs) / variance if variance > 1e-12 else 0.0,
           "reordered": sum(b < a for a, b in zip(order, order[1:])),
           "p1": known[len(known) // 100], "p50": known[len(known) // 2], "p99": known[-1 - len(known) // 100]}
    return summary(raw)


def print_table(rows, version):
    print(f"{'case':28}{'figure':14}{'asked':>10}{'netem':>12}{'millrace':>12}   netem of Linux {version}")
    for row in rows:
        for figure in FIGURES:
            asked = row["asked"].get(figure)
            if asked is None and figure != "reordered":
                continue
            values = [asked, *((row[system] or {}).get(figure) for system in ("netem", "millrace"))]
            asked, netem, ours = ("" if value is None else f"{value:.3f}" for value in values)
            print(f"{row['case']:28}{figure:14}{asked:>10}{netem:>12}{ours:>12}")


if __name__ == "__main__":
    main()
