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

/// Rules over buffers of requests: whole values, parts of them, headers, bodies.
const REQUEST_RULES: &str = r#"
alert http any any -> any any (msg:"uri"; http.uri; content:"/needle"; startswith; sid:1;)
alert http any any -> any any (msg:"method"; http.method; content:"POST"; bsize:4; sid:2;)
alert http any any -> any any (msg:"agent"; http.user_agent; content:"one"; content:"two"; distance:1; sid:3;)
alert http any any -> any any (msg:"names"; http.header_names; content:"|0d 0a|Host|0d 0a|"; sid:4;)
alert http any any -> any any (msg:"body"; http.request_body; content:"three"; sid:5;)
alert http any any -> any any (msg:"two buffers"; http.uri; content:"x"; http.host; content:"host"; sid:6;)
alert http any any -> any any (msg:"an expression"; http.uri; pcre:"/^\/[a-z]+\/x/"; sid:7;)
"#;

/// Returns the alerts of segments, sent in their order, and then a FIN.
fn alerts(
    rules: &str,
    mode: Mode,
    bytes: &[u8],
    ranges: &[(usize, usize)],
    fragment_size: Option<usize>,
) -> BTreeSet<u32> {
    let mut bed = TestBed::new(mode, rules);
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

/// Returns a stream of words that rules look for, and others.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "GET ", "needle", "one", "two", "three", "nee", "dle", "x", " ", "on", "filler",
    ]);
    prop::collection::vec(words, 1..40).prop_map(|words| words.concat().into_bytes())
}

/// Requests of words that rules look for, and others: up to three on a connection.
fn requests() -> impl Strategy<Value = Vec<u8>> {
    let word = || prop::sample::select(vec!["needle", "x", "one", "two", "three", "host", "filler"]);
    let words = move || prop::collection::vec(word(), 1..4);
    let request = (words(), words(), words(), any::<bool>()).prop_map(|(path, agent, body, is_chunked)| {
        let (path, agent, body) = (path.join("/"), agent.join(" "), body.concat());
        let head = format!("POST /{path} HTTP/1.1\r\nHost: host\r\nUser-Agent: {agent}\r\n");
        match is_chunked {
            true => format!(
                "{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
                body.len()
            ),
            false => format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()),
        }
    });
    prop::collection::vec(request, 1..4).prop_map(|requests| requests.concat().into_bytes())
}

/// A division of a stream into packets.
#[derive(Debug, Clone)]
struct Cuts {
    step: usize,
    /// The seed of a random order that also repeats a segment; `None` keeps the order.
    shuffle: Option<u64>,
    fragment_size: Option<usize>,
    mode: Mode,
}

fn cuts() -> impl Strategy<Value = Cuts> {
    let fragment = prop::option::of((3usize..6).prop_map(|words| words * 8));
    (1usize..40, any::<Option<u64>>(), fragment, any::<bool>()).prop_map(
        |(step, shuffle, fragment_size, is_inline)| Cuts {
            step,
            shuffle,
            fragment_size,
            mode: if is_inline { Mode::Ips } else { Mode::Ids },
        },
    )
}

impl Cuts {
    fn ranges(&self, size: usize) -> Vec<(usize, usize)> {
        let mut ranges: Vec<(usize, usize)> = (0..size)
            .step_by(self.step)
            .map(|at| (at, (at + self.step).min(size)))
            .collect();
        if let Some(mut state) = self.shuffle {
            for at in (1..ranges.len()).rev() {
                ranges.swap(at, (split_mix::next(&mut state) % (at as u64 + 1)) as usize);
            }
            ranges.push(ranges[(split_mix::next(&mut state) % ranges.len() as u64) as usize]);
        }
        ranges
    }

    /// Returns the alerts of the whole stream in one segment, and of its packets.
    fn compare(&self, rules: &str, bytes: &[u8]) -> [BTreeSet<u32>; 2] {
        let whole = alerts(rules, self.mode, bytes, &[(0, bytes.len())], None);
        let ranges = self.ranges(bytes.len());
        [
            whole,
            alerts(rules, self.mode, bytes, &ranges, self.fragment_size),
        ]
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn alerts_do_not_depend_on_segmentation(bytes in stream(), cuts in cuts()) {
        let [whole, cut] = cuts.compare(RULES, &bytes);
        prop_assert_eq!(cut, whole);
    }

    #[test]
    fn alerts_of_transactions_do_not_depend_on_segmentation(bytes in requests(), cuts in cuts()) {
        let [whole, cut] = cuts.compare(REQUEST_RULES, &bytes);
        prop_assert_eq!(cut, whole);
    }
}
