//! Kerberos 5 (RFC 4120): each message is a transaction. Over TCP, a size of four bytes precedes it (section 7.2.2).

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::NumberField;

use super::ber::{element, tagged, unsigned};
use super::framed::{self, Framed, Size, fields};
use super::parser::{Outcome, Parser};
use super::transaction::{Transaction, Transactions};
use super::{AppProtocol, Transport};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

const SEQUENCE: u8 = 0x30;
const GENERAL_STRING: u8 = 0x1b;
const TICKET: u8 = 0x61;
/// Largest size of a message: servers accept less.
const MESSAGE_SIZE: usize = 1 << 20;

/// Names of the messages (section 7.5.7), as EVE has them.
const NAMES: &[(u8, &str)] = &[
    (10, "KRB_AS_REQ"),
    (11, "KRB_AS_REP"),
    (12, "KRB_TGS_REQ"),
    (13, "KRB_TGS_REP"),
    (14, "KRB_AP_REQ"),
    (15, "KRB_AP_REP"),
    (30, "KRB_ERROR"),
];

/// Names of encryption types (IANA, Kerberos Encryption Type Numbers), without those that are weak.
pub(crate) const STRONG: &[(u64, &str)] = &[
    (17, "aes128-cts-hmac-sha1-96"),
    (18, "aes256-cts-hmac-sha1-96"),
    (19, "aes128-cts-hmac-sha256-128"),
    (20, "aes256-cts-hmac-sha384-192"),
    (25, "camellia128-cts-cmac"),
    (26, "camellia256-cts-cmac"),
];
/// Names of weak encryption types.
pub(crate) const WEAK: &[(u64, &str)] = &[
    (1, "des-cbc-crc"),
    (2, "des-cbc-md4"),
    (3, "des-cbc-md5"),
    (5, "des3-cbc-md5"),
    (7, "des3-cbc-sha1"),
    (16, "des3-cbc-sha1-kd"),
    (23, "rc4-hmac"),
    (24, "rc4-hmac-exp"),
];

