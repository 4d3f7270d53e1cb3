//! Logical ports: packets that the bridge sends to one are queued in a ring for each lane and worker.

use millrace_datapath::io::{Burst, Device, DeviceInfo, DeviceStats, Opened, PortModes, TxQueue};
use millrace_datapath::spread::FlowHash;
use millrace_datapath::spread::ring::{Receiver, Sender, ring};
use millrace_nf::Spread;
use millrace_types::Mac;
use millrace_wire::Packet;

/// The length of a ring, in packets. It bridges some hundred microseconds in which the lane's worker does not run.
const RING_LEN: usize = 1024;

/// The MTU of logical ports. Functions have no limit of their own.
const MTU: u16 = 9582;

/// The transmit queue of one worker: a ring to each lane.
struct LaneTx<P> {
    lanes: Vec<Sender<P>>,
    hash: FlowHash,
    spread: Spread,
}

impl<P: Packet> TxQueue<P> for LaneTx<P> {
    /// Returns true while a ring holds packets. A lane polls the rings of all workers in turn, one burst from each at
    /// most.
    fn has_in_flight(&self) -> bool {
        !self.lanes.iter().all(Sender::is_empty)
    }

    #[inline]
    fn tx_burst(&mut self, burst: &mut Burst<P>) {
        let mut refused = Burst::new();
        if let [lane] = &mut *self.lanes {
            for packet in burst.drain(..) {
                // After a packet that does not fit, all later packets are refused, too, to keep the order.
                if !refused.is_empty() {
                    refused.push(packet);
                } else if let Err(packet) = lane.push(packet) {
                    refused.push(packet);
                }
            }
        } else {
            let lanes = self.lanes.len() as u64;
            for packet in burst.drain(..) {
                let lane = ((hash_of(&self.hash, self.spread, &packet) >> 32) * lanes) >> 32;
                let sent = match self.lanes.get_mut(lane as usize) {
                    // A full lane stops the others, too, to keep the order of flows.
                    Some(sender) if refused.is_empty() => sender.push(packet),
                    _ => Err(packet),
                };
                if let Err(packet) = sent {
                    refused.push(packet);
                }
            }
        }
        self.lanes.iter_mut().for_each(Sender::publish);
        if !refused.is_empty() {
            *burst = refused;
        }
    }
}

/// Returns the hash by which a packet is spread over lanes and instances.
#[inline]
pub(crate) fn hash_of<P: Packet>(hash: &FlowHash, spread: Spread, packet: &P) -> u64 {
    match spread {
        Spread::Flow => hash.of(packet.head()),
        Spread::Addresses => hash.of_addresses(packet.head()),
    }
}

/// The device of a logical port.
struct LogicalPort;

impl Device for LogicalPort {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            driver: "chain".to_owned(),
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

/// Returns a logical port for `workers` workers, and the receiving ends of its rings, by lane.
pub(crate) fn open<P: Packet + 'static>(
    workers: usize,
    lanes: usize,
    hash: &FlowHash,
    spread: Spread,
) -> (Opened<P>, Vec<Vec<Receiver<P>>>) {
    let mut exits: Vec<Vec<Receiver<P>>> = (0..lanes).map(|_| Vec::new()).collect();
    let tx_queue = |_| {
        let lanes = exits.iter_mut().map(|exits| {
            let (sender, receiver) = ring(RING_LEN);
            exits.push(receiver);
            sender
        });
        Box::new(LaneTx {
            lanes: lanes.collect(),
            hash: hash.clone(),
            spread,
        }) as Box<dyn TxQueue<P>>
    };
    let tx = (0..workers).map(tx_queue).collect();
    let opened = Opened {
        rx: Vec::new(),
        tx,
        device: Box::new(LogicalPort),
    };
    (opened, exits)
}

#[cfg(test)]
mod tests {
    use millrace_wire::{Builder, Frame};

    use super::*;

    const MACS: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];

    fn datagram(from: u8, to: u8, port: u16) -> Vec<u8> {
        let builder = Builder::ethernet(MACS[0], MACS[1]);
        let builder = builder.ipv4([10, 0, 0, from], [10, 0, 0, to]);
        builder.udp(port, 53).payload(&[7; 32]).build()
    }

    #[test]
    fn by_addresses_a_fragment_and_every_flow_of_two_hosts_have_one_hash() {
        let hash = FlowHash::new(7);
        let of = |bytes: &[u8]| hash_of(&hash, Spread::Addresses, &Frame::new(bytes));
        let first = datagram(1, 2, 1000);
        let mut later = first.clone();
        // A fragment at offset 8.
        later[20..22].copy_from_slice(&[0, 1]);
        let mut tagged = first.clone();
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        for same in [datagram(2, 1, 1000), datagram(1, 2, 2000), later.clone(), tagged] {
            assert_eq!(of(&same), of(&first));
        }
        assert_ne!(of(&datagram(1, 3, 1000)), of(&first));
        let by_flow = |bytes: &[u8]| hash_of(&hash, Spread::Flow, &Frame::new(bytes));
        assert_ne!(by_flow(&later), by_flow(&first), "the evasion");
    }
}
