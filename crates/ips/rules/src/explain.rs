//! Explanation of a rule in plain words, option by option.

use crate::frames;
use crate::header::{Direction, Header};
use crate::options::RuleOption;
use crate::options::content::{Content, FastPattern, Operand, encode_pattern};
use crate::options::number::NumberField;
use crate::options::state::{BitOperation, BitScope, FlowState};
use crate::rule::Rule;

/// Returns the lines of the explanation: the header, and one line for each option.
pub fn explain(rule: &Rule) -> Vec<String> {
    let mut lines = vec![header(&rule.header)];
    let mut buffer = "the payload".to_owned();
    for option in &rule.options {
        if let RuleOption::Buffer(next, argument) = option {
            next.names().words.clone_into(&mut buffer);
            if let Some(argument) = argument {
                buffer = format!("{buffer} ({argument})");
            }
            continue;
        }
        if let RuleOption::Frame(name) = option {
            buffer = match frames::find(rule.header.protocol, name) {
                Ok(frame) => frame.names().words.to_owned(),
                Err(_) => format!("the frame {name}"),
            };
            continue;
        }
        lines.push(words(option, &buffer));
    }
    lines
}

fn header(header: &Header) -> String {
    let action = header.action;
    let hook = header.hook.map_or(String::new(), |hook| format!(" at {hook}"));
    let Some(ends) = &header.endpoints else {
        return format!("{action}: for {}{hook}, between any endpoints", header.protocol);
    };
    let arrow = match ends.direction {
        Direction::Forward => "to",
        Direction::Both => "to or from",
        Direction::Transaction => "with responses, to",
    };
    format!(
        "{action}: for {}{hook}, from {} port {} {arrow} {} port {}",
        header.protocol, ends.source, ends.source_ports, ends.destination, ends.destination_ports
    )
}

fn content(content: &Content, buffer: &str) -> String {
    let buffer = content.buffer.map_or(buffer, |buffer| buffer.names().words);
    let verb = if content.is_negated {
        "does not contain"
    } else {
        "contains"
    };
    let mut text = format!("{buffer} {verb} {}", encode_pattern(&content.pattern));
    let places = [
        (content.nocase, ", in upper or lower case".to_owned()),
        (content.startswith, ", at its beginning".to_owned()),
        (content.endswith, ", at its end".to_owned()),
        (content.rawbytes, ", before any decoding".to_owned()),
    ];
    for (_, place) in places.into_iter().filter(|(is_set, _)| *is_set) {
        text += &place;
    }
    text += &place(content);
    match content.fast_pattern {
        None => {}
        Some(FastPattern::Part { offset, size }) => {
            text += &format!(" (prefilter: {size} bytes from byte {offset})");
        }
        Some(_) => text += " (prefilter)",
    }
    text
}

/// Returns the position of a content in words.
fn place(content: &Content) -> String {
    let mut text = String::new();
    let number = |operand: &Operand| match operand {
        Operand::Number(number) => Some(*number),
        Operand::Name(_) => None,
    };
    if let Some(offset) = &content.offset {
        text += &format!(", from byte {offset}");
    }
    if let Some(depth) = &content.depth {
        text += &match content.offset {
            Some(_) => format!(", within {depth} bytes from there"),
            None => format!(", within the first {depth} bytes"),
        };
    }
    match (&content.distance, content.distance.as_ref().and_then(number)) {
        (None, _) if content.within.is_none() => {}
        (None, _) | (Some(_), Some(0)) => text += ", after the match before",
        (Some(_), Some(back @ ..0)) => {
            text += &format!(
                ", from {} bytes before the end of the match before",
                back.unsigned_abs()
            );
        }
        (Some(distance), _) => text += &format!(", from {distance} bytes after the match before"),
    }
    if let Some(within) = &content.within {
        text += &match content.distance.as_ref().and_then(number) {
            None | Some(0) => format!(", within {within} bytes"),
            Some(_) => format!(", within {within} bytes from there"),
        };
    }
    text
}

fn flow(state: FlowState) -> &'static str {
    match state {
        FlowState::Established => "the connection is established",
        FlowState::NotEstablished => "the connection is not yet established",
        FlowState::Stateless => "the connection may be in any state",
        FlowState::ToServer => "the packet goes to the server",
        FlowState::ToClient => "the packet goes to the client",
        FlowState::OnlyStream => "only reassembled data is inspected",
        FlowState::NoStream => "only packets are inspected",
        FlowState::OnlyFrag => "only reassembled fragments are inspected",
        FlowState::NoFrag => "reassembled fragments are not inspected",
    }
}

