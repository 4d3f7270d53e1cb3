//! Compilation of one rule: its header and options in, a [`Rule`] or a refusal out.

mod builder;
mod captures;
mod checks;
mod options;
mod resolve;
mod sets;

use std::hash::{DefaultHasher, Hash, Hasher};

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::header::{self, Protocol};
use millrace_ips_rules::options::RuleOption;
use millrace_ips_rules::options::number::{Comparison, NumberField};
use millrace_ips_rules::options::state::Rate;
use millrace_ips_rules::options::words::TextField;
use millrace_ips_rules::set::Loaded;
use millrace_ips_rules::{Position, Reason, Refusal, limits};

use super::super::program::{
    Absence, AppTest, BufferTest, Disabled, Endpoint, FlowTest, PacketTest, Rule, RuleType, Side,
};
use super::fast_pattern;
use super::{CompileSettings, Hook, Interner, bytes, protocols};
use crate::app::{AppProtocol, Progress};
use crate::flow::Direction;
use builder::Builder;
use bytes::List;
use options::keyword;
pub(super) use resolve::{Row, rows};
use resolve::{endpoints, thresholds};

/// Largest number of buffer tests of a rule: partial matches are kept as bits of a word.
pub(crate) const BUFFER_TESTS: usize = 32;
/// Priority of a rule without class and priority.
const PRIORITY: u32 = 3;

/// Returns the direction of a point in the handling of transactions, and how far the message has come there.
fn point(hook: header::Hook) -> (Direction, Progress) {
    use header::Hook::*;
    let client = |progress| (Direction::ToServer, progress);
    let server = |progress| (Direction::ToClient, progress);
    match hook {
        RequestHeaders | ClientHelloDone | RequestBannerDone => client(Progress::Headers),
        RequestBody | RequestTrailer | ClientCertDone => client(Progress::Body),
        RequestComplete | ClientHandshakeDone | ClientFinished | RequestFinished => {
            client(Progress::Complete)
        }
        ResponseStarted | ResponseLine | ServerInProgress | ResponseInProgress | ResponseBannerWaitEol => {
            server(Progress::Started)
        }
        ResponseHeaders | ServerHello | ResponseBannerDone => server(Progress::Headers),
        ResponseBody | ResponseTrailer | ServerCertDone | ServerHelloDone => server(Progress::Body),
        ResponseComplete | ServerHandshakeDone | ServerFinished | ResponseFinished => {
            server(Progress::Complete)
        }
        All | PreStream | PreFlow | FlowStart | RequestStarted | RequestLine | ClientInProgress
        | RequestInProgress | RequestBannerWaitEol => client(Progress::Started),
    }
}

