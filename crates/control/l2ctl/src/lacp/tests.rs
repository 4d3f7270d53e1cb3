//! One test for each rule of the machines, and PDUs as Open vSwitch sends them.

use millrace_types::{Mac, Time};

use super::*;
use crate::frame::with_ether_type;
use crate::{SLOW_PROTOCOLS, Transmit};

const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OTHER: Mac = Mac([2, 0, 0, 0, 0, 2]);
const GIGABIT: Option<Mbps> = Some(Mbps(1_000));

fn ms(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn settings() -> Settings {
    Settings {
        system_priority: 0x8000,
        system: OWN,
        number: LagNumber::new(7).unwrap(),
        mode: Mode::Active,
        rate: Rate::Fast,
        min_links: 1,
        fallback: Fallback::None,
    }
}

/// Returns a LAG with two members, 1 and 2, whose links came up at 0.
fn lag(settings: Settings) -> Lag {
    let member = |port| MemberSettings {
        port,
        priority: 128,
        mac: Mac([4, 0, 0, 0, 0, port as u8]),
    };
    let mut lag = Lag::new(settings, &[member(2), member(1)]);
    lag.set_link(1, GIGABIT, ms(0));
    lag.set_link(2, GIGABIT, ms(0));
    lag
}

fn sent(frames: &[Transmit], port: u16) -> Vec<Lacpdu> {
    let of_port = frames.iter().filter(|transmit| transmit.port == port);
    let pdus = of_port.map(|transmit| Pdu::parse(&transmit.frame[14..]).unwrap());
    pdus.filter_map(|pdu| match pdu {
        Pdu::Lacp(pdu) => Some(pdu),
        Pdu::Marker(_) => None,
    })
    .collect()
}

fn frame(pdu: &Lacpdu) -> Vec<u8> {
    with_ether_type(SLOW_PROTOCOLS, OTHER, 0x8809, &pdu.emit())
}

/// Returns the LACPDU of a partner that agrees with everything that member `port` of `lag` says.
fn agreeing(lag: &Lag, port: u16) -> Lacpdu {
    let status = lag
        .status(ms(0))
        .into_iter()
        .find(|status| status.port == port)
        .unwrap();
    Lacpdu {
        actor: Participant {
            system_priority: 0x8000,
            system: OTHER,
            key: 5,
            port_priority: 128,
            port: port + 10,
            state: State::ACTIVITY
                | State::TIMEOUT
                | State::AGGREGATION
                | State::SYNCHRONIZATION
                | State::COLLECTING,
        },
        partner: status.actor,
        collector_max_delay: 0,
    }
}

/// Feeds both members with agreeing LACPDUs each 500 ms from `from` to `to` in ms.
fn agree(lag: &mut Lag, from: u64, to: u64) {
    for at in (from..to).step_by(500) {
        for port in [1, 2] {
            let pdu = agreeing(lag, port);
            lag.receive(port, &frame(&pdu), ms(at));
        }
        lag.poll(ms(at));
    }
}

fn status(lag: &Lag, port: u16, at: u64) -> MemberStatus {
    lag.status(ms(at))
        .into_iter()
        .find(|status| status.port == port)
        .unwrap()
}

#[test]
fn an_lacpdu_of_open_vswitch_is_read_and_written_alike() {
    // Open vSwitch 3.1.0, lacp=active, lacp-time=fast, without a partner.
    let mut bytes = [0; LACPDU_SIZE];
    bytes[..22].copy_from_slice(&[
        0x01, 0x01, 0x01, 0x14, 0xff, 0xfe, 0xda, 0x63, 0x8c, 0x28, 0xb0, 0x48, 0x00, 0x01, 0xff, 0xff, 0x00,
        0x02, 0xbf, 0x00, 0x00, 0x00,
    ]);
    bytes[22..24].copy_from_slice(&[0x02, 0x14]);
    bytes[38] = 0x02;
    bytes[42..44].copy_from_slice(&[0x03, 0x10]);
    let Some(Pdu::Lacp(pdu)) = Pdu::parse(&bytes) else {
        panic!("an LACPDU");
    };
    assert_eq!(pdu.actor.system, Mac([0xda, 0x63, 0x8c, 0x28, 0xb0, 0x48]));
    assert_eq!((pdu.actor.system_priority, pdu.actor.key), (65534, 1));
    assert_eq!((pdu.actor.port_priority, pdu.actor.port), (65535, 2));
    let names: Vec<_> = pdu.actor.state.names().collect();
    assert_eq!(
        names,
        [
            "activity",
            "timeout",
            "aggregation",
            "synchronization",
            "collecting",
            "distributing",
            "expired"
        ]
    );
    assert_eq!(pdu.partner.state, State::TIMEOUT);
    assert_eq!(pdu.emit(), bytes);
}

#[test]
fn malformed_pdus_are_refused_and_higher_versions_are_read() {
    let good = agreeing(&lag(settings()), 1).emit();
    assert!(Pdu::parse(&good).is_some());
    for size in 0..LACPDU_SIZE {
        assert_eq!(Pdu::parse(&good[..size]), None, "{size} bytes");
    }
    // Subtype, version 0, and type and length of each information field.
    for at in [0, 2, 3, 22, 23, 42, 43] {
        let mut bad = good;
        bad[at] ^= 0x44;
        assert_eq!(Pdu::parse(&bad), None, "byte {at}");
    }
    let mut newer = good;
    newer[1] = 2;
    assert_eq!(Pdu::parse(&newer), Pdu::parse(&good));
    newer[1] = 0;
    assert_eq!(Pdu::parse(&newer), None);
    // Reserved bytes are not looked at.
    let mut reserved = good;
    reserved[60..].fill(0xff);
    reserved[19..22].fill(0xff);
    assert_eq!(Pdu::parse(&reserved), Pdu::parse(&good));
}

#[test]
fn members_with_the_same_partner_wait_two_seconds_and_then_carry_frames() {
    let mut lag = lag(settings());
    lag.poll(ms(0));
    agree(&mut lag, 0, 2_000);
    assert_eq!(status(&lag, 1, 1_999).mux, Mux::Waiting);
    assert!(!lag.is_up());
    assert!(lag.deadline().unwrap() <= ms(2_000));
    lag.poll(ms(2_000));
    agree(&mut lag, 2_000, 3_000);
    for port in [1, 2] {
        assert_eq!(status(&lag, port, 3_000).mux, Mux::Distributing);
        assert!(lag.collects(port) && lag.distributes(port));
    }
}

#[test]
fn a_member_collects_before_its_partner_does_and_distributes_only_after_it() {
    let mut lag = lag(settings());
    agree(&mut lag, 0, 4_000);
    let mut pdu = agreeing(&lag, 1);
    pdu.actor.state = pdu.actor.state.with(State::COLLECTING, false);
    lag.receive(1, &frame(&pdu), ms(4_000));
    lag.poll(ms(4_000));
    assert_eq!((lag.collects(1), lag.distributes(1)), (true, false));
    pdu.actor.state = pdu.actor.state.with(State::SYNCHRONIZATION, false);
    lag.receive(1, &frame(&pdu), ms(4_100));
    lag.poll(ms(4_100));
    assert_eq!((lag.collects(1), lag.distributes(1)), (false, false));
    assert!(lag.is_up(), "member 2 works");
}

#[test]
fn a_silent_partner_expires_after_three_seconds_and_is_forgotten_after_three_more() {
    let mut lag = lag(settings());
    agree(&mut lag, 0, 4_001);
    lag.poll(ms(6_999));
    assert!(lag.is_up());
    lag.poll(ms(7_000));
    assert_eq!(status(&lag, 1, 7_000).receive, Receive::Expired);
    assert!(!lag.is_up());
    assert_eq!(status(&lag, 1, 7_000).partner.system, OTHER);
    lag.poll(ms(10_000));
    let member = status(&lag, 1, 10_000);
    assert_eq!((member.receive, member.mux), (Receive::Defaulted, Mux::Detached));
    assert_eq!(member.partner, Participant::default());
    assert!(member.actor.state.contains(State::DEFAULTED));
}

#[test]
fn with_the_slow_rate_a_partner_expires_after_ninety_seconds() {
    let mut lag = lag(Settings {
        rate: Rate::Slow,
        ..settings()
    });
    agree(&mut lag, 0, 4_001);
    lag.poll(ms(93_999));
    assert!(lag.is_up());
    lag.poll(ms(94_000));
    assert!(!lag.is_up());
}

#[test]
fn a_link_that_goes_down_takes_its_member_out_at_once() {
    let mut lag = lag(settings());
    agree(&mut lag, 0, 4_000);
    lag.set_link(1, None, ms(4_000));
    lag.poll(ms(4_000));
    assert_eq!((lag.collects(1), lag.distributes(1)), (false, false));
    assert!(lag.distributes(2));
    assert_eq!(status(&lag, 1, 4_000).counters.flaps, 2);
}

#[test]
fn lacpdus_are_sent_at_the_rate_of_the_partner() {
    for (own, partner, expected) in [
        (Rate::Fast, State::TIMEOUT, 60..=62),
        (Rate::Slow, State::TIMEOUT, 60..=62),
        (Rate::Fast, State(0), 2..=3),
        (Rate::Slow, State(0), 2..=3),
    ] {
        let mut lag = lag(Settings {
            rate: own,
            ..settings()
        });
        agree(&mut lag, 0, 5_000);
        let mut count = 0;
        for at in (5_000..65_000).step_by(500) {
            let mut pdu = agreeing(&lag, 1);
            pdu.actor.state = pdu.actor.state.with(State::TIMEOUT, false) | partner;
            lag.receive(1, &frame(&pdu), ms(at));
            count += sent(&lag.poll(ms(at)), 1).len();
        }
        assert!(
            expected.contains(&count),
            "{own:?}, {partner:?}: {count} in a minute"
        );
    }
}

#[test]
fn a_partner_that_asks_for_a_faster_rate_gets_an_lacpdu_at_once() {
    let mut lag = lag(Settings {
        rate: Rate::Slow,
        ..settings()
    });
    agree(&mut lag, 0, 5_000);
    let mut pdu = agreeing(&lag, 1);
    pdu.actor.state = pdu.actor.state.with(State::TIMEOUT, false);
    lag.receive(1, &frame(&pdu), ms(5_000));
    lag.poll(ms(5_000));
    for at in [7_000, 8_000, 9_000] {
        lag.receive(1, &frame(&pdu), ms(at));
        lag.poll(ms(at));
    }
    pdu.actor.state = pdu.actor.state | State::TIMEOUT;
    lag.receive(1, &frame(&pdu), ms(10_000));
    assert_eq!(sent(&lag.poll(ms(10_000)), 1).len(), 1);
}

#[test]
fn a_passive_lag_is_silent_until_an_active_partner_speaks() {
    let mut lag = lag(Settings {
        mode: Mode::Passive,
        ..settings()
    });
    for at in 0..100 {
        assert!(lag.poll(ms(at * 100)).is_empty());
    }
    let mut pdu = agreeing(&lag, 1);
    pdu.actor.state = pdu.actor.state.with(State::ACTIVITY, false);
    lag.receive(1, &frame(&pdu), ms(10_000));
    assert!(lag.poll(ms(10_000)).is_empty(), "both are passive");
    let pdu = agreeing(&lag, 1);
    lag.receive(1, &frame(&pdu), ms(10_100));
    assert_eq!(sent(&lag.poll(ms(10_100)), 1).len(), 1);
}

#[test]
fn members_with_another_partner_or_another_speed_are_left_out() {
    let mut lag = lag(settings());
    agree(&mut lag, 0, 4_000);
    let mut pdu = agreeing(&lag, 2);
    pdu.actor.system = Mac([2, 0, 0, 0, 0, 3]);
    for at in (4_000..8_000).step_by(500) {
        let first = agreeing(&lag, 1);
        lag.receive(1, &frame(&first), ms(at));
        lag.receive(2, &frame(&pdu), ms(at));
        lag.poll(ms(at));
    }
    assert!(lag.distributes(1) && !lag.distributes(2));
    assert_eq!(status(&lag, 2, 8_000).selected, Selected::Unselected);
    agree(&mut lag, 8_000, 12_000);
    assert!(lag.distributes(2), "the partner is the right one again");
    lag.set_link(2, Some(Mbps(10_000)), ms(12_000));
    agree(&mut lag, 12_000, 16_000);
    assert!(lag.distributes(1) && !lag.distributes(2));
    assert_ne!(
        status(&lag, 1, 16_000).actor.key,
        status(&lag, 2, 16_000).actor.key
    );
}

#[test]
fn a_member_whose_cable_leads_to_the_same_system_is_left_out() {
    let mut lag = lag(settings());
    for at in (0..4_000).step_by(500) {
        for (from, to) in [(1, 2), (2, 1)] {
            let mut pdu = agreeing(&lag, to);
            pdu.actor = status(&lag, from, at).actor;
            lag.receive(to, &frame(&pdu), ms(at));
        }
        lag.poll(ms(at));
    }
    assert!(!lag.is_up());
}

#[test]
fn with_fewer_than_min_links_all_members_are_on_standby_and_out_of_sync() {
    let mut lag = lag(Settings {
        min_links: 2,
        ..settings()
    });
    agree(&mut lag, 0, 4_000);
    assert!(lag.distributes(1) && lag.distributes(2));
    lag.set_link(2, None, ms(4_000));
    lag.poll(ms(4_000));
    let member = status(&lag, 1, 4_000);
    assert_eq!((member.selected, lag.is_up()), (Selected::Standby, false));
    assert!(!member.actor.state.contains(State::SYNCHRONIZATION));
    lag.set_link(2, GIGABIT, ms(5_000));
    agree(&mut lag, 5_000, 9_000);
    assert!(lag.distributes(1) && lag.distributes(2));
}

#[test]
fn a_fallback_member_carries_frames_alone_while_there_is_no_partner() {
    for (fallback, expected) in [
        (Fallback::None, None),
        (Fallback::Individual, Some(1)),
        (Fallback::Member(2), Some(2)),
    ] {
        let mut lag = lag(Settings {
            fallback,
            ..settings()
        });
        lag.poll(ms(0));
        lag.poll(ms(2_999));
        assert!(!lag.is_up(), "a partner may still answer");
        lag.poll(ms(3_000));
        let carrying: Vec<u16> = lag.ports().filter(|port| lag.distributes(*port)).collect();
        assert_eq!(carrying, expected.into_iter().collect::<Vec<_>>(), "{fallback:?}");
        // Another link that comes up does not disturb it.
        lag.set_link(3 - expected.unwrap_or(1), None, ms(3_500));
        lag.set_link(3 - expected.unwrap_or(1), GIGABIT, ms(3_600));
        lag.poll(ms(3_600));
        assert_eq!(lag.is_up(), expected.is_some());
        let pdu = agreeing(&lag, 1);
        lag.receive(1, &frame(&pdu), ms(4_000));
        lag.poll(ms(4_000));
        assert!(!lag.is_up(), "there is a partner: the LAG waits for it");
    }
}

#[test]
fn a_static_lag_sends_nothing_and_follows_the_links() {
    let mut lag = lag(Settings {
        mode: Mode::Static,
        min_links: 2,
        ..settings()
    });
    assert!(lag.poll(ms(0)).is_empty());
    assert!(lag.distributes(1) && lag.distributes(2));
    assert_eq!(lag.deadline(), None);
    lag.set_link(1, None, ms(10));
    assert!(!lag.is_up());
}

#[test]
fn sides_out_of_sync_are_churned_after_a_minute() {
    let mut lag = lag(settings());
    for at in (0..60_500).step_by(500) {
        for port in [1, 2] {
            let mut pdu = agreeing(&lag, port);
            pdu.actor.state = pdu.actor.state.with(State::SYNCHRONIZATION, false);
            lag.receive(port, &frame(&pdu), ms(at));
        }
        lag.poll(ms(at));
    }
    let member = status(&lag, 1, 59_999);
    assert_eq!(
        (member.actor_churn, member.partner_churn),
        (Churn::None, Churn::Monitor)
    );
    assert_eq!(status(&lag, 1, 60_000).partner_churn, Churn::Churned);
    agree(&mut lag, 60_500, 61_000);
    assert_eq!(status(&lag, 1, 61_000).partner_churn, Churn::None);
}

#[test]
fn a_marker_is_answered_to_its_sender_and_responses_are_not() {
    let mut lag = lag(settings());
    lag.poll(ms(0));
    let marker = Marker {
        port: 9,
        system: OTHER,
        transaction: 77,
        is_response: false,
    };
    lag.receive(
        1,
        &with_ether_type(SLOW_PROTOCOLS, OTHER, 0x8809, &marker.emit()),
        ms(10),
    );
    let frames = lag.poll(ms(10));
    let answer = Pdu::parse(&frames[0].frame[14..]);
    assert_eq!(
        answer,
        Some(Pdu::Marker(Marker {
            is_response: true,
            ..marker
        }))
    );
    let response = Marker {
        is_response: true,
        ..marker
    };
    lag.receive(
        1,
        &with_ether_type(SLOW_PROTOCOLS, OTHER, 0x8809, &response.emit()),
        ms(20),
    );
    assert!(lag.poll(ms(20)).is_empty());
}

#[test]
fn a_flood_of_pdus_makes_the_lag_send_three_a_second_at_most() {
    let mut lag = lag(settings());
    let marker = Marker {
        port: 9,
        system: OTHER,
        transaction: 77,
        is_response: false,
    };
    let marker = with_ether_type(SLOW_PROTOCOLS, OTHER, 0x8809, &marker.emit());
    let mut count = 0;
    for at in 0..10_000 {
        // Each names another partner and does not know this side: each asks for an answer.
        let mut pdu = agreeing(&lag, 1);
        pdu.actor.port = at as u16;
        pdu.partner = Participant::default();
        lag.receive(1, &frame(&pdu), ms(at));
        lag.receive(1, &marker, ms(at));
        count += lag
            .poll(ms(at))
            .iter()
            .filter(|transmit| transmit.port == 1)
            .count();
    }
    assert!((40..=66).contains(&count), "{count} frames in 10 s");
}

#[test]
fn new_settings_and_members_disturb_only_what_they_change() {
    let mut lag = lag(settings());
    agree(&mut lag, 0, 4_000);
    let members: Vec<MemberSettings> = [1, 2, 3]
        .map(|port| MemberSettings {
            port,
            priority: 128,
            mac: Mac([4, 0, 0, 0, 0, port as u8]),
        })
        .to_vec();
    lag.set_members(&members);
    lag.set_settings(
        Settings {
            rate: Rate::Slow,
            ..settings()
        },
        ms(4_000),
    );
    lag.poll(ms(4_000));
    assert!(lag.distributes(1) && lag.distributes(2) && !lag.distributes(3));
    lag.set_members(&members[1..]);
    lag.poll(ms(4_010));
    assert_eq!(lag.ports().collect::<Vec<_>>(), [2, 3]);
    assert!(lag.distributes(2));
    lag.set_settings(
        Settings {
            mode: Mode::Static,
            ..settings()
        },
        ms(4_020),
    );
    lag.poll(ms(4_020));
    assert!(lag.distributes(2), "a static member needs its link only");
}

#[test]
fn keys_differ_by_lag_and_by_speed() {
    let number = LagNumber::new(3).unwrap();
    assert_eq!(number.key(Mbps(0)), 3 << 6);
    assert_eq!(number.key(Mbps(10)), 3 << 6 | 1);
    assert_eq!(number.key(Mbps(1_000)), number.key(Mbps(2_000)));
    assert_ne!(number.key(Mbps(1_000)), number.key(Mbps(10_000)));
    assert_eq!(LagNumber::new(1023).unwrap().key(Mbps(800_000)), 0xffcd);
    assert_eq!((LagNumber::new(0), LagNumber::new(1024)), (None, None));
}

#[test]
fn a_lag_that_shuts_down_tells_each_partner_that_its_member_is_out_of_synchronization() {
    let mut lag = lag(settings());
    agree(&mut lag, 0, 5_000);
    assert!(lag.distributes(1) && lag.distributes(2));
    let frames = lag.shut_down(ms(5_000));
    for port in [1, 2] {
        let [pdu] = sent(&frames, port)[..] else {
            panic!("one LACPDU at port {port}");
        };
        let said = pdu.actor.state;
        assert!(!said.contains(State::SYNCHRONIZATION), "{said:?}");
        assert!(!said.contains(State::COLLECTING) && !said.contains(State::DISTRIBUTING));
    }
    assert!(!lag.is_up());
}
