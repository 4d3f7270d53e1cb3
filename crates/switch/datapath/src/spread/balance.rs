//! Decides on the control side, ten times a second, which worker owns which bucket. The input is the load
//! that the workers measure.
//!
//! While one worker has much more load than another, buckets move from the most loaded worker to the least
//! loaded one. Buckets with the most traffic move first, except those that would overshoot the mean of both
//! loads. Buckets leave only a worker that is nearly full, so that a switch with little load leaves packets
//! with the worker that receives them. When the total load fits one worker again, buckets return to the
//! receiving worker. A flow that fills a worker alone stays: it cannot be divided, so the other flows move
//! away from it. A worker that other processes keep from its core ([`Exclusions`]) gets no buckets, and its
//! buckets return to the receiving worker. All buckets also return if all workers together process no more
//! packets than the receiving worker did alone ([`Trial`]).
//!
//! Buckets of a device's own table have no receiving worker: they cost no hand-off, so they move whenever loads differ, and
//! return nowhere.

use core::time::Duration;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::Mutex;

use super::excluded::Exclusions;
use super::load::Load;
use super::policy::Spread;
use super::reta::{BUCKETS, BucketMove, Reta, Urgency};
use super::trial::{Permission, Trial};
use crate::counters::WorkerCounters;

/// Interval of samples: long compared with a burst and a sleep, short compared with what people notice.
const INTERVAL: Duration = Duration::from_millis(100);
/// The minimum difference of load between two workers, as a share of time, at which buckets move.
const MIN_GAP: f64 = 0.15;
/// Nanoseconds of processing for each packet below which packets are not handed off. A hand-off costs about
/// as much, because it moves the packet and its buffer from one core's caches to another's. docs/results/switch.md
/// has measurements.
const HANDOFF_NANOS_MIN: f64 = 80.0;
/// The load of all workers together, as a share of one worker's time, below which buckets return to the receiving
/// worker.
const LOW_LOAD: f64 = 0.35;
/// The share of half the difference in load that one step moves: load is measured roughly, and overshooting would
/// oscillate.
const DAMPING: f64 = 0.8;
/// Maximum number of buckets that one queue moves at once: packets that are parked meanwhile are a share of its
/// traffic.
const MOVES_MAX: usize = BUCKETS / 4;

/// A queue, and the number of packets of each of its buckets since the last sample.
#[derive(Clone, PartialEq, Debug)]
struct QueueLoad {
    /// The receiving worker; `None` if the device has the table.
    receiver: Option<usize>,
    /// By worker: true if it may own buckets.
    reaches: Vec<bool>,
    is_on: bool,
    owners: Vec<u16>,
    packets: Vec<u64>,
}

/// A request to a queue.
#[derive(Clone, PartialEq, Debug)]
enum RetaRequest {
    Switch(bool),
    Move(Vec<BucketMove>, Urgency),
}

/// Returns the request that moves the buckets of excluded workers to the receiving worker, or to the other workers that a
/// device reaches; `None` if excluded workers have none.
fn leave_excluded(reta: &QueueLoad, excluded: &[bool]) -> Option<RetaRequest> {
    let is_excluded = |worker: usize| excluded.get(worker) == Some(&true);
    let others: Vec<u16> = match reta.receiver {
        Some(receiver) => vec![receiver as u16],
        None => (0..reta.reaches.len())
            .filter(|worker| reta.reaches[*worker] && !is_excluded(*worker))
            .map(|worker| worker as u16)
            .collect(),
    };
    let is_foreign = |owner: u16| Some(usize::from(owner)) != reta.receiver && is_excluded(owner.into());
    let foreign = (0..).zip(&reta.owners).filter(|(_, owner)| is_foreign(**owner));
    let moves: Vec<_> = foreign
        .map(|(bucket, _)| bucket)
        .zip(others.iter().cycle())
        .map(|(bucket, &worker)| BucketMove { bucket, worker })
        .collect();
    (!moves.is_empty()).then_some(RetaRequest::Move(moves, Urgency::Urgent))
}

