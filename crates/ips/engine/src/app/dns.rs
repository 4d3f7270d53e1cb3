//! DNS over UDP and TCP (RFC 1035). Each message is a transaction: names are labels joined with full stops, in the case
//! in which they were sent.

mod names;

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

/// Size of the header of a message.
const HEADER: usize = 12;
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
    has_failed: [bool; 2],
}

heap!(Dns { pending });

impl Dns {
    pub(super) fn new(is_tcp: bool) -> Dns {
        Dns {
            is_tcp,
            pending: [Vec::new(), Vec::new()],
            has_failed: [false; 2],
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
    for (_, kind, _) in &record.questions {
        transaction.number(NumberField::DnsRrtype, direction, *kind);
    }
    if record.is_answer {
        transaction.number(NumberField::DnsRcode, direction, record.flags & 0xf);
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
        self.has_failed[side] |= chunk.gap_before > 0;
        if self.has_failed[side] {
            return if self.has_failed == [true; 2] {
                Outcome::Failed
            } else {
                Outcome::Continue
            };
        }
        let mut pending = core::mem::take(&mut self.pending[side]);
        pending.extend_from_slice(chunk.bytes);
        let mut rest = pending.as_slice();
        while let [high, low, tail @ ..] = rest {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &[u8]) -> Vec<u8> {
        let mut data = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        data.extend_from_slice(name);
        data.extend_from_slice(&[0, 1, 0, 1]);
        data
    }

    fn queries(out: &Transactions) -> Vec<Vec<u8>> {
        let of = |transaction: &super::super::Transaction| {
            transaction
                .buffers(Buffer::DnsQuery, Direction::ToServer)
                .map(|view| view.bytes.to_vec())
                .collect::<Vec<_>>()
        };
        out.list.iter().flat_map(of).collect()
    }

    fn datagram(data: &[u8]) -> Transactions {
        let mut out = Transactions::default();
        message(data, Direction::ToServer, &mut out);
        out
    }

    #[test]
    fn names_keep_their_case_and_follow_pointers() {
        let out = datagram(&query(b"\x03wWw\x07example\x03ORG\0"));
        assert_eq!(queries(&out), [b"wWw.example.ORG"]);
        // The second question points at the first name.
        let mut two = query(b"\x01a\x01b\0");
        two[5] = 2;
        two.extend_from_slice(b"\x01c\xc0\x0c\0\x01\0\x01");
        assert_eq!(queries(&datagram(&two)), [&b"a.b"[..], b"c.a.b"]);
    }

    #[test]
    fn a_compression_loop_ends_with_an_event() {
        let out = datagram(&query(b"\x01a\xc0\x0c"));
        assert!(
            out.list[0].events.contains(&"dns.infinite_loop")
                || out.list[0].events.contains(&"dns.too_many_labels")
        );
        let out = datagram(&query(b"\xc0\x0c"));
        assert!(out.list[0].events.contains(&"dns.infinite_loop"));
    }

    #[test]
    fn a_message_of_names_that_all_lead_through_many_pointers_is_malformed() {
        // 200 pointers in a row, each to the one before it, and after them 9,000 questions that point at the last.
        let mut data = vec![0, 0, 1, 0, 0x23, 0x28, 0, 0, 0, 0, 0, 0];
        data.push(0);
        data.extend([0, 1, 0, 1]);
        let first = data.len();
        let mut target = 12_u16;
        let mut chain = Vec::new();
        for index in 0..200_u16 {
            chain.extend((0xc000 | target).to_be_bytes());
            chain.extend([0, 1, 0, 1]);
            target = u16::try_from(first).unwrap() + 6 * index;
        }
        data.extend(&chain);
        while data.len() < 60_000 {
            data.extend((0xc000 | target).to_be_bytes());
            data.extend([0, 1, 0, 1]);
        }
        let out = datagram(&data);
        assert_eq!(out.list[0].events, ["dns.malformed_data"]);
    }

    #[test]
    fn pipelined_messages_over_tcp_are_found_in_any_segmentation() {
        let mut data = Vec::new();
        for name in [&b"\x01a\0"[..], b"\x01b\0", b"\x01c\0"] {
            let message = query(name);
            data.extend_from_slice(&u16::try_from(message.len()).unwrap().to_be_bytes());
            data.extend_from_slice(&message);
        }
        for step in [1, 3, 17, 1000] {
            let mut dns = Dns::new(true);
            let mut out = Transactions::default();
            for bytes in data.chunks(step) {
                let chunk = StreamChunk::of(Direction::ToServer, bytes);
                dns.data(chunk, &mut out);
            }
            assert_eq!(queries(&out), [b"a", b"b", b"c"], "in steps of {step}");
        }
    }

    #[test]
    fn an_answer_has_its_records_and_no_query_buffer() {
        let mut data = query(b"\x01a\0");
        (data[2], data[7]) = (0x81, 1);
        data.extend_from_slice(b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\x7f\0\0\x01");
        let mut out = Transactions::default();
        message(&data, Direction::ToClient, &mut out);
        let Record::Dns(record) = &out.list[0].record else {
            panic!("a DNS record")
        };
        assert_eq!(
            (
                record.answers[0].name.as_slice(),
                record.answers[0].data.as_slice()
            ),
            (&b"a"[..], &b"127.0.0.1"[..])
        );
        assert!(queries(&out).is_empty());
        assert!(out.list[0].events.is_empty());
    }

    #[test]
    fn texts_options_and_raw_data_are_read() {
        let mut data = query(b"\x01a\0");
        (data[2], data[7]) = (0x81, 3);
        data[11] = 1;
        data.extend_from_slice(b"\xc0\x0c\0\x10\0\x01\0\0\0\x3c\0\x06\x02ab\x02cd");
        data.extend_from_slice(b"\xc0\x0c\0\x10\0\x01\0\0\0\x3c\0\x03\x02ab");
        data.extend_from_slice(b"\xc0\x0c\0\x0a\0\x01\0\0\0\x3c\0\x02\xff\0");
        // A cookie, and an option that is cut.
        data.extend_from_slice(b"\0\0\x29\x10\0\0\0\0\0\0\x0a\0\x0a\0\x02\x9a\x47\0\x03\0\x09");
        let mut out = Transactions::default();
        message(&data, Direction::ToClient, &mut out);
        let Record::Dns(record) = &out.list[0].record else {
            panic!("a DNS record")
        };
        let found: Vec<_> = record.answers.iter().map(|one| one.data.as_slice()).collect();
        assert_eq!(found, [&b"abcd"[..], b"ab", b"\xff\0"]);
        let mut texts = Fields::default();
        texts.texts("txt", [&b"ab"[..], b"cd"]);
        assert_eq!(record.answers[0].fields, texts);
        assert_eq!(record.answers[1].fields, Fields::default());
        let (mut options, mut cookie) = (Fields::default(), Fields::default());
        cookie.number("code", 10_u8).text("data", b"9a47");
        options.objects("opt", vec![cookie]);
        assert_eq!(record.additionals[0].fields, options);
    }

    #[test]
    fn a_truncated_message_is_malformed_and_keeps_its_questions() {
        let mut data = query(b"\x01a\0");
        data[7] = 1;
        let out = datagram(&data);
        assert_eq!(out.list[0].events, ["dns.malformed_data"]);
        assert_eq!(queries(&out), [b"a"]);
    }
}
