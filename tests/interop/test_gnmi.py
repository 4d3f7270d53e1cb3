"""gNMI of a real switch by pygnmi: TLS with client certificates, and the Unix socket."""

import os
import queue
import threading
import time

import pytest

import namespaces
from certificates import Authority
from front_ends import FrontEnds, over_unix
from switches import Millrace, free_port, run, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="interfaces need root")
CABLE = ("mr-g1a", "mr-g1b")
pygnmi = pytest.importorskip("pygnmi.client", reason="pygnmi: scripts/setup.sh management")
grpc = pytest.importorskip("grpc", reason="grpcio: scripts/setup.sh management")


@pytest.fixture
def switch(tmp_path):
    with namespaces.cables(CABLE), Millrace(tmp_path / "switch", ports=[(1, f"kernel:{CABLE[0]}"), (2, "memory")]) as switch:
        yield switch


@pytest.fixture
def front_ends(tmp_path, switch):
    server, clients = Authority(tmp_path / "server", "server"), Authority(tmp_path / "clients", "clients")
    key, certificate = server.sign("switch")
    port = free_port()
    gnmi = "\n".join([
        f'listen = ["127.0.0.1:{port}"]', f'tls_cert = "{certificate}"', f'tls_key = "{key}"', f'client_ca = "{clients.certificate}"',
        "[gnmi.clients]", 'alice = "write"', 'collector = "read"',
    ])
    with FrontEnds(tmp_path / "mgmt", switch, gnmi=gnmi) as front_ends:
        front_ends.port, front_ends.server, front_ends.clients = port, server, clients
        yield front_ends


def client(front_ends, name):
    """Returns a client with a certificate of a name."""
    key, certificate = front_ends.clients.sign(name)
    return pygnmi.gNMIclient(target=("127.0.0.1", front_ends.port), path_root=str(front_ends.server.certificate),
                             path_cert=str(certificate), path_key=str(key), override="127.0.0.1", gnmi_timeout=60)


def value(response):
    """Returns the value of the first update of a Get."""
    return response["notification"][0]["update"][0]["val"]


def config(switch):
    return switch.rest.get(f"{switch.url}/config", timeout=60).json()


def code(refused):
    """Returns the status code of a pygnmi exception."""
    return (refused.value.orig_exc if hasattr(refused.value, "orig_exc") else refused.value).code()


def test_get_and_set_by_both_models(switch, front_ends):
    with client(front_ends, "alice") as gnmi:
        models = [model["name"] for model in gnmi.capabilities()["supported_models"]]
        assert {"openconfig-interfaces", "millrace"} <= set(models)
        assert value(gnmi.get(path=["millrace:/bridge[name=br0]/port[name=p1]/device"], encoding="json_ietf")) == f"kernel:{CABLE[0]}"
        gnmi.set(update=[("millrace:/bridge[name=br0]/port[name=p2]", {"mtu": 1400, "vlan": 7})], encoding="json_ietf")
        assert config(switch)["bridge"][0]["port"][1]["mtu"] == 1400
        interface = "openconfig:/interfaces/interface[name=br0/p2]"
        assert value(gnmi.get(path=[f"{interface}/config/mtu"], encoding="json_ietf")) == 1400
        gnmi.set(replace=[(f"{interface}/ethernet/switched-vlan/config", {"interface-mode": "TRUNK", "trunk-vlans": [10, "20..22"]})],
                 encoding="json_ietf")
        port = config(switch)["bridge"][0]["port"][1]
        assert port["trunks"] == [10, 20, 21, 22] and port.get("vlan") is None
        gnmi.set(delete=["millrace:/bridge[name=br0]/port[name=p2]"])
        assert len(config(switch)["bridge"][0]["port"]) == 1
    newest = switch.rest.get(f"{switch.url}/revisions?limit=1", timeout=60).json()["revisions"][0]
    assert newest["author"] == "root (alice)" and newest["comment"] == "gNMI Set"


def test_one_bad_path_of_twenty_changes_nothing(switch, front_ends):
    before, revisions = config(switch), switch.rest.get(f"{switch.url}/revisions?limit=1", timeout=60).json()["revisions"][0]["number"]
    good = [("millrace:/bridge[name=br0]/port[name=p2]", {"mtu": 1400 + number}) for number in range(19)]
    for bad, reason in ((("millrace:/bridge[name=br0]", {"tabels": 9}), "tabels"), (("millrace:/bridge[name=br0]", {"tables": 999}), "255"),
                        (("openconfig:/interfaces/interface[name=br0/p9]/config", {"enabled": False}), "br0/p9")):
        for at in (0, 10, 19):
            with client(front_ends, "alice") as gnmi, pytest.raises(Exception) as refused:
                gnmi.set(update=[*good[:at], bad, *good[at:]], encoding="json_ietf")
            assert code(refused) == grpc.StatusCode.INVALID_ARGUMENT and reason in str(refused.value), refused.value
            assert config(switch) == before
    assert switch.rest.get(f"{switch.url}/revisions?limit=1", timeout=60).json()["revisions"][0]["number"] == revisions


