//! N2, first half: the model's hash is that of the switch, for mutations of frames with every header chain.

use millrace_nic::{Config, HashKeys};
use millrace_nic_model::{frames, parse};
use millrace_wire::flow_hash::FlowHash;

/// Number of mutated frames; `MILLRACE_NIC_LONG` asks for a million.
pub(crate) fn mutations() -> usize {
    if std::env::var_os("MILLRACE_NIC_LONG").is_some() {
        1_000_000
    } else {
        60_000
    }
}

#[test]
fn the_model_has_the_hash_of_the_switch_for_mutations_of_every_header_chain() {
    let seed = 0x5eed;
    let (hash, config) = (FlowHash::new(seed), Config::new(HashKeys::new(seed)));
    let mut random = frames::Random::new(11);
    let (mut complete, mut truncated) = (0, 0);
    for number in 0..mutations() {
        let frame = frames::mutated(&mut random);
        let parsed = parse(&frame, 0, &config);
        assert_eq!(
            parsed.hash,
            hash.of(&frame),
            "frame {number}: {frame:02x?}\n{parsed:02x?}"
        );
        complete += usize::from(parsed.complete);
        truncated += usize::from(parsed.truncated);
    }
    // The frames are neither all whole nor all broken.
    let incomplete = mutations() - complete;
    assert!(
        (mutations() / 100..mutations() / 2).contains(&incomplete),
        "{incomplete} incomplete"
    );
    assert!(
        (mutations() / 100..mutations() / 2).contains(&truncated),
        "{truncated} truncated"
    );
}

#[test]
fn every_header_chain_is_parsed_to_its_end_unless_it_passes_the_window() {
    let config = Config::new(HashKeys::new(1));
    for (name, frame) in frames::chains() {
        let parsed = parse(&frame, 0, &config);
        assert!(!parsed.truncated, "{name}");
        assert_eq!(parsed.complete, !name.contains("past"), "{name}: {parsed:?}");
    }
}
