//! Scenarios: a path is made from its text, and the tests check the outcomes of frames.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod cuts;
mod exact;
mod halves;
mod icmp_errors;
mod no_allocation;
mod text;

use millrace_types::Time;
use millrace_wan_emulator::{NoSources, Outcome, Path, PathConfig, Seed};

/// Returns the configuration of a path with these settings.
fn config(settings: &[(&str, &str)]) -> PathConfig {
    let mut config = PathConfig::default();
    for (key, text) in settings {
        config.set(key, text).unwrap();
    }
    config
}

fn path(settings: &[(&str, &str)]) -> Path {
    Path::new(&config(settings), Seed::new(7), &NoSources).unwrap()
}

fn nanos(time: u64) -> Time {
    Time::from_nanos(time)
}

/// Returns the release times of the copies of a frame, in nanoseconds.
fn releases(outcomes: &[Outcome]) -> Vec<u64> {
    let release = |outcome: &Outcome| match outcome {
        Outcome::Released(release) => Some(release.at.nanos()),
        Outcome::Dropped(_) => None,
    };
    outcomes.iter().filter_map(release).collect()
}
