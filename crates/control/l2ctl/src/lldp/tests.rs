//! LLDPDUs of lldpd, malformed ones, and the machines.

use std::net::IpAddr;

use millrace_types::{Mac, PortNo, Time};
use proptest::prelude::*;

use super::*;
use crate::frame::with_ether_type;
use crate::{LLDP_NEAREST_BRIDGE, Transmit};

/// A frame of lldpd 1.0.16, captured from a veth with 192.0.2.7 and 2001:db8::7; the end TLV is the last.
const LLDPD: &str = "0180c200000ed278bd71558188cc 020704d278bd715581 040703d278bd715581 06020078 0a057065657237 \
    0c5544656269616e20474e552f4c696e75782031322028626f6f6b776f726d29204c696e757820362e31382e34342d66632d763635 \
    3720233120534d5020505245454d50545f44594e414d4943204030207838365f3634 0e04009c0080 \
    100c0501c00002070200000003 00 1018110220010db80000000000000000000000070200000003 00 08027630 \
    fe0900120f030100000000 fe0900120f010080000036 0000";
/// The shutdown LLDPDU that lldpd sends when it ends.
const LLDPD_SHUTDOWN: &str = "0180c200000ed278bd71558188cc020704d278bd71558104 0703d278bd715581060200000000";

const P1: PortNo = PortNo::from_raw(1);

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits
        .chunks(2)
        .map(|pair| (pair[0] << 4 | pair[1]) as u8)
        .collect()
}

fn secs(secs: u64) -> Time {
    Time::from_secs(secs)
}

fn agent(chassis: u8) -> Agent {
    let mut agent = Agent::new(Settings {
        chassis: ChassisId::Mac(Mac([2, 0, 0, 0, 0, chassis])),
        system_name: format!("switch{chassis}"),
        system_description: "Millrace".to_owned(),
        capabilities: (Capabilities::BRIDGE, Capabilities::BRIDGE),
        addresses: vec![ManagementAddress {
            address: IpAddr::from([192, 0, 2, 1]),
            if_index: Some(3),
        }],
        interval_s: 30,
        hold: 4,
    });
    agent.set_port(P1, port(), secs(0));
    agent.set_link(P1, true, secs(0));
    agent
}

fn port() -> PortSettings {
    PortSettings {
        mac: Mac([4, 0, 0, 0, 0, 1]),
        id: PortId::InterfaceName("p1".to_owned()),
        description: "to the roof".to_owned(),
        sends: true,
        receives: true,
        port_vlan: Some(10),
        vlans: vec![NamedVlan {
            vid: 10,
            name: "office".to_owned(),
        }],
        aggregation: Some(Aggregation {
            is_capable: true,
            is_enabled: false,
            port_id: 0,
        }),
        max_frame_size: Some(1518),
    }
}

fn pdu_of(transmit: &Transmit<PortNo>) -> Lldpdu {
    Lldpdu::parse(&transmit.frame[14..]).unwrap()
}

#[test]
fn an_lldpdu_of_lldpd_is_read() {
    let frame = bytes(LLDPD);
    let pdu = Lldpdu::parse(&frame[14..]).unwrap();
    let mac = Mac([0xd2, 0x78, 0xbd, 0x71, 0x55, 0x81]);
    assert_eq!(
        (&pdu.chassis, &pdu.port),
        (&ChassisId::Mac(mac), &PortId::Mac(mac))
    );
    assert_eq!(pdu.time_to_live_s, 120);
    assert_eq!(pdu.system_name.as_deref(), Some("peer7"));
    assert!(
        pdu.system_description
            .as_deref()
            .unwrap()
            .starts_with("Debian GNU/Linux 12 (bookworm)")
    );
    assert_eq!(pdu.port_description.as_deref(), Some("v0"));
    let (has, enabled) = pdu.capabilities.unwrap();
    assert_eq!(
        has.names().collect::<Vec<_>>(),
        ["bridge", "wlan", "router", "station"]
    );
    assert_eq!(enabled.names().collect::<Vec<_>>(), ["station"]);
    let addresses: Vec<String> = pdu
        .addresses
        .iter()
        .map(|known| known.address.to_string())
        .collect();
    assert_eq!(addresses, ["192.0.2.7", "2001:db8::7"]);
    assert_eq!(pdu.addresses[0].if_index, Some(3));
    assert_eq!(
        pdu.aggregation,
        Some(Aggregation {
            is_capable: true,
            is_enabled: false,
            port_id: 0
        })
    );
    assert_eq!(pdu.unread, 1, "MAC and PHY configuration");
}

