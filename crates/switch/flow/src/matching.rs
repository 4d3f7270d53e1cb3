//! The match of a controller: OXM fields in the controller's order, validated once.
//!
//! A flow table can hold a million matches, so the fields are packed: a header byte (row of the field table and the
//! "has mask" bit), the value, and the mask, in the sizes of the wire format, without OXM class and length. An exact
//! 5-tuple takes 21 bytes.

use core::fmt;

use millrace_types::Priority;
use thiserror::Error;

use crate::field::{self, Field, FieldSet, Prerequisite};
use crate::key::{FlowKey, FlowMask, Rule};

/// `OFPVID_PRESENT`: the packet has a VLAN tag.
const VID_PRESENT: u128 = 0x1000;

/// The bit of `ip_frag` that is set in all fragments but the first.
const LATER_FRAGMENT: u128 = 0b10;

/// One field of a match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MatchField {
    pub field: Field,
    /// The value, right-aligned.
    pub value: u128,
    /// The bits in which the packet must equal `value`; `None` for all bits of the field.
    pub mask: Option<u128>,
}

/// The reason why a match is invalid; each is one code of `OFPET_BAD_MATCH` (OpenFlow 1.3.5, section 7.5.4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MatchError {
    /// `OFPBMC_BAD_VALUE`.
    #[error("{field}={value:#x} is out of range: expected at most {:#x}{}", .field.max_value(), vid_hint(*.field))]
    BadValue {
        field: Field,
        /// The rejected value.
        value: u128,
    },
    /// `OFPBMC_BAD_MASK`.
    #[error("{field} cannot have mask {mask:#x}: {}", if .field.is_maskable() { "the mask is wider than the field" } else { "the field has no masks, expected an exact value" })]
    BadMask {
        field: Field,
        /// The rejected mask.
        mask: u128,
    },
    /// `OFPBMC_BAD_WILDCARDS`.
    #[error("{field}={value:#x}/{mask:#x} has value bits outside of its mask: expected zeros there")]
    BadWildcards {
        field: Field,
        /// The rejected value.
        value: u128,
        /// The rejected mask.
        mask: u128,
    },
    /// `OFPBMC_DUP_FIELD`.
    #[error("{field} appears twice: expected it once")]
    DupField { field: Field },
    /// `OFPBMC_BAD_PREREQ`.
    #[error("{field} needs {} in the same match", .field.prerequisite())]
    BadPrereq {
        /// The field with a missing prerequisite.
        field: Field,
    },
    /// `OFPBMC_BAD_PREREQ`.
    #[error(
        "{field} does not exist in later fragments: expected nw_frag to be no, yes, first or not_later in the same match"
    )]
    LaterFragment {
        /// The field of TCP, UDP or SCTP.
        field: Field,
    },
}

/// The first part of a match that Open vSwitch defines and OpenFlow 1.3.5 does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Extension {
    /// A field of Open vSwitch.
    #[error("{0} is a match field of Open vSwitch")]
    Field(Field),
    /// A mask on a field that OpenFlow 1.3.5 matches exactly.
    #[error("a mask on {0} is an extension of Open vSwitch")]
    Mask(Field),
}

fn vid_hint(field: Field) -> &'static str {
    if field == Field::VlanVid {
        ", with 0x1000 set unless it is 0"
    } else {
        ""
    }
}

/// A valid match. The fields keep their order. A mask of all ones is dropped, and so is a field with a mask of zero,
/// because both have no effect (OpenFlow 1.3.5, section 7.2.3.5).
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Match {
    packed: Box<[u8]>,
}

impl Match {
    /// Returns the match that every packet satisfies.
    pub fn any() -> Match {
        Match::default()
    }

    /// Returns a builder without fields.
    pub fn builder() -> MatchBuilder {
        MatchBuilder { fields: Vec::new() }
    }

    /// Returns a match of exactly these fields and values.
    ///
    /// # Errors
    /// The errors of [`MatchBuilder::push`] and [`MatchBuilder::finish`].
    pub fn exact(fields: &[(Field, u128)]) -> Result<Match, MatchError> {
        let mut builder = Match::builder();
        for (field, value) in fields {
            builder.push(*field, *value, None)?;
        }
        builder.finish()
    }

