"""The Python package over the C library: transfers with progress, errors by name, and the fsspec file system against a daemon."""

import concurrent.futures
import functools
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from switches import TARGET

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = next((path for path in (TARGET / "deps/libmillrace_transfer.so", TARGET / "libmillrace_transfer.so") if path.exists()), None)
if LIBRARY is None:
    pytest.skip("libmillrace_transfer.so is not built (cargo build -p millrace-capi)", allow_module_level=True)
os.environ.setdefault("MILLRACE_LIBRARY", str(LIBRARY))
sys.path.insert(0, str(ROOT / "python"))

import millrace  # noqa: E402


@pytest.fixture(autouse=True)
def configuration(tmp_path, monkeypatch):
    """A configuration directory of this test: known receivers of others are not known here."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def daemon(tmp_path):
    """A daemon with a grant to write and read, and one to read; returns host, key and the folder of both."""
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    user = millrace.key(identity=tmp_path / "user.key")
    config = tmp_path / "courier.toml"
    config.write_text(
        f"""listen = "127.0.0.1:0"
state = "{tmp_path}/state"
[[grant]]
name = "in"
keys = ["{user}"]
directory = "{tmp_path}/in"
verbs = ["create", "read", "list"]
[[grant]]
name = "out"
keys = ["{user}"]
directory = "{tmp_path}/out"
verbs = ["read", "list"]
"""
    )
    words = [TARGET / "millrace", "--json", "courier", "serve", "--config", config]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        listening = json.loads(process.stdout.readline())
        yield listening["address"], listening["key"], tmp_path
    finally:
        process.kill()
        process.wait()


def test_a_transfer_is_an_iterator_over_its_events(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "data").write_bytes(os.urandom(3 << 20))
    receiver = millrace.receive(tmp_path / "in", identity=tmp_path / "b.key", listen="127.0.0.1:0")
    listening = receiver.next_event(timeout=60)
    assert listening.event == "listening" and listening.text.startswith("mr1")
    with pytest.raises(TimeoutError):
        receiver.next_event(timeout=0.01)
    with millrace.send([tmp_path / "data"], [listening.text], identity=tmp_path / "a.key", rate_bps=20_000_000) as sender:
        assert sender.fileno() >= 0
        events = list(sender)
        sender.wait()
    receiver.wait()
    assert {"accepted", "progress", "file", "done"} <= {event.event for event in events}
    progress = [event.verified_bytes for event in events if event.event == "progress"]
    assert progress == sorted(progress) and events[-1].fields["outcome"] == "delivered"
    assert (tmp_path / "in" / "data").read_bytes() == (tmp_path / "data").read_bytes()


def test_errors_say_what_failed_and_how_it_can_go_on(tmp_path, daemon):
    host, key, folder = daemon
    with pytest.raises(millrace.TransferError, match="no such file"):
        millrace.send([tmp_path / "no such file"], ["mr1abc"])
    (tmp_path / "data").write_bytes(b"x")
    with pytest.raises(millrace.TransferError, match="has no grant") as refused:
        millrace.send([tmp_path / "data"], [f"millrace://{key}@{host}/in/"], identity=folder / "foreign.key").wait()
    assert (refused.value.status, refused.value.name) == (4, "refused")
    transfer = millrace.receive(tmp_path, identity=folder / "b.key", listen="127.0.0.1:0")
    transfer.cancel()
    with pytest.raises(millrace.TransferError) as cancelled:
        transfer.wait()
    assert cancelled.value.name == "resumable" and str(cancelled.value) == "stopped before any transfer began"


def test_a_file_system_reads_writes_and_lists_the_grants(tmp_path, daemon):
    fsspec = pytest.importorskip("fsspec")
    from millrace.fs import MillraceFileSystem

    fsspec.register_implementation("millrace", MillraceFileSystem, clobber=True)
    host, key, folder = daemon
    fs = fsspec.filesystem("millrace", host=host, key=key, identity=str(folder / "user.key"))
    (folder / "out" / "run7" / "deep").mkdir(parents=True)
    (folder / "out" / "run7" / "a.h5").write_bytes(os.urandom(500_000))
    (folder / "out" / "run7" / "deep" / "b").write_bytes(b"bytes")
    assert sorted(fs.ls("/", detail=False)) == ["/in", "/out"]
    assert sorted(fs.ls("/out/run7", detail=False)) == ["/out/run7/a.h5", "/out/run7/deep"]
    assert fs.info("/out/run7/a.h5")["size"] == 500_000 and fs.isdir("/out/run7/deep")
    assert sorted(fs.find("/out")) == ["/out/run7/a.h5", "/out/run7/deep/b"]
    with fs.open("/out/run7/a.h5", "rb") as file:
        assert file.read() == (folder / "out" / "run7" / "a.h5").read_bytes()
    assert fs.cat_file("/out/run7/deep/b", start=1, end=3) == b"yt"

    callback = fsspec.callbacks.Callback()
    (tmp_path / "local").write_bytes(os.urandom(200_000))
    fs.put_file(str(tmp_path / "local"), "/in/2026/renamed", callback=callback)
    assert (folder / "in" / "2026" / "renamed").read_bytes() == (tmp_path / "local").read_bytes()
    with fs.open("/in/written", "wb") as file:
        file.write(b"all of it")
    assert (folder / "in" / "written").read_bytes() == b"all of it"
    with pytest.raises(ZeroDivisionError), fs.open("/in/not-written", "wb") as file:
        file.write(b"half of it")
        1 / 0  # noqa: B018
    with pytest.raises(ZeroDivisionError), fs.open("/in/not-written", "w") as file:
        file.write("half of it")
        1 / 0  # noqa: B018
    with fs.open("/in/text", "w") as file:
        file.write("all of it\n")
    assert (folder / "in" / "text").read_text() == "all of it\n"
    with pytest.raises(FileExistsError):
        fs.open("/in/text", "xb")
    with pytest.raises(FileExistsError):
        fs.put_file(str(tmp_path / "local"), "/in/text", mode="create")
    (tmp_path / "link").symlink_to("local")
    fs.put_file(str(tmp_path / "link"), "/in/linked")
    assert not (folder / "in" / "linked").is_symlink()
    assert (folder / "in" / "linked").read_bytes() == (tmp_path / "local").read_bytes()
    fs.get("/out/run7", str(tmp_path / "got"), recursive=True)
    assert (tmp_path / "got" / "deep" / "b").read_bytes() == b"bytes"

    assert not (folder / "in" / "not-written").exists()
    with pytest.raises(PermissionError):
        fs.put_file(str(tmp_path / "local"), "/out/x")
    with pytest.raises(FileExistsError):
        fs.put_file(str(tmp_path / "local"), "/in/written")
    with pytest.raises(FileNotFoundError):
        fs.info("/out/run7/nothing")
    for refused in (
        lambda: fs.rm("/in/written"),
        lambda: fs.rmdir("/in/2026"),
        lambda: fs.mv("/in/written", "/in/moved"),
        lambda: fs.rename("/in/written", "/in/moved", recursive=True),
        lambda: fs.copy("/in/written", "/in/copied"),
    ):
        with pytest.raises(NotImplementedError, match="removes, renames and copies nothing"):
            refused()


def test_a_compressed_file_is_sent_when_it_is_closed_and_not_after_an_error(tmp_path, daemon):
    fsspec = pytest.importorskip("fsspec")
    from millrace.fs import MillraceFileSystem

    fsspec.register_implementation("millrace", MillraceFileSystem, clobber=True)
    host, key, folder = daemon
    fs = fsspec.filesystem("millrace", host=host, key=key, identity=str(folder / "user.key"))
    for compression, name in (("gzip", "a"), ("bz2", "b"), ("infer", "c.xz"), ("infer", "plain"), ("zip", "d")):
        with fs.open(f"/in/{name}", "wb", compression=compression) as file:
            file.write(b"all of it")
        with fs.open(f"/in/{name}", "rb", compression=compression) as file:
            assert file.read() == b"all of it", name
        with pytest.raises(ZeroDivisionError), fs.open(f"/in/half-{name}", "wb", compression=compression) as file:
            file.write(b"half of it")
            1 / 0  # noqa: B018
    file = fs.open("/in/text.gz", "wt", compression="gzip", encoding="utf-16")
    file.write("all of it")
    file.close()
    with fs.open("/in/text.gz", "rt", compression="gzip", encoding="utf-16") as file:
        assert file.read() == "all of it"
    assert not list((folder / "in").glob("half-*"))


def test_a_file_that_fsspec_opens_is_not_sent_after_an_error(tmp_path, daemon):
    fsspec = pytest.importorskip("fsspec")
    from millrace.fs import MillraceFileSystem

    fsspec.register_implementation("millrace", MillraceFileSystem, clobber=True)
    host, key, folder = daemon
    options = {"identity": str(folder / "user.key")}
    url = f"millrace://{key}@{host}/in"
    for mode, compression, bytes_of in (("wb", None, str.encode), ("w", None, str), ("wb", "gzip", str.encode), ("w", "gzip", str)):
        name = f"{mode}-{compression}"
        with pytest.raises(ZeroDivisionError), fsspec.open(f"{url}/half-{name}", mode, compression, **options) as file:
            file.write(bytes_of("half of it"))
            1 / 0  # noqa: B018
        try:
            1 / 0  # noqa: B018
        except ZeroDivisionError:
            # The file has nothing to do with the error that is being handled.
            with fsspec.open(f"{url}/whole-{name}", mode, compression, **options) as file:
                file.write(bytes_of("all of it"))
        with fsspec.open(f"{url}/whole-{name}", "rb", compression, **options) as file:
            assert file.read() == b"all of it"
    file = fsspec.open(f"{url}/handled", "wb", **options).open()
    try:
        file.write(b"all of it")
        1 / 0  # noqa: B018
    except ZeroDivisionError:
        file.close()
    assert (folder / "in" / "handled").read_bytes() == b"all of it"
    assert not list((folder / "in").glob("half-*"))


def test_only_an_error_about_a_missing_file_is_one():
    pytest.importorskip("fsspec")
    from millrace.fs import _os_error

    for number, kind in ((2, FileNotFoundError), (28, OSError)):
        error = _os_error(millrace.TransferError(f"the receiver: a: text (os error {number})"), "/in/a")
        assert type(error) is kind


def test_a_wait_ends_at_a_signal(tmp_path):
    program = """if True:
        import millrace, sys
        transfer = millrace.receive(sys.argv[1], identity=sys.argv[2], listen="127.0.0.1:0")
        try:
            print(transfer.next_event().event, flush=True)
            transfer.wait()
        except KeyboardInterrupt:
            sys.exit(7)
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    words = [sys.executable, "-c", program, tmp_path, tmp_path / "a.key"]
    # A shell starts jobs in the background with SIGINT ignored, and their children inherit that.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, env=environment, text=True, preexec_fn=heed)
    try:
        assert process.stdout.readline() == "listening\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 7
    finally:
        process.kill()
        process.wait()


