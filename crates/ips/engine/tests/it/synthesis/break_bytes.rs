//! Bytes of a payload or buffer with one operation broken: it does not match any more, and those before it still do.

use millrace_ips_engine::detect::program::{BufferTest, Operation, Step, compare};
use millrace_ips_rules::buffers::Buffer;

use super::breaks::{Broken, Kind};
use super::compose::Made;
use super::conversation::{Conversation, Message};
use super::expression::Expression;
use super::fill::holds;
use super::http::split;
use super::parts::transformed;
use super::random::Random;

/// The bytes that a list of operations looks at.
#[derive(Clone, Copy)]
enum Place<'a> {
    Payload,
    Buffer(&'a BufferTest),
}

/// Returns true if an operation is of a kind.
fn is_of(operation: &Operation, kind: Kind) -> bool {
    match operation {
        Operation::Content(content) => match content.is_negated {
            true => kind == Kind::ForbiddenContent,
            false => kind == Kind::Content,
        },
        Operation::Pcre(test) => match test.is_negated {
            true => kind == Kind::ForbiddenExpression,
            false => kind == Kind::Expression,
        },
        Operation::ByteTest { .. } | Operation::ByteJump { .. } | Operation::ByteMath { .. } => {
            kind == Kind::Number
        }
        Operation::IsDataAt { .. } => kind == Kind::DataAt,
        Operation::Size(_) | Operation::RemainingSize(_) => kind == Kind::Size,
        Operation::ByteExtract { .. }
        | Operation::Base64 { .. }
        | Operation::Set(_)
        | Operation::Entropy(_) => false,
    }
}

/// Breaks one of the conditions of a kind on bytes.
pub(crate) fn of_bytes(made: &Made<'_>, kind: Kind, random: &mut Random) -> Option<Option<Broken>> {
    let rule = made.rule;
    let mut targets: Vec<(Place<'_>, &[Operation], usize)> = Vec::new();
    let of_kind = |operations: &[Operation]| -> Vec<usize> {
        let some = operations.iter().enumerate().filter(|(_, it)| is_of(it, kind));
        some.map(|(index, _)| index).collect()
    };
    for index in of_kind(&rule.payload) {
        targets.push((Place::Payload, &rule.payload, index));
    }
    for test in &rule.buffers {
        for index in of_kind(&test.operations) {
            targets.push((Place::Buffer(test), &test.operations, index));
        }
    }
    let has_size = kind == Kind::Size && !made.sizes.is_empty();
    if targets.is_empty() && !has_size {
        return None;
    }
    if has_size && made.draft.app.is_none() {
        return Some(broken_size(made));
    }
    while !targets.is_empty() {
        let (place, operations, index) = targets.swap_remove(random.below(targets.len()));
        let Some(changed) = changed(made, place, operations, index, random) else {
            continue;
        };
        let Ok(conversation) = changed.conversation() else {
            continue;
        };
        if !is_elsewhere(&changed, place, operations, kind, &conversation) {
            return Some(Some(conversation.into()));
        }
    }
    Some(None)
}

/// Returns the conversation with a payload of another size, in which all operations still match.
fn broken_size(made: &Made<'_>) -> Option<Broken> {
    let is_wrong = |size: usize| made.sizes.iter().any(|it| !compare(*it, size as u64));
    let mut changed = made.clone();
    for step in 1..2000 {
        let longer = [&made.payload[..], &vec![b'q'; step]].concat();
        let shorter = made.payload[..made.payload.len().saturating_sub(step)].to_vec();
        for bytes in [longer, shorter] {
            if is_wrong(bytes.len()) && !bytes.is_empty() && holds(&made.rule.payload, &bytes) {
                changed.payload = bytes;
                let conversation = changed.conversation().ok()?;
                let is_match =
                    |(_, bytes): &Message| !is_wrong(bytes.len()) && holds(&made.rule.payload, bytes);
                return (!conversation.messages.iter().any(is_match)).then(|| conversation.into());
            }
        }
    }
    None
}

/// Returns the parts with a condition broken, and those before it in its list intact.
fn changed<'a>(
    made: &Made<'a>,
    place: Place<'_>,
    operations: &[Operation],
    index: usize,
    random: &mut Random,
) -> Option<Made<'a>> {
    const TRIES: usize = 80;
    let mut changed = made.clone();
    let no_transforms: &[Step] = &[];
    let transforms = match place {
        Place::Payload => no_transforms,
        Place::Buffer(test) => &test.transforms,
    };
    let bytes = match place {
        Place::Payload => &mut changed.payload,
        // The size of the raw URI is that of the normalised one here.
        Place::Buffer(test) => match changed.parts.of_mut(test.buffer) {
            Some(bytes) => bytes,
            None => changed.parts.of_mut(Buffer::HttpUri)?,
        },
    };
    let original = bytes.clone();
    for attempt in 0..TRIES {
        let mut candidate = original.clone();
        mutate(&mut candidate, &operations[index], attempt, random)?;
        if !is_carried(made, place, &candidate, original.len()) {
            continue;
        }
        let seen = transformed(transforms, &candidate);
        if holds(&operations[..index], &seen) && !holds(&operations[..=index], &seen) {
            *bytes = candidate;
            return Some(changed);
        }
    }
    None
}

