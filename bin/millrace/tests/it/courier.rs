//! `millrace courier serve` as a program: many senders and readers at once, quotas, foreign keys, hostile paths, reload and drain.

use crate::kill::{Stopped, path};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const BOUND: Duration = Duration::from_secs(60);
/// Longer than any process of a test is stopped.
const SILENCE: [&str; 2] = ["--silence", "120s"];

fn millrace(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command.args(words).stdin(Stdio::null());
    command
}

fn text(output: &Output) -> String {
    [&output.stdout[..], &output.stderr]
        .map(String::from_utf8_lossy)
        .concat()
}

/// A daemon with one folder for each grant, and users that have identities.
struct Daemon {
    dir: tempfile::TempDir,
    child: Child,
    address: String,
    key: String,
    metrics: String,
}

impl Daemon {
    /// Starts a daemon. `grants`: TOML in which `DIR` stands for its directory and `KEY(name)` for the key of a user.
    fn start(grants: &str) -> Daemon {
        let dir = tempfile::tempdir().unwrap();
        for name in ["in", "out", "shared"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        write_config(dir.path(), grants);
        let mut child = millrace(&["--json", "courier", "serve", "--config"])
            .arg(dir.path().join("courier.toml"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let event: Value = serde_json::from_str(&line).expect("the daemon starts");
        let field = |name: &str| event[name].as_str().unwrap().to_owned();
        Daemon {
            address: field("address"),
            key: field("key"),
            metrics: field("metrics"),
            dir,
            child,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn url(&self, path: &str) -> String {
        format!("millrace://{}@{}/{path}", self.key, self.address)
    }

    /// Returns a command of a user.
    fn user(&self, user: &str, words: &[&str]) -> Command {
        let mut command = millrace(words);
        command.arg("--identity").arg(identity(self.dir.path(), user));
        command.env("XDG_CONFIG_HOME", self.dir.path().join("config"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn send(&self, user: &str, source: &Path, to: &str, more: &[&str]) -> Command {
        let mut command = self.user(user, &["send", path(source), &self.url(to)]);
        command.args(more);
        command
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Changes the configuration and waits until it is loaded.
    fn reload(&self, grants: &str) {
        let loaded = |metrics: &str| sample(metrics, "millrace_courier_reloads_total{result=\"success\"}");
        let before = loaded(&self.metrics());
        write_config(self.dir.path(), grants);
        self.signal(Signal::HUP);
        self.wait_for(|metrics| loaded(metrics) > before);
    }

    fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(&self.metrics).unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn wait_for(&self, wanted: impl Fn(&str) -> bool) {
        let until = Instant::now() + BOUND;
        loop {
            let metrics = self.metrics();
            if wanted(&metrics) {
                return;
            }
            assert!(Instant::now() < until, "{metrics}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn status(&self) -> Value {
        let output = millrace(&["--json", "courier", "status", "--socket"])
            .arg(self.path("state/courier.sock"))
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).expect("a status")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn identity(dir: &Path, user: &str) -> PathBuf {
    dir.join(format!("{user}.key"))
}

fn write_config(dir: &Path, grants: &str) {
    let mut text = String::new();
    for (index, part) in grants.split("KEY(").enumerate() {
        let Some((user, rest)) = part.split_once(')').filter(|_| index > 0) else {
            text += part;
            continue;
        };
        let output = millrace(&["courier", "key", "--identity"])
            .arg(identity(dir, user))
            .output()
            .unwrap();
        text += String::from_utf8(output.stdout).unwrap().trim();
        text += rest;
    }
    let text = text.replace("DIR", path(dir));
    let head = format!(
        "listen = \"127.0.0.1:0\"\nstate = \"{}/state\"\nmetrics = \"127.0.0.1:0\"\ndrain = \"120s\"\nsilence = \"120s\"\n",
        path(dir)
    );
    let new = dir.join("courier.toml.new");
    fs::write(&new, head + &text).unwrap();
    fs::rename(new, dir.join("courier.toml")).unwrap();
}

/// Returns the value of a sample.
fn sample(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0.0, |value| value.trim().parse().unwrap())
}

/// Makes a file in which no two extents are equal.
fn file(dir: &Path, name: &str, size: usize) -> PathBuf {
    let bytes: Vec<u8> = (0..size as u64)
        .map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect();
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    path
}

fn wait(child: Child) -> Output {
    child.wait_with_output().unwrap()
}

const THREE_USERS: &str = r#"
[[grant]]
name = "in"
keys = ["KEY(ann)", "KEY(bob)"]
directory = "DIR/in"
verbs = ["create", "replace", "list"]
[[grant]]
name = "out"
keys = ["KEY(ann)", "KEY(cat)"]
directory = "DIR/out"
verbs = ["read", "list"]
"#;

#[test]
fn senders_and_readers_are_served_at_once_and_counted() {
    let daemon = Daemon::start(THREE_USERS);
    let large = file(&daemon.path("out"), "2026/large", 3 << 20);
    file(&daemon.path("out"), "2026/small", 100);
    let sources = ["a", "b", "c"].map(|name| file(daemon.dir.path(), &format!("from/{name}"), 2 << 20));
    // Two names for one place, three writers and two readers.
    let children = [
        daemon
            .send("ann", &sources[0], "in/deep/er/", &[])
            .spawn()
            .unwrap(),
        daemon.send("bob", &sources[1], "in", &[]).spawn().unwrap(),
        daemon.send("bob", &sources[2], "", &[]).spawn().unwrap(),
    ];
    let readers = ["ann", "cat"].map(|user| {
        let to = daemon.path(&format!("to-{user}"));
        fs::create_dir(&to).unwrap();
        let words = ["receive", path(&to), "--from", &daemon.url("out/2026/")];
        daemon.user(user, &words).spawn().unwrap()
    });
    for child in children.into_iter().chain(readers) {
        let output = wait(child);
        assert!(output.status.success(), "{}", text(&output));
    }
    for (source, at) in sources.iter().zip(["in/deep/er/a", "in/b", "in/c"]) {
        assert!(
            fs::read(source).unwrap() == fs::read(daemon.path(at)).unwrap(),
            "{at}"
        );
    }
    for user in ["ann", "cat"] {
        assert!(fs::read(&large).unwrap() == fs::read(daemon.path(&format!("to-{user}/large"))).unwrap());
        assert_eq!(
            fs::read(daemon.path(&format!("to-{user}/small"))).unwrap().len(),
            100
        );
    }
    let list = |user: &str, at: &str| {
        text(
            &daemon
                .user(user, &["courier", "ls", &daemon.url(at)])
                .output()
                .unwrap(),
        )
    };
    assert!(list("ann", "").contains(" in\n") && list("ann", "").contains(" out\n"));
    assert!(
        list("bob", "in/deep").contains("directory er"),
        "{}",
        list("bob", "in/deep")
    );
    assert!(
        list("cat", "out/2026").contains("file      large"),
        "{}",
        list("cat", "out/2026")
    );
    let name = |direction: &str, grant: &str| {
        format!(
            "millrace_courier_transfers_total{{grant=\"{grant}\",direction=\"{direction}\",outcome=\"delivered\"}}"
        )
    };
    daemon.wait_for(|metrics| {
        sample(metrics, &name("write", "in")) == 3.0 && sample(metrics, &name("read", "out")) == 2.0
    });
    let metrics = daemon.metrics();
    let received = sample(&metrics, "millrace_courier_received_bytes_total{grant=\"in\"}");
    assert_eq!(received, f64::from(6 << 20), "{metrics}");
    let status = daemon.status();
    assert_eq!(status["grants"][0]["used_bytes"], 6 << 20, "{status}");
    let audit = fs::read_to_string(daemon.path("state/audit.jsonl")).unwrap();
    assert_eq!(
        audit
            .lines()
            .filter(|line| line.contains("\"outcome\":\"delivered\""))
            .count(),
        5,
        "{audit}"
    );
}

#[test]
fn a_daemon_that_was_read_or_listed_once_needs_no_key_again() {
    let daemon = Daemon::start(THREE_USERS);
    file(&daemon.path("out"), "a", 1_000);
    let without_key = |path: &str| format!("millrace://{}/{path}", daemon.address);
    let to = daemon.path("to");
    fs::create_dir(&to).unwrap();
    for (config, lists_first) in [("reads", false), ("lists", true)] {
        let run = |lists: bool, url: &str| {
            let words = match lists {
                true => vec!["courier", "ls", url],
                false => vec!["receive", path(&to), "--from", url],
            };
            let mut command = daemon.user("ann", &words);
            command.env("XDG_CONFIG_HOME", daemon.path(config));
            command.output().unwrap()
        };
        let unknown = run(lists_first, &without_key("out/"));
        assert!(!unknown.status.success(), "{}", text(&unknown));
        let given = run(lists_first, &daemon.url("out/"));
        assert!(given.status.success(), "{}", text(&given));
        for lists in [true, false] {
            let known = run(lists, &without_key("out/"));
            assert!(known.status.success(), "{config}: {}", text(&known));
        }
    }
}

fn limited(quota: &str, rate: &str) -> String {
    format!(
        "[[grant]]\nname = \"in\"\nkeys = [\"KEY(ann)\"]\ndirectory = \"DIR/in\"\nverbs = [\"create\", \"list\"]\n\
         quota_bytes = \"{quota}\"\nquota_files = 10\nrate = \"{rate}\"\n"
    )
}

#[test]
fn a_transfer_that_hits_the_quota_commits_nothing_and_goes_on_after_it_was_raised() {
    let daemon = Daemon::start(&limited("16MiB", "10Mbps"));
    let source = file(daemon.dir.path(), "from/large", 12 << 20);
    let started = Instant::now();
    let child = daemon.send("ann", &source, "in", &SILENCE).spawn().unwrap();
    let received = "millrace_courier_received_bytes_total{grant=\"in\"}";
    daemon.wait_for(|metrics| sample(metrics, received) >= f64::from(3 << 20));
    // 24 Mbit of payload at 10 Mbit/s.
    assert!(
        started.elapsed() > Duration::from_millis(2_200),
        "the rate of the grant holds"
    );
    // The quota is lowered before the sender has sent the rest, which takes it 7 s.
    let stopped = Stopped::new(&child);
    daemon.reload(&limited("5MiB", "80Mbps"));
    drop(stopped);
    let output = wait(child);
    assert_eq!(output.status.code(), Some(6), "{}", text(&output));
    assert!(
        text(&output).contains("quota of grant `in` reached"),
        "{}",
        text(&output)
    );
    assert!(!daemon.path("in/large").exists(), "nothing partial is committed");
    // The file does not fit; the sender is refused before it sends a byte.
    let output = daemon.send("ann", &source, "in", &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", text(&output));
    assert!(text(&output).contains("do not fit"), "{}", text(&output));
    daemon.reload(&limited("16MiB", "80Mbps"));
    let output = daemon.send("ann", &source, "in", &["--json"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let events = String::from_utf8(output.stdout).unwrap();
    let accepted: Value = events
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .find(|event: &Value| event["event"] == "accepted")
        .unwrap();
    assert!(accepted["present"].as_u64().unwrap() >= 1 << 20, "{accepted}");
    // The bytes that were there are not counted again. Those on their way at the refusal are sent twice.
    let counted = sample(&daemon.metrics(), received);
    assert!(counted < f64::from(14 << 20), "{counted}");
    assert!(fs::read(&source).unwrap() == fs::read(daemon.path("in/large")).unwrap());
    // Files count, too.
    let many = daemon.path("many");
    for index in 0..20 {
        file(&many, &index.to_string(), 10);
    }
    let output = daemon.send("ann", &many, "in", &[]).output().unwrap();
    assert!(
        output.status.code() == Some(4) && text(&output).contains("of 10 files"),
        "{}",
        text(&output)
    );
}

#[test]
fn the_rate_of_a_grant_holds_for_its_writers_and_readers_together() {
    let grant = "[[grant]]\nname = \"in\"\nkeys = [\"KEY(ann)\", \"KEY(bob)\"]\ndirectory = \"DIR/in\"\n\
                 verbs = [\"create\", \"read\"]\nrate = \"80Mbps\"\n";
    let daemon = Daemon::start(grant);
    let sources = ["a", "b"].map(|name| file(daemon.dir.path(), &format!("from/{name}"), 3 << 20));
    file(&daemon.path("in"), "there", 3 << 20);
    let to = daemon.path("to");
    fs::create_dir(&to).unwrap();
    let started = Instant::now();
    let children = [
        daemon.send("ann", &sources[0], "in", &[]).spawn().unwrap(),
        daemon.send("bob", &sources[1], "in", &[]).spawn().unwrap(),
        daemon
            .user("bob", &["receive", path(&to), "--from", &daemon.url("in/there")])
            .spawn()
            .unwrap(),
    ];
    let status = daemon.status();
    assert_eq!(status["grants"][0]["rate_limit_bps"], 80_000_000, "{status}");
    for child in children {
        let output = wait(child);
        assert!(output.status.success(), "{}", text(&output));
    }
    // 9 MiB of payload are 79.5 Mbit of packets. Each transfer alone takes a third of that time.
    let seconds = started.elapsed().as_secs_f64();
    assert!(seconds > 0.9, "{seconds} s");
    let limit = sample(
        &daemon.metrics(),
        "millrace_courier_rate_limit_bits_per_second{grant=\"in\"}",
    );
    assert_eq!(limit, 8e7);
}

#[test]
fn a_foreign_key_and_a_verb_that_is_not_granted_are_refused_by_name() {
    let daemon = Daemon::start(THREE_USERS);
    let source = file(daemon.dir.path(), "from/a", 1_000);
    file(&daemon.path("in"), "secret", 100);
    let to = daemon.path("to");
    fs::create_dir(&to).unwrap();
    let write = |user: &str, at: &str| daemon.send(user, &source, at, &[]).output().unwrap();
    let read = |user: &str, at: &str| {
        let words = ["receive", path(&to), "--from", &daemon.url(at)];
        daemon.user(user, &words).output().unwrap()
    };
    let list = |user: &str, at: &str| {
        daemon
            .user(user, &["courier", "ls", &daemon.url(at)])
            .output()
            .unwrap()
    };
    let cases = [
        (write("eve", "in"), 4, "has no grant here"),
        (read("eve", "out/2026"), 4, "has no grant here"),
        (list("eve", "out"), 1, "has no grant here"),
        (list("eve", ""), 1, "has no grant here"),
        (write("cat", "in"), 4, "has no grant `in`"),
        (read("bob", "out/2026"), 4, "has no grant `out`"),
        (list("cat", "in"), 1, "has no grant `in`"),
        (write("cat", "out"), 4, "does not allow create or replace"),
        (read("ann", "in/secret"), 4, "does not allow read"),
        (read("cat", "out/nothing"), 4, "nothing"),
    ];
    for (output, code, expected) in cases {
        assert!(text(&output).contains(expected), "{expected}: {}", text(&output));
        assert_eq!(output.status.code(), Some(code), "{expected}: {}", text(&output));
    }
    assert_eq!(fs::read_dir(daemon.path("out")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(&to).unwrap().count(), 0);
    let refusals = sample(
        &daemon.metrics(),
        "millrace_courier_refusals_total{reason=\"not_admitted\"}",
    );
    assert!(refusals >= 9.0, "{refusals}");
}

#[test]
fn no_path_leads_out_of_a_grant() {
    let daemon = Daemon::start(&THREE_USERS.replace("\"list\"]", "\"list\", \"read\", \"create\"]"));
    let source = file(daemon.dir.path(), "from/a", 1_000);
    file(daemon.dir.path(), "shared/secret", 100);
    symlink(daemon.path("shared"), daemon.path("in/link")).unwrap();
    symlink("../shared", daemon.path("in/relative")).unwrap();
    let to = daemon.path("to");
    fs::create_dir(&to).unwrap();
    let paths = [
        "in/../shared",
        "in/link",
        "in/link/deep",
        "in/relative/",
        "in/./x",
        "in//etc",
        "../in",
        "in/.millrace-0123",
        "in/link/../..",
    ];
    for at in paths {
        let sent = daemon.send("ann", &source, at, &[]).output().unwrap();
        assert!(!sent.status.success(), "{at}: {}", text(&sent));
        let words = ["courier", "ls", &daemon.url(at)];
        let listed = daemon.user("ann", &words).output().unwrap();
        assert!(!text(&listed).contains("secret"), "{at}: {}", text(&listed));
        let words = ["receive", path(&to), "--from", &daemon.url(at)];
        let read = daemon.user("ann", &words).output().unwrap();
        for entry in fs::read_dir(&to).unwrap().flatten() {
            assert!(
                entry.file_type().unwrap().is_symlink(),
                "{at}: {entry:?} {}",
                text(&read)
            );
        }
    }
    // A link itself is an entry like any other, and what it points to is not read.
    assert_eq!(fs::read_link(to.join("link")).unwrap(), daemon.path("shared"));
    let names = |folder: &str| fs::read_dir(daemon.path(folder)).unwrap().count();
    assert_eq!((names("shared"), names("in")), (1, 2));
}

#[test]
fn a_daemon_that_ends_lets_running_transfers_end_and_admits_no_other() {
    let grants =
        |rate: &str| THREE_USERS.replace("\"list\"]\n[[", &format!("\"list\"]\nrate = \"{rate}\"\n[["));
    let mut daemon = Daemon::start(&grants("2Mbps"));
    // A configuration that is not valid changes nothing.
    write_config(daemon.dir.path(), "[[grant]]\nname = \"in\"\n");
    daemon.signal(Signal::HUP);
    let failed = "millrace_courier_reloads_total{result=\"failure\"}";
    daemon.wait_for(|metrics| sample(metrics, failed) == 1.0);
    let source = file(daemon.dir.path(), "from/a", 6 << 20);
    let running = daemon.send("ann", &source, "in", &SILENCE).spawn().unwrap();
    let received = "millrace_courier_received_bytes_total{grant=\"in\"}";
    daemon.wait_for(|metrics| sample(metrics, received) > 0.0);
    // All of it takes 25 s. The transfer does not end while its sender is stopped.
    let stopped = Stopped::new(&running);
    daemon.reload(&grants("80Mbps"));
    daemon.signal(Signal::TERM);
    daemon.wait_for(|metrics| sample(metrics, "millrace_courier_draining") == 1.0);
    assert_eq!(daemon.status()["draining"], true);
    let late = daemon.send("bob", &source, "in", &[]).output().unwrap();
    assert!(
        late.status.code() == Some(4) && text(&late).contains("about to end"),
        "{}",
        text(&late)
    );
    drop(stopped);
    let output = wait(running);
    assert!(output.status.success(), "{}", text(&output));
    assert!(fs::read(&source).unwrap() == fs::read(daemon.path("in/a")).unwrap());
    assert!(daemon.child.wait().unwrap().success());
    assert!(!daemon.path("state/courier.sock").exists());
}
