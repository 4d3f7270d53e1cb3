//! EtherNet/IP and CIP (ODVA, The CIP Networks Library, volumes 1 and 2): each encapsulated message is a transaction.

#[cfg(test)]
mod tests;

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::NumberField;

use super::AppProtocol;
use super::Transport;
use super::framed::{self, Framed, Size, fields, little, take};
use super::parser::{Outcome, Parser};
use super::record::{Fields, Value};
use super::transaction::{Transaction, Transactions};
use super::words::word;
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// Size of the encapsulation header in bytes (volume 2, section 2-3).
const HEADER: usize = 24;
const LIST_SERVICES: u16 = 0x0004;
const LIST_IDENTITY: u16 = 0x0063;
const REGISTER_SESSION: u16 = 0x0065;
const SEND_RR_DATA: u16 = 0x006f;
const SEND_UNIT_DATA: u16 = 0x0070;
/// Types of items (volume 2, section 2-6.2).
const CONNECTED_DATA: u16 = 0x00b1;
const UNCONNECTED_DATA: u16 = 0x00b2;
/// The service with several requests (volume 1, appendix A).
const MULTIPLE: u8 = 0x0a;
/// The bit of a response.
const RESPONSE: u8 = 0x80;
/// Largest number of requests in a packet that are read.
const SERVICES: usize = 64;

/// Commands (volume 2, table 2-3.2).
const COMMANDS: &[(u64, &str)] = &[
    (0, "Nop"),
    (LIST_SERVICES as u64, "ListServices"),
    (LIST_IDENTITY as u64, "ListIdentity"),
    (0x64, "ListInterfaces"),
    (REGISTER_SESSION as u64, "RegisterSession"),
    (0x66, "UnregisterSession"),
    (SEND_RR_DATA as u64, "SendRRData"),
    (SEND_UNIT_DATA as u64, "SendUnitData"),
    (0x72, "IndicateStatus"),
    (0x73, "Cancel"),
];

/// Status of the encapsulation (volume 2, table 2-3.3).
const STATUS: &[(u64, &str)] = &[
    (0, "Success"),
    (1, "InvalidCmd"),
    (2, "NoResources"),
    (3, "IncorrectData"),
    (100, "InvalidSession"),
    (101, "InvalidLength"),
    (105, "UnsupportedProtRev"),
    (106, "EncapHeaderError"),
];

/// Services of CIP that all objects share (volume 1, appendix A).
const CIP_SERVICES: &[(u64, &str)] = &[
    (0x01, "GetAttributesAll"),
    (0x02, "SetAttributesAll"),
    (0x03, "GetAttributeList"),
    (0x04, "SetAttributeList"),
    (0x05, "Reset"),
    (0x06, "Start"),
    (0x07, "Stop"),
    (0x08, "Create"),
    (0x09, "Delete"),
    (MULTIPLE as u64, "MultipleServicePacket"),
    (0x0d, "ApplyAttributes"),
    (0x0e, "GetAttributeSingle"),
    (0x10, "SetAttributeSingle"),
    (0x11, "FindNextObjectInstance"),
    (0x15, "Restore"),
    (0x16, "Save"),
    (0x17, "NoOperation"),
    (0x18, "GetMember"),
    (0x19, "SetMember"),
    (0x1a, "InsertMember"),
    (0x1b, "RemoveMember"),
    (0x1c, "GroupSync"),
];

/// Status of CIP (volume 1, appendix B).
const CIP_STATUS: &[(u64, &str)] = &[
    (0x00, "Success"),
    (0x01, "ConnectionFailure"),
    (0x02, "ResourceUnavailable"),
    (0x03, "InvalidParameterValue"),
    (0x04, "PathSegmentError"),
    (0x05, "PathDestinationUnknown"),
    (0x06, "PartialTransfer"),
    (0x07, "ConnectionLost"),
    (0x08, "ServiceNotSupported"),
    (0x09, "InvalidAttributeValue"),
    (0x0a, "AttributeListError"),
    (0x0b, "AlreadyInRequestedState"),
    (0x0c, "ObjectStateConflict"),
    (0x0d, "ObjectAlreadyExists"),
    (0x0e, "AttributeNotSettable"),
    (0x0f, "PrivilegeViolation"),
    (0x10, "DeviceStateConflict"),
    (0x11, "ReplyDataTooLarge"),
    (0x12, "FragmentationOfPrimitive"),
    (0x13, "NotEnoughData"),
    (0x14, "AttributeNotSupported"),
    (0x15, "TooMuchData"),
    (0x16, "ObjectDoesNotExist"),
    (0x1e, "EmbeddedServiceError"),
    (0x20, "InvalidParameter"),
    (0x26, "PathSizeInvalid"),
];