def test_a_client_has_the_role_of_its_certificate_and_none_without(switch, front_ends):
    with client(front_ends, "collector") as gnmi:
        assert value(gnmi.get(path=["millrace:/bridge[name=br0]/tables"], encoding="json_ietf")) == 64
        with pytest.raises(Exception) as refused:
            gnmi.set(update=[("millrace:/bridge[name=br0]", {"tables": 9})], encoding="json_ietf")
        assert code(refused) == grpc.StatusCode.PERMISSION_DENIED
    with pytest.raises(Exception) as refused, client(front_ends, "stranger") as gnmi:
        gnmi.get(path=["millrace:/bridge[name=br0]/tables"], encoding="json_ietf")
    assert code(refused) == grpc.StatusCode.PERMISSION_DENIED
    # A certificate of another authority ends in TLS, as no certificate does.
    key, certificate = front_ends.server.sign("alice")
    channel = grpc.secure_channel(f"127.0.0.1:{front_ends.port}", grpc.ssl_channel_credentials(
        front_ends.server.certificate.read_bytes(), key.read_bytes(), certificate.read_bytes()))
    with pytest.raises(grpc.FutureTimeoutError):
        grpc.channel_ready_future(channel).result(timeout=3)
    channel.close()


class Updates:
    """The messages of a subscription, as pygnmi has them."""

    def __init__(self, gnmi, subscribe):
        self.messages = queue.Queue()
        self.stream = gnmi.subscribe2(subscribe=subscribe)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            for message in self.stream:
                self.messages.put((time.monotonic(), message))
        except Exception as error:  # the end of the test ends the stream
            self.messages.put((time.monotonic(), {"error": error}))

    def wait(self, is_wanted):
        """Returns the next message that is wanted."""
        while True:
            at, message = self.messages.get(timeout=60)
            assert "error" not in message, message
            if is_wanted(message):
                return at, message


def updates(message):
    """Returns the values of a message by the last name of their paths."""
    return {one["path"].split("/")[-1]: one["val"] for one in message.get("update", {}).get("update", [])}


def test_a_link_that_goes_down_reaches_a_subscriber_and_counters_are_those_of_rest(switch, front_ends):
    path = "openconfig:/interfaces/interface[name=br0/p1]/state"
    with client(front_ends, "collector") as gnmi:
        subscribe = {"subscription": [{"path": path, "mode": "on_change"}], "mode": "stream", "encoding": "json_ietf"}
        stream = Updates(gnmi, subscribe)
        stream.wait(lambda message: "sync_response" in message)
        run("ip", "link", "set", CABLE[1], "down")
        stream.wait(lambda message: updates(message).get("oper-status") == "DOWN")
        run("ip", "link", "set", CABLE[1], "up")
        stream.wait(lambda message: updates(message).get("oper-status") == "UP")
    with client(front_ends, "collector") as gnmi:
        subscribe = {"subscription": [{"path": f"{path}/counters", "mode": "sample", "sample_interval": 200_000_000}], "mode": "stream",
                     "encoding": "json_ietf"}
        stream = Updates(gnmi, subscribe)

        def received():
            return switch.rest.get(f"{switch.url}/bridges/br0/ports", timeout=60).json()[0]["rx"]["bytes"]

        stream.wait(lambda message: int(updates(message).get("in-octets", -1)) == received())


def test_once_ends_after_the_values_and_poll_answers_each_poll(front_ends):
    with client(front_ends, "collector") as gnmi:
        once = {"subscription": [{"path": "millrace:/bridge[name=br0]/tables"}], "mode": "once", "encoding": "json_ietf"}
        messages = list(gnmi.subscribe2(subscribe=once))
        assert updates(messages[0]) == {"tables": 64} and "sync_response" in messages[-1], messages


def test_the_unix_socket_gives_the_roles_of_groups(switch, front_ends):
    with over_unix(front_ends) as (stub, pb):
        path = pb.Path(elem=[pb.PathElem(name="bridge", key={"name": "br0"}), pb.PathElem(name="tables")])
        stub.Set(pb.SetRequest(update=[pb.Update(path=path, val=pb.TypedValue(uint_val=12))]), timeout=60)
    assert config(switch)["bridge"][0]["tables"] == 12


def test_the_process_has_no_rights(front_ends):
    def has_dropped_them():
        lines = open(f"/proc/{front_ends.process.pid}/status").read().splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        return status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"

    # It drops them once it listens.
    wait_for("the process has no rights", has_dropped_them)
