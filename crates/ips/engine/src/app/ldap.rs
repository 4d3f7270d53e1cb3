//! LDAP (RFC 4511): a request with its responses is a transaction.

use std::collections::VecDeque;

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::NumberField;

use super::ber::{INTEGER, OCTET_STRING, SEQUENCE, element, tagged, unsigned};
use super::framed::{Framed, Size, fields};
use super::parser::{Outcome, Parser};
use super::record::{FIELD_LIST, Fields, Record, Value};
use super::transaction::{Progress, Transaction, Transactions};
use super::{AppProtocol, Transport};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// Largest size of a message; longer ones are refused, as directory servers do.
const MESSAGE_SIZE: usize = 16 << 20;
/// The first byte of a record of TLS with a handshake message (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 0x16;
/// Largest number of requests that wait for responses.
const WAITING: usize = 256;
/// Largest number of attributes of a message that are read.
const ATTRIBUTES: usize = 256;

const ENUMERATED: u8 = 0x0a;
const SET: u8 = 0x31;

/// The operations by the number of their application tag (section 4.2 and following).
const OPERATIONS: &[(u8, &str)] = &[
    (0, "bind_request"),
    (1, "bind_response"),
    (2, "unbind_request"),
    (3, "search_request"),
    (4, "search_result_entry"),
    (5, "search_result_done"),
    (6, "modify_request"),
    (7, "modify_response"),
    (8, "add_request"),
    (9, "add_response"),
    (10, "del_request"),
    (11, "del_response"),
    (12, "mod_dn_request"),
    (13, "mod_dn_response"),
    (14, "compare_request"),
    (15, "compare_response"),
    (16, "abandon_request"),
    (19, "search_result_reference"),
    (23, "extended_request"),
    (24, "extended_response"),
    (25, "intermediate_response"),
];

/// The parser of a flow.
#[derive(Debug)]
pub(super) struct Ldap {
    framed: Framed,
    transport: Transport,
    /// Message identifiers of requests without their last response, with the transaction and the number of responses.
    waiting: VecDeque<(u32, u64, u64)>,
    has_message: bool,
}

heap!(Ldap { framed });

/// Reads the header of a message: the tag of a sequence, and a length (ITU-T X.690, section 8.1.3).
fn size(bytes: &[u8]) -> Size {
    match *bytes {
        [] | [0x30] => Size::Incomplete,
        // StartTLS (section 4.14) was accepted; the bytes wait for the change of protocol.
        [TLS_HANDSHAKE, ..] => Size::Incomplete,
        [0x30, size @ 0..=0x7f, ..] => Size::Known(2 + usize::from(size)),
        [0x30, count @ 0x81..=0x84, ref rest @ ..] => {
            let count = usize::from(count & 0x7f);
            let Some(digits) = rest.get(..count) else {
                return Size::Incomplete;
            };
            let size = digits
                .iter()
                .fold(0, |size, digit| size << 8 | usize::from(*digit));
            match size <= MESSAGE_SIZE {
                true => Size::Known(2 + count + size),
                false => Size::Invalid,
            }
        }
        _ => Size::Invalid,
    }
}

/// The parts of an operation that rules and records name.
#[derive(Default)]
struct Operation<'a> {
    kind: u8,
    dn: Option<&'a [u8]>,
    result: Option<u64>,
    message: Option<&'a [u8]>,
    attributes: Vec<&'a [u8]>,
    fields: Fields,
}

/// Returns the identifier and the operation of a message, of which only the first bytes may be there.
fn read(bytes: &[u8]) -> Option<(u32, Operation<'_>)> {
    let mut rest = bytes.get(1..)?;
    // The size of the message is known; its content may be cut.
    let first = *rest.first()?;
    rest = rest.get(
        1 + if first & 0x80 != 0 {
            usize::from(first & 0x7f)
        } else {
            0
        }..,
    )?;
    let identifier = unsigned(tagged(&mut rest, INTEGER)?) as u32;
    let tag = *rest.first()?;
    if tag & 0xc0 != 0x40 {
        return None;
    }
    let mut found = Operation {
        kind: tag & 0x1f,
        ..Operation::default()
    };
    let content = match element(&mut rest) {
        Some((_, content)) => content,
        None => return Some((identifier, found)),
    };
    // The content of an operation is read as far as it has its form.
    let _ = operation(content, &mut found);
    Some((identifier, found))
}

