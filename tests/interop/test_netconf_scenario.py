"""One scenario of NETCONF by clients of three code bases: ncclient, yangcli, and a client on libnetconf2. After each operation the switch
has the same revision and the same configuration, whoever asked, and each refusal is the same."""

import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import time

import pytest

from front_ends import BASE, MODEL, FrontEnds, Sshd
from switches import Millrace, free_port
from test_netconf_clients import Client, needs_library, needs_yangcli, program  # noqa: F401 (a fixture)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="roles of users need root")
STANDARD = "urn:ietf:params:xml:ns:yang:ietf-interfaces"
DECLARED = f'xmlns:nc="{BASE}" xmlns:yang="urn:ietf:params:xml:ns:yang:1"'
YUMA = pathlib.Path("/usr/share/yuma/modules")


def bridge(inner, attributes=""):
    return f'<bridge xmlns="{MODEL}" {DECLARED}{attributes}><name>br0</name>{inner}</bridge>'


def port(name, inner="", attributes=""):
    return bridge(f"<port{attributes}><name>{name}</name>{inner}</port>")


def interface(name, inner="", attributes=""):
    return f'<interfaces xmlns="{STANDARD}" {DECLARED}><interface{attributes}><name>{name}</name>{inner}</interface></interfaces>'


def operation(word):
    return f' nc:operation="{word}"'


