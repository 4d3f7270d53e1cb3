//! The reputation of addresses (`iprep`): scores of addresses and networks by category, from the two kinds of files that
//! Suricata documents.
//!
//! ```text
//!  categories:  NUMBER,NAME,DESCRIPTION        1,BadHosts,Hosts that are known to attack
//!  scores:      ADDRESS[/PREFIX],NUMBER,SCORE  192.0.2.0/24,1,99
//! ```

use core::net::{IpAddr, Ipv6Addr};
use std::collections::{BTreeMap, HashMap};

use crate::limits;
use crate::refusal::Reason;
use crate::text::quote;

/// Largest number of a category.
const CATEGORY_MAX: u8 = 60;
/// Largest score. 0 is a score, too.
const SCORE_MAX: u8 = 127;
/// Bits before an IPv4 address that is written as one of IPv6 (RFC 4291, section 2.5.5.2).
const MAPPED: u8 = 96;

/// Networks of one length by their first address, each with its scores by category.
type Networks = HashMap<u128, Vec<(u8, u8)>>;

/// Categories and scores.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reputation {
    /// Numbers of categories by name.
    categories: BTreeMap<String, u8>,
    /// Networks by the length of their prefix, the longest first. IPv4 addresses are mapped to IPv6.
    networks: BTreeMap<core::cmp::Reverse<u8>, Networks>,
    /// Number of rows with scores.
    len: usize,
}

impl Reputation {
    /// Returns true if a line is a row of one of the files, and begins no rule.
    pub(crate) fn is_row(line: &str) -> bool {
        let first = line.split(',').next().unwrap_or_default().trim();
        let address = first.split('/').next().unwrap_or_default();
        line.contains(',') && (first.parse::<u64>().is_ok() || address.parse::<IpAddr>().is_ok())
    }

    /// Adds a row of one of the files.
    ///
    /// # Errors
    /// The reason for which it is no row.
    pub(crate) fn add(&mut self, line: &str) -> Result<(), Reason> {
        const CATEGORY: &str = "NUMBER,NAME,DESCRIPTION of a category, with a number from 1 to 60";
        const SCORE: &str =
            "ADDRESS[/PREFIX],CATEGORY,SCORE, with a category from 1 to 60 and a score to 127";
        let parts: Vec<&str> = line.split(',').map(str::trim).collect();
        let number = |text: &str, most: u8| text.parse::<u8>().ok().filter(|number| *number <= most);
        let wrong = |form| Reason::invalid(quote(line), form);
        if let [number_text, name, ..] = parts[..]
            && !number_text.contains(['.', ':'])
        {
            let category = number(number_text, CATEGORY_MAX).filter(|category| *category > 0);
            let category = category
                .filter(|_| !name.is_empty())
                .ok_or_else(|| wrong(CATEGORY))?;
            self.categories.insert(name.to_ascii_lowercase(), category);
            return Ok(());
        }
        let [network, category, score] = parts[..] else {
            return Err(wrong(SCORE));
        };
        let category = number(category, CATEGORY_MAX).filter(|category| *category > 0);
        let (category, score) = category
            .zip(number(score, SCORE_MAX))
            .ok_or_else(|| wrong(SCORE))?;
        let (address, prefix) = network.split_once('/').unwrap_or((network, ""));
        let address: IpAddr = address.parse().map_err(|_| wrong(SCORE))?;
        let (offset, most) = match address {
            IpAddr::V4(_) => (MAPPED, 32),
            IpAddr::V6(_) => (0, 128),
        };
        let prefix = match prefix {
            "" => most,
            text => number(text, most).ok_or_else(|| wrong(SCORE))?,
        };
        if self.len >= limits::REPUTATION {
            return Err(Reason::Limit {
                unit: "rows of reputation",
                limit: limits::REPUTATION,
            });
        }
        self.len += 1;
        let prefix = prefix + offset;
        let scores = self.networks.entry(core::cmp::Reverse(prefix)).or_default();
        let scores = scores.entry(masked(bits(address), prefix)).or_default();
        scores.retain(|(known, _)| *known != category);
        scores.push((category, score));
        Ok(())
    }

