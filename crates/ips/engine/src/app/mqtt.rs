//! MQTT 3.1, 3.1.1 and 5.0 (OASIS, "MQTT Version 5.0"): each control packet is a transaction. The record of a request has its answers,
//! too, as Suricata documents.

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::NumberField;

use super::framed::{self, Framed, Size, fields, hex, number, take};
use super::parser::{Outcome, Parser};
use super::record::{Fields, Value};
use super::transaction::{Progress, Transaction, Transactions};
use super::{AppProtocol, AppSettings};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

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
const SUBSCRIBE: u8 = 8;
const SUBACK: u8 = 9;
const UNSUBSCRIBE: u8 = 10;
const UNSUBACK: u8 = 11;
const DISCONNECT: u8 = 14;
const AUTH: u8 = 15;

/// Largest number of identifiers of packets without an answer that are kept.
const WAITING: usize = 256;

/// The parser of a connection.
#[derive(Debug, Default)]
pub(super) struct Mqtt {
    framed: Framed,
    /// The version of CONNECT; 0 before.
    version: u8,
    has_connack: bool,
    /// Identifiers of PUBLISH, SUBSCRIBE and UNSUBSCRIBE without an answer, each with the type.
    waiting: Vec<(u8, u16)>,
    /// The transactions whose records wait for answers: type, identifier and number.
    open: Vec<(u8, u16, u64)>,
    keeps_records: bool,
}

heap!(Mqtt {
    framed,
    waiting,
    open
});

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

/// Removes a text with its size from the front (section 1.5.4).
fn text<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let size = number(bytes, 2)?;
    take(bytes, size as usize)
}

/// The form of a property (section 2.2.2.2).
#[derive(Clone, Copy)]
enum Form {
    /// A big-endian number of this size in bytes.
    Number(usize),
    /// A number in up to four groups of seven bits.
    Variable,
    Text,
    /// Bytes, in hexadecimal digits.
    Binary,
    /// Two texts; records do not have them.
    Pair,
}

/// The properties by their identifiers, with their names in records.
const PROPERTIES: &[(u8, &str, Form)] = &[
    (1, "payload_format_indicator", Form::Number(1)),
    (2, "message_expiry_interval", Form::Number(4)),
    (3, "content_type", Form::Text),
    (8, "response_topic", Form::Text),
    (9, "correlation_data", Form::Binary),
    (11, "subscription_identifier", Form::Variable),
    (17, "session_expiry_interval", Form::Number(4)),
    (18, "assigned_client_identifier", Form::Text),
    (19, "server_keep_alive", Form::Number(2)),
    (21, "authentication_method", Form::Text),
    (22, "authentication_data", Form::Binary),
    (23, "request_problem_information", Form::Number(1)),
    (24, "will_delay_interval", Form::Number(4)),
    (25, "request_response_information", Form::Number(1)),
    (26, "response_information", Form::Text),
    (28, "server_reference", Form::Text),
    (31, "reason_string", Form::Text),
    (33, "receive_maximum", Form::Number(2)),
    (34, "topic_alias_maximum", Form::Number(2)),
    (35, "topic_alias", Form::Number(2)),
    (36, "maximum_qos", Form::Number(1)),
    (37, "retain_available", Form::Number(1)),
    (38, "user_property", Form::Pair),
    (39, "maximum_packet_size", Form::Number(4)),
    (40, "wildcard_subscription_available", Form::Number(1)),
    (41, "subscription_identifiers_available", Form::Number(1)),
    (42, "shared_subscription_available", Form::Number(1)),
];

