//! GROUP_MOD: adds, modifies and deletes groups (OpenFlow 1.3.5, section 7.3.4.2).

use millrace_flow::Bucket;
use millrace_types::{GroupId, PortNo};

use crate::action::{decode_actions, encode_actions};
use crate::bytes::{PutBytes, Reader};
use crate::codes::wire_enum;
use crate::decode_error::DecodeError;

wire_enum! {
    /// `ofp_group_mod_command`.
    GroupModCommand(u16) {
        /// Adds a group.
        Add = 0 "add",
        /// Replaces type and buckets of a group.
        Modify = 1 "modify",
        /// Deletes a group, or all groups.
        Delete = 2 "delete",
    }
}

wire_enum! {
    /// `ofp_group_type`.
    GroupType(u8) {
        /// Every bucket processes a copy of the packet.
        All = 0 "all",
        /// One bucket, which the switch chooses, processes the packet.
        Select = 1 "select",
        /// The single bucket processes the packet.
        Indirect = 2 "indirect",
        /// The first live bucket processes the packet.
        FastFailover = 3 "ff",
    }
}

const BUCKET_SIZE: usize = 16;

/// Reads the buckets that fill the rest of a message or of an item.
pub(crate) fn decode_buckets(mut list: Reader<'_>) -> Result<Box<[Bucket]>, DecodeError> {
    let mut buckets = Vec::new();
    while !list.is_empty() {
        let length = list.u16()?;
        let bad = DecodeError::Bucket { length };
        let rest = usize::from(length).checked_sub(2).ok_or(bad)?;
        let mut body = Reader::new(list.take(rest).map_err(|_| bad)?);
        if usize::from(length) < BUCKET_SIZE || length % 8 != 0 {
            return Err(bad);
        }
        let weight = body.u16()?;
        let watch_port = PortNo::from_raw(body.u32()?);
        let watch_group = GroupId(body.u32()?);
        body.skip(4)?;
        buckets.push(Bucket {
            weight,
            watch_port,
            watch_group,
            actions: decode_actions(body.rest())?,
        });
    }
    Ok(buckets.into_boxed_slice())
}

pub(crate) fn encode_buckets(buckets: &[Bucket], out: &mut Vec<u8>) {
    for bucket in buckets {
        let start = out.len();
        out.u16(0);
        out.u16(bucket.weight);
        out.u32(bucket.watch_port.raw());
        out.u32(bucket.watch_group.0);
        out.zeros(4);
        encode_actions(&bucket.actions, out);
        out.length_at(start, start);
    }
}

/// `ofp_group_mod`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GroupMod {
    pub command: GroupModCommand,
    /// The type of the group.
    pub type_: GroupType,
    /// The group; [`GroupId::ALL`] is valid only in a delete.
    pub group: GroupId,
    /// The buckets of the group.
    pub buckets: Box<[Bucket]>,
}

impl GroupMod {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<GroupMod, DecodeError> {
        let command = reader.u16()?;
        let type_ = reader.u8()?;
        reader.skip(1)?;
        let group = GroupId(reader.u32()?);
        let command = GroupModCommand::from_raw(command).ok_or(DecodeError::GroupModCommand { command })?;
        let type_ = GroupType::from_raw(type_).ok_or(DecodeError::GroupType { type_ })?;
        let deletes_all = command == GroupModCommand::Delete && group == GroupId::ALL;
        if group > GroupId::MAX && !deletes_all {
            return Err(DecodeError::GroupNumber { group });
        }
        Ok(GroupMod {
            command,
            type_,
            group,
            buckets: decode_buckets(Reader::new(reader.drain()))?,
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u16(self.command.raw());
        out.u8(self.type_.raw());
        out.zeros(1);
        out.u32(self.group.0);
        encode_buckets(&self.buckets, out);
    }
}
