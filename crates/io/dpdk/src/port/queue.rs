//! Queues, which workers poll: one call into the driver for each burst.

use std::marker::PhantomData;
use std::sync::Arc;

use arrayvec::ArrayVec;
use millrace_dpdk_sys as sys;

use super::PortId;
use super::attach::Device;
use crate::{Mbuf, burst};

/// Makes a type movable between threads, but not shareable.
type OneThread = PhantomData<std::cell::Cell<()>>;

/// A receive queue, owned by one thread. The port runs while it exists.
#[derive(Debug)]
pub struct RxQueue {
    port: u16,
    queue: u16,
    device: Arc<Device>,
    one_thread: OneThread,
}

impl RxQueue {
    pub(super) fn new(device: Arc<Device>, queue: u16) -> Self {
        Self {
            port: device.id().0,
            queue,
            device,
            one_thread: PhantomData,
        }
    }

    /// Fills the rest of `burst` with received packets and returns their number; does not wait.
    ///
    /// Drivers work best with room for 32 to 64 packets; some return nothing if there is room for fewer than 4 or 8.
    #[inline]
    pub fn rx_burst<const N: usize>(&mut self, burst: &mut ArrayVec<Mbuf, N>) -> usize {
        // Some drivers do not expect a request for zero packets.
        if burst.is_full() {
            return 0;
        }
        let receive = |first, room| {
            // SAFETY: the port runs and has this queue as long as self lives, and no other thread polls it; there is
            // room for that many pointers.
            usize::from(unsafe { sys::shim_rx_burst(self.port, self.queue, first, room) })
        };
        // SAFETY: the driver gives packets to this function alone, from the first element on, and counts them.
        unsafe { burst::fill(burst, receive) }
    }

    /// Returns the port.
    #[inline]
    #[must_use]
    pub fn port(&self) -> PortId {
        PortId(self.port)
    }

    /// Returns the queue's number in its port.
    #[inline]
    #[must_use]
    pub fn queue(&self) -> u16 {
        self.queue
    }

    /// Returns the device's name.
    #[must_use]
    pub fn port_name(&self) -> &str {
        self.device.name()
    }
}

/// A transmit queue, owned by one thread. The port runs while it exists.
#[derive(Debug)]
pub struct TxQueue {
    port: u16,
    queue: u16,
    /// True if the driver sends packets of several segments.
    chains: bool,
    dropped: u64,
    device: Arc<Device>,
    one_thread: OneThread,
}

impl TxQueue {
    pub(super) fn new(device: Arc<Device>, queue: u16, chains: bool) -> Self {
        Self {
            port: device.id().0,
            queue,
            chains,
            dropped: 0,
            device,
            one_thread: PhantomData,
        }
    }

    /// Sends packets from the front of `burst`, as many as the device accepts, and returns their number; the rest stay
    /// in the burst, in order.
    #[inline]
    pub fn tx_burst<const N: usize>(&mut self, burst: &mut ArrayVec<Mbuf, N>) -> usize {
        if !self.chains {
            self.linearize(burst);
        }
        if burst.is_empty() {
            return 0;
        }
        let send = |first, len| {
            // SAFETY: the port runs and has this queue as long as self lives, and no other thread uses it; that many
            // packets are in the burst.
            usize::from(unsafe { sys::shim_tx_burst(self.port, self.queue, first, len) })
        };
        // SAFETY: the driver owns the packets that it counts, which are the first ones.
        unsafe { burst::take(burst, send) }
    }

    /// Returns the number of packets dropped because they have several segments, the driver sends only single ones,
    /// and the first segment has too little tailroom. A pool with a larger data room avoids it.
    #[inline]
    #[must_use]
    pub fn dropped_chains(&self) -> u64 {
        self.dropped
    }

    /// Returns the port.
    #[inline]
    #[must_use]
    pub fn port(&self) -> PortId {
        PortId(self.port)
    }

    /// Returns the queue's number in its port.
    #[inline]
    #[must_use]
    pub fn queue(&self) -> u16 {
        self.queue
    }

    /// Returns the device's name.
    #[must_use]
    pub fn port_name(&self) -> &str {
        self.device.name()
    }

    /// Linearizes each packet, or drops it, for drivers that send only single segments.
    #[inline]
    fn linearize<const N: usize>(&mut self, burst: &mut ArrayVec<Mbuf, N>) {
        let mut next = 0;
        while let Some(packet) = burst.get_mut(next) {
            if packet.is_contiguous() || packet.linearize() {
                next += 1;
            } else {
                burst.remove(next);
                self.dropped += 1;
            }
        }
    }
}
