//! Conditions on the fields that a parser records for a transaction, besides its buffers.

use core::net::IpAddr;
use std::collections::HashSet;

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::enumerations::NFS_NAMED;
use millrace_ips_rules::options::number::{Comparison, NumberField};
use millrace_ips_rules::options::selection::{Index, Selection};
use millrace_ips_rules::options::words::TextField;
use millrace_types::Time;

use super::modbus::{Message, holds};
use super::program::{AppTest, compare, compare_all};
use crate::app::file::{File, FileState};
use crate::app::ike::SECURITY_ASSOCIATION;
use crate::app::krb5;
use crate::app::record::{DcerpcCall, Dnp3Record, DnsRecord, Record, TlsRecord, Value};
use crate::app::{Progress, Transaction};
use crate::flow::Direction;

/// The word of `dce_iface` for calls in any fragment. It has no effect, because all fragments of a call are one
/// transaction.
const ANY_FRAGMENT: &str = "any_frag";

/// Returns true if a transaction satisfies a condition, in a direction, at a time, and with a client. The protocol was tested before.
pub(super) fn satisfies(
    test: &AppTest,
    transaction: &Transaction,
    (direction, now, client): (Direction, Time, IpAddr),
) -> bool {
    match test {
        AppTest::Protocol(_) => true,
        AppTest::Progress(progress) => transaction.progress[direction.index()] >= *progress,
        AppTest::Field(field, value) => has(*field, value, transaction, (direction, now, client)),
        AppTest::Number(field, comparison, index) => {
            has_number(*field, (*comparison, *index), transaction, direction)
        }
        AppTest::Digest {
            field,
            list,
            is_negated,
        } => has_digest(*field, list, *is_negated, transaction, direction),
    }
}

/// Returns true if a value of the transaction satisfies a condition in words.
fn has(
    field: TextField,
    value: &str,
    transaction: &Transaction,
    (direction, now, client): (Direction, Time, IpAddr),
) -> bool {
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
        TextField::DceIface => call(transaction).is_some_and(|call| interface(value, call)),
        TextField::DceOpnum => call(transaction).is_some_and(|call| is_in_list(value, call.operation)),
        TextField::SipStatCode => match &transaction.record {
            Record::Sip(sip) => sip.code.is_some_and(|code| {
                any_of(value, |text| match text.len() {
                    // One digit names a class of codes (Snort 2.9, sip_stat_code).
                    1 => text.parse() == Ok(code / 100),
                    _ => text.parse() == Ok(code),
                })
            }),
            _ => false,
        },
        TextField::Modbus => modbus(transaction, direction).is_some_and(|(unit, function)| {
            let data = transaction.buffer(Buffer::ModbusData, direction);
            let message = Message {
                unit,
                function,
                data: data.unwrap_or_default(),
            };
            holds(value, message)
        }),
        TextField::ModbusUnit => {
            modbus(transaction, direction).is_some_and(|(unit, _)| value.trim().parse() == Ok(unit))
        }
        TextField::ModbusFunc => modbus(transaction, direction)
            .is_some_and(|(_, function)| any_of(value, |name| modbus_function(name) == Some(function))),
        TextField::Dnp3Func => dnp3(transaction, direction)
            .is_some_and(|record| any_of(value, |name| dnp3_function(name) == Some(record.function))),
        TextField::Dnp3Ind => dnp3(transaction, direction)
            .and_then(|record| record.indications)
            .is_some_and(|bits| {
                any_of(value, |name| {
                    dnp3_indication(name).is_some_and(|bit| bits & bit != 0)
                })
            }),
        TextField::Dnp3Obj => dnp3(transaction, direction).is_some_and(|record| {
            let mut parts = value.split(',').map(|part| part.trim().parse::<u8>().ok());
            let asked = (parts.next().flatten(), parts.next().flatten());
            record
                .objects
                .iter()
                .any(|found| (Some(found.group), Some(found.variation)) == asked)
        }),
        TextField::SipMethodList => {
            let method = transaction.buffer(Buffer::SipMethod, direction);
            method.is_some_and(|method| any_of(value, |name| method.eq_ignore_ascii_case(name.as_bytes())))
        }
        TextField::FtpBounce => {
            let of = |buffer| transaction.buffer(buffer, direction).unwrap_or_default();
            of(Buffer::FtpCommand) == b"PORT" && names_other(of(Buffer::FtpCommandData), client)
        }
        TextField::FileStore => !transaction.files.is_empty(),
        TextField::FileMagicText => {
            let (is_negated, text) = match value.strip_prefix('!') {
                Some(text) => (true, text.trim()),
                None => (false, value),
            };
            let text = text.trim_matches('"').to_ascii_lowercase();
            let files = transaction.files.iter().filter(|file| file.direction == direction);
            let mut kinds = files.filter_map(|file| file.magic);
            kinds.any(|magic| magic.to_ascii_lowercase().contains(&text) != is_negated)
        }
        TextField::SshProtoVersion => {
            let version = transaction.buffer(Buffer::SshProto, direction);
            version.is_some_and(|version| match value {
                "2_compat" => matches!(version, b"2.0" | b"2" | b"1.99"),
                value => version == value.as_bytes(),
            })
        }
        TextField::CertExpired | TextField::CertValid => match &transaction.record {
            Record::Tls(tls) => tls.not_after.is_some_and(|end| {
                let is_over = end < now.nanos() as i64 / 1_000_000_000;
                is_over == (field == TextField::CertExpired)
            }),
            _ => false,
        },
        TextField::IkeChosenSaAttribute => value.split_once('=').is_some_and(|(name, number)| {
            let number = number.trim().parse::<u64>().ok();
            let name = format!("{}_raw", name.trim());
            direction == Direction::ToClient
                && has_own_association(transaction)
                && matches!(field_of(transaction, &name), Some(Value::Number(found)) if Some(*found) == number)
        }),
        TextField::Krb5TicketEncryption => match field_of(transaction, "ticket_encryption") {
            Some(Value::Text(found)) => krb5_encryption(value, found),
            _ => false,
        },
        // Parsers provide no value for the other fields, and an unknown value does not match.
        _ => false,
    }
}

