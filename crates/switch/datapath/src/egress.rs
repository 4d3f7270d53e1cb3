//! Where a worker puts packets that the pipeline is done with: transmit buffers of its own ports, inboxes
//! of the workers that own the others, and the event queues of the control side.

use std::sync::Arc;

use millrace_flow::classify::BURST;
use millrace_pipeline::{Counters, DropReason, Egress, Learn, PacketInInfo};
use millrace_types::{PortNo, QueueId, Time};
use millrace_wire::Packet;

use crate::capture::Captures;
use crate::counters::PortCounters;
use crate::cutting::{CuttingTx, each_segment, is_uncut};
use crate::events::{Direction, Events, Tapped};
use crate::handoff::{Destination, Inbox};
use crate::io::{Burst, TxQueue};
use crate::turn::{Flushed, Scheduled};

/// How a worker sends to a port.
pub(crate) enum Path<P> {
    /// Through a queue of its own.
    Queue(Box<dyn TxQueue<P>>),
    /// Through a queue of its own, when it is their turn, also for all other workers.
    Scheduled(Box<Scheduled<P>>),
    /// Through the worker that owns a queue.
    Worker(Inbox<P>),
}

/// A port as one worker sends to it.
pub(crate) struct TxPort<P> {
    pub(crate) port: PortNo,
    pub(crate) path: Path<P>,
    pub(crate) counters: Arc<PortCounters>,
    pub(crate) buffer: Box<Burst<P>>,
    /// True if the device did not take all that it was given last.
    pub(crate) is_behind: bool,
    /// A queue of its own that is not used while another worker schedules the port's packets.
    pub(crate) parked: Option<Box<dyn TxQueue<P>>>,
}

/// A run of so many packets goes to the device at once. What is less waits for the end of the round, so that a
/// device which makes a system call for each burst makes one for all of them.
const RUN: usize = BURST / 2;

impl<P: Packet + 'static> TxPort<P> {
    /// Puts a cutter in front of its queues.
    pub(crate) fn cut(mut self, counters: &Arc<Counters>) -> TxPort<P> {
        let wrap = |queue| CuttingTx::wrap(queue, &self.counters, counters);
        self.path = match self.path {
            Path::Queue(queue) => Path::Queue(wrap(queue)),
            Path::Scheduled(scheduled) => Path::Scheduled(Box::new(scheduled.map_queue(wrap))),
            Path::Worker(inbox) => Path::Worker(inbox),
        };
        self.parked = self.parked.map(wrap);
        self
    }
}

impl<P: Packet> TxPort<P> {
    /// Sends what waits, as far as the device takes it. The rest waits for the next poll.
    #[inline]
    pub(crate) fn flush(&mut self) {
        let queue = match &mut self.path {
            Path::Queue(queue) => &mut **queue,
            Path::Scheduled(scheduled) => &mut *scheduled.queue,
            Path::Worker(_) => return,
        };
        send(queue, &mut self.buffer, &self.counters);
        self.is_behind = !self.buffer.is_empty();
    }

    /// Returns true if packets that were sent here might be overtaken by those that another worker sends.
    fn holds(&self) -> bool {
        match &self.path {
            Path::Queue(queue) => queue.holds(),
            Path::Scheduled(scheduled) => scheduled.queue.holds(),
            // In an inbox, which is one for all.
            Path::Worker(_) => false,
        }
    }

