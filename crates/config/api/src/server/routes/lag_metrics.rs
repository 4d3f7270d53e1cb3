//! Metrics of LAGs.

use crate::server::exposition::{Family, Metric};
use crate::server::live::Live;
use crate::view::{Lacp, Lag, LagMember, LinkState};

const COUNTERS: [Metric<LagMember>; 6] = [
    (
        "millrace_lag_member_receive_packets_total",
        "Packets received at the member.",
        |member| member.rx.packets,
    ),
    (
        "millrace_lag_member_receive_bytes_total",
        "Bytes received at the member.",
        |member| member.rx.bytes,
    ),
    (
        "millrace_lag_member_receive_drops_total",
        "Packets dropped on reception at the member.",
        |member| member.rx.drops,
    ),
    (
        "millrace_lag_member_transmit_packets_total",
        "Packets sent by the member.",
        |member| member.tx.packets,
    ),
    (
        "millrace_lag_member_transmit_bytes_total",
        "Bytes sent by the member.",
        |member| member.tx.bytes,
    ),
    (
        "millrace_lag_member_transmit_drops_total",
        "Packets dropped on transmission by the member.",
        |member| member.tx.drops,
    ),
];

const LACP_COUNTERS: [Metric<Lacp>; 4] = [
    (
        "millrace_lag_member_lacpdus_received_total",
        "LACPDUs received.",
        |lacp| lacp.rx_lacpdus,
    ),
    (
        "millrace_lag_member_lacpdus_discarded_total",
        "Malformed or unknown frames of slow protocols.",
        |lacp| lacp.rx_discarded,
    ),
    (
        "millrace_lag_member_lacpdus_sent_total",
        "LACPDUs sent.",
        |lacp| lacp.tx_lacpdus,
    ),
    (
        "millrace_lag_member_flaps_total",
        "Changes between distributing and not distributing.",
        |lacp| lacp.flaps,
    ),
];

/// Writes the metrics of all LAGs; none without LAGs.
pub(super) fn lags(out: &mut String, live: &dyn Live) {
    let lags = live.lags();
    if lags.is_empty() {
        return;
    }
    let help = "Members of the LAG in the configuration.";
    per_lag(out, &lags, "millrace_lag_members", help, |lag| {
        lag.members.len() as u64
    });
    let help = "Members that send packets of the LAG.";
    per_lag(out, &lags, "millrace_lag_members_distributing", help, |lag| {
        lag.members.iter().filter(|member| member.distributing).count() as u64
    });
    let help = "The number of usable members below which the LAG is down.";
    per_lag(out, &lags, "millrace_lag_min_links", help, |lag| {
        lag.min_links.into()
    });
    let gauges: [Metric<LagMember>; 3] = [
        (
            "millrace_lag_member_up",
            "1 if the member has a link, else 0.",
            |member| u64::from(member.link == LinkState::Up),
        ),
        (
            "millrace_lag_member_distributing",
            "1 if the member sends packets of the LAG, else 0.",
            |member| u64::from(member.distributing),
        ),
        (
            "millrace_lag_member_churned",
            "1 if a side of LACP has been out of synchronization for 60 seconds, else 0.",
            |member| {
                let is_churned =
                    |lacp: &Lacp| [&lacp.actor_churn, &lacp.partner_churn].map(|churn| churn == "churn");
                u64::from(
                    member
                        .lacp
                        .as_ref()
                        .is_some_and(|lacp| is_churned(lacp).contains(&true)),
                )
            },
        ),
    ];
    for (name, help, number) in gauges {
        let mut family = Family::gauge(out, name, help);
        each_member(&lags, |labels, member| family.sample(labels, number(member)));
    }
    for (name, help, number) in COUNTERS {
        let mut family = Family::counter(out, name, help);
        each_member(&lags, |labels, member| family.sample(labels, number(member)));
    }
    for (name, help, number) in LACP_COUNTERS {
        let mut family = Family::counter(out, name, help);
        each_member(&lags, |labels, member| {
            if let Some(lacp) = &member.lacp {
                family.sample(labels, number(lacp));
            }
        });
    }
}

fn per_lag(out: &mut String, lags: &[Lag], name: &'static str, help: &str, number: impl Fn(&Lag) -> u64) {
    let mut family = Family::gauge(out, name, help);
    for lag in lags {
        let labels = [
            ("bridge", lag.bridge.as_str()),
            ("port", &lag.port),
            ("lag", &lag.name),
        ];
        family.sample(&labels, number(lag));
    }
}

fn each_member(lags: &[Lag], mut write: impl FnMut(&[(&str, &str)], &LagMember)) {
    for lag in lags {
        for member in &lag.members {
            let labels = [
                ("bridge", lag.bridge.as_str()),
                ("port", &lag.port),
                ("lag", &lag.name),
                ("member", &member.name),
            ];
            write(&labels, member);
        }
    }
}
