//! The tags of the frames at an end.

use millrace_ix_model::{TagType, VlanConfig as ModelVlan, VlanId, VlanRequest};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::problem::Problem;
use crate::v2::view::invalid;

/// The EtherType of an outer tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) enum Ethertype {
    #[serde(rename = "0x8100")]
    CTag,
    #[serde(rename = "0x88a8")]
    STag,
}

impl From<Ethertype> for TagType {
    fn from(ethertype: Ethertype) -> TagType {
        match ethertype {
            Ethertype::CTag => TagType::CTag,
            Ethertype::STag => TagType::STag,
        }
    }
}

impl From<TagType> for Ethertype {
    fn from(tag: TagType) -> Ethertype {
        match tag {
            TagType::CTag => Ethertype::CTag,
            TagType::STag => Ethertype::STag,
        }
    }
}

const fn c_tag() -> Ethertype {
    Ethertype::CTag
}

/// The tags of the frames at an end. In an order, the exchange chooses a VID that is null.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(tag = "vlan_type", rename_all = "snake_case")]
pub(crate) enum VlanConfig {
    /// The whole connection: untagged frames, or every frame if the other end has the same type.
    Port,
    /// One tag.
    Dot1q {
        /// The VID.
        #[serde(default)]
        #[schema(minimum = 1, maximum = 4094)]
        vlan: Option<u16>,
        /// The EtherType of the tag.
        #[serde(default = "c_tag")]
        vlan_ethertype: Ethertype,
    },
    /// Two tags.
    Qinq {
        /// The VID of the outer tag.
        #[serde(default)]
        #[schema(minimum = 1, maximum = 4094)]
        outer_vlan: Option<u16>,
        /// The VID of the inner tag.
        #[serde(default)]
        #[schema(minimum = 1, maximum = 4094)]
        inner_vlan: Option<u16>,
        /// The EtherType of the outer tag.
        #[serde(default = "c_tag")]
        outer_vlan_ethertype: Ethertype,
    },
}

impl From<ModelVlan> for VlanConfig {
    fn from(vlan: ModelVlan) -> VlanConfig {
        match vlan {
            ModelVlan::Port => VlanConfig::Port,
            ModelVlan::Dot1q { vlan, ethertype } => VlanConfig::Dot1q {
                vlan: Some(vlan.raw()),
                vlan_ethertype: ethertype.into(),
            },
            ModelVlan::Qinq {
                outer,
                inner,
                ethertype,
            } => VlanConfig::Qinq {
                outer_vlan: Some(outer.raw()),
                inner_vlan: Some(inner.raw()),
                outer_vlan_ethertype: ethertype.into(),
            },
        }
    }
}

impl VlanConfig {
    /// Converts the tags to the type of the model's orders.
    ///
    /// # Errors
    /// A problem with the property that has no VID.
    pub(super) fn request(&self) -> Result<VlanRequest, Problem> {
        let vid = |property: &str, vid: Option<u16>| {
            vid.map(VlanId::new)
                .transpose()
                .map_err(|error| invalid(&format!("vlan_config/{property}"), error.to_string()))
        };
        Ok(match self {
            VlanConfig::Port => VlanRequest::Port,
            VlanConfig::Dot1q { vlan, vlan_ethertype } => VlanRequest::Dot1q {
                vlan: vid("vlan", *vlan)?,
                ethertype: (*vlan_ethertype).into(),
            },
            VlanConfig::Qinq {
                outer_vlan,
                inner_vlan,
                outer_vlan_ethertype,
            } => VlanRequest::Qinq {
                outer: vid("outer_vlan", *outer_vlan)?,
                inner: vid("inner_vlan", *inner_vlan)?,
                ethertype: (*outer_vlan_ethertype).into(),
            },
        })
    }
}
