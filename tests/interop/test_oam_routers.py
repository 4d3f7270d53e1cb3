"""BFD with routers: BIRD 2 and FRR's bfdd come up with a port, notice its end, and it notices theirs within one interval of the
detection time. No controller is there. `make exchange-check` also judges the times, and waits two minutes, in which nothing may
flap. Needs root.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from namespaces import inside, made
from switches import Millrace, end, opened, run, wait_for

pytestmark = [
    pytest.mark.measures,
    pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root"),
]
PEER = "mr-bfd"
OURS, THEIRS = "192.0.2.1", "192.0.2.2"
OUR_MAC, THEIR_MAC = "02:00:00:00:0b:01", "02:00:00:00:0b:02"
LONG = bool(os.environ.get("MILLRACE_EXCHANGE_LONG"))
# On a machine that is busy, a router may not run for a second, and a session must not end then.
INTERVAL_MS, MULTIPLIER = 100, 5 if LONG else 30
QUIET_SECONDS = 120 if LONG else 0
FRR = pathlib.Path("/usr/lib/frr")


class Daemons:
    """The processes of a router in the namespace of the peer. FRR gives its files to its own user, so the folder is for everybody."""

    def __init__(self, folder):
        self.folder = folder
        self.processes = []

    def spawn(self, *command):
        with (self.folder / "log").open("a") as log:
            self.processes.append(subprocess.Popen(["ip", "netns", "exec", PEER, *map(str, command)], stdout=log, stderr=log))

    def signal(self, how):
        """Sends a signal to the daemon that speaks BFD."""
        self.processes[-1].send_signal(how)

    def __enter__(self):
        opened(self.folder.parent)
        self.folder.chmod(0o777)
        self.start()
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGCONT)
            end(process)


class Bird(Daemons):
    """BIRD 2."""

    program = "bird"

    @staticmethod
    def is_installed():
        return shutil.which("bird")

    def start(self):
        config = self.folder / "bird.conf"
        config.write_text(f"""
router id {THEIRS};
protocol device {{}}
protocol bfd {{
  interface "mr-un" {{ min rx interval {INTERVAL_MS} ms; min tx interval {INTERVAL_MS} ms; multiplier {MULTIPLIER}; }};
  neighbor {OURS} dev "mr-un" local {THEIRS};
}}
""")
        self.spawn("bird", "-f", "-c", config, "-s", self.folder / "ctl", "-P", self.folder / "pid")

    def is_up(self):
        text = run("birdc", "-s", self.folder / "ctl", "show", "bfd", "sessions", check=False)
        return re.search(rf"^{OURS}\s+mr-un\s+Up\b", text, re.MULTILINE) is not None


class Frr(Daemons):
    """FRR's bfdd, with zebra for the interfaces."""

    @staticmethod
    def is_installed():
        return (FRR / "bfdd").exists() and (FRR / "zebra").exists()

    def start(self):
        config = self.folder / "bfdd.conf"
        config.write_text(f"""
bfd
 peer {OURS} local-address {THEIRS} interface mr-un
  receive-interval {INTERVAL_MS}
  transmit-interval {INTERVAL_MS}
  detect-multiplier {MULTIPLIER}
  no shutdown
 !
""")
        shared = ["-u", "frr", "-g", "frr", "--vty_port", "0", "--vty_socket", self.folder, "--log", "stdout", "--log-level", "warnings",
                  "-z", self.folder / "zserv.api"]
        (self.folder / "zebra.conf").write_text("")
        self.spawn(FRR / "zebra", *shared, "-f", self.folder / "zebra.conf", "-i", self.folder / "zebra.pid")
        wait_for("zebra", (self.folder / "zserv.api").exists)
        self.spawn(FRR / "bfdd", *shared, "-f", config, "-i", self.folder / "bfdd.pid", "--bfdctl", self.folder / "bfdd.sock")

    def is_up(self):
        text = run("vtysh", "--vty_socket", self.folder, "-c", "show bfd peers json", check=False)
        try:
            return [peer["status"] for peer in json.loads(text)] == ["up"]
        except json.JSONDecodeError:
            return False


