//! The packets of the transport, and peers that send any of them.

use millrace_transport::congestion::bbr::{Bbr, BbrConfig};
use millrace_transport::extent::{ExtentSize, Layout};
use millrace_transport::flow::{Flow, FlowConfig};
use millrace_transport::packet::{CONTROL_MAX, Data, Feedback, HEAD_SIZE, Head, Report, control_body};
use millrace_transport::ranges::RangeSet;
use millrace_transport::receiver::{Discard, Receiver, ReceiverConfig};
use millrace_transport::seal::{Algorithm, ContentKey, PairwiseKey};
use millrace_types::{Duration, Time};

/// Reads a datagram as each packet type.
///
/// Properties: what decodes encodes to a body that decodes to the same; acknowledged ranges ascend; a receiver accepts nothing
/// without a MAC.
pub(crate) fn packets(bytes: &[u8]) {
    let _ = Data::decode(bytes);
    if let (Ok(head), Ok(body)) = (Head::decode(bytes), control_body(bytes)) {
        let key = PairwiseKey::new([1; 16]);
        assert_eq!(
            Head::decode(&[&head.encode(&key, [body, &[]])[..], body].concat()),
            Ok(head)
        );
    }
    let body = bytes.get(HEAD_SIZE..).unwrap_or_default();
    if let Ok(feedback) = Feedback::decode(body) {
        let ranges = &feedback.acknowledged;
        assert!(ranges.iter().all(|range| range.start < range.end));
        assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
        let (again, from) = feedback.encode();
        assert!(HEAD_SIZE + again.len() <= CONTROL_MAX);
        let again = Feedback::decode(&again).unwrap();
        let mut expected = RangeSet::new();
        for range in ranges {
            expected.insert(range.clone());
        }
        expected.remove(0..from);
        assert_eq!(again.acknowledged, expected.ranges());
        assert_eq!((again.credit, again.ce), (feedback.credit, feedback.ce));
    }
    if let Ok(report) = Report::decode(body) {
        assert_eq!(Report::decode(&report.encode()), Ok(report));
    }
    let mut receiver = receiver(1 << 20);
    let mut content = ContentKey::new(Algorithm::Aes128Gcm, &[0; 32]).unwrap();
    let key = PairwiseKey::new([2; 16]);
    let mut datagram = bytes.to_vec();
    let refused = receiver.handle_data(Time::ZERO, &mut datagram, &key, &mut content, false);
    assert!(matches!(refused, Err(Discard::Malformed | Discard::Mac)));
}

fn layout() -> Layout {
    Layout::new(5 << 20, ExtentSize::Small).unwrap()
}

fn receiver(pool: u64) -> Receiver {
    Receiver::new(ReceiverConfig {
        layout: layout(),
        have: RangeSet::new(),
        connection: 0,
        pool,
        pool_max: pool,
    })
}

/// A sender and a receiver with authentic peers that send anything: the first byte of each step says what happens.
///
/// Properties: no step panics; a receiver's backlog stays within its pool; a sender remembers no more packets than it has
/// sent, and nothing is in flight once all are resolved.
pub(crate) fn peers(bytes: &[u8]) {
    const POOL: u64 = 1 << 20;
    let mut now = Time::ZERO;
    let mut receiver = receiver(POOL);
    let mut flow = Flow::new(
        FlowConfig {
            layout: layout(),
            have: RangeSet::new(),
            start: 0,
            payload: 1_424,
            mtu: 9_000,
            initial_rtt: None,
            headers: 28,
            credit: POOL,
            controller: Box::new(Bbr::new(BbrConfig::new(1_496, 1), now)),
            seed: 1,
        },
        now,
    );
    let (mut sent, mut number) = (0_u64, 0);
    let mut outgoing = Vec::new();
    let mut rest = bytes;
    while let Some(([step, size], more)) = rest.split_first_chunk::<2>() {
        let (argument, more) = more.split_at(usize::from(*size).min(more.len()));
        rest = more;
        let value = argument
            .iter()
            .take(8)
            .fold(0, |value, byte| value << 8 | u64::from(*byte));
        match step & 7 {
            0 => now = now + Duration::from_micros(value & 0xff_ffff),
            1 => {
                while flow.poll(now, &mut outgoing) {
                    sent += outgoing.len() as u64;
                    outgoing.clear();
                }
                let _ = flow.poll_report(now);
            }
            2 => flow.on_timeout(now),
            3 => {
                if let Ok(feedback) = Feedback::decode(argument) {
                    number += 1;
                    if flow.on_feedback(now, number, &feedback).is_err() {
                        return;
                    }
                }
            }
            4 => {
                let len = 1 + value % 2_000;
                let _ = receiver.accept(
                    now,
                    value >> 32,
                    (value & 0xffff_ffff) % (6 << 20),
                    len,
                    step & 8 != 0,
                );
                assert!(receiver.backlog() <= POOL + 3 * 2_000);
            }
            5 => {
                if let Ok(report) = Report::decode(argument) {
                    receiver.on_report(&report);
                }
            }
            6 => {
                receiver.written(value % POOL);
                flow.verified(value % 8);
                flow.rejected(value >> 8 & 7);
            }
            _ => {
                for (_, feedback) in receiver.poll_feedback(now) {
                    assert_eq!(
                        Feedback::decode(&feedback.encode().0).unwrap().acknowledged,
                        feedback.acknowledged
                    );
                }
            }
        }
        // Skipped numbers are remembered, too: one for each quantum at most.
        assert!(flow.remembered() as u64 <= 2 * sent);
        assert!(flow.in_flight() <= sent * 9_100);
    }
}
