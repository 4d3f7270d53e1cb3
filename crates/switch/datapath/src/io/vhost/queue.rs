//! The receive and transmit queues of a vhost-user port, which workers own.

use std::sync::Arc;

use millrace_wire::Packet;
use millrace_wire::segment::GsoLayout;

use super::interface::Interface;
use crate::io::allocate::Empty;
use crate::io::peer::count;
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
        let slot = &self.interface.rx[usize::from(self.pair)];
        let Some(mut running) = slot.acquire() else { return };
        match running.ring.receive(burst, &*self.empty) {
            Ok(received) => {
                if received.dropped > 0 {
                    count(&self.interface.counters.rx_errors, received.dropped);
                }
                if received.is_short {
                    count(&self.interface.counters.no_buffer, 1);
                }
                if received.needs_call {
                    self.interface.notify(2 * self.pair + 1);
                }
            }
            Err(violation) => {
                count(&self.interface.counters.rx_errors, 1);
                running.is_violated = true;
                self.interface.report_violation(violation);
            }
        }
        slot.release(running);
    }
}

pub(super) struct Tx {
    interface: Arc<Interface>,
    /// True if a driver was connected at the last transmission.
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
        let taken = slot.acquire();
        self.has_peer = taken.is_some();
        let Some(mut running) = taken else { return };
        match running.ring.send(burst) {
            Ok(sent) => {
                if sent.dropped > 0 {
                    count(&self.interface.counters.tx_errors, sent.dropped);
                }
                if sent.needs_call {
                    self.interface.notify(0);
                }
            }
            Err(violation) => {
                count(&self.interface.counters.rx_errors, 1);
                running.is_violated = true;
                self.interface.report_violation(violation);
            }
        }
        slot.release(running);
    }

    /// Refuses all packets while there is no driver: they would be outdated when one connects.
    fn refused(&self, left: usize) -> usize {
        if self.has_peer { 0 } else { left }
    }

    /// Accepts the types of GSO packets that the driver has negotiated.
    fn takes_gso(&mut self, _: &P, gso: &GsoLayout) -> bool {
        let slot = &self.interface.tx;
        let Some(running) = slot.acquire() else {
            return false;
        };
        let takes = running.ring.takes_gso(gso);
        slot.release(running);
        takes
    }
}
