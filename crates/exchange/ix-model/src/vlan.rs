//! The tags of an end of a service: VLAN identifiers, and what an order asks for.

use core::fmt;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A VLAN identifier that frames can have: 1 to 4094.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct VlanId(u16);

/// A number that is no VLAN identifier (IEEE 802.1Q-2018, table 9-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{0} is no VLAN: expected 1 to 4094")]
pub struct VlanIdError(u16);

impl VlanId {
    /// Returns the VLAN identifier.
    ///
    /// # Errors
    /// [`VlanIdError`] for 0 and for more than 4094.
    pub const fn new(raw: u16) -> Result<VlanId, VlanIdError> {
        if raw == 0 || raw > 4094 {
            return Err(VlanIdError(raw));
        }
        Ok(VlanId(raw))
    }

    /// Returns the number.
    pub const fn raw(self) -> u16 {
        self.0
    }

    /// Returns the VLANs that automatic selection offers: 2 to 4094, because many routers use VLAN 1 themselves.
    pub fn offered() -> impl Iterator<Item = VlanId> {
        (2..=4094).map(VlanId)
    }
}

impl TryFrom<u16> for VlanId {
    type Error = VlanIdError;

    fn try_from(raw: u16) -> Result<VlanId, VlanIdError> {
        VlanId::new(raw)
    }
}

impl From<VlanId> for u16 {
    fn from(vlan: VlanId) -> u16 {
        vlan.0
    }
}

impl fmt::Display for VlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.to_string())
    }
}

/// The EtherType of a tag.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub enum TagType {
    /// A customer tag, 0x8100.
    #[default]
    #[serde(rename = "0x8100")]
    CTag,
    /// A service tag, 0x88a8.
    #[serde(rename = "0x88a8")]
    STag,
}

impl TagType {
    /// Returns the EtherType.
    pub const fn ethertype(self) -> u16 {
        match self {
            TagType::CTag => 0x8100,
            TagType::STag => 0x88a8,
        }
    }
}

/// The tags of the frames at an end, as IX-API names them. OpenFlow 1.3 cannot match the EtherType of a tag,
/// so that an outer VID belongs to one end, whatever its tag type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum VlanConfig {
    /// The whole connection: untagged frames, or every frame if the other end has the same type.
    Port,
    /// One tag.
    Dot1q {
        /// The VID.
        vlan: VlanId,
        /// The EtherType of the tag.
        #[serde(default)]
        ethertype: TagType,
    },
    /// Two tags; the inner one is a C-tag.
    Qinq {
        /// The VID of the outer tag.
        outer: VlanId,
        /// The VID of the inner tag.
        inner: VlanId,
        /// The EtherType of the outer tag.
        #[serde(default = "service_tag")]
        ethertype: TagType,
    },
}

/// Returns the usual EtherType of an outer tag.
const fn service_tag() -> TagType {
    TagType::STag
}

impl VlanConfig {
    /// Returns the VID of the first tag.
    pub const fn outer(self) -> Option<VlanId> {
        match self {
            VlanConfig::Port => None,
            VlanConfig::Dot1q { vlan, .. } => Some(vlan),
            VlanConfig::Qinq { outer, .. } => Some(outer),
        }
    }

    /// Returns true if a connection cannot have both ends, because a frame could belong to either.
    pub fn conflicts(self, other: VlanConfig) -> bool {
        match (self, other) {
            (VlanConfig::Port, _) | (_, VlanConfig::Port) => true,
            (
                VlanConfig::Qinq {
                    outer,
                    inner,
                    ethertype,
                    ..
                },
                VlanConfig::Qinq {
                    outer: other_outer,
                    inner: other_inner,
                    ethertype: other_ethertype,
                },
            ) => outer == other_outer && (inner == other_inner || ethertype != other_ethertype),
            _ => self.outer() == other.outer(),
        }
    }
}

impl fmt::Display for VlanConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VlanConfig::Port => f.write_str("the whole port"),
            VlanConfig::Dot1q { vlan, .. } => write!(f, "VLAN {vlan}"),
            VlanConfig::Qinq { outer, inner, .. } => write!(f, "VLAN {outer}.{inner}"),
        }
    }
}

/// The tags that an order requests. An absent VID is selected automatically.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum VlanRequest {
    /// The whole connection: untagged frames, or every frame if the other end has the same type.
    Port,
    /// One tag.
    Dot1q {
        /// The VID; the lowest free one if absent.
        #[serde(default)]
        vlan: Option<VlanId>,
        /// The EtherType of the tag.
        #[serde(default)]
        ethertype: TagType,
    },
    /// Two tags.
    Qinq {
        /// The VID of the outer tag; if absent, the lowest VID with a free inner VID.
        #[serde(default)]
        outer: Option<VlanId>,
        /// The VID of the inner tag; the lowest free one if absent.
        #[serde(default)]
        inner: Option<VlanId>,
        /// The EtherType of the outer tag.
        #[serde(default = "service_tag")]
        ethertype: TagType,
    },
}

