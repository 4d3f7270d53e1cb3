//! SNMP (RFC 1157, RFC 3416, RFC 3412): each message is a transaction. The parser does not read the values of variables.
//! Records of encrypted messages name neither community nor user, as in Suricata.
//!
//! ```text
//!  versions 1, 2c   SEQUENCE { version, community, PDU }
//!  version 3        SEQUENCE { version, header SEQUENCE, security parameters, scoped PDU or its encryption }
//!  PDU              [n] { three integers, or the header of a trap of version 1; SEQUENCE OF SEQUENCE { name, value } }
//! ```

use core::net::Ipv4Addr;

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::NumberField;

use super::AppProtocol;
use super::ber::{INTEGER, OCTET_STRING, SEQUENCE, element, identifier, tagged, unsigned};
use super::framed::{self, fields};
use super::parser::{Outcome, Parser};
use super::transaction::Transactions;
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// The first and the last PDU (RFC 3416, section 3), and the trap of version 1 (RFC 1157, section 4.1.6).
const PDU_FIRST: u8 = 0xa0;
const PDU_TRAP_1: u8 = 0xa4;
const PDU_LAST: u8 = 0xa8;
/// The PDU whose second and third number are no error (RFC 3416, section 4.2.3).
const PDU_GET_BULK: u8 = 0xa5;
/// The user-based security model (RFC 3414), whose parameters are a sequence.
const USER_BASED: &[u8] = &[3];

/// The parser of a flow.
#[derive(Debug, Default)]
pub(super) struct Snmp {
    /// The version of the first message.
    version: Option<u64>,
}

heap!(Snmp {});

/// The parts of a message that rules and records name.
#[derive(Debug, Default)]
struct Found<'a> {
    version: u64,
    community: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    pdu: Option<u8>,
    /// The error of a response; 0 for none.
    error: u64,
    trap: Option<Trap<'a>>,
    is_encrypted: bool,
    /// True if the security model of version 3 is not the user-based one (RFC 3411, section 5).
    has_unknown_model: bool,
    /// Names of variables; the first ones.
    variables: Vec<&'a [u8]>,
}

/// The header of a trap of version 1.
#[derive(Debug)]
struct Trap<'a> {
    enterprise: &'a [u8],
    address: &'a [u8],
    /// Generic type.
    kind: u64,
}

/// Names of errors by their number (RFC 3416, section 3), as EVE has them.
const ERRORS: [&str; 19] = [
    "NoError",
    "TooBig",
    "NoSuchName",
    "BadValue",
    "ReadOnly",
    "GenErr",
    "NoAccess",
    "WrongType",
    "WrongLength",
    "WrongEncoding",
    "WrongValue",
    "NoCreation",
    "InconsistentValue",
    "ResourceUnavailable",
    "CommitFailed",
    "UndoFailed",
    "AuthorizationError",
    "NotWritable",
    "InconsistentName",
];

/// Names of generic traps by their number (RFC 1157, section 4.1.6), as EVE has them.
const TRAPS: [&str; 7] = [
    "ColdStart",
    "WarmStart",
    "LinkDown",
    "LinkUp",
    "AuthenticationFailure",
    "EgpNeighborLoss",
    "EnterpriseSpecific",
];

/// Returns the name of a number; an unknown one is written with the name of its kind.
fn name(names: &[&str], kind: &str, number: u64) -> String {
    let known = usize::try_from(number).ok().and_then(|number| names.get(number));
    known.map_or_else(
        || format!("{kind}({number} / 0x{number:x})"),
        |name| (*name).to_owned(),
    )
}

/// Names of PDUs by their number (RFC 3416, section 3), as EVE has them.
const PDUS: [&str; 9] = [
    "get_request",
    "get_next_request",
    "response",
    "set_request",
    "trap_v1",
    "get_bulk_request",
    "inform_request",
    "trap_v2",
    "report",
];

