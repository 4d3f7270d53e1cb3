//! Options that contradict themselves or each other: the rule would never match, or its author meant something else.

use crate::Syntax;
use crate::options::RuleOption;
use crate::options::content::{Content, FastPattern, Operand};
use crate::options::number::{Comparison, NumberField};
use crate::options::state::{BitOperation, Bits};
use crate::refusal::Reason;

/// Largest distance between a content and the match before it in the syntax of Suricata, in bytes.
const LARGEST_DISTANCE: i64 = 1 << 20;

/// Returns the first option that contradicts itself or an option before it: its index, its keyword and the reason.
pub(crate) fn check(syntax: Syntax, options: &[RuleOption]) -> Result<(), (usize, &'static str, Reason)> {
    let mut has_fast_pattern = false;
    for (at, option) in options.iter().enumerate() {
        let before = &options[..at];
        let (keyword, result) = match option {
            RuleOption::Content(found) => ("content", content(syntax, found, &mut has_fast_pattern)),
            RuleOption::Bits(found) => (found.scope.word(), bits(syntax, found, before)),
            RuleOption::Rate(rate) => {
                let keyword = if rate.kind.is_some() {
                    "threshold"
                } else {
                    "detection_filter"
                };
                (keyword, only_rate(before))
            }
            RuleOption::Number(field, comparison, _) if syntax == Syntax::Suricata => {
                (field.keyword(), number(*field, *comparison))
            }
            RuleOption::Priority(priority) if syntax == Syntax::Suricata => ("priority", one_byte(*priority)),
            _ => continue,
        };
        result.map_err(|reason| (at, keyword, reason))?;
    }
    Ok(())
}

/// Checks the modifiers of a content.
fn content(syntax: Syntax, content: &Content, has_fast_pattern: &mut bool) -> Result<(), Reason> {
    let size = i64::try_from(content.pattern.len()).unwrap_or(i64::MAX);
    for (name, operand) in [("depth", &content.depth), ("within", &content.within)] {
        if let Some(Operand::Number(room)) = operand
            && *room < size
        {
            return Err(Reason::invalid(
                format!("{name} {room} is less than the {size} bytes of the pattern"),
                "room for the whole pattern",
            ));
        }
    }
    if let Some(FastPattern::Part { offset, size: part }) = content.fast_pattern
        && (part == 0 || i64::from(offset) + i64::from(part) > size)
    {
        return Err(Reason::invalid(
            format!("{part} bytes from byte {offset} are no part of the {size} bytes of the pattern"),
            "fast_pattern:OFFSET,LENGTH of a part of the pattern",
        ));
    }
    if syntax == Syntax::Suricata {
        places(content)?;
        if content.fast_pattern.is_some() && std::mem::replace(has_fast_pattern, true) {
            return Err(Reason::invalid(
                "another content of the rule has fast_pattern",
                "fast_pattern once in a rule",
            ));
        }
    }
    Ok(())
}

/// Checks the places that the modifiers of a content give, as Suricata documents them.
fn places(content: &Content) -> Result<(), Reason> {
    let is_absolute = content.offset.is_some() || content.depth.is_some();
    let is_relative = content.distance.is_some() || content.within.is_some();
    if content.startswith && (is_absolute || is_relative) {
        return Err(Reason::invalid(
            "startswith beside another place",
            "startswith alone, or depth, offset, distance and within",
        ));
    }
    if is_absolute && is_relative {
        return Err(Reason::invalid(
            "depth or offset beside distance or within",
            "places from the beginning of the buffer, or from the match before",
        ));
    }
    if let Some(Operand::Number(offset)) = content.offset
        && offset < 0
    {
        return Err(Reason::invalid(format!("offset {offset}"), "an offset from 0"));
    }
    for (name, operand) in [("distance", &content.distance), ("within", &content.within)] {
        if let Some(Operand::Number(number)) = operand
            && !(-LARGEST_DISTANCE..=LARGEST_DISTANCE).contains(number)
        {
            return Err(Reason::invalid(
                format!("{name} {number}"),
                "at most 1 MiB, which is 1048576",
            ));
        }
    }
    let is_placed = is_absolute || is_relative || content.startswith;
    match content.fast_pattern {
        Some(FastPattern::Only) if is_placed || content.is_negated => Err(Reason::invalid(
            "fast_pattern:only beside a place or a negation",
            "fast_pattern:only with a content that may be anywhere",
        )),
        Some(_) if content.is_negated && is_placed => Err(Reason::invalid(
            "fast_pattern beside a negation and a place",
            "fast_pattern with a negated content that may be anywhere, or with another content",
        )),
        _ => Ok(()),
    }
}

