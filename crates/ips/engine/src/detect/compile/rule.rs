//! Compilation of one rule.

use std::sync::Arc;

use memchr::memmem::Finder;
use millrace_ips_pcre::{Flags, Regex};
use millrace_ips_rules::address::{Spec, Value};
use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::files::ThresholdEffect;
use millrace_ips_rules::header::{self, Endpoints, Protocol};
use millrace_ips_rules::options::RuleOption;
use millrace_ips_rules::options::content::{Content, Pcre};
use millrace_ips_rules::options::number::{Comparison, NumberField};
use millrace_ips_rules::options::state::FlowState;
use millrace_ips_rules::options::words::TextField;
use millrace_ips_rules::set::Loaded;
use millrace_ips_rules::variables::Ranges;
use millrace_ips_rules::{Position, Reason, Refusal};

use super::super::program::{
    AppTest, BufferTest, ContentTest, Effect, Endpoint, FlowTest, Operand, Operation, PacketTest, PcreTest,
    Rule, RuleType, StateTest, Tag, ThresholdTest,
};
use super::fast_pattern::{self, Candidate};
use super::words::{self, Shared};
use super::{CompileSettings, Hook, Interner, bytes, protocols};
use crate::flow::Direction;

/// Largest number of buffer tests of a rule: partial matches are kept as bits of a word.
pub(crate) const BUFFER_TESTS: usize = 32;
/// Priority of a rule without class and priority.
const PRIORITY: u32 = 3;

/// The list that operations are added to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    Payload,
    Buffer(usize),
}

/// A rule under construction.
struct Builder<'a> {
    interner: &'a mut Interner,
    names: bytes::Names,
    list: List,
    /// True after `base64_data`: operations belong to the last Base64 decoding of the list.
    is_decoded: bool,
    payload: Vec<Operation>,
    buffers: Vec<BufferTest>,
    candidates: Vec<Candidate>,
    packet: Vec<PacketTest>,
    flow: FlowTest,
    app: Vec<AppTest>,
    state: Vec<StateTest>,
    effects: Vec<Effect>,
    is_silent: bool,
    tag: Option<Tag>,
    /// True if a content of the payload is anchored at its beginning.
    is_anchored: bool,
}

/// Returns the keyword of an option, for refusals.
fn keyword(option: &RuleOption) -> String {
    match option {
        RuleOption::Content(_) => "content".to_owned(),
        RuleOption::Buffer(buffer, _) => buffer
            .names()
            .suricata
            .first()
            .copied()
            .unwrap_or("buffer")
            .to_owned(),
        RuleOption::Transform(transform) => transform.word().to_owned(),
        RuleOption::Pcre(_) => "pcre".to_owned(),
        RuleOption::Byte(option) => option.kind.word().to_owned(),
        RuleOption::IsDataAt(_) => "isdataat".to_owned(),
        RuleOption::Base64Decode(_) => "base64_decode".to_owned(),
        RuleOption::Flow(_) => "flow".to_owned(),
        RuleOption::Bits(bits) => bits.scope.word().to_owned(),
        RuleOption::FlowInt(_) => "flowint".to_owned(),
        RuleOption::Number(field, ..) => field.keyword().to_owned(),
        RuleOption::Text(field, _) => field.keyword().to_owned(),
        _ => "rule".to_owned(),
    }
}

