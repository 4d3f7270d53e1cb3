"""The REST API of a Millrace switch. The switch decides: it validates, compares, and refuses; nothing is compared here."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import copy
import http.client
import json
import socket
import ssl
import time
from urllib.parse import quote, urlencode, urlsplit

#: Attempts of a change while others commit at the same time.
ATTEMPTS = 8
#: The longest wait for an answer, in seconds.
TIMEOUT = 60
#: The interval of status requests while a change begins to run, in seconds.
POLL = 0.1

CONNECTION = {
    "api": {"type": "str", "default": "unix:/run/millrace/millraced.sock"},
    "token": {"type": "str", "no_log": True},
    "ca": {"type": "path"},
}

CHANGE = {
    "confirm_within": {"type": "int"},
    "comment": {"type": "str", "default": "ansible"},
    "lock_token": {"type": "str", "no_log": True},
    "wait": {"type": "int", "default": 5},
}


class Refused(Exception):
    """A problem document of the switch (RFC 9457), or no answer."""

    def __init__(self, status, problem):
        self.status = status
        self.problem = problem
        text = problem.get("detail") or f"the switch answered with HTTP {status}"
        super().__init__(f"{text} (next step: {problem['next_step']})" if problem.get("next_step") else text)


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=TIMEOUT)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT)
        self.sock.connect(self.path)


class Switch:
    """One switch."""

    def __init__(self, params):
        self.params = params

    def connection(self):
        api = self.params["api"]
        if api.startswith("unix:"):
            return UnixConnection(api[len("unix:"):])
        url = urlsplit(api)
        if url.scheme == "https":
            context = ssl.create_default_context(cafile=self.params["ca"])
            return http.client.HTTPSConnection(url.hostname, url.port, timeout=TIMEOUT, context=context)
        if url.scheme == "http":
            return http.client.HTTPConnection(url.hostname, url.port, timeout=TIMEOUT)
        raise Refused(0, {"detail": f"api: {api!r}: expected unix:PATH, http://HOST:PORT or https://HOST:PORT"})

    def ask(self, method, path, body=None, query=None, headers=None):
        """Returns (body, ETag) of the answer."""
        headers = dict(headers or {})
        if self.params.get("token"):
            headers["Authorization"] = f"Bearer {self.params['token']}"
        if self.params.get("lock_token"):
            headers["Lock-Token"] = self.params["lock_token"]
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body)
        query = {key: value for key, value in (query or {}).items() if value not in (None, "")}
        if query:
            path += "?" + urlencode(query)
        connection = self.connection()
        try:
            connection.request(method, path, body=data, headers=headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Refused(0, {"detail": f"{self.params['api']} does not answer: {error}"}) from error
        finally:
            connection.close()
        try:
            content = json.loads(text)
        except ValueError as error:
            raise Refused(answer.status, {"detail": f"{self.params['api']} is not a Millrace switch: {error}"}) from error
        if answer.status >= 400:
            raise Refused(answer.status, content if isinstance(content, dict) else {})
        return content, answer.getheader("ETag")

    def get(self, path):
        return self.ask("GET", "/api/v1/" + path)[0]

    def config(self):
        """Returns the configuration, with all defaults, and its ETag."""
        return self.ask("GET", "/api/v1/config")

    def change(self, edit, dry_run):
        """Commits what `edit` makes of the newest configuration, on which it is repeated if another client commits first."""
        query = {
            "dry_run": "true" if dry_run else None,
            "confirm_within": self.params["confirm_within"],
            "comment": self.params["comment"],
            "author": "ansible",
        }
        for attempt in range(ATTEMPTS):
            config, tag = self.config()
            wanted, keep_others = edit(copy.deepcopy(config))
            query["keep_others"] = "true" if keep_others else None
            try:
                return self.ask("PUT", "/api/v1/config", wanted, query, {"If-Match": tag})[0]
            except Refused as refused:
                if refused.status != 412 or attempt == ATTEMPTS - 1:
                    raise

    def problems(self, revision, wait):
        """Returns the parts that do not run, as soon as the revision runs, at the latest after `wait` seconds."""
        end = time.monotonic() + wait
        while True:
            status = self.get("status")
            runs = (status["running_revision"] or 0) >= revision and status["state"] != "working"
            if runs or time.monotonic() >= end:
                return status["problems"]
            time.sleep(POLL)


def by_name(items):
    """Returns true if a list holds tables that are identified by their names."""
    return bool(items) and all(isinstance(item, dict) and "name" in item for item in items)


def merge(old, new):
    """Returns `old` with `new` merged in: tables by key, lists of named tables by name; other values are replaced."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{key: merge(old.get(key), value) for key, value in new.items()}}
    if isinstance(old, list) and isinstance(new, list) and by_name(new):
        items = list(old)
        for item in new:
            put(items, item, merge)
        return items
    return new


def put(items, item, combine):
    """Replaces the item with the same name by the combination of both, or appends the item."""
    for index, known in enumerate(items):
        if isinstance(known, dict) and known.get("name") == item["name"]:
            items[index] = combine(known, item)
            return
    items.append(item)


def find(items, name):
    """Returns the item with this name, or None."""
    return next((item for item in items if item.get("name") == name), None)


def run(module, edit):
    """Makes a change, and ends the module with its result."""
    switch = Switch(module.params)
    try:
        done = switch.change(edit, module.check_mode)
        texts = [change["text"] for change in done["changes"]]
        result = {
            # A change of order alone is a revision without differences.
            "changed": bool(texts),
            "revision": done["revision"]["number"],
            "changes": texts,
            "left_alone": done["left_alone"],
            "pending": done["pending"],
            "problems": [],
        }
        if module._diff:
            result["diff"] = {"prepared": "".join(f"{text}\n" for text in texts)}
        if result["changed"] and not module.check_mode and module.params["wait"] > 0:
            result["problems"] = switch.problems(result["revision"], module.params["wait"])
            for problem in result["problems"]:
                module.warn(f"{problem['subject']}: {problem['message']} (next step: {problem['next_step']})")
    except Refused as refused:
        fail(module, refused)
    module.exit_json(**result)


def fail(module, refused):
    """Ends the module with the problem that the switch tells."""
    problem = refused.problem
    module.fail_json(msg=str(refused), status=refused.status, problem=problem.get("type", ""), errors=problem.get("errors", []))


def escape(text):
    """Returns text for a path."""
    return quote(text, safe="")
