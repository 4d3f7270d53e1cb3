"""Starts `millrace-mgmt` beside a switch, and its clients: gNMI by pygnmi, NETCONF by sockets and by ncclient over OpenSSH."""

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

from switches import ROOT, TARGET, listens, run, wait_for

BASE = "urn:ietf:params:xml:ns:netconf:base:1.0"
MODEL = "urn:millrace:switch"
# Clients of gNMI and NETCONF, in an environment of their own (`scripts/setup.sh management`).
CLIENTS = pathlib.Path(os.environ.get("MILLRACE_CLIENTS", ROOT / "target" / "management-clients"))
for folder in sorted(CLIENTS.glob("lib/python3.*/site-packages")):
    # Last, so that packages of the tests' own environment come first.
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


class FrontEnds:
    """A `millrace-mgmt` that serves a switch."""

    def __init__(self, folder, switch, settings="", gnmi="", before=(), program=TARGET / "millrace-mgmt", log="debug"):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.netconf, self.gnmi = self.folder / "netconf.sock", self.folder / "gnmi.sock"
        self.log = self.folder / "mgmt.log"
        self.config = self.folder / "mgmt.toml"
        self.config.write_text("\n".join([
            f'switch = "unix:{switch.api_socket}"', settings,
            "[netconf]", f'socket = "{self.netconf}"', "[gnmi]", f'socket = "{self.gnmi}"', gnmi,
        ]) + "\n")
        self.command = [*before, program, "--log", log, "serve", "--config", self.config]
        self.process = None

    def start(self):
        """Starts the program, and returns when it listens."""
        with self.log.open("a") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        wait_for("millrace-mgmt listens", self.is_ready)
        return self

    def is_ready(self):
        assert self.process.poll() is None, f"millrace-mgmt ended: {self.log.read_text()}"
        return listens(self.gnmi) and listens(self.netconf)

    def stop(self, how=signal.SIGTERM):
        """Ends the program."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(timeout=60)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()


class Netconf:
    """A session of NETCONF 1.0 over the server's socket, without SSH."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(path))
        self.buffer = b""
        self.hello = self.receive()
        self.id = int(re.search(r"<session-id>(\d+)<", self.hello).group(1))
        capability = f"<capability>{BASE.replace('xml:ns:', '')}</capability>"
        self.send(f'<hello xmlns="{BASE}"><capabilities>{capability}</capabilities></hello>')

    def send(self, message):
        self.socket.sendall(message.encode() + b"]]>]]>")

    def receive(self):
        """Returns the next message; fails if the server closes."""
        while b"]]>]]>" not in self.buffer:
            received = self.socket.recv(65536)
            if not received:
                raise ConnectionError(f"closed after {self.buffer!r}")
            self.buffer += received
        message, _, self.buffer = self.buffer.partition(b"]]>]]>")
        return message.decode()

    def call(self, operation):
        """Returns the reply to an operation."""
        self.send(f'<rpc message-id="1" xmlns="{BASE}">{operation}</rpc>')
        return self.receive()

    def ok(self, operation):
        reply = self.call(operation)
        assert "<ok/>" in reply, f"{operation}: {reply}"

    def fails(self, operation, tag):
        reply = self.call(operation)
        assert f"<error-tag>{tag}</error-tag>" in reply, f"{operation}: {reply}"
        return reply

    def edit(self, inner, bridge="br0"):
        """Edits the candidate inside of a bridge."""
        self.ok(f'<edit-config><target><candidate/></target><config><bridge xmlns="{MODEL}"><name>{bridge}</name>{inner}'
                "</bridge></config></edit-config>")

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Sshd:
    """An OpenSSH server whose subsystem is the server's program."""

    def __init__(self, folder, front_ends, port):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = port
        self.key = self.folder / "user"
        for name in ("host", "user"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name)
        (self.folder / "sshd_config").write_text("\n".join([
            f"ListenAddress 127.0.0.1:{port}", f"HostKey {self.folder}/host", f"PidFile {self.folder}/pid", "UsePAM no",
            f"AuthorizedKeysFile {self.folder}/user.pub", "StrictModes no", "PermitRootLogin prohibit-password",
            f"Subsystem netconf {TARGET}/millrace-mgmt netconf --socket {front_ends.netconf}",
        ]) + "\n")
        self.process = None

    def __enter__(self):
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)
        with (self.folder / "log").open("w") as log:
            self.process = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", self.folder / "sshd_config"],
                                            stdout=log, stderr=log)

        def accepts():
            assert self.process.poll() is None, (self.folder / "log").read_text()
            with socket.socket() as client:
                return client.connect_ex(("127.0.0.1", self.port)) == 0

        wait_for("sshd listens", accepts)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=60)


@contextlib.contextmanager
def over_unix(front_ends):
    """Yields the stub of gNMI over the Unix socket, and the module of its messages. Without the option, gRPC's C core would send the
    path of the socket as the authority, which is none."""
    import grpc
    from pygnmi.spec.v080 import gnmi_pb2, gnmi_pb2_grpc

    options = [("grpc.default_authority", "localhost")]
    with grpc.insecure_channel(f"unix://{front_ends.gnmi}", options=options) as channel:
        yield gnmi_pb2_grpc.gNMIStub(channel), gnmi_pb2
