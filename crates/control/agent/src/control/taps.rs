//! Packets for people: captures that run, and live traces that wait.

use std::sync::Arc;

use millrace_datapath::io::Backend;
use millrace_datapath::{Direction, Tapped};
use millrace_flow::{Field, FlowKey, Match, Rule};
use millrace_pipeline::{Explanation, LiveTrace, Origin};
use millrace_types::{Duration, PortNo, Time};
use millrace_wire::{Depth, Layers, Packet};
use tokio::sync::oneshot;

use super::BridgeControl;

/// A captured packet.
#[derive(Debug)]
pub struct Captured {
    /// Nanoseconds since the switch started.
    pub time: Time,
    /// Where it was seen.
    pub port: PortNo,
    /// Whether it came in.
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

    /// Whether nobody wants more.
    fn is_over(&self) -> bool;
}

/// Which packets a capture wants.
pub struct CaptureRequest {
    /// One port, or all.
    pub port: Option<PortNo>,
    /// Only received (`true`) or only sent (`false`) packets, or both.
    pub received: Option<bool>,
    /// Only packets that match.
    pub filter: Option<Rule>,
    /// At most so many bytes of each packet.
    pub snap_size: usize,
    /// Who wants them.
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
    captures: Vec<CaptureRequest>,
    traces: Vec<Trace>,
    next_trace: u64,
}

impl<B: Backend> BridgeControl<B> {
    /// Starts a capture, which ends when its sink says so.
    pub fn capture(&mut self, request: CaptureRequest) {
        self.taps.captures.push(request);
        self.datapath.set_captures_len(self.taps.captures.len());
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
        self.taps.captures.retain(|capture| !capture.sink.is_over());
        self.datapath.set_captures_len(self.taps.captures.len());
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
        for capture in &mut self.taps.captures {
            let wanted = capture.port.is_none_or(|port| port == tapped.port)
                && capture.received.is_none_or(|wanted| wanted == received)
                && capture.filter.as_ref().is_none_or(|rule| {
                    let mut key = FlowKey::default();
                    key.set_field(Field::InPort, tapped.port.raw().into());
                    let head = tapped.packet.head();
                    key.extract(head, &Layers::parse(head, Depth::All));
                    rule.matches(&key)
                });
            if wanted {
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
