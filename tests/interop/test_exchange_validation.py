"""Validation of flow specifications (RFC 9117): the verdicts of the exchange are those of BIRD's `validate`, for random worlds of
routes and rules of three members. `make exchange-check` has 1,000 worlds."""

import os
import random
import re
import shutil

import pytest

import bgp
import routing
from exchange import Exchange
from switches import free_port, run, wait_for

LONG = bool(os.environ.get("MILLRACE_EXCHANGE_LONG"))
WORLDS = 1000 if LONG else 150
MEMBERS = {"127.0.1.1": 64501, "127.0.1.2": 64502, "127.0.1.3": 64503}
# The protocol UDP.
UDP = b"\x03\x81\x11"


class Bird(routing.Daemon):
    """BIRD with a session of each member, which validates their flow specifications against their routes."""

    def start(self):
        self.port = free_port()
        sessions = "".join(f"""
protocol bgp m{asn} {{
  local 127.0.0.1 port {self.port} as {routing.EXCHANGE_ASN}; neighbor {address} as {asn}; multihop 2; passive;
  ipv4 {{ import all; export none; }};
  flow4 {{ table flows; import all; export none; validate; base table master4; }};
}}
""" for address, asn in MEMBERS.items())
        (self.folder / "bird.conf").write_text(f"""
log "{self.folder}/bird.log" all;
router id 192.0.2.102;
protocol device {{}}
ipv4 table master4 {{ trie yes; }};
flow4 table flows;
{sessions}
""")
        self.launch("bird", "-f", "-c", self.folder / "bird.conf", "-s", self.folder / "ctl", "-P", self.folder / "pid")
        wait_for("bird answers", lambda: routing.bird_answers(self.folder / "ctl"))
        assert self.process.poll() is None, self.log.read_text()

    def count(self, table):
        text = run("birdc", "-s", self.folder / "ctl", "show", "route", "count", "table", table)
        return int(re.search(r"^(\d+) of", text, re.MULTILINE)[1])

    def verdicts(self):
        """Returns {destination: True if the rule is feasible}: one that is not is unreachable."""
        text = run("birdc", "-s", self.folder / "ctl", "show", "route", "table", "flows", "all")
        found = re.findall(r"^flow4 \{ dst ([\d./]+);[^}]*\}(.*)$", text, re.MULTILINE)
        return {destination: "unreachable" not in rest for destination, rest in found}


def world(rng, number):
    """Returns the routes of a world as {prefix: AS}, and a rule as (AS, destination), within a /20 that only this world has."""
    base = (20 << 24) + (number << 12)

    def prefix():
        size = rng.choice([20, 22, 23, 24, 24, 28, 32])
        address = base + (rng.randrange(2) << 11) + (rng.randrange(2) << 8) + rng.choice([0, 0, 1, 16])
        address &= ~((1 << (32 - size)) - 1)
        return f"{address >> 24}.{address >> 16 & 255}.{address >> 8 & 255}.{address & 255}/{size}"
    asns = list(MEMBERS.values())
    # Two members that announce one prefix are both its originators for the exchange; BIRD compares with the best route only.
    routes = {prefix(): rng.choice(asns) for _ in range(rng.randrange(7))}
    return routes, (rng.choice(asns), prefix())


def test_verdicts_about_flow_specifications_are_those_of_bird(tmp_path):
    if not (shutil.which("bird") and shutil.which("stayrtr")):
        pytest.skip("bird or stayrtr is not installed: run scripts/setup.sh")
    rng = random.Random(9117)
    worlds = [world(rng, number) for number in range(WORLDS)]
    port = free_port()
    cache = routing.StayRtr(tmp_path / "rtr")
    # Everybody is authorised, so that the routes alone decide.
    cache.write([("20.0.0.0/8", 32, asn) for asn in MEMBERS.values()])
    with cache, Bird(tmp_path / "bird") as bird:
        peers = {address: (asn, f"M{asn}") for address, asn in MEMBERS.items()}
        sections = routing.settings_of(port, peers, caches=[cache], more="changes_per_sec = 1000")
        with Exchange(tmp_path / "ix", engine="match_extensions = true\n" + sections) as exchange:
            exchange.order(*({"operation": "create_account", "name": f"M{asn}", "kind": "member", "asns": [asn]}
                             for asn in MEMBERS.values()))
            speakers = {asn: [bgp.Speaker(("127.0.0.1", to), address, asn) for to in (port, bird.port)]
                        for address, asn in MEMBERS.items()}
            # Routes come first: a rule whose owner loses the destination later is suspended after a hold (docs/exchange-filters.md).
            for asn, both in speakers.items():
                for speaker in both:
                    speaker.announce(*(prefix for routes, _ in worlds for prefix, origin in routes.items() if origin == asn))
            total = sum(len(routes) for routes, _ in worlds)
            wait_for("the routes are in BIRD", lambda: bird.count("master4") == total, bound=60)
            wait_for("the routes are in the engine", lambda: sum(one["prefixes"] for one in exchange.ask("sessions")) == total, 60)
            for asn, both in speakers.items():
                for speaker in both:
                    speaker.flows([bgp.flow(destination, UDP) for _, (origin, destination) in worlds if origin == asn])
            wait_for("the rules are in BIRD", lambda: bird.count("flows") == WORLDS, bound=60)

            def ours():
                filters = exchange.objects("fi").values()
                return {one["matching"]["destination"]: one["state"]["name"] == "active" for one in filters}
            wait_for("the rules are filters", lambda: len(ours()) == WORLDS, bound=60)
            theirs = bird.verdicts()
            try:
                wait_for("equal verdicts", lambda: ours() == theirs, bound=60)
            except AssertionError:
                found = ours()
                wrong = [(*one, theirs.get(one[1][1])) for one in worlds if found[one[1][1]] != theirs.get(one[1][1])]
                raise AssertionError(f"{len(wrong)} of {WORLDS} differ from BIRD: {wrong[:3]}") from None
            for both in speakers.values():
                for speaker in both:
                    speaker.close()
    feasible = sum(theirs.values())
    print(f"{WORLDS} worlds: {feasible} rules feasible, {WORLDS - feasible} not, 0 differences from BIRD")
    assert len(theirs) == WORLDS and WORLDS // 10 < feasible < WORLDS * 9 // 10
