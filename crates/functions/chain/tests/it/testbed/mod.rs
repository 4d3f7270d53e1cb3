//! A bridge on memory devices with one chain, and functions for tests.

#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod kills;
pub(crate) mod order;
pub(crate) mod shared;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use millrace_chain::{Chain, ChainPlan, Environment, HopPlan, PortChanges};
use millrace_datapath::io::{Backend, DeviceOptions, DeviceSpec, HeapBackend, MemoryPeer};
use millrace_datapath::{Bridge, BridgeSetup, Datapath, Idle, Spread, Workers};
use millrace_flow::{Action, Field, Instructions, Match};
use millrace_nf::{
    Access, Buffer, Catalogue, Context, Counters, Direction, Effects, Function, Kind, ShunAction,
    ShunnedFlow, Verdict,
};
use millrace_pipeline::{Control, ControlConfig, DropReason, FlowMod, FlowModCommand, Op, Port};
use millrace_types::{PortNo, Priority, TableId, Time};
use millrace_wire::{Frame, Packet};

pub(crate) const BOUND: Duration = Duration::from_secs(60);

pub(crate) struct TestBed<B: Backend = HeapBackend> {
    pub(crate) bridge: Bridge<B>,
    pub(crate) control: Control,
    pub(crate) ops: Vec<Op>,
    pub(crate) datapath: Datapath<B>,
    pub(crate) chain: Chain<B::Packet>,
}

pub(crate) fn no(raw: u32) -> PortNo {
    PortNo::ordinary(raw).unwrap()
}

impl TestBed {
    /// Returns a bridge with ports 1 and 2, and a chain with its ends at 100 and 101. Packets from port 1 enter the near end,
    /// packets from the far end leave at port 2, and vice versa.
    pub(crate) fn new(
        workers: usize,
        lanes: u16,
        hops: Vec<HopPlan>,
    ) -> (TestBed, MemoryPeer<Frame>, MemoryPeer<Frame>) {
        let environment = Environment {
            catalogue: CATALOGUE,
            workers,
            seed: 1,
            zero_unix_millis: 0,
            program: "none".into(),
        };
        TestBed::environment(environment, lanes, hops)
    }

    pub(crate) fn environment(
        environment: Environment,
        lanes: u16,
        hops: Vec<HopPlan>,
    ) -> (TestBed, MemoryPeer<Frame>, MemoryPeer<Frame>) {
        let backend = Arc::new(HeapBackend::new());
        let memory = Arc::clone(&backend);
        TestBed::on(backend, |name| memory.memory(name), environment, lanes, hops)
    }
}

/// A testbed with its ports 1 and 2.
type WithPorts<B> = (
    TestBed<B>,
    MemoryPeer<<B as Backend>::Packet>,
    MemoryPeer<<B as Backend>::Packet>,
);

impl<B: Backend> TestBed<B> {
    /// Returns a testbed on a backend. `memory` returns the far end of a memory device.
    pub(crate) fn on(
        backend: Arc<B>,
        memory: impl Fn(&str) -> MemoryPeer<B::Packet>,
        environment: Environment,
        lanes: u16,
        hops: Vec<HopPlan>,
    ) -> WithPorts<B> {
        let settings = Workers {
            cores: vec![None; environment.workers],
            idle: Idle::Adaptive,
            spread: Spread::Always,
        };
        let datapath = Datapath::start(backend, &settings).unwrap();
        let mut control = Control::new(ControlConfig {
            tables: 2,
            ..ControlConfig::default()
        });
        let counters = (0..=datapath.workers_len()).map(|_| control.counters()).collect();
        let setup = BridgeSetup {
            forwarding: [control.forwarding(), control.forwarding()],
            counters,
        };
        let mut bridge = datapath.bridge(setup).unwrap();
        let mut plan = ChainPlan::new("edge", no(100), no(101));
        plan.lanes = lanes;
        plan.hops = hops;
        let (chain, services) = Chain::new(&plan, environment);
        for (worker, service) in services.into_iter().enumerate() {
            bridge.add_service(worker, service);
        }
        let mut testbed = TestBed {
            bridge,
            control,
            ops: Vec::new(),
            datapath,
            chain,
        };
        testbed.edit(&plan);
        let peers = [1, 2].map(|raw| testbed.add_port(raw, &memory));
        for (from, to) in [(1, 100), (101, 2), (2, 101), (100, 1)] {
            testbed.output(from, to);
        }
        let [one, two] = peers;
        (testbed, one, two)
    }

