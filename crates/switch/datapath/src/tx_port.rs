//! The ports of a bridge as one worker sends to them: transmit buffers, and the path of packets after these
//! buffers.
//!
//! ```text
//!   TxPort
//!     |- Queue:      buffer -> queue of the device                 (a run of packets at once, the rest in flush())
//!     |- Scheduled:  scheduler -> buffer -> queue of the device    (in flush(); see `scheduled`)
//!     |- Lag:        the TxPort of a member, by the hash of the flow (see `lag`)
//!     `- Worker:     inbox of the worker that sends for the port
//! ```

use std::sync::Arc;

use millrace_flow::classify::BURST;
use millrace_pipeline::Counters;
use millrace_types::{PortNo, Time};
use millrace_wire::Packet;

use crate::capture::Captures;
use crate::counters::PortCounters;
use crate::handoff::Inbox;
use crate::io::{Burst, TxQueue};
use crate::lag::{Distribution, Distributor};
use crate::schedule::Scheduler;
use crate::segmentation::SegmentingTx;

/// The path by which a worker sends to a port.
pub(crate) enum TxPath<P> {
    /// A queue of the worker's own.
    Queue(Box<dyn TxQueue<P>>),
    /// A scheduler. Its packets leave by a queue of the worker's own, and other workers forward their packets
    /// here.
    Scheduled(Box<Scheduled<P>>),
    /// The inbox of the worker that owns a queue.
    Worker(Inbox<P>),
    /// One of the members of a LAG, each of which is a port of this list.
    Lag(Box<Distributor>),
}

impl<P> TxPath<P> {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            TxPath::Queue(_) => "Queue",
            TxPath::Scheduled(_) => "Scheduled",
            TxPath::Worker(_) => "Worker",
            TxPath::Lag(_) => "Lag",
        }
    }
}

/// A port as one worker sends to it.
pub(crate) struct TxPort<P> {
    pub(crate) port: PortNo,
    pub(crate) path: TxPath<P>,
    pub(crate) counters: Arc<PortCounters>,
    pub(crate) buffer: Box<Burst<P>>,
    /// True if the device did not accept all packets of the last call.
    pub(crate) is_behind: bool,
    /// True if other workers also have queues of the device, and their packets may overtake those in `buffer`.
    pub(crate) has_other_queues: bool,
    /// The worker's own queue while another worker schedules the port's packets, so that the queue is unused.
    pub(crate) parked: Option<Box<dyn TxQueue<P>>>,
    /// The LAG of which the port is a member.
    pub(crate) lag: Option<PortNo>,
}

/// Minimum number of packets that go to the device at once. Fewer packets wait for the end of the round, so that a
/// device which makes a system call for each burst makes one for all of them.
const RUN: usize = BURST / 2;

impl<P: Packet + 'static> TxPort<P> {
    /// Puts software segmentation in front of the port's queues.
    pub(crate) fn with_segmentation(mut self, counters: &Arc<Counters>) -> TxPort<P> {
        let wrap = |queue| SegmentingTx::wrap(queue, &self.counters, counters);
        self.path = match self.path {
            TxPath::Queue(queue) => TxPath::Queue(wrap(queue)),
            TxPath::Scheduled(scheduled) => TxPath::Scheduled(Box::new(scheduled.map_queue(wrap))),
            path @ (TxPath::Worker(_) | TxPath::Lag(_)) => path,
        };
        self.parked = self.parked.map(wrap);
        self
    }
}

impl<P: Packet> TxPort<P> {
    /// Returns true if another worker, or a member of the LAG, sends the packets of this port, so that they are not
    /// captured here.
    #[inline]
    pub(crate) fn is_sent_elsewhere(&self) -> bool {
        matches!(self.path, TxPath::Worker(_) | TxPath::Lag(_))
    }

    /// Returns the port that people know: the LAG of a member, or else the port.
    #[inline]
    pub(crate) fn captured_as(&self) -> PortNo {
        self.lag.unwrap_or(self.port)
    }

    /// Sends the buffered packets, as far as the device takes them. The rest stays for the next round. Returns the number
    /// of packets that left the buffer.
    #[inline]
    pub(crate) fn flush(&mut self) -> usize {
        let queue = match &mut self.path {
            TxPath::Queue(queue) => &mut **queue,
            TxPath::Scheduled(scheduled) => &mut *scheduled.queue,
            TxPath::Worker(_) | TxPath::Lag(_) => return 0,
        };
        let buffered = self.buffer.len();
        send(queue, &mut self.buffer, &self.counters);
        self.is_behind = !self.buffer.is_empty();
        buffered - self.buffer.len()
    }

