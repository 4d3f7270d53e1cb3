//! Conflicts of a new filter with others of its account: filters that match the same packets, or hide each other.

use crate::filter::{Filter, FilterMatch, FragmentMatch, Ports};
use crate::reason::{self, Reason};
use crate::{FilterId, FilterState};

/// The relation of a new filter to an active one of the same account.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FilterConflict {
    /// Both match the same packets.
    Identical,
    /// The other one applies first to all packets of the new one.
    Shadowed,
    /// The new one applies first to all packets of the other one.
    Shadows,
    /// Both match some packets, and treat them differently.
    Overlapping,
}

impl FilterConflict {
    /// Returns the name of the relation in the API.
    pub const fn name(self) -> &'static str {
        match self {
            FilterConflict::Identical => "identical",
            FilterConflict::Shadowed => "shadowed",
            FilterConflict::Shadows => "shadows",
            FilterConflict::Overlapping => "overlapping",
        }
    }

    /// Returns the relation in words; `other` is the active filter.
    pub fn reason(self, other: FilterId) -> Reason {
        match self {
            FilterConflict::Identical => reason::filter_identical(other),
            FilterConflict::Shadowed => reason::filter_shadowed(other),
            FilterConflict::Shadows => reason::filter_shadows(other),
            FilterConflict::Overlapping => reason::filter_overlaps(other),
        }
    }
}

impl Filter {
    /// Returns the relation of this filter, which is new, to another one of the same account; `None` if they do not hinder each
    /// other.
    pub fn conflict_with(&self, other: &Filter) -> Option<FilterConflict> {
        if self.account != other.account || other.state != FilterState::Active {
            return None;
        }
        // Without peers, a filter is about the packets of every peer.
        let covers_peers = |one: &Filter, two: &Filter| {
            one.peers.is_empty() || !two.peers.is_empty() && two.peers.is_subset(&one.peers)
        };
        let covers_all = |one: &Filter, two: &Filter| {
            let mut packets = two.matches();
            covers_peers(one, two) && packets.all(|packets| one.matches().any(|wider| covers(wider, packets)))
        };
        let (is_covered, has_covered) = (covers_all(other, self), covers_all(self, other));
        if is_covered && has_covered {
            return Some(FilterConflict::Identical);
        }
        // Of equal filters the older one applies, which has the lower identifier.
        let is_later = (other.rank, other.order.as_str()) <= (self.rank, self.order.as_str());
        if is_covered && is_later {
            return Some(FilterConflict::Shadowed);
        }
        if has_covered && !is_later {
            return Some(FilterConflict::Shadows);
        }
        let share_peers =
            self.peers.is_empty() || other.peers.is_empty() || !self.peers.is_disjoint(&other.peers);
        let mut pairs = self
            .matches()
            .flat_map(|one| other.matches().map(move |two| (one, two)));
        let share_packets = share_peers && pairs.any(|(one, two)| overlap(one, two));
        (share_packets && self.action != other.action).then_some(FilterConflict::Overlapping)
    }
}

/// Returns true if `wider` has no value, or that of `narrower`.
fn permits<T: PartialEq>(wider: Option<T>, narrower: Option<T>) -> bool {
    wider.is_none() || wider == narrower
}

/// Returns true if two conditions can both be met; the absence of one is met by all packets.
fn agree<T: PartialEq>(one: Option<T>, two: Option<T>) -> bool {
    one.is_none() || two.is_none() || one == two
}

/// Returns the port ranges without overlaps and gaps of zero, in order.
fn merged(ports: &[Ports]) -> Vec<Ports> {
    let mut sorted = ports.to_vec();
    sorted.sort();
    let mut merged: Vec<Ports> = Vec::new();
    for range in sorted {
        match merged.last_mut() {
            Some(last) if range.first <= last.last.saturating_add(1) => last.last = last.last.max(range.last),
            _ => merged.push(range),
        }
    }
    merged
}