/// Compiles a rule.
pub(super) fn compile(
    loaded: &Loaded,
    source_index: u32,
    settings: &CompileSettings,
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
        is_decoded: false,
        payload: Vec::new(),
        buffers: Vec::new(),
        candidates: Vec::new(),
        packet: Vec::new(),
        flow: FlowTest::default(),
        app: Vec::new(),
        state: Vec::new(),
        effects: Vec::new(),
        is_silent: false,
        tag: None,
        is_anchored: false,
    };
    for (index, option) in rule.options.iter().enumerate() {
        builder
            .option(option)
            .map_err(|reason| refuse(Some(index), keyword(option), reason))?;
    }
    let mut protocol = protocols::header(rule.header.protocol);
    if protocol.app.is_empty() {
        let of_buffers = |test: &BufferTest| protocols::of_buffer(test.buffer);
        // A buffer of one protocol says more than one of files.
        let fewest = builder.buffers.iter().map(of_buffers).min_by_key(|all| all.len());
        protocol.app = fewest.unwrap_or_default().to_vec();
    }
    let common =
        protocols::common_direction(builder.buffers.iter().map(|test| test.buffer)).map_err(whole)?;
    if let (Some(common), Some(asked)) = (common, builder.flow.direction)
        && common != asked
    {
        return Err(whole(Reason::Invalid {
            problem: "buffers of one direction with flow of the other".to_owned(),
            expected: "to_server with buffers of requests, to_client with those of responses",
        }));
    }
    builder.assign_hooks().map_err(whole)?;
    let ends = match &rule.header.endpoints {
        Some(ends) => endpoints(ends, settings, builder.interner).map_err(whole)?,
        None => [Endpoint::default(), Endpoint::default()],
    };
    let [source, destination] = ends;
    let is_bidirectional = rule
        .header
        .endpoints
        .as_ref()
        .is_some_and(|ends| ends.direction == header::Direction::Both);
    let (on_packets, on_stream) = builder.targets(rule.header.protocol, &protocol.app);
    // The buffers of a transaction rule decide when it is evaluated, so that its pattern is one of theirs.
    if builder
        .candidates
        .iter()
        .any(|it| it.test.is_some() && !it.content.is_negated)
    {
        builder.candidates.retain(|it| it.test.is_some());
    }
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
    let rate = rule.options.iter().find_map(|option| match option {
        RuleOption::Rate(rate) => Some(*rate),
        _ => None,
    });
    let thresholds = thresholds(rule.gid(), rule.sid().unwrap_or_default(), settings).map_err(whole)?;
    let has_ports = source.ports.is_some() || destination.ports.is_some();
    let is_free = builder.payload.is_empty()
        && builder.packet.is_empty()
        && builder.state.is_empty()
        && builder.flow == FlowTest::default()
        && !has_ports;
    let kind = if !builder.buffers.is_empty() || builder.app.iter().any(is_of_transaction) {
        RuleType::Transaction
    } else if !builder.payload.is_empty() && on_stream && on_packets {
        RuleType::PacketStream
    } else if !builder.payload.is_empty() && on_stream {
        RuleType::Stream
    } else if !protocol.app.is_empty() || !builder.app.is_empty() {
        RuleType::AppLayer
    } else if is_free {
        RuleType::IpOnly
    } else {
        RuleType::Packet
    };
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
        app: builder.app,
        state: builder.state,
        effects: builder.effects,
        rate,
        thresholds,
        is_silent: builder.is_silent,
        tag: builder.tag,
        fast_pattern,
        source_index,
    })
}

/// Returns true if a condition is on a transaction and not on the flow.
fn is_of_transaction(test: &AppTest) -> bool {
    !matches!(test, AppTest::Protocol { .. })
}

