//! Packets for the kernel: their classes, and the rates of these.

use millrace_pipeline::DropReason;
use millrace_router::PuntClass;
use millrace_types::{Duration, Mac};
use millrace_wire::{Builder, IpProto, arp, ipv4};

use crate::harness::{Event, TestBed, datagram, fix_checksum, host_mac, interface, link, router_mac};

/// Returns the class and the interface of a frame for the kernel.
fn class_of(bed: &mut TestBed, frame: &[u8]) -> (u16, PuntClass) {
    match &bed.one(frame)[..] {
        [Event::Punted(interface, class, _)] => (*interface, *class),
        other => panic!("{other:?}"),
    }
}

/// Returns a packet of a protocol to a multicast group, in the frame that carries it.
fn multicast(dst: [u8; 4], proto: u8) -> Vec<u8> {
    let mac = Mac([1, 0, 0x5e, dst[1] & 0x7f, dst[2], dst[3]]);
    let plain = datagram("10.0.0.9", 1, 0);
    let repr = ipv4::Repr {
        proto: IpProto(proto),
        ..ipv4::Repr::parse(&ipv4::View::new(&plain[14..]).unwrap())
    };
    let mut frame = Builder::ethernet(mac, host_mac(0, 2))
        .ipv4_with(repr)
        .payload(&[0; 8])
        .build();
    frame[30..34].copy_from_slice(&dst);
    fix_checksum(&mut frame, 14);
    frame
}

#[test]
fn each_protocol_has_its_class() {
    let mut bed = TestBed::new();
    let udp = |port| link(0).ipv4([10, 0, 0, 2], [10, 0, 0, 1]).udp(9, port).build();
    assert_eq!(class_of(&mut bed, &udp(3784)), (0, PuntClass::Bfd));
    assert_eq!(class_of(&mut bed, &udp(67)), (0, PuntClass::Dhcp));
    assert_eq!(class_of(&mut bed, &udp(53)), (0, PuntClass::Local));
    assert_eq!(
        class_of(&mut bed, &multicast([224, 0, 0, 5], 89)),
        (0, PuntClass::Ospf)
    );
    assert_eq!(
        class_of(&mut bed, &multicast([224, 0, 0, 18], 112)),
        (0, PuntClass::Vrrp)
    );
    assert_eq!(
        class_of(&mut bed, &multicast([224, 0, 0, 9], 17)),
        (0, PuntClass::Local)
    );
    assert_eq!(
        bed.one(&multicast([239, 1, 1, 1], 17)),
        [Event::Dropped(DropReason::RouteMulticast)]
    );
    let request = arp::Repr {
        op: arp::REQUEST,
        sha: host_mac(0, 2),
        spa: [10, 0, 0, 2].into(),
        tha: Mac::ZERO,
        tpa: [10, 0, 0, 1].into(),
    };
    let arp = Builder::ethernet(Mac::BROADCAST, host_mac(0, 2))
        .arp(request)
        .build();
    assert_eq!(class_of(&mut bed, &arp), (0, PuntClass::Neighbours));
    let mut isis = [
        &[1, 0x80, 0xc2, 0, 0, 0x14][..],
        &host_mac(0, 2).0,
        &[0, 60, 0xfe, 0xfe, 3, 0x83],
    ]
    .concat();
    isis.resize(74, 0);
    assert_eq!(class_of(&mut bed, &isis), (0, PuntClass::IsIs));
    isis[17] = 0x81;
    assert_eq!(bed.one(&isis), [Event::Dropped(DropReason::RouteEtherType)]);
    let discover = Builder::ethernet(Mac::BROADCAST, host_mac(0, 2))
        .ipv4([0; 4], [255; 4])
        .udp(68, 67)
        .build();
    assert_eq!(class_of(&mut bed, &discover), (0, PuntClass::Dhcp));
    let solicit = Builder::ethernet(Mac([0x33, 0x33, 0xff, 0, 0, 1]), host_mac(0, 2));
    let solicit = solicit.ipv6(
        "2001:db8::2".parse::<std::net::Ipv6Addr>().unwrap(),
        "ff02::1:ff00:1".parse::<std::net::Ipv6Addr>().unwrap(),
    );
    assert_eq!(
        class_of(&mut bed, &solicit.icmpv6(135, 0).payload(&[0; 20]).build()),
        (0, PuntClass::Neighbours)
    );
}

