"""Letters of the exchange to a mail server of others (aiosmtpd): they arrive as messages that Python's `email` reads, a server that is
away loses none of them, also if the engine is killed meanwhile, and a refused recipient delays nobody.
"""

import email
import email.policy
import pathlib
import re
import signal
import socket
import subprocess
import sys

import pytest
import requests

from exchange import PASSWORD, Exchange
from switches import STOP_BOUND, free_port, wait_for

pytest.importorskip("aiosmtpd", reason="aiosmtpd is not installed: run scripts/setup.sh python")

NAME = "テスト IX"
SERVER = pathlib.Path(__file__).with_name("mailserver.py")


class MailServer:
    """A mail server with a Maildir in a folder."""

    def __init__(self, folder):
        self.folder, self.port, self.process = folder, free_port(), None
        folder.mkdir(parents=True, exist_ok=True)

    def start(self):
        self.process = subprocess.Popen([sys.executable, SERVER, str(self.port), self.folder])
        wait_for("the mail server listens", self.listens)

    def listens(self):
        assert self.process.poll() is None, "the mail server ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(timeout=STOP_BOUND)

    def letters(self):
        """Returns all letters by recipient."""
        found = {}
        for path in (self.folder / "mail/new").glob("*"):
            letter = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
            found.setdefault(letter["X-RcptTo"] or letter["To"], []).append(letter)
        return found

    def wait(self, *addresses):
        """Waits for a letter to each address, and returns all letters."""
        wait_for(f"letters to {addresses}", lambda: set(addresses) <= set(self.letters()))
        return self.letters()


class Api:
    """An exchange with mail, a member with a connection, and the staff's API key."""

    def __init__(self, folder):
        self.server = MailServer(folder / "mail")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.exchange = Exchange(folder / "ix", engine=f"""
[api]
listen = "127.0.0.1:{self.port}"
name = "{NAME}"
[api.mail]
relay = "127.0.0.1:{self.server.port}"
from = "noc@ix.example"
page = "https://ix.example"
language = "ja"
""")

    def __enter__(self):
        self.exchange.start()
        self.exchange.order(
            {"operation": "create_account", "name": "Test IX", "kind": "exchange"},
            {"operation": "create_user", "name": "ops", "account": "ac-0",
             "roles": ["operator_admin", "operator_provisioning", "operator_noc"]})
        _, switch = self.exchange.create_site("Otemachi", 1, range(1, 5))
        self.account, (self.connection,) = self.exchange.create_member("Aoba", f"{switch}:1")
        self.key = self.exchange.api_key(self.url, "ops")[1]
        return self

    def __exit__(self, *_):
        self.exchange.stop()
        self.server.stop()

    def answers(self):
        try:
            return self.ask("GET", "/api/v1/health", key=False).status_code == 200
        except requests.ConnectionError:
            return False

    def ask(self, method, path, body=None, key=True):
        headers = {"authorization": f"Bearer {self.key}"} if key else {}
        return requests.request(method, self.url + path, json=body, headers=headers, timeout=60)

    def invite(self, name, address, language="en"):
        """Adds a person of the member, and has the invitation sent."""
        person = {"name": name, "account": self.account, "email": address, "roles": ["member_tech"], "language": language}
        made = self.ask("POST", "/api/v1/users", person)
        assert made.status_code == 201, made.text
        user = next(id for id in made.json()["created"] if id.startswith("us-"))
        sent = self.ask("POST", f"/api/v1/users/{user}/link", {"kind": "invitation"})
        assert sent.status_code == 202, sent.text

    def waiting(self):
        """Returns the number of letters that wait for the server."""
        return int(re.search(r"^millrace_ix_letters_waiting (\d+)$", self.ask("GET", "/metrics").text, re.M)[1])


@pytest.fixture
def api(tmp_path):
    with Api(tmp_path) as api:
        yield api


