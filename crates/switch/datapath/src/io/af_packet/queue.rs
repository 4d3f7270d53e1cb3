//! The queues of a port: the workers' side.

use core::sync::atomic::Ordering;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use millrace_af_packet::Sender;
use millrace_wire::Packet;
use millrace_wire::segment::GsoLayout;

use super::interface::Interface;
use crate::io::allocate::Empty;
use crate::io::peer::count;
use crate::io::{Burst, Input, RxQueue, TxQueue};

pub(super) struct Rx<P> {
    interface: Arc<Interface>,
    queue: u16,
    empty: Empty<P>,
}

impl<P> Rx<P> {
    pub(super) fn new(interface: Arc<Interface>, queue: u16, empty: Empty<P>) -> Rx<P> {
        Rx {
            interface,
            queue,
            empty,
        }
    }
}

impl<P: Packet> RxQueue<P> for Rx<P> {
    #[inline]
    fn rx_burst(&mut self, burst: &mut Burst<P>) {
        let interface = &*self.interface;
        let slot = &interface.rx[usize::from(self.queue)];
        let Some(mut running) = slot.acquire() else { return };
        let received = running.ring.receive(burst, &interface.accepted(), &*self.empty);
        slot.release(running);
        if received.dropped > 0 {
            count(&interface.counters.rx_errors, received.dropped);
        }
        if received.missed > 0 {
            interface
                .missed
                .fetch_add(received.missed as u64, Ordering::Relaxed);
        }
        if received.is_short {
            count(&interface.counters.no_buffer, 1);
        }
    }

    fn input(&mut self) -> Input {
        let slot = &self.interface.rx[usize::from(self.queue)];
        let Some(running) = slot.acquire() else {
            return Input::Detached;
        };
        let descriptor = running.ring.as_fd().try_clone_to_owned();
        slot.release(running);
        descriptor.map_or(Input::Polled, Input::Descriptor)
    }
}

pub(super) struct Tx {
    interface: Arc<Interface>,
    queue: u16,
    /// True if the interface was down or gone at the last burst; also before the first burst.
    is_down: bool,
}

impl Tx {
    pub(super) fn new(interface: Arc<Interface>, queue: u16) -> Tx {
        Tx {
            interface,
            queue,
            is_down: true,
        }
    }
}

impl<P: Packet> TxQueue<P> for Tx {
    #[inline]
    fn tx_burst(&mut self, burst: &mut Burst<P>) {
        let interface = &*self.interface;
        let slot = &interface.tx[usize::from(self.queue)];
        let Some(mut running) = slot.acquire() else {
            self.is_down = true;
            return;
        };
        let sent = running.ring.send(burst, interface.mtu());
        slot.release(running);
        self.is_down = sent.is_down;
        if sent.dropped > 0 {
            count(&interface.counters.tx_errors, sent.dropped);
        }
    }

    /// Refuses all packets while the interface is down, so that they do not wait until it is up.
    fn refused(&self, left: usize) -> usize {
        if self.is_down { left } else { 0 }
    }

    fn takes_gso(&mut self, _: &P, gso: &GsoLayout) -> bool {
        Sender::takes_gso(gso)
    }
}
