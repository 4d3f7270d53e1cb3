//! The hops that do not work, for readers that must not wait for the control thread, which may be opening
//! devices.

use parking_lot::Mutex;

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
    /// Replaces the problems with those of `chains`, which must be all chains of the bridge.
    pub(super) fn write(&self, chains: &[ChainStats]) {
        let hops = chains.iter().flat_map(|chain| {
            let hops = chain.hops.iter();
            hops.filter_map(move |hop| problem_of(&chain.name, hop))
        });
        let problems = hops.collect();
        *self.0.lock() = problems;
    }

    /// Returns the hops that do not work.
    pub fn read(&self) -> Vec<HopProblem> {
        self.0.lock().clone()
    }
}

fn problem_of(chain: &str, hop: &HopStats) -> Option<HopProblem> {
    let failed = match hop.state {
        HopState::Up | HopState::Drained => return value_problem(chain, hop),
        HopState::Down => true,
        // A process that failed and was started again may fail again before it works.
        HopState::Starting => !hop.failure.is_empty(),
    };
    let failure = match hop.failure.as_str() {
        "" => "its function does not work",
        failure => failure,
    };
    let has_no_value = hop.shared.as_ref().is_some_and(|shared| !shared.is_in_use);
    let reason = failed.then(|| match has_no_value {
        true => format!(
            "{failure}. To fix it: correct what the message names; changed files are noticed within 5 s, and `millrace nf \
             reload` reads them at once"
        ),
        false => format!(
            "{failure}. To fix it: it is started again after pauses of up to 10 s; if it keeps failing, correct what the message \
             names, or change the hop's class or settings"
        ),
    });
    Some(HopProblem {
        hop: format!("chain {chain}, hop {}", hop.name),
        reason,
    })
}

/// Returns the problem of a hop that works with its last shared value, because the next one could not be compiled.
fn value_problem(chain: &str, hop: &HopStats) -> Option<HopProblem> {
    let failure = &hop.shared.as_ref()?.failure;
    (!failure.is_empty()).then(|| HopProblem {
        hop: format!("chain {chain}, hop {}", hop.name),
        reason: Some(format!(
            "{failure}; what was loaded before stays in use. To fix it: correct what the message names; changed files are \
             noticed within 5 s"
        )),
    })
}

#[cfg(test)]
mod tests {
    use millrace_chain::SharedStatus;

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
    fn a_value_that_was_not_replaced_is_reported_although_the_hop_works() {
        let mut hop = hop(HopState::Up, "");
        hop.shared = Some(SharedStatus {
            is_in_use: true,
            failure: "x.rules: cannot be read".to_owned(),
            ..SharedStatus::default()
        });
        let reason = problem_of("edge", &hop).unwrap().reason.unwrap();
        assert!(
            reason.starts_with("x.rules: cannot be read; what was loaded before stays"),
            "{reason}"
        );
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
