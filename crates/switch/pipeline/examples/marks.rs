//! The time of a packet without marks, with marks that are compared, and with marks that are trusted (E10): `millrace bench nic`.
//!
//! The device is ideal: its marks and hashes lie beside the packets, computed beforehand, and cost nothing. So this measures the
//! switch's side alone: `Processor`, one thread, without input and output. Frames are used again and again; each variant
//! processes the same bursts in turn, and the lower quartile of all windows counts. The argument is the number of windows.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a measurement that fails ends with a message"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_flow::compose::PacketText;
use millrace_flow::{Action, Field, FlowKey, Instructions};
use millrace_pipeline::{
    Control, ControlConfig, DropReason, Egress, FlowMod, FlowModCommand, Forwarding, Learn, MarkColumn,
    MarkCounts, MarkLevel, MarkState, PacketInInfo, Port, Processor, SlotChange, Slots,
};
use millrace_types::{PortNo, Priority, QueueId, TableId, Time};
use millrace_wire::flow_hash::FlowHash;
use millrace_wire::{Depth, NoHeadroom, Packet};

/// The bursts of a window.
const BURSTS: usize = 160;
const INDEX_BITS: u32 = 14;

/// A frame of the pool, which comes back to its place.
struct Pooled {
    number: usize,
    bytes: Box<[u8]>,
}

impl Packet for Pooled {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn head(&self) -> &[u8] {
        &self.bytes
    }

    fn head_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn prepend(&mut self, _: usize) -> Result<(), NoHeadroom> {
        Err(NoHeadroom)
    }

    fn trim_front(&mut self, _: usize) {}

    fn try_clone(&self) -> Option<Self> {
        None
    }

    fn copy_to(&self, out: &mut Vec<u8>, max_len: usize) {
        out.extend(self.bytes.iter().take(max_len));
    }
}

/// The pool, to which sent packets return.
struct Pool(Vec<Option<Pooled>>);

impl Egress<Pooled> for Pool {
    fn transmit(&mut self, _: PortNo, _: Option<QueueId>, packet: Pooled) {
        let number = packet.number;
        self.0[number] = Some(packet);
    }

    fn packet_in(&mut self, _: PacketInInfo, packet: Pooled) {
        self.transmit(PortNo::ANY, None, packet);
    }

    fn learn(&mut self, _: Learn) {}

    fn traced(&mut self, _: u64, _: PortNo, packet: Pooled) {
        self.transmit(PortNo::ANY, None, packet);
    }

    fn oam(&mut self, _: PortNo, packet: Pooled) {
        self.transmit(PortNo::ANY, None, packet);
    }

    fn dropped(&mut self, _: DropReason, packet: Pooled) {
        self.transmit(PortNo::ANY, None, packet);
    }
}

/// A case: entries of table 0 as ovs-ofctl writes matches, and frames.
struct Case {
    name: &'static str,
    entries: Vec<String>,
    frames: Vec<Vec<u8>>,
}

fn compose(text: &str) -> Vec<u8> {
    let packet: PacketText = text.parse().unwrap();
    let mut frame = packet.frame().unwrap();
    frame.resize(frame.len().max(60), 0);
    frame
}

fn address(flow: usize) -> String {
    format!("10.{}.{}.1", flow / 256 % 256, flow % 256)
}

fn udp(flow: usize) -> Vec<u8> {
    compose(&format!(
        "udp,nw_src=192.0.2.1,nw_dst={},tp_src=7,tp_dst=9",
        address(flow)
    ))
}

/// Returns a frame with bytes between the addresses and the EtherType.
fn with(frame: &[u8], between: &[u8]) -> Vec<u8> {
    [&frame[..12], between, &frame[12..]].concat()
}

fn tag(kind: u16, vid: usize) -> [u8; 4] {
    let [a, b] = kind.to_be_bytes();
    let [c, d] = (vid as u16 & 0xfff).to_be_bytes();
    [a, b, c, d]
}

