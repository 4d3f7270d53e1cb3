"""The dashboards of contrib/grafana: generated from the list of metrics, with queries that a real Prometheus answers."""

import copy
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import yaml

from switches import ROOT, Millrace, free_port, run, wait_for
from test_alerts import Prometheus

FOLDER = pathlib.Path(__file__).parents[2] / "contrib" / "grafana"
sys.path.insert(0, str(FOLDER))
import generate  # noqa: E402

# The columns of a dashboard.
COLUMNS = 24


def queries():
    """Yields the metric and the query of each panel, with the variables that Grafana fills."""
    for name in generate.DASHBOARDS:
        for panel in json.loads((FOLDER / f"{name}.json").read_text())["panels"]:
            for target in panel["targets"]:
                yield target["expr"].replace("$__rate_interval", "10s").replace("$instance", ".*")


def test_the_files_are_those_of_the_generator_and_each_metric_has_one_panel():
    for name in generate.DASHBOARDS:
        assert (FOLDER / f"{name}.json").read_text() == generate.text(name), f"to write it again: {FOLDER / 'generate.py'}"
    shown = [metric for metric in generate.metrics() if sum(f"{metric}{{" in query for query in queries()) == 1]
    assert shown == generate.metrics()
    assert sorted(path.stem for path in FOLDER.glob("*.json")) == sorted(generate.DASHBOARDS)


def test_panels_have_numbers_of_their_own_and_do_not_overlap():
    for name in generate.DASHBOARDS:
        panels = json.loads((FOLDER / f"{name}.json").read_text())["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        cells = [(x, y) for panel in panels for place in [panel["gridPos"]]
                 for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])]
        assert len(set(cells)) == len(cells) and all(x < COLUMNS for x, _ in cells)


# The types of Grafana, and the compiler (`scripts/setup.sh management`).
TYPES = ROOT / "target" / "grafana-schema"
PATH = os.pathsep.join([str(ROOT / "target" / "node" / "bin"), os.environ["PATH"]])


def complaints(folder, dashboards):
    """Returns the errors of the compiler for dashboards by their names, each a constant of the type of a dashboard."""
    folder.mkdir()
    (folder / "node_modules").symlink_to(TYPES / "node_modules")
    shutil.copy(pathlib.Path(__file__).parent / "grafana_schema" / "dashboard.ts", folder)
    for name, dashboard in dashboards.items():
        text = json.dumps(dashboard, indent=1)
        (folder / f"{name}.ts").write_text(f"import type {{ DashboardJson }} from './dashboard';\nexport const it: DashboardJson = {text};\n")
    done = subprocess.run(["node", TYPES / "node_modules" / "typescript" / "bin" / "tsc", "--noEmit", "--strict", "--skipLibCheck", "--module", "esnext",
                           "--moduleResolution", "bundler", "--target", "es2022", *(folder / f"{name}.ts" for name in dashboards)],
                          capture_output=True, text=True, timeout=300, env=os.environ | {"PATH": PATH})
    assert (done.returncode == 0) == (not done.stdout), done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if "error TS" in line]


@pytest.mark.skipif(shutil.which("node", path=PATH) is None or not (TYPES / "node_modules" / "@grafana" / "schema").exists(),
                    reason="@grafana/schema: scripts/setup.sh management installs it")
def test_the_dashboards_have_grafanas_types(tmp_path):
    dashboards = {name: json.loads((FOLDER / f"{name}.json").read_text()) for name in generate.DASHBOARDS}
    assert complaints(tmp_path / "own", dashboards) == []
    # The check can fail: a member that is missing, one that is unknown, values of an enumeration and of another type.
    wrong = {f"wrong{number}": copy.deepcopy(dashboards["switch"]) for number in range(6)}
    del wrong["wrong0"]["panels"][0]["options"]["legend"]["calcs"]
    wrong["wrong1"]["panels"][0]["fieldConfig"]["defaults"]["units"] = "s"
    wrong["wrong2"]["panels"][0]["options"]["tooltip"]["mode"] = "all"
    wrong["wrong3"]["templating"]["list"][1]["refresh"] = 7
    wrong["wrong4"]["links"][0]["tags"] = "millrace"
    wrong["wrong5"]["panels"][0]["targets"][0]["datasource"] = "prometheus"
    found = complaints(tmp_path / "wrong", wrong)
    assert sorted({pathlib.Path(line.split("(")[0]).stem for line in found}) == sorted(wrong), found


@pytest.mark.skipif(shutil.which("promtool") is None, reason="apt-get install prometheus")
def test_promtool_accepts_every_query(tmp_path):
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries())]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": rules}]}))
    run("promtool", "check", "rules", tmp_path / "rules.yml")


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="apt-get install prometheus")
def test_every_query_of_a_metric_that_the_switch_has_returns_a_series(tmp_path):
    target = f"127.0.0.1:{free_port()}"
    with Millrace(tmp_path, ports=[(1, "memory"), (2, "memory")], api=f'listen = "{target}"') as switch:
        token = (switch.folder / "state" / "api-token").read_text().strip()
        exposed = switch.rest.get(f"{switch.url.removesuffix('/api/v1')}/metrics", timeout=60).text
        samples = {line.split("{")[0].split(" ")[0] for line in exposed.splitlines() if line and not line.startswith("#")}
        described = {line.split(" ")[2] for line in exposed.splitlines() if line.startswith("# TYPE millrace_")}
        assert described <= set(generate.metrics()), "the generator reads all metrics"
        with Prometheus(tmp_path, target, token) as prometheus:
            present = [query for query in queries() if any(f"{metric}{{" in query for metric in samples)]
            assert len(present) > 20
            for query in present:
                wait_for(query, lambda query=query: prometheus.series(query))
