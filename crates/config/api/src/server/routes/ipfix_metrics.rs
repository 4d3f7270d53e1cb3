//! The metrics of IPFIX in `/metrics`.

use crate::server::exposition::{Metric, metrics, write};
use crate::server::live::Live;
use crate::view::{Bridge, Ipfix, IpfixCollector};

const BRIDGE: &[Metric<Ipfix>] = metrics! {
    counter "millrace_ipfix_samples_total", "Packet samples of IPFIX." =>
        |ipfix| ipfix.samples;
    counter "millrace_ipfix_lost_samples_total", "Packet samples of IPFIX that were lost in the switch." =>
        |ipfix| ipfix.lost;
    counter "millrace_ipfix_records_total", "Records of flows or packets of IPFIX." =>
        |ipfix| ipfix.records;
    counter "millrace_ipfix_evicted_flows_total",
        "Flows of IPFIX whose record was sent early, because too many were kept." =>
        |ipfix| ipfix.evicted;
    gauge "millrace_ipfix_flows", "Flows of IPFIX that are kept until their record is sent." =>
        |ipfix| ipfix.flows;
};

const COLLECTOR: &[Metric<IpfixCollector>] = metrics! {
    counter "millrace_ipfix_messages_total", "Messages of IPFIX to a collector." =>
        |collector| collector.messages;
    counter "millrace_ipfix_not_sent_records_total", "Records of IPFIX that a collector did not get." =>
        |collector| collector.not_sent;
    gauge "millrace_ipfix_connected", "1 if messages of IPFIX can be sent to a collector." =>
        |collector| collector.connected;
};

/// Writes the samples, records and messages of the bridges that have IPFIX.
pub(super) fn ipfix(out: &mut String, live: &dyn Live, bridges: &[Bridge]) {
    let state = |bridge: &Bridge| Some((bridge.name.clone(), live.ipfix(&bridge.name).ok()??));
    let states: Vec<_> = bridges.iter().filter_map(state).collect();
    let each = states
        .iter()
        .map(|(bridge, ipfix)| ([("bridge", bridge.as_str())], ipfix));
    write(out, BRIDGE, &each.collect::<Vec<_>>());
    let collectors = states.iter().flat_map(|(bridge, ipfix)| {
        let labels = |target| [("bridge", bridge.as_str()), ("collector", target)];
        let collectors = ipfix.collectors.iter();
        collectors.map(move |collector| (labels(collector.target.as_str()), collector))
    });
    write(out, COLLECTOR, &collectors.collect::<Vec<_>>());
}
