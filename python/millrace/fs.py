"""A file system for fsspec over a daemon: millrace://[KEY@]HOST[:PORT]/GRANT/PATH.

    fs = fsspec.filesystem("millrace", host="site-a:7800", key="uq3…")
    fs.ls("/out");  fs.get("/out/run7/a.h5", "a.h5");  fs.put("b.h5", "/in/b.h5")
    fs.open("/out/run7/a.h5").read()

The daemon has four verbs, create, replace, read and list, for whole files: `open` fetches a file, or writes it on close.
Calls that remove, rename, copy or append are refused by name. A symlink is followed at the daemon, within its grant, and never here.
"""

import errno
import io
import os
import pathlib
import shutil
import sys
import tempfile

from fsspec.compression import compr
from fsspec.core import OpenFile, get_compression
from fsspec.spec import AbstractFileSystem

import millrace

#: Symlinks that are followed one after the other (_POSIX_SYMLOOP_MAX).
LINKS_MAX = 8


class MillraceFileSystem(AbstractFileSystem):
    """The grants of one daemon as top-level directories."""

    protocol = "millrace"
    root_marker = "/"
    cachable = False

    def __init__(self, host, key=None, identity=None, **kwargs):
        """`host`: HOST or HOST:PORT; `key`: the daemon's, if no transfer led there before; `identity`: file of this user's key."""
        super().__init__(**kwargs)
        self.address = f"{key}@{host}" if key else host
        self.options = {"identity": identity} if identity else {}

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fspath(path)
        if path.startswith("millrace://"):
            path = "/" + path[len("millrace://") :].partition("/")[2]
        return "/" + path.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(url):
        authority = url[len("millrace://") :].partition("/")[0]
        key, _, host = authority.rpartition("@")
        return {"host": host, **({"key": key} if key else {})}

    def _url(self, path):
        return f"millrace://{self.address}{self._strip_protocol(path)}"

    def ls(self, path, detail=True, **kwargs):
        """Returns the entries of a directory, or the one entry of a file."""
        path = self._strip_protocol(path)
        try:
            entries = millrace.listdir(self._url(path), **self.options)
        except millrace.TransferError as error:
            raise _os_error(error, path) from error
        is_file = len(entries) == 1 and entries[0].type != "directory" and entries[0].name == path.rpartition("/")[2]
        if is_file:
            # A directory may hold one entry with the directory's name: the parent tells a file from a directory.
            parent = millrace.listdir(self._url(path.rpartition("/")[0]), **self.options)
            is_file = any(entry.name == entries[0].name and entry.type != "directory" for entry in parent)
        base = path.rpartition("/")[0] if is_file else path
        found = [
            {
                "name": f"{base.rstrip('/')}/{entry.name}",
                "type": "file" if entry.type == "symlink" else entry.type,
                "size": entry.size,
                "mtime": entry.modified,
                "islink": entry.type == "symlink",
            }
            for entry in entries
        ]
        return found if detail else [entry["name"] for entry in found]

    def info(self, path, **kwargs):
        """Returns name, type, size and time of the last modification."""
        path = self._strip_protocol(path)
        if path == "/":
            return {"name": path, "type": "directory", "size": 0}
        parent = path.rpartition("/")[0] or "/"
        for entry in self.ls(parent):
            if entry["name"] == path:
                return entry
        raise FileNotFoundError(path)

    def get_file(self, rpath, lpath, callback=None, **kwargs):
        """Fetches a file. A symlink to a directory beside it or below becomes a symlink here; any other one is followed."""
        rpath, lpath = self._strip_protocol(rpath), pathlib.Path(os.fspath(lpath)).absolute()
        if self.isdir(rpath):
            lpath.mkdir(parents=True, exist_ok=True)
            return
        lpath.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=lpath.parent, prefix=".millrace-get-") as folder:
            os.replace(self._fetch(rpath, folder, callback, keep_directories=True), lpath)

    def _fetch(self, path, folder, callback=None, keep_directories=False):
        """Fetches a file into a folder; returns its path there, which is no symlink but, if wanted, one to a directory below."""
        for number in range(LINKS_MAX):
            into = pathlib.Path(folder) / str(number)
            into.mkdir()
            with millrace.fetch(self._url(path), into, **self.options) as transfer:
                _finish(transfer, callback, path)
            local = into / path.rpartition("/")[2]
            if not local.is_symlink():
                return local
            # The target is a path at the daemon; here it would lead to another file.
            target = os.readlink(local)
            path, link = _follow(path, target), path
            if self.isdir(path):
                if keep_directories and number == 0 and ".." not in target.split("/"):
                    return local
                raise IsADirectoryError(f"{link} is a symlink to the directory {path}; name that instead")
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

    def put_file(self, lpath, rpath, callback=None, mode="overwrite", **kwargs):
        """Sends a file, or the file that a symlink leads to. With `mode="create"`, `rpath` must not exist."""
        lpath, rpath = pathlib.Path(os.fspath(lpath)).resolve(strict=True), self._strip_protocol(rpath)
        if lpath.is_dir():
            return
        if mode == "create" and self.exists(rpath):
            raise FileExistsError(rpath)
        folder, _, name = rpath.rpartition("/")
        if not folder:
            raise PermissionError(f"{rpath}: the first part of a path is a grant; expected /GRANT/{name}")
        with millrace.send([lpath], [self._url(folder)], name=name, **self.options) as transfer:
            _finish(transfer, callback, rpath)

    def open(self, path, mode="rb", block_size=None, cache_options=None, compression=None, **kwargs):
        """Opens a file; after an error in its `with` block, a file that is written is not sent."""
        if "r" in mode:
            return super().open(path, mode, block_size, cache_options, compression, **kwargs)
        text = {key: kwargs.pop(key) for key in ("encoding", "errors", "newline") if key in kwargs}
        written = super().open(path, mode.replace("t", "").replace("b", "") + "b", block_size, cache_options, **kwargs)
        file = compr[get_compression(path, compression)](written, mode=mode[0])
        if "b" not in mode:
            file = io.TextIOWrapper(file, **text)
        return written if file is written else _Encoded(file, written)

    def _open(self, path, mode="rb", **kwargs):
        if mode == "rb":
            return _Fetched(self, path)
        if mode == "xb" and self.exists(path):
            raise FileExistsError(path)
        if mode in ("wb", "xb"):
            return _Written(self, path)
        raise NotImplementedError(f"mode {mode!r}: expected rb or wb; a daemon moves whole files")

    def makedirs(self, path, exist_ok=False):
        """Does nothing: directories are made when files come."""

    def mkdir(self, path, create_parents=True, **kwargs):
        """Does nothing: directories are made when files come."""

    def _rm(self, path, *_, **__):
        verbs = "its verbs are create, replace, read and list"
        raise NotImplementedError(f"{path}: a daemon removes, renames and copies nothing; {verbs}")

    rm_file = rmdir = cp_file = mv = _rm


