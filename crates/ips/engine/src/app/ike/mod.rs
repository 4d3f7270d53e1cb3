//! IKE, version 1 (RFC 2408, RFC 2409) and 2 (RFC 7296): each message is a transaction.

mod names;

use std::collections::BTreeSet;

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::NumberField;

use super::AppProtocol;
use super::framed::{self, fields, hex, number, take};
use super::parser::{Outcome, Parser};
use super::record::{FIELD_LIST, Fields};
use super::transaction::{Transaction, Transactions};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;
pub(crate) use names::SECURITY_ASSOCIATION;

/// Size of the header in bytes (RFC 7296, section 3.1).
const HEADER: usize = 28;
/// Largest number of payloads of a message that are read.
const PAYLOADS: usize = 64;

/// The names of the attributes of a security association, as rules have them.
const ATTRIBUTES: &[(u16, &str)] = &[
    (1, "alg_enc"),
    (2, "alg_hash"),
    (3, "alg_auth"),
    (4, "alg_dh"),
    (5, "sa_group_type"),
    (11, "sa_life_type"),
    (12, "sa_life_duration"),
    (13, "alg_prf"),
    (14, "sa_key_length"),
    (15, "sa_field_size"),
];

/// Largest size of the data of a key exchange and of a nonce that records have, in bytes.
const RECORDED: usize = 512;
/// Largest number of proposals and of vendors that records have.
const LISTED: usize = 16;

/// The payloads of version 1 that an end sent in its last message that was not encrypted.
#[derive(Debug, Default)]
struct End {
    key_exchange: Vec<u8>,
    nonce: Vec<u8>,
}

heap!(End { key_exchange, nonce });

/// The parser of a flow.
#[derive(Debug, Default)]
pub(super) struct Ike {
    /// Payloads of version 1 of both ends, by [`Direction::index`].
    ends: [End; 2],
    /// Attributes in the last security association of the server; in version 1 those of its first transform.
    chosen: Vec<(&'static str, u64)>,
    /// The domain of interpretation of version 1.
    domain: Option<u64>,
}

heap!(Ike { ends, chosen });

/// Removes the marker of NAT traversal (RFC 3948, section 2.2).
fn without_marker(bytes: &[u8]) -> &[u8] {
    bytes
        .strip_prefix(&[0; 4])
        .filter(|rest| is_message(rest))
        .unwrap_or(bytes)
}

/// Returns true if the bytes are a message: the version, and the size in the header.
pub(super) fn is_message(bytes: &[u8]) -> bool {
    bytes.len() >= HEADER
        && matches!(bytes[17] >> 4, 1 | 2)
        && u32::from_be_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]) as usize <= bytes.len()
        && bytes[..8] != [0; 8]
}

/// The parts of a message.
#[derive(Default)]
struct Found<'a> {
    names: Vec<&'static str>,
    vendors: Vec<&'a [u8]>,
    key_exchange: Option<&'a [u8]>,
    nonce: Option<&'a [u8]>,
    /// Attributes of the proposals, in order.
    attributes: Vec<(&'static str, u64)>,
    /// The attributes of each transform of version 1.
    transforms: Vec<Vec<(&'static str, u64)>>,
    proposals: usize,
    /// Kinds of notifications.
    notifications: Vec<u64>,
    /// The domain of interpretation of version 1.
    domain: Option<u64>,
}

/// Reads the payloads; `None` if one does not fit.
fn payloads<'a>(version: u8, mut next: u8, mut rest: &'a [u8], found: &mut Found<'a>) -> Option<()> {
    for _ in 0..PAYLOADS {
        if next == 0 {
            return Some(());
        }
        let kind = next;
        next = number(&mut rest, 1)? as u8;
        take(&mut rest, 1)?;
        let size = number(&mut rest, 2)? as usize;
        let body = take(&mut rest, size.checked_sub(4)?)?;
        match (version, kind) {
            (1, 1) => {
                proposals_1(body, found)?;
                found.names.extend(["Transform", "Proposal"]);
            }
            (2, 33) => proposals_2(body, found)?,
            (1, 4) => found.key_exchange = Some(body),
            // Version 2 has the group and two reserved bytes before the data (section 3.4).
            (2, 34) => found.key_exchange = Some(body.get(4..)?),
            (1, 10) | (2, 40) => found.nonce = Some(body),
            (1, 13) | (2, 43) => found.vendors.push(body),
            (2, 41) => {
                // Protocol and size of the SPI precede the kind (RFC 7296, section 3.10).
                let mut rest = body;
                take(&mut rest, 2)?;
                let kind = number(&mut rest, 2)?;
                if found.notifications.len() < LISTED {
                    found.notifications.push(kind);
                }
            }
            _ => {}
        }
        found.names.push(names::payload(version, kind));
        // The rest is encrypted (section 3.14).
        if matches!((version, kind), (2, 46 | 53)) {
            return Some(());
        }
    }
    Some(())
}

