"""Acts 5 and 6 of the demo: attacks on a member, dropped by filters where they enter."""

import contextlib
import json
import subprocess
import time

import requests

from namespaces import entered
from sites import ENGINE
from stage import DIM, HERE, OFF, ON_ENGINE, act, hold, row, say
from streams import ARRIVAL_MAX_S, Receiver, Sender
from switches import wait_for

# The victims of the attacks: NTP amplification, and DNS amplification that the exchange finds itself.
VICTIM, FOUND_VICTIM, BYSTANDER = "198.18.1.10", "198.18.1.30", "198.18.1.20"
NTP, DNS = 123, 53
# Numbers of streams; demo.py has those below.
FROM_BAIKAL, FROM_CASTOR, GOOD, AGAIN = range(4, 8)
# The servers of the Internet, behind two members, that answer to a victim.
AMPLIFIERS = {FROM_BAIKAL: "203.0.113.7", FROM_CASTOR: "198.51.100.9", AGAIN: "203.0.113.7"}
FILTER_COOKIE = 0x585  # the owner and the kind of the cookies of filters (crates/exchange/ix-plan/src/layout.rs)


class Attacks:
    """The attacks on Aoba in the exchange of a demo."""

    def __init__(self, demo):
        self.demo = demo
        self.attacked = 0.0  # the time of the first frame of the newest attack
        self.headers = {}  # those of Aoba's program at the API

    def drop(self):
        """Attacks a member from both sites, and drops the attack by a filter, and by a route of the member's router."""
        act("5. An attack on Aoba from both sites, dropped where it enters")
        aoba = self.demo.routers[0]
        wait_for("Aoba's session with the exchange", lambda: "Established" in aoba.control("show", "protocols", "exchange"))
        self.wait_alive()
        row(f"NTP frames to {VICTIM}", "sent", "at Aoba", "dropped", "where")
        if self.demo.page:
            self.attack_once("a filter by the page", self.filter_on_page(), self.delete_filters, self.demo.calm)
        else:
            self.attack_once("a filter by order", self.filter_by_order, self.delete_filters, self.demo.calm)
        self.attack_once("RTBH: Aoba's router announces 198.18.1.10/32 with BLACKHOLE", lambda: self.blackhole(True),
                         lambda: self.blackhole(False), self.demo.calm)
        say("each frame of the attack either arrived before the drop, or is in a counter at the site where it entered")
        self.demo.check_sessions()

    def wait_alive(self):
        """Waits until Aoba owns its prefix: its route is at the exchange, and the registry has an object for it."""
        def sessions():
            log = self.demo.exchange.log.read_text()
            return "objects of the routing registry" in log and "BGP connection" in log
        wait_for("the engine has Aoba's routes and objects", sessions)

    def attack_once(self, name, drop, release, calm, victim=VICTIM, port=NTP):
        """Attacks a victim from a source port, under other traffic; drops the attack after some seconds, accounts for its frames,
        and lets such frames pass again."""
        aoba, baikal, castor, danube = self.demo.sites.members

        def attacker(member, stream):
            return Sender(member.name, "lan", stream, source=AMPLIFIERS[stream], destination=victim, to_mac=aoba.mac,
                          from_mac=member.mac, rate=self.demo.attack_pps, sport=port, dport=4000 + stream, padding=400)

        with contextlib.ExitStack() as stack:
            receiver = stack.enter_context(Receiver("aoba", "lan"))
            good = stack.enter_context(Sender("danube", "lan", GOOD, source=danube.v4, destination=BYSTANDER, to_mac=aoba.mac,
                                              from_mac=danube.mac, rate=500))
            attackers = [stack.enter_context(attacker(*one)) for one in ((baikal, FROM_BAIKAL), (castor, FROM_CASTOR))]
            for stream in (FROM_BAIKAL, FROM_CASTOR, GOOD):
                receiver.wait_first(stream)
            self.attacked = time.monotonic()
            time.sleep(calm)
            ordered = drop()
            wait_for("the filter is there", self.filters)
            time.sleep(self.demo.calm)
            sent = [sender.end()["sent"] for sender in attackers]

            def accounted():
                arrived = receiver.arrived()
                counts = [arrived[stream][0] for stream in (FROM_BAIKAL, FROM_CASTOR)]
                return all(number == count + drops for number, count, drops in zip(sent, counts, self.dropped()))
            with contextlib.suppress(AssertionError):  # what is missing then is said below
                wait_for("the attack has arrived or is dropped", accounted, ARRIVAL_MAX_S)
            dropped = self.dropped()
            attacker_again = stack.enter_context(attacker(baikal, AGAIN))
            time.sleep(0.3)
            released = release() or time.time()
            again = receiver.wait_first(AGAIN)
            attacker_again.end()
            sent_good = good.end()["sent"]
            seen = receiver.end({GOOD: sent_good})["streams"]
        say(f"  {name}:")
        streams = [seen[str(stream)] for stream in (FROM_BAIKAL, FROM_CASTOR)]
        sites = zip(("  from Baikal", "  from Castor"), sent, streams, dropped, ("Otemachi", "Makuhari"))
        for who, number, stream, drops, site in sites:
            row(who, number, stream["received"], drops, site)
        last = max(stream["last"] for stream in streams)
        row("  from the order to the last frame of the attack", f"{max(0, last - ordered) * 1000:.0f} ms")
        row("  from its end to the first frame that passes again", f"{(again - released) * 1000:.0f} ms")
        row("  other traffic to Aoba: sent, at Aoba", sent_good, seen[str(GOOD)]["received"])
        for number, stream, drops in zip(sent, streams, dropped):
            hold(drops > 0, "a site dropped nothing")
            hold(number == stream["received"] + drops, "the counters of the filter do not account for every frame")
        passed = f"the attack passed for {last - ordered:.1f} s, which is more than {self.demo.effect:g} s"
        hold(last - ordered < self.demo.effect, passed)
        late = f"traffic passed again {again - released:.1f} s after the end of the filter, and not within {self.demo.effect:g} s behind it"
        hold(0 < again - released < self.demo.effect, late)
        hold(sent_good == seen[str(GOOD)]["received"], "other traffic was lost")
        wait_for("the filter is gone", lambda: not self.filters())

    def dropped(self):
        """Returns the number of packets that the filters of each site have dropped."""
        return [sum(entry["packets"] for entry in site.entries(5) if entry["cookie"] >> 52 == FILTER_COOKIE)
                for site in (self.demo.otemachi, self.demo.makuhari)]

    def filters(self):
        """Returns the active filters."""
        return [id for id, one in self.demo.exchange.objects("fi").items() if one["state"]["name"] == "active"]

    def filter_on_page(self):
        """Fills in the filter on the page; returns the function that presses the button."""
        browser = subprocess.Popen([*ON_ENGINE, "node", HERE / "attack.mjs", f"http://localhost:{self.demo.port}", self.demo.pictures],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.demo.stack.callback(browser.kill)
        line = browser.stdout.readline()
        hold("ready" in line, f"the page: {line or browser.stderr.read()[-2000:]}")

        def press():
            browser.stdin.write("\n")
            browser.stdin.flush()
            line = browser.stdout.readline()
            hold("ordered" in line, f"the page: {line}")
            _, errors = browser.communicate(timeout=60)
            hold(browser.returncode == 0, f"the page: {errors[-2000:]}")
            return json.loads(line)["at"]

        return press

    def filter_by_order(self):
        """Orders the filter as the exchange's staff; returns the time."""
        account = next(id for id, one in self.demo.exchange.objects("ac").items() if one["name"] == "Aoba Networks")
        matching = {"destination": f"{VICTIM}/32", "protocol": 17, "source_ports": [{"first": 123, "last": 123}]}
        ordered = time.time()
        self.demo.exchange.order({
            "operation": "create_filter", "account": account, "matching": matching, "action": {"type": "drop"},
            "origin": "api", "state": {"name": "active"}, "comment": "NTP amplification"})
        return ordered

    def delete_filters(self):
        """Deletes all filters; returns the time of the order."""
        ids, ordered = self.filters(), time.time()
        self.demo.exchange.order(*({"operation": "delete_filter", "filter": id} for id in ids))
        return ordered

    def blackhole(self, announce):
        """Announces or withdraws the victim's address with BLACKHOLE (RFC 7999) at Aoba's router; returns the time."""
        text = f"protocol static rtbh {{ ipv4; route {VICTIM}/32 blackhole {{ bgp_community.add((65535, 666)); }}; }}\n"
        aoba = self.demo.routers[0]
        ordered = time.time()
        if announce:
            aoba.add_to_config(text)
        else:
            aoba.remove_from_config(text)
        return ordered

    def find(self):
        """Attacks an address of Aoba; a program of Aoba finds the attack by the API, and orders the filter that the exchange suggests."""
        act("6. Another attack: found by sFlow, stopped by the filter that the exchange suggests")
        account = next(id for id, one in self.demo.exchange.objects("ac").items() if one["name"] == "Aoba Networks")
        self.demo.exchange.order({"operation": "create_user", "name": "aoba-noc", "account": account, "roles": ["member_admin"]})
        with entered(ENGINE):
            _, key = self.demo.exchange.api_key(f"http://127.0.0.1:{self.demo.port}", "aoba-noc")
        self.headers = {"Authorization": f"Bearer {key}"}
        say("both switches send one of 20 frames to the engine, with the service and the members that it belongs to")
        row(f"DNS frames to {FOUND_VICTIM}", "sent", "at Aoba", "dropped", "where")
        self.attack_once("the filter that the exchange suggested", self.order_suggested, self.delete_filters, 0, FOUND_VICTIM, DNS)
        self.demo.check_sessions()

    def ask(self, method, path, **options):
        """Returns the answer of the API to Aoba's program."""
        with entered(ENGINE):
            answer = requests.request(method, f"http://127.0.0.1:{self.demo.port}/api/v1/{path}", headers=self.headers, timeout=60, **options)
        hold(answer.ok, f"{method} {path}: {answer.status_code} {answer.text}")
        return answer.json()

    def order_suggested(self):
        """Waits until the exchange names the attack and a filter, and orders it; returns the time of the order."""
        wait_for("the attack is among the destinations", lambda: any(
            target["prefix"] == f"{FOUND_VICTIM}/32" for target in self.ask("GET", "attack")["targets"]))

        def suggestions():
            traffic = self.ask("GET", "attack", params={"target": f"{FOUND_VICTIM}/32"})["traffic"]
            # With an error of 30 %, there are more than 40 samples.
            return traffic and traffic["error_percent"] < 30 and traffic["suggestions"] and traffic
        traffic = wait_for("a filter is suggested", suggestions)
        took, [suggestion, *_] = time.monotonic() - self.attacked, traffic["suggestions"]
        say(f"{DIM}$ curl https://ix.example/api/v1/attack?target={FOUND_VICTIM}/32{OFF}")
        peers = next(parts["shares"] for parts in traffic["breakdown"] if parts["by"] == "peer")
        total = traffic["target"]["bits_per_s"]
        say(f"  the traffic to {traffic['target']['prefix']} comes from " + ", ".join(
            f"{one['label']} ({100 * one['bits_per_s'] / total:.0f} %)" for one in peers[:2]))
        say(f"  suggested {took:.1f} s after the first frame: {suggestion['matching']} ({100 * suggestion['covers']:.0f} % of the traffic)")
        say(f"  why: {suggestion['why']}")
        hold(suggestion["order"]["source_ports"] == [{"first": DNS, "last": DNS}], f"the suggestion is not about DNS: {suggestion}")
        order = suggestion["order"]
        if order["action"] != "drop":
            say("  the usual traffic is known after four minutes; until then a limit is suggested. Aoba asks nobody by DNS, and drops")
            order = order | {"action": "drop", "rate_kbps": None}
        ordered = time.time()
        self.ask("POST", "filters", json=order)
        return ordered
