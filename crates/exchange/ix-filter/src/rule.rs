//! Conversion of a peer's rule to the filter that the exchange should have.

use core::net::IpAddr;

use millrace_bgp::flowspec::{Component, NumericField, Pattern};
use millrace_bgp::{Afi, Attributes, FlowRule, RouteKey};
use millrace_ix_model::{AccountId, Filter, FilterAction, FilterMatch, FilterOrigin, IpProtocol, Reason};

use crate::controller::FilterController;
use crate::ownership::Index;
use crate::prefix;
use crate::translate::{Translated, action, translate};

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
            RouteKey::Unicast { prefix, .. } => rtbh(account, *prefix),
            RouteKey::Flowspec { rule, .. } => Some(flowspec(
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
    let rule = FlowRule::new(destination.afi(), &[component]).ok()?;
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
        _ => (
            None,
            Vec::new(),
            action(attributes).unwrap_or(FilterAction::Count),
        ),
    };
    // A refused rule is shown by its destination, or by all addresses if it has none; it is never planned.
    let destination = rule.destination().and_then(Pattern::prefix).and_then(prefix);
    let all = match rule.afi() {
        Afi::Ipv4 => IpAddr::from([0u8; 4]),
        Afi::Ipv6 => IpAddr::from([0u8; 16]),
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
        comment: announced(rule, attributes),
        untranslatable,
    }
}

/// Returns a rule with its actions, as its peer has announced them.
fn announced(rule: &FlowRule, attributes: &Attributes) -> String {
    let communities = attributes.extended.iter();
    let actions = communities.filter_map(|community| Some(community.traffic_action()?.to_string()));
    let redirect = attributes.redirects_ipv6.then(|| "redirect".to_owned());
    let actions: Vec<String> = actions.chain(redirect).collect();
    let components: Vec<String> = rule.components().iter().map(component_text).collect();
    let rule = components.join("; ");
    if actions.is_empty() {
        return format!("{rule}; accept");
    }
    format!("{rule}; {}", actions.join(", "))
}

/// Returns the text of a component. IP protocols have their names beside their numbers.
fn component_text(component: &Component) -> String {
    let Component::Numeric(NumericField::Protocol, operators) = component else {
        return component.to_string();
    };
    let mut text = "protocol".to_owned();
    for (index, operator) in operators.iter().enumerate() {
        let joint = if operator.and && index > 0 { '&' } else { ' ' };
        text.push(joint);
        text += &operator.to_string();
        let number = u8::try_from(operator.value).ok();
        if let Some(name) = number.and_then(|number| IpProtocol(number).name()) {
            text += &format!(" ({name})");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use millrace_bgp::ExtendedCommunity;
    use millrace_bgp::flowspec::{BitmaskField, BitmaskOperator, NumericOperator};
    use millrace_ix_model::AccountId;

    use super::*;

    fn numeric(field: NumericField) -> Component {
        let operator = NumericOperator {
            and: false,
            less: false,
            greater: true,
            equal: false,
            value: 33,
            size: 1,
        };
        Component::Numeric(field, vec![operator])
    }

    fn bits(field: BitmaskField) -> Component {
        let operator = BitmaskOperator {
            and: false,
            not: false,
            all: true,
            value: 2,
            size: 1,
        };
        Component::Bitmask(field, vec![operator])
    }

    /// Returns an extended community of Flowspec with a value in its last four bytes.
    fn community(subtype: u8, value: [u8; 4]) -> ExtendedCommunity {
        let [a, b, c, d] = value;
        ExtendedCommunity([0x80, subtype, 0, 0, a, b, c, d])
    }

    fn destination() -> Component {
        let prefix = millrace_bgp::Prefix::new([203, 0, 113, 7].into(), 32).unwrap();
        Component::Destination(Pattern::from(prefix))
    }

    #[test]
    fn every_component_of_a_rule_is_in_the_text_of_its_filter() {
        let components = [
            (
                Component::Source(Pattern::from(
                    millrace_bgp::Prefix::new([192, 0, 2, 0].into(), 24).unwrap(),
                )),
                "source 192.0.2.0/24",
            ),
            (numeric(NumericField::Protocol), "protocol >33 (DCCP)"),
            (numeric(NumericField::Port), "port >33"),
            (numeric(NumericField::DestinationPort), "destination port >33"),
            (numeric(NumericField::SourcePort), "source port >33"),
            (numeric(NumericField::IcmpType), "ICMP type >33"),
            (numeric(NumericField::IcmpCode), "ICMP code >33"),
            (numeric(NumericField::PacketLength), "packet length >33"),
            (numeric(NumericField::Dscp), "DSCP >33"),
            (bits(BitmaskField::TcpFlags), "TCP flags"),
            (bits(BitmaskField::Fragment), "fragment"),
        ];
        for (component, text) in components {
            let rule = FlowRule::new(Afi::Ipv4, &[destination(), component]).unwrap();
            let drop = Attributes {
                extended: vec![community(0x06, 0f32.to_be_bytes())].into(),
                ..Attributes::default()
            };
            let desired = flowspec(AccountId(1), &rule, &drop, true);
            assert!(desired.comment.contains(text), "{}", desired.comment);
            assert!(
                desired.comment.ends_with("; traffic-rate-bytes 0"),
                "{}",
                desired.comment
            );
            // The action of a rule whose components switches do not match is its own one, and not to count.
            assert_eq!(desired.action, FilterAction::Drop, "{}", desired.comment);
        }
    }

    #[test]
    fn every_action_of_a_rule_is_in_the_text_of_its_filter() {
        let actions = [
            (Vec::new(), "accept"),
            (vec![community(0x06, 0f32.to_be_bytes())], "traffic-rate-bytes 0"),
            (
                vec![community(0x06, 1e6f32.to_be_bytes())],
                "traffic-rate-bytes 1000000",
            ),
            (
                vec![community(0x0c, 100f32.to_be_bytes())],
                "traffic-rate-packets 100",
            ),
            (vec![community(0x07, [0, 0, 0, 1])], "traffic-action continue"),
            (vec![community(0x07, [0, 0, 0, 2])], "traffic-action sample"),
            (vec![community(0x07, [0, 0, 0, 0])], "traffic-action stop"),
            (vec![community(0x08, [0, 0, 0, 1])], "redirect"),
            (vec![community(0x09, [0, 0, 0, 46])], "traffic-marking 46"),
        ];
        let rule = FlowRule::new(Afi::Ipv4, &[destination(), numeric(NumericField::PacketLength)]).unwrap();
        for (extended, text) in actions {
            let attributes = Attributes {
                extended: extended.into(),
                ..Attributes::default()
            };
            let desired = flowspec(AccountId(1), &rule, &attributes, true);
            assert_eq!(
                desired.comment,
                format!("destination 203.0.113.7/32; packet length >33; {text}")
            );
            assert!(desired.untranslatable.is_some());
        }
        let redirect = Attributes {
            redirects_ipv6: true,
            ..Attributes::default()
        };
        let desired = flowspec(AccountId(1), &rule, &redirect, true);
        assert!(desired.comment.ends_with("; redirect"), "{}", desired.comment);
    }
}
