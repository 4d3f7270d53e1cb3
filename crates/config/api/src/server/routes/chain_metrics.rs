//! Metrics of chains: what each hop did, over all lanes and instances.

use crate::server::live::Live;
use crate::server::routes::metrics::Family;
use crate::view::{Bridge, Chain, ChainHop};

/// One number of a hop.
type HopNumber = fn(&ChainHop) -> u64;

/// One sampled number of a hop, in nanoseconds.
type HopNanos = fn(&ChainHop) -> Option<f64>;

/// What becomes of packets at a hop.
const VERDICTS: [(&str, HopNumber); 4] = [
    ("next", |hop| hop.next),
    ("skip", |hop| hop.skipped),
    ("drop", |hop| hop.dropped),
    ("to_port", |hop| hop.to_port),
];

/// Why packets are dropped at a hop.
const DROPS: [(&str, HopNumber); 2] = [("function", |hop| hop.dropped), ("hop_down", |hop| hop.lost)];

const STATES: [&str; 3] = ["up", "down", "drained"];

/// A hop and where it is.
struct Placed {
    bridge: String,
    chain: String,
    hop: ChainHop,
}

impl Placed {
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
    let hops: Vec<Placed> = chains
        .flat_map(|(bridge, Chain { name, hops, .. })| {
            hops.into_iter().map(move |hop| Placed {
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
        for placed in &hops {
            family.sample(&placed.labels(&[]), number(&placed.hop));
        }
    };
    let name = "millrace_hop_packets_total";
    each(
        Family::counter(out, name, "Packets that a hop of a chain was given."),
        |hop| hop.packets,
    );
    let name = "millrace_hop_bytes_total";
    each(
        Family::counter(out, name, "Bytes of packets that a hop of a chain was given."),
        |hop| hop.bytes,
    );
    let by = |mut family: Family<'_>, label: &str, parts: &[(&str, HopNumber)]| {
        for placed in &hops {
            for (part, number) in parts {
                family.sample(&placed.labels(&[(label, part)]), number(&placed.hop));
            }
        }
    };
    let name = "millrace_hop_verdicts_total";
    by(
        Family::counter(out, name, "What a function said of packets."),
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
        Family::counter(out, name, "Packets that went on although the hop was down."),
        |hop| hop.passed,
    );
    let name = "millrace_hop_restarts_total";
    each(
        Family::counter(out, name, "Functions that were made again."),
        |hop| hop.restarts,
    );
    let name = "millrace_hop_waiting_packets";
    each(
        Family::gauge(out, name, "Packets that are with a hop's processes."),
        |hop| hop.depth,
    );
    let name = "millrace_hop_instances";
    each(Family::gauge(out, name, "Functions of a hop."), |hop| {
        hop.instances.into()
    });
    let help = "The state that a hop is in: 1 for that one.";
    let mut state = Family::gauge(out, "millrace_hop_state", help);
    for placed in &hops {
        for word in STATES {
            state.sample(
                &placed.labels(&[("state", word)]),
                u8::from(placed.hop.state == word),
            );
        }
    }
    let sampled: [(&str, &str, HopNanos); 2] = [
        (
            "millrace_hop_packet_seconds",
            "What a packet costs at a hop in the worker, of one burst in 64.",
            |hop| hop.nanos_per_packet,
        ),
        (
            "millrace_hop_latency_seconds",
            "How much later packets go on because of a hop, of one burst in 64.",
            |hop| hop.latency_nanos,
        ),
    ];
    for (name, help, number) in sampled {
        let mut family = Family::gauge(out, name, help);
        for placed in &hops {
            if let Some(nanos) = number(&placed.hop) {
                family.sample(&placed.labels(&[]), format!("{:.9}", nanos / 1e9));
            }
        }
    }
    let help = "Counters of functions, by their own names.";
    let mut counters = Family::counter(out, "millrace_function_count_total", help);
    for placed in &hops {
        for held in &placed.hop.counters {
            counters.sample(&placed.labels(&[("counter", &held.name)]), held.value);
        }
    }
}