fn operation<'a>(mut content: &'a [u8], found: &mut Operation<'a>) -> Option<()> {
    match found.kind {
        0 => {
            let version = unsigned(tagged(&mut content, INTEGER)?);
            let name = tagged(&mut content, OCTET_STRING)?;
            found.dn = Some(name);
            found.fields.number("version", version).text("name", name);
        }
        3 => {
            let base = tagged(&mut content, OCTET_STRING)?;
            found.dn = Some(base);
            found.fields.text("base_object", base);
            let scope = unsigned(tagged(&mut content, ENUMERATED)?);
            let deref = unsigned(tagged(&mut content, ENUMERATED)?);
            let size_limit = unsigned(tagged(&mut content, INTEGER)?);
            let time_limit = unsigned(tagged(&mut content, INTEGER)?);
            let (_, types_only) = element(&mut content)?;
            found
                .fields
                .number("scope", scope)
                .number("deref_alias", deref)
                .number("size_limit", size_limit)
                .number("time_limit", time_limit)
                .flag("types_only", types_only != [0]);
            element(&mut content)?;
            let mut list = tagged(&mut content, SEQUENCE)?;
            while !list.is_empty() && found.attributes.len() < ATTRIBUTES {
                found.attributes.push(tagged(&mut list, OCTET_STRING)?);
            }
            found.fields.texts("attributes", found.attributes.iter().copied());
        }
        4 | 8 => {
            let dn = tagged(&mut content, OCTET_STRING)?;
            found.dn = Some(dn);
            found
                .fields
                .text(if found.kind == 4 { "base_object" } else { "entry" }, dn);
            let mut list = tagged(&mut content, SEQUENCE)?;
            let mut attributes = Vec::new();
            while !list.is_empty() && found.attributes.len() < ATTRIBUTES {
                let mut attribute = tagged(&mut list, SEQUENCE)?;
                let name = tagged(&mut attribute, OCTET_STRING)?;
                found.attributes.push(name);
                let mut values = tagged(&mut attribute, SET)?;
                let mut texts = Vec::new();
                while !values.is_empty() && texts.len() < FIELD_LIST {
                    texts.push(tagged(&mut values, OCTET_STRING)?);
                }
                if attributes.len() < FIELD_LIST {
                    let mut one = Fields::default();
                    one.text("name", name).texts("values", texts);
                    attributes.push(one);
                }
            }
            found.fields.objects("attributes", attributes);
        }
        6 => {
            let dn = tagged(&mut content, OCTET_STRING)?;
            found.dn = Some(dn);
            found.fields.text("object", dn);
            let mut list = tagged(&mut content, SEQUENCE)?;
            while !list.is_empty() && found.attributes.len() < ATTRIBUTES {
                let mut change = tagged(&mut list, SEQUENCE)?;
                tagged(&mut change, ENUMERATED)?;
                let mut attribute = tagged(&mut change, SEQUENCE)?;
                found.attributes.push(tagged(&mut attribute, OCTET_STRING)?);
            }
        }
        // The name is the content itself (section 4.8).
        10 => {
            found.dn = Some(content);
            found.fields.text("dn", content);
        }
        12 | 14 => {
            let dn = tagged(&mut content, OCTET_STRING)?;
            found.dn = Some(dn);
            found.fields.text("entry", dn);
            if found.kind == 14 {
                let mut assertion = tagged(&mut content, SEQUENCE)?;
                found.attributes.push(tagged(&mut assertion, OCTET_STRING)?);
            }
        }
        16 => {
            found.fields.number("message_id", unsigned(content));
        }
        23 => {
            let (tag, name) = element(&mut content)?;
            if tag == 0x80 {
                found.fields.text("name", name);
            }
        }
        1 | 5 | 7 | 9 | 11 | 13 | 15 | 24 => {
            let code = unsigned(tagged(&mut content, ENUMERATED)?);
            let dn = tagged(&mut content, OCTET_STRING)?;
            let message = tagged(&mut content, OCTET_STRING)?;
            found.result = Some(code);
            found.dn = Some(dn);
            found.message = Some(message);
            found
                .fields
                .number("result_code", code)
                .text("matched_dn", dn)
                .text("message", message);
        }
        _ => {}
    }
    Some(())
}

/// Returns true if an operation is one of the server.
fn is_response(kind: u8) -> bool {
    matches!(kind, 1 | 4 | 5 | 7 | 9 | 11 | 13 | 15 | 19 | 24 | 25)
}

impl Ldap {
    pub(super) fn new(transport: Transport) -> Ldap {
        Ldap {
            framed: Framed::default(),
            transport,
            waiting: VecDeque::new(),
            has_message: false,
        }
    }