def test_a_symlink_is_followed_at_the_daemon_within_its_grant_and_never_here(tmp_path, daemon):
    fsspec = pytest.importorskip("fsspec")
    from millrace.fs import MillraceFileSystem

    fsspec.register_implementation("millrace", MillraceFileSystem, clobber=True)
    host, key, folder = daemon
    fs = fsspec.filesystem("millrace", host=host, key=key, identity=str(folder / "user.key"))
    out = folder / "out"
    (out / "run7").mkdir(parents=True)
    (out / "run7" / "a").write_bytes(b"honest")
    mine = tmp_path / "mine"
    mine.write_bytes(b"a file of this machine")
    for name, target in {
        "near": "run7/a",
        "run7/far": "../near",
        "latest": "run7",
        "absolute": str(mine),
        "outside": "../in/x",
        "round": "run7/../near",
        "loop": "loop",
        "nothing": "missing",
    }.items():
        (out / name).symlink_to(target)
    assert fs.cat_file("/out/near") == b"honest"
    with fs.open("/out/run7/far") as file:
        assert file.read() == b"honest"
    for name, error in {
        "absolute": PermissionError,
        "outside": PermissionError,
        "round": PermissionError,
        "loop": OSError,
        "nothing": FileNotFoundError,
        "latest": IsADirectoryError,
        "run7": IsADirectoryError,
    }.items():
        with pytest.raises(error):
            fs.cat_file(f"/out/{name}")
        if name not in ("latest", "run7"):
            with pytest.raises(error):
                fs.get_file(f"/out/{name}", str(tmp_path / "got"))
            assert not os.path.lexists(tmp_path / "got")
    fs.get_file("/out/near", str(tmp_path / "near"))
    assert not (tmp_path / "near").is_symlink() and (tmp_path / "near").read_bytes() == b"honest"
    fs.get_file("/out/latest", str(tmp_path / "latest"))
    assert os.readlink(tmp_path / "latest") == "run7"


