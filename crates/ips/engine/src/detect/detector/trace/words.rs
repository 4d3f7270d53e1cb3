//! Compiled conditions in words.

use std::fmt::Write;

use millrace_ips_rules::options::number::NumberField;

use crate::detect::compile::Names;
use crate::detect::program::{
    AppTest, BitMode, BitTable, BufferTest, ContentTest, CounterTest, CounterValue, FlowTest, Operand,
    Operation, PacketTest, ScoreTest, Side, StateTest, Step,
};
use crate::event::protocol_name;
use crate::flow::Direction;
use crate::packet::Packet;

/// Returns bytes in the notation of rules: bytes that are not printable are hexadecimal between bars.
pub(super) fn bytes(bytes: &[u8], most: usize) -> String {
    let mut text = String::from("\"");
    let mut is_hex = false;
    for &byte in bytes.iter().take(most) {
        let is_plain = matches!(byte, b' '..=b'~') && !b"\"|;:\\".contains(&byte);
        if is_plain == is_hex {
            text.push('|');
            is_hex = !is_hex;
        } else if is_hex {
            text.push(' ');
        }
        // Writing to a string does not fail.
        let _ = match is_plain {
            true => write!(text, "{}", byte as char),
            false => write!(text, "{byte:02x}"),
        };
    }
    if is_hex {
        text.push('|');
    }
    text.push('"');
    if bytes.len() > most {
        let _ = write!(text, " and {} bytes more", bytes.len() - most);
    }
    text
}

fn operand(operand: Operand) -> String {
    match operand {
        Operand::Number(number) => number.to_string(),
        Operand::Variable(at) => format!("variable {at}"),
    }
}

/// Returns an operation in words.
pub(super) fn operation(operation: &Operation) -> String {
    match operation {
        Operation::Content(content) => content_words(content),
        Operation::Pcre(test) => {
            let not = if test.is_negated { "no match of " } else { "" };
            let from = match test.is_relative {
                true => " behind the last match",
                false => "",
            };
            format!("{not}the expression {}{from}", test.text)
        }
        Operation::ByteTest {
            source,
            operator,
            is_negated,
            value,
        } => format!(
            "byte_test of {} bytes at {}: {}{operator:?} {}",
            operand(source.size),
            operand(source.offset),
            if *is_negated { "not " } else { "" },
            operand(*value)
        ),
        Operation::ByteJump { source, .. } => format!(
            "byte_jump over {} bytes at {} stays inside",
            operand(source.size),
            operand(source.offset)
        ),
        Operation::ByteExtract { source, .. } => format!(
            "byte_extract of {} bytes at {} has its bytes",
            operand(source.size),
            operand(source.offset)
        ),
        Operation::ByteMath { source, .. } => format!(
            "byte_math of {} bytes at {} has its bytes",
            operand(source.size),
            operand(source.offset)
        ),
        Operation::IsDataAt {
            position,
            is_relative,
            is_negated,
        } => format!(
            "{} at {}{}",
            if *is_negated { "no data" } else { "data" },
            operand(*position),
            if *is_relative {
                " behind the last match"
            } else {
                ""
            }
        ),
        Operation::Set(set) => format!("{:?} in the set {}", set.test, set.name),
        Operation::Size(comparison) => format!("its size {}", comparison.words()),
        Operation::Entropy(test) => {
            format!("the entropy {}, in millionths of a bit", test.comparison.words())
        }
        Operation::RemainingSize(comparison) => {
            format!("the size behind the last match {}", comparison.words())
        }
        Operation::Base64 { then, .. } => {
            let inner: Vec<String> = then.iter().map(self::operation).collect();
            format!("decoded as Base64: {}", inner.join(", "))
        }
    }
}

fn content_words(content: &ContentTest) -> String {
    let not = if content.is_negated { "no " } else { "" };
    let mut text = format!("{not}content {}", bytes(&content.pattern, 64));
    if content.nocase {
        text += ", in any case";
    }
    let places = [
        ("offset", content.offset),
        ("depth", content.depth),
        ("distance", content.distance),
        ("within", content.within),
    ];
    for (name, value) in places {
        if let Some(value) = value {
            let _ = write!(text, ", {name} {}", operand(value));
        }
    }
    if content.endswith {
        text += ", at the end";
    }
    text
}