    /// Returns the fields, in the order of the controller.
    pub fn iter(&self) -> impl Iterator<Item = MatchField> + '_ {
        let mut rest = &self.packed[..];
        core::iter::from_fn(move || {
            let (header, tail) = rest.split_first()?;
            let field = Field::from_index(header >> 1)?;
            let (value, mut tail) = tail.split_at_checked(field.wire_size())?;
            let mask = if header & 1 == 1 {
                let (mask, after) = tail.split_at_checked(field.wire_size())?;
                tail = after;
                Some(integer(mask))
            } else {
                None
            };
            rest = tail;
            Some(MatchField {
                field,
                value: integer(value),
                mask,
            })
        })
    }

    /// Returns true if every packet satisfies the match.
    pub fn is_any(&self) -> bool {
        self.packed.is_empty()
    }

    /// Returns the value and mask of one field, if the match has the field.
    pub fn field(&self, field: Field) -> Option<MatchField> {
        self.iter().find(|given| given.field == field)
    }

    /// Returns the set of fields in the match.
    pub fn fields(&self) -> FieldSet {
        self.iter().map(|given| given.field).collect()
    }

    /// Returns the first part of the match that OpenFlow 1.3.5 does not define, if there is one.
    pub fn extension(&self) -> Option<Extension> {
        self.iter().find_map(|MatchField { field, mask, .. }| {
            if field.is_extension() {
                Some(Extension::Field(field))
            } else if mask.is_some() && !field.is_maskable_in_standard() {
                Some(Extension::Mask(field))
            } else {
                None
            }
        })
    }

    /// Returns the compiled form.
    pub fn rule(&self, priority: Priority) -> Rule {
        let (mut key, mut mask) = (FlowKey::default(), FlowMask::default());
        for MatchField {
            field,
            value,
            mask: bits,
        } in self.iter()
        {
            let bits_or_all = bits.unwrap_or(field.max_value());
            if bits.is_some() && !field.is_maskable_in_standard() {
                // As in Open vSwitch, a packet without the header has the value zero.
                key.set_field(field, value);
                mask.0.set_field(field, bits_or_all);
            } else {
                key.put(field, value);
                mask.0.put(field, bits_or_all);
            }
        }
        Rule { key, mask, priority }
    }

    /// Returns the size in bytes of the heap memory of this match.
    pub fn heap_size(&self) -> usize {
        self.packed.len()
    }
}

fn integer(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |value, byte| value << 8 | u128::from(*byte))
}

impl fmt::Debug for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for given in self.iter() {
            let value = match given.mask {
                Some(mask) => format!("{:#x}/{mask:#x}", given.value),
                None => format!("{:#x}", given.value),
            };
            map.entry(&format_args!("{}", given.field), &format_args!("{value}"));
        }
        map.finish()
    }
}

/// Collects the fields of a [`Match`].
#[derive(Clone, Debug, Default)]
pub struct MatchBuilder {
    fields: Vec<MatchField>,
}

impl MatchBuilder {
    /// Adds one field.
    ///
    /// # Errors
    /// [`MatchError`] if the value or the mask is invalid, or the match already has the field.
    pub fn push(&mut self, field: Field, value: u128, mask: Option<u128>) -> Result<&mut Self, MatchError> {
        if let Some(mask) = mask {
            if mask > field.max_value() || (!field.is_maskable() && mask != field.max_value()) {
                return Err(MatchError::BadMask { field, mask });
            }
            if value & !mask != 0 {
                return Err(MatchError::BadWildcards { field, value, mask });
            }
        }
        if value > field.max_value() || !is_valid_vid(field, value, mask) {
            return Err(MatchError::BadValue { field, value });
        }
        if self.fields.iter().any(|given| given.field == field) {
            return Err(MatchError::DupField { field });
        }
        let mask = mask.filter(|mask| *mask != field.max_value());
        self.fields.push(MatchField { field, value, mask });
        Ok(self)
    }

