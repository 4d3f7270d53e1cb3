"""The OpenAPI documents are right: clients in Python that a public generator makes of them work, the answers of a switch have
the form that its document tells, and requests that schemathesis makes of it get no answer that it does not tell.

The documents are those that running daemons serve. A generated client in TypeScript is tested in `portal/tests/unit`, and the
requests to the exchange in `test_exchange_api.py`; `scripts/setup.sh api-clients` installs schemathesis.
"""

import importlib
import json
import os
import pathlib
import re
import subprocess
import sys

import httpx
import jsonschema
import pytest
import requests

from exchange import Exchange
from switches import Millrace, free_port

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the daemons need root")
SCHEMATHESIS = pathlib.Path("target/api-clients/bin/schemathesis").resolve()
GENERATOR = os.path.join(os.path.dirname(sys.executable), "openapi-python-client")


def client(folder, document, monkeypatch):
    """Generates a client of a document, and returns the name of its package."""
    source, package, settings = folder / "openapi.json", "generated_client", folder / "generator.json"
    source.write_text(json.dumps(document))
    # Without hooks, which would format the code.
    settings.write_text(json.dumps({"package_name_override": package, "post_hooks": [],
                                    "content_type_overrides": {"application/x-pcapng": "application/octet-stream",
                                                               "application/atom+xml": "text/plain"}}))
    made = subprocess.run(
        [GENERATOR, "generate", "--path", source, "--output-path", folder / "client", "--config", settings, "--fail-on-warning"],
        capture_output=True, text=True, check=False, timeout=120,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    monkeypatch.syspath_prepend(folder / "client")
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        del sys.modules[name]
    operations = {
        re.sub(r"\W+", "_", operation["operationId"]).lower()
        for item in document["paths"].values()
        for method, operation in item.items() if method in ("get", "put", "post", "patch", "delete")
    }
    modules = {path.stem: path for path in (folder / "client" / package / "api").glob("*/*.py") if path.stem != "__init__"}
    missing = {one.replace("_", "") for one in operations} - {name.replace("_", "") for name in modules}
    assert operations and not missing
    for path in modules.values():
        importlib.import_module(f"{package}.api.{path.parent.name}.{path.stem}")
    return package


def test_of_the_switch(tmp_path, monkeypatch):
    with Millrace(tmp_path / "switch", ports=[(1, "link:a"), (2, "link:a")]) as switch:
        document = switch.rest.get(f"{switch.url.removesuffix('/api/v1')}/openapi.json", timeout=60).json()
        package = client(tmp_path, document, monkeypatch)
        get_bridges = importlib.import_module(f"{package}.api.bridges.get_bridges")
        get_ports = importlib.import_module(f"{package}.api.bridges.get_bridges_bridge_ports")
        transport = httpx.HTTPTransport(uds=str(switch.api_socket))
        with importlib.import_module(package).Client("http://switch", httpx_args={"transport": transport}) as session:
            bridges = get_bridges.sync(client=session)
            assert [(bridge.name, bridge.ports) for bridge in bridges] == [("br0", 2)]
            problem = get_ports.sync(client=session, bridge="br9")
            assert "br9" in problem.detail


def test_of_the_exchange(tmp_path, monkeypatch):
    port = free_port()
    with Exchange(tmp_path / "ix", engine=f'[api]\nlisten = "127.0.0.1:{port}"\nname = "Test IX"\n') as exchange:
        url = f"http://127.0.0.1:{port}"
        exchange.order({"operation": "create_account", "name": "Test IX", "kind": "exchange"},
                       {"operation": "create_user", "name": "ops", "account": "ac-0", "roles": ["operator_admin"]})
        _, secret = exchange.api_key(url, "ops")
        for number, path in enumerate(("/api/v2/openapi.json", "/api/v1/openapi.json")):
            folder = tmp_path / str(number)
            folder.mkdir()
            package = client(folder, requests.get(url + path, timeout=60).json(), monkeypatch)
        get_accounts = importlib.import_module(f"{package}.api.accounts.get_accounts")
        with importlib.import_module(package).AuthenticatedClient(url, token=secret) as session:
            accounts = get_accounts.sync(client=session)
        assert [account.name for account in accounts.items] == ["Test IX"]


def test_the_answers_of_a_switch_have_the_form_that_the_document_tells(tmp_path):
    extra = '''
lldp = {}
rstp = {}
[[bridge.chain]]
name = "chain"
[[bridge.chain.hop]]
name = "hop"
function = "forward"
[[vrf]]
name = "blue"
netns = "own"
'''
    with Millrace(tmp_path, ports=[(1, "link:a"), (2, "link:a")]) as switch:
        root = switch.url.removesuffix("/api/v1")
        document = switch.rest.get(f"{root}/openapi.json", timeout=60).json()
        flows = {"command": "add", "flows": ["priority=5,tcp,tp_dst=80,actions=output:2", "priority=1,actions=normal"]}
        assert switch.rest.post(f"{switch.url}/bridges/br0/flow-mods", json=flows, timeout=60).status_code == 200
        checked = 0
        for path, item in document["paths"].items():
            if "get" not in item or path.endswith(("/events", "/capture")):
                continue
            url = path
            for name, value in {"bridge": "br0", "port": "p1", "number": "1", "name": "stale"}.items():
                url = url.replace("{%s}" % name, value)
            answer = switch.rest.get(root + url, timeout=60)
            told = item["get"]["responses"].get(str(answer.status_code), item["get"]["responses"].get("default"))
            content = told["content"][answer.headers["content-type"].split(";")[0]]["schema"]
            if "json" in answer.headers["content-type"]:
                schema = content | {"components": document["components"]}
                jsonschema.Draft202012Validator(schema).validate(answer.json())
                checked += answer.status_code == 200
        assert checked > 30


@pytest.mark.skipif(not SCHEMATHESIS.exists(), reason="schemathesis is not installed: `scripts/setup.sh api-clients` does it")
def test_no_request_made_from_the_document_of_a_switch_gets_a_5xx_or_an_answer_that_it_does_not_tell(tmp_path):
    port = free_port()
    with Millrace(tmp_path / "switch", ports=[(1, "link:a"), (2, "link:a")], api=f'listen = "127.0.0.1:{port}"') as switch:
        token = (tmp_path / "switch/state/api-token").read_text().strip()
        done = subprocess.run(
            [SCHEMATHESIS, "run", f"http://127.0.0.1:{port}/openapi.json", "--header", f"Authorization: Bearer {token}", "--checks",
             "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,unsupported_method",
             # These wait for packets and events.
             "--exclude-path-regex", "capture|events|session|trace-live", "--seed", "7", "--max-examples", "10",
             "--phases", "examples,coverage,fuzzing", "--no-color", "--generation-database", "none",
             "--suppress-health-check", "all"],
            capture_output=True, text=True, check=False, cwd=tmp_path, timeout=3600)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        assert switch.process.poll() is None
