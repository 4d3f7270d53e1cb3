//! The distributed hash table of BitTorrent (BEP 5): each message is a transaction.

use core::net::IpAddr;

use super::AppProtocol;
use super::framed::{self, fields, hex};
use super::parser::{Outcome, Parser};
use super::record::Fields;
use super::transaction::Transactions;
use crate::app::heap::heap;
use crate::event::address_text;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// The deepest nesting of values that is read.
const DEPTH: usize = 8;
/// Largest number of elements of a list or dictionary.
const ELEMENTS: usize = 256;

/// A value of bencoding (BEP 3).
#[derive(Debug)]
enum Value<'a> {
    Number(i64),
    Text(&'a [u8]),
    List(Vec<Value<'a>>),
    Dictionary(Vec<(&'a [u8], Value<'a>)>),
}

/// Removes a text with its size from the front: `4:spam`.
fn text<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let colon = bytes.iter().take(6).position(|byte| *byte == b':')?;
    let size: usize = core::str::from_utf8(&bytes[..colon]).ok()?.parse().ok()?;
    let (value, rest) = bytes.get(colon + 1..)?.split_at_checked(size)?;
    *bytes = rest;
    Some(value)
}

/// Removes a value from the front.
fn value<'a>(bytes: &mut &'a [u8], depth: usize) -> Option<Value<'a>> {
    let depth = depth.checked_sub(1)?;
    match bytes.first()? {
        b'i' => {
            let end = bytes.iter().take(24).position(|byte| *byte == b'e')?;
            let number = core::str::from_utf8(&bytes[1..end]).ok()?.parse().ok()?;
            *bytes = &bytes[end + 1..];
            Some(Value::Number(number))
        }
        b'l' => {
            *bytes = &bytes[1..];
            let mut list = Vec::new();
            while *bytes.first()? != b'e' {
                if list.len() >= ELEMENTS {
                    return None;
                }
                list.push(value(bytes, depth)?);
            }
            *bytes = &bytes[1..];
            Some(Value::List(list))
        }
        b'd' => {
            *bytes = &bytes[1..];
            let mut list = Vec::new();
            while *bytes.first()? != b'e' {
                if list.len() >= ELEMENTS {
                    return None;
                }
                list.push((text(bytes)?, value(bytes, depth)?));
            }
            *bytes = &bytes[1..];
            Some(Value::Dictionary(list))
        }
        _ => text(bytes).map(Value::Text),
    }
}

impl<'a> Value<'a> {
    /// Returns the value of a key of a dictionary.
    fn key(&self, name: &[u8]) -> Option<&Value<'a>> {
        match self {
            Value::Dictionary(list) => list
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value),
            _ => None,
        }
    }

    fn text(&self) -> Option<&'a [u8]> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// Returns true if a datagram begins as a message does: a dictionary with the arguments or the response first.
pub(super) fn is_message(data: &[u8]) -> bool {
    [&b"d1:ad2:id20:"[..], b"d1:rd2:id20:", b"d2:ip", b"d1:eli20"]
        .iter()
        .any(|start| data.starts_with(start))
}

/// The parser of a flow.
#[derive(Debug, Default)]
pub(super) struct Dht;

heap!(Dht {});

/// Largest number of nodes and of peers of a message that records list.
const NODES: usize = 256;
/// Size of the identifier of a node in bytes.
const IDENTIFIER: usize = 20;

/// Writes a compact contact: the address and the port (BEP 5, "Contact Encoding"; BEP 32).
fn contact(bytes: &[u8], out: &mut Fields) -> Option<()> {
    let (address, port) = bytes.split_last_chunk::<2>()?;
    let address: IpAddr = match address.len() {
        4 => <[u8; 4]>::try_from(address).ok()?.into(),
        16 => <[u8; 16]>::try_from(address).ok()?.into(),
        _ => return None,
    };
    out.text("ip", address_text(address).as_bytes())
        .number("port", u16::from_be_bytes(*port));
    Some(())
}

/// Returns the nodes of a compact list, whose contacts have `size` bytes: identifier, address and port.
fn nodes(bytes: &[u8], size: usize) -> Vec<Fields> {
    let one = |node: &[u8]| {
        let (identifier, at) = node.split_at(IDENTIFIER);
        let mut out = Fields::default();
        out.text("id", &hex(identifier));
        contact(at, &mut out).map(|()| out)
    };
    let whole = bytes.chunks_exact(IDENTIFIER + size);
    whole.take(NODES).filter_map(one).collect()
}

/// Returns the peers of a list of compact contacts.
fn peers(list: &[Value<'_>]) -> Vec<Fields> {
    let one = |peer: &Value<'_>| {
        let mut out = Fields::default();
        contact(peer.text()?, &mut out).map(|()| out)
    };
    list.iter().take(NODES).filter_map(one).collect()
}

