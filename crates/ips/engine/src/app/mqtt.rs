//! MQTT 3.1, 3.1.1 and 5.0 (OASIS, "MQTT Version 5.0"). A transaction is a request with its acknowledgments, or a control packet
//! that needs none. Rules test all its packets together, as those of Suricata do:
//!
//! ```text
//!  CONNECT ───▶ CONNACK            PUBLISH (QoS 1) ─▶ PUBACK
//!  SUBSCRIBE ─▶ SUBACK             PUBLISH (QoS 2) ─▶ PUBREC ─▶ PUBREL ─▶ PUBCOMP
//!  UNSUBSCRIBE ▶ UNSUBACK          PUBLISH (QoS 0), PINGREQ, PINGRESP, DISCONNECT, AUTH
//! ```

mod properties;

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::NumberField;

use super::AppProtocol;
use super::framed::{self, Framed, Size, fields, number};
use super::parser::{Outcome, Parser};
use super::record::{Fields, Value};
use super::transaction::{INCOMPLETE, Progress, Transaction, Transactions};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;
use properties::{properties, text};

/// Names of the control packets by their type (section 2.1.2), as EVE has them.
const NAMES: [&str; 16] = [
    "unassigned",
    "connect",
    "connack",
    "publish",
    "puback",
    "pubrec",
    "pubrel",
    "pubcomp",
    "subscribe",
    "suback",
    "unsubscribe",
    "unsuback",
    "pingreq",
    "pingresp",
    "disconnect",
    "auth",
];

const CONNECT: u8 = 1;
const CONNACK: u8 = 2;
const PUBLISH: u8 = 3;
const PUBACK: u8 = 4;
const PUBREC: u8 = 5;
const PUBREL: u8 = 6;
const PUBCOMP: u8 = 7;
const SUBSCRIBE: u8 = 8;
const SUBACK: u8 = 9;
const UNSUBSCRIBE: u8 = 10;
const UNSUBACK: u8 = 11;
const DISCONNECT: u8 = 14;
const AUTH: u8 = 15;

/// Largest number of requests without an acknowledgment that are kept.
const WAITING: usize = 256;

/// A request that waits for its acknowledgment.
#[derive(Debug, Clone, Copy)]
struct Request {
    /// Type of its control packet.
    kind: u8,
    /// Packet identifier; 0 for CONNECT, which has none.
    identifier: u16,
    /// Number of the transaction.
    transaction: u64,
    direction: Direction,
}

heap!(Request {});

/// Returns the type of the request that a control packet acknowledges, and true if no other acknowledgment follows.
fn request_of(kind: u8) -> Option<(u8, bool)> {
    match kind {
        CONNACK => Some((CONNECT, true)),
        SUBACK => Some((SUBSCRIBE, true)),
        UNSUBACK => Some((UNSUBSCRIBE, true)),
        PUBACK | PUBCOMP => Some((PUBLISH, true)),
        PUBREC | PUBREL => Some((PUBLISH, false)),
        _ => None,
    }
}

/// The parser of a connection.
#[derive(Debug, Default)]
pub(super) struct Mqtt {
    framed: Framed,
    /// The version of CONNECT; 0 before.
    version: u8,
    has_connack: bool,
    waiting: Vec<Request>,
}

heap!(Mqtt { framed, waiting });

/// Returns the size of a control packet: type, and a size in up to four groups of seven bits (section 2.1.4).
fn size(bytes: &[u8]) -> Size {
    let mut size = 0;
    for (at, byte) in bytes.iter().skip(1).take(4).enumerate() {
        size |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Size::Known(2 + at + size);
        }
    }
    match bytes.len() > 4 {
        true => Size::Invalid,
        false => Size::Incomplete,
    }
}