/// Returns the request to each queue, if any. `excluded` is true, by worker, for those that get no buckets.
fn plan_moves(
    loads: &[Load],
    retas: &[QueueLoad],
    permission: Permission,
    excluded: &[bool],
) -> Vec<Option<RetaRequest>> {
    debug_assert!(
        retas.iter().all(|reta| reta.owners.len() == reta.packets.len()),
        "each bucket has an owner and a count"
    );
    let mut requests: Vec<Option<RetaRequest>> =
        retas.iter().map(|reta| leave_excluded(reta, excluded)).collect();
    if requests.iter().any(Option::is_some) {
        return requests;
    }
    let total: f64 = loads.iter().map(|load| load.busy).sum();
    let is_low = permission != Permission::Always && total < LOW_LOAD;
    if is_low || permission == Permission::Return {
        for (reta, request) in retas.iter().zip(&mut requests).filter(|(reta, _)| reta.is_on) {
            let Some(worker) = reta.receiver.map(|worker| worker as u16) else {
                continue;
            };
            let foreign = (0..).zip(&reta.owners).filter(|(_, owner)| **owner != worker);
            let moves: Vec<_> = foreign.map(|(bucket, _)| BucketMove { bucket, worker }).collect();
            *request = Some(if moves.is_empty() {
                RetaRequest::Switch(false)
            } else {
                RetaRequest::Move(moves, Urgency::Normal)
            });
        }
        return requests;
    }
    let mut busy: Vec<f64> = loads.iter().map(|load| load.busy).collect();
    // The packets of each worker, which give the cost of one packet.
    let mut packets = vec![0_u64; loads.len()];
    for reta in retas {
        for (owner, count) in reta.owners.iter().zip(&reta.packets) {
            packets[usize::from(*owner)] += count;
        }
    }
    let mut owners: Vec<Vec<u16>> = retas.iter().map(|reta| reta.owners.clone()).collect();
    let mut moves: Vec<Vec<BucketMove>> = retas.iter().map(|_| Vec::new()).collect();
    for _ in 0..loads.len() {
        let by_load = |one: &usize, two: &usize| busy[*one].total_cmp(&busy[*two]);
        let full = (0..busy.len())
            .filter(|worker| loads[*worker].is_full())
            .max_by(by_load);
        let empty = (0..busy.len())
            .filter(|worker| excluded.get(*worker) != Some(&true))
            .min_by(by_load);
        let (Some(full), Some(empty)) = (full, empty) else {
            break;
        };
        if busy[full] - busy[empty] < MIN_GAP {
            break;
        }
        let mut is_off = false;
        for (reta, request) in retas.iter().zip(&mut requests) {
            if reta.receiver == Some(full) && !reta.is_on {
                if permission != Permission::Stay && loads[full].packet_nanos >= HANDOFF_NANOS_MIN {
                    // The next sample shows the traffic of the queue's buckets.
                    *request = Some(RetaRequest::Switch(true));
                }
                is_off = true;
            }
        }
        if is_off || packets[full] == 0 {
            break;
        }
        let each = (loads[full].busy - loads[full].spreading).max(0.0) / packets[full] as f64;
        let mut candidates: Vec<(u64, usize, usize)> = Vec::new();
        let takes = |reta: &QueueLoad| reta.is_on && reta.reaches.get(empty) == Some(&true);
        for (at, reta) in retas.iter().enumerate().filter(|(_, reta)| takes(reta)) {
            for (bucket, count) in reta.packets.iter().enumerate() {
                if *count != 0 && usize::from(owners[at][bucket]) == full {
                    candidates.push((*count, at, bucket));
                }
            }
        }
        candidates.sort_unstable_by(|one, two| two.cmp(one));
        let mut room = (busy[full] - busy[empty]) / 2.0 * DAMPING;
        for (count, at, bucket) in candidates {
            let weight = count as f64 * each;
            let moves = &mut moves[at];
            if weight > room || moves.len() >= MOVES_MAX {
                continue;
            }
            let worker = empty as u16;
            owners[at][bucket] = worker;
            let bucket = bucket as u16;
            moves.push(BucketMove { bucket, worker });
            room -= weight;
            busy[full] -= weight;
            busy[empty] += weight;
        }
    }
    for (request, moves) in requests.iter_mut().zip(moves) {
        if request.is_none() && !moves.is_empty() {
            *request = Some(RetaRequest::Move(moves, Urgency::Normal));
        }
    }
    requests
}

/// The redirection tables of a switch.
pub(crate) type Retas = Arc<Mutex<Vec<Weak<Reta>>>>;

/// The thread that balances the load. Dropping this ends the thread.
pub(crate) struct Balancer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Balancer {
    /// Starts the thread.
    ///
    /// # Errors
    /// Returns the error of the kernel if it refuses a thread.
    pub(crate) fn start(
        retas: Retas,
        workers: Vec<Arc<WorkerCounters>>,
        spread: Spread,
    ) -> std::io::Result<Balancer> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let mut monitor = LoadMonitor {
            spread,
            trial: Trial::new(),
            excluded: Exclusions::none(workers.len()),
            refused: vec![0; workers.len()],
            workers: workers.into_iter().map(|counters| (counters, [0; 3])).collect(),
            retas: Vec::new(),
            at: Instant::now(),
        };
        let thread = std::thread::Builder::new()
            .name("balancer".to_owned())
            .spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    std::thread::park_timeout(INTERVAL);
                    monitor.sample(&retas);
                }
            })?;
        Ok(Balancer {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic has been reported already.
            let _panicked = thread.join();
        }
    }
}

