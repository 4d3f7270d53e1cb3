//! The other end of a measurement: what comes goes back, as it is or as a network function sends it.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use millrace_dpdk::{Mbuf, RxQueue, TxQueue, free_burst};

use crate::engine::Order;

/// Packets of a burst.
const BURST: usize = 64;
/// Rounds of the loop between two looks at what it is told.
const ROUNDS_PER_LOOK: u32 = 1024;

/// What becomes of a packet before it goes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manner {
    /// Nothing, and the core is never left to others.
    AsItCame,
    /// Its MAC addresses are exchanged; the core is left to others while nothing comes, as several functions share one.
    Swapped,
}

/// Sends back whatever comes by the first device, until told to quit: the simplest switch, for tests and to know the limit.
pub fn reflect(mut rx: Vec<RxQueue>, mut tx: Vec<TxQueue>, manner: Manner, orders: &Receiver<Order>) {
    let mut burst = ArrayVec::<Mbuf, BURST>::new();
    let mut round = 0_u32;
    let mut turns = Turns::default();
    // One queue was asked for, and a device that starts has it.
    let Some(tx) = tx.first_mut() else { return };
    loop {
        round = round.wrapping_add(1);
        if round.is_multiple_of(ROUNDS_PER_LOOK)
            && matches!(
                orders.try_recv(),
                Ok(Order::Quit) | Err(TryRecvError::Disconnected)
            )
        {
            return;
        }
        let mut came = 0;
        for rx in &mut rx {
            let len = rx.rx_burst(&mut burst);
            came += len;
            if len > 0 {
                if manner == Manner::Swapped {
                    // The switch has just written them, on another core.
                    burst.iter().for_each(Mbuf::prefetch_head);
                    burst.iter_mut().for_each(exchange_addresses);
                }
                tx.tx_burst(&mut burst);
                free_burst(&mut burst);
            }
        }
        if manner == Manner::Swapped {
            match came {
                0 => turns.leave(),
                _ => turns.worked(came),
            }
        }
    }
}

/// Takes turns with others on a core. To yield costs least, and says that all others may go first: who is no function
/// takes milliseconds then. Where that has happened we sleep for a while instead, as one that wakes goes before one that
/// computes; a chain's functions do the same (`millrace_nf::shm`), so that those behind other ports can be compared.
/// They do not yield while there are packets, as we do: a switch gives a chain no more than it has room for.
#[derive(Default)]
struct Turns {
    crowded_until: Option<Instant>,
    /// Looks that found nothing, one after the other.
    looks: u32,
    /// Packets since it yielded last.
    done: usize,
}

/// A function gives the core back sooner than that, however many share it.
const TURN_MAX: Duration = Duration::from_millis(1);
/// How long nobody yields after that.
const CROWDED: Duration = Duration::from_millis(100);
/// Less might run out while the timer is being set, and leave the core to nobody.
const SLEEP: Duration = Duration::from_micros(50);
/// Packets after which others have their turn though there are more: as many as a queue holds. The next function's queue
/// is full then, and all beyond that would be lost.
const SHARE: usize = 256;
/// Looks before the first sleep: the kernel lets one that only yields run on to the end of its time slice.
const LOOKS: u32 = 64;
/// How much later a sleep may end, in nanoseconds (prctl(2)).
const TIMER_SLACK_NANOS: u64 = 1000;

impl Turns {
    fn worked(&mut self, packets: usize) {
        self.looks = 0;
        self.done += packets;
        if self.done >= SHARE {
            self.done = 0;
            std::thread::yield_now();
        }
    }

    fn leave(&mut self) {
        let now = Instant::now();
        self.looks = self.looks.saturating_add(1);
        if self.looks >= LOOKS || self.crowded_until.is_some_and(|until| now < until) {
            return std::thread::sleep(SLEEP);
        }
        std::thread::yield_now();
        self.crowded_until = (now.elapsed() > TURN_MAX).then(|| {
            // Of this thread alone, and where it is refused sleeps are longer.
            let _usual = nix::sys::prctl::set_timerslack(TIMER_SLACK_NANOS);
            now + CROWDED
        });
    }
}

/// Exchanges the first six bytes of a frame with the next six.
fn exchange_addresses(packet: &mut Mbuf) {
    if let Some(addresses) = packet.head_mut().first_chunk_mut::<12>() {
        let (destination, source) = addresses.split_at_mut(6);
        destination.swap_with_slice(source);
    }
}
