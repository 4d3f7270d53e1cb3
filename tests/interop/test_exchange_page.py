"""The exchange's web page in Chromium against a running engine and switch: a path that two members order there carries frames,
follows what they press, and outlives the engine. It needs root, Node, Chromium and the built page (`make portal`)."""

import os
import pathlib
import shutil
import signal
import subprocess

import pytest
import scapy.all as scapy

import namespaces
from exchange import Exchange
from switches import Millrace, free_port
from test_exchange import PAIRS, frame, passes, socket_on

PORTAL = pathlib.Path(__file__).parents[2] / "portal"
PASSWORD = "correct horse battery"

missing = [name for name in ("node", "chromium") if not shutil.which(name)]
missing += [str(path) for path in (PORTAL / "dist/index.html", PORTAL / "node_modules/playwright-core") if not path.exists()]
pytestmark = pytest.mark.skipif(os.geteuid() != 0 or bool(missing), reason=f"needs root and {', '.join(missing) or 'the page'}")


class Page:
    """Two members in Chromium, step by step."""

    def __init__(self, url):
        self.process = subprocess.Popen(["node", PORTAL / "tests/journeys/live.mjs", url], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def step(self, name):
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline().strip() == f"ok {name}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=60)


def test_a_path_is_ordered_on_the_page_and_carries_frames(tmp_path):
    port = free_port()
    api = f'[api]\nlisten = "127.0.0.1:{port}"\npage = "{PORTAL / "dist"}"\n'
    with namespaces.cables(*PAIRS), Exchange(tmp_path / "ix", engine=api) as exchange:
        ports = [(1, "kernel:ix-sa"), (2, "kernel:ix-sb")]
        with Millrace(tmp_path / "switch", ports=ports, controllers=[exchange.target]):
            _, switch_id = exchange.create_site("Otemachi", 1, [1, 2])
            accounts = {}
            for number, (name, user, asn) in enumerate([("Aoba", "ann", 64500), ("Baikal", "bob", 64501)], 1):
                created = exchange.order(
                    {"operation": "create_account", "name": name, "kind": "member", "asns": [asn], "discoverable": True},
                    {"operation": "create_connection", "account": "ac-0", "name": f"{name} 1", "kind": "standalone",
                     "ports": [f"{switch_id}:{number}"]},
                    {"operation": "create_user", "name": user, "account": "ac-0", "roles": ["member_admin"]})
                accounts[name] = next(id for id in created["applied"]["created"] if id.startswith("ac-"))
                exchange.command("user", "password", user, input=PASSWORD + "\n")
            exchange.wait_in_sync()
            a, b = socket_on("ix-a"), socket_on("ix-b")
            with Page(f"http://localhost:{port}") as page:
                page.step("order")
                assert passes(a, b, frame("early", 100), "early", 1) is None, "frames pass before the other side accepts"
                page.step("accept")
                assert passes(a, b, frame("first", 100), "first") is not None, exchange.log.read_text()[-4000:]
                assert passes(b, a, frame("back"), "back") is not None
                page.step("shut_down")
                exchange.wait_in_sync()
                assert passes(a, b, frame("shut", 100), "shut", 1) is None
                page.step("open_again")
                assert passes(a, b, frame("again", 100), "again") is not None

                # A filter of the exchange's staff: the page shows the exact number of packets that the switch drops.
                exchange.order({"operation": "create_filter", "account": accounts["Aoba"], "matching": {"destination": "203.0.113.7/32"},
                                "action": {"type": "drop"}, "origin": "api", "state": {"name": "active"}})
                exchange.wait_in_sync()
                attack = scapy.Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / scapy.IP(dst="203.0.113.7") / scapy.UDP()
                for number in range(100):
                    b.send(bytes(attack / f"attack {number}".encode().ljust(60, b".")))
                assert not namespaces.receive(a, lambda received: b"attack " in received, bound=1)
                page.step("filter_counts")

                exchange.stop(signal.SIGKILL)
                assert passes(a, b, frame("alone", 100), "alone") is not None
                page.step("engine_is_away")
                exchange.start()
                page.step("engine_is_back")
                exchange.wait_in_sync()
                page.step("remove")
                exchange.wait_in_sync()
                assert passes(a, b, frame("late", 100), "late", 1) is None
