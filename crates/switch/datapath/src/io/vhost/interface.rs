//! The state that the queues, the thread and the device of one port share.

use core::sync::atomic::{AtomicBool, Ordering};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use millrace_vhost::ring::{Limits, Receiver, Sender, Setup};
use millrace_vhost::session::RingConfig;
use millrace_vhost::{Features, MessageError, ProtocolViolation};

use crate::io::notifier::Notifier;
use crate::io::peer::{CloseLog, Counters, WakeEvent};
use crate::io::ring_slot::RingSlot;
use crate::io::vnic::VnicSpec;

pub(super) struct Interface {
    /// The name, as configured.
    pub(super) name: String,
    /// The transmit queues of the driver, by queue pair. The switch receives from them.
    pub(super) rx: Box<[RingSlot<Receiver>]>,
    /// The first receive queue of the driver. The switch sends to it, because every driver has it.
    pub(super) tx: RingSlot<Sender>,
    /// The notifiers, by ring.
    notifiers: Box<[Arc<Notifier>]>,
    pub(super) counters: Counters,
    limits: Limits,
    /// True if packets flow both ways.
    is_up: AtomicBool,
    /// Protocol violations that workers found in the current connection.
    violations: ArrayQueue<ProtocolViolation>,
    /// Wakes the thread of the port.
    pub(super) wake: WakeEvent,
    close_log: CloseLog,
}

impl Interface {
    pub(super) fn new(spec: &VnicSpec, pairs: u16, limits: Limits) -> rustix::io::Result<Interface> {
        Ok(Interface {
            name: spec.to_string(),
            rx: (0..pairs).map(|_| RingSlot::new()).collect(),
            tx: RingSlot::new(),
            notifiers: (0..2 * pairs).map(|_| Arc::default()).collect(),
            counters: Counters::default(),
            limits,
            is_up: AtomicBool::new(false),
            // Each queue reports at most one violation.
            violations: ArrayQueue::new(usize::from(pairs) + 1),
            wake: WakeEvent::new()?,
            close_log: CloseLog::default(),
        })
    }

    /// Returns the number of queue pairs that a driver may have.
    pub(super) fn pairs(&self) -> u16 {
        self.rx.len() as u16
    }

    /// Returns true if packets flow both ways.
    pub(super) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Acquire)
    }

    /// Sets the state of the link; called by the session's thread. Returns true if it changed.
    pub(super) fn set_up(&self, is_up: bool) -> bool {
        self.is_up.swap(is_up, Ordering::AcqRel) != is_up
    }

    /// Starts a ring for the workers; called by the session's thread. Rings that the port does not use are ignored.
    pub(super) fn start(
        &self,
        ring: u16,
        config: &RingConfig,
        memory: &Arc<millrace_vhost::memory::Memory>,
    ) -> Result<(), MessageError> {
        let setup = Setup {
            memory: Arc::clone(memory),
            size: config.size,
            descriptors: config.addresses.descriptors,
            driver: config.addresses.driver,
            device: config.addresses.device,
            base: config.base,
            features: config.features,
        };
        let pair = usize::from(ring / 2);
        let base = if ring == 0 {
            let sender = Sender::open(&setup)?;
            let base = sender.base();
            self.tx.insert(sender);
            base
        } else if ring % 2 == 1
            && let Some(slot) = self.rx.get(pair)
        {
            let receiver = Receiver::open(&setup, self.limits)?;
            let base = receiver.base();
            slot.insert(receiver);
            base
        } else {
            return Ok(());
        };
        // The previous process with this ring may have ended before it called the driver.
        if base & !Self::WRAPPED != 0 {
            self.notify(ring);
        }
        Ok(())
    }

    /// The wrap counters in the base of a packed ring (virtio 1.1, section 2.7.1): bit 15 and bit 31.
    const WRAPPED: u32 = 0x8000_8000;

    /// Stops a ring; called by the session's thread. Returns its vring base, if the ring was running.
    pub(super) fn stop(&self, ring: u16) -> Option<u32> {
        let pair = usize::from(ring / 2);
        if ring == 0 {
            self.tx.remove().map(|sender| sender.base())
        } else if ring % 2 == 1 {
            let slot = self.rx.get(pair)?;
            slot.remove().map(|receiver| receiver.base())
        } else {
            None
        }
    }

    /// Sets the eventfd by which the driver is called for a ring; called by the session's thread.
    pub(super) fn set_call(&self, ring: u16, fd: Option<OwnedFd>) {
        if let Some(notifier) = self.notifiers.get(usize::from(ring)) {
            notifier.set_eventfd(fd);
        }
    }

    /// Creates the threads that call the driver, if there are requests; called by the session's thread.
    pub(super) fn ensure_notifier_threads(&self) {
        for (ring, notifier) in self.notifiers.iter().enumerate() {
            notifier.ensure_thread(&ring.to_string());
        }
    }

    /// Resets the state when a connection has ended; called by the session's thread.
    pub(super) fn reset(&self) {
        self.set_up(false);
        for notifier in &self.notifiers {
            notifier.set_eventfd(None);
        }
        while self.violations.pop().is_some() {}
    }

    /// Ends the notifiers; called when the port is removed.
    pub(super) fn close(&self) {
        for notifier in &self.notifiers {
            notifier.close();
        }
    }

    /// Returns the protocol violation that a worker has found; called by the session's thread.
    pub(super) fn violation(&self) -> Option<ProtocolViolation> {
        self.violations.pop()
    }

    /// Reports a protocol violation by the driver; called by a worker, once for each ring.
    #[cold]
    pub(super) fn report_violation(&self, violation: ProtocolViolation) {
        let _oldest = self.violations.force_push(violation);
        self.wake.wake();
    }

    /// Calls the driver for a ring.
    #[cold]
    pub(super) fn notify(&self, ring: u16) {
        if let Some(notifier) = self.notifiers.get(usize::from(ring))
            && !notifier.notify()
        {
            self.wake.wake();
        }
    }

    /// Logs why a driver's connection was closed.
    pub(super) fn log_closed(&self, reason: &dyn core::fmt::Display) {
        self.close_log.log(&self.name, reason);
    }

    /// Returns the features that are offered to drivers.
    pub(super) fn offered(&self) -> Features {
        Features::offered(self.limits.is_segmented)
    }
}
