"""Python clients that a public generator makes of our OpenAPI documents have every operation, and work.

The documents are those that running daemons serve. A generated client in TypeScript is tested in `portal/tests/unit`.
"""

import importlib
import json
import os
import re
import subprocess
import sys

import httpx
import pytest
import requests

from exchange import Exchange
from switches import Millrace, free_port

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the daemons need root")
GENERATOR = os.path.join(os.path.dirname(sys.executable), "openapi-python-client")


def client(folder, document, monkeypatch):
    """Generates a client of a document, and returns the name of its package."""
    source, package, settings = folder / "openapi.json", "generated_client", folder / "generator.json"
    source.write_text(json.dumps(document))
    # Without hooks, which would format the code.
    settings.write_text(json.dumps({"package_name_override": package, "post_hooks": [],
                                    "content_type_overrides": {"application/x-pcapng": "application/octet-stream"}}))
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
        document = switch.rest.get(f"{switch.url.removesuffix('/api/v1')}/openapi.json", timeout=10).json()
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
            package = client(folder, requests.get(url + path, timeout=10).json(), monkeypatch)
        get_accounts = importlib.import_module(f"{package}.api.accounts.get_accounts")
        with importlib.import_module(package).AuthenticatedClient(url, token=secret) as session:
            accounts = get_accounts.sync(client=session)
        assert [account.name for account in accounts.items] == ["Test IX"]