    /// Adds a port on a memory device, and returns its far end.
    pub(crate) fn add_port(
        &mut self,
        raw: u32,
        memory: &impl Fn(&str) -> MemoryPeer<B::Packet>,
    ) -> MemoryPeer<B::Packet> {
        let name = format!("m{raw}");
        self.control.set_port(Port::new(no(raw)), &mut self.ops);
        self.bridge.publish(&mut self.ops);
        self.bridge
            .add_port(no(raw), &DeviceSpec::Memory(name.clone()), DeviceOptions::PLAIN)
            .unwrap();
        memory(&name)
    }

    /// Adds another chain without hops.
    pub(crate) fn add_chain(&mut self, plan: &ChainPlan, environment: Environment) -> Chain<B::Packet> {
        let (chain, services) = Chain::new(plan, environment);
        for (worker, service) in services.into_iter().enumerate() {
            self.bridge.add_service(worker, service);
        }
        chain
    }

    pub(crate) fn edit(&mut self, plan: &ChainPlan) {
        let changes = self.chain.edit(plan, self.bridge.now()).unwrap();
        self.carry_out(changes, plan);
    }

    pub(crate) fn edit_chain(&mut self, chain: &mut Chain<B::Packet>, plan: &ChainPlan) {
        let changes = chain.edit(plan, self.bridge.now()).unwrap();
        self.carry_out(changes, plan);
    }

    fn carry_out(&mut self, changes: PortChanges<B::Packet>, plan: &ChainPlan) {
        for (number, _, opened) in changes.opened {
            self.control.set_port(Port::new(number), &mut self.ops);
            self.bridge.publish(&mut self.ops);
            self.bridge.remove_port(number);
            self.bridge.attach_port(number, opened).unwrap();
        }
        for number in changes.closed {
            if !plan.hops.iter().any(|hop| hop.number == Some(number)) {
                self.control.remove_port(number, &mut self.ops);
                self.bridge.publish(&mut self.ops);
                self.bridge.remove_port(number);
            }
        }
    }

    pub(crate) fn settle(&mut self) {
        let deadline = Instant::now() + BOUND;
        while !self.chain.is_settled() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn output(&mut self, from: u32, to: u32) {
        let wanted = Match::exact(&[(Field::InPort, u128::from(from))]).unwrap();
        let mut request = FlowMod::new(FlowModCommand::Add, TableId(0), Priority(1), wanted);
        request.instructions = Instructions::apply([Action::output(no(to))]);
        self.control.flow_mod(request, Time::ZERO, &mut self.ops).unwrap();
        self.bridge.publish(&mut self.ops);
    }

    /// Waits until a condition is true.
    pub(crate) fn wait(&mut self, what: &str, mut is_so: impl FnMut(&mut TestBed<B>) -> bool) {
        let deadline = Instant::now() + BOUND;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "{what}: {:?}", self.chain.stats());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn drops(&self, reason: DropReason) -> u64 {
        self.control.drops(reason)
    }
}

/// Returns a hop for each function.
pub(crate) fn hops(functions: &[&str]) -> Vec<HopPlan> {
    let hop = |(place, function): (usize, &&str)| HopPlan::new(&format!("h{place}"), function);
    functions.iter().enumerate().map(hop).collect()
}

/// Returns a frame of a flow with a sequence number.
pub(crate) fn frame(flow: u16, sequence: u32) -> Vec<u8> {
    use millrace_types::Mac;
    let ethernet = millrace_wire::Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]));
    let mut payload = [0; 26];
    payload[..4].copy_from_slice(&sequence.to_be_bytes());
    ethernet
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(1000 + flow, 2000)
        .payload(&payload)
        .build()
}

/// Returns the first bytes of a packet, which tests compare.
pub(crate) fn head(packet: &impl Packet) -> [u8; 60] {
    *packet.head().first_chunk().unwrap()
}

pub(crate) fn sequence(frame: &[u8]) -> u32 {
    u32::from_be_bytes(*frame[42..].first_chunk().unwrap())
}

pub(crate) fn flow(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[34], frame[35]]) - 1000
}

/// The offset at which functions leave marks, after the sequence number.
pub(crate) const MARKS: usize = 46;

/// Returns the numbers of the functions that a frame traversed, in order.
pub(crate) fn marks(frame: &[u8]) -> Vec<u8> {
    frame[MARKS..]
        .iter()
        .copied()
        .take_while(|mark| *mark != 0)
        .collect()
}

/// A function that leaves its number in the packet, and selects its verdict by the sequence number.
struct Marker(u8);

