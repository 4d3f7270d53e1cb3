"""Transfers of files to and from many sites.

    import millrace

    with millrace.send(["data/"], ["millrace://site-a/in/", ticket]) as transfer:
        for event in transfer:
            print(event.peer, event.verified_bytes, event.bytes)

    millrace.fetch("millrace://site-a/out/run7/", "results").wait()

A transfer runs in threads of its own; it is an iterator over its events. `wait` ends it and raises `TransferError` if not all
receivers have everything. `millrace.fs` has a file system for fsspec.
"""

import ctypes
import dataclasses
import json
import os
import select
import time

from millrace import _library
from millrace._library import last_error, library, texts

__all__ = ["DirectoryEntry", "Event", "Transfer", "TransferError", "fetch", "key", "listdir", "receive", "send"]

DELTA, ALL_AT_ONCE, KEEP_EXISTING, MODES_AND_TIMES, STOP_ON_CHANGE = 1, 2, 4, 8, 16
STATUS = {1: "failed", 3: "partial", 4: "refused", 5: "integrity", 6: "resumable"}


class TransferError(Exception):
    """A call or a transfer failed. `status` is the exit status of `millrace send`, and `name` its meaning."""

    def __init__(self, text, status=1):
        super().__init__(text)
        self.status, self.name = status, STATUS.get(status, "failed")


@dataclasses.dataclass(frozen=True)
class Event:
    """An event: `listening`, `accepted`, `progress`, `stalled`, `lost`, `file` or `done`."""

    event: str
    peer: str
    #: The ticket, the reason or the limit, if the event has one.
    text: str
    verified_bytes: int
    bytes: int
    rate_bps: int
    rtt_ms: float
    loss: float
    #: All fields, as `millrace --json` prints them.
    fields: dict

    @classmethod
    def _of(cls, event):
        return cls(
            event.event.decode(),
            event.peer.decode(),
            event.text.decode(),
            event.verified_bytes,
            event.bytes,
            event.rate_bps,
            event.rtt_ms,
            event.loss,
            json.loads(event.json),
        )


@dataclasses.dataclass(frozen=True)
class DirectoryEntry:
    """An entry of a directory of a daemon; `type` is `file`, `directory` or `symlink`."""

    name: str
    type: str
    size: int
    modified: int


class Transfer:
    """A transfer that runs. Leaving its `with` block cancels it if it has not ended."""

    def __init__(self, pointer):
        self._pointer, self._status = pointer, None
        if not pointer:
            raise TransferError(last_error())

    def __iter__(self):
        """Yields events until the transfer ends."""
        while (event := self.next_event()) is not None:
            yield event

    def next_event(self, timeout=None):
        """Returns the next event; `None` after the last one. Raises TimeoutError if there is none within `timeout` seconds."""
        event = _library.Event()
        until = None if timeout is None else time.monotonic() + timeout
        # The library does not wait here, because signals such as SIGINT interrupt a wait in Python only.
        while (result := library.millrace_next(self._live(), 0, ctypes.byref(event))) == 0:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError("the transfer had no event in time")
            self._poll(left)
        return Event._of(event) if result > 0 else None

    def _poll(self, timeout):
        """Waits for an event or the end of the transfer, at most `timeout` seconds and at most one second: a signal that arrives
        just before the system call does not interrupt it, and Python handles it after the call."""
        descriptor = self.fileno()
        if descriptor >= 0:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll(1_000 if timeout is None else min(1, timeout) * 1_000)

    def fileno(self):
        """Returns a descriptor that is readable while events wait, for select and event loops."""
        return library.millrace_descriptor(self._live())

    def wait(self):
        """Waits for the end; raises TransferError unless all receivers have everything."""
        if self._status is None:
            while self.next_event() is not None:
                pass
            self._status = library.millrace_wait(self._live(), _library.OnEvent(), None), last_error()
        status, text = self._status
        if status:
            raise TransferError(text, status)

    def cancel(self):
        """Ends the transfer. Received data are kept, and the same call resumes the transfer."""
        library.millrace_cancel(self._live())

    def close(self):
        """Ends the transfer if it has not ended, and frees it."""
        pointer, self._pointer = self._pointer, None
        if pointer:
            library.millrace_free(pointer)

    def _live(self):
        if not self._pointer:
            raise ValueError("the transfer is closed")
        return self._pointer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()


def _options(identity=None, listen=None, rate_bps=0, silence=0.0, patience=0.0, flags=0, name=None):
    """Returns the options of a call; `silence` and `patience` are in seconds, `name` is that of one source at the receivers."""
    return _library.Options(
        ctypes.sizeof(_library.Options),
        os.fsencode(identity) if identity else None,
        listen.encode() if listen else None,
        int(rate_bps),
        int(silence * 1_000),
        int(patience * 1_000),
        flags,
        os.fsencode(name) if name else None,
    )


def send(sources, targets, **options):
    """Starts to send files and directories to targets: tickets, millrace:// paths, or KEY@HOST:PORT; returns the transfer."""
    options = _options(**options)
    return Transfer(library.millrace_send(texts(sources), texts(targets), ctypes.byref(options)))


def receive(directory, **options):
    """Starts to receive from one sender; the first event, `listening`, has the ticket as its text. Returns the transfer."""
    options = _options(**options)
    return Transfer(library.millrace_receive(os.fsencode(directory), ctypes.byref(options)))


def fetch(url, directory, **options):
    """Starts to fetch a file or directory of a daemon; returns the transfer."""
    options = _options(**options)
    return Transfer(library.millrace_fetch(os.fsencode(url), os.fsencode(directory), ctypes.byref(options)))


def listdir(url, **options):
    """Returns the entries of a directory of a daemon; those of millrace://HOST/ are this user's grants."""
    entries, options = [], _options(**options)

    @_library.OnEntry
    def on_entry(entry, _):
        entry = entry.contents
        name = entry.name.decode(errors="replace")
        entries.append(DirectoryEntry(name, entry.type.decode(), entry.size, entry.modified))
        return 0

    if library.millrace_list(os.fsencode(url), ctypes.byref(options), on_entry, None):
        raise TransferError(last_error())
    return entries


def key(**options):
    """Returns this user's key, for the grants of a daemon."""
    options, text = _options(**options), ctypes.create_string_buffer(53)
    if library.millrace_key(ctypes.byref(options), text):
        raise TransferError(last_error())
    return text.value.decode()
