//! `kill -9` at random moments: acknowledged transactions are present afterwards, and no group of transactions is partial. The
//! killed process is a child that runs this test program.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use millrace_ix_store::{ChangeState, JournalRecord, SigningKey, Sqlite, Store as _, Transaction, verify};
use serde_json::json;

use crate::{NOW, entry, object};

const DIRECTORY: &str = "MILLRACE_IX_STORE_KILL_TEST";
const ROUNDS: u64 = 25;

/// Returns transaction number `n`: objects, a change, an audit entry, which all hold `n`.
fn transaction(n: u64) -> Transaction {
    let record = |state| JournalRecord {
        change: n,
        state,
        at: NOW,
        detail: json!({"n": n}),
    };
    Transaction {
        puts: (1..=3)
            .map(|id| object("site", id, json!({"n": n, "padding": "x".repeat(500)})))
            .collect(),
        journal: vec![record(ChangeState::Accepted), record(ChangeState::Planned)],
        audit: vec![entry("write", json!({"n": n}))],
        ..Transaction::default()
    }
}

/// Returns the number of the last transaction in the group of transaction `n`. Groups have one to four
/// transactions.
fn group_end(n: u64) -> u64 {
    (n..).find(|n| matches!(n % 10, 0 | 1 | 3 | 6)).unwrap()
}

#[test]
#[ignore = "the child of the test below"]
fn child() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let directory = Path::new(&directory);
    let key = SigningKey::from_pkcs8(&std::fs::read(directory.join("key")).unwrap()).unwrap();
    let mut store = Sqlite::open(&directory.join("exchange.db")).unwrap();
    let mut out = std::io::stdout().lock();
    let mut next = store.load().unwrap().next_change;
    loop {
        let last = group_end(next);
        store.begin().unwrap();
        for n in next..=last {
            store.write(&transaction(n), NOW).unwrap();
        }
        store.finish().unwrap();
        if last.is_multiple_of(7) {
            store.sign_head(&key, NOW).unwrap();
        }
        writeln!(out, "acknowledged {last}").unwrap();
        out.flush().unwrap();
        next = last + 1;
    }
}

#[test]
fn acknowledged_transactions_survive_kill_9_and_none_is_partial() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("key"), SigningKey::generate().unwrap()).unwrap();
    let path = folder.path().join("exchange.db");
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["kill::child", "--exact", "--ignored", "--nocapture"])
            .env(DIRECTORY, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let numbers = |line: Result<String, _>| {
            let line: String = line.ok()?;
            line.split_once("acknowledged ")?.1.parse::<u64>().ok()
        };
        // The time from an acknowledgement to the kill differs from round to round.
        for number in lines.by_ref().filter_map(numbers).take(3) {
            acknowledged = number;
        }
        std::thread::sleep(Duration::from_micros(round * 173));
        child.kill().unwrap();
        acknowledged = lines.filter_map(numbers).last().unwrap_or(acknowledged);
        child.wait().unwrap();

        let store = Sqlite::open(&path).unwrap();
        store.check().unwrap();
        let contents = store.load().unwrap();
        let last = contents.next_change - 1;
        assert!(
            last == acknowledged || last == group_end(acknowledged + 1),
            "{last} written, {acknowledged} acknowledged"
        );
        let numbers: Vec<_> = contents
            .objects
            .iter()
            .map(|row| row.body["n"].as_u64())
            .collect();
        assert_eq!(numbers, vec![Some(last); 3]);
        assert_eq!(store.journal(last).unwrap().len(), 2);
        let records = store.audit(0, usize::MAX).unwrap();
        let summary = verify(&records, &store.signed_heads().unwrap(), None).unwrap();
        assert_eq!(summary.len, last);
    }
    assert!(acknowledged >= 3 * ROUNDS);
}
