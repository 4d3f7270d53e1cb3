//! Access lists: rules in the syntax of flow entries, looked up by the classifiers of the flow tables.

use millrace_flow::classify::{Adaptive, Classifier, Slot};
use millrace_flow::{FieldSet, FlowKey, Match, depth_for};
use millrace_types::Priority;
use millrace_wire::{Depth, Packet};

/// The decision of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AclAction {
    Permit,
    /// The packet is dropped without an answer: an answer would let senders map the list (RFC 1812, section 5.3.9).
    Deny,
}

/// A rule of an access list.
#[derive(Clone, Debug)]
pub struct AclRule {
    pub match_: Match,
    pub action: AclAction,
}

/// An access list. The first rule that matches decides.
#[derive(Clone, Debug)]
pub struct Acl {
    rules: Adaptive,
    /// By slot.
    actions: Vec<AclAction>,
    depth: Option<Depth>,
}

impl Acl {
    /// The greatest number of rules.
    pub const RULES_MAX: usize = 65_535;

    /// Returns a list of `rules`, in order; those after [`Self::RULES_MAX`] are ignored. A packet that matches none is
    /// denied. `seed` keys the hashes of the classifier.
    pub fn new(rules: &[AclRule], seed: u64) -> Acl {
        let mut classifier = Adaptive::new(seed);
        let mut actions: Vec<AclAction> = Vec::new();
        let mut fields = FieldSet::EMPTY;
        for ((rule, priority), slot) in rules.iter().zip((1..=u16::MAX).rev()).zip(0..) {
            let compiled = rule.match_.rule(Priority(priority));
            rule.match_.fields().iter().for_each(|field| fields.insert(field));
            classifier.insert(&compiled, Slot::new(slot));
            actions.push(rule.action);
        }
        classifier.optimize();
        Acl {
            rules: classifier,
            actions,
            depth: depth_for(fields),
        }
    }

    /// Returns the decision about a packet.
    pub(crate) fn decide<P: Packet>(&self, packet: &P) -> AclAction {
        let mut key = FlowKey::default();
        if let Some(depth) = self.depth {
            key.read(packet.head(), packet.len(), depth);
        }
        let slot = self.rules.lookup(&key);
        slot.and_then(|slot| self.actions.get(slot.index()))
            .copied()
            .unwrap_or(AclAction::Deny)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_types::Mac;
    use millrace_wire::{Builder, Frame};

    fn rule(action: AclAction, text: &str) -> AclRule {
        AclRule {
            match_: text.parse().unwrap(),
            action,
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides_and_no_rule_denies() {
        use AclAction::{Deny, Permit};
        let acl = Acl::new(
            &[
                rule(Deny, "udp,nw_src=192.0.2.7"),
                rule(Permit, "udp,nw_src=192.0.2.0/24,tp_dst=53"),
                rule(Permit, "udp,nw_src=192.0.2.7"),
                rule(Permit, "ipv6"),
            ],
            1,
        );
        let udp = |src: [u8; 4], port| {
            let builder = Builder::ethernet(Mac::BROADCAST, Mac([2; 6])).ipv4(src, [10, 0, 0, 1]);
            Frame::new(&builder.udp(9, port).build())
        };
        assert_eq!(acl.decide(&udp([192, 0, 2, 7], 53)), Deny);
        assert_eq!(acl.decide(&udp([192, 0, 2, 8], 53)), Permit);
        assert_eq!(acl.decide(&udp([192, 0, 2, 8], 54)), Deny);
        let v6 = Builder::ethernet(Mac::BROADCAST, Mac([2; 6])).ipv6([0x2001; 8], [0x2002; 8]);
        assert_eq!(acl.decide(&Frame::new(&v6.udp(1, 2).build())), Permit);
        assert_eq!(Acl::new(&[], 1).decide(&udp([192, 0, 2, 8], 53)), Deny);
    }
}
