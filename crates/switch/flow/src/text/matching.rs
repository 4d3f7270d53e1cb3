//! Matches in the syntax of Open vSwitch.

use core::fmt;
use core::str::FromStr;

use super::error::{TextError, TextProblem, nearest};
use super::scan::Span;
use super::value::{self, Masked, VID_PRESENT};
use crate::field::{Field, Prerequisite};
use crate::matching::{Match, MatchField};

/// A word that stands for an EtherType, and for some words also an IP protocol.
struct Shorthand {
    name: &'static str,
    eth_type: u16,
    ip_proto: Option<u8>,
}

const fn shorthand(name: &'static str, eth_type: u16, ip_proto: Option<u8>) -> Shorthand {
    Shorthand {
        name,
        eth_type,
        ip_proto,
    }
}

const SHORTHANDS: [Shorthand; 15] = [
    shorthand("ip", 0x0800, None),
    shorthand("icmp", 0x0800, Some(1)),
    shorthand("tcp", 0x0800, Some(6)),
    shorthand("udp", 0x0800, Some(17)),
    shorthand("sctp", 0x0800, Some(132)),
    shorthand("ipv6", 0x86dd, None),
    shorthand("icmp6", 0x86dd, Some(58)),
    shorthand("tcp6", 0x86dd, Some(6)),
    shorthand("udp6", 0x86dd, Some(17)),
    shorthand("sctp6", 0x86dd, Some(132)),
    shorthand("arp", 0x0806, None),
    shorthand("rarp", 0x8035, None),
    shorthand("mpls", 0x8847, None),
    shorthand("mplsm", 0x8848, None),
    shorthand("pbb", 0x88e7, None),
];

/// A name that several fields share. The match has the prerequisites of one of these fields.
struct SharedName {
    name: &'static str,
    fields: &'static [Field],
    /// True if this name is printed instead of the names of the fields.
    shown: bool,
}

const fn shared(name: &'static str, fields: &'static [Field], shown: bool) -> SharedName {
    SharedName { name, fields, shown }
}

const SHARED_NAMES: [SharedName; 6] = [
    shared("tp_src", &[Field::TcpSrc, Field::UdpSrc, Field::SctpSrc], true),
    shared("tp_dst", &[Field::TcpDst, Field::UdpDst, Field::SctpDst], true),
    shared("icmp_type", &[Field::Icmpv4Type, Field::Icmpv6Type], true),
    shared("icmp_code", &[Field::Icmpv4Code, Field::Icmpv6Code], true),
    shared("nw_src", &[Field::Ipv4Src, Field::ArpSpa], false),
    shared("nw_dst", &[Field::Ipv4Dst, Field::ArpTpa], false),
];

/// Additional names of single fields, besides the names of the specification and of ovs-ofctl.
const ALIASES: [(&str, Field); 4] = [
    ("ip_src", Field::Ipv4Src),
    ("ip_dst", Field::Ipv4Dst),
    ("nw_dscp", Field::IpDscp),
    ("ip_ecn", Field::IpEcn),
];

/// Names with another value format than their field: the VLAN identifier without `OFPVID_PRESENT`, and the whole
/// traffic class for the DSCP.
const VLAN_NAME: &str = "dl_vlan";
const TOS_NAME: &str = "nw_tos";

/// The value of `dl_vlan` that matches untagged packets (`OFP_VLAN_NONE` of OpenFlow 1.0, kept by Open vSwitch).
const DL_VLAN_NONE: u128 = 0xffff;

/// Returns the field with this name, if the name belongs to exactly one field.
pub(super) fn field_named(name: &str) -> Option<Field> {
    let alias = || {
        ALIASES
            .iter()
            .find(|(alias, _)| *alias == name)
            .map(|(_, field)| *field)
    };
    let row = Field::ALL
        .into_iter()
        .find(|field| field.name() == name || field.ovs_name() == name);
    row.or_else(alias)
}

