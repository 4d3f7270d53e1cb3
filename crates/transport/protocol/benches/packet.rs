//! The cost of a packet of 1,428 bytes at either end: seal, open, MAC, and the bookkeeping of a flow.
//!
//! `cargo bench -p millrace-transport --bench packet`

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use millrace_transport::congestion::fixed::Fixed;
use millrace_transport::extent::{ExtentSize, Layout};
use millrace_transport::flow::{Flow, FlowConfig};
use millrace_transport::packet::Feedback;
use millrace_transport::ranges::RangeSet;
use millrace_transport::receiver::{Receiver, ReceiverConfig};
use millrace_transport::seal::{Algorithm, ContentKey, PairwiseKey, Seal};
use millrace_types::{BitRate, Duration, Time};
use std::hint::black_box;

const PAYLOAD: u16 = 1_428;
const SEALED: usize = PAYLOAD as usize + 7;

fn sealing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("seal");
    group.throughput(Throughput::Bytes(u64::from(PAYLOAD)));
    for (name, algorithm) in [
        ("aes-128-gcm", Algorithm::Aes128Gcm),
        ("chacha20-poly1305", Algorithm::ChaCha20Poly1305),
    ] {
        let mut key = ContentKey::new(algorithm, &[1; 32]).unwrap();
        let mut bytes = vec![7; SEALED];
        let mut counter = 0;
        group.bench_function(format!("seal {name}"), |bencher| {
            bencher.iter(|| {
                counter += 1;
                key.seal(counter, black_box(&mut bytes)).unwrap()
            });
        });
        let mut sealed = vec![7; SEALED];
        let tag = key.seal(9, &mut sealed).unwrap();
        sealed.extend_from_slice(&tag);
        let mut packet = sealed.clone();
        group.bench_function(format!("open {name}"), |bencher| {
            bencher.iter(|| {
                packet.copy_from_slice(&sealed);
                key.open(9, black_box(&mut packet)).unwrap().len()
            });
        });
    }
    let key = PairwiseKey::new([3; 16]);
    group.bench_function("mac of head, counter and tag", |bencher| {
        bencher.iter(|| key.mac(black_box(&[1; 8]), [black_box(&[2; 5]), black_box(&[3; 16])]));
    });
    group.finish();
}

/// Measures a sender and a receiver at 10 Gbit/s and 400 ms: packets, feedback and reports, without payload
/// bytes.
fn bookkeeping(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("bookkeeping");
    group.throughput(Throughput::Elements(1));
    for (name, lose_every) in [("a packet", u64::MAX), ("a packet at 2 % loss", 50)] {
        let layout = Layout::new(1 << 55, ExtentSize::Small).unwrap();
        let mut flow = Flow::new(
            FlowConfig {
                layout,
                have: RangeSet::new(),
                start: 0,
                payload: PAYLOAD,
                mtu: 1_500,
                initial_rtt: None,
                headers: 28,
                credit: u64::MAX,
                controller: Box::new(Fixed::new(BitRate::from_bps(10_000_000_000), 1_500)),
                seed: 1,
            },
            Time::ZERO,
        );
        let mut receiver = Receiver::new(ReceiverConfig {
            layout,
            have: RangeSet::new(),
            connection: 0,
            pool: 1 << 50,
            pool_max: 1 << 50,
        });
        let (mut now, mut outgoing) = (Time::ZERO, Vec::new());
        let mut feedback: std::collections::VecDeque<(Time, u64, Feedback)> =
            std::collections::VecDeque::new();
        let mut departed = 0;
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|packets| {
                let started = std::time::Instant::now();
                let end = departed + packets;
                while departed < end {
                    now = now + Duration::from_micros(50);
                    while flow.poll(now, &mut outgoing) {
                        for packet in outgoing.drain(..) {
                            departed += 1;
                            let (address, len) = (packet.piece.address, u64::from(packet.piece.len));
                            if departed % lose_every != 0
                                && let Ok(accepted) = receiver.accept(now, packet.number, address, len, false)
                            {
                                receiver.written(len);
                                if let Some(extent) = accepted.completes {
                                    flow.verified(extent);
                                }
                            }
                        }
                    }
                    for (number, packet) in receiver.poll_feedback(now) {
                        feedback.push_back((now + Duration::from_millis(400), number, packet));
                    }
                    while feedback.front().is_some_and(|(at, ..)| *at <= now) {
                        let Some((_, number, packet)) = feedback.pop_front() else {
                            break;
                        };
                        flow.on_feedback(now, number, &packet).unwrap();
                    }
                    if let Some(report) = flow.poll_report(now) {
                        receiver.on_report(&report);
                    }
                    flow.on_timeout(now);
                }
                started.elapsed()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, sealing, bookkeeping);
criterion_main!(benches);
