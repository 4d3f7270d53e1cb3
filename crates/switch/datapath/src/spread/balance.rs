//! Which worker gets which bucket: decided on the control side, a few times a second, from what workers measured.
//!
//! The rule is that of water: as long as one worker is much fuller than another, buckets flow from the fullest to the
//! emptiest, the heaviest first that do not overshoot the middle. A worker is only relieved when it is nearly full, so
//! that a switch with little to do leaves packets where they arrive; and when all there is to do fits one worker again,
//! buckets go home. A flow that fills a worker alone stays: it cannot be divided, so the others move away from it. A
//! worker that is kept from its core ([`Shunned`]) gets nothing and loses what it has: all that goes home.

use core::time::Duration;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

use super::Spread;
use super::lane::{BUCKETS, Lane, Patience};
use super::shun::Shunned;
use crate::counters::WorkerCounters;

/// How often loads are looked at: long against a burst and a sleep, short against what people notice.
const INTERVAL: Duration = Duration::from_millis(100);
/// A worker that is busy for more of its time than this is relieved.
const FULL: f64 = 0.7;
/// By how much of its time another worker must be less busy.
const GAP: f64 = 0.15;
/// A packet whose processing costs less is not worth giving away: that costs as much, as it moves the packet and its
/// buffer from one core's caches to another's. Measured: docs/scaling.md.
const WORTH_NANOS: f64 = 80.0;
/// If all workers together are busy for less than this, buckets go home.
const LITTLE: f64 = 0.35;
/// Of the half of a gap, what is moved at once: loads are measured roughly, and overshooting would swing.
const CAUTION: f64 = 0.8;
/// Buckets that one queue is asked to move at once: what is parked meanwhile is a share of its traffic.
const MOVES_MAX: usize = BUCKETS / 4;

/// How a worker spent its time, as shares of it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Load {
    /// With packets.
    pub(super) busy: f64,
    /// Of that, hashing and giving away.
    pub(super) spreading: f64,
    /// Nanoseconds that a packet takes, from receiving to sending.
    pub(super) packet_nanos: f64,
    /// Packets that it processed since the last look.
    pub(super) packets: f64,
    /// Packets that its rings refused since then.
    pub(super) refused: f64,
}

impl Load {
    /// Returns true if it is to be relieved.
    pub(super) fn is_full(&self) -> bool {
        self.busy >= FULL
    }
}

/// A queue, and the packets of each of its buckets since the last look.
#[derive(Clone, PartialEq, Debug)]
struct Traffic {
    worker: usize,
    is_on: bool,
    owners: Vec<u16>,
    packets: Vec<u64>,
}

/// What a queue is asked.
#[derive(Clone, PartialEq, Debug)]
enum Advice {
    Switch(bool),
    Move(Vec<(u16, u16)>, Patience),
}

/// Buckets of workers that are given nothing go home; `None` if a queue has none of those.
fn bring_home(lane: &Traffic, shunned: &[bool]) -> Option<Advice> {
    let home = lane.worker as u16;
    let is_away = |owner: u16| owner != home && shunned.get(usize::from(owner)) == Some(&true);
    let away = (0..).zip(&lane.owners).filter(|(_, owner)| is_away(**owner));
    let moves: Vec<_> = away.map(|(bucket, _)| (bucket, home)).collect();
    (!moves.is_empty()).then_some(Advice::Move(moves, Patience::Long))
}

