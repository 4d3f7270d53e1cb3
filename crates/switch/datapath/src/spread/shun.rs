//! Workers that are kept from their cores, and so are given nothing.
//!
//! How busy a worker is says little when somebody else uses its core: it seems to have time, or to take long for each
//! packet, and meanwhile its rings run over. So what its rings refuse counts more. A worker that refuses although it
//! is not full, or that is much slower than the fastest, is left alone for some seconds, and longer each time. One that
//! is simply full is not meant: what it has too much moves by its load.

use super::balance::Load;

/// A worker whose rings refused more than this share of what it was to have.
const REFUSED: f64 = 0.01;
/// A worker that takes so many times as long for a packet as the fastest one.
const SLOW: f64 = 2.0;
/// Looks for which it is given nothing at first; twice as many each time.
const REST: u32 = 50;
/// Looks for which it is given nothing at most.
const REST_MAX: u32 = 600;

/// One worker.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Looks that it is still left alone.
    left: u32,
    /// For how many it was left alone the last time.
    rest: u32,
}

/// Which workers are left alone.
#[derive(Debug)]
pub(super) struct Shunned(Vec<State>);

impl Shunned {
    /// None of so many.
    pub(super) fn none(workers: usize) -> Shunned {
        Shunned(vec![State::default(); workers])
    }

    /// Whether each worker is to be given nothing, after these were its loads.
    pub(super) fn look(&mut self, loads: &[Load]) -> Vec<bool> {
        let worked = loads.iter().filter(|load| load.packets > 0.0);
        let fastest = worked.map(|load| load.packet_nanos).fold(f64::INFINITY, f64::min);
        let look = |(state, load): (&mut State, &Load)| {
            let refuses = load.refused > REFUSED * (load.refused + load.packets);
            if refuses && (!load.is_full() || load.packet_nanos > SLOW * fastest) {
                if state.left == 0 {
                    state.rest = (state.rest * 2).clamp(REST, REST_MAX);
                }
                state.left = state.rest;
            } else {
                state.left = state.left.saturating_sub(1);
            }
            state.left != 0
        };
        self.0.iter_mut().zip(loads).map(look).collect()
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
        let mut shunned = Shunned::none(2);
        let (home, kept) = (load(1.0, 100.0, 1e6, 0.0), load(0.3, 100.0, 1e5, 1e5));
        let good = [home, load(0.3, 100.0, 0.0, 0.0)];
        assert_eq!(shunned.look(&good), [false, false]);
        for rest in [REST, 2 * REST, 4 * REST] {
            assert_eq!(shunned.look(&[home, kept]), [false, true]);
            let looks = (0..).take_while(|_| shunned.look(&good)[1]).count();
            assert_eq!(looks as u32, rest - 1);
        }
    }

    #[test]
    fn a_worker_that_is_full_and_as_fast_as_the_others_is_not_meant() {
        let mut shunned = Shunned::none(2);
        let (home, full) = (load(1.0, 100.0, 1e6, 0.0), load(1.0, 130.0, 1e6, 1e5));
        assert_eq!(shunned.look(&[home, full]), [false, false]);
        let slow = load(1.0, 250.0, 4e5, 1e5);
        assert_eq!(shunned.look(&[home, slow]), [false, true]);
    }

    #[test]
    fn a_few_refusals_are_no_reason() {
        let mut shunned = Shunned::none(1);
        assert_eq!(shunned.look(&[load(0.3, 100.0, 1e6, 1e3)]), [false]);
    }
}
