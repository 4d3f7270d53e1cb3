//! Numbered packets of several flows through a chain under continuous edits: hops are scaled, drained, removed and added. Every
//! packet arrives once, in the order of its flow.

use std::time::{Duration, Instant};

use millrace_chain::{ChainPlan, HopState};
use millrace_datapath::io::{Backend, MemoryPeer};

use super::{BOUND, TestBed, flow, frame, head, sequence};

const FLOWS: u32 = 8;
/// Limit of packets in flight, which is less than any queue holds.
const WINDOW: u32 = 400;
/// Sequence numbers below this one have a meaning for the functions of tests.
const FIRST: u32 = 1000;

/// Returns the number of packets: that in MILLRACE_PACKETS, or `otherwise`.
pub(crate) fn packets(otherwise: u32) -> u32 {
    std::env::var("MILLRACE_PACKETS").map_or(otherwise, |packets| packets.parse().unwrap())
}

/// The next sequence numbers of a flow: to be sent, and to arrive.
#[derive(Clone, Copy)]
struct Flow {
    sent: u32,
    came: u32,
}

/// Sends packets both ways, and edits the chain whenever the last edit has taken effect and `pause` packets have arrived since.
/// Returns the number of edits.
pub(crate) fn keep_order<B: Backend>(
    testbed: &mut TestBed<B>,
    [one, two]: [&MemoryPeer<B::Packet>; 2],
    packets: u32,
    pause: u32,
) -> u32 {
    let whole = testbed.chain.plan().clone();
    let mut ways = [[Flow {
        sent: FIRST,
        came: FIRST,
    }; FLOWS as usize]; 2];
    let (mut sent, mut received, mut edits, mut edited_at) = (0_u32, 0_u32, 0_u32, 0_u32);
    let mut last = Instant::now();
    let mut longest = Duration::ZERO;
    while received < packets {
        while sent < packets && sent - received < WINDOW {
            let (way, number) = (sent as usize % 2, (sent / 2) % FLOWS);
            let flow = &mut ways[way][number as usize];
            let bytes = frame(number as u16, flow.sent);
            let accepted = match way {
                0 => one.send(&bytes),
                _ => two.send(&super::answer(&bytes)),
            };
            if !accepted {
                break;
            }
            flow.sent += 1;
            sent += 1;
        }
        if received - edited_at >= pause && testbed.chain.is_settled() {
            edits += 1;
            edited_at = received;
            let plan = edit(&whole, testbed.chain.plan(), edits);
            testbed.edit(&plan);
        }
        testbed.chain.tick(testbed.bridge.now());
        for (way, peer) in [two, one].into_iter().enumerate() {
            for _ in 0..64 {
                let Some(frame) = peer.receive() else { break };
                let frame = head(&frame);
                let number = match way {
                    0 => flow(&frame),
                    _ => flow_back(&frame),
                };
                let flow = &mut ways[way][usize::from(number)];
                assert_eq!(
                    sequence(&frame),
                    flow.came,
                    "flow {number}, way {way}, after {edits} edits: {:?}",
                    testbed.chain.stats()
                );
                flow.came += 1;
                received += 1;
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
        }
        assert!(
            last.elapsed() < BOUND,
            "{received} of {sent} came, after {edits} edits: {:?}",
            testbed.chain.stats()
        );
    }
    testbed.wait("the last edit", |testbed| testbed.chain.is_settled());
    let stats = testbed.chain.stats();
    assert!(
        stats
            .hops
            .iter()
            .all(|hop| hop.state != HopState::Down && hop.restarts == 0),
        "{stats:?}"
    );
    eprintln!(
        "{packets} packets of {FLOWS} flows, both ways, in order over {edits} edits; none came for {longest:?} at most"
    );
    edits
}

/// Returns the flow of a frame: the client's port is the destination port on the way back.
fn flow_back(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[36], frame[37]]) - 1000
}

/// Returns the chain after edit `number`. The edits change in kind first, then in the hop.
fn edit(whole: &ChainPlan, now: &ChainPlan, number: u32) -> ChainPlan {
    let mut plan = now.clone();
    let (kind, at) = (number % 5, (number / 5) as usize % whole.hops.len());
    if kind == 4 && whole.hops.len() > 1 {
        plan.hops.clone_from(&whole.hops);
        plan.hops.remove(at);
    } else if plan.hops.len() < whole.hops.len() {
        plan.hops.clone_from(&whole.hops);
    } else if kind == 0 {
        let len = plan.hops.len();
        plan.hops.swap(at, (at + 1) % len);
    } else if kind == 3 {
        plan.hops[at].drained = !plan.hops[at].drained;
    } else {
        plan.hops[at].instances = 1 + (number / 5 + kind) as u16 % 4;
    }
    plan
}
