#!/usr/bin/env python3
"""Writes the dashboards from the list of metrics in the source of the REST API: one dashboard for each part of the switch, one panel for
each metric. `generate.py` writes the files; `generate.py --print NAME` prints one."""

import json
import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
SOURCE = FOLDER.parents[1] / "crates" / "config" / "api" / "src" / "server" / "routes"
# A dashboard: its title, and the beginnings of the names of its metrics, after `millrace_`. The last takes the rest.
DASHBOARDS = {
    "ports": ("Ports, queues, LAGs and offload", ("port", "queue", "policer", "lag", "offload")),
    "forwarding": ("Forwarding: workers, tables, drops", ("worker", "table", "drop", "dropped", "mac", "flow", "group", "meter", "cache", "bridge")),
    "routing": ("Routing", ("router", "vrf", "interface", "netlink", "fpm", "route", "neighbour")),
    "functions": ("Chains, paths and samples", ("chain", "nf", "wan", "mirror", "sflow", "ipfix", "function", "hop")),
    "switch": ("Configuration, controllers and process", ("",)),
}
# Units of Grafana by the end of a name: of a gauge, and of the rate of a counter.
UNITS = [("bytes", "bytes", "Bps"), ("packets", "short", "pps"), ("seconds", "s", "percentunit"), ("bps", "bps", "bps"), ("", "short", "cps")]
WIDTH, HEIGHT, COLUMNS = 12, 8, 24


def metrics():
    """Returns the names of all metrics, sorted."""
    files = sorted(SOURCE.glob("*metrics.rs"))
    return sorted({name for file in files for name in re.findall(r'"(millrace_[a-z0-9_]+)"', file.read_text())})


def dashboard_of(metric):
    """Returns the name of the dashboard of a metric."""
    rest = metric.removeprefix("millrace_")
    return next(name for name, (_, beginnings) in DASHBOARDS.items()
                if any(rest.startswith(beginning) for beginning in beginnings))


def panel(number, metric):
    """Returns the panel of a metric: the rate of a counter, the value of anything else."""
    is_counter = metric.endswith("_total")
    stem = metric.removesuffix("_total")
    unit = next((rate if is_counter else gauge) for end, gauge, rate in UNITS if stem.endswith(end))
    selected = f'{metric}{{instance=~"$instance"}}'
    title = stem.removeprefix("millrace_").replace("_", " ")
    column, row = number % (COLUMNS // WIDTH), number // (COLUMNS // WIDTH)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title[0].upper() + title[1:] + (", each second" if is_counter else ""),
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}, "tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": [{"refId": "A", "datasource": {"type": "prometheus", "uid": "${datasource}"},
                     "expr": f"rate({selected}[$__rate_interval])" if is_counter else selected}],
    }


def dashboard(name):
    """Returns a dashboard in Grafana's JSON model."""
    own = [metric for metric in metrics() if dashboard_of(metric) == name]
    return {
        "uid": f"millrace-{name}",
        "title": f"Millrace: {DASHBOARDS[name][0]}",
        "tags": ["millrace"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [{"type": "dashboards", "title": "Millrace", "tags": ["millrace"], "icon": "external link", "tooltip": "Other dashboards of Millrace",
                   "asDropdown": True, "includeVars": True, "keepTime": True, "targetBlank": False}],
        "templating": {"list": [
            {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
            {"name": "instance", "type": "query", "label": "Switch", "multi": True, "includeAll": True, "allValue": ".*", "refresh": 2,
             "datasource": {"type": "prometheus", "uid": "${datasource}"},
             "query": {"refId": "instance", "query": "label_values(millrace_ready, instance)"}},
        ]},
        "panels": [panel(number, metric) for number, metric in enumerate(own)],
    }


def text(name):
    """Returns the file of a dashboard."""
    return json.dumps(dashboard(name), indent=1) + "\n"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--print"]:
        print(text(sys.argv[2]), end="")
    else:
        for each in DASHBOARDS:
            (FOLDER / f"{each}.json").write_text(text(each))
