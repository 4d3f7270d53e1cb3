//! The metrics of sFlow in `/metrics`.

use crate::server::exposition::{Metric, metrics, write};
use crate::server::live::Live;
use crate::view::{Bridge, SflowCollector, SflowPort};

const PORT: &[Metric<SflowPort>] = metrics! {
    counter "millrace_sflow_samples_total", "Packet samples of sFlow." =>
        |port| port.samples;
    counter "millrace_sflow_pool_packets_total", "Packets from which samples of sFlow were taken." =>
        |port| port.pool;
    counter "millrace_sflow_lost_samples_total", "Packet samples of sFlow that were lost in the switch." =>
        |port| port.lost;
};

const COLLECTOR: &[Metric<SflowCollector>] = metrics! {
    counter "millrace_sflow_datagrams_total", "Datagrams of sFlow to a collector." =>
        |collector| collector.datagrams;
    counter "millrace_sflow_datagram_errors_total", "Datagrams of sFlow that the kernel did not send." =>
        |collector| collector.errors;
};

/// Writes the samples of ports and the datagrams to collectors, of the bridges that have sFlow.
pub(super) fn sflow(out: &mut String, live: &dyn Live, bridges: &[Bridge]) {
    let state = |bridge: &Bridge| Some((bridge.name.clone(), live.sflow(&bridge.name).ok()??));
    let states: Vec<_> = bridges.iter().filter_map(state).collect();
    let ports = states.iter().flat_map(|(bridge, sflow)| {
        let labels = |port| [("bridge", bridge.as_str()), ("port", port)];
        sflow
            .ports
            .iter()
            .map(move |port| (labels(port.port.as_str()), port))
    });
    write(out, PORT, &ports.collect::<Vec<_>>());
    let collectors = states.iter().flat_map(|(bridge, sflow)| {
        let labels = |address| [("bridge", bridge.as_str()), ("collector", address)];
        let collectors = sflow.collectors.iter();
        collectors.map(move |collector| (labels(collector.address.as_str()), collector))
    });
    write(out, COLLECTOR, &collectors.collect::<Vec<_>>());
}
