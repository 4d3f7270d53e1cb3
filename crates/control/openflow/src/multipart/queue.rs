//! QUEUE: counters of queues (section 7.3.5.8).

use millrace_types::{Duration, PortNo, QueueId};

use super::{MultipartType, ReplyPart};
use crate::bytes::{Put, Reader};
use crate::decode_error::DecodeError;

/// `ofp_queue_stats_request`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueueStatsRequest {
    /// Which port, or [`PortNo::ANY`].
    pub port: PortNo,
    /// Which queue, or [`QueueId::ALL`].
    pub queue: QueueId,
}

impl QueueStatsRequest {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<QueueStatsRequest, DecodeError> {
        Ok(QueueStatsRequest {
            port: PortNo::from_raw(reader.u32()?),
            queue: QueueId(reader.u32()?),
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.port.raw());
        out.u32(self.queue.0);
    }
}

/// `ofp_queue_stats`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueueStats {
    /// Which port.
    pub port: PortNo,
    /// Which queue of it.
    pub queue: QueueId,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets dropped for want of room.
    pub tx_errors: u64,
    /// How long the queue has been there.
    pub duration: Duration,
}

impl QueueStats {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<QueueStats, DecodeError> {
        Ok(QueueStats {
            port: PortNo::from_raw(reader.u32()?),
            queue: QueueId(reader.u32()?),
            tx_bytes: reader.u64()?,
            tx_packets: reader.u64()?,
            tx_errors: reader.u64()?,
            duration: reader.duration()?,
        })
    }
}

impl ReplyPart for QueueStats {
    const TYPE: MultipartType = MultipartType::Queue;

    fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.port.raw());
        out.u32(self.queue.0);
        out.u64(self.tx_bytes);
        out.u64(self.tx_packets);
        out.u64(self.tx_errors);
        out.duration(self.duration);
    }
}
