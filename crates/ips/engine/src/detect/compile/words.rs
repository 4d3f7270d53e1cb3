//! Options whose value the syntax tree keeps as text.

use std::sync::Arc;

use millrace_ips_rules::Reason;
use millrace_ips_rules::countries::{Countries, Country};
use millrace_ips_rules::options::number::Comparison;
use millrace_ips_rules::options::state::{BitOperation, BitScope, Bits, FlowInt};
use millrace_ips_rules::options::words::TextField;
use millrace_ips_rules::reputation::Reputation;
use millrace_wire::IpProto;

use super::super::program::{
    AddressSide, BitMode, BitTable, CounterOperator, CounterTest, CounterValue, CountryTest, Effect,
    PacketTest, ReputationTest, ScoreTest, Side, StateTest, Store, StoreSide,
};
use super::Interner;
use crate::flow::Direction;
use crate::packet::IpVersion;

fn invalid(text: &str, expected: &'static str) -> Reason {
    Reason::Invalid {
        problem: format!("the value \"{text}\""),
        expected,
    }
}

/// Compiles the value of `iprep`.
pub(super) fn reputation(text: &str, table: &Arc<Reputation>) -> Result<ReputationTest, Reason> {
    const FORM: &str = "a side, a category and a test, with commas between them";
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let [side, name, test @ ..] = &parts[..] else {
        return Err(invalid(text, FORM));
    };
    let side = address_side(side).ok_or_else(|| invalid(text, FORM))?;
    let score = match test {
        ["isset"] => ScoreTest::IsSet(true),
        ["isnotset"] => ScoreTest::IsSet(false),
        [operator, score] => {
            let score = score.parse().map_err(|_| invalid(text, FORM))?;
            ScoreTest::Compares(match *operator {
                "<" => Comparison::Less(score),
                "<=" => Comparison::LessOrEqual(score),
                ">" => Comparison::Greater(score),
                ">=" => Comparison::GreaterOrEqual(score),
                "!=" => Comparison::NotEqual(score),
                _ => Comparison::Equal(score),
            })
        }
        _ => return Err(invalid(text, FORM)),
    };
    let category = table.category(name).ok_or_else(|| Reason::Invalid {
        problem: format!("the category \"{name}\" is in no file"),
        expected: "a row NUMBER,NAME,DESCRIPTION for it in a file that is read with the rules",
    })?;
    Ok(ReputationTest {
        side,
        category,
        name: (*name).to_owned(),
        score,
        table: Arc::clone(table),
    })
}

/// Compiles the value of `geoip`.
pub(super) fn country(text: &str, table: &Countries) -> Result<CountryTest, Reason> {
    if table.is_empty() {
        return Err(Reason::Invalid {
            problem: "there is no database of countries".to_owned(),
            expected: "a file in MaxMind's format, such as GeoLite2-Country.mmdb, that is read with the rules",
        });
    }
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let side = address_side(parts[0]);
    let codes = &parts[usize::from(side.is_some())..];
    let code = |code: &&str| -> Option<Country> {
        let letters = code.trim_start_matches(['!', ' ']).to_ascii_uppercase();
        letters.as_bytes().try_into().ok()
    };
    let countries: Option<Vec<Country>> = codes.iter().map(code).collect();
    Ok(CountryTest {
        side: side.unwrap_or(AddressSide::Any),
        countries: countries.ok_or_else(|| invalid(text, "codes of countries of two letters"))?,
        is_negated: codes.iter().any(|code| code.starts_with('!')),
        table: table.clone(),
    })
}

fn address_side(word: &str) -> Option<AddressSide> {
    match word {
        "src" => Some(AddressSide::Source),
        "dst" => Some(AddressSide::Destination),
        "any" => Some(AddressSide::Any),
        "both" => Some(AddressSide::Both),
        _ => None,
    }
}

/// Compiles the value of `filestore`.
pub(super) fn store(text: &str) -> Store {
    let mut store = Store {
        side: None,
        is_of_flow: false,
    };
    for word in text.split(',').map(str::trim) {
        match word {
            "request" | "to_server" => store.side = Some(StoreSide::One(Direction::ToServer)),
            "response" | "to_client" => store.side = Some(StoreSide::One(Direction::ToClient)),
            "both" => store.side = Some(StoreSide::Both),
            "ssn" | "flow" => store.is_of_flow = true,
            // `file` and `tx` are the files of the transaction.
            _ => {}
        }
    }
    store
}

/// Separates the sign of a set of bits from its letters. The sign may be before or after them.
fn split_mode(text: &str) -> (BitMode, &str) {
    let signs: &[char] = &['*', '+', '!'];
    let mode = match text.chars().find(|c| signs.contains(c)) {
        Some('*') => BitMode::Any,
        Some('+') => BitMode::All,
        Some('!') => BitMode::None,
        _ => BitMode::Exact,
    };
    (mode, text.trim_matches(signs))
}

