//! Cost of a packet in the pipeline, without IO: bursts of 32 frames of 60 bytes.
//!
//! A packet is a small handle to a buffer, like an mbuf. The egress keeps the packets for the next burst, so
//! that no buffer pool is measured. Each figure includes the time to write the frame into the buffer; one
//! line of the output has this time alone.

#![allow(
    clippy::expect_used,
    reason = "a broken bench has to say so; criterion's macro writes no docs"
)]

use std::hint::black_box;
use std::sync::Arc;

use arrayvec::ArrayVec;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use millrace_flow::classify::BURST;
use millrace_flow::{Action, Bucket, Field, Instructions, Match, SetField};
use millrace_pipeline::{
    Band, BandKind, Control, ControlConfig, DropReason, Egress, FlowMod, FlowModCommand, Forwarding, Group,
    GroupKind, GroupMod, Learn, Meter, MeterFlags, MeterMod, PacketInInfo, Port, Processor, Tunnel,
    TunnelKey, Tunnels,
};
use millrace_types::{GroupId, Mac, MeterId, PortNo, Priority, QueueId, TableId, Time};
use millrace_wire::checksum::Sum;
use millrace_wire::tunnel::{OuterFields, OuterHeaders, TunnelKind, entropy};
use millrace_wire::{NoHeadroom, Packet};

const LEN: usize = 32;

/// A handle to a buffer with headroom.
struct Slim {
    buffer: Box<[u8; 256]>,
    start: u16,
    end: u16,
}

const HEADROOM: u16 = 128;

impl Slim {
    fn new() -> Slim {
        Slim {
            buffer: Box::new([0; 256]),
            start: HEADROOM,
            end: HEADROOM,
        }
    }

    fn fill(&mut self, frame: &[u8]) {
        self.start = HEADROOM;
        self.end = HEADROOM + frame.len() as u16;
        self.head_mut().copy_from_slice(frame);
    }
}

impl Packet for Slim {
    fn len(&self) -> usize {
        usize::from(self.end - self.start)
    }

    fn head(&self) -> &[u8] {
        &self.buffer[usize::from(self.start)..usize::from(self.end)]
    }

    fn head_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[usize::from(self.start)..usize::from(self.end)]
    }

    fn prepend(&mut self, size: usize) -> Result<(), NoHeadroom> {
        let start = usize::from(self.start).checked_sub(size).ok_or(NoHeadroom)?;
        self.start = start as u16;
        Ok(())
    }

    fn trim_front(&mut self, size: usize) {
        self.start += size as u16;
    }

    fn try_clone(&self) -> Option<Slim> {
        None
    }

    fn copy_to(&self, out: &mut Vec<u8>, max_len: usize) {
        out.extend_from_slice(&self.head()[..self.len().min(max_len)]);
    }
}

/// Keeps the packets for the next burst.
struct Sink(ArrayVec<Slim, BURST>);

impl Sink {
    fn full() -> Sink {
        Sink((0..LEN).map(|_| Slim::new()).collect())
    }
}

impl Egress<Slim> for Sink {
    #[inline]
    fn transmit(&mut self, _: PortNo, _: Option<QueueId>, packet: Slim) {
        self.0.push(packet);
    }

    fn packet_in(&mut self, _: PacketInInfo, _: Slim) {}

    fn learn(&mut self, _: Learn) {}

    fn traced(&mut self, _: u64, _: PortNo, _: Slim) {}

    fn dropped(&mut self, _: DropReason, packet: Slim) {
        self.0.push(packet);
    }
}

fn tcp_frame(flow: u32) -> Vec<u8> {
    let [_, a, b, c] = flow.to_be_bytes();
    let text = format!("tcp,nw_src=10.{a}.{b}.{c},nw_dst=192.0.2.1,tp_src=1000,tp_dst=80,size=60");
    let packet: millrace_flow::compose::PacketText = text.parse().expect("a packet");
    packet.frame().expect("a frame")
}

struct Bench {
    control: Control,
    forwarding: Forwarding,
    processor: Processor,
}

impl Bench {
    fn new() -> Bench {
        let mut control = Control::new(ControlConfig {
            tables: 16,
            ..ControlConfig::default()
        });
        let mut forwarding = control.forwarding();
        let mut ops = Vec::new();
        for port in 1..=3 {
            control.set_port(Port::new(PortNo::from_raw(port)), &mut ops);
        }
        ops.iter().for_each(|op| forwarding.apply(op));
        let processor = Processor::new(control.counters());
        Bench {
            control,
            forwarding,
            processor,
        }
    }

