//! Access lists: rules in the syntax of flow entries, looked up by the classifiers of the flow tables.
//!
//! A flow entry about some bits of a port, or about control bits of TCP, takes a packet without the header for one with
//! zeros, as Open vSwitch does. A rule of an access list is about packets that have the header: a later fragment has none.
//! A packet that should have the header and has none that is whole (a first fragment that ends within it, lengths that are
//! wrong) would pass by every rule about ports, and some hosts take it: a list with such rules denies it (RFC 1858,
//! section 3).

use millrace_flow::classify::{Adaptive, Classifier, Slot};
use millrace_flow::{Field, FieldSet, FlowKey, Layer, Match, Rule, depth_for};
use millrace_types::Priority;
use millrace_wire::{Depth, IpProto, Packet};

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
    /// True if a rule names a field of TCP, UDP, SCTP, ICMP or ICMPv6.
    names_transport: bool,
}

/// The protocols whose fields rules can name.
const TRANSPORT: [IpProto; 5] = [
    IpProto::TCP,
    IpProto::UDP,
    IpProto::SCTP,
    IpProto::ICMPV4,
    IpProto::ICMPV6,
];
/// The bit of [`Field::IpFrag`] that later fragments have.
const LATER_FRAGMENT: u128 = 2;

/// Returns true for a field of a transport header.
fn is_of_transport(field: Field) -> bool {
    field == Field::TcpFlags || field.layer() == Some(Layer::L4)
}

/// Returns the rule of `match_`, with the bit of the transport header if it names a field of one.
fn compile(match_: &Match, priority: Priority) -> Rule {
    let mut rule = match_.rule(priority);
    if match_.fields().iter().any(is_of_transport) {
        rule.key.add_layer(Layer::L4);
        rule.mask.0.add_layer(Layer::L4);
    }
    rule
}

/// Returns true if a packet has a transport protocol, is no later fragment, and has no whole transport header.
fn lacks_header(key: &FlowKey) -> bool {
    let proto = key.field(Field::IpProto);
    !key.has(Layer::L4)
        && TRANSPORT.iter().any(|one| u128::from(one.0) == proto)
        && key.field(Field::IpFrag) & LATER_FRAGMENT == 0
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
            let compiled = compile(&rule.match_, Priority(priority));
            rule.match_.fields().iter().for_each(|field| fields.insert(field));
            classifier.insert(&compiled, Slot::new(slot));
            actions.push(rule.action);
        }
        classifier.optimize();
        Acl {
            rules: classifier,
            actions,
            depth: depth_for(fields),
            names_transport: fields.iter().any(is_of_transport),
        }
    }

    /// Returns the decision about a packet.
    pub(crate) fn decide<P: Packet>(&self, packet: &P) -> AclAction {
        let mut key = FlowKey::default();
        if let Some(depth) = self.depth {
            key.read(packet.head(), packet.len(), depth);
        }
        if self.names_transport && lacks_header(&key) {
            return AclAction::Deny;
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
    #[test]
    fn a_rule_about_ports_or_control_bits_matches_packets_that_have_them_only() {
        use AclAction::{Deny, Permit};
        // Values of zero, which a packet without the header seems to have.
        for text in [
            "tcp,tcp_flags=-rst",
            "tcp,tp_dst=0/0x8000",
            "tcp,tp_src=0/0xff00",
            "tcp,tp_dst=0",
        ] {
            let acl = Acl::new(&[rule(Deny, text), rule(Permit, "ip")], 1);
            // A header of IPv4, and the first `size` bytes of a segment from port 0 to port 0.
            let packet = |frag: u16, size: u8| {
                let mut bytes = [[2; 12].as_slice(), &[8, 0, 0x45, 0, 0, 20 + size, 0, 1]].concat();
                bytes.extend(frag.to_be_bytes());
                bytes.extend([64, 6, 0, 0, 192, 0, 2, 1, 10, 0, 0, 1]);
                let segment: Vec<u8> = (0..size).map(|at| if at == 12 { 5 << 4 } else { 0 }).collect();
                Frame::new(&[bytes, segment].concat())
            };
            assert_eq!(acl.decide(&packet(0, 40)), Deny, "{text}");
            assert_eq!(
                acl.decide(&packet(0x2000, 40)),
                Deny,
                "{text}: the first fragment"
            );
            assert_eq!(
                acl.decide(&packet(0x2005, 40)),
                Permit,
                "{text}: a later fragment"
            );
            assert_eq!(
                acl.decide(&packet(5, 8)),
                Permit,
                "{text}: a short later fragment"
            );
            // The next fragment has the rest of the header, which no rule would see.
            assert_eq!(
                acl.decide(&packet(0x2000, 8)),
                Deny,
                "{text}: a first fragment that ends within the header"
            );
            assert_eq!(
                acl.decide(&packet(0, 19)),
                Deny,
                "{text}: a packet that ends within the header"
            );
        }
        let without_ports = Acl::new(&[rule(Permit, "ip")], 1);
        let short = Builder::ethernet(Mac([4; 6]), Mac([2; 6])).ipv4([192, 0, 2, 1], [10, 0, 0, 1]);
        assert_eq!(
            without_ports.decide(&Frame::new(&short.udp(1, 2).build()[..36])),
            Permit
        );
    }
}
