//! The conditions of one rule on each packet, one by one. They show why the rule raises an alert or none.
//!
//! A traced rule is evaluated once more after the other rules, without the prefilter, so the trace changes no
//! alert.

mod record;
mod words;

use super::{Context, Detector};
use crate::app::{AppProtocol, FrameView, Progress, Transaction};
use crate::detect::compile::Ruleset;
use crate::detect::evaluate;
use crate::detect::program::{AppTest, BufferTest, Operation, Rule, RuleType};
use crate::detect::subject::Subject;
use crate::detect::transaction::{pieces, source_of};
use crate::detect::{conditions, fields, state, transform};
use crate::event::Event;
use crate::flow::{Direction, Flow, FlowState};
use record::Matched;
pub(super) use record::Tracer;
pub use record::{Condition, TraceOutcome, TracePlace, TraceRecord};

/// Largest number of bytes of a buffer that a trace shows.
const SHOWN: usize = 48;

/// Returns the transaction and the frame of an alert or a match.
fn matched(transaction: Option<u64>, frame: Option<&FrameView>) -> Matched {
    (transaction, frame.map(|view| (view.id, view.direction)))
}

/// A list of conditions under construction. After the first condition that does not hold, nothing is added.
#[derive(Default)]
struct Steps {
    list: Vec<Condition>,
    has_failed: bool,
}

impl Steps {
    fn add(&mut self, words: impl Into<String>, holds: bool, found: impl FnOnce() -> String) {
        if self.has_failed {
            return;
        }
        self.has_failed = !holds;
        self.list.push(Condition {
            words: words.into(),
            holds,
            found: found(),
        });
    }
}

impl Detector {
    /// Traces the rule with this index from now on; `None` ends the trace.
    pub fn trace(&mut self, rule: Option<u32>) {
        self.tracer = rule.map(|rule| {
            Box::new(Tracer {
                rule,
                records: Vec::new(),
                first: 0,
                matched: Vec::new(),
            })
        });
    }

    /// Returns the records of the trace since the last call.
    pub fn take_trace(&mut self) -> Vec<TraceRecord> {
        let tracer = self.tracer.as_deref_mut();
        tracer.map_or_else(Vec::new, |tracer| {
            tracer.first = 0;
            core::mem::take(&mut tracer.records)
        })
    }

    /// Adds the records of a packet, if a rule is traced.
    pub(super) fn trace_packet(&mut self, rules: &Ruleset, context: Context<'_>, flow: Option<&Flow>) {
        let Some(mut tracer) = self.tracer.take() else {
            return;
        };
        tracer.first = tracer.records.len();
        let of_rule = self.matches.iter().filter(|found| found.rule == tracer.rule);
        tracer.matched = of_rule
            .map(|found| matched(found.transaction, found.frame.as_ref()))
            .collect();
        if let Some(rule) = rules.rules.get(tracer.rule as usize) {
            match rule.kind {
                RuleType::Transaction => self.trace_transactions(rules, rule, context, flow, &mut tracer),
                _ => {
                    let record = self.trace_packet_rule(rules, rule, context, flow);
                    tracer.records.push(record);
                }
            }
        }
        self.tracer = Some(tracer);
    }

    /// Completes the records of a packet with the alerts that it raised.
    pub(super) fn complete_trace(&mut self, rules: &Ruleset, events: &[Event]) {
        let Some(tracer) = self.tracer.as_deref_mut() else {
            return;
        };
        let Some(rule) = rules.rules.get(tracer.rule as usize) else {
            return;
        };
        let Tracer {
            rule: index,
            records,
            first,
            matched: matches,
        } = tracer;
        for record in &mut records[*first..] {
            if record.conditions.iter().any(|condition| !condition.holds) {
                continue;
            }
            let place = match &record.place {
                TracePlace::Transaction { id, .. } => matched(Some(*id), None),
                TracePlace::Frame(view) => matched(None, Some(view)),
                _ => (None, None),
            };
            let is_alert = events.iter().any(|event| {
                matches!(event, Event::Alert(alert)
                    if alert.rule == *index
                        && (place == (None, None) || place == matched(alert.transaction, alert.frame.as_deref())))
            });
            let is_match = matches.contains(&place);
            record.outcome = match (is_alert, is_match) {
                (true, _) => TraceOutcome::Alert,
                (false, true) if rule.is_silent => TraceOutcome::Silent,
                (false, true) => TraceOutcome::Withheld,
                (false, false) => TraceOutcome::Repeated,
            };
        }
    }

    fn trace_packet_rule(
        &mut self,
        rules: &Ruleset,
        rule: &Rule,
        context: Context<'_>,
        flow: Option<&Flow>,
    ) -> TraceRecord {
        let mut steps = Steps::default();
        let app = flow.and_then(|flow| flow.app.protocol);
        self.trace_common(rules, rule, context, flow, app, &mut steps);
        self.scratch.begin();
        self.trace_payload(rule, context, flow, &mut steps);
        let place = match context.stream.filter(|_| rule.on_stream) {
            Some(window) => TracePlace::Stream {
                offset: window.offset,
                size: window.bytes.len(),
            },
            None => TracePlace::Packet,
        };
        record(context, flow, place, steps)
    }

