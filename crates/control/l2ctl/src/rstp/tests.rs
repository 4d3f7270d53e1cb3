//! BPDUs as Open vSwitch sends them, and malformed ones.

use millrace_types::Mac;

use super::*;
use crate::frame::bpdu_of;

/// An RST BPDU of Open vSwitch 3.1.0: designated, learning, forwarding, proposal.
const OPEN_VSWITCH: [u8; 53] = [
    0x01, 0x80, 0xc2, 0x00, 0x00, 0x00, 0x62, 0x0c, 0xfe, 0x8e, 0x21, 0x12, 0x00, 0x27, 0x42, 0x42, 0x03,
    0x00, 0x00, 0x02, 0x02, 0x3e, 0x80, 0x00, 0x22, 0xf2, 0xad, 0x0f, 0xbc, 0x48, 0x00, 0x00, 0x00, 0x00,
    0x80, 0x00, 0x22, 0xf2, 0xad, 0x0f, 0xbc, 0x48, 0x80, 0x01, 0x00, 0x00, 0x14, 0x00, 0x02, 0x00, 0x0f,
    0x00, 0x00,
];

#[test]
fn an_rst_bpdu_of_open_vswitch_is_read_and_written_alike() {
    let bytes = bpdu_of(&OPEN_VSWITCH).unwrap();
    let Some(bpdu @ Bpdu::Rst(fields)) = Bpdu::parse(bytes) else {
        panic!("an RST BPDU");
    };
    let id = BridgeId {
        priority: 0x8000,
        address: Mac([0x22, 0xf2, 0xad, 0x0f, 0xbc, 0x48]),
    };
    assert_eq!(
        (fields.root, fields.bridge, fields.port),
        (id, id, PortId::new(128, 1))
    );
    assert_eq!(fields.flags.role(), PortRole::Designated);
    assert!(fields.flags.contains(Flags::LEARNING) && fields.flags.contains(Flags::FORWARDING));
    assert!(fields.flags.contains(Flags::PROPOSAL) && !fields.flags.contains(Flags::AGREEMENT));
    let times = fields.times;
    assert_eq!((times.message_age, times.max_age), (0, 20 << 8));
    assert_eq!((times.hello_time, times.forward_delay), (2 << 8, 15 << 8));
    assert_eq!(bpdu.emit(), bytes);
}

#[test]
fn the_other_kinds_of_bpdus_are_read_as_they_are_written() {
    let Some(Bpdu::Rst(mut fields)) = bpdu_of(&OPEN_VSWITCH).and_then(Bpdu::parse) else {
        panic!("an RST BPDU");
    };
    fields.flags = Flags::TOPOLOGY_CHANGE.with(Flags::TOPOLOGY_CHANGE_ACK, true);
    for bpdu in [Bpdu::Config(fields), Bpdu::TopologyChange] {
        assert_eq!(Bpdu::parse(&bpdu.emit()), Some(bpdu));
    }
}

#[test]
fn malformed_bpdus_are_refused_and_those_of_mstp_are_read_as_rstp() {
    let bytes = bpdu_of(&OPEN_VSWITCH).unwrap();
    for size in 0..bytes.len() {
        assert_eq!(Bpdu::parse(&bytes[..size]), None, "{size} bytes");
    }
    for (at, value) in [(0, 1), (1, 1), (2, 1), (3, 1)] {
        let mut bad = bytes.to_vec();
        bad[at] = value;
        assert_eq!(Bpdu::parse(&bad), None, "byte {at}");
    }
    let mut mstp = bytes.to_vec();
    mstp[2] = 3;
    mstp.extend([0; 67]);
    assert_eq!(Bpdu::parse(&mstp), Bpdu::parse(bytes));
    // A configuration BPDU as old as it may become.
    let mut old = bytes[..35].to_vec();
    old[2..4].copy_from_slice(&[0, 0]);
    assert!(Bpdu::parse(&old).is_some());
    old[27] = 20;
    assert_eq!(Bpdu::parse(&old), None);
    // The frame is shorter than its size says, goes to another address, or has another LLC header.
    for (at, value) in [(13, 40), (5, 1), (14, 0xaa)] {
        let mut bad = OPEN_VSWITCH;
        bad[at] = value;
        assert_eq!(bpdu_of(&bad), None, "byte {at}");
    }
}

#[test]
fn path_costs_are_those_of_the_standard() {
    let cost = |mbps| {
        Link {
            mbps,
            is_full_duplex: true,
        }
        .path_cost()
    };
    let speeds = [0, 10, 100, 1_000, 10_000, 100_000, 40_000_000];
    assert_eq!(
        speeds.map(cost),
        [20_000, 2_000_000, 200_000, 20_000, 2_000, 200, 1]
    );
}
