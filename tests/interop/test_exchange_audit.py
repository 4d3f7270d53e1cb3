"""Runs the script of docs/audit-chain.md that has a head of the audit chain stamped (RFC 3161), with openssl as the authority."""

import http.server
import json
import pathlib
import re
import shutil
import subprocess
import threading

import pytest

# The configuration of an authority for `openssl ts -reply`.
AUTHORITY = """
[tsa]
default_tsa = one
[one]
serial = serial
signer_cert = certificate.pem
signer_key = key.pem
default_policy = 1.2.3.4.1
signer_digest = sha256
digests = sha256
certs = certificate.pem
ess_cert_id_alg = sha256
"""


def openssl(*arguments, folder, data=None):
    """Returns the output of openssl; fails with its message."""
    done = subprocess.run(["openssl", *arguments], cwd=folder, input=data, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.fixture(name="authority")
def start_authority(tmp_path):
    """Returns the folder of an authority that stamps over HTTP, and its URL."""
    folder = tmp_path / "authority"
    folder.mkdir()
    (folder / "tsa.cnf").write_text(AUTHORITY)
    (folder / "serial").write_text("01\n")
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "certificate.pem", "-subj", "/CN=authority",
            "-addext", "extendedKeyUsage=critical,timeStamping", folder=folder)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            query = folder / "query.tsq"
            query.write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
            answer = openssl("ts", "-reply", "-config", "tsa.cnf", "-queryfile", query, folder=folder)
            self.send_response(200 if self.headers["Content-Type"] == "application/timestamp-query" else 415)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.mark.skipif(not (shutil.which("openssl") and shutil.which("curl")), reason="needs openssl and curl")
def test_the_script_of_the_documentation_has_a_head_stamped(authority, tmp_path):
    folder, url = authority
    text = pathlib.Path("docs/audit-chain.md").read_text()
    script = re.search(r"^```sh\n(#!/bin/sh\n.*?)^```", text, re.MULTILINE | re.DOTALL)[1]
    heads = tmp_path / "heads"
    heads.mkdir()
    script = script.replace("https://tsa.example/", url).replace("/var/lib/millrace-ix/heads", str(heads))
    head = json.dumps({"hash": "5c" * 32, "public_key": "d7" * 32, "serial": 1, "signature": "9f" * 64, "time": 1700000060000})
    done = subprocess.run(["sh", "-c", script], input=head + "\n", capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    [kept] = heads.glob("*.json")
    assert kept.read_text() == head + "\n"
    verify = ("ts", "-verify", "-in", f"{kept}.tsr", "-CAfile", "certificate.pem", "-data")
    assert b"Verification: OK" in openssl(*verify, kept, folder=folder)
    # The stamp is of this head only.
    other = tmp_path / "other"
    other.write_text(head.replace("5c", "5d", 1))
    with pytest.raises(AssertionError):
        openssl(*verify, other, folder=folder)