/// Names of error codes (section 7.5.9), as EVE has them.
const ERRORS: &[(u64, &str)] = &[
    (0, "KDC_ERR_NONE"),
    (1, "KDC_ERR_NAME_EXP"),
    (2, "KDC_ERR_SERVICE_EXP"),
    (3, "KDC_ERR_BAD_PVNO"),
    (4, "KDC_ERR_C_OLD_MAST_KVNO"),
    (5, "KDC_ERR_S_OLD_MAST_KVNO"),
    (6, "KDC_ERR_C_PRINCIPAL_UNKNOWN"),
    (7, "KDC_ERR_S_PRINCIPAL_UNKNOWN"),
    (8, "KDC_ERR_PRINCIPAL_NOT_UNIQUE"),
    (9, "KDC_ERR_NULL_KEY"),
    (10, "KDC_ERR_CANNOT_POSTDATE"),
    (11, "KDC_ERR_NEVER_VALID"),
    (12, "KDC_ERR_POLICY"),
    (13, "KDC_ERR_BADOPTION"),
    (14, "KDC_ERR_ETYPE_NOSUPP"),
    (15, "KDC_ERR_SUMTYPE_NOSUPP"),
    (16, "KDC_ERR_PADATA_TYPE_NOSUPP"),
    (17, "KDC_ERR_TRTYPE_NOSUPP"),
    (18, "KDC_ERR_CLIENT_REVOKED"),
    (19, "KDC_ERR_SERVICE_REVOKED"),
    (20, "KDC_ERR_TGT_REVOKED"),
    (21, "KDC_ERR_CLIENT_NOTYET"),
    (22, "KDC_ERR_SERVICE_NOTYET"),
    (23, "KDC_ERR_KEY_EXPIRED"),
    (24, "KDC_ERR_PREAUTH_FAILED"),
    (25, "KDC_ERR_PREAUTH_REQUIRED"),
    (26, "KDC_ERR_SERVER_NOMATCH"),
    (27, "KDC_ERR_MUST_USE_USER2USER"),
    (28, "KDC_ERR_PATH_NOT_ACCEPTED"),
    (29, "KDC_ERR_SVC_UNAVAILABLE"),
    (31, "KRB_AP_ERR_BAD_INTEGRITY"),
    (32, "KRB_AP_ERR_TKT_EXPIRED"),
    (33, "KRB_AP_ERR_TKT_NYV"),
    (34, "KRB_AP_ERR_REPEAT"),
    (35, "KRB_AP_ERR_NOT_US"),
    (36, "KRB_AP_ERR_BADMATCH"),
    (37, "KRB_AP_ERR_SKEW"),
    (38, "KRB_AP_ERR_BADADDR"),
    (39, "KRB_AP_ERR_BADVERSION"),
    (40, "KRB_AP_ERR_MSG_TYPE"),
    (41, "KRB_AP_ERR_MODIFIED"),
    (42, "KRB_AP_ERR_BADORDER"),
    (44, "KRB_AP_ERR_BADKEYVER"),
    (45, "KRB_AP_ERR_NOKEY"),
    (46, "KRB_AP_ERR_MUT_FAIL"),
    (47, "KRB_AP_ERR_BADDIRECTION"),
    (48, "KRB_AP_ERR_METHOD"),
    (49, "KRB_AP_ERR_BADSEQ"),
    (50, "KRB_AP_ERR_INAPP_CKSUM"),
    (51, "KRB_AP_PATH_NOT_ACCEPTED"),
    (52, "KRB_ERR_RESPONSE_TOO_BIG"),
    (60, "KRB_ERR_GENERIC"),
    (61, "KRB_ERR_FIELD_TOOLONG"),
    (62, "KDC_ERROR_CLIENT_NOT_TRUSTED"),
    (63, "KDC_ERROR_KDC_NOT_TRUSTED"),
    (64, "KDC_ERROR_INVALID_SIG"),
    (65, "KDC_ERR_KEY_TOO_WEAK"),
    (66, "KDC_ERR_CERTIFICATE_MISMATCH"),
    (67, "KRB_AP_ERR_NO_TGT"),
    (68, "KDC_ERR_WRONG_REALM"),
    (69, "KRB_AP_ERR_USER_TO_USER_REQUIRED"),
    (70, "KDC_ERR_CANT_VERIFY_CERTIFICATE"),
    (71, "KDC_ERR_INVALID_CERTIFICATE"),
    (72, "KDC_ERR_REVOKED_CERTIFICATE"),
    (73, "KDC_ERR_REVOCATION_STATUS_UNKNOWN"),
    (74, "KDC_ERR_REVOCATION_STATUS_UNAVAILABLE"),
    (75, "KDC_ERR_CLIENT_NAME_MISMATCH"),
    (76, "KDC_ERR_KDC_NAME_MISMATCH"),
];

/// Returns the name of an error code, or the code.
fn error(code: u64) -> String {
    let known = ERRORS.iter().find(|(known, _)| *known == code);
    known.map_or_else(
        || format!("ErrorCode({code} / 0x{code:x})"),
        |(_, name)| (*name).to_owned(),
    )
}

/// Returns the parts of a name or a realm as EVE has them.
fn joined(parts: &[&[u8]]) -> Vec<u8> {
    match parts.iter().all(|part| part.is_empty()) {
        true => b"<empty>".to_vec(),
        false => parts.join(&b'/'),
    }
}

/// Returns the name of an encryption type, or its number.
fn encryption(kind: u64) -> String {
    let mut all = STRONG.iter().chain(WEAK);
    let found = all.find(|(number, _)| *number == kind);
    found.map_or_else(|| kind.to_string(), |(_, name)| (*name).to_owned())
}

/// Returns true if an encryption type is weak (RFC 6649, RFC 8429), or not known.
pub(crate) fn is_weak(kind: u64) -> bool {
    STRONG.iter().all(|(strong, _)| *strong != kind)
}

/// The parser of a flow.
#[derive(Debug)]
pub(super) struct Krb5 {
    transport: Transport,
    framed: Framed,
    /// The type of the last request, which an error answers.
    request: u8,
}

heap!(Krb5 { framed });

