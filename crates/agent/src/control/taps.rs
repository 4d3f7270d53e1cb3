//! Packets for people: captures that run, and live traces that wait.

use std::sync::Arc;

use millrace_datapath::io::Backend;
use millrace_datapath::{Direction, Tapped};
use millrace_flow::{Field, FlowKey, Match, Rule};
use millrace_pipeline::{Explanation, LiveTrace};
use millrace_types::{Duration, PortNo, Time};
use millrace_wire::{Depth, Layers, Packet};
use tokio::sync::{mpsc, oneshot};

use super::BridgeControl;

/// A captured packet.
#[derive(Clone, Debug)]
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

struct Capture {
    port: Option<PortNo>,
    received: Option<bool>,
    filter: Option<Rule>,
    snaplen: usize,
    out: mpsc::Sender<Captured>,
}

struct Trace {
    id: u64,
    deadline: Time,
    found: oneshot::Sender<TraceOutcome>,
}

/// Captures and live traces of a bridge.
#[derive(Default)]
pub struct Taps {
    captures: Vec<Capture>,
    traces: Vec<Trace>,
    next_trace: u64,
}

/// Which packets a capture wants.
#[derive(Clone, Debug)]
pub struct CaptureRequest {
    /// One port, or all.
    pub port: Option<PortNo>,
    /// Only received (`true`) or only sent (`false`) packets, or both.
    pub received: Option<bool>,
    /// Only packets that match.
    pub filter: Option<Rule>,
    /// Bytes of each packet.
    pub snaplen: usize,
}

impl<B: Backend> BridgeControl<B> {
    /// Starts a capture, which ends when the receiver is dropped. A reader that is slow loses packets.
    pub fn capture(&mut self, request: CaptureRequest) -> mpsc::Receiver<Captured> {
        let (out, packets) = mpsc::channel(1024);
        let CaptureRequest {
            port,
            received,
            filter,
            snaplen,
        } = request;
        self.taps.captures.push(Capture {
            port,
            received,
            filter,
            snaplen,
            out,
        });
        self.datapath.set_captures_len(self.taps.captures.len());
        packets
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
        self.taps.captures.retain(|capture| !capture.out.is_closed());
        self.datapath.set_captures_len(self.taps.captures.len());
        let is_over = |trace: &Trace| now >= trace.deadline || trace.found.is_closed();
        let (over, waiting) = self.taps.traces.drain(..).partition(is_over);
        self.taps.traces = waiting;
        let over: Vec<Trace> = over;
        for trace in over {
            self.tables.disarm_trace(trace.id, &mut self.ops);
        }
    }

    pub(super) fn hand_out_tapped(&mut self, tapped: Tapped<B::Packet>) {
        match tapped.direction {
            Direction::Traced(id) => self.finish_trace(id, &tapped),
            Direction::Rx => self.hand_out(&tapped, true),
            Direction::Tx => self.hand_out(&tapped, false),
        }
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
        for capture in &self.taps.captures {
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
                tapped.packet.copy_to(&mut bytes, capture.snaplen);
                let size = tapped.packet.len();
                let captured = Captured {
                    time: tapped.time,
                    port: tapped.port,
                    received,
                    size,
                    bytes,
                };
                // A reader that is behind loses this one.
                let _lost = capture.out.try_send(captured);
            }
        }
    }
}
