"""Every listener of the project beside a thousand connections of a hostile client: an honest one is still served.

`LISTENERS` has the rows of the table of docs/security.md, in its order; `SOURCES` has the files that bind a socket. A listener that
is missing in either fails the test. Clients are silent, send half a message, send a byte now and then, or ask and read nothing.
"""

import contextlib
import ctypes
import os
import pathlib
import re
import resource
import socket
import struct
import subprocess
import threading
import time

import pytest
import requests

import memif
import vhost_user
from certificates import Authority, tls_table
from exchange import Control, Exchange
from front_ends import FrontEnds, Netconf
from switches import ROOT, TARGET, Millrace, end, free_port, opened, rest_over, run, wait_for
from wan_path import Emulator, hosts

# The number of connections of a hostile client.
CONNECTIONS = 1000
# The time in s within which an honest client is served. It may need several attempts, as a program would make them.
BOUND = 60
# The number of descriptors that a listener may use for hostile connections: the largest number of pending ones (256), a quarter more
# that are closed and have not ended, and those that the programs open meanwhile for other reasons.
DESCRIPTORS = 256 + 64 + 80
# The growth of a process in MiB: 16 MiB for buffers of the programs, and 256 connections with a buffer of 64 KiB.
MEMORY = 64
HELLO = struct.pack("!BBHI", 4, 0, 8, 1)
# RFC 9113, section 3.4, and empty settings.
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
# A program that connects to a socket without rights of its own, by the system call of this thread (x86-64).
LIBC, SYS_SETRESUID, NOBODY = ctypes.CDLL(None, use_errno=True), 117, 65534
BARRIER = struct.pack("!BBHI", 4, 20, 8, 2)


def read_some(line):
    data = line.recv(4096)
    if not data:
        raise ConnectionResetError
    return data


class Target:
    """A listener under test: how to connect, the messages of a hostile client, and the check of an honest one."""

    def __init__(self, connect, whole, honest, process):
        self.connect, self.whole, self.honest, self.process = connect, whole, honest, process


def tcp(port):
    def connect():
        line = socket.socket()
        line.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            line.connect(("127.0.0.1", port))
        return line
    return connect


def unix(path, kind=socket.SOCK_STREAM):
    def connect():
        line = socket.socket(socket.AF_UNIX, kind)
        line.setblocking(False)
        # With a full queue of the kernel, the client would have to wait.
        with contextlib.suppress(BlockingIOError):
            line.connect(str(path))
        return line
    return connect


def unix_of_nobody(path):
    """As `unix`, with the credentials of a user without a role."""
    def connect():
        # The system call changes this thread alone, and the kernel notes the user at the call of connect.
        assert LIBC.syscall(SYS_SETRESUID, -1, NOBODY, -1) == 0
        try:
            return unix(path)()
        finally:
            assert LIBC.syscall(SYS_SETRESUID, -1, os.getuid(), -1) == 0
    return connect


def get(path, more=""):
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n".encode()


