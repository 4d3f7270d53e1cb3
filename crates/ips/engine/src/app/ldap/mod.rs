//! LDAP (RFC 4511): a request with its responses is a transaction.

mod message;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::NumberField;

use super::framed::{Framed, fields};
use super::parser::{Outcome, Parser};
use super::record::{FIELD_LIST, Fields, Record, Value};
use super::transaction::{Progress, Transaction, Transactions};
use super::{AppProtocol, Transport};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;
use message::{Operation, TLS_HANDSHAKE, is_response, name_of, read, size};

/// Largest number of requests that wait for responses.
const WAITING: usize = 256;

/// The parser of a flow.
#[derive(Debug)]
pub(super) struct Ldap {
    framed: Framed,
    transport: Transport,
    /// Message identifiers of requests without their last response, with the transaction and the number of responses.
    waiting: VecDeque<(u32, u64, u64)>,
    has_message: bool,
}

heap!(Ldap { framed, waiting });

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
