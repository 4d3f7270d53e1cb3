//! UPDATE (RFC 4271, section 4.3; RFC 4760), with the error handling of RFC 7606.
//!
//! A session ends only if the routes of a message cannot be located, or if an attribute of an unknown type is
//! marked as well-known. Any other fault affects only an attribute or the routes of the message, and is
//! reported as a [`Problem`].

use core::net::IpAddr;
use std::collections::BTreeSet;

use crate::aspath::AsnSize;
pub use crate::attributes::Treatment;
use crate::attributes::{
    AS_PATH, AttributeParser, Attributes, Context, EXTENDED_LENGTH, LOCAL_PREF, MP_REACH, MP_UNREACH,
    NEXT_HOP, ORIGIN, check_flags, check_next_hop, is_unknown_well_known, mp_next_hop,
};
use crate::family::{Family, FamilySet};
use crate::nlri::{Nlri, read_all, write};
use crate::notification::{Notification, UpdateError};
use crate::reader::Reader;

/// The properties of an established session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Negotiated {
    pub families: FamilySet,
    /// The families for which the peer sends path identifiers.
    pub add_path: FamilySet,
    /// True if AS_PATH has four-octet AS numbers.
    pub has_four_octets: bool,
    /// True if messages may be up to 65,535 bytes long.
    pub has_extended_messages: bool,
    /// True if the peer and the receiver have the same AS number.
    pub is_internal: bool,
    /// The AS number that AS_PATH must begin with; `None` for a route server, which does not add its AS
    /// number.
    pub first_as: Option<u32>,
}

/// Routes of one family that are announced with the same next hop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reach {
    pub family: Family,
    /// The next hop; `None` for flow specifications.
    pub next_hop: Option<IpAddr>,
    pub routes: Vec<Nlri>,
}

/// A fault in a message that does not end the session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The type of the faulty attribute; 0 if the fault is in the list of attributes.
    pub attribute: u8,
    /// The treatment of the attribute or of the routes.
    pub treatment: Treatment,
    /// The error message.
    pub text: String,
}

/// A decoded UPDATE.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Update {
    /// The routes that are withdrawn, including withdrawals by [`Treatment::TreatAsWithdraw`].
    pub withdrawn: Vec<(Family, Nlri)>,
    /// The routes that are announced.
    pub announced: Vec<Reach>,
    /// The attributes of the announced routes, without the next hop.
    pub attributes: Attributes,
    /// The family, if this UPDATE is an End-of-RIB marker (RFC 4724, section 2).
    pub end_of_rib: Option<Family>,
    /// The faults that were found.
    pub problems: Vec<Problem>,
}

impl Update {
    /// Decodes the body of an UPDATE.
    ///
    /// # Errors
    /// The [`Notification`] that ends the session.
    pub fn decode(body: &[u8], session: &Negotiated) -> Result<Update, Notification> {
        let malformed = || Notification::update(UpdateError::MalformedAttributeList);
        let mut reader = Reader(body);
        let len = reader.u16().ok_or_else(malformed)?;
        let withdrawn = reader.take(usize::from(len)).ok_or_else(malformed)?;
        let len = reader.u16().ok_or_else(malformed)?;
        let attributes = reader.take(usize::from(len)).ok_or_else(malformed)?;
        let announced = reader.0;
        let mut decoder = Decoder {
            session,
            update: Update::default(),
            collected: AttributeParser::default(),
            seen: BTreeSet::new(),
            has_cut_attribute: false,
        };
        let is_empty = withdrawn.is_empty() && announced.is_empty();
        if is_empty && attributes.is_empty() {
            decoder.update.end_of_rib = decoder.if_negotiated(Family::Ipv4Unicast);
            return Ok(decoder.update);
        }
        decoder.withdraw(Family::Ipv4Unicast, withdrawn)?;
        decoder.attributes(attributes)?;
        if is_empty && decoder.seen.len() == 1 && decoder.seen.contains(&MP_UNREACH) {
            decoder.end_of_rib(attributes);
        }
        decoder.announce(announced)?;
        decoder.finish(announced.is_empty())
    }

