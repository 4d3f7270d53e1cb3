//! The eight bytes before every message (section 7.1).

use millrace_types::Xid;

use crate::bytes::Reader;
use crate::codes::wire_enum;

/// Bytes of `ofp_header`.
pub const HEADER_SIZE: usize = 8;

/// The version of OpenFlow 1.3.x on the wire.
pub const VERSION: u8 = 4;

/// The largest message: its length must fit 16 bits.
pub const MAX_MESSAGE_SIZE: usize = u16::MAX as usize;

/// `ofp_header`: what can be said of a message before its body is read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// Version of the protocol; [`VERSION`] in every message but a HELLO or an early ERROR.
    pub version: u8,
    /// `OFPT_*`, perhaps one that is not known.
    pub type_: u8,
    /// Bytes of the message, header included.
    pub length: u16,
    /// A reply carries that of its request.
    pub xid: Xid,
}

impl Header {
    /// Reads a header, if there are eight bytes. Nothing is checked.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let mut reader = Reader::new(bytes);
        Some(Header {
            version: reader.u8().ok()?,
            type_: reader.u8().ok()?,
            length: reader.u16().ok()?,
            xid: Xid(reader.u32().ok()?),
        })
    }

    /// The message type, if it is known.
    pub const fn message_type(&self) -> Option<MessageType> {
        MessageType::from_raw(self.type_)
    }
}

wire_enum! {
    /// `ofp_type`: what a message is.
    MessageType(u8) {
        /// Opens a connection and agrees on a version.
        Hello = 0 "HELLO",
        /// A request failed.
        Error = 1 "ERROR",
        /// Are you there?
        EchoRequest = 2 "ECHO_REQUEST",
        /// I am here.
        EchoReply = 3 "ECHO_REPLY",
        /// Something outside of the specification.
        Experimenter = 4 "EXPERIMENTER",
        /// Asks who the switch is.
        FeaturesRequest = 5 "FEATURES_REQUEST",
        /// Says who the switch is.
        FeaturesReply = 6 "FEATURES_REPLY",
        /// Asks for fragment handling and miss_send_len.
        GetConfigRequest = 7 "GET_CONFIG_REQUEST",
        /// Says fragment handling and miss_send_len.
        GetConfigReply = 8 "GET_CONFIG_REPLY",
        /// Sets fragment handling and miss_send_len.
        SetConfig = 9 "SET_CONFIG",
        /// A packet for the controller.
        PacketIn = 10 "PACKET_IN",
        /// A flow entry is gone.
        FlowRemoved = 11 "FLOW_REMOVED",
        /// A port came, went or changed.
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
        /// Asks for something long.
        MultipartRequest = 18 "MULTIPART_REQUEST",
        /// Answers, in as many messages as it takes.
        MultipartReply = 19 "MULTIPART_REPLY",
        /// Asks to finish what was asked before.
        BarrierRequest = 20 "BARRIER_REQUEST",
        /// All of it is finished.
        BarrierReply = 21 "BARRIER_REPLY",
        /// Asks for the queues of a port.
        QueueGetConfigRequest = 22 "QUEUE_GET_CONFIG_REQUEST",
        /// The queues of a port.
        QueueGetConfigReply = 23 "QUEUE_GET_CONFIG_REPLY",
        /// Asks for a role.
        RoleRequest = 24 "ROLE_REQUEST",
        /// The role.
        RoleReply = 25 "ROLE_REPLY",
        /// Asks which asynchronous messages are sent.
        GetAsyncRequest = 26 "GET_ASYNC_REQUEST",
        /// Which asynchronous messages are sent.
        GetAsyncReply = 27 "GET_ASYNC_REPLY",
        /// Sets which asynchronous messages are sent.
        SetAsync = 28 "SET_ASYNC",
        /// Changes a meter.
        MeterMod = 29 "METER_MOD",
    }
}

impl MessageType {
    /// Whether a controller may send it to a switch (section 6.1).
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

    /// Whether it may travel over a transport that loses messages: UDP, on auxiliary connections (section 6.3.5).
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

    /// Whether it can be part of a [bundle](crate::BundleAdd).
    pub const fn can_be_bundled(self) -> bool {
        matches!(
            self,
            MessageType::FlowMod | MessageType::GroupMod | MessageType::PortMod | MessageType::MeterMod
        )
    }

    /// Whether it changes the switch or sends a packet, which a slave may not (section 6.3.5). A
    /// TABLE_FEATURES request with a body does so, too, but its type alone does not tell.
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