P3 = "<number>3</number><device>memory</device>"
# Each line is an operation with its arguments, and what it answers: `ok`, the tag of an error, or words of the data.
OPERATIONS = [
    ("get-config", "running", "", ["br0", "p1", "memory"]),
    ("get-config", "running", bridge("<port><name>p1</name></port>"), ["p1", "memory", "!p2"]),
    ("get-config", "running", "/bridge/port[name='p2']/number", ["p2", "2", "!p1"]),
    ("get-config", "running", f'<interfaces xmlns="{STANDARD}"/>', ["br0/p1", "ethernetCsmacd", "!memory"]),
    ("get", f'<switch_state xmlns="{MODEL}"/>', ["if_index", "link", "!mac_ageing_s"]),
    ("get", interface("br0/p1"), ["oper-status", "discontinuity-time", "!br0/p2"]),
    ("with-defaults", "report-all", ["mac_ageing_s", "300"]),
    ("get-schema", "millrace", ["module millrace"]),
    ("get-schema", "ietf-interfaces", ["module ietf-interfaces", "RFC 8343"]),
    ("get-schema", "no-such-module", "invalid-value"),
    ("lock", "candidate", "ok"),
    ("lock", "candidate", "lock-denied"),
    ("edit", bridge("<mac_ageing_s>600</mac_ageing_s>"), {}, "ok"),
    ("get-config", "candidate", "/bridge/mac_ageing_s", ["600"]),
    ("validate", "candidate", "ok"),
    ("commit", {}, "ok"),
    ("commit", {}, "ok"),
    ("edit", port("p3", P3, operation("create")), {}, "ok"),
    ("edit", port("p3", P3, operation("create")), {}, "data-exists"),
    ("edit", port("p9", "", operation("delete")), {}, "data-missing"),
    ("edit", port("p9", "", operation("remove")), {}, "ok"),
    ("edit", port("p3", "<mtu>1400</mtu><vlan>5</vlan>"), {}, "ok"),
    ("commit", {}, "ok"),
    ("edit", port("p3", P3 + "<vlan>7</vlan>", operation("replace")), {}, "ok"),
    ("validate", "candidate", "ok"),
    ("commit", {}, "ok"),
    ("edit", port("p3", "<trunks>10</trunks><trunks>20</trunks>"), {}, "ok"),
    ("edit", port("p3", f"<trunks{operation('delete')}>10</trunks>"), {}, "ok"),
    ("commit", {}, "ok"),
    ("edit", port("p4", "<number>4</number><device>memory</device>", ' yang:insert="first"'), {}, "ok"),
    ("commit", {}, "ok"),
    ("edit", interface("br0/p2", "<enabled>false</enabled>"), {}, "ok"),
    ("commit", {}, "ok"),
    ("get-config", "running", interface("br0/p2"), ["enabled", "false"]),
    ("edit", interface("br0/p9"), {}, "invalid-value"),
    ("edit", interface("br0/p2", "", operation("delete")), {}, "ok"),
    ("commit", {}, "ok"),
    ("edit", bridge("<mac_ageing_s>many</mac_ageing_s>"), {}, "invalid-value"),
    ("edit", bridge("<colour>red</colour>"), {}, "unknown-element"),
    ("edit", '<bridge xmlns="urn:example:other"><name>br0</name></bridge>', {}, "unknown-namespace"),
    ("edit", bridge("<mac_ageing_s>601</mac_ageing_s>"), {"test-option": "test-only"}, "ok"),
    ("edit", port("p8", "<mtu>1400</mtu>"), {"default-operation": "none"}, "data-missing"),
    ("edit", bridge(f"<mac_ageing_s>602</mac_ageing_s><port{operation('delete')}><name>p8</name></port>"),
     {"error-option": "rollback-on-error"}, "data-missing"),
    ("commit", {}, "ok"),
    ("edit", bridge(f"<port{operation('delete')}><name>p8</name></port><mac_ageing_s>603</mac_ageing_s>"),
     {"error-option": "continue-on-error"}, "data-missing"),
    ("commit", {}, "ok"),
    ("edit", bridge("<mac_ageing_s>604</mac_ageing_s>"), {}, "ok"),
    ("discard", "ok"),
    ("commit", {}, "ok"),
    ("edit", bridge("<tables>9</tables>"), {}, "ok"),
    ("copy", "running", "ok"),
    ("commit", {}, "ok"),
    ("lock", "running", "ok"),
    ("edit", bridge("<mac_ageing_s>605</mac_ageing_s>"), {}, "ok"),
    ("commit", {}, "ok"),
    ("unlock", "running", "ok"),
    ("edit", bridge("<mac_ageing_s>606</mac_ageing_s>"), {}, "ok"),
    ("commit", {"confirmed": "600", "persist": "token"}, "ok"),
    ("commit", {"persist-id": "another"}, "invalid-value"),
    ("commit", {"persist-id": "token"}, "ok"),
    ("edit", bridge("<mac_ageing_s>607</mac_ageing_s>"), {}, "ok"),
    ("commit", {"confirmed": "600", "persist": "token"}, "ok"),
    ("cancel", "token", "ok"),
    ("cancel", "", "operation-failed"),
    ("discard", "ok"),
    ("edit", bridge("<mac_ageing_s>608</mac_ageing_s>"), {}, "ok"),
    ("commit", {"confirmed": "600"}, "ok"),
    ("commit", {}, "ok"),
    ("unlock", "candidate", "ok"),
    ("unlock", "candidate", "operation-failed"),
    ("kill", "4000", "invalid-value"),
    ("subscribe", "ok"),
]


class Ncclient:
    """ncclient over OpenSSH."""

    def __init__(self, sshd, folder):
        manager = pytest.importorskip("ncclient.manager", reason="ncclient: scripts/setup.sh management")
        self.session = manager.connect(host="127.0.0.1", port=sshd.port, username="root", key_filename=str(sshd.key), hostkey_verify=False,
                                       allow_agent=False, look_for_keys=False, timeout=60)

    def ask(self, name, *arguments):
        from ncclient.operations import RPCError

        try:
            return "data", str(getattr(self, name.replace("-", "_"))(*arguments))
        except RPCError as error:
            return error.tag, str(error)

    def filter(self, text):
        if not text:
            return None
        return ("xpath", text) if text.startswith("/") else ("subtree", text)

    def get_config(self, source, text):
        return self.session.get_config(source, filter=self.filter(text))

    def get(self, text):
        return self.session.get(filter=self.filter(text))

    def with_defaults(self, mode):
        return self.session.get_config("running", with_defaults=mode)

    def get_schema(self, name):
        return self.session.get_schema(name).data

    def lock(self, name):
        return self.session.lock(name)

    def unlock(self, name):
        return self.session.unlock(name)

    def edit(self, text, options):
        options = {key.replace("-", "_"): value for key, value in options.items()}
        return self.session.edit_config(target="candidate", config=f'<config xmlns="{BASE}">{text}</config>', **options)

    def validate(self, source):
        return self.session.validate(source)

    def commit(self, options):
        return self.session.commit(confirmed="confirmed" in options, timeout=options.get("confirmed"), persist=options.get("persist"),
                                   persist_id=options.get("persist-id"))

    def cancel(self, persist_id):
        return self.session.cancel_commit(persist_id=persist_id or None)

    def discard(self):
        return self.session.discard_changes()

    def copy(self, source):
        return self.session.copy_config(source=source, target="candidate")

    def kill(self, number):
        return self.session.kill_session(number)

    def subscribe(self):
        return self.session.create_subscription()

    def end(self):
        self.session.close_session()


