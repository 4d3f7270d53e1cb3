//! Software segmentation of GSO packets (TCP packets longer than the MTU) in front of parts of the switch that do not
//! accept packets longer than the MTU.
//!
//! Only devices that announce it ([`Device::delivers_gso`](crate::io::Device::delivers_gso)) deliver GSO
//! packets. Before the first such device is opened, every worker puts a segmenting queue in front of all its
//! transmit queues; until then no packet passes through this module. GSO packets are segmented in front of:
//!
//! | part | treatment |
//! | --- | --- |
//! | a transmit queue that does not take the packet ([`TxQueue::takes_gso`]) | segmented there, one burst at a time |
//! | a scheduler | gets segments: its queues and rates are for packets of the MTU |
//! | a policer | gets segments: a packet longer than the burst size never conforms (RFC 2697, section 3) |
//! | a controller | gets segments: the length of a packet_in has 16 bits (OpenFlow 1.3.5, section 7.4.1) |
//!
//! Tables, groups, meters, patches, captures and other workers take GSO packets as they are. Chains and
//! tunnels get only segments: the pipeline segments before it encapsulates, and the port of a chain is a
//! transmit queue.

use std::sync::Arc;
use std::time::Instant;

use millrace_pipeline::{Counters, DropReason};
use millrace_wire::Packet;
use millrace_wire::segment::GsoLayout;

use crate::counters::PortCounters;
use crate::io::{Burst, Diversion, Input, RxQueue, TxQueue};

/// Maximum number of segments that a queue sends in one call, so that other queues are served, too.
const SEGMENTS_MAX: usize = 512;

/// Calls `to` with a packet, or with each segment of a GSO packet in order. Drops and counts segments that
/// cannot be made; returns the reason if there are such segments.
#[inline]
pub(crate) fn each_segment<P: Packet>(
    packet: P,
    counters: &Counters,
    mut to: impl FnMut(P),
) -> Option<DropReason> {
    if packet.segment_size().is_none() {
        to(packet);
        return None;
    }
    let Some(gso) = GsoLayout::of(&packet) else {
        counters.drops.add(DropReason::NotSegmentable, 1);
        return Some(DropReason::NotSegmentable);
    };
    for number in 0..gso.count() {
        let Some(segment) = gso.segment(&packet, number) else {
            count_unmade(&gso, number, counters);
            return Some(DropReason::NoBuffer);
        };
        to(segment);
    }
    None
}

/// Counts the segments from `number` on as dropped for want of a buffer.
#[cold]
fn count_unmade(gso: &GsoLayout, number: usize, counters: &Counters) {
    let unmade = gso.count() - number;
    counters.drops.add(DropReason::NoBuffer, unmade as u64);
}

/// Returns true if a burst has a GSO packet.
#[inline]
pub(crate) fn has_gso<P: Packet>(burst: &Burst<P>) -> bool {
    burst.iter().any(|packet| packet.segment_size().is_some())
}

/// A transmit queue that segments the GSO packets that its device does not take.
pub(crate) struct SegmentingTx<P> {
    queue: Box<dyn TxQueue<P>>,
    /// The segmentation of the first packet of the burst, if some of its segments were made and not all of them were
    /// sent.
    current: Option<Segmentation>,
    /// Segments of the first packet that the device did not take.
    ready: Box<Burst<P>>,
    port: Arc<PortCounters>,
    counters: Arc<Counters>,
}

/// A segmentation in progress.
struct Segmentation {
    gso: GsoLayout,
    /// The number of the next segment.
    next: usize,
    /// One past the number of the last segment.
    end: usize,
}

impl Segmentation {
    fn new(gso: GsoLayout) -> Segmentation {
        let end = gso.count();
        Segmentation { gso, next: 0, end }
    }

    /// Returns the next segment of `packet`. If no buffer is free, drops and counts this segment and all later ones.
    fn next_segment<P: Packet>(&mut self, packet: &P, counters: &Counters) -> Option<P> {
        let segment = self.gso.segment(packet, self.next);
        if segment.is_some() {
            self.next += 1;
        } else {
            count_unmade(&self.gso, self.next, counters);
            self.end = self.next;
        }
        segment
    }
}

