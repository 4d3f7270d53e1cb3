//! The engine's times and policies.

use millrace_types::Duration;

/// The treatment of entries that the exchange did not install.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ForeignPolicy {
    /// Foreign entries are reported, then removed.
    #[default]
    Exclusive,
    /// Foreign entries are reported and kept.
    Leave,
}

/// The settings of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The time in which changes of a switch are collected into one bundle. If the switch had no commit in that
    /// time, the next change is sent at once.
    pub coalesce: Duration,
    /// The shortest wait between flip and removal of the old generation; twice the measured delay if that is longer.
    pub drain_min: Duration,
    /// The time between two reconciliations of a switch, with a jitter of a sixth.
    pub resync: Duration,
    /// The shortest time between two reconciliations that foreign changes cause.
    pub foreign_resync_min: Duration,
    /// The time without an answer from a switch after which the changes that wait for it are reported.
    pub answer_timeout: Duration,
    /// The first delay before a refused change or repair is tried again; it doubles up to a minute. It is also the
    /// delay after a failed dump.
    pub retry: Duration,
    /// The time for which a freed number is not reused after the removal of its entries is confirmed.
    pub number_hold: Duration,
    /// The longest duration of the verification of a change before its flip. A change whose verification takes longer is
    /// rolled back. `None` if changes are not verified.
    pub verification: Option<Duration>,
    /// The treatment of foreign entries.
    pub foreign: ForeignPolicy,
    /// The seed of the jitter.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            coalesce: Duration::from_millis(20),
            drain_min: Duration::from_millis(100),
            resync: Duration::from_secs(60),
            foreign_resync_min: Duration::from_secs(1),
            answer_timeout: Duration::from_secs(30),
            retry: Duration::from_secs(1),
            number_hold: Duration::from_secs(60),
            verification: None,
            foreign: ForeignPolicy::Exclusive,
            seed: 0,
        }
    }
}
