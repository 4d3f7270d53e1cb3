"""Requests of known controllers, in their order: each must be answered, and none refused, because controllers otherwise wait
for a minute or disconnect.

Messages are os-ken's (the golden vectors of the codec) or written out here, so that the order is the controllers' own.
"""

import struct

import pytest

import openflow as of
from switches import Millrace

FEATURES_REQUEST, FEATURES_REPLY, GET_CONFIG_REQUEST, GET_CONFIG_REPLY = 5, 6, 7, 8
MULTIPART_REQUEST, MULTIPART_REPLY, ROLE_REPLY, SET_ASYNC = 18, 19, 25, 28
DESC, FLOW, METER_FEATURES, PORT_DESC = 0, 1, 11, 13
MASTER = 2
FLOW_MOD_DELETE, ALL_TABLES = 3, 255
ANY_MATCH = of.oxm_match()

DESCRIPTION = """
[bridge.description]
manufacturer = "Lagopus project"
hardware = "server"
software = "7.1"
serial = "0815"
datapath = "the one in the cellar"
"""


@pytest.fixture(name="switch")
def running_switch(tmp_path):
    with Millrace(tmp_path / "millrace", ports=[(1, "link:a"), (2, "link:a")], extra=DESCRIPTION) as switch:
        yield switch


@pytest.fixture(name="client")
def connected_client(switch):
    with of.Client(switch.openflow_port) as client:
        # A request without an answer within this time fails the test.
        client.stream.settimeout(60)
        yield client


def ask(client, kind, body, reply):
    """Sends a request and returns the body of its reply, which must be the next message but requests for an echo."""
    client.xid += 1
    client.send(of.message(kind, body, client.xid))
    got = client.next()
    assert (got[1], got[2]) == (reply, client.xid), f"asked {kind}: {got[3].hex()}"
    return got[3][8:]


def ask_multipart(client, kind, body=b""):
    reply = ask(client, MULTIPART_REQUEST, struct.pack("!HH4x", kind, 0) + body, MULTIPART_REPLY)
    assert struct.unpack_from("!H", reply)[0] == kind
    return reply[8:]


def test_onos_gets_every_answer_in_its_order(client):
    features = ask(client, FEATURES_REQUEST, b"", FEATURES_REPLY)
    assert struct.unpack_from("!Q", features)[0] == 1
    assert len(ask_multipart(client, PORT_DESC)) == 2 * 64
    client.send(of.message(of.SET_CONFIG, struct.pack("!HH", 0, 0xFFFF)))
    assert client.barrier() == []
    assert ask(client, GET_CONFIG_REQUEST, b"", GET_CONFIG_REPLY) == struct.pack("!HH", 0, 0xFFFF)
    assert len(ask_multipart(client, METER_FEATURES)) == 16
    desc = ask_multipart(client, DESC)
    texts = [field.rstrip(b"\0").decode() for field in struct.unpack("256s256s256s32s256s", desc)]
    assert texts == ["Lagopus project", "server", "7.1", "0815", "the one in the cellar"]
    role = ask(client, of.ROLE_REQUEST, struct.pack("!I4xQ", MASTER, 1), ROLE_REPLY)
    assert struct.unpack("!I4xQ", role) == (MASTER, 1)


def test_a_hello_of_a_later_version_is_answered_in_ours(switch):
    """A controller that offers 1.5 without a version bitmap, as ONOS does, uses 1.3."""
    with of.Client(switch.openflow_port, hello=False) as client:
        client.send(of.message(of.HELLO, xid=1, version=6))
        version, kind, _, whole = client.receive()
        assert (version, kind) == (4, of.HELLO) and whole[8:] == struct.pack("!HHI", 1, 8, 1 << 4)
        ask(client, FEATURES_REQUEST, b"", FEATURES_REPLY)


def test_faucet_may_set_async_twice_and_delete_in_all_tables(client):
    everything = struct.pack("!6I", *[0xFF] * 6)
    for _ in range(2):
        client.send(of.message(SET_ASYNC, everything))
    client.send(of.flow_add(ANY_MATCH, b"", table=0), of.flow_add(ANY_MATCH, b"", table=9))
    assert client.barrier() == []
    client.send(of.flow_mod(FLOW_MOD_DELETE, ANY_MATCH, table=ALL_TABLES))
    assert client.barrier() == []
    assert ask_multipart(client, FLOW, flow_request()) == b""


@pytest.mark.parametrize("flags", range(32))
def test_flow_statistics_echo_the_flags_of_the_flow_mod(client, flags):
    fixed = struct.pack("!QQBBHHHIIIH2x", 7, 0, 0, 0, 60, 90, 5, of.NO_BUFFER, of.ANY, of.ANY, flags)
    client.send(of.message(of.FLOW_MOD, fixed + ANY_MATCH))
    assert client.barrier() == []
    entry = ask_multipart(client, FLOW, flow_request())
    priority, idle, hard, echoed, cookie = struct.unpack_from("!HHHH4xQ", entry, 12)
    assert (priority, idle, hard, echoed, cookie) == (5, 60, 90, flags, 7)


def flow_request():
    """Returns a request for all entries of all tables."""
    return struct.pack("!B3xII4xQQ", ALL_TABLES, of.ANY, of.ANY, 0, 0) + ANY_MATCH