/// The state of the balancer at the last sample.
struct LoadMonitor {
    spread: Spread,
    /// By worker: busy nanoseconds, the part of them that was spent on spreading, and packets processed.
    workers: Vec<(Arc<WorkerCounters>, [u64; 3])>,
    retas: Vec<(Weak<Reta>, Vec<u64>)>,
    /// Number of packets that the rings of each worker refused, by worker.
    refused: Vec<u64>,
    excluded: Exclusions,
    trial: Trial,
    at: Instant,
}

impl LoadMonitor {
    fn sample(&mut self, retas: &Retas) {
        let elapsed = self.at.elapsed().as_nanos() as f64;
        if elapsed < INTERVAL.as_nanos() as f64 / 2.0 {
            return;
        }
        self.at = Instant::now();
        let load = |(counters, before): &mut (Arc<WorkerCounters>, [u64; 3])| {
            let now = [
                counters.busy_nanos.read(),
                counters.spread_nanos.read(),
                counters.packets.read(),
            ];
            let [busy, spreading, packets] = [0, 1, 2].map(|at| (now[at] - before[at]) as f64);
            let load = Load {
                busy: busy / elapsed,
                spreading: spreading / elapsed,
                packet_nanos: (busy - spreading) / packets.max(1.0),
                packets,
                refused: 0.0,
            };
            *before = now;
            load
        };
        let mut loads: Vec<Load> = self.workers.iter_mut().map(load).collect();
        self.update_retas(retas);
        let (mut live, mut traffic) = (Vec::new(), Vec::new());
        let mut refused = vec![0; loads.len()];
        for (reta, before) in &mut self.retas {
            let Some(reta) = reta.upgrade() else { continue };
            let states: Vec<_> = reta.buckets().collect();
            debug_assert_eq!(states.len(), before.len(), "each bucket has a previous count");
            refused
                .iter_mut()
                .zip(reta.refused())
                .for_each(|(sum, count)| *sum += count);
            traffic.push(QueueLoad {
                receiver: reta.receiver(),
                reaches: (0..loads.len()).map(|worker| reta.reaches(worker)).collect(),
                is_on: reta.is_on(),
                owners: states.iter().map(|state| state.owner).collect(),
                packets: states
                    .iter()
                    .zip(&*before)
                    .map(|(state, before)| state.packets - before)
                    .collect(),
            });
            *before = states.iter().map(|state| state.packets).collect();
            live.push(reta);
        }
        for ((load, now), before) in loads.iter_mut().zip(&refused).zip(&self.refused) {
            // The sum is smaller than before if a queue was closed.
            load.refused = now.saturating_sub(*before) as f64;
        }
        self.refused = refused;
        let excluded = self.excluded.sample(&loads);
        let permission = match self.spread {
            Spread::Auto => {
                let hands_off = |reta: &QueueLoad| reta.is_on && reta.receiver.is_some();
                self.trial.sample(&loads, traffic.iter().any(hands_off))
            }
            Spread::Always | Spread::Off => Permission::Always,
        };
        let requests = plan_moves(&loads, &traffic, permission, &excluded);
        for (reta, request) in live.iter().zip(requests) {
            match request {
                Some(RetaRequest::Switch(on)) => reta.switch(on),
                Some(RetaRequest::Move(moves, urgency)) if reta.is_idle() => reta.request(&moves, urgency),
                Some(RetaRequest::Move(..)) | None => {}
            }
        }
    }