/// Returns the bits of letters of TCP flags (RFC 9293, section 3.1).
fn tcp_bits(text: &str) -> Result<u16, Reason> {
    text.chars().try_fold(0, |bits, letter| {
        Ok(bits
            | match letter.to_ascii_uppercase() {
                'F' => 0x01,
                'S' => 0x02,
                'R' => 0x04,
                'P' => 0x08,
                'A' => 0x10,
                'U' => 0x20,
                'E' | '2' => 0x40,
                'C' | '1' => 0x80,
                '0' => 0,
                _ => return Err(invalid(text, "letters of F S R P A U E C 1 2 0")),
            })
    })
}

/// Compiles `flags`.
pub(super) fn tcp_flags(text: &str) -> Result<PacketTest, Reason> {
    let (flags, ignored) = text.split_once(',').unwrap_or((text, ""));
    let (mode, letters) = split_mode(flags.trim());
    Ok(PacketTest::TcpFlags {
        mode,
        bits: tcp_bits(letters)?,
        ignored: tcp_bits(split_mode(ignored.trim()).1)?,
    })
}

/// Compiles `fragbits`.
pub(super) fn fragment_bits(text: &str) -> Result<PacketTest, Reason> {
    let (mode, letters) = split_mode(text.trim());
    let bits = letters.chars().try_fold(0, |bits, letter| {
        Ok(bits
            | match letter {
                'R' => 4,
                'D' => 2,
                'M' => 1,
                _ => return Err(invalid(text, "letters of M, D and R")),
            })
    })?;
    Ok(PacketTest::FragBits { mode, bits })
}

/// Compiles `ipopts`, with the numbers of IANA's Internet Protocol parameters.
pub(super) fn ip_option(text: &str) -> Result<PacketTest, Reason> {
    Ok(PacketTest::IpOption(match text {
        "any" => None,
        "eol" => Some(0),
        "nop" => Some(1),
        "rr" => Some(7),
        "ts" => Some(68),
        "sec" => Some(130),
        "lsrr" => Some(131),
        "esec" => Some(133),
        "satid" => Some(136),
        "ssrr" => Some(137),
        _ => return Err(invalid(text, "the name of an option, such as lsrr")),
    }))
}

/// Compiles a condition on a checksum.
pub(super) fn checksum(field: TextField, text: &str) -> PacketTest {
    use IpVersion::{V4, V6};
    let (version, protocol) = match field {
        TextField::Tcpv4Checksum => (V4, Some(IpProto::TCP)),
        TextField::Tcpv6Checksum => (V6, Some(IpProto::TCP)),
        TextField::Udpv4Checksum => (V4, Some(IpProto::UDP)),
        TextField::Udpv6Checksum => (V6, Some(IpProto::UDP)),
        TextField::Icmpv4Checksum => (V4, Some(IpProto::ICMPV4)),
        TextField::Icmpv6Checksum => (V6, Some(IpProto::ICMPV6)),
        // `ipv4-csum`.
        _ => (V4, None),
    };
    PacketTest::Checksum {
        version,
        protocol,
        is_right: text.trim_matches('"').eq_ignore_ascii_case("valid"),
    }
}

/// Compiles `ip_proto`.
pub(super) fn ip_protocol(text: &str) -> Result<PacketTest, Reason> {
    const FORM: &str = "[!<>]PROTOCOL as a number to 255, or a name such as tcp, udp, icmp, gre";
    let text = text.trim();
    let bare = text.strip_prefix(['!', '<', '>']).unwrap_or(text).trim();
    let number = match bare.to_ascii_lowercase().as_str() {
        "ip" | "hopopt" => 0,
        "icmp" => 1,
        "igmp" => 2,
        "ipip" | "ipencap" => 4,
        "tcp" => 6,
        "egp" => 8,
        "udp" => 17,
        "ipv6" => 41,
        "gre" => 47,
        "esp" => 50,
        "ah" => 51,
        "icmpv6" | "ipv6-icmp" | "icmp6" => 58,
        "eigrp" => 88,
        "ospf" => 89,
        "pim" => 103,
        "vrrp" => 112,
        "sctp" => 132,
        other => u64::from(other.parse::<u8>().map_err(|_| invalid(text, FORM))?),
    };
    Ok(PacketTest::IpProtocol(match text.as_bytes().first() {
        Some(b'!') => Comparison::NotEqual(number),
        Some(b'<') => Comparison::Less(number),
        Some(b'>') => Comparison::Greater(number),
        _ => Comparison::Equal(number),
    }))
}