/// Returns true if the argument of PORT has the address of another host than the client (RFC 959, section 4.1.2).
fn names_other(argument: &[u8], client: IpAddr) -> bool {
    let IpAddr::V4(client) = client else {
        return false;
    };
    let numbers = argument.split(|byte| *byte == b',').map(|digits| {
        let digits = core::str::from_utf8(digits).ok()?;
        digits.trim().parse::<u8>().ok()
    });
    let numbers: Option<Vec<u8>> = numbers.collect();
    numbers.is_some_and(|numbers| numbers.len() == 6 && numbers[..4] != client.octets())
}

/// Returns a field of a transaction whose protocol has no record type of its own.
fn field_of<'a>(transaction: &'a Transaction, name: &str) -> Option<&'a Value> {
    match &transaction.record {
        Record::Fields(fields) => fields
            .list
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value),
        _ => None,
    }
}

/// Returns true if a message of IKE has a security association. Records of version 1 have the chosen attributes of the flow in later
/// messages, too.
fn has_own_association(transaction: &Transaction) -> bool {
    let name = SECURITY_ASSOCIATION.as_bytes();
    matches!(field_of(transaction, "payload"), Some(Value::Texts(names)) if names.iter().any(|known| known == name))
}

/// Returns true if the name of an encryption type is in a list of names, numbers and `weak`; a `!` negates a part.
fn krb5_encryption(value: &str, found: &[u8]) -> bool {
    let all = krb5::STRONG.iter().chain(krb5::WEAK);
    let number = all
        .clone()
        .find(|(_, name)| name.as_bytes() == found)
        .map(|(number, _)| *number);
    any_of(value, |word| match word {
        "weak" => number.is_none_or(krb5::is_weak),
        word => {
            word.as_bytes() == found
                || word.parse().ok() == number && number.is_some()
                || word.as_bytes() == found
        }
    })
}

/// Returns true if [`has`] knows the names and numbers of a condition. Others would never match, or always with `!`.
pub(super) fn is_known(field: TextField, value: &str) -> bool {
    let all = |is_known: &dyn Fn(&str) -> bool| words(value).all(|(_, word)| is_known(word));
    match field {
        TextField::ModbusFunc => all(&|word| modbus_function(word).is_some()),
        TextField::ModbusUnit => value.trim().parse::<u8>().is_ok(),
        TextField::Dnp3Func => all(&|word| dnp3_function(word).is_some()),
        TextField::Dnp3Ind => all(&|word| dnp3_indication(word).is_some()),
        TextField::Dnp3Obj => value.split(',').all(|part| part.trim().parse::<u8>().is_ok()),
        TextField::DceIface => {
            let mut conditions = value.split(',').skip(1).map(str::trim);
            conditions.all(|part| part == ANY_FRAGMENT || version_bound(part).is_some())
        }
        TextField::DceOpnum => value.split(',').all(|part| {
            let part = part.trim();
            operations(part.strip_prefix('!').unwrap_or(part)).is_some()
        }),
        TextField::SipStatCode => all(&|word| word.parse::<u16>().is_ok()),
        _ => true,
    }
}

