"""Tests of the exchange's APIs with clients of others: pyixapi over IX-API, schemathesis over both descriptions, arouteserver.

`scripts/setup.sh api-clients` installs the last two; without them their tests are skipped. `make exchange-check` does, and sends
50,000 requests.
"""

import base64
import concurrent.futures
import hashlib
import hmac
import json
import math
import os
import pathlib
import re
import subprocess
import time

import pytest
import requests

from exchange import Exchange
from routeservers import Member, RouteServerView, birdc, birds, lan
from switches import TARGET, Millrace, free_port, run, wait_for

LONG = bool(os.environ.get("MILLRACE_EXCHANGE_LONG"))
CLIENTS = pathlib.Path("target/api-clients/bin")
# Of both descriptions together.
CASES = 50_000
# The parts of the requests: those that leave the client's access alone, then those that may end it.
PARTS = os.environ.get("MILLRACE_EXCHANGE_API_PARTS", "harmless dangerous").split()


class Api:
    """A running exchange with one switch, and its API."""

    def __init__(self, folder):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        settings = f"""
[api]
listen = "127.0.0.1:{self.port}"
name = "Test IX"
[[api.route_servers]]
lan = "LAN"
fqdn = "rs1.ix.example"
asn = 64999
ip_v4 = "192.0.2.250"
ip_v6 = "2001:db8::fa"
control = "{folder / "rs.ctl"}"
poll_secs = 1
"""
        self.control = folder / "rs.ctl"
        self.exchange = Exchange(folder / "ix", engine=settings)
        self.switch = Millrace(folder / "switch", ports=[(number, f"link:l{(number - 1) // 2}") for number in range(1, 9)],
                               controllers=[self.exchange.target])

    def __enter__(self):
        self.exchange.start()
        self.switch.__enter__()
        self.site, self.switch_id = self.exchange.create_site("Otemachi", 1, range(1, 9))
        self.exchange.order(
            {"operation": "create_account", "name": "Test IX", "kind": "exchange"},
            {"operation": "create_user", "name": "ops", "account": "ac-0",
             "roles": ["operator_admin", "operator_provisioning", "operator_noc"]},
            {"operation": "create_policy", "policy": {
                "name": "peering", "ethertypes": [0x800, 0x806, 0x86dd], "macs_max": 2, "broadcast_pps": 50,
                "multicast_pps": 50, "arp": "unicast", "quarantine_secs": 900}},
            {"operation": "create_service", "account": "ac-0", "kind": "exchange_lan", "name": "LAN", "policy": "po-0",
             "networks": ["192.0.2.0/24", "2001:db8::/64"]},
        )
        return self

    def __exit__(self, *arguments):
        self.switch.__exit__(*arguments)
        self.exchange.stop()

    def key(self, name):
        """Signs a user in, and returns the identifier and the secret of a new API key."""
        return self.exchange.api_key(self.url, name)


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    with Api(tmp_path_factory.mktemp("api")) as api:
        api.operator = api.key("ops")
        yield api


COLLECTIONS = [
    "accounts", "availability_zones", "connections", "contacts", "devices", "facilities", "ips", "macs",
    "member_joining_rules", "metro_area_networks", "metro_areas", "network_feature_configs", "network_features",
    "network_service_configs", "network_services", "pops", "port_reservations", "ports", "product_offerings",
    "role_assignments", "roles", "routing_functions",
]


