//! RDP ([MS-RDPBCGR], section 1.3.1.1): the begin of a connection, up to the channels. With enhanced security, TLS follows on the
//! connection, and the flow becomes one of TLS. Records have the words of Suricata's documentation.
//!
//! ```text
//!  TPKT (RFC 1006)   | 3 | 0 | size (2) |
//!  X.224             | length | code | … |       CR: cookie, protocols     CC: the protocol that the server chose
//!  DT of X.224: MCS Connect-Initial with the core data of the client (section 2.2.1.3.2)
//! ```

mod client;

use super::AppProtocol;
use super::framed::{Framed, Size, little, message, number, take};
use super::parser::{Outcome, Parser};
use super::record::{Fields, Record};
use super::transaction::Transactions;
use super::words::{word, words};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

const VERSION: u8 = 3;
/// The first byte of a record of TLS with a handshake message (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 0x16;
/// Codes of X.224 (ISO/IEC 8073): connection request, connection confirm, data.
const REQUEST: u8 = 0xe0;
const CONFIRM: u8 = 0xd0;
const DATA: u8 = 0xf0;
/// Types of negotiation data (sections 2.2.1.1.1, 2.2.1.2.1 and 2.2.1.2.2).
const NEGOTIATION_REQUEST: u8 = 1;
const NEGOTIATION_RESPONSE: u8 = 2;
const NEGOTIATION_FAILURE: u8 = 3;
/// The tags of Connect-Initial and Connect-Response (T.125, section 11.1).
const CONNECT_INITIAL: [u8; 2] = [0x7f, 0x65];
const CONNECT_RESPONSE: [u8; 2] = [0x7f, 0x66];
/// The types of user data of the client (section 2.2.1.3.1).
const CLIENT_CORE: [u8; 2] = [0x01, 0xc0];
const CLIENT_NETWORK: [u8; 2] = [0x03, 0xc0];
/// Largest number of channels (section 2.2.1.3.4).
const CHANNELS: usize = 31;
/// Messages of a connection before its parser ends: behind them are encrypted data.
const MESSAGES: u8 = 16;

/// The security protocols of a negotiation by their bits (section 2.2.1.1.1).
const PROTOCOLS: &[(u64, &str)] = &[
    (0, "rdp"),
    (1, "ssl"),
    (2, "hybrid"),
    (4, "rds_tls"),
    (8, "hybrid_ex"),
    (16, "rdsaad"),
];

/// Demands of a client in a negotiation by its bits (section 2.2.1.1.1).
const DEMANDS: &[(u64, &str)] = &[
    (0x01, "restricted_admin_mode_required"),
    (0x02, "redirected_authentication_mode_required"),
    (0x08, "correlation_info_present"),
];

/// Features of a server by its bits (section 2.2.1.2.1).
const SUPPORTS: &[(u64, &str)] = &[
    (0x01, "extended_client_data"),
    (0x02, "dynvc_gfx"),
    (0x08, "restricted_admin"),
    (0x10, "redirected_authentication"),
];

/// Reasons for a failed negotiation (section 2.2.1.2.2).
const REASONS: &[(u64, &str)] = &[
    (1, "ssl required by server"),
    (2, "ssl not allowed by server"),
    (3, "ssl cert not on server"),
    (4, "inconsistent flags"),
    (5, "hybrid required by server"),
    (6, "ssl with user auth required by server"),
];

/// The parser of a connection.
#[derive(Debug, Default)]
pub(super) struct Rdp {
    framed: Framed,
    messages: u8,
    /// True once the server has chosen a protocol over TLS.
    is_over_tls: bool,
}

heap!(Rdp { framed });

fn size(bytes: &[u8]) -> Size {
    match *bytes {
        [TLS_HANDSHAKE, ..] => Size::Incomplete,
        [VERSION] | [VERSION, _] | [VERSION, _, _] => Size::Incomplete,
        [VERSION, _, high, low, ..] => match usize::from(u16::from_be_bytes([high, low])) {
            size @ 7.. => Size::Known(size),
            _ => Size::Invalid,
        },
        _ => Size::Invalid,
    }
}

