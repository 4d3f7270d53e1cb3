//! Logical ports: what the bridge sends to one waits in a ring for each lane.

use millrace_datapath::io::{Burst, Device, DeviceInfo, DeviceStats, Opened, PortModes, TxQueue};
use millrace_datapath::spread::FlowHash;
use millrace_datapath::spread::ring::{Receiver, Sender, ring};
use millrace_types::Mac;
use millrace_wire::Packet;

/// Packets of one worker that wait at one port for one lane: what comes while the lane's worker is away for some
/// hundred microseconds.
const RING_LEN: usize = 1024;

/// The longest payload of a frame: functions have no limit of their own.
const MTU: u16 = 9582;

/// One worker's way into the lanes.
struct Entrance<P> {
    lanes: Vec<Sender<P>>,
    hash: FlowHash,
}

impl<P: Packet> TxQueue<P> for Entrance<P> {
    /// A lane looks at the ways in of all workers one after the other, and takes a burst from each at most.
    fn holds(&self) -> bool {
        !self.lanes.iter().all(Sender::is_empty)
    }

    #[inline]
    fn tx_burst(&mut self, burst: &mut Burst<P>) {
        let mut refused = Burst::new();
        if let [lane] = &mut *self.lanes {
            for packet in burst.drain(..) {
                // Once one is refused, so are those behind it.
                if !refused.is_empty() {
                    refused.push(packet);
                } else if let Err(packet) = lane.push(packet) {
                    refused.push(packet);
                }
            }
        } else {
            let lanes = self.lanes.len() as u64;
            for packet in burst.drain(..) {
                let lane = ((self.hash.of(packet.head()) >> 32) * lanes) >> 32;
                let sent = match self.lanes.get_mut(lane as usize) {
                    // A lane that is full holds up the others, or flows of this one would be overtaken.
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

/// The control side's end of a logical port.
struct Logical;

impl Device for Logical {
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

/// A logical port for so many workers, and for each lane the ends of its rings.
pub(crate) fn open<P: Packet + 'static>(
    workers: usize,
    lanes: usize,
    hash: &FlowHash,
) -> (Opened<P>, Vec<Vec<Receiver<P>>>) {
    let mut exits: Vec<Vec<Receiver<P>>> = (0..lanes).map(|_| Vec::new()).collect();
    let entrance = |_| {
        let lanes = exits.iter_mut().map(|exits| {
            let (sender, receiver) = ring(RING_LEN);
            exits.push(receiver);
            sender
        });
        Box::new(Entrance {
            lanes: lanes.collect(),
            hash: hash.clone(),
        }) as Box<dyn TxQueue<P>>
    };
    let tx = (0..workers).map(entrance).collect();
    let opened = Opened {
        rx: Vec::new(),
        tx,
        device: Box::new(Logical),
    };
    (opened, exits)
}