/// Compiles a rule, with the rows of the threshold table.
pub(super) fn compile(
    loaded: &Loaded,
    source_index: u32,
    settings: &CompileSettings,
    rows: &[Row],
    interner: &mut Interner,
) -> Result<Rule, Box<Refusal>> {
    let parsed = &loaded.parsed;
    let rule = &parsed.rule;
    let refuse = |index: Option<usize>, option: String, reason| {
        let start = Position {
            line: parsed.line,
            column: 1,
        };
        Box::new(Refusal {
            file: loaded.file.clone(),
            position: index
                .and_then(|at| parsed.positions.get(at).copied())
                .unwrap_or(start),
            sid: rule.sid(),
            option,
            reason,
        })
    };
    let whole = |reason| refuse(None, "rule".to_owned(), reason);
    let mut builder = Builder {
        interner,
        names: bytes::Names::default(),
        list: List::Payload,
        last_list: List::Payload,
        is_decoded: false,
        payload: Vec::new(),
        buffers: Vec::new(),
        candidates: Vec::new(),
        packet: Vec::new(),
        headers: Vec::new(),
        flow: FlowTest::default(),
        app: Vec::new(),
        store: None,
        state: Vec::new(),
        effects: Vec::new(),
        is_silent: false,
        alerts_on_pass: false,
        bypasses: false,
        disables: None,
        file: &loaded.file,
        syntax: rule.syntax,
        protocol: rule.header.protocol,
        data: &settings.data,
        is_anchored: false,
    };
    for (index, option) in rule.options.iter().enumerate() {
        builder
            .option(option)
            .map_err(|reason| refuse(Some(index), keyword(option), reason))?;
    }
    if let Some(hook) = rule.header.hook {
        builder.hook(hook).map_err(whole)?;
    }
    builder.check_absence().map_err(whole)?;
    builder.require_file();
    let mut protocol = protocols::header(rule.header.protocol);
    if protocol.app.is_empty() {
        protocol.app = builder.implied_protocols();
    }
    let direction = rule.header.endpoints.as_ref().map(|ends| ends.direction);
    let spans_transaction = direction == Some(header::Direction::Transaction);
    builder.take_headers();
    builder.check_frames().map_err(whole)?;
    match spans_transaction {
        true => builder.assign_sides().map_err(whole)?,
        false => builder.check_direction().map_err(whole)?,
    }
    builder.assign_hooks().map_err(whole)?;
    let ends = match &rule.header.endpoints {
        Some(ends) => endpoints(ends, settings, builder.interner).map_err(whole)?,
        None => [Endpoint::default(), Endpoint::default()],
    };
    let [source, destination] = ends;
    // The response of a transaction goes from the second end to the first.
    let is_bidirectional = spans_transaction || direction == Some(header::Direction::Both);
    let (on_packets, on_stream) = builder.targets(rule.header.protocol, &protocol.app);
    builder.retain_transaction_patterns();
    let fast_pattern = fast_pattern::choose(&builder.candidates);
    let class = rule.options.iter().find_map(|option| match option {
        RuleOption::Classtype(class) => Some(class.as_str()),
        _ => None,
    });
    let priority = rule.options.iter().find_map(|option| match option {
        RuleOption::Priority(priority) => Some(*priority),
        _ => None,
    });
    let class_priority = class
        .and_then(|class| settings.classes.get(class))
        .map(|class| class.priority);
    let rates = rule.options.iter().filter_map(|option| match option {
        RuleOption::Rate(rate) => Some(*rate),
        _ => None,
    });
    let rates: Vec<Rate> = rates.collect();
    let thresholds = thresholds(&rates, rule.gid(), rule.sid().unwrap_or_default(), rows);
    let pass_digest = pass_digest(rule, [&source, &destination]);
    let has_ports = source.ports.is_some() || destination.ports.is_some();
    let has_protocol = !protocol.app.is_empty();
    let kind = builder.rule_type(has_protocol, has_ports, (on_packets, on_stream));
    let is_config = rule.header.action == header::Action::Config;
    let shares_variables = builder.names.are_shared();
    let late = match spans_transaction || shares_variables {
        true => 0,
        false => late_tests(&builder.buffers),
    };
    match builder.disables {
        None if is_config => {
            return Err(whole(Reason::Invalid {
                problem: "a rule with the action config and without the option".to_owned(),
                expected: "config: logging disable, type tx, scope tx; or config: tracking disable, type flow, scope packet;",
            }));
        }
        Some(Disabled::Logging) if kind != RuleType::Transaction || builder.is_over_frames() => {
            return Err(whole(Reason::Invalid {
                problem: "logging of transactions in a rule without one".to_owned(),
                expected: "an application protocol, or a buffer of one",
            }));
        }
        Some(Disabled::Tracking) if !is_of_headers(&builder, kind) => {
            return Err(whole(Reason::Invalid {
                problem: "tracking of flows in a rule that has conditions on the flow, its state or its data"
                    .to_owned(),
                expected: "conditions on the addresses, the ports and the header of packets",
            }));
        }
        _ => {}
    }
    Ok(Rule {
        sid: rule.sid().unwrap_or_default(),
        gid: rule.gid(),
        rev: rule.rev(),
        msg: rule.msg().unwrap_or_default().into(),
        class: class.map(Into::into),
        priority: priority.or(class_priority).unwrap_or(PRIORITY),
        action: rule.header.action,
        kind,
        protocol,
        source,
        destination,
        is_bidirectional,
        flow: builder.flow,
        packet: builder.packet,
        on_packets,
        on_stream,
        payload: builder.payload,
        buffers: builder.buffers,
        late,
        app: builder.app,
        state: builder.state,
        effects: builder.effects,
        thresholds,
        is_silent: builder.is_silent || is_config,
        fast_pattern: fast_pattern.filter(|_| !spans_transaction),
        headers: builder.headers,
        spans_transaction,
        shares_variables,
        alerts_on_pass: builder.alerts_on_pass,
        bypasses: builder.bypasses,
        disables: builder.disables,
        store: builder.store,
        pass_digest,
        source_index,
    })
}

