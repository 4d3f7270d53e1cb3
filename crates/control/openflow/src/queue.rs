//! QUEUE_GET_CONFIG: the queues of a port (OpenFlow 1.3.5, section 7.3.6).

use millrace_types::{PortNo, QueueId};

use crate::bytes::{PutBytes, Reader};
use crate::decode_error::DecodeError;

/// `ofp_packet_queue`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PacketQueue {
    /// The number of the queue, unique on its port.
    pub queue: QueueId,
    pub port: PortNo,
    /// The guaranteed rate, in tenths of a per cent of the port's rate; a value above 1000 disables it.
    pub min_rate: Option<u16>,
    /// The maximum rate, in tenths of a per cent of the port's rate; a value above 1000 disables it.
    pub max_rate: Option<u16>,
}

/// `OFPQT_MIN_RATE` and `OFPQT_MAX_RATE`.
const MIN_RATE: u16 = 1;
const MAX_RATE: u16 = 2;

impl PacketQueue {
    fn decode(reader: &mut Reader<'_>) -> Result<PacketQueue, DecodeError> {
        let queue = QueueId(reader.u32()?);
        let port = PortNo::from_raw(reader.u32()?);
        let length = usize::from(reader.u16()?);
        reader.skip(6)?;
        let mut properties = Reader::new(reader.take(length.checked_sub(16).ok_or(DecodeError::Length)?)?);
        let mut found = PacketQueue {
            queue,
            port,
            min_rate: None,
            max_rate: None,
        };
        while !properties.is_empty() {
            let (type_, length) = (properties.u16()?, usize::from(properties.u16()?));
            let mut body = Reader::new(properties.take(length.checked_sub(4).ok_or(DecodeError::Length)?)?);
            body.skip(4)?;
            match type_ {
                MIN_RATE => found.min_rate = Some(body.u16()?),
                MAX_RATE => found.max_rate = Some(body.u16()?),
                _ => {}
            }
        }
        Ok(found)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u32(self.queue.0);
        out.u32(self.port.raw());
        out.zeros(8);
        for (type_, rate) in [(MIN_RATE, self.min_rate), (MAX_RATE, self.max_rate)] {
            if let Some(rate) = rate {
                out.u16(type_);
                out.u16(16);
                out.zeros(4);
                out.u16(rate);
                out.zeros(6);
            }
        }
        out.length_at(start + 8, start);
    }
}

/// `ofp_queue_get_config_request`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueueGetConfigRequest {
    /// The port, or [`PortNo::ANY`] for all.
    pub port: PortNo,
}

impl QueueGetConfigRequest {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<QueueGetConfigRequest, DecodeError> {
        let port = PortNo::from_raw(reader.u32()?);
        reader.skip(4)?;
        Ok(QueueGetConfigRequest { port })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.port.raw());
        out.zeros(4);
    }
}

/// `ofp_queue_get_config_reply`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct QueueGetConfigReply {
    /// The port in the request.
    pub port: PortNo,
    /// The queues of the port.
    pub queues: Box<[PacketQueue]>,
}

impl QueueGetConfigReply {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<QueueGetConfigReply, DecodeError> {
        let port = PortNo::from_raw(reader.u32()?);
        reader.skip(4)?;
        let mut queues = Vec::new();
        while !reader.is_empty() {
            queues.push(PacketQueue::decode(reader)?);
        }
        Ok(QueueGetConfigReply {
            port,
            queues: queues.into_boxed_slice(),
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.port.raw());
        out.zeros(4);
        for queue in &self.queues {
            queue.encode(out);
        }
    }
}
