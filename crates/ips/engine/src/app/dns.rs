//! DNS over UDP and TCP (RFC 1035). Each message is a transaction: names are labels joined with full stops, in the case
//! in which they were sent.

mod names;
mod resynchronize;
#[cfg(test)]
mod tests;

use core::net::IpAddr;

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::NumberField;

use super::AppProtocol;
use super::framed::{colons, hex, number, take};
use super::parser::{Outcome, Parser};
use super::record::{
    DNS_NAME_SIZE as NAME_SIZE, DnsRecord, DnsResource, FIELD_LIST, FIELD_SIZE, Fields, Record,
};
use super::transaction::{AppEvent, Progress, Transactions};
use crate::app::heap::heap;
use crate::event::address_text;
use crate::flow::Direction;
use crate::tcp::StreamChunk;
pub(in crate::app) use names::response_names;
use resynchronize::{HEADER, resynchronize};

/// Bytes for which a name has room from its first label on: most names fit.
const NAME_HINT: usize = 48;
/// Largest number of labels of a name.
const LABELS: usize = 255;
/// Largest number of records of a section that are kept.
const RECORDS: usize = 256;
/// Largest number of labels and pointers of all names of a message. It is several times the number in the
/// largest message whose names are all compressed. Without this bound, each of 10,000 names could lead
/// through 255 pointers.
const STEP_BUDGET: usize = 1 << 18;

const TYPE_A: u16 = 1;
const TYPE_NS: u16 = 2;
const TYPE_CNAME: u16 = 5;
const TYPE_SOA: u16 = 6;
const TYPE_NULL: u16 = 10;
const TYPE_PTR: u16 = 12;
const TYPE_MX: u16 = 15;
const TYPE_TXT: u16 = 16;
const TYPE_AAAA: u16 = 28;
const TYPE_SRV: u16 = 33;
const TYPE_OPT: u16 = 41;
const TYPE_SSHFP: u16 = 44;

/// A parsed message and the anomalies in it.
#[derive(Debug, Default)]
pub(super) struct Message {
    pub(super) record: DnsRecord,
    pub(super) events: Vec<AppEvent>,
}

/// A cursor over a message.
#[derive(Debug, Clone, Copy)]
struct Reader<'a> {
    message: &'a [u8],
    at: usize,
    /// The number of labels and pointers read so far in the names of the message.
    steps: usize,
}

impl<'a> Reader<'a> {
    fn new(message: &'a [u8]) -> Reader<'a> {
        Reader {
            message,
            at: 0,
            steps: 0,
        }
    }

    fn u16(&mut self) -> Option<u16> {
        let bytes = self.take(2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from(self.u16()?) << 16 | u32::from(self.u16()?))
    }

    fn take(&mut self, size: usize) -> Option<&'a [u8]> {
        let bytes = self.message.get(self.at..self.at.checked_add(size)?)?;
        self.at += size;
        Some(bytes)
    }

    /// Reads a name. Pointers may lead anywhere, as some resolvers accept them; a name ends after [`LABELS`] labels or
    /// pointers. Returns `None` if the name is malformed, or the names of the message exceed [`STEP_BUDGET`].
    fn name(&mut self, events: &mut Vec<AppEvent>) -> Option<Vec<u8>> {
        let mut name = Vec::with_capacity(NAME_HINT);
        let mut at = self.at;
        let mut end = None;
        let mut labels = 0;
        let mut jumps = 0;
        loop {
            let size = usize::from(*self.message.get(at)?);
            self.steps += 1;
            if self.steps > STEP_BUDGET {
                return None;
            }
            match size {
                0 => {
                    at += 1;
                    break;
                }
                0xc0.. => {
                    let low = usize::from(*self.message.get(at + 1)?);
                    let target = (size & 0x3f) << 8 | low;
                    end = end.or(Some(at + 2));
                    jumps += 1;
                    if jumps > LABELS {
                        events.push("dns.infinite_loop");
                        break;
                    }
                    at = target;
                }
                1..=0x3f => {
                    let label = self.message.get(at + 1..at + 1 + size)?;
                    labels += 1;
                    if labels > LABELS {
                        events.push("dns.too_many_labels");
                        break;
                    }
                    if name.len() < NAME_SIZE {
                        if !name.is_empty() {
                            name.push(b'.');
                        }
                        name.extend_from_slice(label);
                        if name.len() > NAME_SIZE {
                            name.truncate(NAME_SIZE);
                            events.push("dns.name_too_long");
                        }
                    }
                    at += 1 + size;
                }
                _ => return None,
            }
        }
        self.at = end.unwrap_or(at);
        Some(name)
    }
}

/// Returns true if bytes look like a message: a valid header, and a valid first question if there is one.
pub fn is_message(data: &[u8]) -> bool {
    let mut reader = Reader::new(data);
    let Some(counts) = header(&mut reader) else {
        return false;
    };
    let records: usize = counts.sections.iter().map(|&count| usize::from(count)).sum();
    if data.len() < HEADER + 2 * records || counts.flags >> 11 & 0xf > 6 {
        return false;
    }
    let mut events = Vec::new();
    for _ in 0..counts.sections[0].min(1) {
        if reader.name(&mut events).is_none() || reader.u32().is_none() {
            return false;
        }
    }
    records > 0
}

