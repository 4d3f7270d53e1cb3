//! The state that a switch keeps of one controller: role, masks of asynchronous messages, configuration.

use crate::async_config::AsyncConfig;
use crate::config::SwitchConfig;
use crate::error_code::ErrorCode;
use crate::flow_removed::FlowRemovedReason;
use crate::message::Message;
use crate::packet_in::PacketInReason;
use crate::port::PortReason;
use crate::roles::Role;

/// The state of one controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The role of the controller.
    pub role: Role,
    /// The asynchronous messages that the controller gets.
    pub async_config: AsyncConfig,
    /// The handling of fragments, and the maximum number of packet bytes in packet_in.
    pub switch_config: SwitchConfig,
}

impl Default for Peer {
    /// Returns the state of a controller that has just connected.
    fn default() -> Peer {
        Peer {
            role: Role::Equal,
            async_config: AsyncConfig::default(),
            switch_config: SwitchConfig::DEFAULT,
        }
    }
}

impl Peer {
    /// Checks that the role allows `request` (OpenFlow 1.3.5, section 6.3.4).
    ///
    /// # Errors
    /// `OFPBRC_IS_SLAVE`.
    pub fn admit(&self, request: &Message) -> Result<(), ErrorCode> {
        let is_write = match request {
            Message::MultipartRequest(request) => request.body.is_write(),
            // The messages in a bundle change the switch. A slave must not send them, and so must not open a
            // bundle.
            Message::BundleControl(_) | Message::BundleAdd(_) => true,
            other => other.type_().is_write(),
        };
        if is_write && self.role == Role::Slave {
            Err(ErrorCode::OFPBRC_IS_SLAVE)
        } else {
            Ok(())
        }
    }

    /// Returns true if the controller gets packet_in for this reason.
    pub const fn wants_packet_in(&self, reason: PacketInReason) -> bool {
        self.async_config.wants_packet_in(self.role, reason)
    }

    /// Returns true if the controller gets port_status for this reason.
    pub const fn wants_port_status(&self, reason: PortReason) -> bool {
        self.async_config.wants_port_status(self.role, reason)
    }

    /// Returns true if the controller gets flow_removed for this reason.
    pub const fn wants_flow_removed(&self, reason: FlowRemovedReason) -> bool {
        self.async_config.wants_flow_removed(self.role, reason)
    }
}

#[cfg(test)]
mod tests {
    use millrace_flow::Match;
    use millrace_types::{BufferId, GroupId, Mac, MeterId, PortNo, TableId};

    use super::*;
    use crate::multipart::table_features::TableFeatures;
    use crate::multipart::{MultipartRequest, RequestBody};
    use crate::{
        BundleAdd, BundleCommand, BundleControl, BundleFlags, FlowMod, GroupMod, GroupModCommand, GroupType,
        MeterFlags, MeterMod, MeterModCommand, PacketOut, PortConfig, PortFeatures, PortMod, TableMod,
    };

    #[test]
    fn a_slave_reads_and_does_not_write() {
        let slave = Peer {
            role: Role::Slave,
            ..Peer::default()
        };
        let write = Message::FlowMod(FlowMod::delete(TableId::ALL, Match::any()));
        assert_eq!(slave.admit(&write), Err(ErrorCode::OFPBRC_IS_SLAVE));
        assert_eq!(Peer::default().admit(&write), Ok(()));
        let read = Message::MultipartRequest(MultipartRequest::new(RequestBody::TableFeatures(Vec::new())));
        assert_eq!(slave.admit(&read), Ok(()));
        assert_eq!(slave.admit(&Message::BarrierRequest), Ok(()));
    }

    #[test]
    fn every_message_that_writes_is_refused_from_a_slave_and_from_nobody_else() {
        let flow_mod = || Message::FlowMod(FlowMod::delete(TableId::ALL, Match::any()));
        let features = TableFeatures {
            table: TableId(0),
            name: String::new(),
            metadata_match: 0,
            metadata_write: 0,
            config: 0,
            max_entries: 1,
            properties: Vec::new(),
        };
        let flags = BundleFlags::ATOMIC;
        let writes = [
            flow_mod(),
            Message::GroupMod(GroupMod {
                command: GroupModCommand::Delete,
                type_: GroupType::All,
                group: GroupId::ALL,
                buckets: Box::default(),
            }),
            Message::MeterMod(MeterMod {
                command: MeterModCommand::Delete,
                flags: MeterFlags::NONE,
                meter: MeterId::ALL,
                bands: Box::default(),
            }),
            Message::PortMod(PortMod {
                number: PortNo::from_raw(1),
                mac: Mac([0; 6]),
                config: PortConfig::NONE,
                mask: PortConfig::NONE,
                advertise: PortFeatures::NONE,
            }),
            Message::TableMod(TableMod {
                table: TableId::ALL,
                config: 0,
            }),
            Message::PacketOut(PacketOut {
                buffer: BufferId::NONE,
                in_port: PortNo::CONTROLLER,
                actions: Default::default(),
                data: Box::default(),
            }),
            Message::MultipartRequest(MultipartRequest::new(RequestBody::TableFeatures(vec![features]))),
            Message::BundleControl(BundleControl {
                bundle: 1,
                command: BundleCommand::Open,
                flags,
            }),
            Message::BundleAdd(BundleAdd {
                bundle: 1,
                flags,
                message: Box::new(flow_mod()),
            }),
        ];
        for role in [Role::Equal, Role::Master, Role::Slave] {
            let peer = Peer {
                role,
                ..Peer::default()
            };
            for write in &writes {
                let expected = match role {
                    Role::Slave => Err(ErrorCode::OFPBRC_IS_SLAVE),
                    _ => Ok(()),
                };
                assert_eq!(peer.admit(write), expected, "{write}");
            }
        }
    }
}