/// Returns one bit for each test over a body. A body grows, and each time a test that did not match is applied to all of it: an
/// expression on an upload would cost the square of its size, although a header decides.
fn late_tests(tests: &[BufferTest]) -> u32 {
    let is_body = |test: &BufferTest| {
        matches!(
            test.buffer,
            Buffer::HttpRequestBody | Buffer::HttpResponseBody | Buffer::FileData
        )
    };
    let bits = tests.iter().enumerate().filter(|(_, test)| is_body(test));
    bits.fold(0, |bits, (at, _)| bits | 1 << at)
}

/// Returns a digest of a pass rule with the addresses and ports that its variables stand for; `None` for other rules.
fn pass_digest(rule: &millrace_ips_rules::Rule, ends: [&Endpoint; 2]) -> Option<u64> {
    (rule.header.action == header::Action::Pass).then(|| {
        let mut digest = DefaultHasher::new();
        format!("{rule} {ends:?}").hash(&mut digest);
        digest.finish()
    })
}

impl Builder<'_> {
    /// Returns the application protocols that the buffers of a rule imply. Without any, it returns those that
    /// its fields imply; the list may be empty.
    fn implied_protocols(&self) -> Vec<AppProtocol> {
        // The buffer with the fewest protocols decides: file buffers have several.
        let of_buffers = self.buffers.iter().map(|test| protocols::of_buffer(test.buffer));
        let fewest = of_buffers.min_by_key(|all| all.len()).unwrap_or_default();
        if !fewest.is_empty() {
            return fewest.to_vec();
        }
        let of_field = |test: &AppTest| match test {
            AppTest::Field(field, value) => protocols::of_field(*field, value),
            AppTest::Number(field, ..) => protocols::of_number(*field),
            AppTest::Digest { .. } => protocols::files(),
            AppTest::Protocol(_) | AppTest::Progress(_) => Vec::new(),
        };
        let of_fields = self.app.iter().map(of_field).filter(|all| !all.is_empty());
        of_fields.min_by_key(Vec::len).unwrap_or_default()
    }

    /// Refuses a rule with buffers of both directions, or with `flow` for the direction that its buffers do
    /// not have.
    fn check_direction(&self) -> Result<(), Reason> {
        let common = protocols::common_direction(self.buffers.iter().map(|test| test.buffer))?;
        match (common, self.flow.direction) {
            (Some(common), Some(asked)) if common != asked => Err(Reason::Invalid {
                problem: "buffers of one direction with flow of the other".to_owned(),
                expected: "to_server with buffers of requests, to_client with those of responses",
            }),
            _ => Ok(()),
        }
    }

    /// Adds the conditions of a point of inspection.
    fn hook(&mut self, hook: header::Hook) -> Result<(), Reason> {
        use header::Hook;
        if hook == Hook::FlowStart {
            for (side, packets) in [(Side::Client, 1), (Side::Server, 0)] {
                self.packet.push(PacketTest::FlowCounter {
                    field: NumberField::FlowPackets,
                    side,
                    comparison: Comparison::Equal(packets),
                });
            }
        }
        if hook.is_of_packets() {
            return Ok(());
        }
        let (direction, progress) = point(hook);
        if self.flow.direction.is_some_and(|asked| asked != direction) {
            return Err(Reason::Invalid {
                problem: "a hook of one direction with flow of the other".to_owned(),
                expected: "to_server with the hooks of requests, to_client with those of responses",
            });
        }
        (self.flow.is_present, self.flow.is_needed) = (true, true);
        self.flow.direction = Some(direction);
        self.app.push(AppTest::Progress(progress));
        Ok(())
    }

    /// Returns true for a rule over a frame.
    fn is_over_frames(&self) -> bool {
        self.buffers.iter().any(|test| test.buffer.is_frame())
    }

    /// Refuses a rule over a frame that has conditions on something else than the packet and the frame: no frame would
    /// satisfy them.
    fn check_frames(&self) -> Result<(), Reason> {
        let Some(frame) = self.buffers.iter().find(|test| test.buffer.is_frame()) else {
            return Ok(());
        };
        let is_other = |test: &BufferTest| test.buffer != frame.buffer || test.absence != Absence::Fails;
        if self.buffers.iter().any(is_other)
            || !self.payload.is_empty()
            || self.app.iter().any(is_of_transaction)
            || self.store.is_some()
        {
            return Err(Reason::Invalid {
                problem: "a frame beside another frame, buffer, payload or field".to_owned(),
                expected: "conditions on one kind of frame, and on packet and flow",
            });
        }
        Ok(())
    }

    /// Removes patterns of the payload from the candidates for the fast pattern if the rule has patterns of
    /// buffers, because the buffers of a transaction rule decide when it is evaluated.
    fn retain_transaction_patterns(&mut self) {
        let mut positive = self.candidates.iter().filter(|it| !it.content.is_negated);
        if positive.any(|it| it.test.is_some()) {
            self.candidates.retain(|it| it.test.is_some());
        }
    }

    /// Returns the type of the rule. `targets` holds two flags: true if the payload is inspected in packets,
    /// and true if it is inspected in the stream.
    fn rule_type(&self, has_protocol: bool, has_ports: bool, targets: (bool, bool)) -> RuleType {
        let has_payload = !self.payload.is_empty();
        if self
            .packet
            .iter()
            .any(|test| matches!(test, PacketTest::Event(_)))
        {
            return RuleType::DecoderEvent;
        }
        let has_conditions = has_payload
            || has_ports
            || !self.headers.is_empty()
            || !self.packet.is_empty()
            || !self.state.is_empty()
            || self.flow.is_present;
        // These conditions change from packet to packet, so one match says nothing about the rest of the flow.
        let varies = self.flow.is_established.is_some()
            || !self.headers.is_empty()
            || !self.packet.is_empty()
            || !self.state.is_empty();
        match targets {
            _ if !self.buffers.is_empty() || self.app.iter().any(is_of_transaction) => RuleType::Transaction,
            _ if self.disables == Some(Disabled::Logging) && has_protocol => RuleType::Transaction,
            (true, true) if has_payload => RuleType::PacketStream,
            (false, true) if has_payload => RuleType::Stream,
            _ if !has_payload && varies => RuleType::Packet,
            _ if has_protocol || !self.app.is_empty() => RuleType::AppLayer,
            _ if !has_conditions => RuleType::IpOnly,
            _ => RuleType::Packet,
        }
    }
}

