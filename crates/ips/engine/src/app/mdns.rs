//! DNS by multicast (RFC 6762): each datagram is a message of DNS, and a transaction. Queries and responses go to one address, so a
//! response need not go to a client.

use millrace_ips_rules::buffers::Buffer;

use super::AppProtocol;
use super::dns;
use super::parser::{Outcome, Parser};
use super::record::Record;
use super::transaction::{Progress, Transactions};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// The parser of a flow.
#[derive(Debug)]
pub(super) struct Mdns;

heap!(Mdns {});

impl Parser for Mdns {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let Some(message) = dns::parse(chunk.bytes) else {
            return Outcome::Continue;
        };
        let (record, direction) = (message.record, chunk.direction);
        let transaction = out.start(AppProtocol::Mdns);
        for (name, _, _) in &record.questions {
            transaction.publish(Buffer::MdnsQueryName, direction, name.as_slice());
        }
        let sections = [
            (Buffer::MdnsAnswerName, &record.answers),
            (Buffer::MdnsAuthorityName, &record.authorities),
            (Buffer::MdnsAdditionalName, &record.additionals),
        ];
        for (buffer, resources) in sections {
            for resource in resources {
                transaction.publish(buffer, direction, resource.name.as_slice());
                if record.is_answer {
                    transaction.publish(Buffer::MdnsResponseName, direction, resource.name.as_slice());
                }
            }
        }
        transaction.record = Record::Dns(Box::new(record));
        for side in Direction::BOTH {
            transaction.advance(side, Progress::Complete);
        }
        transaction.is_inspected[direction.reverse().index()] = true;
        Outcome::Continue
    }

    fn end(&mut self, _: Direction, _: &mut Transactions) {}
}
