//! Conversion of a peer's rule to the filter that the exchange should have.

use core::net::IpAddr;

use millrace_bgp::flowspec::{Component, Pattern};
use millrace_bgp::{Attributes, FlowRule, RouteKey};
use millrace_ix_model::{AccountId, Filter, FilterAction, FilterMatch, FilterOrigin, Reason};

use crate::controller::FilterController;
use crate::ownership::Index;
use crate::prefix;
use crate::translate::{Translated, translate};

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
    /// The reason why switches cannot implement the filter.
    pub(crate) untranslatable: Option<Reason>,
}

impl Desired {
    /// Returns true if `filter` equals this filter, apart from its state.
    pub(crate) fn matches_filter(&self, filter: &Filter) -> bool {
        self.account == filter.account
            && self.matching == filter.matching
            && self.alternatives == filter.alternatives
            && self.action == filter.action
            && self.origin == filter.origin
            && self.order == filter.order
    }
}

impl FilterController {
    /// Returns the account to which a rule belongs; `None` if no peer announces the rule, or it belongs to no account.
    pub(crate) fn account_of_rule(&self, reference: &str, index: &Index) -> Option<AccountId> {
        let announced = self.rules.get(reference)?;
        let neighbour = self.neighbours.get(&announced.peer)?;
        let route = neighbour.peer.rib().route(&announced.route)?;
        self.account_of(index, &neighbour.info, &route.attributes)
    }

    /// Translates a rule of an account to its filter; `None` if no peer announces the rule.
    pub(crate) fn desired(&mut self, reference: &str, account: AccountId) -> Option<Desired> {
        self.translations += 1;
        let announced = self.rules.get(reference)?;
        let neighbour = self.neighbours.get(&announced.peer)?;
        let route = neighbour.peer.rib().route(&announced.route)?;
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
    // The filter has the same order as a Flowspec rule with only this destination.
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