/// The parts of a message.
#[derive(Default)]
struct Message<'a> {
    cname: Vec<&'a [u8]>,
    sname: Vec<&'a [u8]>,
    realm: &'a [u8],
    encryption: Option<u64>,
    ticket_encryption: Option<u64>,
    error: Option<u64>,
}

/// Returns the parts of a name: its type, and texts (section 5.2.2).
fn name(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut inner = tagged(&mut bytes, SEQUENCE)?;
    tagged(&mut inner, 0xa0)?;
    let mut list = tagged(&mut inner, 0xa1)?;
    let mut list = tagged(&mut list, SEQUENCE)?;
    let mut parts = Vec::new();
    while !list.is_empty() && parts.len() < 32 {
        parts.push(tagged(&mut list, GENERAL_STRING)?);
    }
    Some(parts)
}

/// Returns the text of an element.
fn realm(mut bytes: &[u8]) -> Option<&[u8]> {
    element(&mut bytes).map(|(_, text)| text)
}

/// Returns the encryption type of encrypted data (section 5.2.9).
fn etype(mut bytes: &[u8]) -> Option<u64> {
    let mut inner = tagged(&mut bytes, SEQUENCE)?;
    let mut kind = tagged(&mut inner, 0xa0)?;
    element(&mut kind).map(|(_, number)| unsigned(number))
}

/// Reads a message with the number of its application tag.
fn read(kind: u8, mut bytes: &[u8]) -> Option<Message<'_>> {
    let mut found = Message::default();
    let mut fields = tagged(&mut bytes, SEQUENCE)?;
    while !fields.is_empty() {
        let (tag, content) = element(&mut fields)?;
        match (kind, tag) {
            (10 | 12, 0xa4) => request_body(content, &mut found)?,
            (11 | 13, 0xa3) => found.realm = realm(content)?,
            (11 | 13, 0xa4) => found.cname = name(content)?,
            (11 | 13, 0xa5) => ticket(content, &mut found)?,
            (11 | 13, 0xa6) => found.encryption = etype(content),
            (30, 0xa6) => found.error = element(&mut &*content).map(|(_, code)| unsigned(code)),
            (30, 0xa8) => found.cname = name(content)?,
            (30, 0xa9) => found.realm = realm(content)?,
            (30, 0xaa) => found.sname = name(content)?,
            _ => {}
        }
    }
    Some(found)
}

/// Reads the body of a request (section 5.4.1).
fn request_body<'a>(mut bytes: &'a [u8], found: &mut Message<'a>) -> Option<()> {
    let mut fields = tagged(&mut bytes, SEQUENCE)?;
    while !fields.is_empty() {
        let (tag, content) = element(&mut fields)?;
        match tag {
            0xa1 => found.cname = name(content)?,
            0xa2 => found.realm = realm(content)?,
            0xa3 => found.sname = name(content)?,
            _ => {}
        }
    }
    Some(())
}

/// Reads a ticket (section 5.3).
fn ticket<'a>(mut bytes: &'a [u8], found: &mut Message<'a>) -> Option<()> {
    let mut ticket = tagged(&mut bytes, TICKET)?;
    let mut fields = tagged(&mut ticket, SEQUENCE)?;
    while !fields.is_empty() {
        let (tag, content) = element(&mut fields)?;
        match tag {
            0xa2 => found.sname = name(content)?,
            0xa3 => found.ticket_encryption = etype(content),
            _ => {}
        }
    }
    Some(())
}

impl Krb5 {
    pub(super) fn new(transport: Transport) -> Krb5 {
        Krb5 {
            transport,
            framed: Framed::default(),
            request: 0,
        }
    }

    fn message(&mut self, direction: Direction, bytes: &[u8], out: &mut Transactions) {
        let mut rest = bytes;
        // The tag of an application has the number of the message.
        let found = element(&mut rest)
            .filter(|(tag, _)| tag & 0xe0 == 0x60)
            .and_then(|(tag, content)| Some((tag & 0x1f, read(tag & 0x1f, content)?)));
        let transaction = framed::message(AppProtocol::Krb5, direction, out);
        match found {
            Some((kind, message)) => self.publish(kind, &message, direction, transaction),
            None => transaction.raise("krb5.malformed_data"),
        }
    }