#[test]
fn a_neighbour_is_learned_kept_for_its_time_to_live_and_withdrawn() {
    let mut agent = agent(1);
    agent.poll(secs(0));
    agent.receive(P1, &bytes(LLDPD), secs(1));
    assert_eq!((agent.neighbours().count(), agent.changes()), (1, 1));
    agent.receive(P1, &bytes(LLDPD), secs(31));
    assert_eq!(agent.changes(), 1, "nothing is new");
    agent.poll(secs(150));
    assert_eq!(agent.neighbours().count(), 1);
    agent.poll(secs(151));
    assert_eq!((agent.neighbours().count(), agent.changes()), (0, 2));
    assert_eq!(agent.counters(P1).unwrap().aged_out, 1);
    agent.receive(P1, &bytes(LLDPD), secs(152));
    agent.receive(P1, &bytes(LLDPD_SHUTDOWN), secs(153));
    assert_eq!((agent.neighbours().count(), agent.changes()), (0, 4));
}

#[test]
fn a_port_sends_fast_at_first_then_each_interval_and_again_fast_for_a_new_neighbour() {
    let mut agent = agent(1);
    let mut sent = Vec::new();
    for second in 0..200 {
        if second == 100 {
            agent.receive(P1, &bytes(LLDPD), secs(second));
        }
        sent.extend(agent.poll(secs(second)).iter().map(|_| second));
    }
    assert_eq!(sent, [0, 1, 2, 3, 33, 63, 93, 101, 102, 103, 104, 134, 164, 194]);
}

#[test]
fn changes_and_flapping_neighbours_cannot_make_a_port_send_more_than_its_credits() {
    let mut agent = agent(1);
    let mut count = 0;
    for at in 0..100_u64 {
        let now = Time::from_millis(at * 100);
        agent.set_port(
            P1,
            PortSettings {
                description: at.to_string(),
                ..port()
            },
            now,
        );
        count += agent.poll(now).len();
    }
    assert!(
        (12..=15).contains(&count),
        "{count} LLDPDUs in 10 s: 5 at once, then one a second"
    );
}

#[test]
fn another_agent_reads_what_an_agent_sends() {
    let frames = agent(1).poll(secs(0));
    let pdu = pdu_of(&frames[0]);
    assert_eq!(frames[0].frame[..6], LLDP_NEAREST_BRIDGE.0);
    assert_eq!(pdu.time_to_live_s, 121);
    assert_eq!(pdu.system_name.as_deref(), Some("switch1"));
    assert_eq!((pdu.port_vlan, pdu.max_frame_size), (Some(10), Some(1518)));
    assert_eq!(pdu.vlans, port().vlans);
    assert_eq!((pdu.aggregation, pdu.unread), (port().aggregation, 0));
    let mut other = agent(2);
    other.receive(P1, &frames[0].frame, secs(0));
    assert_eq!(other.neighbours().next().unwrap().1.pdu, pdu);
}

#[test]
fn a_port_that_is_removed_disabled_or_renamed_says_farewell_once() {
    let off = PortSettings {
        sends: false,
        ..port()
    };
    let renamed = PortSettings {
        id: PortId::InterfaceName("p2".to_owned()),
        ..port()
    };
    let changes: [fn(&mut Agent, [PortSettings; 2]); 4] = [
        |agent, _| agent.remove_port(P1),
        |agent, [off, _]| agent.set_port(P1, off, secs(5)),
        |agent, [_, renamed]| agent.set_port(P1, renamed, secs(5)),
        |agent, _| agent.shut_down(),
    ];
    for change in changes {
        let mut agent = agent(1);
        agent.poll(secs(0));
        change(&mut agent, [off.clone(), renamed.clone()]);
        assert!(agent.deadline().unwrap() <= secs(5));
        let frames = agent.poll(secs(5));
        let farewells = frames.iter().filter(|frame| pdu_of(frame).time_to_live_s == 0);
        assert_eq!(farewells.count(), 1);
    }
}

#[test]
fn an_agent_does_not_take_itself_for_a_neighbour() {
    let mut agent = agent(1);
    let frames = agent.poll(secs(0));
    agent.receive(P1, &frames[0].frame, secs(0));
    assert_eq!(agent.neighbours().count(), 0);
}

#[test]
fn a_port_remembers_a_bounded_number_of_neighbours() {
    let mut agent = agent(1);
    for number in 0..1_000_u16 {
        let chassis = ChassisId::Local(number.to_string());
        let pdu = Lldpdu::new(chassis, PortId::Local("x".to_owned()), 120);
        let frame = with_ether_type(LLDP_NEAREST_BRIDGE, Mac([6; 6]), 0x88cc, &pdu.emit(1500));
        agent.receive(P1, &frame, secs(1));
    }
    assert_eq!(agent.neighbours().count(), MAX_NEIGHBOURS);
    assert_eq!(
        agent.counters(P1).unwrap().too_many_neighbours,
        1_000 - MAX_NEIGHBOURS as u64
    );
}