/// Returns true if a packet satisfies the conditions of a rule by its headers alone.
fn is_of_headers(builder: &Builder<'_>, kind: RuleType) -> bool {
    let is_of_header =
        |test: &PacketTest| !matches!(test, PacketTest::FlowCounter { .. } | PacketTest::Event(_));
    matches!(kind, RuleType::IpOnly | RuleType::Packet)
        && builder.payload.is_empty()
        && builder.headers.is_empty()
        && builder.state.is_empty()
        && !builder.flow.is_present
        && builder.packet.iter().all(is_of_header)
}

/// Returns true if a condition is on a transaction and not on the flow.
fn is_of_transaction(test: &AppTest) -> bool {
    !matches!(test, AppTest::Protocol(_))
}

impl Builder<'_> {
    /// Adds the condition that there is a file to a rule that stores files and has no condition on transactions.
    fn require_file(&mut self) {
        if self.store.is_some() && self.buffers.is_empty() && !self.app.iter().any(is_of_transaction) {
            self.app.push(AppTest::Field(TextField::FileStore, String::new()));
        }
    }

    /// Assigns to each buffer test the number of its hook.
    fn assign_hooks(&mut self) -> Result<(), Reason> {
        if self.buffers.len() > BUFFER_TESTS {
            return Err(Reason::Limit {
                unit: "buffers in a rule",
                limit: BUFFER_TESTS,
            });
        }
        for test in &mut self.buffers {
            let hook = Hook {
                buffer: test.buffer,
                transforms: test.transforms.clone(),
            };
            test.hook = self.interner.hook(hook).ok_or(Reason::Limit {
                unit: "buffers with different transforms in a rule set",
                limit: limits::HOOKS,
            })?;
        }
        Ok(())
    }

    /// Moves the operations over headers of packets out of those over buffers of transactions.
    fn take_headers(&mut self) {
        if !self
            .buffers
            .iter()
            .any(|test| protocols::is_of_packet(test.buffer))
        {
            return;
        }
        let mut places = Vec::with_capacity(self.buffers.len());
        let mut kept = Vec::new();
        for test in std::mem::take(&mut self.buffers) {
            match protocols::is_of_packet(test.buffer) {
                true => {
                    places.push(None);
                    self.headers.push(test);
                }
                false => {
                    places.push(Some(kept.len() as u16));
                    kept.push(test);
                }
            }
        }
        self.buffers = kept;
        self.candidates.retain_mut(|candidate| match candidate.test {
            None => true,
            Some(at) => {
                candidate.test = places.get(usize::from(at)).copied().flatten();
                candidate.test.is_some()
            }
        });
    }

    /// Gives each buffer of a rule over a request and its response the direction in which it is.
    fn assign_sides(&mut self) -> Result<(), Reason> {
        for test in &mut self.buffers {
            test.side = match (test.side, protocols::buffer_directions(test.buffer)) {
                (Some(side), _) => Some(side),
                (None, [true, false]) => Some(crate::flow::Direction::ToServer),
                (None, [false, true]) => Some(crate::flow::Direction::ToClient),
                (None, _) => {
                    return Err(Reason::Invalid {
                        problem: format!("{} is in requests and in responses", test.buffer.names().words),
                        expected: "BUFFER:to_server or BUFFER:to_client in a rule with =>",
                    });
                }
            };
        }
        let has = |side| self.buffers.iter().any(|test| test.side == Some(side));
        match has(crate::flow::Direction::ToServer) && has(crate::flow::Direction::ToClient) {
            true => Ok(()),
            false => Err(Reason::Invalid {
                problem: "a rule with => over one direction".to_owned(),
                expected: "buffers of requests and of responses, or ->",
            }),
        }
    }

    /// Returns two flags: true if the payload is inspected in packets, and true if it is inspected in the
    /// stream.
    fn targets(&self, protocol: Protocol, app: &[crate::app::AppProtocol]) -> (bool, bool) {
        let is_stream_protocol = matches!(
            protocol,
            Protocol::Ip | Protocol::Ipv4 | Protocol::Ipv6 | Protocol::Tcp
        ) || !app.is_empty();
        let is_of_stream = |test: &PacketTest| matches!(test, PacketTest::StreamSize { .. });
        let is_of_packet = self.flow.no_stream || !self.packet.iter().all(is_of_stream);
        match protocol {
            // Without contents, each packet is a match, whether its data are inspected in the stream or not.
            _ if self.payload.is_empty() => (true, false),
            Protocol::TcpPacket => (true, false),
            Protocol::TcpStream => (false, true),
            _ if !is_stream_protocol => (true, false),
            _ if is_of_packet => (true, false),
            _ if self.flow.only_stream => (false, true),
            // As observed: contents together with `stream_size` are searched in packets, too.
            _ => (self.is_anchored || !self.packet.is_empty(), true),
        }
    }
}