class Everything:
    """One process of each program, with all listeners that it has."""

    def __init__(self, folder):
        self.folder = folder
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.start_switch(stack)
            self.front_ends = stack.enter_context(FrontEnds(self.folder / "mgmt", self.switch))
            # The hostile client of NETCONF and gNMI is another user.
            opened(self.front_ends.folder)
            self.start_exchange(stack)
            self.start_courier(stack)
            self.start_wan(stack)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def start_switch(self, stack):
        at = self.folder / "switch"
        at.mkdir()
        self.tls_port, self.api_port = free_port(), free_port()
        switches, controllers = (Authority(self.folder / "pki", name) for name in ("switches", "controllers"))
        self.person, self.authority = controllers.sign("person"), switches
        self.attached, self.vhost, self.memif, self.punix = (at / f"{name}.sock" for name in ("nf", "vhost", "memif", "of"))
        chain = f"""
[[bridge.chain]]
name = "edge"
number = 100
[[bridge.chain.hop]]
name = "swap"
function = "attached:{self.attached}"
class = "isolated"
"""
        self.switch = stack.enter_context(Millrace(
            at, ports=[(1, f"vhost:{self.vhost}"), (2, f"memif:{self.memif}"), (3, "link:a"), (4, "link:a")],
            extra=tls_table(*switches.sign("switch"), controllers) + chain,
            listen=[f"pssl:{self.tls_port}", f"punix:{self.punix}"], api=f'listen = "127.0.0.1:{self.api_port}"'))
        self.token = (at / "state" / "api-token").read_text().strip()

    def start_exchange(self, stack):
        self.ix_port, self.bgp_port, self.sflow_port = free_port(), free_port(), free_port()
        more = f"""
[api]
listen = "127.0.0.1:{self.ix_port}"
[sflow]
listen = "127.0.0.1:{self.sflow_port}"
switches = ["127.0.0.1"]
[bgp]
listen = ["127.0.0.1:{self.bgp_port}"]
asn = 64500
router_id = "192.0.2.1"
[[bgp.peer]]
address = "127.0.0.2"
asn = 64500
kind = "route_server"
"""
        self.exchange = stack.enter_context(Exchange(self.folder / "exchange", more=more))

    def start_courier(self, stack):
        at = self.folder / "courier"
        (at / "in").mkdir(parents=True)
        self.courier_port, self.metrics_port = free_port(), free_port()
        state = at / "state"
        run(TARGET / "millrace", "courier", "key", env=self.home())
        key = run(TARGET / "millrace", "courier", "key", env=self.home()).split()[-1]
        config = at / "courier.toml"
        config.write_text(f"""
listen = "127.0.0.1:{self.courier_port}"
metrics = "127.0.0.1:{self.metrics_port}"
state = "{state}"
[[grant]]
name = "in"
keys = ["{key}"]
directory = "{at / 'in'}"
verbs = ["create", "list", "read"]
""")
        self.courier_socket = state / "courier.sock"
        with (at / "log").open("w") as log:
            self.courier = subprocess.Popen([TARGET / "millrace", "courier", "serve", "--config", config], stdout=log, stderr=log)
        stack.callback(end, self.courier)
        wait_for("the courier serves", lambda: rest_over(self.courier_socket).get("http://localhost/status", timeout=60).ok
                 if self.courier_socket.exists() else False)
        self.courier_key = re.search(r"[a-z2-7]{52}", (at / "log").read_text()).group()

    def home(self):
        return os.environ | {"HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder / "config")}

    def start_wan(self, stack):
        stack.enter_context(hosts())
        self.wan = stack.enter_context(Emulator(self.folder, "--delay", "1ms"))

    # The honest client of each listener: it raises an exception if it is not served.

    def rest(self):
        assert rest_over(self.switch.api_socket).get("http://localhost/api/v1/version", timeout=5).ok

    def rest_tcp(self, path="/api/v1/version"):
        headers = {"Authorization": f"Bearer {self.token}"}
        assert requests.get(f"http://127.0.0.1:{self.api_port}{path}", headers=headers, timeout=5).ok

    def openflow(self, target, *options):
        done = subprocess.run(["ovs-ofctl", "-O", "OpenFlow13", *options, "show", target], capture_output=True, text=True, timeout=10)
        assert "dpid:0000000000000001" in done.stdout, done.stderr

    def openflow_tls(self):
        key, certificate = self.person
        self.openflow(f"ssl:127.0.0.1:{self.tls_port}", f"--private-key={key}", f"--certificate={certificate}",
                      f"--ca-cert={self.authority.certificate}")

    def netconf(self):
        """A user with a role gets a session."""
        with Netconf(self.front_ends.netconf) as session:
            session.ok("<validate><source><candidate/></source></validate>")

    def gnmi(self):
        """A server of HTTP/2 sends its settings."""
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as line:
            line.settimeout(5)
            line.connect(str(self.front_ends.gnmi))
            line.sendall(HTTP2_PREFACE)
            assert read_some(line)[3] == 4

    def driver(self):
        with vhost_user.Driver(self.vhost) as driver:
            driver.stream.settimeout(BOUND)
            driver.begin()

    def memif_client(self):
        with contextlib.closing(memif.call(self.memif)) as line:
            line.settimeout(5)
            assert memif.receive_message(line)[0] == memif.HELLO

    def function(self):
        """A function attaches, and says so."""
        log = self.folder / "function.log"
        with log.open("w") as said:
            process = subprocess.Popen(
                [TARGET / "millrace-nf", "--attach", self.attached, "--function", "macswap", "--user", "65534"],
                stdout=said, stderr=said)
        try:
            wait_for("the function is attached or ends",
                     lambda: "attached as instance" in log.read_text() or process.poll() is not None, BOUND)
            assert process.poll() is None, log.read_text()
        finally:
            end(process)

    def status_page(self):
        assert rest_over(self.courier_socket).get("http://localhost/status", timeout=5).ok

    def metrics_page(self):
        assert requests.get(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5).ok

    def list_files(self):
        url = f"millrace://{self.courier_key}@127.0.0.1:{self.courier_port}/in/"
        run(TARGET / "millrace", "courier", "ls", url, env=self.home(), timeout=BOUND)

    def switch_of_exchange(self):
        """A switch is asked for its features, in a connection that is still open after its HELLO."""
        with socket.create_connection(("127.0.0.1", self.exchange.openflow_port), timeout=5) as line:
            line.sendall(HELLO)
            data = b""
            while not any(kind == 5 for kind in messages(data)):
                data += read_some(line)

    def order(self):
        with Control(self.exchange.socket) as control:
            control.socket.settimeout(5)
            control.ask("status")

    def page(self):
        assert requests.get(f"http://127.0.0.1:{self.ix_port}/api/v1/openapi.json", timeout=5).ok

    def peer(self):
        """A BGP peer, whose address the hostile hosts do not have, gets an OPEN."""
        with socket.create_connection(("127.0.0.1", self.bgp_port), timeout=5, source_address=("127.0.0.2", 0)) as line:
            assert read_some(line)[18] == 1

    def path_of_wan(self):
        self.wan.cli("show")


def messages(data):
    """Yields the types of complete OpenFlow messages."""
    while len(data) >= 8:
        _, kind, length, _ = struct.unpack_from("!BBHI", data)
        if len(data) < length:
            return
        yield kind
        data = data[length:]


def switch(connect, whole, honest):
    return lambda all_of: Target(connect(all_of), whole, lambda: honest(all_of), all_of.switch.process)


def engine(connect, whole, honest):
    return lambda all_of: Target(connect(all_of), whole, lambda: honest(all_of), all_of.exchange.process)


def front_end(connect, whole, honest):
    return lambda all_of: Target(connect(all_of), whole, lambda: honest(all_of), all_of.front_ends.process)


def courier(connect, whole, honest):
    return lambda all_of: Target(connect(all_of), whole, lambda: honest(all_of), all_of.courier)


VERSION_PAGE = get("/api/v1/openapi.json")
# For each row of docs/security.md: its listeners. UDP has no connections that a client could hold: the flood of handshakes is in
# crates/transport/courier (control/tests.rs), that of sFlow datagrams at the end of this file.
LISTENERS = {
    "REST, Unix socket": [switch(lambda a: unix(a.switch.api_socket), VERSION_PAGE, Everything.rest)],
    "NETCONF": [front_end(lambda a: unix_of_nobody(a.front_ends.netconf), b"<hello/>]]>]]>", Everything.netconf)],
    "gNMI": [front_end(lambda a: unix_of_nobody(a.front_ends.gnmi), HTTP2_PREFACE, Everything.gnmi)],
    # Root and the daemon alone, eight at a time: crates/management/ovs-follower/src/unixctl.rs.
    "`ovs-appctl`": [],
    "REST, TCP": [switch(lambda a: tcp(a.api_port), VERSION_PAGE, Everything.rest_tcp)],
    "metrics (`/metrics`)": [switch(lambda a: tcp(a.api_port), get("/metrics"), lambda a: a.rest_tcp("/metrics"))],
    "OpenFlow, TCP": [switch(lambda a: tcp(a.switch.openflow_port), HELLO[:4] + b"\0\0\0\1",
                             lambda a: a.openflow(a.switch.target))],
    "OpenFlow, TLS": [switch(lambda a: tcp(a.tls_port), b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", Everything.openflow_tls)],
    "OpenFlow, Unix": [switch(lambda a: unix(a.punix), b"", lambda a: a.openflow(f"unix:{a.punix}"))],
    "vhost-user, memif": [
        switch(lambda a: unix(a.vhost), b"\1\0\0\0\1\0\0\0\0\0\0", Everything.driver),
        switch(lambda a: unix(a.memif, socket.SOCK_SEQPACKET), b"", Everything.memif_client),
    ],
    "attached functions": [switch(lambda a: unix(a.attached, socket.SOCK_SEQPACKET), b"", Everything.function)],
    "one transfer": [],
    "transfers": [courier(lambda a: None, b"", Everything.list_files)],
    "status of transfers": [courier(lambda a: unix(a.courier_socket), get("/status"), Everything.status_page)],
    "metrics of transfers": [courier(lambda a: tcp(a.metrics_port), get("/metrics"), Everything.metrics_page)],
    "switches of an exchange": [engine(lambda a: tcp(a.exchange.openflow_port), HELLO, Everything.switch_of_exchange)],
    "commands of an exchange": [engine(lambda a: unix(a.exchange.socket), b'{"request":"status"}\n', Everything.order)],
    "API and page of an exchange": [engine(lambda a: tcp(a.ix_port), VERSION_PAGE, Everything.page)],
    # The flood of datagrams is at the end of this file.
    "sFlow of an exchange": [],
    "BGP of an exchange": [engine(lambda a: tcp(a.bgp_port), b"\xff" * 16 + b"\0\x1d\1", Everything.peer)],
    # One connection at a time, the newest: crates/routing/netlink/tests/it/fpm.rs.
    "routes of FRR": [],
    "path of `millrace wan between`": [
        lambda a: Target(unix(a.wan.socket), b'{"command":"show"}\n', a.path_of_wan, a.wan.process)],
}
# The files that bind a socket, and the rows that serve there.
SOURCES = {
    "bin/millrace-ix/src/control.rs": ["commands of an exchange"],
    "bin/millrace-ix/src/routing/tcp.rs": ["BGP of an exchange"],
    "bin/millrace-ix/src/web.rs": ["API and page of an exchange"],
    "bin/millrace-mgmt/src/gnmi.rs": ["gNMI"],
    "bin/millrace-mgmt/src/socket.rs": ["NETCONF", "gNMI"],
    "bin/millrace-wan/src/control.rs": ["path of `millrace wan between`"],
    "crates/config/api/src/server/bound.rs": ["REST, TCP", "metrics (`/metrics`)"],
    "crates/config/api/src/server/probe.rs": ["REST, TCP"],
    "crates/config/api/src/server/socket.rs": ["REST, Unix socket"],
    "crates/control/agent/src/channel/stream.rs": ["OpenFlow, TCP", "OpenFlow, TLS", "OpenFlow, Unix"],
    "crates/exchange/controller/src/driver/listener.rs": ["switches of an exchange"],
    "crates/exchange/controller/src/driver/private_socket.rs": ["switches of an exchange", "commands of an exchange"],
    "crates/exchange/ix-samples/src/receiver.rs": ["sFlow of an exchange"],
    "crates/functions/chain/src/process/attached.rs": ["attached functions"],
    "crates/management/ovs-follower/src/unixctl.rs": ["`ovs-appctl`"],
    "crates/routing/netlink/src/fpm/mod.rs": ["routes of FRR"],
    "crates/switch/datapath/src/io/memif/server.rs": ["vhost-user, memif"],
    "crates/switch/datapath/src/io/vhost/session_thread.rs": ["vhost-user, memif"],
    "crates/transport/courier/src/io/socket.rs": ["one transfer", "transfers"],
    "crates/transport/daemon/src/http.rs": ["status of transfers", "metrics of transfers"],
}
# Files that bind a socket with which they only send, or whose address is that of an interface, and helpers of tests.
OUTGOING = {
    # `--check` binds each address of the configuration, and closes it again at once.
    "bin/millraced/src/machine/devices.rs",
    "crates/control/agent/src/channel/auxiliary.rs",
    "crates/control/agent/src/control/ipfix_session.rs",
    "crates/control/agent/src/control/sflow_agent.rs",
    # The mail relay of tests, which no program of users contains.
    "crates/exchange/ix-api/src/demo/mailbox.rs",
    "crates/functions/chain/src/exporter/sink.rs",
    "crates/io/af-packet/src/socket.rs",
    "crates/io/af-packet/src/sys.rs",
    "crates/transport/courier/src/io/port_probe.rs",
}
# The calls that bind a socket.
BINDS = re.compile(r"\b(?:TcpListener|UnixListener|UdpSocket|UnixDatagram|StdTcp|StdUnix|libc)::bind\(|(?<!fn )(?<![\w.])bind(?:_private)?\(&?(?:socket|path)|\bsocket\.(?:bind|listen)\(")


def rows_of_the_documentation():
    text = (ROOT / "docs" / "security.md").read_text()
    table = text.split("## The listeners")[1].split("\n\n")[0]
    return [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")][2:]


def binding_files():
    for path in sorted([*ROOT.glob("bin/*/src/**/*.rs"), *ROOT.glob("crates/*/*/src/**/*.rs")]):
        name = str(path.relative_to(ROOT))
        if name.startswith("crates/instruments/") or path.name == "tests.rs":
            continue
        if BINDS.search(path.read_text().split("#[cfg(test)]\n")[0]):
            yield name


def test_every_listener_has_a_row_and_every_row_a_test():
    rows = rows_of_the_documentation()
    keys = list(LISTENERS)
    assert len(rows) == len(keys) and all(row.startswith(key) for row, key in zip(rows, keys)), (rows, keys)
    assert set(binding_files()) == set(SOURCES) | OUTGOING
    assert {row for served in SOURCES.values() for row in served} == set(keys)


@pytest.fixture(name="everything", scope="module")
def one_of_each_program(tmp_path_factory):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Everything(tmp_path_factory.mktemp("listeners")) as everything:
        # The programs keep the usual limit of 1,024.
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16_384), hard))
        yield everything
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def descriptors(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))