impl Mqtt {
    fn packet(&mut self, direction: Direction, bytes: &[u8], out: &mut Transactions) -> Option<()> {
        let mut rest = bytes;
        let first = number(&mut rest, 1)? as u8;
        while number(&mut rest, 1)? & 0x80 != 0 {}
        let (kind, flags) = (first >> 4, first & 0x0f);
        let skipped = match size(bytes) {
            Size::Known(whole) => whole - bytes.len().min(whole),
            _ => 0,
        };
        if skipped > 0 {
            out.raise(INCOMPLETE);
        }
        let request = self.request(kind, rest);
        let known = request.and_then(|(request, _)| out.by_id(request.transaction).map(|_| request));
        let (id, side) = match known {
            Some(request) => (request.transaction, request.direction),
            None => (framed::message(AppProtocol::Mqtt, direction, out).id, direction),
        };
        let transaction = out.by_id(id)?;
        let result = self.read(kind, flags, side, rest, transaction);
        if skipped > 0 {
            note_skipped(kind, skipped, transaction);
        }
        if request_of(kind).is_some() && request.is_none() {
            raise_missing(kind, transaction);
        }
        match request {
            Some((_, is_last)) => acknowledge(transaction, direction, is_last),
            None if needs_acknowledgment(kind, flags) && result.is_some() => {
                self.wait(kind, rest, direction, id, out);
            }
            None => {}
        }
        result
    }

    /// Returns the request that a control packet acknowledges, and true if no other acknowledgment follows; the request then waits
    /// no more.
    fn request(&mut self, kind: u8, body: &[u8]) -> Option<(Request, bool)> {
        let (asked, is_last) = request_of(kind)?;
        let identifier = match kind {
            CONNACK => 0,
            _ => number(&mut &*body, 2)? as u16,
        };
        let is_it = |request: &Request| (request.kind, request.identifier) == (asked, identifier);
        let at = self.waiting.iter().position(is_it)?;
        let request = self.waiting[at];
        if is_last {
            self.waiting.remove(at);
        }
        Some((request, is_last))
    }

    /// Keeps a request until its acknowledgment comes. If there are too many, the oldest ends.
    fn wait(&mut self, kind: u8, body: &[u8], direction: Direction, id: u64, out: &mut Transactions) {
        if self.waiting.len() >= WAITING {
            let oldest = self.waiting.remove(0);
            end(oldest.transaction, out);
        }
        let identifier = identifier_of(kind, body).unwrap_or_default();
        self.waiting.push(Request {
            kind,
            identifier,
            transaction: id,
            direction,
        });
        if let Some(transaction) = out.by_id(id) {
            transaction.begin_exchange(direction);
        }
    }

    /// Reads a control packet into a transaction, whose numbers and buffers are those of `side`.
    fn read(
        &mut self,
        kind: u8,
        flags: u8,
        side: Direction,
        rest: &[u8],
        transaction: &mut Transaction,
    ) -> Option<()> {
        let qos = flags >> 1 & 3;
        transaction.number(NumberField::MqttType, side, kind);
        transaction.number(NumberField::MqttFlags, side, flags);
        transaction.number(NumberField::MqttQos, side, qos);
        if qos == 3 {
            transaction.raise("mqtt.invalid_qos_level");
        }
        let name = NAMES[usize::from(kind)];
        let mut inner = Fields::default();
        inner
            .number("qos", qos)
            .flag("retain", flags & 1 != 0)
            .flag("dup", flags & 8 != 0);
        let is_first = self.version == 0;
        let result = match kind {
            0 => {
                transaction.raise("mqtt.unassigned_msg_type");
                Some(())
            }
            CONNECT => {
                if self.version != 0 {
                    transaction.raise("mqtt.double_connect");
                }
                self.connect(side, rest, transaction, &mut inner)
            }
            CONNACK => {
                self.has_connack = true;
                connack(self.version, side, rest, transaction, &mut inner)
            }
            _ => {
                if is_first || !self.has_connack && kind != AUTH && kind != DISCONNECT {
                    transaction.raise("mqtt.unintroduced_message");
                }
                self.other(kind, qos, side, rest, transaction, &mut inner)
            }
        };
        if self.version != 0 {
            transaction.number_once(NumberField::MqttProtocolVersion, side, self.version);
        }
        fields(transaction, |fields| {
            if fields.value(name).is_none() {
                fields.list.push((name, Value::Object(inner)));
            }
        });
        result
    }

