"""Starts `millrace-ix`, the controller of an exchange, and orders what the tests need."""

import base64
import contextlib
import hashlib
import hmac
import json
import pathlib
import signal
import socket
import sqlite3
import struct
import subprocess
import time

import requests

from switches import STOP_BOUND, TARGET, free_port, run, wait_for

PASSWORD = "correct horse battery"


def one_time_code(secret):
    """Returns the one-time code of this moment (RFC 6238)."""
    digest = hmac.new(base64.b32decode(secret + "=" * (-len(secret) % 8)), struct.pack(">Q", int(time.time()) // 30), hashlib.sha1).digest()
    offset = digest[-1] & 15
    return f"{(struct.unpack('>I', digest[offset:offset + 4])[0] & 0x7fffffff) % 1000000:06d}"


class Control:
    """A connection to the control socket of an engine, for many orders a second."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(path))
        self.lines = self.socket.makefile("r")

    def ask(self, request, **values):
        """Returns the answer; fails with ValueError if the engine refuses, and with OSError if it is gone."""
        self.socket.sendall(json.dumps({"request": request, **values}).encode() + b"\n")
        line = self.lines.readline()
        if not line:
            raise ConnectionResetError("the engine is gone")
        answer = json.loads(line)
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer["ok"]

    def order(self, *operations):
        """Executes operations as one change."""
        return self.ask("order", operations=list(operations))

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Exchange:
    """A `millrace-ix` with a database in a folder."""

    def __init__(self, folder, engine="", more="", namespace=None, address="127.0.0.1", database=""):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.namespace, self.address, self.openflow_port = namespace, address, free_port()
        self.socket = self.folder / "control.sock"
        self.database = self.folder / "exchange.db"
        self.config = self.folder / "exchange.toml"
        self.config.write_text(f"""
[database]
path = "{self.database}"
{database}
[openflow]
listen = ["{self.target}"]
insecure = {str(address != "127.0.0.1").lower()}
[control]
socket = "{self.socket}"
[engine]
{engine}
{more}
""")
        self.log = self.folder / "millrace-ix.log"
        self.process = None

    @property
    def target(self):
        """Returns the address for switches."""
        return f"tcp:{self.address}:{self.openflow_port}"

    def start(self):
        """Starts the engine, and returns when it answers."""
        where = ["ip", "netns", "exec", self.namespace] if self.namespace else []
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [*where, TARGET / "millrace-ix", "serve", "--config", self.config, "--log", "debug"], stdout=log, stderr=log)
        try:
            wait_for("millrace-ix answers", self.answers)
        except BaseException:
            self.stop(signal.SIGKILL)
            raise
        return self

    def answers(self):
        assert self.process.poll() is None, f"millrace-ix ended: {self.log.read_text()}"
        return self.socket.exists() and self.command("status", check=False) != ""

    def stop(self, how=signal.SIGTERM):
        """Stops the engine, and returns its exit status."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(timeout=STOP_BOUND)
        return self.process and self.process.returncode

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def command(self, *arguments, **kwargs):
        """Returns the output of a command."""
        return run(TARGET / "millrace-ix", "--socket", self.socket, *arguments, **kwargs)

    def ask(self, *arguments, **kwargs):
        """Returns the answer of a command as JSON."""
        return json.loads(self.command("--json", *arguments, **kwargs))

    def order(self, *operations, **options):
        """Executes operations as one change."""
        flags = [f"--{name.replace('_', '-')}" if value is True else f"--{name}={value}" for name, value in options.items()]
        return self.ask("order", *flags, *map(json.dumps, operations))

    def objects(self, prefix):
        """Returns the objects whose identifiers have a prefix, by identifier."""
        return {one["id"]: one for one in self.ask("objects", prefix)}

    def switch(self, number):
        """Returns the state of a switch by its index in the list."""
        return self.ask("status")["switches"][number]

    def wait_in_sync(self, bound=60):
        """Waits until all switches equal the plan and no change is in progress."""
        def is_in_sync():
            status = self.ask("status")
            return not status["changes"] and all(switch["state"] == "in_sync" for switch in status["switches"])
        wait_for(f"in sync ({self.log})", is_in_sync, bound)

    def journal_steps(self, first):
        """Returns the time in ms of each state of all changes from a number on, by change."""
        with contextlib.closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as link:
            rows = link.execute("SELECT change, state, at FROM journal WHERE change >= ?", (first,)).fetchall()
        steps = {}
        for change, state, at in rows:
            steps.setdefault(change, {})[state] = at
        return steps

    def create_site(self, name, dpid, ports):
        """Adds a site with one switch; returns the identifiers of both."""
        ports = [{"number": number, "speed_mbps": 1000} for number in ports]
        created = self.order(
            {"operation": "create_site", "name": name},
            {"operation": "create_switch", "name": f"{name}-1", "site": "st-0", "dpid": f"{dpid:016x}", "ports": ports},
        )["applied"]["created"]
        return created[0], next(id for id in created if id.startswith("sw-"))

    def create_member(self, name, *ports):
        """Adds an account with a connection on each port; returns the identifiers of the account and its connections."""
        operations = [{"operation": "create_account", "name": name, "kind": "member"}]
        operations += [
            {"operation": "create_connection", "account": "ac-0", "name": f"{name} {port}", "kind": "standalone",
             "ports": [port]}
            for port in ports
        ]
        created = self.order(*operations)["applied"]["created"]
        return next(id for id in created if id.startswith("ac-")), [id for id in created if id.startswith("cn-")]

    def api_key(self, url, name):
        """Signs a user in at the API, and returns the identifier and the secret of a new API key."""
        self.command("user", "password", name, input=PASSWORD + "\n")
        totp = self.ask("user", "totp", name)
        body = {"name": name, "password": PASSWORD, "code": one_time_code(totp["secret"])}
        session = requests.post(f"{url}/api/v1/session", json=body, timeout=60)
        assert session.status_code == 200, session.text
        # The cookie is for TLS only; the proxy in front of the API has it.
        cookie = session.headers["set-cookie"].split(";")[0]
        made = requests.post(f"{url}/api/v1/api-keys", json={"name": "test", "scope": "write"}, headers={"cookie": cookie}, timeout=60)
        assert made.status_code == 201, made.text
        return made.json()["key"]["id"], made.json()["secret"]
