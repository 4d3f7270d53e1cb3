//! Successful and failed starts of the daemon, over a store of its own and without DPDK.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_api::client::{ChangeOptions, Client};
use millrace_model::Config;
use millrace_store::{Note, Proposal, RevisionNo, Store, UnixTime};
use parking_lot::Mutex;

/// A configuration with one bridge, and a REST API on a socket in the folder of the site; `@` is replaced by the
/// folder.
pub(crate) const GOOD: &str = "[api]\nsocket = \"@/api.sock\"\n[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"p1\"\n\
    number = 1\ndevice = \"memory\"\n";

/// A directory with a configuration file and a store.
pub(crate) struct Site {
    directory: tempfile::TempDir,
    file: PathBuf,
}

/// A running daemon, killed on drop.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) client: Client,
    /// The log until the API was ready.
    pub(crate) startup_log: String,
    /// The log after that.
    later: Arc<Mutex<String>>,
}

impl Daemon {
    /// Returns the log since the start as soon as it satisfies `is_enough`.
    pub(crate) fn wait_for_log(&self, is_enough: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let log = self.later.lock().clone();
            if is_enough(&log) {
                return log;
            }
            assert!(Instant::now() < end, "the log after 60 s: {log}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Site {
    pub(crate) fn new(text: &str) -> Site {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("switch.toml");
        let site = Site { directory, file };
        site.write(text);
        site
    }

    /// Returns the text of a configuration, with the folder of this site.
    fn filled(&self, text: &str) -> String {
        text.replace('@', self.directory.path().to_str().unwrap())
    }

    fn config(&self, text: &str) -> Config {
        Config::from_toml("t.toml", &self.filled(text)).unwrap()
    }

    pub(crate) fn state_dir(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn write(&self, text: &str) {
        std::fs::write(&self.file, self.filled(text)).unwrap();
    }

    pub(crate) fn command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millraced"));
        command.arg("--no-dpdk").arg("--config").arg(&self.file);
        command.args(options).stdin(Stdio::null());
        command
    }

    /// Starts the daemon, and returns it when the API is ready, or else its output.
    pub(crate) fn start(&self, options: &[&str]) -> Result<Daemon, String> {
        let mut command = self.command(options);
        command.arg("--state-dir").arg(self.state_dir());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut output = String::new();
        let mut address = None;
        for line in lines.by_ref() {
            let line = line.unwrap();
            if let Some((_, found)) = line.split_once("REST API socket=") {
                address = found.split(' ').next().map(str::to_owned);
            }
            output += &(line + "\n");
            if address.is_some() {
                break;
            }
        }
        let Some(address) = address else {
            assert_eq!(child.wait().unwrap().code(), Some(1), "{output}");
            return Err(output);
        };
        // An unread pipe would fill and block the daemon.
        let later = Arc::new(Mutex::new(String::new()));
        let log = Arc::clone(&later);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                log.lock().push_str(&(line + "\n"));
            }
        });
        let client = Client::new(&format!("unix:{address}"), None, None).unwrap();
        Ok(Daemon {
            child,
            client,
            startup_log: output,
            later,
        })
    }

    fn fails(&self, options: &[&str]) -> String {
        match self.start(options) {
            Ok(daemon) => panic!("it started: {}", daemon.startup_log),
            Err(output) => output,
        }
    }

    fn store(&self) -> Store {
        Store::open(self.state_dir(), UnixTime(1)).unwrap()
    }

    /// Runs `--check`; returns its success and its output.
    pub(crate) fn check(&self) -> (bool, String) {
        let output = self.command(&["--check"]).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    }
}

#[track_caller]
pub(crate) fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_change_that_the_next_start_would_fail_for_is_refused() {
    let site = Site::new(GOOD);
    let daemon = site.start(&[]).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (instead, pointer) in [
        (
            "[api]\nsocket = \"@/api.sock\"\nlisten = \"127.0.0.1:0\"\ntoken_file = \"/nope\"".to_owned(),
            "/api/token_file: /nope: ",
        ),
        (
            "[api]\nsocket = \"@/api.sock\"\nlisten = \"127.0.0.1:0\"\ntls_cert = \"/nope\"\ntls_key = \"/nope\"".to_owned(),
            "/api/tls_cert: /nope: ",
        ),
        (
            "[system]\nstate_dir = \"/elsewhere\"\n[api]\nsocket = \"@/api.sock\"".to_owned(),
            "/system/state_dir: /elsewhere: a change does not move the store",
        ),
        (
            format!("[api]\nsocket = \"@/api.sock\"\nlisten = \"{taken}\""),
            "/api/listen: ",
        ),
        (
            "[api]\nsocket = \"@/no/such/api.sock\"".to_owned(),
            "/api/socket: ",
        ),
        (
            "[system]\nworker_cores = [900]\n[api]\nsocket = \"@/api.sock\"".to_owned(),
            "/system/worker_cores/0: there is no core 900",
        ),
    ] {
        let changed = site.config(&GOOD.replace("[api]\nsocket = \"@/api.sock\"", &instead));
        for dry_run in [true, false] {
            let options = ChangeOptions {
                dry_run,
                ..ChangeOptions::default()
            };
            let refused = daemon.client.replace_config(&changed.to_json(), None, &options);
            has(&refused.unwrap_err().to_string(), &[pointer]);
        }
    }
    assert_eq!(daemon.client.config().unwrap().1, 1);
    drop(daemon);
    has(
        &site.start(&[]).unwrap().startup_log,
        &["configuration file unchanged"],
    );
}

