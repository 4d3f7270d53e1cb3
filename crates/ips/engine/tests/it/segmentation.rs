//! The same alerts for any segmentation, order, repetition and fragmentation of a stream.

use std::collections::BTreeSet;

use millrace_ips_engine::Mode;
use millrace_types::split_mix;
use proptest::prelude::*;

use crate::bed::{CLIENT, SERVER, Segment, TestBed, acknowledgment, data, fragments};
use millrace_wire::tcp::flags::{ACK, FIN};

/// Rules over the stream alone: free, anchored, relative and negated contents.
const RULES: &str = r#"
alert tcp-stream any any -> any any (msg:"free"; content:"needle"; sid:1;)
alert tcp-stream any any -> any any (msg:"anchored"; content:"GET"; depth:3; sid:2;)
alert tcp-stream any any -> any any (msg:"relative"; content:"one"; content:"two"; distance:1; within:20; sid:3;)
alert tcp-stream any any -> any any (msg:"offset"; content:"three"; offset:10; sid:4;)
alert tcp-stream any any -> any any (msg:"never"; content:"absent"; sid:5;)
"#;

/// Returns the alerts of segments, sent in their order, and then a FIN.
fn alerts(
    mode: Mode,
    bytes: &[u8],
    ranges: &[(usize, usize)],
    fragment_size: Option<usize>,
) -> BTreeSet<u32> {
    let mut bed = TestBed::new(mode, RULES);
    bed.handshake();
    for (from, to) in ranges {
        let packet = data(*from as u32, &bytes[*from..*to]);
        match fragment_size {
            Some(size) => bed.send_all(fragments(&packet, size)),
            None => bed.send(packet).is_dropped(),
        };
    }
    let size = bytes.len() as u32;
    let fin = Segment {
        flags: FIN | ACK,
        seq: CLIENT.wrapping_add(1 + size),
        ack: SERVER + 1,
        ..Segment::default()
    };
    bed.send(fin.packet());
    bed.send(acknowledgment(size + 1));
    bed.finish();
    bed.sids()
}

/// A stream of words that rules look for, and others.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "GET ", "needle", "one", "two", "three", "nee", "dle", "x", " ", "on", "filler",
    ]);
    prop::collection::vec(words, 1..40).prop_map(|words| words.concat().into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn alerts_do_not_depend_on_segmentation(
        bytes in stream(), cut in 1usize..40, seed: u64, shuffles: bool, is_inline: bool,
        fragment_size in prop::option::of(3usize..6),
    ) {
        let mode = if is_inline { Mode::Ips } else { Mode::Ids };
        let whole = alerts(mode, &bytes, &[(0, bytes.len())], None);
        let mut ranges: Vec<(usize, usize)> =
            (0..bytes.len()).step_by(cut).map(|at| (at, (at + cut).min(bytes.len()))).collect();
        let mut state = seed;
        if shuffles {
            for at in (1..ranges.len()).rev() {
                ranges.swap(at, (split_mix::next(&mut state) % (at as u64 + 1)) as usize);
            }
            let again = ranges[(split_mix::next(&mut state) % ranges.len() as u64) as usize];
            ranges.push(again);
        }
        let cut = alerts(mode, &bytes, &ranges, fragment_size.map(|words| words * 8));
        prop_assert_eq!(cut, whole);
    }
}