class Libnetconf2:
    """The client in C, which checks each reply by the modules of the server."""

    def __init__(self, program, socket, folder):  # noqa: F811
        self.client = Client(program, socket, folder / "libnetconf2")
        self.client.__enter__()

    def ask(self, name, *arguments):
        text = self.client.call(*getattr(self, name.replace("-", "_"))(*arguments))
        found = re.search(r"<error-tag>(.*?)</error-tag>", text)
        assert not text.startswith(("not sent", "no reply")), text
        return (found.group(1) if found else "data"), text

    def get_config(self, source, text):
        # The library declares the prefixes of the modules.
        path = re.sub(r"([/\[])(?=[a-z])", r"\1millrace:", text) if text.startswith("/") else text
        return ("get-config" if source == "running" else "get-candidate"), path

    def get(self, text):
        return "get", text

    def with_defaults(self, _):
        return ("get-all",)

    def get_schema(self, name):
        return "schema", name

    def lock(self, name):
        return ("lock" if name == "candidate" else "lock-running",)

    def unlock(self, name):
        return ("unlock" if name == "candidate" else "unlock-running",)

    def edit(self, text, options):
        return "edit-by", text, *(options.get(name, "") for name in ("default-operation", "test-option", "error-option"))

    def validate(self, _):
        return ("validate",)

    def commit(self, options):
        return "commit", options.get("confirmed", ""), options.get("persist", ""), options.get("persist-id", "")

    def cancel(self, persist_id):
        return "cancel", persist_id

    def discard(self):
        return ("discard",)

    def copy(self, _):
        return ("copy",)

    def kill(self, number):
        return "kill", number

    def subscribe(self):
        return ("subscribe",)

    def end(self):
        self.client.__exit__()


