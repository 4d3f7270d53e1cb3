//! DNS by multicast (RFC 6762): each datagram is a message of DNS, and a transaction. Queries and responses go to one address, so a
//! response need not go to a client.

use millrace_ips_rules::buffers::Buffer;

use super::dns;
use super::parser::{Outcome, Parser};
use super::record::Record;
use super::transaction::{Progress, Transactions};
use super::{AppEvent, AppProtocol};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// Returns the event of an anomaly of DNS; `None` for those that follow from the roles of client and server.
fn event(of_dns: AppEvent) -> Option<AppEvent> {
    const EVENTS: [&str; 6] = [
        "mdns.infinite_loop",
        "mdns.invalid_opcode",
        "mdns.malformed_data",
        "mdns.name_too_long",
        "mdns.too_many_labels",
        "mdns.z_flag_set",
    ];
    EVENTS
        .into_iter()
        .find(|event| event.strip_prefix('m') == Some(of_dns))
}

/// The parser of a flow.
#[derive(Debug)]
pub(super) struct Mdns;

heap!(Mdns {});

impl Parser for Mdns {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let Some(message) = dns::parse(chunk.bytes) else {
            out.raise("mdns.malformed_data");
            return Outcome::Continue;
        };
        let (record, direction) = (message.record, chunk.direction);
        let transaction = out.start(AppProtocol::Mdns);
        message
            .events
            .into_iter()
            .filter_map(event)
            .for_each(|event| transaction.raise(event));
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
            }
        }
        if record.is_answer {
            for name in dns::response_names(&record) {
                transaction.publish(Buffer::MdnsResponseName, direction, name);
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