    /// Checks the prerequisites, which may come before or after the fields that need them, and packs the match.
    ///
    /// # Errors
    /// [`MatchError`] if a prerequisite is missing.
    pub fn finish(&self) -> Result<Match, MatchError> {
        for given in &self.fields {
            let field = given.field;
            if !self.satisfies(field.prerequisite()) {
                return Err(MatchError::BadPrereq { field });
            }
            if is_of_first_fragment(field) && self.selects_later_fragments() {
                return Err(MatchError::LaterFragment { field });
            }
        }
        let mut packed = Vec::new();
        for given in self.fields.iter().filter(|given| given.mask != Some(0)) {
            packed.push(given.field.index() << 1 | u8::from(given.mask.is_some()));
            let skip = 16 - given.field.wire_size();
            packed.extend_from_slice(&given.value.to_be_bytes()[skip..]);
            if let Some(mask) = given.mask {
                packed.extend_from_slice(&mask.to_be_bytes()[skip..]);
            }
        }
        Ok(Match {
            packed: packed.into_boxed_slice(),
        })
    }

    /// Returns true if the match on `ip_frag` requires the bit that first fragments do not have.
    fn selects_later_fragments(&self) -> bool {
        let mut fragments = self.fields.iter().filter(|given| given.field == Field::IpFrag);
        fragments.any(|given| given.value & LATER_FRAGMENT != 0)
    }

    fn satisfies(&self, prerequisite: Prerequisite) -> bool {
        let given = |field| self.fields.iter().find(|given| given.field == field);
        match prerequisite {
            Prerequisite::None => true,
            Prerequisite::Present(field) => given(field).is_some(),
            Prerequisite::Tagged => given(Field::VlanVid).is_some_and(|vid| vid.value & VID_PRESENT != 0),
            Prerequisite::OneOf(field, values) => given(field).is_some_and(|given| {
                given.mask.is_none() && values.iter().any(|value| u128::from(*value) == given.value)
            }),
        }
    }
}

/// Returns true for fields of TCP, UDP and SCTP, which Open vSwitch rejects in a match on later fragments.
fn is_of_first_fragment(field: Field) -> bool {
    [field::TCP, field::UDP, field::SCTP].contains(&field.prerequisite())
}

