//! Metrics of chains: the counters of each hop, over all lanes and instances.

use crate::server::exposition::{Family, Labels, Metric, metrics, write};
use crate::server::live::Live;
use crate::view::{Bridge, Chain, ChainHop};

/// Reads one counter of a hop.
type HopNumber = fn(&ChainHop) -> u64;

const HOP: &[Metric<ChainHop>] = metrics! {
    counter "millrace_hop_packets_total", "Packets that a hop of a chain received." =>
        |hop| hop.packets;
    counter "millrace_hop_bytes_total", "Bytes of the packets that a hop of a chain received." =>
        |hop| hop.bytes;
    counter "millrace_hop_passed_packets_total", "Packets that bypassed a hop while it was down." =>
        |hop| hop.passed;
    counter "millrace_hop_restarts_total", "Instances of a function that were re-created." =>
        |hop| hop.restarts;
    gauge "millrace_hop_waiting_packets", "Packets that the processes of a hop hold." =>
        |hop| hop.depth;
    gauge "millrace_hop_shunned_flows", "Flows that a function shuns." =>
        |hop| hop.shunned_flows;
    gauge "millrace_hop_instances", "Instances of a function over all lanes." =>
        |hop| hop.instances;
};

/// The verdicts of a hop.
const VERDICTS: [(&str, HopNumber); 4] = [
    ("next", |hop| hop.next),
    ("skip", |hop| hop.skipped),
    ("drop", |hop| hop.dropped),
    ("to_port", |hop| hop.to_port),
];

/// The drop reasons of a hop.
const DROPS: [(&str, HopNumber); 2] = [("function", |hop| hop.dropped), ("hop_down", |hop| hop.lost)];

/// Packets of shunned flows, by their treatment.
const SHUNNED: [(&str, HopNumber); 2] = [
    ("pass", |hop| hop.shunned_passed),
    ("drop", |hop| hop.shunned_dropped),
];

/// Packets that a function sent, and those that it could not send.
const SENT: [(&str, HopNumber); 2] = [("sent", |hop| hop.sent), ("failed", |hop| hop.not_sent)];

/// Sampled durations in nanoseconds; `None` before the first sample.
const SAMPLED: [(&str, &str, fn(&ChainHop) -> Option<f64>); 2] = [
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

/// The states of a hop, as `millrace_chain::HopState` names them.
const STATES: [&str; 4] = ["up", "starting", "down", "drained"];

/// A hop with the names of its bridge and chain.
struct LocatedHop {
    bridge: String,
    chain: String,
    hop: ChainHop,
}

impl LocatedHop {
    fn names(&self) -> Labels<'_, 3> {
        [
            ("bridge", &self.bridge),
            ("chain", &self.chain),
            ("hop", &self.hop.name),
        ]
    }

    fn with<'a>(&'a self, label: &'static str, value: &'a str) -> Labels<'a, 4> {
        let [bridge, chain, hop] = self.names();
        [bridge, chain, hop, (label, value)]
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
    let each = hops.iter().map(|located| (located.names(), &located.hop));
    write(out, HOP, &each.collect::<Vec<_>>());
    let mut by = |name, help, label, parts: &[(&str, HopNumber)]| {
        let mut family = Family::counter(out, name, help);
        for located in &hops {
            for (part, number) in parts {
                family.sample(&located.with(label, part), number(&located.hop));
            }
        }
    };
    by(
        "millrace_hop_verdicts_total",
        "Verdicts of a function on packets.",
        "verdict",
        &VERDICTS,
    );
    by(
        "millrace_hop_dropped_packets_total",
        "Packets dropped at a hop, by reason.",
        "reason",
        &DROPS,
    );
    by(
        "millrace_hop_shunned_packets_total",
        "Packets of shunned flows, which bypassed a function, by their treatment.",
        "treatment",
        &SHUNNED,
    );
    by(
        "millrace_hop_sent_packets_total",
        "Packets that a function sent, and those that it could not send.",
        "result",
        &SENT,
    );
    states(out, &hops);
    for (name, help, number) in SAMPLED {
        let mut family = Family::gauge(out, name, help);
        for located in &hops {
            if let Some(nanos) = number(&located.hop) {
                family.sample(&located.names(), format!("{:.9}", nanos / 1e9));
            }
        }
    }
    let help = "Counters that functions define, by name.";
    let mut counters = Family::counter(out, "millrace_function_count_total", help);
    for located in &hops {
        for counter in &located.hop.counters {
            counters.sample(&located.with("counter", &counter.name), counter.value);
        }
    }
}

fn states(out: &mut String, hops: &[LocatedHop]) {
    let help = "1 for the present state of a hop, 0 for the others.";
    let mut state = Family::gauge(out, "millrace_hop_state", help);
    for located in hops {
        for word in STATES {
            state.sample(&located.with("state", word), u8::from(located.hop.state == word));
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
