//! The half that runs the model and stores the frames that arrive.

use std::sync::Arc;

use millrace_types::Time;

use crate::controller::{Change, Mailbox};
use crate::icmp_errors::{Answer, Writing};
use crate::model::{Direction, DropReason, Outcome, Outcomes, Release};
use crate::ring::records::{MAX_FRAME, Memory, Writer};
use crate::stats::Counters;

/// The sending half of a direction. One thread owns it. No call waits, takes a lock or allocates.
pub struct Sender<M> {
    direction: Direction,
    writer: Writer<M>,
    counters: Arc<Counters>,
    mailbox: Arc<Mailbox>,
    icmp_errors: Writing,
    /// A change of parameters that takes effect later.
    pending: Option<Box<Change>>,
    /// The memory for a copy of a frame with inverted bits.
    scratch: Box<[u8]>,
}

impl<M: Memory> Sender<M> {
    pub(crate) fn new(
        direction: Direction,
        writer: Writer<M>,
        counters: Arc<Counters>,
        mailbox: Arc<Mailbox>,
        icmp_errors: Writing,
    ) -> Sender<M> {
        Sender {
            direction,
            writer,
            counters,
            mailbox,
            icmp_errors,
            pending: None,
            scratch: vec![0; MAX_FRAME].into_boxed_slice(),
        }
    }

    /// Offers a frame (Ethernet header to payload, without check sequence) of a class. Class 0 is the
    /// default, class 1 the first of the configuration. `arrival` must not decrease. The receiver sees the
    /// offered frames after [`Self::publish`].
    #[inline]
    pub fn offer(&mut self, arrival: Time, class: usize, frame: &[u8]) {
        if self.pending.as_ref().is_some_and(|change| change.at <= arrival) {
            self.apply_pending();
        }
        if let Some(release) = self.direction.bypass(arrival, frame) {
            self.bypass(&release, class, frame);
            return;
        }
        let mut outcomes = Outcomes::new();
        self.direction.offer_to_path(arrival, class, frame, &mut outcomes);
        self.counters.offered(outcomes.len());
        for outcome in &outcomes {
            match outcome {
                Outcome::Dropped(reason) => {
                    self.counters.dropped(*reason);
                    if *reason == DropReason::OverMtu {
                        self.answer(arrival, class, frame);
                    }
                }
                Outcome::Released(release) => self.store(release, class, frame),
            }
        }
    }

    /// Stores a frame that bypasses the model, and records no delay, because none was drawn.
    #[cold]
    fn bypass(&mut self, release: &Release, class: usize, frame: &[u8]) {
        self.counters.bypassed();
        self.counters.offered(1);
        let class = class.min(usize::from(u8::MAX)) as u8;
        if self.writer.push(release.at.nanos(), class, frame) {
            self.counters.stored_without_delay();
        } else {
            self.counters.dropped(DropReason::NoMemory);
        }
    }

    #[inline]
    fn store(&mut self, release: &Release, class: usize, frame: &[u8]) {
        let class = class.min(usize::from(u8::MAX)) as u8;
        let stored = match release.flips {
            None => self.writer.push(release.at.nanos(), class, frame),
            Some(flips) => match self.scratch.get_mut(..frame.len()) {
                None => false,
                Some(copy) => {
                    copy.copy_from_slice(frame);
                    flips.apply(copy);
                    self.writer.push(release.at.nanos(), class, copy)
                }
            },
        };
        if stored {
            self.counters.stored(release);
        } else {
            self.counters.dropped(DropReason::NoMemory);
        }
    }

    /// Answers a packet over the MTU, if the path is configured to do so.
    #[cold]
    fn answer(&mut self, arrival: Time, class: usize, frame: &[u8]) {
        let Some(mtu) = self.direction.answers_too_big(class) else {
            return;
        };
        match self.icmp_errors.answer(arrival, mtu, frame) {
            Answer::Sent => self.counters.icmp_error_sent(),
            Answer::RateLimited => self.counters.icmp_error_rate_limited(),
            Answer::Forbidden => {}
        }
    }

    /// Publishes the offered frames to the receiver, and takes the newest change of parameters. Call it after
    /// each burst, and from time to time without a burst.
    #[inline]
    pub fn publish(&mut self) {
        self.writer.publish();
        let used = self.writer.used_above(self.counters.memory_high());
        self.counters
            .memory(self.writer.written(), used, self.direction.background_bytes());
        if let Some(change) = self.mailbox.next() {
            if let Some(unused) = self.pending.replace(change) {
                self.mailbox.retire(unused);
            }
            if self
                .pending
                .as_ref()
                .is_some_and(|change| change.at == Time::ZERO)
            {
                self.apply_pending();
            }
        }
    }

    #[cold]
    fn apply_pending(&mut self) {
        let Some(mut change) = self.pending.take() else {
            return;
        };
        if !change.model.keeps_order() {
            self.writer.reorder();
        }
        self.direction.exchange(&mut change.model);
        self.counters.changed();
        self.mailbox.retire(change);
    }
}
