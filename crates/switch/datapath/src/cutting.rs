//! Long TCP packets on their way to somebody who takes no more than a segment at a time.
//!
//! Such packets come only from devices that say so ([`Device::gives_uncut`](crate::io::Device::gives_uncut)). Before
//! the first of them is opened, every worker puts a cutter in front of all its transmit queues: until then none of this
//! is on the way of a packet. What cannot carry them whole:
//!
//! | who | what happens |
//! | --- | --- |
//! | a transmit queue that does not take the packet ([`TxQueue::takes_uncut`]) | it is cut there, as far as the device takes segments: no more than a burst of them is in memory |
//! | a scheduler | gets segments: its queues and rates are those of packets of the network |
//! | a policer | gets segments: what is longer than a burst size never conforms (RFC 2697) |
//! | a controller | gets segments: a packet-in has 16 bits for its length |
//!
//! Everything else carries them as they are: tables and groups, meters, patches, captures, other workers. So do ports of
//! chains and tunnels no longer see them: the pipeline cuts before an envelope, and a chain's port is a transmit queue.

use std::sync::Arc;
use std::time::Instant;

use millrace_pipeline::{Counters, DropReason};
use millrace_wire::Packet;
use millrace_wire::segment::Cut;

use crate::counters::PortCounters;
use crate::io::{Burst, RxQueue, TxQueue};

/// Segments that a queue sends at a time, so that others have their turn.
const SEGMENTS_MAX: usize = 512;

/// Hands out a packet or, if it is to be cut, its segments in order. What cannot be made is dropped and counted.
#[inline]
pub(crate) fn each_segment<P: Packet>(packet: P, counters: &Counters, mut to: impl FnMut(P)) {
    if packet.segment_size().is_none() {
        return to(packet);
    }
    let Some(cut) = Cut::of(&packet) else {
        return counters.drops.add(DropReason::Uncuttable, 1);
    };
    for number in 0..cut.count() {
        match cut.segment(&packet, number) {
            Some(segment) => to(segment),
            None => return counters.drops.add(DropReason::NoBuffer, 1),
        }
    }
}

/// Returns true if a packet of a burst is to be cut.
#[inline]
pub(crate) fn is_uncut<P: Packet>(burst: &Burst<P>) -> bool {
    burst.iter().any(|packet| packet.segment_size().is_some())
}

/// A transmit queue that cuts what its device does not take.
pub(crate) struct CuttingTx<P> {
    queue: Box<dyn TxQueue<P>>,
    /// The first packet of the burst, if some of its segments were made and not all of them were sent.
    begun: Option<Begun>,
    /// Segments of it that the device did not take.
    ready: Box<Burst<P>>,
    port: Arc<PortCounters>,
    counters: Arc<Counters>,
}

struct Begun {
    cut: Cut,
    /// The next segment.
    next: usize,
}