class Yangcli:
    """yangcli at a terminal, over OpenSSH."""

    def __init__(self, sshd, folder):
        self.folder, self.files = folder, 0
        # Its own module of NETCONF has parameters behind features that no option enables.
        own = (YUMA / "yuma123" / "yuma123-netconf.yang").read_text()
        (folder / "modules").mkdir()
        (folder / "modules" / "yuma123-netconf.yang").write_text(re.sub("if-feature (confirmed-commit|validate);", "", own))
        self.terminal, inner = pty.openpty()
        self.process = subprocess.Popen(
            ["yangcli", "--server=127.0.0.1", f"--ncport={sshd.port}", "--user=root", f"--public-key={sshd.key}.pub",
             f"--private-key={sshd.key}", "--log-level=info", f"--modpath={folder}/modules:{YUMA}"],
            stdin=inner, stdout=inner, stderr=inner, env=os.environ | {"HOME": str(folder), "TERM": "dumb"})
        os.close(inner)
        self.until_prompt()

    def until_prompt(self, bound=60):
        """Returns what the program prints until it waits for a command."""
        deadline, seen = time.monotonic() + bound, b""
        while not re.search(rb"yangcli root@[^\n]*> $", seen):
            assert time.monotonic() < deadline, seen.decode(errors="replace")
            if select.select([self.terminal], [], [], 1)[0]:
                seen += os.read(self.terminal, 65536)
        return seen.decode(errors="replace")

    def ask(self, name, *arguments):
        os.write(self.terminal, getattr(self, name.replace("-", "_"))(*arguments).encode() + b"\n")
        text = self.until_prompt()
        kind = re.search(r"RPC (OK|Error|Data) Reply", text)
        assert kind, text
        return (re.search(r"error-tag (\S+)", text).group(1) if kind.group(1) == "Error" else "data"), text

    def file(self, text):
        self.files += 1
        path = self.folder / f"{self.files}.xml"
        path.write_text(text)
        return f"@{path}"

    def get_config(self, source, text):
        if text.startswith("/"):
            return f"xget-config source={source} select={text}"
        return f"get-config source={source}" + (f" filter={self.file(text)}" if text else "")

    def get(self, text):
        return f"get filter={self.file(text)}"

    def with_defaults(self, mode):
        return f"get-config source=running with-defaults={mode}"

    def get_schema(self, name):
        return f"get-schema identifier={name} format=yang"

    def lock(self, name):
        return f"lock target={name}"

    def unlock(self, name):
        return f"unlock target={name}"

    def edit(self, text, options):
        return " ".join([f"edit-config target=candidate config={self.file(text)}", *(f"{key}={value}" for key, value in options.items())])

    def validate(self, source):
        return f"validate source={source}"

    def commit(self, options):
        given = [f"{name}={options[name]}" for name in ("persist", "persist-id") if name in options]
        return " ".join(["commit", *([f"confirmed confirm-timeout={options['confirmed']}"] if "confirmed" in options else []), *given])

    def cancel(self, persist_id):
        return "cancel-commit" + (f" persist-id={persist_id}" if persist_id else "")

    def discard(self):
        return "discard-changes"

    def copy(self, source):
        return f"copy-config source={source} target=candidate"

    def kill(self, number):
        return f"kill-session session-id={number}"

    def subscribe(self):
        return "create-subscription"

    def end(self):
        os.write(self.terminal, b"quit\n")
        self.process.wait(timeout=60)
        os.close(self.terminal)


def observed(switch):
    """Returns what the switch runs, without what each run has of its own."""
    answer = switch.rest.get(f"{switch.url}/config", timeout=60)
    bridges = answer.json()["bridge"]
    for one in bridges:
        one.pop("listen")
    return answer.headers["ETag"], bridges


def trace(folder, connect):
    """Runs the scenario by one client. Returns the outcome of each operation with what the switch runs after it."""
    folder.mkdir()
    found = []
    with Millrace(folder / "switch", ports=[(1, "memory"), (2, "memory")]) as switch, FrontEnds(folder / "mgmt", switch) as front_ends, \
            Sshd(folder / "ssh", front_ends, free_port()) as sshd:
        client = connect(front_ends, sshd, folder)
        for number, (name, *arguments, expected) in enumerate(OPERATIONS, 1):
            outcome, text = client.ask(name, *arguments)
            where = f"{number}: {name} {arguments}: {text}"
            if isinstance(expected, list):
                assert outcome == "data", where
                body = text.split("\n", 1)[-1] if isinstance(client, Yangcli) else text
                for word in expected:
                    assert (word[1:] not in body) if word.startswith("!") else (word in body), f"{word}: {where}"
            else:
                assert outcome == ("data" if expected == "ok" else expected), where
            found.append((number, name, expected if isinstance(expected, str) else "data", *observed(switch)))
        client.end()
    return found


@needs_library
@needs_yangcli
@pytest.mark.skipif(not shutil.which("sshd", path="/usr/sbin"), reason="openssh-server: scripts/setup.sh management")
def test_clients_of_three_code_bases_have_the_same_revisions_after_each_operation(tmp_path, program):  # noqa: F811
    assert len(OPERATIONS) >= 60
    clients = {
        "ncclient": lambda _, sshd, folder: Ncclient(sshd, folder),
        "libnetconf2": lambda front_ends, _, folder: Libnetconf2(program, front_ends.netconf, folder),
        "yangcli": lambda _, sshd, folder: Yangcli(sshd, folder),
    }
    traces = {name: trace(tmp_path / name, connect) for name, connect in clients.items()}
    first = traces.pop("ncclient")
    for name, other in traces.items():
        for mine, theirs in zip(first, other, strict=True):
            assert mine == theirs, f"{name} differs from ncclient"
    assert len({etag for *_, etag, _ in first}) > 12, "the scenario makes revisions"
