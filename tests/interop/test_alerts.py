"""The alerting rules of contrib/prometheus: checked by promtool, and provoked on a switch that a real Prometheus scrapes."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest
import requests

import namespaces
from switches import Millrace, end, free_port, run, wait_for

FOLDER = pathlib.Path(__file__).parents[2] / "contrib" / "prometheus"
RULES = FOLDER / "millrace.rules.yml"
CABLE = ("mr-a1a", "mr-a1b")
pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="apt-get install prometheus")


def names():
    return re.findall(r"alert: (\w+)", RULES.read_text())


def test_promtool_accepts_the_rules_and_each_fires_when_it_should():
    for name in ("millrace", "fleet"):
        run("promtool", "check", "rules", FOLDER / f"{name}.rules.yml")
        run("promtool", "test", "rules", FOLDER / f"{name}.test.yml")
    tested = (FOLDER / "millrace.test.yml").read_text()
    page = (FOLDER.parents[1] / "docs" / "monitoring.md").read_text()
    for name in names():
        assert len(re.findall(rf"alertname: {name}\b", tested)) >= 2, f"{name} has no test of both outcomes"
        assert f"`{name}`" in page, f"{name} is not in docs/monitoring.md"


class Prometheus:
    """A Prometheus that scrapes a switch each other second, with the rules, whose waits are cut to a second."""

    def __init__(self, folder, target, token):
        self.port = free_port()
        rules = re.sub(r"for: \w+", "for: 1s", RULES.read_text())
        (folder / "rules.yml").write_text(rules)
        (folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 2s, evaluation_interval: 1s, scrape_timeout: 2s}\n"
            "rule_files: [rules.yml]\n"
            "scrape_configs:\n"
            f"  - {{job_name: millrace, authorization: {{credentials: '{token}'}}, static_configs: [{{targets: ['{target}']}}]}}\n"
        )
        self.log = (folder / "prometheus.log").open("w")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}",
             f"--web.listen-address=127.0.0.1:{self.port}"], stdout=self.log, stderr=self.log)

    def firing(self):
        """Returns the labels of the alerts that fire, by name."""
        try:
            answer = requests.get(f"http://127.0.0.1:{self.port}/api/v1/alerts", timeout=60).json()
        except requests.RequestException:
            return {}
        return {alert["labels"]["alertname"]: alert["labels"] for alert in answer["data"]["alerts"]
                if alert["state"] == "firing"}

    def series(self, query):
        """Returns the number of series that a query returns."""
        params = {"query": query}
        try:
            answer = requests.get(f"http://127.0.0.1:{self.port}/api/v1/query", params=params, timeout=60).json()
        except requests.RequestException:
            return 0
        return len(answer["data"]["result"])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end(self.process)
        self.log.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="interfaces need root")
def test_the_faults_of_a_running_switch_fire_their_alerts_which_end_with_them(tmp_path):
    target = f"127.0.0.1:{free_port()}"
    with namespaces.cables(CABLE), \
            Millrace(tmp_path, ports=[(1, f"kernel:{CABLE[0]}"), (2, "memory")], api=f'listen = "{target}"') as switch:
        token = (switch.folder / "state" / "api-token").read_text().strip()
        with Prometheus(tmp_path, target, token) as prometheus:
            wait_for("a scrape", lambda: prometheus.series("millrace_ready == 1"))
            # Every metric that a rule uses exists, but for those of parts that this switch does not have.
            optional = {"millrace_config_confirm_deadline_seconds", "millrace_port_live", "millrace_controller_connected",
                        "millrace_queue_dropped_packets_total"}
            used = set(re.findall(r"\bmillrace_\w+", RULES.read_text()))
            parts = ("millrace_interface_", "millrace_lag_", "millrace_route", "millrace_vrf_", "millrace_neighbour", "millrace_offload_")
            missing = {metric for metric in used - optional if not metric.startswith(parts)}

            def are_there():
                """Each metric was there once. A scrape that a busy machine makes late ends all series until the next one."""
                missing.difference_update([metric for metric in missing if prometheus.series(metric)])
                return not missing
            try:
                wait_for("the metrics", are_there)
            except AssertionError:
                raise AssertionError(f"no series of {missing}") from None
            reasons = {drop["reason"] for drop in switch.rest.get(f"{switch.url}/drops", timeout=60).json()}
            for listed in re.findall(r'reason!~"([^"]+)"', RULES.read_text()):
                assert set(listed.split("|")) <= reasons, set(listed.split("|")) - reasons
            wait_for("nothing fires", lambda: prometheus.firing() == {})

            run("ip", "link", "set", CABLE[1], "down")
            wait_for("MillraceLinkDown", lambda: prometheus.firing().get("MillraceLinkDown", {}).get("port") == "p1")
            switch.change(lambda config: config["bridge"][0]["port"][0].update(down=True))
            wait_for("a disabled port is no fault", lambda: "MillraceLinkDown" not in prometheus.firing())
            switch.change(lambda config: config["bridge"][0]["port"][0].update(down=False))
            run("ip", "link", "set", CABLE[1], "up")

            switch.change(lambda config: config["bridge"][0].update(
                controllers=[{"target": f"tcp:127.0.0.1:{free_port()}"}]))
            switch.change(lambda config: config["bridge"][0]["port"].append(
                {"name": "p9", "number": 9, "device": "kernel:mr-nothing"}))
            wait_for("both", lambda: {"MillraceControllerLost", "MillraceShortfall"} <= prometheus.firing().keys())

            switch.change(lambda config: config["bridge"][0].update(controllers=[]))
            switch.change(lambda config: config["bridge"][0]["port"].pop())
            wait_for("none fires", lambda: prometheus.firing() == {})

            answer = switch.rest.patch(f"{switch.url}/config?confirm_within=50", json={"system": {"idle": "busy"}},
                                       headers={"content-type": "application/merge-patch+json"}, timeout=60)
            assert answer.ok, answer.text
            wait_for("the confirmation", lambda: "MillraceConfirmationPending" in prometheus.firing())
            assert switch.rest.delete(f"{switch.url}/config/confirm", timeout=60).ok
            assert switch.rest.post(f"{switch.url}/lock?lease=600", timeout=60).ok
            wait_for("the lock", lambda: prometheus.firing().keys() == {"MillraceConfigurationLocked"})
            switch.stop()
            wait_for("the end", lambda: "MillraceDown" in prometheus.firing())