fn covers_ports(wider: &[Ports], narrower: &[Ports]) -> bool {
    let wide = merged(wider);
    let is_inside = |range: &Ports| {
        let mut wide = wide.iter();
        wide.any(|wide| wide.first <= range.first && range.last <= wide.last)
    };
    wider.is_empty() || !narrower.is_empty() && merged(narrower).iter().all(is_inside)
}

fn share_ports(one: &[Ports], two: &[Ports]) -> bool {
    let mut pairs = one.iter().flat_map(|a| two.iter().map(move |b| (a, b)));
    one.is_empty() || two.is_empty() || pairs.any(|(a, b)| a.first <= b.last && b.first <= a.last)
}

/// Returns true if all packets of `narrower` are packets of `wider`.
fn covers(wider: &FilterMatch, narrower: &FilterMatch) -> bool {
    use FragmentMatch::{Any, First, Later};
    let source = match (wider.source, narrower.source) {
        (None, _) => true,
        (Some(wider), Some(narrower)) => wider.covers(narrower),
        (Some(_), None) => false,
    };
    let fragment = permits(wider.fragment, narrower.fragment)
        || wider.fragment == Some(Any) && matches!(narrower.fragment, Some(First | Later));
    let flags = wider.tcp_flags.is_none_or(|wider| {
        narrower.tcp_flags.is_some_and(|narrower| {
            wider.mask & !narrower.mask == 0 && narrower.value & wider.mask == wider.value
        })
    });
    wider.destination.covers(narrower.destination)
        && source
        && permits(wider.protocol, narrower.protocol)
        && covers_ports(&wider.source_ports, &narrower.source_ports)
        && covers_ports(&wider.destination_ports, &narrower.destination_ports)
        && permits(wider.icmp_type, narrower.icmp_type)
        && permits(wider.icmp_code, narrower.icmp_code)
        && fragment
        && flags
        && permits(wider.dscp, narrower.dscp)
}

