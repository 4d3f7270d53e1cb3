"""BGP speakers, an RPKI cache and a routing registry for tests of the exchange's filters, all on loopback."""

import json
import os
import pathlib
import shutil
import signal
import socketserver
import subprocess
import threading

from switches import free_port, opened, run, wait_for

ASN, EXCHANGE_ASN = 64501, 64500
# BIRD 3, which `scripts/setup.sh routers` unpacks beside the BIRD of the system.
BIRD3 = pathlib.Path("/var/cache/millrace/bird3/bin")


class Daemon:
    """A process that is ended with its test."""

    address = "127.0.0.1"

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / "log"
        self.process = None

    def launch(self, *command, **kwargs):
        with self.log.open("a") as log:
            self.process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log, **kwargs)

    def start(self):
        raise NotImplementedError

    def stop(self, how=signal.SIGTERM):
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()


class Speaker(Daemon):
    """A member's router. `announce` and `withdraw` take a prefix and the communities of a route. With a `key`, its session has TCP MD5
    (RFC 2385); with `gtsm`, GTSM (RFC 5082)."""

    asn = ASN

    def __init__(self, folder, port, key=None, gtsm=False):
        super().__init__(folder)
        self.port, self.key, self.gtsm = port, key, gtsm
        self.routes = {}

    @classmethod
    def is_installed(cls):
        return shutil.which(cls.program) is not None

    def announce(self, prefix, *communities):
        self.routes[prefix] = communities
        self.changed(prefix, True)

    def withdraw(self, prefix):
        del self.routes[prefix]
        self.changed(prefix, False)


def bird_answers(control, birdc="birdc"):
    """Returns true if the BIRD behind this control socket answers. BIRD listens before it reads its configuration, and answers after."""
    command = [birdc, "-s", control, "show", "status"]
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60).returncode == 0


class Bird(Speaker):
    """BIRD 2."""

    name, program, birdc, address = "bird2", "bird", "birdc", "127.0.0.2"

    def __init__(self, folder, port, **protection):
        super().__init__(folder, port, **protection)
        self.rules = []

    def write(self):
        def static(version, routes):
            lines = []
            for prefix, communities in routes:
                added = "".join(f" bgp_community.add(({text.replace(':', ',')}));" for text in communities)
                lines.append(f"route {prefix} blackhole" + (f" {{{added} }}" if added else "") + ";")
            return f"protocol static static{version} {{ ipv{version}; {' '.join(lines)} }}"
        four = [item for item in self.routes.items() if ":" not in item[0]]
        six = [item for item in self.routes.items() if ":" in item[0]]
        def rules(version):
            return " ".join(
                f"route flow{version} {{ {rule.bird()} }} {{ bgp_ext_community.add((generic, 0x80060000, {rate(rule)})); }};"
                for rule in self.rules if (":" in rule.destination) == (version == 6))

        def rate(rule):
            # As a number of IEEE 754 (RFC 8955, section 7.1): 0, and 1,000,000,000,000 bytes in a second.
            return "0x0" if rule.drops else "0x5368d4a5"
        protection = (f'password "{self.key}"; ' if self.key else "") + ("ttl security on;" if self.gtsm else "")
        config = f"""
log "{self.folder}/bird.log" all;
router id 192.0.2.102;
protocol device {{}}
flow4 table flows4;
flow6 table flows6;
{static(4, four)}
{static(6, six)}
protocol static flowspec4 {{ flow4 {{ table flows4; }}; {rules(4)} }}
protocol static flowspec6 {{ flow6 {{ table flows6; }}; {rules(6)} }}
protocol bgp exchange {{
  local {self.address} as {self.asn}; neighbor 127.0.0.1 port {self.port} as {EXCHANGE_ASN};
  multihop 2; {protection} connect delay time 1; connect retry time 1; error wait time 1, 2; hold time 30;
  ipv4 {{ import none; export all; next hop self; }};
  ipv6 {{ import none; export all; next hop address 2001:db8::2; }};
  flow4 {{ table flows4; import none; export all; }};
  flow6 {{ table flows6; import none; export all; }};
}}
"""
        (self.folder / "bird.conf").write_text(config)

    def start(self):
        self.write()
        self.launch(self.program, "-f", "-c", self.folder / "bird.conf", "-s", self.folder / "ctl", "-P", self.folder / "pid")
        wait_for("bird answers", lambda: bird_answers(self.folder / "ctl", self.birdc))

    def changed(self, *_):
        self.write()
        run(self.birdc, "-s", self.folder / "ctl", "configure")

    def flows(self, rules):
        """Announces these rules of `flowspec`, and no others."""
        self.rules = list(rules)
        self.changed()


class Bird3(Bird):
    """BIRD 3."""

    name, program, birdc, address = "bird3", str(BIRD3 / "bird"), str(BIRD3 / "birdc"), "127.0.0.5"


