"""Two engines on one PostgreSQL database with a switch and a member's circuit, and the circuit's traffic."""

import re
import shutil
import signal
import threading
import time

from exchange import Exchange
from switches import Millrace, free_port, wait_for
from test_exchange import frame, frames_until, socket_on

PAIRS = [("ixe-a", "ixe-sa"), ("ixe-b", "ixe-sb")]
# The frames in a second of the member's traffic.
RATE = 200


class Traffic(threading.Thread):
    """Sends numbered frames through a circuit, and notes which ones arrive."""

    def __init__(self, one, other):
        super().__init__(daemon=True)
        self.one, self.other, self.over = socket_on(one), socket_on(other), threading.Event()
        self.sent, self.arrived = 0, set()
        self.receiver = threading.Thread(target=self.receive, daemon=True)

    def run(self):
        self.receiver.start()
        began = time.monotonic()
        while not self.over.wait(max(0, began + self.sent / RATE - time.monotonic())):
            try:
                self.one.send(frame(f"number {self.sent} ", 100))
            except OSError:
                # The test has failed, and its interfaces are gone.
                return
            self.sent += 1

    def receive(self):
        for data in frames_until(self.other, self.over):
            words = data.split(b"number ")
            if len(words) == 2:
                self.arrived.add(int(words[1].split()[0]))

    def lost(self):
        """Ends the traffic, and returns the numbers of the frames that did not arrive."""
        self.over.set()
        self.join(60)
        wait_for("the last frame", lambda: not self.receiver.is_alive())
        return set(range(self.sent)) - self.arrived


class Pair:
    """Two engines on one database, a switch that knows both, and a circuit of a member."""

    def __init__(self, folder, server, leads_max=60):
        self.server, self.leads_max = server, leads_max
        self.urls = [f"http://127.0.0.1:{free_port()}" for _ in range(2)]
        self.engines = []
        for number, url in enumerate(self.urls, 1):
            api = f'[api]\nlisten = "{url.removeprefix("http://")}"\nname = "Test IX"\n'
            self.engines.append(Exchange(
                folder / f"ix-{number}", engine=f'name = "ix-{number}"\naddress = "{url}"', more=api,
                database=f'postgres = "{server.connection(number)}"'))
        self.headers, self.traffics = None, []
        self.switch = Millrace(folder / "switch", ports=[(1, "kernel:ixe-sa"), (2, "kernel:ixe-sb")],
                               controllers=[engine.target for engine in self.engines])

    def __enter__(self):
        one, two = self.engines
        one.start()
        for ending in ("key", "seal"):
            shutil.copy(one.folder / f"exchange.{ending}", two.folder / f"exchange.{ending}")
        two.start()
        self.switch.__enter__()
        _, switch_id = one.create_site("Otemachi", 1, [1, 2])
        self.account, self.ends = one.create_member("A", f"{switch_id}:1", f"{switch_id}:2")
        self.order(one, "ab", 100)
        one.wait_in_sync()
        return self

    def __exit__(self, *_):
        for engine in self.engines:
            if engine.process and engine.process.poll() is None:
                engine.process.send_signal(signal.SIGCONT)
            engine.stop(signal.SIGKILL)
        self.switch.stop()

    def heal(self):
        """Ends what a test that failed has left: traffic, engines that sleep or are gone, a database that is away."""
        for traffic in self.traffics:
            traffic.over.set()
        self.traffics = []
        self.server.resume()
        for number, engine in enumerate(self.engines, 1):
            self.server.let_in(number)
            if engine.process.poll() is None:
                engine.process.send_signal(signal.SIGCONT)
            else:
                engine.start()
        wait_for("one engine leads, and the other one follows", lambda: sorted(map(self.role, self.engines)) == ["follows", "leads"])

    def traffic(self):
        """Starts the traffic of the member's circuit, and waits until its frames arrive."""
        traffic = Traffic(*(name for name, _ in PAIRS))
        self.traffics.append(traffic)
        traffic.start()
        wait_for("frames arrive", lambda: len(traffic.arrived) > 20)
        return traffic

    def order(self, engine, name, vlan, check=True):
        a, b = self.ends
        return engine.command("--json", "p2p", name, "--account", self.account, "--a", f"{a}:{vlan}", "--b", f"{b}:{vlan}", check=check)

    def by_role(self):
        """Returns the engine that leads, and the one that follows."""
        wait_for("one engine leads", lambda: any(map(self.leads, self.engines)))
        one, two = self.engines
        return (one, two) if self.leads(one) else (two, one)

    def url(self, engine):
        return self.urls[self.engines.index(engine)]

    def key_of_staff(self):
        """Makes a user of the exchange's staff; returns the headers of requests with an API key."""
        if not self.headers:
            leader, _ = self.by_role()
            leader.order(
                {"operation": "create_account", "name": "Staff", "kind": "exchange"},
                {"operation": "create_user", "name": "ops", "account": "ac-0", "roles": ["operator_admin", "operator_noc"]})
            _, secret = leader.api_key(self.url(leader), "ops")
            self.headers = {"authorization": f"Bearer {secret}"}
        return self.headers

    def role(self, engine):
        """Returns `leads` or `follows`; an empty text if the engine does not answer."""
        found = re.search(r'"role": ?"(\w+)"', engine.command("--json", "status", check=False))
        return found[1] if found else ""

    def leads(self, engine):
        return self.role(engine) == "leads"

    def wait_leads(self, engine):
        """Waits until an engine leads and the switch is in sync; returns the seconds until it led."""
        began = time.monotonic()
        wait_for(f"leads ({engine.log})", lambda: self.leads(engine))
        took = time.monotonic() - began
        assert took < self.leads_max, took
        engine.wait_in_sync()
        return took

    def epoch(self):
        return int(self.server.sql("SELECT epoch FROM engine"))
