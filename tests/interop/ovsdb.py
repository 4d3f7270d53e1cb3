"""An Open vSwitch database with Millrace or a real ovs-vswitchd as the process that realises it."""

import json
import os
import pathlib
import signal
import subprocess

from switches import TARGET, end, listens, rest_over, run, wait_for

SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
# The time in s after which ovs-vsctl gives up; a switch answers within a second.
VSCTL_BOUND = 60


class Database:
    """An ovsdb-server with the schema of Open vSwitch, and the tools that talk to it."""

    def __init__(self, folder, run_dir=None):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        # Paths of Unix sockets are short.
        self.run_dir = pathlib.Path(run_dir or self.folder)
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self.socket = self.run_dir / "db.sock"
        self.file = self.folder / "conf.db"
        self.environment = os.environ | {"OVS_RUNDIR": str(self.run_dir), "OVS_LOGDIR": str(self.folder),
                                         "OVS_DBDIR": str(self.folder)}
        self.server = None

    def start_database(self):
        """Starts the server on its file, which is created if it is absent."""
        if not self.file.exists():
            run("ovsdb-tool", "create", self.file, SCHEMA)
        with (self.folder / "ovsdb.log").open("a") as log:
            self.server = subprocess.Popen(
                ["ovsdb-server", self.file, f"--remote=punix:{self.socket}", f"--unixctl={self.run_dir}/db.ctl"],
                stdout=log, stderr=log, env=self.environment)
        wait_for("ovsdb-server", lambda: listens(self.socket))
        self.vsctl("--no-wait", "init")

    def replace_database(self):
        """Kills the server and starts one with an empty database."""
        self.kill_database()
        self.file.unlink()
        self.start_database()

    def kill_database(self):
        self.server.send_signal(signal.SIGKILL)
        self.server.wait(timeout=60)

    def vsctl(self, *arguments, check=True):
        """Returns the output of `ovs-vsctl`."""
        return run("ovs-vsctl", f"--db=unix:{self.socket}", f"--timeout={VSCTL_BOUND}", *map(str, arguments),
                   env=self.environment, check=check)

    def vsctl_error(self, *arguments):
        """Returns what `ovs-vsctl` prints as errors."""
        command = ["ovs-vsctl", f"--db=unix:{self.socket}", f"--timeout={VSCTL_BOUND}", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, env=self.environment).stderr

    def get(self, table, record, column):
        return self.vsctl("get", table, record, column).strip()

    def ofctl(self, command, bridge, *arguments, **kwargs):
        """Returns the output of `ovs-ofctl`, which finds the bridge by its name."""
        return run("ovs-ofctl", "-O", "OpenFlow13", command, bridge, *arguments, env=self.environment, **kwargs)

    def appctl(self, *arguments):
        """Returns the output of `ovs-appctl` to the process that realises the database."""
        control = next(path for path in self.run_dir.glob("*.ctl") if path.name.startswith(("vs.", "ovs-vswitchd.")))
        return run("ovs-appctl", "--target", control, *arguments, env=self.environment)

    def rows(self, table):
        """Returns the rows of a table as dictionaries."""
        listed = json.loads(self.vsctl("--format=json", "list", table))
        return [dict(zip(listed["headings"], row, strict=True)) for row in listed["data"]]

    def stop(self):
        if self.server and self.server.poll() is None:
            end(self.server)

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()


class Following(Database):
    """A database that Millrace follows, in a network namespace if one is named."""

    def __init__(self, folder, run_dir=None, namespace=None, extra=""):
        super().__init__(folder, run_dir)
        self.prefix = ["ip", "netns", "exec", namespace] if namespace else []
        self.api_socket = self.run_dir / "api.sock"
        self.rest = rest_over(self.api_socket)
        self.url = "http://localhost/api/v1"
        self.log = self.folder / "millraced.log"
        self.process = None
        self.config = self.folder / "switch.toml"
        self.config.write_text("\n".join([
            "[system]", f'state_dir = "{self.folder / "state"}"',
            "[api]", f'socket = "{self.api_socket}"',
            "[ovsdb]", f'connect = "unix:{self.socket}"', f'run_dir = "{self.run_dir}"', extra]) + "\n")

    def start(self):
        self.start_database()
        self.start_switch()
        self.wait_until_following()
        self.vsctl("set", "Open_vSwitch", ".", "external_ids:started=yes")
        return self

    def start_switch(self):
        with self.log.open("a") as log:
            self.process = subprocess.Popen([*self.prefix, TARGET / "millraced", "--config", self.config, "--no-dpdk"],
                                            stdout=log, stderr=log)
        wait_for("the switch is ready", self.is_ready)

    def is_ready(self):
        return self.shown()["state"] is not None and self.rest.get("http://localhost/ready", timeout=60).status_code == 200

    def wait_until_following(self):
        wait_for("the switch follows the database", lambda: self.shown()["state"] == "following")

    def shown(self):
        """Returns what `millrace show ovsdb` shows."""
        assert self.process.poll() is None, f"millraced ended: {self.log.read_text()}"
        try:
            return self.rest.get(f"{self.url}/ovsdb", timeout=60).json()
        except OSError:
            return {"state": None}

    def shown_current(self):
        """Returns what `millrace show ovsdb` shows as soon as it says that the switch is up to date. A command of ovs-vsctl may
        return a moment earlier: the server tells the database's clients of a transaction in an order of its own."""
        def current():
            shown = self.shown()
            return shown if shown["next_cfg"] == shown["cur_cfg"] else None
        return wait_for("the switch is up to date", current)

    def cli(self, *arguments, **kwargs):
        """Returns the output of `millrace`."""
        environment = os.environ | {"MILLRACE_API": f"unix:{self.api_socket}"}
        return run(TARGET / "millrace", *arguments, env=environment, **kwargs)

    def kill_switch(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        self.process.wait(timeout=60)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.kill_switch(signal.SIGTERM)
        super().stop()


class Real(Database):
    """A database that a real ovs-vswitchd realises, in user space, in a network namespace if one is named."""

    def __init__(self, folder, run_dir=None, namespace=None):
        super().__init__(folder, run_dir)
        self.prefix = ["ip", "netns", "exec", namespace] if namespace else []
        self.process = None

    def start(self):
        self.start_database()
        with (self.folder / "vswitchd.log").open("a") as log:
            self.process = subprocess.Popen(
                [*self.prefix, "ovs-vswitchd", f"unix:{self.socket}", "--disable-system", f"--unixctl={self.run_dir}/vs.ctl"],
                stdout=log, stderr=log, env=self.environment)
        self.vsctl("set", "Open_vSwitch", ".", "external_ids:started=yes")
        return self

    def stop(self):
        if self.process and self.process.poll() is None:
            end(self.process)
        super().stop()