    /// Reads CONNECT (section 3.1).
    fn connect(
        &mut self,
        direction: Direction,
        mut rest: &[u8],
        transaction: &mut Transaction,
        out: &mut Fields,
    ) -> Option<()> {
        let protocol = text(&mut rest)?;
        let version = number(&mut rest, 1)? as u8;
        let flags = number(&mut rest, 1)? as u8;
        self.version = version;
        number(&mut rest, 2)?;
        transaction.publish(Buffer::MqttConnectProtocolString, direction, protocol);
        transaction.number(NumberField::MqttConnectFlags, direction, flags);
        out.text("protocol_string", protocol)
            .number("protocol_version", version);
        out.object("flags", |out| {
            out.flag("username", flags & 0x80 != 0)
                .flag("password", flags & 0x40 != 0)
                .flag("will_retain", flags & 0x20 != 0)
                .flag("will", flags & 0x04 != 0)
                .flag("clean_session", flags & 0x02 != 0);
        });
        properties(version, &mut rest, out)?;
        let mut field = |rest: &mut &[u8], buffer, name, out: &mut Fields| {
            let value = text(rest)?;
            transaction.publish(buffer, direction, value);
            out.text(name, value);
            Some(())
        };
        field(&mut rest, Buffer::MqttConnectClientId, "client_id", out)?;
        if flags & 0x04 != 0 {
            let mut will = Fields::default();
            properties(version, &mut rest, &mut will)?;
            field(&mut rest, Buffer::MqttConnectWillTopic, "topic", &mut will)?;
            field(&mut rest, Buffer::MqttConnectWillMessage, "message", &mut will)?;
            out.list.push(("will", Value::Object(will)));
        }
        if flags & 0x80 != 0 {
            field(&mut rest, Buffer::MqttConnectUsername, "username", out)?;
        }
        if flags & 0x40 != 0 {
            field(&mut rest, Buffer::MqttConnectPassword, "password", out)?;
        }
        Some(())
    }

    /// Reads the packets after the connection is made.
    fn other(
        &mut self,
        kind: u8,
        qos: u8,
        direction: Direction,
        mut rest: &[u8],
        transaction: &mut Transaction,
        out: &mut Fields,
    ) -> Option<()> {
        match kind {
            PUBLISH => {
                let topic = text(&mut rest)?;
                transaction.publish(Buffer::MqttPublishTopic, direction, topic);
                out.text("topic", topic);
                if qos > 0 {
                    identifier(&mut rest, transaction, out)?;
                }
                properties(self.version, &mut rest, out)?;
                transaction.publish(Buffer::MqttPublishMessage, direction, rest);
                out.text("message", rest);
            }
            SUBSCRIBE | UNSUBSCRIBE => {
                identifier(&mut rest, transaction, out)?;
                properties(self.version, &mut rest, out)?;
                let mut topics = Vec::new();
                let mut names = Vec::new();
                while !rest.is_empty() {
                    let topic = text(&mut rest)?;
                    let mut entry = Fields::default();
                    entry.text("topic", topic);
                    if kind == SUBSCRIBE {
                        transaction.publish(Buffer::MqttSubscribeTopic, direction, topic);
                        entry.number("qos", number(&mut rest, 1)? & 3);
                    } else {
                        transaction.publish(Buffer::MqttUnsubscribeTopic, direction, topic);
                        names.push(topic);
                    }
                    if topics.len() < super::record::FIELD_LIST {
                        topics.push(entry);
                    }
                }
                match kind {
                    SUBSCRIBE => out.objects("topics", topics),
                    _ => out.texts("topics", names),
                };
            }
            SUBACK => {
                out.number("message_id", number(&mut rest, 2)?);
                properties(self.version, &mut rest, out)?;
                reason_codes(transaction, direction, rest);
                out.numbers("qos_granted", first_numbers(rest));
            }
            UNSUBACK => {
                out.number("message_id", number(&mut rest, 2)?);
                if self.version >= 5 {
                    properties(self.version, &mut rest, out)?;
                    reason_codes(transaction, direction, rest);
                    if !rest.is_empty() {
                        out.numbers("reason_codes", first_numbers(rest));
                    }
                }
            }
            PUBACK..=PUBCOMP => {
                out.number("message_id", number(&mut rest, 2)?);
                self.reason(direction, rest, transaction, out);
            }
            DISCONNECT | AUTH => self.reason(direction, rest, transaction, out),
            _ => {}
        }
        Some(())
    }

    /// Reads a reason code and properties at the end of a packet of version 5. A packet without a code means code 0 (sections
    /// 3.4.2.1, 3.14.2.1 and 3.15.2.1).
    fn reason(&self, direction: Direction, mut rest: &[u8], transaction: &mut Transaction, out: &mut Fields) {
        if self.version < 5 {
            return;
        }
        let code = number(&mut rest, 1).unwrap_or(0);
        transaction.number(NumberField::MqttReasonCode, direction, code);
        out.number("reason_code", code);
        // The code was read; a packet without properties is complete.
        let _ = properties(self.version, &mut rest, out);
    }
}

