//! The queues of a memif: the workers' side.

use std::sync::Arc;

use millrace_memif::ring::{Receiver, Sender, Sent, Sink};
use millrace_wire::Packet;

use super::interface::Interface;
use super::seat::Held;
use crate::io::peer::count;
use crate::io::registry::Empty;
use crate::io::{Burst, RxQueue, TxQueue};

/// The longest frame in several segments that is sent: it is put together first.
const WHOLE_MAX: usize = 65_536;

pub(super) struct Rx<P> {
    interface: Arc<Interface>,
    queue: usize,
    held: Option<Held<Receiver>>,
    empty: Empty<P>,
}

impl<P> Rx<P> {
    pub(super) fn new(interface: Arc<Interface>, queue: u16, empty: Empty<P>) -> Rx<P> {
        Rx {
            interface,
            queue: usize::from(queue),
            held: None,
            empty,
        }
    }
}

/// Empty packets of a burst, from `at` on, that take frames one after the other.
struct Fill<'a, P> {
    packets: &'a mut Burst<P>,
    at: usize,
    /// The longest that are taken.
    frame_size: usize,
}

impl<P: Packet> Sink for Fill<'_, P> {
    #[inline]
    fn allocate(&mut self, size: usize) -> Option<&mut [u8]> {
        let packet = self
            .packets
            .get_mut(self.at)
            .filter(|_| size <= self.frame_size)?;
        // Longer than a buffer: the packet stays empty, for the next.
        let bytes = packet.append(size)?;
        self.at += 1;
        Some(bytes)
    }
}

impl<P: Packet> RxQueue<P> for Rx<P> {
    #[inline]
    fn rx_burst(&mut self, burst: &mut Burst<P>) {
        let Some(seat) = self.interface.rx.get(self.queue) else {
            return;
        };
        seat.look(&mut self.held);
        let Some(held) = &mut self.held else { return };
        let first = burst.len();
        let room = burst.remaining_capacity();
        let received = held.ring.ready().and_then(|ready| {
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
                at: first,
                frame_size: self.interface.frame_size,
            };
            let received = held.ring.receive(frames, &mut fill)?;
            if received.dropped > 0 {
                count(&self.interface.counters.rx_errors, received.dropped);
            }
            Ok(received.frames)
        });
        match received {
            Ok(frames) => burst.truncate(first + frames),
            Err(lie) => {
                burst.truncate(first);
                count(&self.interface.counters.rx_errors, 1);
                if let Some(held) = self.held.take() {
                    self.interface.accuse(held.connection, lie);
                    seat.leave(held);
                }
            }
        }
    }
}

pub(super) struct Tx {
    interface: Arc<Interface>,
    held: Option<Held<Sender>>,
    /// True if the first frame that was left is longer than what the interface carries, or the peer takes.
    is_too_long: bool,
    /// A frame of several segments, put together.
    whole: Vec<u8>,
}

impl Tx {
    pub(super) fn new(interface: Arc<Interface>) -> Tx {
        Tx {
            interface,
            held: None,
            is_too_long: false,
            whole: Vec::with_capacity(WHOLE_MAX),
        }
    }
}

impl<P: Packet> TxQueue<P> for Tx {
    #[inline]
    fn tx_burst(&mut self, burst: &mut Burst<P>) {
        self.interface.tx.look(&mut self.held);
        self.is_too_long = false;
        let Some(held) = &mut self.held else { return };
        let ring = &mut held.ring;
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
                    self.whole.clear();
                    packet.copy_to(&mut self.whole, WHOLE_MAX);
                    &self.whole
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
                    self.interface.ring();
                }
                if done == burst.len() {
                    P::discard(burst);
                } else {
                    drop(burst.drain(..done));
                }
            }
            Err(lie) => {
                count(&self.interface.counters.rx_errors, 1);
                if let Some(held) = self.held.take() {
                    self.interface.accuse(held.connection, lie);
                    self.interface.tx.leave(held);
                }
            }
        }
    }

    fn refused(&self, left: usize) -> usize {
        match &self.held {
            // Nobody is there, and what waited would be old when somebody comes.
            None => left,
            Some(_) => self.is_too_long.into(),
        }
    }
}
