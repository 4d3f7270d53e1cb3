//! The payload of ICMP messages, as rules see it.

use millrace_ips_engine::Mode;
use millrace_wire::{Dscp, Ecn, FlowLabel, IpProto, ipv6};

use crate::bed::TestBed;

#[test]
fn the_payload_of_listener_discovery_begins_behind_the_checksum() {
    let rule = r#"alert ip any any -> any any (msg:"m"; content:"|00 64 00 00|"; startswith; sid:1;)"#;
    // Query and reports of versions 1 and 2, and an echo request, whose payload begins behind its number.
    for (kind, is_found) in [(130, true), (131, true), (143, true), (128, false)] {
        let message = [&[kind, 0, 0, 0, 0, 100, 0, 0][..], &[0xff; 16]].concat();
        let header = ipv6::Repr {
            src: "fe80::1".parse().unwrap(),
            dst: "ff02::1".parse().unwrap(),
            next_header: IpProto::ICMPV6,
            dscp: Dscp::from_low_bits(0),
            ecn: Ecn::from_low_bits(0),
            flow_label: FlowLabel::from_low_bits(0),
            hop_limit: 1,
            payload_size: message.len() as u16,
        };
        let mut bed = TestBed::new(Mode::Ids, rule);
        bed.send([&header.to_bytes()[..], &message].concat());
        assert_eq!(bed.is_attack_found(), is_found, "{kind}");
    }
}
