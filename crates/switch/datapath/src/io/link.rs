//! A patch between two ports, of one bridge or of two: packets sent to one are received at the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::ArrayQueue;
use millrace_types::Mac;
use millrace_wire::segment::GsoLayout;

use super::changes::ReporterSlot;
use super::{
    Burst, ChangeReporter, Device, DeviceInfo, DeviceSpec, DeviceStats, OpenError, Opened, PortModes,
    RxQueue, TxQueue,
};

/// Capacity of each direction in packets.
const QUEUE_LEN: usize = 1024;

/// The two directions of a link. End 0 receives from the first pipe, end 1 from the second.
pub(super) struct Cable<P>([Arc<Pipe<P>>; 2]);

struct Pipe<P> {
    packets: ArrayQueue<P>,
    /// True if a port receives from this pipe.
    attached: AtomicBool,
    /// Tells the bridge of the port that sends into this pipe.
    sender: ReporterSlot,
}

impl<P> Pipe<P> {
    fn new() -> Arc<Pipe<P>> {
        Arc::new(Pipe {
            packets: ArrayQueue::new(QUEUE_LEN),
            attached: AtomicBool::new(false),
            sender: ReporterSlot::default(),
        })
    }
}

impl<P: Send + 'static> Cable<P> {
    pub(super) fn new() -> Cable<P> {
        Cable([Pipe::new(), Pipe::new()])
    }

    /// Opens an end that is free.
    ///
    /// # Errors
    /// Returns [`OpenError::Busy`] if both ends are in use.
    pub(super) fn open(&self, spec: &DeviceSpec) -> Result<Opened<P>, OpenError> {
        let free = |end: &usize| !self.0[*end].attached.swap(true, Ordering::AcqRel);
        let end = [0, 1].into_iter().find(free).ok_or_else(|| OpenError::Busy {
            device: spec.to_string(),
            reason: "a link has two ends and both have a port".to_owned(),
            next_step: "give the third port a link name of its own".to_owned(),
        })?;
        let (back, out) = (Arc::clone(&self.0[end]), Arc::clone(&self.0[1 - end]));
        // The other end may have put packets in while this end closed.
        for _ in 0..QUEUE_LEN {
            if back.packets.pop().is_none() {
                break;
            }
        }
        back.sender.report();
        Ok(Opened {
            rx: vec![Box::new(Rx(Arc::clone(&back)))],
            tx: vec![Box::new(Tx(Arc::clone(&out)))],
            device: Box::new(Link { out, back }),
        })
    }
}

struct Rx<P>(Arc<Pipe<P>>);
struct Tx<P>(Arc<Pipe<P>>);

struct Link<P> {
    out: Arc<Pipe<P>>,
    back: Arc<Pipe<P>>,
}

impl<P: Send> RxQueue<P> for Rx<P> {
    fn rx_burst(&mut self, burst: &mut Burst<P>) {
        while !burst.is_full()
            && let Some(packet) = self.0.packets.pop()
        {
            burst.push(packet);
        }
    }
}

impl<P: Send> TxQueue<P> for Tx<P> {
    fn tx_burst(&mut self, burst: &mut Burst<P>) {
        if !self.0.attached.load(Ordering::Acquire) {
            return;
        }
        let room = self.0.packets.capacity() - self.0.packets.len();
        for packet in burst.drain(..room.min(burst.len())) {
            // There is room, because no other queue pushes packets here.
            let _refused = self.0.packets.push(packet);
        }
    }

    /// Refuses all packets while the other end has no port: they would be outdated when one opens it.
    fn refused(&self, left: usize) -> usize {
        if self.0.attached.load(Ordering::Acquire) {
            0
        } else {
            left
        }
    }

    /// Accepts every GSO packet: the port by which the packet leaves the switch segments it.
    fn takes_gso(&mut self, _: &P, _: &GsoLayout) -> bool {
        true
    }
}

impl<P: Send> Device for Link<P> {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            driver: "link".to_owned(),
            mac: Mac([0x02, 0, 0, 0, 0, 0]),
            speed_mbps: None,
            link_up: self.out.attached.load(Ordering::Acquire),
            modes: PortModes::default(),
            mtu: 9582,
            numa_node: None,
            rx_queues: 1,
            rss: None,
            offload: None,
        }
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }

    /// Reports when the other end is opened or closed.
    fn report_changes(&mut self, reporter: &ChangeReporter) -> bool {
        self.out.sender.set(reporter);
        true
    }

    /// Does nothing: the link is up while both ends have a port.
    fn set_link(&mut self, _up: bool) {}
}

impl<P> Drop for Link<P> {
    fn drop(&mut self) {
        self.out.sender.clear();
        self.back.attached.store(false, Ordering::Release);
        self.back.sender.report();
        while self.back.packets.pop().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use millrace_wire::Frame;

    use super::*;
    use crate::counters::PortCounters;

    #[test]
    fn what_is_sent_to_an_end_without_a_port_is_dropped_and_no_later_port_receives_it() {
        let (cable, spec) = (Cable::new(), DeviceSpec::Link("l".to_owned()));
        let mut one = cable.open(&spec).unwrap();
        let counters = PortCounters::default();
        let mut send = |numbers: core::ops::Range<u8>| {
            let mut burst: Burst<Frame> = numbers.map(|number| Frame::new(&[number; 60])).collect();
            crate::tx_port::send(&mut *one.tx[0], &mut burst, &counters);
            assert!(burst.is_empty());
            (counters.tx_packets.read(), counters.tx_dropped.read())
        };
        let other = cable.open(&spec).unwrap();
        assert_eq!(send(0..10), (10, 0));
        drop(other);
        assert_eq!(send(10..20), (10, 10));
        // The state in which an end that closes leaves packets of a sender that saw it open.
        assert!(cable.0[1].packets.push(Frame::new(&[9; 60])).is_ok());
        let mut other = cable.open(&spec).unwrap();
        assert_eq!(send(20..21), (11, 10));
        let mut received = Burst::new();
        other.rx[0].rx_burst(&mut received);
        let numbers: Vec<u8> = received.iter().map(|frame| frame.bytes()[0]).collect();
        assert_eq!(numbers, [20]);
    }
}
