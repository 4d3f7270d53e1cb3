//! The conditions of a rule on headers, and the rules that make the state it asks for.

use millrace_ips_engine::detect::program::{BitMode, BitTable, Effect, PacketTest, Side, StateTest, compare};
use millrace_ips_engine::detect::{Rule, Ruleset};
use millrace_ips_rules::options::number::{Comparison, NumberField};

use super::conversation::Fields;
use super::failure::Failure;
use super::messages::app;
use super::random::Random;

/// The conditions of a rule on packets.
pub(crate) struct OfPacket {
    pub(crate) fields: Fields,
    /// Sizes that the payload must have.
    pub(crate) sizes: Vec<Comparison>,
    /// Bytes that the server (true) or the client sends before.
    pub(crate) stream: Option<(bool, usize)>,
}

/// Returns a value that satisfies a comparison.
fn satisfying(comparison: Comparison) -> u64 {
    match comparison {
        Comparison::Equal(n)
        | Comparison::LessOrEqual(n)
        | Comparison::GreaterOrEqual(n)
        | Comparison::Within(n, _) => n,
        Comparison::NotEqual(n) | Comparison::Greater(n) | Comparison::Between(n, _) => n + 1,
        Comparison::Less(n) => n.saturating_sub(1),
        Comparison::Outside(_, n) => n + 1,
        Comparison::Mask {
            mask,
            value,
            is_negated,
        } => match is_negated {
            true => value ^ mask,
            false => value,
        },
    }
}

/// Returns a value near to those of a comparison, and at most `largest`, that does not satisfy it.
fn violating(comparison: Comparison, largest: u64) -> Option<u64> {
    let near = satisfying(comparison);
    let some = [near + 1, near.wrapping_sub(1), near + 7, near ^ 0x40, 0, largest];
    some.into_iter()
        .find(|value| *value <= largest && !compare(comparison, *value))
}

/// Sets a field of a header; returns false if frames have no such field here.
fn set(fields: &mut Fields, field: NumberField, value: u64) -> bool {
    match field {
        NumberField::Ttl => fields.ttl = value as u8,
        NumberField::Tos => fields.tos = value as u8,
        NumberField::IpId => fields.id = value as u16,
        NumberField::IcmpType => fields.icmp.0 = value as u8,
        NumberField::IcmpCode => fields.icmp.1 = value as u8,
        NumberField::IcmpId => fields.icmp.2 = value as u16,
        NumberField::IcmpSeq => fields.icmp.3 = value as u16,
        NumberField::TcpSeq => fields.seq = value as u32,
        NumberField::TcpAck => fields.ack = value as u32,
        NumberField::TcpWindow => fields.window = value as u16,
        _ => return false,
    }
    true
}

/// Returns the largest value of a field.
fn largest(field: NumberField) -> u64 {
    match field {
        NumberField::Ttl | NumberField::Tos | NumberField::IcmpType | NumberField::IcmpCode => 0xff,
        NumberField::TcpSeq | NumberField::TcpAck => 0xffff_ffff,
        _ => 0xffff,
    }
}

/// Returns the conditions on packets, as fields of headers and the size of the payload.
pub(crate) fn packet_fields(rule: &Rule) -> Result<OfPacket, Failure> {
    let mut fields = Fields::default();
    let (mut sizes, mut stream) = (Vec::new(), None);
    for test in &rule.packet {
        match test {
            PacketTest::Number(NumberField::Dsize, comparison) => sizes.push(*comparison),
            PacketTest::Number(field, comparison) => {
                if !set(&mut fields, *field, satisfying(*comparison)) {
                    return Err(Failure::Option(field.keyword()));
                }
            }
            // Segments with data in a connection have ACK and PSH.
            PacketTest::TcpFlags { mode, bits, .. }
                if *bits == 0x18 || *mode == BitMode::All && *bits & !0x18 == 0 => {}
            PacketTest::TcpFlags {
                mode: BitMode::Exact | BitMode::All,
                bits,
                ..
            } => fields.flags = Some(*bits as u8),
            PacketTest::FragBits {
                mode: BitMode::Exact | BitMode::All | BitMode::Any,
                bits,
            } => fields.fragment_bits = *bits,
            PacketTest::StreamSize { side, comparison } if *side != Side::Both => {
                let is_upper = matches!(comparison, Comparison::Less(_) | Comparison::LessOrEqual(_));
                stream = (!is_upper).then(|| (*side == Side::Server, satisfying(*comparison) as usize));
            }
            PacketTest::IpProtocol(_) => {}
            _ => return Err(Failure::Option("flags, fragbits or sameip")),
        }
    }
    Ok(OfPacket {
        fields,
        sizes,
        stream,
    })
}

/// Returns the fields with one that violates a condition of the rule.
pub(crate) fn broken_fields(rule: &Rule, fields: &Fields, random: &mut Random) -> Option<Fields> {
    let mut some = Vec::new();
    for test in &rule.packet {
        let mut broken = fields.clone();
        match test {
            PacketTest::Number(NumberField::Dsize, _) => continue,
            PacketTest::Number(field, comparison) => {
                let Some(value) = violating(*comparison, largest(*field)) else {
                    continue;
                };
                set(&mut broken, *field, value);
            }
            PacketTest::TcpFlags { bits, ignored, .. } => {
                // A required flag is cleared. If no flag is required, an excluded flag is set.
                let known = [*bits as u8 & 0x3f, 0x3f & !(*ignored as u8)];
                let flag = known.into_iter().find(|flags| *flags != 0)?;
                let flag = 1 << flag.trailing_zeros();
                broken.flags = Some(fields.flags.unwrap_or_default() ^ flag);
            }
            _ => continue,
        }
        some.push(broken);
    }
    (!some.is_empty()).then(|| some.swap_remove(random.below(some.len())))
}

/// Returns another rule that makes a state, if there is one.
pub(crate) fn maker<'a>(
    all: &'a Ruleset,
    asking: &Rule,
    test: &StateTest,
    random: &mut Random,
) -> Option<&'a Rule> {
    let sets = |effect: &Effect| match (effect, test) {
        (
            Effect::Bits {
                table,
                bits,
                value: Some(true),
                ..
            },
            StateTest::Bits {
                table: asked,
                bits: some,
                ..
            },
        ) => {
            let is_address = |table: BitTable| table != BitTable::Flow;
            (table == asked || is_address(*table) && is_address(*asked))
                && some.iter().any(|bit| bits.contains(bit))
        }
        (Effect::Counter { counter, .. }, StateTest::Counter { counter: asked, .. }) => counter == asked,
        _ => false,
    };
    let rules: Vec<&Rule> = all
        .rules
        .iter()
        .filter(|rule| rule.sid != asking.sid || matches!(test, StateTest::Counter { .. }))
        .filter(|rule| rule.effects.iter().any(sets))
        .collect();
    // Rules of the same protocol are preferred.
    let protocol = app(asking).ok();
    let same: Vec<&Rule> = rules
        .iter()
        .copied()
        .filter(|rule| app(rule).ok() == protocol && !rule.buffers.is_empty())
        .collect();
    let rules = if same.is_empty() { rules } else { same };
    (!rules.is_empty()).then(|| random.choose(&rules))
}
