//! Options that compare one number: lengths, header fields, ICMP types.

use std::fmt;

use crate::Syntax;
use crate::refusal::Reason;
use crate::text::number;

macro_rules! fields {
    ($($variant:ident $word:literal $name:literal $($alias:literal)*;)*) => {
        /// A number that a rule compares.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum NumberField { $(#[doc = $word] $variant,)* }

        impl NumberField {
            /// Every field.
            pub const ALL: &[NumberField] = &[$(NumberField::$variant),*];

            /// Returns the keyword.
            pub fn keyword(self) -> &'static str {
                match self { $(NumberField::$variant => $name,)* }
            }

            /// Returns the field in plain words.
            pub fn words(self) -> &'static str {
                match self { $(NumberField::$variant => $word,)* }
            }

            /// Returns the field of a keyword.
            pub(crate) fn from_keyword(name: &str) -> Option<NumberField> {
                match name { $($name $(| $alias)* => Some(NumberField::$variant),)* _ => None }
            }
        }

        pub(crate) const KEYWORDS: &[&str] = &[$($name, $($alias,)*)*];
    };
}

fields! {
    Dsize "the size of the payload" "dsize";
    Bsize "the size of the buffer" "bsize" "bufferlen";
    Urilen "the size of the URI" "urilen";
    Ttl "the time to live" "ttl";
    Tos "the type of service" "tos";
    IpId "the IP identification" "id";
    IcmpType "the ICMP type" "itype";
    IcmpCode "the ICMP code" "icode";
    IcmpId "the ICMP identifier" "icmp_id";
    IcmpSeq "the ICMP sequence number" "icmp_seq";
    TcpSeq "the TCP sequence number" "seq" "tcp.seq";
    TcpAck "the TCP acknowledgement number" "ack" "tcp.ack";
    TcpWindow "the TCP window" "window" "tcp.window";
    TcpMss "the TCP maximum segment size" "tcp.mss";
    FragOffset "the fragment offset" "fragoffset";
    FileSize "the size of the file" "filesize";
    CertChainLen "the number of TLS certificates" "tls.cert_chain_len";
    DnsOpcode "the DNS opcode" "dns.opcode";
}

/// A comparison with a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Equal(u64),
    NotEqual(u64),
    Less(u64),
    /// Less or equal.
    LessOrEqual(u64),
    Greater(u64),
    /// Greater or equal.
    GreaterOrEqual(u64),
    /// Between the two, both excluded.
    Between(u64, u64),
    /// Between the two, both included.
    Within(u64, u64),
}

const FORM: &str = "N, !N, <N, >N, <=N, >=N, A<>B (without A and B) or A-B (with them)";
const FORM_OF_SURICATA: &str = "N, !N, <N, >N, <=N, >=N, A-B or A<>B (both without A and B)";

impl Comparison {
    /// Reads a comparison. The ends of `A-B` are excluded in the syntax of Suricata, and included in the others.
    pub(crate) fn parse(syntax: Syntax, text: &str) -> Result<Comparison, Reason> {
        let is_suricata = syntax == Syntax::Suricata;
        let form = if is_suricata { FORM_OF_SURICATA } else { FORM };
        let n = |text: &str| number(text, form);
        let text = text.trim();
        let range = |separator: &str| -> Option<Result<(u64, u64), Reason>> {
            let (low, high) = text
                .split_once(separator)
                .filter(|(low, _)| !low.trim().is_empty())?;
            let both = n(low).and_then(|low| n(high).map(|high| (low, high)));
            Some(both.and_then(|(low, high)| {
                let problem = match high.checked_sub(low) {
                    None | Some(0) => format!("{low} is not less than {high}"),
                    Some(1) if is_suricata => format!("no number lies between {low} and {high}"),
                    Some(_) => return Ok((low, high)),
                };
                Err(Reason::invalid(problem, form))
            }))
        };
        let within = |(low, high)| Comparison::Within(low, high);
        let between = |(low, high)| Comparison::Between(low, high);
        if let Some(both) = range("<=>").filter(|_| !is_suricata) {
            return both.map(within);
        }
        if let Some(both) = range("<>") {
            return both.map(between);
        }
        if let Some(both) = range("-") {
            return if is_suricata {
                both.map(between)
            } else {
                both.map(within)
            };
        }
        type Operator = (&'static str, fn(u64) -> Comparison);
        let operators: [Operator; 8] = [
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("!=", Comparison::NotEqual),
            ("!>", Comparison::LessOrEqual),
            ("!<", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
            ("!", Comparison::NotEqual),
        ];
        for (sign, make) in operators {
            if let Some(rest) = text.strip_prefix(sign) {
                return n(rest).map(make);
            }
        }
        n(text.strip_prefix('=').unwrap_or(text)).map(Comparison::Equal)
    }

    /// Returns the comparison in plain words.
    pub fn words(self) -> String {
        match self {
            Comparison::Equal(n) => format!("is {n}"),
            Comparison::NotEqual(n) => format!("is not {n}"),
            Comparison::Less(n) => format!("is less than {n}"),
            Comparison::LessOrEqual(n) => format!("is at most {n}"),
            Comparison::Greater(n) => format!("is greater than {n}"),
            Comparison::GreaterOrEqual(n) => format!("is at least {n}"),
            Comparison::Between(a, b) => format!("is greater than {a} and less than {b}"),
            Comparison::Within(a, b) => format!("is from {a} to {b}"),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Comparison::Equal(n) => write!(f, "{n}"),
            Comparison::NotEqual(n) => write!(f, "!{n}"),
            Comparison::Less(n) => write!(f, "<{n}"),
            Comparison::LessOrEqual(n) => write!(f, "<={n}"),
            Comparison::Greater(n) => write!(f, ">{n}"),
            Comparison::GreaterOrEqual(n) => write!(f, ">={n}"),
            Comparison::Between(a, b) => write!(f, "{a}<>{b}"),
            Comparison::Within(a, b) => write!(f, "{a}-{b}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_a_range_are_excluded_in_the_syntax_of_suricata() {
        let parse = |syntax, text| Comparison::parse(syntax, text).ok();
        for (text, suricata, snort) in [
            (
                "4-6",
                Some(Comparison::Between(4, 6)),
                Some(Comparison::Within(4, 6)),
            ),
            (
                "4<>6",
                Some(Comparison::Between(4, 6)),
                Some(Comparison::Between(4, 6)),
            ),
            ("4<=>6", None, Some(Comparison::Within(4, 6))),
            ("4-5", None, Some(Comparison::Within(4, 5))),
            ("6-4", None, None),
        ] {
            assert_eq!(parse(Syntax::Suricata, text), suricata, "{text}");
            for syntax in [Syntax::Snort2, Syntax::Snort3] {
                assert_eq!(parse(syntax, text), snort, "{text}");
            }
        }
    }
}
