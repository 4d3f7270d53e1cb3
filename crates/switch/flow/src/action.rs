//! Actions and instructions (OpenFlow 1.3.5, sections 5.9 to 5.12 and 7.2.4 to 7.2.5).

use millrace_types::{GroupId, MeterId, PortNo, QueueId, TableId};
use millrace_wire::EtherType;
use thiserror::Error;

use crate::field::Field;

/// One action.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Send the packet to a port. `max_len` is how many bytes go to the controller when the port is
    /// [`PortNo::CONTROLLER`]; 0xffff (`OFPCML_NO_BUFFER`) means all of it.
    Output {
        /// The port, perhaps a reserved one.
        port: PortNo,
        /// Bytes for the controller.
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
    /// Whether it changes the packet, and neither sends it nor says how to.
    pub const fn changes_packet(&self) -> bool {
        !matches!(
            self,
            Action::Output { .. } | Action::Group(_) | Action::SetQueue(_)
        )
    }

    /// Send to a port; to the controller, the whole packet.
    pub const fn output(port: PortNo) -> Action {
        Action::Output {
            port,
            max_len: 0xffff,
        }
    }
}

/// A field and the legal value to give it.
///
/// Aligned to 32 bits, not to its value, because a table of a million entries holds a million of these.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetField {
    field: Field,
    /// From the most significant on.
    value: [u32; 4],
}

/// Why a field cannot be set to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SetFieldError {
    /// `OFPBAC_BAD_SET_TYPE`.
    #[error("{field} cannot be set by an action")]
    NotSettable {
        /// The field.
        field: Field,
    },
    /// `OFPBAC_BAD_SET_ARGUMENT`.
    #[error("{field} cannot be set to {value:#x}: expected at most {:#x}", .field.max_value())]
    BadValue {
        /// The field.
        field: Field,
        /// The value as offered.
        value: u128,
    },
}

impl SetField {
    /// # Errors
    /// [`SetFieldError`] if no action may set the field or the value is too large.
    ///
    /// A VLAN identifier is written with `OFPVID_PRESENT` (0x1000); without it the bit is implied, as
    /// setting the identifier of an absent tag is refused elsewhere.
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

    /// The field.
    #[inline]
    pub const fn field(self) -> Field {
        self.field
    }

    /// The value, right-aligned.
    #[inline]
    pub const fn value(self) -> u128 {
        let [a, b, c, d] = self.value;
        (a as u128) << 96 | (b as u128) << 64 | (c as u128) << 32 | d as u128
    }
}

/// What a flow entry does with a packet. The order of execution is fixed: meter, apply_actions,
/// clear_actions, write_actions, write_metadata, goto_table (section 5.9).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Instructions {
    /// Pass the packet through this meter first.
    pub meter: Option<MeterId>,
    /// Execute at once, in this order.
    pub apply_actions: Option<Box<[Action]>>,
    /// Empty the action set.
    pub clear_actions: bool,
    /// Merge into the action set.
    pub write_actions: Option<Box<[Action]>>,
    /// Change the metadata: `(value, mask)`.
    pub write_metadata: Option<(u64, u64)>,
    /// Continue in a later table.
    pub goto_table: Option<TableId>,
}

impl Instructions {
    /// Only `apply_actions`.
    pub fn apply(actions: impl Into<Box<[Action]>>) -> Instructions {
        Instructions {
            apply_actions: Some(actions.into()),
            ..Instructions::default()
        }
    }

    /// Only `goto_table`.
    pub fn goto(table: TableId) -> Instructions {
        Instructions {
            goto_table: Some(table),
            ..Instructions::default()
        }
    }

    /// Every action of either list, apply_actions first.
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
