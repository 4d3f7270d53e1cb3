//! Well-formed and damaged UPDATE messages, read by this decoder and by bgpkit-parser. A message that both accept has the same
//! meaning to both; a message that only one accepts has a known reason. `make exchange-check` compares 1,000,000 messages.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use bgpkit_parser::models::{
    AsPathSegment, AsnLength, AttrType, AttributeValue, BgpUpdateMessage, Community, FlowSpecError,
    FlowSpecNlri, MetaCommunity, Safi, encode_flowspec_nlri, parse_flowspec_nlri,
};
use bgpkit_parser::parser::bgp::messages::parse_bgp_update_message;
use millrace_bgp::flowspec::FlowRuleError;
use millrace_bgp::{Afi, FamilySet, FlowRule, Negotiated, Nlri, Origin, SegmentKind, Update};
use millrace_types::split_mix;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        split_mix::next(&mut self.0) % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }

    /// Returns the encoding of some IPv4 or IPv6 routes. The bits after the prefix length are 0.
    fn routes(&mut self, bits: u64) -> Vec<u8> {
        let mut routes = Vec::new();
        for _ in 0..self.below(4) {
            let len = self.below(bits + 1);
            let mut address = self.bytes(len.div_ceil(8));
            if let (Some(last), rest @ 1..) = (address.last_mut(), len % 8) {
                *last &= 0xff << (8 - rest);
            }
            routes.push(len as u8);
            routes.extend(address);
        }
        routes
    }

    /// Returns a flow specification of IPv4.
    fn rule(&mut self) -> Vec<u8> {
        let mut rule = vec![1, 24, 203, 0, self.below(256) as u8];
        for kind in 3..=11_u8 {
            if kind == 9 || !self.chance(25) {
                continue;
            }
            rule.push(kind);
            let count = 1 + self.below(3);
            for at in 0..count {
                let end = if at + 1 == count { 0x80 } else { 0 };
                let and = if at > 0 && self.chance(50) { 0x40 } else { 0 };
                let operator = 1 + self.below(6) as u8;
                let is_long = matches!(kind, 4..=6 | 10);
                rule.push(end | and | operator | if is_long { 0x10 } else { 0 });
                rule.extend(self.bytes(if is_long { 2 } else { 1 }));
            }
        }
        [&[rule.len() as u8], &rule[..]].concat()
    }

    fn attribute(&mut self, flags: u8, kind: u8, value: &[u8]) -> Vec<u8> {
        if value.len() > 255 || self.chance(10) {
            let [high, low] = (value.len() as u16).to_be_bytes();
            return [&[flags | 0x10, kind, high, low], value].concat();
        }
        [&[flags, kind, value.len() as u8], value].concat()
    }

    fn path(&mut self) -> Vec<u8> {
        let mut path = Vec::new();
        for at in 0..1 + self.below(3) {
            // A path with an AS_SET is refused (RFC 9774).
            let kind = if at > 0 && self.chance(3) { 1 } else { 2 };
            let len = 1 + self.below(5);
            path.extend([kind, len as u8]);
            for _ in 0..len {
                path.extend((1 + self.below(400_000) as u32).to_be_bytes());
            }
        }
        path
    }

    /// Returns the body of an UPDATE.
    fn update(&mut self) -> Vec<u8> {
        let withdrawn = if self.chance(30) {
            self.routes(32)
        } else {
            Vec::new()
        };
        let announced = if self.chance(70) {
            self.routes(32)
        } else {
            Vec::new()
        };
        let mut list = Vec::new();
        let origin = self.below(3) as u8;
        list.extend(self.attribute(0x40, 1, &[origin]));
        let path = self.path();
        list.extend(self.attribute(0x40, 2, &path));
        list.extend(self.attribute(0x40, 3, &[192, 0, 2, origin + 1]));
        for (kind, flags, unit) in [
            (4, 0x80, 4),
            (7, 0xc0, 8),
            (8, 0xc0, 4),
            (16, 0xc0, 8),
            (32, 0xc0, 12),
        ] {
            if self.chance(30) {
                let count = if matches!(kind, 4 | 7) {
                    1
                } else {
                    1 + self.below(4)
                };
                let value = self.bytes(unit * count);
                list.extend(self.attribute(flags, kind, &value));
            }
        }
        match self.below(6) {
            0 => {
                let next_hop = [&[0x20, 0x01, 0x0d, 0xb8][..], &self.bytes(12)].concat();
                let value = [&[0, 2, 1, 16][..], &next_hop, &[0], &self.routes(128)].concat();
                list.extend(self.attribute(0x80, 14, &value));
            }
            1 => {
                let value = [&[0, 1, 133, 0, 0][..], &self.rule(), &self.rule()].concat();
                list.extend(self.attribute(0x80, 14, &value));
            }
            2 => {
                let value = [&[0, 2, 1][..], &self.routes(128)].concat();
                list.extend(self.attribute(0x80, 15, &value));
            }
            _ => {}
        }
        let size = |bytes: &[u8]| (bytes.len() as u16).to_be_bytes();
        [&size(&withdrawn)[..], &withdrawn, &size(&list), &list, &announced].concat()
    }
}

