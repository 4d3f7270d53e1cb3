"""Starts and stops switches: `millraced`, without DPDK and without root, and a private Open vSwitch."""

import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

import requests
import urllib3

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("MILLRACE_TARGET", ROOT / "target" / "debug"))
# The time in s for a switch to stop on a busy machine: the kernel removes an interface in a namespace within seconds.
STOP_BOUND = 60


def wait_for(what, condition, bound=60.0):
    """Returns the first true value of `condition`, polled for at most `bound` seconds. The last poll begins after the bound,
    because a single poll may take as long on a busy machine. A condition on something that is not there yet does not hold."""
    deadline = time.monotonic() + bound
    while True:
        is_last = time.monotonic() >= deadline
        missing = None
        try:
            value = condition()
        except (LookupError, StopIteration) as error:
            value, missing = None, error
        if value:
            return value
        if is_last:
            raise AssertionError(f"{what}: not within {bound} s") from missing
        time.sleep(0.02)


def end(process):
    """Ends a process of another project: with SIGTERM, and with SIGKILL if it takes too long."""
    process.terminate()
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout=60)


def pause(process):
    """Stops a process with SIGSTOP, and returns when none of its threads runs: until then, it still acts."""
    def is_stopped(task):
        try:
            return (task / "stat").read_text().rpartition(")")[2].split()[0] == "T"
        except (FileNotFoundError, ProcessLookupError):
            return True  # the thread has ended

    process.send_signal(signal.SIGSTOP)
    tasks = pathlib.Path(f"/proc/{process.pid}/task")
    wait_for("all threads have stopped", lambda: all(map(is_stopped, tasks.iterdir())))


def threads_of(pid):
    """Returns the name, state and kernel stack of each thread of a process, for a message about one that hangs."""
    found = []
    for task in sorted(pathlib.Path(f"/proc/{pid}/task").iterdir()):
        parts = [(task / name).read_text().strip() for name in ("comm", "wchan", "stack")]
        state = next(line for line in (task / "status").read_text().splitlines() if line.startswith("State"))
        found.append(f"{task.name} {parts[0]} {state} in {parts[1]}\n{parts[2]}")
    return "\n".join(found)


GIVEN_PORTS = set()


def free_port():
    """Returns a free TCP port of the loopback that was not returned before."""
    while True:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        if port not in GIVEN_PORTS:
            GIVEN_PORTS.add(port)
            return port


def run(*command, check=True, timeout=60, **kwargs):
    """Runs a command with a time limit in seconds, and returns its output."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, **kwargs)
    assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def listens(path):
    """Returns true if a Unix socket accepts connections. Its file is there before its process listens."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


class SocketAdapter(requests.adapters.HTTPAdapter):
    """Makes `requests` use a Unix socket, whatever the URL."""

    class Pool(urllib3.HTTPConnectionPool):
        """Connections to a socket."""

        def __init__(self, path):
            super().__init__("localhost")
            self.path = str(path)

        def _new_conn(self):
            connection = super()._new_conn()

            def connect():
                connection.sock = socket.socket(socket.AF_UNIX)
                connection.sock.settimeout(connection.timeout)
                connection.sock.connect(self.path)

            connection.connect = connect
            return connection

    def __init__(self, path):
        super().__init__()
        self.pool = self.Pool(path)

    def get_connection_with_tls_context(self, *_, **__):
        return self.pool


def rest_over(path):
    """Returns a session of `requests` over a Unix socket."""
    session = requests.Session()
    session.trust_env = False
    session.mount("http://localhost", SocketAdapter(path))
    return session


def opened(folder):
    """Lets users other than root pass a temporary folder and those above it, which pytest closes to them, and returns it."""
    folder, top = pathlib.Path(folder), pathlib.Path(tempfile.gettempdir())
    for one in (folder, *folder.parents):
        if one == top:
            break
        one.chmod(0o755)
    return folder


