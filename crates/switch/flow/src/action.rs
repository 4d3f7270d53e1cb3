//! Actions and instructions (OpenFlow 1.3.5, sections 5.9 to 5.12 and 7.2.4 to 7.2.5).

use millrace_types::{GroupId, MeterId, PortNo, QueueId, TableId};
use millrace_wire::EtherType;
use thiserror::Error;

use crate::field::Field;

/// One action.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Send the packet to a port. `max_len` is the number of bytes for the controller if the port is
    /// [`PortNo::CONTROLLER`]; 0xffff (`OFPCML_NO_BUFFER`) is the whole packet.
    Output {
        /// The port; reserved ports are allowed.
        port: PortNo,
        /// The number of bytes for the controller.
        max_len: u16,
    },
    /// Process the packet through a group.
    Group(GroupId),
    /// Choose the queue of the egress port.
    SetQueue(QueueId),
    /// Set the TTL of the outermost MPLS shim header.
    SetMplsTtl(u8),
    /// Decrement the TTL of the outermost MPLS shim header.
    DecMplsTtl,
    /// Set the IPv4 TTL or the IPv6 hop limit.
    SetNwTtl(u8),
    /// Decrement the IPv4 TTL or the IPv6 hop limit.
    DecNwTtl,
    /// Copy the TTL from the next-to-outermost to the outermost header with TTL.
    CopyTtlOut,
    /// Copy the TTL from the outermost to the next-to-outermost header with TTL.
    CopyTtlIn,
    /// Push a VLAN tag with this ethertype: 0x8100 or 0x88a8.
    PushVlan(EtherType),
    /// Pop the outermost VLAN tag.
    PopVlan,
    /// Push an MPLS shim header with this ethertype: 0x8847 or 0x8848.
    PushMpls(EtherType),
    /// Pop the outermost MPLS shim header; the payload has this ethertype.
    PopMpls(EtherType),
    /// Push a PBB service instance header (I-TAG) with this ethertype: 0x88e7.
    PushPbb(EtherType),
    /// Pop the outermost PBB service instance header.
    PopPbb,
    /// Set a header field.
    SetField(SetField),
}

impl Action {
    /// Returns true if the action modifies the packet. Outputs, groups and queues do not.
    pub const fn changes_packet(&self) -> bool {
        !matches!(
            self,
            Action::Output { .. } | Action::Group(_) | Action::SetQueue(_)
        )
    }

    /// Returns an output to a port; the controller gets the whole packet.
    pub const fn output(port: PortNo) -> Action {
        Action::Output {
            port,
            max_len: 0xffff,
        }
    }
}

/// A field and a valid value for it.
///
/// The value is aligned to 32 bits, because a table of a million entries holds a million of these structures.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetField {
    field: Field,
    /// The value, the most significant word first.
    value: [u32; 4],
}

/// The reason why a field cannot be set to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SetFieldError {
    /// `OFPBAC_BAD_SET_TYPE`.
    #[error("{field} is read-only: expected a field that set_field can write")]
    NotSettable { field: Field },
    /// `OFPBAC_BAD_SET_ARGUMENT`.
    #[error("{field}={value:#x} is out of range: expected at most {:#x}", .field.max_value())]
    BadValue {
        field: Field,
        /// The rejected value.
        value: u128,
    },
}

impl SetField {
    /// Returns the field with its value.
    ///
    /// # Errors
    /// [`SetFieldError`] if no action may set the field or the value is too large.
    ///
    /// A VLAN identifier is written with `OFPVID_PRESENT` (0x1000). Without it the bit is implied, because the VLAN
    /// identifier of an untagged packet cannot be set; other code rejects that action.
    pub fn new(field: Field, value: u128) -> Result<SetField, SetFieldError> {
        if !field.is_settable() {
            return Err(SetFieldError::NotSettable { field });
        }
        if value > field.max_value() {
            return Err(SetFieldError::BadValue { field, value });
        }
        Ok(SetField {
            field,
            value: [96, 64, 32, 0].map(|shift| (value >> shift) as u32),
        })
    }

    /// Returns the field.
    #[inline]
    pub const fn field(self) -> Field {
        self.field
    }

    /// Returns the value, right-aligned.
    #[inline]
    pub const fn value(self) -> u128 {
        let [a, b, c, d] = self.value;
        (a as u128) << 96 | (b as u128) << 64 | (c as u128) << 32 | d as u128
    }
}

/// A change of the metadata (OpenFlow 1.3.5, section 5.9).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WriteMetadata {
    pub value: u64,
    /// The bits that change.
    pub mask: u64,
}

impl WriteMetadata {
    /// Returns the metadata after the change.
    #[inline]
    pub const fn apply(self, metadata: u64) -> u64 {
        metadata & !self.mask | self.value & self.mask
    }
}

/// The instructions of a flow entry. Their order of execution is fixed: meter, apply_actions, clear_actions,
/// write_actions, write_metadata, goto_table (OpenFlow 1.3.5, section 5.9).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Instructions {
    /// The meter that polices the packet first.
    pub meter: Option<MeterId>,
    /// The actions that are executed immediately, in this order.
    pub apply_actions: Option<Box<[Action]>>,
    /// True if the action set is cleared.
    pub clear_actions: bool,
    /// The actions that are merged into the action set.
    pub write_actions: Option<Box<[Action]>>,
    /// The change of the metadata.
    pub write_metadata: Option<WriteMetadata>,
    /// The table that processes the packet next; its number must be higher than that of this table.
    pub goto_table: Option<TableId>,
}

impl Instructions {
    /// Returns instructions with only `apply_actions`.
    pub fn apply(actions: impl Into<Box<[Action]>>) -> Instructions {
        Instructions {
            apply_actions: Some(actions.into()),
            ..Instructions::default()
        }
    }

    /// Returns instructions with only `goto_table`.
    pub fn goto(table: TableId) -> Instructions {
        Instructions {
            goto_table: Some(table),
            ..Instructions::default()
        }
    }

    /// Returns every action of both lists, apply_actions first.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        self.apply_actions.iter().chain(&self.write_actions).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settable_fields_take_only_values_that_fit() {
        assert!(SetField::new(Field::InPort, 1).is_err());
        assert!(SetField::new(Field::IpDscp, 64).is_err());
        let address = u128::MAX - 5;
        assert_eq!(SetField::new(Field::Ipv6Src, address).unwrap().value(), address);
    }

    #[test]
    fn an_action_stays_small() {
        assert!(size_of::<Action>() <= 24);
    }
}