class ExaBgp(Speaker):
    """ExaBGP: what a file of commands says is announced."""

    name, program, address = "exabgp", "exabgp", "127.0.0.3"

    def start(self):
        self.commands = self.folder / "commands"
        self.commands.write_text("")
        config = self.folder / "exabgp.conf"
        protection = (f"md5-password '{self.key}'; " if self.key else "") + ("outgoing-ttl 255; incoming-ttl 255;" if self.gtsm else "")
        config.write_text(f"""
process commands {{ run {shutil.which('tail')} -n +1 -s 0.05 -f {self.commands}; encoder text; }}
neighbor 127.0.0.1 {{
  router-id 192.0.2.103; local-address {self.address}; local-as {self.asn}; peer-as {EXCHANGE_ASN};
  connect {self.port}; hold-time 30; {protection}
  family {{ ipv4 unicast; ipv6 unicast; ipv4 flow; ipv6 flow; }}
  api {{ processes [ commands ]; }}
}}
""")
        settings = {"exabgp.daemon.drop": "false", "exabgp.daemon.user": "root", "exabgp.api.ack": "false",
                    "exabgp.api.cli": "false", "exabgp.log.level": "INFO", "exabgp.tcp.attempts": "0"}
        self.launch("exabgp", config, env=os.environ | settings)

    def say(self, *lines):
        with self.commands.open("a") as commands:
            commands.write("".join(f"{line}\n" for line in lines))

    def flows(self, rules):
        """Announces rules of `flowspec`."""
        self.say(*(f"announce {rule.text()}" for rule in rules))

    def changed(self, prefix, is_announced):
        hop = "2001:db8::2" if ":" in prefix else self.address
        communities = " ".join(self.routes.get(prefix, ()))
        tail = f" community [{communities}]" if communities else ""
        self.say(f"announce route {prefix} next-hop {hop}{tail}" if is_announced else f"withdraw route {prefix} next-hop {hop}")


class GoBgp(Speaker):
    """GoBGP 3."""

    name, program, address = "gobgpd", "gobgpd", "127.0.0.4"

    def start(self):
        self.api = free_port()
        config = self.folder / "gobgpd.toml"
        families = "".join(f"""
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "{family}"
""" for family in ("ipv4-unicast", "ipv6-unicast", "ipv4-flowspec", "ipv6-flowspec"))
        # GoBGP takes one of both, and GTSM is for neighbours on the link.
        distance = """
  [neighbors.ttl-security.config]
    enabled = true
    ttl-min = 255
""" if self.gtsm else """
  [neighbors.ebgp-multihop.config]
    enabled = true
    multihop-ttl = 2
"""
        password = f'auth-password = "{self.key}"' if self.key else ""
        config.write_text(f"""
[global.config]
  as = {self.asn}
  router-id = "192.0.2.104"
  port = -1
[[neighbors]]
  [neighbors.config]
    neighbor-address = "127.0.0.1"
    peer-as = {EXCHANGE_ASN}
    {password}
  [neighbors.timers.config]
    connect-retry = 1
    idle-hold-time-after-reset = 1
  [neighbors.transport.config]
    local-address = "{self.address}"
    remote-port = {self.port}
{distance}
{families}
""")
        self.launch("gobgpd", "-f", config, "--api-hosts", f"127.0.0.1:{self.api}", "--pprof-disable")
        wait_for("gobgpd answers", lambda: "192.0.2.104" in self.gobgp("global", check=False))

    def gobgp(self, *arguments, **kwargs):
        return run("gobgp", "-p", str(self.api), *arguments, **kwargs)

    def flows(self, rules):
        """Announces rules of `flowspec`."""
        for rule in rules:
            self.gobgp("global", "rib", "add", "-a", "ipv6-flowspec" if ":" in rule.destination else "ipv4-flowspec", *rule.gobgp())

    def changed(self, prefix, is_announced):
        family = ["-a", "ipv6"] if ":" in prefix else ["-a", "ipv4"]
        if is_announced:
            communities = self.routes[prefix]
            hop = "2001:db8::2" if ":" in prefix else self.address
            tail = ["community", ",".join(communities)] if communities else []
            self.gobgp("global", "rib", "add", prefix, "nexthop", hop, *tail, *family)
        else:
            self.gobgp("global", "rib", "del", prefix, *family)


