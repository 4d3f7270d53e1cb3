//! A patch between two ports, of the same bridge or of two: what goes into one comes out of the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::ArrayQueue;
use millrace_types::Mac;
use millrace_wire::segment::Cut;

use super::{
    Burst, Device, DeviceInfo, DeviceSpec, DeviceStats, OpenError, Opened, PortModes, RxQueue, TxQueue,
};

/// Packets that fit into each direction.
const QUEUE_LEN: usize = 1024;

/// The two directions of a link. End 0 receives from the first pipe, end 1 from the second.
pub(super) struct Cable<P>([Arc<Pipe<P>>; 2]);

struct Pipe<P> {
    packets: ArrayQueue<P>,
    /// Whether somebody receives at the other side.
    attached: AtomicBool,
}

impl<P> Pipe<P> {
    fn new() -> Arc<Pipe<P>> {
        Arc::new(Pipe {
            packets: ArrayQueue::new(QUEUE_LEN),
            attached: AtomicBool::new(false),
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
    /// [`OpenError::Busy`] if both are taken.
    pub(super) fn open(&self, spec: &DeviceSpec) -> Result<Opened<P>, OpenError> {
        let free = |end: &usize| !self.0[*end].attached.swap(true, Ordering::AcqRel);
        let end = [0, 1].into_iter().find(free).ok_or_else(|| OpenError::Busy {
            device: spec.to_string(),
            reason: "a link has two ends and both have a port".to_owned(),
            remedy: "give the third port a link name of its own".to_owned(),
        })?;
        let (back, out) = (Arc::clone(&self.0[end]), Arc::clone(&self.0[1 - end]));
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
            // There is room: this queue is the only one that fills it.
            let _refused = self.0.packets.push(packet);
        }
    }

    /// Whoever sends it out of the switch cuts it.
    fn takes_uncut(&mut self, _: &P, _: &Cut) -> bool {
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

    /// The link is up when both ends are there; nobody else decides.
    fn set_link(&mut self, _up: bool) {}
}

impl<P> Drop for Link<P> {
    fn drop(&mut self) {
        self.back.attached.store(false, Ordering::Release);
        while self.back.packets.pop().is_some() {}
    }
}