def test_an_invitation_and_a_notice_arrive_as_messages_that_others_read(api):
    api.server.start()
    api.invite("zoe", "zoe@aoba.example")
    letter = api.server.wait("zoe@aoba.example")["zoe@aoba.example"][0]
    assert not letter.defects
    assert letter["From"].addresses[0].display_name == NAME and letter["From"].addresses[0].addr_spec == "noc@ix.example"
    assert letter["X-MailFrom"] == "noc@ix.example"
    assert NAME in letter["Subject"] and letter["Date"].datetime and letter["Message-ID"]
    assert letter["Auto-Submitted"] == "auto-generated"
    token = re.search(r"^https://ix\.example/link#(\S+)\r?$", letter.get_content(), re.M)[1]
    used = api.ask("POST", "/api/v1/session/links/use", {"token": token, "password": PASSWORD}, key=False)
    assert used.status_code == 204, used.text
    signed_in = api.ask("POST", "/api/v1/session", {"name": "zoe", "password": PASSWORD}, key=False)
    assert signed_in.status_code == 200, signed_in.text
    again = api.ask("POST", "/api/v1/session/links/use", {"token": token, "password": PASSWORD}, key=False)
    assert again.status_code == 404, again.text
    wait_for("the person is told of the use", lambda: len(api.server.letters()["zoe@aoba.example"]) == 2)

    contact = {"account": api.account, "name": "Desk", "email": "desk@aoba.example", "telephone": "+81 3 1234", "roles": ["noc"]}
    assert api.ask("POST", "/api/v1/contacts", contact).status_code == 201
    notice = {"kind": "maintenance", "title": "回線工事", "about": ".\n..\nLinie\n", "begins": "2036-12-01T00:00:00.000Z",
              "ends": "2036-12-01T02:00:00.000Z", "objects": [api.connection]}
    made = api.ask("POST", "/api/v1/notices", notice)
    assert made.status_code == 201, made.text
    letter = api.server.wait("desk@aoba.example")["desk@aoba.example"][0]
    assert not letter.defects and "回線工事" in letter["Subject"]
    text, calendar = letter.iter_parts()
    assert (text.get_content_type(), calendar.get_content_type()) == ("text/plain", "text/calendar")
    assert calendar.get_param("method") == "PUBLISH"
    assert ".\r\n..\r\nLinie" in text.get_content(), "lines that begin with a dot arrive as they are"
    assert re.search(r"Aoba sw-\d+:1", text.get_content()), "the letter names what it touches"
    lines = calendar.get_content().splitlines()
    assert lines[0] == "BEGIN:VCALENDAR" and "SUMMARY:回線工事" in lines and "DTSTART:20361201T000000Z" in lines
    wait_for("no letter waits", lambda: api.waiting() == 0)


def test_a_notice_whose_objects_were_deleted_ends_for_nobody_else(api):
    api.server.start()
    [site] = api.exchange.order({"operation": "create_site", "name": "Makuhari"})["applied"]["created"]
    contact = {"account": api.account, "name": "Desk", "email": "desk@aoba.example", "telephone": "+81 3 1234", "roles": ["noc"]}
    assert api.ask("POST", "/api/v1/contacts", contact).status_code == 201
    notice = {"kind": "incident", "title": "Fire", "about": "", "begins": "2026-01-01T00:00:00.000Z", "ends": None, "objects": [site]}
    made = api.ask("POST", "/api/v1/notices", notice)
    assert made.status_code == 201 and made.json()["members"] == [], made.text
    api.exchange.order({"operation": "delete", "target": site})
    [shown] = api.ask("GET", "/api/v1/notices").json()["items"]
    assert shown["objects"] == [{"id": site, "name": site}], shown
    # The page ends it with the objects that it shows.
    over = {**notice, "objects": [one["id"] for one in shown["objects"]], "ends": "2026-01-01T01:00:00.000Z"}
    ended = api.ask("PUT", f"/api/v1/notices/{shown['id']}", over)
    assert ended.status_code == 200, ended.text
    assert (ended.json()["state"], ended.json()["members"]) == ("over", [])
    assert api.waiting() == 0 and not api.server.letters()
    # A new notice cannot name it, and neither can one that has not had it.
    assert api.ask("POST", "/api/v1/notices", over).status_code == 422
    everybody = api.ask("PUT", f"/api/v1/notices/{shown['id']}", {**over, "objects": []})
    assert [member["name"] for member in everybody.json()["members"]] == ["Aoba"], everybody.text
    assert api.ask("PUT", f"/api/v1/notices/{shown['id']}", over).status_code == 422


def test_a_server_that_is_away_and_a_killed_engine_lose_no_letter_and_double_none(api):
    names = [f"person{number}" for number in range(5)]
    for name in names:
        api.invite(name, f"{name}@aoba.example")
    assert api.waiting() == 5
    api.exchange.stop(signal.SIGKILL)
    api.exchange.start()
    wait_for("the API answers", api.answers)
    assert api.waiting() == 5
    api.server.start()
    letters = api.server.wait(*(f"{name}@aoba.example" for name in names))
    wait_for("no letter waits", lambda: api.waiting() == 0)
    assert [len(found) for found in letters.values()] == [1] * 5
    for name in names:
        assert name in letters[f"{name}@aoba.example"][0].get_content()
    # The server goes once more, and the next letter waits for it.
    api.server.stop()
    api.invite("late", "late@aoba.example")
    assert api.waiting() == 1
    api.server.start()
    api.server.wait("late@aoba.example")
    wait_for("no letter waits", lambda: api.waiting() == 0)


def test_a_refused_recipient_is_dropped_and_a_deferred_one_delays_nobody(api):
    api.server.start()
    api.invite("later", "later@aoba.example")
    api.invite("refused", "refused@aoba.example")
    api.invite("good", "good@aoba.example")
    api.server.wait("good@aoba.example")
    wait_for("only the deferred letter waits", lambda: api.waiting() == 1)
    assert "refused@aoba.example" not in api.server.letters() and "later@aoba.example" not in api.server.letters()
    (api.server.folder / "open").touch()
    api.server.wait("later@aoba.example")
    wait_for("no letter waits", lambda: api.waiting() == 0)
