//! vhost-user ports whose peers may leave it to the switch to cut TCP into segments (`tso=on`).
//!
//! A peer says in the header of each packet how it is to be cut (virtio 1.1, section 5.1.6.2), and may lie. So what it
//! says is held against the packet here, before anybody else sees it: the packet is one that can be cut
//! ([`Cut::of`]), its segments are no longer than the MTU and no smaller than any honest sender's, and whatever is not to
//! be cut is no longer than a frame. Anything else is dropped, and counted as broken.
//!
//! Packets are in as many buffers as they need. The port has a pool of its own, so that a peer which sends the longest
//! that there are, or one descriptor for all of its memory, takes buffers from itself alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_dpdk::{Mbuf, VhostPeer};
use millrace_wire::segment::Cut;

use super::{Burst, RxQueue, TxQueue};

/// The least data of a segment: what Linux sends at least (`tcp_min_snd_mss`), as a path of IPv4 may have an MTU of 68
/// bytes (RFC 791).
const SEGMENT_MIN: usize = 48;

/// Buffers of such a port: more than a hundred packets of 64 KiB.
pub(super) const BUFFERS: u32 = 4095;

/// Its only receive queue, or one of several.
pub(super) struct VhostRx {
    pub(super) queue: millrace_dpdk::RxQueue,
    /// The longest packet, from the IP header on.
    pub(super) mtu: usize,
    /// The longest frame that is not to be cut.
    pub(super) frame_size: usize,
    /// Packets that were not what their headers said.
    pub(super) refused: Arc<AtomicU64>,
}

impl VhostRx {
    #[inline(never)]
    fn check(&self, burst: &mut Burst<Mbuf>) {
        let len = burst.len();
        burst.retain(|packet| {
            let Some(size) = packet.segment_size() else {
                return packet.len() <= self.frame_size;
            };
            let Some(cut) = Cut::of(packet) else { return false };
            if cut.count() == 1 {
                packet.set_segment_size(None);
            }
            usize::from(size.get()) >= SEGMENT_MIN && cut.packet_size() <= self.mtu
        });
        let refused = (len - burst.len()) as u64;
        if refused != 0 {
            self.refused.fetch_add(refused, Ordering::Relaxed);
        }
    }
}

impl RxQueue<Mbuf> for VhostRx {
    fn rx_burst(&mut self, burst: &mut Burst<Mbuf>) {
        self.queue.rx_burst(burst);
        let is_plain = |packet: &Mbuf| packet.segment_size().is_none() && packet.len() <= self.frame_size;
        if !burst.iter().all(is_plain) {
            self.check(burst);
        }
    }
}

/// Its transmit queue.
pub(super) struct VhostTx {
    pub(super) queue: millrace_dpdk::TxQueue,
    pub(super) peer: VhostPeer,
}

impl TxQueue<Mbuf> for VhostTx {
    #[inline]
    fn tx_burst(&mut self, burst: &mut Burst<Mbuf>) {
        self.queue.tx_burst(burst);
    }

    /// Where the peer has said so. It is not told that CWR is to be on the first segment only: vhost has no word for that.
    fn takes_uncut(&mut self, packet: &mut Mbuf, cut: &Cut) -> bool {
        cut.is_plain()
            && !cut.has_cwr()
            && self.peer.takes_uncut(cut.is_ipv6())
            && packet.leave_uncut(cut.layers(), cut.is_ipv6())
    }
}
