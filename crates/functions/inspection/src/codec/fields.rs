//! The events and their parts, field by field.

use core::net::IpAddr;
use std::collections::BTreeSet;

use millrace_ips_engine::app::file::{FileHashes, FileState};
use millrace_ips_engine::app::record::{
    ClientCertificate, DcerpcCall, Dnp3Objects, Dnp3Record, DnsRecord, DnsResource, Fields, FtpRecord,
    HttpRecord, Interfaces, MailStatus, ModbusMessage, ModbusRecord, Record, SipRecord, SmbRecord,
    SmtpRecord, SshRecord, TlsDetails, TlsRecord, Value,
};
use millrace_ips_engine::app::tls::HandshakeState;
use millrace_ips_engine::app::{AppProtocol, FrameReport, FrameView};
use millrace_ips_engine::detect::dataset::{FoundJson, SetChange};
use millrace_ips_engine::event::{
    Alert, AlertContext, Evidence, FilePart, FileSummary, FlowEnd, FlowSummary, FlowVariables, PacketSource,
    RuleId, Subject, TcpState, TcpSummary, TransactionEvent, Tunnel,
};
use millrace_ips_engine::flow::{DirectionCounters, FlowKey, FlowState};
use millrace_ips_engine::packet::ArpPacket;
use millrace_ips_engine::packet::events::PacketEvents;
use millrace_ips_engine::verdict::DropReason;
use millrace_ips_engine::{Action, Cause, Direction, Event, FlowVerdict, Policy};
use parking_lot::Mutex;

use millrace_ips_rules::buffers::{BUFFERS, Buffer};

use super::{Codec, Encode, Output, choices, decode_list, encode_list, structures};

choices! {
    Direction [ToServer, ToClient]
    FileState [Open, Closed, Truncated]
    FlowEnd [Timeout, Reused, Evicted, Shutdown]
    TcpState [
        SynSent, SynReceived, Established, FinWait1, FinWait2, Closing, TimeWait, CloseWait, LastAck, Closed,
    ]
    MailStatus [InHeaders, InBody, Complete]
    FlowState [New, Established, Closed]
    FlowVerdict [None, Pass, Drop, Bypass]
    Action [None, PassPacket, PassFlow, DropPacket, DropFlow, RejectSource, RejectDestination, RejectBoth]
}

structures! {
    RuleId { gid, sid }
    DirectionCounters { packets, bytes, min_ttl, max_ttl }
    FlowVariables { bits, counters, variables }
    FlowKey { client, server, client_port, server_port, protocol, vlans, tunnel_depth }
    FlowSummary { id, key, start, last, state, counters, app, apps, original_app, icmp, verdict, is_alerted, has_parser_error, transactions, tcp }
    FoundJson { is_extra, key, json }
    TcpSummary { flags, state, has_gaps, is_midstream }
    Tunnel { src, dst, ports, protocol, depth }
    AlertContext { flow, direction, record, files, bits, counters, variables }
    FileSummary { direction, name, size, state, has_gaps, magic, hashes, is_stored, is_joined }
    FilePart { sha256, size, offset, bytes }
    FileHashes { md5, sha1, sha256 }
    Alert { subject, sid, gid, rev, rule, action, packet_action, app, transaction, frame, tunnel, json, captured, packet_variables, context, evidence }
    Evidence { stream, packet, has_link }
    FrameView { id, kind, direction, begin, size, is_complete }
    FrameReport { view, app, payload }
    ArpPacket { operation, sender_mac, sender, target_mac, target }
    TransactionEvent { subject, id, app, record, files, anomalies }
    HttpRecord {
        hostname, port, url, method, protocol, user_agent, referer, forwarded_for, content_type, content_range, redirect,
        status, length, request_length, http2_stream, headers, frames,
    }
    DnsRecord { id, flags, is_answer, questions, answers, authorities, additionals }
    DnsResource { name, kind, class, ttl, data, fields }
    HandshakeState { client_hello, server_hello, client_key_exchange, server_key_exchange, unknown }
    TlsRecord {
        version, sni, client_alpns, server_alpns, subject, issuer, serial, fingerprint, not_before, not_after,
        alternative_names, ja3, ja3s, ja4, client, details, state, is_resumed,
    }
    TlsDetails { hellos, chains }
    ClientCertificate { subject, issuer, serial, fingerprint, not_before, not_after, alternative_names }
    SmtpRecord {
        helo, mail_from, rcpt_to, from, to, cc, subject, message_id, date, x_mailer, received, attachments, urls, body_md5, status,
    }
    FtpRecord { command, argument, completion_codes, replies, dynamic_port, is_command_cut, is_reply_cut }
    SmbRecord { dialect, command, status, session_id, tree_id, filename, share, ntlmssp, dcerpc, more }
    DcerpcCall { interfaces, operation, request, answer, identifier, minor_version, fragments, stub_sizes, results, activity, sequence }
    SipRecord { method, uri, version, code, reason, sdp }
    ModbusMessage { protocol, unit, function, data }
    Dnp3Record { link_control, source, destination, control, function, indications, objects, is_complete }
    Dnp3Objects { group, variation, qualifier, start, stop, count, data }
}