    /// Sends a packet ahead of those in the buffer and in the scheduler. Returns the number of packets dropped for it: a
    /// device that takes nothing keeps the buffer full.
    pub(crate) fn send_first(&mut self, packet: P) -> u64 {
        let queue = match &mut self.path {
            TxPath::Queue(queue) => &mut **queue,
            TxPath::Scheduled(scheduled) => &mut *scheduled.queue,
            // The control side chooses the worker that has the queue of a device.
            TxPath::Worker(_) | TxPath::Lag(_) => {
                self.counters.tx_dropped.add(1);
                return 1;
            }
        };
        let mut first = Burst::new();
        first.push(packet);
        send(queue, &mut first, &self.counters);
        let Some(packet) = first.pop() else {
            return 0;
        };
        let dropped = match self.buffer.is_full() {
            true => self.buffer.pop(),
            false => None,
        };
        self.buffer.insert(0, packet);
        self.is_behind = true;
        let dropped = u64::from(dropped.is_some());
        self.counters.tx_dropped.add(dropped);
        dropped
    }

    /// Returns true if packets of another worker might overtake packets that were sent here.
    fn has_in_flight(&self) -> bool {
        match &self.path {
            TxPath::Queue(queue) => queue.has_in_flight(),
            TxPath::Scheduled(scheduled) => scheduled.queue.has_in_flight(),
            // All workers put their packets into the same inbox, in order. Members of a LAG report it for themselves.
            TxPath::Worker(_) | TxPath::Lag(_) => false,
        }
    }

    /// Accepts packets for the device, in order. Packets that neither the device nor the buffer takes stay in `burst`.
    #[inline]
    pub(crate) fn accept(&mut self, burst: &mut Burst<P>) {
        let TxPath::Queue(queue) = &mut self.path else {
            return;
        };
        if burst.len() > self.buffer.remaining_capacity() || burst.len() >= RUN {
            if !self.buffer.is_empty() {
                send(&mut **queue, &mut self.buffer, &self.counters);
            }
            self.is_behind = !self.buffer.is_empty();
            if !self.is_behind && burst.len() >= RUN {
                send(&mut **queue, burst, &self.counters);
                self.is_behind = !burst.is_empty();
            }
        }
        let room = self.buffer.remaining_capacity().min(burst.len());
        self.buffer.extend(burst.drain(..room));
    }
}

/// Sends the packets that the device takes, and counts them.
#[inline]
pub(crate) fn send<P: Packet>(queue: &mut dyn TxQueue<P>, burst: &mut Burst<P>, counters: &PortCounters) {
    let (packets, bytes) = (burst.len(), total_size(burst));
    queue.tx_burst(burst);
    counters.tx_packets.add((packets - burst.len()) as u64);
    // A device may have padded packets that it did not take.
    counters
        .tx_bytes
        .add(bytes.saturating_sub(total_size(burst)) as u64);
    if !burst.is_empty() {
        drop_refused(queue, burst, counters);
    }
}

/// Drops the first packets if the device did not take them and never will, and sends the packets after them.
#[cold]
fn drop_refused<P: Packet>(queue: &mut dyn TxQueue<P>, burst: &mut Burst<P>, counters: &PortCounters) {
    let refused = queue.refused(burst.len()).min(burst.len());
    if refused == 0 {
        return;
    }
    drop(burst.drain(..refused));
    counters.tx_dropped.add(refused as u64);
    if !burst.is_empty() {
        send(queue, burst, counters);
    }
}

#[inline]
fn total_size<P: Packet>(burst: &Burst<P>) -> usize {
    burst.iter().map(Packet::len).sum()
}

/// The ports of one bridge as one worker sends to them.
pub(crate) struct TxPorts<P> {
    pub(crate) ports: Vec<TxPort<P>>,
    /// True if a port has a scheduler in this worker.
    pub(crate) has_scheduled: bool,
    /// True if flows of a LAG wait for their move to another member.
    has_moves: bool,
    /// The port that [`TxPorts::take_last_output`] returns.
    pub(crate) last_output: Option<PortNo>,
    /// True if GSO packets may arrive.
    pub(crate) expects_gso: bool,
    /// The captures of the bridge.
    pub(crate) captures: Captures,
    /// Index in `ports` plus one, by port number, for the port numbers in common use; 0 for none.
    direct: Box<[u16; TxPorts::<()>::DIRECT]>,
}

