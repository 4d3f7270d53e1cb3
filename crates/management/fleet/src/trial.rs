//! A document that the switch runs and takes back by itself, until the node confirms it.

use std::collections::BTreeSet;

/// The state of a switch as its node sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    /// The newest revision.
    pub head: u64,
    /// The revision that waits for a confirmation.
    pub pending: Option<u64>,
    /// The revision that the data plane has reached.
    pub running: Option<u64>,
    /// Parts that do not run as configured, and the reasons why the switch is not ready.
    pub problems: BTreeSet<String>,
}

/// A document on trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// The revision that waits for the confirmation.
    pub revision: u64,
    /// Problems from before: the document is not to blame for it.
    pub problems: BTreeSet<String>,
}

/// The next step of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Not yet, for this reason. If it stays so, the switch takes the change back.
    Wait(String),
    /// The node confirms it.
    Confirm,
    /// It is confirmed.
    Applied,
    /// The switch has taken it back, or somebody has replaced it.
    Returned,
}

impl Trial {
    /// Returns the next step. `reached` is true once the node has reached etcd by a new connection after the switch ran the change.
    pub fn progress(&self, view: &View, reached: bool) -> Progress {
        if view.pending != Some(self.revision) {
            return match view.head == self.revision {
                true => Progress::Applied,
                false => Progress::Returned,
            };
        }
        if !self.is_running(view) {
            return Progress::Wait("the switch has not applied it".to_owned());
        }
        if let Some(problem) = view.problems.difference(&self.problems).next() {
            return Progress::Wait(format!("with it, something does not run: {problem}"));
        }
        match reached {
            true => Progress::Confirm,
            false => Progress::Wait("with it, the node has not reached etcd".to_owned()),
        }
    }

    /// Returns true if the data plane runs the document.
    pub fn is_running(&self, view: &View) -> bool {
        view.running.is_some_and(|running| running >= self.revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(problems: &[&str]) -> BTreeSet<String> {
        problems.iter().map(|problem| (*problem).to_owned()).collect()
    }

    #[test]
    fn a_node_confirms_only_what_runs_is_healthy_and_lets_it_reach_etcd() {
        let trial = Trial {
            revision: 7,
            problems: set(&["p9: no such interface"]),
        };
        let good = View {
            head: 7,
            pending: Some(7),
            running: Some(7),
            problems: set(&["p9: no such interface"]),
        };
        assert_eq!(trial.progress(&good, true), Progress::Confirm);
        let waits = |view: &View, reached| match trial.progress(view, reached) {
            Progress::Wait(reason) => reason,
            other => panic!("{other:?}"),
        };
        assert!(waits(&good, false).contains("not reached etcd"));
        assert!(
            waits(
                &View {
                    running: Some(6),
                    ..good.clone()
                },
                true
            )
            .contains("not applied")
        );
        assert!(
            waits(
                &View {
                    running: None,
                    ..good.clone()
                },
                true
            )
            .contains("not applied")
        );
        assert!(
            waits(
                &View {
                    problems: set(&["p3: gone"]),
                    ..good.clone()
                },
                true
            )
            .contains("p3: gone")
        );
    }

    #[test]
    fn a_trial_ends_when_its_revision_waits_no_more() {
        let trial = Trial {
            revision: 7,
            problems: BTreeSet::new(),
        };
        let view = |head, pending| View {
            head,
            pending,
            ..View::default()
        };
        assert_eq!(trial.progress(&view(7, None), false), Progress::Applied);
        assert_eq!(trial.progress(&view(8, None), true), Progress::Returned);
        assert_eq!(trial.progress(&view(8, Some(8)), true), Progress::Returned);
    }
}