/// Checks an operation with bits against those before it.
fn bits(syntax: Syntax, bits: &Bits, before: &[RuleOption]) -> Result<(), Reason> {
    let is_test = |operation| matches!(operation, BitOperation::IsSet | BitOperation::IsNotSet);
    if syntax == Syntax::Suricata && bits.names.len() > 1 && !is_test(bits.operation) {
        return Err(Reason::invalid(
            format!("{} of several bits", bits.operation),
            "one bit; alternatives with | behind isset and isnotset",
        ));
    }
    let is_contrary = |other: &Bits| {
        other.scope == bits.scope
            && other.operation != bits.operation
            && is_test(other.operation)
            && other.names == bits.names
            && other.arguments == bits.arguments
    };
    let has_contrary = before.iter().any(|option| match option {
        RuleOption::Bits(other) => is_contrary(other),
        _ => false,
    });
    match is_test(bits.operation) && bits.names.len() == 1 && has_contrary {
        true => Err(Reason::invalid(
            format!("the bit {} is set and is not set", bits.names.join("|")),
            "one test of a bit",
        )),
        false => Ok(()),
    }
}

/// Checks that no rate comes before another one.
fn only_rate(before: &[RuleOption]) -> Result<(), Reason> {
    match before.iter().any(|option| matches!(option, RuleOption::Rate(_))) {
        true => Err(Reason::invalid(
            "the rule has another rate",
            "one threshold or one detection_filter in a rule",
        )),
        false => Ok(()),
    }
}

/// Returns the largest value of a field of a packet; `None` for numbers that are counted, or that parsers read.
fn largest(field: NumberField) -> Option<u64> {
    use NumberField::*;
    Some(match field {
        Ttl | Tos | IcmpType | IcmpCode | TcpWindowScale | IgmpType => u64::from(u8::MAX),
        Dsize | IpId | IcmpId | IcmpSeq | TcpWindow | TcpMss | FragOffset | Urilen | VlanId | DnsRrtype => {
            u64::from(u16::MAX)
        }
        TcpSeq | TcpAck | Icmpv6Mtu => u64::from(u32::MAX),
        _ => return None,
    })
}

/// Checks that the numbers of a comparison fit into the field.
fn number(field: NumberField, comparison: Comparison) -> Result<(), Reason> {
    use Comparison::*;
    if comparison == Less(0) {
        return Err(Reason::invalid(
            "no number is less than 0",
            "a comparison that a number satisfies",
        ));
    }
    let given = match comparison {
        Equal(n) | NotEqual(n) | Less(n) | LessOrEqual(n) | Greater(n) | GreaterOrEqual(n) => n,
        Between(_, n) | Within(_, n) | Outside(_, n) => n,
        Mask { mask, .. } => mask,
    };
    match largest(field) {
        Some(largest) if given > largest => Err(Reason::invalid(
            format!("{given} is more than {largest}, the largest value of the field"),
            "numbers that fit into the field",
        )),
        _ => Ok(()),
    }
}

/// Checks a priority.
fn one_byte(priority: u32) -> Result<(), Reason> {
    match (1..=u32::from(u8::MAX)).contains(&priority) {
        true => Ok(()),
        false => Err(Reason::invalid(
            format!("the priority {priority}"),
            "a number from 1 to 255",
        )),
    }
}