    /// Returns the body of the End-of-RIB marker of a family (RFC 4724, section 2).
    pub fn end_of_rib_body(family: Family) -> Vec<u8> {
        if family == Family::Ipv4Unicast {
            return vec![0; 4];
        }
        let (afi, safi) = family.numbers();
        let [high, low] = afi.to_be_bytes();
        vec![0, 0, 0, 6, 0x80, MP_UNREACH, 3, high, low, safi]
    }

    /// Returns the wire format of routes, for tests and tools.
    pub fn encode_routes(routes: &[Nlri], has_path_ids: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        for route in routes {
            write(route, has_path_ids, &mut bytes);
        }
        bytes
    }
}

struct Decoder<'a> {
    session: &'a Negotiated,
    update: Update,
    collected: AttributeParser,
    seen: BTreeSet<u8>,
    /// True if an attribute exceeds the end of the attribute list.
    has_cut_attribute: bool,
}

impl Decoder<'_> {
    fn problem(&mut self, attribute: u8, treatment: Treatment, text: String) {
        self.update.problems.push(Problem {
            attribute,
            treatment,
            text,
        });
    }

    fn routes(&self, family: Family, bytes: &[u8]) -> Result<Vec<Nlri>, Notification> {
        let has_path_ids = self.session.add_path.contains(family);
        read_all(bytes, family, has_path_ids)
            .ok_or_else(|| Notification::update(UpdateError::InvalidNetworkField))
    }

    fn withdraw(&mut self, family: Family, bytes: &[u8]) -> Result<(), Notification> {
        let routes = self.routes(family, bytes)?;
        if self.session.families.contains(family) {
            self.update
                .withdrawn
                .extend(routes.into_iter().map(|route| (family, route)));
        }
        Ok(())
    }

    fn attributes(&mut self, bytes: &[u8]) -> Result<(), Notification> {
        let mut reader = Reader(bytes);
        while !reader.is_empty() {
            let Some(Attribute { flags, kind, value }) = read_attribute(&mut reader) else {
                // The length of the attribute list is right, so the routes after it can be located (RFC 7606,
                // section 4).
                let text = "an attribute is longer than the list".to_owned();
                self.problem(0, Treatment::TreatAsWithdraw, text);
                self.has_cut_attribute = true;
                break;
            };
            if !self.seen.insert(kind) {
                if matches!(kind, MP_REACH | MP_UNREACH) {
                    return Err(Notification::update(UpdateError::MalformedAttributeList));
                }
                let text = "the attribute occurs twice".to_owned();
                self.problem(kind, Treatment::AttributeDiscard, text);
                continue;
            }
            if is_unknown_well_known(flags, kind) {
                let error = UpdateError::UnrecognizedWellKnownAttribute;
                return Err(Notification::update(error).with_data(&[flags, kind]));
            }
            if let Err(fault) = check_flags(flags, kind) {
                self.problem(kind, fault.treatment, fault.text);
                if !matches!(kind, MP_REACH | MP_UNREACH) {
                    continue;
                }
            }
            match kind {
                MP_REACH => self.mp_reach(value)?,
                MP_UNREACH => self.mp_unreach(value)?,
                _ => {
                    let context = Context {
                        asn_size: if self.session.has_four_octets {
                            AsnSize::Four
                        } else {
                            AsnSize::Two
                        },
                        is_internal: self.session.is_internal,
                    };
                    if let Err(fault) = self.collected.read(kind, value, context) {
                        self.problem(kind, fault.treatment, fault.text);
                    }
                }
            }
        }
        Ok(())
    }

    fn mp_reach(&mut self, value: &[u8]) -> Result<(), Notification> {
        let malformed = || Notification::update(UpdateError::OptionalAttributeError);
        let mut reader = Reader(value);
        let (afi, safi) = (
            reader.u16().ok_or_else(malformed)?,
            reader.u8().ok_or_else(malformed)?,
        );
        let len = reader.u8().ok_or_else(malformed)?;
        let next_hop = reader.take(usize::from(len)).ok_or_else(malformed)?;
        let _reserved = reader.u8().ok_or_else(malformed)?;
        let Some(family) = self.negotiated(afi, safi) else {
            return Ok(());
        };
        // The next hop of flow specifications has no meaning (RFC 8955, section 4).
        let next_hop = if family.is_flowspec() {
            None
        } else {
            let address = mp_next_hop(next_hop, family.afi()).ok_or_else(malformed)?;
            if let Err(text) = check_next_hop(address) {
                self.problem(MP_REACH, Treatment::TreatAsWithdraw, text);
            }
            Some(address)
        };
        let routes = self.routes(family, reader.0)?;
        self.update.announced.push(Reach {
            family,
            next_hop,
            routes,
        });
        Ok(())
    }

    fn mp_unreach(&mut self, value: &[u8]) -> Result<(), Notification> {
        let malformed = || Notification::update(UpdateError::OptionalAttributeError);
        let mut reader = Reader(value);
        let (afi, safi) = (
            reader.u16().ok_or_else(malformed)?,
            reader.u8().ok_or_else(malformed)?,
        );
        match self.negotiated(afi, safi) {
            Some(family) => self.withdraw(family, reader.0),
            None => Ok(()),
        }
    }

    /// Returns the family if it was negotiated; `None` otherwise. Routes of other families are ignored.
    fn negotiated(&self, afi: u16, safi: u8) -> Option<Family> {
        Family::from_numbers(afi, safi).and_then(|family| self.if_negotiated(family))
    }

    fn if_negotiated(&self, family: Family) -> Option<Family> {
        Some(family).filter(|family| self.session.families.contains(*family))
    }

    fn end_of_rib(&mut self, attributes: &[u8]) {
        let mut reader = Reader(attributes);
        if let Some(Attribute {
            kind: MP_UNREACH,
            value: &[high, low, safi],
            ..
        }) = read_attribute(&mut reader)
        {
            self.update.end_of_rib = self.negotiated(u16::from_be_bytes([high, low]), safi);
        }
    }

    fn announce(&mut self, bytes: &[u8]) -> Result<(), Notification> {
        let family = Family::Ipv4Unicast;
        let routes = self.routes(family, bytes)?;
        if routes.is_empty() || !self.session.families.contains(family) {
            return Ok(());
        }
        let mut next_hop = None;
        match &self.collected.next_hop {
            Some(Ok(address)) => next_hop = Some(*address),
            Some(Err(text)) => {
                let text = text.clone();
                self.problem(NEXT_HOP, Treatment::TreatAsWithdraw, text);
            }
            None => self.missing(NEXT_HOP, "NEXT_HOP"),
        }
        self.update.announced.push(Reach {
            family,
            next_hop,
            routes,
        });
        Ok(())
    }

    fn missing(&mut self, attribute: u8, name: &str) {
        if !self.seen.contains(&attribute) {
            let text = format!("{name} is missing");
            self.problem(attribute, Treatment::TreatAsWithdraw, text);
        }
    }

    /// Returns the message with the treatment of all faults.
    ///
    /// # Errors
    /// The [`Notification`] that ends the session, if a fault has [`Treatment::TreatAsWithdraw`], and the message
    /// has no reachable routes but attributes other than MP_UNREACH_NLRI. The fault may hide the routes (RFC 7606,
    /// section 5.2).
    fn finish(mut self, has_no_ipv4_routes: bool) -> Result<Update, Notification> {
        if !self.update.announced.is_empty() {
            self.missing(ORIGIN, "ORIGIN");
            self.missing(AS_PATH, "AS_PATH");
            if self.session.is_internal {
                self.missing(LOCAL_PREF, "LOCAL_PREF");
            }
            if let Some(path) = self.collected.path_with_set() {
                let text = format!("\"{path}\" has an AS_SET or AS_CONFED_SET (RFC 9774)");
                self.problem(AS_PATH, Treatment::TreatAsWithdraw, text);
            }
            let path = &self.collected.attributes.as_path;
            if !self.session.is_internal && path.has_confederation() {
                let text = format!(
                    "\"{path}\" has segments of a confederation that the receiver is not in (RFC 5065)"
                );
                self.problem(AS_PATH, Treatment::TreatAsWithdraw, text);
            }
            let path = &self.collected.attributes.as_path;
            if let Some(expected) = self.session.first_as
                && path.first() != Some(expected)
            {
                let text = format!("\"{path}\" does not begin with the peer's AS {expected}");
                self.problem(AS_PATH, Treatment::TreatAsWithdraw, text);
            }
        }
        self.collected.attributes.as_path = self.collected.take_path();
        let is_withdrawn = |problem: &Problem| problem.treatment == Treatment::TreatAsWithdraw;
        let has_other_attributes = self.has_cut_attribute || self.seen.iter().any(|kind| *kind != MP_UNREACH);
        if self.update.problems.iter().any(is_withdrawn) {
            if has_no_ipv4_routes && !self.seen.contains(&MP_REACH) && has_other_attributes {
                return Err(Notification::update(UpdateError::MalformedAttributeList));
            }
            for reach in core::mem::take(&mut self.update.announced) {
                let routes = reach.routes.into_iter().map(|route| (reach.family, route));
                self.update.withdrawn.extend(routes);
            }
        } else {
            self.update.attributes = self.collected.attributes;
        }
        Ok(self.update)
    }
}

