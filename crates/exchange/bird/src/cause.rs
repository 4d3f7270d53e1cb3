//! The reject causes that route servers write into communities.

use core::fmt;
use core::str::FromStr;

use crate::limits::CAUSES;

/// The function number of "filtered" in the large communities that IXP Manager and Euro-IX use (`RS-ASN:1101:N`).
const FILTERED: u32 = 1101;
/// The number in arouteserver for "the route must be treated as rejected". Each rejected route has it in
/// addition to its cause.
const REJECTED: u32 = 0;

/// The numbering scheme that defines the meaning of a cause's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scheme {
    /// The numbers of arouteserver's `reject_cause`.
    Arouteserver,
    /// The numbers of IXP Manager, which come from the Euro-IX workshop on communities of route servers, July 2017.
    EuroIx,
}

/// The cause of a rejection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cause {
    pub scheme: Scheme,
    /// The number of the cause.
    pub number: u32,
    /// The pattern of the community that has the cause.
    pattern: CausePattern,
}

/// Formats the community, such as `65520:2` or `64999:1101:3`.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pattern.write(f, self.number)
    }
}

/// A pattern for communities that end with the number of a cause, such as `65520:*` or, for large
/// communities, `64999:65520:*`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CausePattern {
    /// The global administrator of a large community; `None` for a standard community.
    administrator: Option<u32>,
    /// The number before that of the cause: the first of a standard community, the second of a large one.
    number: u32,
}

/// The error for a text that is not a pattern of communities.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text:?}: expected the communities of reject causes, such as 65520:* or 64999:65520:*")]
pub struct CauseParseError {
    text: String,
}

impl CausePattern {
    /// Returns the pattern for standard communities with this first number.
    pub const fn standard(number: u16) -> CausePattern {
        CausePattern {
            administrator: None,
            number: number as u32,
        }
    }

    /// Writes the community, with its last number or `*`.
    fn write(self, f: &mut fmt::Formatter<'_>, last: impl fmt::Display) -> fmt::Result {
        if let Some(administrator) = self.administrator {
            write!(f, "{administrator}:")?;
        }
        write!(f, "{}:{last}", self.number)
    }
}

impl FromStr for CausePattern {
    type Err = CauseParseError;

    fn from_str(text: &str) -> Result<CausePattern, CauseParseError> {
        let numbers: Option<Vec<u32>> = text
            .strip_suffix(":*")
            .and_then(|numbers| numbers.split(':').map(|number| number.parse().ok()).collect());
        match numbers.as_deref() {
            Some(&[number]) if number <= u32::from(u16::MAX) => Ok(CausePattern {
                administrator: None,
                number,
            }),
            Some(&[administrator, number]) => Ok(CausePattern {
                administrator: Some(administrator),
                number,
            }),
            _ => Err(CauseParseError {
                text: text.to_owned(),
            }),
        }
    }
}

impl fmt::Display for CausePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, '*')
    }
}

/// The patterns of the communities in which a route server writes causes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Causes {
    patterns: [(Scheme, CausePattern); 2],
}

impl Causes {
    /// Returns the patterns for a route server with this AS number: arouteserver's `reject_cause`, and the
    /// communities of Euro-IX.
    pub(crate) fn new(asn: u32, reject_cause: CausePattern) -> Causes {
        let euro_ix = CausePattern {
            administrator: Some(asn),
            number: FILTERED,
        };
        Causes {
            patterns: [(Scheme::Arouteserver, reject_cause), (Scheme::EuroIx, euro_ix)],
        }
    }

    /// Returns a condition in BIRD's filter language that is true for a route with a cause.
    pub(crate) fn condition(&self) -> String {
        let conditions = self.patterns.map(|(_, pattern)| match pattern.administrator {
            Some(administrator) => format!(
                "(bgp_large_community ~ [({administrator}, {}, *)])",
                pattern.number
            ),
            None => format!("(bgp_community ~ [({}, *)])", pattern.number),
        });
        conditions.join(" || ")
    }

    /// Adds the causes in a list of communities to `found`. BIRD writes communities as `(65520,2)` and
    /// `(64999, 1101, 3)`.
    pub(crate) fn read(&self, text: &str, found: &mut Vec<Cause>) {
        for community in text.split('(').skip(1) {
            let Some((numbers, _)) = community.split_once(')') else {
                continue;
            };
            let numbers: Option<Vec<u32>> = numbers
                .splitn(4, ',')
                .map(|number| number.trim().parse().ok())
                .collect();
            let (administrator, number, cause) = match numbers.as_deref() {
                Some(&[number, cause]) => (None, number, cause),
                Some(&[administrator, number, cause]) => (Some(administrator), number, cause),
                _ => continue,
            };
            let community = CausePattern {
                administrator,
                number,
            };
            let matched = self.patterns.iter().find(|(_, pattern)| *pattern == community);
            if let Some((scheme, pattern)) = matched
                && found.len() < CAUSES
            {
                let cause = Cause {
                    scheme: *scheme,
                    number: cause,
                    pattern: *pattern,
                };
                if !found.contains(&cause) {
                    found.push(cause);
                }
            }
        }
    }
}

/// Removes the causes that say only that the route is rejected, and sorts the others.
pub(crate) fn sort_causes(causes: &mut Vec<Cause>) {
    causes.retain(|cause| (cause.scheme, cause.number) != (Scheme::Arouteserver, REJECTED));
    causes.sort_unstable();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_pattern_is_two_or_three_numbers_of_which_the_last_is_any() {
        for text in ["65520:*", "64999:65520:*"] {
            assert_eq!(text.parse::<CausePattern>().unwrap().to_string(), text);
        }
        for text in [
            "", "*", ":*", "65520", "65520:2", "65536:*", "1:2:3:*", "-1:*", "65520:**",
        ] {
            let error = text.parse::<CausePattern>().unwrap_err().to_string();
            assert!(error.contains("expected"), "{error}");
        }
    }

    #[test]
    fn causes_come_from_the_communities_of_the_settings_and_of_euro_ix() {
        let causes = Causes::new(64_999, "65520:*".parse().unwrap());
        let mut found = Vec::new();
        causes.read(
            "(65520,0) (65520,2) (65520,2) (64999,7) (65520,x) (65520",
            &mut found,
        );
        causes.read(
            "(64999, 1101, 3) (64998, 1101, 4) (64999, 1000, 1) (64999, 1101, 99)",
            &mut found,
        );
        sort_causes(&mut found);
        let texts: Vec<String> = found.iter().map(Cause::to_string).collect();
        assert_eq!(texts, ["65520:2", "64999:1101:3", "64999:1101:99"]);
        let schemes: Vec<Scheme> = found.iter().map(|cause| cause.scheme).collect();
        assert_eq!(schemes, [Scheme::Arouteserver, Scheme::EuroIx, Scheme::EuroIx]);
    }

    #[test]
    fn a_reject_cause_may_be_a_large_community() {
        let causes = Causes::new(64_999, "64999:65520:*".parse().unwrap());
        let mut found = Vec::new();
        causes.read("(64999, 65520, 0) (64999, 65520, 14)", &mut found);
        sort_causes(&mut found);
        assert_eq!((found[0].scheme, found[0].number), (Scheme::Arouteserver, 14));
        assert_eq!(
            causes.condition(),
            "(bgp_large_community ~ [(64999, 65520, *)]) || (bgp_large_community ~ [(64999, 1101, *)])"
        );
    }
}