/// Classes of objects (volume 1, chapter 5).
const CLASSES: &[(u64, &str)] = &[
    (0x01, "Identity"),
    (0x02, "MessageRouter"),
    (0x03, "DeviceNet"),
    (0x04, "Assembly"),
    (0x05, "Connection"),
    (0x06, "ConnectionManager"),
    (0x07, "Register"),
    (0x0f, "Parameter"),
    (0x37, "File"),
    (0xf4, "Port"),
    (0xf5, "TcpIpInterface"),
    (0xf6, "EthernetLink"),
];

/// Types of logical segments by their bits, with the field that rules compare (volume 1, appendix C-1.4.2).
const SEGMENTS: [(&str, Option<NumberField>); 5] = [
    ("class_id", Some(NumberField::EnipCipClass)),
    ("instance_id", Some(NumberField::EnipCipInstance)),
    ("member_id", None),
    ("connection_point", None),
    ("attribute_id", Some(NumberField::EnipCipAttribute)),
];

/// The parser of a flow.
#[derive(Debug)]
pub(super) struct Enip {
    transport: Transport,
    framed: Framed,
}

heap!(Enip { framed });

/// Returns true if the bytes begin an encapsulated message.
pub(super) fn is_message(bytes: &[u8]) -> bool {
    let Some(header) = bytes.first_chunk::<HEADER>() else {
        return false;
    };
    let command = u16::from_le_bytes([header[0], header[1]]);
    let options = &header[20..24];
    matches!(
        command,
        0 | 4 | 0x63 | 0x64 | 0x65 | 0x66 | 0x6f | 0x70 | 0x72 | 0x73
    ) && options == [0; 4]
}

/// Returns the size of a message over TCP.
fn size(bytes: &[u8]) -> Size {
    match bytes {
        [_, _, low, high, ..] => Size::Known(HEADER + usize::from(u16::from_le_bytes([*low, *high]))),
        _ => Size::Incomplete,
    }
}

/// Returns the name of a number, or the number.
fn name(names: &[(u64, &str)], value: u64) -> Vec<u8> {
    word(names, value)
        .map_or_else(|| format!("unknown-{value}"), str::to_owned)
        .into_bytes()
}

impl Enip {
    pub(super) fn new(transport: Transport) -> Enip {
        Enip {
            transport,
            framed: Framed::default(),
        }
    }
}

fn message(direction: Direction, bytes: &[u8], out: &mut Transactions) {
    let mut rest = bytes;
    let transaction = framed::message(AppProtocol::Enip, direction, out);
    let mut header = || {
        let command = little(&mut rest, 2)? as u16;
        let size = little(&mut rest, 2)? as usize;
        let session = little(&mut rest, 4)?;
        let status = little(&mut rest, 4)?;
        take(&mut rest, 12)?;
        Some((command, size, session, status))
    };
    let Some((command, size, _session, status)) = header() else {
        return transaction.raise("enip.invalid_pdu");
    };
    transaction.number(NumberField::EnipCommand, direction, command);
    transaction.number(NumberField::EnipStatus, direction, status);
    let mut out = Fields::default();
    out.text("command", &name(COMMANDS, command.into()))
        .text("status", &name(STATUS, status));
    let body = &rest[..rest.len().min(size)];
    let mut side = Side {
        direction,
        transaction: &mut *transaction,
    };
    let is_valid = match command {
        REGISTER_SESSION => side.session(body, &mut out),
        LIST_IDENTITY | LIST_SERVICES => match body.is_empty() {
            true => Some(()),
            false => side.items(body, &mut out),
        },
        SEND_RR_DATA | SEND_UNIT_DATA => {
            let mut body = body;
            // The interface handle and the timeout precede the items (volume 2, section 2-4.7).
            take(&mut body, 6).and_then(|_| side.items(body, &mut out))
        }
        _ => Some(()),
    };
    if is_valid.is_none() {
        transaction.raise("enip.invalid_pdu");
    }
    let name = match direction {
        Direction::ToServer => "request",
        Direction::ToClient => "response",
    };
    fields(transaction, |record| record.list.push((name, Value::Object(out))));
}