    /// Takes packets for the device, in order. What neither the device nor the buffer takes stays in `burst`.
    #[inline]
    fn accept(&mut self, burst: &mut Burst<P>) {
        let Path::Queue(queue) = &mut self.path else {
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

/// Sends what the device takes, and counts it.
#[inline]
pub(crate) fn send<P: Packet>(queue: &mut dyn TxQueue<P>, burst: &mut Burst<P>, counters: &PortCounters) {
    let (packets, bytes) = (burst.len(), total_size(burst));
    queue.tx_burst(burst);
    counters.tx_packets.add((packets - burst.len()) as u64);
    counters.tx_bytes.add((bytes - total_size(burst)) as u64);
    if !burst.is_empty() {
        drop_refused(queue, burst, counters);
    }
}

/// Drops what the device has left and will never take, and sends what is behind it.
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
    /// True if there are ports whose packets are scheduled here.
    pub(crate) has_scheduled: bool,
    /// See [`TxPorts::take_waiting`].
    waiting: Option<PortNo>,
    /// True if there may be packets that are to be cut.
    pub(crate) cuts: bool,
    /// The captures of the bridge.
    pub(crate) captures: Captures,
    /// Index in `ports` plus one, by port number, for the numbers that everybody uses.
    direct: Box<[u16; TxPorts::<()>::DIRECT]>,
}

impl<P> TxPorts<P> {
    const DIRECT: usize = 1024;

    pub(crate) fn new() -> TxPorts<P> {
        TxPorts {
            ports: Vec::new(),
            has_scheduled: false,
            waiting: None,
            cuts: false,
            captures: Captures::default(),
            direct: Box::new([0; TxPorts::<()>::DIRECT]),
        }
    }

    pub(crate) fn insert(&mut self, port: TxPort<P>) {
        self.ports.push(port);
        self.index();
    }

    pub(crate) fn remove(&mut self, port: PortNo) -> Option<TxPort<P>> {
        let at = self.ports.iter().position(|held| held.port == port)?;
        let removed = self.ports.swap_remove(at);
        self.index();
        Some(removed)
    }

    fn index(&mut self) {
        self.direct.fill(0);
        for (place, port) in (1..).zip(&self.ports) {
            if let Some(slot) = self.direct.get_mut(port.port.raw() as usize) {
                *slot = place;
            }
        }
    }

    #[inline]
    pub(crate) fn find(&mut self, port: PortNo) -> Option<&mut TxPort<P>> {
        match self.direct.get(port.raw() as usize) {
            Some(place) => self.ports.get_mut(usize::from(*place).wrapping_sub(1)),
            None => self.ports.iter_mut().find(|held| held.port == port),
        }
    }
}

impl<P: Packet + 'static> TxPorts<P> {
    /// From now on there may be packets that are to be cut.
    pub(crate) fn cut(&mut self, counters: &Arc<Counters>) {
        self.cuts = true;
        self.ports = self.ports.drain(..).map(|port| port.cut(counters)).collect();
        self.index();
    }
}

impl<P: Packet> TxPorts<P> {
    /// Counts packets that came in at a port, where they did not come by a receive queue.
    pub(crate) fn count_received(&mut self, port: PortNo, burst: &Burst<P>) {
        if let Some(port) = self.find(port) {
            port.counters.rx_packets.add(burst.len() as u64);
            port.counters.rx_bytes.add(total_size(burst) as u64);
        }
    }

    /// The last port that was given packets which its device has not taken yet, since this was asked last. Whether it will
    /// by the end of the round, [`Self::is_behind`] tells then.
    #[inline]
    pub(crate) fn take_waiting(&mut self) -> Option<PortNo> {
        self.waiting.take()
    }

    /// Returns true if a port's device is still behind.
    #[inline]
    pub(crate) fn is_behind(&mut self, port: PortNo) -> bool {
        self.find(port).is_some_and(|port| port.is_behind)
    }

    /// Returns true if packets that were sent from here might be overtaken by those that another worker sends.
    pub(crate) fn holds(&self) -> bool {
        self.ports.iter().any(TxPort::holds)
    }

    /// Sends what is buffered, and what may leave by now of what waits for its turn.
    pub(crate) fn flush(&mut self, now: Time) -> Flushed {
        let mut flushed = Flushed::default();
        if self.has_scheduled {
            self.dequeue(now, &mut flushed);
        }
        for port in &mut self.ports {
            if !port.buffer.is_empty() {
                port.flush();
                flushed.is_behind |= !port.buffer.is_empty();
            }
        }
        flushed
    }
}

/// What the pipeline of one bridge in one worker sends into.
pub(crate) struct WorkerEgress<'a, P> {
    pub(crate) bridge: u32,
    pub(crate) tx: &'a mut TxPorts<P>,
    pub(crate) events: &'a Events<P>,
    /// This worker's, for the drops that happen here.
    pub(crate) counters: &'a Counters,
    pub(crate) now: Time,
}