/// Returns the fields of a message; `None` if it is malformed.
fn message(mut bytes: &[u8]) -> Option<Fields> {
    let found = value(&mut bytes, DEPTH)?;
    let mut out = Fields::default();
    if let Some(kind) = found.key(b"q").and_then(Value::text) {
        let arguments = found.key(b"a")?;
        arguments
            .key(b"id")
            .and_then(Value::text)
            .filter(|id| id.len() == 20)?;
        out.text("request_type", kind).object("request", |out| {
            for (key, name) in [
                (&b"id"[..], "id"),
                (b"target", "target"),
                (b"info_hash", "info_hash"),
                (b"token", "token"),
            ] {
                if let Some(text) = arguments.key(key).and_then(Value::text) {
                    out.text(name, &hex(text));
                }
            }
            for (key, name) in [(&b"implied_port"[..], "implied_port"), (b"port", "port")] {
                if let Some(Value::Number(number)) = arguments.key(key) {
                    out.number(name, number.unsigned_abs());
                }
            }
        });
    } else if let Some(response) = found.key(b"r") {
        response.key(b"id").and_then(Value::text)?;
        out.object("response", |out| {
            for (key, name) in [(&b"id"[..], "id"), (b"token", "token")] {
                if let Some(text) = response.key(key).and_then(Value::text) {
                    out.text(name, &hex(text));
                }
            }
            for (key, name, size) in [(&b"nodes"[..], "nodes", 6), (b"nodes6", "nodes6", 18)] {
                if let Some(list) = response.key(key).and_then(Value::text) {
                    out.objects(name, nodes(list, size));
                }
            }
            if let Some(Value::List(list)) = response.key(b"values") {
                out.objects("values", peers(list));
            }
        });
    } else if let Some(Value::List(error)) = found.key(b"e") {
        out.object("error", |out| {
            for part in error {
                match part {
                    Value::Number(number) => out.number("num", number.unsigned_abs()),
                    Value::Text(text) => out.text("msg", text),
                    _ => out,
                };
            }
        });
    } else {
        return None;
    }
    if let Some(identifier) = found.key(b"t").and_then(Value::text) {
        out.text("transaction_id", &hex(identifier));
    }
    if let Some(version) = found.key(b"v").and_then(Value::text) {
        out.text("client_version", &hex(version));
    }
    Some(out)
}

impl Parser for Dht {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let transaction = framed::message(AppProtocol::BittorrentDht, chunk.direction, out);
        match message(chunk.bytes) {
            Some(found) => fields(transaction, |fields| *fields = found),
            None => transaction.raise("bittorrent_dht.malformed_packet"),
        }
        Outcome::Continue
    }

    fn end(&mut self, _direction: Direction, _out: &mut Transactions) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_of_bep_5_are_read() {
        let ping = b"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:t2:aa1:y1:qe";
        assert!(is_message(ping));
        let mut found = message(ping).unwrap();
        assert_eq!(
            found.value("request_type"),
            Some(&mut super::super::record::Value::Text(b"ping".to_vec()))
        );
        let error = b"d1:eli201e23:A Generic Error Ocurrede1:t2:aa1:y1:ee";
        assert!(is_message(error) && message(error).is_some());
        let response = b"d1:rd2:id20:mnopqrstuvwxyz123456e1:t2:aa1:y1:re";
        assert!(is_message(response) && message(response).is_some());
    }

    #[test]
    fn nodes_and_peers_of_both_versions_of_ip_have_their_addresses() {
        let identifier = b"mnopqrstuvwxyz123456";
        let node = [&identifier[..], &[192, 0, 2, 1, 0x1a, 0xe1]].concat();
        let address: [u8; 16] = core::array::from_fn(|at| at as u8);
        let node6 = [&identifier[..], &address, &[0, 80]].concat();
        let cut = &node[..25];
        let response = [
            &b"d1:rd2:id20:mnopqrstuvwxyz1234565:nodes51:"[..],
            &node,
            cut,
            b"6:nodes638:",
            &node6,
            b"6:valuesl6:",
            &node[20..],
            b"18:",
            &node6[20..],
            b"3:abcee1:t2:aa1:y1:re",
        ]
        .concat();
        let mut found = message(&response).unwrap();
        let mut expected = Fields::default();
        let one = |with_identifier: bool, ip: &[u8], port: u16| {
            let mut out = Fields::default();
            if with_identifier {
                out.text("id", &hex(identifier));
            }
            out.text("ip", ip).number("port", port);
            out
        };
        let (four, six) = (&b"192.0.2.1"[..], &b"0001:0203:0405:0607:0809:0a0b:0c0d:0e0f"[..]);
        expected
            .text("id", &hex(identifier))
            .objects("nodes", vec![one(true, four, 6881)])
            .objects("nodes6", vec![one(true, six, 80)])
            .objects("values", vec![one(false, four, 6881), one(false, six, 80)]);
        assert_eq!(
            found.value("response"),
            Some(&mut super::super::record::Value::Object(expected))
        );
    }

    #[test]
    fn malformed_and_deep_messages_are_refused() {
        let deep = [b"d1:q".to_vec(), vec![b'l'; 1000]].concat();
        for bytes in [
            &b"d1:ad2:id20:ab"[..],
            b"d1:q4:ping",
            b"x",
            b"",
            &deep,
            b"d1:t2:aae",
        ] {
            assert!(message(bytes).is_none(), "{}", bytes.escape_ascii());
        }
    }
}