    fn trace_transactions(
        &mut self,
        rules: &Ruleset,
        rule: &Rule,
        context: Context<'_>,
        flow: Option<&Flow>,
        tracer: &mut Tracer,
    ) {
        let Some(flow) = flow else {
            return;
        };
        let side = context.direction.index();
        let is_over_frames = rule.buffers.iter().any(|test| test.buffer.is_frame());
        let transactions: Vec<&Transaction> = match (is_over_frames, &flow.app.frames) {
            (false, _) => flow.app.transactions.list.iter().collect(),
            (true, frames) => frames
                .iter()
                .flat_map(|frames| frames.views(context.direction))
                .collect(),
        };
        let is_asked = |transaction: &Transaction| {
            let frame = transaction.frame.as_ref();
            frame.is_none_or(|frame| rule.buffers.iter().all(|test| test.buffer == frame.kind))
        };
        let has_begun = |transaction: &&&Transaction| {
            transaction.progress[side] != Progress::Idle && is_asked(transaction)
        };
        for transaction in transactions.iter().filter(has_begun) {
            let mut steps = Steps::default();
            let app = transaction.app;
            self.trace_common(rules, rule, context, Some(flow), Some(app), &mut steps);
            for test in &rule.app {
                if matches!(test, AppTest::Protocol(_)) {
                    continue;
                }
                let direction = transaction.tested(context.direction);
                let at = (direction, context.packet.time, flow.key.client);
                let holds = fields::satisfies(test, transaction, at);
                steps.add(words::app(test), holds, String::new);
            }
            self.scratch.begin();
            for test in &rule.buffers {
                let direction = transaction.tested(context.direction);
                self.trace_buffer(test, transaction, direction, &mut steps);
            }
            if !rule.payload.is_empty() {
                self.trace_payload(rule, context, Some(flow), &mut steps);
            }
            let place = match transaction.frame {
                Some(view) => TracePlace::Frame(view),
                None => TracePlace::Transaction {
                    id: transaction.id,
                    app,
                },
            };
            tracer.records.push(record(context, Some(flow), place, steps));
        }
        if !transactions.iter().any(|transaction| has_begun(&transaction))
            && !context.packet.payload.is_empty()
        {
            let mut steps = Steps::default();
            let app = flow.app.protocol;
            self.trace_common(rules, rule, context, Some(flow), app, &mut steps);
            let words = match is_over_frames {
                true => "a frame of this kind has begun",
                false => "a transaction of the protocol has begun",
            };
            steps.add(words, false, String::new);
            tracer
                .records
                .push(record(context, Some(flow), TracePlace::Packet, steps));
        }
    }

    /// Adds the conditions that all types of rules have.
    fn trace_common(
        &self,
        rules: &Ruleset,
        rule: &Rule,
        context: Context<'_>,
        flow: Option<&Flow>,
        app: Option<AppProtocol>,
        steps: &mut Steps,
    ) {
        let Context {
            packet, direction, ..
        } = context;
        if !rule.protocol.app.is_empty() {
            let mut names: Vec<&str> = rule.protocol.app.iter().map(|app| app.name()).collect();
            let mut holds = app.is_some_and(|app| rule.protocol.app.contains(&app));
            if rule.protocol.carries_dns {
                names = vec![AppProtocol::Doh2.name()];
                holds &= flow.is_some_and(|flow| flow.app.carries_dns);
            }
            steps.add(
                format!("the application protocol is {}", names.join(" or ")),
                holds,
                || app.map_or("not known yet", AppProtocol::name).to_owned(),
            );
        }
        let (source, destination) = packet.ports.unwrap_or_default();
        steps.add(
            "protocol, addresses and ports are those of the header",
            conditions::header(rule, packet),
            || {
                let (src, dst) = (packet.src, packet.dst);
                format!(
                    "IP protocol {}, {src} {source} -> {dst} {destination}",
                    packet.protocol
                )
            },
        );
        if let Some(words) = words::flow(&rule.flow) {
            steps.add(words, conditions::flow(rule, packet, flow, direction), || {
                let state = match flow.map(|flow| flow.state) {
                    None => "no flow",
                    Some(FlowState::New) => "a new flow",
                    Some(FlowState::Established) => "an established flow",
                    Some(FlowState::Closed) => "a flow that ended",
                };
                let side = match direction {
                    Direction::ToServer => "to the server",
                    Direction::ToClient => "to the client",
                };
                format!("{state}, {side}")
            });
        }
        for test in &rule.packet {
            let holds = conditions::packet(test, packet, flow)
                && !(context.has_stream_data && super::is_empty(test))
                && (!packet.is_pseudo || super::is_of_stream(test));
            steps.add(words::packet(test), holds, || words::of_packet(test, packet));
        }
        for test in &rule.app {
            if let AppTest::Protocol(condition) = test {
                let holds = conditions::protocol(condition, app, flow);
                steps.add(words::app(test), holds, || {
                    app.map_or("not known yet", AppProtocol::name).to_owned()
                });
            }
        }
        for test in &rule.state {
            let bits = flow.map(|flow| &flow.detect.bits);
            let holds = state::is_true(test, packet, bits, &self.addresses);
            steps.add(words::state(test, &rules.names), holds, String::new);
        }
    }