#[test]
fn bgp_is_known_by_either_port_and_a_later_fragment_has_none() {
    let mut bed = TestBed::new();
    for ports in [(179, 40_000), (40_000, 179)] {
        let mut frame = link(0)
            .ipv4([10, 0, 0, 2], [10, 0, 20, 1])
            .udp(ports.0, ports.1)
            .build();
        frame[23] = 6;
        fix_checksum(&mut frame, 14);
        assert_eq!(class_of(&mut bed, &frame), (0, PuntClass::Bgp));
        frame[21] = 1;
        fix_checksum(&mut frame, 14);
        assert_eq!(class_of(&mut bed, &frame), (0, PuntClass::Local));
    }
}

#[test]
fn the_kernel_gets_frames_without_tag() {
    let mut bed = TestBed::new();
    let frame = link(1).ipv4([10, 0, 10, 2], [10, 0, 10, 1]).udp(1, 2).build();
    let mut expected = frame.clone();
    expected.drain(12..16);
    assert_eq!(bed.one(&frame), [Event::Punted(1, PuntClass::Local, expected)]);
}

#[test]
fn a_flood_of_one_class_leaves_the_others_alone() {
    let mut bed = TestBed::new();
    let discover = link(0).ipv4([10, 0, 0, 2], [10, 0, 0, 1]).udp(68, 67).build();
    let events = bed.receive(&vec![discover; 5000]);
    let passed = events
        .iter()
        .filter(|event| matches!(event, Event::Punted(..)))
        .count();
    assert_eq!(
        passed,
        usize::try_from(PuntClass::Dhcp.default_rate().burst).unwrap()
    );
    assert!(events.ends_with(&[Event::Dropped(DropReason::RoutePuntLimit)]));
    assert_eq!(
        class_of(&mut bed, &multicast([224, 0, 0, 5], 89)),
        (0, PuntClass::Ospf)
    );
    assert_eq!(
        bed.stats(0).drops,
        [(DropReason::RoutePuntLimit, 5000 - passed as u64)]
    );
    bed.now = bed.now + Duration::from_millis(1);
    let discover = link(0).ipv4([10, 0, 0, 2], [10, 0, 0, 1]).udp(68, 67).build();
    assert_eq!(class_of(&mut bed, &discover), (0, PuntClass::Dhcp));
}

#[test]
fn frames_for_others_and_for_no_interface_are_dropped() {
    let mut bed = TestBed::new();
    let other = Builder::ethernet(Mac([2, 9, 9, 9, 9, 9]), host_mac(0, 2));
    let other = other.ipv4([10, 0, 0, 2], [10, 0, 10, 2]).udp(1, 2).build();
    assert_eq!(bed.one(&other), [Event::Dropped(DropReason::RouteOtherHost)]);
    let nowhere = Builder::ethernet(router_mac(0), host_mac(0, 2)).vlan(99, 0);
    let nowhere = nowhere.ipv4([10, 0, 0, 2], [10, 0, 10, 2]).udp(1, 2).build();
    assert_eq!(bed.one(&nowhere), [Event::Dropped(DropReason::RouteNoInterface)]);
    let mut virtual_router = interface(0);
    virtual_router.other_macs.push(Mac([2, 9, 9, 9, 9, 9]));
    bed.set(virtual_router);
    assert!(matches!(&bed.one(&other)[..], [Event::Sent(1, _)]));
    assert_eq!(bed.one(&[1, 2, 3]), [Event::Dropped(DropReason::TooShort)]);
}
