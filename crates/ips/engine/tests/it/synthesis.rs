//! Flows that are made from the options of a rule: the rule fires on its flow, and not where its pattern is broken.
//!
//! The rules are 200 of Emerging Threats Open (BSD). A flow is made from contents, their places and sizes; rules with
//! expressions, numbers in the payload, responses or state of other rules are not synthesised yet.

use millrace_ips_engine::Mode;
use millrace_ips_engine::app::AppProtocol;
use millrace_ips_engine::detect::program::{Operand, Operation, RuleType};
use millrace_ips_engine::detect::{CompileSettings, DetectSettings, Rule, Scratch, Subject, compile, oracle};
use millrace_ips_engine::flow::Direction;
use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::Comparison;
use millrace_ips_rules::{RuleSet, Syntax, Variables, files};

use crate::frames::{alerts, tcp, udp};

/// Least number of rules of the sample for which a flow is made.
const SYNTHESISED: usize = 70;

fn number(operand: Option<Operand>) -> Option<usize> {
    match operand {
        None => Some(0),
        Some(Operand::Number(number)) => Some(usize::try_from(number).unwrap_or(0)),
        Some(Operand::Variable(_)) => None,
    }
}

fn holds(operations: &[Operation], bytes: &[u8]) -> bool {
    let mut scratch = Scratch::new(DetectSettings::default().pcre, false);
    scratch.begin();
    oracle::matches(operations, &Subject::whole(bytes), &mut scratch)
}

/// Returns bytes that the operations match.
fn fill(operations: &[Operation]) -> Option<Vec<u8>> {
    const FILLER: u8 = b'x';
    let mut bytes: Vec<u8> = Vec::new();
    let mut least = 0;
    for operation in operations {
        match operation {
            Operation::Content(content) if content.is_negated => {}
            Operation::Content(content) => {
                let place = match content.is_relative() {
                    true => bytes.len() + number(content.distance)?,
                    false => number(content.offset)?.max(bytes.len()),
                };
                bytes.resize(place, FILLER);
                bytes.extend_from_slice(&content.pattern);
            }
            Operation::Size(Comparison::Equal(size)) => least = usize::try_from(*size).ok()?,
            Operation::Size(Comparison::Greater(size) | Comparison::Between(size, _)) => {
                least = usize::try_from(*size).ok()? + 1;
            }
            Operation::Size(_) => {}
            Operation::IsDataAt {
                position,
                is_relative,
                is_negated: false,
            } => {
                let base = if *is_relative { bytes.len() } else { 0 };
                least = base + number(Some(*position))? + 1;
            }
            Operation::IsDataAt { .. } => {}
            _ => return None,
        }
    }
    if bytes.len() < least {
        bytes.resize(least, FILLER);
    }
    holds(operations, &bytes).then_some(bytes)
}

/// The bytes of each part of a message.
type Parts = Vec<(Buffer, Vec<u8>)>;

/// Returns the messages of a flow that has these parts.
fn compose(rule: &Rule, parts: &Parts, payload: &[u8], port: u16) -> Option<Vec<Vec<u8>>> {
    let part = |buffer: Buffer| {
        parts
            .iter()
            .find(|(known, _)| *known == buffer)
            .map(|(_, bytes)| bytes)
    };
    if rule.protocol.app.contains(&AppProtocol::Dns) {
        let name = part(Buffer::DnsQuery)?;
        let mut bytes = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split(|byte| *byte == b'.') {
            if label.is_empty() || label.len() > 63 {
                return None;
            }
            bytes.push(label.len() as u8);
            bytes.extend(label);
        }
        bytes.extend([0, 0, 1, 0, 1]);
        return Some(vec![udp(53, false, &bytes)]);
    }
    // Payload beside an application protocol would have to be placed in one of its parts.
    if !rule.protocol.app.is_empty() && !rule.payload.is_empty() {
        return None;
    }
    if rule.protocol.app.contains(&AppProtocol::Http) {
        let is_token = |bytes: &Vec<u8>| bytes.iter().all(u8::is_ascii_uppercase);
        let is_line = |bytes: &Vec<u8>| {
            bytes.iter().all(u8::is_ascii_graphic) || bytes.iter().all(|byte| matches!(byte, b' '..=b'~'))
        };
        let body = part(Buffer::HttpRequestBody).cloned().unwrap_or_default();
        let default = if body.is_empty() {
            b"GET".to_vec()
        } else {
            b"POST".to_vec()
        };
        let method = part(Buffer::HttpMethod).cloned().unwrap_or(default);
        let uri = part(Buffer::HttpUri).cloned().unwrap_or_else(|| b"/".to_vec());
        let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b"%\\#+;".contains(byte);
        let has_segments = uri.windows(2).any(|pair| matches!(pair, b"//" | b"/."));
        if !is_token(&method) || uri.first() != Some(&b'/') || !uri.iter().all(is_plain) || has_segments {
            return None;
        }
        let host = part(Buffer::HttpHost)
            .cloned()
            .unwrap_or_else(|| b"host.example".to_vec());
        let mut lines = vec![("Host", host)];
        let headers = [
            (Buffer::HttpUserAgent, "User-Agent"),
            (Buffer::HttpReferer, "Referer"),
            (Buffer::HttpCookie, "Cookie"),
            (Buffer::HttpContentType, "Content-Type"),
            (Buffer::HttpAccept, "Accept"),
        ];
        for (buffer, name) in headers {
            lines.extend(part(buffer).cloned().map(|bytes| (name, bytes)));
        }
        let known = [
            Buffer::HttpRequestBody,
            Buffer::HttpMethod,
            Buffer::HttpUri,
            Buffer::HttpHost,
        ];
        let is_known = |buffer: &Buffer| known.contains(buffer) || headers.iter().any(|(it, _)| it == buffer);
        if !parts.iter().all(|(buffer, _)| is_known(buffer)) {
            return None;
        }
        if !lines
            .iter()
            .all(|(_, bytes)| is_line(bytes) && bytes.trim_ascii() == &bytes[..])
        {
            return None;
        }
        let mut bytes = [&method[..], b" ", &uri, b" HTTP/1.1\r\n"].concat();
        for (name, value) in lines {
            bytes.extend([name.as_bytes(), b": ", &value, b"\r\n"].concat());
        }
        bytes.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
        bytes.extend(body);
        return Some(tcp(port, &[(false, bytes)], 1000));
    }
    if !parts.is_empty() || !rule.protocol.app.is_empty() {
        return None;
    }
    let is_reply = rule.flow.direction == Some(Direction::ToClient);
    match rule.protocol.ip[..] {
        // The first datagram of a flow is from the client; both directions make it established.
        [17] => Some(vec![
            udp(port, is_reply, payload),
            udp(port, !is_reply, b"-"),
            udp(port, is_reply, payload),
        ]),
        [6] if !is_reply => Some(tcp(port, &[(false, payload.to_vec())], 1000)),
        _ => None,
    }
}