/// The content of an UPDATE, in a form that does not depend on either decoder.
#[derive(PartialEq, Eq, Debug, Default)]
struct Meaning {
    withdrawn: BTreeSet<String>,
    announced: BTreeSet<String>,
    origin: u8,
    path: Vec<(u8, Vec<u32>)>,
    next_hops: BTreeSet<IpAddr>,
    communities: Vec<u32>,
    large: Vec<(u32, u32, u32)>,
}

fn ours(update: &Update) -> Meaning {
    let mut meaning = Meaning::default();
    // bgpkit-parser leaves out the flow specifications of an UPDATE; the second test compares them.
    let text = |nlri: &Nlri| match nlri {
        Nlri::Unicast { prefix, .. } => Some(prefix.to_string()),
        _ => None,
    };
    meaning.withdrawn = update
        .withdrawn
        .iter()
        .filter_map(|(_, nlri)| text(nlri))
        .collect();
    for reach in &update.announced {
        meaning.announced.extend(reach.routes.iter().filter_map(text));
        if !reach.routes.is_empty() {
            meaning.next_hops.extend(reach.next_hop);
        }
    }
    let attributes = &update.attributes;
    meaning.origin = match attributes.origin {
        Origin::Igp => 0,
        Origin::Egp => 1,
        Origin::Incomplete => 2,
    };
    let segment = |segment: &millrace_bgp::Segment| {
        let kind = match segment.kind {
            SegmentKind::Set => 1,
            SegmentKind::Sequence => 2,
            SegmentKind::ConfedSequence => 3,
            SegmentKind::ConfedSet => 4,
        };
        (kind, segment.asns.to_vec())
    };
    meaning.path = attributes.as_path.0.iter().map(segment).collect();
    meaning.communities = attributes.communities.to_vec();
    meaning.large = attributes
        .large
        .iter()
        .map(|one| (one.global_administrator, one.local_data_1, one.local_data_2))
        .collect();
    meaning
}

fn theirs(update: &BgpUpdateMessage) -> Meaning {
    let mut meaning = Meaning::default();
    let text = |prefix: &bgpkit_parser::models::NetworkPrefix| prefix.prefix.trunc().to_string();
    meaning.withdrawn = update.withdrawn_prefixes.iter().map(text).collect();
    meaning.announced = update.announced_prefixes.iter().map(text).collect();
    let attributes = &update.attributes;
    if !meaning.announced.is_empty() {
        meaning.next_hops.extend(attributes.next_hop());
    }
    for value in attributes.iter() {
        match value {
            // bgpkit-parser reads flow specifications as prefixes, and also reads families that were not negotiated.
            AttributeValue::MpReachNlri(nlri) | AttributeValue::MpUnreachNlri(nlri)
                if nlri.safi != Safi::Unicast => {}
            AttributeValue::MpReachNlri(nlri) => {
                meaning.announced.extend(nlri.prefixes.iter().map(text));
                if !nlri.prefixes.is_empty() {
                    meaning.next_hops.extend(nlri.next_hop.map(|hop| hop.addr()));
                }
            }
            AttributeValue::MpUnreachNlri(nlri) => meaning.withdrawn.extend(nlri.prefixes.iter().map(text)),
            _ => {}
        }
    }
    meaning.origin = match attributes.get_attr(AttrType::ORIGIN).map(|found| found.value) {
        Some(AttributeValue::Origin(origin)) => origin as u8,
        _ => 0,
    };
    for segment in attributes.as_path().iter().flat_map(|path| path.segments.iter()) {
        let (kind, asns) = match segment {
            AsPathSegment::AsSet(asns) => (1, asns),
            AsPathSegment::AsSequence(asns) => (2, asns),
            AsPathSegment::ConfedSequence(asns) => (3, asns),
            AsPathSegment::ConfedSet(asns) => (4, asns),
        };
        meaning
            .path
            .push((kind, asns.iter().map(|asn| u32::from(*asn)).collect()));
    }
    for community in attributes.iter_communities() {
        match community {
            MetaCommunity::Plain(Community::NoExport) => meaning.communities.push(0xffff_ff01),
            MetaCommunity::Plain(Community::NoAdvertise) => meaning.communities.push(0xffff_ff02),
            MetaCommunity::Plain(Community::NoExportSubConfed) => meaning.communities.push(0xffff_ff03),
            MetaCommunity::Plain(Community::Custom(asn, value)) => {
                meaning.communities.push(u32::from(asn) << 16 | u32::from(value));
            }
            MetaCommunity::Large(large) => {
                meaning
                    .large
                    .push((large.global_admin, large.local_data[0], large.local_data[1]));
            }
            _ => {}
        }
    }
    meaning
}

