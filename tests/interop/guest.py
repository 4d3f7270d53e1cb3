"""A virtual machine of a test: Debian's cloud kernel, busybox, and what the test adds, behind tap interfaces.

Its NICs are `eth0`, `eth1`, ... in the order of the taps. Guests are emulated (TCG): one boots within seconds.
"""

import contextlib
import os
import pathlib
import re
import shutil
import socket
import subprocess

import pytest

from switches import end, run, wait_for

ROOTS = [pathlib.Path(root) for root in (os.environ.get("MILLRACE_GUEST", "/var/cache/millrace/guest"), "/")]
KERNELS = [found for root in ROOTS for found in sorted(root.glob("boot/vmlinuz-*cloud*"))]
#: The modules of every guest, in the order of their dependencies, below the folder `kernel`.
MODULES = ["drivers/virtio/virtio_ring", "drivers/virtio/virtio", "drivers/virtio/virtio_pci_legacy_dev",
           "drivers/virtio/virtio_pci_modern_dev", "drivers/virtio/virtio_pci", "net/core/failover", "drivers/net/net_failover",
           "drivers/net/virtio_net"]
FOLDERS = ["bin", "sbin", "usr", "usr/bin", "usr/sbin", "proc", "sys", "dev", "run", "tmp", "modules"]
INIT = """#!/bin/busybox sh
/bin/busybox --install -s
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
{insert}
stty -F /dev/ttyS1 raw -echo
exec 3<>/dev/ttyS1
echo ready >&3
while read -r token line <&3; do
sh -c "$line" >/tmp/said 2>&1 </dev/null
echo "$token-ended $?" >>/tmp/said
cat /tmp/said >&3
done
"""

needs_guests = [
    pytest.mark.skipif(os.geteuid() != 0, reason="tap interfaces need root"),
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64") or not KERNELS, reason="no QEMU, or no kernel: scripts/setup.sh guests"),
]


def archive(files):
    """Returns a cpio archive ("newc") of folders (content None) and programs, by their paths."""
    def entry(number, name, mode, data):
        head = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        text = b"070701" + b"".join(b"%08x" % value for value in head) + name.encode() + b"\0"
        return text + bytes(-len(text) % 4) + data + bytes(-len(data) % 4)
    entries = [entry(number, name, 0o40755 if data is None else 0o100755, data or b"") for number, (name, data) in enumerate(files.items(), 1)]
    return b"".join(entries) + entry(0, "TRAILER!!!", 0, b"")


def libraries(program):
    """Returns the files that a program is linked with, and its loader."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=60, check=False).stdout
    return re.findall(r"(/\S+)", said)


def image(modules, programs, later):
    """Returns the file system of a guest with the kernel's `modules`, those that the test inserts `later`, and the host's `programs`."""
    kernel = KERNELS[-1]
    root, release = kernel.parent.parent, kernel.name.removeprefix("vmlinuz-")
    files, insert = {folder: None for folder in FOLDERS}, []

    def add(path, data):
        for parent in reversed(pathlib.PurePath(path).parents[:-1]):
            files.setdefault(str(parent), None)
        files[path] = data
    for module in [*MODULES, *modules, *later]:
        name = pathlib.PurePath(module).name
        add(f"modules/{name}.ko", (root / "lib/modules" / release / "kernel" / f"{module}.ko").read_bytes())
        if module not in later:
            insert.append(f"insmod /modules/{name}.ko")
    for program in ["busybox", *programs]:
        found = shutil.which(program)
        add(f"bin/{program}", pathlib.Path(found).read_bytes())
        for library in libraries(found):
            add(library.lstrip("/"), pathlib.Path(library).read_bytes())
    add("init", INIT.format(insert="\n".join(insert)).encode())
    return archive(files)


class Guest:
    """A running guest with a NIC behind each of `taps`, (name of the tap, MAC address of the NIC). The taps exist already."""

    def __init__(self, folder, taps, modules=(), programs=(), later=()):
        folder.mkdir(parents=True, exist_ok=True)
        self.console, self.log = folder / "console.sock", folder / "kernel.log"
        (folder / "image.cpio").write_bytes(image(modules, programs, later))
        nics = [word for number, (tap, mac) in enumerate(taps) for word in (
            "-netdev", f"tap,id=n{number},ifname={tap},script=no,downscript=no",
            "-device", f"virtio-net-pci,id=d{number},netdev=n{number},mac={mac},speed=1000,duplex=full")]
        self.monitor = folder / "monitor.sock"
        self.process = subprocess.Popen(
            ["qemu-system-x86_64", "-accel", "tcg", "-machine", "q35", "-m", "256M", "-nodefaults", "-no-user-config", "-display", "none",
             "-no-reboot", "-kernel", KERNELS[-1], "-initrd", folder / "image.cpio", "-append", "console=ttyS0 net.ifnames=0 quiet panic=-1",
             "-serial", f"file:{self.log}", "-serial", f"unix:{self.console},server=on,wait=off",
             "-monitor", f"unix:{self.monitor},server=on,wait=off", *nics])
        self.line, self.number = None, 0

    def __enter__(self):
        def connected():
            assert self.process.poll() is None, self.log.read_text()
            with contextlib.suppress(OSError):
                line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                line.connect(str(self.console))
                return line
        self.line = wait_for("the console", connected)
        self.line.settimeout(60)
        self._read(b"ready\n")
        return self

    def __exit__(self, *_):
        if self.line:
            self.line.close()
        end(self.process)

    def _read(self, expression):
        """Returns what the guest says up to a match of an expression, and the match."""
        said = b""
        while not (found := re.search(expression, said)):
            more = self.line.recv(65536)
            assert more, self.log.read_text()
            said += more
        return said[:found.start()].decode(), found

    def sh(self, command, check=True):
        """Returns what a line of shell prints in the guest."""
        self.number += 1
        token = f"line{self.number}"
        self.line.sendall(f"{token} {command}\n".encode())
        said, found = self._read(rf"{token}-ended (\d+)\n".encode())
        assert not check or found[1] == b"0", f"{command}: {said}"
        return said

    def set_link(self, number, is_up):
        """Plugs the cable of a NIC in, or pulls it."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as monitor:
            monitor.settimeout(60)
            monitor.connect(str(self.monitor))
            said = b""
            for command in (b"", f"set_link d{number} {'on' if is_up else 'off'}\n".encode()):
                monitor.sendall(command)
                said = b""
                while not said.endswith(b"(qemu) "):
                    said += monitor.recv(65536)
            assert b"Error" not in said, said


@contextlib.contextmanager
def taps(*names):
    """Makes tap interfaces, and removes them."""
    try:
        for name in names:
            run("ip", "tuntap", "add", "dev", name, "mode", "tap")
            run("ip", "link", "set", name, "up")
        yield
    finally:
        for name in names:
            subprocess.run(["ip", "link", "delete", name], capture_output=True, timeout=60, check=False)
