//! A worker allocates nothing in steady state, for any packets and entries.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use crate::allocator;
use crate::harness::{Bridge, dropping, frame, out, set, to_group};
use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_flow::{Action, Bucket, Field, Instructions, WriteMetadata};
use millrace_pipeline::{
    Band, BandKind, DropReason, Egress, FragmentMode, GroupKind, Learn, MeterFlags, Mirror, MirrorOutput,
    Mirrors, PacketInInfo, Tunnel, TunnelCounts, TunnelKey, Tunnels,
};
use millrace_types::{Mac, MeterId, PortNo, QueueId, TableId, Time, Vid};
use millrace_wire::checksum::Sum;
use millrace_wire::tunnel::{OuterFields, OuterHeaders, TunnelKind, entropy};
use millrace_wire::{EtherType, Frame, FramePool};

/// An egress that returns every packet to its pool.
#[derive(Default)]
struct Sink {
    sent: u64,
    packet_ins: u64,
    dropped: u64,
    learned: u64,
}

impl Egress<Frame> for Sink {
    fn transmit(&mut self, _: PortNo, _: Option<QueueId>, _: Frame) {
        self.sent += 1;
    }

    fn packet_in(&mut self, _: PacketInInfo, _: Frame) {
        self.packet_ins += 1;
    }

    fn learn(&mut self, _: Learn) {
        self.learned += 1;
    }

    fn traced(&mut self, _: u64, _: PortNo, _: Frame) {}

    fn dropped(&mut self, _: DropReason, _: Frame) {
        self.dropped += 1;
    }
}

/// Returns a frame as it arrives through the tunnel.
fn outer_headers(inside: &[u8]) -> Vec<u8> {
    let ends = OuterFields {
        kind: TunnelKind::Vxlan,
        src_mac: Mac([2, 0, 0, 0, 0, 2]),
        dst_mac: Mac([2, 0, 0, 0, 0, 1]),
        local: [192, 0, 2, 2].into(),
        remote: [192, 0, 2, 1].into(),
        udp_port: 4789,
        has_key: true,
        ttl: 64,
        checksum: false,
    };
    let outer_headers = OuterHeaders::new(&ends).unwrap();
    let mut frame = vec![0; outer_headers.len()];
    let source = entropy(inside, inside.len());
    outer_headers
        .write(&mut frame, inside.len(), 7, 0, source, Sum::default())
        .unwrap();
    frame.extend_from_slice(inside);
    frame
}

/// Returns the same packet in two segments.
fn fragments(whole: &[u8]) -> [Vec<u8>; 2] {
    let piece = |begin: usize, end: usize, field: u16| {
        let mut frame = [&whole[..34], &whole[34 + begin..34 + end]].concat();
        frame[16..18].copy_from_slice(&(20 + (end - begin) as u16).to_be_bytes());
        frame[20..22].copy_from_slice(&field.to_be_bytes());
        frame
    };
    let total = usize::from(u16::from_be_bytes([whole[16], whole[17]])) - 20;
    // The second segment has one byte at least.
    [piece(0, 8.min(total), 0x2000), piece(8.min(total - 1), total, 1)]
}

#[test]
fn a_worker_allocates_nothing_in_steady_state() {
    process(false);
}

#[test]
fn a_worker_allocates_nothing_for_mirrors() {
    process(true);
}

