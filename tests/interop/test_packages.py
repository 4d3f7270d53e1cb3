"""Debian packages in a clean Debian 12 whose first process is systemd: installation, services, upgrade, removal, purge."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

import debian_root
from namespaces import cables, made
from streams import Receiver, Sender
from switches import TARGET, run, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
REASON = debian_root.why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
long = pytest.mark.skipif("MILLRACE_PACKAGES_LONG" not in os.environ, reason="minutes: make packages-check")
# The packages with a service, and those that bring a program only.
SERVICES = ["millraced", "millrace-mgmt", "millrace-ix", "millrace-courier"]
PROGRAMS = {"millrace": "/usr/bin/millrace", "millrace-nf": "/usr/sbin/millrace-nf", "millrace-nic": "/usr/sbin/millrace-nic", "millrace-wan": "/usr/sbin/millrace-wan",
            "millrace-courier-dpdk": "/usr/bin/millrace-courier", "millrace-bench": "/usr/bin/millrace-bench"}
# Tags of lintian that are not findings here: the names of people are not in this repository, and nothing is in Debian's archive.
LINTIAN_EXCEPT = "initial-upload-closes-no-bugs,unstripped-binary-or-object"
BRIDGE = """
[system]
keep_flows = true
[[bridge]]
name = "br0"
{ports}
"""
VRF = """
[[vrf]]
name = "blue"
netns = "blue"
[[interface]]
name = "v9"
vrf = "blue"
bridge = "br0"
address = ["10.9.0.1/24"]
"""
PORT = """
[[bridge.port]]
name = "{name}"
number = {number}
device = "kernel:{name}"
"""


def built(folder, **environment):
    """Builds the packages of the programs under test, with little compression, into a folder."""
    run(ROOT / "scripts" / "packages.sh", TARGET, timeout=600,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PACKAGES": str(folder), "COMPRESSION": "-Zgzip -z1",
             "DEB_BUILD_OPTIONS": "parallel=2", **environment})


def next_version(package, folder):
    """Writes the next version of a package, whose configurations and first configuration differ."""
    with_name = folder / "unpacked" / package.name
    with_name.parent.mkdir(exist_ok=True)
    run("dpkg-deb", "--raw-extract", package, with_name)
    control = with_name / "DEBIAN" / "control"
    control.write_text(re.sub(r"^Version: (.*)$", r"Version: \1+next", control.read_text(), flags=re.M))
    for path in [*with_name.glob("etc/millrace/*"), *with_name.glob("usr/share/millraced/*")]:
        path.write_text("# A comment of the next version.\n" + path.read_text().replace("keep_flows = true", "keep_flows = false"))
    run("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", with_name, folder)
    shutil.rmtree(with_name)


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A folder with all packages, and a folder `next` in it with the next version of those with state. MILLRACE_PACKAGES names a
    folder of packages that are tested instead of those of the build, as in `MILLRACE_PACKAGES=target/packages`."""
    folder = tmp_path_factory.mktemp("packages")
    if given := os.environ.get("MILLRACE_PACKAGES"):
        for package in pathlib.Path(given).glob("millrace*.deb"):
            shutil.copy(package, folder)
    else:
        built(folder)
    (folder / "next").mkdir()
    for name in ["millrace", *SERVICES]:
        next_version(next(folder.glob(f"{name}_*.deb")), folder / "next")
    return folder


def debs(*names, folder="/packages"):
    """Returns shell patterns for packages in the machine."""
    return [f"{folder}/{name}_*.deb" for name in names]


def install(machine, *names, folder="/packages"):
    """Installs packages with what they need, as an operator does: `apt install ./NAME_*.deb`."""
    paths = [machine.run("sh", "-c", f"ls {pattern}").strip() for pattern in debs(*names, folder=folder)]
    return machine.apt("install", *paths)


def status(machine, unit):
    """Returns the state of a unit."""
    return machine.call("systemctl", "is-active", unit).stdout.strip()