/// Writes the fields of a connection request: the cookie of the client, and what it demands.
fn request(mut bytes: &[u8], out: &mut Fields) {
    out.text("event_type", b"initial_request");
    let end = bytes.windows(2).position(|pair| pair == b"\r\n");
    if let Some(line) = end.and_then(|end| take(&mut bytes, end)) {
        let name = line.strip_prefix(b"Cookie: mstshash=");
        out.text("cookie", name.unwrap_or(line));
        bytes = bytes.get(2..).unwrap_or_default();
    }
    if let [NEGOTIATION_REQUEST, demands, ..] = *bytes
        && words(DEMANDS, demands.into()).next().is_some()
    {
        out.texts("flags", words(DEMANDS, demands.into()));
    }
}

/// Writes the fields of a connection confirm; returns true if TLS follows.
fn confirm(mut bytes: &[u8], out: &mut Fields) -> Option<bool> {
    let (kind, supports) = (number(&mut bytes, 1)?, number(&mut bytes, 1)?);
    take(&mut bytes, 2)?;
    let value = little(&mut bytes, 4)?;
    match kind as u8 {
        NEGOTIATION_RESPONSE => {
            out.text("event_type", b"initial_response");
            if words(SUPPORTS, supports).next().is_some() {
                out.texts("server_supports", words(SUPPORTS, supports));
            }
            let protocol = word(PROTOCOLS, value).map_or_else(|| format!("unknown-{value}"), str::to_owned);
            out.text("protocol", protocol.as_bytes());
            Some(value != 0)
        }
        NEGOTIATION_FAILURE => {
            out.text("event_type", b"initial_response")
                .number("error_code", value);
            if let Some(reason) = word(REASONS, value) {
                out.text("reason", reason.as_bytes());
            }
            Some(false)
        }
        _ => None,
    }
}

/// Writes the fields of the blocks of user data in a Connect-Initial.
fn client_data(bytes: &[u8], out: &mut Fields) {
    // The blocks are behind headers of BER and PER; they begin with the core data (section 2.2.1.3).
    let Some(at) = bytes.windows(2).position(|pair| pair == CLIENT_CORE) else {
        return;
    };
    let mut rest = &bytes[at..];
    let mut channels: Vec<Vec<u8>> = Vec::new();
    let mut client = Fields::default();
    while let [a, b, low, high, ..] = *rest {
        let size = usize::from(u16::from_le_bytes([low, high]));
        let Some(block) = rest.get(4..size).filter(|_| size >= 4) else {
            break;
        };
        rest = &rest[size..];
        match [a, b] {
            CLIENT_CORE => {
                // The fields behind those that the client has are not there.
                let _ = client::core(block, &mut client);
            }
            CLIENT_NETWORK => {
                // Each channel has a name of eight bytes and options (section 2.2.1.3.4.1).
                let list = block.get(4..).unwrap_or_default().chunks_exact(12).take(CHANNELS);
                let name = |channel: &[u8]| {
                    let name = channel[..8].split(|byte| *byte == 0).next();
                    name.unwrap_or_default().to_vec()
                };
                channels = list.map(name).collect();
            }
            _ => {}
        }
    }
    if !client.list.is_empty() {
        out.list.push(("client", super::record::Value::Object(client)));
    }
    if !channels.is_empty() {
        out.texts("channels", channels.iter().map(Vec::as_slice));
    }
}

impl Rdp {
    fn message(&mut self, direction: Direction, bytes: &[u8], out: &mut Transactions) -> bool {
        self.messages = self.messages.saturating_add(1);
        let Some([length, code, ..]) = bytes.get(4..) else {
            return false;
        };
        let body = bytes.get(4 + 1 + usize::from(*length)..).unwrap_or_default();
        let variable = bytes.get(4 + 7..4 + 1 + usize::from(*length)).unwrap_or_default();
        let mut fields = Fields::default();
        match (code & 0xf0, direction) {
            (REQUEST, Direction::ToServer) => request(variable, &mut fields),
            (CONFIRM, Direction::ToClient) => {
                self.is_over_tls = confirm(variable, &mut fields).unwrap_or_default();
                if fields.list.is_empty() {
                    // A server of before the negotiation.
                    fields.text("event_type", b"initial_response");
                }
            }
            (DATA, Direction::ToServer) if body.starts_with(&CONNECT_INITIAL) => {
                fields.text("event_type", b"connect_request");
                client_data(body, &mut fields);
            }
            (DATA, Direction::ToClient) if body.starts_with(&CONNECT_RESPONSE) => {
                fields.text("event_type", b"connect_response");
            }
            (REQUEST | CONFIRM, _) => return false,
            _ => return true,
        }
        let transaction = message(AppProtocol::Rdp, direction, out);
        transaction.record = Record::Fields(Box::new(fields));
        true
    }
}

