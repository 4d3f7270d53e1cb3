"""The engine at the control socket of a BIRD: sessions, and the routes that it rejects in each of its forms, through the API."""

import os
import shutil
import socket
import time

import pytest

from exchange import Exchange
from routeservers import BIRDS, SERVER, Member, RouteServerView, birds, lan
from switches import free_port, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")

AOBA, BAIKAL = (64500, ("192.0.2.10", "2001:db8::10")), (64501, ("192.0.2.11", "2001:db8::11"))
# The route server takes one route, tags and takes a bogon, tags and filters another one, and filters one without a word.
PASSES, TAGGED, FILTERED, SILENT = "5.5.5.0/24", "203.0.113.0/24", "198.51.100.0/24", "5.5.6.0/25"


def route_server(folder, clients):
    """Writes the configuration of a route server that keeps filtered routes."""
    sessions = "".join(
        f"""
protocol bgp as{asn}_{number} {{
  local {server} as 64999; neighbor {address} as {asn}; rs client; strict bind yes; connect delay time 1; connect retry time 1;
  ipv{4 if "." in address else 6} {{ import filter clients; import keep filtered; export where !((65520, 0) ~ bgp_community); }};
}}
""" for asn, addresses in clients for number, (address, server) in enumerate(zip(addresses, SERVER), 1))
    (folder / "bird.conf").write_text(f"""
log "{folder}/log" all;
router id 192.0.2.250;
protocol device {{}}
filter clients {{
  if net = {TAGGED} then {{ bgp_community.add((65520, 0)); bgp_community.add((65520, 2)); accept; }}
  if net = {FILTERED} then {{ bgp_large_community.add((64999, 1101, 13)); reject; }}
  if net = {SILENT} then reject;
  accept;
}}
{sessions}
""")


def ordered(exchange):
    """Orders a LAN with an end of each of both members."""
    ports = [{"number": number, "speed_mbps": 1000} for number in (1, 2)]
    operations = [
        {"operation": "create_site", "name": "Otemachi"},
        {"operation": "create_switch", "name": "otemachi-1", "site": "st-0", "dpid": f"{1:016x}", "ports": ports},
        {"operation": "create_account", "name": "Test IX", "kind": "exchange"},
        {"operation": "create_user", "name": "ops", "account": "ac-0", "roles": ["operator_noc"]},
        {"operation": "create_policy", "policy": {
            "name": "peering", "ethertypes": [0x800, 0x806, 0x86dd], "macs_max": 2, "broadcast_pps": 50, "multicast_pps": 50,
            "arp": "unicast", "quarantine_secs": 900}},
        {"operation": "create_service", "account": "ac-0", "kind": "exchange_lan", "name": "LAN", "policy": "po-0",
         "networks": ["192.0.2.0/24", "2001:db8::/64"]}]
    created = exchange.order(*operations)["applied"]["created"]
    switch, lan = (next(id for id in created if id.startswith(prefix)) for prefix in ("sw-", "sv-"))
    for number, (user, (asn, addresses)) in enumerate((("ann", AOBA), ("bob", BAIKAL)), 1):
        exchange.order(
            {"operation": "create_account", "name": user, "kind": "member", "asns": [asn]},
            {"operation": "create_user", "name": user, "account": "ac-0", "roles": ["member_admin"]},
            {"operation": "create_connection", "account": "ac-0", "name": user, "kind": "standalone", "ports": [f"{switch}:{number}"]},
            {"operation": "configure_end", "service": lan, "connection": "cn-0", "vlan": {"type": "port"}},
            *({"operation": "add_ip", "config": "nc-0", "address": address} for address in addresses))


def settings(port, control):
    return f"""
[api]
listen = "127.0.0.1:{port}"
[[api.route_servers]]
lan = "LAN"
fqdn = "rs1.ix.example"
asn = 64999
ip_v4 = "{SERVER[0]}"
ip_v6 = "{SERVER[1]}"
control = "{control}"
poll_secs = 1
"""


@pytest.mark.parametrize("kind", BIRDS)
def test_a_member_reads_why_a_route_server_rejects_its_routes_and_since_when_it_does_not_answer(tmp_path, kind):
    if missing := [name for name in BIRDS[kind] if not shutil.which(name)]:
        pytest.skip(f"{', '.join(missing)} is not installed: run scripts/setup.sh routers")
    server = tmp_path / "rs"
    server.mkdir()
    route_server(server, (AOBA, BAIKAL))
    near = Member(tmp_path / "aoba", *AOBA, [PASSES, TAGGED, FILTERED, SILENT])
    far = Member(tmp_path / "baikal", *BAIKAL, [])
    port = free_port()
    began = time.monotonic()
    with Exchange(tmp_path / "ix", engine=settings(port, server / "ctl")) as exchange:
        ordered(exchange)
        url = f"http://127.0.0.1:{port}"
        ann, bob, ops = (RouteServerView(url, exchange, user, AOBA[1][0] if user == "ops" else address)
                         for user, address in (("ann", AOBA[1][0]), ("bob", BAIKAL[1][0]), ("ops", "")))
        # No BIRD yet: an engine that runs, and a state with its error for the staff.
        wait_for("the failure is told", lambda: ops.sessions()[0]["failing_since"])
        assert {session["freshness"] for session in ann.sessions()} == {"unreachable"} and ann.states() == ["unknown"] * 2
        assert str(server / "ctl") in ops.sessions()[0]["failure"] and ann.sessions()[0]["failure"] is None
        with lan([near, far]):
            with birds(("ar-rs", server), *((member.namespace, member.folder) for member in (near, far)), kind=kind):
                wait_for("the sessions are established", lambda: ann.states() == bob.states() == ["established"] * 2, 60)
                expected = [(FILTERED, ["route-rpki-invalid"]), (TAGGED, ["route-bogon"]), (SILENT, ["route-without-cause"])]
                wait_for("the rejected routes are read", lambda: sorted(ann.rejected()) == sorted(expected))
                assert bob.rejected() == [] and bob.status(ann.end) == bob.status("nc-999999") == 404
                assert sorted(ops.rejected()) == sorted(expected)
                # A report is fresh for three seconds, in which a busy machine may not have read the next one.
                wait_for("the reports are fresh", lambda: [session["freshness"] for session in ann.sessions()] == ["fresh"] * 2)
            wait_for("the report is stale", lambda: {session["freshness"] for session in ann.sessions()} == {"stale"})
            assert ann.sessions()[0]["failing_since"] and sorted(ann.rejected()) == sorted(expected), "the last report stays"
            with birds(("ar-rs", server), kind=kind):
                wait_for("it is read again", lambda: {session["freshness"] for session in ann.sessions()} == {"fresh"})
                assert ann.rejected() == []
    print(f"{time.monotonic() - began:.1f} s")


def test_a_control_socket_that_is_no_birds_is_a_state_and_no_end_of_the_engine(tmp_path):
    port = free_port()
    with socket.socket(socket.AF_UNIX) as other, Exchange(tmp_path / "ix", engine=settings(port, tmp_path / "ctl")) as exchange:
        other.bind(str(tmp_path / "ctl"))
        other.listen()
        ordered(exchange)
        ops = RouteServerView(f"http://127.0.0.1:{port}", exchange, "ops", AOBA[1][0])
        other.settimeout(60)
        stranger, _ = other.accept()
        stranger.sendall(b"220 mail.example ESMTP\n")
        wait_for("the error says what was expected", lambda: "0001 BIRD 2.0.12 ready." in (ops.sessions()[0]["failure"] or ""))
        stranger.close()