def test_pyixapi_takes_members_from_nothing_to_production_and_reads_every_collection(api):
    import pyixapi

    client = pyixapi.api(f"{api.url}/api/v2", *api.operator)
    client.authenticate()
    assert client.version == 2
    own = client.account().id
    ends = []
    for name, asn in (("Aoba", 64500), ("Baikal", 64501)):
        address = {"country": "JP", "locality": "Tokyo", "postal_code": "100-0004", "street_address": "Otemachi 1"}
        account = client.accounts.create(name=name, managing_account=own, address=address, discoverable=True).id
        # Only the staff gives an account an AS number, and an AS-SET that is not named after it.
        api.exchange.order({"operation": "update_account", "account": account, "asns": [asn], "as_set": f"AS-EXAMPLE{asn}"})
        owner = {"managing_account": account, "consuming_account": account}
        billed = {**owner, "billing_account": account, "role_assignments": []}
        contact = client.contacts.create(**owner, name="NOC", email="noc@example.net", telephone="+8130000000")
        role = next(role for role in client.roles.all() if role.name == "noc")
        client.role_assignments.create(contact=contact.id, role=role.id)
        pop = next(client.pops.all())
        connection = client.connections.create(**billed, mode="standalone", pop=pop.id)
        assert connection.state == "production" and len(connection.ports) == 1
        ends.append((billed, connection.id, asn))
    (a, near, _), (b, far, _) = ends
    circuit = client.network_services.create(
        **a, type="p2p_vc", product_offering="offering-p2p_vc", joining_member_account=b["consuming_account"], external_ref="order 7")
    assert circuit.state == "requested" and circuit.status[0].message
    for billed, connection, vlan in ((a, near, 100), (b, far, 200)):
        client.network_service_configs.create(
            **billed, type="p2p_vc", network_service=circuit.id, connection=connection, capacity=100,
            vlan_config={"vlan_type": "dot1q", "vlan": vlan})
    wait_for("the circuit is in production", lambda: client.network_services.get(circuit.id).state == "production")
    assert "dl_vlan=100" in api.switch.ofctl("dump-flows") or "vlan_vid" in api.switch.ofctl("dump-flows")
    # The peering LAN: addresses, a session with the route server, quarantine.
    lan = client.network_services.get(type="exchange_lan")
    [feature] = client.network_features.filter(network_service=lan.id)
    for billed, connection, asn in ends:
        owner = {name: billed[name] for name in ("managing_account", "consuming_account")}
        mac = client.macs.create(**owner, address=f"02:00:00:00:00:{asn % 100:02x}")
        config = client.network_service_configs.create(
            **billed, type="exchange_lan", network_service=lan.id, connection=connection, asns=[asn], listed=True,
            macs=[mac.id], vlan_config={"vlan_type": "dot1q"}, product_offering=f"offering-{lan.id}")
        assert config.state == "testing" and config.macs == [mac.id] and len(config.ips) == 2
        for ip in config.ips:
            client.network_feature_configs.create(
                **billed, type="route_server", network_feature=feature.id, network_service_config=config.id, asn=asn,
                as_set_v4=f"AS-EXAMPLE{asn}", as_set_v6=f"AS-EXAMPLE{asn}", max_prefix_v4=100, max_prefix_v6=50,
                session_mode="public", bgp_session_type="passive", ip=ip)
        api.exchange.order({"operation": "waive_quarantine", "config": config.id, "reason": "test"})
        wait_for("the end is in production", lambda: client.network_service_configs.get(config.id).state == "production")
        # Changes are sent by PATCH, with the changed fields only.
        # pyixapi 0.3.2 cannot save a record that has a status: the one from before has the quarantine's.
        config = client.network_service_configs.get(config.id)
        assert config.update({"capacity": 500}) and client.network_service_configs.get(config.id).capacity == 500
    api.exchange.wait_in_sync()
    for name in COLLECTIONS:
        collection = getattr(client, name)
        records = list(collection.all())
        print(f"{name}: {len(records)}")
        for record in records:
            assert dict(collection.get(record.id))["id"] == record.id
        assert records or name in ("availability_zones", "routing_functions", "member_joining_rules"), name
    assert client.implementation()["schema_version"] == "2.1.0" and client.health()["status"] == "pass"
    assert len(client.extensions()) >= 3
    # Tokens rotate; a service and its ends are deleted.
    client.refresh_authentication()
    assert circuit.delete()
    wait_for("the circuit is gone", lambda: client.network_services.get(circuit.id) is None)