impl<P: Packet> WorkerEgress<'_, P> {
    /// Gives packets to the port's scheduler, or to the worker that sends for this one.
    fn hand_over(&mut self, port: PortNo, queue: Option<QueueId>, burst: &mut Burst<P>) {
        let cuts = self.tx.cuts;
        let captures = self.tx.captures.shared();
        let Some(tx) = self.tx.find(port) else { return };
        if let Some(captures) = captures {
            for packet in burst.iter() {
                self.events.tap(&captures, port, Direction::Tx, self.now, packet);
            }
        }
        let reason = match &mut tx.path {
            Path::Scheduled(scheduled) => {
                if cuts && is_uncut(burst) {
                    for packet in burst.drain(..) {
                        scheduled.enqueue_cut(queue, packet, self.now, &tx.counters, self.counters);
                    }
                }
                scheduled.scheduler.enqueue_burst(queue, burst, self.now);
                DropReason::QueueFull
            }
            Path::Worker(inbox) => {
                let to = Destination {
                    bridge: self.bridge,
                    port,
                    queue,
                };
                inbox.put(to, burst);
                DropReason::TransmitFull
            }
            // The caller's to do.
            Path::Queue(_) => return,
        };
        if !burst.is_empty() {
            tx.counters.tx_dropped.add(burst.len() as u64);
            self.counters.drops.add(reason, burst.len() as u64);
            P::discard(burst);
        }
    }
}

