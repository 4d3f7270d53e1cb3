//! The records with which a simulator is compared reach every outcome.

use std::collections::BTreeMap;

use millrace_nic::completion::flag;
use millrace_nic::record::{Input, Output};
use millrace_nic::{Capabilities, CommandCompletion, Completion};
use millrace_nic_model::Simulator;
use millrace_nic_model::stimulus::Stimulus;

fn outputs(seed: u64, frames: usize) -> Vec<Output> {
    let mut stimulus = Stimulus::new(seed, Capabilities::TEN);
    let mut simulator = Simulator::new(Capabilities::TEN);
    let (mut records, mut out) = (stimulus.prologue(), Vec::new());
    (0..frames).for_each(|_| stimulus.next(&mut records));
    records.push(Input::End);
    records.iter().for_each(|record| simulator.take(record, &mut out));
    out
}

#[test]
fn seeded_records_reach_marks_drops_fences_and_each_status() {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for output in outputs(1, 12_000) {
        let name = match &output {
            Output::Completion { bytes, .. } => match Completion::from_bytes(bytes) {
                completion if completion.has(flag::FENCE) => "fence",
                completion if completion.has(flag::TRUNCATED) => "truncated",
                completion if !completion.has(flag::COMPLETE) => "incomplete",
                completion if completion.has(flag::MARK) => "mark",
                _ => "plain",
            },
            Output::Drop { counter, .. } => [
                "frames",
                "fifo",
                "fcs",
                "length",
                "parity",
                "dropped",
                "no buffer",
            ][usize::from(*counter)],
            Output::Command { bytes } => match CommandCompletion::from_bytes(bytes).unwrap().status as u16 {
                0 => "ok",
                1 => "unknown",
                2 => "range",
                _ => "busy",
            },
            Output::Synced { .. } => "reset",
            Output::Count {
                counter: 4, value, ..
            } if *value > 0 => "parity",
            Output::Count { .. } => "count",
        };
        *seen.entry(name).or_default() += 1;
    }
    for name in [
        "fence",
        "truncated",
        "incomplete",
        "mark",
        "plain",
        "fcs",
        "length",
        "dropped",
        "no buffer",
        "ok",
        "unknown",
        "range",
        "busy",
        "reset",
        "parity",
        "count",
    ] {
        assert!(seen.contains_key(name), "{name} is missing: {seen:?}");
    }
}

#[test]
fn one_seed_is_one_stream() {
    assert_eq!(outputs(7, 300), outputs(7, 300));
    assert_ne!(outputs(7, 300), outputs(8, 300));
}
