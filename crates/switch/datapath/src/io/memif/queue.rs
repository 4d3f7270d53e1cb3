//! The receive and transmit queues of a memif, which workers own.

use std::sync::Arc;

use millrace_memif::ring::{Receiver, Sender, Sent, Sink};
use millrace_wire::Packet;

use super::interface::Interface;
use super::ring_mailbox::ConnectedRing;
use crate::io::allocate::Empty;
use crate::io::peer::count;
use crate::io::{Burst, RxQueue, TxQueue};

/// Maximum size in bytes of a frame in several segments, which is linearized before it is sent.
const LINEARIZED_MAX: usize = 65_536;

pub(super) struct Rx<P> {
    interface: Arc<Interface>,
    queue: usize,
    connected: Option<ConnectedRing<Receiver>>,
    empty: Empty<P>,
}

impl<P> Rx<P> {
    pub(super) fn new(interface: Arc<Interface>, queue: u16, empty: Empty<P>) -> Rx<P> {
        Rx {
            interface,
            queue: usize::from(queue),
            connected: None,
            empty,
        }
    }
}

/// The empty packets of a burst, from `next` on, which are filled with frames one after the other.
struct Fill<'a, P> {
    packets: &'a mut Burst<P>,
    next: usize,
    /// Maximum size of a frame in bytes.
    frame_size: usize,
}

impl<P: Packet> Sink for Fill<'_, P> {
    #[inline]
    fn allocate(&mut self, size: usize) -> Option<&mut [u8]> {
        let packet = self
            .packets
            .get_mut(self.next)
            .filter(|_| size <= self.frame_size)?;
        // If the frame is longer than a buffer, the packet stays empty, and takes the next frame.
        let bytes = packet.append(size)?;
        self.next += 1;
        Some(bytes)
    }
}

impl<P: Packet> RxQueue<P> for Rx<P> {
    #[inline]
    fn rx_burst(&mut self, burst: &mut Burst<P>) {
        let mailbox = &self.interface.rx[self.queue];
        mailbox.update(&mut self.connected);
        let Some(connected) = &mut self.connected else {
            return;
        };
        let first = burst.len();
        let room = burst.remaining_capacity();
        let received = connected.ring.ready().and_then(|ready| {
            let wanted = room.min(usize::from(ready));
            if wanted == 0 {
                return Ok(0);
            }
            (self.empty)(wanted, burst);
            let frames = burst.len() - first;
            if frames == 0 {
                count(&self.interface.counters.no_buffer, 1);
                return Ok(0);
            }
            let mut fill = Fill {
                packets: burst,
                next: first,
                frame_size: self.interface.frame_size,
            };
            let received = connected.ring.receive(frames, &mut fill)?;
            if received.dropped > 0 {
                count(&self.interface.counters.rx_errors, received.dropped);
            }
            Ok(received.frames)
        });
        match received {
            Ok(frames) => burst.truncate(first + frames),
            Err(violation) => {
                burst.truncate(first);
                count(&self.interface.counters.rx_errors, 1);
                if let Some(connected) = self.connected.take() {
                    self.interface.report_violation(connected.connection, violation);
                    mailbox.retire(connected);
                }
            }
        }
    }
}

pub(super) struct Tx {
    interface: Arc<Interface>,
    connected: Option<ConnectedRing<Sender>>,
    /// True if the first unsent frame is longer than the interface carries or the peer accepts.
    is_too_long: bool,
    /// Buffer for a linearized frame.
    linearized: Vec<u8>,
}

impl Tx {
    pub(super) fn new(interface: Arc<Interface>) -> Tx {
        Tx {
            interface,
            connected: None,
            is_too_long: false,
            linearized: Vec::with_capacity(LINEARIZED_MAX),
        }
    }
}

impl<P: Packet> TxQueue<P> for Tx {
    #[inline]
    fn tx_burst(&mut self, burst: &mut Burst<P>) {
        self.interface.tx.update(&mut self.connected);
        self.is_too_long = false;
        let Some(connected) = &mut self.connected else {
            return;
        };
        let ring = &mut connected.ring;
        let sent = ring.ready().and_then(|_free| {
            let mut done = 0;
            for packet in burst.iter() {
                if packet.len() > self.interface.frame_size {
                    self.is_too_long = true;
                    break;
                }
                let head = packet.head();
                let frame = if head.len() == packet.len() {
                    head
                } else {
                    self.linearized.clear();
                    packet.copy_to(&mut self.linearized, LINEARIZED_MAX);
                    &self.linearized
                };
                match ring.send(frame)? {
                    Sent::Yes => {}
                    Sent::Full => break,
                    Sent::TooLong => {
                        self.is_too_long = true;
                        break;
                    }
                }
                done += 1;
            }
            Ok(done)
        });
        match sent {
            Ok(done) => {
                if ring.publish() {
                    self.interface.notify();
                }
                if done == burst.len() {
                    P::discard(burst);
                } else {
                    drop(burst.drain(..done));
                }
            }
            Err(violation) => {
                count(&self.interface.counters.rx_errors, 1);
                if let Some(connected) = self.connected.take() {
                    self.interface.report_violation(connected.connection, violation);
                    self.interface.tx.retire(connected);
                }
            }
        }
    }

    fn refused(&self, left: usize) -> usize {
        match &self.connected {
            // Packets do not wait for a peer: they would be outdated when one connects.
            None => left,
            Some(_) => self.is_too_long.into(),
        }
    }
}