impl Function for Marker {
    fn process(&mut self, context: &Context, burst: &mut [&mut dyn Buffer], verdicts: &mut [Verdict]) {
        for (packet, verdict) in burst.iter_mut().zip(verdicts) {
            let head = packet.head_mut();
            let free = head[MARKS..].iter().position(|mark| *mark == 0).unwrap();
            head[MARKS + free] = self.0
                + match context.direction {
                    Direction::Forward => 0,
                    Direction::Backward => 100,
                };
            *verdict = match (sequence(head), self.0) {
                (666, 1) => Verdict::Drop,
                (667, 1) => Verdict::Skip(1),
                (668, 1) => Verdict::Skip(200),
                (669, 1) => Verdict::ToPort(PortNo::from_raw(1)),
                (670, 1) => panic!("told to"),
                _ => Verdict::Next,
            };
        }
    }
}

/// A function that sends packets and shuns flows, as the sequence number of a packet says.
struct Guard {
    ended: Counters,
}

impl Guard {
    const REJECT: u32 = 700;
    const SHUN_PASS: u32 = 701;
    const SHUN_DROP: u32 = 702;
    const SHUN_SHORT: u32 = 703;
}

impl Function for Guard {
    fn process(&mut self, context: &Context, burst: &mut [&mut dyn Buffer], verdicts: &mut [Verdict]) {
        self.process_with_effects(context, burst, verdicts, &mut Effects::refusing());
    }

    fn process_with_effects(
        &mut self,
        context: &Context,
        burst: &mut [&mut dyn Buffer],
        verdicts: &mut [Verdict],
        effects: &mut Effects,
    ) {
        let opposite = match context.direction {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        };
        for (index, (packet, verdict)) in burst.iter_mut().zip(verdicts).enumerate() {
            let head = packet.head_mut();
            let free = head[MARKS..].iter().position(|mark| *mark == 0).unwrap();
            head[MARKS + free] = 50;
            match sequence(head) {
                Guard::REJECT => {
                    *verdict = Verdict::Drop;
                    assert!(effects.send(context.direction, &frame(8, 1)));
                    assert!(effects.send(opposite, &frame(9, 2)));
                }
                Guard::SHUN_PASS => effects.shun(index, ShunAction::Pass, LONG),
                Guard::SHUN_SHORT => effects.shun(index, ShunAction::Pass, SHORT),
                Guard::SHUN_DROP => {
                    *verdict = Verdict::Drop;
                    effects.shun(index, ShunAction::Drop, LONG);
                }
                _ => {}
            }
        }
    }

    fn shun_ended(&mut self, flow: &ShunnedFlow) {
        self.ended.add(0, 1);
        self.ended.add(1, flow.packets);
    }
}

/// Idle times after which a flow is no longer shunned.
const LONG: millrace_types::Duration = millrace_types::Duration::from_secs(3600);
const SHORT: millrace_types::Duration = millrace_types::Duration::from_millis(50);

const fn kind(name: &'static str, make: &'static millrace_nf::Constructor) -> Kind {
    Kind {
        name,
        about: "for tests",
        settings: &[("note", "anything")],
        counters: &[],
        reads: Access::NONE,
        writes: Access::NONE,
        keeps_flows: false,
        outbox: (0, 0),
        report: 0,
        make,
        ..Kind::DEFAULT
    }
}

/// The mark of the next function of kind `instance`.
static NEXT_INSTANCE: AtomicU8 = AtomicU8::new(10);

static KINDS: [Kind; 7] = [
    shared::KIND,
    kind("one", &|_| Ok(Box::new(Marker(1)))),
    kind("two", &|_| Ok(Box::new(Marker(2)))),
    kind("three", &|_| Ok(Box::new(Marker(3)))),
    Kind {
        shuns: 64,
        counters: &["ended", "packets"],
        ..kind("guard", &|setup| {
            let ended = setup.counters.clone();
            Ok(Box::new(Guard { ended }))
        })
    },
    kind("instance", &|_| {
        Ok(Box::new(Marker(NEXT_INSTANCE.fetch_add(1, Ordering::Relaxed))))
    }),
    Kind {
        spread: millrace_nf::Spread::Addresses,
        ..kind("pairs", &|_| Ok(Box::new(Marker(3))))
    },
];

pub(crate) const CATALOGUE: Catalogue = Catalogue::new(&KINDS);

/// Returns the reply to a datagram.
pub(crate) fn answer(frame: &[u8]) -> Vec<u8> {
    use millrace_types::Mac;
    let mac = |at: usize| Mac(*frame[at..].first_chunk().unwrap());
    let ip = |at: usize| -> [u8; 4] { *frame[at..].first_chunk().unwrap() };
    let port = |at: usize| u16::from_be_bytes(*frame[at..].first_chunk().unwrap());
    millrace_wire::Builder::ethernet(mac(6), mac(0))
        .ipv4(ip(30), ip(26))
        .udp(port(36), port(34))
        .payload(&frame[42..])
        .build()
}