/// A path attribute in its wire format (RFC 4271, section 4.3).
struct Attribute<'a> {
    flags: u8,
    /// The attribute type code.
    kind: u8,
    value: &'a [u8],
}

/// Reads an attribute. Returns `None` if its value is longer than the remaining bytes.
fn read_attribute<'a>(reader: &mut Reader<'a>) -> Option<Attribute<'a>> {
    let (flags, kind) = (reader.u8()?, reader.u8()?);
    let len = if flags & EXTENDED_LENGTH == 0 {
        usize::from(reader.u8()?)
    } else {
        usize::from(reader.u16()?)
    };
    let value = reader.take(len)?;
    Some(Attribute { flags, kind, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_of_rib_marker_of_a_family_that_was_not_negotiated_is_ignored() {
        for family in Family::ALL {
            let mut session = Negotiated {
                families: FamilySet::ALL,
                add_path: FamilySet::default(),
                has_four_octets: true,
                has_extended_messages: false,
                is_internal: false,
                first_as: None,
            };
            let body = Update::end_of_rib_body(family);
            let update = Update::decode(&body, &session).unwrap();
            assert_eq!(update.end_of_rib, Some(family));
            session.families = FamilySet::ALL.without(family);
            let update = Update::decode(&body, &session).unwrap();
            assert_eq!(update.end_of_rib, None, "{family}");
        }
    }

    #[test]
    fn routes_whose_as_path_or_as4_path_has_a_set_are_withdrawn() {
        // ORIGIN, NEXT_HOP, and LOCAL_PREF, which a session inside of an AS needs.
        let others = [0x40, 1, 1, 0, 0x40, 3, 4, 192, 0, 2, 2, 0x40, 5, 4, 0, 0, 0, 100];
        let withdrawn = |has_four_octets: bool, is_internal: bool, paths: &[u8]| {
            let session = Negotiated {
                families: FamilySet::ALL,
                add_path: FamilySet::default(),
                has_four_octets,
                has_extended_messages: false,
                is_internal,
                first_as: None,
            };
            let attributes = [&others[..], paths].concat();
            let mut body = vec![0, 0, 0, attributes.len() as u8];
            body.extend(attributes);
            body.extend([24, 203, 0, 113]);
            let update = Update::decode(&body, &session).unwrap();
            assert_eq!(update.withdrawn.len() + update.announced.len(), 1);
            update.withdrawn.len() == 1
        };
        // AS_PATH 64501, then a segment of this type with 64502.
        let path = |kind: u8| [0x40, 2, 8, 2, 1, 0xfb, 0xf5, kind, 1, 0xfb, 0xf6];
        let path_of_four = |kind: u8| {
            let segments = [2, 1, 0, 0, 0xfb, 0xf5, kind, 1, 0, 0, 0xfb, 0xf6];
            [&[0x40, 2, 12][..], &segments].concat()
        };
        for (kind, is_set) in [(1, true), (2, false), (4, true)] {
            for is_internal in [false, true] {
                assert_eq!(withdrawn(false, is_internal, &path(kind)), is_set, "{kind}");
                assert_eq!(
                    withdrawn(true, is_internal, &path_of_four(kind)),
                    is_set,
                    "{kind}"
                );
            }
            let as4 = [0xc0, 17, 6, kind, 1, 0xfa, 0x56, 0xea, 0];
            let paths = [&path(2)[..], &as4].concat();
            assert_eq!(withdrawn(false, false, &paths), is_set, "AS4_PATH, {kind}");
        }
        // A session with numbers of four octets ignores AS4_PATH.
        let paths = [&path_of_four(2)[..], &[0xc0, 17, 6, 1, 1, 0xfa, 0x56, 0xea, 0]].concat();
        assert!(!withdrawn(true, false, &paths));
    }

    #[test]
    fn as4_path_is_ignored_if_the_aggregator_has_a_number_of_two_octets() {
        let session = Negotiated {
            families: FamilySet::ALL,
            add_path: FamilySet::default(),
            has_four_octets: false,
            has_extended_messages: false,
            is_internal: false,
            first_as: Some(64_501),
        };
        let path = |aggregators: &[&[u8]]| {
            // ORIGIN, AS_PATH 64501 AS_TRANS, NEXT_HOP, AS4_PATH 4200000000.
            let mut attributes = vec![0x40, 1, 1, 0, 0x40, 2, 6, 2, 2, 0xfb, 0xf5, 0x5b, 0xa0];
            attributes.extend([0x40, 3, 4, 192, 0, 2, 2]);
            attributes.extend([0xc0, 17, 6, 2, 1, 0xfa, 0x56, 0xea, 0]);
            attributes.extend(aggregators.concat());
            let mut body = vec![0, 0, 0, attributes.len() as u8];
            body.extend(attributes);
            body.extend([24, 203, 0, 113]);
            let update = Update::decode(&body, &session).unwrap();
            update.attributes.as_path.to_string()
        };
        let as4: &[u8] = &[0xc0, 18, 8, 0xfa, 0x56, 0xea, 0, 192, 0, 2, 9];
        let two_octets: &[u8] = &[0xc0, 7, 6, 0xfb, 0xf6, 192, 0, 2, 9];
        let as_trans: &[u8] = &[0xc0, 7, 6, 0x5b, 0xa0, 192, 0, 2, 9];
        for aggregators in [&[][..], &[two_octets], &[as4], &[as_trans, as4], &[as4, as_trans]] {
            assert_eq!(path(aggregators), "64501 4200000000", "{aggregators:?}");
        }
        for aggregators in [[two_octets, as4], [as4, two_octets]] {
            assert_eq!(path(&aggregators), "64501 23456", "{aggregators:?}");
        }
        // An AS4_AGGREGATOR with an invalid length is discarded.
        assert_eq!(path(&[two_octets, &[0xc0, 18, 3, 0, 0, 0]]), "64501 4200000000");
    }
}