def test_a_file_is_put_under_other_names_as_it_is(tmp_path, daemon):
    fsspec = pytest.importorskip("fsspec")
    from millrace.fs import MillraceFileSystem

    fsspec.register_implementation("millrace", MillraceFileSystem, clobber=True)
    host, key, folder = daemon
    fs = fsspec.filesystem("millrace", host=host, key=key, identity=str(folder / "user.key"))
    local = tmp_path / "local"
    local.write_bytes(os.urandom(3 << 20))
    before = local.stat()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        names = ["/in/first", "/in/second"]
        list(pool.map(lambda name: fs.put_file(str(local), name), names))
    for name in names:
        assert (folder / name.lstrip("/")).read_bytes() == local.read_bytes()
    after = local.stat()
    assert (after.st_ctime_ns, after.st_nlink) == (before.st_ctime_ns, 1), "its version is what it was"
    with pytest.raises(millrace.TransferError, match="without a slash"):
        millrace.send([local], [f"millrace://{key}@{host}/in/"], name="a/b")


def test_a_daemon_that_was_reached_once_needs_no_key_again(tmp_path, daemon):
    host, key, folder = daemon
    (folder / "out" / "a").write_bytes(b"bytes")
    identity = folder / "user.key"
    known = tmp_path / "config" / "millrace" / "known_receivers"
    for reach in (
        lambda url: millrace.listdir(url, identity=identity),
        lambda url: millrace.fetch(url + "a", tmp_path, identity=identity).wait(),
    ):
        with pytest.raises(millrace.TransferError):
            reach(f"millrace://{host}/out/")
        reach(f"millrace://{key}@{host}/out/")
        reach(f"millrace://{host}/out/")
        known.unlink()
    millrace.send([folder / "out" / "a"], [f"millrace://{key}@{host}/in/"], identity=identity).wait()
    assert known.read_text() == f"{host} {key}\n"