def test_every_package_is_installed_its_services_run_and_a_purge_leaves_nothing(packages, tmp_path):
    with debian_root.Machine(tmp_path / "machine", packages) as machine:
        install(machine, *SERVICES, *PROGRAMS)
        for name in SERVICES:
            assert status(machine, name) == "active", machine.call("journalctl", "-u", name, "--no-pager").stdout
            assert machine.run("systemctl", "is-enabled", name).strip() == "enabled"
            verified = machine.call("systemd-analyze", "verify", f"/lib/systemd/system/{name}.service")
            assert verified.returncode == 0 and not verified.stderr, verified.stderr
        assert "br0" not in machine.run("millrace", "show", "status")
        machine.run("millrace-ix", "status")
        machine.run("runuser", "-u", "millrace-courier", "--", "millrace", "courier", "status")
        for name, program in PROGRAMS.items():
            assert machine.run(program, "--version"), name
        for path in ["man/man1/millrace.1.gz", "man/man1/millrace-show-status.1.gz", "man/man1/millrace-bench.1.gz", "man/man5/millraced.toml.5.gz",
                     "man/man8/millraced.8.gz", "man/man8/millrace-nf.8.gz", "bash-completion/completions/millrace",
                     "zsh/vendor-completions/_millrace", "fish/vendor_completions.d/millrace.fish"]:
            assert (machine.root / "usr/share" / path).exists(), path
        for path in sorted((machine.root / "etc/logrotate.d").glob("millrace*")):
            machine.run("logrotate", "--debug", f"/etc/logrotate.d/{path.name}")
        # The confined service reaches the namespaces of VRFs and makes interfaces there.
        machine.run("ip", "netns", "add", "blue")
        file = machine.root / "etc/millrace/millraced.toml"
        file.write_text(BRIDGE.format(ports="") + VRF)
        machine.run("systemctl", "restart", "millraced")
        wait_for("the interface", lambda: "10.9.0.1/24" in machine.call("ip", "-n", "blue", "address", "show", "dev", "v9").stdout)
        assert "setns" not in machine.run("millrace", "show", "status")
        machine.run("systemctl", "stop", "millraced")
        machine.run("ip", "netns", "del", "blue")
        machine.apt("remove", "millrace*")
        for name in SERVICES:
            assert status(machine, name) == "inactive"
        kept = machine.files() - machine.before
        assert {"etc/millrace/millraced.toml", "etc/millrace/millrace-ix.toml", "etc/millrace/courier.toml", "etc/default/millraced",
                "var/lib/millrace", "var/lib/millrace-courier"} <= kept
        assert not [path for path in kept if path.startswith(("usr/", "lib/")) and "millrace" in path]
        machine.apt("purge", "millrace*")
        machine.apt("autoremove", "--purge")
        assert sorted(machine.files() - machine.before) == []
        assert sorted(machine.before - machine.files()) == []
        assert "millrace" not in (machine.root / "etc/passwd").read_text() + (machine.root / "etc/group").read_text()
        assert machine.call("sh", "-c", "ls -d /run/millrace* /var/log/millrace*").stdout == ""
        assert "millrace" not in machine.run("dpkg-query", "--show")


def configuration(machine):
    """Returns the configuration that runs."""
    return machine.run("millrace", "show", "config")


def test_an_upgrade_keeps_configurations_that_were_changed_by_hand_or_by_commands(packages, tmp_path):
    with debian_root.Machine(tmp_path / "machine", packages) as machine:
        install(machine, "millrace", *SERVICES)
        # The operator of this switch leaves the file alone and uses commands.
        machine.run("millrace", "bridge", "add", "br7")
        machine.run("millrace", "port", "add", "br7", "m1", "--device", "memory")
        courier = machine.root / "etc/millrace/courier.toml"
        courier.write_text(courier.read_text().replace('drain = "2m"', 'drain = "7s"'))
        options = machine.root / "etc/default/millraced"
        options.write_text('MILLRACED_OPTIONS="--log info,millraced=debug"\n')
        before, key = configuration(machine), (machine.root / "var/lib/millrace-courier")
        identity = {path.name: path.read_bytes() for path in key.iterdir() if path.is_file() and path.name != "audit.jsonl"}
        assert 'name = "br7"' in before and 'name = "m1"' in before
        pid = machine.run("systemctl", "show", "-P", "MainPID", "millraced")
        install(machine, "millrace", *SERVICES, folder="/packages/next")
        assert "+next" in machine.run("dpkg-query", "--show", "millraced")
        assert machine.run("systemctl", "show", "-P", "MainPID", "millraced") != pid
        for name in SERVICES:
            assert status(machine, name) == "active", machine.call("journalctl", "-u", name, "--no-pager").stdout
        assert configuration(machine) == before
        assert 'drain = "7s"' in courier.read_text() and "--log info" in options.read_text()
        assert "next version" not in (machine.root / "etc/millrace/millraced.toml").read_text()
        # A configuration that nobody changed is that of the new version.
        assert "next version" in (machine.root / "etc/millrace/millrace-ix.toml").read_text()
        assert {path.name: path.read_bytes() for path in key.iterdir() if path.name in identity} == identity
        # A removed package that is installed again finds its state, and so does one whose file the operator removed.
        machine.apt("remove", "millraced")
        install(machine, "millraced")
        assert configuration(machine) == before


