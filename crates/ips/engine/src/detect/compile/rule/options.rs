//! The options of a rule, added to the rule under construction.

use std::sync::Arc;

use memchr::memmem::Finder;
use millrace_ips_pcre::{Flags, Regex};
use millrace_ips_rules::Reason;
use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::RuleOption;
use millrace_ips_rules::options::content::{Content, Pcre};
use millrace_ips_rules::options::number::{Comparison, NumberField};
use millrace_ips_rules::options::state::FlowState;
use millrace_ips_rules::options::words::TextField;

use super::Builder;
use crate::app::event;
use crate::detect::compile::bytes::{self, List};
use crate::detect::compile::fast_pattern::Candidate;
use crate::detect::compile::protocols;
use crate::detect::compile::words::{self, Shared};
use crate::detect::fields;
use crate::detect::program::{AppTest, BufferTest, ContentTest, Operand, Operation, PacketTest, PcreTest};
use crate::flow::Direction;

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

    /// Returns the list of an option that reads bytes. Behind legacy modifiers (`content:"/a"; http_uri; isdataat:!1,relative;`),
    /// a relative option reads on where the last match ended, in the buffer of that match.
    fn list_of_reader(&self, is_relative: bool) -> List {
        match self.list {
            List::Payload if is_relative => self.last_list,
            list => list,
        }
    }

    /// Adds an operation to a list, or to the last Base64 decoding in the list.
    fn push(&mut self, list: List, operation: Operation) {
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
                let is_relative = option.arguments.iter().any(|argument| argument == "relative");
                let list = self.list_of_reader(is_relative);
                let operation = bytes::compile(option, self.names.of(list))?;
                self.push(list, operation);
            }
            RuleOption::IsDataAt(test) => {
                let list = self.list_of_reader(test.relative);
                let operation = Operation::IsDataAt {
                    position: self.names.of(list).operand(&test.position)?,
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
        let names = self.names.of(list);
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
                    expected: "an expression in the syntax of PCRE2, within its limits",
                })?;
                let regex = Arc::new(regex);
                self.interner.regexes.insert(key, Arc::clone(&regex));
                regex
            }
        };
        let operation = Operation::Pcre(PcreTest {
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

    fn number(&mut self, field: NumberField, comparison: Comparison, suffix: Option<&str>) {
        match field {
            NumberField::Bsize if suffix == Some("relative") => {
                self.push(self.list, Operation::RemainingSize(comparison));
            }
            NumberField::Bsize => self.push(self.list, Operation::Size(comparison)),
            NumberField::Urilen => {
                let buffer = match suffix {
                    Some("raw") => Buffer::HttpUriRaw,
                    _ => Buffer::HttpUri,
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
            // Packets after an alert are not recorded.
            TextField::Target | TextField::Tag => {}
            TextField::TcpFlags => self.packet.push(words::tcp_flags(text)?),
            TextField::FragBits => self.packet.push(words::fragment_bits(text)?),
            TextField::IpProtocol => self.packet.push(words::ip_protocol(text)?),
            TextField::StreamSize => self.packet.push(words::stream_size(text)?),
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
            TextField::AppLayerEvent if event(text).is_none() => {
                return Err(Reason::Unsupported {
                    why: "no parser of the engine raises this event",
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

fn negation(text: &str) -> (bool, &str) {
    match text.trim().strip_prefix('!') {
        Some(rest) => (true, rest.trim()),
        None => (false, text.trim()),
    }
}