impl Builder<'_> {
    /// Returns the list of a buffer: the last one without transforms, or a new one.
    fn list_of(&mut self, buffer: Buffer) -> List {
        let is_it = |test: &BufferTest| test.buffer == buffer && test.transforms.is_empty();
        match self.buffers.iter().rposition(is_it) {
            Some(at) => List::Buffer(at),
            None => self.new_list(buffer),
        }
    }

    fn new_list(&mut self, buffer: Buffer) -> List {
        self.buffers.push(BufferTest {
            buffer,
            transforms: Vec::new(),
            operations: Vec::new(),
            hook: 0,
        });
        List::Buffer(self.buffers.len() - 1)
    }

    fn operations(&mut self, list: List) -> &mut Vec<Operation> {
        match list {
            List::Buffer(at) if at < self.buffers.len() => &mut self.buffers[at].operations,
            _ => &mut self.payload,
        }
    }

    /// Adds an operation to a list, or to the last decoding in it.
    fn push(&mut self, list: List, operation: Operation) {
        let is_decoded = self.is_decoded && list == self.list;
        let operations = self.operations(list);
        if is_decoded {
            let last = operations.iter_mut().rev().find_map(|operation| match operation {
                Operation::Base64 { then, .. } => Some(then),
                _ => None,
            });
            if let Some(then) = last {
                then.push(operation);
                return;
            }
        }
        operations.push(operation);
    }

    fn option(&mut self, option: &RuleOption) -> Result<(), Reason> {
        match option {
            RuleOption::Content(content) => self.content(content)?,
            RuleOption::Pcre(pcre) => self.pcre(pcre)?,
            RuleOption::Buffer(Buffer::PktData | Buffer::RawData, _) => {
                self.list = List::Payload;
                self.is_decoded = false;
            }
            RuleOption::Buffer(Buffer::Base64Data, _) => {
                let has_decoding = |operation: &Operation| matches!(operation, Operation::Base64 { .. });
                if !self.operations(self.list).iter().any(has_decoding) {
                    return Err(Reason::Invalid {
                        problem: "there is nothing decoded".to_owned(),
                        expected: "base64_decode before base64_data, in the same buffer",
                    });
                }
                self.is_decoded = true;
            }
            RuleOption::Buffer(buffer, argument) => {
                if argument.is_some() {
                    return Err(Reason::Unsupported {
                        why: "buffers with an argument are not there",
                    });
                }
                self.list = self.new_list(*buffer);
                self.is_decoded = false;
            }
            RuleOption::Transform(transform) => match self.list {
                List::Buffer(at) if at < self.buffers.len() => self.buffers[at].transforms.push(*transform),
                _ => {
                    return Err(Reason::Invalid {
                        problem: "a transformation of the payload".to_owned(),
                        expected: "a sticky buffer before it",
                    });
                }
            },
            RuleOption::Byte(option) => {
                let operation = bytes::compile(option, &mut self.names)?;
                self.push(self.list, operation);
            }
            RuleOption::IsDataAt(test) => {
                let operation = Operation::IsDataAt {
                    position: self.names.operand(&test.position)?,
                    is_relative: test.relative,
                    is_negated: test.is_negated,
                };
                self.push(self.list, operation);
            }
            RuleOption::Base64Decode(decode) => {
                self.is_decoded = false;
                let operation = Operation::Base64 {
                    bytes: decode.bytes,
                    offset: decode.offset.unwrap_or(0),
                    is_relative: decode.relative,
                    then: Vec::new(),
                };
                self.push(self.list, operation);
            }
            RuleOption::Flow(states) => self.flow_states(states),
            RuleOption::Bits(bits) => {
                let shared = words::bits(bits, self.interner)?;
                self.share(shared);
            }
            RuleOption::FlowInt(counter) => {
                let shared = words::counter(counter, self.interner)?;
                self.share(shared);
            }
            RuleOption::Number(field, comparison, suffix) => {
                self.number(*field, *comparison, suffix.as_deref());
            }
            RuleOption::Text(field, text) => self.text(*field, text)?,
            RuleOption::NoAlert => self.is_silent = true,
            RuleOption::SameIp => self.packet.push(PacketTest::SameIp),
            RuleOption::Msg(_)
            | RuleOption::Sid(_)
            | RuleOption::Rev(_)
            | RuleOption::Gid(_)
            | RuleOption::Priority(_)
            | RuleOption::Classtype(_)
            | RuleOption::Reference { .. }
            | RuleOption::Metadata(_)
            | RuleOption::Service(_)
            | RuleOption::Remark(_)
            | RuleOption::Rate(_) => {}
        }
        Ok(())
    }

    fn share(&mut self, shared: Shared) {
        match shared {
            Shared::Test(test) => self.state.push(test),
            Shared::Effect(effect) => self.effects.push(effect),
            Shared::Silent => self.is_silent = true,
        }
    }

    fn content(&mut self, content: &Content) -> Result<(), Reason> {
        let list = match content.buffer {
            Some(buffer) => self.list_of(buffer),
            None => self.list,
        };
        let names = &self.names;
        let operand = |value: &Option<_>| value.as_ref().map(|value| names.operand(value)).transpose();
        let size = content.pattern.len() as i64;
        let test = ContentTest {
            pattern: match content.nocase {
                true => content.pattern.to_ascii_lowercase().into(),
                false => content.pattern.clone().into(),
            },
            finder: (!content.nocase).then(|| Box::new(Finder::new(&content.pattern).into_owned())),
            is_negated: content.is_negated,
            nocase: content.nocase,
            offset: match content.startswith {
                true => Some(Operand::Number(0)),
                false => operand(&content.offset)?,
            },
            depth: match content.startswith {
                true => Some(Operand::Number(size)),
                false => operand(&content.depth)?,
            },
            distance: operand(&content.distance)?,
            within: operand(&content.within)?,
            endswith: content.endswith,
        };
        let is_decoded = self.is_decoded && list == self.list;
        if list == List::Payload && (test.offset.is_some() || test.depth.is_some()) {
            self.is_anchored = true;
        }
        if !is_decoded {
            self.candidates.push(Candidate {
                content: content.clone(),
                test: match list {
                    List::Payload => None,
                    List::Buffer(at) => Some(at as u16),
                },
            });
        }
        self.push(list, Operation::Content(test));
        Ok(())
    }

    fn pcre(&mut self, pcre: &Pcre) -> Result<(), Reason> {
        let list = match pcre.buffer() {
            Some(buffer) => self.list_of(buffer),
            None => self.list,
        };
        let has = |flag| pcre.flags.contains(flag);
        let flags = Flags {
            caseless: has('i'),
            dot_all: has('s'),
            multiline: has('m'),
            extended: has('x'),
            anchored: has('A'),
            dollar_end_only: has('E'),
            ungreedy: has('G'),
        };
        let key = (pcre.pattern.clone(), pcre.flags.clone());
        let regex = match self.interner.regexes.get(&key) {
            Some(regex) => Arc::clone(regex),
            None => {
                let regex = Regex::new(pcre.pattern.as_bytes(), flags).map_err(|error| Reason::Invalid {
                    problem: error.to_string(),
                    expected: "an expression that PCRE2 compiles",
                })?;
                let regex = Arc::new(regex);
                self.interner.regexes.insert(key, Arc::clone(&regex));
                regex
            }
        };
        let operation = Operation::Pcre(PcreTest {
            regex,
            is_negated: pcre.is_negated,
            is_relative: pcre.is_relative(),
        });
        self.push(list, operation);
        Ok(())
    }

    fn flow_states(&mut self, states: &[FlowState]) {
        for state in states {
            self.flow.is_needed |= !matches!(state, FlowState::Stateless);
            match state {
                FlowState::Established => self.flow.is_established = Some(true),
                FlowState::NotEstablished => self.flow.is_established = Some(false),
                FlowState::Stateless => {}
                FlowState::ToServer => self.flow.direction = Some(Direction::ToServer),
                FlowState::ToClient => self.flow.direction = Some(Direction::ToClient),
                FlowState::OnlyStream => self.flow.only_stream = true,
                FlowState::NoStream => self.flow.no_stream = true,
                FlowState::OnlyFrag => self.flow.is_reassembled = Some(true),
                FlowState::NoFrag => self.flow.is_reassembled = Some(false),
            }
        }
    }

    fn number(&mut self, field: NumberField, comparison: Comparison, suffix: Option<&str>) {
        match field {
            NumberField::Bsize if suffix == Some("relative") => {
                self.push(self.list, Operation::RemainingSize(comparison));
            }
            NumberField::Bsize => self.push(self.list, Operation::Size(comparison)),
            NumberField::Urilen => {
                let buffer = match suffix {
                    Some("norm") => Buffer::HttpUri,
                    _ => Buffer::HttpUriRaw,
                };
                let list = self.new_list(buffer);
                self.operations(list).push(Operation::Size(comparison));
            }
            NumberField::FileSize | NumberField::CertChainLen | NumberField::DnsOpcode => {
                self.app.push(AppTest::Number(field, comparison));
            }
            _ => self.packet.push(PacketTest::Number(field, comparison)),
        }
    }

    fn text(&mut self, field: TextField, text: &str) -> Result<(), Reason> {
        match field {
            TextField::Target => {}
            TextField::TcpFlags => self.packet.push(words::tcp_flags(text)?),
            TextField::FragBits => self.packet.push(words::fragment_bits(text)?),
            TextField::IpProtocol => self.packet.push(words::ip_protocol(text)?),
            TextField::StreamSize => self.packet.push(words::stream_size(text)?),
            TextField::Tag => self.tag = Some(words::tag(text)?),
            TextField::AppLayerProtocol => {
                let (is_negated, name) = negation(text);
                let name = name.split(',').next().unwrap_or(name);
                self.app.push(AppTest::Protocol {
                    protocols: protocols::by_name(name)?,
                    is_negated,
                });
            }
            TextField::TlsSubject | TextField::TlsIssuer | TextField::TlsFingerprint => {
                let (is_negated, quoted) = negation(text);
                let content = Content {
                    pattern: quoted.trim_matches('"').as_bytes().to_vec(),
                    is_negated,
                    nocase: field == TextField::TlsFingerprint,
                    ..Content::default()
                };
                let before = self.list;
                self.list = self.new_list(match field {
                    TextField::TlsSubject => Buffer::TlsCertSubject,
                    TextField::TlsIssuer => Buffer::TlsCertIssuer,
                    _ => Buffer::TlsCertFingerprint,
                });
                self.content(&content)?;
                self.list = before;
            }
            field => self.app.push(AppTest::Field(field, text.to_owned())),
        }
        Ok(())
    }

    /// Gives each buffer test the number of its buffer with transforms.
    fn assign_hooks(&mut self) -> Result<(), Reason> {
        if self.buffers.len() > BUFFER_TESTS {
            return Err(Reason::Limit {
                unit: "buffers in a rule",
                limit: BUFFER_TESTS,
            });
        }
        for test in &mut self.buffers {
            test.hook = self.interner.hook(Hook {
                buffer: test.buffer,
                transforms: test.transforms.clone(),
            });
        }
        Ok(())
    }

    /// Returns where the payload is inspected: in packets, and in the stream.
    fn targets(&self, protocol: Protocol, app: &[crate::app::AppProtocol]) -> (bool, bool) {
        let is_stream_protocol = matches!(
            protocol,
            Protocol::Ip | Protocol::Ipv4 | Protocol::Ipv6 | Protocol::Tcp
        ) || !app.is_empty();
        match protocol {
            Protocol::TcpPacket => (true, false),
            Protocol::TcpStream => (false, true),
            _ if !is_stream_protocol => (true, false),
            _ if !self.packet.is_empty() || self.flow.no_stream => (true, false),
            _ if self.flow.only_stream => (false, true),
            _ if self.payload.is_empty() => (true, false),
            _ => (self.is_anchored, true),
        }
    }
}