@long
def test_an_upgrade_loses_packets_for_the_time_of_a_restart_only_and_keeps_flow_entries(packages, tmp_path, record_property):
    with made("h1", "h2"), cables(("p1", "e1"), ("p2", "e2")), debian_root.Machine(tmp_path / "machine", packages) as machine:
        for host, end in (("h1", "e1"), ("h2", "e2")):
            run("ip", "link", "set", end, "netns", host)
            run("ip", "-n", host, "link", "set", end, "up")
        install(machine, "millraced", "millrace")
        file = machine.root / "etc/millrace/millraced.toml"
        file.write_text(BRIDGE.format(ports="".join(PORT.format(name=f"p{n}", number=n) for n in (1, 2))))
        machine.run("systemctl", "restart", "millraced")
        machine.run("millrace", "flow", "add", "br0", "in_port=1,actions=output:2")

        def lost(action):
            """Returns the frames that were sent, and those that were lost, while an action ran."""
            sender = {"source": "10.0.0.1", "destination": "10.0.0.2", "to_mac": "02:00:00:00:00:02", "from_mac": "02:00:00:00:00:01"}
            with Receiver("h2", "e2") as receiver, Sender("h1", "e1", 1, rate=1000, **sender) as stream:
                receiver.wait_first(1)
                action()
                reached = receiver.arrived()[1][1]
                wait_for("frames after it", lambda: receiver.arrived()[1][1] > reached)
                sent = stream.end()["sent"]
                seen = receiver.end({1: sent}, lossless=False)["streams"]["1"]
            return {"sent": sent, "lost": seen["missing"], "gap_ms": round(seen["gap_ms"])}

        kinds = {
            "change of the configuration": lambda: machine.run("millrace", "port", "add", "br0", "m3", "--device", "memory"),
            "upgrade of millrace": lambda: install(machine, "millrace", folder="/packages/next"),
            "upgrade of millraced": lambda: install(machine, "millraced", folder="/packages/next"),
            "systemctl restart": lambda: machine.run("systemctl", "restart", "millraced"),
        }
        found = {kind: lost(action) for kind, action in kinds.items()}
        print(found)
        for kind, figures in found.items():
            record_property(kind, str(figures))
        for kind in ["change of the configuration", "upgrade of millrace"]:
            assert found[kind]["lost"] == 0, found
        for kind in ["upgrade of millraced", "systemctl restart"]:
            assert 0 < found[kind]["gap_ms"] < 10_000 and found[kind]["lost"] < found[kind]["sent"], found
        assert "in_port=1" in machine.run("millrace", "show", "flows", "br0")


def steps(containerfile):
    """Returns the instructions of a Containerfile as pairs of a word and the rest."""
    lines = containerfile.read_text().replace("\\\n", " ").splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line and not line.startswith("#")]


@long
def test_the_image_of_the_container_runs_as_its_user_with_two_capabilities(packages, tmp_path):
    """The steps of the Containerfile, but for those that need a network, in a Debian 12; podman gives a process of another user
    the capabilities of --cap-add as ambient ones."""
    instructions = steps(ROOT / "debian" / "container" / "Containerfile")
    found = dict(instructions)
    user = found["USER"].split(":")[0]
    assert user != "0" and found["FROM"].endswith("debian:bookworm-slim")
    with cables(("p1", "e1")), debian_root.Machine(tmp_path / "machine", packages) as machine:
        names = [pattern.removesuffix("_*.deb") for pattern in found["COPY"].split()[:-1]]
        assert "millraced" in names
        for command in found["RUN"].split("&&"):
            words = command.split()
            if words[:2] == ["apt-get", "install"]:
                install(machine, *names)
                machine.run("systemctl", "stop", "millraced")
                machine.run("rm", "-rf", "/var/lib/millrace", "/run/millrace")
            elif words[:2] != ["apt-get", "update"] and words[0] != "rm":
                machine.run(*words)
        program = json.loads(found["ENTRYPOINT"]) + json.loads(found["CMD"])
        file = machine.root / "etc/millrace/millraced.toml"
        file.write_text(BRIDGE.format(ports=PORT.format(name="p1", number=1)))
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        capabilities = "+net_admin,+net_raw"
        unit = ["systemd-run", "--quiet", "--unit=container", *as_user, f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}",
                "--bounding-set=-all,+net_admin,+net_raw", *program]
        machine.run(*unit)
        show = [*as_user, "millrace", "show"]
        wait_for("the port", lambda: "p1" in machine.call(*show, "ports").stdout)
        shown = machine.run(*show, "status")
        assert "problem" not in shown.lower(), shown


@long
def test_the_packages_have_no_findings_of_lintian(packages):
    if not shutil.which("lintian"):
        pytest.skip("lintian is missing; to install it: scripts/setup.sh packages")
    found = subprocess.run(["lintian", "--allow-root", "--suppress-tags", LINTIAN_EXCEPT, *packages.glob("*.deb")], capture_output=True,
                           text=True, timeout=300, check=False)
    assert not [line for line in found.stdout.splitlines() if line.startswith(("E:", "W:"))], found.stdout


def test_the_units_are_confined(packages, tmp_path):
    """`systemd-analyze security` rates exposure from 0 to 10. The switch opens devices, and so needs more than the others."""
    bounds = {"millraced": 65, "millrace-mgmt": 20, "millrace-ix": 20, "millrace-courier": 20}
    for name, bound in bounds.items():
        package = next(packages.glob(f"{name}_*.deb"))
        run("dpkg-deb", "--extract", package, tmp_path / name)
        unit = tmp_path / name / "lib/systemd/system" / f"{name}.service"
        run("systemd-analyze", "security", "--offline=true", f"--threshold={bound}", unit)