class Frr(Speaker):
    """FRR's bgpd, without zebra: it announces what its configuration says, and knows no interfaces."""

    name, program, address = "frr", "/usr/lib/frr/bgpd", "127.0.0.6"

    def start(self):
        # FRR gives its files to its own user.
        opened(self.folder)
        self.folder.chmod(0o777)
        lines = ["log stdout warnings", f"router bgp {self.asn}", "bgp router-id 192.0.2.106", "no bgp ebgp-requires-policy",
                 "no bgp network import-check", "timers bgp 10 30", f"neighbor 127.0.0.1 remote-as {EXCHANGE_ASN}",
                 f"neighbor 127.0.0.1 port {self.port}", f"neighbor 127.0.0.1 update-source {self.address}",
                 "neighbor 127.0.0.1 timers connect 1", "neighbor 127.0.0.1 disable-connected-check"]
        lines += [f"neighbor 127.0.0.1 password {self.key}"] if self.key else []
        lines += ["neighbor 127.0.0.1 ttl-security hops 1"] if self.gtsm else []
        (self.folder / "bgpd.conf").write_text("\n".join(lines) + "\n")
        self.launch(self.program, "--no_zebra", "--skip_runas", "--config_file", self.folder / "bgpd.conf", "--pid_file",
                    self.folder / "pid", "--vty_socket", self.folder, "--vty_port", "0", "--bgp_port", "0")
        wait_for("bgpd answers", lambda: "192.0.2.106" in self.vtysh("show bgp summary", check=False))

    def vtysh(self, *commands, **kwargs):
        return run("vtysh", "--vty_socket", str(self.folder), *(part for command in commands for part in ("-c", command)), **kwargs)

    def changed(self, prefix, is_announced):
        family, hop = ("ipv6", "ipv6 next-hop global 2001:db8::6") if ":" in prefix else ("ipv4", f"ip next-hop {self.address}")
        where = ("configure terminal", f"router bgp {self.asn}", f"address-family {family} unicast")
        if not is_announced:
            self.vtysh(*where, f"no network {prefix}")
            return
        name = f"to-{prefix.replace('/', '-')}"
        communities = " ".join(self.routes[prefix])
        self.vtysh("configure terminal", f"route-map {name} permit 10", f"set {hop}",
                   *([f"set community {communities}"] if communities else []))
        self.vtysh(*where, f"network {prefix} route-map {name}")


SPEAKERS = (Bird, ExaBgp, Bird3, GoBgp)


class StayRtr(Daemon):
    """An RPKI cache with the payloads of a file."""

    def __init__(self, folder):
        super().__init__(folder)
        self.port = free_port()
        self.file = self.folder / "vrps.json"
        self.write([])

    def write(self, payloads):
        """Sets the payloads: triples of prefix, greatest length and AS number."""
        roas = [{"prefix": prefix, "maxLength": length, "asn": f"AS{asn}", "ta": "test"} for prefix, length, asn in payloads]
        temporary = self.file.with_suffix(".new")
        temporary.write_text(json.dumps({"metadata": {"buildtime": "2026-11-24T00:00:00Z"}, "roas": roas}))
        temporary.replace(self.file)

    def start(self):
        self.launch("stayrtr", "-bind", f"127.0.0.1:{self.port}", "-cache", self.file, "-checktime=false", "-refresh", "1",
                    "-metrics.addr", "")


class Registry:
    """A routing registry that speaks IRRd's protocol: AS-SETs, and the prefixes of each origin.

    A set under a pair of source and name is in that source only.
    """

    usual = ("RADB", "RIPE")

    def __init__(self):
        self.sets, self.origins, self.is_silent, self.queries, self.sources_of = {}, {}, False, [], {}
        registry = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                sources = registry.usual
                for line in self.rfile:
                    query = line.decode().strip()
                    registry.queries.append(query)
                    if registry.is_silent or query == "!q":
                        return
                    registry.sources_of[query] = sources
                    if query == "!s-lc":
                        self.wfile.write(registry.data(",".join(sources)))
                    elif query.startswith("!s"):
                        chosen = tuple(query[2:].split(","))
                        is_known = set(chosen) <= set(registry.usual)
                        sources = chosen if is_known else sources
                        self.wfile.write(b"C\n" if is_known else b"F One or more selected sources are unavailable.\n")
                    elif query != "!!":
                        self.wfile.write(registry.answer(query, sources))

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address, daemon_threads = True, True

        self.server = Server(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"

    def data(self, text):
        return b"A%d\n%s\nC\n" % (len(text) + 1, text.encode())

    def answer(self, query, sources):
        if query.startswith("!i"):
            name = query[2:].split(",")[0]
            names = [name, *((source, name) for source in sources)]
            found = next((self.sets[name] for name in names if name in self.sets), None)
        elif query.startswith(("!g", "!6")):
            is_six = query[1] == "6"
            found = [prefix for prefix in self.origins.get(int(query[4:]), []) if (":" in prefix) == is_six]
        else:
            return b"F unknown query\n"
        if not found:
            return b"D\n" if found is None else b"C\n"
        return self.data(" ".join(found))

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def settings(port, peers, registry=None, caches=(), more=""):
    """Returns the sections of `millrace-ix` for BGP: `peers` maps addresses to accounts."""
    return settings_of(port, {address: (ASN, account) for address, account in peers.items()}, registry, caches, more)


def settings_of(port, peers, registry=None, caches=(), more=""):
    """As `settings`; `peers` maps addresses to pairs of AS number and account."""
    text = f"""
[bgp]
listen = ["127.0.0.1:{port}"]
asn = {EXCHANGE_ASN}
router_id = "192.0.2.1"
{more}
"""
    for address, (asn, account) in peers.items():
        text += f"""
[[bgp.peer]]
address = "{address}"
asn = {asn}
account = "{account}"
rules_max = 5000
"""
    if registry:
        text += f'[irr]\nserver = "{registry.address}"\nrefresh_secs = 3600\n'
    if caches:
        text += "[rpki]\ncaches = [" + ", ".join(f'"127.0.0.1:{cache.port}"' for cache in caches) + "]\n"
    return text
