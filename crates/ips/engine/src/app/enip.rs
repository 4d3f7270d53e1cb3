//! EtherNet/IP and CIP (ODVA, The CIP Networks Library, volumes 1 and 2): each encapsulated message is a transaction.

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::NumberField;

use super::AppProtocol;
use super::Transport;
use super::framed::{self, Framed, Size, fields, little, take};
use super::parser::{Outcome, Parser};
use super::transaction::{Transaction, Transactions};
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

fn command_name(command: u16) -> String {
    match command {
        0 => "Nop".to_owned(),
        LIST_SERVICES => "ListServices".to_owned(),
        LIST_IDENTITY => "ListIdentity".to_owned(),
        0x64 => "ListInterfaces".to_owned(),
        REGISTER_SESSION => "RegisterSession".to_owned(),
        0x66 => "UnregisterSession".to_owned(),
        SEND_RR_DATA => "SendRRData".to_owned(),
        SEND_UNIT_DATA => "SendUnitData".to_owned(),
        0x72 => "IndicateStatus".to_owned(),
        0x73 => "Cancel".to_owned(),
        other => format!("unknown-{other}"),
    }
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
    let body = &rest[..rest.len().min(size)];
    let is_valid = match command {
        REGISTER_SESSION => version(body, direction, transaction),
        LIST_IDENTITY | LIST_SERVICES => match body.is_empty() {
            true => Some(()),
            false => items(body, direction, transaction),
        },
        SEND_RR_DATA | SEND_UNIT_DATA => {
            let mut body = body;
            // The interface handle and the timeout precede the items (volume 2, section 2-4.7).
            take(&mut body, 6).and_then(|_| items(body, direction, transaction))
        }
        _ => Some(()),
    };
    if is_valid.is_none() {
        transaction.raise("enip.invalid_pdu");
    }
    let side = match direction {
        Direction::ToServer => "request",
        Direction::ToClient => "response",
    };
    fields(transaction, |out| {
        out.object(side, |out| {
            out.text("command", command_name(command).as_bytes())
                .number("status", status);
        });
    });
}

fn version(mut body: &[u8], direction: Direction, transaction: &mut Transaction) -> Option<()> {
    let version = little(&mut body, 2)?;
    transaction.number(NumberField::EnipProtocolVersion, direction, version);
    Some(())
}

/// Reads a list of items: type, size and data (volume 2, section 2-6).
fn items(mut body: &[u8], direction: Direction, transaction: &mut Transaction) -> Option<()> {
    let count = little(&mut body, 2)?;
    for _ in 0..count {
        let kind = little(&mut body, 2)? as u16;
        let size = little(&mut body, 2)? as usize;
        let mut data = take(&mut body, size)?;
        match kind {
            0x000c => identity(data, direction, transaction)?,
            0x0100 => service(data, direction, transaction)?,
            CONNECTED_DATA => {
                // A sequence number precedes the message.
                take(&mut data, 2)?;
                cip(data, direction, transaction, 0)?;
            }
            UNCONNECTED_DATA => cip(data, direction, transaction, 0)?,
            _ => {}
        }
    }
    Some(())
}

/// Reads the identity of a device (volume 2, section 2-4.3.3).
fn identity(mut data: &[u8], direction: Direction, transaction: &mut Transaction) -> Option<()> {
    let version = little(&mut data, 2)?;
    transaction.number(NumberField::EnipProtocolVersion, direction, version);
    take(&mut data, 16)?;
    let numbers = [
        (NumberField::EnipVendorId, 2),
        (NumberField::EnipDeviceType, 2),
        (NumberField::EnipProductCode, 2),
        (NumberField::EnipRevision, 2),
        (NumberField::EnipIdentityStatus, 2),
        (NumberField::EnipSerial, 4),
    ];
    for (field, size) in numbers {
        // The revision is a major and a minor number of one byte each.
        let value = match field {
            NumberField::EnipRevision => framed::number(&mut data, size)?,
            _ => little(&mut data, size)?,
        };
        transaction.number(field, direction, value);
    }
    let size = little(&mut data, 1)? as usize;
    transaction.publish(Buffer::EnipProductName, direction, take(&mut data, size)?);
    let state = little(&mut data, 1)?;
    transaction.number(NumberField::EnipState, direction, state);
    Some(())
}

/// Reads a service of a device (volume 2, section 2-4.6.3).
fn service(mut data: &[u8], direction: Direction, transaction: &mut Transaction) -> Option<()> {
    let version = little(&mut data, 2)?;
    transaction.number(NumberField::EnipProtocolVersion, direction, version);
    let capabilities = little(&mut data, 2)?;
    transaction.number(NumberField::EnipCapabilities, direction, capabilities);
    let name = data.split(|byte| *byte == 0).next().unwrap_or_default();
    transaction.publish(Buffer::EnipServiceName, direction, name);
    Some(())
}

/// Reads a message of CIP: a request has a path, a response a status (volume 1, section 2-4).
fn cip(mut data: &[u8], direction: Direction, transaction: &mut Transaction, depth: usize) -> Option<()> {
    let service = little(&mut data, 1)? as u8;
    transaction.number(NumberField::EnipCipService, direction, service & !RESPONSE);
    if service & RESPONSE != 0 {
        take(&mut data, 1)?;
        let status = little(&mut data, 1)?;
        transaction.number(NumberField::EnipCipStatus, direction, status);
        let words = little(&mut data, 1)?;
        for _ in 0..words {
            let extended = little(&mut data, 2)?;
            transaction.number(NumberField::EnipCipExtendedStatus, direction, extended);
        }
    } else {
        let size = little(&mut data, 1)? as usize * 2;
        path(take(&mut data, size)?, direction, transaction)?;
    }
    if service & !RESPONSE == MULTIPLE && depth == 0 {
        let whole = data;
        let count = little(&mut data, 2)? as usize;
        for _ in 0..count.min(SERVICES) {
            let offset = little(&mut data, 2)? as usize;
            cip(whole.get(offset..)?, direction, transaction, depth + 1)?;
        }
    }
    Some(())
}

/// Reads the logical segments of a path (volume 1, appendix C).
fn path(mut data: &[u8], direction: Direction, transaction: &mut Transaction) -> Option<()> {
    while !data.is_empty() {
        let kind = little(&mut data, 1)? as u8;
        if kind & 0xe0 != 0x20 {
            // Other segments, such as symbols, are not read.
            return Some(());
        }
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
        let field = match kind >> 2 & 7 {
            0 => NumberField::EnipCipClass,
            1 => NumberField::EnipCipInstance,
            4 => NumberField::EnipCipAttribute,
            _ => continue,
        };
        transaction.number(field, direction, value);
    }
    Some(())
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
