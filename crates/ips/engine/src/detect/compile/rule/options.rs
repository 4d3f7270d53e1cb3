//! The options of a rule, added to the rule under construction.

use std::sync::Arc;

use memchr::memmem::Finder;
use millrace_ips_pcre::{Flags, Regex};
use millrace_ips_rules::Reason;
use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::frames;
use millrace_ips_rules::options::RuleOption;
use millrace_ips_rules::options::content::{Content, Pcre};
use millrace_ips_rules::options::entropy::Entropy;
use millrace_ips_rules::options::number::{Comparison, NumberField};
use millrace_ips_rules::options::protocols::ProtocolCondition;
use millrace_ips_rules::options::selection::{Index, Selection};
use millrace_ips_rules::options::state::FlowState;
use millrace_ips_rules::options::transform::Transform;
use millrace_ips_rules::options::words::TextField;

use super::builder::Builder;
use crate::app::{event, why_refused};
use crate::detect::compile::bytes::{self, List};
use crate::detect::compile::fast_pattern::Candidate;
use crate::detect::compile::protocols;
use crate::detect::compile::words::{self, Shared};
use crate::detect::fields;
use crate::detect::program::{
    Absence, AppTest, BufferTest, ContentTest, Disabled, Operand, Operation, PacketTest, PcreTest,
    ProtocolOfFlow, Side, Step,
};
use crate::flow::Direction;
use crate::packet::events;

/// Returns the keyword of an option, for refusals.
pub(super) fn keyword(option: &RuleOption) -> String {
    match option {
        RuleOption::Content(_) => "content".to_owned(),
        RuleOption::Buffer(buffer, _) => buffer
            .names()
            .suricata
            .first()
            .copied()
            .unwrap_or("buffer")
            .to_owned(),
        RuleOption::Frame(_) => "frame".to_owned(),
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
        RuleOption::Dataset(_) => "dataset".to_owned(),
        _ => "rule".to_owned(),
    }
}

