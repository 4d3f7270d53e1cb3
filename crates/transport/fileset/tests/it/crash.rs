//! Row T11 of docs/gates.md in the crash model: killed at any operation, with any subset of volatile writes lost.

use crate::support::{Found, Report, snapshot, transfer, tree};
use millrace_fileset::fs::memory::MemoryFs;
use millrace_fileset::sink::SinkError;
use millrace_fileset::{Commit, SinkEvent, SinkOptions};
use millrace_transport::random::Random;
use millrace_types::Duration;
use std::collections::BTreeMap;

fn options(commit: Commit) -> SinkOptions {
    SinkOptions {
        commit,
        modes: true,
        times: true,
        sync_interval: Duration::from_millis(700),
        ..SinkOptions::default()
    }
}

/// Returns the bytes of the extents that a report calls durable.
fn durable(report: &Report) -> u64 {
    let extents = report
        .events
        .iter()
        .filter(|event| matches!(event, SinkEvent::Durable(_)));
    extents.count() as u64 * (1 << 20)
}

/// Asserts that every file under a final name has the bytes of the source.
fn assert_nothing_wrong(expected: &BTreeMap<String, Found>, found: &BTreeMap<String, Found>, moment: &str) {
    for (path, content) in found {
        if !path.contains(".millrace-") {
            assert_eq!(Some(content), expected.get(path), "{path} after {moment}");
        }
    }
}

/// Kills the receiver at an operation, restarts it, and lets the transfer end.
fn killed_at(
    from: &MemoryFs,
    operation: u64,
    lost: bool,
    options: SinkOptions,
    expected: &BTreeMap<String, Found>,
) -> u64 {
    let moment = format!("a kill at operation {operation}, lost writes: {lost}, {options:?}");
    let to = MemoryFs::new();
    to.kill_at(operation);
    let Err((before, error)) = transfer(from, &to, options, 1) else {
        panic!("no kill at operation {operation}");
    };
    assert!(matches!(error, SinkError::Io { .. }), "{error}");
    let to = if lost { to.crash(operation) } else { to.restart() };
    assert_nothing_wrong(expected, &snapshot(&to), &moment);
    let after =
        transfer(from, &to, options, operation + 1).unwrap_or_else(|(_, error)| panic!("{moment}: {error}"));
    assert_eq!(snapshot(&to), *expected, "{moment}");
    let bytes = 3 << 20;
    // After `Complete`, only the removal of the journal was left, so there is nothing to resume.
    assert!(
        before.events.contains(&SinkEvent::Complete)
            || after.sent <= (bytes + (1 << 20)) - durable(&before).min(bytes),
        "{moment}: {} bytes were durable and {} were sent afterwards",
        durable(&before),
        after.sent
    );
    durable(&before)
}

#[test]
fn a_receiver_that_is_killed_at_any_operation_resumes_to_the_same_tree() {
    let from = tree();
    let expected = snapshot(&from);
    let to = MemoryFs::new();
    let start = to.operations();
    transfer(&from, &to, options(Commit::Each), 1).unwrap();
    assert_eq!(snapshot(&to), expected);
    let operations = to.operations() - start;
    assert!(operations > 200, "{operations} operations");
    let mut durable = 0;
    // Every operation of the beginning and of the end, where names change; every fifth write between.
    for operation in start..start + operations {
        let dense = operation < start + 20 || operation + 60 > start + operations;
        if dense || operation.is_multiple_of(5) {
            let lost = dense || operation.is_multiple_of(2);
            durable = durable.max(killed_at(
                &from,
                operation,
                lost,
                options(Commit::Each),
                &expected,
            ));
        }
    }
    assert!(durable >= 2 << 20, "no kill came after a sync");
}

#[test]
fn a_set_that_is_committed_at_once_survives_kills_among_its_renames() {
    let from = tree();
    let expected = snapshot(&from);
    let to = MemoryFs::new();
    let start = to.operations();
    transfer(&from, &to, options(Commit::All), 1).unwrap();
    let end = to.operations();
    for operation in (start + 200..end).rev().take(70) {
        killed_at(&from, operation, true, options(Commit::All), &expected);
        killed_at(&from, operation, false, options(Commit::All), &expected);
    }
}

#[test]
fn a_set_that_must_replace_nothing_survives_kills_among_its_renames_and_links() {
    let from = tree();
    let expected = snapshot(&from);
    let options = SinkOptions {
        overwrite: false,
        ..options(Commit::Each)
    };
    let to = MemoryFs::new();
    transfer(&from, &to, options, 1).unwrap();
    // The last operation comes after the removal of the journal, so there is nothing to resume.
    for operation in to.operations() - 60..to.operations() - 1 {
        killed_at(&from, operation, true, options, &expected);
        killed_at(&from, operation, false, options, &expected);
    }
}

#[test]
fn a_receiver_that_is_killed_again_and_again_makes_progress() {
    let from = tree();
    let expected = snapshot(&from);
    for seed in 0..8 {
        let mut to = MemoryFs::new();
        let mut random = Random::new(seed);
        let mut kills = 0;
        loop {
            to.kill_at(to.operations() + 5 + random.below(120));
            let result = transfer(&from, &to, options(Commit::Each), random.next());
            to = to.crash(random.next());
            assert_nothing_wrong(&expected, &snapshot(&to), "repeated kills");
            if result.is_ok() {
                break;
            }
            kills += 1;
            assert!(kills < 400, "no progress");
        }
        transfer(
            &from,
            &to,
            SinkOptions {
                delta: true,
                ..options(Commit::Each)
            },
            seed,
        )
        .unwrap();
        assert_eq!(snapshot(&to), expected, "seed {seed}, {kills} kills");
    }
}
