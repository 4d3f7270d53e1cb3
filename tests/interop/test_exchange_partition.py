"""Two sites, each with a switch and an engine, without the trunk and the network between them: one engine leads, and both sites forward.
The database is at the first site; the leader is at the second one when they part. Needs root."""

import contextlib
import os
import shutil
import signal

import pytest
import requests

import namespaces
import postgres
from engine_pair import Traffic
from exchange import Exchange
from fabrics import circuit, connection, fabric, switch_config, trunk_ports
from sites import Site, Wire
from switches import free_port, wait_for
from test_exchange import frame, passes, socket_on
from test_exchange_engines import LEADS_MAX, refusal
from test_exchange_scale import Proxy

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="virtual Ethernet needs root"),
    pytest.mark.skipif(not postgres.is_installed(), reason=postgres.MISSING),
]
PORTS = {"one": {1: "ixp-a", 2: "ixp-b"}, "two": {1: "ixp-c", 2: "ixp-d"}}
LINKS = [name for ports in PORTS.values() for name in ports.values()]


class Parted:
    """Both sites, and what is between them."""

    def __init__(self, folder, stack):
        server = stack.enter_context(postgres.Server())
        stack.enter_context(namespaces.cables(*((name, f"{name}s") for name in LINKS), mtu=1700))
        self.server, self.wire = server, stack.enter_context(Wire("apart"))
        self.urls, self.engines = [f"http://127.0.0.1:{free_port()}" for _ in range(2)], []
        for number, url in enumerate(self.urls, 1):
            api = f'[api]\nlisten = "{url.removeprefix("http://")}"\nname = "Test IX"\n'
            engine = Exchange(folder / f"ix-{number}", engine=f'name = "ix-{number}"\naddress = "{url}"', more=api,
                              database=f'postgres = "{server.connection(number)}"')
            stack.callback(engine.stop, signal.SIGKILL)
            self.engines.append(engine)
        one, two = self.engines
        one.start()
        for ending in ("key", "seal"):
            shutil.copy(one.folder / f"exchange.{ending}", two.folder / f"exchange.{ending}")
        two.start()
        file = folder / "exchange.toml"
        file.write_text(self.text())
        one.ask("apply", file)
        # The connections of switches to the engine of the other site.
        self.relays, self.switches = [], []
        for dpid, (site, end) in enumerate((("one", "a"), ("two", "b")), 1):
            own, other = self.engines[dpid - 1], self.engines[2 - dpid]
            relay = Proxy(other.target)
            stack.callback(relay.close)
            ports = {port: (name, f"kernel:{name}s") for port, name in PORTS[site].items()} | trunk_ports(end, "apart")
            config = switch_config(dpid, ports, bfd=None)
            self.switches.append(stack.enter_context(Site(folder / site, config, f'{own.target}", "{relay.address}')))
            self.relays.append(relay)
        one.wait_in_sync()
        for switch in self.switches:
            wait_for("the trunk is up", lambda switch=switch: switch.is_live("apart"))

    def text(self):
        text = fabric({site: list(ports) for site, ports in PORTS.items()}, ("apart",)) + '[[account]]\nname = "R"\nkind = "member"\n'
        text += '[[account]]\nname = "Staff"\nkind = "exchange"\n'
        text += "".join(connection("R", name, f"{site}-1:{port}") for site, ports in PORTS.items() for port, name in ports.items())
        circuits = {"at one": ("ixp-a", "ixp-b", 100), "at two": ("ixp-c", "ixp-d", 100), "across": ("ixp-a", "ixp-c", 101)}
        return text + "".join(circuit("R", name, [(near, vlan), (far, vlan)]) for name, (near, far, vlan) in circuits.items())

    def leads(self, engine):
        return '"role":"leads"' in engine.command("--json", "status", check=False).replace(" ", "")

    def part(self):
        self.wire.cut()
        for relay in self.relays:
            relay.cut(False)
        self.server.cut_off(2)

    def join(self):
        self.server.let_in(2)
        for relay in self.relays:
            relay.open = True
        self.wire.mend()

    def switch_state(self, engine, number):
        return engine.ask("status")["switches"][number]["state"]

    def order(self, engine, name, near, far, vlan):
        ids = {one["name"]: id for id, one in engine.objects("cn").items()}
        account = next(id for id, one in engine.objects("ac").items() if one["name"] == "R")
        return engine.ask("p2p", name, "--account", account, "--a", f"{ids[near]}:{vlan}", "--b", f"{ids[far]}:{vlan}")["change"]

    def state_of(self, engine, name):
        return next(service["state"] for service in engine.ask("services") if service["name"] == name)


def test_both_sites_forward_and_one_engine_leads_while_they_are_cut_from_each_other(tmp_path):
    with contextlib.ExitStack() as stack:
        world = Parted(tmp_path, stack)
        one, two = world.engines
        # The engine of the second site leads.
        one.stop(signal.SIGKILL)
        wait_for("the second one leads", lambda: world.leads(two))
        one.start()
        two.wait_in_sync()
        wait_for("the follower knows the services", lambda: len(one.ask("services")) == 3)
        a, c = socket_on("ixp-a"), socket_on("ixp-c")
        assert passes(a, c, frame("together", 101), "together") is not None
        epoch = int(world.server.sql("SELECT epoch FROM engine"))
        local = {"one": Traffic("ixp-a", "ixp-b"), "two": Traffic("ixp-c", "ixp-d")}
        for traffic in local.values():
            traffic.start()
        for traffic in local.values():
            wait_for("frames arrive", lambda traffic=traffic: len(traffic.arrived) > 20)

        world.part()
        wait_for(f"the engine beside the database leads ({one.log})", lambda: world.leads(one), LEADS_MAX)
        assert int(world.server.sql("SELECT epoch FROM engine")) == epoch + 1
        wait_for("it commands its own switch", lambda: world.switch_state(one, 0) == "in_sync")
        assert world.switch_state(one, 1) == "disconnected"
        # The other one can neither order nor write, and shows what it remembers.
        assert "does not answer" in refusal(two)
        wait_for("the status says so", lambda: two.ask("status")["engine"]["database_silent_secs"] is not None)
        assert len(two.ask("services")) == 3
        page = requests.get(f"{world.urls[1]}/api/v1/status", timeout=60)
        assert page.status_code == 200 and int(page.headers["age"]) >= 0, page.headers
        # An order at the first site is carried out; one for the second waits.
        world.order(one, "new at one", "ixp-a", "ixp-b", 102)
        world.order(one, "new at two", "ixp-c", "ixp-d", 102)
        assert passes(a, socket_on("ixp-b"), frame("of the leader", 102), "of the leader") is not None
        d = socket_on("ixp-d")
        assert passes(c, d, frame("not yet", 102), "not yet", 0.5) is None and passes(a, c, frame("apart", 101), "apart", 0.5) is None
        for traffic in local.values():
            seen = len(traffic.arrived)
            wait_for("frames arrive at both sites", lambda traffic=traffic, seen=seen: len(traffic.arrived) > seen + 20)

        world.join()
        wait_for("the old leader follows", lambda: '"follows"' in two.command("--json", "status", check=False))
        one.wait_in_sync()
        assert passes(c, d, frame("at last", 102), "at last") is not None
        assert passes(a, c, frame("together again", 101), "together again") is not None
        assert world.leads(one) and not world.leads(two)
        assert int(world.server.sql("SELECT epoch FROM engine")) == epoch + 1
        for site, traffic in local.items():
            lost = traffic.lost()
            print(f"site {site}: {traffic.sent} frames, {len(lost)} lost")
            assert not lost, (site, sorted(lost)[:20])
