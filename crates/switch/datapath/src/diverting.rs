//! Transmit queues whose packets a [`Diversion`] sees before the device: those of ports with such a diversion only, so that it
//! costs other ports nothing.

use millrace_types::PortNo;
use millrace_wire::Packet;
use millrace_wire::segment::GsoLayout;

use crate::io::{Burst, Diversion, TxQueue};
use crate::tx_port::{TxPath, TxPort, TxPorts};

/// A queue with a diversion before it. Without one, it is the queue behind it.
pub(crate) struct DivertingTx<P> {
    queue: Box<dyn TxQueue<P>>,
    diversion: Option<Box<dyn Diversion<P>>>,
    /// Packets for the device; empty between two calls.
    device: Box<Burst<P>>,
    /// Number of packets at the front of the burst of the last call that the device did not take.
    device_left: usize,
}

impl<P: Packet + 'static> DivertingTx<P> {
    pub(crate) fn wrap(queue: Box<dyn TxQueue<P>>, diversion: Box<dyn Diversion<P>>) -> Box<dyn TxQueue<P>> {
        Box::new(DivertingTx {
            queue,
            diversion: Some(diversion),
            device: Box::new(Burst::new()),
            device_left: 0,
        })
    }
}

impl<P: Packet> TxQueue<P> for DivertingTx<P> {
    fn tx_burst(&mut self, burst: &mut Burst<P>) {
        let Some(diversion) = &mut self.diversion else {
            self.queue.tx_burst(burst);
            self.device_left = burst.len();
            return;
        };
        diversion.divert(burst, &mut self.device);
        if !self.device.is_empty() {
            self.queue.tx_burst(&mut self.device);
        }
        self.device_left = self.device.len();
        if self.device_left != 0 {
            self.device.extend(burst.drain(..));
            core::mem::swap(burst, &mut *self.device);
        }
    }

    fn refused(&self, left: usize) -> usize {
        match self.device_left.min(left) {
            0 => 0,
            of_device => self.queue.refused(of_device),
        }
    }

    fn has_in_flight(&self) -> bool {
        let diversion = self.diversion.as_ref();
        self.queue.has_in_flight() || diversion.is_some_and(|diversion| diversion.has_in_flight())
    }

    fn takes_gso(&mut self, packet: &P, gso: &GsoLayout) -> bool {
        let diversion = self.diversion.as_mut();
        diversion.is_some_and(|diversion| diversion.takes(packet)) || self.queue.takes_gso(packet, gso)
    }

    fn exchange_diversion(&mut self, diversion: &mut Option<Box<dyn Diversion<P>>>) -> bool {
        core::mem::swap(&mut self.diversion, diversion);
        true
    }
}