    /// Adds the rows of another reputation.
    pub(crate) fn append(&mut self, other: Reputation) {
        self.categories.extend(other.categories);
        self.len += other.len;
        for (prefix, networks) in other.networks {
            let known = self.networks.entry(prefix).or_default();
            for (network, scores) in networks {
                let held = known.entry(network).or_default();
                held.retain(|(category, _)| scores.iter().all(|(other, _)| other != category));
                held.extend(scores);
            }
        }
    }

    /// Returns the number of a category, whose name is not case-sensitive.
    pub fn category(&self, name: &str) -> Option<u8> {
        self.categories.get(&name.to_ascii_lowercase()).copied()
    }

    /// Returns the score of an address in a category: that of the longest network with one; `None` if no row has one.
    pub fn score(&self, address: IpAddr, category: u8) -> Option<u8> {
        let bits = bits(address);
        let of = |(core::cmp::Reverse(prefix), networks): (&core::cmp::Reverse<u8>, &Networks)| {
            let scores = networks.get(&masked(bits, *prefix))?;
            scores
                .iter()
                .find(|(known, _)| *known == category)
                .map(|(_, score)| *score)
        };
        self.networks.iter().find_map(of)
    }
}

/// Returns the bits of an address, of IPv4 as mapped to IPv6.
fn bits(address: IpAddr) -> u128 {
    let address: Ipv6Addr = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    address.to_bits()
}

fn masked(bits: u128, prefix: u8) -> u128 {
    match prefix {
        0 => 0,
        prefix => bits >> (128 - u32::from(prefix)) << (128 - u32::from(prefix)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn reputation(lines: &[&str]) -> Reputation {
        let mut reputation = Reputation::default();
        for line in lines {
            assert!(Reputation::is_row(line), "{line}");
            reputation.add(line).unwrap();
        }
        reputation
    }

    #[test]
    fn the_longest_network_with_the_category_decides() {
        let found = reputation(&[
            "1,BadHosts,Hosts that attack",
            "2, Google, Known, and good",
            "192.0.2.0/24,1,50",
            "192.0.2.7,1,99",
            "192.0.2.7,2,10",
            "192.0.2.8,1,0",
            "0.0.0.0/0,2,1",
            "2001:db8::/32,1,40",
        ]);
        let (bad, google) = (
            found.category("badhosts").unwrap(),
            found.category("Google").unwrap(),
        );
        let score = |address: &str, category| found.score(address.parse().unwrap(), category);
        assert_eq!(score("192.0.2.7", bad), Some(99));
        assert_eq!(score("192.0.2.9", bad), Some(50));
        assert_eq!(score("192.0.2.7", google), Some(10));
        assert_eq!(score("198.51.100.1", google), Some(1));
        assert_eq!(score("198.51.100.1", bad), None);
        assert_eq!(score("2001:db8:1::1", bad), Some(40));
        assert_eq!(
            score("2001:db8:1::1", google),
            None,
            "a network of IPv4 has no address of IPv6"
        );
        assert_eq!(
            score("192.0.2.8", bad),
            Some(0),
            "0 is a score, and not that of the network"
        );
    }

    #[test]
    fn rows_that_are_none_are_refused_and_rules_are_no_rows() {
        for line in [
            "61,Name,text",
            "0,Name,text",
            "1,,text",
            "192.0.2.1,1,128",
            "192.0.2.0/33,1,1",
            "192.0.2.1,0,1",
            "::1/129,1,1",
            "::1,1",
        ] {
            assert!(
                Reputation::is_row(line) && Reputation::default().add(line).is_err(),
                "{line}"
            );
        }
        for line in [
            "alert tcp any any -> any any (content:\"a,b\"; sid:1;)",
            "suppress gen_id 1, sig_id 2",
            "a,b,c",
        ] {
            assert!(!Reputation::is_row(line), "{line}");
        }
    }
}