impl<P> TxPorts<P> {
    /// Port numbers below this one have an entry in `direct`; the others are searched.
    const DIRECT: usize = 1024;

    pub(crate) fn new() -> TxPorts<P> {
        TxPorts {
            ports: Vec::new(),
            has_scheduled: false,
            has_moves: false,
            last_output: None,
            expects_gso: false,
            captures: Captures::default(),
            direct: Box::new([0; TxPorts::<()>::DIRECT]),
        }
    }

    pub(crate) fn insert(&mut self, port: TxPort<P>) {
        self.ports.push(port);
        self.index();
    }

    pub(crate) fn remove(&mut self, port: PortNo) -> Option<TxPort<P>> {
        let at = self.ports.iter().position(|known| known.port == port)?;
        let removed = self.ports.swap_remove(at);
        self.index();
        Some(removed)
    }

    fn index(&mut self) {
        self.direct.fill(0);
        for (index, port) in (1..).zip(&self.ports) {
            if let Some(slot) = self.direct.get_mut(port.port.raw() as usize) {
                *slot = index;
            }
        }
    }

    #[inline]
    pub(crate) fn find(&mut self, port: PortNo) -> Option<&mut TxPort<P>> {
        match self.direct.get(port.raw() as usize) {
            Some(index) => self.ports.get_mut(usize::from(*index).wrapping_sub(1)),
            None => self.ports.iter_mut().find(|known| known.port == port),
        }
    }
}

impl<P: Packet + 'static> TxPorts<P> {
    /// Prepares all ports for GSO packets.
    pub(crate) fn expect_gso(&mut self, counters: &Arc<Counters>) {
        self.expects_gso = true;
        self.ports = self
            .ports
            .drain(..)
            .map(|port| port.with_segmentation(counters))
            .collect();
        self.index();
    }
}

impl<P: Packet> TxPorts<P> {
    /// Counts packets that were received at a port without a receive queue.
    pub(crate) fn count_received(&mut self, port: PortNo, burst: &Burst<P>) {
        if let Some(port) = self.find(port) {
            port.counters.rx_packets.add(burst.len() as u64);
            port.counters.rx_bytes.add(total_size(burst) as u64);
        }
    }

    /// Returns the port to whose device this worker last sent a packet by a queue of its own; `None` if it sent none
    /// since the previous call.
    #[inline]
    pub(crate) fn take_last_output(&mut self) -> Option<PortNo> {
        self.last_output.take()
    }

    /// Returns true if a port's device is behind. First sends packets that wait for the end of the round, because they
    /// may fill the device. If the device is not behind, the buffer has room for a burst.
    #[inline]
    pub(crate) fn is_behind(&mut self, port: PortNo) -> bool {
        let Some(port) = self.find(port) else {
            return false;
        };
        if !port.is_behind && !port.buffer.is_empty() {
            port.flush();
        }
        port.is_behind
    }

    /// Returns true if packets of another worker might overtake packets that this worker sent.
    pub(crate) fn has_in_flight(&self) -> bool {
        self.ports.iter().any(TxPort::has_in_flight)
    }

    /// Distributes the flows of a LAG over its members. Flows of members that left move now, others when no packet can be
    /// overtaken.
    pub(crate) fn distribute(&mut self, lag: PortNo, to: &Distribution, now: Time) {
        if let Some(port) = self.find(lag)
            && let TxPath::Lag(distributor) = &mut port.path
        {
            self.has_moves |= distributor.set(to.clone(), now);
        }
    }

    /// Moves the flows that wait, where no packet can be overtaken.
    #[cold]
    fn finish_moves(&mut self, now: Time) {
        let waiting: Vec<PortNo> = self
            .ports
            .iter()
            .filter(|port| {
                !port.buffer.is_empty() || port.has_in_flight() || matches!(port.path, TxPath::Worker(_))
            })
            .map(|port| port.port)
            .collect();
        self.has_moves = false;
        for port in &mut self.ports {
            if let TxPath::Lag(distributor) = &mut port.path {
                self.has_moves |= distributor.finish(now, |member| waiting.contains(&member));
            }
        }
    }