    fn add(&mut self, table: u8, fields: &[(Field, u128)], instructions: Instructions) {
        let match_ = Match::exact(fields).expect("a match");
        let request = FlowMod {
            instructions,
            ..FlowMod::new(FlowModCommand::Add, TableId(table), Priority(10), match_)
        };
        let mut ops = Vec::new();
        self.control
            .flow_mod(request, Time::ZERO, &mut ops)
            .expect("a flow_mod");
        ops.iter().for_each(|op| self.forwarding.apply(op));
    }

    fn add_group(&mut self, kind: GroupKind, buckets: Vec<Bucket>) {
        let group = Group {
            id: GroupId(1),
            kind,
            buckets: buckets.into(),
        };
        let mut ops = Vec::new();
        self.control
            .group_mod(&GroupMod::Add(group), Time::ZERO, &mut ops)
            .expect("a group_mod");
        ops.iter().for_each(|op| self.forwarding.apply(op));
    }

    /// Adds a meter that passes every packet: time stands still, and the burst size is large.
    fn add_meter(&mut self, bands: usize) {
        let band = Band {
            rate: 1,
            burst_size: u32::MAX,
            kind: BandKind::Drop,
        };
        let meter = Meter {
            id: MeterId(1),
            flags: MeterFlags(MeterFlags::BURST.0 | MeterFlags::KBPS.0),
            bands: vec![band; bands].into(),
        };
        let mut ops = Vec::new();
        self.control
            .meter_mod(&MeterMod::Add(meter), Time::ZERO, &mut ops)
            .expect("a meter_mod");
        ops.iter().for_each(|op| self.forwarding.apply(op));
    }

    /// Adds port 3, a VXLAN tunnel over the port `underlay`.
    fn add_tunnel(&mut self, underlay: u32) {
        let tunnel = Tunnel {
            port: PortNo::from_raw(3),
            kind: TunnelKind::Vxlan,
            local: [192, 0, 2, 1].into(),
            remote: [192, 0, 2, 2].into(),
            key: TunnelKey::Fixed(7),
            underlay: PortNo::from_raw(underlay),
            local_mac: US,
            next_hop: Some(THEM),
            udp_port: 4789,
            ttl: 64,
            dscp: Some(0),
            checksum: false,
            mtu: 1500,
        };
        let mut ops = Vec::new();
        let tunnels = Tunnels::new([(tunnel, Arc::default())]);
        self.control.set_tunnels(tunnels, &mut ops);
        ops.iter().for_each(|op| self.forwarding.apply(op));
    }

    fn add_flows(&mut self, flows: u32, actions: &[Action]) {
        for flow in 0..flows {
            let fields = [
                (Field::EthType, 0x800),
                (Field::IpProto, 6),
                (Field::Ipv4Src, u128::from(0x0a00_0000 | flow)),
                (Field::Ipv4Dst, 0xc000_0201),
                (Field::TcpSrc, 1000),
                (Field::TcpDst, 80),
            ];
            self.add(0, &fields, Instructions::apply(actions));
        }
    }
}

const US: Mac = Mac([2, 0, 0, 0, 0, 1]);
const THEM: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// Returns the frame that a tunnel port receives: `inside` after the outer headers.
fn outer_headers(inside: &[u8]) -> Vec<u8> {
    let ends = OuterFields {
        kind: TunnelKind::Vxlan,
        src_mac: THEM,
        dst_mac: US,
        local: [192, 0, 2, 2].into(),
        remote: [192, 0, 2, 1].into(),
        udp_port: 4789,
        has_key: true,
        ttl: 64,
        checksum: false,
    };
    let outer_headers = OuterHeaders::new(&ends).expect("one family");
    let mut frame = vec![0; outer_headers.len()];
    let source = entropy(inside, inside.len());
    outer_headers
        .write(&mut frame, inside.len(), 7, 0, source, Sum::default())
        .expect("a short packet");
    frame.extend_from_slice(inside);
    frame
}

fn out() -> Action {
    Action::output(PortNo::from_raw(2))
}

fn set(field: Field, value: u128) -> Action {
    Action::SetField(SetField::new(field, value).expect("a field that can be set"))
}

