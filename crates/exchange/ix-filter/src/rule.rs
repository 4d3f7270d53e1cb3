//! A rule of a peer as the filter that the exchange should have.

use core::fmt::Write as _;
use core::net::IpAddr;

use millrace_bgp::flowspec::{Component, Pattern};
use millrace_bgp::{Attributes, FlowRule, RouteKey};
use millrace_ix_model::{AccountId, Filter, FilterAction, FilterMatch, FilterOrigin};

use crate::authority::Authority;
use crate::ownership::Index;
use crate::prefix;
use crate::translate::{Translated, translate};

/// The bytes of a rule that its reference shows; of longer ones it shows a hash.
const SHOWN_MAX: usize = 64;
/// The beginning of every reference of a BGP rule.
pub(crate) const PREFIX: &str = "bgp:";

/// Returns the external reference of a rule: unique for its peer, and the same in every run.
pub(crate) fn reference(peer: IpAddr, route: &RouteKey) -> String {
    match route {
        RouteKey::Unicast(prefix, path) => format!("{PREFIX}{peer}|{prefix}|{path}"),
        RouteKey::Flowspec(rule, path) => {
            let family = if rule.is_ipv6() { 6 } else { 4 };
            let mut text = format!("{PREFIX}{peer}|flow{family}|{path}|");
            let bytes = rule.as_bytes();
            for byte in bytes.iter().take(SHOWN_MAX) {
                let _infallible = write!(text, "{byte:02x}");
            }
            if bytes.len() > SHOWN_MAX {
                let _infallible = write!(text, "+{}:{:016x}", bytes.len(), fnv(bytes));
            }
            text
        }
    }
}

/// Returns the peer of a reference.
pub(crate) fn peer_of(reference: &str) -> Option<IpAddr> {
    let (peer, _) = reference.strip_prefix(PREFIX)?.split_once('|')?;
    peer.parse().ok()
}

/// FNV-1a, 64 bits: the same in every run, unlike the hash of the standard library.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The filter that the exchange should have for a rule.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Desired {
    pub(crate) account: AccountId,
    pub(crate) matching: FilterMatch,
    pub(crate) alternatives: Vec<FilterMatch>,
    pub(crate) action: FilterAction,
    pub(crate) origin: FilterOrigin,
    pub(crate) order: String,
    pub(crate) comment: String,
    /// The reason why switches cannot have it.
    pub(crate) untranslatable: Option<String>,
}

impl Desired {
    /// Returns true if the filter is this one, whatever its state.
    pub(crate) fn is(&self, filter: &Filter) -> bool {
        self.account == filter.account
            && self.matching == filter.matching
            && self.alternatives == filter.alternatives
            && self.action == filter.action
            && self.origin == filter.origin
            && self.order == filter.order
    }
}

impl Authority {
    /// Returns the filter for a rule; `None` if no peer announces it or it is no account's.
    pub(crate) fn desired(&self, reference: &str, index: &Index) -> Option<Desired> {
        let announced = self.rules.get(reference)?;
        let neighbour = self.neighbours.get(&announced.peer)?;
        let route = neighbour.peer.rib().route(&announced.route)?;
        let account = index.account(&neighbour.info, &route.attributes)?;
        match &announced.route {
            RouteKey::Unicast(destination, _) => rtbh(account, *destination),
            RouteKey::Flowspec(rule, _) => Some(flowspec(
                account,
                rule,
                &route.attributes,
                self.settings.extensions,
            )),
        }
    }
}

fn rtbh(account: AccountId, destination: millrace_bgp::Prefix) -> Option<Desired> {
    // The order is that of the Flowspec rule with this destination alone.
    let component = Component::Destination(Pattern::from(destination));
    let rule = FlowRule::new(destination.is_ipv6(), &[component]).ok()?;
    Some(Desired {
        account,
        matching: FilterMatch::to(prefix(destination)?),
        alternatives: Vec::new(),
        action: FilterAction::Drop,
        origin: FilterOrigin::Rtbh,
        order: rule.order_key(),
        comment: format!("blackhole {destination}"),
        untranslatable: None,
    })
}

fn flowspec(account: AccountId, rule: &FlowRule, attributes: &Attributes, extensions: bool) -> Desired {
    let translated = translate(rule, attributes, extensions);
    let untranslatable = translated.as_ref().err().map(|reason| reason.0.clone());
    let (matching, alternatives, action) = match translated {
        Ok(Translated { mut matches, action }) if !matches.is_empty() => {
            let alternatives = matches.split_off(1);
            (matches.pop(), alternatives, action)
        }
        _ => (None, Vec::new(), FilterAction::Count),
    };
    // A refused rule is shown by its destination, or by all addresses if it has none; it is never planned.
    let destination = rule.destination().and_then(Pattern::prefix).and_then(prefix);
    let all = if rule.is_ipv6() {
        IpAddr::from([0u8; 16])
    } else {
        IpAddr::from([0u8; 4])
    };
    let destination = destination
        .or_else(|| millrace_bgp::Prefix::new(all, 0).and_then(prefix))
        .unwrap_or(millrace_ix_model::Prefix::host(all));
    Desired {
        account,
        matching: matching.unwrap_or_else(|| FilterMatch::to(destination)),
        alternatives,
        action,
        origin: FilterOrigin::Flowspec,
        order: rule.order_key(),
        comment: rule.to_string(),
        untranslatable,
    }
}
