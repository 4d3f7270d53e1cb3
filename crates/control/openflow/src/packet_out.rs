//! PACKET_OUT: a packet for the switch to send (OpenFlow 1.3.5, section 7.3.7).

use millrace_flow::Action;
use millrace_types::{BufferId, PortNo};

use crate::action::{decode_actions, encode_actions};
use crate::bytes::{PutBytes, Reader};
use crate::decode_error::DecodeError;

/// `ofp_packet_out`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PacketOut {
    /// The buffered packet to send; [`BufferId::NONE`] sends `data`.
    pub buffer: BufferId,
    /// The ingress port for the processing of the packet: an ordinary port, LOCAL, CONTROLLER or ANY.
    pub in_port: PortNo,
    /// The actions; an empty list drops the packet.
    pub actions: Box<[Action]>,
    /// The packet, if `buffer` is [`BufferId::NONE`].
    pub data: Box<[u8]>,
}

impl PacketOut {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<PacketOut, DecodeError> {
        let buffer = BufferId(reader.u32()?);
        let in_port = PortNo::from_raw(reader.u32()?);
        let is_legal =
            in_port.is_ordinary() || [PortNo::LOCAL, PortNo::CONTROLLER, PortNo::ANY].contains(&in_port);
        let actions_size = usize::from(reader.u16()?);
        reader.skip(6)?;
        let actions = reader.take(actions_size)?;
        if !is_legal {
            return Err(DecodeError::Port { port: in_port });
        }
        Ok(PacketOut {
            buffer,
            in_port,
            actions: decode_actions(actions)?,
            data: reader.drain().into(),
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.buffer.0);
        out.u32(self.in_port.raw());
        let length_at = out.len();
        out.zeros(8);
        let start = out.len();
        encode_actions(&self.actions, out);
        out.length_at(length_at, start);
        out.bytes(&self.data);
    }
}
