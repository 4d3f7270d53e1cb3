//! EVE objects of events.

use std::borrow::Cow;

use millrace_ips_engine::app::record::Record;
use millrace_ips_engine::app::{AppEvent, AppProtocol};
use millrace_ips_engine::event::{
    Alert, FlowEnd, FlowSummary, FlowVariables, PacketSource, RuleId, Subject, TcpSummary, TransactionEvent,
};
use millrace_ips_engine::flow::{FlowState, FlowVerdict};
use millrace_ips_engine::packet::events::PacketEvents;
use millrace_ips_engine::verdict::DropReason;
use millrace_ips_engine::{Cause, Direction, Event, Policy};
use millrace_types::Time;

use crate::dropped::headers;
use crate::metadata::Notes;
use crate::object::Object;
use crate::place::Place;
use crate::timestamp::timestamp;
use crate::writer::{Frame, Writer, counters, file};
use crate::{Version, alert, app, metadata};

/// The control bits of TCP from the lowest on (RFC 9293, section 3.1).
const TCP_FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ecn", "cwr"];

impl Writer {
    /// Writes an event at the end of `out` as one line. A transaction may also have lines for its files and
    /// anomalies. `frame` holds the bytes of the packet and its link type.
    pub fn write(&self, event: &Event, frame: Frame<'_>, out: &mut Vec<u8>) {
        match event {
            Event::Alert(alert) => alert::write(self, alert, frame, out),
            Event::Transaction(transaction) => self.transaction(transaction, frame, out),
            Event::Flow(flow, end, variables) => {
                self.flow(flow, *end, variables, out);
                self.netflow(flow, variables, out);
            }
            Event::Drop(subject, reason, rule) => {
                self.dropped(subject, (*reason, rule.as_deref()), frame, out);
            }
            Event::Anomaly(subject, protocol, events) => {
                self.anomalies(subject, (*protocol, None), events, frame, out);
            }
            Event::Exception(subject, cause, policy, rule) => {
                self.exception(subject, (*cause, *policy, *rule), frame, out);
            }
            Event::Frame(subject, report) => {
                let mut line = self.begin(subject, "frame", frame, out);
                line.field("app_proto", report.app.name()).object("frame", |out| {
                    alert::frame(out, &report.view, Some(report.payload.as_slice()));
                });
                self.end(line);
            }
            Event::Packet(subject, events) => self.packet_events(subject, *events, frame, out),
            Event::Arp(subject, packet) => self.arp(subject, packet, frame, out),
            // These are for a Storage, and no records.
            Event::File(_) | Event::Set(_) => {}
        }
    }