/// Returns the fields with this name, if several fields share it.
pub(super) fn candidates(name: &str) -> Option<&'static [Field]> {
    SHARED_NAMES
        .iter()
        .find(|shared| shared.name == name)
        .map(|shared| shared.fields)
}

/// Returns the name that is printed for a field.
fn shown_name(field: Field) -> &'static str {
    let shared = SHARED_NAMES
        .iter()
        .find(|shared| shared.shown && shared.fields.contains(&field));
    shared.map_or_else(|| field.ovs_name(), |shared| shared.name)
}

/// Returns every name that may begin an item of a match.
fn names() -> impl Iterator<Item = &'static str> {
    let fields = Field::ALL
        .into_iter()
        .flat_map(|field| [field.name(), field.ovs_name()]);
    let shared = SHARED_NAMES.iter().map(|shared| shared.name);
    let aliases = ALIASES.iter().map(|(name, _)| *name);
    let words = SHORTHANDS.iter().map(|word| word.name);
    fields
        .chain(shared)
        .chain(aliases)
        .chain(words)
        .chain([VLAN_NAME, TOS_NAME])
}

/// The items of a match that is being parsed; the fields are sorted by OXM number at the end.
#[derive(Default)]
pub(crate) struct ParsedMatch<'a> {
    given: Vec<(MatchField, Span<'a>)>,
    /// Values of shared names. The field of a shared name is known at the end.
    shared: Vec<(&'static [Field], Span<'a>, Span<'a>)>,
}

impl<'a> ParsedMatch<'a> {
    /// Adds one item.
    ///
    /// # Errors
    /// [`TextError`] if `item` is not an item of a match.
    pub(crate) fn take(&mut self, item: Span<'a>) -> Result<(), TextError> {
        let Some((name, value)) = item.split(&['=']) else {
            return self.word(item);
        };
        if let Some(word) = SHORTHANDS.iter().find(|word| word.name == name.text()) {
            return Err(item.expected(format!("`{}` without a value", word.name)));
        }
        let text = name.text();
        if let Some(fields) = candidates(text) {
            if value.text() != "*" {
                self.shared.push((fields, item, value));
            }
        } else if text == VLAN_NAME {
            self.dl_vlan(item, value)?;
        } else if text == TOS_NAME {
            self.push(Field::IpDscp, value::type_of_service(value)?, None, item);
        } else if let Some(field) = field_named(text) {
            if value.text() != "*" {
                let (value, mask) = value::masked(field, value)?;
                self.push(field, value, mask, item);
            }
        } else {
            return Err(unknown(name));
        }
        Ok(())
    }

    fn word(&mut self, item: Span<'a>) -> Result<(), TextError> {
        let Some(word) = SHORTHANDS.iter().find(|word| word.name == item.text()) else {
            let is_field = names().any(|name| name == item.text());
            return Err(if is_field {
                item.expected(format!("`{}=` and a value", item.text()))
            } else {
                unknown(item)
            });
        };
        self.push(Field::EthType, word.eth_type.into(), None, item);
        if let Some(proto) = word.ip_proto {
            self.push(Field::IpProto, proto.into(), None, item);
        }
        Ok(())
    }

    fn dl_vlan(&mut self, item: Span<'a>, value: Span<'a>) -> Result<(), TextError> {
        let vid = value::number(value.text());
        match vid {
            Some(DL_VLAN_NONE) => self.push(Field::VlanVid, 0, None, item),
            Some(vid) if vid <= 0xfff => self.push(Field::VlanVid, vid | VID_PRESENT, None, item),
            _ if value.text() == "*" => {}
            _ => return Err(value.expected("a VLAN id from 0 to 4095, or 0xffff for no tag")),
        }
        Ok(())
    }

    fn push(&mut self, field: Field, value: u128, mask: Option<u128>, item: Span<'a>) {
        self.given.push((MatchField { field, value, mask }, item));
    }

    /// Returns true if the fields so far meet the prerequisites of `field`.
    fn allows(&self, field: Field) -> bool {
        match field.prerequisite() {
            Prerequisite::OneOf(needed, values) => self.given.iter().any(|(given, _)| {
                given.field == needed && values.iter().any(|value| u128::from(*value) == given.value)
            }),
            _ => true,
        }
    }

    /// Returns the match.
    ///
    /// # Errors
    /// [`TextError`] if the match is invalid.
    pub(crate) fn finish(mut self) -> Result<Match, TextError> {
        for (fields, item, text) in core::mem::take(&mut self.shared) {
            let meant = fields
                .iter()
                .find(|field| self.allows(**field))
                .or(fields.first());
            if let Some(field) = meant {
                let (value, mask) = value::masked(*field, text)?;
                self.push(*field, value, mask, item);
            }
        }
        // The sort is stable, so that of two items with the same field the second one is reported. A repetition of the
        // same value, as in `ip,tcp`, is allowed.
        self.given.sort_by_key(|(given, _)| given.field);
        self.given.dedup_by_key(|(given, _)| *given);
        let mut builder = Match::builder();
        for (given, item) in &self.given {
            builder
                .push(given.field, given.value, given.mask)
                .map_err(|error| item.error(error))?;
        }
        builder.finish().map_err(|error| {
            let culprit = self.given.iter().find(|(given, _)| match error {
                crate::MatchError::BadPrereq { field } | crate::MatchError::LaterFragment { field } => {
                    given.field == field
                }
                _ => false,
            });
            culprit.map_or_else(|| Span::new("").error(error), |(_, item)| item.error(error))
        })
    }
}

fn unknown(name: Span<'_>) -> TextError {
    name.error(TextProblem::UnknownName {
        kind: "match field",
        nearest: nearest(name.text(), names()),
    })
}

impl FromStr for Match {
    type Err = TextError;

    /// Parses items such as `in_port=1,tcp,nw_src=10.0.0.0/8,tp_dst=80`, separated by commas or blanks. The fields of
    /// the result are in the order of OXM numbers, in which each follows its prerequisites.
    fn from_str(text: &str) -> Result<Match, TextError> {
        let mut draft = ParsedMatch::default();
        for item in Span::new(text).items()? {
            draft.take(item)?;
        }
        draft.finish()
    }
}

impl fmt::Display for Match {
    /// Writes the match as ovs-ofctl prints it: the shorthand of the protocol, then the fields in the order of OXM
    /// numbers. A match that every packet satisfies is the empty string.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields: Vec<MatchField> = self.iter().collect();
        fields.sort_by_key(|given| given.field);
        let exact = |field| {
            let given = fields.iter().find(|given: &&MatchField| given.field == field);
            given
                .filter(|given| given.mask.is_none())
                .map(|given| given.value)
        };
        let (eth_type, ip_proto) = (exact(Field::EthType), exact(Field::IpProto));
        let with = |proto: Option<u128>| {
            let mut words = SHORTHANDS.iter();
            words.find(|word| {
                Some(u128::from(word.eth_type)) == eth_type && word.ip_proto.map(u128::from) == proto
            })
        };
        let word = ip_proto
            .and_then(|proto| with(Some(proto)))
            .or_else(|| with(None));
        let mut comma = "";
        if let Some(word) = word {
            write!(f, "{}", word.name)?;
            comma = ",";
        }
        for given in fields {
            let MatchField { field, value, mask } = given;
            match (field, word) {
                (Field::EthType, Some(_))
                | (
                    Field::IpProto,
                    Some(Shorthand {
                        ip_proto: Some(_), ..
                    }),
                ) => continue,
                (Field::VlanVid, _) if mask.is_none() && value & VID_PRESENT != 0 => {
                    write!(f, "{comma}{VLAN_NAME}={}", value & !VID_PRESENT)?;
                }
                _ => write!(
                    f,
                    "{comma}{}={}",
                    shown_name(field),
                    Masked { field, value, mask }
                )?,
            }
            comma = ",";
        }
        Ok(())
    }
}
