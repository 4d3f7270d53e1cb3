"""The C library by ctypes: the types of millrace.h and its functions."""

import ctypes
import ctypes.util
import os
import pathlib


class Options(ctypes.Structure):
    """millrace_options."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("identity", ctypes.c_char_p),
        ("listen", ctypes.c_char_p),
        ("rate_bps", ctypes.c_uint64),
        ("silence_ms", ctypes.c_uint64),
        ("patience_ms", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
    ]


class Event(ctypes.Structure):
    """millrace_event."""

    _fields_ = [
        ("event", ctypes.c_char_p),
        ("peer", ctypes.c_char_p),
        ("text", ctypes.c_char_p),
        ("verified_bytes", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("rate_bps", ctypes.c_uint64),
        ("rtt_ms", ctypes.c_double),
        ("loss", ctypes.c_double),
        ("json", ctypes.c_char_p),
    ]


class Entry(ctypes.Structure):
    """millrace_entry."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_char_p),
        ("size", ctypes.c_uint64),
        ("modified", ctypes.c_uint64),
    ]


OnEntry = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Entry), ctypes.c_void_p)
OnEvent = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Event), ctypes.c_void_p)
Texts = ctypes.POINTER(ctypes.c_char_p)


def _open():
    """Opens the library: MILLRACE_LIBRARY, the package's folder, or where the system finds libraries."""
    named = os.environ.get("MILLRACE_LIBRARY")
    beside = pathlib.Path(__file__).with_name("libmillrace_transfer.so")
    path = named or (str(beside) if beside.exists() else ctypes.util.find_library("millrace_transfer"))
    if not path:
        raise ImportError(
            "libmillrace_transfer.so was not found; build it with `cargo build --release -p millrace-capi`, and set "
            "MILLRACE_LIBRARY to its path or install it where the linker looks"
        )
    library = ctypes.CDLL(path)
    options, transfer = ctypes.POINTER(Options), ctypes.c_void_p
    for name, result, arguments in (
        ("error", ctypes.c_char_p, ()),
        ("send", transfer, (Texts, Texts, options)),
        ("receive", transfer, (ctypes.c_char_p, options)),
        ("fetch", transfer, (ctypes.c_char_p, ctypes.c_char_p, options)),
        ("next", ctypes.c_int, (transfer, ctypes.c_int, ctypes.POINTER(Event))),
        ("descriptor", ctypes.c_int, (transfer,)),
        ("wait", ctypes.c_int, (transfer, OnEvent, ctypes.c_void_p)),
        ("cancel", None, (transfer,)),
        ("free", None, (transfer,)),
        ("list", ctypes.c_int, (ctypes.c_char_p, options, OnEntry, ctypes.c_void_p)),
        ("key", ctypes.c_int, (options, ctypes.c_char_p)),
    ):
        function = getattr(library, f"millrace_{name}")
        function.restype, function.argtypes = result, arguments
    return library


library = _open()


def last_error():
    """Returns the text of this thread's last error."""
    return library.millrace_error().decode()


def texts(words):
    """Returns words as an array that NULL ends."""
    encoded = [os.fsencode(word) for word in words]
    return (ctypes.c_char_p * (len(encoded) + 1))(*encoded, None)
