//! Conditions on what a parser says about a transaction, besides its buffers.

use millrace_ips_rules::options::number::{Comparison, NumberField};
use millrace_ips_rules::options::words::TextField;

use super::program::compare;
use crate::app::Transaction;
use crate::app::record::{DnsRecord, Record, SmbRecord, TlsRecord};
use crate::flow::Direction;

/// Returns true if a value of the transaction satisfies a condition in words.
pub(super) fn has(field: TextField, value: &str, transaction: &Transaction, direction: Direction) -> bool {
    match field {
        TextField::AppLayerEvent => transaction
            .events
            .iter()
            .any(|event| event.eq_ignore_ascii_case(value)),
        TextField::TlsVersion | TextField::SslVersion => match &transaction.record {
            Record::Tls(tls) => any_of(value, |name| version(name) == Some(tls.version)),
            _ => false,
        },
        TextField::SslState => match &transaction.record {
            Record::Tls(tls) => any_of(value, |name| is_in_state(name, tls)),
            _ => false,
        },
        TextField::DceIface => match &transaction.record {
            Record::Smb(smb) => interface(value, smb),
            _ => false,
        },
        TextField::DceOpnum => match &transaction.record {
            Record::Smb(smb) => smb
                .dcerpc
                .as_ref()
                .is_some_and(|(_, number)| is_in_list(value, *number)),
            _ => false,
        },
        TextField::SipMethodList => {
            let method = transaction.buffer(millrace_ips_rules::buffers::Buffer::SipMethod, direction);
            method.is_some_and(|method| any_of(value, |name| method.eq_ignore_ascii_case(name.as_bytes())))
        }
        // Parsers give no value for the others, and what is unknown does not match.
        _ => false,
    }
}

/// Returns true if one of the words holds; a `!` before a word negates it.
fn any_of(value: &str, holds: impl Fn(&str) -> bool) -> bool {
    value.split([',', '|']).any(|word| {
        let word = word.trim();
        match word.strip_prefix('!') {
            Some(word) => !holds(word.trim().trim_matches('"')),
            None => holds(word.trim_matches('"')),
        }
    })
}

/// Returns the number of a version of TLS.
fn version(name: &str) -> Option<u16> {
    Some(match name {
        "sslv2" => 0x0002,
        "sslv3" => 0x0300,
        "1.0" | "tls1.0" => 0x0301,
        "1.1" | "tls1.1" => 0x0302,
        "1.2" | "tls1.2" => 0x0303,
        "1.3" | "tls1.3" => 0x0304,
        _ => return None,
    })
}

/// Returns true if the handshake has reached a state of `ssl_state`.
fn is_in_state(name: &str, tls: &TlsRecord) -> bool {
    let state = &tls.state;
    match name {
        "client_hello" => state.client_hello,
        "server_hello" => state.server_hello,
        "client_keyx" => state.client_key_exchange,
        "server_keyx" => state.server_key_exchange,
        "unknown" => state.unknown,
        _ => false,
    }
}

/// Returns true if the interface of a bind is the one asked for: a UUID, perhaps with its version after a comma.
fn interface(value: &str, smb: &SmbRecord) -> bool {
    let uuid = value.split(',').next().unwrap_or(value).trim();
    smb.dcerpc
        .as_ref()
        .is_some_and(|(known, _)| known.eq_ignore_ascii_case(uuid.as_bytes()))
}

/// Returns true if a number is in a list of numbers and ranges.
fn is_in_list(list: &str, number: u16) -> bool {
    list.split(',').any(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.trim().parse::<u16>(), last.trim().parse::<u16>()) {
            (Ok(first), Ok(last)) => first <= number && number <= last,
            _ => false,
        }
    })
}

/// Returns true if a number of the transaction satisfies a comparison.
pub(super) fn has_number(
    field: NumberField,
    comparison: Comparison,
    transaction: &Transaction,
    direction: Direction,
) -> bool {
    match (field, &transaction.record) {
        (NumberField::FileSize, _) => transaction
            .files
            .iter()
            .filter(|file| file.direction == direction)
            .any(|file| compare(comparison, file.size)),
        (NumberField::DnsOpcode, Record::Dns(dns)) => compare(comparison, opcode(dns)),
        _ => false,
    }
}

/// Returns the operation code of a message (RFC 1035, section 4.1.1).
fn opcode(dns: &DnsRecord) -> u64 {
    u64::from(dns.flags >> 11 & 0xf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_operations_have_numbers_and_ranges() {
        assert!(is_in_list("1,4-6", 5));
        assert!(is_in_list("1, 4-6", 1));
        assert!(!is_in_list("1,4-6", 7));
    }

    #[test]
    fn a_negated_word_holds_for_every_other_value() {
        assert!(any_of("!1.2", |name| name == "1.3"));
        assert!(!any_of("!\"1.2\"", |name| name == "1.2"));
    }
}