/// Takes a proposal or a transform, which begin alike in both versions: with two bytes, and the size of all (RFC 2408,
/// section 3.5; RFC 7296, section 3.3.1). Returns what follows the size.
fn structure<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    take(bytes, 2)?;
    let size = number(bytes, 2)? as usize;
    take(bytes, size.checked_sub(4)?)
}

/// Takes a proposal, and returns the number of its transforms, and their bytes.
fn proposal<'a>(body: &mut &'a [u8]) -> Option<(u64, &'a [u8])> {
    let mut rest = structure(body)?;
    take(&mut rest, 2)?;
    let spi = number(&mut rest, 1)? as usize;
    let count = number(&mut rest, 1)?;
    take(&mut rest, spi)?;
    Some((count, rest))
}

/// Reads a security association of version 1: proposals, transforms and attributes (RFC 2408, sections 3.4 to 3.6).
fn proposals_1(mut body: &[u8], found: &mut Found<'_>) -> Option<()> {
    found.domain = Some(number(&mut body, 4)?);
    take(&mut body, 4)?;
    while !body.is_empty() {
        let (count, mut transforms) = proposal(&mut body)?;
        found.proposals += 1;
        for _ in 0..count {
            let mut transform = structure(&mut transforms)?;
            take(&mut transform, 4)?;
            let before = found.attributes.len();
            while !transform.is_empty() {
                let kind = number(&mut transform, 2)? as u16;
                let value = number(&mut transform, 2)?;
                // The first bit tells that the value takes the place of the size (section 3.3).
                let value = match kind & 0x8000 {
                    0 => take(&mut transform, value as usize)?
                        .iter()
                        .fold(0u64, |all, byte| all << 8 | u64::from(*byte)),
                    _ => value,
                };
                let name = ATTRIBUTES.iter().find(|(known, _)| *known == kind & 0x7fff);
                if let Some((_, name)) = name {
                    found.attributes.push((name, value));
                }
            }
            if found.transforms.len() < LISTED {
                found.transforms.push(found.attributes[before..].to_vec());
            }
        }
    }
    Some(())
}

/// Reads a security association of version 2 (RFC 7296, section 3.3).
fn proposals_2(mut body: &[u8], found: &mut Found<'_>) -> Option<()> {
    while !body.is_empty() {
        let (count, mut transforms) = proposal(&mut body)?;
        found.proposals += 1;
        for _ in 0..count {
            let mut transform = structure(&mut transforms)?;
            let kind = number(&mut transform, 1)?;
            take(&mut transform, 1)?;
            let value = number(&mut transform, 2)?;
            let name = match kind {
                1 => "alg_enc",
                2 => "alg_prf",
                3 => "alg_auth",
                4 => "alg_dh",
                5 => "alg_esn",
                _ => continue,
            };
            found.attributes.push((name, value));
        }
    }
    Some(())
}

