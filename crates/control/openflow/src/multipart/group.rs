//! GROUP, GROUP_DESC and GROUP_FEATURES (OpenFlow 1.3.5, sections 7.3.5.9 to 7.3.5.11).

use millrace_flow::Bucket;
use millrace_types::{Duration, GroupId};

use super::{MultipartType, ReplyPart, decode_list, sized};
use crate::bytes::{PutBytes, Reader};
use crate::codes::wire_flags;
use crate::decode_error::DecodeError;
use crate::group_mod::{GroupType, decode_buckets, encode_buckets};

/// `ofp_group_stats_request`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GroupStatsRequest {
    /// The group, or [`GroupId::ALL`].
    pub group: GroupId,
}

impl GroupStatsRequest {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<GroupStatsRequest, DecodeError> {
        let group = GroupId(reader.u32()?);
        reader.skip(4)?;
        Ok(GroupStatsRequest { group })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.group.0);
        out.zeros(4);
    }
}

/// `ofp_bucket_counter` of a group, or the band counter of a meter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Count {
    pub packets: u64,
    /// The bytes of these packets.
    pub bytes: u64,
}

impl Count {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Count, DecodeError> {
        Ok(Count {
            packets: reader.u64()?,
            bytes: reader.u64()?,
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u64(self.packets);
        out.u64(self.bytes);
    }
}

/// `ofp_group_stats`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GroupStats {
    pub group: GroupId,
    /// The number of entries and groups that forward to the group.
    pub references: u32,
    /// The traffic of the group.
    pub total: Count,
    /// The time since the group was added.
    pub duration: Duration,
    /// The traffic of each bucket.
    pub buckets: Box<[Count]>,
}

impl GroupStats {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<GroupStats, DecodeError> {
        let mut body = sized(reader)?;
        body.skip(2)?;
        let group = GroupId(body.u32()?);
        let references = body.u32()?;
        body.skip(4)?;
        Ok(GroupStats {
            group,
            references,
            total: Count::decode(&mut body)?,
            duration: body.duration()?,
            buckets: decode_list(&mut body, Count::decode)?.into_boxed_slice(),
        })
    }
}

impl ReplyPart for GroupStats {
    const TYPE: MultipartType = MultipartType::Group;

    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.zeros(4);
        out.u32(self.group.0);
        out.u32(self.references);
        out.zeros(4);
        self.total.encode(out);
        out.duration(self.duration);
        for bucket in &self.buckets {
            bucket.encode(out);
        }
        out.length_at(start, start);
    }
}

/// `ofp_group_desc`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GroupDesc {
    /// The type of the group.
    pub type_: GroupType,
    pub group: GroupId,
    /// The buckets of the group.
    pub buckets: Box<[Bucket]>,
}

impl GroupDesc {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<GroupDesc, DecodeError> {
        let mut body = sized(reader)?;
        let type_ = body.u8()?;
        body.skip(1)?;
        Ok(GroupDesc {
            type_: GroupType::from_raw(type_).ok_or(DecodeError::GroupType { type_ })?,
            group: GroupId(body.u32()?),
            buckets: decode_buckets(Reader::new(body.drain()))?,
        })
    }
}

impl ReplyPart for GroupDesc {
    const TYPE: MultipartType = MultipartType::GroupDesc;

    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u16(0);
        out.u8(self.type_.raw());
        out.zeros(1);
        out.u32(self.group.0);
        encode_buckets(&self.buckets, out);
        out.length_at(start, start);
    }
}

wire_flags! {
    /// `ofp_group_capabilities`.
    GroupCapabilities(u32) {
        /// Select groups support weights.
        SELECT_WEIGHT = 1 "select_weight",
        /// Select groups support liveness.
        SELECT_LIVENESS = 2 "select_liveness",
        /// Groups can forward to groups.
        CHAINING = 4 "chaining",
        /// The switch refuses groups that form a loop.
        CHAINING_CHECKS = 8 "chaining_checks",
    }
}

/// `ofp_group_features`. Arrays are indexed by [`GroupType`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct GroupFeatures {
    /// Bit `1 << type` is set for each supported type.
    pub types: u32,
    /// The capabilities of groups.
    pub capabilities: GroupCapabilities,
    /// The maximum number of groups of each type.
    pub max_groups: [u32; 4],
    /// For each group type, bit `1 << action type` is set for each action that its buckets can have.
    pub actions: [u32; 4],
}

impl GroupFeatures {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<GroupFeatures, DecodeError> {
        let mut features = GroupFeatures {
            types: reader.u32()?,
            capabilities: GroupCapabilities::from_raw_truncated(reader.u32()?),
            ..GroupFeatures::default()
        };
        for word in features.max_groups.iter_mut().chain(&mut features.actions) {
            *word = reader.u32()?;
        }
        Ok(features)
    }
}

impl ReplyPart for GroupFeatures {
    const TYPE: MultipartType = MultipartType::GroupFeatures;

    fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.types);
        out.u32(self.capabilities.raw());
        for word in self.max_groups.iter().chain(&self.actions) {
            out.u32(*word);
        }
    }
}
