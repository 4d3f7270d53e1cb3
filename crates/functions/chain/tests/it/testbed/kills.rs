//! Function processes that are killed at random under load: the invariants that must hold, and the time until each is back.
//!
//! Two chains share the worker. Each hop of the first chain has another policy and is killed repeatedly, and every packet that
//! leaves the chain is checked. The second chain carries numbered packets, none of which may be lost.

use std::time::{Duration, Instant};

use millrace_chain::{Chain, ChainPlan, Class, Environment, HopPlan, HopState, OnFailure};
use millrace_datapath::io::{Backend, MemoryPeer};
use millrace_nf::Settings;
use millrace_pipeline::DropReason;
use millrace_types::Mac;

use super::{BOUND, TestBed, frame, head, no, sequence};

/// The destination port that the firewall denies.
const FORBIDDEN: u16 = 2001;
const FLOWS: u32 = 16;
const INSIDE: [u8; 4] = [10, 0, 0, 1];
const OUTSIDE: [u8; 4] = [203, 0, 113, 1];
/// The indices of the hops. The first three are killed; `TAIL` is not.
const FIREWALL: usize = 0;
const SWAP: usize = 1;
const NAT: usize = 2;
const TAIL: usize = 3;
/// Limit of packets of the second chain in flight.
const WINDOW: u32 = 256;

/// Returns a firewall that fails closed, a `macswap` that fails open, a NAT that is bypassed, and a hop that the bypass skips,
/// too.
pub(crate) fn hops(class: Class) -> Vec<HopPlan> {
    let hop = |name: &str, function: &str, settings: &[&str], on_failure| HopPlan {
        class,
        on_failure,
        settings: Settings::parse(settings).unwrap(),
        ..HopPlan::new(name, function)
    };
    vec![
        hop("fw", "firewall", &["rule=allow udp port 2000"], OnFailure::Closed),
        hop("swap", "macswap", &[], OnFailure::Open),
        hop("nat", "nat44", &["outside=203.0.113.1"], OnFailure::Bypass),
        HopPlan::new("tail", "macswap"),
    ]
}

/// Returns hops with the same policies and functions that only read.
pub(crate) fn readers(class: Class) -> Vec<HopPlan> {
    let [mut swap, mut nat] = [("rate", "ratelimit"), ("watch", "monitor")].map(|(name, function)| HopPlan {
        class,
        ..HopPlan::new(name, function)
    });
    swap.settings = Settings::parse(["rate=100Gbps"]).unwrap();
    swap.on_failure = OnFailure::Open;
    nat.on_failure = OnFailure::Bypass;
    let mut hops = hops(class);
    hops.splice(SWAP..=NAT, [swap, nat]);
    hops
}

/// A deterministic pseudo-random sequence.
struct Dice(u64);

impl Dice {
    /// Returns a number below `bound`.
    fn roll(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Traffic of the first chain: numbered packets, and some that must be dropped.
struct Load {
    sent: u32,
    forbidden: u64,
    came: u64,
    translated: u64,
    next: [u32; FLOWS as usize],
}

impl Load {
    fn exchange<B: Backend>(&mut self, one: &MemoryPeer<B::Packet>, two: &MemoryPeer<B::Packet>) {
        for _ in 0..16 {
            let flow = (self.sent % FLOWS) as u8;
            self.sent += u32::from(one.send(&datagram(2000, self.sent, flow)));
        }
        self.forbidden += u64::from(one.send(&datagram(FORBIDDEN, u32::MAX, 0)));
        self.drain::<B>(two);
    }

    fn drain<B: Backend>(&mut self, two: &MemoryPeer<B::Packet>) {
        while let Some(frame) = two.receive() {
            let frame = head(&frame);
            let to = u16::from_be_bytes([frame[36], frame[37]]);
            assert_ne!(to, FORBIDDEN, "a firewall that is gone lets nothing through");
            let from: [u8; 4] = *frame[26..].first_chunk().unwrap();
            assert!([INSIDE, OUTSIDE].contains(&from), "{from:?}");
            self.translated += u64::from(from == OUTSIDE);
            // The remaining packets are in order.
            let next = &mut self.next[usize::from(frame[46])];
            assert!(sequence(&frame) >= *next, "{} before {next}", sequence(&frame));
            *next = sequence(&frame) + 1;
            self.came += 1;
        }
    }
}

fn datagram(to: u16, sequence: u32, flow: u8) -> Vec<u8> {
    let mut payload = [0; 26];
    payload[..4].copy_from_slice(&sequence.to_be_bytes());
    payload[4] = flow;
    millrace_wire::Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]))
        .ipv4(INSIDE, [10, 0, 0, 2])
        .udp(1000 + u16::from(flow), to)
        .payload(&payload)
        .build()
}

