//! One port: what its queues, its thread and its device share.

use core::sync::atomic::{AtomicBool, Ordering};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use millrace_vhost::ring::{Limits, Receiver, Sender, Setup};
use millrace_vhost::session::RingConfig;
use millrace_vhost::{Features, MessageError, ProtocolViolation};

use crate::io::bell::Bell;
use crate::io::peer::{Counters, Told, Wake};
use crate::io::slot::Slot;
use crate::io::vnic::VnicSpec;

pub(super) struct Interface {
    /// As configured.
    pub(super) name: String,
    /// What the driver sends, by pair of queues.
    pub(super) rx: Box<[Slot<Receiver>]>,
    /// What it receives: by its first queue, which every driver has.
    pub(super) tx: Slot<Sender>,
    /// By ring.
    bells: Box<[Arc<Bell>]>,
    pub(super) counters: Counters,
    limits: Limits,
    /// Whether packets flow both ways.
    is_up: AtomicBool,
    /// What workers found in the connection that there is.
    lies: ArrayQueue<ProtocolViolation>,
    /// The thread that speaks for it.
    pub(super) wake: Wake,
    told: Told,
}

impl Interface {
    pub(super) fn new(spec: &VnicSpec, pairs: u16, limits: Limits) -> rustix::io::Result<Interface> {
        Ok(Interface {
            name: spec.to_string(),
            rx: (0..pairs).map(|_| Slot::new()).collect(),
            tx: Slot::new(),
            bells: (0..2 * pairs).map(|_| Arc::default()).collect(),
            counters: Counters::default(),
            limits,
            is_up: AtomicBool::new(false),
            // One of each queue.
            lies: ArrayQueue::new(usize::from(pairs) + 1),
            wake: Wake::new()?,
            told: Told::default(),
        })
    }

    /// Pairs of queues that a driver may have.
    pub(super) fn pairs(&self) -> u16 {
        self.rx.len() as u16
    }

    /// Returns true if packets flow both ways.
    pub(super) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Acquire)
    }

    /// The thread's: so it is from now on. Returns whether it was not.
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
            self.tx.give(sender);
            base
        } else if ring % 2 == 1
            && let Some(slot) = self.rx.get(pair)
        {
            let receiver = Receiver::open(&setup, self.limits)?;
            let base = receiver.base();
            slot.give(receiver);
            base
        } else {
            return Ok(());
        };
        // Whoever had this ring before us may have ended before it woke the driver.
        if base & !Self::WRAPPED != 0 {
            self.ring(ring);
        }
        Ok(())
    }

    /// The wrap counters in the base of a packed ring.
    const WRAPPED: u32 = 0x8000_8000;

    /// Stops a ring; called by the session's thread. Returns its vring base, if the ring was running.
    pub(super) fn stop(&self, ring: u16) -> Option<u32> {
        let pair = usize::from(ring / 2);
        if ring == 0 {
            self.tx.take_away().map(|sender| sender.base())
        } else if ring % 2 == 1 {
            let slot = self.rx.get(pair)?;
            slot.take_away().map(|receiver| receiver.base())
        } else {
            None
        }
    }

    /// The thread's: by which file the driver is woken for a ring. It is, at once, if it may be waiting already.
    pub(super) fn call(&self, ring: u16, file: Option<OwnedFd>) {
        if let Some(bell) = self.bells.get(usize::from(ring)) {
            bell.set(file);
        }
    }

    /// The thread's: makes threads to wake the driver, where they are asked for and are not there.
    pub(super) fn attend(&self) {
        for (ring, bell) in self.bells.iter().enumerate() {
            bell.attend(&ring.to_string());
        }
    }

    /// The thread's, when a connection is over: nothing of it stays.
    pub(super) fn forget(&self) {
        self.set_up(false);
        for bell in &self.bells {
            bell.set(None);
        }
        while self.lies.pop().is_some() {}
    }

    /// The port goes.
    pub(super) fn close(&self) {
        for bell in &self.bells {
            bell.close();
        }
    }

    /// Returns the protocol violation that a worker has found; called by the session's thread.
    pub(super) fn violation(&self) -> Option<ProtocolViolation> {
        self.lies.pop()
    }

    /// A worker's: the driver lies. It is told once for each ring.
    #[cold]
    pub(super) fn accuse(&self, violation: ProtocolViolation) {
        let _oldest = self.lies.force_push(violation);
        self.wake.wake();
    }

    /// Wakes the driver for a ring.
    #[cold]
    pub(super) fn ring(&self, ring: u16) {
        if let Some(bell) = self.bells.get(usize::from(ring))
            && !bell.ring()
        {
            self.wake.wake();
        }
    }

    /// Tells the log why a driver was sent away.
    pub(super) fn tell(&self, reason: &dyn core::fmt::Display) {
        self.told.tell(&self.name, reason);
    }

    /// What drivers are offered.
    pub(super) fn offered(&self) -> Features {
        Features::offered(self.limits.is_segmented)
    }
}
