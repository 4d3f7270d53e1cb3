//! DHCP for IPv4 (RFC 2131, RFC 2132): each message is a transaction.

use core::net::Ipv4Addr;

use millrace_ips_rules::options::number::NumberField;

use super::AppProtocol;
use super::framed::{self, colons, fields, number, take};
use super::parser::{Outcome, Parser};
use super::record::Fields;
use super::transaction::Transactions;
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// The bytes before the options (RFC 2131, section 3).
const COOKIE: [u8; 4] = [0x63, 0x82, 0x53, 0x63];
/// Size of the fixed part of a message in bytes, without the cookie.
const FIXED: usize = 236;

/// Names of the message types (RFC 2132, section 9.6).
const TYPES: [&str; 9] = [
    "", "discover", "offer", "request", "decline", "ack", "nak", "release", "inform",
];

/// The parser of a flow.
#[derive(Debug, Default)]
pub(super) struct Dhcp;

heap!(Dhcp {});

fn address(bytes: &[u8]) -> Option<Vec<u8>> {
    let octets = <[u8; 4]>::try_from(bytes).ok()?;
    Some(Ipv4Addr::from(octets).to_string().into_bytes())
}

fn addresses(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes.chunks(4).filter_map(address).collect()
}

/// Returns the name that Suricata writes for an option which is requested (RFC 2132); `None` for the options that it leaves out.
fn parameter(code: u8) -> Option<&'static str> {
    let name = match code {
        1 => "subnet_mask",
        3 => "router",
        6 => "dns_server",
        15 => "domain",
        35 => "arp_timeout",
        42 => "ntp_server",
        66 => "tftp_server_name",
        150 => "tftp_server_ip",
        _ => return None,
    };
    Some(name)
}

impl Dhcp {
    fn message(direction: Direction, bytes: &[u8], out: &mut Transactions) -> Option<()> {
        let fixed = bytes.get(..FIXED)?;
        let mut rest = bytes
            .get(FIXED + 4..)
            .filter(|_| bytes[FIXED..FIXED + 4] == COOKIE)?;
        let transaction = framed::message(AppProtocol::Dhcp, direction, out);
        let mut record = Fields::default();
        let kind = match fixed[0] {
            1 => "request",
            2 => "reply",
            _ => "unknown",
        };
        let identifier = u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
        record
            .text("type", kind.as_bytes())
            .number("id", identifier)
            .text("client_mac", colons(&fixed[28..34]).as_bytes());
        let named = [
            ("client_ip", 12),
            ("assigned_ip", 16),
            ("next_server_ip", 20),
            ("relay_ip", 24),
        ];
        for (name, at) in named {
            record.text(name, &address(&fixed[at..at + 4]).unwrap_or_default());
        }
        let mut is_whole = false;
        while let Some((code, tail)) = rest.split_first() {
            rest = tail;
            match code {
                0 => continue,
                255 => {
                    is_whole = true;
                    break;
                }
                _ => {}
            }
            let Some(data) = number(&mut rest, 1).and_then(|size| take(&mut rest, size as usize)) else {
                transaction.raise("dhcp.truncated_options");
                break;
            };
            let mut time = |field, name, record: &mut Fields, data: &[u8]| match <[u8; 4]>::try_from(data) {
                Ok(value) => {
                    let value = u32::from_be_bytes(value);
                    transaction.number(field, direction, value);
                    record.number(name, value);
                    true
                }
                Err(_) => false,
            };
            let is_valid = match code {
                51 => time(NumberField::DhcpLeaseTime, "lease_time", &mut record, data),
                58 => time(NumberField::DhcpRenewalTime, "renewal_time", &mut record, data),
                59 => time(
                    NumberField::DhcpRebindingTime,
                    "rebinding_time",
                    &mut record,
                    data,
                ),
                53 => {
                    let kind = data.first().copied().unwrap_or(0);
                    let name = TYPES.get(usize::from(kind)).copied().unwrap_or_default();
                    record.text(
                        "dhcp_type",
                        if name.is_empty() {
                            b"unknown"
                        } else {
                            name.as_bytes()
                        },
                    );
                    data.len() == 1
                }
                1 | 50 => match address(data) {
                    Some(text) => {
                        record.text(if *code == 1 { "subnet_mask" } else { "requested_ip" }, &text);
                        true
                    }
                    None => false,
                },
                3 | 6 => {
                    let list = addresses(data);
                    let name = if *code == 3 { "routers" } else { "dns_servers" };
                    record.texts(name, list.iter().map(Vec::as_slice));
                    data.len() % 4 == 0
                }
                12 => {
                    record.text("hostname", data);
                    true
                }
                55 => {
                    let names = data.iter().filter_map(|code| parameter(*code));
                    record.texts("params", names.map(str::as_bytes));
                    true
                }
                60 => {
                    record.text("vendor_class_identifier", data);
                    true
                }
                61 => {
                    record.text("client_id", colons(data.get(1..).unwrap_or_default()).as_bytes());
                    data.len() >= 2
                }
                _ => true,
            };
            if !is_valid {
                transaction.raise("dhcp.malformed_options");
            }
        }
        if !is_whole {
            transaction.raise("dhcp.truncated_options");
        }
        fields(transaction, |fields| *fields = record);
        Some(())
    }
}

impl Parser for Dhcp {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        Dhcp::message(chunk.direction, chunk.bytes, out);
        Outcome::Continue
    }

    fn end(&mut self, _direction: Direction, _out: &mut Transactions) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::record::{Record, Value};

    #[test]
    fn requested_options_without_a_name_have_no_place_in_the_list() {
        let mut message = vec![0; FIXED];
        message[0] = 1;
        message.extend(COOKIE);
        message.extend([55, 7, 1, 2, 3, 150, 252, 35, 121, 255]);
        let mut out = Transactions::default();
        Dhcp.data(StreamChunk::of(Direction::ToServer, &message), &mut out);
        let Record::Fields(fields) = &mut out.list[0].record else {
            panic!("no record");
        };
        let names = ["subnet_mask", "router", "tftp_server_ip", "arp_timeout"];
        let names = names.map(|name| name.as_bytes().to_vec()).to_vec();
        assert_eq!(fields.value("params"), Some(&mut Value::Texts(names)));
    }
}