/// What to ask of each queue, if anything. `may_rest` says that queues may be switched off; `shunned`, which workers
/// are given nothing.
fn advise(loads: &[Load], lanes: &[Traffic], may_rest: bool, shunned: &[bool]) -> Vec<Option<Advice>> {
    let mut advice: Vec<Option<Advice>> = lanes.iter().map(|lane| bring_home(lane, shunned)).collect();
    if advice.iter().any(Option::is_some) {
        return advice;
    }
    let total: f64 = loads.iter().map(|load| load.busy).sum();
    if may_rest && total < LITTLE {
        for (lane, advice) in lanes.iter().zip(&mut advice).filter(|(lane, _)| lane.is_on) {
            let home = lane.worker as u16;
            let away = (0..).zip(&lane.owners).filter(|(_, owner)| **owner != home);
            let moves: Vec<_> = away.map(|(bucket, _)| (bucket, home)).collect();
            *advice = Some(if moves.is_empty() {
                Advice::Switch(false)
            } else {
                Advice::Move(moves, Patience::Short)
            });
        }
        return advice;
    }
    let mut busy: Vec<f64> = loads.iter().map(|load| load.busy).collect();
    // Packets of each worker, and so what one costs there.
    let mut packets = vec![0_u64; loads.len()];
    for lane in lanes {
        for (owner, count) in lane.owners.iter().zip(&lane.packets) {
            if let Some(sum) = packets.get_mut(usize::from(*owner)) {
                *sum += count;
            }
        }
    }
    let mut owners: Vec<Vec<u16>> = lanes.iter().map(|lane| lane.owners.clone()).collect();
    let mut moves: Vec<Vec<(u16, u16)>> = lanes.iter().map(|_| Vec::new()).collect();
    for _ in 0..loads.len() {
        let by_load = |one: &usize, two: &usize| busy[*one].total_cmp(&busy[*two]);
        let full = (0..busy.len())
            .filter(|worker| loads[*worker].is_full())
            .max_by(by_load);
        let empty = (0..busy.len())
            .filter(|worker| shunned.get(*worker) != Some(&true))
            .min_by(by_load);
        let (Some(full), Some(empty)) = (full, empty) else {
            break;
        };
        if busy[full] - busy[empty] < GAP {
            break;
        }
        let mut is_off = false;
        for (lane, advice) in lanes.iter().zip(&mut advice) {
            if lane.worker == full && !lane.is_on {
                if loads[full].packet_nanos >= WORTH_NANOS {
                    // What its buckets are is known next time.
                    *advice = Some(Advice::Switch(true));
                }
                is_off = true;
            }
        }
        if is_off || packets[full] == 0 {
            break;
        }
        let each = (loads[full].busy - loads[full].spreading).max(0.0) / packets[full] as f64;
        let mut candidates: Vec<(u64, usize, usize)> = Vec::new();
        for (at, lane) in lanes.iter().enumerate().filter(|(_, lane)| lane.is_on) {
            for (bucket, count) in lane.packets.iter().enumerate() {
                if *count != 0 && usize::from(owners[at][bucket]) == full {
                    candidates.push((*count, at, bucket));
                }
            }
        }
        candidates.sort_unstable_by(|one, two| two.cmp(one));
        let mut room = (busy[full] - busy[empty]) / 2.0 * CAUTION;
        for (count, at, bucket) in candidates {
            let weight = count as f64 * each;
            let moves = &mut moves[at];
            if weight > room || moves.len() >= MOVES_MAX {
                continue;
            }
            moves.push((bucket as u16, empty as u16));
            owners[at][bucket] = empty as u16;
            room -= weight;
            busy[full] -= weight;
            busy[empty] += weight;
        }
    }
    for (advice, moves) in advice.iter_mut().zip(moves) {
        if advice.is_none() && !moves.is_empty() {
            *advice = Some(Advice::Move(moves, Patience::Short));
        }
    }
    advice
}

/// The queues of a switch, for the balancer to look at.
pub(crate) type Lanes = Arc<Mutex<Vec<Weak<Lane>>>>;

/// The thread that decides. Dropping it ends the thread.
pub(crate) struct Balancer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Balancer {
    /// Starts it.
    ///
    /// # Errors
    /// What the kernel said to another thread.
    pub(crate) fn start(
        lanes: Lanes,
        workers: Vec<Arc<WorkerCounters>>,
        spread: Spread,
    ) -> std::io::Result<Balancer> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let mut watch = Watch {
            spread,
            shunned: Shunned::none(workers.len()),
            refused: vec![0; workers.len()],
            workers: workers.into_iter().map(|counters| (counters, [0; 3])).collect(),
            lanes: Vec::new(),
            at: Instant::now(),
        };
        let thread = std::thread::Builder::new()
            .name("balancer".to_owned())
            .spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    std::thread::park_timeout(INTERVAL);
                    watch.look(&lanes);
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
            // If it panicked it has said so.
            let _panicked = thread.join();
        }
    }
}

