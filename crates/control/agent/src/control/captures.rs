//! Captures and live traces of a bridge: started, fed with packets, ended.

use std::sync::Arc;

use millrace_datapath::io::Backend;
use millrace_datapath::{CAPTURES_MAX, CapturedPacket, Direction};
use millrace_flow::Match;
use millrace_pipeline::{Explanation, LiveTrace, Origin};
use millrace_types::{Duration, Time};
use millrace_wire::Packet;
use tokio::sync::oneshot;

use super::bridge::BridgeControl;
use super::taps::{CaptureRequest, Captured, TraceOutcome, WaitingTrace};

impl<B: Backend> BridgeControl<B> {
    /// Starts a capture, which runs until [`CaptureSink::is_over`](super::CaptureSink::is_over) is true. Workers copy the
    /// selected packets from the moment of return. Returns false, and drops the sink, if [`CAPTURES_MAX`] captures run.
    pub fn capture(&mut self, request: CaptureRequest) -> bool {
        let len = CAPTURES_MAX as u8;
        let numbers = (0..len).map(|offset| (self.taps.next_capture + offset) % len);
        let free = numbers
            .into_iter()
            .find(|number| !self.taps.captures.contains_key(number));
        let Some(number) = free else {
            return false;
        };
        self.taps.next_capture = (number + 1) % len;
        // Losses of an earlier capture with this number are discarded.
        self.datapath.take_capture_losses(number);
        self.taps.captures.insert(number, request);
        self.publish_captures();
        true
    }

    fn publish_captures(&mut self) {
        let captures = self.taps.captures.iter();
        let filters = captures.map(|(number, capture)| (*number, capture.filter.clone()));
        self.datapath.set_captures(filters);
    }

    /// Arms a live trace, which waits for the next packet that matches. Without such a packet within the time, the
    /// receiver gets an error.
    pub fn trace_live(&mut self, matching: &Match, within: Duration) -> oneshot::Receiver<TraceOutcome> {
        let (sender, outcome) = oneshot::channel();
        self.taps.next_trace += 1;
        let id = self.taps.next_trace;
        let trace = Arc::new(LiveTrace::new(id, matching, 1));
        self.tables.arm_trace(trace, &mut self.ops);
        let deadline = self.datapath.now() + within;
        self.taps.traces.push(WaitingTrace {
            id,
            deadline,
            outcome: sender,
        });
        outcome
    }

    /// Ends captures whose sink is over, and live traces whose deadline passed or whose receiver was dropped.
    pub(super) fn expire_taps(&mut self, now: Time) {
        let before = self.taps.captures.len();
        self.taps.captures.retain(|_, capture| !capture.sink.is_over());
        if self.taps.captures.len() != before {
            self.publish_captures();
        }
        let is_over = |trace: &WaitingTrace| now >= trace.deadline || trace.outcome.is_closed();
        let (expired, waiting) = self.taps.traces.drain(..).partition(is_over);
        self.taps.traces = waiting;
        let expired: Vec<WaitingTrace> = expired;
        for trace in expired {
            self.tables.disarm_trace(trace.id, &mut self.ops);
        }
    }

    /// Delivers a packet that a worker copied, to captures or to the live trace that requested it.
    pub(super) fn deliver_captured(&mut self, captured: &CapturedPacket<B::Packet>) {
        match captured.direction {
            Direction::Traced(id) => self.finish_trace(id, captured),
            Direction::Rx | Direction::Tx => self.deliver_to_captures(captured),
        }
    }

    /// Returns the steps that a frame would take through the tables now. Sends nothing and counts nothing.
    pub fn explain(&self, origin: impl Into<Origin>, frame: &[u8]) -> Explanation {
        millrace_pipeline::explain(self.datapath.forwarding(), origin, frame, self.datapath.now())
    }

    fn finish_trace(&mut self, id: u64, captured: &CapturedPacket<B::Packet>) {
        let Some(at) = self.taps.traces.iter().position(|trace| trace.id == id) else {
            return;
        };
        let trace = self.taps.traces.swap_remove(at);
        let mut bytes = Vec::new();
        captured.packet.copy_to(&mut bytes, usize::MAX);
        let explanation = self.explain(captured.port, &bytes);
        self.tables.disarm_trace(id, &mut self.ops);
        // The receiver may have given up.
        let _dropped = trace.outcome.send(TraceOutcome {
            in_port: captured.port,
            bytes,
            explanation,
        });
    }

    fn deliver_to_captures(&mut self, captured: &CapturedPacket<B::Packet>) {
        for (number, capture) in &mut self.taps.captures {
            if captured.captures >> number & 1 == 1 {
                let mut bytes = Vec::new();
                captured.packet.copy_to(&mut bytes, capture.snap_size);
                let size = captured.packet.len();
                let captured = Captured {
                    time: captured.time,
                    port: captured.port,
                    received: matches!(captured.direction, Direction::Rx),
                    size,
                    bytes,
                    lost_before: self.datapath.take_capture_losses(*number),
                };
                capture.sink.take(captured);
            }
        }
    }
}