fn cases(flows: usize) -> Vec<Case> {
    let each = |text: &dyn Fn(usize) -> String| (0..flows).map(text).collect::<Vec<_>>();
    let frames = |frame: &dyn Fn(usize) -> Vec<u8>| (0..flows).map(frame).collect::<Vec<_>>();
    let to = |flow: usize| format!("ip,nw_dst={}", address(flow));
    let five = |flow: usize| format!("udp,nw_src=192.0.2.1,nw_dst={},tp_src=7,tp_dst=9", address(flow));
    let label = |flow: usize| {
        let inner = udp(flow);
        let entry = ((flow as u32 + 16) << 12 | 0x40).to_be_bytes();
        let bottom = (500_u32 << 12 | 0x140).to_be_bytes();
        [&inner[..12], &[0x88, 0x47], &entry, &bottom, &inner[14..]].concat()
    };
    let pbb = |flow: usize| {
        let isid = (flow as u32 + 1).to_be_bytes();
        let inner = udp(flow);
        [&inner[..12], &[0x88, 0xe7], &isid, &inner].concat()
    };
    // The outer packet of a tunnel names the flow, as the entries match it.
    let outer = |flow: usize, protocol: u8, between: &[u8]| {
        let (mut frame, inner) = (udp(flow), udp(flow + 1));
        frame[23] = protocol;
        frame.truncate(34);
        let size = (20 + between.len() + inner.len()) as u16;
        frame[16..18].copy_from_slice(&size.to_be_bytes());
        frame[24..26].fill(0);
        let sum = millrace_wire::checksum::internet(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        [&frame[..], between, &inner].concat()
    };
    let gre = |flow: usize| outer(flow, 47, &[0, 0, 0x65, 0x58]);
    let vxlan = |flow: usize| {
        let size = (16 + udp(flow).len()) as u16;
        let [high, low] = size.to_be_bytes();
        let header = [0xc0, 0, 0x12, 0xb5, high, low, 0, 0, 8, 0, 0, 0, 0, 0, 9, 0];
        outer(flow, 17, &header)
    };
    let v6 = |flow: usize| {
        compose(&format!(
            "udp6,ipv6_dst=2001:db8::{:x},tp_src=7,tp_dst=9",
            flow + 1
        ))
    };
    vec![
        Case {
            name: "exact-10k",
            entries: each(&five),
            frames: frames(&udp),
        },
        Case {
            name: "E10, one flow",
            entries: vec![to(0)],
            frames: vec![with(&udp(0), &tag(0x8100, 5)); flows.min(256)],
        },
        Case {
            name: "E10, 10,000 flows",
            entries: each(&to),
            frames: frames(&|flow| with(&udp(flow), &tag(0x8100, 5))),
        },
        Case {
            name: "QinQ",
            entries: each(&to),
            frames: frames(&|flow| with(&with(&udp(flow), &tag(0x8100, 7)), &tag(0x88a8, 5))),
        },
        Case {
            name: "MPLS",
            entries: each(&|flow| format!("mpls,mpls_label={}", flow + 16)),
            frames: frames(&label),
        },
        Case {
            name: "PBB",
            entries: each(&|flow| format!("dl_type=0x88e7,pbb_isid={}", flow + 1)),
            frames: frames(&pbb),
        },
        Case {
            name: "GRE",
            entries: each(&to),
            frames: frames(&gre),
        },
        Case {
            name: "VXLAN",
            entries: each(&to),
            frames: frames(&vxlan),
        },
        Case {
            name: "IPv6",
            entries: each(&|flow| format!("ipv6,ipv6_dst=2001:db8::{:x}", flow + 1)),
            frames: frames(&v6),
        },
    ]
}

/// A processor with its own slots, at one level; `None` for no marks.
struct Variant {
    processor: Processor,
    slots: Option<Slots>,
    counts: Arc<MarkCounts>,
    windows: Vec<f64>,
}

struct Bench {
    forwarding: Forwarding,
    variants: Vec<Variant>,
    columns: Vec<MarkColumn>,
    pool: Pool,
    next: usize,
}

impl Bench {
    fn new(case: &Case) -> Bench {
        let mut control = Control::new(ControlConfig {
            tables: 2,
            ..ControlConfig::default()
        });
        let mut forwarding = control.forwarding();
        let mut ops = Vec::new();
        for port in 1..=2 {
            control.set_port(Port::new(PortNo::from_raw(port)), &mut ops);
        }
        for entry in &case.entries {
            let mut request = FlowMod::new(
                FlowModCommand::Add,
                TableId(0),
                Priority(1),
                entry.parse().expect("a match"),
            );
            request.instructions = Instructions::apply([Action::output(PortNo::from_raw(2))]);
            control.flow_mod(request, Time::ZERO, &mut ops).unwrap();
        }
        ops.iter().for_each(|op| forwarding.stage(op));
        forwarding.settle();
        let levels = [None, Some(MarkLevel::Verify), Some(MarkLevel::Trust)];
        let mut bench = Bench {
            variants: levels
                .into_iter()
                .map(|level| {
                    let counts = Arc::new(MarkCounts::new(1 << INDEX_BITS));
                    let slots = level.map(|level| {
                        let state = Arc::new(MarkState::new(level));
                        Slots::new(INDEX_BITS, state, Arc::clone(&counts), 1)
                    });
                    Variant {
                        processor: Processor::new(control.counters()),
                        slots,
                        counts,
                        windows: Vec::new(),
                    }
                })
                .collect(),
            forwarding,
            columns: Vec::new(),
            pool: Pool(Vec::new()),
            next: 0,
        };
        bench.mark(case);
        bench
    }

    /// Gives each flow a slot, and each burst its column.
    fn mark(&mut self, case: &Case) {
        let (mask, version) = self.forwarding.match_bits();
        let hash = FlowHash::new(1);
        let mut marks: BTreeMap<[u64; FlowKey::WORDS], u32> = BTreeMap::new();
        // Whole bursts, so that a column belongs to the frames at fixed places.
        let frames = case
            .frames
            .iter()
            .cycle()
            .take(case.frames.len().next_multiple_of(BURST));
        for (number, bytes) in frames.enumerate() {
            let mut key = FlowKey::default();
            key.put(Field::InPort, 1);
            key.put(Field::InPhyPort, 1);
            key.read(bytes, bytes.len(), Depth::All);
            let next = marks.len() as u32;
            let mark = *marks.entry(*key.masked(&mask).words()).or_insert_with(|| {
                let slot = next % (1 << INDEX_BITS);
                let mark = 1 << INDEX_BITS | slot;
                for slots in self
                    .variants
                    .iter_mut()
                    .filter_map(|variant| variant.slots.as_mut())
                {
                    slots.change(&SlotChange {
                        slot,
                        key: Some((mark, key, version)),
                    });
                }
                mark
            });
            if number % BURST == 0 {
                self.columns.push(MarkColumn::default());
            }
            if let Some(column) = self.columns.last_mut() {
                column.set(number % BURST, mark, Some((hash.of(bytes) >> 32) as u32));
            }
            self.pool.0.push(Some(Pooled {
                number,
                bytes: bytes.clone().into(),
            }));
        }
    }

    /// Processes a window with a variant. Returns the nanoseconds of a packet.
    fn window(&mut self, variant: usize) -> f64 {
        let variant = &mut self.variants[variant];
        let (mut at, port) = (self.next, PortNo::from_raw(1));
        let begin = Instant::now();
        for _ in 0..BURSTS {
            let column = &self.columns[at];
            let mut burst: ArrayVec<Pooled, BURST> = ArrayVec::new();
            let places = &mut self.pool.0[at * BURST..(at + 1) * BURST];
            burst.extend(places.iter_mut().filter_map(Option::take));
            assert_eq!(burst.len(), BURST, "every packet comes back");
            let now = Time::from_nanos(1);
            match &mut variant.slots {
                None => {
                    variant
                        .processor
                        .process_burst(&self.forwarding, port, &mut burst, now, &mut self.pool);
                }
                Some(slots) => {
                    variant.processor.process_marked_burst(
                        &self.forwarding,
                        port,
                        (&mut burst, column),
                        slots,
                        now,
                        &mut self.pool,
                    );
                    slots.take_sample();
                }
            }
            at = (at + 1) % self.columns.len();
        }
        begin.elapsed().as_nanos() as f64 / (BURSTS * BURST) as f64
    }

    /// Returns the lower quartile of the time of a packet for each variant.
    fn run(&mut self, windows: usize) -> Vec<f64> {
        // The first rounds record traversals, until each flow has come three times at least.
        let recording = 2 + 3 * self.columns.len().div_ceil(BURSTS);
        let mut before = vec![(0, 0); self.variants.len()];
        for round in 0..recording + windows {
            for (variant, before) in before.iter_mut().enumerate() {
                if round == recording {
                    let counts = &self.variants[variant].counts;
                    *before = (counts.used(), counts.marked());
                }
                let nanos = self.window(variant);
                if round >= recording {
                    self.variants[variant].windows.push(nanos);
                }
            }
            self.next = (self.next + BURSTS) % self.columns.len();
        }
        for (variant, (used, marked)) in self.variants.iter().zip(before) {
            if variant.slots.is_some() {
                let (used, marked) = (variant.counts.used() - used, variant.counts.marked() - marked);
                assert_eq!(variant.counts.mismatches(), 0);
                assert!(used * 10 > marked * 8, "{used} of {marked} marks were used");
            }
        }
        let quartile = |variant: &mut Variant| {
            variant.windows.sort_by(f64::total_cmp);
            variant.windows[variant.windows.len() / 4]
        };
        self.variants.iter_mut().map(quartile).collect()
    }
}

fn main() {
    let windows = std::env::args()
        .nth(1)
        .map_or(50, |text| text.parse().expect("a number"));
    let flows = std::env::args()
        .nth(2)
        .map_or(10_000, |text| text.parse().expect("a number"));
    let mut sums = [0.0_f64; 2];
    let mut tunnels = 0.0;
    for case in cases(flows) {
        let times = Bench::new(&case).run(windows);
        let [off, verify, trust] = times[..] else { continue };
        println!("{}: off: {off:.1} ns", case.name);
        println!("{}: verify: {verify:.1} ns", case.name);
        println!("{}: trust: {trust:.1} ns", case.name);
        println!("{}: off / verify: {:.3}", case.name, off / verify);
        println!("{}: off / trust: {:.3}", case.name, off / trust);
        if ["QinQ", "MPLS", "PBB", "GRE", "VXLAN"].contains(&case.name) {
            sums[0] += off / verify;
            sums[1] += off / trust;
            tunnels += 1.0;
        }
    }
    println!(
        "mean of QinQ, MPLS, PBB, GRE, VXLAN: off / verify: {:.3}",
        sums[0] / tunnels
    );
    println!(
        "mean of QinQ, MPLS, PBB, GRE, VXLAN: off / trust: {:.3}",
        sums[1] / tunnels
    );
}