impl<P: Packet + 'static> CuttingTx<P> {
    pub(crate) fn wrap(
        queue: Box<dyn TxQueue<P>>,
        port: &Arc<PortCounters>,
        counters: &Arc<Counters>,
    ) -> Box<dyn TxQueue<P>> {
        Box::new(CuttingTx {
            queue,
            begun: None,
            ready: Box::new(Burst::new()),
            port: Arc::clone(port),
            counters: Arc::clone(counters),
        })
    }

    #[inline(never)]
    fn cut(&mut self, burst: &mut Burst<P>) {
        let mut left = SEGMENTS_MAX;
        // A port that is scheduled by another worker for a while takes its packets elsewhere, whole.
        let is_other = |begun: &Begun| burst.first().is_none_or(|first| !begun.cut.is_of(first));
        if self.begun.as_ref().is_some_and(is_other) {
            self.begun = None;
            P::discard(&mut self.ready);
        }
        while !burst.is_empty() {
            if self.begun.is_none() {
                let whole = self.whole(burst);
                if whole != 0 && !self.send_first(whole, burst) {
                    return;
                }
                let Some(first) = burst.first() else { return };
                match Cut::of(first) {
                    Some(cut) => self.begun = Some(Begun { cut, next: 0 }),
                    None => {
                        // To the port's counters it was sent, as is whatever a device takes and does not send.
                        self.counters.drops.add(DropReason::Uncuttable, 1);
                        burst.remove(0);
                        continue;
                    }
                }
            }
            if !self.send_segments(burst, &mut left) {
                return;
            }
        }
    }

    /// How many packets from the first on go as they are.
    fn whole(&mut self, burst: &mut Burst<P>) -> usize {
        let queue = &mut *self.queue;
        let goes = |packet: &P| {
            packet.segment_size().is_none()
                || Cut::of(packet).is_some_and(|cut| queue.takes_uncut(packet, &cut))
        };
        let len = burst.len();
        let to_cut = burst.iter().map(goes).position(|goes| !goes);
        to_cut.unwrap_or(len)
    }

    /// Sends packets as they are. Returns whether all of them went; the others are the first of the burst again.
    fn send_first(&mut self, len: usize, burst: &mut Burst<P>) -> bool {
        if len == burst.len() {
            self.queue.tx_burst(burst);
            return burst.is_empty();
        }
        let mut first: Burst<P> = burst.drain(..len).collect();
        self.queue.tx_burst(&mut first);
        let has_sent = first.is_empty();
        if !has_sent {
            first.extend(burst.drain(..));
            *burst = first;
        }
        has_sent
    }

    /// Sends segments of the first packet, and takes it out of the burst when the last of them has gone. Returns
    /// whether it has.
    fn send_segments(&mut self, burst: &mut Burst<P>, left: &mut usize) -> bool {
        let (Some(begun), Some(packet)) = (&mut self.begun, burst.first()) else {
            self.begun = None;
            return true;
        };
        let count = begun.cut.count();
        loop {
            while begun.next < count && !self.ready.is_full() && *left > 0 {
                *left -= 1;
                begun.next += 1;
                match begun.cut.segment(packet, begun.next - 1) {
                    Some(segment) => self.ready.push(segment),
                    // To wait for buffers would be to keep those of this packet.
                    None => {
                        self.counters.drops.add(DropReason::NoBuffer, 1);
                        begun.next = count;
                    }
                }
            }
            if !self.ready.is_empty() {
                self.queue.tx_burst(&mut self.ready);
            }
            if !self.ready.is_empty() || (begun.next < count && *left == 0) {
                return false;
            }
            if begun.next == count {
                break;
            }
        }
        // The packet itself is counted by whoever sends the burst.
        let more = (count - 1) as u64;
        self.port.tx_packets.add(more);
        self.port.tx_bytes.add(more * begun.cut.headers_size() as u64);
        self.begun = None;
        burst.remove(0);
        true
    }
}

impl<P: Packet + 'static> TxQueue<P> for CuttingTx<P> {
    fn holds(&self) -> bool {
        self.queue.holds()
    }

    fn refused(&self, left: usize) -> usize {
        // If some of its segments were made, the rest of them goes, too: they are no longer the first packet's.
        self.queue.refused(left)
    }

    /// A packet that is to be cut stays the first of the burst until all of its segments have gone.
    fn tx_burst(&mut self, burst: &mut Burst<P>) {
        if self.begun.is_none() && !is_uncut(burst) {
            return self.queue.tx_burst(burst);
        }
        self.cut(burst);
    }
}

/// A receive queue whose packets are all of the network's size.
pub(crate) struct CuttingRx<P> {
    queue: Box<dyn RxQueue<P>>,
    begun: Option<(P, Begun)>,
    /// What was received and not yet handed out, the first one last.
    waiting: Box<Burst<P>>,
    counters: Arc<Counters>,
}

impl<P: Packet + 'static> CuttingRx<P> {
    pub(crate) fn wrap(queue: Box<dyn RxQueue<P>>, counters: &Arc<Counters>) -> Box<dyn RxQueue<P>> {
        Box::new(CuttingRx {
            queue,
            begun: None,
            waiting: Box::new(Burst::new()),
            counters: Arc::clone(counters),
        })
    }
}

