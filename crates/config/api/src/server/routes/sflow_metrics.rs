//! Metrics of sFlow.

use crate::server::exposition::Family;
use crate::server::live::Live;
use crate::view::{Bridge, SflowCollector, SflowPort};

/// Reads a number of a port.
type PortNumber = fn(&SflowPort) -> u64;
/// Reads a number of a collector.
type CollectorNumber = fn(&SflowCollector) -> u64;

/// Writes the samples of ports and the datagrams to collectors, of the bridges that have sFlow.
pub(super) fn sflow(out: &mut String, live: &dyn Live, bridges: &[Bridge]) {
    let state = |bridge: &Bridge| Some((bridge.name.clone(), live.sflow(&bridge.name).ok()??));
    let states: Vec<_> = bridges.iter().filter_map(state).collect();
    let of_ports: [(&str, &str, PortNumber); 3] = [
        (
            "millrace_sflow_samples_total",
            "Packet samples of sFlow.",
            |port| port.samples,
        ),
        (
            "millrace_sflow_pool_packets_total",
            "Packets from which samples of sFlow were taken.",
            |port| port.pool,
        ),
        (
            "millrace_sflow_lost_samples_total",
            "Packet samples of sFlow that were lost in the switch.",
            |port| port.lost,
        ),
    ];
    for (name, help, number) in of_ports {
        let mut family = Family::counter(out, name, help);
        for (bridge, sflow) in &states {
            for port in &sflow.ports {
                family.sample(&[("bridge", bridge), ("port", &port.port)], number(port));
            }
        }
    }
    let of_collectors: [(&str, &str, CollectorNumber); 2] = [
        (
            "millrace_sflow_datagrams_total",
            "Datagrams of sFlow to a collector.",
            |collector| collector.datagrams,
        ),
        (
            "millrace_sflow_datagram_errors_total",
            "Datagrams of sFlow that the kernel did not send.",
            |collector| collector.errors,
        ),
    ];
    for (name, help, number) in of_collectors {
        let mut family = Family::counter(out, name, help);
        for (bridge, sflow) in &states {
            for collector in &sflow.collectors {
                let labels = [("bridge", bridge.as_str()), ("collector", &collector.address)];
                family.sample(&labels, number(collector));
            }
        }
    }
}