    /// Removes tables of queues that were closed, and adds those of new ones.
    fn update_retas(&mut self, retas: &Retas) {
        let mut retas = retas.lock();
        retas.retain(|reta| reta.strong_count() != 0);
        self.retas.retain(|(reta, _)| reta.strong_count() != 0);
        for reta in retas.iter() {
            if !self.retas.iter().any(|(known, _)| known.ptr_eq(reta)) {
                let counts = reta
                    .upgrade()
                    .map(|reta| reta.buckets().map(|state| state.packets).collect());
                self.retas.push((reta.clone(), counts.unwrap_or_default()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(busy: &[f64]) -> Vec<Load> {
        let load = |busy: &f64| Load {
            busy: *busy,
            spreading: 0.0,
            packet_nanos: 200.0,
            packets: 1e5,
            refused: 0.0,
        };
        busy.iter().map(load).collect()
    }

    /// Returns a queue whose buckets received these packets and all belong to `worker`.
    fn reta(worker: usize, packets: &[u64]) -> QueueLoad {
        QueueLoad {
            receiver: Some(worker),
            reaches: vec![true; 4],
            is_on: true,
            owners: vec![worker as u16; packets.len()],
            packets: packets.to_vec(),
        }
    }

    /// Returns the request to move buckets to worker 0.
    fn to_0(buckets: &[u16]) -> Vec<BucketMove> {
        let moves = buckets.iter();
        moves.map(|&bucket| BucketMove { bucket, worker: 0 }).collect()
    }

    fn moves(request: &Option<RetaRequest>) -> &[BucketMove] {
        match request {
            Some(RetaRequest::Move(moves, _)) => moves,
            _ => &[],
        }
    }

    #[test]
    fn nothing_moves_while_no_worker_is_full() {
        let requests = plan_moves(
            &loads(&[0.6, 0.0]),
            &[reta(0, &[10; 8])],
            Permission::AsRequired,
            &[],
        );
        assert_eq!(requests, [None]);
    }

    #[test]
    fn a_full_worker_begins_to_hash_before_anything_moves() {
        let mut quiet = reta(0, &[0; 8]);
        quiet.is_on = false;
        let requests = plan_moves(&loads(&[1.0, 0.1]), &[quiet], Permission::AsRequired, &[]);
        assert_eq!(requests, [Some(RetaRequest::Switch(true))]);
    }

    #[test]
    fn nothing_begins_to_hash_while_it_may_not_and_all_returns_if_it_does_not_pay() {
        let mut quiet = reta(0, &[0; 8]);
        quiet.is_on = false;
        let full = loads(&[1.0, 0.1]);
        assert_eq!(plan_moves(&full, &[quiet], Permission::Stay, &[]), [None]);
        let mut foreign = reta(0, &[10; 8]);
        foreign.owners[3] = 1;
        let requests = plan_moves(&full, &[foreign.clone()], Permission::Return, &[]);
        assert_eq!(moves(&requests[0]), to_0(&[3]));
        foreign.owners[3] = 0;
        let requests = plan_moves(&full, &[foreign], Permission::Return, &[]);
        assert_eq!(requests, [Some(RetaRequest::Switch(false))]);
    }

    #[test]
    fn buckets_of_a_device_move_without_a_hand_off_and_return_nowhere() {
        let table = QueueLoad {
            receiver: None,
            reaches: vec![true, false, true],
            owners: vec![0, 0, 0, 0, 0, 0, 2, 2],
            ..reta(0, &[10; 8])
        };
        let loads = loads(&[1.0, 0.1, 0.2]);
        let plan = |permission, excluded: &[bool]| {
            plan_moves(&loads, core::slice::from_ref(&table), permission, excluded).remove(0)
        };
        // Worker 1 has the least to do, and no queue of the device; it is not loaded by it either.
        assert_eq!(plan(Permission::Stay, &[]), None);
        let wide = QueueLoad {
            reaches: vec![true; 3],
            ..table.clone()
        };
        let moved = plan_moves(&loads, &[wide], Permission::Stay, &[]).remove(0);
        let taken = moves(&moved);
        let to = |worker| taken.iter().filter(|taken| taken.worker == worker).count();
        // Six buckets are one worker's time: two to the worker with the least load, then one to the other.
        assert_eq!([to(0), to(1), to(2)], [0, 2, 1], "{taken:?}");
        assert!(taken.iter().all(|taken| taken.bucket < 6), "{taken:?}");
        assert_eq!(plan(Permission::Return, &[]), None);
        // A worker that is kept from its core loses its buckets to those that the device reaches.
        let left = plan(Permission::AsRequired, &[false, false, true]);
        assert_eq!(moves(&left), to_0(&[6, 7]));
    }

    #[test]
    fn packets_that_cost_little_stay_where_they_arrive() {
        let mut quiet = reta(0, &[0; 8]);
        quiet.is_on = false;
        let mut loads = loads(&[1.0, 0.1]);
        loads[0].packet_nanos = 30.0;
        assert_eq!(plan_moves(&loads, &[quiet], Permission::AsRequired, &[]), [None]);
    }

    #[test]
    fn about_half_of_a_full_workers_load_moves_to_an_idle_one() {
        let requests = plan_moves(
            &loads(&[1.0, 0.0]),
            &[reta(0, &[10; 100])],
            Permission::AsRequired,
            &[],
        );
        assert!((35..=50).contains(&moves(&requests[0]).len()), "{requests:?}");
        assert!(moves(&requests[0]).iter().all(|to| to.worker == 1));
    }

    #[test]
    fn a_flow_that_fills_its_worker_stays_and_the_others_leave() {
        let mut packets = [1; 50];
        packets[7] = 450;
        let requests = plan_moves(
            &loads(&[1.0, 0.0]),
            &[reta(0, &packets)],
            Permission::AsRequired,
            &[],
        );
        assert!(moves(&requests[0]).iter().all(|moved| moved.bucket != 7));
        assert_eq!(moves(&requests[0]).len(), 49);
    }

    #[test]
    fn several_idle_workers_share_what_one_has_too_much() {
        let requests = plan_moves(
            &loads(&[1.0, 0.0, 0.0, 0.0]),
            &[reta(0, &[10; 100])],
            Permission::AsRequired,
            &[],
        );
        let got = |worker| {
            moves(&requests[0])
                .iter()
                .filter(|to| to.worker == worker)
                .count()
        };
        assert!((1..4).all(|worker| got(worker) >= 5), "{requests:?}");
        assert!(moves(&requests[0]).len() <= 80);
    }

    #[test]
    fn what_only_receiving_costs_is_not_taken_for_something_that_can_move() {
        let receiving = Load {
            busy: 1.0,
            spreading: 0.9,
            packet_nanos: 200.0,
            packets: 1e5,
            refused: 0.0,
        };
        let idle = Load::default();
        // Processing takes a tenth of the worker's time, so all buckets move.
        let requests = plan_moves(
            &[receiving, idle],
            &[reta(0, &[10; 20])],
            Permission::AsRequired,
            &[],
        );
        assert_eq!(moves(&requests[0]).len(), 20);
    }

    #[test]
    fn buckets_go_home_when_there_is_little_to_do_and_hashing_ends() {
        let mut foreign = reta(0, &[1; 8]);
        foreign.owners[3] = 1;
        let little = loads(&[0.1, 0.1]);
        assert_eq!(
            moves(&plan_moves(&little, &[foreign.clone()], Permission::AsRequired, &[])[0]),
            to_0(&[3])
        );
        foreign.owners[3] = 0;
        assert_eq!(
            plan_moves(&little, &[foreign.clone()], Permission::AsRequired, &[]),
            [Some(RetaRequest::Switch(false))]
        );
        assert_eq!(plan_moves(&little, &[foreign], Permission::Always, &[]), [None]);
    }

    #[test]
    fn a_worker_that_is_left_alone_gets_nothing_and_loses_what_it_has() {
        let mut foreign = reta(0, &[10; 8]);
        (foreign.owners[3], foreign.owners[5]) = (1, 2);
        let loads = loads(&[1.0, 0.0, 0.5]);
        let requests = plan_moves(
            &loads,
            &[foreign.clone()],
            Permission::AsRequired,
            &[false, true, false],
        );
        assert_eq!(requests, [Some(RetaRequest::Move(to_0(&[3]), Urgency::Urgent))]);
        foreign.owners[3] = 0;
        let requests = plan_moves(&loads, &[foreign], Permission::AsRequired, &[false, true, false]);
        assert!(
            moves(&requests[0]).iter().all(|to| to.worker == 2),
            "{requests:?}"
        );
        assert!(!moves(&requests[0]).is_empty());
    }

    #[test]
    fn repeated_advice_settles_and_then_stays() {
        // 60 buckets of different weight, with 1.6 times the traffic that one worker can process.
        let counts: Vec<u64> = (0..60).map(|bucket| 10 + bucket % 13).collect();
        let total: u64 = counts.iter().sum();
        let mut traffic = reta(0, &counts);
        let mut rounds = 0;
        let load_of = |traffic: &QueueLoad, worker: u16| {
            let mine = traffic
                .owners
                .iter()
                .zip(&counts)
                .filter(|(owner, _)| **owner == worker);
            (mine.map(|(_, count)| count).sum::<u64>() as f64 * 1.6 / total as f64).min(1.0)
        };
        loop {
            let now = loads(&[load_of(&traffic, 0), load_of(&traffic, 1)]);
            let requests = plan_moves(&now, std::slice::from_ref(&traffic), Permission::AsRequired, &[]);
            if moves(&requests[0]).is_empty() {
                break;
            }
            for BucketMove { bucket, worker } in moves(&requests[0]) {
                traffic.owners[usize::from(*bucket)] = *worker;
            }
            rounds += 1;
            assert!(rounds < 10, "it swings");
        }
        assert!((load_of(&traffic, 0) - load_of(&traffic, 1)).abs() < 2.0 * MIN_GAP);
    }
}