/// The transaction of a message, for what rules compare, and the direction of the message.
struct Side<'a> {
    direction: Direction,
    transaction: &'a mut Transaction,
}

impl Side<'_> {
    fn number(&mut self, field: NumberField, value: u64) {
        self.transaction.number(field, self.direction, value);
    }

    fn session(&mut self, mut body: &[u8], out: &mut Fields) -> Option<()> {
        let version = little(&mut body, 2)?;
        self.number(NumberField::EnipProtocolVersion, version);
        let options = little(&mut body, 2);
        out.object("register_session", |out| {
            out.number("protocol_version", version);
            if let Some(options) = options {
                out.number("options", options);
            }
        });
        Some(())
    }

    /// Reads a list of items: type, size and data (volume 2, section 2-6).
    fn items(&mut self, mut body: &[u8], out: &mut Fields) -> Option<()> {
        let count = little(&mut body, 2)?;
        for _ in 0..count {
            let kind = little(&mut body, 2)? as u16;
            let size = little(&mut body, 2)? as usize;
            let mut data = take(&mut body, size)?;
            let (name, is_valid, found) = match kind {
                0x000c => self.of(data, "identity", Side::identity),
                0x0100 => self.of(data, "list_services", Side::service),
                CONNECTED_DATA => {
                    // A sequence number precedes the message.
                    take(&mut data, 2)?;
                    self.of(data, "cip", Side::cip)
                }
                UNCONNECTED_DATA => self.of(data, "cip", Side::cip),
                _ => continue,
            };
            // A record has the first item of a kind.
            if out.value(name).is_none() {
                out.list.push((name, Value::Object(found)));
            }
            is_valid?;
        }
        Some(())
    }

    /// Reads an item; returns the name of its object, and the fields that were read if it is malformed, too.
    fn of(
        &mut self,
        data: &[u8],
        name: &'static str,
        read: impl FnOnce(&mut Self, &[u8], &mut Fields) -> Option<()>,
    ) -> (&'static str, Option<()>, Fields) {
        let mut found = Fields::default();
        let is_valid = read(self, data, &mut found);
        (name, is_valid, found)
    }

    /// Reads the identity of a device (volume 2, section 2-4.3.3).
    fn identity(&mut self, mut data: &[u8], out: &mut Fields) -> Option<()> {
        let version = little(&mut data, 2)?;
        self.number(NumberField::EnipProtocolVersion, version);
        out.number("protocol_version", version);
        take(&mut data, 16)?;
        for (field, name) in [
            (NumberField::EnipVendorId, "vendor_id"),
            (NumberField::EnipDeviceType, "device_type"),
        ] {
            let value = little(&mut data, 2)?;
            self.number(field, value);
            out.text(name, value.to_string().as_bytes());
        }
        let code = little(&mut data, 2)?;
        self.number(NumberField::EnipProductCode, code);
        // The revision is a major and a minor number of one byte each.
        let revision = framed::number(&mut data, 2)?;
        self.number(NumberField::EnipRevision, revision);
        let status = little(&mut data, 2)?;
        self.number(NumberField::EnipIdentityStatus, status);
        let serial = little(&mut data, 4)?;
        self.number(NumberField::EnipSerial, serial);
        out.number("product_code", code)
            .text(
                "revision",
                format!("{}.{}", revision >> 8, revision & 0xff).as_bytes(),
            )
            .number("status", status)
            .number("serial", serial);
        let size = little(&mut data, 1)? as usize;
        let product = take(&mut data, size)?;
        self.transaction
            .publish(Buffer::EnipProductName, self.direction, product);
        out.text("product_name", product);
        let state = little(&mut data, 1)?;
        self.number(NumberField::EnipState, state);
        out.number("state", state);
        Some(())
    }

    /// Reads a service of a device (volume 2, section 2-4.6.3).
    fn service(&mut self, mut data: &[u8], out: &mut Fields) -> Option<()> {
        let version = little(&mut data, 2)?;
        self.number(NumberField::EnipProtocolVersion, version);
        let capabilities = little(&mut data, 2)?;
        self.number(NumberField::EnipCapabilities, capabilities);
        let name = data.split(|byte| *byte == 0).next().unwrap_or_default();
        self.transaction
            .publish(Buffer::EnipServiceName, self.direction, name);
        out.number("protocol_version", version)
            .number("capabilities", capabilities)
            .text("service_name", name);
        Some(())
    }

    fn cip(&mut self, data: &[u8], out: &mut Fields) -> Option<()> {
        let (service, mut rest) = self.cip_message(data, out)?;
        if service != MULTIPLE {
            return Some(());
        }
        let whole = rest;
        let count = little(&mut rest, 2)? as usize;
        let mut list = Vec::new();
        let mut is_valid = Some(());
        for _ in 0..count.min(SERVICES) {
            let at = little(&mut rest, 2).and_then(|offset| whole.get(offset as usize..));
            let mut one = Fields::default();
            is_valid = at.and_then(|data| self.cip_message(data, &mut one)).map(|_| ());
            list.push(one);
            if is_valid.is_none() {
                break;
            }
        }
        out.objects("multiple", list);
        is_valid
    }

    /// Reads a message of CIP: a request has a path, a response a status (volume 1, section 2-4). Returns its service, and the
    /// bytes behind it.
    fn cip_message<'a>(&mut self, mut data: &'a [u8], out: &mut Fields) -> Option<(u8, &'a [u8])> {
        let code = little(&mut data, 1)? as u8;
        let service = code & !RESPONSE;
        self.number(NumberField::EnipCipService, service.into());
        out.text("service", &name(CIP_SERVICES, service.into()));
        if code & RESPONSE == 0 {
            let size = little(&mut data, 1)? as usize * 2;
            self.path(take(&mut data, size)?, out)?;
            return Some((service, data));
        }
        take(&mut data, 1)?;
        let status = little(&mut data, 1)?;
        self.number(NumberField::EnipCipStatus, status);
        out.text("status", &name(CIP_STATUS, status));
        let words = little(&mut data, 1)?;
        for at in 0..words {
            let extended = little(&mut data, 2)?;
            self.number(NumberField::EnipCipExtendedStatus, extended);
            if at == 0 {
                out.text("status_extended", format!("{extended:04x}").as_bytes());
            }
        }
        Some((service, data))
    }

    /// Reads the logical segments of a path (volume 1, appendix C).
    fn path(&mut self, mut data: &[u8], out: &mut Fields) -> Option<()> {
        let mut list = Vec::new();
        let mut class = None;
        while let [kind, ..] = *data
            // Other segments, such as symbols, are not read.
            && kind & 0xe0 == 0x20
        {
            take(&mut data, 1)?;
            let value = match kind & 3 {
                0 => little(&mut data, 1)?,
                1 => {
                    take(&mut data, 1)?;
                    little(&mut data, 2)?
                }
                2 => {
                    take(&mut data, 1)?;
                    little(&mut data, 4)?
                }
                _ => return None,
            };
            let Some((name, field)) = SEGMENTS.get(usize::from(kind >> 2 & 7)) else {
                continue;
            };
            if let Some(field) = field {
                self.number(*field, value);
            }
            if *field == Some(NumberField::EnipCipClass) {
                class.get_or_insert(value);
            }
            if list.len() < SERVICES {
                let mut segment = Fields::default();
                segment
                    .text("segment_type", name.as_bytes())
                    .number("value", value);
                list.push(segment);
            }
        }
        if !list.is_empty() {
            out.objects("path", list);
        }
        if let Some(class) = class {
            out.text("class_name", &name(CLASSES, class));
        }
        Some(())
    }
}

impl Parser for Enip {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let direction = chunk.direction;
        if self.transport == Transport::Udp {
            message(direction, chunk.bytes, out);
            return Outcome::Continue;
        }
        self.framed.add(chunk, size, |bytes| {
            message(direction, bytes, out);
            true
        })
    }

    fn end(&mut self, _direction: Direction, _out: &mut Transactions) {}
}