    /// Sends the buffered packets, and the scheduled packets that may leave now.
    pub(crate) fn flush(&mut self, now: Time) -> Flushed {
        let mut flushed = Flushed::default();
        if self.has_scheduled {
            self.dequeue(now, &mut flushed);
        }
        for port in &mut self.ports {
            if !port.buffer.is_empty() {
                flushed.left += port.flush();
                if !port.buffer.is_empty() {
                    flushed.is_behind = true;
                    flushed.may_be_overtaken |= port.has_other_queues;
                }
            }
        }
        if self.has_moves {
            self.finish_moves(now);
        }
        flushed
    }
}

/// The owner's part of a scheduled port.
pub(crate) struct Scheduled<P> {
    pub(crate) queue: Box<dyn TxQueue<P>>,
    pub(crate) scheduler: Scheduler<P>,
    /// True if scheduling of the port ends once the scheduler's queues are empty.
    pub(crate) is_ending: bool,
}

impl<P: Packet> Scheduled<P> {
    /// Replaces the queue to the device by the result of `map`.
    pub(crate) fn map_queue(
        self,
        map: impl FnOnce(Box<dyn TxQueue<P>>) -> Box<dyn TxQueue<P>>,
    ) -> Scheduled<P> {
        Scheduled {
            queue: map(self.queue),
            ..self
        }
    }
}

/// The result of one flush of a bridge's ports.
#[derive(Debug, Default)]
pub(crate) struct Flushed {
    /// True if a device did not accept all of its packets.
    pub(crate) is_behind: bool,
    /// True if packets of other workers may overtake packets that a device did not take.
    pub(crate) may_be_overtaken: bool,
    /// Number of packets that left transmit buffers.
    pub(crate) left: usize,
    /// Number of packets that schedulers released.
    pub(crate) sent: usize,
    /// The time at which the next queued packet may leave, if any is queued.
    pub(crate) eligible_at: Option<Time>,
}

