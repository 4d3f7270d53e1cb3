//! PORT_STATS and PORT_DESC: counters and descriptions of ports (OpenFlow 1.3.5, sections 7.3.5.6 and 7.3.5.7).

use millrace_types::{Duration, PortNo};

use super::{MultipartType, ReplyPart};
use crate::bytes::{PutBytes, Reader};
use crate::decode_error::DecodeError;
use crate::port::Port;

/// `ofp_port_stats_request`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PortStatsRequest {
    /// The port, or [`PortNo::ANY`] for all.
    pub port: PortNo,
}

impl PortStatsRequest {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<PortStatsRequest, DecodeError> {
        let port = PortNo::from_raw(reader.u32()?);
        reader.skip(4)?;
        Ok(PortStatsRequest { port })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.port.raw());
        out.zeros(4);
    }
}

/// `ofp_port_stats`. A counter that a port does not keep is [`PortStats::UNSUPPORTED`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PortStats {
    pub port: PortNo,
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Received packets that were dropped.
    pub rx_dropped: u64,
    /// Packets that were dropped instead of sent.
    pub tx_dropped: u64,
    /// Receive errors of every kind.
    pub rx_errors: u64,
    /// Transmit errors.
    pub tx_errors: u64,
    /// Frame alignment errors.
    pub rx_frame_errors: u64,
    /// Receive overruns.
    pub rx_over_errors: u64,
    pub rx_crc_errors: u64,
    pub collisions: u64,
    /// The time since the port was added.
    pub duration: Duration,
}

impl PortStats {
    /// The value of a counter that the port does not keep.
    pub const UNSUPPORTED: u64 = u64::MAX;

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<PortStats, DecodeError> {
        let port = PortNo::from_raw(reader.u32()?);
        reader.skip(4)?;
        Ok(PortStats {
            port,
            rx_packets: reader.u64()?,
            tx_packets: reader.u64()?,
            rx_bytes: reader.u64()?,
            tx_bytes: reader.u64()?,
            rx_dropped: reader.u64()?,
            tx_dropped: reader.u64()?,
            rx_errors: reader.u64()?,
            tx_errors: reader.u64()?,
            rx_frame_errors: reader.u64()?,
            rx_over_errors: reader.u64()?,
            rx_crc_errors: reader.u64()?,
            collisions: reader.u64()?,
            duration: reader.duration()?,
        })
    }
}

impl ReplyPart for PortStats {
    const TYPE: MultipartType = MultipartType::PortStats;

    fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.port.raw());
        out.zeros(4);
        for counter in [
            self.rx_packets,
            self.tx_packets,
            self.rx_bytes,
            self.tx_bytes,
            self.rx_dropped,
            self.tx_dropped,
            self.rx_errors,
            self.tx_errors,
            self.rx_frame_errors,
            self.rx_over_errors,
            self.rx_crc_errors,
            self.collisions,
        ] {
            out.u64(counter);
        }
        out.duration(self.duration);
    }
}

impl ReplyPart for Port {
    const TYPE: MultipartType = MultipartType::PortDesc;

    fn encode(&self, out: &mut Vec<u8>) {
        Port::encode(self, out);
    }
}
