//! SET_ASYNC and GET_ASYNC_REPLY: the asynchronous messages that a controller gets (OpenFlow 1.3.5, section 7.3.10).

use crate::bytes::{PutBytes, Reader};
use crate::decode_error::DecodeError;
use crate::flow_removed::FlowRemovedReason;
use crate::packet_in::PacketInReason;
use crate::port::PortReason;
use crate::roles::Role;

/// One bit for each reason of each asynchronous message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AsyncMasks {
    /// Bits of [`PacketInReason`].
    pub packet_in: u32,
    /// Bits of [`PortReason`].
    pub port_status: u32,
    /// Bits of [`FlowRemovedReason`].
    pub flow_removed: u32,
}

/// `ofp_async_config`: one set of masks for the roles equal and master, and one for the role slave.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AsyncConfig {
    /// The masks while the role is equal or master.
    pub master: AsyncMasks,
    /// The masks while the role is slave.
    pub slave: AsyncMasks,
}

impl Default for AsyncConfig {
    /// Returns the masks of a new connection (OpenFlow 1.3.5, sections 6.3.4 and 7.3.10). A master or equal
    /// controller gets all messages except packet_in for an invalid TTL. A slave gets only port_status.
    fn default() -> AsyncConfig {
        let all_port_reasons = 0b111;
        AsyncConfig {
            master: AsyncMasks {
                packet_in: 1 << PacketInReason::NoMatch.raw() | 1 << PacketInReason::Action.raw(),
                port_status: all_port_reasons,
                flow_removed: 0b1111,
            },
            slave: AsyncMasks {
                packet_in: 0,
                port_status: all_port_reasons,
                flow_removed: 0,
            },
        }
    }
}

impl AsyncConfig {
    /// Returns the masks that apply in this role.
    pub const fn masks(&self, role: Role) -> &AsyncMasks {
        match role {
            Role::Equal | Role::Master => &self.master,
            Role::Slave => &self.slave,
        }
    }

    /// Returns true if a controller in this role gets packet_in for this reason.
    pub const fn wants_packet_in(&self, role: Role, reason: PacketInReason) -> bool {
        self.masks(role).packet_in & 1 << reason.raw() != 0
    }

    /// Returns true if a controller in this role gets port_status for this reason.
    pub const fn wants_port_status(&self, role: Role, reason: PortReason) -> bool {
        self.masks(role).port_status & 1 << reason.raw() != 0
    }

    /// Returns true if a controller in this role gets flow_removed for this reason.
    pub const fn wants_flow_removed(&self, role: Role, reason: FlowRemovedReason) -> bool {
        self.masks(role).flow_removed & 1 << reason.raw() != 0
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<AsyncConfig, DecodeError> {
        let mut pair = || Ok::<_, DecodeError>((reader.u32()?, reader.u32()?));
        let (packet_in, port_status, flow_removed) = (pair()?, pair()?, pair()?);
        Ok(AsyncConfig {
            master: AsyncMasks {
                packet_in: packet_in.0,
                port_status: port_status.0,
                flow_removed: flow_removed.0,
            },
            slave: AsyncMasks {
                packet_in: packet_in.1,
                port_status: port_status.1,
                flow_removed: flow_removed.1,
            },
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for (master, slave) in [
            (self.master.packet_in, self.slave.packet_in),
            (self.master.port_status, self.slave.port_status),
            (self.master.flow_removed, self.slave.flow_removed),
        ] {
            out.u32(master);
            out.u32(slave);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_slave_hears_of_ports_only() {
        let config = AsyncConfig::default();
        assert!(config.wants_packet_in(Role::Equal, PacketInReason::NoMatch));
        assert!(!config.wants_packet_in(Role::Master, PacketInReason::InvalidTtl));
        assert!(config.wants_flow_removed(Role::Master, FlowRemovedReason::GroupDelete));
        assert!(!config.wants_packet_in(Role::Slave, PacketInReason::NoMatch));
        assert!(!config.wants_flow_removed(Role::Slave, FlowRemovedReason::Delete));
        assert!(config.wants_port_status(Role::Slave, PortReason::Modify));
    }
}