def resident_mib(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) >> 10


class Flood:
    """A thousand connections of a hostile client, which connects again where it is disconnected."""

    def __init__(self, target, said, trickle):
        self.target, self.said, self.trickle = target, said, trickle
        self.lines, self.stop = [], threading.Event()
        self.thread = threading.Thread(target=self.run)

    def open(self):
        line = self.target.connect()
        self.say(line, self.said)
        return line

    @staticmethod
    def say(line, data):
        with contextlib.suppress(OSError):
            line.send(data)

    def run(self):
        while not self.stop.is_set():
            for at, line in enumerate(self.lines):
                if self.stop.is_set():
                    return
                if self.trickle:
                    self.say(line, self.trickle)
                if self.is_gone(line):
                    line.close()
                    self.lines[at] = self.open()
                if at % 50 == 0:
                    # The rate of a host with a few Mbit/s, on a machine that the programs share.
                    self.stop.wait(0.02)

    @staticmethod
    def is_gone(line):
        try:
            # What the server says stays in its queue and in that of the kernel.
            return line.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def __enter__(self):
        self.lines = [self.open() for _ in range(CONNECTIONS)]
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()
        for line in self.lines:
            line.close()


ABUSES = {
    "silence": lambda whole: (b"", b""),
    "half a message": lambda whole: (whole[: len(whole) // 2], b""),
    "a byte now and then": lambda whole: (b"", whole[:1]),
    "questions whose answers nobody reads": lambda whole: (whole * 64, b""),
}
CASES = [(row, number) for row, listeners in LISTENERS.items() for number in range(len(listeners))]


def serves(honest):
    """Returns true if an honest client is served."""
    try:
        honest()
    except (OSError, AssertionError, requests.RequestException, subprocess.TimeoutExpired, vhost_user.Gone, memif.Gone):
        return False
    return True


@pytest.mark.parametrize("row, number", CASES, ids=[f"{row}-{number}".replace("`", "") for row, number in CASES])
def test_an_honest_client_is_served_beside_a_thousand_others(everything, row, number):
    target = LISTENERS[row][number](everything)

    def is_served():
        return serves(target.honest)

    wait_for("an honest client is served without others", is_served)
    if target.connect is None:
        return
    files, size = descriptors(target.process), resident_mib(target.process)
    for name, words in ABUSES.items():
        said, trickle = words(target.whole)
        begun = time.monotonic()
        with Flood(target, said, trickle):
            wait_for(f"an honest client is served beside {name}", is_served, BOUND)
            assert descriptors(target.process) - files <= DESCRIPTORS, name
            assert resident_mib(target.process) - size <= MEMORY, name
        print(f"{row}: {name}: {time.monotonic() - begun:.1f} s")


def sflow_queue(port):
    """Returns the bytes that wait in the socket of a UDP port, and the datagrams that the kernel dropped there."""
    for line in pathlib.Path("/proc/net/udp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1] == f"0100007F:{port:04X}":
            return int(fields[4].split(":")[1], 16), int(fields[-1])
    raise AssertionError(f"no socket at UDP port {port}")


def sflow_datagram(agent, samples):
    """An sFlow 5 datagram whose samples are of a format that nobody knows."""
    head = struct.pack("!II4sIIII", 5, 1, socket.inet_aton(agent), 0, 1, 1, samples)
    return head + struct.pack("!II", 0xFFFFF001, 0) * samples


# The datagrams of a flood, by number: nothing, half a datagram, a count of samples beyond the end, a whole one, noise.
DATAGRAMS = {
    "empty": lambda number: b"",
    "half a datagram": lambda number: sflow_datagram("127.0.0.1", 4)[:30 + number % 8],
    "more samples than bytes": lambda number: sflow_datagram("127.0.0.1", 0)[:-4] + b"\xff\xff\xff\xff" + b"\0" * (number % 64),
    "agents that nobody knows": lambda number: sflow_datagram(f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}", 100),
    "noise": lambda number: number.to_bytes(4, "big") * (number % 360),
}


@pytest.mark.parametrize("name", DATAGRAMS)
def test_a_flood_of_sflow_of_thousands_of_hosts_and_of_a_switch_leaves_the_engine_as_it_is(everything, name):
    target = ("127.0.0.1", everything.sflow_port)
    process = everything.exchange.process
    files, size = descriptors(process), resident_mib(process)
    # Each second one is of the address of a switch, whose content is read; each other one is of a host of its own.
    switch = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sent = 0
    with contextlib.closing(switch):
        for number in range(4 * CONNECTIONS):
            host = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            with contextlib.closing(host):
                host.bind((f"127.9.{number >> 8}.{number & 255}", 0))
                for line in (host, switch):
                    with contextlib.suppress(OSError):
                        sent += line.sendto(DATAGRAMS[name](number), target) >= 0
    assert sent == 8 * CONNECTIONS
    wait_for("the thread has read all datagrams", lambda: sflow_queue(everything.sflow_port)[0] == 0, BOUND)
    for honest in (everything.order, everything.page):
        wait_for("an honest client is served", lambda honest=honest: serves(honest))
    # The checks above may still have their connections, of which a busy machine may have made several.
    wait_for("the connections end", lambda: descriptors(process) <= files + 2)
    assert resident_mib(process) - size <= MEMORY