/// Returns true if a VLAN identifier other than `OFPVID_NONE` has the bit `OFPVID_PRESENT`, or if the mask excludes
/// that bit (OpenFlow 1.3.5, section 7.2.3.7, table 13).
fn is_valid_vid(field: Field, value: u128, mask: Option<u128>) -> bool {
    field != Field::VlanVid
        || value & VID_PRESENT != 0
        || value == 0
        || mask.is_some_and(|mask| mask & VID_PRESENT == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_in_the_order_given() {
        let fields = [
            (Field::EthType, 0x800),
            (Field::IpProto, 6),
            (Field::TcpDst, 80),
            (Field::InPort, 3),
        ];
        let given = Match::exact(&fields).unwrap();
        let back: Vec<_> = given.iter().map(|field| (field.field, field.value)).collect();
        assert_eq!(back, fields);
    }

    #[test]
    fn the_rule_does_not_depend_on_the_order() {
        let one = Match::exact(&[(Field::EthType, 0x800), (Field::InPort, 3)]).unwrap();
        let two = Match::exact(&[(Field::InPort, 3), (Field::EthType, 0x800)]).unwrap();
        assert_ne!(one, two);
        assert_eq!(one.rule(Priority(1)), two.rule(Priority(1)));
    }

    #[test]
    fn each_illegal_match_has_its_error() {
        let push = |field, value, mask| Match::builder().push(field, value, mask).map(|_| ());
        assert_eq!(
            push(Field::VlanPcp, 8, None),
            Err(MatchError::BadValue {
                field: Field::VlanPcp,
                value: 8
            })
        );
        assert_eq!(
            push(Field::VlanVid, 5, None),
            Err(MatchError::BadValue {
                field: Field::VlanVid,
                value: 5
            })
        );
        assert_eq!(
            push(Field::EthType, 0, Some(0xff)),
            Err(MatchError::BadMask {
                field: Field::EthType,
                mask: 0xff
            })
        );
        assert_eq!(
            push(Field::Metadata, 3, Some(1)),
            Err(MatchError::BadWildcards {
                field: Field::Metadata,
                value: 3,
                mask: 1
            })
        );
        assert_eq!(
            Match::exact(&[(Field::TcpDst, 80)]),
            Err(MatchError::BadPrereq { field: Field::TcpDst })
        );
        assert_eq!(
            Match::exact(&[(Field::InPort, 1), (Field::InPort, 1)]),
            Err(MatchError::DupField { field: Field::InPort })
        );
    }

    #[test]
    fn masks_that_say_nothing_are_dropped() {
        let mut builder = Match::builder();
        builder.push(Field::Metadata, 0, Some(0)).unwrap();
        builder.push(Field::EthDst, 7, Some(0xffff_ffff_ffff)).unwrap();
        let given = builder.finish().unwrap();
        assert_eq!(given, Match::exact(&[(Field::EthDst, 7)]).unwrap());
    }

    #[test]
    fn any_tag_is_matched_with_the_present_bit_alone() {
        let mut builder = Match::builder();
        builder
            .push(Field::VlanVid, 0x1000, Some(0x1000))
            .unwrap()
            .push(Field::VlanPcp, 3, None)
            .unwrap();
        let rule = builder.finish().unwrap().rule(Priority(0));
        let mut key = FlowKey::default();
        assert!(!rule.matches(&key));
        key.put(Field::VlanVid, 0x1064);
        key.put(Field::VlanPcp, 3);
        assert!(rule.matches(&key));
    }

    #[test]
    fn a_port_under_a_mask_and_tcp_flags_are_zero_in_a_packet_without_the_header() {
        let mut fragment = FlowKey::default();
        fragment.put(Field::EthType, 0x800);
        fragment.put(Field::IpProto, 6);
        for (text, matches) in [
            ("tcp,tp_dst=0/0xfc00", true),
            ("tcp,tp_dst=0", false),
            ("tcp,tp_dst=0x400/0xfc00", false),
            ("tcp,tcp_flags=-syn", true),
            ("tcp,tcp_flags=+syn", false),
        ] {
            let rule = text.parse::<Match>().unwrap().rule(Priority(0));
            assert_eq!(rule.matches(&fragment), matches, "{text}");
        }
    }

    #[test]
    fn a_field_of_the_transport_is_not_matched_in_later_fragments() {
        for (text, is_legal) in [
            ("tcp,nw_frag=later", true),
            ("tcp,tp_dst=80,nw_frag=later", false),
            ("udp6,tp_src=7/7,nw_frag=later", false),
            ("tcp,tcp_flags=-syn,nw_frag=later", false),
            ("tcp,tp_dst=80,nw_frag=yes", true),
            ("tcp,tp_dst=80,nw_frag=not_later", true),
        ] {
            assert_eq!(text.parse::<Match>().is_ok(), is_legal, "{text}");
        }
    }

    #[test]
    fn what_the_specification_does_not_define_is_named() {
        let extension = |text: &str| text.parse::<Match>().unwrap().extension();
        assert_eq!(extension("tcp,tp_dst=80,nw_src=10.0.0.0/8,in_port=1"), None);
        assert_eq!(
            extension("tcp,tp_dst=80/0xfff0"),
            Some(Extension::Mask(Field::TcpDst))
        );
        assert_eq!(extension("tcp,tp_dst=80/0xffff"), None, "an exact match");
        assert_eq!(extension("udp,tp_src=0/0"), None, "a mask that says nothing");
        for (text, field) in [
            ("tcp,tcp_flags=+syn", Field::TcpFlags),
            ("ip,nw_frag=later", Field::IpFrag),
            ("ipv6,nw_ttl=1", Field::NwTtl),
        ] {
            assert_eq!(extension(text), Some(Extension::Field(field)), "{text}");
        }
    }

    #[test]
    fn a_field_that_is_zero_differs_from_one_that_is_absent() {
        let zero_port =
            Match::exact(&[(Field::EthType, 0x800), (Field::IpProto, 6), (Field::TcpDst, 0)]).unwrap();
        let rule = zero_port.rule(Priority(0));
        let mut key = FlowKey::default();
        key.put(Field::EthType, 0x800);
        key.put(Field::IpProto, 6);
        assert!(!rule.matches(&key));
        key.put(Field::TcpDst, 0);
        assert!(rule.matches(&key));
    }
}
