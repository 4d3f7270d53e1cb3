//! Variables of addresses and ports, and the sets that result from their replacement.

use std::collections::BTreeMap;

use crate::address::{AddressSpec, PortSpec, Spec, Value};
use crate::limits;
use crate::refusal::Reason;

/// The variables that rules use as `$NAME`. Addresses and ports have separate names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variables {
    addresses: BTreeMap<String, AddressSpec>,
    ports: BTreeMap<String, PortSpec>,
}

/// Sorted, disjoint ranges of numbers; the first list is for IPv4 and ports, the second for IPv6.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges([Vec<(u128, u128)>; 2]);

impl Ranges {
    /// Returns the ranges of all numbers in both spaces.
    fn all<T: Value>() -> Ranges {
        let [first, second] = T::LARGEST;
        let second = if second == 0 {
            Vec::new()
        } else {
            vec![(0, second)]
        };
        Ranges([vec![(0, first)], second])
    }

    /// Returns true if the ranges contain no number.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Vec::is_empty)
    }

    /// Returns the ranges of IPv4 addresses or of ports.
    pub fn first(&self) -> &[(u128, u128)] {
        &self.0[0]
    }

    /// Returns the ranges of IPv6 addresses.
    pub fn second(&self) -> &[(u128, u128)] {
        &self.0[1]
    }

    /// Returns the number of ranges.
    pub fn len(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// Sorts the ranges and merges those that overlap or touch.
    fn merge(&mut self) {
        for ranges in &mut self.0 {
            ranges.sort_unstable();
            let mut merged: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
            for &(first, last) in ranges.iter() {
                match merged.last_mut() {
                    Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                    _ => merged.push((first, last)),
                }
            }
            *ranges = merged;
        }
    }

    /// Removes the numbers of the other set. Both sets must be merged before.
    fn subtract(&mut self, other: &Ranges) {
        for (ranges, removed) in self.0.iter_mut().zip(&other.0) {
            let mut left = Vec::with_capacity(ranges.len());
            let mut next = 0;
            for &(mut first, last) in ranges.iter() {
                while next < removed.len() && removed[next].1 < first {
                    next += 1;
                }
                let mut at = next;
                let mut is_done = false;
                while at < removed.len() && removed[at].0 <= last {
                    let (from, to) = removed[at];
                    if from > first {
                        left.push((first, from - 1));
                    }
                    if to >= last {
                        is_done = true;
                        break;
                    }
                    first = to + 1;
                    at += 1;
                }
                if !is_done {
                    left.push((first, last));
                }
            }
            *ranges = left;
        }
    }
}

impl Variables {
    /// Returns the variables that rule sets usually name, with all addresses for networks and the registered
    /// port for services.
    pub fn usual() -> Variables {
        let mut variables = Variables::default();
        let networks = [
            "HOME_NET",
            "EXTERNAL_NET",
            "HTTP_SERVERS",
            "SMTP_SERVERS",
            "SQL_SERVERS",
            "DNS_SERVERS",
            "TELNET_SERVERS",
            "SSH_SERVERS",
            "FTP_SERVERS",
            "SIP_SERVERS",
            "AIM_SERVERS",
            "DC_SERVERS",
            "DNP3_SERVER",
            "DNP3_CLIENT",
            "MODBUS_CLIENT",
            "MODBUS_SERVER",
            "ENIP_CLIENT",
            "ENIP_SERVER",
        ];
        for name in networks {
            variables.addresses.insert(name.to_owned(), Spec::Any);
        }
        let port = |port| Spec::Range(port, port);
        let http = Spec::Variable("HTTP_PORTS".to_owned());
        let ports = [
            ("HTTP_PORTS", port(80)),
            ("SHELLCODE_PORTS", Spec::Not(Box::new(port(80)))),
            ("ORACLE_PORTS", port(1521)),
            ("SSH_PORTS", port(22)),
            ("FTP_PORTS", port(21)),
            ("DNP3_PORTS", port(20000)),
            ("MODBUS_PORTS", port(502)),
            ("FILE_DATA_PORTS", Spec::List(vec![http, port(110), port(143)])),
            ("GENEVE_PORTS", port(6081)),
            ("VXLAN_PORTS", port(4789)),
            ("TEREDO_PORTS", port(3544)),
            ("SIP_PORTS", Spec::List(vec![Spec::Range(5060, 5061)])),
        ];
        for (name, ports) in ports {
            variables.ports.insert(name.to_owned(), ports);
        }
        variables
    }