/// What was seen at the last look.
struct Watch {
    spread: Spread,
    /// Nanoseconds busy, of these spreading, and packets processed.
    workers: Vec<(Arc<WorkerCounters>, [u64; 3])>,
    lanes: Vec<(Weak<Lane>, Vec<u64>)>,
    /// Packets that the rings of each worker refused.
    refused: Vec<u64>,
    shunned: Shunned,
    at: Instant,
}

impl Watch {
    fn look(&mut self, lanes: &Lanes) {
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
        self.follow(lanes);
        let (mut live, mut traffic) = (Vec::new(), Vec::new());
        let mut refused = vec![0; loads.len()];
        for (lane, before) in &mut self.lanes {
            let Some(lane) = lane.upgrade() else { continue };
            let states: Vec<_> = lane.buckets().collect();
            refused
                .iter_mut()
                .zip(lane.refused())
                .for_each(|(sum, count)| *sum += count);
            traffic.push(Traffic {
                worker: lane.worker(),
                is_on: lane.is_on(),
                owners: states.iter().map(|state| state.owner).collect(),
                packets: states
                    .iter()
                    .zip(&*before)
                    .map(|(state, before)| state.packets - before)
                    .collect(),
            });
            *before = states.iter().map(|state| state.packets).collect();
            live.push(lane);
        }
        for ((load, now), before) in loads.iter_mut().zip(&refused).zip(&self.refused) {
            // Less than before, if a queue has gone.
            load.refused = now.saturating_sub(*before) as f64;
        }
        self.refused = refused;
        let shunned = self.shunned.look(&loads);
        let advice = advise(&loads, &traffic, self.spread == Spread::Auto, &shunned);
        for (lane, advice) in live.iter().zip(advice) {
            match advice {
                Some(Advice::Switch(on)) => lane.switch(on),
                Some(Advice::Move(moves, patience)) if lane.is_answered() => lane.ask(&moves, patience),
                Some(Advice::Move(..)) | None => {}
            }
        }
    }

