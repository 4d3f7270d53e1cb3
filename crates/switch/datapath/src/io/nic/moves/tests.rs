//! Moves of buckets under traffic, with the device in software: 32 queues, and workers that stall. No packet of a flow overtakes
//! another, and none is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millrace_nic::driver::{Commands, Driver};
use millrace_nic::memory::{Layout, Memory};
use millrace_nic::{BUCKETS, Capabilities, Config, HashKeys, Status};
use millrace_nic_model::SoftwareNic;
use millrace_nic_model::frames::Random;
use millrace_wire::{Frame, FramePool};

use super::super::queue::Rx;
use super::super::state::Nic;
use super::*;
use crate::io::allocate::Empty;
use crate::io::memif::ConnectedRing;
use crate::io::peer::WakeEvent;
use crate::io::{Burst, RxQueue};

const QUEUES: usize = 32;
const FLOWS: u64 = 200;

/// Returns the processor time of this thread: on a busy machine, a move takes what others leave.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

/// A worker with one queue: it takes a burst, and its packets leave later.
struct Stalled {
    rx: Rx<Frame>,
    taken: Vec<Vec<u8>>,
}

struct Bench {
    device: SoftwareNic,
    nic: Arc<Nic>,
    commands: Commands,
    workers: Vec<Stalled>,
    queues: Vec<u8>,
    random: Random,
    /// The next number of each flow at the wire, and behind the workers.
    sent: BTreeMap<u16, u16>,
    left: BTreeMap<u16, u16>,
    /// Bursts that were empty although the queue had packets.
    held: u64,
    /// The processor time of device and workers in each move, from its command until all packets of before have left.
    times: Vec<Duration>,
}

