"""An exchange of two sites with many tenants, and orders that change some of them all the time: for tests that count frames at wrong
tenants, and lost frames of circuits that nobody changes (tenants.py sends and receives them)."""

import random
import string
import threading
import time

from exchange import Control, Exchange
from fabrics import circuit, connection, fabric, switch_config, trunk_ports
from sites import Site, Wire
from switches import wait_for

# The number of VLANs that a changing tenant has at each end. One of them is in use.
VLANS = 3


class Tenant:
    """A tenant: two connections, and its VLANs at each. The first VLANs are those of the exchange file."""

    def __init__(self, number, names, changes, rng):
        self.number, self.name, self.changes = number, f"tenant {number}", changes
        # Most tenants are at both sites.
        half = len(names) // 2
        self.ends = rng.sample(names, 2) if number % 4 == 0 else [rng.choice(names[:half]), rng.choice(names[half:])]
        count = VLANS if self.changes else 1
        self.vlans = [number * VLANS + 2 + at for at in range(count)]

    def lanes(self):
        """Returns the lanes at which its frames enter and arrive."""
        return [(end, vlan, self.number) for end in self.ends for vlan in self.vlans]


class Tenancy:
    """The tenants of an exchange with two sites, each with a number of ports to members, whose interfaces have names with a prefix. The
    switches' ports to trunks have `queues` receive queues."""

    def __init__(self, prefix, count, changing, trunks=("north",), seed=6, ports=2, queues=1):
        rng = random.Random(seed)
        letters = iter(string.ascii_lowercase)
        self.ports = {site: {number: f"{prefix}-{next(letters)}" for number in range(1, ports + 1)} for site in ("one", "two")}
        self.links = [name for ports in self.ports.values() for name in ports.values()]
        self.trunks, self.queues = trunks, queues
        self.tenants = [Tenant(number, self.links, number < changing, rng) for number in range(count)]
        self.lanes = [lane for tenant in self.tenants for lane in tenant.lanes()]
        # The counterpart of the lane of a tenant that does not change is its only other lane.
        self.steady = [number for number, (_, _, tenant) in enumerate(self.lanes) if not self.tenants[tenant].changes]

    def text(self):
        """Returns the exchange file."""
        text = fabric({site: list(ports) for site, ports in self.ports.items()}, self.trunks)
        text += '[[account]]\nname = "R"\nkind = "member"\n'
        text += "".join(connection("R", name, f"{site}-1:{port}") for site, ports in self.ports.items() for port, name in ports.items())
        return text + "".join(circuit("R", tenant.name, [(end, tenant.vlans[0]) for end in tenant.ends]) for tenant in self.tenants)

    def start(self, stack, folder, more="", bfd=None):
        """Starts the engine and both switches, with all circuits in place; returns them and the trunks by name."""
        file = folder / "exchange.toml"
        file.write_text(self.text())
        wires = {trunk: stack.enter_context(Wire(trunk)) for trunk in self.trunks}
        exchange = stack.enter_context(Exchange(folder / "ix", more=more))
        exchange.ask("apply", file)
        switches = []
        for dpid, (site, end) in enumerate((("one", "a"), ("two", "b")), 1):
            ports = {port: (name, f"kernel:{name}s") for port, name in self.ports[site].items()}
            for number, trunk in enumerate(self.trunks, 1):
                ports |= trunk_ports(end, trunk, number)
            queues = {f"{trunk}-{end}": self.queues for trunk in self.trunks} if self.queues > 1 else None
            switches.append(stack.enter_context(Site(folder / site, switch_config(dpid, ports, bfd, queues), exchange.target)))
        exchange.wait_in_sync(60)
        for switch in switches:
            wait_for("the trunks are up", lambda switch=switch: all(map(switch.is_live, self.trunks)))
        return exchange, switches, wires


class Changer(threading.Thread):
    """Orders changes of tenants that change, at a rate, until it is told to end. It follows an engine that is started again."""

    def __init__(self, exchange, tenants, rate, seed):
        super().__init__(daemon=True)
        self.exchange, self.rate, self.rng, self.over = exchange, rate, random.Random(seed), threading.Event()
        self.tenants = [tenant for tenant in tenants if tenant.changes]
        self.connections = {one["name"]: id for id, one in exchange.objects("cn").items()}
        self.account = next(id for id, one in exchange.objects("ac").items() if one["name"] == "R")
        self.accepted, self.refused, self.failed = {}, 0, 0

    def run(self):
        control, began, number = None, time.monotonic(), 0
        while not self.over.wait(max(0, began + number / self.rate - time.monotonic())):
            number += 1
            try:
                control = control or Control(self.exchange.socket)
                kind, operations = self.change(control)
                self.order(control, operations)
                self.accepted[kind] = self.accepted.get(kind, 0) + 1
            except ValueError:
                # A service is still being removed, or a VLAN is not free again.
                self.refused += 1
            except OSError:
                self.failed += 1
                control = control and control.close()
        if control:
            control.close()

    def order(self, control, operations):
        """Orders a change; fails with ValueError if the engine refuses it, and with OSError if it is gone."""
        control.order(*operations)

    def change(self, control):
        """Returns the kind and the operations of a change of a random tenant."""
        tenant = self.rng.choice(self.tenants)
        services = control.ask("objects", prefix="sv")
        service = next((one["id"] for one in services if one["name"] == tenant.name), None)
        if service is None:
            return "made", self.made(tenant)
        ends = [one for one in control.ask("objects", prefix="nc") if one["service"] == service]
        kind = self.rng.choice(["moved", "moved", "resized", "deleted", "shut"]) if ends else "deleted"
        if kind == "deleted":
            return kind, [{"operation": "delete", "target": service}]
        end = self.rng.choice(ends)
        if kind == "moved":
            vlan = {"type": "dot1q", "vlan": self.rng.choice(tenant.vlans)}
            return kind, [{"operation": "move_end", "config": end["id"], "connection": end["connection"], "vlan": vlan}]
        if kind == "resized":
            return kind, [{"operation": "set_rate", "config": end["id"], "capacity_mbps": self.rng.choice([10, 50, 100])}]
        return kind, [{"operation": "shut_down", "config": end["id"], "shut_down": not end["shut_down"]}]

    def made(self, tenant):
        vlan = {"type": "dot1q", "vlan": self.rng.choice(tenant.vlans)}
        return [{"operation": "create_service", "account": self.account, "kind": "p2p_vc", "name": tenant.name},
                *({"operation": "configure_end", "service": "sv-0", "connection": self.connections[end], "vlan": vlan}
                  for end in tenant.ends)]

    def end(self):
        self.over.set()
        self.join(60)
