"""Members of an etcd cluster on this machine, and switches that follow it."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import ssl
import subprocess
import urllib.request

from front_ends import FrontEnds
from switches import TARGET, Millrace, end, free_port, rest_over, run, wait_for

# Members elect a leader anew in under a second, also on a busy machine.
TIMES = ["--heartbeat-interval", "100", "--election-timeout", "1000"]


class Member:
    """One member: its process, its folder, its addresses."""

    def __init__(self, folder, name, host="127.0.0.1", authority=None):
        self.name, self.folder, self.authority = name, pathlib.Path(folder) / name, authority
        self.url = f"http{'s' if authority else ''}://{host}:{free_port()}"
        self.peer = f"http://{host}:{free_port()}"
        self.tls = []
        if authority:
            key, certificate = authority.sign(name)
            self.tls = ["--cert-file", certificate, "--key-file", key]
        self.process = None

    def start(self, cluster, state="new"):
        log = self.folder.with_suffix(".log").open("a")
        self.process = subprocess.Popen(
            ["etcd", "--name", self.name, "--data-dir", self.folder, "--listen-client-urls", self.url,
             "--advertise-client-urls", self.url, "--listen-peer-urls", self.peer, "--initial-advertise-peer-urls", self.peer,
             "--initial-cluster", cluster, "--initial-cluster-state", state, "--logger", "zap", "--log-level", "warn", *self.tls, *TIMES],
            stdout=log, stderr=log)
        log.close()

    def answers(self):
        assert self.process.poll() is None, f"etcd ended: {self.folder.with_suffix('.log').read_text()}"
        try:
            context = ssl.create_default_context(cafile=self.authority.certificate) if self.authority else None
            with urllib.request.urlopen(f"{self.url}/health", timeout=60, context=context) as answer:
                return json.load(answer)["health"] == "true"
        except OSError:
            return False

    def stop(self, how=signal.SIGKILL):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(how)
            self.process.wait(timeout=60)


class Etcd:
    """A cluster."""

    def __init__(self, folder, count=1, host="127.0.0.1", authority=None):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.members = [Member(self.folder, f"m{number}", host, authority) for number in range(count)]
        # Options of `etcdctl`: the authority of the members, and the user.
        self.options = ["--cacert", authority.certificate] if authority else []
        self.cluster = ",".join(f"{member.name}={member.peer}" for member in self.members)

    def start(self):
        for member in self.members:
            if member.process is None or member.process.poll() is not None:
                member.start(self.cluster)
        for member in self.members:
            wait_for(f"etcd {member.name} answers", member.answers)
        return self

    def stop(self, how=signal.SIGKILL):
        for member in self.members:
            member.stop(how)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()
        # A member allocates 128 MiB in advance; the logs stay.
        for member in self.members:
            shutil.rmtree(member.folder, ignore_errors=True)

    def ctl(self, *arguments, **kwargs):
        """Returns the output of `etcdctl`."""
        endpoints = ",".join(member.url for member in self.members)
        return run("etcdctl", "--endpoints", endpoints, *self.options, *arguments, env=os.environ | {"ETCDCTL_API": "3"}, **kwargs)

    def get(self, key):
        """Returns a value as JSON; `None` if there is none."""
        text = self.ctl("get", "--print-value-only", key)
        return json.loads(text) if text.strip() else None

    def revision(self):
        """Returns the revision of the store."""
        return json.loads(self.ctl("get", "no-such-key", "-w", "json"))["header"]["revision"]

    def backup(self):
        """Returns a file with everything that the first member has."""
        path = self.folder / "backup"
        path.unlink(missing_ok=True)
        run("etcdctl", "--endpoints", self.members[0].url, "snapshot", "save", path, env=os.environ | {"ETCDCTL_API": "3"})
        return path

    def replace(self, member):
        """Gives the cluster a new member in the place of one that has ended and lost its data."""
        others = ",".join(other.url for other in self.members if other is not member)

        def ctl(*arguments, **kwargs):
            return run("etcdctl", "--endpoints", others, *self.options, *arguments, env=os.environ | {"ETCDCTL_API": "3"}, **kwargs)

        known = json.loads(ctl("member", "list", "-w", "json"))["members"]
        ctl("member", "remove", f"{next(one['ID'] for one in known if one['peerURLs'] == [member.peer]):x}")
        shutil.rmtree(member.folder)
        # The others admit none until they have seen each other for a while.
        wait_for("a new member", lambda: "added to cluster" in ctl("member", "add", member.name, f"--peer-urls={member.peer}", check=False))
        member.start(self.cluster, "existing")
        wait_for(f"etcd {member.name} answers", member.answers)

    def restore(self, path):
        """Replaces all members by what a backup holds."""
        self.stop()
        for member in self.members:
            shutil.rmtree(member.folder)
            run("etcdctl", "snapshot", "restore", path, "--name", member.name, "--data-dir", member.folder,
                "--initial-cluster", self.cluster, "--initial-advertise-peer-urls", member.peer,
                env=os.environ | {"ETCDCTL_API": "3"})
        self.start()

    def settings(self, node="", extra=()):
        """Returns the section of millrace-mgmt.toml."""
        endpoints = json.dumps([member.url for member in self.members])
        lines = ["[etcd]", f"endpoints = {endpoints}", *extra]
        return "\n".join(lines + ([f'node = "{node}"'] if node else [])) + "\n"


class Follower:
    """A switch that follows its document: a `millraced` and a `millrace-mgmt`."""

    def __init__(self, folder, node, etcd, ports=(), before=(), extra=(), name=None):
        self.node, self.etcd, self.folder = node, etcd, pathlib.Path(folder) / (name or node)
        self.switch = Millrace(self.folder, ports=ports, fail_mode="standalone")
        self.state = self.folder / "fleet"
        self.state.mkdir()
        section = etcd.settings(node, ["enabled = true", f'state = "{self.state}"', *extra])
        self.agent = FrontEnds(self.folder / "mgmt", self.switch, gnmi=section, before=before)

    def __enter__(self):
        self.switch.start()
        self.agent.start()
        return self

    def __exit__(self, *_):
        self.agent.stop()
        self.switch.stop()

    def fleet(self, *arguments, check=True, bound=120):
        """Runs `millrace fleet` on this switch, and returns what it said and its exit status."""
        command = [TARGET / "millrace", "fleet", "--settings", self.agent.config, *arguments]
        done = subprocess.run(command, env=self.switch.environment, capture_output=True, text=True, timeout=bound)
        assert not check or done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr, done.returncode

    def attach(self):
        self.fleet("attach")
        self.wait_ack("applied")
        return self

    def ack(self):
        return self.etcd.get(f"/millrace/nodes/{self.node}/ack") or {}

    def status(self):
        return self.etcd.get(f"/millrace/nodes/{self.node}/status") or {}

    def document(self):
        return self.etcd.get(f"/millrace/nodes/{self.node}/config")

    def document_revision(self):
        found = json.loads(self.etcd.ctl("get", f"/millrace/nodes/{self.node}/config", "-w", "json"))
        return found["kvs"][0]["mod_revision"]

    def wait_ack(self, outcome):
        """Waits for an answer to the present document, and returns it."""
        def is_there():
            ack = self.ack()
            return ack if ack.get("mod_revision") == self.document_revision() and ack["outcome"] == outcome else None
        return wait_for(f"{self.node}: {outcome}", is_there)

    def asked(self, path):
        """Returns an answer of REST over a connection of its own: the switch closes those that are idle, also just when one is used again."""
        with rest_over(self.switch.api_socket) as rest:
            return rest.get(f"{self.switch.url}/{path}", timeout=60).json()

    def config(self):
        return self.asked("config")

    def revisions(self):
        return self.asked("revisions?limit=200")["revisions"]

    def file(self, edit, name="wanted"):
        """Returns a file with the configuration of the switch, which `edit` changes in place."""
        config = self.config()
        edit(config)
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(config))
        return path

    def put(self, **changes):
        """Writes the document past every master, with these members changed."""
        self.etcd.ctl("put", f"/millrace/nodes/{self.node}/config", json.dumps(self.document() | changes))


def bridge(config):
    return config["bridge"][0]


def tables(number):
    """Returns an edit that gives the first bridge this size of its MAC table: a change that loses no packet."""
    def edit(config):
        bridge(config)["mac_table_size"] = number
    return edit


@contextlib.contextmanager
def master(follower):
    """Runs `millrace fleet master`."""
    command = [TARGET / "millrace", "fleet", "--settings", follower.agent.config, "master"]
    process = subprocess.Popen(command, env=follower.switch.environment)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        end(process)
