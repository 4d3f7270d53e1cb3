//! Metrics of IPFIX.

use crate::server::exposition::Family;
use crate::server::live::Live;
use crate::view::{Bridge, Ipfix, IpfixCollector};

/// Reads a number of a bridge.
type BridgeNumber = fn(&Ipfix) -> u64;
/// Reads a number of a collector.
type CollectorNumber = fn(&IpfixCollector) -> u64;

/// Writes the samples, records and messages of the bridges that have IPFIX.
pub(super) fn ipfix(out: &mut String, live: &dyn Live, bridges: &[Bridge]) {
    let state = |bridge: &Bridge| Some((bridge.name.clone(), live.ipfix(&bridge.name).ok()??));
    let states: Vec<_> = bridges.iter().filter_map(state).collect();
    let of_bridges: [(&str, &str, BridgeNumber); 4] = [
        (
            "millrace_ipfix_samples_total",
            "Packet samples of IPFIX.",
            |ipfix| ipfix.samples,
        ),
        (
            "millrace_ipfix_lost_samples_total",
            "Packet samples of IPFIX that were lost in the switch.",
            |ipfix| ipfix.lost,
        ),
        (
            "millrace_ipfix_records_total",
            "Records of flows or packets of IPFIX.",
            |ipfix| ipfix.records,
        ),
        (
            "millrace_ipfix_evicted_flows_total",
            "Flows of IPFIX whose record was sent early, because too many were kept.",
            |ipfix| ipfix.evicted,
        ),
    ];
    for (name, help, number) in of_bridges {
        let mut family = Family::counter(out, name, help);
        for (bridge, ipfix) in &states {
            family.sample(&[("bridge", bridge)], number(ipfix));
        }
    }
    let help = "Flows of IPFIX that are kept until their record is sent.";
    let mut flows = Family::gauge(out, "millrace_ipfix_flows", help);
    for (bridge, ipfix) in &states {
        flows.sample(&[("bridge", bridge)], ipfix.flows);
    }
    let of_collectors: [(&str, &str, CollectorNumber); 2] = [
        (
            "millrace_ipfix_messages_total",
            "Messages of IPFIX to a collector.",
            |collector| collector.messages,
        ),
        (
            "millrace_ipfix_not_sent_records_total",
            "Records of IPFIX that a collector did not get.",
            |collector| collector.not_sent,
        ),
    ];
    for (name, help, number) in of_collectors {
        let mut family = Family::counter(out, name, help);
        for (bridge, ipfix) in &states {
            for collector in &ipfix.collectors {
                let labels = [("bridge", bridge.as_str()), ("collector", &collector.target)];
                family.sample(&labels, number(collector));
            }
        }
    }
    let help = "1 if messages of IPFIX can be sent to a collector.";
    let mut connected = Family::gauge(out, "millrace_ipfix_connected", help);
    for (bridge, ipfix) in &states {
        for collector in &ipfix.collectors {
            let labels = [("bridge", bridge.as_str()), ("collector", &collector.target)];
            connected.sample(&labels, u8::from(collector.connected));
        }
    }
}