/// Returns true if some packet matches both.
fn overlap(one: &FilterMatch, two: &FilterMatch) -> bool {
    use FragmentMatch::{Any, First, Later};
    let share = |one: crate::Prefix, two: crate::Prefix| one.covers(two) || two.covers(one);
    let source = match (one.source, two.source) {
        (Some(one), Some(two)) => share(one, two),
        _ => true,
    };
    let fragment = agree(one.fragment, two.fragment)
        || matches!(
            (one.fragment, two.fragment),
            (Some(Any), Some(First | Later)) | (Some(First | Later), Some(Any))
        );
    let flags = match (one.tcp_flags, two.tcp_flags) {
        (Some(one), Some(two)) => (one.value ^ two.value) & one.mask & two.mask == 0,
        _ => true,
    };
    share(one.destination, two.destination)
        && source
        && agree(one.protocol, two.protocol)
        && share_ports(&one.source_ports, &two.source_ports)
        && share_ports(&one.destination_ports, &two.destination_ports)
        && agree(one.icmp_type, two.icmp_type)
        && agree(one.icmp_code, two.icmp_code)
        && fragment
        && flags
        && agree(one.dscp, two.dscp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::filter_rank;
    use crate::{AccountId, FilterAction, FilterOrigin};

    const SHAPE: FilterAction = FilterAction::Shape { rate_kbps: 1000 };

    fn filter(destination: &str, action: FilterAction, change: impl FnOnce(&mut FilterMatch)) -> Filter {
        let mut matching = FilterMatch::to(destination.parse().unwrap());
        change(&mut matching);
        Filter {
            account: AccountId(1),
            matching,
            alternatives: Vec::new(),
            peers: [].into(),
            action,
            origin: FilterOrigin::Page,
            rank: filter_rank(FilterOrigin::Page, action),
            order: String::new(),
            state: FilterState::Active,
            valid_until: None,
            exempt_until: None,
            comment: None,
            external_ref: None,
        }
    }

    fn udp(from: &[(u16, u16)]) -> impl Fn(&mut FilterMatch) {
        let ports: Vec<Ports> = from
            .iter()
            .map(|(first, last)| Ports {
                first: *first,
                last: *last,
            })
            .collect();
        move |matching| {
            matching.protocol = Some(17);
            matching.source_ports.clone_from(&ports);
        }
    }

    #[test]
    fn filters_of_the_same_packets_are_identical_whatever_the_order_of_their_ports() {
        let one = filter("192.0.2.1/32", FilterAction::Drop, udp(&[(53, 53), (123, 124)]));
        let two = filter("192.0.2.1/32", SHAPE, udp(&[(123, 123), (124, 124), (53, 53)]));
        assert_eq!(one.conflict_with(&two), Some(FilterConflict::Identical));
        let three = filter("192.0.2.1/32", SHAPE, udp(&[(123, 123), (53, 53)]));
        assert_ne!(one.conflict_with(&three), Some(FilterConflict::Identical));
    }

    #[test]
    fn of_two_filters_the_one_that_applies_first_shadows_the_narrower_one() {
        let wide = filter("192.0.2.0/24", FilterAction::Drop, |_| ());
        let narrow = filter("192.0.2.1/32", SHAPE, udp(&[(53, 53)]));
        assert_eq!(narrow.conflict_with(&wide), Some(FilterConflict::Shadowed));
        assert_eq!(wide.conflict_with(&narrow), Some(FilterConflict::Shadows));
        // A limit comes after drops: a narrow drop beside it works, and the limit works for the rest.
        let limit = filter("192.0.2.0/24", SHAPE, |_| ());
        let dropped = filter("192.0.2.1/32", FilterAction::Drop, |_| ());
        assert_eq!(dropped.conflict_with(&limit), Some(FilterConflict::Overlapping));
        assert_eq!(limit.conflict_with(&dropped), Some(FilterConflict::Overlapping));
        // Of equal treatments, the older one applies.
        let part = filter("192.0.2.1/32", FilterAction::Drop, |_| ());
        assert_eq!(part.conflict_with(&wide), Some(FilterConflict::Shadowed));
        assert_eq!(
            wide.conflict_with(&part),
            None,
            "both drop: neither hinders the other"
        );
    }

    #[test]
    fn filters_without_a_common_packet_and_those_that_are_over_do_not_conflict() {
        let dns = filter("192.0.2.1/32", FilterAction::Drop, udp(&[(53, 53)]));
        for other in [
            filter("192.0.2.2/32", SHAPE, |_| ()),
            filter("192.0.2.1/32", SHAPE, udp(&[(54, 60)])),
            filter("192.0.2.1/32", SHAPE, |matching| matching.protocol = Some(6)),
            filter("192.0.2.1/32", SHAPE, |matching| matching.source = None).with_peers(&[2]),
        ] {
            let mut dns = dns.clone();
            if !other.peers.is_empty() {
                dns.peers = [AccountId(3)].into();
            }
            assert_eq!(dns.conflict_with(&other), None, "{other:?}");
        }
        let mut over = filter("192.0.2.1/32", SHAPE, udp(&[(53, 53)]));
        over.state = FilterState::Expired;
        assert_eq!(dns.conflict_with(&over), None);
        let fragments = |action, fragment| {
            filter("192.0.2.1/32", action, move |matching| {
                matching.fragment = Some(fragment)
            })
        };
        let later = fragments(SHAPE, FragmentMatch::Later);
        let any = fragments(FilterAction::Drop, FragmentMatch::Any);
        assert_eq!(any.conflict_with(&later), Some(FilterConflict::Shadows));
        let whole = fragments(SHAPE, FragmentMatch::Not);
        assert_eq!(any.conflict_with(&whole), None);
    }

    impl Filter {
        fn with_peers(mut self, peers: &[u32]) -> Filter {
            self.peers = peers.iter().map(|peer| AccountId(*peer)).collect();
            self
        }
    }
}