def blocks(language):
    """Returns the examples in a language in docs/exchange-api.md."""
    text = pathlib.Path("docs/exchange-api.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(block):
    """Splits an example into its commands: a command ends with a line after which all quotes are closed."""
    command = ""
    for line in block.splitlines():
        command += line + "\n"
        if command.count("'") % 2 == 0 and not line.endswith("\\"):
            yield command
            command = ""
    assert not command.strip(), command


def test_every_example_of_the_documentation_works(api, tmp_path):
    members = [api.exchange.create_member(name, f"{api.switch_id}:{port}") for name, port in (("Cordoba", 7), ("Dakar", 8))]
    (account, [connection]), (peer, _) = members
    program = f"{TARGET.absolute() / 'millrace-ix'} --socket {api.exchange.socket}"
    values = {"https://ix.example": api.url, "0123456789abcdef": api.operator[0], "mx_...": api.operator[1], "ac-3": account,
              "ac-9": peer, "cn-5": connection, "millrace-ix": program, "curl -s": "curl -sS --fail-with-body"}
    settings, ran = "", 0
    for command in (command for block in blocks("sh") for command in commands(block)):
        if re.match(r"[a-z_]+=", command):
            settings += command
        elif re.match(r"(curl|millrace-ix|echo) ", command):
            script = settings + command
            for old, new in values.items():
                script = script.replace(old, new)
            done = subprocess.run(["bash", "-c", f"set -eo pipefail\n{script}"], cwd=tmp_path, capture_output=True, text=True,
                                  timeout=60, check=False)
            assert done.returncode == 0, f"{script}{done.stdout}{done.stderr}"
            ran += 1
            if "auth/token" in command:
                values["$access_token"] = json.loads(done.stdout)["access_token"]
            elif "network-services " in command and "-d" in command:
                values["sv-12"] = json.loads(done.stdout)["id"]
            elif "network-service-configs" in command:
                assert json.loads(done.stdout)["vlan_config"]["vlan"] == 100
    assert ran >= 8, ran
    assert "clients" in json.loads((tmp_path / "clients.yml").read_text())


def test_the_documented_check_of_a_webhook_accepts_the_vector_of_standard_webhooks():
    import time as clock

    [example] = [block for block in blocks("python") if "hmac" in block]
    found = {"base64": base64, "hmac": hmac, "time": clock, "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
             "id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "timestamp": "1614265330", "body": '{"test": 2432232314}',
             "signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}
    exec(example, found)
    assert found["valid"] and not found["fresh"]


def program(name):
    """Returns the path of a program in the environment of clients; skips the test without it."""
    found = (CLIENTS / name).absolute()
    if not found.exists():
        pytest.skip(f"{name} is not installed: `scripts/setup.sh api-clients` does it")
    return found


# The cause in arouteserver's documentation: "Prefix is bogon".
BOGON = 2


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_arouteserver_makes_a_route_server_from_the_clients_that_they_connect_to_and_that_says_why_it_rejects(api, tmp_path):
    """BIRD takes the configuration; both members' sessions come up; a route passes, and a bogon has the cause of its rejection."""
    arouteserver = program("arouteserver")
    headers = {"Authorization": f"Bearer {api.operator[1]}"}
    clients = requests.get(f"{api.url}/api/v1/exports/arouteserver-clients.json", headers=headers, timeout=60)
    assert clients.status_code == 200 and len(clients.json()["clients"]) == 4, clients.text
    (tmp_path / "clients.yml").write_text(clients.text)
    # No database of routes or members is asked: the test has no Internet.
    general = {"cfg": {
        "rs_as": 64999, "router_id": "192.0.2.250", "path_hiding": True,
        "filtering": {"irrdb": {"tag_as_set": False, "enforce_origin_in_as_set": False, "enforce_prefix_in_as_set": False},
                      "rpki_bgp_origin_validation": {"enabled": False}, "max_prefix": {"action": "shutdown", "peering_db": {"enabled": False}},
                      "never_via_route_servers": {"peering_db": False}, "reject_policy": {"policy": "tag"}, "reject_invalid_as_in_as_path": False},
        "communities": {"reject_cause": {"std": "65520:dyn_val"}}}}
    (tmp_path / "general.yml").write_text(json.dumps(general))
    package = next((CLIENTS.parent / "lib").glob("python3*/site-packages/pierky/arouteserver")).absolute()
    (tmp_path / "cache").mkdir()
    settings = {"templates_dir": str(package / "templates"), "cfg_bogons": str(package / "config.d" / "bogons.yml"),
                "cache_dir": str(tmp_path / "cache"), "cfg_dir": str(tmp_path), "logging_config_file": "",
                "check_new_release": False}
    (tmp_path / "arouteserver.yml").write_text(json.dumps(settings))
    output = tmp_path / "bird.conf"
    run(arouteserver, "bird", "--cfg", tmp_path / "arouteserver.yml", "--general", tmp_path / "general.yml", "--clients",
        tmp_path / "clients.yml", "--target-version", "2.0.11", "--output", output)
    assert len(re.findall(r"^protocol bgp \w+", output.read_text(), re.MULTILINE)) == 4
    run("bird", "-p", "-c", output)
    output.write_text(output.read_text().replace("/var/log/bird.log", str(tmp_path / "bird.log")))
    accounts = {one["name"]: id for id, one in api.exchange.objects("ac").items()}
    for user in ("aoba", "baikal"):
        api.exchange.order({"operation": "create_user", "name": user, "account": accounts[user.title()], "roles": ["member_admin"]})
    own = {}
    for client in clients.json()["clients"]:
        own.setdefault(client["asn"], []).extend(client["ip"])
    (aoba, baikal) = ((asn, sorted(ips, key=lambda ip: ":" in ip)) for asn, ips in sorted(own.items()))
    passes, bogon = "5.5.5.0/24", "203.0.113.0/24"
    near = Member(tmp_path / "aoba", *aoba, [passes, bogon])
    far = Member(tmp_path / "baikal", *baikal, [])
    with lan([near, far]), birds(("ar-rs", tmp_path), *((member.namespace, member.folder) for member in (near, far))):
        started = time.monotonic()

        def established():
            lines = birdc("ar-rs", tmp_path, "show", "protocols").splitlines()
            return sum("BGP" in line and "Established" in line for line in lines) == 4
        wait_for(f"the four sessions are established ({tmp_path})", established, 90)
        print(f"four sessions established after {time.monotonic() - started:.1f} s")
        wait_for("the route reaches the other member",
                 lambda: "AS64500i" in birdc(far.namespace, far.folder, "show", "route", "for", passes))
        wait_for("the route server has the bogon with its cause",
                 lambda: f"(65520,{BOGON})" in birdc("ar-rs", tmp_path, "show", "route", "all", "for", bogon))
        assert "AS64500i" not in birdc(far.namespace, far.folder, "show", "route", "for", bogon)
        # The engine reads the same BIRD, and tells each member about its own routes.
        api.control.symlink_to(tmp_path / "ctl")
        near_view, far_view = (RouteServerView(api.url, api.exchange, user, addresses[0])
                               for user, (_, addresses) in (("aoba", aoba), ("baikal", baikal)))
        wait_for("the API has the sessions", lambda: near_view.states() == far_view.states() == ["established"] * 2, 60)
        wait_for("the API has the rejected route", near_view.rejected, 60)
        assert near_view.rejected() == [(bogon, ["route-bogon"])] and far_view.rejected() == []
        assert far_view.status(near_view.end) == 404, "a member sees another one's routes"


STREAM = "/api/v1/events$"
# Requests of these may end the client's own access: each of them has a client with a key of its own, after the others.
DANGEROUS = ["api-keys", "session", "users/{id}$"]
DOCUMENTS = ["/api/v1/openapi.json", "/api/v2/openapi.json"]
METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")


def pattern(part):
    """Returns the regular expression for a part of a path, which may end with `$`."""
    return re.escape(part).replace(r"\$", "$")


def operations(api):
    """Returns the number of operations of both descriptions that get requests, by part."""
    counts = {"harmless": 0, "dangerous": 0}
    for document in DOCUMENTS:
        for path, item in requests.get(api.url + document, timeout=60).json()["paths"].items():
            part = "dangerous" if any(re.search(pattern(part), path) for part in DANGEROUS) else "harmless"
            if not re.search(STREAM, path):
                counts[part] += sum(method in METHODS for method in item)
    return counts


class Fuzz:
    """A client that sends requests made from a description."""

    def __init__(self, api, document, key, each, include=None):
        checks = ("not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
                  "response_schema_conformance")
        # A filter that matches nothing is a warning.
        skipped = "|".join(map(pattern, [*DANGEROUS, STREAM]))
        chosen = ["--include-path-regex", pattern(include)] if include else ["--exclude-path-regex", skipped]
        self.name = f"{document} {include or ''}"
        self.process = subprocess.Popen(
            [program("schemathesis"), "run", f"{api.url}{document}", "--checks", checks, "--seed", "7", *chosen, "--header",
             f"Authorization: Bearer {key[1]}", "--no-color", "--generation-database", "none", "--suppress-health-check", "all",
             "--request-timeout", "60", "--max-examples", str(each), "--phases", "examples,coverage,fuzzing" if LONG else "fuzzing"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=api.exchange.folder)

    def finish(self):
        """Returns the number of cases in the summary."""
        output, _ = self.process.communicate()
        assert self.process.returncode == 0, output[-8000:]
        found = re.search(r"(\d+) generated", output)
        assert found, output[-2000:]
        print(f"{self.name}: {found.group(1)} cases")
        return int(found.group(1))


def test_no_request_made_from_a_description_gets_a_5xx_or_an_undescribed_answer(api):
    """Stands last, because its requests delete objects. Both descriptions at the same time: what takes the time is the client, in
    one thread. Each operation gets the same number of cases, also if `MILLRACE_EXCHANGE_API_PARTS` selects a part only."""
    counts = operations(api)
    count = sum(counts.values())
    # Some operations have fewer different requests than they are asked for.
    each = math.ceil(1.05 * CASES / count) if LONG else 1
    exchange = next(user["account"] for user in api.exchange.objects("us").values() if user["name"] == "ops")
    keys = []
    for number in range(len(DANGEROUS)):
        api.exchange.order({"operation": "create_user", "name": f"ops {number}", "account": exchange, "roles": ["operator_admin"]})
        keys.append(api.key(f"ops {number}"))
    began = time.monotonic()
    cases = 0
    if "harmless" in PARTS:
        clients = [Fuzz(api, document, api.operator, each) for document in DOCUMENTS]
        with concurrent.futures.ThreadPoolExecutor() as waiting:
            cases += sum(waiting.map(Fuzz.finish, clients))
        # The requests were not refused for want of access.
        own = requests.get(f"{api.url}/api/v1/accounts", headers={"Authorization": f"Bearer {api.operator[1]}"}, timeout=60)
        assert own.status_code == 200, own.text
    if "dangerous" in PARTS:
        cases += sum(Fuzz(api, DOCUMENTS[0], key, each, part).finish() for part, key in zip(DANGEROUS, keys))
    chosen = sum(counts[part] for part in PARTS)
    print(f"{cases} cases of {chosen} operations in {time.monotonic() - began:.0f} s")
    assert cases >= (CASES if LONG else 150) * chosen // count
    assert api.exchange.process.poll() is None
