//! Values with names: TCP flags and types of IP fragments, in the syntax of Open vSwitch.

use core::fmt;

/// The names of the TCP control bits, from bit 0 on (RFC 9293, section 3.1; NS is from RFC 3540). The highest three
/// are reserved and named by their value.
const TCP_FLAGS: [&str; 12] = [
    "fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]",
];

/// Value and mask of each type of fragment: bit 0 is set in every fragment, bit 1 in all but the first.
const FRAGMENTS: [(&str, u128, u128); 5] = [
    ("no", 0b00, 0b11),
    ("first", 0b01, 0b11),
    ("later", 0b11, 0b11),
    ("yes", 0b01, 0b01),
    ("not_later", 0b00, 0b10),
];

fn tcp_flag(name: &str) -> Option<u128> {
    let bit = TCP_FLAGS.iter().position(|flag| *flag == name)?;
    Some(1 << bit)
}

/// Returns the flags in a list such as `syn|ack`; `None` if a name is unknown.
pub(super) fn tcp_flags(text: &str) -> Option<u128> {
    text.split('|')
        .try_fold(0, |flags, name| Some(flags | tcp_flag(name)?))
}

/// Returns value and mask of a list such as `+syn-ack`, in which every flag has a sign; `None` if the text is not such
/// a list, or repeats a flag.
pub(super) fn tcp_flags_masked(text: &str) -> Option<(u128, u128)> {
    let (mut value, mut mask) = (0, 0);
    let mut rest = text;
    while let Some(sign) = rest.chars().next().filter(|sign| matches!(sign, '+' | '-')) {
        let name = &rest[1..];
        let (name, after) = name.split_at(name.find(['+', '-']).unwrap_or(name.len()));
        let flag = tcp_flag(name).filter(|flag| mask & flag == 0)?;
        mask |= flag;
        value |= if sign == '+' { flag } else { 0 };
        rest = after;
    }
    (rest.is_empty() && mask != 0).then_some((value, mask))
}

/// Writes flags as `syn|ack`; `0` if there are none.
pub(super) fn write_tcp_flags(f: &mut fmt::Formatter<'_>, flags: u128) -> fmt::Result {
    if flags == 0 {
        return f.write_str("0");
    }
    let mut separator = "";
    for (bit, name) in TCP_FLAGS.iter().enumerate() {
        if flags >> bit & 1 != 0 {
            write!(f, "{separator}{name}")?;
            separator = "|";
        }
    }
    Ok(())
}

/// Writes the flags of a mask as `+syn-ack`.
pub(super) fn write_tcp_flags_masked(f: &mut fmt::Formatter<'_>, flags: u128, mask: u128) -> fmt::Result {
    for (bit, name) in TCP_FLAGS.iter().enumerate() {
        if mask >> bit & 1 != 0 {
            let sign = if flags >> bit & 1 != 0 { '+' } else { '-' };
            write!(f, "{sign}{name}")?;
        }
    }
    Ok(())
}

/// Returns value and mask of a type of fragment.
pub(super) fn fragment(name: &str) -> Option<(u128, u128)> {
    let found = FRAGMENTS.iter().find(|(kind, ..)| *kind == name);
    found.map(|(_, value, mask)| (*value, *mask))
}

/// Writes the name of the type of fragment, or the number if it has no name.
pub(super) fn write_fragment(f: &mut fmt::Formatter<'_>, value: u128, mask: u128) -> fmt::Result {
    let mut kinds = FRAGMENTS.iter();
    match kinds.find(|(_, held, bits)| (*held, *bits) == (value, mask)) {
        Some((name, ..)) => f.write_str(name),
        None => write!(f, "{value:#x}/{mask:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_a_list_of_names_or_names_with_signs() {
        assert_eq!(tcp_flags("syn|ack"), Some(0x12));
        assert_eq!(tcp_flags("ns|[800]"), Some(0x900));
        assert_eq!(tcp_flags_masked("+syn-ack"), Some((0x02, 0x12)));
        assert_eq!(tcp_flags_masked("-[200]+ns"), Some((0x100, 0x300)));
        for text in ["", "syn|", "+syn", "sun", "syn,ack", "|"] {
            assert_eq!(tcp_flags(text), None, "{text}");
        }
        for text in ["", "syn", "+", "+syn-", "+syn-syn", "+syn|ack", "-ä"] {
            assert_eq!(tcp_flags_masked(text), None, "{text}");
        }
    }

    #[test]
    fn a_match_says_flags_and_fragments_as_open_vswitch_does() {
        for text in [
            "tcp,tcp_flags=syn|ack",
            "tcp6,tcp_flags=+syn-ack",
            "tcp,tcp_flags=0",
            "ip,nw_frag=no",
            "ip,nw_frag=yes",
            "ipv6,nw_frag=first",
            "ipv6,nw_frag=later",
            "ip,nw_frag=not_later",
            "ip,nw_ttl=5",
            "tcp,tp_src=0x100/0xff00",
            "udp6,tp_dst=0x1/0x1",
        ] {
            assert_eq!(text.parse::<crate::Match>().unwrap().to_string(), text);
        }
        for (text, shown) in [
            ("tcp,tcp_flags=0x12/0x12", "tcp,tcp_flags=+syn+ack"),
            ("tcp,tcp_flags=18", "tcp,tcp_flags=syn|ack"),
            ("ip,ip_frag=3", "ip,nw_frag=later"),
            ("ip,ip_frag=0/1", "ip,nw_frag=0x0/0x1"),
            ("sctp,tp_src=7/7", "sctp,tp_src=0x7/0x7"),
        ] {
            assert_eq!(text.parse::<crate::Match>().unwrap().to_string(), shown);
        }
        for text in [
            "tcp,tcp_flags=0x1000",
            "ip,nw_frag=maybe",
            "ip,nw_ttl=5/7",
            "tcp_flags=2",
            "nw_ttl=3",
        ] {
            assert!(text.parse::<crate::Match>().is_err(), "{text}");
        }
    }
}