/// Removes a number in up to four groups of seven bits from the front (section 1.5.5).
fn variable(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for at in 0..4 {
        let byte = number(bytes, 1)?;
        value |= (byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some(value)
}

/// Removes the properties of version 5 from the front (section 2.2.2), and writes them. What follows an unknown one is not read.
fn properties(version: u8, bytes: &mut &[u8], out: &mut Fields) -> Option<()> {
    if version < 5 {
        return Some(());
    }
    let size = variable(bytes)? as usize;
    let mut rest = take(bytes, size)?;
    let mut found = Fields::default();
    while found.list.len() < super::record::FIELD_LIST && property(&mut rest, &mut found).is_some() {}
    if !found.list.is_empty() {
        out.list.push(("properties", Value::Object(found)));
    }
    Some(())
}

/// Removes a property from the front, and writes it.
fn property(rest: &mut &[u8], out: &mut Fields) -> Option<()> {
    let identifier = number(rest, 1)? as u8;
    let (_, name, form) = PROPERTIES.iter().find(|(known, ..)| *known == identifier)?;
    let is_known = out.value(name).is_some();
    let mut value = Fields::default();
    match form {
        Form::Number(size) => value.number(name, number(rest, *size)?),
        Form::Variable => value.number(name, variable(rest)?),
        Form::Text => value.text(name, text(rest)?),
        Form::Binary => value.text(name, &hex(text(rest)?)),
        Form::Pair => {
            text(rest)?;
            text(rest)?;
            return Some(());
        }
    };
    if !is_known {
        out.list.append(&mut value.list);
    }
    Some(())
}

impl Mqtt {
    pub(super) fn new(settings: AppSettings) -> Mqtt {
        Mqtt {
            keeps_records: settings.keeps_records,
            ..Mqtt::default()
        }
    }

    fn packet(&mut self, direction: Direction, bytes: &[u8], out: &mut Transactions) -> Option<()> {
        let mut rest = bytes;
        let first = number(&mut rest, 1)? as u8;
        while number(&mut rest, 1)? & 0x80 != 0 {}
        let (kind, flags) = (first >> 4, first & 0x0f);
        let qos = flags >> 1 & 3;
        let transaction = framed::message(AppProtocol::Mqtt, direction, out);
        transaction.number(NumberField::MqttType, direction, kind);
        transaction.number(NumberField::MqttFlags, direction, flags);
        transaction.number(NumberField::MqttQos, direction, qos);
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
                self.connect(direction, rest, transaction, &mut inner)
            }
            CONNACK => {
                self.has_connack = true;
                connack(self.version, direction, rest, transaction, &mut inner)
            }
            _ => {
                if is_first || !self.has_connack && kind != AUTH && kind != DISCONNECT {
                    transaction.raise("mqtt.unintroduced_message");
                }
                self.other(kind, qos, direction, rest, transaction, &mut inner)
            }
        };
        if self.version != 0 {
            transaction.number(NumberField::MqttProtocolVersion, direction, self.version);
        }
        let id = transaction.id;
        fields(transaction, |fields| {
            fields.list.push((name, Value::Object(inner.clone())));
        });
        let identifier = match inner.value("message_id") {
            Some(Value::Number(identifier)) => *identifier as u16,
            _ => 0,
        };
        let is_joined = match kind {
            CONNECT | CONNACK | 4..=7 | SUBSCRIBE | SUBACK | UNSUBSCRIBE | UNSUBACK => true,
            PUBLISH => qos > 0,
            _ => false,
        };
        if self.keeps_records && is_joined {
            self.join(direction, (kind, identifier, id), (name, inner), out);
        }
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
                    self.identifier(kind, &mut rest, transaction, out)?;
                }
                properties(self.version, &mut rest, out)?;
                transaction.publish(Buffer::MqttPublishMessage, direction, rest);
                out.text("message", rest);
            }
            SUBSCRIBE | UNSUBSCRIBE => {
                self.identifier(kind, &mut rest, transaction, out)?;
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
            SUBACK | UNSUBACK | 4..=7 => {
                let (asked, event) = match kind {
                    SUBACK => (SUBSCRIBE, "mqtt.missing_subscribe"),
                    UNSUBACK => (UNSUBSCRIBE, "mqtt.missing_unsubscribe"),
                    _ => (PUBLISH, "mqtt.missing_publish"),
                };
                let identifier = number(&mut rest, 2)? as u16;
                out.number("message_id", identifier);
                let known = self
                    .waiting
                    .iter()
                    .position(|waiting| *waiting == (asked, identifier));
                match known {
                    // PUBREC is followed by PUBREL and PUBCOMP (section 4.3.3).
                    Some(at) if !matches!(kind, 5 | 6) => {
                        self.waiting.swap_remove(at);
                    }
                    Some(_) => {}
                    None => transaction.raise(event),
                }
                if matches!(kind, SUBACK | UNSUBACK) {
                    properties(self.version, &mut rest, out)?;
                }
                if self.version >= 5 || kind == SUBACK {
                    let codes = if matches!(kind, SUBACK | UNSUBACK) {
                        rest.len()
                    } else {
                        1
                    };
                    for code in rest.iter().take(codes) {
                        transaction.number(NumberField::MqttReasonCode, direction, *code);
                    }
                    match (kind, rest.first()) {
                        (SUBACK, _) => {
                            let granted = rest.iter().take(super::record::FIELD_LIST);
                            out.numbers("qos_granted", granted.map(|qos| u64::from(*qos)).collect());
                        }
                        (_, Some(code)) => {
                            out.number("reason_code", *code);
                        }
                        _ => {}
                    }
                }
            }
            DISCONNECT | AUTH if self.version >= 5 => {
                let code = rest.first().copied().unwrap_or(0);
                transaction.number(NumberField::MqttReasonCode, direction, code);
                out.number("reason_code", code);
                let mut rest = rest.get(1..).unwrap_or_default();
                let _ = properties(self.version, &mut rest, out);
            }
            _ => {}
        }
        Some(())
    }

    /// Adds the answer of a request to the request's record, which then is the only one of both. `id` is the transaction of the
    /// packet. The record of a request without an answer ends with the connection.
    fn join(
        &mut self,
        direction: Direction,
        (kind, identifier, id): (u8, u16, u64),
        (name, inner): (&'static str, Fields),
        out: &mut Transactions,
    ) {
        let (asked, is_last) = match kind {
            CONNACK => (CONNECT, true),
            SUBACK => (SUBSCRIBE, true),
            UNSUBACK => (UNSUBSCRIBE, true),
            // PUBREC is followed by PUBREL and PUBCOMP (section 4.3.3).
            4 | 7 => (PUBLISH, true),
            5 | 6 => (PUBLISH, false),
            _ => {
                if self.open.len() >= WAITING {
                    let (.., oldest) = self.open.remove(0);
                    end(oldest, out);
                }
                self.open.push((kind, identifier, id));
                if let Some(transaction) = out.by_id(id) {
                    transaction.progress[direction.reverse().index()] = Progress::Started;
                }
                return;
            }
        };
        let is_it = |(kind, known, _): &(u8, u16, u64)| (*kind, *known) == (asked, identifier);
        let Some(at) = self.open.iter().position(is_it) else {
            return;
        };
        let (.., request) = self.open[at];
        let Some(transaction) = out.by_id(request) else {
            self.open.remove(at);
            return;
        };
        fields(transaction, |fields| {
            if fields.value(name).is_none() {
                fields.list.push((name, Value::Object(inner)));
            }
        });
        if let Some(own) = out.by_id(id) {
            own.is_unlogged = true;
        }
        if is_last {
            self.open.remove(at);
            end(request, out);
        }
    }

    fn identifier(
        &mut self,
        kind: u8,
        rest: &mut &[u8],
        transaction: &mut Transaction,
        out: &mut Fields,
    ) -> Option<()> {
        let identifier = number(rest, 2)? as u16;
        out.number("message_id", identifier);
        if identifier == 0 {
            transaction.raise("mqtt.missing_msg_id");
        }
        if self.waiting.len() >= WAITING {
            self.waiting.remove(0);
        }
        self.waiting.push((kind, identifier));
        Some(())
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
            for (.., id) in core::mem::take(&mut self.open) {
                end(id, out);
            }
        }
    }

    fn is_strict(&self) -> bool {
        true
    }
}