impl Builder<'_> {
    /// Returns the last list of a buffer that has no transforms. Adds a list if there is none.
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
            absence: Absence::Fails,
            side: None,
            hook: 0,
        });
        List::Buffer(self.buffers.len() - 1)
    }

    pub(super) fn operations(&mut self, list: List) -> &mut Vec<Operation> {
        match list {
            List::Buffer(at) if at < self.buffers.len() => &mut self.buffers[at].operations,
            _ => &mut self.payload,
        }
    }

    /// Returns the names of variables for operations of a list.
    fn names_of(&mut self, list: List) -> &mut bytes::Names {
        let is_of_packet = match list {
            List::Buffer(at) => self
                .buffers
                .get(at)
                .is_some_and(|test| protocols::is_of_packet(test.buffer)),
            List::Payload => false,
        };
        self.names.of(bytes::Place { list, is_of_packet })
    }

    /// Returns the list of an option that reads bytes. Behind legacy modifiers (`content:"/a"; http_uri; isdataat:!1,relative;`),
    /// a relative option reads on where the last match ended, in the buffer of that match.
    fn list_of_reader(&self, is_relative: bool) -> List {
        match self.list {
            List::Payload if is_relative => self.last_list,
            list => list,
        }
    }

    /// Adds an operation to a list, or to the last Base64 decoding in the list.
    pub(super) fn push(&mut self, list: List, operation: Operation) {
        self.last_list = list;
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

    /// Adds an option.
    pub(super) fn option(&mut self, option: &RuleOption) -> Result<(), Reason> {
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
                let side = match argument.as_deref() {
                    None => None,
                    Some("to_server") => Some(Direction::ToServer),
                    Some("to_client") => Some(Direction::ToClient),
                    Some(_) => {
                        return Err(Reason::Unsupported {
                            why: "buffers with an argument are not there",
                        });
                    }
                };
                self.check_sticky()?;
                self.list = self.new_list(*buffer);
                if let Some(test) = self.buffers.last_mut() {
                    test.side = side;
                }
                self.is_decoded = false;
            }
            RuleOption::Frame(name) => {
                let buffer = frames::find(self.protocol, name)?;
                self.list = self.new_list(buffer);
                self.is_decoded = false;
            }
            RuleOption::Transform(transform) => match self.list {
                List::Buffer(at) if at < self.buffers.len() => {
                    let step = step(transform)?;
                    self.buffers[at].transforms.push(step);
                }
                _ => {
                    return Err(Reason::Invalid {
                        problem: "a transformation of the payload".to_owned(),
                        expected: "a sticky buffer before it",
                    });
                }
            },
            RuleOption::Byte(option) => {
                let is_relative = option.arguments.iter().any(|argument| argument == "relative");
                let list = self.list_of_reader(is_relative);
                let operation = bytes::compile(option, self.names_of(list))?;
                self.push(list, operation);
            }
            RuleOption::IsDataAt(test) => {
                let list = self.list_of_reader(test.relative);
                let operation = Operation::IsDataAt {
                    position: self.names_of(list).operand(&test.position)?,
                    is_relative: test.relative,
                    is_negated: test.is_negated,
                };
                self.push(list, operation);
            }
            RuleOption::Base64Decode(decode) => {
                self.is_decoded = false;
                let operation = Operation::Base64 {
                    bytes: decode.bytes,
                    offset: decode.offset.unwrap_or(0),
                    is_relative: decode.relative,
                    then: Vec::new(),
                };
                self.list = self.list_of_reader(decode.relative);
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
                self.number(*field, *comparison, suffix.as_deref())?;
            }
            RuleOption::Text(field, text) => self.text(*field, text)?,
            RuleOption::Dataset(set) => self.dataset(set)?,
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
        let names = self.names_of(list);
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
        self.check_size(list)
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
                    expected: "an expression in the syntax of PCRE2, within its limits",
                })?;
                let regex = Arc::new(regex);
                self.interner.regexes.insert(key, Arc::clone(&regex));
                regex
            }
        };
        let operation = Operation::Pcre(PcreTest {
            captures: super::captures::captures(pcre, &regex),
            regex,
            text: pcre.to_string().into(),
            is_negated: pcre.is_negated,
            is_relative: pcre.is_relative(),
        });
        self.push(list, operation);
        Ok(())
    }

    fn flow_states(&mut self, states: &[FlowState]) {
        self.flow.is_present = true;
        for state in states {
            self.flow.is_needed |= matches!(
                state,
                FlowState::Established
                    | FlowState::NotEstablished
                    | FlowState::ToServer
                    | FlowState::ToClient
            );
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

    fn number(
        &mut self,
        field: NumberField,
        comparison: Comparison,
        suffix: Option<&str>,
    ) -> Result<(), Reason> {
        match field {
            NumberField::VlanId => {
                let index = suffix.map_or(Ok(Selection::ANY), Index::parse_with_part)?;
                self.packet.push(PacketTest::Vlan { comparison, index });
            }
            NumberField::FlowPackets
            | NumberField::FlowPacketsToClient
            | NumberField::FlowPacketsToServer
            | NumberField::FlowBytes
            | NumberField::FlowBytesToClient
            | NumberField::FlowBytesToServer
            | NumberField::FlowAge => {
                let side = match (field, suffix) {
                    (NumberField::FlowPacketsToClient | NumberField::FlowBytesToClient, _)
                    | (_, Some("toclient")) => Side::Server,
                    (_, Some("either")) => Side::Either,
                    (_, Some("both")) => Side::Both,
                    _ => Side::Client,
                };
                self.packet.push(PacketTest::FlowCounter {
                    field,
                    side,
                    comparison,
                });
            }
            NumberField::Bsize if suffix == Some("relative") => {
                self.push(self.list, Operation::RemainingSize(comparison));
            }
            NumberField::Bsize => {
                self.push(self.list, Operation::Size(comparison));
                self.check_size(self.list)?;
            }
            NumberField::Urilen => {
                let buffer = match suffix {
                    Some("raw") => Buffer::HttpUriRaw,
                    _ => Buffer::HttpUri,
                };
                let list = self.new_list(buffer);
                self.operations(list).push(Operation::Size(comparison));
            }
            NumberField::EnipCipService => {
                self.app.push(AppTest::Number(field, comparison, Selection::ANY));
                let others = [NumberField::EnipCipClass, NumberField::EnipCipAttribute];
                let parts = suffix.unwrap_or_default().split(',').map(str::trim);
                for (field, part) in others.into_iter().zip(parts.filter(|part| !part.is_empty())) {
                    let comparison = Comparison::Equal(part.parse().unwrap_or_default());
                    self.app.push(AppTest::Number(field, comparison, Selection::ANY));
                }
            }
            field if fields::is_of_transaction(field) => {
                let index = suffix.map_or(Ok(Selection::ANY), Index::parse_with_part)?;
                self.app.push(AppTest::Number(field, comparison, index));
            }
            _ => self.packet.push(PacketTest::Number(field, comparison)),
        }
        Ok(())
    }

    /// Adds a content of a buffer of its own.
    fn content_of(&mut self, buffer: Buffer, text: &str, content: Content) -> Result<(), Reason> {
        let (is_negated, quoted) = negation(text);
        let content = Content {
            pattern: quoted.trim_matches('"').as_bytes().to_vec(),
            is_negated,
            ..content
        };
        let before = self.list;
        self.list = self.new_list(buffer);
        self.content(&content)?;
        self.list = before;
        Ok(())
    }

    fn text(&mut self, field: TextField, text: &str) -> Result<(), Reason> {
        match field {
            // Packets after an alert are not recorded.
            TextField::Target | TextField::Tag => {}
            TextField::TcpFlags => self.packet.push(words::tcp_flags(text)?),
            TextField::FragBits => self.packet.push(words::fragment_bits(text)?),
            TextField::IpProtocol => self.packet.push(words::ip_protocol(text)?),
            TextField::StreamSize => self.packet.push(words::stream_size(text)?),
            TextField::AppLayerProtocol => {
                let condition = ProtocolCondition::parse(text)?;
                let mut test = ProtocolOfFlow {
                    protocols: Vec::new(),
                    is_negated: condition.is_negated,
                    takes_unknown: false,
                    of: condition.of,
                };
                for name in condition.names {
                    match name {
                        "unknown" => test.takes_unknown = true,
                        name => test
                            .protocols
                            .extend(protocols::by_name(name, condition.is_exact)?),
                    }
                }
                self.check_protocol(&test)?;
                self.app.push(AppTest::Protocol(test));
            }
            TextField::TlsSubject => self.content_of(Buffer::TlsCertSubject, text, Content::default())?,
            TextField::TlsIssuer => self.content_of(Buffer::TlsCertIssuer, text, Content::default())?,
            TextField::SshSoftwareVersion => {
                self.content_of(Buffer::SshSoftware, text, Content::default())?;
            }
            TextField::IkeVendor => self.content_of(Buffer::IkeVendor, text, Content::default())?,
            TextField::TlsFingerprint | TextField::FileNameText => {
                let buffer = match field {
                    TextField::TlsFingerprint => Buffer::TlsCertFingerprint,
                    _ => Buffer::FileName,
                };
                let content = Content {
                    nocase: true,
                    ..Content::default()
                };
                self.content_of(buffer, text, content)?;
            }
            TextField::FileExtension => {
                let (is_negated, quoted) = negation(text);
                let sign = if is_negated { "!" } else { "" };
                let content = Content {
                    nocase: true,
                    endswith: true,
                    ..Content::default()
                };
                let text = format!("{sign}\".{}\"", quoted.trim_matches('"'));
                self.content_of(Buffer::FileName, &text, content)?;
            }
            TextField::FileMd5 | TextField::FileSha1 | TextField::FileSha256 => self.digest(field, text)?,
            TextField::FileStore => self.store = Some(words::store(text)),
            TextField::Entropy => {
                let entropy = Entropy::parse(text).ok_or_else(|| Reason::Invalid {
                    problem: format!("the value \"{text}\""),
                    expected: field.form(),
                })?;
                self.push(self.list, Operation::Entropy(entropy));
            }
            TextField::Rpc => {
                let mut parts = text.split(',').map(|part| part.trim().parse().ok());
                self.packet.push(PacketTest::Rpc {
                    program: parts.next().flatten().unwrap_or_default(),
                    version: parts.next().flatten(),
                    procedure: parts.next().flatten(),
                });
            }
            TextField::Bypass => self.bypasses = true,
            TextField::Config => {
                let is_logging = text.trim_start().starts_with("logging");
                self.disables = Some(if is_logging {
                    Disabled::Logging
                } else {
                    Disabled::Tracking
                });
            }
            // Certificates are not stored; the conditions of the rule hold without that.
            TextField::TlsStore | TextField::Prefilter | TextField::Requires => {}
            TextField::AddressReputation => {
                let test = words::reputation(text, &self.interner.reputation)?;
                self.packet.push(PacketTest::Reputation(test));
            }
            TextField::Country => {
                let test = words::country(text, &self.interner.countries)?;
                self.packet.push(PacketTest::Country(test));
            }
            TextField::AlertToo => self.alerts_on_pass = true,
            TextField::Absent => {
                let List::Buffer(at) = self.list else {
                    return Err(Reason::Invalid {
                        problem: "absent without a buffer".to_owned(),
                        expected: "a sticky buffer before it",
                    });
                };
                if let Some(test) = self.buffers.get_mut(at) {
                    test.absence = match text {
                        "" => Absence::Required,
                        _ => Absence::Allowed,
                    };
                }
            }
            TextField::IpOptions => self.packet.push(words::ip_option(text)?),
            TextField::Ipv4Checksum
            | TextField::Tcpv4Checksum
            | TextField::Tcpv6Checksum
            | TextField::Udpv4Checksum
            | TextField::Udpv6Checksum
            | TextField::Icmpv4Checksum
            | TextField::Icmpv6Checksum => self.packet.push(words::checksum(field, text)),
            TextField::StreamEvent | TextField::DecodeEvent => {
                let event = match field {
                    TextField::StreamEvent => events::stream(text),
                    _ => events::decode(text),
                };
                let event = event.map_err(|why| Reason::Unsupported { why })?;
                self.packet.push(PacketTest::Event(event));
            }
            TextField::AppLayerEvent if event(text).is_none() => {
                return Err(Reason::Unsupported {
                    why: why_refused(text).unwrap_or("no parser of the engine raises this event"),
                });
            }
            field if !fields::is_known(field, text) => {
                return Err(Reason::Invalid {
                    problem: format!("the value \"{text}\""),
                    expected: field.form(),
                });
            }
            field => self.app.push(AppTest::Field(field, text.to_owned())),
        }
        Ok(())
    }
}

pub(super) fn negation(text: &str) -> (bool, &str) {
    match text.trim().strip_prefix('!') {
        Some(rest) => (true, rest.trim()),
        None => (false, text.trim()),
    }
}

/// Compiles a transform.
fn step(transform: &Transform) -> Result<Step, Reason> {
    let Transform::PcreXform(text) = transform else {
        return Ok(Step::Plain(transform.clone()));
    };
    let regex = Regex::new(text.as_bytes(), Flags::default()).map_err(|error| Reason::Invalid {
        problem: error.to_string(),
        expected: "an expression in the syntax of PCRE2, within its limits",
    })?;
    Ok(Step::Group(text.clone(), Arc::new(regex)))
}
