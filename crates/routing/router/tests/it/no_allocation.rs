//! A router allocates nothing after its creation, for any packet.

use arrayvec::ArrayVec;
use millrace_fib::{NextHopKind, NextHopSpec};
use millrace_pipeline::DropReason;
use millrace_router::{
    Acl, AclAction, AclRule, Arrival, Glean, Interface, PuntClass, RouteOutput, UnderlayPort, Waiting,
};
use millrace_types::Duration;
use millrace_wire::{Frame, FramePool};

use crate::allocator;
use crate::harness::{TestBed, datagram, fix_checksum, hop, interface, link};

/// An output that returns every packet to its pool.
#[derive(Default)]
struct Sink {
    sent: u64,
    punted: u64,
    waiting: u64,
    dropped: u64,
}

impl RouteOutput<Frame> for Sink {
    fn send(&mut self, _: &Interface, _: Frame) {
        self.sent += 1;
    }

    fn punt(&mut self, _: &Interface, _: PuntClass, _: Frame) {
        self.punted += 1;
    }

    fn wait(&mut self, _: Waiting, frame: Frame) -> Result<(), Frame> {
        self.waiting += 1;
        Err(frame)
    }

    fn decapsulate(&mut self, _: UnderlayPort, _: Frame) {}

    fn probe(&mut self, _: Glean) {}

    fn dropped(&mut self, _: DropReason, _: Option<Frame>) {
        self.dropped += 1;
    }
}

#[test]
fn a_router_in_steady_state_neither_allocates_nor_frees() {
    let mut bed = TestBed::new();
    bed.route("192.0.2.0/24", &[hop(1, 2, None), hop(2, 2, None)]);
    bed.route(
        "198.51.100.0/24",
        &[NextHopSpec::without_interface(NextHopKind::Prohibit)],
    );
    let mut listed = interface(2);
    listed.acl_out = Some(
        Acl::new(
            &[AclRule {
                match_: "udp,tp_dst=2000".parse().unwrap(),
                action: AclAction::Permit,
            }],
            1,
        )
        .into(),
    );
    bed.set(listed);
    let mut forbidden = datagram("10.0.10.2", 64, 1440);
    forbidden[20] |= 0x40;
    fix_checksum(&mut forbidden, 14);
    let frames = [
        datagram("192.0.2.1", 64, 20),
        datagram("10.0.20.2", 64, 20),
        datagram("10.0.10.2", 64, 1440),
        forbidden,
        datagram("10.0.10.2", 1, 20),
        datagram("203.0.113.7", 64, 20),
        datagram("198.51.100.7", 64, 20),
        datagram("10.0.10.88", 64, 20),
        datagram("10.0.10.1", 64, 20),
        datagram("2001:db8:10::2", 64, 20),
        datagram("2001:db8:10::2", 64, 1440),
        datagram("2001:db8:10::2", 1, 20),
        datagram("2001:db8:10::1", 1, 20),
        link(0).ipv4([127, 0, 0, 1], [10, 0, 10, 2]).udp(1, 2).build(),
        vec![0; 60],
    ];
    let pool = FramePool::new(256, 2048);
    let mut sink = Sink::default();
    let mut round = |bed: &mut TestBed| {
        bed.now = bed.now + Duration::from_millis(100);
        let mut burst: ArrayVec<Frame, 64> = frames.iter().filter_map(|frame| pool.take(frame)).collect();
        let arrival = Arrival::of_bridge(0);
        bed.router
            .forward(&bed.state, arrival, &mut burst, bed.now, &mut sink);
    };
    round(&mut bed);
    let before = allocator::calls();
    for _ in 0..100 {
        round(&mut bed);
    }
    assert_eq!(allocator::calls() - before, 0);
    assert_eq!(pool.free_len(), 256, "every buffer came back");
    assert_eq!((sink.punted, sink.waiting), (2 * 101, 101));
    assert_eq!(sink.sent, 101 * (1 + 1 + 2 + 1 + 1 + 1 + 1 + 1 + 1 + 1));
    assert_eq!(sink.dropped, 101 * (1 + 1 + 1 + 1 + 1 + 1 + 1 + 2));
}