impl<P: Packet + 'static> TxPorts<P> {
    /// Sets or removes the diversion of a port. Returns the diversion that is not used any more: the one before, or, if the
    /// worker has no queue of the port, the one that is given.
    pub(crate) fn set_diversion(
        &mut self,
        port: PortNo,
        mut diversion: Option<Box<dyn Diversion<P>>>,
    ) -> Option<Box<dyn Diversion<P>>> {
        let Some(held) = self.remove(port) else {
            return diversion;
        };
        let mut divert = |mut queue: Box<dyn TxQueue<P>>| {
            if queue.exchange_diversion(&mut diversion) {
                return queue;
            }
            match diversion.take() {
                Some(diversion) => DivertingTx::wrap(queue, diversion),
                None => queue,
            }
        };
        let path = match held.path {
            TxPath::Queue(queue) => TxPath::Queue(divert(queue)),
            TxPath::Scheduled(scheduled) => TxPath::Scheduled(Box::new(scheduled.map_queue(divert))),
            path @ (TxPath::Worker(_) | TxPath::Lag(_)) => path,
        };
        self.insert(TxPort { path, ..held });
        diversion
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_wire::Frame;
    use parking_lot::Mutex;

    use super::*;

    /// Takes the packets that begin with an odd byte, `room` of them.
    struct Odd {
        taken: Arc<Mutex<Vec<u8>>>,
        room: usize,
    }

    impl Diversion<Frame> for Odd {
        fn divert(&mut self, burst: &mut Burst<Frame>, device: &mut Burst<Frame>) {
            let mut left = Burst::new();
            for frame in burst.drain(..) {
                let first = frame.bytes()[0];
                if first % 2 == 0 {
                    device.push(frame);
                } else if self.room == 0 {
                    left.push(frame);
                } else {
                    self.room -= 1;
                    self.taken.lock().push(first);
                }
            }
            *burst = left;
        }

        fn takes(&mut self, packet: &Frame) -> bool {
            packet.bytes()[0] % 2 == 1
        }

        fn has_in_flight(&self) -> bool {
            false
        }
    }

    /// Takes `room` packets, and never takes one that begins with 8.
    struct Device {
        taken: Arc<Mutex<Vec<u8>>>,
        room: usize,
        refuses_first: bool,
    }

    impl TxQueue<Frame> for Device {
        fn tx_burst(&mut self, burst: &mut Burst<Frame>) {
            while self.room > 0 && !burst.is_empty() {
                let first = burst[0].bytes()[0];
                if first == 8 {
                    break;
                }
                self.room -= 1;
                self.taken.lock().push(first);
                burst.remove(0);
            }
            self.refuses_first = burst.first().is_some_and(|frame| frame.bytes()[0] == 8);
        }

        fn refused(&self, _: usize) -> usize {
            usize::from(self.refuses_first)
        }
    }

    fn burst(firsts: impl IntoIterator<Item = u8>) -> Burst<Frame> {
        firsts.into_iter().map(|first| Frame::new(&[first; 60])).collect()
    }

    fn firsts(burst: &Burst<Frame>) -> Vec<u8> {
        burst.iter().map(|frame| frame.bytes()[0]).collect()
    }

    #[test]
    fn each_packet_goes_to_the_diversion_or_to_the_device_and_what_neither_takes_stays() {
        let (diverted, sent) = (Arc::<Mutex<Vec<u8>>>::default(), Arc::<Mutex<Vec<u8>>>::default());
        let device = Device {
            taken: Arc::clone(&sent),
            room: 3,
            refuses_first: false,
        };
        let odd = |room| -> Box<dyn Diversion<Frame>> {
            Box::new(Odd {
                taken: Arc::clone(&diverted),
                room,
            })
        };
        let mut queue = DivertingTx::wrap(Box::new(device), odd(2));
        let mut packets = burst(0..10);
        queue.tx_burst(&mut packets);
        assert_eq!((&*diverted.lock(), &*sent.lock()), (&vec![1, 3], &vec![0, 2, 4]));
        assert_eq!(firsts(&packets), [6, 8, 5, 7, 9]);
        assert_eq!(queue.refused(packets.len()), 0, "the device may take 6 later");

        // The old diversion comes back, and the new one has room.
        let mut other = Some(odd(9));
        assert!(queue.exchange_diversion(&mut other) && other.is_some());
        let mut packets = burst([8, 1]);
        queue.tx_burst(&mut packets);
        assert_eq!((firsts(&packets), queue.refused(1)), (vec![8], 1));
        let mut packets = burst([1]);
        queue.tx_burst(&mut packets);
        assert!(packets.is_empty());
        assert_eq!(queue.refused(1), 0, "no packet of the device is left");

        // Without a diversion the device gets all, as before.
        let mut none = None;
        assert!(queue.exchange_diversion(&mut none) && none.is_some());
        let mut packets = burst([1]);
        queue.tx_burst(&mut packets);
        assert_eq!(firsts(&packets), [1]);
        assert_eq!(*diverted.lock(), [1, 3, 1, 1]);
    }

    #[test]
    fn a_queue_without_diversions_takes_none() {
        let device = Device {
            taken: Arc::default(),
            room: 1,
            refuses_first: false,
        };
        let mut queue: Box<dyn TxQueue<Frame>> = Box::new(device);
        let mut odd: Option<Box<dyn Diversion<Frame>>> = Some(Box::new(Odd {
            taken: Arc::default(),
            room: 1,
        }));
        assert!(!queue.exchange_diversion(&mut odd) && odd.is_some());
    }
}