impl<P: Packet + 'static> RxQueue<P> for CuttingRx<P> {
    /// Segments that are not yet handed out are due now.
    fn next_due(&mut self) -> Option<Instant> {
        if self.begun.is_some() || !self.waiting.is_empty() {
            return Some(Instant::now());
        }
        self.queue.next_due()
    }

    fn rx_burst(&mut self, burst: &mut Burst<P>) {
        let mut has_polled = false;
        while !burst.is_full() {
            if let Some((packet, begun)) = &mut self.begun {
                begun.next += 1;
                match begun.cut.segment(packet, begun.next - 1) {
                    Some(segment) => burst.push(segment),
                    None => {
                        self.counters.drops.add(DropReason::NoBuffer, 1);
                        begun.next = begun.cut.count();
                    }
                }
                if begun.next == begun.cut.count() {
                    self.begun = None;
                }
                continue;
            }
            match self.waiting.pop() {
                Some(packet) if packet.segment_size().is_none() => burst.push(packet),
                Some(packet) => match Cut::of(&packet) {
                    Some(cut) => self.begun = Some((packet, Begun { cut, next: 0 })),
                    None => self.counters.drops.add(DropReason::Uncuttable, 1),
                },
                None if has_polled => return,
                None => {
                    has_polled = true;
                    self.queue.rx_burst(&mut self.waiting);
                    self.waiting.reverse();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU16;
    use std::sync::Mutex;

    use millrace_types::Mac;
    use millrace_wire::{Builder, Frame, tcp};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Takes so many packets of each burst in turn, and long ones whole if their first byte of data is less.
    struct Moody {
        appetite: Vec<usize>,
        bursts: usize,
        whole_below: u8,
        sent: Arc<Mutex<Vec<Frame>>>,
    }

    impl TxQueue<Frame> for Moody {
        fn tx_burst(&mut self, burst: &mut Burst<Frame>) {
            let taken = self.appetite[self.bursts % self.appetite.len()].min(burst.len());
            self.bursts += 1;
            self.sent.lock().unwrap().extend(burst.drain(..taken));
        }

        fn takes_uncut(&mut self, packet: &Frame, _: &Cut) -> bool {
            packet.bytes()[54] < self.whole_below
        }
    }

    impl RxQueue<Frame> for Moody {
        fn rx_burst(&mut self, burst: &mut Burst<Frame>) {
            let given = self.appetite[self.bursts % self.appetite.len()];
            self.bursts += 1;
            let mut from = self.sent.lock().unwrap();
            let given = given.min(from.len()).min(burst.remaining_capacity());
            burst.extend(from.drain(..given));
        }
    }

    /// A packet with so many bytes of data, the first of which is its number.
    fn packet(number: u8, size: usize, segment_size: Option<u16>) -> Frame {
        let mut data = vec![7; size];
        data[0] = number;
        let bytes = Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]))
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
            .tcp(tcp::Repr {
                seq: u32::from(number) << 20,
                ..tcp::Repr::default()
            })
            .payload(&data)
            .build();
        let frame = Frame::new(&bytes);
        match segment_size.and_then(NonZeroU16::new) {
            Some(size) => frame.to_cut(size),
            None => frame,
        }
    }

    fn wanted(packets: &[Frame], whole_below: u8) -> Vec<Frame> {
        let counters = Counters::default();
        let mut wanted = Vec::new();
        for packet in packets {
            if packet.bytes()[54] < whole_below {
                wanted.push(packet.clone());
            } else {
                each_segment(packet.clone(), &counters, |segment| wanted.push(segment));
            }
        }
        wanted
    }

    fn packets() -> impl Strategy<Value = Vec<Frame>> {
        vec((1_usize..9000, prop::option::of(300_u16..3000)), 0..90).prop_map(|sizes| {
            let packet = |(number, (size, segment_size)): (usize, (usize, Option<u16>))| {
                packet(number as u8, size, segment_size)
            };
            sizes.into_iter().enumerate().map(packet).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn whatever_the_device_takes_the_segments_leave_once_and_in_order_and_are_counted(
            packets in packets(), appetite in vec(0_usize..70, 1..6), whole_below in 0_u8..100,
        ) {
            prop_assume!(appetite.iter().any(|taken| *taken != 0));
            let sent = Arc::default();
            let queue = Moody { appetite, bursts: 0, whole_below, sent: Arc::clone(&sent) };
            let (port, counters) = (Arc::<PortCounters>::default(), Arc::<Counters>::default());
            let mut queue = CuttingTx::wrap(Box::new(queue), &port, &counters);
            let (mut burst, mut next) = (Burst::new(), packets.iter());
            for _ in 0..100_000 {
                burst.extend(next.by_ref().take(burst.remaining_capacity()).cloned());
                if burst.is_empty() {
                    break;
                }
                crate::egress::send(&mut *queue, &mut burst, &port);
            }
            let wanted = wanted(&packets, whole_below);
            prop_assert_eq!(&*sent.lock().unwrap(), &wanted);
            prop_assert_eq!(port.tx_packets.read(), wanted.len() as u64);
            prop_assert_eq!(port.tx_bytes.read(), wanted.iter().map(|packet| packet.len() as u64).sum::<u64>());
        }

        #[test]
        fn what_is_received_is_cut_in_order_however_it_comes(
            packets in packets(), appetite in vec(0_usize..70, 1..6), room in 1_usize..64,
        ) {
            prop_assume!(appetite.iter().any(|given| *given != 0));
            let wanted = wanted(&packets, 0);
            let queue = Moody { appetite, bursts: 0, whole_below: 0, sent: Arc::new(Mutex::new(packets)) };
            let mut queue = CuttingRx::wrap(Box::new(queue), &Arc::default());
            let mut received = Vec::new();
            for _ in 0..100_000 {
                if received.len() == wanted.len() {
                    break;
                }
                let mut burst: Burst<Frame> = (0..64 - room).map(|_| Frame::new(&[0; 60])).collect();
                queue.rx_burst(&mut burst);
                received.extend(burst.drain(64 - room..));
            }
            prop_assert_eq!(received, wanted);
        }
    }

    #[test]
    fn a_packet_that_is_no_longer_tcp_is_dropped_by_name_and_the_others_go() {
        let sent = Arc::default();
        let queue = Moody {
            appetite: vec![64],
            bursts: 0,
            whole_below: 0,
            sent: Arc::clone(&sent),
        };
        let counters = Arc::<Counters>::default();
        let mut queue = CuttingTx::wrap(Box::new(queue), &Arc::default(), &counters);
        let mut bad = packet(1, 3000, Some(1000));
        bad.head_mut()[23] = 17;
        let mut burst: Burst<Frame> = [packet(0, 100, None), bad, packet(2, 100, None)]
            .into_iter()
            .collect();
        queue.tx_burst(&mut burst);
        assert_eq!(sent.lock().unwrap().len(), 2);
        assert_eq!(counters.drops.read(DropReason::Uncuttable), 1);
    }

    #[test]
    fn a_packet_that_was_taken_away_half_sent_leaves_nothing_of_it_behind() {
        let sent = Arc::default();
        let queue = Moody {
            appetite: vec![3, 0, 64],
            bursts: 0,
            whole_below: 0,
            sent: Arc::clone(&sent),
        };
        let mut queue = CuttingTx::wrap(Box::new(queue), &Arc::default(), &Arc::default());
        let mut burst: Burst<Frame> = [packet(1, 9000, Some(1000))].into_iter().collect();
        queue.tx_burst(&mut burst);
        assert_eq!((sent.lock().unwrap().len(), burst.len()), (3, 1));
        let other = packet(2, 9000, Some(1000));
        let mut burst: Burst<Frame> = [other.clone()].into_iter().collect();
        while !burst.is_empty() {
            queue.tx_burst(&mut burst);
        }
        assert_eq!(sent.lock().unwrap()[3..], wanted(&[other], 0));
    }

    #[test]
    fn a_queue_makes_no_more_segments_at_a_time_than_is_fair() {
        let sent = Arc::default();
        let queue = Moody {
            appetite: vec![64],
            bursts: 0,
            whole_below: 0,
            sent: Arc::clone(&sent),
        };
        let mut queue = CuttingTx::wrap(Box::new(queue), &Arc::default(), &Arc::default());
        let mut burst: Burst<Frame> = (0..3).map(|number| packet(number, 65_000, Some(100))).collect();
        for rounds in 1..=3 {
            queue.tx_burst(&mut burst);
            assert_eq!(sent.lock().unwrap().len(), rounds * SEGMENTS_MAX);
        }
        queue.tx_burst(&mut burst);
        assert!(burst.is_empty());
        assert_eq!(sent.lock().unwrap().len(), 3 * 650);
    }
}