fn negation(text: &str) -> (bool, &str) {
    match text.trim().strip_prefix('!') {
        Some(rest) => (true, rest.trim()),
        None => (false, text.trim()),
    }
}

/// Compiles the endpoints of a header.
fn endpoints(
    ends: &Endpoints,
    settings: &CompileSettings,
    interner: &mut Interner,
) -> Result<[Endpoint; 2], Reason> {
    let variables = &settings.variables;
    let mut addresses = |spec| {
        shared(&mut interner.ranges, "address", spec, |spec| {
            variables.resolve_addresses(spec)
        })
    };
    let (source, destination) = (addresses(&ends.source)?, addresses(&ends.destination)?);
    let mut ports = |spec| {
        shared(&mut interner.ranges, "port", spec, |spec| {
            variables.resolve_ports(spec)
        })
    };
    Ok([
        Endpoint {
            addresses: source,
            ports: ports(&ends.source_ports)?,
        },
        Endpoint {
            addresses: destination,
            ports: ports(&ends.destination_ports)?,
        },
    ])
}

/// Returns the ranges of a set, which rules with the same set share; none if it is everything.
fn shared<T: Value>(
    known: &mut std::collections::HashMap<String, Option<Arc<Ranges>>>,
    kind: &str,
    spec: &Spec<T>,
    resolve: impl Fn(&Spec<T>) -> Result<Ranges, Reason>,
) -> Result<Option<Arc<Ranges>>, Reason> {
    if *spec == Spec::Any {
        return Ok(None);
    }
    let key = format!("{kind} {spec}");
    if let Some(ranges) = known.get(&key) {
        return Ok(ranges.clone());
    }
    let ranges = resolve(spec)?;
    let everything = resolve(&Spec::Any)?;
    let ranges = (ranges != everything).then(|| Arc::new(ranges));
    known.insert(key, ranges.clone());
    Ok(ranges)
}

/// Compiles the rows of the threshold table that name the rule.
fn thresholds(gid: u32, sid: u32, settings: &CompileSettings) -> Result<Vec<ThresholdTest>, Reason> {
    let mut tests = Vec::new();
    for row in &settings.thresholds {
        if (row.gid != 0 && row.gid != gid) || (row.sid != 0 && row.sid != sid) {
            continue;
        }
        tests.push(match &row.effect {
            ThresholdEffect::Suppress(None) => ThresholdTest::Suppress(None),
            ThresholdEffect::Suppress(Some((track, addresses))) => {
                let ranges = settings.variables.resolve_addresses(addresses)?;
                ThresholdTest::Suppress(Some((*track, Arc::new(ranges))))
            }
            ThresholdEffect::Limit(rate) => ThresholdTest::Limit(*rate),
            ThresholdEffect::RateFilter {
                rate,
                new_action,
                timeout,
            } => ThresholdTest::RateFilter {
                rate: *rate,
                new_action: *new_action,
                timeout: *timeout,
            },
        });
    }
    Ok(tests)
}