impl From<VlanConfig> for VlanRequest {
    fn from(config: VlanConfig) -> VlanRequest {
        match config {
            VlanConfig::Port => VlanRequest::Port,
            VlanConfig::Dot1q { vlan, ethertype } => VlanRequest::Dot1q {
                vlan: Some(vlan),
                ethertype,
            },
            VlanConfig::Qinq {
                outer,
                inner,
                ethertype,
            } => VlanRequest::Qinq {
                outer: Some(outer),
                inner: Some(inner),
                ethertype,
            },
        }
    }
}

impl VlanRequest {
    /// Returns the requested tags. An absent VID becomes the lowest VID that causes no conflict with `taken`.
    /// Returns `None` if every choice conflicts.
    pub fn select(self, taken: &[VlanConfig]) -> Option<VlanConfig> {
        let is_free = |config: &VlanConfig| !taken.iter().any(|other| other.conflicts(*config));
        let vids = |vid: Option<VlanId>| {
            let (fixed, open) = (vid, vid.is_none());
            fixed.into_iter().chain(VlanId::offered().filter(move |_| open))
        };
        match self {
            VlanRequest::Port => Some(VlanConfig::Port).filter(is_free),
            VlanRequest::Dot1q { vlan, ethertype } => vids(vlan)
                .map(|vlan| VlanConfig::Dot1q { vlan, ethertype })
                .find(is_free),
            VlanRequest::Qinq {
                outer,
                inner,
                ethertype,
            } => vids(outer).find_map(|outer| {
                let mut used = BTreeSet::new();
                for other in taken {
                    match *other {
                        VlanConfig::Qinq {
                            outer: other_outer,
                            inner,
                            ethertype: other_ethertype,
                        } if (other_outer, other_ethertype) == (outer, ethertype) => {
                            used.insert(inner);
                        }
                        // Such an end conflicts with every inner VID.
                        other if other.outer().is_none_or(|other| other == outer) => return None,
                        _ => {}
                    }
                }
                let inner = vids(inner).find(|inner| !used.contains(inner))?;
                Some(VlanConfig::Qinq {
                    outer,
                    inner,
                    ethertype,
                })
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dot1q(vlan: u16) -> VlanConfig {
        VlanConfig::Dot1q {
            vlan: VlanId::new(vlan).unwrap(),
            ethertype: TagType::CTag,
        }
    }

    fn qinq(outer: u16, inner: u16) -> VlanConfig {
        VlanConfig::Qinq {
            outer: VlanId::new(outer).unwrap(),
            inner: VlanId::new(inner).unwrap(),
            ethertype: TagType::STag,
        }
    }

    #[test]
    fn only_ends_that_a_frame_can_tell_apart_share_a_connection() {
        assert!(dot1q(100).conflicts(dot1q(100)));
        assert!(!dot1q(100).conflicts(dot1q(101)));
        assert!(
            dot1q(100).conflicts(qinq(100, 5)),
            "a match on one tag covers both"
        );
        assert!(!qinq(100, 5).conflicts(qinq(100, 6)));
        assert!(qinq(100, 5).conflicts(qinq(100, 5)));
        assert!(VlanConfig::Port.conflicts(dot1q(7)) && qinq(1, 2).conflicts(VlanConfig::Port));
    }

    #[test]
    fn an_open_vid_is_the_lowest_free_one() {
        let open = VlanRequest::Dot1q {
            vlan: None,
            ethertype: TagType::CTag,
        };
        assert_eq!(open.select(&[dot1q(2), dot1q(3), qinq(4, 9)]), Some(dot1q(5)));
        let all: Vec<_> = (1..=4094).map(dot1q).collect();
        assert_eq!(open.select(&all), None);
        assert_eq!(VlanRequest::from(dot1q(2)).select(&[dot1q(2)]), None);
        let inner = VlanRequest::Qinq {
            outer: Some(VlanId::new(9).unwrap()),
            inner: None,
            ethertype: TagType::STag,
        };
        assert_eq!(inner.select(&[qinq(9, 2), dot1q(3)]), Some(qinq(9, 3)));
        let both = VlanRequest::Qinq {
            outer: None,
            inner: None,
            ethertype: TagType::STag,
        };
        assert_eq!(both.select(&[qinq(2, 2), qinq(2, 3), dot1q(3)]), Some(qinq(2, 4)));
        assert_eq!(both.select(&[dot1q(2), dot1q(3)]), Some(qinq(4, 2)));
        assert_eq!(both.select(&all), None, "the search ends soon");
        assert_eq!(both.select(&[VlanConfig::Port]), None);
        assert_eq!(VlanRequest::Port.select(&[dot1q(3)]), None);
        assert_eq!(VlanRequest::Port.select(&[]), Some(VlanConfig::Port));
    }

    #[test]
    fn the_json_is_that_of_ix_api() {
        let text = serde_json::to_string(&dot1q(100)).unwrap();
        assert_eq!(text, r#"{"type":"dot1q","vlan":100,"ethertype":"0x8100"}"#);
        assert!(serde_json::from_str::<VlanConfig>(r#"{"type":"dot1q","vlan":4095}"#).is_err());
    }
}
