//! IKE, version 1 (RFC 2408, RFC 2409) and 2 (RFC 7296): each message is a transaction.

mod names;

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

/// The payloads of version 1 that an end has sent.
#[derive(Debug, Default)]
struct End {
    key_exchange: Vec<u8>,
    nonce: Vec<u8>,
    /// The attributes of each transform.
    transforms: Vec<Vec<(&'static str, u64)>>,
}

heap!(End { key_exchange, nonce });

/// The parser of a flow.
#[derive(Debug, Default)]
pub(super) struct Ike {
    /// Payloads of version 1 of both ends, by [`Direction::index`].
    ends: [End; 2],
    /// Vendors of version 1.
    vendors: Vec<Vec<u8>>,
    /// The domain of interpretation of version 1.
    domain: Option<u64>,
}

heap!(Ike { ends, vendors });

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
        let name = match (version, kind) {
            (1, 1) | (2, 33) => {
                match version {
                    1 => {
                        proposals_1(body, found)?;
                        found.names.extend(["Transform", "Proposal"]);
                    }
                    _ => proposals_2(body, found)?,
                }
                "SecurityAssociation"
            }
            (1, 4) | (2, 34) => {
                // Version 2 has the group and two reserved bytes before the data (section 3.4).
                found.key_exchange = Some(if version == 1 { body } else { body.get(4..)? });
                "KeyExchange"
            }
            (1, 10) | (2, 40) => {
                found.nonce = Some(body);
                "Nonce"
            }
            (1, 13) | (2, 43) => {
                found.vendors.push(body);
                "VendorID"
            }
            (1, 5) => "Identification",
            (1, 8) => "Hash",
            (1, 11) => "Notification",
            (2, 41) => {
                // Protocol and size of the SPI precede the kind (RFC 7296, section 3.10).
                let mut rest = body;
                take(&mut rest, 2)?;
                let kind = number(&mut rest, 2)?;
                if found.notifications.len() < LISTED {
                    found.notifications.push(kind);
                }
                "Notify"
            }
            (1, 9) => "Signature",
            (1, 14) => "AttributeList",
            (1, 20) => "NatDiscovery",
            (1, 21) => "NatOriginalAddress",
            (2, 47) => "Configuration",
            (2, 48) => "ExtensibleAuthentication",
            (1, 12) | (2, 42) => "Delete",
            (2, 35) => "IdentInitiator",
            (2, 36) => "IdentResponder",
            (2, 37) | (1, 6) => "Certificate",
            (2, 38) | (1, 7) => "CertificateRequest",
            (2, 39) => "Authentication",
            (2, 44) => "TrafficSelectorInitiator",
            (2, 45) => "TrafficSelectorResponder",
            // The rest is encrypted (section 3.14).
            (2, 46 | 53) => {
                found.names.push("EncryptedAndAuthenticated");
                return Some(());
            }
            _ => "Other",
        };
        found.names.push(name);
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

impl Ike {
    /// Keeps what a message of version 1 adds for the records of the flow.
    fn keep(&mut self, direction: Direction, found: &Found<'_>) {
        let end = &mut self.ends[direction.index()];
        let cut = |bytes: &[u8]| bytes[..bytes.len().min(RECORDED)].to_vec();
        if let Some(data) = found.key_exchange {
            end.key_exchange = cut(data);
        }
        if let Some(data) = found.nonce {
            end.nonce = cut(data);
        }
        if !found.transforms.is_empty() {
            end.transforms.clone_from(&found.transforms);
        }
        for vendor in found.vendors.iter().map(|vendor| hex(vendor)) {
            if self.vendors.len() < LISTED && !self.vendors.contains(&vendor) {
                self.vendors.push(vendor);
            }
        }
        self.domain = found.domain.or(self.domain);
    }

    /// Writes what both ends have sent in version 1.
    fn version_1(&self, is_encrypted: bool, out: &mut Fields) {
        if let Some(domain) = self.domain {
            out.number("doi", domain);
        }
        out.flag("encrypted_payloads", is_encrypted);
        for (name, direction) in [("client", Direction::ToServer), ("server", Direction::ToClient)] {
            let end = &self.ends[direction.index()];
            out.object(name, |out| {
                if !end.key_exchange.is_empty() {
                    out.text("key_exchange_payload", &hex(&end.key_exchange))
                        .number("key_exchange_payload_length", end.key_exchange.len() as u64);
                }
                if !end.nonce.is_empty() {
                    out.text("nonce_payload", &hex(&end.nonce))
                        .number("nonce_payload_length", end.nonce.len() as u64);
                }
                if direction == Direction::ToServer && !end.transforms.is_empty() {
                    let proposals = end.transforms.iter().map(|list| {
                        let mut proposal = Fields::default();
                        attributes(1, list, &mut proposal);
                        proposal
                    });
                    out.objects("proposals", proposals.collect());
                }
            });
        }
        if !self.vendors.is_empty() {
            out.texts("vendor_ids", self.vendors.iter().map(Vec::as_slice));
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
        if !is_encrypted && payloads(major, next, &bytes[HEADER..], &mut found).is_none() {
            transaction.raise("ike.malformed_data");
        }
        transaction.publish(Buffer::IkeInitSpi, direction, initiator.clone());
        transaction.publish(Buffer::IkeRespSpi, direction, responder.clone());
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
        if major == 2 && direction == Direction::ToClient {
            raise_weak(&found, transaction);
        }
        if major == 1 {
            self.keep(direction, &found);
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
            if direction == Direction::ToClient {
                let chosen = found.transforms.first().unwrap_or(&found.attributes);
                attributes(major, &chosen[..chosen.len().min(FIELD_LIST)], out);
            }
            // The responder's messages of version 2 have the bit I clear (section 3.1).
            if major == 2 {
                let is_initiator = flags & 0x08 != 0;
                out.text("role", if is_initiator { b"initiator" } else { b"responder" });
            }
            out.texts("payload", found.names.iter().map(|name| name.as_bytes()));
            if major == 1 {
                out.object("ikev1", |out| self.version_1(is_encrypted, out));
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
