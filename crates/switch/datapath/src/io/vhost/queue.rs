//! The queues of a vhost-user port: the workers' side.

use std::sync::Arc;

use millrace_wire::Packet;
use millrace_wire::segment::Cut;

use super::interface::Interface;
use crate::io::peer::count;
use crate::io::registry::Empty;
use crate::io::{Burst, RxQueue, TxQueue};

pub(super) struct Rx<P> {
    interface: Arc<Interface>,
    pair: u16,
    empty: Empty<P>,
}

impl<P> Rx<P> {
    pub(super) fn new(interface: Arc<Interface>, pair: u16, empty: Empty<P>) -> Rx<P> {
        Rx {
            interface,
            pair,
            empty,
        }
    }
}

impl<P: Packet> RxQueue<P> for Rx<P> {
    #[inline]
    fn rx_burst(&mut self, burst: &mut Burst<P>) {
        let Some(slot) = self.interface.rx.get(usize::from(self.pair)) else {
            return;
        };
        let Some(mut held) = slot.take() else { return };
        match held.ring.receive(burst, &*self.empty) {
            Ok(received) => {
                if received.dropped > 0 {
                    count(&self.interface.counters.rx_errors, received.dropped);
                }
                if received.is_short {
                    count(&self.interface.counters.no_buffer, 1);
                }
                if received.needs_call {
                    self.interface.ring(2 * self.pair + 1);
                }
            }
            Err(violation) => {
                count(&self.interface.counters.rx_errors, 1);
                held.is_lie = true;
                self.interface.accuse(violation);
            }
        }
        slot.put(held);
    }
}

pub(super) struct Tx {
    interface: Arc<Interface>,
    /// True if somebody was there when it sent last.
    has_peer: bool,
}

impl Tx {
    pub(super) fn new(interface: Arc<Interface>) -> Tx {
        Tx {
            interface,
            has_peer: false,
        }
    }
}

impl<P: Packet> TxQueue<P> for Tx {
    #[inline]
    fn tx_burst(&mut self, burst: &mut Burst<P>) {
        let slot = &self.interface.tx;
        let taken = slot.take();
        self.has_peer = taken.is_some();
        let Some(mut held) = taken else { return };
        match held.ring.send(burst) {
            Ok(sent) => {
                if sent.dropped > 0 {
                    count(&self.interface.counters.tx_errors, sent.dropped);
                }
                if sent.needs_call {
                    self.interface.ring(0);
                }
            }
            Err(violation) => {
                count(&self.interface.counters.rx_errors, 1);
                held.is_lie = true;
                self.interface.accuse(violation);
            }
        }
        slot.put(held);
    }

    /// What waited for nobody would be old when somebody comes.
    fn refused(&self, left: usize) -> usize {
        if self.has_peer { 0 } else { left }
    }

    /// Where the driver has said so.
    fn takes_uncut(&mut self, _: &P, cut: &Cut) -> bool {
        let slot = &self.interface.tx;
        let Some(held) = slot.take() else { return false };
        let takes = held.ring.takes_uncut(cut);
        slot.put(held);
        takes
    }
}
