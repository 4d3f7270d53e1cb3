//! Workers that are kept from their cores, and therefore get no buckets.
//!
//! The load of a worker says little when another process uses its core: the worker seems to have time, or to need long
//! for each packet, and meanwhile its rings overflow. Refusals by its rings are therefore the criterion. A worker
//! whose rings refuse packets is excluded if it is not full, or is much slower than the fastest one: for some seconds,
//! and for twice as long each time. A worker that is merely full is not excluded: the balancer moves its excess load.

use super::load::Load;

/// The share of refused packets, 0 to 1, above which the rings of a worker count as overflowing.
const REFUSED_SHARE: f64 = 0.01;
/// A full worker is excluded only if a packet takes it this many times as long as the fastest worker.
const SLOW_RATIO: f64 = 2.0;
/// Number of samples for which a worker is excluded at first; doubled each time.
const EXCLUSION_MIN: u32 = 50;
/// Maximum number of samples for which a worker is excluded.
const EXCLUSION_MAX: u32 = 600;

/// The state of one worker.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Number of further samples for which the worker is excluded.
    left: u32,
    /// Number of samples of the worker's last exclusion.
    duration: u32,
}

/// The workers that are excluded from getting buckets.
#[derive(Debug)]
pub(super) struct Exclusions(Vec<State>);

impl Exclusions {
    /// Returns a state in which none of `workers` workers is excluded.
    pub(super) fn none(workers: usize) -> Exclusions {
        Exclusions(vec![State::default(); workers])
    }

    /// Updates the state by one sample of all workers' loads. Returns, by worker, true if it is excluded.
    pub(super) fn sample(&mut self, loads: &[Load]) -> Vec<bool> {
        let active = loads.iter().filter(|load| load.packets > 0.0);
        let fastest = active.map(|load| load.packet_nanos).fold(f64::INFINITY, f64::min);
        let sample = |(state, load): (&mut State, &Load)| {
            let refuses = load.refused > REFUSED_SHARE * (load.refused + load.packets);
            if refuses && (!load.is_full() || load.packet_nanos > SLOW_RATIO * fastest) {
                if state.left == 0 {
                    state.duration = (state.duration * 2).clamp(EXCLUSION_MIN, EXCLUSION_MAX);
                }
                state.left = state.duration;
            } else {
                state.left = state.left.saturating_sub(1);
            }
            state.left != 0
        };
        self.0.iter_mut().zip(loads).map(sample).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(busy: f64, packet_nanos: f64, packets: f64, refused: f64) -> Load {
        Load {
            busy,
            spreading: 0.0,
            packet_nanos,
            packets,
            refused,
        }
    }

    #[test]
    fn a_worker_that_refuses_without_being_full_is_left_alone_and_longer_each_time() {
        let mut excluded = Exclusions::none(2);
        let (home, kept) = (load(1.0, 100.0, 1e6, 0.0), load(0.3, 100.0, 1e5, 1e5));
        let good = [home, load(0.3, 100.0, 0.0, 0.0)];
        assert_eq!(excluded.sample(&good), [false, false]);
        for duration in [EXCLUSION_MIN, 2 * EXCLUSION_MIN, 4 * EXCLUSION_MIN] {
            assert_eq!(excluded.sample(&[home, kept]), [false, true]);
            let samples = (0..).take_while(|_| excluded.sample(&good)[1]).count();
            assert_eq!(samples as u32, duration - 1);
        }
    }

    #[test]
    fn a_worker_that_is_full_and_as_fast_as_the_others_is_not_meant() {
        let mut excluded = Exclusions::none(2);
        let (home, full) = (load(1.0, 100.0, 1e6, 0.0), load(1.0, 130.0, 1e6, 1e5));
        assert_eq!(excluded.sample(&[home, full]), [false, false]);
        let slow = load(1.0, 250.0, 4e5, 1e5);
        assert_eq!(excluded.sample(&[home, slow]), [false, true]);
    }

    #[test]
    fn a_few_refusals_are_no_reason() {
        let mut excluded = Exclusions::none(1);
        assert_eq!(excluded.sample(&[load(0.3, 100.0, 1e6, 1e3)]), [false]);
    }
}
