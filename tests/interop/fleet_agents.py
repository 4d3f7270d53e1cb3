"""Simulated switches of a fleet, which answer to their documents in etcd as `millrace-mgmt` does, and an observer that keeps
everything that is written there. All of them are in one thread."""

import asyncio
import base64
import collections
import contextlib
import itertools
import json
import random
import threading
import time

PREFIX = "/millrace/"
LEASE_S = 15
# The time in s of one watch, and the longest wait for an answer.
WATCH_S, ANSWER_S = 4, 4


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def decoded(text):
    return base64.b64decode(text).decode()


class Connection:
    """One connection to a member's JSON gateway."""

    def __init__(self, url):
        self.host, port = url.removeprefix("http://").split(":")
        self.port = int(port)
        self.reader = self.writer = None

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.wait_for(asyncio.open_connection(self.host, self.port), ANSWER_S)
        return self

    async def __aexit__(self, *_):
        self.writer.close()

    async def _send(self, path, body):
        """Sends a request, and returns the headers of the answer."""
        data = json.dumps(body).encode()
        self.writer.write(f"POST {path} HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\n"
                          f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        if " 200 " not in head.splitlines()[0]:
            raise OSError(f"{path}: {head}")
        return dict(line.split(": ", 1) for line in head.splitlines()[1:] if ": " in line)

    async def _chunk(self):
        """Returns the next piece of an answer without a length; empty at its end."""
        size = int(await self.reader.readline(), 16)
        piece = await self.reader.readexactly(size)
        await self.reader.readexactly(2)
        return piece

    async def call(self, path, **body):
        """Returns the answer to a request."""
        async def answer():
            headers = await self._send(path, body)
            if "content-length" in headers:
                return await self.reader.readexactly(int(headers["content-length"]))
            pieces = []
            while piece := await self._chunk():
                pieces.append(piece)
            return b"".join(pieces)
        found = json.loads(await asyncio.wait_for(answer(), ANSWER_S))
        if "error" in found:
            raise OSError(f"{path}: {found['error']}")
        return found.get("result", found)

    async def watch(self, revision, **keys):
        """Yields the messages of a watch from a revision on."""
        await self._send("/v3/watch", {"create_request": {"start_revision": str(revision), **keys}})
        rest = b""
        while piece := await self._chunk():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                found = json.loads(line)
                if "error" in found:
                    raise OSError(f"watch: {found['error']}")
                yield found["result"]


# What a member that ends, hangs or has no leader costs: the next one is asked.
FAULTS = (OSError, EOFError, ValueError, KeyError, asyncio.TimeoutError, asyncio.LimitOverrunError)


class Simulated:
    """A switch that takes each document, and keeps to the rules of epochs."""

    def __init__(self, node, urls):
        self.node = node
        self.urls = itertools.cycle(random.sample(urls, len(urls)))
        self.seen = self.epoch = 0
        #: The documents that ran, by `mod_revision` and epoch, and those that were refused because of their age.
        self.ran, self.refused = [], []

    def key(self, name):
        return f"{PREFIX}nodes/{self.node}/{name}"

    async def run(self):
        for url in self.urls:
            with contextlib.suppress(*FAULTS):
                async with Connection(url) as connection:
                    await self.session(connection, url)
            await asyncio.sleep(0.2)

    async def session(self, connection, url):
        lease = (await connection.call("/v3/lease/grant", TTL=LEASE_S))["ID"]
        status = {"schema": 1, "version": "simulated", "healthy": True, "revision": len(self.ran)}
        await connection.call("/v3/kv/put", key=encoded(self.key("status")), value=encoded(json.dumps(status)), lease=lease)
        while True:
            revision = await self.look(connection)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.changed(url, revision), WATCH_S)
            alive = await connection.call("/v3/lease/keepalive", ID=lease)
            if not int(alive.get("TTL", 0)):
                return

    async def changed(self, url, revision):
        """Returns when the document has changed after a revision."""
        async with Connection(url) as connection:
            async for message in connection.watch(revision + 1, key=encoded(self.key("config"))):
                if message.get("events") or message.get("canceled"):
                    return

    async def look(self, connection):
        """Takes the document, if it is new, and answers. Returns the revision of the store."""
        read = await connection.call("/v3/kv/range", key=encoded(self.key("config")))
        revision = int(read["header"]["revision"])
        for kv in read.get("kvs", []):
            modified, document = int(kv["mod_revision"]), json.loads(decoded(kv["value"]))
            if modified == self.seen:
                continue
            if modified < self.seen or document["epoch"] < self.epoch:
                self.refused.append((modified, document["epoch"]))
                continue
            self.seen, self.epoch = modified, document["epoch"]
            self.ran.append((modified, document["epoch"]))
            ack = {"schema": 1, "cluster": read["header"]["cluster_id"], "mod_revision": modified, "seen": modified,
                   "seen_epoch": self.epoch, "revision": len(self.ran), "outcome": "applied", "errors": []}
            if document.get("tag"):
                ack["tag"] = document["tag"]
            await connection.call("/v3/kv/put", key=encoded(self.key("ack")), value=encoded(json.dumps(ack)))
        return revision


class Observer:
    """Keeps every write below the prefix, in order: the history of all keys, whatever is compacted later."""

    def __init__(self, urls):
        self.urls = itertools.cycle(urls)
        #: By key: (revision, value or `None`, time of its arrival here). Of roll-outs only the present state is kept.
        self.events = collections.defaultdict(list)
        #: What is there now: the value and its `mod_revision` by key.
        self.values = {}
        self.revision = 0

    async def run(self):
        for url in self.urls:
            with contextlib.suppress(*FAULTS):
                async with Connection(url) as connection:
                    messages = connection.watch(self.revision + 1, key=encoded(PREFIX), range_end=encoded(PREFIX[:-1] + "0"))
                    while True:
                        # A member that hangs is silent; so is one of a cluster in which nothing happens.
                        message = await asyncio.wait_for(anext(messages), 3)
                        assert not int(message.get("compact_revision", 0)), "revisions were compacted before they were seen"
                        for event in message.get("events", []):
                            self.take(event)
            await asyncio.sleep(0.05)

    def take(self, event):
        kv = event["kv"]
        revision, key = int(kv["mod_revision"]), decoded(kv["key"])
        value = None if event.get("type") == "DELETE" else decoded(kv.get("value", ""))
        if key.startswith((f"{PREFIX}nodes/", f"{PREFIX}leader")):
            self.events[key.removeprefix(PREFIX)].append((revision, value, time.monotonic()))
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = (revision, value)
        self.revision = revision

    def json(self, key):
        """Returns the present value of a key below the prefix, and its `mod_revision`; `None` and 0 without one."""
        revision, value = self.values.get(PREFIX + key, (0, "null"))
        return json.loads(value), revision

    def history(self, key):
        """Returns the values of a key in the order in which they were written, each with its revision and time."""
        return [(revision, json.loads(value), at) for revision, value, at in self.events[key] if value]


class Fleet:
    """Simulated switches and the observer, in a thread of their own."""

    def __init__(self, urls, names):
        self.agents = [Simulated(name, urls) for name in names]
        self.observer = Observer(urls)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_until_complete, args=(self.all(),), daemon=True)
        self.ended = None

    async def all(self):
        self.ended = asyncio.Event()
        tasks = [asyncio.ensure_future(one.run()) for one in (self.observer, *self.agents)]
        done, _ = await asyncio.wait([*tasks, asyncio.ensure_future(self.ended.wait())], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        if self.thread.is_alive():
            self.loop.call_soon_threadsafe(lambda: self.ended and self.ended.set())
            self.thread.join(timeout=60)