/// Returns true if a message can carry bytes as they are. `size` is their size before the change.
fn is_carried(made: &Made<'_>, place: Place<'_>, bytes: &[u8], size: usize) -> bool {
    let Place::Buffer(test) = place else {
        return true;
    };
    let has = |buffer| made.parts.of(buffer).is_some();
    match test.buffer {
        // The first line has parts of its own.
        Buffer::HttpUri | Buffer::HttpUriRaw | Buffer::HttpMethod | Buffer::HttpProtocol
            if has(Buffer::HttpStart) || has(Buffer::HttpRequestLine) =>
        {
            false
        }
        Buffer::HttpStart | Buffer::TlsCerts => bytes.len() == size,
        // A port and a dot at the end are no part of the normalised host.
        Buffer::HttpHost if bytes.contains(&b':') || bytes.ends_with(b".") => false,
        Buffer::TlsCertSubject | Buffer::TlsCertIssuer => {
            let known: [&[u8]; 5] = [b"CN=", b"C=", b"O=", b"OU=", b"ST="];
            known.iter().any(|key| bytes.starts_with(key))
        }
        // A request writes a slash in front of others, and the engine removes dot segments and repeated slashes.
        Buffer::HttpUri | Buffer::HttpUriRaw => {
            let is_slash = |byte: &u8| matches!(byte, b'/' | b'.');
            let count = |bytes: &[u8]| bytes.iter().filter(|byte| is_slash(byte)).count();
            let own = made.parts.of(Buffer::HttpUri).or(made.parts.of(test.buffer));
            // A message with both forms of the URI has its raw URI as a part of its own, whose size stays the
            // same.
            let is_alone = !(has(Buffer::HttpUri) && has(Buffer::HttpUriRaw)) || bytes.len() == size;
            let has_two = bytes.windows(2).any(|pair| pair == b"//");
            is_alone && bytes.starts_with(b"/") && !has_two && count(bytes) <= count(own.unwrap_or_default())
        }
        Buffer::FileData | Buffer::HttpRequestBody | Buffer::HttpResponseBody => {
            let of_size = |(buffer, text): &(Buffer, Vec<u8>)| {
                let text = text.to_ascii_lowercase();
                *buffer == Buffer::HttpContentLen || text.windows(14).any(|it| it == b"content-length")
            };
            bytes.len() == size || !made.parts.list().iter().any(of_size)
        }
        _ => true,
    }
}

/// Returns the header lines of the messages, and their names, as the rule language has them.
fn header_lines(conversation: &Conversation, is_reply: bool) -> (Vec<u8>, Vec<u8>) {
    let (mut lines, mut names) = (Vec::new(), b"\r\n".to_vec());
    for (_, message) in conversation.messages.iter().filter(|it| it.0 == is_reply) {
        let end = message.windows(4).position(|it| it == b"\r\n\r\n");
        let head = &message[..end.unwrap_or(message.len())];
        for line in split(head, b"\r\n").into_iter().skip(1) {
            let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
            let value = line.get(colon + 1..).unwrap_or_default().trim_ascii();
            lines.extend([&line[..colon], b": ", value, b"\r\n"].concat());
            names.extend([&line[..colon], b"\r\n"].concat());
        }
    }
    names.extend(b"\r\n");
    (lines, names)
}

/// Returns a letter that a byte is replaced with.
fn other(byte: u8) -> u8 {
    if byte.eq_ignore_ascii_case(&b'q') {
        b'z'
    } else {
        b'q'
    }
}

/// Changes bytes so that an operation perhaps no longer matches.
fn mutate(bytes: &mut Vec<u8>, operation: &Operation, attempt: usize, random: &mut Random) -> Option<()> {
    match operation {
        Operation::Content(content) if !content.is_negated => {
            let pattern = &content.pattern;
            let is_it = |window: &[u8]| window.eq_ignore_ascii_case(pattern);
            let mut from = 0;
            // A line end stays one.
            let is_of_line = |at: &usize| !matches!(pattern[*at], b'\r' | b'\n');
            let free: Vec<usize> = (0..pattern.len()).filter(is_of_line).collect();
            let within = match free.is_empty() {
                true => 0,
                false => random.choose(&free),
            };
            while let Some(at) = bytes
                .get(from..)
                .and_then(|rest| rest.windows(pattern.len()).position(is_it))
            {
                let place = &mut bytes[from + at + within];
                *place = other(*place);
                from += at + 1;
            }
            // The dot in front of a name is not among the bytes.
            if from == 0 && attempt.is_multiple_of(2) && !bytes.is_empty() {
                let at = random.below(bytes.len());
                bytes[at] = other(bytes[at]);
            }
        }
        Operation::Content(content) => insert(bytes, &content.pattern, attempt, random),
        Operation::Pcre(test) if test.is_negated => {
            let text = test.text.split_once('"')?.1.strip_prefix('/')?;
            let (pattern, flags) = text.trim_end_matches("\";").rsplit_once('/')?;
            let written = Expression::read(pattern, flags)?.write(random)?;
            insert(bytes, &written.bytes, attempt, random);
        }
        Operation::Size(_) | Operation::RemainingSize(_) | Operation::IsDataAt { .. } => {
            let step = attempt / 2 + 1;
            match attempt % 2 {
                0 => bytes.extend(vec![b'q'; step]),
                _ => bytes.truncate(bytes.len().saturating_sub(step).max(1)),
            }
        }
        _ => {
            for _ in 0..=attempt / 8 {
                let at = random.below(bytes.len().max(1));
                let place = bytes.get_mut(at)?;
                *place = match random.below(3) {
                    0 => other(*place),
                    1 => b'7',
                    _ => random.choose(b"kZ2_"),
                };
            }
        }
    }
    Some(())
}

