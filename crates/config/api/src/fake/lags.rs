//! The LAG of the fake switch.

use crate::view::{Counters, Lacp, LacpParticipant, Lag, LagMember, LinkState};

/// Returns a LAG of which one member carries packets, and one has no partner.
pub(super) fn lags() -> Vec<Lag> {
    let side = |system: &str, port, state: &[&str]| LacpParticipant {
        system_priority: 32_768,
        system: system.to_owned(),
        key: 321,
        port_priority: 32_768,
        port,
        state: state.iter().map(|&bit| bit.to_owned()).collect(),
    };
    let counters = Counters {
        packets: 1000,
        bytes: 64_000,
        ..Counters::default()
    };
    let all = [
        "activity",
        "aggregation",
        "synchronization",
        "collecting",
        "distributing",
    ];
    let member = |name: &str, number: u16, partner: Option<LacpParticipant>| {
        let carries = partner.is_some();
        let word = |yes: &str, no: &str| if carries { yes } else { no }.to_owned();
        LagMember {
            name: name.to_owned(),
            number: number.into(),
            device: format!("kernel:{name}"),
            link: LinkState::Up,
            speed_bps: Some(10_000_000_000),
            collecting: carries,
            distributing: carries,
            since_s: Some(61),
            lacp: Some(Lacp {
                receive: word("current", "defaulted"),
                mux: word("distributing", "detached"),
                selected: word("selected", "unselected"),
                actor: side(
                    "02:00:00:00:00:01",
                    number,
                    if carries {
                        &all
                    } else {
                        &["activity", "aggregation", "defaulted"]
                    },
                ),
                partner,
                actor_churn: word("none", "churn"),
                partner_churn: word("none", "churn"),
                rx_lacpdus: if carries { 30 } else { 0 },
                rx_discarded: 0,
                tx_lacpdus: 31,
                markers: 0,
                flaps: 1,
            }),
            lldp: None,
            rx: counters,
            tx: counters,
        }
    };
    vec![Lag {
        name: "uplink".to_owned(),
        bridge: "br0".to_owned(),
        port: "p5".to_owned(),
        number: 5,
        mode: "active".to_owned(),
        rate: "slow".to_owned(),
        min_links: 1,
        fallback: "none".to_owned(),
        system_priority: 32_768,
        system: "02:00:00:00:00:01".to_owned(),
        mac: "02:00:00:00:00:05".to_owned(),
        link: LinkState::Up,
        speed_bps: Some(10_000_000_000),
        rx: counters,
        tx: counters,
        members: vec![
            member("eth11", 11, Some(side("02:00:00:00:00:09", 3, &all))),
            member("eth12", 12, None),
        ],
    }]
}