    /// Sets a variable. The text may be valid as addresses, as ports, or as both (`any`, `$OTHER`).
    ///
    /// # Errors
    /// Returns the reason if the text is neither.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), Reason> {
        // A single variable or `any` may stand for addresses or ports, so the variable is set as both.
        let addresses = AddressSpec::parse(text);
        let ports = PortSpec::parse(text);
        match (addresses, ports) {
            (Err(reason), Err(_)) if !name.contains("PORT") => return Err(reason),
            (Err(_), Err(reason)) => return Err(reason),
            (addresses, ports) => {
                if let Ok(addresses) = addresses {
                    self.addresses.insert(name.to_owned(), addresses);
                }
                if let Ok(ports) = ports {
                    self.ports.insert(name.to_owned(), ports);
                }
            }
        }
        Ok(())
    }

    /// Returns the addresses of a set, with all variables replaced.
    ///
    /// # Errors
    /// Returns the reason if a variable has no value, a limit is exceeded, or the set is empty.
    pub fn resolve_addresses(&self, spec: &AddressSpec) -> Result<Ranges, Reason> {
        resolve(&self.addresses, spec)
    }

    /// Returns the ports of a set, with all variables replaced.
    ///
    /// # Errors
    /// Returns the reason if a variable has no value, a limit is exceeded, or the set is empty.
    pub fn resolve_ports(&self, spec: &PortSpec) -> Result<Ranges, Reason> {
        resolve(&self.ports, spec)
    }
}

fn resolve<T: Value>(variables: &BTreeMap<String, Spec<T>>, spec: &Spec<T>) -> Result<Ranges, Reason> {
    let mut work = 0;
    let ranges = expand(variables, spec, 0, &mut work)?;
    if ranges.is_empty() {
        return Err(Reason::EmptySet {
            text: spec.to_string(),
        });
    }
    Ok(ranges)
}

/// Returns the merged ranges of a set. `work` counts the ranges that were made, because variables that name
/// other variables twice double them at each level.
fn expand<T: Value>(
    variables: &BTreeMap<String, Spec<T>>,
    spec: &Spec<T>,
    depth: usize,
    work: &mut usize,
) -> Result<Ranges, Reason> {
    if depth > 2 * limits::NESTING {
        let unit = "nested lists and variables (a variable may name itself)";
        return Err(Reason::Limit {
            unit,
            limit: 2 * limits::NESTING,
        });
    }
    let mut ranges = match spec {
        Spec::Any => Ranges::all::<T>(),
        Spec::Range(first, last) => {
            let mut ranges = Ranges::default();
            let (space, first) = first.to_space_and_number();
            ranges.0[space].push((first, last.to_space_and_number().1));
            ranges
        }
        Spec::Variable(name) => {
            let value = variables
                .get(name)
                .ok_or_else(|| Reason::UnknownVariable { name: name.clone() })?;
            expand(variables, value, depth + 1, work)?
        }
        Spec::Not(inner) => {
            let mut ranges = Ranges::all::<T>();
            ranges.subtract(&expand(variables, inner, depth + 1, work)?);
            ranges
        }
        Spec::List(items) => {
            let mut included = Ranges::default();
            let mut excluded = Ranges::default();
            let has_positive = items.iter().any(|item| !matches!(item, Spec::Not(_)));
            if !has_positive {
                included = Ranges::all::<T>();
            }
            for item in items {
                let (target, item) = match item {
                    Spec::Not(inner) => (&mut excluded, &**inner),
                    item => (&mut included, item),
                };
                let part = expand(variables, item, depth + 1, work)?;
                for (all, part) in target.0.iter_mut().zip(part.0) {
                    all.extend(part);
                }
            }
            included.merge();
            excluded.merge();
            included.subtract(&excluded);
            included
        }
    };
    *work += ranges.len().max(1);
    if *work > limits::RANGES {
        return Err(Reason::Limit {
            unit: "ranges in a set of addresses or ports",
            limit: limits::RANGES,
        });
    }
    ranges.merge();
    Ok(ranges)
}
