//! The flows that a function shuns: the lane treats their packets without a call of the function.
//!
//! A flow has one entry for both directions, and an entry is found by the whole flow id, not by a hash alone.

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_nf::flow::{FlowId, FlowPacket, flag};
use millrace_nf::table::Table;
use millrace_nf::{Buffer, Kind, Shun, ShunAction, ShunnedFlow};
use millrace_types::{Duration, Time};

/// Sets of the table that one tick scans for idle flows. A table of 65,536 flows is scanned in 6.4 s.
const SETS_PER_TICK: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Entry {
    action: ShunAction,
    /// The flow is forgotten after this time without a packet.
    idle: Duration,
    /// The number of packets that a process must have returned before packets of the flow pass it.
    since: u64,
    packets: u64,
    bytes: u64,
}

impl Entry {
    fn ended(self, flow: FlowId) -> ShunnedFlow {
        ShunnedFlow {
            flow,
            action: self.action,
            packets: self.packets,
            bytes: self.bytes,
        }
    }
}

/// The shunned flows of one function. All memory is allocated when it is created.
#[derive(Debug)]
pub(crate) struct ShunnedFlows {
    flows: Table<FlowId, Entry>,
}

impl ShunnedFlows {
    /// Returns a table for a function of a kind, or `None` if it shuns no flows.
    pub(crate) fn of_kind(kind: &Kind, seed: u64) -> Option<Box<ShunnedFlows>> {
        (kind.shuns != 0).then(|| Box::new(ShunnedFlows::new(kind.shuns, seed)))
    }

    /// Returns a table for `capacity` flows, whose hash function has a secret seed.
    pub(crate) fn new(capacity: usize, seed: u64) -> ShunnedFlows {
        ShunnedFlows {
            flows: Table::new(capacity, seed),
        }
    }

    /// Returns the number of flows.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    /// Returns the treatment of a packet of a shunned flow, and counts the packet; `None` for packets that the function gets.
    /// With the treatment comes the number of packets that a process must have returned before this one passes it. A TCP packet that opens a connection ends the old flow, which `ended` receives.
    #[inline]
    pub(crate) fn action(
        &mut self,
        packet: &dyn Buffer,
        now: Time,
        ended: &mut ArrayVec<ShunnedFlow, BURST>,
    ) -> Option<(ShunAction, u64)> {
        let found = FlowPacket::of(packet)?;
        if found.is_later_fragment {
            return None;
        }
        let (flow, _) = found.id.canonical();
        let entry = self.flows.get(&flow, now)?;
        if found.is_tcp() && found.tcp_flags & (flag::SYN | flag::ACK) == flag::SYN {
            let entry = *entry;
            // One packet of the burst ends one flow at most, so there is room.
            let _has_room = ended.try_push(entry.ended(flow));
            self.flows.remove(&flow);
            return None;
        }
        entry.packets += 1;
        entry.bytes += packet.len() as u64;
        Some((entry.action, entry.since))
    }

    /// Adds the flow of a packet, or changes its treatment. The least recently used flow of a full set is replaced. `since` is
    /// the number of packets that the function's process was given so far; 0 for a function in the worker.
    #[cold]
    pub(crate) fn add(
        &mut self,
        packet: &dyn Buffer,
        shun: &Shun,
        (now, since): (Time, u64),
        ended: &mut ArrayVec<ShunnedFlow, BURST>,
    ) {
        let Some(found) = FlowPacket::of(packet).filter(|found| !found.is_later_fragment) else {
            return;
        };
        let (flow, _) = found.id.canonical();
        if let Some(entry) = self.flows.get(&flow, now) {
            (entry.action, entry.idle, entry.since) = (shun.action, shun.idle, since);
            return;
        }
        let entry = Entry {
            action: shun.action,
            idle: shun.idle,
            since,
            packets: 0,
            bytes: 0,
        };
        if let Ok(Some((flow, old))) = self.flows.insert(flow, entry, now, |_, _| true) {
            let _has_room = ended.try_push(old.ended(flow));
        }
    }

    /// Forgets flows that were idle for too long, and passes them to `ended`.
    pub(crate) fn sweep(&mut self, now: Time, mut ended: impl FnMut(ShunnedFlow)) {
        self.flows.sweep(
            SETS_PER_TICK,
            |entry, used| now.since(used) >= entry.idle,
            |flow, entry| ended(entry.ended(flow)),
        );
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use millrace_types::Mac;
    use millrace_wire::{Builder, Frame, tcp};

    use super::*;

    const IDLE: Duration = Duration::from_secs(10);

    fn segment(ports: (u16, u16), flags: u8) -> Frame {
        let builder = Builder::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        let repr = tcp::Repr {
            src: ports.0,
            dst: ports.1,
            seq: 0,
            ack: 0,
            flags: flags.into(),
            window: 0,
            urgent: 0,
            options: tcp::Options::default(),
        };
        let bytes = builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(repr).build();
        Frame::new(&bytes)
    }

    fn shun(action: ShunAction) -> Shun {
        Shun {
            packet: 0,
            action,
            idle: IDLE,
        }
    }

    #[test]
    fn a_new_connection_ends_the_old_flow_and_goes_to_the_function() {
        let (mut flows, mut ended) = (ShunnedFlows::new(16, 7), ArrayVec::new());
        let data = segment((1000, 80), flag::ACK);
        flows.add(&data, &shun(ShunAction::Drop), (Time::ZERO, 0), &mut ended);
        for at in 1..=3 {
            let action = flows.action(&data, Time::from_secs(at), &mut ended);
            assert_eq!(action, Some((ShunAction::Drop, 0)));
        }
        let answer = segment((1000, 80), flag::SYN | flag::ACK);
        assert_eq!(
            flows.action(&answer, Time::from_secs(4), &mut ended),
            Some((ShunAction::Drop, 0))
        );
        let open = segment((1000, 80), flag::SYN);
        assert_eq!(flows.action(&open, Time::from_secs(5), &mut ended), None);
        assert_eq!(flows.len(), 0);
        let counters = ended.pop().map(|flow| (flow.action, flow.packets));
        assert_eq!(counters, Some((ShunAction::Drop, 4)));
    }

    #[test]
    fn a_flow_is_forgotten_after_its_own_idle_time() {
        let (mut flows, mut ended) = (ShunnedFlows::new(16, 7), ArrayVec::new());
        let data = segment((1000, 80), flag::ACK);
        flows.add(&data, &shun(ShunAction::Pass), (Time::ZERO, 0), &mut ended);
        assert!(flows.action(&data, Time::from_secs(5), &mut ended).is_some());
        let mut swept = 0;
        flows.sweep(Time::from_secs(14), |_| swept += 1);
        assert_eq!((swept, flows.len()), (0, 1));
        flows.sweep(Time::from_secs(15), |_| swept += 1);
        assert_eq!((swept, flows.len()), (1, 0));
        assert_eq!(flows.action(&data, Time::from_secs(15), &mut ended), None);
    }

    #[test]
    fn a_full_table_replaces_the_least_recently_used_flow_of_a_set() {
        let (mut flows, mut ended) = (ShunnedFlows::new(8, 7), ArrayVec::new());
        for port in 0..9 {
            let packet = segment((1000 + port, 80), flag::ACK);
            flows.add(
                &packet,
                &shun(ShunAction::Pass),
                (Time::from_secs(port.into()), 0),
                &mut ended,
            );
        }
        assert_eq!(flows.len(), 8);
        assert_eq!(ended.len(), 1);
        let first = segment((1000, 80), flag::ACK);
        assert_eq!(flows.action(&first, Time::from_secs(9), &mut ended), None);
    }
}