    fn message(&mut self, direction: Direction, bytes: &[u8], out: &mut Transactions) {
        self.has_message = true;
        let Some((identifier, found)) = read(bytes) else {
            let transaction = out.start(AppProtocol::Ldap);
            transaction.raise("ldap.invalid_data");
            for side in Direction::BOTH {
                transaction.advance(side, Progress::Complete);
            }
            transaction.is_inspected[direction.reverse().index()] = true;
            return;
        };
        match is_response(found.kind) {
            true => self.response(direction, identifier, found, out),
            false => self.request(direction, identifier, found, out),
        }
    }

    fn request(
        &mut self,
        direction: Direction,
        identifier: u32,
        found: Operation<'_>,
        out: &mut Transactions,
    ) {
        let transaction = out.start(AppProtocol::Ldap);
        transaction.record = Record::Fields(Box::default());
        transaction.number(NumberField::LdapRequestOperation, direction, found.kind);
        if let Some(dn) = found.dn {
            transaction.publish(Buffer::LdapRequestDn, direction, dn);
        }
        for attribute in &found.attributes {
            transaction.publish(Buffer::LdapRequestAttribute, direction, *attribute);
        }
        let name = name_of(found.kind);
        fields(transaction, |out| {
            out.object("request", |out| {
                out.number("message_id", identifier)
                    .text("operation", name.as_bytes());
                if !found.fields.list.is_empty() {
                    out.list.push((name, Value::Object(found.fields)));
                }
            });
        });
        transaction.advance(direction, Progress::Complete);
        // Unbind and abandon have no response (sections 4.3 and 4.11).
        if matches!(found.kind, 2 | 16) {
            let other = direction.reverse();
            transaction.number(NumberField::LdapResponsesCount, other, 0u8);
            transaction.advance(other, Progress::Complete);
            return;
        }
        if self.waiting.len() >= WAITING {
            self.waiting.pop_front();
        }
        let id = transaction.id;
        self.waiting.push_back((identifier, id, 0));
    }

    fn response(
        &mut self,
        direction: Direction,
        identifier: u32,
        found: Operation<'_>,
        out: &mut Transactions,
    ) {
        let known = self
            .waiting
            .iter()
            .position(|(waiting, ..)| *waiting == identifier);
        let is_last = !matches!(found.kind, 4 | 19 | 25);
        let id = match known {
            Some(at) => {
                let (_, id, count) = &mut self.waiting[at];
                *count += 1;
                let (id, count) = (*id, *count);
                if is_last {
                    self.waiting.remove(at);
                }
                Some((id, count))
            }
            None => None,
        };
        let mut count = 1;
        let transaction = match id.and_then(|(id, responses)| {
            count = responses;
            out.list
                .iter()
                .any(|transaction| transaction.id == id)
                .then_some(id)
        }) {
            Some(id) => out.by_id(id),
            None => {
                let transaction = out.start(AppProtocol::Ldap);
                transaction.advance(direction.reverse(), Progress::Complete);
                transaction.is_inspected[direction.reverse().index()] = true;
                if id.is_none() {
                    transaction.raise("ldap.request_not_found");
                }
                Some(transaction)
            }
        };
        let Some(transaction) = transaction else {
            return;
        };
        publish_response(direction, identifier, found, transaction);
        if is_last || id.is_none() {
            transaction.number(NumberField::LdapResponsesCount, direction, count);
            transaction.advance(direction, Progress::Complete);
        } else {
            transaction.advance(direction, Progress::Body);
        }
    }
}

fn name_of(kind: u8) -> &'static str {
    let found = OPERATIONS.iter().find(|(number, _)| *number == kind);
    found.map_or("unknown", |(_, name)| name)
}

fn publish_response(
    direction: Direction,
    identifier: u32,
    found: Operation<'_>,
    transaction: &mut Transaction,
) {
    transaction.number(NumberField::LdapResponsesOperation, direction, found.kind);
    if let Some(result) = found.result {
        transaction.number(NumberField::LdapResponsesResultCode, direction, result);
    }
    // A response without these fields has empty buffers, as the documentation says.
    transaction.publish(Buffer::LdapResponsesDn, direction, found.dn.unwrap_or_default());
    transaction.publish(
        Buffer::LdapResponsesMessage,
        direction,
        found.message.unwrap_or_default(),
    );
    for attribute in &found.attributes {
        transaction.publish(Buffer::LdapResponsesAttribute, direction, *attribute);
    }
    let name = name_of(found.kind);
    let mut response = Fields::default();
    response
        .number("message_id", identifier)
        .text("operation", name.as_bytes());
    if !found.fields.list.is_empty() {
        response.list.push((name, Value::Object(found.fields)));
    }
    fields(transaction, |out| match out.value("responses") {
        Some(Value::Objects(list)) => {
            if list.len() < FIELD_LIST {
                list.push(response);
            }
        }
        _ => {
            out.objects("responses", vec![response]);
        }
    });
}

