//! Frames of neighbours: LACP, RSTP and LLDP.

use millrace_l2ctl::lacp::{Fallback, Lacpdu, Lag, LagNumber, Mbps, MemberSettings, Mode, Pdu, Rate};
use millrace_l2ctl::rstp::{Action, Bpdu, Bridge, Link};
use millrace_l2ctl::{lacp, lldp, rstp};
use millrace_types::{Duration, Mac, PortNo, Time};

const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PORTS: u16 = 2;
/// Frames that one protocol sends for one event at most: five for each port, and a shutdown.
const MAX_FRAMES: usize = 6 * PORTS as usize;

/// Feeds a LAG, a bridge and an LLDP agent. The input is a sequence of events: a byte that advances the time by up to 2.55 s,
/// a byte that selects port and protocol, a byte with the size of the body, and the body.
///
/// Properties: after `poll`, nothing is due at the same time; few frames leave for one event; they are valid.
pub(crate) fn frames(bytes: &[u8]) {
    let (mut lag, mut bridge, mut agent) = (lag(), bridge(), agent());
    let mut now = Time::ZERO;
    let mut rest = bytes;
    while let [advance, kind, size, tail @ ..] = rest {
        let (body, tail) = tail.split_at(usize::from(*size).min(tail.len()));
        rest = tail;
        now = now + Duration::from_millis(u64::from(*advance) * 10);
        let port = 1 + u16::from(kind & 1);
        let last = [0, 2, 0x0e][usize::from(kind >> 1) % 3];
        let mut frame = vec![0x01, 0x80, 0xc2, 0, 0, last, 4, 0, 0, 0, 0, 9];
        match last {
            0 => frame.extend([&[0, *size, 0x42, 0x42, 3], body].concat()),
            2 => frame.extend([&[0x88, 0x09], body].concat()),
            _ => frame.extend([&[0x88, 0xcc], body].concat()),
        }
        lag.receive(port, &frame, now);
        bridge.receive(port, &frame, now);
        agent.receive(PortNo::from_raw(port.into()), &frame, now);
        let frames = lag.poll(now);
        assert!(frames.len() <= MAX_FRAMES);
        for transmit in frames {
            assert!(Pdu::parse(&transmit.frame[14..]).is_some());
        }
        assert!(lag.deadline().is_none_or(|deadline| deadline > now));
        for action in bridge.poll(now) {
            if let Action::Transmit(transmit) = action {
                assert!(Bpdu::parse(&transmit.frame[17..]).is_some());
            }
        }
        assert!(bridge.deadline().is_none_or(|deadline| deadline > now));
        let frames = agent.poll(now);
        assert!(frames.len() <= MAX_FRAMES);
        for transmit in frames {
            assert!(lldp::Lldpdu::parse(&transmit.frame[14..]).is_ok());
        }
        assert!(agent.deadline().is_none_or(|deadline| deadline > now));
        assert!(agent.neighbours().count() <= lldp::MAX_NEIGHBOURS * usize::from(PORTS));
    }
    if let Some(Pdu::Lacp(pdu)) = Pdu::parse(bytes) {
        let again: Lacpdu = pdu;
        assert_eq!(Pdu::parse(&again.emit()), Some(Pdu::Lacp(pdu)));
    }
    if let Some(bpdu) = Bpdu::parse(bytes) {
        assert_eq!(Bpdu::parse(&bpdu.emit()), Some(bpdu));
    }
    if let Ok(pdu) = lldp::Lldpdu::parse(bytes) {
        let again = lldp::Lldpdu::parse(&pdu.emit(lldp::MAX_SIZE)).unwrap();
        assert_eq!((&again.chassis, &again.port), (&pdu.chassis, &pdu.port));
    }
}

fn lag() -> Lag {
    let settings = lacp::Settings {
        system_priority: 1,
        system: OWN,
        number: LagNumber::new(1).unwrap(),
        mode: Mode::Active,
        rate: Rate::Fast,
        min_links: 1,
        fallback: Fallback::Individual,
    };
    let member = |port| MemberSettings {
        port,
        priority: 1,
        mac: OWN,
    };
    let mut lag = Lag::new(settings, &[member(1), member(2)]);
    for port in 1..=PORTS {
        lag.set_link(port, Some(Mbps(1_000)), Time::ZERO);
    }
    lag
}

fn bridge() -> Bridge {
    let mut bridge = Bridge::new(rstp::Settings::new(OWN), Time::ZERO);
    for port in 1..=PORTS {
        bridge.set_port(port, rstp::PortSettings::new(OWN), Time::ZERO);
        bridge.set_link(
            port,
            Some(Link {
                mbps: 1_000,
                is_full_duplex: true,
            }),
            Time::ZERO,
        );
    }
    bridge
}

fn agent() -> lldp::Agent {
    let mut agent = lldp::Agent::new(lldp::Settings {
        chassis: lldp::ChassisId::Mac(OWN),
        system_name: "switch".to_owned(),
        system_description: String::new(),
        capabilities: (lldp::Capabilities::BRIDGE, lldp::Capabilities::BRIDGE),
        addresses: Vec::new(),
        interval_s: 30,
        hold: 4,
    });
    for port in 1..=PORTS {
        let settings = lldp::PortSettings {
            mac: OWN,
            id: lldp::PortId::InterfaceName(port.to_string()),
            description: String::new(),
            sends: true,
            receives: true,
            port_vlan: None,
            vlans: Vec::new(),
            aggregation: None,
            max_frame_size: None,
        };
        agent.set_port(PortNo::from_raw(port.into()), settings, Time::ZERO);
        agent.set_link(PortNo::from_raw(port.into()), true, Time::ZERO);
    }
    agent
}