/// Returns the frames of a flow on which the rule fires, and of one with its pattern broken.
fn synthesise(rule: &Rule) -> Option<[Vec<Vec<u8>>; 2]> {
    let has_ends = rule.source.addresses.is_some() || rule.destination.addresses.is_some();
    let is_plain =
        rule.state.is_empty() && rule.app.is_empty() && rule.packet.is_empty() && rule.rate.is_none();
    if has_ends || rule.source.ports.is_some() || !is_plain || rule.is_silent || rule.kind == RuleType::IpOnly
    {
        return None;
    }
    let ports = rule.destination.ports.as_ref();
    let port = ports.map_or(Some(4000), |ranges| u16::try_from(ranges.first().first()?.0).ok())?;
    let mut parts: Parts = Vec::new();
    for test in &rule.buffers {
        if !test.transforms.is_empty() || parts.iter().any(|(known, _)| *known == test.buffer) {
            return None;
        }
        parts.push((test.buffer, fill(&test.operations)?));
    }
    let mut payload = fill(&rule.payload)?;
    let whole = compose(rule, &parts, &payload, port)?;
    let pattern = rule.fast_pattern.as_ref()?;
    let (operations, bytes) = match pattern.test {
        Some(at) => (
            &rule.buffers.get(usize::from(at))?.operations,
            &mut parts.get_mut(usize::from(at))?.1,
        ),
        None => (&rule.payload, &mut payload),
    };
    let size = pattern.bytes.len();
    let at = bytes
        .windows(size)
        .position(|window| window.eq_ignore_ascii_case(&pattern.bytes))?;
    // A letter that stands for one of the pattern, and is of the same kind.
    let place = bytes.get_mut(at + size / 2)?;
    *place = if *place == b'Q' { b'Z' } else { b'Q' };
    if holds(operations, bytes) {
        return None;
    }
    let broken = compose(rule, &parts, &payload, port)?;
    Some([whole, broken])
}

#[test]
fn rules_fire_on_flows_made_from_them_and_not_on_broken_ones() {
    let text = include_bytes!("../../../rules/tests/data/et-open-sample.rules");
    let mut set = RuleSet::default();
    set.add(
        "sample",
        files::parse(Syntax::Suricata, "sample", text),
        &Variables::usual(),
    );
    let (all, refusals) = compile(&set, &CompileSettings::default());
    assert!(refusals.is_empty(), "{refusals:?}");
    let (mut synthesised, mut wrong) = (0, Vec::new());
    for rule in &all.rules {
        let Some([whole, broken]) = synthesise(rule) else {
            continue;
        };
        synthesised += 1;
        for mode in [Mode::Ids, Mode::Ips] {
            if !alerts(&all, &whole, mode).contains(&rule.sid) {
                wrong.push(format!("sid {} does not fire, {mode:?}", rule.sid));
            }
            if alerts(&all, &broken, mode).contains(&rule.sid) {
                wrong.push(format!("sid {} fires on the broken flow, {mode:?}", rule.sid));
            }
        }
    }
    println!("{synthesised} of {} rules", all.rules.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(synthesised >= SYNTHESISED, "{synthesised} rules");
}
