"""Intrusion prevention in line: hosts with kernel TCP stacks, a switch with a chain, rules that block, reject and are replaced.
Ports are tap devices in namespaces.
"""

import json
import os
import subprocess
import sys
import time

import pytest

from namespaces import inside, made
from switches import Millrace, end, run, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root")
SIDES = {"mr-ipsl": ("mr-il", "10.9.0.1"), "mr-ipsr": ("mr-ir", "10.9.0.2")}
RULES = """
drop http any any -> any any (msg:"an attack on the web server"; flow:to_server; http.uri; content:"/attack"; sid:1000001; rev:1;)
rejectboth tcp any any -> any any (msg:"a rejected word"; flow:to_server,established; content:"forbidden-word"; sid:1000002;)
"""


GET = """
import http.client, sys
connection = http.client.HTTPConnection("10.9.0.2", timeout=60)
try:
    connection.connect()
    connection.sock.settimeout(float(sys.argv[2]))
    connection.request("GET", sys.argv[1])
    print(connection.getresponse().read().decode(), end="")
except Exception as error:
    print(type(error).__name__, end="")
"""


class Lab:
    """A client and a web server, with a switch between them whose chain has the function `ips`."""

    def __init__(self, folder):
        self.folder = folder
        ports = [(number, f"tap:{interface}") for number, (interface, _) in enumerate(SIDES.values(), 1)]
        self.rules, self.eve = folder / "local.rules", folder / "eve.json"
        self.rules.write_text(RULES)
        self.switch = Millrace(folder, ports=ports)
        with self.switch.config.open("a") as config:
            config.write(
                '[[bridge.chain]]\nname = "edge"\nnumber = 100\nfar = 101\n[[bridge.chain.hop]]\nname = "ips"\nfunction = "ips"\n'
                f'settings = ["rules={self.rules}", "home_net=10.9.0.2", "export=file:{self.eve}", "statistics_s=1"]\n'
            )

    def __enter__(self):
        self.switch.start()
        for namespace, (interface, address) in SIDES.items():
            run("ip", "link", "set", interface, "netns", namespace)
            inside(namespace, "ip", "address", "add", f"{address}/24", "dev", interface)
            inside(namespace, "ip", "link", "set", interface, "up")
        for here, there in ((1, 100), (101, 2), (2, 101), (100, 1)):
            self.switch.ofctl("add-flow", f"in_port={here},actions=output:{there}")
        self.server = subprocess.Popen(
            ["ip", "netns", "exec", "mr-ipsr", sys.executable, "-m", "http.server", "80", "--directory", str(self.folder / "www")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for("the web server answers", lambda: self.get("/index.html") == "hello")
        return self

    def __exit__(self, *_):
        end(self.server)
        self.switch.stop()

    def get(self, path, bound=60):
        """Returns the body of a page, or the reason why there is none: no bytes within a bound, or what ended the connection."""
        return inside("mr-ipsl", sys.executable, "-c", GET, path, str(bound))

    def events(self, kind):
        lines = self.eve.read_text().splitlines() if self.eve.exists() else []
        return [event for event in map(json.loads, lines) if event["event_type"] == kind]

    def hop(self):
        bridges = json.loads(self.switch.cli("nf", "stats", "--json"))
        return bridges[0]["chains"][0]["hops"][0]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ips")
    (folder / "www").mkdir()
    (folder / "www" / "index.html").write_text("hello")
    (folder / "www" / "attack.html").write_text("taken over")
    (folder / "www" / "forbidden-word.html").write_text("reached")
    with made(*SIDES), Lab(folder) as lab:
        yield lab


def test_an_attack_is_blocked_and_reported_while_other_traffic_passes(lab):
    assert lab.get("/attack.html", bound=1) in ("TimeoutError", "timeout")
    assert lab.get("/index.html") == "hello"

    def alert():
        return next((event for event in lab.events("alert") if event["alert"]["signature_id"] == 1000001), None)

    wait_for("the alert is written", alert)
    event = alert()
    assert event["alert"]["action"] == "blocked"
    assert event["alert"]["signature"] == "an attack on the web server"
    assert (event["src_ip"], event["dest_ip"], event["dest_port"]) == ("10.9.0.1", "10.9.0.2", 80)
    assert event["http"]["url"] == "/attack.html"
    assert abs(time.time() - time.mktime(time.strptime(event["timestamp"][:19], "%Y-%m-%dT%H:%M:%S")) + time.timezone) < 120
    # Retransmissions of the blocked request are dropped by the lane, without a call of the function.
    wait_for("the flow is shunned", lambda: lab.hop()["shunned_dropped"] > 0)
    wait_for("statistics are written", lambda: lab.events("stats"))


def test_a_rejected_connection_is_reset_at_once(lab):
    assert lab.get("/forbidden-word.html") == "ConnectionResetError"
    wait_for("both resets are counted", lambda: lab.hop()["sent"] >= 2)


def test_rules_are_replaced_by_name_and_broken_ones_leave_the_old_set(lab):
    lab.rules.write_text(RULES.replace("/attack", "/index"))
    said = lab.switch.cli("nf", "reload", "br0", "edge", "ips")
    assert "2 rules from 1 file" in said
    assert lab.get("/attack.html") == "taken over"
    assert lab.get("/index.html", bound=1) in ("TimeoutError", "timeout")
    lab.rules.write_text("alert nonsense")
    with pytest.raises(AssertionError, match="what was loaded before stays in use"):
        lab.switch.cli("nf", "reload", "br0", "edge", "ips")
    assert lab.get("/attack.html") == "taken over"
    assert "local.rules" in lab.switch.cli("show", "status")
    lab.rules.write_text(RULES)
    assert "2 rules" in lab.switch.cli("nf", "reload", "br0", "edge", "ips")
    assert lab.get("/index.html") == "hello"


def test_events_go_on_in_a_new_file_after_rotation(lab):
    lab.eve.rename(lab.folder / "eve.json.1")
    lab.switch.process.send_signal(1)
    wait_for("a new file is written", lambda: lab.events("stats"))