#[test]
fn malformed_lldpdus_are_refused_with_their_cause() {
    let good = bytes(LLDPD)[14..].to_vec();
    assert!(matches!(
        Lldpdu::parse(&[]),
        Err(LldpduError::Mandatory {
            position: 1,
            found: None
        })
    ));
    // The first three TLVs are missing, empty or in another order.
    for (at, value) in [(0, 0x04), (9, 0x06), (18, 0x08)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert!(
            matches!(Lldpdu::parse(&bad), Err(LldpduError::Mandatory { .. })),
            "byte {at}"
        );
    }
    for cut in 1..good.len() {
        // A TLV that is cut off is an error; a cut between two TLVs is not.
        let _ = Lldpdu::parse(&good[..cut]).map_err(|error| error.to_string());
    }
    assert!(matches!(
        Lldpdu::parse(&good[..26]),
        Err(LldpduError::Truncated { kind: 5, .. })
    ));
    let again = [&good[..22], &good[..9]].concat();
    assert_eq!(Lldpdu::parse(&again), Err(LldpduError::Repeated { kind: 1 }));
    let twice = [&good[..22], &[0x0a, 1, b'a', 0x0a, 1, b'b']].concat();
    assert_eq!(Lldpdu::parse(&twice), Err(LldpduError::Repeated { kind: 5 }));
    assert_eq!(
        Lldpdu::parse(&vec![0; 65_536]),
        Err(LldpduError::TooLarge { size: 65_536 })
    );
    // Optional TLVs that are malformed are counted: a management address, a VLAN name, capabilities.
    let optional: [&[u8]; 3] = [
        &[0x10, 2, 9, 1],
        &[0xfe, 7, 0, 0x80, 0xc2, 3, 0, 10, 40],
        &[0x0e, 1, 0],
    ];
    for tlv in optional {
        assert_eq!(Lldpdu::parse(&[&good[..22], tlv].concat()).unwrap().unread, 1);
    }
    let control = [&good[..22], &[0x0a, 3, b'a', 0x1b, b'b']].concat();
    assert_eq!(
        Lldpdu::parse(&control).unwrap().system_name.as_deref(),
        Some("a\u{fffd}b")
    );
}

#[test]
fn an_lldpdu_of_a_port_with_many_vlans_fits_into_a_frame() {
    let vlans = (1..=4094).map(|vid| NamedVlan {
        vid,
        name: format!("vlan{vid}"),
    });
    let mut agent = agent(1);
    agent.set_port(
        P1,
        PortSettings {
            vlans: vlans.collect(),
            ..port()
        },
        secs(0),
    );
    let frames = agent.poll(secs(0));
    assert!(frames[0].frame.len() <= 1514);
    assert_eq!(pdu_of(&frames[0]).vlans.len(), MAX_VLANS);
}

fn text() -> impl Strategy<Value = Option<String>> {
    proptest::option::of("[a-zA-Zäö ]{1,60}")
}

fn lldpdu() -> impl Strategy<Value = Lldpdu> {
    let vlan = (0..4096_u16, "[a-z]{0,32}").prop_map(|(vid, name)| NamedVlan { vid, name });
    let address = (any::<IpAddr>(), any::<Option<u32>>())
        .prop_map(|(address, if_index)| ManagementAddress { address, if_index });
    (
        (any::<[u8; 6]>(), "[a-z]{1,20}", any::<u16>()),
        (text(), text(), text()),
        any::<Option<(u16, u16)>>(),
        proptest::collection::vec(address, 0..MAX_ADDRESSES),
        proptest::collection::vec(vlan, 0..8),
        (
            any::<Option<u16>>(),
            any::<Option<u16>>(),
            any::<Option<(bool, bool, u32)>>(),
        ),
    )
        .prop_map(
            |((mac, name, ttl), texts, capabilities, addresses, vlans, (vid, size, lag))| Lldpdu {
                port_description: texts.0,
                system_name: texts.1,
                system_description: texts.2,
                capabilities: capabilities.map(|(has, enabled)| (Capabilities(has), Capabilities(enabled))),
                addresses,
                port_vlan: vid,
                vlans,
                aggregation: lag.map(|(is_capable, is_enabled, port_id)| Aggregation {
                    is_capable,
                    is_enabled,
                    port_id,
                }),
                max_frame_size: size,
                ..Lldpdu::new(ChassisId::Mac(Mac(mac)), PortId::InterfaceName(name), ttl)
            },
        )
}

proptest! {
    #[test]
    fn an_lldpdu_is_read_as_it_is_written(pdu in lldpdu()) {
        prop_assert_eq!(Lldpdu::parse(&pdu.emit(MAX_SIZE)), Ok(pdu));
    }
}
