//! N2, second half: the model's key is that of the switch, for mutations of frames with every header chain.

use millrace_flow::{Field, FlowKey, Layer};
use millrace_nic::key::{Key, layer};
use millrace_nic::{Config, HashKeys};
use millrace_nic_model::{frames, parse};
use millrace_wire::Depth;

use crate::flow_hash::mutations;

/// Returns the key of the NIC that has the fields of a key of the switch.
fn projected(key: &FlowKey, port: u8) -> Key {
    let field = |field| key.field(field);
    let low = |of| field(of) as u64;
    let layers = [
        (Layer::Ip, layer::IP),
        (Layer::L4, layer::L4),
        (Layer::Arp, layer::ARP),
        (Layer::Mpls, layer::MPLS),
        (Layer::Pbb, layer::PBB),
    ];
    let layers = layers
        .iter()
        .filter(|(has, _)| key.has(*has))
        .fold(0, |bits, (_, bit)| bits | bit);
    // The fragment is in bits 12 and 13 of word 7, ports and ICMP share the upper half of word 5.
    let fragment = (key.words()[7] >> 12 & 3) << 6;
    let (l4_src, l4_dst) = (key.words()[5] >> 48, key.words()[5] >> 32 & 0xffff);
    let has_arp = key.has(Layer::Arp);
    let is_v6 = low(Field::EthType) == 0x86dd;
    let address = |v4, v6| match (has_arp, is_v6) {
        (true, _) => 0,
        (_, true) => field(v6),
        _ => field(v4),
    };
    let src = address(Field::Ipv4Src, Field::Ipv6Src);
    let dst = address(Field::Ipv4Dst, Field::Ipv6Dst);
    Key([
        low(Field::EthDst) | low(Field::EthType) << 48,
        low(Field::EthSrc) | low(Field::VlanVid) << 48 | low(Field::VlanPcp) << 61,
        (src >> 64) as u64,
        src as u64,
        (dst >> 64) as u64,
        dst as u64,
        l4_src
            | l4_dst << 16
            | u64::from(port) << 32
            | (u64::from(layers) | fragment) << 40
            | low(Field::IpProto) << 48
            | (low(Field::IpDscp) << 2 | low(Field::IpEcn)) << 56,
        low(Field::MplsLabel)
            | low(Field::MplsTc) << 20
            | low(Field::MplsBos) << 23
            | low(Field::PbbIsid) << 24
            | low(Field::TcpFlags) << 48,
    ])
}

#[test]
fn the_model_has_the_key_of_the_switch_for_mutations_of_every_header_chain() {
    let config = Config::new(HashKeys::new(1));
    let mut random = frames::Random::new(12);
    let mut compared = 0;
    for number in 0..mutations() {
        let frame = frames::mutated(&mut random);
        let port = (number % 4) as u8;
        let parsed = parse(&frame, port, &config);
        if !parsed.complete || parsed.truncated {
            continue;
        }
        compared += 1;
        let mut key = FlowKey::default();
        key.read(&frame, frame.len(), Depth::All);
        let expected = projected(&key, port);
        assert_eq!(
            parsed.key, expected,
            "frame {number}: {frame:02x?}\n{parsed:02x?}\n{key:?}"
        );
    }
    assert!(compared > mutations() / 2, "{compared}");
}

#[test]
fn a_frame_that_the_switch_does_not_take_for_ip_because_it_is_cut_is_truncated() {
    let config = Config::new(HashKeys::new(1));
    for (name, frame) in frames::chains() {
        for size in 14..frame.len() {
            let (cut, mut key) = (&frame[..size], FlowKey::default());
            key.read(cut, size, Depth::All);
            let parsed = parse(cut, 0, &config);
            let takes_for_ip = parsed.key.field("layers") & u64::from(layer::IP) != 0;
            assert_eq!(
                takes_for_ip && !parsed.truncated,
                key.has(Layer::Ip),
                "{name}, {size} bytes"
            );
        }
    }
}
