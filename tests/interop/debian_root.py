"""A clean Debian 12 for a test of packages: the root that `scripts/setup.sh packages` made, under an overlay that is thrown away, with
systemd as its first process.

The machine shares the network namespace of the test, so that the test can give it interfaces, and has no other access to a
network: apt takes dependencies from the archive that the root carries.
"""

import contextlib
import os
import pathlib
import subprocess
import time

from switches import run, wait_for

# The time in s in which the machine starts, or executes a command, on a busy machine.
BOUND = 300
LOWER = pathlib.Path("/var/cache/millrace/root/bookworm")
# apt and dpkg remember here what they did; logs and caches of the system belong to it.
NOT_COUNTED = ("var/log/", "var/cache/", "var/lib/apt/", "var/lib/dpkg/", "var/lib/systemd/", "var/lib/dbus/", "var/tmp/", "root/", "packages",
               "etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-", "etc/.pwd.lock", "etc/machine-id", "etc/ld.so.cache")
MOUNT = """
mount -t tmpfs -o size=4g tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" "$1/root"
"""
# systemd gets a control group of its own: without one, two machines would end each other's services.
BOOT = """
umount -R /sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 none /sys/fs/cgroup
mkdir "/sys/fs/cgroup/$1"
echo $$ >"/sys/fs/cgroup/$1/cgroup.procs"
# The router sets /proc/sys in the namespaces of VRFs.
export SYSTEMD_NSPAWN_API_VFS_WRITABLE=1
exec systemd-nspawn --quiet --register=no --keep-unit --boot --console=pipe --capability=all --bind=/dev/net/tun --bind-ro="$3:/packages" -D "$2"
"""
REMOVE_GROUP = """
mount -t cgroup2 none /mnt && find "/mnt/$1" -depth -type d -exec rmdir {} +
"""


def why_not():
    """Returns why no machine can be started here, or None."""
    if os.getuid() != 0:
        return "needs root"
    if not LOWER.exists():
        return f"{LOWER} is missing; to make it: scripts/setup.sh packages"
    if not pathlib.Path("/usr/bin/systemd-nspawn").exists():
        return "systemd-nspawn is missing; to install it: scripts/setup.sh packages"
    return None


class Machine:
    """A running Debian 12. `packages` is a folder that it sees as /packages."""

    def __init__(self, folder, packages):
        self.folder, self.packages = folder, packages
        self.root = folder / "root"
        self.group = f"millrace-packages-{os.getpid()}-{time.monotonic_ns()}"

    def __enter__(self):
        self.folder.mkdir()
        run("bash", "-euc", MOUNT, "mount", self.folder, LOWER)
        self.before = self.files()
        self.console = (self.folder / "console").open("wb")
        self.process = subprocess.Popen(["unshare", "--mount", "bash", "-euc", BOOT, "boot", self.group, self.root, self.packages],
                                        stdin=subprocess.DEVNULL, stdout=self.console, stderr=subprocess.STDOUT)
        self.leader = wait_for("systemd", self._leader, BOUND)
        wait_for("the end of the start",
                 lambda: self.call("systemctl", "is-system-running").stdout.strip() in ("running", "degraded"), BOUND)
        return self

    def _leader(self):
        console = pathlib.Path(self.console.name).read_text(errors="replace")
        assert self.process.poll() is None, console
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in children:
            # The first process calls itself systemd only when it is one. Commands before it may have ended meanwhile.
            with contextlib.suppress(OSError):
                if pathlib.Path(f"/proc/{pid}/comm").read_text() == "systemd\n":
                    return pid
        return None

    def __exit__(self, *_):
        # The end of the first process of a pid namespace ends all others.
        subprocess.run(["kill", "-KILL", self.leader], check=False)
        self.process.wait(timeout=60)
        self.console.close()
        run("unshare", "--mount", "bash", "-uc", REMOVE_GROUP, "remove", self.group, check=False)
        with contextlib.suppress(OSError):
            run("umount", "-R", self.folder, check=False)

    def call(self, *command, timeout=BOUND):
        """Runs a command in the machine, and returns what it did."""
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "HOME": "/root", "LC_ALL": "C.UTF-8"}
        return subprocess.run(["nsenter", "-t", self.leader, "-m", "-u", "-i", "-p", "-r", "-w", *command], env=environment,
                              capture_output=True, text=True, timeout=timeout, check=False)

    def run(self, *command, timeout=BOUND):
        """Runs a command in the machine, which must succeed, and returns its output."""
        done = self.call(*command, timeout=timeout)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def apt(self, *words):
        """Runs apt without a network; changed configurations are kept, as operators tell apt to."""
        return self.run("apt-get", "-q", "-y", "--no-install-recommends", "-o", "Dpkg::Options::=--force-confold",
                        "-o", "APT::Sandbox::User=root", *words)

    def files(self):
        """Returns the paths of all files that count."""
        found = run("find", self.root, "-xdev", "-mindepth", "1", "-printf", "%P\\n").splitlines()
        # systemd keeps the folder of dynamic users, also when it is empty.
        return {path for path in found if path != "var/lib/private" and not path.startswith(NOT_COUNTED)}