/// Returns a UDP packet of a flow with a number.
fn packet(flow: u16, number: u16) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([
        8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    frame.extend(flow.to_be_bytes());
    frame.extend([0, 80, 0, 12, 0, 0]);
    frame.extend(flow.to_be_bytes());
    frame.extend(number.to_be_bytes());
    frame.resize(60, 0);
    frame
}

impl Bench {
    fn new() -> Bench {
        let capabilities = Capabilities {
            queues: QUEUES as u8,
            row_bits: 2,
            ..Capabilities::TEN
        };
        let layout = Layout {
            capabilities,
            ring_bits: 8,
            buffer_size: 128,
        };
        let (memory, file) = Memory::create(layout).unwrap();
        let mut device = SoftwareNic::new(memory).unwrap();
        let driver = Driver::start(Memory::open(file).unwrap(), &Config::new(HashKeys::new(1))).unwrap();
        device.poll();
        let wake = Arc::new(WakeEvent::new().unwrap());
        let nic = Arc::new(Nic::new("nic:test".to_owned(), QUEUES as u16, wake));
        let pool = FramePool::new(8192, 128);
        let empty: Empty<Frame> =
            Arc::new(move |len, burst| burst.extend((0..len).map_while(|_| pool.take(&[]))));
        let workers = driver.receivers.into_iter().enumerate().map(|(queue, ring)| {
            nic.rx[queue].post(Some(ConnectedRing { ring, connection: 1 }));
            Stalled {
                rx: Rx::new(Arc::clone(&nic), queue as u16, Arc::clone(&empty)),
                taken: Vec::new(),
            }
        });
        let workers = workers.collect();
        let mut bench = Bench {
            device,
            nic,
            commands: driver.commands,
            workers,
            queues: vec![0; BUCKETS],
            random: Random::new(9),
            sent: BTreeMap::new(),
            left: BTreeMap::new(),
            held: 0,
            times: Vec::new(),
        };
        let queues: Vec<u8> = (0..BUCKETS).map(|bucket| (bucket % QUEUES) as u8).collect();
        assert!(bench.commit(&queues, None));
        bench.queues = queues;
        bench
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.below(limit as usize) as u64
    }

    /// Executes the commands that give all buckets their queues. Returns false if the device was busy.
    fn commit(&mut self, queues: &[u8], fence: Option<u32>) -> bool {
        let mut wanted = bucket_commands(queues, fence).into_iter().peekable();
        let mut statuses = Vec::new();
        let mut submitted = 0;
        while wanted.peek().is_some() || statuses.len() < submitted {
            while wanted.next_if(|command| self.commands.submit(command)).is_some() {
                submitted += 1;
            }
            self.device.poll();
            while let Some(completion) = self.commands.poll().unwrap() {
                statuses.push(completion.status);
            }
        }
        statuses.iter().all(|status| *status == Status::Ok)
    }

    /// Frames arrive, and workers do a part of a round in any order.
    fn step(&mut self) {
        self.device.poll();
        for _ in 0..self.below(12) {
            let flow = self.below(FLOWS) as u16;
            let next = self.sent.entry(flow).or_default();
            if self.device.receive(0, &packet(flow, *next), 0).is_some() {
                *next = next.wrapping_add(1);
            }
        }
        for _ in 0..self.below(40) {
            let queue = self.below(QUEUES as u64) as usize;
            // A worker that is not chosen stalls with what it has taken.
            self.round(queue);
        }
    }

    /// A worker ends its round, or begins one.
    fn round(&mut self, queue: usize) {
        let worker = &mut self.workers[queue];
        if !worker.taken.is_empty() {
            for frame in worker.taken.drain(..) {
                let [flow, number] = [42, 44].map(|at| u16::from_be_bytes([frame[at], frame[at + 1]]));
                let next = self.left.entry(flow).or_default();
                assert_eq!(number, *next, "flow {flow}");
                *next = next.wrapping_add(1);
            }
            worker.rx.settled();
            return;
        }
        let mut burst = Burst::new();
        worker.rx.rx_burst(&mut burst);
        worker.taken = burst.iter().map(|frame| frame.bytes().to_vec()).collect();
        if worker.taken.is_empty() {
            self.held += u64::from(worker.rx.waits_at_fence());
            worker.rx.settled();
        }
    }

    /// Moves some buckets to other queues, and returns when all packets of before have left.
    fn move_some(&mut self) {
        let mut queues = self.queues.clone();
        for _ in 0..=self.below(64) {
            let (bucket, queue) = (self.below(BUCKETS as u64), self.below(QUEUES as u64));
            queues[bucket as usize] = queue as u8;
        }
        let begun = processor_time();
        let fence = self.nic.fences.next();
        self.nic.moves.begin(fence, &self.queues, &queues);
        while !self.commit(&queues, Some(fence)) {
            // No queue has room for the fence.
            self.step();
        }
        self.queues = queues;
        let mut steps = 0;
        while !self.nic.moves.has_settled() {
            self.step();
            steps += 1;
            assert!(steps < 100_000, "the move does not end");
        }
        self.times.push(processor_time().saturating_sub(begun));
    }

    fn drain(&mut self) {
        for _ in 0..1_000 {
            self.device.poll();
            (0..QUEUES).for_each(|queue| self.round(queue));
        }
    }
}

/// 10,000 moves with `MILLRACE_NIC_LONG`, which the gate N7 asks for.
#[test]
fn moves_of_buckets_under_load_reorder_and_lose_nothing() {
    let is_long = std::env::var_os("MILLRACE_NIC_LONG").is_some();
    let moves = if is_long { 10_000 } else { 150 };
    let mut bench = Bench::new();
    for _ in 0..moves {
        bench.move_some();
        for _ in 0..bench.below(4) {
            bench.step();
        }
    }
    bench.drain();
    bench.sent.retain(|_, count| *count != 0);
    assert_eq!(
        bench.sent, bench.left,
        "every frame that the device took has left"
    );
    let packets: u64 = bench.sent.values().map(|count| u64::from(*count)).sum();
    bench.times.sort();
    let at = |share: f64| bench.times[((bench.times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    let late = bench
        .times
        .iter()
        .filter(|time| **time > Duration::from_millis(20))
        .count();
    println!(
        "N7: {moves} moves, {packets} packets, 0 reordered, 0 lost, {} bursts waited at a fence; {late} took more than 20 ms of \
         processor time, the longest {:.2} ms, of 1,000 the second {:.2} ms, the median {:.2} ms",
        bench.held,
        at(1.0),
        at(0.999),
        at(0.5)
    );
    assert!(bench.held > moves / 4, "queues waited {} times", bench.held);
}

#[test]
fn a_move_that_is_given_up_holds_no_queue() {
    let moves = Moves::default();
    let (mut one, mut two) = (QueueMove::default(), QueueMove::default());
    moves.begin(7, &[0, 1], &[1, 0]);
    assert!(!one.may_pass(&moves, 0, 7) && !two.may_pass(&moves, 1, 7));
    one.settle(&moves, 0);
    assert!(!one.may_pass(&moves, 0, 7), "queue 1 has not settled");
    moves.give_up();
    assert!(one.may_pass(&moves, 0, 7));
    // A worker that settles late does not take part in the next move.
    moves.begin(8, &[1, 1], &[0, 1]);
    two.settle(&moves, 1);
    assert!(!one.may_pass(&moves, 0, 8));
    assert!(two.may_pass(&moves, 1, 8), "it only loses");
    two.settle(&moves, 1);
    assert!(one.may_pass(&moves, 0, 8));
    assert!(one.may_pass(&moves, 0, 3), "the fence of a removed entry");
}