impl Parser for Ldap {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let direction = chunk.direction;
        let mut framed = core::mem::take(&mut self.framed);
        let outcome = framed.add(chunk, size, |message| {
            self.message(direction, message, out);
            true
        });
        self.framed = framed;
        // A datagram holds only complete messages.
        let rest = match self.transport {
            Transport::Udp => {
                self.framed.rest(direction);
                return outcome;
            }
            Transport::Tcp => self.framed.waiting(direction),
        };
        if rest.first() == Some(&TLS_HANDSHAKE) {
            let mut rest = [Vec::new(), Vec::new()];
            rest[direction.index()] = self.framed.rest(direction);
            return Outcome::Switch { rest };
        }
        outcome
    }

    fn end(&mut self, _direction: Direction, _out: &mut Transactions) {}

    fn is_strict(&self) -> bool {
        true
    }

    fn ends_message(&mut self) -> bool {
        core::mem::take(&mut self.has_message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(
        parser: &mut Ldap,
        out: &mut Transactions,
        direction: Direction,
        bytes: &[u8],
        step: usize,
    ) -> Outcome {
        for piece in bytes.chunks(step) {
            let chunk = StreamChunk::of(direction, piece);
            if parser.data(chunk, out) == Outcome::Failed {
                return Outcome::Failed;
            }
        }
        Outcome::Continue
    }

    #[test]
    fn messages_are_counted_for_any_segmentation() {
        // A bind request, an unbind request, and a message with a length of two bytes.
        let mut bytes =
            b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\x00\x80\x00\x30\x05\x02\x01\x02\x42\x00".to_vec();
        bytes.extend(b"\x30\x82\x01\x00");
        bytes.resize(bytes.len() + 256, 0);
        for step in 1..bytes.len() {
            let (mut parser, mut out) = (Ldap::new(Transport::Tcp), Transactions::default());
            let outcome = feed(&mut parser, &mut out, Direction::ToServer, &bytes, step);
            assert_eq!(outcome, Outcome::Continue);
            assert_eq!(out.list.len(), 3, "{step}");
        }
    }

    #[test]
    fn responses_belong_to_their_request() {
        let search = b"\x30\x25\x02\x01\x02\x63\x20\x04\x04dc=a\x0a\x01\x02\x0a\x01\x00\x02\x01\x00\x02\x01\x00\x01\x01\x00\x87\x01x\x30\x03\x04\x01m";
        let search = &search[..search.len()];
        let mut search = search.to_vec();
        search[1] = (search.len() - 2) as u8;
        search[6] = (search.len() - 7) as u8;
        let entry = b"\x30\x0d\x02\x01\x02\x64\x08\x04\x04dc=b\x30\x00";
        let done = b"\x30\x0c\x02\x01\x02\x65\x07\x0a\x01\x20\x04\x00\x04\x00";
        let (mut parser, mut out) = (Ldap::new(Transport::Tcp), Transactions::default());
        feed(&mut parser, &mut out, Direction::ToServer, &search, 3);
        feed(
            &mut parser,
            &mut out,
            Direction::ToClient,
            &[&entry[..], done].concat(),
            3,
        );
        assert_eq!(out.list.len(), 1);
        let transaction = &out.list[0];
        assert_eq!(
            transaction.buffer(Buffer::LdapRequestDn, Direction::ToServer),
            Some(&b"dc=a"[..])
        );
        assert_eq!(
            transaction.buffer(Buffer::LdapRequestAttribute, Direction::ToServer),
            Some(&b"m"[..])
        );
        assert_eq!(
            transaction.buffer(Buffer::LdapResponsesDn, Direction::ToClient),
            Some(&b"dc=b"[..])
        );
        let numbers = |field| transaction.numbers(field, Direction::ToClient);
        assert_eq!(numbers(NumberField::LdapResponsesOperation), [4, 5]);
        assert_eq!(numbers(NumberField::LdapResponsesResultCode), [32]);
        assert_eq!(numbers(NumberField::LdapResponsesCount), [2]);
        assert!(transaction.is_complete());
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        for bytes in [&b"\x31\x00"[..], b"\x30\x80", b"\x30\x84\xff\xff\xff\xff"] {
            let (mut parser, mut out) = (Ldap::new(Transport::Tcp), Transactions::default());
            let outcome = feed(&mut parser, &mut out, Direction::ToServer, bytes, 2);
            assert_eq!(outcome, Outcome::Failed);
        }
    }
}
