"""TLS to the database server, and to controllers with the keys that the database names."""

import os
import shutil
import subprocess

import pytest

from certificates import Authority
from ovsdb import Following
from switches import end, free_port, wait_for
from test_ovsdb import wired

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root"),
    pytest.mark.skipif(shutil.which("ovs-vsctl") is None, reason="Open vSwitch is missing: scripts/setup.sh installs it"),
]


class OverTls(Following):
    """A database server with TLS, which Millrace follows over TCP; `authority` signs for the switch."""

    def __init__(self, folder, of_server, of_switch, name="ovsdb", check_names=True):
        super().__init__(folder)
        self.port, self.of_server = free_port(), of_server
        self.keys = [of_server.sign(name), of_switch.sign("switch")]
        text = self.config.read_text().replace(f"unix:{self.socket}", f"ssl:127.0.0.1:{self.port}")
        (key, certificate) = self.keys[1]
        self.config.write_text(text + "\n".join([
            "[ovsdb.tls]", f'private_key = "{key}"', f'certificate = "{certificate}"',
            f'ca_certificate = "{of_server.certificate}"', f"check_names = {str(check_names).lower()}"]) + "\n")

    def start_database(self):
        super().start_database()
        key, certificate = self.keys[0]
        self.kill_database()
        with (self.folder / "ovsdb.log").open("a") as log:
            self.server = subprocess.Popen(
                ["ovsdb-server", self.file, f"--remote=punix:{self.socket}", f"--remote=pssl:{self.port}:127.0.0.1",
                 f"--unixctl={self.run_dir}/db.ctl", f"--private-key={key}", f"--certificate={certificate}",
                 f"--ca-cert={self.of_server.certificate}"], stdout=log, stderr=log, env=self.environment)
        wait_for("ovsdb-server", lambda: subprocess.run(
            ["ovs-vsctl", f"--db=unix:{self.socket}", "--timeout=5", "--no-wait", "init"], capture_output=True, env=self.environment,
            check=False).returncode == 0)


def test_the_switch_follows_a_server_over_tls_and_its_bridge_a_controller_with_the_keys_of_the_database(tmp_path):
    authority = Authority(tmp_path, "one")
    with wired("mr-ovstls", []), OverTls(tmp_path / "db", authority, authority) as switch:
        switch.vsctl("add-br", "br0")
        assert switch.shown()["server"].startswith("ssl:127.0.0.1:")
        key, certificate = switch.keys[1]
        switch.vsctl("set-ssl", key, certificate, authority.certificate)
        port = free_port()
        server_key, server_certificate = switch.keys[0]
        controller = subprocess.Popen(
            ["ovs-testcontroller", f"pssl:{port}:127.0.0.1", f"--private-key={server_key}", f"--certificate={server_certificate}",
             f"--ca-cert={authority.certificate}", f"--unixctl={tmp_path}/controller.ctl"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=switch.environment)
        try:
            switch.vsctl("set-controller", "br0", f"ssl:127.0.0.1:{port}")
            wait_for("the controller is connected", lambda: switch.get("Controller", "br0", "is_connected") == "true")
        finally:
            end(controller)
        switch.vsctl("del-ssl")
        wait_for("no keys", lambda: "ssl: without keys" in switch.get("Controller", "br0", "status"))


def test_a_certificate_of_another_name_is_refused_unless_names_do_not_count(tmp_path):
    authority = Authority(tmp_path, "one")
    authority_sign = authority.sign
    authority.sign = lambda name: authority_sign(name, "DNS:elsewhere.example")
    with OverTls(tmp_path / "db", authority, authority, check_names=False) as switch:
        assert switch.shown()["state"] == "following"
        switch.config.write_text(switch.config.read_text().replace("check_names = false", "check_names = true"))
        # It is applied, and the switch reports the problem.
        switch.cli("apply", switch.config, check=False)
        wait_for("the refusal", lambda: "certificate" in (switch.shown()["last_error"] or ""))


def test_a_server_whose_authority_is_another_one_is_refused_with_the_reason(tmp_path):
    ours, theirs = Authority(tmp_path / "ours", "ours"), Authority(tmp_path / "theirs", "theirs")
    switch = OverTls(tmp_path / "db", theirs, theirs)
    switch.config.write_text(switch.config.read_text().replace(str(theirs.certificate), str(ours.certificate)))
    try:
        switch.start_database()
        switch.start_switch()
        wait_for("the refusal", lambda: "UnknownIssuer" in (switch.shown()["last_error"] or ""))
        assert switch.shown()["state"] == "connecting"
    finally:
        switch.stop()
