"""BFD and continuity checks with Open vSwitch, on an interface and through a tunnel: sessions come up, and each side notices that
the other is silent. Open vSwitch runs its user-space datapath in a namespace of its own.
"""

import json
import os

import pytest

from namespaces import inside, made
from switches import Millrace, OpenVSwitch, run, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root")
PEER = "mr-peer"
OURS, THEIRS = "192.0.2.1", "192.0.2.2"
BFD = "bfd = { min_tx_ms = 100, min_rx_ms = 100, multiplier = 5 }\nwait_to_restore_s = 0"
CCM = 'ccm = { mep = 1, remote_mep = 2, interval = "100ms" }\nwait_to_restore_s = 0'


@pytest.fixture
def namespaces():
    with made(PEER):
        yield


class Peer(OpenVSwitch):
    """Open vSwitch in the namespace of the peer, with the other end of port 1 in bridge `ovs-un`."""

    def start(self):
        database = self._start_database()
        self._spawn("ip", "netns", "exec", PEER, "ovs-vswitchd", database, "--disable-system",
                    f"--unixctl={self.folder}/vs.ctl")
        self._vsctl("--timeout=50", "add-br", "ovs-un", "--", "set", "bridge", "ovs-un", "datapath_type=netdev",
                    "--", "add-port", "ovs-un", "mr-un")
        return self

    def add_tunnel(self):
        self._vsctl("--timeout=50", "add-br", "ovs-in", "--", "set", "bridge", "ovs-in", "datapath_type=netdev",
                    "--", "add-port", "ovs-in", "tn0", "--", "set", "interface", "tn0", "type=vxlan",
                    f"options:remote_ip={OURS}", f"options:local_ip={THEIRS}", "options:key=42")
        inside(PEER, "ip", "address", "add", f"{THEIRS}/24", "dev", "ovs-un")
        inside(PEER, "ip", "link", "set", "ovs-un", "up")

    def set(self, interface, *settings):
        self._vsctl("--timeout=50", "set", "interface", interface, *settings)

    def status(self, interface, column):
        database = f"--db=unix:{self.folder}/db.sock"
        return run("ovs-vsctl", database, "get", "interface", interface, column).strip()


class Lab:
    """A switch whose port 1 is a tap device in the peer's namespace, and Open vSwitch there."""

    def __init__(self, folder, settings, tunnel=False):
        ports = [(1, "tap:mr-un")]
        if tunnel:
            ports.append((2, f"vxlan:remote={THEIRS},local={OURS},underlay=p1,key=42"))
        self.switch = Millrace(folder / "millrace", ports=ports)
        # The settings are those of the last port.
        self.switch.config.write_text(self.switch.config.read_text() + settings + "\n")
        self.port = len(ports)
        self.peer = Peer(folder / "ovs")

    def __enter__(self):
        self.switch.start()
        run("ip", "link", "set", "mr-un", "netns", PEER)
        inside(PEER, "ip", "link", "set", "mr-un", "up")
        self.peer.__enter__()
        if self.port == 2:
            self.peer.add_tunnel()
        return self

    def __exit__(self, *_):
        self.peer.stop()
        self.switch.stop()

    def oam(self):
        ports = json.loads(self.switch.cli("show", "oam", "br0", "--json"))
        ports = ports["br0"] if isinstance(ports, dict) else ports
        return ports[0]["oam"]

    def is_live(self):
        text = self.switch.ofctl("show")
        part = text[text.index(f" {self.port}(p{self.port})") :].split("state:", 1)[1]
        return "LIVE" in part.splitlines()[0]


def is_fast(bfd):
    """Returns true if a session is up at the intervals of both ends."""
    return bfd["state"] == "up" and bfd["detection_time_ms"] == 500 and bfd["remote_discriminator"] != 0


@pytest.mark.parametrize("tunnel", [False, True], ids=["interface", "vxlan"])
def test_bfd_with_open_vswitch_comes_up_and_ends_on_both_sides(tmp_path, namespaces, tunnel):
    interface = "tn0" if tunnel else "mr-un"
    with Lab(tmp_path, BFD, tunnel) as lab:
        assert not lab.is_live()
        lab.peer.set(interface, "bfd:enable=true", "bfd:min_tx=100", "bfd:min_rx=100", "bfd:mult=5")
        # The peer first announces the slow interval of a session that is not up (RFC 5880, section 6.8.3).
        wait_for("BFD is up with the fast interval", lambda: is_fast(lab.oam()["bfd"]))
        wait_for("Open vSwitch's state", lambda: "state=up" in lab.peer.status(interface, "bfd_status"))
        wait_for("the live bit", lab.is_live)
        wait_for("the metric", lambda: 'millrace_bfd_up{bridge="br0",port="p%d"} 1' % lab.port in lab.switch.rest.get(
            "http://localhost/metrics", timeout=60).text)
        # Open vSwitch stops: the session ends here.
        lab.peer.set(interface, "bfd:enable=false")
        wait_for("the end of the session", lambda: lab.oam()["bfd"]["state"] == "down")
        wait_for("the end of the live bit", lambda: not lab.is_live())
        # Millrace stops: the session ends there.
        lab.peer.set(interface, "bfd:enable=true")
        wait_for("BFD is up again", lambda: "state=up" in lab.peer.status(interface, "bfd_status"))
        wait_for("the live bit", lab.is_live)
        lab.switch.change(lambda config: config["bridge"][0]["port"][lab.port - 1].pop("bfd"))
        wait_for("Open vSwitch notices", lambda: "state=down" in lab.peer.status(interface, "bfd_status"))


def test_continuity_checks_with_open_vswitch_come_up_and_fail_on_both_sides(tmp_path, namespaces):
    with Lab(tmp_path, CCM) as lab:
        lab.peer.set("mr-un", "cfm_mpid=2", "other_config:cfm_interval=100")
        wait_for("our state and its number", lambda: (ccm := lab.oam()["ccm"])["up"] and ccm["remote_mep"] == 2)
        wait_for("Open vSwitch's state", lambda: lab.peer.status("mr-un", "cfm_fault") == "false")
        wait_for("our number there", lambda: lab.peer.status("mr-un", "cfm_remote_mpids") == "[1]")
        wait_for("the live bit", lab.is_live)
        # Another interval is a defect.
        lab.peer.set("mr-un", "other_config:cfm_interval=1000")
        wait_for("the defect", lambda: not (ccm := lab.oam()["ccm"])["up"] and ccm["rx_defects"] > 0)
        lab.peer.set("mr-un", "other_config:cfm_interval=100")
        wait_for("our state", lambda: lab.oam()["ccm"]["up"])
        lab.switch.change(lambda config: config["bridge"][0]["port"][0].pop("ccm"))
        wait_for("Open vSwitch notices", lambda: lab.peer.status("mr-un", "cfm_fault") == "true")
