//! EVE objects of events.

use millrace_ips_engine::app::record::Record;
use millrace_ips_engine::app::{AppEvent, AppProtocol};
use millrace_ips_engine::event::{FlowEnd, FlowSummary, RuleId, Subject, TransactionEvent};
use millrace_ips_engine::flow::{FlowState, FlowVerdict};
use millrace_ips_engine::verdict::DropReason;
use millrace_ips_engine::{Cause, Counters, Event, Policy};
use millrace_types::Time;

use crate::object::Object;
use crate::timestamp::timestamp;
use crate::writer::{Writer, counters, file};
use crate::{alert, app};

/// Counters at the end of a run.
#[derive(Debug, Clone, Copy, Default)]
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
}

impl Writer {
    /// Writes an event at the end of `out` as one line. A transaction may also have lines for its files and
    /// anomalies. `frame` holds the bytes of the packet and its link type.
    pub fn write(&self, event: &Event, frame: Option<(&[u8], u32)>, out: &mut Vec<u8>) {
        match event {
            Event::Alert(alert) => alert::write(self, alert, frame, out),
            Event::Transaction(transaction) => self.transaction(transaction, out),
            Event::Flow(flow, end) => self.flow(flow, *end, out),
            Event::Drop(subject, reason) => self.dropped(subject, *reason, out),
            Event::Anomaly(subject, protocol, events) => {
                self.anomalies(subject, *protocol, None, events, out);
            }
            Event::Exception(subject, cause, policy, rule) => {
                self.exception(subject, (*cause, *policy, *rule), out);
            }
        }
    }

    /// Writes the counters at the end of `out`, as a line.
    pub fn write_statistics(&self, now: Time, statistics: &Statistics, out: &mut Vec<u8>) {
        let engine = &statistics.engine;
        let mut line = Object::begin(out);
        line.field("timestamp", timestamp(now))
            .field("event_type", "stats")
            .object("stats", |out| {
                out.field("uptime", statistics.uptime)
                    .object("decoder", |out| {
                        out.field("pkts", engine.frames)
                            .field("bytes", statistics.bytes)
                            .field("invalid", engine.invalid);
                    })
                    .object("flow", |out| {
                        out.field("total", statistics.flows);
                    })
                    .object("tcp", |out| {
                        out.field("sessions", engine.tcp.sessions)
                            .field("reassembly_gap", engine.tcp.gaps)
                            .field("overlap_diff_data", engine.tcp.conflicts);
                    })
                    .object("ips", |out| {
                        out.field("accepted", engine.frames - engine.dropped)
                            .field("blocked", engine.dropped)
                            .field("replaced", engine.rewritten);
                    })
                    .object("detect", |out| {
                        out.field("alert", statistics.alerts);
                    });
            });
        line.end_line();
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

    fn transaction(&self, transaction: &TransactionEvent, out: &mut Vec<u8>) {
        let subject = &transaction.subject;
        // Records of DCE/RPC outside of SMB are only used by rules.
        let is_logged = !matches!(transaction.record, Record::None) && transaction.app != AppProtocol::Dcerpc;
        if is_logged {
            let mut line = self.begin(subject, app::event_type(transaction.app), out);
            line.field("tx_id", transaction.id);
            app::record(
                &mut line,
                transaction.app,
                &transaction.record,
                Some(transaction.id),
                &self.layout,
            );
            self.end(line);
        }
        for summary in &transaction.files {
            let mut line = self.begin(subject, "fileinfo", out);
            app::record(
                &mut line,
                transaction.app,
                &transaction.record,
                Some(transaction.id),
                &self.layout,
            );
            line.field("app_proto", transaction.app.name())
                .object("fileinfo", |out| {
                    file(out, summary);
                    out.field("tx_id", transaction.id);
                });
            self.end(line);
        }
        self.anomalies(
            subject,
            transaction.app,
            Some(transaction.id),
            &transaction.anomalies,
            out,
        );
    }

    /// Writes that a policy decided about a packet. Millrace adds the field `policy`.
    fn exception(
        &self,
        subject: &Subject,
        (cause, policy, rule): (Cause, Policy, Option<RuleId>),
        out: &mut Vec<u8>,
    ) {
        let mut line = self.begin(subject, "anomaly", out);
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
        protocol: AppProtocol,
        transaction: Option<u64>,
        events: &[AppEvent],
        out: &mut Vec<u8>,
    ) {
        for event in events {
            let mut line = self.begin(subject, "anomaly", out);
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
                    .field("event", name.to_ascii_uppercase())
                    .field("layer", layer);
            });
            self.end(line);
        }
    }

    fn flow(&self, flow: &FlowSummary, end: FlowEnd, out: &mut Vec<u8>) {
        let subject = Subject {
            packet: 0,
            time: flow.last,
            flow: flow.id,
            src: flow.key.client,
            dst: flow.key.server,
            ports: Some((flow.key.client_port, flow.key.server_port)),
            protocol: flow.key.protocol,
        };
        let mut line = self.begin(&subject, "flow", out);
        if let Some(app) = flow.app {
            line.field("app_proto", app.name());
        }
        line.object("flow", |out| {
            counters(out, flow);
            out.field("start", timestamp(flow.start))
                .field("end", timestamp(flow.last))
                .field(
                    "age",
                    flow.last.nanos().saturating_sub(flow.start.nanos()) / 1_000_000_000,
                )
                .field(
                    "state",
                    match flow.state {
                        FlowState::New => "new",
                        FlowState::Established => "established",
                        FlowState::Closed => "closed",
                    },
                )
                .field(
                    "reason",
                    match end {
                        FlowEnd::Timeout => "timeout",
                        FlowEnd::Evicted => "forced",
                        FlowEnd::Shutdown => "shutdown",
                    },
                )
                .field("alerted", flow.is_alerted);
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
        self.end(line);
    }

    fn dropped(&self, subject: &Subject, reason: DropReason, out: &mut Vec<u8>) {
        let mut line = self.begin(subject, "drop", out);
        line.object("drop", |out| {
            out.field(
                "reason",
                match reason {
                    DropReason::Rule => "rules",
                    DropReason::Flow => "flow drop",
                    DropReason::Normalizer => "stream error",
                    DropReason::Memory => "stream memcap",
                    DropReason::Policy(cause) => policy_reason(cause),
                },
            );
        });
        self.end(line);
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