/// The header of a message.
struct Header {
    id: u16,
    flags: u16,
    /// Numbers of questions, answers, authorities, additional records.
    sections: [u16; 4],
}

fn header(reader: &mut Reader<'_>) -> Option<Header> {
    let (id, flags) = (reader.u16()?, reader.u16()?);
    let sections = [reader.u16()?, reader.u16()?, reader.u16()?, reader.u16()?];
    Some(Header { id, flags, sections })
}

/// Parses a message up to its first invalid field. Returns `None` if the header is incomplete.
pub(super) fn parse(data: &[u8]) -> Option<Message> {
    let mut reader = Reader::new(data);
    let head = header(&mut reader)?;
    let mut message = Message::default();
    message.record.id = head.id;
    message.record.flags = head.flags;
    message.record.is_answer = head.flags & 0x8000 != 0;
    if head.flags & 0x0040 != 0 {
        message.events.push("dns.z_flag_set");
    }
    if head.flags >> 11 & 0xf > 6 {
        message.events.push("dns.invalid_opcode");
    }
    if sections(&mut reader, &head, &mut message).is_none() {
        message.events.push("dns.malformed_data");
    }
    Some(message)
}

/// Reads the four sections. Returns `None` if one of them is not valid.
fn sections(reader: &mut Reader<'_>, head: &Header, message: &mut Message) -> Option<()> {
    let record = &mut message.record;
    for _ in 0..head.sections[0] {
        let name = reader.name(&mut message.events)?;
        let (kind, class) = (reader.u16()?, reader.u16()?);
        if record.questions.len() < RECORDS {
            record.questions.push((name, kind, class));
        }
    }
    let lists = [
        &mut record.answers,
        &mut record.authorities,
        &mut record.additionals,
    ];
    for (count, list) in head.sections[1..].iter().zip(lists) {
        for _ in 0..*count {
            let entry = resource(reader, &mut message.events)?;
            if list.len() < RECORDS {
                list.push(entry);
            }
        }
    }
    Some(())
}

fn resource(reader: &mut Reader<'_>, events: &mut Vec<AppEvent>) -> Option<DnsResource> {
    let name = reader.name(events)?;
    let (kind, class, ttl) = (reader.u16()?, reader.u16()?, reader.u32()?);
    let size = usize::from(reader.u16()?);
    let mut inner = *reader;
    let bytes = reader.take(size)?;
    let data = match kind {
        TYPE_A => <[u8; 4]>::try_from(bytes)
            .ok()
            .map(|octets| address_text(IpAddr::from(octets)).into_bytes()),
        TYPE_AAAA => <[u8; 16]>::try_from(bytes)
            .ok()
            .map(|octets| address_text(IpAddr::from(octets)).into_bytes()),
        TYPE_NS | TYPE_CNAME | TYPE_PTR => inner.name(events),
        TYPE_MX => {
            inner.at += 2;
            inner.name(events)
        }
        TYPE_TXT => Some(texts(bytes).concat()),
        TYPE_NULL => Some(bytes[..bytes.len().min(FIELD_SIZE)].to_vec()),
        _ => None,
    };
    let fields = fields(kind, bytes, &mut inner, events).unwrap_or_default();
    reader.steps = inner.steps;
    Some(DnsResource {
        name,
        kind,
        class,
        ttl,
        data: data.unwrap_or_default(),
        fields,
    })
}

/// Reads the fields of an SOA (RFC 1035, section 3.3.13), SRV (RFC 2782) or SSHFP record (RFC 4255, section 3.1), the options of
/// an OPT record (RFC 6891, section 6.1.2), and the texts of a TXT record that has several. The data are `bytes`, and begin at
/// `inner`. Returns `None` for other types, and for data that end early.
fn fields(kind: u16, bytes: &[u8], inner: &mut Reader<'_>, events: &mut Vec<AppEvent>) -> Option<Fields> {
    let mut fields = Fields::default();
    match kind {
        TYPE_SOA => {
            fields.text("mname", &inner.name(events)?);
            fields.text("rname", &inner.name(events)?);
            for name in ["serial", "refresh", "retry", "expire", "minimum"] {
                fields.number(name, inner.u32()?);
            }
        }
        TYPE_SRV => {
            for name in ["priority", "weight", "port"] {
                fields.number(name, inner.u16()?);
            }
            fields.text("name", &inner.name(events)?);
        }
        TYPE_SSHFP => {
            let [algorithm, kind, fingerprint @ ..] = bytes else {
                return None;
            };
            fields.text("fingerprint", colons(fingerprint).as_bytes());
            fields.number("algo", *algorithm).number("type", *kind);
        }
        TYPE_OPT => {
            let options = options(bytes);
            if !options.is_empty() {
                fields.objects("opt", options);
            }
        }
        TYPE_TXT => {
            let texts = texts(bytes);
            if texts.len() > 1 {
                fields.texts("txt", texts);
            }
        }
        _ => return None,
    }
    Some(fields)
}