class _Fetched:
    """A file that was fetched whole."""

    def __new__(cls, fs, path):
        path = fs._strip_protocol(path)
        if fs.isdir(path):
            raise IsADirectoryError(path)
        file = tempfile.TemporaryFile()
        with tempfile.TemporaryDirectory(prefix="millrace-open-") as folder:
            local = fs._fetch(path, folder)
            with open(local, "rb", opener=_no_follow) as source:
                shutil.copyfileobj(source, file)
        file.seek(0)
        return file


class _Written:
    """A file that is sent when it is closed; after an error in its `with` block it is not sent."""

    def __init__(self, fs, path):
        self._fs, self._path = fs, path
        self._folder = tempfile.TemporaryDirectory(prefix="millrace-open-")
        self._local = pathlib.Path(self._folder.name) / pathlib.PurePosixPath(path).name
        self._file = open(self._local, "wb")
        self._is_sent = True
        # The exception that is being handled, so that a later one is told from it.
        self._handled = sys.exc_info()[1]

    def __getattr__(self, name):
        return getattr(self._file, name)

    def discard(self):
        """Makes `close` send nothing."""
        self._is_sent = False

    def close(self):
        """Sends the file."""
        if self._file.closed:
            return
        self._file.close()
        try:
            if self._is_sent and not self._is_left_by_error():
                self._fs.put_file(self._local, self._path)
        finally:
            self._folder.cleanup()

    def _is_left_by_error(self):
        """Returns true while an `OpenFile`, as `fsspec.open` returns it, closes this file after an error in its `with` block.

        Its `__exit__` does not tell its files about the error. A file that an `except` clause closes is sent.
        """
        error = sys.exc_info()[1]
        if error is None or error is self._handled:
            return False
        frame = sys._getframe()
        while frame is not None:
            if frame.f_code is OpenFile.__exit__.__code__:
                return any(file is self for file in frame.f_locals["self"].fobjects)
            frame = frame.f_back
        return False

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            self.discard()
        self.close()


class _Encoded:
    """A text or compressed file over `_Written`, which is sent with it. A compressed file does not close the file below."""

    def __init__(self, file, written):
        self._file, self._written = file, written

    def __getattr__(self, name):
        return getattr(self._file, name)

    def close(self):
        """Writes the last bytes, and sends the file."""
        try:
            self._file.close()
        except BaseException:
            self._written.discard()
            raise
        finally:
            self._written.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            self._written.discard()
        self.close()


def _no_follow(path, flags):
    return os.open(path, flags | os.O_NOFOLLOW)


def _follow(path, target):
    """Returns the path to which a symlink at a daemon leads; it must be in the same grant."""
    at, names = path.strip("/").split("/")[:-1], [name for name in target.split("/") if name not in ("", ".")]
    while names[:1] == [".."]:
        at, names = at[:-1], names[1:]
    # No directory of the path is a symlink: the daemon follows none. Directories of the target before a `..` may be symlinks.
    if target.startswith("/") or not at or ".." in names:
        raise PermissionError(f"{path} is a symlink to {target}; expected a target within its grant")
    return "/" + "/".join(at + names)


def _finish(transfer, callback, path):
    """Passes progress on, and waits for the end."""
    for event in transfer:
        if callback is not None and event.event == "progress":
            callback.set_size(event.bytes)
            callback.absolute_update(event.verified_bytes)
    try:
        transfer.wait()
    except millrace.TransferError as error:
        raise _os_error(error, path) from error


def _os_error(error, path):
    """Returns the Python exception that corresponds to an error of the library."""
    text = str(error)
    if "has no grant" in text or "does not allow" in text or "name one" in text:
        return PermissionError(f"{path}: {text}")
    if "(os error 2)" in text or "No such file" in text:
        return FileNotFoundError(f"{path}: {text}")
    if "exists; allow files to be replaced" in text:
        return FileExistsError(f"{path}: {text}")
    return OSError(f"{path}: {text}")