/// Returns the name of a buffer with its transforms.
pub(super) fn buffer(test: &BufferTest) -> String {
    let names = test.buffer.names();
    let name = names.suricata.first().copied().unwrap_or(names.words);
    let transforms: Vec<&str> = test.transforms.iter().map(Step::word).collect();
    match transforms.is_empty() {
        true => name.to_owned(),
        false => format!("{name} ({})", transforms.join(", ")),
    }
}

/// Returns the conditions on a flow in words; `None` if there are none.
pub(super) fn flow(test: &FlowTest) -> Option<String> {
    let mut parts = Vec::new();
    match test.is_established {
        Some(true) => parts.push("the flow is established"),
        Some(false) => parts.push("the flow is not established"),
        None if test.is_needed => parts.push("there is a flow"),
        None => {}
    }
    match test.direction {
        Some(Direction::ToServer) => parts.push("the packet goes to the server"),
        Some(Direction::ToClient) => parts.push("the packet goes to the client"),
        None => {}
    }
    match test.is_reassembled {
        Some(true) => parts.push("the packet consists of fragments"),
        Some(false) => parts.push("the packet does not consist of fragments"),
        None => {}
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Returns a condition on a packet in words.
pub(super) fn packet(test: &PacketTest) -> String {
    match test {
        PacketTest::Number(field, comparison) => format!("{} {}", field.words(), comparison.words()),
        PacketTest::TcpFlags { mode, bits, ignored } => format!(
            "{} of the TCP flags {} (ignored: {})",
            mode_words(*mode),
            flags(*bits),
            flags(*ignored)
        ),
        PacketTest::FragBits { mode, bits } => {
            format!("{} of the fragment bits {bits:03b}", mode_words(*mode))
        }
        PacketTest::Checksum {
            protocol, is_right, ..
        } => {
            let what = protocol.map_or_else(|| "IPv4".into(), |protocol| protocol_name(protocol.0));
            format!(
                "the checksum of {what} is {}",
                if *is_right { "right" } else { "wrong" }
            )
        }
        PacketTest::IpProtocol(comparison) => format!("the IP protocol {}", comparison.words()),
        PacketTest::Rpc { program, .. } => format!("the payload is an RPC call of program {program}"),
        PacketTest::SameIp => "source and destination address are equal".to_owned(),
        PacketTest::Vlan { comparison, index } => {
            format!("the VLAN identifier {} ({index:?})", comparison.words())
        }
        PacketTest::IpOption(Some(kind)) => format!("the IPv4 header has an option of type {kind}"),
        PacketTest::IpOption(None) => "the IPv4 header has an option".to_owned(),
        PacketTest::FlowCounter {
            field,
            side,
            comparison,
        } => format!("{} {} ({side:?})", field.words(), comparison.words()),
        PacketTest::Event(event) => format!("the packet has the event {}", event.name()),
        PacketTest::Reputation(test) => {
            let side = test.side.words();
            match test.score {
                ScoreTest::IsSet(true) => format!("{side} has a score in the category {}", test.name),
                ScoreTest::IsSet(false) => format!("{side} has no score in the category {}", test.name),
                ScoreTest::Compares(comparison) => {
                    format!(
                        "the score of {side} in the category {} {}",
                        test.name,
                        comparison.words()
                    )
                }
            }
        }
        PacketTest::Country(test) => {
            let codes: Vec<String> = test
                .countries
                .iter()
                .map(|code| String::from_utf8_lossy(code).into_owned())
                .collect();
            let verb = if test.is_negated { "is not" } else { "is" };
            format!(
                "the country of {} {verb} {}",
                test.side.words(),
                codes.join(" or ")
            )
        }
        PacketTest::StreamSize { side, comparison } => {
            let side = match side {
                Side::Client => "the client",
                Side::Server => "the server",
                Side::Both => "each of both ends",
                Side::Either => "one of both ends",
            };
            format!("the number of bytes that {side} sent {}", comparison.words())
        }
    }
}

fn mode_words(mode: BitMode) -> &'static str {
    match mode {
        BitMode::Exact => "exactly those",
        BitMode::All => "all",
        BitMode::Any => "one",
        BitMode::None => "none",
    }
}

/// Returns TCP flags by their letters.
fn flags(bits: u16) -> String {
    let letters = "FSRPAUEC".chars().enumerate();
    let text: String = letters
        .filter(|(at, _)| bits >> at & 1 != 0)
        .map(|(_, letter)| letter)
        .collect();
    match text.is_empty() {
        true => "none".to_owned(),
        false => text,
    }
}

/// Returns the value of a packet that a condition compares.
pub(super) fn of_packet(test: &PacketTest, packet: &Packet<'_>) -> String {
    match test {
        PacketTest::TcpFlags { .. } => packet.tcp.map_or_else(String::new, |tcp| flags(tcp.flags)),
        PacketTest::Number(NumberField::Dsize, _) => packet.payload.len().to_string(),
        PacketTest::Number(NumberField::Ttl, _) => packet.ip.ttl.to_string(),
        PacketTest::IpProtocol(_) => packet.protocol.to_string(),
        _ => String::new(),
    }
}

/// Returns a condition on the application layer in words.
pub(super) fn app(test: &AppTest) -> String {
    match test {
        AppTest::Protocol(test) => {
            let unknown = test.takes_unknown.then_some("unknown");
            let names: Vec<&str> = unknown
                .into_iter()
                .chain(test.protocols.iter().map(|app| app.name()))
                .collect();
            let not = if test.is_negated { "not " } else { "" };
            format!(
                "the application protocol ({}) is {not}{}",
                test.of,
                names.join(" or ")
            )
        }
        AppTest::Progress(progress) => format!("the message has come up to {progress:?}"),
        AppTest::Field(field, value) => format!("{} is {value}", field.words()),
        // Numbers of procedures may stand for names.
        AppTest::Number(field @ NumberField::NfsProcedure, comparison, index) => {
            format!("{} is {} ({index:?})", field.words(), field.print(*comparison))
        }
        AppTest::Number(field, comparison, index) => {
            format!("{} {} ({index:?})", field.words(), comparison.words())
        }
        AppTest::Digest {
            field, is_negated, ..
        } => {
            let not = if *is_negated { "not " } else { "" };
            format!("{not}{}", field.words())
        }
    }
}

/// Returns a condition on shared state in words.
pub(super) fn state(test: &StateTest, names: &Names) -> String {
    match test {
        StateTest::Bits {
            table,
            bits,
            is_all,
            is_negated,
        } => {
            let of = match table {
                BitTable::Flow => "the flow",
                BitTable::Transaction => "the transaction",
                BitTable::Source => "the source address",
                BitTable::Destination => "the destination address",
                BitTable::Pair => "the pair of addresses",
            };
            let known: Vec<&str> = bits.iter().map(|bit| names.bit(*bit)).collect();
            let joined = known.join(if *is_all { " and " } else { " or " });
            let not = if *is_negated { "not " } else { "" };
            format!("bit {joined} of {of} is {not}set")
        }
        StateTest::Counter { counter, test } => {
            let value = |value: &CounterValue| match value {
                CounterValue::Number(number) => number.to_string(),
                CounterValue::Counter(counter) => names.counter(*counter).to_owned(),
            };
            let comparison = match test {
                CounterTest::IsSet(true) => "is set".to_owned(),
                CounterTest::IsSet(false) => "is not set".to_owned(),
                CounterTest::Equal(number) => format!("is {}", value(number)),
                CounterTest::NotEqual(number) => format!("is not {}", value(number)),
                CounterTest::Less(number) => format!("is less than {}", value(number)),
                CounterTest::LessOrEqual(number) => format!("is at most {}", value(number)),
                CounterTest::Greater(number) => format!("is greater than {}", value(number)),
                CounterTest::GreaterOrEqual(number) => format!("is at least {}", value(number)),
            };
            format!("counter {} {comparison}", names.counter(*counter))
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_are_written_as_in_a_rule() {
        assert_eq!(super::bytes(b"GET |/", 9), "\"GET |7c|/\"");
        assert_eq!(super::bytes(b"\x00\x01a\xff", 9), "\"|00 01|a|ff|\"");
        assert_eq!(super::bytes(b"abcdef", 2), "\"ab\" and 4 bytes more");
    }
}
