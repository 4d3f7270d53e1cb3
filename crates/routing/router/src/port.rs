//! The router's logical ports in a bridge: packets that the bridge sends to one are queued in a ring of the worker.

use millrace_datapath::io::{Burst, Device, DeviceInfo, DeviceStats, Opened, PortModes, TxQueue};
use millrace_datapath::spread::ring::{Receiver, Sender, ring};
use millrace_types::Mac;
use millrace_wire::Packet;
use millrace_wire::segment::GsoLayout;

/// The length of a ring, in packets: more than a worker receives from its queues in one round.
const RING_LEN: usize = 2048;

/// The MTU of logical ports; interfaces have MTUs of their own.
const MTU: u16 = 9582;

/// The transmit queue of one worker.
struct RouterTx<P>(Sender<P>);

impl<P: Packet> TxQueue<P> for RouterTx<P> {
    #[inline]
    fn tx_burst(&mut self, burst: &mut Burst<P>) {
        let mut refused = Burst::new();
        for packet in burst.drain(..) {
            // After a packet that does not fit, all later packets are refused, too, to keep the order.
            if !refused.is_empty() {
                refused.push(packet);
            } else if let Err(packet) = self.0.push(packet) {
                refused.push(packet);
            }
        }
        self.0.publish();
        if !refused.is_empty() {
            *burst = refused;
        }
    }

    fn has_in_flight(&self) -> bool {
        !self.0.is_empty()
    }

    /// The router compares segments with the MTU, and passes the packet on whole.
    fn takes_gso(&mut self, _: &P, _: &GsoLayout) -> bool {
        true
    }
}

/// The device of a logical port.
struct RouterPort;

impl Device for RouterPort {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            driver: "router".to_owned(),
            mac: Mac([0x02, 0, 0, 0, 0, 0]),
            speed_mbps: None,
            modes: PortModes::default(),
            link_up: true,
            mtu: MTU,
            numa_node: None,
            rx_queues: 0,
            rss: None,
            offload: None,
        }
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }

    fn set_link(&mut self, _up: bool) {}
}

/// Returns a logical port, and the receiving ends of its transmit queues, in their order.
pub(crate) fn open<P: Packet + 'static>(workers: usize) -> (Opened<P>, Vec<Receiver<P>>) {
    let mut tx: Vec<Box<dyn TxQueue<P>>> = Vec::new();
    let mut exits = Vec::new();
    for _ in 0..workers {
        let (sender, receiver) = ring(RING_LEN);
        tx.push(Box::new(RouterTx(sender)));
        exits.push(receiver);
    }
    let opened = Opened {
        rx: Vec::new(),
        tx,
        device: Box::new(RouterPort),
    };
    (opened, exits)
}
