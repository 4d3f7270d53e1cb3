//! QUEUE: counters of queues (OpenFlow 1.3.5, section 7.3.5.8).

use millrace_types::{Duration, PortNo, QueueId};

use super::{MultipartType, ReplyPart};
use crate::bytes::{PutBytes, Reader};
use crate::decode_error::DecodeError;

/// `ofp_queue_stats_request`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueueStatsRequest {
    /// The port, or [`PortNo::ANY`] for all.
    pub port: PortNo,
    /// The queue, or [`QueueId::ALL`].
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
    pub port: PortNo,
    /// The queue of the port.
    pub queue: QueueId,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets dropped because the queue was full.
    pub tx_errors: u64,
    /// The time since the queue was added.
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
