//! The threads that move frames: from an interface into its end of the path, and from that end to the interface.
//!
//! ```text
//!  eth1 --rx--> end a ==== a_to_b ====> end b --tx--> eth2
//!  eth1 <--tx-- end a <==== b_to_a ==== end b <--rx-- eth2
//!  '---- side a ----'                   '---- side b ----'
//! ```
//!
//! A thread owns one side or both, because each transmit queue may have only one producer. A frame's
//! timestamp is taken when its burst is received, so a thread without work sleeps for a few microseconds only, and
//! after half a second without a frame until the next one arrives or is due. A thread does not sleep at all within 150 us
//! of the next due frame (docs/adr/0014-next-due.md).

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millrace_datapath::POLL_BEFORE_DUE;
use millrace_datapath::io::{Burst, Input, Opened, RxQueue, TxQueue};
use millrace_wire::Packet;

use crate::sleep::Sleepers;

/// Rounds without a frame before the first sleep.
const POLLS: u32 = 256;
/// The first sleep.
const SLEEP_MIN: Duration = Duration::from_micros(5);
/// The longest sleep while the last frame is at most [`ACTIVE`] old. This sleep bounds the
/// error of a frame's arrival time.
const SLEEP_ACTIVE: Duration = Duration::from_micros(10);
/// The longest sleep of a thread that has seen no frame for a while, and whose device has no descriptor to wait for.
const SLEEP_IDLE: Duration = Duration::from_micros(100);
/// The time after the last frame for which sleeps are short.
const ACTIVE: Duration = Duration::from_millis(500);
/// The timer slack of the threads in nanoseconds (prctl(2), `PR_SET_TIMERSLACK`).
const TIMER_SLACK_NANOS: u64 = 1;

/// Frames that an interface refused, by side.
#[derive(Debug, Default)]
pub(crate) struct SideCounters {
    /// Frames that left the path and were lost because the interface was down.
    pub(crate) tx_refused: AtomicU64,
}

/// One interface and its end of the path.
pub(crate) struct Side<P> {
    interface: (Box<dyn RxQueue<P>>, Box<dyn TxQueue<P>>),
    end: (Box<dyn RxQueue<P>>, Box<dyn TxQueue<P>>),
    inward: Box<Burst<P>>,
    outward: Box<Burst<P>>,
    counters: Arc<SideCounters>,
}

impl<P: Packet> Side<P> {
    /// Joins an interface and an end of the path; `None` if one of them has no queue.
    pub(crate) fn new(
        interface: &mut Opened<P>,
        end: &mut Opened<P>,
        counters: Arc<SideCounters>,
    ) -> Option<Side<P>> {
        Some(Side {
            interface: (interface.rx.pop()?, interface.tx.pop()?),
            end: (end.rx.pop()?, end.tx.pop()?),
            inward: Box::new(Burst::new()),
            outward: Box::new(Burst::new()),
            counters,
        })
    }

    /// Moves a burst in each direction. Returns true if there was a frame.
    fn round(&mut self, sleepers: &Sleepers) -> bool {
        self.interface.0.rx_burst(&mut self.inward);
        let mut found = !self.inward.is_empty();
        if found {
            // The path accepts every frame, and counts the frames that it drops.
            self.end.1.tx_burst(&mut self.inward);
            self.inward.clear();
            sleepers.wake_others();
        }
        self.end.0.rx_burst(&mut self.outward);
        if !self.outward.is_empty() {
            found = true;
            self.interface.1.tx_burst(&mut self.outward);
            if !self.outward.is_empty() {
                let refused = self
                    .interface
                    .1
                    .refused(self.outward.len())
                    .min(self.outward.len());
                self.outward.drain(..refused);
                self.counters
                    .tx_refused
                    .fetch_add(refused as u64, Ordering::Relaxed);
            }
        }
        found
    }
}

/// The behaviour of threads without work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idle {
    /// Sleep for a few microseconds at a time.
    Sleep,
    /// Never sleep.
    Poll,
}

/// Returns the descriptors of the interfaces; `None` if one of them must be polled.
fn inputs<P>(sides: &mut [Side<P>]) -> Option<Vec<OwnedFd>> {
    let mut descriptors = Vec::new();
    for side in sides {
        match side.interface.0.input() {
            Input::Descriptor(descriptor) => descriptors.push(descriptor),
            Input::Detached => {}
            Input::Polled => return None,
        }
    }
    Some(descriptors)
}

/// Returns the time until a thread must poll for the next due frame; `None` if no frame is on the path to its sides.
fn due_in<P>(sides: &mut [Side<P>]) -> Option<Duration> {
    let due = sides.iter_mut().filter_map(|side| side.end.0.next_due()).min()?;
    Some(
        due.saturating_duration_since(Instant::now())
            .saturating_sub(POLL_BEFORE_DUE),
    )
}

/// Forwards until `stop` is set.
pub(crate) fn run<P: Packet>(mut sides: Vec<Side<P>>, idle: Idle, sleepers: &Sleepers, stop: &AtomicBool) {
    // If the kernel refuses, the default slack of 50 us remains.
    let _default = nix::sys::prctl::set_timerslack(TIMER_SLACK_NANOS);
    let (mut empty_rounds, mut sleep, mut last_frame) = (0_u32, SLEEP_MIN, Instant::now());
    while !stop.load(Ordering::Relaxed) {
        let mut found = false;
        for side in &mut sides {
            found |= side.round(sleepers);
        }
        if found {
            (empty_rounds, sleep) = (0, SLEEP_MIN);
            continue;
        }
        empty_rounds = empty_rounds.saturating_add(1);
        if empty_rounds < POLLS || idle == Idle::Poll {
            core::hint::spin_loop();
            continue;
        }
        let now = Instant::now();
        if empty_rounds == POLLS {
            last_frame = now;
        }
        if now.saturating_duration_since(last_frame) > ACTIVE
            && let Some(inputs) = inputs(&mut sides)
        {
            sleepers.sleep(&inputs, || due_in(&mut sides).unwrap_or(Duration::MAX));
            continue;
        }
        let pause = sleep.min(due_in(&mut sides).unwrap_or(SLEEP_IDLE));
        if pause.is_zero() {
            core::hint::spin_loop();
            continue;
        }
        std::thread::sleep(pause);
        let longest = match now.saturating_duration_since(last_frame) <= ACTIVE {
            true => SLEEP_ACTIVE,
            false => SLEEP_IDLE,
        };
        sleep = (sleep * 2).min(longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_datapath::io::{Backend as _, DeviceOptions, DeviceSpec, HeapBackend};

    #[test]
    fn frames_cross_a_side_in_both_directions_until_the_threads_are_stopped() {
        let backend = HeapBackend::new();
        let open = |name: &str| {
            backend
                .open(&DeviceSpec::Memory(name.to_owned()), DeviceOptions::PLAIN)
                .unwrap()
        };
        let (mut interface, mut end) = (open("interface"), open("end"));
        let side = Side::new(&mut interface, &mut end, Arc::default()).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sleepers = Sleepers::of_threads(1).unwrap().remove(0);
            let stop = &stop;
            let thread = scope.spawn(move || run(vec![side], Idle::Sleep, &sleepers, stop));
            let (near, far) = (backend.memory("interface"), backend.memory("end"));
            assert!(near.send(&[1; 60]) && far.send(&[2; 60]));
            let bound = Duration::from_secs(60);
            assert_eq!(far.receive_within(bound), Some(vec![1; 60]));
            assert_eq!(near.receive_within(bound), Some(vec![2; 60]));
            stop.store(true, Ordering::Relaxed);
            thread.join().unwrap();
        });
    }
}
