//! `kill -9` at random moments: acknowledged changes are present afterwards, and no change is partial. The killed
//! process is a child that runs this test program.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use millrace_model::{Bridge, Config, MacTableSize, Port, PortName};
use millrace_store::{Note, Operation, Origin, Proposal, Retention, RevisionNo, Store, UnixTime};
use millrace_types::PortNo;

const NOW: UnixTime = UnixTime(1_700_000_000);
const DIRECTORY: &str = "MILLRACE_STORE_KILL_TEST";
const ROUNDS: u64 = 60;
/// A bound far above the time of any operation.
const PATIENCE: Duration = Duration::from_secs(60);
/// Small limits, so that some kills occur during the removal of old revisions.
const RETENTION: Retention = Retention {
    revisions: 40,
    machine_revisions: 40,
    bytes: 64 << 20,
};

/// Returns true if the change with this number is one of people.
fn is_local(number: u64) -> bool {
    number.is_multiple_of(5)
}

/// Returns a configuration whose bridge br0 belongs to people and br1 to a machine. Each contains the number of the last
/// change of its owner in several values, so that a mixture of two changes is detected.
fn content(number: u64) -> Config {
    let last = |local: bool| (1..=number).rev().find(|number| is_local(*number) == local);
    let mut config = Config::default();
    for (name, local) in [("br0", true), ("br1", false)] {
        let Some(number) = last(local) else { continue };
        let mut bridge = Bridge::new(name.parse().unwrap());
        bridge.mac_table_size = MacTableSize::new(100 + u32::try_from(number % 100_000).unwrap()).unwrap();
        for port in 1..=u32::try_from(number % 7).unwrap() {
            let name: PortName = format!("p{port}").parse().unwrap();
            bridge.ports.push(Port::new(
                name,
                PortNo::ordinary(port).unwrap(),
                "memory".parse().unwrap(),
            ));
        }
        config.bridges.push(bridge);
    }
    config
}

#[test]
#[ignore = "the child of the test below"]
fn child() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let store = Store::open_with(Path::new(&directory), RETENTION, NOW).unwrap();
    let mut out = std::io::stdout().lock();
    loop {
        let expected = store.head().revision.number;
        let config = content(expected.0 + 1);
        let proposal = Proposal {
            expected: Some(expected),
            config,
            note: match is_local(expected.0 + 1) {
                true => Note::new("child", ""),
                false => Note::new("child", "").of(Origin::OVSDB).external(expected.0 + 1),
            },
        };
        let revision = if expected.0.is_multiple_of(3) {
            let revision = store.commit_confirm(proposal, NOW.plus(1000), NOW).unwrap();
            store
                .confirm(Some(revision.number), &Note::default(), NOW)
                .unwrap()
        } else {
            store.commit(proposal, NOW).unwrap()
        };
        writeln!(out, "acknowledged {}", revision.number).unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn a_killed_process_loses_no_acknowledged_revision_and_shows_no_half_of_one() {
    let directory = tempfile::tempdir().unwrap();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(std::process::id());
    let mut last_head = 0;
    for round in 0..ROUNDS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::child", "--ignored", "--nocapture"])
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let (tell, told) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            // A truncated line yields a smaller number: a weaker claim, but not a false one.
            let mut acknowledged = None;
            for line in lines.lines().map_while(Result::ok) {
                if let Some(number) = line
                    .strip_prefix("acknowledged ")
                    .and_then(|number| number.parse::<u64>().ok())
                {
                    acknowledged = Some(number);
                    let _ = tell.send(());
                }
            }
            acknowledged
        });
        // The time of the kill varies on machines of any speed: from before the store is open to many commits
        // later.
        for _ in 0..random % 8 {
            told.recv_timeout(PATIENCE).expect("the child commits");
        }
        std::thread::sleep(Duration::from_micros(random / 8 % 5_000));
        child.kill().unwrap();
        child.wait().unwrap();
        let acknowledged = reader.join().unwrap().unwrap_or(last_head);

        let started = Instant::now();
        let store = Store::open_with(directory.path(), RETENTION, NOW.plus(round)).unwrap();
        assert!(
            started.elapsed() < PATIENCE,
            "took {:?} to open",
            started.elapsed()
        );
        let head = store.head();
        let number = head.revision.number.0;
        assert!(
            number >= acknowledged,
            "round {round}: acknowledged {acknowledged}, found {number}"
        );
        assert!(
            number <= acknowledged.max(last_head) + 1,
            "round {round}: {number} was never proposed"
        );
        if let Some(pending) = head.pending {
            assert_eq!(pending.revision.0, number, "only the head can wait");
            store.confirm(None, &Note::default(), NOW).unwrap();
        }
        let history = store.history(1000).unwrap();
        assert!(history.len() as u64 <= RETENTION.revisions + RETENTION.machine_revisions);
        // At the oldest end, the history of people and that of machines end apart.
        for pair in history.windows(2).take(40) {
            let first = pair[0].replaces.unwrap_or(pair[0].number);
            assert_eq!(
                first.0,
                pair[1].number.0 + 1,
                "the numbers have no gap, but for revisions that another one replaced"
            );
        }
        let of_machine = history.iter().find(|revision| !revision.origin.is_local());
        assert_eq!(
            store.head().externals.get(&Origin::OVSDB).copied(),
            of_machine.map(|revision| revision.number.0)
        );
        for revision in &history {
            let (_, config) = store.at(revision.number).unwrap();
            match revision.operation {
                Operation::Initial => assert_eq!(config, Config::default()),
                _ => assert_eq!(config, content(revision.number.0)),
            }
        }
        assert!(store.at(RevisionNo(number + 1)).is_err());
        last_head = number;
    }
    assert!(last_head > ROUNDS, "the children did commit");
}