/// Reads a PDU.
fn pdu<'a>(bytes: &mut &'a [u8], found: &mut Found<'a>) -> Option<()> {
    let (tag, mut content) = element(bytes)?;
    found.pdu = tag.checked_sub(PDU_FIRST);
    match tag {
        PDU_TRAP_1 => {
            let (_, enterprise) = element(&mut content)?;
            let (_, address) = element(&mut content)?;
            let (_, kind) = element(&mut content)?;
            // The specific type and the time.
            element(&mut content)?;
            element(&mut content)?;
            found.trap = Some(Trap {
                enterprise,
                address,
                kind: unsigned(kind),
            });
        }
        PDU_FIRST..=PDU_LAST => {
            tagged(&mut content, INTEGER)?;
            let error = tagged(&mut content, INTEGER)?;
            tagged(&mut content, INTEGER)?;
            if tag != PDU_GET_BULK {
                found.error = unsigned(error);
            }
        }
        _ => return None,
    }
    let mut variables = tagged(&mut content, SEQUENCE)?;
    while !variables.is_empty() {
        let mut variable = tagged(&mut variables, SEQUENCE)?;
        let (_, name) = element(&mut variable)?;
        element(&mut variable)?;
        if found.variables.len() < super::record::FIELD_LIST {
            found.variables.push(name);
        }
    }
    Some(())
}

/// Reads the rest of a message of version 3.
fn version_3<'a>(message: &mut &'a [u8], found: &mut Found<'a>) -> Option<()> {
    let mut header = tagged(message, SEQUENCE)?;
    tagged(&mut header, INTEGER)?;
    tagged(&mut header, INTEGER)?;
    tagged(&mut header, OCTET_STRING)?;
    let model = tagged(&mut header, INTEGER)?;
    let mut parameters = tagged(message, OCTET_STRING)?;
    found.has_unknown_model = model != USER_BASED;
    if model == USER_BASED {
        let mut parameters = tagged(&mut parameters, SEQUENCE)?;
        // Engine, number of its starts, its time, and the user (RFC 3414, section 2.4).
        for _ in 0..3 {
            if !parameters.is_empty() {
                element(&mut parameters)?;
            }
        }
        found.user = tagged(&mut parameters, OCTET_STRING);
    }
    match element(message)? {
        (OCTET_STRING, _) => {
            found.is_encrypted = true;
            Some(())
        }
        (SEQUENCE, mut scoped) => {
            tagged(&mut scoped, OCTET_STRING)?;
            tagged(&mut scoped, OCTET_STRING)?;
            pdu(&mut scoped, found)
        }
        _ => None,
    }
}

/// Reads a message. The content of unknown versions is not read.
fn message(mut bytes: &[u8]) -> Option<Found<'_>> {
    let mut message = tagged(&mut bytes, SEQUENCE)?;
    let version = tagged(&mut message, INTEGER)?;
    let mut found = Found {
        version: unsigned(version),
        ..Found::default()
    };
    match version {
        [0 | 1] => {
            found.community = Some(tagged(&mut message, OCTET_STRING)?);
            pdu(&mut message, &mut found)?;
        }
        [3] => version_3(&mut message, &mut found)?,
        _ => {}
    }
    Some(found)
}

/// Adds the transaction of a message.
fn publish(direction: Direction, found: &Found<'_>, first: u64, out: &mut Transactions) {
    let transaction = framed::message(AppProtocol::Snmp, direction, out);
    if found.has_unknown_model {
        transaction.raise("snmp.unknown_security_model");
    }
    if found.version != first {
        transaction.raise("snmp.version_mismatch");
    }
    // The numbers on the wire are 0 for version 1, 1 for 2c, and 3.
    let version = if found.version < 2 {
        found.version + 1
    } else {
        found.version
    };
    transaction.number(NumberField::SnmpVersion, direction, version);
    if let Some(community) = found.community {
        transaction.publish(Buffer::SnmpCommunity, direction, community);
    }
    if let Some(user) = found.user {
        transaction.publish(Buffer::SnmpUsm, direction, user);
    }
    if let Some(pdu) = found.pdu {
        transaction.number(NumberField::SnmpPduType, direction, pdu);
    }
    fields(transaction, |out| {
        out.number("version", version);
        if found.is_encrypted {
            out.text("pdu_type", b"encrypted");
            return;
        }
        if let Some(community) = found.community {
            out.text("community", community);
        }
        if let Some(user) = found.user {
            out.text("usm", user);
        }
        if let Some(pdu) = found.pdu.and_then(|pdu| PDUS.get(usize::from(pdu))) {
            out.text("pdu_type", pdu.as_bytes());
        }
        if found.error != 0 {
            out.text("error", name(&ERRORS, "ErrorStatus", found.error).as_bytes());
        }
        if let Some(trap) = &found.trap {
            out.text("trap_type", name(&TRAPS, "TrapType", trap.kind).as_bytes())
                .text("trap_oid", &identifier(trap.enterprise));
            if let Ok(octets) = <[u8; 4]>::try_from(trap.address) {
                out.text("trap_address", Ipv4Addr::from(octets).to_string().as_bytes());
            }
        }
        let names: Vec<Vec<u8>> = found.variables.iter().map(|name| identifier(name)).collect();
        out.texts("vars", names.iter().map(Vec::as_slice));
    });
}