def bfd(switch):
    """Returns the session of port 1."""
    ports = json.loads(switch.cli("show", "oam", "br0", "--json"))
    ports = ports["br0"] if isinstance(ports, dict) else ports
    return ports[0]["oam"]["bfd"]


def flaps(switch):
    """Returns the number of times that a port was not live any more."""
    text = switch.rest.get("http://localhost/metrics", timeout=60).text
    return sum(map(int, re.findall(r"^millrace_oam_flaps_total\{[^}]*\} (\d+)", text, re.MULTILINE)))


@pytest.mark.parametrize("kind", [Bird, Frr])
def test_bfd_with_a_router_comes_up_and_ends_on_both_sides(tmp_path, kind):
    if not kind.is_installed():
        pytest.skip("not installed: `scripts/setup.sh routers`")
    switch = Millrace(tmp_path / "millrace", ports=[(1, "tap:mr-un")])
    settings = (f'bfd = {{ min_tx_ms = {INTERVAL_MS}, min_rx_ms = {INTERVAL_MS}, multiplier = {MULTIPLIER}, local = "{OURS}", '
                f'remote = "{THEIRS}", remote_mac = "{THEIR_MAC}" }}\nwait_to_restore_s = 0\n')
    switch.config.write_text(switch.config.read_text() + settings)
    with made(PEER), switch:
        run("ip", "link", "set", "mr-un", "netns", PEER)
        inside(PEER, "ip", "link", "set", "mr-un", "address", THEIR_MAC, "up")
        inside(PEER, "ip", "address", "add", f"{THEIRS}/24", "dev", "mr-un")
        inside(PEER, "ip", "neighbour", "add", OURS, "lladdr", OUR_MAC, "dev", "mr-un", "nud", "permanent")
        assert bfd(switch)["state"] != "up"
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="mr-bfd-", dir="/run") as name, kind(pathlib.Path(name)) as router:
            wait_for("our session", lambda: bfd(switch)["state"] == "up")
            wait_for("the router's session", router.is_up)
            up = time.monotonic() - started
            wait_for("the detection time", lambda: bfd(switch)["detection_time_ms"] == INTERVAL_MS * MULTIPLIER)
            if QUIET_SECONDS:
                before = flaps(switch)
                time.sleep(QUIET_SECONDS)
                assert router.is_up() and bfd(switch)["state"] == "up" and flaps(switch) == before
            flaps_before = flaps(switch)
            wait_for("our session", lambda: bfd(switch)["state"] == "up")
            # The router is silent: the session ends here when its detection time is over.
            router.signal(signal.SIGSTOP)
            silent = time.monotonic()
            wait_for("our end", lambda: bfd(switch)["state"] == "down")
            down = time.monotonic() - silent
            wait_for("the flap is counted", lambda: flaps(switch) > flaps_before)
            router.signal(signal.SIGCONT)
            wait_for("our session again", lambda: bfd(switch)["state"] == "up")
            # The port is silent: the session ends there.
            switch.change(lambda config: config["bridge"][0]["port"][0].pop("bfd"))
            wait_for("the router's end", lambda: not router.is_up())
    print(f"{kind.__name__}: up {up:.2f} s after its start, down {down * 1000:.0f} ms after its last packet or at most one interval "
          f"more (detection time {INTERVAL_MS * MULTIPLIER} ms); no flap in {QUIET_SECONDS} s")
    if QUIET_SECONDS:
        assert up <= 4 and down >= (MULTIPLIER - 2) * INTERVAL_MS / 1000
        # One interval beyond the detection time, and the command line that asks for the state.
        assert down <= ((MULTIPLIER + 1) * INTERVAL_MS + 300) / 1000