impl<P: Packet + 'static> SegmentingTx<P> {
    pub(crate) fn wrap(
        queue: Box<dyn TxQueue<P>>,
        port: &Arc<PortCounters>,
        counters: &Arc<Counters>,
    ) -> Box<dyn TxQueue<P>> {
        Box::new(SegmentingTx {
            queue,
            current: None,
            ready: Box::new(Burst::new()),
            port: Arc::clone(port),
            counters: Arc::clone(counters),
        })
    }

    #[inline(never)]
    fn send(&mut self, burst: &mut Burst<P>) {
        let mut left = SEGMENTS_MAX;
        // When another worker begins to schedule the port, that worker gets the unsent packets unsegmented, and the
        // first packet of this burst is another one.
        let is_other = |current: &Segmentation| burst.first().is_none_or(|first| !current.gso.is_of(first));
        if self.current.as_ref().is_some_and(is_other) {
            self.current = None;
            P::discard(&mut self.ready);
        }
        while !burst.is_empty() {
            if self.current.is_none() {
                let unsegmented = self.unsegmented_len(burst);
                if unsegmented != 0 && !self.send_first(unsegmented, burst) {
                    return;
                }
                let Some(first) = burst.first() else { return };
                match GsoLayout::of(first) {
                    Some(gso) => self.current = Some(Segmentation::new(gso)),
                    None => {
                        // The port's counters count this packet as sent, like any packet that a device takes
                        // and drops.
                        self.counters.drops.add(DropReason::NotSegmentable, 1);
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

    /// Returns the number of packets at the beginning of the burst that go to the device unsegmented.
    fn unsegmented_len(&mut self, burst: &mut Burst<P>) -> usize {
        let queue = &mut *self.queue;
        let goes = |packet: &P| {
            packet.segment_size().is_none()
                || GsoLayout::of(packet).is_some_and(|gso| queue.takes_gso(packet, &gso))
        };
        let len = burst.len();
        let segmented = burst.iter().map(goes).position(|goes| !goes);
        segmented.unwrap_or(len)
    }

    /// Sends the first `len` packets as they are. Returns true if all of them were sent; else the rest are the first
    /// of the burst.
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

    /// Sends segments of the first packet. Removes the packet from the burst, and returns true, once its last
    /// segment is sent.
    fn send_segments(&mut self, burst: &mut Burst<P>, left: &mut usize) -> bool {
        let (Some(current), Some(packet)) = (&mut self.current, burst.first()) else {
            debug_assert!(false, "a packet is being segmented");
            self.current = None;
            return true;
        };
        loop {
            while current.next < current.end && !self.ready.is_full() && *left > 0 {
                *left -= 1;
                // Waiting for free buffers would keep the buffers of this packet in use.
                self.ready.extend(current.next_segment(packet, &self.counters));
            }
            if !self.ready.is_empty() {
                self.queue.tx_burst(&mut self.ready);
            }
            if !self.ready.is_empty() || (current.next < current.end && *left == 0) {
                return false;
            }
            if current.next == current.end {
                break;
            }
        }
        // The caller that sends the burst counts the packet itself, with all its data, even if no segment was made.
        let more = current.end.saturating_sub(1) as u64;
        self.port.tx_packets.add(more);
        self.port.tx_bytes.add(more * current.gso.headers_size() as u64);
        self.current = None;
        burst.remove(0);
        true
    }
}

impl<P: Packet + 'static> TxQueue<P> for SegmentingTx<P> {
    fn has_in_flight(&self) -> bool {
        self.queue.has_in_flight()
    }

    fn exchange_diversion(&mut self, diversion: &mut Option<Box<dyn Diversion<P>>>) -> bool {
        self.queue.exchange_diversion(diversion)
    }

    fn refused(&self, left: usize) -> usize {
        // If the caller drops the packet, the next [`Self::tx_burst`] discards its segments.
        self.queue.refused(left)
    }

    /// Sends packets. A GSO packet that is segmented stays the first of the burst until all its segments are
    /// sent.
    fn tx_burst(&mut self, burst: &mut Burst<P>) {
        if self.current.is_none() && !has_gso(burst) {
            return self.queue.tx_burst(burst);
        }
        self.send(burst);
    }
}

/// A receive queue that delivers segments in place of GSO packets.
pub(crate) struct SegmentingRx<P> {
    queue: Box<dyn RxQueue<P>>,
    current: Option<(P, Segmentation)>,
    /// Packets that were received and not yet delivered, in reverse order.
    waiting: Box<Burst<P>>,
    counters: Arc<Counters>,
}

impl<P: Packet + 'static> SegmentingRx<P> {
    pub(crate) fn wrap(queue: Box<dyn RxQueue<P>>, counters: &Arc<Counters>) -> Box<dyn RxQueue<P>> {
        Box::new(SegmentingRx {
            queue,
            current: None,
            waiting: Box::new(Burst::new()),
            counters: Arc::clone(counters),
        })
    }
}

impl<P: Packet + 'static> RxQueue<P> for SegmentingRx<P> {
    /// Segments that are not yet delivered are due now.
    fn next_due(&mut self) -> Option<Instant> {
        if self.current.is_some() || !self.waiting.is_empty() {
            return Some(Instant::now());
        }
        self.queue.next_due()
    }

    fn input(&mut self) -> Input {
        self.queue.input()
    }

    fn has_fences(&self) -> bool {
        self.queue.has_fences()
    }

    fn settled(&mut self) {
        if self.current.is_none() && self.waiting.is_empty() {
            self.queue.settled();
        }
    }

    fn rx_burst(&mut self, burst: &mut Burst<P>) {
        let mut has_polled = false;
        while !burst.is_full() {
            if let Some((packet, current)) = &mut self.current {
                burst.extend(current.next_segment(packet, &self.counters));
                if current.next == current.end {
                    self.current = None;
                }
                continue;
            }
            match self.waiting.pop() {
                Some(packet) if packet.segment_size().is_none() => burst.push(packet),
                Some(packet) => match GsoLayout::of(&packet) {
                    Some(gso) => self.current = Some((packet, Segmentation::new(gso))),
                    None => self.counters.drops.add(DropReason::NotSegmentable, 1),
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

    use millrace_types::Mac;
    use millrace_wire::{Builder, Frame, FramePool, tcp};
    use parking_lot::Mutex;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A device that takes or delivers bursts of the sizes `burst_sizes` in turn. It takes a GSO packet if
    /// the first byte of its data is less than `whole_below`.
    struct VaryingDevice {
        burst_sizes: Vec<usize>,
        bursts: usize,
        whole_below: u8,
        sent: Arc<Mutex<Vec<Frame>>>,
    }

    impl TxQueue<Frame> for VaryingDevice {
        fn tx_burst(&mut self, burst: &mut Burst<Frame>) {
            let taken = self.burst_sizes[self.bursts % self.burst_sizes.len()].min(burst.len());
            self.bursts += 1;
            self.sent.lock().extend(burst.drain(..taken));
        }

        fn takes_gso(&mut self, packet: &Frame, _: &GsoLayout) -> bool {
            packet.bytes()[54] < self.whole_below
        }
    }

    impl RxQueue<Frame> for VaryingDevice {
        fn rx_burst(&mut self, burst: &mut Burst<Frame>) {
            let given = self.burst_sizes[self.bursts % self.burst_sizes.len()];
            self.bursts += 1;
            let mut from = self.sent.lock();
            let given = given.min(from.len()).min(burst.remaining_capacity());
            burst.extend(from.drain(..given));
        }
    }

    /// Returns a packet with `size` bytes of data, the first of which is `number`.
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
            Some(size) => frame.to_gso(size),
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
            packets in packets(), burst_sizes in vec(0_usize..70, 1..6), whole_below in 0_u8..100,
        ) {
            prop_assume!(burst_sizes.iter().any(|taken| *taken != 0));
            let sent = Arc::default();
            let queue = VaryingDevice { burst_sizes, bursts: 0, whole_below, sent: Arc::clone(&sent) };
            let (port, counters) = (Arc::<PortCounters>::default(), Arc::<Counters>::default());
            let mut queue = SegmentingTx::wrap(Box::new(queue), &port, &counters);
            let (mut burst, mut next) = (Burst::new(), packets.iter());
            for _ in 0..100_000 {
                burst.extend(next.by_ref().take(burst.remaining_capacity()).cloned());
                if burst.is_empty() {
                    break;
                }
                crate::tx_port::send(&mut *queue, &mut burst, &port);
            }
            let wanted = wanted(&packets, whole_below);
            prop_assert_eq!(&*sent.lock(), &wanted);
            prop_assert_eq!(port.tx_packets.read(), wanted.len() as u64);
            prop_assert_eq!(port.tx_bytes.read(), wanted.iter().map(|packet| packet.len() as u64).sum::<u64>());
        }

        #[test]
        fn what_is_received_is_cut_in_order_however_it_comes(
            packets in packets(), burst_sizes in vec(0_usize..70, 1..6), room in 1_usize..64,
        ) {
            prop_assume!(burst_sizes.iter().any(|given| *given != 0));
            let wanted = wanted(&packets, 0);
            let queue = VaryingDevice { burst_sizes, bursts: 0, whole_below: 0, sent: Arc::new(Mutex::new(packets)) };
            let mut queue = SegmentingRx::wrap(Box::new(queue), &Arc::default());
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
        let queue = VaryingDevice {
            burst_sizes: vec![64],
            bursts: 0,
            whole_below: 0,
            sent: Arc::clone(&sent),
        };
        let counters = Arc::<Counters>::default();
        let mut queue = SegmentingTx::wrap(Box::new(queue), &Arc::default(), &counters);
        let mut bad = packet(1, 3000, Some(1000));
        bad.head_mut()[23] = 17;
        let mut burst: Burst<Frame> = [packet(0, 100, None), bad, packet(2, 100, None)]
            .into_iter()
            .collect();
        queue.tx_burst(&mut burst);
        assert_eq!(sent.lock().len(), 2);
        assert_eq!(counters.drops.read(DropReason::NotSegmentable), 1);
    }

    /// Returns a packet of ten segments from a pool with buffers for three of them.
    fn packet_of_a_small_pool() -> Frame {
        let pool = FramePool::new(4, 12_000);
        let mut frame = pool.take(packet(1, 10_000, None).bytes()).unwrap();
        frame.set_segment_size(NonZeroU16::new(1000));
        frame
    }

    #[test]
    fn segments_for_which_there_is_no_buffer_count_as_dropped_and_not_as_sent() {
        let sent = Arc::default();
        let device = |given| VaryingDevice {
            burst_sizes: vec![given],
            bursts: 0,
            whole_below: 0,
            sent: Arc::clone(&sent),
        };
        let (port, counters) = (Arc::<PortCounters>::default(), Arc::<Counters>::default());
        let no_buffer = || counters.drops.read(DropReason::NoBuffer);
        let mut burst: Burst<Frame> = [packet_of_a_small_pool()].into_iter().collect();
        let mut queue = SegmentingTx::wrap(Box::new(device(64)), &port, &counters);
        crate::tx_port::send(&mut *queue, &mut burst, &port);
        assert!(burst.is_empty());
        assert_eq!(sent.lock().len(), 3);
        assert_eq!((port.tx_packets.read(), no_buffer()), (3, 7));

        *sent.lock() = vec![packet_of_a_small_pool()];
        let mut queue = SegmentingRx::wrap(Box::new(device(64)), &counters);
        queue.rx_burst(&mut burst);
        assert_eq!((burst.len(), no_buffer()), (3, 14));

        let mut segments = Vec::new();
        each_segment(packet_of_a_small_pool(), &counters, |segment| {
            segments.push(segment);
        });
        assert_eq!((segments.len(), no_buffer()), (3, 21));
    }

    #[test]
    fn a_packet_that_was_taken_away_half_sent_leaves_nothing_of_it_behind() {
        let sent = Arc::default();
        let queue = VaryingDevice {
            burst_sizes: vec![3, 0, 64],
            bursts: 0,
            whole_below: 0,
            sent: Arc::clone(&sent),
        };
        let mut queue = SegmentingTx::wrap(Box::new(queue), &Arc::default(), &Arc::default());
        let mut burst: Burst<Frame> = [packet(1, 9000, Some(1000))].into_iter().collect();
        queue.tx_burst(&mut burst);
        assert_eq!((sent.lock().len(), burst.len()), (3, 1));
        let other = packet(2, 9000, Some(1000));
        let mut burst: Burst<Frame> = [other.clone()].into_iter().collect();
        while !burst.is_empty() {
            queue.tx_burst(&mut burst);
        }
        assert_eq!(sent.lock()[3..], wanted(&[other], 0));
    }

    #[test]
    fn a_queue_makes_no_more_segments_at_a_time_than_is_fair() {
        let sent = Arc::default();
        let queue = VaryingDevice {
            burst_sizes: vec![64],
            bursts: 0,
            whole_below: 0,
            sent: Arc::clone(&sent),
        };
        let mut queue = SegmentingTx::wrap(Box::new(queue), &Arc::default(), &Arc::default());
        let mut burst: Burst<Frame> = (0..3).map(|number| packet(number, 65_000, Some(100))).collect();
        for rounds in 1..=3 {
            queue.tx_burst(&mut burst);
            assert_eq!(sent.lock().len(), rounds * SEGMENTS_MAX);
        }
        queue.tx_burst(&mut burst);
        assert!(burst.is_empty());
        assert_eq!(sent.lock().len(), 3 * 650);
    }
}