    /// Forgets queues that are gone, and begins with those that are new.
    fn follow(&mut self, lanes: &Lanes) {
        let mut lanes = lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|lane| lane.strong_count() != 0);
        self.lanes.retain(|(lane, _)| lane.strong_count() != 0);
        for lane in lanes.iter() {
            if !self.lanes.iter().any(|(known, _)| known.ptr_eq(lane)) {
                let counts = lane
                    .upgrade()
                    .map(|lane| lane.buckets().map(|state| state.packets).collect());
                self.lanes.push((lane.clone(), counts.unwrap_or_default()));
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

    /// A queue whose buckets have these packets and are all its worker's.
    fn lane(worker: usize, packets: &[u64]) -> Traffic {
        Traffic {
            worker,
            is_on: true,
            owners: vec![worker as u16; packets.len()],
            packets: packets.to_vec(),
        }
    }

    fn moves(advice: &Option<Advice>) -> &[(u16, u16)] {
        match advice {
            Some(Advice::Move(moves, _)) => moves,
            _ => &[],
        }
    }

    #[test]
    fn nothing_moves_while_no_worker_is_full() {
        let advice = advise(&loads(&[0.6, 0.0]), &[lane(0, &[10; 8])], true, &[]);
        assert_eq!(advice, [None]);
    }

    #[test]
    fn a_full_worker_begins_to_hash_before_anything_moves() {
        let mut quiet = lane(0, &[0; 8]);
        quiet.is_on = false;
        let advice = advise(&loads(&[1.0, 0.1]), &[quiet], true, &[]);
        assert_eq!(advice, [Some(Advice::Switch(true))]);
    }

    #[test]
    fn packets_that_cost_little_stay_where_they_arrive() {
        let mut quiet = lane(0, &[0; 8]);
        quiet.is_on = false;
        let mut loads = loads(&[1.0, 0.1]);
        loads[0].packet_nanos = 30.0;
        assert_eq!(advise(&loads, &[quiet], true, &[]), [None]);
    }

    #[test]
    fn about_half_of_a_full_workers_load_moves_to_an_idle_one() {
        let advice = advise(&loads(&[1.0, 0.0]), &[lane(0, &[10; 100])], true, &[]);
        assert!((35..=50).contains(&moves(&advice[0]).len()), "{advice:?}");
        assert!(moves(&advice[0]).iter().all(|(_, to)| *to == 1));
    }

    #[test]
    fn a_flow_that_fills_its_worker_stays_and_the_others_leave() {
        let mut packets = [1; 50];
        packets[7] = 450;
        let advice = advise(&loads(&[1.0, 0.0]), &[lane(0, &packets)], true, &[]);
        assert!(moves(&advice[0]).iter().all(|(bucket, _)| *bucket != 7));
        assert_eq!(moves(&advice[0]).len(), 49);
    }

    #[test]
    fn several_idle_workers_share_what_one_has_too_much() {
        let advice = advise(&loads(&[1.0, 0.0, 0.0, 0.0]), &[lane(0, &[10; 100])], true, &[]);
        let got = |worker| moves(&advice[0]).iter().filter(|(_, to)| *to == worker).count();
        assert!((1..4).all(|worker| got(worker) >= 5), "{advice:?}");
        assert!(moves(&advice[0]).len() <= 80);
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
        // All its processing takes a tenth of its time, so all of it goes.
        let advice = advise(&[receiving, idle], &[lane(0, &[10; 20])], true, &[]);
        assert_eq!(moves(&advice[0]).len(), 20);
    }

    #[test]
    fn buckets_go_home_when_there_is_little_to_do_and_hashing_ends() {
        let mut away = lane(0, &[1; 8]);
        away.owners[3] = 1;
        let little = loads(&[0.1, 0.1]);
        assert_eq!(moves(&advise(&little, &[away.clone()], true, &[])[0]), [(3, 0)]);
        away.owners[3] = 0;
        assert_eq!(
            advise(&little, &[away.clone()], true, &[]),
            [Some(Advice::Switch(false))]
        );
        assert_eq!(advise(&little, &[away], false, &[]), [None]);
    }

    #[test]
    fn a_worker_that_is_left_alone_gets_nothing_and_loses_what_it_has() {
        let mut away = lane(0, &[10; 8]);
        (away.owners[3], away.owners[5]) = (1, 2);
        let loads = loads(&[1.0, 0.0, 0.5]);
        let advice = advise(&loads, &[away.clone()], true, &[false, true, false]);
        assert_eq!(advice, [Some(Advice::Move(vec![(3, 0)], Patience::Long))]);
        away.owners[3] = 0;
        let advice = advise(&loads, &[away], true, &[false, true, false]);
        assert!(moves(&advice[0]).iter().all(|(_, to)| *to == 2), "{advice:?}");
        assert!(!moves(&advice[0]).is_empty());
    }

    #[test]
    fn repeated_advice_settles_and_then_stays() {
        // 60 buckets of different weight; one worker could do them all in 1.6 of its time.
        let counts: Vec<u64> = (0..60).map(|bucket| 10 + bucket % 13).collect();
        let total: u64 = counts.iter().sum();
        let mut traffic = lane(0, &counts);
        let mut rounds = 0;
        let load_of = |traffic: &Traffic, worker: u16| {
            let mine = traffic
                .owners
                .iter()
                .zip(&counts)
                .filter(|(owner, _)| **owner == worker);
            (mine.map(|(_, count)| count).sum::<u64>() as f64 * 1.6 / total as f64).min(1.0)
        };
        loop {
            let now = loads(&[load_of(&traffic, 0), load_of(&traffic, 1)]);
            let advice = advise(&now, std::slice::from_ref(&traffic), true, &[]);
            if moves(&advice[0]).is_empty() {
                break;
            }
            for (bucket, to) in moves(&advice[0]) {
                traffic.owners[usize::from(*bucket)] = *to;
            }
            rounds += 1;
            assert!(rounds < 10, "it swings");
        }
        assert!((load_of(&traffic, 0) - load_of(&traffic, 1)).abs() < 2.0 * GAP);
    }
}