/// Processes packets of all kinds.
fn process(is_mirrored: bool) {
    let mut bridge = Bridge::new(6);
    if is_mirrored {
        let ports = |list: &[u32]| list.iter().map(|number| PortNo::from_raw(*number)).collect();
        let to = |output| Mirror {
            received: ports(&[1, 6]),
            sent: ports(&[1, 2, 3, 6]),
            vlans: None,
            output,
            snaplen: Some(40),
            counters: Arc::default(),
        };
        let outputs = [
            MirrorOutput::Port(PortNo::from_raw(5)),
            MirrorOutput::Vlan(Vid::new(9).unwrap()),
        ];
        let mirrors = Mirrors::new(outputs.map(to));
        bridge.change(|control, ops| control.set_mirrors(mirrors, ops));
    }
    let everything = Instructions {
        apply_actions: Some(
            [
                Action::PushVlan(EtherType::VLAN),
                set(Field::VlanVid, 0x1005),
                set(Field::Ipv4Dst, 7),
                Action::DecNwTtl,
                out(2),
                Action::output(PortNo::FLOOD),
                Action::output(PortNo::CONTROLLER),
                Action::PopVlan,
            ]
            .into(),
        ),
        write_actions: Some(
            [
                Action::PushMpls(EtherType::MPLS),
                Action::SetQueue(QueueId(1)),
                out(3),
            ]
            .into(),
        ),
        write_metadata: Some(WriteMetadata { value: 1, mask: 1 }),
        ..Instructions::goto(TableId(1))
    };
    bridge.add(0, 9, "tcp", everything);
    bridge.add(0, 8, "udp", Instructions::apply([Action::output(PortNo::NORMAL)]));
    let weighing = |weight, actions: &[Action]| Bucket {
        weight,
        ..Bucket::new(actions)
    };
    bridge.add_group(
        1,
        GroupKind::Indirect,
        vec![Bucket::new([Action::PopVlan, out(4)])],
    );
    bridge.add_group(
        2,
        GroupKind::Select,
        vec![weighing(1, &[to_group(1)]), weighing(2, &[out(5)])],
    );
    let tag = Action::PushVlan(EtherType::VLAN);
    bridge.add_group(
        3,
        GroupKind::All,
        vec![Bucket::new([to_group(2)]), Bucket::new([tag, out(6)])],
    );
    bridge.add(0, 8, "icmp", Instructions::apply([to_group(3), to_group(2)]));
    bridge.add_meter(MeterId(1), MeterFlags::PKTPS, vec![dropping(1000)]);
    let remark = Band {
        kind: BandKind::DscpRemark { prec_level: 1 },
        ..dropping(1)
    };
    bridge.add_meter(MeterId::CONTROLLER, MeterFlags::KBPS, vec![remark]);
    let metered = Instructions {
        meter: Some(MeterId(1)),
        ..Instructions::apply([out(2)])
    };
    bridge.add(0, 9, "icmp,nw_tos=40", metered);
    bridge.add(0, 7, "arp", Instructions::goto(TableId(2)));
    bridge.add(1, 1, "metadata=1", Instructions::goto(TableId(2)));
    bridge.add(
        2,
        1,
        "eth_type=0x800",
        Instructions {
            write_actions: Some([set(Field::EthDst, 5)].into()),
            ..Instructions::default()
        },
    );
    let tunnel = Tunnel {
        port: PortNo::from_raw(6),
        kind: TunnelKind::Vxlan,
        local: [192, 0, 2, 1].into(),
        remote: [192, 0, 2, 2].into(),
        key: TunnelKey::Flow,
        underlay: PortNo::from_raw(1),
        local_mac: Mac([2, 0, 0, 0, 0, 1]),
        next_hop: Some(Mac([2, 0, 0, 0, 0, 2])),
        udp_port: 4789,
        ttl: 64,
        dscp: None,
        checksum: true,
        mtu: 1500,
    };
    let counts = Arc::new(TunnelCounts::default());
    let tunnels = Tunnels::new([(tunnel, Arc::clone(&counts))]);
    bridge.change(|control, ops| control.set_tunnels(tunnels, ops));
    bridge.change(|control, ops| control.set_fragments(FragmentMode::Reassemble, ops));
    let mut frames: Vec<Vec<u8>> = [
        "tcp,nw_ttl=5",
        "tcp,nw_ttl=1",
        "udp",
        "arp",
        "icmp",
        "mpls",
        "icmp,nw_tos=40",
    ]
    .iter()
    .map(|text| frame(text))
    .collect();
    frames.push(outer_headers(&frame("udp")));
    frames.extend(fragments(&frame("udp")));
    let pool = FramePool::new(1024, 256);
    let mut burst: ArrayVec<Frame, BURST> = ArrayVec::new();
    let mut sink = Sink::default();
    let packet_out = [out(1), to_group(3), Action::output(PortNo::TABLE)];
    let before = allocator::calls();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(allocator::calls() - before, 2, "the allocator counts");
    for round in 0..100u64 {
        for i in 0..BURST {
            burst.push(pool.take(&frames[i % frames.len()]).unwrap());
        }
        let one = pool.take(&frames[0]).unwrap();
        let now = Time::from_millis(round);
        let port = PortNo::from_raw(1);
        let before = allocator::calls();
        bridge
            .processor
            .process_burst(&bridge.active, port, &mut burst, now, &mut sink);
        bridge
            .processor
            .packet_out(&bridge.active, port, &packet_out, one, now, &mut sink);
        // The first round fills the processor's own buffers.
        assert!(
            round == 0 || allocator::calls() == before,
            "round {round} allocates or frees"
        );
    }
    assert!(sink.sent > 0 && sink.packet_ins > 0 && sink.dropped > 0 && sink.learned > 0);
    let through = counts.read();
    assert!(through.rx_packets > 0 && through.tx_packets > 0);
    assert_eq!(pool.free_len(), 1024, "every buffer came back");
}