/// Publishes the reason codes of SUBACK or UNSUBACK (section 3.9.3).
fn reason_codes(transaction: &mut Transaction, direction: Direction, codes: &[u8]) {
    for code in codes {
        transaction.number(NumberField::MqttReasonCode, direction, *code);
    }
}

/// Returns the first bytes as numbers, as many as a list of a record has.
fn first_numbers(bytes: &[u8]) -> Vec<u64> {
    let first = bytes.iter().take(super::record::FIELD_LIST);
    first.map(|byte| u64::from(*byte)).collect()
}

/// Returns true if a packet is a request.
fn needs_acknowledgment(kind: u8, flags: u8) -> bool {
    match kind {
        CONNECT | SUBSCRIBE | UNSUBSCRIBE => true,
        PUBLISH => flags >> 1 & 3 > 0,
        _ => false,
    }
}

/// Returns the packet identifier of a request (section 2.2.1), which follows the topic of PUBLISH; `None` for CONNECT.
fn identifier_of(kind: u8, mut body: &[u8]) -> Option<u16> {
    match kind {
        CONNECT => return None,
        PUBLISH => {
            text(&mut body)?;
        }
        _ => {}
    }
    number(&mut body, 2).map(|identifier| identifier as u16)
}

/// Reads the identifier of a request.
fn identifier(rest: &mut &[u8], transaction: &mut Transaction, out: &mut Fields) -> Option<()> {
    let identifier = number(rest, 2)?;
    out.number("message_id", identifier);
    if identifier == 0 {
        transaction.raise("mqtt.missing_msg_id");
    }
    Some(())
}

/// Raises the event of an acknowledgment without a request. The parser has always seen the CONNECT of a CONNACK.
fn raise_missing(kind: u8, transaction: &mut Transaction) {
    match kind {
        SUBACK => transaction.raise("mqtt.missing_subscribe"),
        UNSUBACK => transaction.raise("mqtt.missing_unsubscribe"),
        PUBACK..=PUBCOMP => transaction.raise("mqtt.missing_publish"),
        _ => {}
    }
}

/// Writes that bytes at the end of a control packet were not read.
fn note_skipped(kind: u8, skipped: usize, transaction: &mut Transaction) {
    fields(transaction, |fields| {
        if let Some(Value::Object(inner)) = fields.value(NAMES[usize::from(kind)]) {
            inner
                .flag("truncated", true)
                .number("skipped_length", skipped as u64);
        }
    });
}

/// Notes that an acknowledgment came in a direction.
fn acknowledge(transaction: &mut Transaction, direction: Direction, is_last: bool) {
    match is_last {
        true => {
            for side in Direction::BOTH {
                transaction.advance(side, Progress::Complete);
            }
        }
        false => transaction.advance(direction, Progress::Body),
    }
}

/// Reads CONNACK (section 3.2).
fn connack(
    version: u8,
    direction: Direction,
    mut rest: &[u8],
    transaction: &mut Transaction,
    out: &mut Fields,
) -> Option<()> {
    let is_present = number(&mut rest, 1)? & 1;
    let code = number(&mut rest, 1)?;
    transaction.number(NumberField::MqttSessionPresent, direction, is_present);
    transaction.number(NumberField::MqttReasonCode, direction, code);
    out.flag("session_present", is_present != 0)
        .number("return_code", code);
    // The code was read; a packet without properties is complete.
    let _ = properties(version, &mut rest, out);
    Some(())
}

/// Ends the transaction of a request.
fn end(id: u64, out: &mut Transactions) {
    if let Some(transaction) = out.by_id(id) {
        for direction in Direction::BOTH {
            transaction.advance(direction, Progress::Complete);
        }
    }
}

impl Parser for Mqtt {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let mut framed = core::mem::take(&mut self.framed);
        let outcome = framed.add(chunk, size, |message| {
            if self.packet(chunk.direction, message, out).is_none() {
                out.raise("mqtt.malformed_traffic");
            }
            true
        });
        self.framed = framed;
        outcome
    }

    fn end(&mut self, direction: Direction, out: &mut Transactions) {
        if direction == Direction::ToClient {
            for request in core::mem::take(&mut self.waiting) {
                end(request.transaction, out);
            }
        }
    }

    fn is_strict(&self) -> bool {
        true
    }
}