/// Returns a numbered packet of the second chain.
fn secret(sequence: u32) -> Vec<u8> {
    let mut bytes = frame(0, sequence);
    bytes[46..].copy_from_slice(b"nobody else reads this");
    bytes
}

/// The second chain. No process of it is killed, and no packet of it may be lost or delayed for long.
pub(crate) struct Bystander<B: Backend> {
    chain: Chain<B::Packet>,
    three: MemoryPeer<B::Packet>,
    four: MemoryPeer<B::Packet>,
    sent: u32,
    came: u32,
    last: Instant,
    longest: Duration,
}

impl<B: Backend> Bystander<B> {
    pub(crate) fn new(
        testbed: &mut TestBed<B>,
        memory: impl Fn(&str) -> MemoryPeer<B::Packet>,
        environment: Environment,
        class: Class,
    ) -> Bystander<B> {
        let mut plan = ChainPlan::new("beside", no(200), no(201));
        plan.hops = vec![HopPlan::new("here", "macswap"), HopPlan::new("there", "macswap")];
        plan.hops[1].class = class;
        let mut chain = testbed.add_chain(&plan, environment);
        testbed.edit_chain(&mut chain, &plan);
        let three = testbed.add_port(3, &memory);
        let four = testbed.add_port(4, &memory);
        for (from, to) in [(3, 200), (201, 4)] {
            testbed.output(from, to);
        }
        Bystander {
            chain,
            three,
            four,
            sent: 0,
            came: 0,
            last: Instant::now(),
            longest: Duration::ZERO,
        }
    }

    pub(crate) fn take(&mut self, limit: usize) {
        for _ in 0..limit {
            let Some(frame) = self.four.receive() else { return };
            assert_eq!(
                sequence(&head(&frame)),
                self.came,
                "the other chain loses nothing"
            );
            self.came += 1;
            self.longest = self.longest.max(self.last.elapsed());
            self.last = Instant::now();
        }
    }

    /// Returns true if all sent packets have arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.came == self.sent
    }

    pub(crate) fn exchange(&mut self) {
        while self.sent - self.came < WINDOW && self.three.send(&secret(self.sent)) {
            self.sent += 1;
        }
        self.take(64);
        assert!(self.last.elapsed() < BOUND, "the other chain goes on");
    }
}

/// The outage of a killed function, until it forwards packets again.
struct Outage {
    at: Instant,
    restarts: u64,
    /// The packets that the restarted function had forwarded when it was seen first.
    next: Option<u64>,
}

/// Returns the number of kills: that in MILLRACE_KILLS, or a small default.
fn times() -> usize {
    std::env::var("MILLRACE_KILLS").map_or(15, |times| times.parse().unwrap())
}

/// Returns the time limit for a function to be back, however often it is killed. The limit is short only with MILLRACE_KILLS,
/// because starting a process takes long on a machine that is busy with other tests.
pub(crate) fn back_within() -> Duration {
    match std::env::var_os("MILLRACE_KILLS") {
        Some(_) => Duration::from_secs(2),
        None => BOUND,
    }
}