    /// Adds the operations over the payload, with the first of stream and packet that matches, or the last
    /// one if none does.
    fn trace_payload(&mut self, rule: &Rule, context: Context<'_>, flow: Option<&Flow>, steps: &mut Steps) {
        if rule.payload.is_empty() || steps.has_failed {
            return;
        }
        let Context { packet, stream, .. } = context;
        let is_in_stream = flow.is_some_and(|flow| flow.tcp.is_some()) && !packet.is_rejected_by_stream;
        let mut subjects = Vec::new();
        if rule.on_stream
            && let Some(window) = stream
        {
            subjects.push((
                "stream",
                Subject {
                    bytes: window.bytes,
                    offset: window.offset,
                    is_complete: window.is_end,
                    is_dce_big_endian: false,
                },
            ));
        }
        let on_packet = rule.on_packets || rule.on_stream && !is_in_stream;
        if on_packet && !packet.is_pseudo && !packet.hides_payload() && !packet.payload.is_empty() {
            subjects.push(("payload", Subject::whole(packet.payload)));
        }
        let Some(best) = self.first_match(&rule.payload, &subjects) else {
            let missing = match rule.on_stream && is_in_stream {
                true => "stream data of this direction are inspected with this packet",
                false => "the packet has a payload",
            };
            steps.add(missing, false, String::new);
            return;
        };
        let (name, subject) = subjects[best];
        self.trace_operations(name, &rule.payload, &subject, steps);
    }

    /// Adds the operations over a buffer, with the first instance that matches, or the last one if none does.
    fn trace_buffer(
        &mut self,
        test: &BufferTest,
        transaction: &Transaction,
        direction: Direction,
        steps: &mut Steps,
    ) {
        if steps.has_failed {
            return;
        }
        let name = words::buffer(test);
        let mut transformed = Vec::new();
        let mut subjects = Vec::new();
        let views = transaction.buffers(source_of(test.buffer), test.side.unwrap_or(direction));
        for view in views.flat_map(|view| pieces(test.buffer, view)) {
            let mut bytes = Vec::new();
            match test.transforms.is_empty() {
                true => bytes.extend_from_slice(view.bytes),
                false => {
                    transform::apply(
                        &test.transforms,
                        view.bytes,
                        &mut bytes,
                        self.scratch.expressions(),
                    );
                }
            }
            transformed.push((bytes, view));
        }
        for (bytes, view) in &transformed {
            subjects.push((
                name.as_str(),
                Subject {
                    bytes,
                    offset: view.offset,
                    is_complete: view.is_complete,
                    is_dce_big_endian: view.is_big_endian,
                },
            ));
        }
        let Some(best) = self.first_match(&test.operations, &subjects) else {
            steps.add(format!("{name} is there"), false, String::new);
            return;
        };
        let subject = subjects[best].1;
        self.trace_operations(&name, &test.operations, &subject, steps);
    }

    /// Returns the index of the first subject that matches, or of the last one if none does; `None` if the
    /// list is empty.
    fn first_match(&mut self, operations: &[Operation], subjects: &[(&str, Subject<'_>)]) -> Option<usize> {
        let known = self.scratch.variables;
        let found = subjects.iter().position(|(_, subject)| {
            self.scratch.begin();
            self.scratch.variables = known;
            evaluate::matches(operations, subject, &mut self.scratch)
        });
        self.scratch.variables = known;
        found.or(subjects.len().checked_sub(1))
    }

    /// Adds the operations of a list, up to the first operation that makes the list no longer match.
    fn trace_operations(
        &mut self,
        name: &str,
        operations: &[Operation],
        subject: &Subject<'_>,
        steps: &mut Steps,
    ) {
        let known = self.scratch.variables;
        for (at, operation) in operations.iter().enumerate() {
            self.scratch.begin();
            self.scratch.variables = known;
            let holds = evaluate::matches(&operations[..=at], subject, &mut self.scratch);
            let limit = self.scratch.limit.take();
            steps.add(
                format!("{name}: {}", words::operation(operation)),
                holds,
                || match (holds, limit) {
                    (true, _) => String::new(),
                    (false, Some(_)) => "a limit of the evaluation was exceeded".to_owned(),
                    (false, None) => words::bytes(subject.bytes, SHOWN),
                },
            );
        }
    }
}

fn record(context: Context<'_>, flow: Option<&Flow>, place: TracePlace, steps: Steps) -> TraceRecord {
    TraceRecord {
        subject: super::decision::subject(context.packet, flow),
        direction: context.direction,
        is_pseudo: context.packet.is_pseudo,
        place,
        conditions: steps.list,
        outcome: TraceOutcome::NoMatch,
    }
}