impl Codec for Subject {
    fn encode(&self, out: &mut Output<'_>) {
        if let Some(bytes) = usual_subject(self) {
            return out.put(&bytes);
        }
        (self.packet, self.time, self.flow).encode(out);
        (self.src, self.dst, self.ports).encode(out);
        (self.protocol, self.icmp, self.vlans).encode(out);
        self.source.encode(out);
    }

    fn decode(input: &mut &[u8]) -> Option<Subject> {
        Some(Subject {
            packet: Codec::decode(input)?,
            time: Codec::decode(input)?,
            flow: Codec::decode(input)?,
            src: Codec::decode(input)?,
            dst: Codec::decode(input)?,
            ports: Codec::decode(input)?,
            protocol: Codec::decode(input)?,
            icmp: Codec::decode(input)?,
            vlans: Codec::decode(input)?,
            source: Codec::decode(input)?,
        })
    }
}

/// Size of the encoding of a usual subject in bytes.
const USUAL_SUBJECT: usize = 48;

/// Returns the encoding of a subject of IPv4 with ports, which most alerts have, in one piece.
fn usual_subject(subject: &Subject) -> Option<[u8; USUAL_SUBJECT]> {
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (subject.src, subject.dst) else {
        return None;
    };
    let ((from, to), None) = (subject.ports?, subject.icmp) else {
        return None;
    };
    let mut bytes = [0; USUAL_SUBJECT];
    // The places are constants, so that each part is one store.
    bytes[..8].copy_from_slice(&subject.packet.to_be_bytes());
    bytes[8..16].copy_from_slice(&subject.time.nanos().to_be_bytes());
    bytes[16..24].copy_from_slice(&subject.flow.to_be_bytes());
    bytes[24] = 4;
    bytes[25..29].copy_from_slice(&src.octets());
    bytes[29] = 4;
    bytes[30..34].copy_from_slice(&dst.octets());
    bytes[34] = 1;
    bytes[35..37].copy_from_slice(&from.to_be_bytes());
    bytes[37..39].copy_from_slice(&to.to_be_bytes());
    bytes[39] = subject.protocol;
    let [outer, middle, inner] = subject.vlans;
    bytes[41..43].copy_from_slice(&outer.to_be_bytes());
    bytes[43..45].copy_from_slice(&middle.to_be_bytes());
    bytes[45..47].copy_from_slice(&inner.to_be_bytes());
    bytes[47] = place(PacketSource::ALL, &subject.source);
    Some(bytes)
}