#[test]
fn a_revision_that_does_not_start_is_named_and_another_is_started_with() {
    let site = Site::new(GOOD);
    drop(site.start(&[]).unwrap());
    // A revision as committed on a machine with more cores, or by a daemon without this check.
    let proposal = Proposal {
        expected: None,
        config: site.config(&format!("[system]\nworker_cores = [900]\n{GOOD}")),
        note: Note::new("alice", "more cores"),
    };
    site.store().commit(proposal, UnixTime(1_700_000_000)).unwrap();

    let output = site.fails(&[]);
    has(
        &output,
        &[
            "cannot be bound to core 900",
            "The start used revision 2 of the store in ",
            "switch.toml: the file is unchanged since its last import",
            "add `--revision 1` to the options of millraced once",
            "2  2023-11-14 22:13:20Z  alice  more cores",
        ],
    );
    has(
        &site.fails(&["--revision", "7"]),
        &["revision 7 does not exist: the store holds 0 to 2"],
    );
    assert_eq!(site.store().head().revision.number, RevisionNo(2));

    let daemon = site.start(&["--revision", "1"]).unwrap();
    assert_eq!(daemon.client.config().unwrap().1, 3);
    drop(daemon);
    let daemon = site.start(&[]).unwrap();
    assert_eq!(daemon.client.config().unwrap().1, 3);
    // Bridges are created after the API is ready.
    daemon.wait_for_log(|log| log.contains("configuration applied"));
    assert_eq!(daemon.client.bridges().unwrap().len(), 1);
}

#[test]
fn a_file_that_does_not_start_is_not_imported() {
    let bad = format!("[system]\nworker_cores = [900]\n{GOOD}");
    let site = Site::new(&bad);
    has(
        &site.fails(&[]),
        &["switch.toml, which is not imported", "stays at revision 0"],
    );
    site.write(GOOD);
    has(
        &site.start(&[]).unwrap().startup_log,
        &["configuration file imported"],
    );
    site.write(&GOOD.replace("[api]", "[api]\nlisten = \"127.0.0.1:0\"\ntoken_file = \"/nope\""));
    has(&site.fails(&[]), &["/nope", "stays at revision 1"]);
    site.write(GOOD);
    has(
        &site.start(&[]).unwrap().startup_log,
        &["configuration file unchanged"],
    );
    assert_eq!(site.store().head().revision.number, RevisionNo(1));
}

#[test]
fn a_file_that_removes_bridges_says_so_when_it_is_imported() {
    let site = Site::new(GOOD);
    let output = site.start(&[]).unwrap().startup_log.clone();
    assert!(!output.contains("WARN"), "{output}");
    site.write("# nothing\n[api]\nsocket = \"@/api.sock\"\n");
    let output = site.start(&[]).unwrap().startup_log.clone();
    has(
        &output,
        &[
            "WARN",
            "removes=\"bridge br0\"",
            "`millrace rollback 1` restores them",
        ],
    );
}

#[test]
fn a_check_counts_what_there_is_and_places_what_the_machine_lacks() {
    let site = Site::new(GOOD);
    let (passes, output) = site.check();
    assert!(passes, "{output}");
    has(&output, &["switch.toml: a valid configuration: 1 bridge, 1 port"]);
    site.write("# nothing\n");
    assert!(
        site.check()
            .1
            .ends_with("a valid configuration: 0 bridges, 0 ports\n")
    );
    site.write(&format!("[system]\nworker_cores = [0,\n  900]\n{GOOD}"));
    let (passes, output) = site.check();
    assert!(!passes, "{output}");
    has(
        &output,
        &["switch.toml:3:3: system.worker_cores[1]: there is no core 900"],
    );
}

#[test]
fn the_service_manager_learns_that_the_configuration_runs_and_that_the_daemon_ends() {
    let site = Site::new(GOOD);
    let path = site.state_dir().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let message = || {
        let mut bytes = [0; 64];
        let size = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..size]).into_owned()
    };
    let mut command = site.command(&["--state-dir"]);
    let command = command.arg(site.state_dir()).env("NOTIFY_SOCKET", &path);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    assert_eq!(message(), "READY=1");
    let client = Client::new(
        &format!("unix:{}/api.sock", site.state_dir().display()),
        None,
        None,
    )
    .unwrap();
    assert_eq!(client.ports("br0").unwrap().len(), 1);
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(message(), "STOPPING=1");
    assert!(child.wait().unwrap().success());
}
