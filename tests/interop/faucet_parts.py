"""Shared parts of the tests with Faucet: two VLANs with a router between them and an access list, Faucet's process, and
hosts that connect."""

import os
import pathlib
import subprocess
import sys

from switches import free_port

# The start of a configuration, up to the switches.
NETWORK = """
vlans:
  office:
    vid: 100
    faucet_mac: "0e:00:00:00:10:01"
    faucet_vips: ["10.0.100.254/24"]
  guest:
    vid: 200
    faucet_mac: "0e:00:00:00:20:01"
    faucet_vips: ["10.0.200.254/24"]
routers:
  between:
    vlans: [office, guest]
acls:
  no-telnet:
  - rule: {dl_type: 0x800, nw_proto: 6, tcp_dst: 23, actions: {allow: 0}}
  - rule: {actions: {allow: 1}}
dps:
"""


def start(folder, switches, port, *, prefix=(), arguments=(), network=NETWORK):
    """Starts Faucet with `switches`, the text of its `dps`, for switches that connect to `port`; its log is `faucet.log`."""
    config = folder / "faucet.yaml"
    config.write_text(network + switches)
    environment = os.environ | {
        "FAUCET_CONFIG": str(config),
        "FAUCET_LOG": str(folder / "faucet.log"),
        "FAUCET_EXCEPTION_LOG": str(folder / "exceptions.log"),
        "FAUCET_PROMETHEUS_PORT": str(free_port()),
        "FAUCET_PROMETHEUS_ADDR": "127.0.0.1",
    }
    manager = pathlib.Path(sys.executable).with_name("osken-manager")
    with (folder / "manager.log").open("w") as log:
        return subprocess.Popen(
            [*prefix, manager, *arguments, "--ofp-tcp-listen-port", str(port), "faucet.faucet"],
            stdout=log, stderr=log, env=environment,
        )


def connects(source, target, address, port):
    """Returns true if a TCP connection from one namespace to a server in another succeeds."""
    listen = f"import socket; s=socket.create_server(('', {port})); print('up', flush=True); s.accept()"
    connect = f"import socket; socket.create_connection(('{address}', {port}), timeout=3)"
    server = subprocess.Popen(
        ["ip", "netns", "exec", target, sys.executable, "-c", listen], stdout=subprocess.PIPE)
    try:
        server.stdout.readline()
        client = ["ip", "netns", "exec", source, sys.executable, "-c", connect]
        return subprocess.run(client, capture_output=True, timeout=60).returncode == 0
    finally:
        server.kill()
        server.wait(timeout=60)
        server.stdout.close()