/// Raises the anomalies of a chosen proposal of version 2 (RFC 8247).
fn raise_weak(found: &Found<'_>, transaction: &mut Transaction) {
    let values = |name: &'static str| {
        found
            .attributes
            .iter()
            .filter(move |(known, _)| *known == name)
            .map(|(_, value)| *value)
    };
    if values("alg_enc").any(|value| matches!(value, 1..=3 | 4 | 6..=9 | 11)) {
        transaction.raise("ike.weak_crypto_enc");
    }
    if values("alg_prf").any(|value| matches!(value, 1..=3)) {
        transaction.raise("ike.weak_crypto_prf");
    }
    if values("alg_auth").any(|value| matches!(value, 1 | 2 | 4 | 6 | 7)) {
        transaction.raise("ike.weak_crypto_auth");
    }
    if values("alg_auth").any(|value| value == 0) {
        transaction.raise("ike.weak_crypto_noauth");
    }
    if values("alg_dh").any(|value| value == 0) {
        transaction.raise("ike.weak_crypto_nodh");
    }
    if values("alg_dh").any(|value| matches!(value, 1 | 2 | 5 | 22..=24)) {
        transaction.raise("ike.weak_crypto_dh");
    }
    if found.proposals > 1 {
        transaction.raise("ike.multiple_server_proposal");
    }
}

