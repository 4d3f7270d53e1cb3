//! The far end of a measurement: sends received packets back, unchanged or as a network function would.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use millrace_dpdk::{Mbuf, RxQueue, TxQueue, free_burst};

use crate::messages::EngineCommand;

/// The number of packets in a burst.
const BURST: usize = 64;
/// The number of rounds of the loop between two polls of the commands.
const ROUNDS_PER_COMMAND_POLL: u32 = 1024;

/// The treatment of packets and of idle time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReflectMode {
    /// Packets stay as they are; the loop never yields its core.
    Unchanged,
    /// MAC addresses are swapped; the loop yields its core while no packets arrive, as functions on a shared core do.
    SwapMacs,
}

/// Sends all received packets back through the first device, until [`EngineCommand::Quit`]: the simplest switch, for
/// tests and as an upper bound of rates.
pub fn reflect(
    mut rx: Vec<RxQueue>,
    mut tx: Vec<TxQueue>,
    mode: ReflectMode,
    commands: &Receiver<EngineCommand>,
) {
    let mut burst = ArrayVec::<Mbuf, BURST>::new();
    let mut round = 0_u32;
    let mut idle = IdleYield::default();
    // The first device has a transmit queue, because the configuration asks for one for each device.
    let Some(tx) = tx.first_mut() else { return };
    loop {
        round = round.wrapping_add(1);
        if round.is_multiple_of(ROUNDS_PER_COMMAND_POLL)
            && matches!(
                commands.try_recv(),
                Ok(EngineCommand::Quit) | Err(TryRecvError::Disconnected)
            )
        {
            return;
        }
        let mut received = 0;
        for rx in &mut rx {
            let len = rx.rx_burst(&mut burst);
            received += len;
            if len > 0 {
                if mode == ReflectMode::SwapMacs {
                    // The switch wrote these packets on another core, so they are not in this core's cache.
                    burst.iter().for_each(Mbuf::prefetch_head);
                    burst.iter_mut().for_each(swap_addresses);
                }
                tx.tx_burst(&mut burst);
                free_burst(&mut burst);
            }
        }
        if mode == ReflectMode::SwapMacs {
            match received {
                0 => idle.no_packets(),
                _ => idle.processed(received),
            }
        }
    }
}

/// Shares a core with other threads.
///
/// A yield costs least, and lets all other threads run first. If one of them computes, the yield takes
/// milliseconds. After such a long yield this thread sleeps for a while instead, because the scheduler
/// runs a thread that wakes up before a thread that computes. The functions of a chain do the same
/// (`millrace_nf::shm`), so that functions behind other ports are comparable. Unlike this loop, the
/// functions of a chain do not yield while packets arrive, because a switch gives a chain no more packets
/// than the chain has room for.
#[derive(Default)]
struct IdleYield {
    sleep_until: Option<Instant>,
    /// The number of consecutive polls without packets.
    empty_polls: u32,
    /// The number of packets since the last yield.
    packets: usize,
}

/// The longest yield while only network functions share the core. A longer yield shows that another thread
/// computes.
const YIELD_MAX: Duration = Duration::from_millis(1);
/// The time after a longer yield during which the loop sleeps instead of yielding.
const SLEEP_PERIOD: Duration = Duration::from_millis(100);
/// The duration of a sleep. A shorter one could expire while the timer is set, and leave the core idle.
const SLEEP: Duration = Duration::from_micros(50);
/// The number of packets after which the thread yields even if more have arrived: the capacity of a queue.
/// By then the queue of the next function is full, and would drop further packets.
const PACKETS_PER_YIELD: usize = 256;
/// The number of empty polls before the first sleep. The kernel lets a thread that only yields run to the end of its
/// time slice.
const POLLS_BEFORE_SLEEP: u32 = 64;
/// The timer slack in nanoseconds: the largest delay of the end of a sleep (prctl(2), PR_SET_TIMERSLACK).
const TIMER_SLACK_NANOS: u64 = 1000;

impl IdleYield {
    fn processed(&mut self, count: usize) {
        self.empty_polls = 0;
        self.packets += count;
        if self.packets >= PACKETS_PER_YIELD {
            self.packets = 0;
            std::thread::yield_now();
        }
    }

    fn no_packets(&mut self) {
        let now = Instant::now();
        self.empty_polls = self.empty_polls.saturating_add(1);
        if self.empty_polls >= POLLS_BEFORE_SLEEP || self.sleep_until.is_some_and(|until| now < until) {
            return std::thread::sleep(SLEEP);
        }
        std::thread::yield_now();
        self.sleep_until = (now.elapsed() > YIELD_MAX).then(|| {
            // The call changes the slack of this thread only. If the call fails, sleeps are longer.
            let _result = nix::sys::prctl::set_timerslack(TIMER_SLACK_NANOS);
            now + SLEEP_PERIOD
        });
    }
}

/// Swaps the destination and the source MAC address of a frame.
fn swap_addresses(packet: &mut Mbuf) {
    if let Some(addresses) = packet.head_mut().first_chunk_mut::<12>() {
        let (destination, source) = addresses.split_at_mut(6);
        destination.swap_with_slice(source);
    }
}