    /// Writes named counters at the end of `out`, as a line. Millrace defines the names.
    pub fn write_counters(
        &self,
        now: Time,
        uptime: u64,
        counters: &[(&'static str, u64)],
        out: &mut Vec<u8>,
    ) {
        let mut line = Object::begin(out);
        line.field("timestamp", timestamp(now))
            .field("event_type", "stats")
            .object("stats", |out| {
                out.field("uptime", uptime).object("ips", |out| {
                    for (name, value) in counters {
                        out.field(name, *value);
                    }
                });
            });
        line.end_line();
    }

    fn transaction(&self, transaction: &TransactionEvent, frame: Frame<'_>, out: &mut Vec<u8>) {
        let subject = &transaction.subject;
        let is_logged = !matches!(transaction.record, Record::None);
        if is_logged {
            let (subject, lines) = match (&transaction.record, self.layout.version) {
                // Each message of DNS by multicast is in the direction in which it was sent.
                (Record::Dns(_), _) if transaction.app == AppProtocol::Mdns => (*subject, 1),
                // The server is the source of a response.
                (Record::Dns(dns), Version::Eight) if dns.is_answer => (subject.reversed(), 1),
                (Record::Dns(dns), Version::Seven) if !dns.is_answer => {
                    (*subject, dns.questions.len().max(1))
                }
                _ => (*subject, 1),
            };
            for question in 0..lines {
                let mut line = self.begin(&subject, app::event_type(transaction.app), frame, out);
                line.field("tx_id", transaction.id);
                app::record(
                    &mut line,
                    transaction.app,
                    &transaction.record,
                    Some(transaction.id),
                    Place::Record { question },
                    &self.layout,
                );
                self.end(line);
            }
        }
        for summary in &transaction.files {
            // The source is the end that sends the file.
            let sender = match summary.direction {
                Direction::ToServer => *subject,
                Direction::ToClient => subject.reversed(),
            };
            let mut line = self.begin(&sender, "fileinfo", frame, out);
            app::record(
                &mut line,
                transaction.app,
                &transaction.record,
                Some(transaction.id),
                Place::RECORD,
                &self.layout,
            );
            line.field("app_proto", transaction.app.name())
                .object("fileinfo", |out| {
                    file(out, summary);
                    if summary.direction == Direction::ToClient
                        && !summary.is_joined
                        && let Some((start, end)) = app::part_of_file(&transaction.record)
                    {
                        out.field("start", start).field("end", end);
                    }
                    out.field("tx_id", transaction.id);
                });
            self.end(line);
        }
        self.anomalies(
            subject,
            (transaction.app, Some(transaction.id)),
            &transaction.anomalies,
            frame,
            out,
        );
    }

    /// Writes the events of the decoder and of the TCP engine, if the layout has them.
    fn packet_events(&self, subject: &Subject, events: PacketEvents, frame: Frame<'_>, out: &mut Vec<u8>) {
        if !self.layout.packet_anomalies {
            return;
        }
        let decode = events.decode_names().map(|name| ("decode", "decoder", name));
        let stream = events.stream_names().map(|name| ("stream", "stream", name));
        for (kind, prefix, name) in decode.chain(stream) {
            let mut line = self.begin(subject, "anomaly", frame, out);
            line.object("anomaly", |out| {
                out.field("type", kind).field("event", format!("{prefix}.{name}"));
            });
            self.end(line);
        }
    }

    /// Writes that a policy decided about a packet. Millrace adds the field `policy`.
    fn exception(
        &self,
        subject: &Subject,
        (cause, policy, rule): (Cause, Policy, Option<RuleId>),
        frame: Frame<'_>,
        out: &mut Vec<u8>,
    ) {
        let mut line = self.begin(subject, "anomaly", frame, out);
        line.object("anomaly", |out| {
            out.field("type", "stream")
                .field("event", cause.name())
                .field("policy", policy.name());
            if let Some(rule) = rule {
                out.field("gid", rule.gid).field("signature_id", rule.sid);
            }
        });
        self.end(line);
    }

    fn anomalies(
        &self,
        subject: &Subject,
        (protocol, transaction): (AppProtocol, Option<u64>),
        events: &[AppEvent],
        frame: Frame<'_>,
        out: &mut Vec<u8>,
    ) {
        for event in events {
            let mut line = self.begin(subject, "anomaly", frame, out);
            if let Some(transaction) = transaction {
                line.field("tx_id", transaction);
            }
            // Events of protocol detection have no protocol in their names.
            let (layer, name) = match event.split_once('.') {
                Some((_, name)) => ("proto_parser", name),
                None => ("proto_detect", *event),
            };
            line.object("anomaly", |out| {
                out.field("app_proto", protocol.name())
                    .field("type", "applayer")
                    .field("event", anomaly_name(event, name))
                    .field("layer", layer);
            });
            self.end(line);
        }
    }

    fn flow(&self, flow: &FlowSummary, end: FlowEnd, variables: &FlowVariables, out: &mut Vec<u8>) {
        let mut line = self.begin(&flow_subject(flow), "flow", None, out);
        if let Some((kind, code)) = flow.icmp[1] {
            line.field("response_icmp_type", kind)
                .field("response_icmp_code", code);
        }
        metadata::write(&mut line, &self.rules, Notes::of_flow(variables));
        app::protocols(&mut line, flow);
        line.object("flow", |out| {
            counters(out, flow);
            out.field("start", timestamp(flow.start))
                .field("end", timestamp(flow.last))
                .field("age", seconds(flow.last).saturating_sub(seconds(flow.start)))
                .field(
                    "state",
                    match (flow.verdict, flow.state) {
                        (FlowVerdict::Bypass, _) => "bypassed",
                        (_, FlowState::New) => "new",
                        (_, FlowState::Established) => "established",
                        (_, FlowState::Closed) => "closed",
                    },
                )
                .field(
                    "reason",
                    match end {
                        FlowEnd::Timeout => "timeout",
                        FlowEnd::Reused => "tcp_reuse",
                        FlowEnd::Evicted => "forced",
                        FlowEnd::Shutdown => "shutdown",
                    },
                )
                .field("alerted", flow.is_alerted);
            if flow.transactions > 0 {
                out.field("tx_cnt", flow.transactions);
            }
            match flow.verdict {
                FlowVerdict::None => {}
                FlowVerdict::Drop => {
                    out.field("action", "drop");
                }
                FlowVerdict::Pass => {
                    out.field("action", "pass");
                }
                FlowVerdict::Bypass => {
                    out.field("bypass", "local");
                }
            }
        });
        if let Some(summary) = &flow.tcp {
            line.object("tcp", |out| tcp(out, summary));
        }
        self.end(line);
    }

    fn dropped(
        &self,
        subject: &Subject,
        (reason, rule): (DropReason, Option<&Alert>),
        frame: Frame<'_>,
        out: &mut Vec<u8>,
    ) {
        let mut line = self.begin(subject, "drop", frame, out);
        line.object("drop", |out| {
            if let Some((bytes, link)) = frame {
                headers(out, bytes, link);
            }
            out.field("reason", drop_reason(reason));
        });
        if self.layout.details {
            line.object("verdict", |out| match rule {
                Some(rule) => alert::verdict(out, rule),
                None => {
                    out.field("action", "drop");
                }
            });
        }
        if let Some(rule) = rule {
            line.object("alert", |out| alert::rule(out, self, rule));
        }
        self.end(line);
    }
}

/// Returns the subject of the records of a flow that ended, from client to server.
pub(crate) fn flow_subject(flow: &FlowSummary) -> Subject {
    Subject {
        packet: 0,
        time: flow.last,
        flow: flow.id,
        src: flow.key.client,
        dst: flow.key.server,
        ports: Some((flow.key.client_port, flow.key.server_port)),
        protocol: flow.key.protocol,
        icmp: flow.icmp[0],
        vlans: flow.key.vlans,
        source: PacketSource::Frame,
    }
}

/// Returns the name of an anomaly as Suricata writes it: in capitals from the detection of protocols and from the parsers of
/// DNP3, HTTP/1, SMTP and TLS, in small letters from others.
fn anomaly_name<'a>(event: &str, name: &'a str) -> Cow<'a, str> {
    match event.split_once('.') {
        None | Some(("dnp3" | "http" | "smtp" | "tls", _)) => name.to_ascii_uppercase().into(),
        Some(_) => name.into(),
    }
}