macro_rules! lists {
    ($($element:ty),*) => {
        $(impl Codec for Vec<$element> {
            fn encode(&self, out: &mut Output<'_>) {
                encode_list(self, out);
            }

            fn decode(input: &mut &[u8]) -> Option<Vec<$element>> {
                decode_list(input)
            }
        })*
    };
}
lists!(
    FileSummary,
    FoundJson,
    DnsResource,
    (Vec<u8>, u16, u16),
    (Vec<u8>, [u16; 2]),
    (Vec<u8>, Vec<u8>),
    (u32, u32),
    Dnp3Objects,
    u16,
    u32,
    u64,
    &'static str,
    (&'static str, Value),
    Fields
);

/// Encodes the place in the table of buffers.
impl Codec for Buffer {
    fn encode(&self, out: &mut Output<'_>) {
        (*self as u32).encode(out);
    }

    fn decode(input: &mut &[u8]) -> Option<Buffer> {
        let names = BUFFERS.get(usize::try_from(u32::decode(input)?).ok()?)?;
        Some(names.buffer)
    }
}

/// Encodes only the newest [`Interfaces::RECORDED`] interfaces, newest first.
impl Codec for Interfaces {
    fn encode(&self, out: &mut Output<'_>) {
        let list: Vec<_> = self.iter().take(Interfaces::RECORDED).cloned().collect();
        list.encode(out);
    }

    fn decode(input: &mut &[u8]) -> Option<Interfaces> {
        let list = Vec::<(Vec<u8>, [u16; 2])>::decode(input)?;
        Some(list.into_iter().rev().collect())
    }
}

/// Returns the place of a value in the list of all.
fn place<T: PartialEq>(all: &[T], value: &T) -> u8 {
    let index = all.iter().position(|known| known == value);
    index.unwrap_or(usize::MAX) as u8
}

/// Implements [`Codec`] for types that have a list of all values.
macro_rules! listed {
    ($($name:ident)*) => {
        $(impl Codec for $name {
            fn encode(&self, out: &mut Output<'_>) {
                place($name::ALL, self).encode(out);
            }

            fn decode(input: &mut &[u8]) -> Option<$name> {
                $name::ALL.get(usize::from(u8::decode(input)?)).copied()
            }
        })*
    };
}
listed!(AppProtocol Cause Policy PacketSource);

impl Codec for DropReason {
    fn encode(&self, out: &mut Output<'_>) {
        let (number, cause) = match self {
            DropReason::Rule => (0, None),
            DropReason::Flow => (1, None),
            DropReason::Normalizer => (2, None),
            DropReason::Memory => (3, None),
            DropReason::Policy(cause) => (4, Some(*cause)),
            DropReason::RateFilter => (5, None),
        };
        (number as u8, cause).encode(out);
    }

    fn decode(input: &mut &[u8]) -> Option<DropReason> {
        match <(u8, Option<Cause>)>::decode(input)? {
            (0, None) => Some(DropReason::Rule),
            (1, None) => Some(DropReason::Flow),
            (2, None) => Some(DropReason::Normalizer),
            (3, None) => Some(DropReason::Memory),
            (4, Some(cause)) => Some(DropReason::Policy(cause)),
            (5, None) => Some(DropReason::RateFilter),
            _ => None,
        }
    }
}

/// Writes a number that names a variant, and its fields.
fn tagged(tag: u8, fields: &[&dyn Encode], out: &mut Output<'_>) {
    tag.encode(out);
    fields.iter().for_each(|field| field.write(out));
}

impl Codec for Record {
    fn encode(&self, out: &mut Output<'_>) {
        match self {
            Record::None => 0_u8.encode(out),
            Record::Http(record) => tagged(1, &[&**record], out),
            Record::Dns(record) => tagged(2, &[&**record], out),
            Record::Tls(record) => tagged(3, &[&**record], out),
            Record::Smtp(record) => tagged(4, &[&**record], out),
            Record::Ftp(record) => tagged(5, &[&**record], out),
            Record::Ssh(record) => tagged(6, &[&**record], out),
            Record::Smb(record) => tagged(7, &[&**record], out),
            Record::Sip(record) => tagged(8, &[&**record], out),
            Record::Modbus(record) => tagged(9, &[&**record], out),
            Record::Dnp3(record) => tagged(10, &[&**record], out),
            Record::Fields(fields) => tagged(11, &[&**fields], out),
        }
    }

    fn decode(input: &mut &[u8]) -> Option<Record> {
        Some(match u8::decode(input)? {
            0 => Record::None,
            1 => Record::Http(Codec::decode(input)?),
            2 => Record::Dns(Codec::decode(input)?),
            3 => Record::Tls(Codec::decode(input)?),
            4 => Record::Smtp(Codec::decode(input)?),
            5 => Record::Ftp(Codec::decode(input)?),
            6 => Record::Ssh(Codec::decode(input)?),
            7 => Record::Smb(Codec::decode(input)?),
            8 => Record::Sip(Codec::decode(input)?),
            9 => Record::Modbus(Codec::decode(input)?),
            10 => Record::Dnp3(Codec::decode(input)?),
            11 => Record::Fields(Codec::decode(input)?),
            _ => return None,
        })
    }
}

impl Codec for ModbusRecord {
    fn encode(&self, out: &mut Output<'_>) {
        let [request, response] = &self.messages;
        self.identifier.encode(out);
        request.encode(out);
        response.encode(out);
    }

    fn decode(input: &mut &[u8]) -> Option<ModbusRecord> {
        Some(ModbusRecord {
            identifier: Codec::decode(input)?,
            messages: [Codec::decode(input)?, Codec::decode(input)?],
        })
    }
}

impl Codec for SshRecord {
    fn encode(&self, out: &mut Output<'_>) {
        let [client, server] = &self.hassh;
        self.client.encode(out);
        self.server.encode(out);
        client.encode(out);
        server.encode(out);
    }

    fn decode(input: &mut &[u8]) -> Option<SshRecord> {
        Some(SshRecord {
            client: Codec::decode(input)?,
            server: Codec::decode(input)?,
            hassh: [Codec::decode(input)?, Codec::decode(input)?],
        })
    }
}

impl Codec for Fields {
    fn encode(&self, out: &mut Output<'_>) {
        self.list.encode(out);
    }

    fn decode(input: &mut &[u8]) -> Option<Fields> {
        fields(input, FIELDS_DEPTH)
    }
}

/// The deepest nesting of fields. The bytes come from another process, so the recursion is limited.
const FIELDS_DEPTH: usize = 8;

fn fields(input: &mut &[u8], depth: usize) -> Option<Fields> {
    let len = u8::decode(input)?;
    let mut list = Vec::new();
    for _ in 0..len {
        list.push((Codec::decode(input)?, value(input, depth.checked_sub(1)?)?));
    }
    Some(Fields { list })
}

fn value(input: &mut &[u8], depth: usize) -> Option<Value> {
    Some(match u8::decode(input)? {
        0 => Value::Number(Codec::decode(input)?),
        1 => Value::Flag(Codec::decode(input)?),
        2 => Value::Text(Codec::decode(input)?),
        3 => Value::Texts(Codec::decode(input)?),
        6 => Value::Signed(Codec::decode(input)?),
        7 => Value::Float(Codec::decode(input)?),
        8 => Value::Numbers(Codec::decode(input)?),
        9 => Value::Pairs(Codec::decode(input)?),
        4 => Value::Object(fields(input, depth)?),
        5 => {
            let len = u8::decode(input)?;
            let mut list = Vec::new();
            for _ in 0..len {
                list.push(fields(input, depth)?);
            }
            Value::Objects(list)
        }
        _ => return None,
    })
}

impl Codec for Value {
    fn encode(&self, out: &mut Output<'_>) {
        match self {
            Value::Number(number) => tagged(0, &[number], out),
            Value::Flag(flag) => tagged(1, &[flag], out),
            Value::Text(text) => tagged(2, &[text], out),
            Value::Texts(texts) => tagged(3, &[texts], out),
            Value::Object(fields) => tagged(4, &[fields], out),
            Value::Objects(list) => tagged(5, &[list], out),
            Value::Signed(number) => tagged(6, &[number], out),
            Value::Float(bits) => tagged(7, &[bits], out),
            Value::Numbers(numbers) => tagged(8, &[numbers], out),
            Value::Pairs(pairs) => tagged(9, &[pairs], out),
        }
    }

    fn decode(input: &mut &[u8]) -> Option<Value> {
        value(input, FIELDS_DEPTH)
    }
}

impl Codec for PacketEvents {
    fn encode(&self, out: &mut Output<'_>) {
        self.bits().encode(out);
    }

    fn decode(input: &mut &[u8]) -> Option<PacketEvents> {
        Codec::decode(input).map(PacketEvents::from_bits)
    }
}

impl Codec for Event {
    fn encode(&self, out: &mut Output<'_>) {
        match self {
            Event::Alert(alert) => tagged(1, &[alert], out),
            Event::Transaction(transaction) => tagged(2, &[&**transaction], out),
            Event::Flow(flow, end, variables) => tagged(3, &[&**flow, end, variables], out),
            Event::Drop(subject, reason, rule) => tagged(4, &[subject, reason, rule], out),
            Event::Anomaly(subject, app, events) => tagged(5, &[subject, app, events], out),
            Event::Exception(subject, cause, policy, rule) => tagged(6, &[subject, cause, policy, rule], out),
            Event::Frame(subject, report) => tagged(9, &[subject, &**report], out),
            Event::Packet(subject, events) => tagged(10, &[subject, events], out),
            Event::Arp(subject, arp) => tagged(11, &[subject, arp], out),
            Event::File(part) => tagged(7, &[part], out),
            Event::Set(change) => tagged(
                8,
                &[&change.set.as_bytes().to_vec(), &change.value, &change.is_added],
                out,
            ),
        }
    }

    fn decode(input: &mut &[u8]) -> Option<Event> {
        Some(match u8::decode(input)? {
            1 => Event::Alert(Codec::decode(input)?),
            2 => Event::Transaction(Codec::decode(input)?),
            3 => Event::Flow(
                Codec::decode(input)?,
                Codec::decode(input)?,
                Codec::decode(input)?,
            ),
            4 => Event::Drop(
                Codec::decode(input)?,
                Codec::decode(input)?,
                Codec::decode(input)?,
            ),
            5 => Event::Anomaly(
                Codec::decode(input)?,
                Codec::decode(input)?,
                Codec::decode(input)?,
            ),
            6 => Event::Exception(
                Codec::decode(input)?,
                Codec::decode(input)?,
                Codec::decode(input)?,
                Codec::decode(input)?,
            ),
            9 => Event::Frame(Codec::decode(input)?, Codec::decode(input)?),
            10 => Event::Packet(Codec::decode(input)?, Codec::decode(input)?),
            11 => Event::Arp(Codec::decode(input)?, Codec::decode(input)?),
            7 => Event::File(Codec::decode(input)?),
            8 => Event::Set(SetChange {
                set: String::from_utf8(Codec::decode(input)?).ok()?.into(),
                value: Codec::decode(input)?,
                is_added: Codec::decode(input)?,
            }),
            _ => return None,
        })
    }
}

/// Limit of the distinct names that are kept, and of their bytes.
const NAMES_MAX: usize = 1024;
const NAME_SIZE_MAX: usize = 64;

/// Names that were decoded. They stay in memory, so their number is limited.
static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// A name of an anomaly or of a kind of file.
impl Codec for &'static str {
    fn encode(&self, out: &mut Output<'_>) {
        let size = self.len().min(NAME_SIZE_MAX);
        (size as u8).encode(out);
        out.put(&self.as_bytes()[..size]);
    }

    fn decode(input: &mut &[u8]) -> Option<&'static str> {
        let size = usize::from(u8::decode(input)?);
        let (bytes, rest) = input.split_at_checked(size.min(NAME_SIZE_MAX))?;
        *input = rest;
        let name = core::str::from_utf8(bytes).ok()?;
        let mut names = NAMES.lock();
        if let Some(known) = names.get(name) {
            return Some(known);
        }
        if names.len() >= NAMES_MAX {
            return None;
        }
        let name: &'static str = name.to_owned().leak();
        names.insert(name);
        Some(name)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
