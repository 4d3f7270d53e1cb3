//! Evidence of ownership from outside the exchange: validated ROA payloads, and objects of an Internet
//! Routing Registry.

use std::collections::{BTreeMap, BTreeSet};

use millrace_bgp::rtr::Vrp;
use millrace_ix_model::{Prefix, Timestamp};

use crate::prefix;

/// Validated ROA payloads by prefix.
#[derive(Clone, Debug, Default)]
pub struct VrpTable {
    by_prefix: BTreeMap<Prefix, Vec<(u8, u32)>>,
    len: usize,
}

/// The validity of a prefix and its origin (RFC 6811).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Validity {
    /// A payload permits prefix and origin.
    Valid,
    /// Payloads cover the prefix, and no payload permits prefix and origin.
    Invalid,
    /// No payload covers the prefix.
    NotFound,
}

/// The state of the validated ROA payloads.
#[derive(Clone, Debug, Default)]
pub enum VrpState {
    /// No cache is configured: nothing is invalid, and no ROA is evidence.
    #[default]
    NotConfigured,
    /// The caches have not answered yet, or their last answer has expired.
    Stale,
    /// The payloads of the last answer.
    Fresh(VrpTable),
}

impl FromIterator<Vrp> for VrpTable {
    fn from_iter<I: IntoIterator<Item = Vrp>>(payloads: I) -> VrpTable {
        let mut table = VrpTable::default();
        for vrp in payloads {
            if let Some(prefix) = prefix(vrp.prefix) {
                let entry = table.by_prefix.entry(prefix).or_default();
                if !entry.contains(&(vrp.max_len, vrp.asn)) {
                    entry.push((vrp.max_len, vrp.asn));
                    table.len += 1;
                }
            }
        }
        table
    }
}

/// Returns the prefixes that cover a prefix, including the prefix itself, longest first.
pub(crate) fn covering(prefix: Prefix) -> impl Iterator<Item = Prefix> {
    (0..=prefix.len()).rev().filter_map(move |len| {
        let bgp = millrace_bgp::Prefix::new(prefix.address(), len)?;
        crate::prefix(bgp)
    })
}

impl VrpTable {
    /// Returns the number of payloads.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no payloads.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the payloads that cover a prefix, as (prefix, maximum length, origin AS).
    pub fn covering(&self, prefix: Prefix) -> impl Iterator<Item = (Prefix, u8, u32)> + '_ {
        covering(prefix).flat_map(|wider| {
            let payloads = self.by_prefix.get(&wider).into_iter().flatten();
            payloads.map(move |(max_len, asn)| (wider, *max_len, *asn))
        })
    }

    /// Returns the validity of a route (RFC 6811, section 2).
    pub fn validity(&self, prefix: Prefix, origin: Option<u32>) -> Validity {
        let mut is_covered = false;
        for (_, max_len, asn) in self.covering(prefix) {
            is_covered = true;
            if asn != 0 && Some(asn) == origin && prefix.len() <= max_len {
                return Validity::Valid;
            }
        }
        if is_covered {
            Validity::Invalid
        } else {
            Validity::NotFound
        }
    }
}

/// The objects of a registry for one account: the members of its AS-SET and their route objects.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RouteObjects {
    /// The AS numbers of the AS-SET, or of the account if it has none.
    pub asns: BTreeSet<u32>,
    /// The origins of each prefix with a route or route6 object.
    pub origins: BTreeMap<Prefix, BTreeSet<u32>>,
    /// The end of validity. After it, the objects permit no new filter.
    pub expires: Timestamp,
}

impl RouteObjects {
    /// Returns the route objects that cover a prefix and whose origin is in the AS-SET.
    pub fn covering(&self, prefix: Prefix) -> impl Iterator<Item = (Prefix, u32)> + '_ {
        covering(prefix).flat_map(move |wider| {
            let origins = self.origins.get(&wider).into_iter().flatten();
            origins
                .filter(|origin| self.asns.contains(origin))
                .map(move |origin| (wider, *origin))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vrp(text: &str, max_len: u8, asn: u32) -> Vrp {
        let prefix: Prefix = text.parse().unwrap();
        Vrp {
            prefix: millrace_bgp::Prefix::new(prefix.address(), prefix.len()).unwrap(),
            max_len,
            asn,
        }
    }

    #[test]
    fn routes_are_valid_invalid_or_not_found_as_rfc_6811_says() {
        let table: VrpTable = [vrp("203.0.112.0/22", 23, 64_500), vrp("198.51.100.0/24", 24, 0)]
            .into_iter()
            .collect();
        let validity = |text: &str, origin| table.validity(text.parse().unwrap(), origin);
        assert_eq!(validity("203.0.112.0/23", Some(64_500)), Validity::Valid);
        assert_eq!(validity("203.0.113.0/24", Some(64_500)), Validity::Invalid);
        assert_eq!(validity("203.0.112.0/22", Some(64_501)), Validity::Invalid);
        assert_eq!(validity("203.0.112.0/22", None), Validity::Invalid);
        assert_eq!(
            validity("198.51.100.0/24", Some(0)),
            Validity::Invalid,
            "AS 0 is nobody"
        );
        assert_eq!(validity("203.0.96.0/20", Some(64_500)), Validity::NotFound);
    }
}