class Millrace:
    """A `millraced` with one bridge `br0`; without DPDK by default."""

    def __init__(self, folder, ports=(), controllers=(), fail_mode="secure", extra="", system="", dpdk=False,
                 listen=(), api=""):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.openflow_port = free_port()
        self.api_socket = self.folder / "api.sock"
        self.rest = rest_over(self.api_socket)
        if dpdk and "huge_pages" not in system:
            # Huge pages belong to the machine: switches of tests that run side by side would compete for them.
            system += '\nhuge_pages = "off"'
        self.config = self.folder / "switch.toml"
        lines = [
            "[system]",
            f'state_dir = "{self.folder / "state"}"',
            system,
            "[api]",
            f'socket = "{self.api_socket}"',
            api,
            "[[bridge]]",
            'name = "br0"',
            'dpid = "0000000000000001"',
            f'fail_mode = "{fail_mode}"',
            f'listen = {[f"ptcp:{self.openflow_port}", *listen]!r}'.replace("'", '"'),
            f"controllers = {list(controllers)!r}".replace("'", '"'),
            extra,
        ]
        for number, device in ports:
            lines += ["[[bridge.port]]", f'name = "p{number}"', f"number = {number}", f'device = "{device}"']
        self.config.write_text("\n".join(lines) + "\n")
        self.log = self.folder / "millraced.log"
        self.process = None
        self.command = [TARGET / "millraced", "--config", self.config] + ([] if dpdk else ["--no-dpdk"])

    @property
    def target(self):
        """Returns the address for OpenFlow clients."""
        return f"tcp:127.0.0.1:{self.openflow_port}"

    @property
    def url(self):
        """Returns the URL of the REST API, which `rest` uses over the Unix socket."""
        return "http://localhost/api/v1"

    @property
    def environment(self):
        """Returns the environment of a `millrace` that uses this switch."""
        return os.environ | {"MILLRACE_API": f"unix:{self.api_socket}"}

    def start(self):
        """Starts the daemon, and returns when it is ready."""
        with self.log.open("a") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        try:
            wait_for("millraced is ready", self.is_ready)
        except BaseException:
            self.stop(signal.SIGKILL)
            raise
        return self

    def is_ready(self):
        assert self.process.poll() is None, f"millraced ended: {self.log.read_text()}"
        try:
            return self.rest.get("http://localhost/ready", timeout=60).status_code == 200
        except requests.RequestException:
            return False

    def stop(self, how=signal.SIGTERM):
        """Stops the daemon, and returns its exit status."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(timeout=STOP_BOUND)
            except subprocess.TimeoutExpired:
                threads = threads_of(self.process.pid)
                self.process.kill()
                self.process.wait(timeout=STOP_BOUND)
                raise AssertionError(f"millraced did not stop; its threads:\n{threads}\n{self.log.read_text()}") from None
        return self.process and self.process.returncode

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def ofctl(self, command, *arguments, **kwargs):
        """Returns the output of `ovs-ofctl`."""
        return run("ovs-ofctl", "-O", "OpenFlow13", command, self.target, *arguments, **kwargs)

    def ofctl_errors(self, command, *arguments):
        """Returns the error message of `ovs-ofctl`."""
        command = ["ovs-ofctl", "-O", "OpenFlow13", command, self.target, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return done.stdout + done.stderr

    def cli(self, *arguments, **kwargs):
        """Returns the output of `millrace`."""
        return run(TARGET / "millrace", *arguments, env=self.environment, **kwargs)

    def change(self, edit):
        """Changes the configuration over REST: `edit` gets it as JSON and changes it in place."""
        answer = self.rest.get(f"{self.url}/config", timeout=60)
        config = answer.json()
        edit(config)
        answer = self.rest.put(
            f"{self.url}/config", json=config, headers={"If-Match": answer.headers["ETag"]}, timeout=60
        )
        assert answer.ok, answer.text
        return answer

    def port_packets(self, number):
        """Returns (received, sent) of a port, as ovs-ofctl shows them."""
        text = self.ofctl("dump-ports", str(number))
        counts = [int(part.split("=")[1]) for part in text.replace(",", " ").split() if part.startswith("pkts=")]
        return counts[0], counts[1]


class OpenVSwitch:
    """An Open vSwitch with dummy devices: packets enter by appctl, and leave into a pcap file."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.environment = os.environ | {"OVS_RUNDIR": str(self.folder)}
        self.processes = []
        # The network devices that the user-space data path makes, which stay when it ends.
        self.devices = []

    def start(self):
        database = self._start_database()
        # Open vSwitch parses two tags, as OpenFlow requires for all; its default is one.
        self._vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:vlan-limit=2")
        self._spawn(
            "ovs-vswitchd", database, "--enable-dummy", "--disable-system", f"--unixctl={self.folder}/vs.ctl"
        )
        self._vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy",
                    "protocols=OpenFlow13", "fail-mode=secure")
        for number in (1, 2):
            self._vsctl("add-port", "br0", f"p{number}", "--", "set", "interface", f"p{number}", "type=dummy",
                        f"ofport_request={number}", f"options:tx_pcap={self.tx_pcap(number)}")
        return self

    def start_netdev(self, bridge, *more):
        """Starts the processes, with a bridge of the user-space data path. `more` goes on after `set bridge`: its other columns, and
        further commands of ovs-vsctl."""
        database = self._start_database()
        self._spawn("ovs-vswitchd", database, "--disable-system", f"--unixctl={self.folder}/vs.ctl")
        self._vsctl("--timeout=50", "add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev", *more)
        return self

    def appctl(self, *arguments):
        """Returns the output of `ovs-appctl`."""
        return run("ovs-appctl", "-t", f"{self.folder}/vs.ctl", *arguments)

    def tx_pcap(self, number):
        """Returns the file with the packets that a port sent."""
        return self.folder / f"p{number}.pcap"

    def ofctl(self, command, *arguments, **kwargs):
        """Returns the output of `ovs-ofctl`."""
        bridge = f"unix:{self.folder}/br0.mgmt"
        return run("ovs-ofctl", "-O", "OpenFlow13", command, bridge, *arguments, **kwargs)

    def send(self, number, frames):
        """Makes a port receive frames, in order."""
        for at in range(0, len(frames), 50):
            batch = [frame.hex() for frame in frames[at : at + 50]]
            self.appctl("netdev-dummy/receive", f"p{number}", *batch)

    def stop(self):
        for process in reversed(self.processes):
            end(process)
        for device in self.devices:
            run("ip", "link", "del", device, check=False)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_):
        self.stop()

    def _start_database(self):
        """Adds an empty bridge, and returns its OpenFlow address."""
        database = f"unix:{self.folder}/db.sock"
        run("ovsdb-tool", "create", self.folder / "conf.db", "/usr/share/openvswitch/vswitch.ovsschema")
        self._spawn("ovsdb-server", self.folder / "conf.db", f"--remote=p{database}", f"--unixctl={self.folder}/db.ctl")
        wait_for("ovsdb-server", lambda: listens(self.folder / "db.sock"))
        return database

    def _vsctl(self, *arguments):
        if "add-br" in arguments and "datapath_type=netdev" in arguments:
            self.devices += [arguments[arguments.index("add-br") + 1], "ovs-netdev"]
        run("ovs-vsctl", f"--db=unix:{self.folder}/db.sock", *arguments)

    def _spawn(self, *command):
        with (self.folder / "ovs.log").open("a") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=self.environment))