    fn publish(
        &mut self,
        kind: u8,
        message: &Message<'_>,
        direction: Direction,
        transaction: &mut Transaction,
    ) {
        transaction.number(NumberField::Krb5MsgType, direction, kind);
        for part in &message.cname {
            transaction.publish(Buffer::Krb5Cname, direction, *part);
        }
        for part in &message.sname {
            transaction.publish(Buffer::Krb5Sname, direction, *part);
        }
        if let Some(error) = message.error {
            transaction.number(NumberField::Krb5ErrCode, direction, error);
        }
        if message.encryption.is_some_and(is_weak) {
            transaction.raise("krb5.weak_encryption");
        }
        let name_of = |kind: u8| {
            NAMES
                .iter()
                .find(|(known, _)| *known == kind)
                .map(|(_, name)| *name)
        };
        let request = core::mem::replace(&mut self.request, kind);
        fields(transaction, |out| {
            match name_of(kind) {
                Some(name) => out.text("msg_type", name.as_bytes()),
                None => out.text("msg_type", kind.to_string().as_bytes()),
            };
            if let Some(code) = message.error {
                let failed = name_of(request).unwrap_or("UNKNOWN");
                out.text("failed_request", failed.as_bytes())
                    .text("error_code", error(code).as_bytes());
            }
            let kind = message.encryption.map(encryption);
            out.text("cname", &joined(&message.cname))
                .text("realm", &joined(&[message.realm]))
                .text("sname", &joined(&message.sname))
                .text("encryption", kind.as_deref().unwrap_or("<none>").as_bytes())
                .flag("weak_encryption", message.encryption.is_some_and(is_weak));
            if let Some(kind) = message.ticket_encryption {
                out.text("ticket_encryption", encryption(kind).as_bytes())
                    .flag("ticket_weak_encryption", is_weak(kind));
            }
        });
    }
}

/// Returns the size of a message over TCP.
fn size(bytes: &[u8]) -> Size {
    match bytes.first_chunk::<4>() {
        // The first bit is reserved (section 7.2.2).
        Some(size) => match u32::from_be_bytes(*size) as usize {
            size if size <= MESSAGE_SIZE => Size::Known(4 + size),
            _ => Size::Invalid,
        },
        None => Size::Incomplete,
    }
}

impl Parser for Krb5 {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        if self.transport == Transport::Udp {
            self.message(chunk.direction, chunk.bytes, out);
            return Outcome::Continue;
        }
        let mut framed = core::mem::take(&mut self.framed);
        let outcome = framed.add(chunk, size, |message| {
            self.message(chunk.direction, message.get(4..).unwrap_or_default(), out);
            true
        });
        self.framed = framed;
        outcome
    }

    fn end(&mut self, _direction: Direction, _out: &mut Transactions) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::record::{Record, Value};

    /// Returns an element of fewer than 128 bytes.
    fn of(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag, content.len() as u8][..], content].concat()
    }

    #[test]
    fn an_error_has_its_name_and_no_encryption() {
        let of_code = |code: u8| {
            let realm = of(0xa9, &of(GENERAL_STRING, b"A.EXAMPLE"));
            let fields = [of(0xa6, &of(2, &[code])), realm].concat();
            let bytes = of(0x7e, &of(SEQUENCE, &fields));
            let mut out = Transactions::default();
            Krb5::new(Transport::Udp).data(StreamChunk::of(Direction::ToClient, &bytes), &mut out);
            let Record::Fields(record) = &mut out.list[0].record else {
                panic!("no record");
            };
            ["error_code", "cname", "realm", "encryption"].map(|name| match record.value(name) {
                Some(Value::Text(text)) => String::from_utf8(text.clone()).unwrap(),
                _ => panic!("{name}"),
            })
        };
        let rest = ["<empty>", "A.EXAMPLE", "<none>"];
        assert_eq!(of_code(25)[0], "KDC_ERR_PREAUTH_REQUIRED");
        assert_eq!(of_code(25)[1..], rest);
        assert_eq!(of_code(30)[0], "ErrorCode(30 / 0x1e)");
    }
}