/// Kills processes of the testbed's chain, which has the hops of [`hops`] or [`readers`]. Returns the longest time until a
/// restarted function worked.
pub(crate) fn kill_at_random<B: Backend>(
    testbed: &mut TestBed<B>,
    [one, two]: [&MemoryPeer<B::Packet>; 2],
    memory: impl Fn(&str) -> MemoryPeer<B::Packet>,
    environment: Environment,
    class: Class,
    mut kill: impl FnMut(u32),
) -> Duration {
    let times = times();
    let mut beside = Bystander::<B>::new(testbed, memory, environment, class);
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut load = Load {
        sent: 0,
        forbidden: 0,
        came: 0,
        translated: 0,
        next: [0; FLOWS as usize],
    };
    let mut outages: [Option<Outage>; TAIL] = [const { None }; TAIL];
    let mut times_back = Vec::new();
    let (mut kills, mut due) = (0, Instant::now());
    let began = Instant::now();
    while testbed.chain.stats().hops[..TAIL].iter().any(|hop| hop.next == 0) {
        load.exchange::<B>(one, two);
        assert!(began.elapsed() < BOUND, "{:?}", testbed.chain.stats());
    }
    while times_back.len() < times {
        load.exchange::<B>(one, two);
        beside.exchange();
        testbed.chain.tick(testbed.bridge.now());
        beside.chain.tick(testbed.bridge.now());
        let stats = testbed.chain.stats().hops;
        for (at, outage) in outages.iter_mut().enumerate() {
            let Some(held) = outage else { continue };
            let hop = &stats[at];
            if hop.restarts > held.restarts && hop.state != HopState::Down {
                // The time ends when the restarted function has forwarded packets.
                if hop.next > *held.next.get_or_insert(hop.next) {
                    times_back.push(held.at.elapsed());
                    *outage = None;
                    continue;
                }
            }
            assert!(held.at.elapsed() < BOUND, "{hop:?}");
        }
        // The function that is selected next may still be down; then the kill is skipped.
        let victim = dice.roll(TAIL as u64) as usize;
        if kills < times && Instant::now() >= due && outages[victim].is_none() {
            let pid = testbed.chain.processes().nth(victim).unwrap();
            outages[victim] = Some(Outage {
                at: Instant::now(),
                restarts: stats[victim].restarts,
                next: None,
            });
            kill(pid);
            kills += 1;
            due = Instant::now() + Duration::from_micros(dice.roll(250_000));
        }
    }
    // Every packet that was sent has arrived, or was counted as dropped.
    let sent = u64::from(load.sent) + load.forbidden;
    testbed.wait("all packets to be somewhere", |testbed| {
        load.drain::<B>(two);
        beside.take(usize::MAX);
        let dropped = [
            DropReason::FunctionDrop,
            DropReason::HopDown,
            DropReason::TransmitFull,
        ];
        let dropped: u64 = dropped.iter().map(|reason| testbed.drops(*reason)).sum();
        beside.is_complete() && sent == load.came + dropped
    });
    let stats = testbed.chain.stats().hops;
    assert_eq!(stats[FIREWALL].passed, 0, "closed: {stats:?}");
    assert_eq!(
        [stats[SWAP].lost, stats[NAT].lost],
        [0, 0],
        "open, and bypass: {stats:?}"
    );
    // With few kills, it can happen that no packet reached a hop that was down.
    let met = [stats[FIREWALL].lost, stats[SWAP].passed, stats[NAT].passed];
    assert!(times < 100 || !met.contains(&0), "{stats:?}");
    assert_eq!(
        stats[TAIL].packets, stats[NAT].next,
        "what bypasses leaves the chain"
    );
    // Port 2 may have been full. A killed function of class ring may have changed a packet without an answer.
    let is_copied = class == Class::Isolated;
    assert!(
        !is_copied || load.translated <= stats[NAT].next,
        "{} {stats:?}",
        load.translated
    );
    assert!(testbed.drops(DropReason::FunctionDrop) <= load.forbidden);
    times_back.sort();
    let of = |share: usize| times_back[(times_back.len() - 1) * share / 100];
    eprintln!(
        "{kills} kills of {class:?} functions: back after {:?} (median), {:?} (95 %), {:?} (longest); of {} packets {} came, \
         and all {} of the other chain, which stood still for {:?} at most",
        of(50),
        of(95),
        of(100),
        sent,
        load.came,
        beside.came,
        beside.longest
    );
    of(100)
}