/// Returns true if a datagram begins with a complete sequence, as a message does.
pub(super) fn is_message(mut bytes: &[u8]) -> bool {
    tagged(&mut bytes, SEQUENCE).is_some()
}

impl Parser for Snmp {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        match message(chunk.bytes) {
            Some(found) => {
                let first = *self.version.get_or_insert(found.version);
                publish(chunk.direction, &found, first, out);
                Outcome::Continue
            }
            None => {
                out.raise("snmp.malformed_data");
                Outcome::Failed
            }
        }
    }

    fn end(&mut self, _direction: Direction, _out: &mut Transactions) {}

    fn is_strict(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::record::{Record, Value};

    /// A request of version 2c for the name of the system.
    const GET: &[u8] = b"\x30\x26\x02\x01\x01\x04\x06public\xa0\x19\x02\x01\x01\x02\x01\0\x02\x01\0\x30\x0e\x30\x0c\x06\x08\x2b\x06\x01\x02\x01\x01\x05\0\x05\0";

    fn outcome(bytes: &[u8]) -> Outcome {
        Snmp::default().data(
            StreamChunk::of(Direction::ToServer, bytes),
            &mut Transactions::default(),
        )
    }

    /// Returns an element.
    fn of(tag: u8, content: &[&[u8]]) -> Vec<u8> {
        let content = content.concat();
        [&[tag, content.len() as u8][..], &content].concat()
    }

    fn integer(value: u8) -> Vec<u8> {
        of(INTEGER, &[&[value]])
    }

    #[test]
    fn valid_messages_are_accepted() {
        assert_eq!(outcome(GET), Outcome::Continue);
        let variables = of(SEQUENCE, &[]);
        let trap = of(
            PDU_TRAP_1,
            &[
                b"\x06\x01\x2b\x40\x04\x0a\0\0\x01\x02\x01\x06\x02\x01\x01\x43\x01\0",
                &variables,
            ],
        );
        let version_1 = of(SEQUENCE, &[&integer(0), &of(OCTET_STRING, &[b"x"]), &trap]);
        assert_eq!(outcome(&version_1), Outcome::Continue);
    }

    #[test]
    fn version_3_has_a_header_parameters_and_a_pdu_or_its_encryption() {
        let header = of(
            SEQUENCE,
            &[&integer(1), &integer(99), &of(OCTET_STRING, &[&[4]]), &integer(3)],
        );
        let parameters = of(OCTET_STRING, &[&of(SEQUENCE, &[])]);
        let with = |parameters: &[u8], data: &[u8]| {
            outcome(&of(SEQUENCE, &[&integer(3), &header, parameters, data]))
        };
        let request = of(
            PDU_FIRST,
            &[&integer(1), &integer(0), &integer(0), &of(SEQUENCE, &[])],
        );
        let text = of(OCTET_STRING, &[]);
        assert_eq!(
            with(&parameters, &of(SEQUENCE, &[&text, &text, &request])),
            Outcome::Continue
        );
        assert_eq!(
            with(&parameters, &of(OCTET_STRING, &[b"encrypted"])),
            Outcome::Continue
        );
        assert_eq!(with(&parameters, &of(SEQUENCE, &[&text, &text])), Outcome::Failed);
        // The parameters are longer than what contains them.
        assert_eq!(with(b"\x04\x02\x30\x09", &text), Outcome::Failed);
    }

    /// Returns the texts of the record of a message.
    fn texts(bytes: &[u8]) -> Vec<(&'static str, String)> {
        let mut out = Transactions::default();
        Snmp::default().data(StreamChunk::of(Direction::ToServer, bytes), &mut out);
        let Record::Fields(fields) = &out.list[0].record else {
            panic!("no record");
        };
        let text = |(name, value): &(&'static str, Value)| match value {
            Value::Text(text) => Some((*name, String::from_utf8(text.clone()).unwrap())),
            _ => None,
        };
        fields.list.iter().filter_map(text).collect()
    }

    #[test]
    fn records_have_errors_and_traps_and_nothing_of_encrypted_messages() {
        let community = of(OCTET_STRING, &[b"x"]);
        let empty = of(SEQUENCE, &[]);
        let response = |error: u8| {
            let pdu = of(0xa2, &[&integer(1), &integer(error), &integer(1), &empty]);
            texts(&of(SEQUENCE, &[&integer(1), &community, &pdu]))
        };
        let plain = vec![("community", "x".to_owned()), ("pdu_type", "response".to_owned())];
        let with = |error: &str| [&plain[..], &[("error", error.to_owned())]].concat();
        assert_eq!(response(0), plain);
        assert_eq!(response(2), with("NoSuchName"));
        assert_eq!(response(18), with("InconsistentName"));
        assert_eq!(response(99), with("ErrorStatus(99 / 0x63)"));
        let trap = of(
            PDU_TRAP_1,
            &[
                b"\x06\x03\x2b\x06\x01\x40\x04\x0a\0\0\x01\x02\x01\x03\x02\x01\0\x43\x01\0",
                &empty,
            ],
        );
        let expected = [
            ("community", "x"),
            ("pdu_type", "trap_v1"),
            ("trap_type", "LinkUp"),
            ("trap_oid", "1.3.6.1"),
            ("trap_address", "10.0.0.1"),
        ];
        assert_eq!(
            texts(&of(SEQUENCE, &[&integer(0), &community, &trap])),
            expected.map(|(name, value)| (name, value.to_owned()))
        );
        let header = of(
            SEQUENCE,
            &[&integer(1), &integer(99), &of(OCTET_STRING, &[&[4]]), &integer(3)],
        );
        let text = of(OCTET_STRING, &[]);
        let parameters = [&text[..], &integer(0), &integer(0), &of(OCTET_STRING, &[b"user"])].concat();
        let parameters = of(OCTET_STRING, &[&of(SEQUENCE, &[&parameters])]);
        let message = of(
            SEQUENCE,
            &[&integer(3), &header, &parameters, &of(OCTET_STRING, &[b"secret"])],
        );
        assert_eq!(texts(&message), [("pdu_type", "encrypted".to_owned())]);
    }

    #[test]
    fn no_message_is_accepted_in_part() {
        assert!(is_message(GET));
        for size in 0..GET.len() {
            assert_eq!(outcome(&GET[..size]), Outcome::Failed, "{size}");
            assert!(!is_message(&GET[..size]), "{size}");
        }
    }

    #[test]
    fn variables_are_pairs_and_a_pdu_has_a_tag_of_its_own() {
        // A name and a value without a sequence around them.
        let flat = of(SEQUENCE, &[b"\x06\x01\x2b\x05\0"]);
        let request = |tag, variables: &[u8]| {
            let pdu = of(tag, &[&integer(1), &integer(0), &integer(0), variables]);
            outcome(&of(SEQUENCE, &[&integer(1), &of(OCTET_STRING, &[b"x"]), &pdu]))
        };
        assert_eq!(request(PDU_FIRST, &flat), Outcome::Failed);
        assert_eq!(request(PDU_FIRST, &of(SEQUENCE, &[])), Outcome::Continue);
        assert_eq!(request(0x63, &of(SEQUENCE, &[])), Outcome::Failed);
    }
}
