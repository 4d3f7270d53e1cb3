//! The record `stats`: counters of the engine, and of the frames and events of a run, by the names that Suricata documents.

use std::collections::BTreeMap;

use millrace_ips_engine::app::AppProtocol;
use millrace_ips_engine::event::{FlowEnd, FlowSummary, TcpState};
use millrace_ips_engine::flow::FlowState;
use millrace_ips_engine::packet::events::{DECODE_EVENTS, STREAM_EVENTS};
use millrace_ips_engine::packet::layers::{Layer, layers};
use millrace_ips_engine::tcp::TcpProblem;
use millrace_ips_engine::{Action, Cause, Counters, Event, FlowVerdict, LinkType};
use millrace_types::Time;
use serde_json::{Map, Value, json};

use crate::event::drop_reason;
use crate::object::Object;
use crate::protocol::{ICMP, ICMPV6, TCP, UDP};
use crate::timestamp::timestamp;
use crate::writer::Writer;

/// Control bits of TCP (RFC 9293, section 3.1).
const SYN: u16 = 0x02;
const RST: u16 = 0x04;
const ACK: u16 = 0x10;
const URG: u16 = 0x20;

/// Counters at the end of a run.
#[derive(Debug, Clone, Default)]
pub struct Statistics {
    /// Seconds since the start of the engine.
    pub uptime: u64,
    /// Counters of the engine.
    pub engine: Counters,
    /// Bytes of all frames.
    pub bytes: u64,
    /// Flows that began.
    pub flows: u64,
    pub alerts: u64,
    /// Alerts that were lost because their packet had too many.
    pub alerts_lost: u64,
    /// Rules that were loaded, and those that were refused.
    pub rules: (usize, usize),
    /// Counters of frames and events.
    pub census: Census,
}

/// Counters of the frames and events of a run, each by the path of its name.
#[derive(Debug, Clone, Default)]
pub struct Census {
    counts: BTreeMap<String, u64>,
    largest_frame: u64,
}

/// Counters that records have even if they are 0.
const ALWAYS: &[&str] = &[
    "app_layer.flow.failed_tcp",
    "app_layer.flow.failed_udp",
    "decoder.arp",
    "decoder.chdlc",
    "decoder.erspan",
    "decoder.esp",
    "decoder.etag",
    "decoder.ethernet",
    "decoder.geneve",
    "decoder.gre",
    "decoder.icmpv4",
    "decoder.icmpv6",
    "decoder.ieee8021ah",
    "decoder.igmp",
    "decoder.ipv4",
    "decoder.ipv4_in_ipv4",
    "decoder.ipv4_in_ipv6",
    "decoder.ipv6",
    "decoder.ipv6_in_ipv4",
    "decoder.ipv6_in_ipv6",
    "decoder.mpls",
    "decoder.nsh",
    "decoder.null",
    "decoder.ppp",
    "decoder.pppoe",
    "decoder.raw",
    "decoder.sctp",
    "decoder.sll",
    "decoder.sll2",
    "decoder.tcp",
    "decoder.teredo",
    "decoder.too_many_layers",
    "decoder.udp",
    "decoder.unknown_ethertype",
    "decoder.vlan",
    "decoder.vlan_qinq",
    "decoder.vlan_qinqinq",
    "decoder.vntag",
    "decoder.vxlan",
    "defrag.ipv4.fragments",
    "defrag.ipv6.fragments",
    "flow.end.state.closed",
    "flow.end.state.established",
    "flow.end.state.local_bypassed",
    "flow.end.state.new",
    "flow.end.tcp_state.close_wait",
    "flow.end.tcp_state.closed",
    "flow.end.tcp_state.closing",
    "flow.end.tcp_state.established",
    "flow.end.tcp_state.fin_wait1",
    "flow.end.tcp_state.fin_wait2",
    "flow.end.tcp_state.last_ack",
    "flow.end.tcp_state.none",
    "flow.end.tcp_state.syn_recv",
    "flow.end.tcp_state.syn_sent",
    "flow.end.tcp_state.time_wait",
    "flow.icmpv4",
    "flow.icmpv6",
    "flow.tcp",
    "flow.tcp_reuse",
    "flow.udp",
    "ips.drop_reason.applayer_error",
    "ips.drop_reason.defrag_memcap",
    "ips.drop_reason.flow_drop",
    "ips.drop_reason.flow_memcap",
    "ips.drop_reason.rules",
    "ips.drop_reason.stream_error",
    "ips.drop_reason.stream_memcap",
    "ips.drop_reason.stream_midstream",
    "ips.drop_reason.threshold_detection_filter",
    "ips.rejected",
    "tcp.rst",
    "tcp.syn",
    "tcp.synack",
    "tcp.urg",
];

/// Protocols that exist over TCP and over UDP: the names of their counters end with the transport.
const OF_BOTH: &[AppProtocol] = &[
    AppProtocol::Dns,
    AppProtocol::Dcerpc,
    AppProtocol::Krb5,
    AppProtocol::Nfs,
    AppProtocol::Sip,
    AppProtocol::Enip,
    AppProtocol::Ldap,
    AppProtocol::Failed,
];