/// Compiles `stream_size`.
pub(super) fn stream_size(text: &str) -> Result<PacketTest, Reason> {
    const FORM: &str = "client|server|both|either,OPERATOR,BYTES";
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let [side, operator, size] = parts[..] else {
        return Err(invalid(text, FORM));
    };
    let side = match side {
        "client" => Side::Client,
        "server" => Side::Server,
        "both" => Side::Both,
        "either" => Side::Either,
        _ => return Err(invalid(text, FORM)),
    };
    let size = size.parse().map_err(|_| invalid(text, FORM))?;
    let comparison = match operator {
        "<" => Comparison::Less(size),
        ">" => Comparison::Greater(size),
        "=" => Comparison::Equal(size),
        "!=" => Comparison::NotEqual(size),
        "<=" => Comparison::LessOrEqual(size),
        ">=" => Comparison::GreaterOrEqual(size),
        _ => return Err(invalid(text, FORM)),
    };
    Ok(PacketTest::StreamSize { side, comparison })
}

/// The compiled form of an operation with bits or counters.
pub(super) enum Shared {
    Test(StateTest),
    Effect(Effect),
    Silent,
}

/// Compiles `flowbits`, `xbits` and `hostbits`.
pub(super) fn bits(option: &Bits, interner: &mut Interner) -> Result<Shared, Reason> {
    let mut expire = 0;
    let mut table = match option.scope {
        BitScope::Flow => BitTable::Flow,
        BitScope::Cross => BitTable::Source,
        BitScope::Host => BitTable::Source,
    };
    for argument in &option.arguments {
        let mut words = argument.split_whitespace();
        match (words.next(), words.next()) {
            (Some("track"), Some("ip_src")) | (Some("src"), None) => table = BitTable::Source,
            (Some("track"), Some("ip_dst")) | (Some("dst"), None) => table = BitTable::Destination,
            (Some("track"), Some("ip_pair")) | (Some("both"), None) => table = BitTable::Pair,
            (Some("track"), Some("tx")) => table = BitTable::Transaction,
            (Some("expire"), Some(seconds)) => {
                expire = seconds
                    .parse()
                    .map_err(|_| invalid(seconds, "a number of seconds"))?;
            }
            // Groups of flowbits (Snort 2.9) only structure the names.
            _ => {}
        }
    }
    let prefix = match option.scope {
        BitScope::Flow => "flow",
        BitScope::Cross => "pair",
        BitScope::Host => "host",
    };
    let bits: Vec<u32> = option
        .names
        .iter()
        .map(|name| interner.bit(&format!("{prefix} {name}")))
        .collect();
    let effect = |value| {
        Shared::Effect(Effect::Bits {
            table,
            bits: bits.clone(),
            value,
            expire,
        })
    };
    let test = |is_negated| {
        Shared::Test(StateTest::Bits {
            table,
            bits: bits.clone(),
            is_all: option.is_all,
            is_negated,
        })
    };
    Ok(match option.operation {
        BitOperation::Set => effect(Some(true)),
        BitOperation::Unset => effect(Some(false)),
        BitOperation::Toggle => effect(None),
        BitOperation::IsSet => test(false),
        BitOperation::IsNotSet => test(true),
        BitOperation::NoAlert => Shared::Silent,
    })
}

/// Compiles `flowint`.
pub(super) fn counter(option: &FlowInt, interner: &mut Interner) -> Result<Shared, Reason> {
    let counter = interner.counter(&option.name);
    let value = option.value.as_deref().map(|text| match text.parse() {
        Ok(number) => CounterValue::Number(number),
        Err(_) => CounterValue::Counter(interner.counter(text)),
    });
    let test = |test| Ok(Shared::Test(StateTest::Counter { counter, test }));
    let change = |operator, value| {
        Ok(Shared::Effect(Effect::Counter {
            counter,
            operator,
            value,
        }))
    };
    match (option.operation.as_str(), value) {
        ("isset", None) => test(CounterTest::IsSet(true)),
        ("isnotset" | "notset", None) => test(CounterTest::IsSet(false)),
        ("==", Some(value)) => test(CounterTest::Equal(value)),
        ("!=", Some(value)) => test(CounterTest::NotEqual(value)),
        ("<", Some(value)) => test(CounterTest::Less(value)),
        ("<=", Some(value)) => test(CounterTest::LessOrEqual(value)),
        (">", Some(value)) => test(CounterTest::Greater(value)),
        (">=", Some(value)) => test(CounterTest::GreaterOrEqual(value)),
        ("=", Some(value)) => change(CounterOperator::Set, value),
        ("+", Some(value)) => change(CounterOperator::Add, value),
        ("-", Some(value)) => change(CounterOperator::Subtract, value),
        _ => Err(invalid(
            &option.operation,
            "+, -, =, ==, !=, <, >, <=, >=, isset or notset",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_of_flags_may_be_before_or_after_the_letters() {
        for text in ["+SA", "SA+"] {
            let test = tcp_flags(text).unwrap();
            assert!(
                matches!(
                    test,
                    PacketTest::TcpFlags {
                        mode: BitMode::All,
                        bits: 0x12,
                        ignored: 0
                    }
                ),
                "{test:?}"
            );
        }
        let test = tcp_flags("S,12").unwrap();
        assert!(matches!(
            test,
            PacketTest::TcpFlags {
                mode: BitMode::Exact,
                bits: 2,
                ignored: 0xc0
            }
        ));
    }
}