/// Returns the character strings of a TXT record.
fn texts(bytes: &[u8]) -> Vec<&[u8]> {
    let mut list = Vec::new();
    let mut rest = bytes;
    while let [size, tail @ ..] = rest {
        let (text, tail) = tail.split_at(usize::from(*size).min(tail.len()));
        list.push(text);
        rest = tail;
    }
    list
}

/// Returns the options of an OPT record, each with its code and its data in hexadecimal digits.
fn options(mut bytes: &[u8]) -> Vec<Fields> {
    let mut list = Vec::new();
    while list.len() < FIELD_LIST
        && let (Some(code), Some(size)) = (number(&mut bytes, 2), number(&mut bytes, 2))
        && let Some(data) = take(&mut bytes, size as usize)
    {
        let mut option = Fields::default();
        option.number("code", code).text("data", &hex(data));
        list.push(option);
    }
    list
}

/// The parser of a flow.
#[derive(Debug)]
pub(super) struct Dns {
    is_tcp: bool,
    /// Incomplete message of each direction (TCP).
    pending: [Vec<u8>; 2],
    /// True behind lost bytes until a message is found (TCP).
    is_searching: [bool; 2],
}

heap!(Dns { pending });

impl Dns {
    pub(super) fn new(is_tcp: bool) -> Dns {
        Dns {
            is_tcp,
            pending: [Vec::new(), Vec::new()],
            is_searching: [false; 2],
        }
    }
}

/// Adds the transaction of a message.
pub(in crate::app) fn message(data: &[u8], direction: Direction, out: &mut Transactions) {
    let Some(message) = parse(data) else {
        out.raise("dns.malformed_data");
        return;
    };
    let is_to_client = direction == Direction::ToClient;
    let transaction = out.start(AppProtocol::Dns);
    for event in message.events {
        transaction.raise(event);
    }
    if message.record.is_answer != is_to_client {
        transaction.raise(if is_to_client {
            "dns.not_response"
        } else {
            "dns.not_request"
        });
    }
    for (name, _, _) in &message.record.questions {
        if !message.record.is_answer && !is_to_client {
            transaction.publish(Buffer::DnsQuery, direction, name.as_slice());
        }
        transaction.publish(Buffer::DnsQueryName, direction, name.as_slice());
    }
    let record = &message.record;
    let sections = [
        (Buffer::DnsAnswerName, &record.answers),
        (Buffer::DnsAuthorityName, &record.authorities),
        (Buffer::DnsAdditionalName, &record.additionals),
    ];
    for (buffer, resources) in sections {
        for resource in resources {
            transaction.publish(buffer, direction, resource.name.as_slice());
        }
    }
    // Towards the client, rules ask for the types of the answers.
    let questions = record.questions.iter().map(|(_, kind, _)| *kind);
    let answers = record.answers.iter().map(|resource| resource.kind);
    match direction {
        Direction::ToServer => {
            questions.for_each(|kind| transaction.number(NumberField::DnsRrtype, direction, kind))
        }
        Direction::ToClient => {
            answers.for_each(|kind| transaction.number(NumberField::DnsRrtype, direction, kind))
        }
    }
    // A request has the field, too (RFC 1035, section 4.1.1).
    transaction.number(NumberField::DnsRcode, direction, record.flags & 0xf);
    if record.is_answer {
        for name in response_names(record) {
            transaction.publish(Buffer::DnsResponseName, direction, name);
        }
    }
    transaction.record = Record::Dns(Box::new(message.record));
    // Each message is a separate transaction, so the other direction has nothing to wait for.
    transaction.advance(Direction::ToServer, Progress::Complete);
    transaction.advance(Direction::ToClient, Progress::Complete);
    transaction.is_inspected[direction.reverse().index()] = true;
}

impl Parser for Dns {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        if !self.is_tcp {
            message(chunk.bytes, chunk.direction, out);
            return Outcome::Continue;
        }
        let side = chunk.direction.index();
        let mut pending = core::mem::take(&mut self.pending[side]);
        if chunk.gap_before > 0 {
            pending.clear();
            self.is_searching[side] = true;
        }
        pending.extend_from_slice(chunk.bytes);
        let mut rest = pending.as_slice();
        if self.is_searching[side] {
            let (at, is_found) = resynchronize(rest, chunk.direction);
            rest = &rest[at..];
            self.is_searching[side] = !is_found;
        }
        while let [high, low, tail @ ..] = rest
            && !self.is_searching[side]
        {
            let size = usize::from(u16::from_be_bytes([*high, *low]));
            let Some(body) = tail.get(..size) else { break };
            if size > 0 {
                message(body, chunk.direction, out);
            }
            rest = &tail[size..];
        }
        // The bytes of an incomplete message stay where they are: a copy for each chunk would be slow if they
        // come one by one.
        let used = pending.len() - rest.len();
        pending.drain(..used);
        self.pending[side] = pending;
        Outcome::Continue
    }

    fn end(&mut self, direction: Direction, _out: &mut Transactions) {
        self.pending[direction.index()] = Vec::new();
    }
}
