"""A route server and its clients for tests: BIRDs in namespaces of one LAN, and the API's view of them."""

import contextlib
import subprocess

import requests

import namespaces
from routing import BIRD3, bird_answers
from switches import end, run, wait_for


class Member:
    """A client of the route server: BIRD in one of its addresses of the LAN, which announces routes."""

    def __init__(self, folder, asn, addresses, routes):
        self.folder, self.addresses, self.namespace = folder, addresses, f"ar-{asn}"
        folder.mkdir()
        sessions = "".join(
            f"""
protocol bgp rs{4 if "." in address else 6} {{
  local {address} as {asn}; neighbor {server} as 64999; strict bind yes; connect delay time 1; connect retry time 1;
  ipv{4 if "." in address else 6} {{ import all; export where source = RTS_STATIC; }};
}}
""" for address, server in zip(addresses, SERVER))
        (folder / "bird.conf").write_text(f"""
log "{folder}/log" all;
router id 10.{asn >> 8 & 255}.{asn & 255}.1;
protocol device {{}}
protocol static {{ ipv4; {" ".join(f"route {route} blackhole;" for route in routes)} }}
{sessions}
""")


SERVER = ("192.0.2.250", "2001:db8::fa")


# The programs of a BIRD 2 and of a BIRD 3, and of their clients.
BIRDS = {"bird2": ("bird", "birdc"), "bird3": (str(BIRD3 / "bird"), str(BIRD3 / "birdc"))}


def birdc(namespace, folder, *command):
    """Returns the answer of a BIRD."""
    return namespaces.inside(namespace, "birdc", "-s", folder / "ctl", *command, check=False)


@contextlib.contextmanager
def lan(members):
    """Makes a LAN of the namespaces of the route server and of members."""
    with namespaces.made("ar-rs", *(member.namespace for member in members)):
        run("ip", "-n", "ar-rs", "link", "add", "lan", "type", "bridge")
        places = [("ar-rs", "lan", SERVER)]
        for number, member in enumerate(members):
            run("ip", "link", "add", f"port{number}", "netns", "ar-rs", "type", "veth", "peer", "name", "lan", "netns", member.namespace)
            run("ip", "-n", "ar-rs", "link", "set", f"port{number}", "master", "lan", "up")
            places.append((member.namespace, "lan", member.addresses))
        for namespace, device, addresses in places:
            for address in addresses:
                length, more = ("24", []) if "." in address else ("64", ["nodad"])
                run("ip", "-n", namespace, "addr", "add", f"{address}/{length}", "dev", device, *more)
            for name in ("lo", device):
                run("ip", "-n", namespace, "link", "set", name, "up")
        yield


@contextlib.contextmanager
def birds(*places, kind="bird2"):
    """Runs a BIRD in each of these pairs of namespace and folder."""
    program, client = BIRDS[kind]
    running = []
    try:
        for namespace, folder in places:
            running.append(subprocess.Popen(
                ["ip", "netns", "exec", namespace, program, "-f", "-c", folder / "bird.conf", "-s", folder / "ctl", "-P", folder / "pid"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            wait_for("BIRD answers", lambda folder=folder: bird_answers(folder / "ctl", client), 60)
        yield
    finally:
        for process in running:
            end(process)


class RouteServerView:
    """The sessions and the rejected routes of one address, as its member reads them from the API."""

    def __init__(self, url, exchange, user, address):
        self.url, (_, secret) = url, exchange.api_key(url, user)
        self.headers = {"Authorization": f"Bearer {secret}"}
        [self.end] = [one["id"] for one in self.read("/configs") if address in (ip["address"] for ip in one["ips"])]

    def get(self, path):
        return requests.get(f"{self.url}/api/v1{path}", headers=self.headers, timeout=60)

    def read(self, path):
        """Returns the items of a collection."""
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()["items"]

    def sessions(self):
        return self.read(f"/configs/{self.end}/route-server-sessions")

    def states(self):
        return [session["state"] for session in self.sessions()]

    def rejected(self):
        """Returns the prefixes of the rejected routes with the codes of their causes."""
        routes = self.read(f"/configs/{self.end}/rejected-routes")
        return [(route["prefix"], [cause["coded"][0]["code"] for cause in route["causes"]]) for route in routes]

    def status(self, end):
        """Returns the status of the answer for the rejected routes of an end."""
        return self.get(f"/configs/{end}/rejected-routes").status_code
