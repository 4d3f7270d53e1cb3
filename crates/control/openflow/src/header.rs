//! The header of every message (OpenFlow 1.3.5, section 7.1).

use millrace_types::Xid;

use crate::bytes::Reader;
use crate::codes::wire_enum;

/// Size of `ofp_header`, in bytes.
pub const HEADER_SIZE: usize = 8;

/// The version number of OpenFlow 1.3.x on the wire.
pub const VERSION: u8 = 4;

/// Size of the largest message, in bytes: the length field has 16 bits.
pub const MAX_MESSAGE_SIZE: usize = u16::MAX as usize;

/// `ofp_header`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// The version of the protocol: [`VERSION`] in every message but HELLO and an early ERROR.
    pub version: u8,
    /// The number of the message type (`OFPT_*`), which may be unknown.
    pub type_: u8,
    /// Size of the message with its header, in bytes.
    pub length: u16,
    /// The transaction id; a reply has the xid of its request.
    pub xid: Xid,
}

impl Header {
    /// Reads a header; `None` if there are fewer than eight bytes. The values are not checked.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let mut reader = Reader::new(bytes);
        Some(Header {
            version: reader.u8().ok()?,
            type_: reader.u8().ok()?,
            length: reader.u16().ok()?,
            xid: Xid(reader.u32().ok()?),
        })
    }

    /// Returns the message type; `None` if it is unknown.
    pub const fn message_type(&self) -> Option<MessageType> {
        MessageType::from_raw(self.type_)
    }
}

wire_enum! {
    /// `ofp_type`: the type of a message.
    MessageType(u8) {
        /// Opens a connection and agrees on a version.
        Hello = 0 "HELLO",
        /// A request failed.
        Error = 1 "ERROR",
        /// Asks for an ECHO_REPLY.
        EchoRequest = 2 "ECHO_REQUEST",
        /// Answers an ECHO_REQUEST.
        EchoReply = 3 "ECHO_REPLY",
        /// A message of an experimenter.
        Experimenter = 4 "EXPERIMENTER",
        /// Asks for identity and capabilities of the switch.
        FeaturesRequest = 5 "FEATURES_REQUEST",
        /// Answers with identity and capabilities of the switch.
        FeaturesReply = 6 "FEATURES_REPLY",
        /// Asks for fragment handling and miss_send_len.
        GetConfigRequest = 7 "GET_CONFIG_REQUEST",
        /// Answers with fragment handling and miss_send_len.
        GetConfigReply = 8 "GET_CONFIG_REPLY",
        /// Sets fragment handling and miss_send_len.
        SetConfig = 9 "SET_CONFIG",
        /// A packet for the controller.
        PacketIn = 10 "PACKET_IN",
        /// A flow entry was removed.
        FlowRemoved = 11 "FLOW_REMOVED",
        /// A port was added, removed or modified.
        PortStatus = 12 "PORT_STATUS",
        /// A packet to send.
        PacketOut = 13 "PACKET_OUT",
        /// Changes flow entries.
        FlowMod = 14 "FLOW_MOD",
        /// Changes a group.
        GroupMod = 15 "GROUP_MOD",
        /// Changes a port.
        PortMod = 16 "PORT_MOD",
        /// Changes a table.
        TableMod = 17 "TABLE_MOD",
        /// Asks for statistics or descriptions.
        MultipartRequest = 18 "MULTIPART_REQUEST",
        /// Answers a multipart request, in as many messages as it takes.
        MultipartReply = 19 "MULTIPART_REPLY",
        /// Asks for a BARRIER_REPLY after all earlier requests are carried out.
        BarrierRequest = 20 "BARRIER_REQUEST",
        /// Reports that all requests before the barrier are carried out.
        BarrierReply = 21 "BARRIER_REPLY",
        /// Asks for the queues of a port.
        QueueGetConfigRequest = 22 "QUEUE_GET_CONFIG_REQUEST",
        /// Answers with the queues of a port.
        QueueGetConfigReply = 23 "QUEUE_GET_CONFIG_REPLY",
        /// Asks for a role.
        RoleRequest = 24 "ROLE_REQUEST",
        /// Answers with the role.
        RoleReply = 25 "ROLE_REPLY",
        /// Asks for the masks of asynchronous messages.
        GetAsyncRequest = 26 "GET_ASYNC_REQUEST",
        /// Answers with the masks of asynchronous messages.
        GetAsyncReply = 27 "GET_ASYNC_REPLY",
        /// Sets the masks of asynchronous messages.
        SetAsync = 28 "SET_ASYNC",
        /// Changes a meter.
        MeterMod = 29 "METER_MOD",
    }
}

impl MessageType {
    /// Returns true for messages that a controller may send to a switch (OpenFlow 1.3.5, section 6.1).
    pub const fn is_for_switch(self) -> bool {
        !matches!(
            self,
            MessageType::FeaturesReply
                | MessageType::GetConfigReply
                | MessageType::PacketIn
                | MessageType::FlowRemoved
                | MessageType::PortStatus
                | MessageType::MultipartReply
                | MessageType::BarrierReply
                | MessageType::QueueGetConfigReply
                | MessageType::RoleReply
                | MessageType::GetAsyncReply
        )
    }

    /// Returns true for messages that may be lost. Only such messages may use auxiliary connections over UDP
    /// (OpenFlow 1.3.5, section 6.3.5).
    pub const fn may_be_lost(self) -> bool {
        matches!(
            self,
            MessageType::Hello
                | MessageType::Error
                | MessageType::EchoRequest
                | MessageType::EchoReply
                | MessageType::Experimenter
                | MessageType::FeaturesRequest
                | MessageType::FeaturesReply
                | MessageType::PacketIn
                | MessageType::PacketOut
        )
    }

    /// Returns true for messages that can be part of a [bundle](crate::BundleAdd).
    pub const fn can_be_bundled(self) -> bool {
        matches!(
            self,
            MessageType::FlowMod | MessageType::GroupMod | MessageType::PortMod | MessageType::MeterMod
        )
    }

    /// Returns true for messages that change the switch or send a packet. A slave must not send them
    /// (OpenFlow 1.3.5, section 6.3.4). A TABLE_FEATURES request with a body also changes tables, but its
    /// message type does not show that.
    pub const fn is_write(self) -> bool {
        matches!(
            self,
            MessageType::PacketOut
                | MessageType::FlowMod
                | MessageType::GroupMod
                | MessageType::PortMod
                | MessageType::TableMod
                | MessageType::MeterMod
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_needs_eight_bytes_and_no_more() {
        let bytes = [4, 14, 0, 56, 0, 0, 0, 9];
        let header = Header::parse(&bytes).unwrap();
        assert_eq!(header.message_type(), Some(MessageType::FlowMod));
        assert_eq!((header.length, header.xid), (56, Xid(9)));
        assert_eq!(Header::parse(&bytes[..7]), None);
    }

    #[test]
    fn message_types_are_numbered_without_a_gap() {
        for (number, type_) in MessageType::ALL.iter().enumerate() {
            assert_eq!(usize::from(type_.raw()), number);
        }
        assert_eq!(MessageType::from_raw(30), None);
    }
}