/// Returns the words of a value, each with true if there is a `!` before it.
fn words(value: &str) -> impl Iterator<Item = (bool, &str)> {
    value.split([',', '|']).map(|word| {
        let word = word.trim();
        match word.strip_prefix('!') {
            Some(word) => (true, word.trim().trim_matches('"')),
            None => (false, word.trim_matches('"')),
        }
    })
}

/// Returns true if one of the words holds; a `!` before a word negates it.
fn any_of(value: &str, holds: impl Fn(&str) -> bool) -> bool {
    words(value).any(|(is_negated, word)| holds(word) != is_negated)
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
        other => return u16::from_str_radix(other.strip_prefix("0x")?, 16).ok(),
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

/// Returns unit and function of the Modbus message in a direction.
fn modbus(transaction: &Transaction, direction: Direction) -> Option<(u8, u8)> {
    match &transaction.record {
        Record::Modbus(record) => {
            let message = record.messages[direction.index()].as_ref()?;
            Some((message.unit, message.function))
        }
        _ => None,
    }
}

/// Returns the DNP3 fragment of a direction.
fn dnp3(transaction: &Transaction, direction: Direction) -> Option<&Dnp3Record> {
    match &transaction.record {
        Record::Dnp3(record) => transaction.buffer(Buffer::Dnp3Data, direction).map(|_| &**record),
        _ => None,
    }
}

/// Returns the number of a name in a table, or the number in the text itself.
fn number_of<T: Copy + core::str::FromStr>(name: &str, table: &[(&str, T)]) -> Option<T> {
    let named = table.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    named.map(|(_, number)| *number).or_else(|| name.parse().ok())
}

/// Returns the code of a Modbus function, by the names of Snort 2.9's `modbus_func`.
fn modbus_function(name: &str) -> Option<u8> {
    const NAMES: &[(&str, u8)] = &[
        ("read_coils", 1),
        ("read_discrete_inputs", 2),
        ("read_holding_registers", 3),
        ("read_input_registers", 4),
        ("write_single_coil", 5),
        ("write_single_register", 6),
        ("read_exception_status", 7),
        ("diagnostics", 8),
        ("get_comm_event_counter", 11),
        ("get_comm_event_log", 12),
        ("write_multiple_coils", 15),
        ("write_multiple_registers", 16),
        ("report_slave_id", 17),
        ("read_file_record", 20),
        ("write_file_record", 21),
        ("mask_write_register", 22),
        ("read_write_multiple_registers", 23),
        ("read_fifo_queue", 24),
        ("encapsulated_interface_transport", 43),
    ];
    number_of(name, NAMES)
}

/// Returns the code of a DNP3 function, by the names of Snort 2.9's `dnp3_func` (IEEE 1815, table 4-1).
fn dnp3_function(name: &str) -> Option<u8> {
    const NAMES: &[(&str, u8)] = &[
        ("confirm", 0),
        ("read", 1),
        ("write", 2),
        ("select", 3),
        ("operate", 4),
        ("direct_operate", 5),
        ("direct_operate_nr", 6),
        ("immed_freeze", 7),
        ("immed_freeze_nr", 8),
        ("freeze_clear", 9),
        ("freeze_clear_nr", 10),
        ("freeze_at_time", 11),
        ("freeze_at_time_nr", 12),
        ("cold_restart", 13),
        ("warm_restart", 14),
        ("initialize_data", 15),
        ("initialize_appl", 16),
        ("start_appl", 17),
        ("stop_appl", 18),
        ("save_config", 19),
        ("enable_unsolicited", 20),
        ("disable_unsolicited", 21),
        ("assign_class", 22),
        ("delay_measure", 23),
        ("record_current_time", 24),
        ("open_file", 25),
        ("close_file", 26),
        ("delete_file", 27),
        ("get_file_info", 28),
        ("authenticate_file", 29),
        ("abort_file", 30),
        ("activate_config", 31),
        ("authenticate_req", 32),
        ("authenticate_err", 33),
        ("response", 129),
        ("unsolicited_response", 130),
        ("authenticate_resp", 131),
    ];
    number_of(name, NAMES)
}

/// Returns the bit of a DNP3 internal indication (IEEE 1815, section 4.2.2.6), the first byte in the high half.
fn dnp3_indication(name: &str) -> Option<u16> {
    const NAMES: &[(&str, u16)] = &[
        ("all_stations", 1 << 8),
        ("class_1_events", 1 << 9),
        ("class_2_events", 1 << 10),
        ("class_3_events", 1 << 11),
        ("need_time", 1 << 12),
        ("local_control", 1 << 13),
        ("device_trouble", 1 << 14),
        ("device_restart", 1 << 15),
        ("no_func_code_support", 1),
        ("object_unknown", 1 << 1),
        ("parameter_error", 1 << 2),
        ("event_buffer_overflow", 1 << 3),
        ("already_executing", 1 << 4),
        ("config_corrupt", 1 << 5),
        ("reserved_2", 1 << 6),
        ("reserved_1", 1 << 7),
    ];
    number_of(name, NAMES)
}

/// Returns the call of DCE/RPC in the record of a transaction.
fn call(transaction: &Transaction) -> Option<&DcerpcCall> {
    match &transaction.record {
        // A bind, and an answer without its request, are transactions for events alone.
        Record::Smb(smb) => smb.dcerpc.as_ref().filter(|call| call.request == Some(0)),
        _ => None,
    }
}

/// Returns true if a call has the interface in `value`: a UUID, optionally with a comma and a comparison of
/// the version.
fn interface(value: &str, call: &DcerpcCall) -> bool {
    let mut parts = value.split(',').map(str::trim);
    let uuid = parts.next().unwrap_or_default().as_bytes();
    let is_version = |version: u16| {
        parts.clone().all(|part| match version_bound(part) {
            Some(("<", bound)) => version < bound,
            Some((">", bound)) => version > bound,
            Some(("=", bound)) => version == bound,
            Some((_, bound)) => version != bound,
            None => part == ANY_FRAGMENT,
        })
    };
    let mut interfaces = call.interfaces.iter();
    interfaces.any(|(known, [major, _])| known.eq_ignore_ascii_case(uuid) && is_version(*major))
}

/// Returns a comparison with the version of an interface: the operator and the bound.
fn version_bound(part: &str) -> Option<(&str, u16)> {
    let (operator, bound) = part.split_at_checked(1)?;
    let bound = bound.trim().parse().ok()?;
    matches!(operator, "<" | ">" | "=" | "!").then_some((operator, bound))
}

/// Returns the numbers of a part of `dce_opnum`: one, a range, or those below or above a number.
fn operations(part: &str) -> Option<core::ops::RangeInclusive<u16>> {
    let part = part.trim();
    let number = |text: &str| text.trim().parse::<u16>().ok();
    if let Some(bound) = part.strip_prefix('<') {
        return Some(0..=number(bound)?.checked_sub(1)?);
    }
    if let Some(bound) = part.strip_prefix('>') {
        return Some(number(bound)?.checked_add(1)?..=u16::MAX);
    }
    let part = part.strip_prefix('=').unwrap_or(part);
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then_some(first..=last)
}

/// Returns true if a number is in a list of numbers and ranges, or is none of those that a `!` precedes.
fn is_in_list(list: &str, number: u16) -> bool {
    list.split(',')
        .map(str::trim)
        .any(|part| match part.strip_prefix('!') {
            Some(part) => operations(part).is_some_and(|part| !part.contains(&number)),
            None => operations(part).is_some_and(|part| part.contains(&number)),
        })
}

/// Returns true if a number of the transaction satisfies a comparison.
fn has_number(
    field: NumberField,
    (comparison, selection): (Comparison, Selection),
    transaction: &Transaction,
    direction: Direction,
) -> bool {
    if field >= NumberField::DnsRcode {
        let mut values = transaction.numbers(field, direction);
        if field == NumberField::NfsProcedure {
            // A name is compared with names, and a number with numbers.
            let is_name = |number: u64| number & NFS_NAMED != 0;
            let asks_name = matches!(comparison, Comparison::Equal(number) | Comparison::NotEqual(number) if is_name(number));
            values.retain(|value| is_name(*value) == asks_name);
        }
        return match needs_end(selection) && transaction.progress[direction.index()] < Progress::Complete {
            true => false,
            false => compare_all(comparison, selection, &values),
        };
    }
    match (field, &transaction.record) {
        (NumberField::FileSize, _) => transaction
            .files
            .iter()
            .filter(|file| file.direction == direction)
            .any(|file| has_size(file, comparison)),
        (NumberField::DnsOpcode, Record::Dns(dns)) => compare(comparison, opcode(dns)),
        // All certificates of a chain are in one message.
        (NumberField::CertChainLen, Record::Tls(_)) => {
            let len = transaction.buffers(Buffer::TlsCerts, direction).count() as u64;
            len > 0 && compare(comparison, len)
        }
        _ => false,
    }
}

/// Returns true if more values may make a comparison false.
fn needs_end(Selection { index, part }: Selection) -> bool {
    part.is_some()
        || matches!(
            index,
            Index::All | Index::AllOrAbsent | Index::OrAbsent | Index::Times(_) | Index::Count
        )
        || matches!(index, Index::At(at) | Index::OutOfBoundsOr(at) if at < 0)
        || matches!(index, Index::OutOfBoundsOr(_))
}

/// Returns true if a field is a number of transactions, and not of packets or flows.
pub(super) fn is_of_transaction(field: NumberField) -> bool {
    let is_of_packet = matches!(
        field,
        NumberField::TcpWindowScale
            | NumberField::Icmpv6Mtu
            | NumberField::IgmpType
            | NumberField::VlanLayers
            | NumberField::VlanId
            | NumberField::FlowAge
            | NumberField::FlowPackets
            | NumberField::FlowPacketsToClient
            | NumberField::FlowPacketsToServer
            | NumberField::FlowBytes
            | NumberField::FlowBytesToClient
            | NumberField::FlowBytesToServer
    );
    matches!(
        field,
        NumberField::FileSize | NumberField::CertChainLen | NumberField::DnsOpcode
    ) || field >= NumberField::DnsRcode && !is_of_packet
}

/// Returns true if a file of the transaction has a digest of a list, or with `is_negated` one that the list does not have.
fn has_digest(
    field: TextField,
    list: &HashSet<Vec<u8>>,
    is_negated: bool,
    transaction: &Transaction,
    direction: Direction,
) -> bool {
    let files = transaction
        .files
        .iter()
        .filter(|file| file.direction == direction);
    let mut hashes = files.filter_map(|file| file.hashes.as_ref());
    hashes.any(|hashes| {
        let digest: &[u8] = match field {
            TextField::FileMd5 => &hashes.md5,
            TextField::FileSha1 => &hashes.sha1,
            _ => &hashes.sha256,
        };
        list.contains(digest) != is_negated
    })
}

/// Returns true if the size of a file satisfies a comparison, whatever bytes follow. The known size of an incomplete file is only
/// a lower bound.
fn has_size(file: &File, comparison: Comparison) -> bool {
    let is_bound = matches!(comparison, Comparison::Greater(_) | Comparison::GreaterOrEqual(_));
    (is_bound || file.state == FileState::Closed) && compare(comparison, file.size)
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
        assert!(is_in_list(">10", 11) && !is_in_list(">10", 10));
        assert!(is_in_list("<10", 9) && !is_in_list("<10", 10));
        assert!(is_in_list("!7", 6) && !is_in_list("!7", 7));
    }

    #[test]
    fn an_interface_is_compared_with_its_version() {
        let uuid = "12345678-1234-abcd-ef00-0123456789ac";
        let call = DcerpcCall {
            interfaces: [(uuid.as_bytes().to_vec(), [3, 1])].into_iter().collect(),
            ..DcerpcCall::default()
        };
        let upper = uuid.to_ascii_uppercase();
        for (value, expected) in [
            (uuid.to_owned(), true),
            (format!("{upper},any_frag"), true),
            (format!("{uuid},>2,any_frag"), true),
            (format!("{uuid},<3"), false),
            (format!("{uuid},=3"), true),
            (format!("{uuid},!3"), false),
            (uuid.replace('8', "9"), false),
        ] {
            assert_eq!(interface(&value, &call), expected, "{value}");
        }
    }

    #[test]
    fn a_negated_word_holds_for_every_other_value() {
        assert!(any_of("!1.2", |name| name == "1.3"));
        assert!(!any_of("!\"1.2\"", |name| name == "1.2"));
    }
}