impl<P: Packet> Egress<P> for WorkerEgress<'_, P> {
    #[inline]
    fn transmit(&mut self, port: PortNo, queue: Option<QueueId>, packet: P) {
        let cuts = self.tx.cuts;
        let captures = self.tx.captures.shared();
        let Some(tx) = self.tx.find(port) else {
            self.counters.drops.add(DropReason::NoSuchPort, 1);
            return;
        };
        if let Some(captures) = captures {
            self.events.tap(&captures, port, Direction::Tx, self.now, &packet);
        }
        match &mut tx.path {
            Path::Queue(_) => {
                if tx.buffer.is_full() {
                    tx.flush();
                    if tx.buffer.is_full() {
                        tx.counters.tx_dropped.add(1);
                        self.counters.drops.add(DropReason::TransmitFull, 1);
                        return;
                    }
                }
                tx.buffer.push(packet);
                self.tx.waiting = Some(port);
            }
            Path::Worker(inbox) => {
                let to = Destination {
                    bridge: self.bridge,
                    port,
                    queue,
                };
                if inbox.put_one(to, packet).is_err() {
                    tx.counters.tx_dropped.add(1);
                    self.counters.drops.add(DropReason::TransmitFull, 1);
                }
            }
            Path::Scheduled(scheduled) if cuts => {
                scheduled.enqueue_cut(queue, packet, self.now, &tx.counters, self.counters);
            }
            Path::Scheduled(scheduled) => {
                if scheduled.scheduler.enqueue(queue, packet, self.now).is_err() {
                    tx.counters.tx_dropped.add(1);
                    self.counters.drops.add(DropReason::QueueFull, 1);
                }
            }
        }
    }

    #[inline]
    fn transmit_burst(&mut self, port: PortNo, queue: Option<QueueId>, burst: &mut Burst<P>) {
        let captures = self.tx.captures.shared();
        let Some(tx) = self.tx.find(port) else {
            self.counters
                .drops
                .add(DropReason::NoSuchPort, burst.len() as u64);
            return P::discard(burst);
        };
        let Path::Queue(_) = tx.path else {
            return self.hand_over(port, queue, burst);
        };
        if let Some(captures) = captures {
            for packet in burst.iter() {
                self.events.tap(&captures, port, Direction::Tx, self.now, packet);
            }
        }
        tx.accept(burst);
        let waits = !tx.buffer.is_empty();
        if !burst.is_empty() {
            tx.counters.tx_dropped.add(burst.len() as u64);
            self.counters
                .drops
                .add(DropReason::TransmitFull, burst.len() as u64);
            P::discard(burst);
        }
        if waits {
            self.tx.waiting = Some(port);
        }
    }

    #[inline]
    fn dropped_burst(&mut self, _: DropReason, burst: &mut Burst<P>) {
        P::discard(burst);
    }

    fn packet_in(&mut self, info: PacketInInfo, packet: P) {
        each_segment(packet, self.counters, |packet| {
            if !self.events.push_packet_in(info, packet) {
                self.counters.drops.add(DropReason::PacketInFull, 1);
            }
        });
    }

    fn learn(&mut self, learn: Learn) {
        self.events.push_learn(learn);
    }

    fn neighbour(&mut self, underlay: PortNo, packet: P) {
        self.events.push_neighbour(underlay, packet);
    }

    fn traced(&mut self, trace: u64, in_port: PortNo, packet: P) {
        let direction = Direction::Traced(trace);
        self.events.push_tapped(Tapped {
            port: in_port,
            direction,
            captures: 0,
            time: self.now,
            packet,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use millrace_wire::Frame;

    use super::*;

    /// Takes a few packets of each burst, as many as `appetite` says in turn.
    struct Moody {
        appetite: Vec<usize>,
        bursts: usize,
        sent: Arc<Mutex<Vec<u8>>>,
    }

    impl TxQueue<Frame> for Moody {
        fn tx_burst(&mut self, burst: &mut Burst<Frame>) {
            let taken = self.appetite[self.bursts % self.appetite.len()].min(burst.len());
            self.bursts += 1;
            let sent = burst.drain(..taken).map(|frame| frame.bytes()[0]);
            self.sent.lock().unwrap().extend(sent);
        }
    }

    fn port(appetite: &[usize]) -> (TxPort<Frame>, Arc<Mutex<Vec<u8>>>) {
        let sent = Arc::default();
        let queue = Moody {
            appetite: appetite.to_vec(),
            bursts: 0,
            sent: Arc::clone(&sent),
        };
        let port = TxPort {
            port: PortNo::from_raw(1),
            path: Path::Queue(Box::new(queue)),
            counters: Arc::default(),
            buffer: Box::new(Burst::new()),
            is_behind: false,
            parked: None,
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
        assert!(sent.lock().unwrap().is_empty());
        port.accept(&mut burst(3..50));
        assert_eq!(*sent.lock().unwrap(), (0..50).collect::<Vec<u8>>());
        port.accept(&mut burst(50..60));
        port.flush();
        assert_eq!(*sent.lock().unwrap(), (0..60).collect::<Vec<u8>>());
        assert_eq!(port.counters.tx_packets.read(), 60);
        assert_eq!(port.counters.tx_bytes.read(), 60 * 60);
    }

    /// Takes some packets, but none that begins with 9; and none at all while nobody is there.
    struct Picky {
        is_there: bool,
        takes: usize,
    }

    impl TxQueue<Frame> for Picky {
        fn tx_burst(&mut self, burst: &mut Burst<Frame>) {
            let refused = burst.iter().position(|frame| frame.bytes()[0] == 9);
            let taken = refused.unwrap_or(burst.len()).min(self.takes);
            self.takes -= taken;
            drop(burst.drain(..taken));
        }

        fn refused(&self, left: usize) -> usize {
            if self.is_there {
                usize::from(self.takes > 0)
            } else {
                left
            }
        }
    }

    #[test]
    fn what_a_device_will_never_take_is_dropped_and_counted_as_that_alone() {
        for (is_there, takes, sent, dropped, left) in [
            (true, 100, 19, 1, 0),
            (true, 12, 12, 1, 7),
            (true, 4, 4, 0, 16),
            (false, 0, 0, 20, 0),
        ] {
            let counters = PortCounters::default();
            let mut queue = Picky { is_there, takes };
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

    #[test]
    fn packets_leave_in_order_and_are_counted_once_whatever_the_device_takes() {
        for appetite in [
            &[0][..],
            &[BURST],
            &[1],
            &[0, BURST],
            &[5, 0, 40, 3],
            &[33, 1, 0, 0],
        ] {
            let (mut port, sent) = port(appetite);
            let (mut next, mut left_over) = (0_u8, Vec::new());
            for len in [1, 40, 3, 3, 31, 32, 33, 20, 20, 20, 20, 1, 1] {
                let mut given = burst(next..next + len);
                next += len;
                port.accept(&mut given);
                left_over.extend(given.iter().map(|frame| frame.bytes()[0]));
                if len == 3 {
                    port.flush();
                }
            }
            let waiting = port.buffer.iter().map(|frame| frame.bytes()[0]);
            let sent = sent.lock().unwrap();
            let kept: Vec<u8> = sent.iter().copied().chain(waiting).collect();
            assert!(kept.is_sorted(), "{appetite:?}: {kept:?}");
            let mut all = [kept, left_over].concat();
            all.sort_unstable();
            assert_eq!(all, (0..next).collect::<Vec<u8>>(), "{appetite:?}");
            assert_eq!(port.counters.tx_packets.read(), sent.len() as u64);
            assert_eq!(port.counters.tx_bytes.read(), 60 * sent.len() as u64);
        }
    }
}