/// Returns the name of a protocol in counters.
fn protocol_name(app: AppProtocol, transport: u8) -> String {
    match (OF_BOTH.contains(&app), transport) {
        (true, UDP) => format!("{}_udp", app.name()),
        (true, _) => format!("{}_tcp", app.name()),
        (false, _) => app.name().to_owned(),
    }
}

/// Returns the name that counters of policies have for a cause; `None` for causes that only Millrace has.
fn exception_name(cause: Cause) -> Option<&'static str> {
    match cause {
        Cause::FlowTable => Some("flow.memcap"),
        Cause::SegmentMemory => Some("tcp.reassembly"),
        Cause::FragmentMemory => Some("defrag.memcap"),
        Cause::Midstream => Some("tcp.midstream"),
        Cause::ParserError => Some("app_layer.error"),
        _ => None,
    }
}

impl Census {
    fn add(&mut self, path: &str) {
        match self.counts.get_mut(path) {
            Some(count) => *count += 1,
            None => {
                self.counts.insert(path.to_owned(), 1);
            }
        }
    }

    /// Counts a frame by its headers.
    pub fn frame(&mut self, bytes: &[u8], link: u32) {
        self.largest_frame = self.largest_frame.max(bytes.len() as u64);
        layers(bytes, LinkType(link), &mut |layer| match layer {
            Layer::Header(name) => self.add(&format!("decoder.{name}")),
            Layer::Fragment { is_v6: false } => self.add("defrag.ipv4.fragments"),
            Layer::Fragment { is_v6: true } => self.add("defrag.ipv6.fragments"),
            Layer::Tcp(flags) => {
                match flags & (SYN | ACK) {
                    _ if flags & RST != 0 => self.add("tcp.rst"),
                    SYN => self.add("tcp.syn"),
                    both if both == SYN | ACK => self.add("tcp.synack"),
                    _ => {}
                }
                if flags & URG != 0 {
                    self.add("tcp.urg");
                }
            }
            Layer::TooMany => self.add("decoder.too_many_layers"),
            Layer::Invalid => {}
        });
    }

    /// Counts an event.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Flow(flow, end, _) => self.flow(flow, *end),
            Event::Transaction(transaction) => {
                let name = protocol_name(transaction.app, transaction.subject.protocol);
                self.add(&format!("app_layer.tx.{name}"));
            }
            Event::Packet(_, events) => {
                for name in events.decode_names() {
                    self.add(&format!("decoder.event.{name}"));
                }
                for name in events.stream_names() {
                    self.add(&format!("stream.{name}"));
                }
            }
            Event::Drop(_, reason, rule) => {
                let reason = drop_reason(*reason).replace(' ', "_");
                self.add(&format!("ips.drop_reason.{reason}"));
                let action = rule.as_ref().map(|rule| rule.packet_action);
                if action.is_some_and(|action| action >= Action::RejectSource) {
                    self.add("ips.rejected");
                }
            }
            Event::Exception(_, cause, policy, _) => {
                if let Some(name) = exception_name(*cause) {
                    let policy = policy.name().replace('-', "_");
                    self.add(&format!("exception_policy.{name}.{policy}"));
                }
            }
            _ => {}
        }
    }

    fn flow(&mut self, flow: &FlowSummary, end: FlowEnd) {
        let transport = flow.key.protocol;
        match transport {
            TCP => self.add("flow.tcp"),
            UDP => self.add("flow.udp"),
            ICMP => self.add("flow.icmpv4"),
            ICMPV6 => self.add("flow.icmpv6"),
            _ => {}
        }
        if end == FlowEnd::Reused {
            self.add("flow.tcp_reuse");
        }
        let state = match (flow.verdict, flow.state) {
            (FlowVerdict::Bypass, _) => "local_bypassed",
            (_, FlowState::New) => "new",
            (_, FlowState::Established) => "established",
            (_, FlowState::Closed) => "closed",
        };
        self.add(&format!("flow.end.state.{state}"));
        if transport == TCP {
            let state = flow.tcp.and_then(|tcp| tcp.state).map_or("none", TcpState::name);
            self.add(&format!("flow.end.tcp_state.{state}"));
        }
        for app in [flow.original_app, flow.app].into_iter().flatten() {
            self.add(&format!("app_layer.flow.{}", protocol_name(app, transport)));
        }
        if let Some(app) = flow.app.filter(|app| *app != AppProtocol::Failed) {
            let name = protocol_name(app, transport);
            let gaps = flow.tcp.map_or([false; 2], |tcp| tcp.has_gaps);
            for _ in gaps.into_iter().filter(|has_gap| *has_gap) {
                self.add(&format!("app_layer.error.{name}.gap"));
            }
            if flow.has_parser_error {
                self.add(&format!("app_layer.error.{name}.parser"));
            }
        }
    }
}

