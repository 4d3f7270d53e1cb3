//! Metrics of chains: the counters of each hop, over all lanes and instances.

use crate::server::exposition::Family;
use crate::server::live::Live;
use crate::view::{Bridge, Chain, ChainHop};

/// Reads one counter of a hop.
type HopNumber = fn(&ChainHop) -> u64;

/// Reads one sampled duration of a hop, in nanoseconds; `None` before the first sample.
type HopNanos = fn(&ChainHop) -> Option<f64>;

/// The verdicts of a hop.
const VERDICTS: [(&str, HopNumber); 4] = [
    ("next", |hop| hop.next),
    ("skip", |hop| hop.skipped),
    ("drop", |hop| hop.dropped),
    ("to_port", |hop| hop.to_port),
];

/// The drop reasons of a hop.
const DROPS: [(&str, HopNumber); 2] = [("function", |hop| hop.dropped), ("hop_down", |hop| hop.lost)];

/// The states of a hop, as `millrace_chain::HopState` names them.
const STATES: [&str; 4] = ["up", "starting", "down", "drained"];

/// A hop with the names of its bridge and chain.
struct LocatedHop {
    bridge: String,
    chain: String,
    hop: ChainHop,
}

impl LocatedHop {
    fn labels<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let labels = [
            ("bridge", self.bridge.as_str()),
            ("chain", &self.chain),
            ("hop", &self.hop.name),
        ];
        labels.into_iter().chain(more.iter().copied()).collect()
    }
}

pub(super) fn chains(out: &mut String, live: &dyn Live, bridges: &[Bridge]) {
    let chains = bridges.iter().flat_map(|bridge| {
        let chains: Vec<Chain> = live.chains(&bridge.name).unwrap_or_default();
        chains.into_iter().map(|chain| (bridge.name.clone(), chain))
    });
    let hops: Vec<LocatedHop> = chains
        .flat_map(|(bridge, Chain { name, hops, .. })| {
            hops.into_iter().map(move |hop| LocatedHop {
                bridge: bridge.clone(),
                chain: name.clone(),
                hop,
            })
        })
        .collect();
    if hops.is_empty() {
        return;
    }
    let each = |mut family: Family<'_>, number: HopNumber| {
        for located in &hops {
            family.sample(&located.labels(&[]), number(&located.hop));
        }
    };
    let name = "millrace_hop_packets_total";
    each(
        Family::counter(out, name, "Packets that a hop of a chain received."),
        |hop| hop.packets,
    );
    let name = "millrace_hop_bytes_total";
    each(
        Family::counter(out, name, "Bytes of the packets that a hop of a chain received."),
        |hop| hop.bytes,
    );
    let by = |mut family: Family<'_>, label: &str, parts: &[(&str, HopNumber)]| {
        for located in &hops {
            for (part, number) in parts {
                family.sample(&located.labels(&[(label, part)]), number(&located.hop));
            }
        }
    };
    let name = "millrace_hop_verdicts_total";
    by(
        Family::counter(out, name, "Verdicts of a function on packets."),
        "verdict",
        &VERDICTS,
    );
    let name = "millrace_hop_dropped_packets_total";
    by(
        Family::counter(out, name, "Packets dropped at a hop, by reason."),
        "reason",
        &DROPS,
    );
    let name = "millrace_hop_passed_packets_total";
    each(
        Family::counter(out, name, "Packets that bypassed a hop while it was down."),
        |hop| hop.passed,
    );
    let name = "millrace_hop_shunned_packets_total";
    by(
        Family::counter(
            out,
            name,
            "Packets of shunned flows, which bypassed a function, by their treatment.",
        ),
        "treatment",
        &[
            ("pass", |hop| hop.shunned_passed),
            ("drop", |hop| hop.shunned_dropped),
        ],
    );
    let name = "millrace_hop_sent_packets_total";
    by(
        Family::counter(
            out,
            name,
            "Packets that a function sent, and those that it could not send.",
        ),
        "result",
        &[("sent", |hop| hop.sent), ("failed", |hop| hop.not_sent)],
    );
    let name = "millrace_hop_restarts_total";
    each(
        Family::counter(out, name, "Instances of a function that were re-created."),
        |hop| hop.restarts,
    );
    let name = "millrace_hop_waiting_packets";
    each(
        Family::gauge(out, name, "Packets that the processes of a hop hold."),
        |hop| hop.depth,
    );
    let name = "millrace_hop_shunned_flows";
    each(Family::gauge(out, name, "Flows that a function shuns."), |hop| {
        hop.shunned_flows
    });
    let name = "millrace_hop_instances";
    each(
        Family::gauge(out, name, "Instances of a function over all lanes."),
        |hop| hop.instances.into(),
    );
    states(out, &hops);
    let sampled: [(&str, &str, HopNanos); 2] = [
        (
            "millrace_hop_packet_seconds",
            "Time of the worker for a packet at a hop, sampled for one burst in 64.",
            |hop| hop.nanos_per_packet,
        ),
        (
            "millrace_hop_latency_seconds",
            "Delay that a hop adds to a packet, sampled for one burst in 64.",
            |hop| hop.latency_nanos,
        ),
    ];
    for (name, help, number) in sampled {
        let mut family = Family::gauge(out, name, help);
        for located in &hops {
            if let Some(nanos) = number(&located.hop) {
                family.sample(&located.labels(&[]), format!("{:.9}", nanos / 1e9));
            }
        }
    }
    let help = "Counters that functions define, by name.";
    let mut counters = Family::counter(out, "millrace_function_count_total", help);
    for located in &hops {
        for counter in &located.hop.counters {
            counters.sample(&located.labels(&[("counter", &counter.name)]), counter.value);
        }
    }
}

fn states(out: &mut String, hops: &[LocatedHop]) {
    let help = "1 for the present state of a hop, 0 for the others.";
    let mut state = Family::gauge(out, "millrace_hop_state", help);
    for located in hops {
        for word in STATES {
            state.sample(
                &located.labels(&[("state", word)]),
                u8::from(located.hop.state == word),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hop_has_exactly_one_state() {
        for state in ["up", "starting", "down", "drained"] {
            let hop = LocatedHop {
                bridge: "br0".to_owned(),
                chain: "edge".to_owned(),
                hop: ChainHop {
                    name: "fw".to_owned(),
                    state: state.to_owned(),
                    ..ChainHop::default()
                },
            };
            let mut text = String::new();
            states(&mut text, &[hop]);
            let ones: Vec<&str> = text.lines().filter(|line| line.ends_with("} 1")).collect();
            let labels = r#"bridge="br0",chain="edge",hop="fw""#;
            assert_eq!(
                ones,
                [format!("millrace_hop_state{{{labels},state=\"{state}\"}} 1")]
            );
        }
    }
}
