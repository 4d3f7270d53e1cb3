//! Hops of chains that do not work, for readers that do not wait for the control thread: it may be opening devices.

use std::sync::{Mutex, MutexGuard, PoisonError};

use millrace_chain::{ChainStats, HopState, HopStats};

/// A hop that does not work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HopProblem {
    /// The hop: `chain edge, hop fw`.
    pub hop: String,
    /// The reason why its function ended, and the next step; `None` while a process starts for the first time.
    pub reason: Option<String>,
}

/// The hops of one bridge that do not work.
#[derive(Debug, Default)]
pub struct HopProblems(Mutex<Vec<HopProblem>>);

impl HopProblems {
    fn lock(&self) -> MutexGuard<'_, Vec<HopProblem>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the problems by those of these chains, which are all chains of the bridge.
    pub(super) fn write(&self, chains: &[ChainStats]) {
        let hops = chains.iter().flat_map(|chain| {
            let hops = chain.hops.iter();
            hops.filter_map(move |hop| problem_of(&chain.name, hop))
        });
        let problems = hops.collect();
        *self.lock() = problems;
    }

    /// Returns the hops that do not work.
    pub fn read(&self) -> Vec<HopProblem> {
        self.lock().clone()
    }
}

fn problem_of(chain: &str, hop: &HopStats) -> Option<HopProblem> {
    let failed = match hop.state {
        HopState::Up | HopState::Drained => return None,
        HopState::Down => true,
        // A process that failed and was started again may fail again before it works.
        HopState::Starting => !hop.failure.is_empty(),
    };
    let failure = match hop.failure.as_str() {
        "" => "its function does not work",
        failure => failure,
    };
    let reason = failed.then(|| {
        format!(
            "{failure}. To fix it: it is started again after pauses of up to 10 s; if it keeps failing, correct what the message \
             names, or change the hop's class or settings"
        )
    });
    Some(HopProblem {
        hop: format!("chain {chain}, hop {}", hop.name),
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(state: HopState, failure: &str) -> HopStats {
        HopStats {
            name: "fw".to_owned(),
            state,
            failure: failure.to_owned(),
            ..HopStats::default()
        }
    }

    #[test]
    fn hops_that_are_down_are_reported_with_their_reason_until_they_work() {
        for (state, failure, reason) in [
            (HopState::Up, "it panicked", None),
            (HopState::Drained, "it panicked", None),
            (HopState::Down, "it panicked", Some("it panicked. To fix it: ")),
            (
                HopState::Starting,
                "it panicked",
                Some("it panicked. To fix it: "),
            ),
        ] {
            let found = problem_of("edge", &hop(state, failure)).map(|problem| problem.reason.unwrap());
            match reason {
                None => assert_eq!(found, None),
                Some(start) => assert!(found.unwrap().starts_with(start)),
            }
        }
        let first = problem_of("edge", &hop(HopState::Starting, "")).unwrap();
        assert_eq!((first.hop.as_str(), first.reason), ("chain edge, hop fw", None));
    }
}
