"""gNMI by clients in Go: those of the reference implementation, and one whose structs are generated from the OpenConfig modules."""

import contextlib
import os
import pathlib
import re
import socket
import ssl
import subprocess
import threading

import pytest

from certificates import Authority
from switches import ROOT, free_port, run, wait_for
from test_gnmi import CABLE, config, front_ends, switch  # noqa: F401 (fixtures)

PROGRAMS = pathlib.Path(os.environ.get("MILLRACE_GNMI_CLIENTS", ROOT / "target" / "gnmi-clients"))
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="interfaces need root"),
    pytest.mark.skipif(not (PROGRAMS / "gnmi_client").exists(), reason="clients in Go: scripts/setup.sh gnmi-clients"),
]


def client(front_ends, *arguments, name="alice"):  # noqa: F811
    """Runs the client of these tests, and returns what it says."""
    key, certificate = front_ends.clients.sign(name)
    return run(PROGRAMS / "gnmi_client", "-address", f"127.0.0.1:{front_ends.port}", "-ca", front_ends.server.certificate, "-cert", certificate,
               "-key", key, *arguments, timeout=120)


def gnmi_cli(front_ends, *arguments, name="alice", check=True):  # noqa: F811
    """Runs the reference implementation's client, and returns what it says."""
    key, certificate = front_ends.clients.sign(name)
    command = [PROGRAMS / "gnmi_cli", "-address", f"127.0.0.1:{front_ends.port}", "-ca_crt", front_ends.server.certificate, "-client_crt",
               certificate, "-client_key", key, "-timeout", "30s", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert not check or done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def test_the_commit_extension_goes_through_its_states(switch, front_ends):  # noqa: F811
    assert "as expected" in client(front_ends, "commit")
    assert config(switch)["bridge"][0]["mac_ageing_s"] == 400


def test_each_reply_parses_with_the_structs_of_the_modules(switch, front_ends):  # noqa: F811
    switch.change(lambda config: config["bridge"][0]["port"][1].update(trunks=[10, 20], vlan=5, mtu=9000))

    def with_a_lag(config):
        config["bridge"][0]["lag"] = [{"name": "lag1", "member": [{"name": "m1", "number": 21, "device": "memory"}]}]
        config["bridge"][0]["port"].append({"name": "up", "number": 9, "device": "lag:lag1"})

    switch.change(with_a_lag)
    said = client(front_ends, "parse", name="collector")
    assert re.search(r"get br0/p1 \S+ 1\n", said), said
    assert {"br0/p1", "br0/p2", "br0/up"} == set(re.findall(r"get (\S+)", said)), said
    assert all(int(leaves) > 3 * 12 for leaves in re.findall(r"once \S+ (\d+)", said)) and said.count("once") == 2, said


def test_the_reference_client_reads_sets_and_subscribes(switch, front_ends):  # noqa: F811
    said = gnmi_cli(front_ends, "-capabilities")
    assert "openconfig-interfaces" in said and "0.10.0" in said
    ageing = 'path: <origin: "millrace" elem: <name: "bridge" key: <key: "name" value: "br0">> elem: <name: "mac_ageing_s">>'
    assert "300" in gnmi_cli(front_ends, "-get", "-proto", f"{ageing} encoding: PROTO")
    gnmi_cli(front_ends, "-set", "-proto", f"update: <{ageing} val: <uint_val: 600>>")
    assert config(switch)["bridge"][0]["mac_ageing_s"] == 600
    refused = gnmi_cli(front_ends, "-set", "-proto", f"update: <{ageing} val: <uint_val: 700>>", name="collector", check=False)
    assert "PermissionDenied" in refused and config(switch)["bridge"][0]["mac_ageing_s"] == 600
    path = ["-query", "openconfig-interfaces:interfaces|interface[name=br0/p1]|state|oper-status", "-delimiter", "|"]
    once = gnmi_cli(front_ends, "-query_type", "once", *path)
    assert "UP" in once, once
    # A stream ends after the first changes.
    key, certificate = front_ends.clients.sign("collector")
    with subprocess.Popen(
        [PROGRAMS / "gnmi_cli", "-address", f"127.0.0.1:{front_ends.port}", "-ca_crt", front_ends.server.certificate, "-client_crt", certificate,
         "-client_key", key, "-query_type", "streaming", *path, "-display_type", "single", "-streaming_duration", "60s"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as stream:
        try:
            lines = iter(stream.stdout.readline, "")
            assert any("UP" in line for line in lines)
            run("ip", "link", "set", CABLE[1], "down")
            assert any("DOWN" in line for line in lines)
        finally:
            stream.kill()


@contextlib.contextmanager
def without_certificates(folder, front_ends):  # noqa: F811
    """Yields the port of a proxy for clients that have no certificates: it takes TLS from them, and has the rights of the Unix socket."""
    key, certificate = Authority(folder / "proxy", "proxy").sign("proxy")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["h2"])
    listener = socket.create_server(("127.0.0.1", 0))

    def copy(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def serve():
        with contextlib.suppress(OSError):
            while True:
                plain, _ = listener.accept()
                client = context.wrap_socket(plain, server_side=True)
                inner = socket.socket(socket.AF_UNIX)
                inner.connect(str(front_ends.gnmi))
                for pair in ((client, inner), (inner, client)):
                    threading.Thread(target=copy, args=pair, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()


def test_the_reference_collector_subscribes(tmp_path, switch, front_ends):  # noqa: F811
    """Its version 0.14.1 puts no target of its file into its cache, so that it can be asked for nothing: its log says that the stream is in sync."""
    key, certificate = Authority(tmp_path / "collector", "collector").sign("collector")
    configuration, log = tmp_path / "collector.cfg", tmp_path / "collector.log"
    with without_certificates(tmp_path, front_ends) as proxy, log.open("w") as output:
        configuration.write_text(f"""
            request: <key: "interfaces" value: <subscribe: <prefix: <origin: "openconfig"> mode: STREAM encoding: PROTO
                subscription: <path: <elem: <name: "interfaces">> mode: TARGET_DEFINED>>>>
            target: <key: "switch" value: <addresses: "127.0.0.1:{proxy}" request: "interfaces">>
            """)
        with subprocess.Popen([PROGRAMS / "gnmi_collector", "-config_file", configuration, "-cert_file", certificate, "-key_file", key, "-port",
                               str(free_port()), "-logtostderr"], stdout=output, stderr=output) as collector:
            try:
                wait_for("the collector is in sync", lambda: 'Target "switch" successfully subscribed' in log.read_text())
            finally:
                collector.kill()
    assert "rror" not in log.read_text(), log.read_text()