/// Returns the whole seconds of a time. The age of a flow is the difference of those of its first and its last packet.
pub(crate) fn seconds(time: Time) -> u64 {
    time.nanos() / 1_000_000_000
}

/// Writes the connection of a flow: all control bits that were seen, and its state.
fn tcp(out: &mut Object<'_>, summary: &TcpSummary) {
    let [to_server, to_client] = summary.flags;
    let all = to_server | to_client;
    for (name, flags) in [
        ("tcp_flags", all),
        ("tcp_flags_ts", to_server),
        ("tcp_flags_tc", to_client),
    ] {
        out.field(name, format!("{flags:02x}"));
    }
    control_bits(out, all);
    if let Some(state) = summary.state {
        out.field("state", state.name());
    }
    for (name, has_gaps) in ["ts_gap", "tc_gap"].into_iter().zip(summary.has_gaps) {
        if has_gaps {
            out.field(name, true);
        }
    }
}

/// Writes each control bit that is set.
pub(crate) fn control_bits(out: &mut Object<'_>, flags: u8) {
    for (bit, name) in TCP_FLAGS.into_iter().enumerate() {
        if flags >> bit & 1 != 0 {
            out.field(name, true);
        }
    }
}

/// Returns the reason that Suricata documents for a dropped packet.
pub(crate) fn drop_reason(reason: DropReason) -> &'static str {
    match reason {
        DropReason::Rule => "rules",
        DropReason::RateFilter => "threshold detection_filter",
        DropReason::Flow => "flow drop",
        DropReason::Normalizer => "stream error",
        DropReason::Memory => "stream memcap",
        DropReason::Policy(cause) => policy_reason(cause),
    }
}

/// Returns the reason that Suricata documents for a cause, or Millrace's name of the cause.
fn policy_reason(cause: Cause) -> &'static str {
    match cause {
        Cause::FlowTable => "flow memcap",
        Cause::SegmentMemory => "stream memcap",
        Cause::FragmentMemory => "defrag memcap",
        Cause::Midstream => "stream midstream",
        Cause::InvalidTcp | Cause::OneSided | Cause::Urgent => "stream error",
        Cause::ParserError | Cause::AmbiguousMessage => "applayer error",
        Cause::ParserMemory | Cause::MatchLimit | Cause::Overload | Cause::NoRules => cause.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anomaly_has_the_name_of_its_parser() {
        for (event, expected) in [
            (
                "http.unable_to_match_response_to_request",
                "UNABLE_TO_MATCH_RESPONSE_TO_REQUEST",
            ),
            ("tls.invalid_record_type", "INVALID_RECORD_TYPE"),
            ("http2.long_frame_data", "long_frame_data"),
            ("mqtt.missing_connect", "missing_connect"),
            (
                "applayer_wrong_direction_first_data",
                "APPLAYER_WRONG_DIRECTION_FIRST_DATA",
            ),
        ] {
            let name = event.split_once('.').map_or(event, |(_, name)| name);
            assert_eq!(anomaly_name(event, name), expected);
        }
    }
}
