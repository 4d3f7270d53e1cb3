//! Tests of the engine without switches.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use millrace_ix_store::{Answer, IdempotencyKey, Sqlite, Store as _, UnixMillis};
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_millrace-ix");
/// A bound far above the time of any operation.
const PATIENCE: Duration = Duration::from_secs(60);

/// An engine in a folder of its own.
pub(crate) struct Engine {
    folder: TempDir,
    process: Option<Child>,
}

impl Engine {
    pub(crate) fn new() -> Engine {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let settings = format!(
            "[database]\npath = \"{}\"\n[openflow]\nlisten = [\"unix:{}\"]\n[control]\nsocket = \"{}\"\n",
            at("exchange.db"),
            at("openflow.sock"),
            at("control.sock"),
        );
        std::fs::write(folder.path().join("exchange.toml"), settings).unwrap();
        Engine {
            folder,
            process: None,
        }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn start(&mut self) {
        let process = Command::new(PROGRAM)
            .args(["serve", "--log", "info", "--config"])
            .arg(self.at("exchange.toml"))
            .stderr(
                File::options()
                    .append(true)
                    .create(true)
                    .open(self.at("log"))
                    .unwrap(),
            )
            .spawn()
            .unwrap();
        self.process = Some(process);
        let deadline = Instant::now() + PATIENCE;
        while !self.run(&["status"]).0 {
            let log = || std::fs::read_to_string(self.at("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "the engine does not answer: {}", log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends the engine with kill -9.
    pub(crate) fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Ends the engine by SIGTERM, after which it signs the audit chain.
    fn end(&mut self) {
        let mut process = self.process.take().unwrap();
        let ended = Command::new("kill")
            .arg(process.id().to_string())
            .status()
            .unwrap();
        assert!(ended.success() && process.wait().unwrap().success());
    }

    /// Runs a command; returns success and output.
    fn run(&self, arguments: &[&str]) -> (bool, String) {
        let output = Command::new(PROGRAM)
            .arg("--socket")
            .arg(self.at("control.sock"))
            .args(arguments)
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let (succeeded, text) = self.run(arguments);
        assert!(succeeded, "{arguments:?}: {text}");
        text
    }

    /// Copies between a database and a file in the folder by `backup` or `restore`; returns success and output.
    fn copy(&self, command: &str, file: &str, database: &str) -> (bool, String) {
        let (file, database) = (self.at(file), self.at(database));
        let [file, database] = [&file, &database].map(|path| path.to_str().unwrap());
        self.run(&[command, file, "--database", database])
    }

    /// Copies as [`copy`](Engine::copy) does, between the engine's database and `backup.db`, and returns the output.
    fn copied(&self, command: &str) -> String {
        let (succeeded, text) = self.copy(command, "backup.db", "exchange.db");
        assert!(succeeded, "{command}: {text}");
        text
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.kill();
        }
    }
}

const SITE: &str = r#"{"operation": "create_site", "name": "Otemachi"}"#;
const SWITCH: &str = r#"{"operation": "create_switch", "name": "ote-1", "site": "st-0", "dpid": "0000000000000001",
    "ports": [{"number": 1, "speed_mbps": 1000}]}"#;

const SWITCH_OF_SITE: &str = r#"{"operation": "create_switch", "name": "ote-1", "site": "st-1", "dpid": "0000000000000001",
    "ports": [{"number": 1, "speed_mbps": 1000}]}"#;

#[test]
fn orders_survive_kill_9_and_the_audit_chain_is_whole() {
    let mut engine = Engine::new();
    engine.start();
    let answer = engine.ok(&["order", SITE, SWITCH]);
    assert!(answer.contains("created st-1,sw-2"), "{answer}");
    engine.kill();
    engine.start();
    let status = engine.ok(&["status"]);
    assert!(
        status.contains("sw-2") && status.contains("disconnected"),
        "{status}"
    );
    let database = engine.at("exchange.db");
    let verified = engine.ok(&["audit", "verify", "--database", database.to_str().unwrap()]);
    assert!(verified.starts_with("valid: 1 entries"), "{verified}");
}

#[test]
fn a_chain_that_was_cut_back_is_valid_alone_and_not_beside_a_head_from_the_log() {
    let mut engine = Engine::new();
    let database = engine.at("exchange.db");
    let backup = engine.at("backup.db");
    let database = database.to_str().unwrap();
    engine.start();
    engine.ok(&["order", SITE]);
    engine.end();
    std::fs::copy(database, &backup).unwrap();
    engine.start();
    engine.ok(&["order", SWITCH_OF_SITE]);
    engine.end();
    // The log of the engine, as journalctl prints it.
    let log = engine.at("log");
    let (log, text) = (log.to_str().unwrap(), std::fs::read_to_string(&log).unwrap());
    assert_eq!(text.matches("audit head {").count(), 2, "{text}");
    let verify = |database: &str, more: &[&str]| {
        engine.run(&[&["audit", "verify", "--database", database], more].concat())
    };
    let (is_valid, whole) = verify(database, &["--head", log]);
    assert!(
        is_valid && whole.contains("valid: 2 entries") && whole.contains("2 heads from elsewhere"),
        "{whole}"
    );
    // The operator of the database puts the backup in its place.
    let backup = backup.to_str().unwrap();
    let (is_valid, cut) = verify(backup, &[]);
    assert!(is_valid && cut.contains("may have been removed"), "{cut}");
    let (is_valid, cut) = verify(backup, &["--head", log]);
    assert!(
        !is_valid && cut.contains("the chain ends at entry 1, and entry 2 was signed"),
        "{cut}"
    );
    // A head whose signature was changed proves nothing, and a file without a head neither.
    let forged = engine.at("forged");
    std::fs::write(&forged, text.replace("\"time\":", "\"time\":1")).unwrap();
    assert!(!verify(database, &["--head", forged.to_str().unwrap()]).0);
    std::fs::write(&forged, "no head\n").unwrap();
    let (is_valid, none) = verify(database, &["--head", forged.to_str().unwrap()]);
    assert!(!is_valid && none.contains("at least one line"), "{none}");
}

#[test]
fn an_order_with_the_same_key_is_executed_once() {
    let mut engine = Engine::new();
    engine.start();
    let first = engine.ok(&["--json", "order", "--key", "k1", SITE]);
    let second = engine.ok(&["--json", "order", "--key", "k1", SITE]);
    assert!(
        first.contains("\"repeated\": false") && second.contains("\"repeated\": true"),
        "{second}"
    );
    assert_eq!(engine.ok(&["objects", "st"]).matches("\"id\"").count(), 1);
    let (succeeded, text) = engine.run(&[
        "order",
        "--key",
        "k1",
        r#"{"operation": "create_site", "name": "Makuhari"}"#,
    ]);
    assert!(!succeeded && text.contains("another request"), "{text}");
}

#[test]
fn a_dry_run_and_a_refused_order_change_nothing() {
    let mut engine = Engine::new();
    engine.start();
    assert!(
        engine
            .ok(&["order", "--dry-run", SITE])
            .contains("nothing is written")
    );
    let (succeeded, text) = engine.run(&["order", SITE, SITE]);
    assert!(
        !succeeded && text.contains("operation 2 of 2") && text.contains("Otemachi"),
        "{text}"
    );
    assert_eq!(engine.ok(&["objects"]), "[]\n");
    assert!(engine.ok(&["changes"]).lines().count() == 1);
}

#[test]
fn a_second_engine_on_the_same_socket_is_refused() {
    let mut engine = Engine::new();
    engine.start();
    let second = Command::new(PROGRAM)
        .args(["serve", "--config"])
        .arg(engine.at("exchange.toml"))
        .output()
        .unwrap();
    let text = String::from_utf8(second.stderr).unwrap();
    assert!(
        !second.status.success() && text.contains("another millrace-ix"),
        "{text}"
    );
    engine.ok(&["order", SITE]);
}

#[test]
fn a_file_that_is_no_socket_is_neither_replaced_nor_removed() {
    let engine = Engine::new();
    std::fs::write(engine.at("control.sock"), "a list of members").unwrap();
    let output = Command::new(PROGRAM)
        .args(["serve", "--log", "error", "--config"])
        .arg(engine.at("exchange.toml"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && text.contains("control.socket"),
        "{text}"
    );
    let left = std::fs::read_to_string(engine.at("control.sock")).unwrap();
    assert_eq!(left, "a list of members");
}

#[test]
fn a_backup_is_written_while_the_engine_runs_and_restored_while_it_does_not() {
    let mut engine = Engine::new();
    engine.start();
    engine.ok(&["order", SITE]);
    let written = engine.copied("backup");
    assert!(written.contains("backup.db: revision "), "{written}");
    let (succeeded, text) = engine.copy("backup", "backup.db", "exchange.db");
    assert!(!succeeded && text.contains("exists"), "{text}");
    engine.ok(&["order", r#"{"operation": "create_site", "name": "Makuhari"}"#]);
    let (succeeded, text) = engine.copy("restore", "backup.db", "exchange.db");
    assert!(!succeeded && text.contains("stop the engine"), "{text}");
    engine.kill();
    let restored = engine.copied("restore");
    assert!(
        restored.contains("exchange.db: revision ") && restored.contains("before-restore"),
        "{restored}"
    );
    engine.start();
    let objects = engine.ok(&["objects", "st"]);
    assert!(
        objects.contains("Otemachi") && !objects.contains("Makuhari"),
        "{objects}"
    );
    let database = engine.at("exchange.db");
    let verified = engine.ok(&["audit", "verify", "--database", database.to_str().unwrap()]);
    assert!(verified.starts_with("valid: 1 entries"), "{verified}");
}

#[test]
fn a_damaged_database_is_found_at_the_start_with_the_way_to_restore_it() {
    let mut engine = Engine::new();
    engine.start();
    let sites: Vec<String> = (0..200)
        .map(|number| format!(r#"{{"operation": "create_site", "name": "site {number}"}}"#))
        .collect();
    let mut arguments = vec!["order"];
    arguments.extend(sites.iter().map(String::as_str));
    engine.ok(&arguments);
    let (database, backup) = (engine.at("exchange.db"), engine.at("backup.db"));
    engine.copied("backup");
    engine.kill();
    // The backup has all content in one file. Its middle is overwritten, as by a faulty disk, or everything is.
    let whole = std::fs::read(&backup).unwrap();
    let mut middle = whole.clone();
    let half = middle.len() / 2;
    middle[half..half + 8192].fill(0x5a);
    for damaged in [middle, b"a list of members".repeat(100)] {
        for suffix in ["-wal", "-shm"] {
            let _absent = std::fs::remove_file(engine.at(&format!("exchange.db{suffix}")));
        }
        std::fs::write(&database, &damaged).unwrap();
        let output = Command::new(PROGRAM)
            .args(["serve", "--log", "error", "--config"])
            .arg(engine.at("exchange.toml"))
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{text}");
        assert!(
            text.contains("exchange.db: the database is damaged") && text.contains("millrace-ix restore"),
            "{text}"
        );
        let (succeeded, text) = engine.copy("restore", "exchange.db", "elsewhere.db");
        assert!(
            !succeeded && text.contains("exchange.db"),
            "a damaged backup: {text}"
        );
    }
    engine.copied("restore");
    engine.start();
    assert_eq!(engine.ok(&["objects", "st"]).matches("\"id\"").count(), 200);
}

#[test]
fn a_clock_that_was_far_ahead_is_reset_while_the_engine_is_stopped() {
    let mut engine = Engine::new();
    engine.start();
    engine.ok(&["order", SITE]);
    let database = engine.at("exchange.db");
    let path = database.to_str().unwrap().to_owned();
    let reset = ["reset-clock", "--database", &path];
    let (succeeded, text) = engine.run(&reset);
    assert!(!succeeded && text.contains("stop the engine"), "{text}");
    engine.kill();
    let (succeeded, text) = engine.run(&reset);
    assert!(!succeeded && text.contains("not far ahead"), "{text}");
    // The clock stood in the year 2096 while the engine ran.
    let far = UnixMillis(4_000_000_000_000);
    let mut store = Sqlite::open(&database).unwrap();
    store.prune(far).unwrap();
    let key = IdempotencyKey {
        scope: "control".to_owned(),
        key: "k1".to_owned(),
    };
    let answer = Answer {
        request_hash: String::new(),
        body: serde_json::Value::Null,
    };
    store.put_answer(&key, &answer, far).unwrap();
    drop(store);
    engine.start();
    let status = engine.ok(&["status"]);
    assert!(status.contains("millrace-ix reset-clock"), "{status}");
    engine.kill();
    let mut store = Sqlite::open(&database).unwrap();
    store.put_credential("session/x", Some(b"{}")).unwrap();
    drop(store);
    let text = engine.ok(&reset);
    assert!(text.contains("the newest time was 2096-"), "{text}");
    engine.start();
    let status = engine.ok(&["status"]);
    assert!(!status.contains("ahead"), "{status}");
    let key = engine.ok(&[
        "order",
        "--key",
        "k1",
        r#"{"operation": "create_site", "name": "Makuhari"}"#,
    ]);
    assert!(key.contains("created st-2"), "the old answer is gone: {key}");
    let audit = engine.ok(&["audit", "export"]);
    assert!(audit.contains("reset_clock"), "{audit}");
    let verified = engine.ok(&["audit", "verify", "--database", &path]);
    assert!(verified.starts_with("valid: 3 entries"), "{verified}");
    engine.kill();
    let store = Sqlite::open(&database).unwrap();
    assert_eq!(store.credential("session/x").unwrap(), None);
}

#[test]
fn every_command_about_an_unknown_object_fails_and_names_it() {
    let mut engine = Engine::new();
    engine.start();
    engine.ok(&["order", SITE, SWITCH]);
    let file = engine.at("empty.toml");
    std::fs::write(&file, "").unwrap();
    let empty = file.to_str().unwrap();
    let port = r#"{"operation": "create_connection", "account": "ac-99", "name": "x", "kind": "standalone", "ports": ["sw-2:1"]}"#;
    let placeholder = r#"{"operation": "create_trunk", "name": "t", "kind": "vxlan", "ends": ["sw-0:1", "sw-2:1"], "cost": 1,
        "capacity_mbps": 1, "mtu": 1700}"#;
    let commands: &[(&[&str], &str)] = &[
        (&["accept", "sv-99"], "sv-99"),
        (&["delete", "cn-99"], "cn-99"),
        (&["objects", "cn-99"], "cn-99"),
        (&["objects", "zz"], "zz"),
        (
            &["check-filter", "ac-99", r#"{"destination": "192.0.2.1/32"}"#],
            "ac-99",
        ),
        (&["recheck", "ac-99"], "ac-99"),
        (&["journal", "999999"], "999999"),
        (&["confirm", "999999"], "999999"),
        (&["revert", "999999"], "999999"),
        (
            &["p2p", "x", "--account", "ac-99", "--a", "cn-98", "--b", "cn-99"],
            "ac-99",
        ),
        (&["order", port], "ac-99"),
        (&["order", placeholder], "sw-0"),
        (&["user", "password", "nobody"], "nobody"),
        (&["user", "totp", "nobody"], "nobody"),
        (&["plan", empty], "no objects"),
        (&["apply", empty], "no objects"),
    ];
    for (arguments, named) in commands {
        let output = Command::new(PROGRAM)
            .arg("--socket")
            .arg(engine.at("control.sock"))
            .args(*arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(text.contains(named), "{arguments:?}: {text}");
    }
    // A prefix without objects is an empty list.
    assert_eq!(engine.ok(&["objects", "cn"]), "[]\n");
}

#[test]
fn a_name_that_reads_like_a_placeholder_is_stored_as_it_is() {
    let mut engine = Engine::new();
    engine.start();
    let account =
        r#"{"operation": "create_account", "name": "st-0", "kind": "member", "external_ref": "st-0"}"#;
    engine.ok(&[
        "order",
        r#"{"operation": "create_site", "name": "Makuhari"}"#,
        account,
    ]);
    let accounts = engine.ok(&["objects", "ac"]);
    assert_eq!(accounts.matches("\"st-0\"").count(), 2, "{accounts}");
}

#[test]
fn a_port_of_a_switch_that_the_same_order_creates_is_named_by_its_placeholder() {
    let mut engine = Engine::new();
    engine.start();
    let account = r#"{"operation": "create_account", "name": "A", "kind": "member"}"#;
    let connection = r#"{"operation": "create_connection", "account": "ac-0", "name": "x", "kind": "standalone", "ports": ["sw-0:1"]}"#;
    engine.ok(&["order", SITE, SWITCH, account, connection]);
    let connections = engine.ok(&["objects", "cn"]);
    assert!(connections.contains("\"sw-2:1\""), "{connections}");
}

#[test]
fn a_log_in_a_file_has_no_colours() {
    let engine = Engine::new();
    let log = std::fs::File::create(engine.at("log")).unwrap();
    std::fs::write(engine.at("control.sock"), "").unwrap();
    let mut process = Command::new(PROGRAM)
        .args(["serve", "--log", "trace", "--config"])
        .arg(engine.at("exchange.toml"))
        .env_remove("NO_COLOR")
        .stderr(log)
        .spawn()
        .unwrap();
    let status = process.wait().unwrap();
    let text = std::fs::read_to_string(engine.at("log")).unwrap();
    assert!(!status.success() && text.contains("INFO"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
}
