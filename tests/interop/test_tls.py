"""TLS with independent implementations: ovs-ofctl on a listener, and an os-ken controller to which the switch connects."""

import os
import pathlib
import subprocess
import sys

import pytest

from certificates import Authority, tls_table
from switches import Millrace, free_port, wait_for
from test_roles import APP


@pytest.fixture(name="authorities")
def two_authorities(tmp_path):
    return Authority(tmp_path / "pki", "switches"), Authority(tmp_path / "pki", "controllers")


def test_ovs_ofctl_speaks_tls_and_is_refused_without_a_certificate_of_the_authority(tmp_path, authorities):
    switches, controllers = authorities
    port = free_port()
    table = tls_table(*switches.sign("switch"), controllers)
    with Millrace(tmp_path / "millrace", ports=[(1, "link:a"), (2, "link:a")], extra=table, listen=[f"pssl:{port}"]) as switch:
        def ofctl(identity, *command, check=True):
            key, certificate = identity
            done = subprocess.run(
                ["ovs-ofctl", "-O", "OpenFlow13", f"--private-key={key}", f"--certificate={certificate}",
                 f"--ca-cert={switches.certificate}", *command], capture_output=True, text=True, timeout=60)
            assert not check or done.returncode == 0, done.stderr
            return done.stdout + done.stderr

        person, target = controllers.sign("person"), f"ssl:127.0.0.1:{port}"
        assert "dpid:0000000000000001" in ofctl(person, "show", target)
        ofctl(person, "add-flow", target, "priority=5,in_port=1,actions=output:2")
        assert "priority=5,in_port=1" in ofctl(person, "dump-flows", target)

        foreign = Authority(tmp_path / "pki", "others").sign("foreign")
        assert "dpid" not in ofctl(foreign, "show", target, check=False)
        listing = wait_for("the refusal is told", lambda: "not signed by an authority" in switch.cli("show", "controllers")
                           and switch.cli("show", "controllers"))
        assert str(controllers.certificate) in listing


def test_an_os_ken_controller_is_called_over_tls(tmp_path, authorities):
    switches, controllers = authorities
    port = free_port()
    key, certificate = controllers.sign("controller")
    orders, heard = tmp_path / "orders", tmp_path / "heard"
    orders.write_text("")
    heard.write_text("")
    environment = os.environ | {"COMMANDED_ORDERS": str(orders), "COMMANDED_HEARD": str(heard)}
    manager = pathlib.Path(sys.executable).with_name("osken-manager")
    with (tmp_path / "os-ken.log").open("w") as log:
        controller = subprocess.Popen(
            [manager, "--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", str(free_port()),
             "--ofp-ssl-listen-port", str(port), "--ctl-privkey", key, "--ctl-cert", certificate,
             "--ca-certs", switches.certificate, APP], stdout=log, stderr=log, env=environment)
    try:
        table = tls_table(*switches.sign("switch"), controllers)
        with Millrace(tmp_path / "millrace", controllers=[f"ssl:127.0.0.1:{port}"], extra=table) as switch:
            wait_for("the controller hears of the switch", lambda: "connected" in heard.read_text(), 60)
            with orders.open("a") as file:
                file.write("flow 10\n")
            wait_for("the barrier", lambda: "barrier" in heard.read_text())
            assert "priority=10" in switch.ofctl("dump-flows")
    finally:
        controller.kill()
        controller.wait(timeout=60)
