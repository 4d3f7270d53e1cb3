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

/// A receive queue, owned by one thread. The port runs while the queue exists.
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
            // SAFETY: the port runs and has this queue while self lives, and no other thread polls it; there is
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

/// The sizes of frames that a device can send, in bytes without FCS.
///
/// A frame outside these limits may stop the transmit queue of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxLimits {
    /// The shortest frame. A shorter one that holds an Ethernet header is padded with zeros.
    pub shortest: u16,
    /// The longest frame.
    pub longest: u32,
}

impl TxLimits {
    /// Returns true if the device can send the packet as it is.
    #[inline]
    fn is_sendable(self, packet: &Mbuf) -> bool {
        let size = packet.len();
        size >= usize::from(self.shortest) && size <= self.longest as usize && !has_empty_segment(packet)
    }

    /// Pads or linearizes a packet that the device cannot send as it is. Returns false if the device cannot send the
    /// result either.
    fn adjust(self, packet: &mut Mbuf) -> bool {
        let size = packet.len();
        if size < millrace_wire::ethernet::SIZE || size > self.longest as usize {
            return false;
        }
        if has_empty_segment(packet) && !packet.linearize() {
            return false;
        }
        let missing = usize::from(self.shortest).saturating_sub(size);
        match packet.append(missing) {
            Some(padding) => {
                // The buffer may hold bytes of an earlier packet (CVE-2003-0001).
                padding.fill(0);
                true
            }
            None => false,
        }
    }
}

/// Returns true if one of several segments has no byte, as after the removal of headers.
#[inline]
fn has_empty_segment(packet: &Mbuf) -> bool {
    !packet.is_contiguous() && packet.segments().any(<[u8]>::is_empty)
}

/// A transmit queue, owned by one thread. The port runs while the queue exists.
#[derive(Debug)]
pub struct TxQueue {
    port: u16,
    queue: u16,
    /// True if the driver sends packets of several segments.
    chains: bool,
    limits: Option<TxLimits>,
    device: Arc<Device>,
    one_thread: OneThread,
}

impl TxQueue {
    pub(super) fn new(device: Arc<Device>, queue: u16, chains: bool, limits: Option<TxLimits>) -> Self {
        Self {
            port: device.id().0,
            queue,
            chains,
            limits,
            device,
            one_thread: PhantomData,
        }
    }

    /// Sends packets from the front of `burst`, as many as the device accepts, and returns their number; the rest stay
    /// in the burst, in order.
    ///
    /// Packets that the device can never send are removed from the burst and counted in
    /// [`PortStats::tx_errors`]. There are two kinds: packets outside of [`PortConfig::tx_limits`], and
    /// packets of several segments if the driver sends only single segments and the first segment has too
    /// little tailroom. A pool with a larger data room avoids the second kind.
    ///
    /// [`PortStats::tx_errors`]: crate::PortStats::tx_errors
    /// [`PortConfig::tx_limits`]: crate::PortConfig::tx_limits
    #[inline]
    pub fn tx_burst<const N: usize>(&mut self, burst: &mut ArrayVec<Mbuf, N>) -> usize {
        if !self.chains {
            self.retain_sendable(burst, |packet| packet.is_contiguous() || packet.linearize());
        }
        if let Some(limits) = self.limits
            && burst.iter().any(|packet| !limits.is_sendable(packet))
        {
            self.adjust(limits, burst);
        }
        if burst.is_empty() {
            return 0;
        }
        let send = |first, len| {
            // SAFETY: the port runs and has this queue while self lives, and no other thread uses it; that many
            // packets are in the burst.
            usize::from(unsafe { sys::shim_tx_burst(self.port, self.queue, first, len) })
        };
        // SAFETY: the driver owns the packets that it counts, which are the first ones.
        unsafe { burst::take(burst, send) }
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

    /// Pads or linearizes packets for the device, and drops those that the device cannot send.
    #[cold]
    #[inline(never)]
    fn adjust<const N: usize>(&self, limits: TxLimits, burst: &mut ArrayVec<Mbuf, N>) {
        self.retain_sendable(burst, |packet| {
            limits.is_sendable(packet) || limits.adjust(packet)
        });
    }

    /// Drops and counts the packets for which `can_be_sent` returns false.
    #[inline]
    fn retain_sendable<const N: usize>(
        &self,
        burst: &mut ArrayVec<Mbuf, N>,
        can_be_sent: impl FnMut(&mut Mbuf) -> bool,
    ) {
        let before = burst.len();
        burst.retain(can_be_sent);
        if burst.len() < before {
            self.device.count_dropped((before - burst.len()) as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::eal::tests::small_eal;
    use crate::{Mempool, MempoolConfig, Port, PortConfig};

    #[test]
    fn a_packet_that_cannot_be_linearized_is_counted_as_an_error() {
        // EAL starts once in a process.
        millrace_testing::own_process!();
        let eal = small_eal();
        let config = MempoolConfig {
            cache_len: 0,
            ..MempoolConfig::new("linear", 255)
        };
        let pool = Mempool::new(eal, &config).unwrap();
        let mut port = Port::attach(eal, &"net_null0".parse().unwrap()).unwrap();
        drop(port.start(&PortConfig::default(), pool).unwrap());
        let mut tx = TxQueue::new(Arc::clone(&port.device), 0, false, None);
        let mut burst = ArrayVec::<Mbuf, 4>::new();
        burst.push(pool.packet(&vec![7; pool.segment_size() + 100]).unwrap());
        burst.push(pool.packet(&[7; 60]).unwrap());
        assert_eq!(tx.tx_burst(&mut burst), 1);
        let stats = port.stats().unwrap();
        assert_eq!((stats.tx_packets, stats.tx_errors), (1, 1));
        assert_eq!((burst.len(), pool.in_use()), (0, 0));
        port.reset_stats().unwrap();
        assert_eq!(port.stats().unwrap().tx_errors, 0);
    }
}