/// Returns the known reason why bgpkit-parser decodes a message differently. This decoder has accepted the
/// message without a problem.
fn known_difference(ours: &Meaning) -> Option<&'static str> {
    let has_default = |routes: &BTreeSet<String>| routes.contains("::/0") || routes.contains("0.0.0.0/0");
    (has_default(&ours.withdrawn) || has_default(&ours.announced))
        .then_some("bgpkit-parser takes routes from the default route on for routes with path identifiers")
}

#[test]
fn an_update_means_the_same_to_bgpkit_parser() {
    let is_long = std::env::var_os("MILLRACE_EXCHANGE_LONG").is_some();
    let count = if is_long { 1_000_000 } else { 10_000 };
    let session = Negotiated {
        families: FamilySet::ALL,
        add_path: FamilySet::default(),
        has_four_octets: true,
        has_extended_messages: true,
        is_internal: false,
        first_as: None,
    };
    let mut random = Random(20);
    let (mut equal, mut refused, mut known) = (0, 0, BTreeMap::new());
    let mut unexplained = Vec::new();
    for _ in 0..count {
        let mut body = random.update();
        // A third of the messages is damaged: one byte is changed, or the end is cut.
        match random.below(6) {
            0 => {
                let at = random.below(body.len() as u64) as usize;
                body[at] ^= 1 << random.below(8);
            }
            1 => body.truncate(random.below(body.len() as u64) as usize),
            _ => {}
        }
        let taken = match Update::decode(&body, &session) {
            Ok(update) if update.problems.is_empty() && update.end_of_rib.is_none() => ours(&update),
            // RFC 7606 decides which parts of such a message are used. bgpkit-parser keeps more parts,
            // because it reads archives.
            _ => {
                refused += 1;
                continue;
            }
        };
        let found = parse_bgp_update_message(body.clone().into(), false, &AsnLength::Bits32);
        let found = found
            .map(|update| theirs(&update))
            .map_err(|error| error.to_string());
        if found.as_ref() == Ok(&taken) {
            equal += 1;
            continue;
        }
        match known_difference(&taken) {
            Some(reason) => *known.entry(reason).or_insert(0) += 1,
            None => unexplained.push((body, taken, found)),
        }
    }
    println!(
        "{count} messages: {equal} mean the same, {refused} are faulty here, known differences {known:?}"
    );
    assert!(
        unexplained.is_empty(),
        "{} unexplained, such as {:02x?}: {:?} and {:?}",
        unexplained.len(),
        unexplained[0].0,
        unexplained[0].1,
        unexplained[0].2
    );
    assert!(equal > count / 2, "{equal} of {count}");
}

#[test]
fn a_flow_specification_is_the_same_to_bgpkit_parser() {
    let is_long = std::env::var_os("MILLRACE_EXCHANGE_LONG").is_some();
    let count = if is_long { 1_000_000 } else { 20_000 };
    let mut random = Random(21);
    let (mut taken, mut refused, mut known) = (0, 0, BTreeMap::new());
    for _ in 0..count {
        let mut bytes = random.rule();
        if random.chance(40) {
            let at = 1 + random.below(bytes.len() as u64 - 1) as usize;
            bytes[at] ^= 1 << random.below(8);
        }
        let theirs = parse_flowspec_nlri(&bytes);
        match (FlowRule::decode(Afi::Ipv4, &bytes[1..]), theirs) {
            (Ok(ours), Ok(theirs)) => {
                assert_eq!(
                    encode_flowspec_nlri(&theirs).unwrap()[1..],
                    *ours.as_bytes(),
                    "{bytes:02x?}"
                );
                assert_eq!(theirs.components.len(), ours.components().len(), "{bytes:02x?}");
                taken += 1;
            }
            (Err(_), Err(_)) => refused += 1,
            (ours, theirs) => {
                let reason = reason_of(&ours, &theirs);
                let reason = reason.unwrap_or_else(|| panic!("{bytes:02x?}: {ours:?} and {theirs:?}"));
                *known.entry(reason).or_insert(0) += 1;
            }
        }
    }
    println!(
        "{count} flow specifications: {taken} equal, {refused} refused by both, known differences {known:?}"
    );
    assert!(taken > count / 2 && refused > count / 100);
}

/// Returns the known reason why only one of the two decoders accepts a flow specification.
fn reason_of(
    ours: &Result<FlowRule, FlowRuleError>,
    theirs: &Result<FlowSpecNlri, FlowSpecError>,
) -> Option<&'static str> {
    match (ours, theirs) {
        (Ok(_), Err(FlowSpecError::InvalidOperator(operator))) if operator & 0x0c != 0 => Some(
            "bgpkit-parser refuses the bit of an operator that RFC 8955, section 4.2.1.1, says to ignore",
        ),
        (Err(FlowRuleError::UnknownType(13)), Ok(_)) => Some(
            "bgpkit-parser takes a flow label, which only rules of IPv6 have (RFC 8956, section 3.7), in IPv4",
        ),
        (Err(FlowRuleError::Malformed(1 | 2)), Ok(theirs)) if theirs.is_ipv6() => {
            Some("bgpkit-parser takes prefixes of more than 32 bits in rules of IPv4 for IPv6")
        }
        _ => None,
    }
}