/// Sets a counter by the path of its name.
fn set(record: &mut Map<String, Value>, path: &str, value: u64) {
    match path.split_once('.') {
        None => {
            record.insert(path.to_owned(), json!(value));
        }
        Some((group, rest)) => {
            let group = record.entry(group).or_insert_with(|| json!({}));
            if let Value::Object(group) = group {
                set(group, rest, value);
            }
        }
    }
}

/// Returns the number of segments with a problem.
fn problem(engine: &Counters, problem: TcpProblem) -> u64 {
    engine.tcp.problems[problem as usize]
}

/// Returns all counters, nested by the parts of their names.
fn nested(statistics: &Statistics) -> Map<String, Value> {
    let mut record = Map::new();
    let mut put = |path: &str, value: u64| set(&mut record, path, value);
    for path in ALWAYS {
        put(path, 0);
    }
    for app in AppProtocol::ALL.iter().filter(|app| **app != AppProtocol::Failed) {
        let transports: &[u8] = if OF_BOTH.contains(app) {
            &[TCP, UDP]
        } else {
            &[TCP]
        };
        for transport in transports {
            let name = protocol_name(*app, *transport);
            put(&format!("app_layer.flow.{name}"), 0);
            put(&format!("app_layer.tx.{name}"), 0);
            put(&format!("app_layer.error.{name}.gap"), 0);
            put(&format!("app_layer.error.{name}.parser"), 0);
        }
    }
    for name in DECODE_EVENTS {
        put(&format!("decoder.event.{name}"), 0);
    }
    for name in STREAM_EVENTS {
        put(&format!("stream.{name}"), 0);
    }
    let (engine, census) = (&statistics.engine, &statistics.census);
    for (path, count) in &census.counts {
        put(path, *count);
    }
    put("uptime", statistics.uptime);
    put("decoder.pkts", engine.frames);
    put("decoder.bytes", statistics.bytes);
    put("decoder.invalid", engine.invalid);
    put("decoder.max_pkt_size", census.largest_frame);
    put(
        "decoder.avg_pkt_size",
        statistics.bytes.checked_div(engine.frames).unwrap_or(0),
    );
    put("flow.total", statistics.flows);
    put("flow.active", 0);
    put("flow.memcap", engine.exceptions[Cause::FlowTable as usize]);
    put("tcp.sessions", engine.tcp.sessions);
    put("tcp.active_sessions", 0);
    put("tcp.invalid_checksum", problem(engine, TcpProblem::Checksum));
    put("tcp.segment_memcap_drop", problem(engine, TcpProblem::Memory));
    put("tcp.reassembly_gap", engine.tcp.gaps);
    put("tcp.overlap_diff_data", engine.tcp.conflicts);
    put("detect.alert", statistics.alerts);
    put("detect.alert_queue_overflow", statistics.alerts_lost);
    put("detect.alerts_suppressed", 0);
    put("ips.accepted", engine.frames - engine.dropped);
    put("ips.blocked", engine.dropped);
    put("ips.replaced", engine.rewritten);
    let (loaded, failed) = statistics.rules;
    if let Some(Value::Object(detect)) = record.get_mut("detect") {
        let engines = json!([{"id": 0, "rules_loaded": loaded, "rules_failed": failed, "rules_skipped": 0}]);
        detect.insert("engines".to_owned(), engines);
    }
    record
}

impl Writer {
    /// Writes the counters at the end of `out`, as a line.
    pub fn write_statistics(&self, now: Time, statistics: &Statistics, out: &mut Vec<u8>) {
        let mut line = Object::begin(out);
        line.field("timestamp", timestamp(now))
            .field("event_type", "stats")
            .field("stats", nested(statistics));
        line.end_line();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_events_are_counted_by_name() {
        let mut census = Census::default();
        let syn = [0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0, 9, 0, 0, 0, 0];
        let ip = [0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        census.frame(&[&ip[..], &syn].concat(), LinkType::RAW);
        let statistics = Statistics {
            bytes: 40,
            rules: (7, 1),
            engine: Counters {
                frames: 1,
                ..Counters::default()
            },
            census,
            ..Statistics::default()
        };
        let record = Value::Object(nested(&statistics));
        for (path, expected) in [
            ("/decoder/ipv4", 1),
            ("/decoder/raw", 1),
            ("/decoder/tcp", 1),
            ("/decoder/udp", 0),
            ("/decoder/avg_pkt_size", 40),
            ("/decoder/event/ipv4/trunc_pkt", 0),
            ("/tcp/syn", 1),
            ("/tcp/urg", 0),
            ("/stream/3whs_ack_in_wrong_dir", 0),
            ("/app_layer/error/http/parser", 0),
            ("/flow/end/tcp_state/time_wait", 0),
            ("/app_layer/flow/dns_udp", 0),
            ("/app_layer/tx/http", 0),
            ("/detect/engines/0/rules_loaded", 7),
        ] {
            assert_eq!(record.pointer(path), Some(&json!(expected)), "{path}");
        }
    }
}