fn cases() -> Vec<(&'static str, Bench, u32)> {
    let mut cases = Vec::new();
    let mut case = |name, flows, build: &dyn Fn(&mut Bench)| {
        let mut bench = Bench::new();
        build(&mut bench);
        cases.push((name, bench, flows));
    };
    let rewrite = [set(Field::EthDst, 5), set(Field::EthSrc, 6), out()];
    case("in_port", 1, &|bench| {
        bench.add(0, &[(Field::InPort, 1)], Instructions::apply([out()]));
    });
    case("in_port_rewrite", 1, &|bench| {
        bench.add(0, &[(Field::InPort, 1)], Instructions::apply(rewrite));
    });
    case("vlan_push_ttl", 1, &|bench| {
        let actions = [
            Action::PushVlan(millrace_wire::EtherType::VLAN),
            set(Field::VlanVid, 0x1005),
            Action::DecNwTtl,
            out(),
        ];
        bench.add(0, &[(Field::InPort, 1)], Instructions::apply(actions));
    });
    for flows in [1, 10_000, 100_000] {
        let name = match flows {
            1 => "exact_1",
            10_000 => "exact_10k_rewrite",
            _ => "exact_100k_rewrite",
        };
        case(name, flows, &|bench| {
            bench.add_flows(flows, if flows == 1 { &rewrite[2..] } else { &rewrite });
        });
    }
    case("four_tables", 1, &|bench| {
        for table in 0..3 {
            bench.add(
                table,
                &[(Field::EthType, 0x800)],
                Instructions::goto(TableId(table + 1)),
            );
        }
        bench.add(3, &[], Instructions::apply([out()]));
    });
    for (name, bands) in [("meter_1_band", 1), ("meter_2_bands", 2)] {
        case(name, 1, &|bench| {
            bench.add_meter(bands);
            let metered = Instructions {
                meter: Some(MeterId(1)),
                ..Instructions::apply([out()])
            };
            bench.add(0, &[(Field::InPort, 1)], metered);
        });
    }
    for (name, kind, weight, match_) in [
        (
            "group_indirect",
            GroupKind::Indirect,
            0,
            &[(Field::InPort, 1)][..],
        ),
        ("group_select_4", GroupKind::Select, 1, &[(Field::InPort, 1)]),
        (
            "group_select_4_parsed",
            GroupKind::Select,
            1,
            &[(Field::EthType, 0x800), (Field::IpProto, 6), (Field::TcpDst, 80)],
        ),
    ] {
        case(name, 10_000, &|bench| {
            let bucket = Bucket {
                weight,
                ..Bucket::new([out()])
            };
            let len = if kind == GroupKind::Select { 4 } else { 1 };
            bench.add_group(kind, vec![bucket; len]);
            bench.add(0, match_, Instructions::apply([Action::Group(GroupId(1))]));
        });
    }
    case("vxlan_out", 10_000, &|bench| {
        bench.add_tunnel(2);
        let tunnel = Action::output(PortNo::from_raw(3));
        bench.add(0, &[(Field::InPort, 1)], Instructions::apply([tunnel]));
    });
    case("vxlan_in", 10_000, &|bench| {
        bench.add_tunnel(1);
        bench.add(0, &[(Field::InPort, 3)], Instructions::apply([out()]));
    });
    cases
}

fn process(c: &mut Criterion) {
    let mut group = c.benchmark_group("process_burst");
    group.throughput(Throughput::Elements(LEN as u64));
    let one = tcp_frame(0);
    group.bench_function("fill_only", |b| {
        let mut sink = Sink::full();
        b.iter(|| {
            let mut burst: ArrayVec<Slim, BURST> = ArrayVec::new();
            for mut packet in sink.0.drain(..) {
                packet.fill(&one);
                burst.push(packet);
            }
            core::mem::swap(black_box(&mut burst), &mut sink.0);
        });
    });
    for (name, mut bench, flows) in cases() {
        let mut frames: Vec<Vec<u8>> = (0..flows).map(tcp_frame).collect();
        if name == "vxlan_in" {
            frames.iter_mut().for_each(|frame| *frame = outer_headers(frame));
        }
        group.bench_function(BenchmarkId::from_parameter(name), |b| {
            let mut sink = Sink::full();
            let mut next = 0usize;
            b.iter(|| {
                let mut burst: ArrayVec<Slim, BURST> = ArrayVec::new();
                for mut packet in sink.0.drain(..) {
                    // A stride that visits all flows in an order that no prefetcher guesses.
                    next = (next + 7_919) % frames.len();
                    packet.fill(&frames[next]);
                    burst.push(packet);
                }
                let now = Time::from_secs(1);
                let port = PortNo::from_raw(1);
                bench
                    .processor
                    .process_burst(&bench.forwarding, port, &mut burst, now, &mut sink);
            });
            black_box(sink.0.len());
        });
    }
    group.finish();
}

criterion_group!(benches, process);
criterion_main!(benches);
