//! The pipeline of one bridge in one worker: runs bursts through the tables.

use std::sync::Arc;

use millrace_pipeline::{Counters, Forwarding, Processor};
use millrace_types::{PortNo, Time};
use millrace_wire::Packet;

use crate::egress::WorkerEgress;
use crate::events::{Direction, Events};
use crate::io::Burst;
use crate::publish::Reader;
use crate::tx_port::TxPorts;

/// The tables of a bridge, and the ports and events that their packets go to, in one worker.
pub(crate) struct BridgePipeline<P> {
    /// The number of the bridge.
    pub(crate) bridge: u32,
    pub(crate) forwarding: Reader<Forwarding>,
    pub(crate) processor: Processor,
    pub(crate) counters: Arc<Counters>,
    pub(crate) events: Arc<Events<P>>,
    pub(crate) tx: TxPorts<P>,
}

impl<P: Packet> BridgePipeline<P> {
    /// Returns the egress of packets that are processed at `now`.
    #[inline]
    pub(crate) fn egress(&mut self, now: Time) -> WorkerEgress<'_, P> {
        WorkerEgress {
            bridge: self.bridge,
            tx: &mut self.tx,
            events: &self.events,
            counters: &self.counters,
            now,
        }
    }

    /// Runs a burst of packets that came in at one port through the tables. Leaves `burst` empty.
    #[inline]
    pub(crate) fn process(&mut self, in_port: PortNo, burst: &mut Burst<P>, now: Time) {
        let forwarding = self.forwarding.enter();
        let mut egress = WorkerEgress {
            bridge: self.bridge,
            tx: &mut self.tx,
            events: &self.events,
            counters: &self.counters,
            now,
        };
        self.processor
            .process_burst(&forwarding, in_port, burst, now, &mut egress);
        burst.clear();
    }

    /// Copies received packets for the captures that select them.
    #[inline]
    pub(crate) fn capture_received(&self, in_port: PortNo, burst: &Burst<P>, now: Time) {
        if !self.tx.captures.is_empty() {
            for packet in burst {
                self.events
                    .tap(&self.tx.captures, in_port, Direction::Rx, now, packet);
            }
        }
    }
}