/// Writes the attributes of a transform, each by its name and its number; the first of several of a kind.
fn attributes(major: u8, list: &[(&'static str, u64)], out: &mut Fields) {
    for (at, (name, value)) in list.iter().enumerate() {
        if list[..at].iter().any(|(earlier, _)| earlier == name) {
            continue;
        }
        out.text(name, names::value(major, name, *value).as_bytes());
        out.number(raw_name(name), *value);
    }
}

/// Returns the field with the number of an attribute.
fn raw_name(name: &str) -> &'static str {
    match name {
        "alg_enc" => "alg_enc_raw",
        "alg_hash" => "alg_hash_raw",
        "alg_auth" => "alg_auth_raw",
        "alg_dh" => "alg_dh_raw",
        "alg_prf" => "alg_prf_raw",
        "alg_esn" => "alg_esn_raw",
        "sa_group_type" => "sa_group_type_raw",
        "sa_life_type" => "sa_life_type_raw",
        "sa_life_duration" => "sa_life_duration_raw",
        "sa_key_length" => "sa_key_length_raw",
        _ => "sa_field_size_raw",
    }
}

/// Returns the attributes of each transform of version 1.
fn transforms(found: &Found<'_>) -> Vec<Fields> {
    let one = |list: &Vec<(&'static str, u64)>| {
        let mut out = Fields::default();
        attributes(1, list, &mut out);
        out
    };
    found.transforms.iter().map(one).collect()
}

impl Ike {
    /// Keeps the payloads of a message of version 1 for the records of the flow. As in Suricata, a message without a payload removes
    /// that of an earlier one.
    fn keep(&mut self, direction: Direction, found: &Found<'_>) {
        let cut = |data: Option<&[u8]>| {
            let data = data.unwrap_or_default();
            data[..data.len().min(RECORDED)].to_vec()
        };
        self.ends[direction.index()] = End {
            key_exchange: cut(found.key_exchange),
            nonce: cut(found.nonce),
        };
        self.domain = found.domain.or(self.domain);
    }

    /// Keeps what the server chooses in a security association for the records of later messages.
    fn choose(&mut self, found: &Found<'_>) {
        if found.names.contains(&SECURITY_ASSOCIATION) {
            let list = found.transforms.first().unwrap_or(&found.attributes);
            self.chosen = list[..list.len().min(FIELD_LIST)].to_vec();
        }
    }

    /// Writes the payloads of a message of version 1 and of the messages before it; nothing more than the domain of interpretation if
    /// it is encrypted.
    fn version_1(&self, direction: Direction, is_encrypted: bool, found: &Found<'_>, out: &mut Fields) {
        if let Some(domain) = self.domain {
            out.number("doi", domain);
        }
        out.flag("encrypted_payloads", is_encrypted);
        if is_encrypted {
            return;
        }
        for (name, side) in [("client", Direction::ToServer), ("server", Direction::ToClient)] {
            let end = &self.ends[side.index()];
            out.object(name, |out| {
                if !end.key_exchange.is_empty() {
                    out.text("key_exchange_payload", &hex(&end.key_exchange))
                        .number("key_exchange_payload_length", end.key_exchange.len() as u64);
                }
                if !end.nonce.is_empty() {
                    out.text("nonce_payload", &hex(&end.nonce))
                        .number("nonce_payload_length", end.nonce.len() as u64);
                }
                if (direction, side) == (Direction::ToServer, Direction::ToServer)
                    && !found.transforms.is_empty()
                {
                    out.objects("proposals", transforms(found));
                }
            });
        }
        if !found.vendors.is_empty() {
            let vendors: Vec<Vec<u8>> = found.vendors.iter().take(LISTED).map(|id| hex(id)).collect();
            out.texts("vendor_ids", vendors.iter().map(Vec::as_slice));
        }
    }

    fn message(&mut self, direction: Direction, bytes: &[u8], out: &mut Transactions) {
        let transaction = framed::message(AppProtocol::Ike, direction, out);
        if !is_message(bytes) {
            return transaction.raise("ike.malformed_data");
        }
        let (initiator, responder) = (hex(&bytes[..8]), hex(&bytes[8..16]));
        let (next, version, exchange, flags) = (bytes[16], bytes[17], bytes[18], bytes[19]);
        let identifier = u32::from_be_bytes([bytes[20], bytes[21], bytes[22], bytes[23]]);
        let major = version >> 4;
        let mut found = Found::default();
        // Payloads of version 1 may be encrypted (RFC 2408, section 3.1).
        let is_encrypted = major == 1 && flags & 1 != 0;
        if is_encrypted {
            found.names.push(names::payload(major, next));
        } else if payloads(major, next, &bytes[HEADER..], &mut found).is_none() {
            transaction.raise("ike.malformed_data");
        }
        // As in Suricata, each end's messages have its own SPI for rules.
        match direction {
            Direction::ToServer => transaction.publish(Buffer::IkeInitSpi, direction, initiator.clone()),
            Direction::ToClient => transaction.publish(Buffer::IkeRespSpi, direction, responder.clone()),
        }
        transaction.number(NumberField::IkeExchType, direction, exchange);
        for vendor in &found.vendors {
            transaction.publish(Buffer::IkeVendor, direction, hex(vendor));
        }
        if let Some(data) = found.key_exchange {
            transaction.publish(Buffer::IkeKeyExchange, direction, data);
            transaction.number(NumberField::IkeKeyExchangeLength, direction, data.len() as u64);
        }
        if let Some(data) = found.nonce {
            transaction.publish(Buffer::IkeNonce, direction, data);
            transaction.number(NumberField::IkeNonceLength, direction, data.len() as u64);
        }
        if direction == Direction::ToClient {
            match major {
                2 => raise_weak(&found, transaction),
                _ if found.transforms.len() > 1 => transaction.raise("ike.multiple_server_proposal"),
                _ => {}
            }
            self.choose(&found);
        }
        if major == 1 {
            if !is_encrypted {
                self.keep(direction, &found);
            }
            let mut seen = BTreeSet::new();
            found.names.retain(|name| seen.insert(*name));
        }
        fields(transaction, |out| {
            out.number("version_major", major)
                .number("version_minor", version & 0xf)
                .text("init_spi", &initiator)
                .text("resp_spi", &responder)
                .number("message_id", identifier)
                .number("exchange_type", exchange);
            if let Some(name) = names::exchange(major, exchange) {
                out.text("exchange_type_verbose", name.as_bytes());
            }
            let is_initiator = flags & 0x08 != 0;
            if major == 1 || !is_initiator {
                attributes(major, &self.chosen, out);
            }
            if (major, direction) == (1, Direction::ToClient) && found.transforms.len() > 1 {
                out.objects("server_proposals", transforms(&found));
            }
            // The responder's messages of version 2 have the bit I clear (section 3.1).
            if major == 2 {
                out.text("role", if is_initiator { b"initiator" } else { b"responder" });
            }
            out.texts("payload", found.names.iter().map(|name| name.as_bytes()));
            if major == 1 {
                out.object("ikev1", |out| {
                    self.version_1(direction, is_encrypted, &found, out);
                });
            } else {
                let notifications: Vec<String> = found
                    .notifications
                    .iter()
                    .map(|kind| names::notification(*kind))
                    .collect();
                out.object("ikev2", |out| {
                    out.number("errors", 0_u8)
                        .texts("notify", notifications.iter().map(String::as_bytes));
                });
            }
        });
    }
}

impl Parser for Ike {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        self.message(chunk.direction, without_marker(chunk.bytes), out);
        Outcome::Continue
    }

    fn end(&mut self, _direction: Direction, _out: &mut Transactions) {}
}
