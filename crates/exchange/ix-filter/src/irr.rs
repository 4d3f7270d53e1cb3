//! Queries to an Internet Routing Registry in the protocol of IRRd (whois, port 43), and their answers.
//!
//! ```text
//!   !!              keeps the connection open          A12        data of 12 bytes follow, then C
//!   !sRIPE,RADB     chooses sources                    C          success without data
//!   !s-lc           lists the chosen sources
//!   !iAS-FOO,1      members of an AS-SET, recursively  D          the object does not exist
//!   !gAS64500       prefixes of route objects          F text     the query is not understood
//!   !6AS64500       prefixes of route6 objects
//! ```

use std::collections::BTreeSet;

use millrace_ix_model::Prefix;

/// The largest answer that is accepted, in bytes.
pub const ANSWER_MAX: usize = 64 << 20;
/// The largest number of AS numbers of one AS-SET.
pub const ASNS_MAX: usize = 50_000;

/// The beginning of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Head {
    /// Data of this many bytes follow, then a line with C.
    Data(usize),
    /// There are no data.
    Empty,
    /// The object does not exist.
    NotFound,
    /// The query was refused, with a text.
    Refused(String),
}

/// Parses the first line of an answer. Returns `None` if the line is not valid.
pub fn head(line: &str) -> Option<Head> {
    let line = line.trim_end();
    let mut letters = line.chars();
    match letters.next()? {
        'A' => letters
            .as_str()
            .parse()
            .ok()
            .filter(|size| *size <= ANSWER_MAX)
            .map(Head::Data),
        'C' if line.len() == 1 => Some(Head::Empty),
        'D' if line.len() == 1 => Some(Head::NotFound),
        'E' | 'F' => {
            let text = letters.as_str().trim();
            Some(Head::Refused(
                text.chars()
                    .filter(|letter| !letter.is_control())
                    .take(200)
                    .collect(),
            ))
        }
        _ => None,
    }
}

/// Returns the AS numbers of an answer to `!i`. Words that are not AS numbers are ignored.
pub fn asns(text: &str) -> BTreeSet<u32> {
    let number = |word: &str| {
        let digits = word.strip_prefix("AS").or_else(|| word.strip_prefix("as"))?;
        digits.parse().ok().filter(|asn| *asn != 0)
    };
    text.split_whitespace()
        .filter_map(number)
        .take(ASNS_MAX)
        .collect()
}

/// Returns the prefixes of an answer to `!g` or `!6`. Words that are not prefixes are ignored.
pub fn prefixes(text: &str) -> impl Iterator<Item = Prefix> + '_ {
    text.split_whitespace().filter_map(|word| word.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_irrd_are_read() {
        assert_eq!(head("A21\n"), Some(Head::Data(21)));
        assert_eq!(head("C\r\n"), Some(Head::Empty));
        assert_eq!(head("D\n"), Some(Head::NotFound));
        assert_eq!(
            head("F Missing\x1b source\n"),
            Some(Head::Refused("Missing source".to_owned()))
        );
        for line in ["", "A", "Ax", "A99999999999", "Cx", "% comment"] {
            assert_eq!(head(line), None, "{line}");
        }
        assert_eq!(asns("AS64500 AS-FOO as64501 AS0 64502"), [64_500, 64_501].into());
        assert_eq!(prefixes("192.0.2.0/24 x 2001:db8::/32 10.0.0.1/8").count(), 2);
    }
}
