//! Captures and live traces that wait for packets: the taps of a bridge (a `tap:` device is a port, and another thing).

use std::collections::BTreeMap;

use millrace_datapath::CaptureFilter;
use millrace_pipeline::Explanation;
use millrace_types::{PortNo, Time};
use tokio::sync::oneshot;

/// A captured packet.
#[derive(Debug)]
pub struct Captured {
    /// The time at which the switch received or sent the packet.
    pub time: Time,
    /// The port that received or sent the packet.
    pub port: PortNo,
    /// True if the port received the packet, false if the port sent it.
    pub received: bool,
    /// Size of the packet in bytes, without FCS.
    pub size: usize,
    /// First bytes of the packet, up to the snap size.
    pub bytes: Vec<u8>,
    /// The number of packets that the workers could not copy for this capture since the previous packet.
    pub lost_before: u64,
}

/// The result of a live trace.
#[derive(Debug)]
pub struct TraceOutcome {
    /// The port that received the packet.
    pub in_port: PortNo,
    /// The packet as it was received.
    pub bytes: Vec<u8>,
    /// The steps of the packet, table by table.
    pub explanation: Explanation,
}

/// The consumer of captured packets.
pub trait CaptureSink: Send {
    /// Takes a packet. Must not block.
    fn take(&mut self, packet: Captured);

    /// Returns true if the capture must end.
    fn is_over(&self) -> bool;
}

/// The parameters of a capture.
pub struct CaptureRequest {
    /// Selects packets.
    pub filter: CaptureFilter,
    /// The maximum captured size of each packet, in bytes.
    pub snap_size: usize,
    /// Receives the packets.
    pub sink: Box<dyn CaptureSink>,
}

/// A live trace that waits for its packet.
pub(super) struct WaitingTrace {
    pub(super) id: u64,
    pub(super) deadline: Time,
    pub(super) outcome: oneshot::Sender<TraceOutcome>,
}

/// The captures and live traces of a bridge.
#[derive(Default)]
pub(super) struct Taps {
    /// Captures by the number of their bit in [`millrace_datapath::CapturedPacket::captures`].
    pub(super) captures: BTreeMap<u8, CaptureRequest>,
    /// The number for the next capture, if it is free. Numbers rotate, so that queued packets of an ended capture are not
    /// delivered to a new one.
    pub(super) next_capture: u8,
    pub(super) traces: Vec<WaitingTrace>,
    pub(super) next_trace: u64,
}
