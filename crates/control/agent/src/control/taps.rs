//! Packets for people: captures that run, and live traces that wait.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_datapath::io::Backend;
use millrace_datapath::{CAPTURES_MAX, CaptureFilter, Direction, Tapped};
use millrace_flow::Match;
use millrace_pipeline::{Explanation, LiveTrace, Origin};
use millrace_types::{Duration, PortNo, Time};
use millrace_wire::Packet;
use tokio::sync::oneshot;

use super::BridgeControl;

/// A captured packet.
#[derive(Debug)]
pub struct Captured {
    /// Nanoseconds since the switch started.
    pub time: Time,
    /// Where it was seen.
    pub port: PortNo,
    /// True if it came in.
    pub received: bool,
    /// Its length on the wire.
    pub size: usize,
    /// Its first bytes.
    pub bytes: Vec<u8>,
}

/// What a live trace found.
#[derive(Debug)]
pub struct TraceOutcome {
    /// Where the packet came in.
    pub in_port: PortNo,
    /// The packet, as it came.
    pub bytes: Vec<u8>,
    /// What happened to it, table by table.
    pub explanation: Explanation,
}

/// Where captured packets go.
pub trait CaptureSink: Send {
    /// Takes a packet; must not wait.
    fn take(&mut self, packet: Captured);

    /// Returns true if nobody wants more.
    fn is_over(&self) -> bool;
}

/// A capture.
pub struct CaptureRequest {
    /// The packets that it wants.
    pub filter: CaptureFilter,
    /// The most bytes of each packet.
    pub snap_size: usize,
    /// The receiver of the packets.
    pub sink: Box<dyn CaptureSink>,
}

struct Trace {
    id: u64,
    deadline: Time,
    found: oneshot::Sender<TraceOutcome>,
}

/// Captures and live traces of a bridge.
#[derive(Default)]
pub struct Taps {
    /// By number, which is that of a bit in [`Tapped::captures`].
    captures: BTreeMap<u8, CaptureRequest>,
    /// The number that the next capture gets if it is free. Numbers go round, so that packets that wait in the queue are
    /// not given to a later capture.
    next_capture: u8,
    traces: Vec<Trace>,
    next_trace: u64,
}

impl<B: Backend> BridgeControl<B> {
    /// Starts a capture, which ends when its sink says so. When this returns, workers copy the packets that it wants.
    /// Returns false, and the sink is dropped, if there are [`CAPTURES_MAX`] captures already.
    pub fn capture(&mut self, request: CaptureRequest) -> bool {
        let len = CAPTURES_MAX as u8;
        let numbers = (0..len).map(|over| (self.taps.next_capture + over) % len);
        let free = numbers
            .into_iter()
            .find(|number| !self.taps.captures.contains_key(number));
        let Some(number) = free else {
            return false;
        };
        self.taps.next_capture = (number + 1) % len;
        self.taps.captures.insert(number, request);
        self.publish_captures();
        true
    }

    fn publish_captures(&mut self) {
        let captures = self.taps.captures.iter();
        let filters = captures.map(|(number, capture)| (*number, capture.filter.clone()));
        self.datapath.set_captures(filters);
    }

    /// Waits for the next packet that `trace` matches.
    pub fn trace_live(&mut self, matching: &Match, within: Duration) -> oneshot::Receiver<TraceOutcome> {
        let (found, outcome) = oneshot::channel();
        self.taps.next_trace += 1;
        let id = self.taps.next_trace;
        let trace = Arc::new(LiveTrace::new(id, matching, 1));
        self.tables.arm_trace(trace, &mut self.ops);
        let deadline = self.datapath.now() + within;
        self.taps.traces.push(Trace { id, deadline, found });
        outcome
    }

    /// Forgets captures that nobody reads any more, and live traces that waited too long.
    pub(super) fn expire_taps(&mut self, now: Time) {
        let before = self.taps.captures.len();
        self.taps.captures.retain(|_, capture| !capture.sink.is_over());
        if self.taps.captures.len() != before {
            self.publish_captures();
        }
        let is_over = |trace: &Trace| now >= trace.deadline || trace.found.is_closed();
        let (over, waiting) = self.taps.traces.drain(..).partition(is_over);
        self.taps.traces = waiting;
        let over: Vec<Trace> = over;
        for trace in over {
            self.tables.disarm_trace(trace.id, &mut self.ops);
        }
    }

    pub(super) fn hand_out_tapped(&mut self, tapped: &Tapped<B::Packet>) {
        match tapped.direction {
            Direction::Traced(id) => self.finish_trace(id, tapped),
            Direction::Rx => self.hand_out(tapped, true),
            Direction::Tx => self.hand_out(tapped, false),
        }
    }

    /// What would happen to a frame now.
    pub fn explain(&self, origin: impl Into<Origin>, frame: &[u8]) -> Explanation {
        millrace_pipeline::explain(self.datapath.forwarding(), origin, frame, self.datapath.now())
    }

    fn finish_trace(&mut self, id: u64, tapped: &Tapped<B::Packet>) {
        let Some(at) = self.taps.traces.iter().position(|trace| trace.id == id) else {
            return;
        };
        let trace = self.taps.traces.swap_remove(at);
        let mut bytes = Vec::new();
        tapped.packet.copy_to(&mut bytes, usize::MAX);
        let explanation = self.explain(tapped.port, &bytes);
        self.tables.disarm_trace(id, &mut self.ops);
        let _asker_gone = trace.found.send(TraceOutcome {
            in_port: tapped.port,
            bytes,
            explanation,
        });
    }

    fn hand_out(&mut self, tapped: &Tapped<B::Packet>, received: bool) {
        for (number, capture) in &mut self.taps.captures {
            if tapped.captures >> number & 1 == 1 {
                let mut bytes = Vec::new();
                tapped.packet.copy_to(&mut bytes, capture.snap_size);
                let size = tapped.packet.len();
                let captured = Captured {
                    time: tapped.time,
                    port: tapped.port,
                    received,
                    size,
                    bytes,
                };
                capture.sink.take(captured);
            }
        }
    }
}