impl Parser for Rdp {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let direction = chunk.direction;
        if self.messages >= MESSAGES {
            self.framed.rest(direction);
            return Outcome::Continue;
        }
        let mut framed = core::mem::take(&mut self.framed);
        let outcome = framed.add(chunk, size, |message| self.message(direction, message, out));
        self.framed = framed;
        if self.framed.waiting(direction).first() == Some(&TLS_HANDSHAKE) {
            if !self.is_over_tls {
                return Outcome::Failed;
            }
            let mut rest = [Vec::new(), Vec::new()];
            rest[direction.index()] = self.framed.rest(direction);
            return Outcome::Switch { rest };
        }
        outcome
    }

    fn end(&mut self, _direction: Direction, _out: &mut Transactions) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::record::Value;

    const CLIENT: Direction = Direction::ToServer;
    const SERVER: Direction = Direction::ToClient;

    fn tpkt(body: &[u8]) -> Vec<u8> {
        let size = (4 + body.len()) as u16;
        [&[3, 0][..], &size.to_be_bytes(), body].concat()
    }

    /// Returns the connection request of section 4.1.1 with another name.
    fn connection_request() -> Vec<u8> {
        let cookie = b"Cookie: mstshash=eltons\r\n";
        let negotiation = [1, 0, 8, 0, 3, 0, 0, 0];
        let length = 6 + cookie.len() + negotiation.len();
        tpkt(&[&[length as u8, 0xe0, 0, 0, 0, 0, 0][..], cookie, &negotiation].concat())
    }

    fn connection_confirm(protocol: u8) -> Vec<u8> {
        tpkt(&[14, 0xd0, 0, 0, 0x12, 0x34, 0, 2, 0, 8, 0, protocol, 0, 0, 0])
    }

    fn connect_initial() -> Vec<u8> {
        let mut core = vec![4, 0, 8, 0];
        core.extend([0x00, 0x05, 0x00, 0x04, 0x01, 0xca, 0x03, 0xaa]);
        core.extend(1033_u32.to_le_bytes());
        core.extend(3790_u32.to_le_bytes());
        let mut name: Vec<u8> = "ELTONS".encode_utf16().flat_map(u16::to_le_bytes).collect();
        name.resize(32, 0);
        core.extend(name);
        core.extend([4, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0]);
        core.extend([0; 64]);
        core.extend([0x01, 0xca, 1, 0, 0, 0, 0, 0, 24, 0, 7, 0, 0x23, 0]);
        let mut product: Vec<u8> = "69712".encode_utf16().flat_map(u16::to_le_bytes).collect();
        product.resize(64, 0);
        core.extend(product);
        core.extend([6, 0]);
        let mut blocks = vec![0x01, 0xc0];
        blocks.extend(((core.len() + 4) as u16).to_le_bytes());
        blocks.extend(core);
        blocks.extend([0x03, 0xc0, 20, 0, 1, 0, 0, 0]);
        blocks.extend(b"rdpdr\0\0\0\0\0\x80\x80");
        tpkt(&[&[2, 0xf0, 0x80, 0x7f, 0x65, 0x82, 1, 0][..], b"per", &blocks].concat())
    }

    fn run(messages: &[(Direction, Vec<u8>)], step: usize) -> (Transactions, Outcome) {
        let (mut rdp, mut out) = (Rdp::default(), Transactions::default());
        let mut outcome = Outcome::Continue;
        for (direction, bytes) in messages {
            for piece in bytes.chunks(step) {
                if outcome == Outcome::Continue {
                    outcome = rdp.data(StreamChunk::of(*direction, piece), &mut out);
                }
            }
        }
        (out, outcome)
    }

    fn record(out: &Transactions, at: usize) -> String {
        format!("{:?}", out.list[at].record)
    }

    #[test]
    fn the_begin_of_a_connection_has_cookie_protocol_client_and_channels() {
        let messages = [
            (CLIENT, connection_request()),
            (SERVER, connection_confirm(0)),
            (CLIENT, connect_initial()),
            (SERVER, tpkt(&[2, 0xf0, 0x80, 0x7f, 0x66, 0])),
        ];
        for step in 1..messages[2].1.len() {
            let (out, outcome) = run(&messages, step);
            assert_eq!((out.list.len(), outcome), (4, Outcome::Continue), "{step}");
            let mut expected = Fields::default();
            expected
                .text("event_type", b"initial_request")
                .text("cookie", b"eltons");
            assert_eq!(out.list[0].record, Record::Fields(Box::new(expected)));
            let mut expected = Fields::default();
            expected
                .text("event_type", b"initial_response")
                .text("protocol", b"rdp");
            assert_eq!(out.list[1].record, Record::Fields(Box::new(expected)));
            let mut expected = Fields::default();
            expected
                .text("event_type", b"connect_request")
                .object("client", |client| {
                    client
                        .text("version", b"v5")
                        .number("desktop_width", 1280_u16)
                        .number("desktop_height", 1024_u16)
                        .number("color_depth", 24_u8)
                        .text("keyboard_layout", b"en-US")
                        .text("build", b"Windows Server 2003")
                        .text("client_name", b"ELTONS")
                        .text("keyboard_type", b"enhanced")
                        .number("function_keys", 12_u8)
                        .number("product_id", 1_u8)
                        .texts(
                            "capabilities",
                            [
                                &b"support_errinfo_pdf"[..],
                                b"want_32bpp_session",
                                b"valid_connection_type",
                            ],
                        )
                        .text("id", b"69712")
                        .text("connection_hint", b"lan");
                });
            expected.texts("channels", [&b"rdpdr"[..]]);
            assert_eq!(out.list[2].record, Record::Fields(Box::new(expected)));
            assert!(record(&out, 3).contains("event_type"));
        }
    }

    #[test]
    fn a_negotiation_has_its_flags_and_its_reason() {
        let cookie = b"Cookie: mstshash=eltons\r\n";
        let length = 6 + cookie.len() + 8;
        let demanding = [
            &[length as u8, 0xe0, 0, 0, 0, 0, 0][..],
            cookie,
            &[1, 9, 8, 0, 3, 0, 0, 0],
        ]
        .concat();
        let supporting = [14, 0xd0, 0, 0, 0x12, 0x34, 0, 2, 0x11, 8, 0, 4, 0, 0, 0];
        let refusing = [14, 0xd0, 0, 0, 0x12, 0x34, 0, 3, 0, 8, 0, 5, 0, 0, 0];
        for (direction, message, texts) in [
            (
                CLIENT,
                &demanding[..],
                ["restricted_admin_mode_required", "correlation_info_present"],
            ),
            (
                SERVER,
                &supporting,
                ["extended_client_data", "redirected_authentication"],
            ),
            (SERVER, &refusing, ["error_code", "hybrid required by server"]),
        ] {
            let (out, _) = run(&[(direction, tpkt(message))], 100);
            let Record::Fields(fields) = &out.list[0].record else {
                panic!("fields")
            };
            let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
            let mut found = Vec::new();
            for (name, value) in &fields.list {
                match value {
                    Value::Texts(list) => found.extend(list.iter().map(|one| text(one))),
                    Value::Number(5) => found.push((*name).to_owned()),
                    Value::Text(value) if *name == "reason" => found.push(text(value)),
                    _ => {}
                }
            }
            assert_eq!(found, texts);
        }
    }

    #[test]
    fn tls_follows_where_the_server_has_chosen_it_and_nowhere_else() {
        let hello = b"\x16\x03\x01\x00\x05".to_vec();
        for (protocol, expected) in [
            (
                1,
                Outcome::Switch {
                    rest: [hello.clone(), Vec::new()],
                },
            ),
            (0, Outcome::Failed),
        ] {
            let messages = [
                (CLIENT, connection_request()),
                (SERVER, connection_confirm(protocol)),
                (CLIENT, hello.clone()),
            ];
            assert_eq!(run(&messages, 100).1, expected);
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        for bytes in [
            &b"\x04\0\0\x08\x03\xe0\0\0"[..],
            b"\x03\0\0\x06\x02\xf0",
            b"\x03\0\0\x0b\x06\xd0\0\0\0\0\0",
        ] {
            assert_eq!(
                run(&[(CLIENT, bytes.to_vec())], 3).1,
                Outcome::Failed,
                "{bytes:?}"
            );
        }
    }
}
