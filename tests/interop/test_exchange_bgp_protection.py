"""Sessions of members with TCP MD5 (RFC 2385) and GTSM (RFC 5082): those of BIRD, ExaBGP, GoBGP and FRR with both are up, and segments
without a right signature, or with a TTL below 255, are dropped from the SYN on."""

import socket
import struct

import pytest

import routing
from exchange import Exchange
from switches import free_port, wait_for

KEY = "a-key-that-nobody-sees"
# Addresses on the loopback interface: BIRD's, and those of clients of the test.
SIGNED, NEAR, PLAIN = "127.0.0.21", "127.0.0.22", "127.0.0.23"
TCP_MD5SIG = 14
# The time within which a connection over the loopback interface is up, unless its segments are dropped.
BOUND = 2


def sections(folder, port, speaker=routing.Bird.address):
    """Returns the sections of `millrace-ix`, for a speaker with both protections."""
    key = folder / "md5.key"
    key.write_text(KEY + "\n")
    key.chmod(0o600)
    text = routing.settings(port, {address: "V" for address in (speaker, SIGNED, NEAR, PLAIN)})
    protections = {speaker: f'md5_key_file = "{key}"\ngtsm = true', SIGNED: f'md5_key_file = "{key}"', NEAR: "gtsm = true"}
    for address, lines in protections.items():
        text = text.replace(f'address = "{address}"\n', f'address = "{address}"\n{lines}\n')
    return text


def connect(port, address, ttl=None, key=None):
    """Connects from an address; returns true if the connection is up."""
    with socket.socket() as client:
        client.settimeout(BOUND)
        if ttl is not None:
            client.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, ttl)
        if key is not None:
            peer = struct.pack("=HH4s", socket.AF_INET, 0, socket.inet_aton("127.0.0.1")).ljust(128, b"\0")
            signature = peer + struct.pack("=BBHi", 0, 0, len(key), 0) + key.encode().ljust(80, b"\0")
            client.setsockopt(socket.IPPROTO_TCP, TCP_MD5SIG, signature)
        client.bind((address, 0))
        try:
            client.connect(("127.0.0.1", port))
        except TimeoutError:
            return False
        return True


def test_segments_without_the_key_or_from_a_router_away_are_dropped(tmp_path):
    port = free_port()
    with Exchange(tmp_path / "ix", engine=sections(tmp_path, port)) as exchange:
        exchange.order({"operation": "create_account", "name": "V", "kind": "member", "asns": [routing.ASN]})
        assert connect(port, PLAIN), "an address without protection"
        assert connect(port, SIGNED, key=KEY)
        assert not connect(port, SIGNED), "no signature"
        assert not connect(port, SIGNED, key=KEY + "-"), "another key"
        assert connect(port, NEAR, ttl=255)
        assert not connect(port, NEAR, ttl=254), "forwarded by a router"
        assert connect(port, PLAIN, ttl=254), "GTSM of one address is not that of another"


@pytest.mark.parametrize("kind", [*routing.SPEAKERS, routing.Frr], ids=lambda kind: kind.name)
def test_a_session_with_md5_and_gtsm_is_up_with_each_speaker(tmp_path, kind):
    if not kind.is_installed():
        pytest.skip(f"{kind.program} is not installed: run scripts/setup.sh routers")
    port = free_port()
    with Exchange(tmp_path / "ix", engine=sections(tmp_path, port, kind.address)) as exchange:
        exchange.order({"operation": "create_account", "name": "V", "kind": "member", "asns": [routing.ASN]})

        def session():
            return next(one for one in exchange.ask("sessions") if one["peer"] == kind.address)
        with kind(tmp_path / kind.name, port, key=KEY, gtsm=True) as speaker:
            speaker.announce("203.0.113.0/24")
            wait_for(f"the session of {kind.name}: {speaker.log}", lambda: session()["state"] == "established", bound=60)
            wait_for("its route", lambda: session()["prefixes"] == 1, bound=60)
        wait_for("the end of the session", lambda: session()["state"] != "established", bound=60)
        shown = str(exchange.ask("sessions"))
    written = b"".join(path.read_bytes() for path in (tmp_path / "ix").rglob("*") if path.is_file())
    assert KEY not in shown and KEY.encode() not in written, "a key is in no answer, log or database"


def test_a_key_that_others_can_read_or_that_is_too_long_is_refused_at_the_start(tmp_path):
    port = free_port()
    for mode, key, words in ((0o644, KEY, "expected 0600"), (0o600, "x" * 81, "expected 1 to 80")):
        folder = tmp_path / oct(mode)
        folder.mkdir()
        text = sections(folder, port)
        path = folder / "md5.key"
        path.write_text(key)
        path.chmod(mode)
        with pytest.raises(AssertionError) as failed:
            Exchange(folder / "ix", engine=text).start()
        assert words in str(failed.value) and key not in str(failed.value)