/// Inserts a text at the end, at the beginning or somewhere else in the bytes, or replaces bytes with it.
fn insert(bytes: &mut Vec<u8>, text: &[u8], attempt: usize, random: &mut Random) {
    let at = match attempt {
        0 => bytes.len(),
        1 => 0,
        _ => random.below(bytes.len() + 1),
    };
    let replaced = match attempt % 4 {
        3 => text.len().min(bytes.len() - at),
        _ => 0,
    };
    bytes.splice(at..at + replaced, text.iter().copied());
}

/// Returns true if the value of a header is not in the messages, because the rule also has the header as
/// text. Also returns true if a parser may read the header lines in another way.
fn is_replaced(made: &Made<'_>, buffer: Buffer, conversation: &Conversation) -> bool {
    let name = format!("{buffer:?}");
    if !name.starts_with("Http") {
        return false;
    }
    // A bare CR or LF ends a line for some readers, and a blank at the begin of a line continues the one before (ADR 40).
    let is_bare = |pair: &[u8]| {
        (pair[0] == b'\r') != (pair[1] == b'\n') || pair[0] == b'\n' && matches!(pair[1], b' ' | b'\t')
    };
    let head = |message: &[u8]| message.windows(4).position(|it| it == b"\r\n\r\n").unwrap_or(0);
    let messages = conversation.messages.iter().map(|(_, bytes)| bytes);
    if messages
        .clone()
        .any(|bytes| bytes[..head(bytes)].windows(2).any(is_bare))
    {
        return true;
    }
    let of_header = [
        Buffer::HttpHost,
        Buffer::HttpUserAgent,
        Buffer::HttpReferer,
        Buffer::HttpContentType,
        Buffer::HttpAccept,
        Buffer::HttpAcceptEnc,
        Buffer::HttpAcceptLang,
        Buffer::HttpConnection,
        Buffer::HttpCookie,
        Buffer::HttpServer,
        Buffer::HttpLocation,
    ];
    let value = made.parts.of(buffer).unwrap_or_default();
    let has_value = |bytes: &Vec<u8>| {
        let line = [b": ", value, b"\r\n"].concat();
        bytes.windows(line.len()).any(|it| it.eq_ignore_ascii_case(&line))
    };
    of_header.contains(&buffer) && !messages.clone().any(has_value)
}

/// Returns true if another part of the conversation satisfies the conditions that are broken in one place.
fn is_elsewhere(
    made: &Made<'_>,
    place: Place<'_>,
    operations: &[Operation],
    kind: Kind,
    conversation: &Conversation,
) -> bool {
    if let Place::Buffer(test) = place {
        if is_replaced(made, test.buffer, conversation) {
            return true;
        }
        let (lines, names) = header_lines(conversation, made.draft.is_reply);
        let is_matched = match test.buffer {
            Buffer::HttpHeader | Buffer::HttpHeaderRaw => holds(operations, &lines),
            Buffer::HttpHeaderNames => holds(operations, &names),
            // A request line is completed where it is no valid one.
            Buffer::HttpRequestLine => {
                let line = made.parts.of(test.buffer).unwrap_or_default();
                !conversation
                    .messages
                    .iter()
                    .any(|(_, bytes)| bytes.starts_with(line))
            }
            _ => false,
        };
        if is_matched {
            return true;
        }
    }
    let is_of_payload = matches!(place, Place::Payload);
    if matches!(
        kind,
        Kind::ForbiddenContent | Kind::ForbiddenExpression | Kind::Size
    ) && !is_of_payload
    {
        return false;
    }
    if let Place::Buffer(test) = place {
        let is_other = |(buffer, bytes): &(Buffer, Vec<u8>)| {
            *buffer != test.buffer && holds(operations, &transformed(&test.transforms, bytes))
        };
        if made.parts.list().iter().any(is_other) {
            return true;
        }
    }
    let mut streams = [Vec::new(), Vec::new()];
    for (is_server, bytes) in &conversation.messages {
        streams[usize::from(*is_server)].extend_from_slice(bytes);
    }
    let messages = conversation.messages.iter().map(|(_, bytes)| bytes);
    messages.chain(&streams).any(|bytes| holds(operations, bytes))
}
