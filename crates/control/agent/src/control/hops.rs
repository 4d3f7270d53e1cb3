//! Hops of chains that do not work: kept where a question about the switch's status is answered without waiting for the
//! control thread, which may be opening devices.

use std::sync::{Mutex, MutexGuard, PoisonError};

use millrace_chain::{ChainStats, HopState, HopStats};

/// A hop that does not work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HopTrouble {
    /// The hop: `chain edge, hop fw`.
    pub hop: String,
    /// The reason why its function ended, and the next step; `None` while a process starts for the first time.
    pub reason: Option<String>,
}

/// The hops of one bridge that do not work.
#[derive(Debug, Default)]
pub struct HopBoard(Mutex<Vec<HopTrouble>>);

impl HopBoard {
    fn lock(&self) -> MutexGuard<'_, Vec<HopTrouble>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces what is known by the state of all chains.
    pub(super) fn write(&self, chains: &[ChainStats]) {
        let hops = chains.iter().flat_map(|chain| {
            let hops = chain.hops.iter();
            hops.filter_map(move |hop| trouble(&chain.name, hop))
        });
        let troubles = hops.collect();
        *self.lock() = troubles;
    }

    /// Returns the hops that do not work.
    pub fn read(&self) -> Vec<HopTrouble> {
        self.lock().clone()
    }
}

fn trouble(chain: &str, hop: &HopStats) -> Option<HopTrouble> {
    let failed = match hop.state {
        HopState::Up | HopState::Drained => return None,
        HopState::Down => true,
        // A process that failed and was started again may fail again before it shows life.
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
    Some(HopTrouble {
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
    fn hops_that_are_down_are_told_with_their_reason_until_they_show_life() {
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
            let told = trouble("edge", &hop(state, failure)).map(|trouble| trouble.reason.unwrap());
            match reason {
                None => assert_eq!(told, None),
                Some(start) => assert!(told.unwrap().starts_with(start)),
            }
        }
        let first = trouble("edge", &hop(HopState::Starting, "")).unwrap();
        assert_eq!((first.hop.as_str(), first.reason), ("chain edge, hop fw", None));
    }
}