/// Returns the earlier of two times, if there are any.
#[inline]
pub(crate) fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use millrace_wire::Frame;

    use super::*;

    /// A device that takes a few packets of each burst; `burst_sizes` lists the numbers, which repeat.
    struct VaryingDevice {
        burst_sizes: Vec<usize>,
        bursts: usize,
        sent: Arc<Mutex<Vec<u8>>>,
    }

    impl TxQueue<Frame> for VaryingDevice {
        fn tx_burst(&mut self, burst: &mut Burst<Frame>) {
            let taken = self.burst_sizes[self.bursts % self.burst_sizes.len()].min(burst.len());
            self.bursts += 1;
            let sent = burst.drain(..taken).map(|frame| frame.bytes()[0]);
            self.sent.lock().extend(sent);
        }
    }

    fn port(burst_sizes: &[usize]) -> (TxPort<Frame>, Arc<Mutex<Vec<u8>>>) {
        let sent = Arc::default();
        let queue = VaryingDevice {
            burst_sizes: burst_sizes.to_vec(),
            bursts: 0,
            sent: Arc::clone(&sent),
        };
        let port = TxPort {
            port: PortNo::from_raw(1),
            path: TxPath::Queue(Box::new(queue)),
            counters: Arc::default(),
            buffer: Box::new(Burst::new()),
            is_behind: false,
            has_other_queues: false,
            parked: None,
            lag: None,
        };
        (port, sent)
    }

    fn burst(numbers: core::ops::Range<u8>) -> Burst<Frame> {
        numbers.map(|number| Frame::new(&[number; 60])).collect()
    }

    #[test]
    fn a_short_run_waits_for_the_end_of_the_round_and_a_long_one_does_not() {
        let (mut port, sent) = port(&[BURST]);
        port.accept(&mut burst(0..3));
        assert!(sent.lock().is_empty());
        port.accept(&mut burst(3..50));
        assert_eq!(*sent.lock(), (0..50).collect::<Vec<u8>>());
        port.accept(&mut burst(50..60));
        port.flush();
        assert_eq!(*sent.lock(), (0..60).collect::<Vec<u8>>());
        assert_eq!(port.counters.tx_packets.read(), 60);
        assert_eq!(port.counters.tx_bytes.read(), 60 * 60);
    }

    #[test]
    fn a_frame_of_a_link_protocol_leaves_ahead_of_all_packets_even_if_the_buffer_is_full() {
        let (mut port, sent) = port(&[0, 0, BURST, BURST, BURST]);
        port.accept(&mut burst(0..64));
        assert_eq!(
            port.send_first(Frame::new(&[99; 60])),
            1,
            "the last packet makes room"
        );
        port.flush();
        port.flush();
        let expected: Vec<u8> = [99].into_iter().chain(0..63).collect();
        assert_eq!(*sent.lock(), expected);
        assert_eq!(port.counters.tx_dropped.read(), 1);
        assert_eq!(port.send_first(Frame::new(&[98; 60])), 0);
        assert_eq!(
            sent.lock().last(),
            Some(&98),
            "it does not wait for the end of the round"
        );
    }

    /// A device that takes up to `takes` packets, and refuses packets that begin with 9. Without a peer, it
    /// refuses all packets that it did not take.
    struct SelectiveDevice {
        has_peer: bool,
        takes: usize,
    }

    impl TxQueue<Frame> for SelectiveDevice {
        fn tx_burst(&mut self, burst: &mut Burst<Frame>) {
            let refused = burst.iter().position(|frame| frame.bytes()[0] == 9);
            let taken = refused.unwrap_or(burst.len()).min(self.takes);
            self.takes -= taken;
            drop(burst.drain(..taken));
        }

        fn refused(&self, left: usize) -> usize {
            if self.has_peer {
                usize::from(self.takes > 0)
            } else {
                left
            }
        }
    }

    #[test]
    fn what_a_device_will_never_take_is_dropped_and_counted_as_that_alone() {
        for (has_peer, takes, sent, dropped, left) in [
            (true, 100, 19, 1, 0),
            (true, 12, 12, 1, 7),
            (true, 4, 4, 0, 16),
            (false, 0, 0, 20, 0),
        ] {
            let counters = PortCounters::default();
            let mut queue = SelectiveDevice { has_peer, takes };
            let mut burst = burst(0..20);
            send(&mut queue, &mut burst, &counters);
            let counted = [&counters.tx_packets, &counters.tx_bytes, &counters.tx_dropped];
            assert_eq!(
                counted.map(crate::counters::Counter::read),
                [sent, 60 * sent, dropped]
            );
            assert_eq!(burst.len(), left);
        }
    }

    /// A device that pads packets, and takes them at the next attempt.
    struct PaddingDevice;

    impl TxQueue<Frame> for PaddingDevice {
        fn tx_burst(&mut self, burst: &mut Burst<Frame>) {
            if burst.iter().all(|frame| frame.len() == 64) {
                burst.clear();
            }
            burst.iter_mut().for_each(|frame| *frame = Frame::new(&[7; 64]));
        }
    }

    #[test]
    fn packets_that_a_device_pads_are_counted_when_it_takes_them() {
        let counters = PortCounters::default();
        let mut burst = burst(0..20);
        for (packets, left) in [(0, 20), (20, 0)] {
            send(&mut PaddingDevice, &mut burst, &counters);
            assert_eq!(burst.len(), left);
            assert_eq!(counters.tx_packets.read(), packets);
            assert_eq!(counters.tx_bytes.read(), 64 * packets);
        }
    }

    #[test]
    fn packets_leave_in_order_and_are_counted_once_whatever_the_device_takes() {
        for burst_sizes in [
            &[0][..],
            &[BURST],
            &[1],
            &[0, BURST],
            &[5, 0, 40, 3],
            &[33, 1, 0, 0],
        ] {
            let (mut port, sent) = port(burst_sizes);
            let (mut next, mut left_over) = (0_u8, Vec::new());
            for len in [1, 40, 3, 3, 31, 32, 33, 20, 20, 20, 20, 1, 1] {
                let mut sent_now = burst(next..next + len);
                next += len;
                port.accept(&mut sent_now);
                left_over.extend(sent_now.iter().map(|frame| frame.bytes()[0]));
                if len == 3 {
                    port.flush();
                }
            }
            let waiting = port.buffer.iter().map(|frame| frame.bytes()[0]);
            let sent = sent.lock();
            let kept: Vec<u8> = sent.iter().copied().chain(waiting).collect();
            assert!(kept.is_sorted(), "{burst_sizes:?}: {kept:?}");
            let mut all = [kept, left_over].concat();
            all.sort_unstable();
            assert_eq!(all, (0..next).collect::<Vec<u8>>(), "{burst_sizes:?}");
            assert_eq!(port.counters.tx_packets.read(), sent.len() as u64);
            assert_eq!(port.counters.tx_bytes.read(), 60 * sent.len() as u64);
        }
    }
}