/// Returns an option in words; `buffer` is the buffer that the options before it selected.
fn words(option: &RuleOption, buffer: &str) -> String {
    match option {
        RuleOption::Msg(text) => format!("message: {text}"),
        RuleOption::Remark(text) => format!("remark: {text}"),
        RuleOption::Sid(n) => format!("sid (number of the rule): {n}"),
        RuleOption::Rev(n) => format!("revision: {n}"),
        RuleOption::Gid(n) => format!("generator: {n}"),
        RuleOption::Priority(n) => format!("priority: {n} (1 is the highest)"),
        RuleOption::Classtype(class) => format!("class: {class}"),
        RuleOption::Reference { system, id } => format!("see {system}: {id}"),
        RuleOption::Metadata(texts) => format!("metadata: {}", texts.join(", ")),
        RuleOption::Service(texts) => format!("service: {}", texts.join(" or ")),
        RuleOption::Content(it) => content(it, buffer),
        RuleOption::Buffer(next, _) => next.names().words.to_owned(),
        RuleOption::Frame(name) => format!("the frame {name}"),
        RuleOption::Transform(transform) => format!("{buffer} is changed first: {transform}"),
        RuleOption::Pcre(pcre) => {
            let buffer = pcre.buffer().map_or(buffer, |buffer| buffer.names().words);
            let verb = if pcre.is_negated {
                "does not match"
            } else {
                "matches"
            };
            let after = if pcre.is_relative() {
                ", after the match before"
            } else {
                ""
            };
            format!("{buffer} {verb} /{}/{}{after}", pcre.pattern, pcre.flags)
        }
        RuleOption::Byte(option) => format!("{}: in {buffer}, {}", option.kind, option.words()),
        RuleOption::IsDataAt(test) => {
            let verb = if test.is_negated { "no data" } else { "data" };
            let after = if test.relative {
                " after the match before"
            } else {
                ""
            };
            format!("{buffer} has {verb} at byte {}{after}", test.position)
        }
        RuleOption::Base64Decode(_) => format!("Base64 data of {buffer} is decoded"),
        RuleOption::Flow(states) => states
            .iter()
            .map(|state| flow(*state))
            .collect::<Vec<_>>()
            .join("; "),
        RuleOption::Bits(bits) => {
            let scope = match bits.scope {
                BitScope::Flow => "the flow",
                BitScope::Cross => "the address pair",
                BitScope::Host => "the host",
            };
            let names = bits.names.join(if bits.is_all { " and " } else { " or " });
            match bits.operation {
                BitOperation::Set => format!("on a match, {names} is set for {scope}"),
                BitOperation::Unset => format!("on a match, {names} is unset for {scope}"),
                BitOperation::Toggle => format!("on a match, {names} is inverted for {scope}"),
                BitOperation::IsSet => format!("{names} was set for {scope} by another rule"),
                BitOperation::IsNotSet => format!("{names} is not set for {scope}"),
                BitOperation::NoAlert => "a match raises no alert".to_owned(),
            }
        }
        RuleOption::FlowInt(counter) => {
            let value = counter.value.as_deref().unwrap_or_default();
            format!(
                "counter of the flow: {} {} {value}",
                counter.name, counter.operation
            )
            .trim_end()
            .to_owned()
        }
        RuleOption::Rate(rate) => rate.words(),
        RuleOption::Number(field, comparison, suffix) => {
            let suffix = suffix
                .as_ref()
                .map(|suffix| format!(" ({suffix})"))
                .unwrap_or_default();
            match field {
                // Numbers of procedures may stand for names.
                NumberField::NfsProcedure => {
                    format!("{} is {}{suffix}", field.words(), field.print(*comparison))
                }
                _ => format!("{} {}{suffix}", field.words(), comparison.words()),
            }
        }
        RuleOption::Text(field, text) => format!("{} {text}", field.words()),
        RuleOption::Dataset(set) => format!("{buffer} is looked up: {set}")
            .trim_end_matches(';')
            .to_owned(),
        RuleOption::NoAlert => "a match raises no alert".to_owned(),
        RuleOption::SameIp => "source and destination address are equal".to_owned(),
    }
}
