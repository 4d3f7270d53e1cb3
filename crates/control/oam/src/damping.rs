//! Flap damping: a link that goes down often in a short time counts as down for a while.

use std::collections::VecDeque;

use millrace_types::{Duration, Time};

/// The settings of flap damping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DampingSettings {
    /// The number of link-down events within `window` at which the link is damped; at least 1.
    pub flaps: u32,
    /// The time in which flaps are counted.
    pub window: Duration,
    /// The time for which a damped link counts as down. Each flap in that time restarts it.
    pub hold_down: Duration,
}

/// The flap history and hold-down state of one link.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Damping {
    was_up: bool,
    /// The times of the latest flaps, at most [`DampingSettings::flaps`] of them.
    flaps: VecDeque<Time>,
    until: Option<Time>,
    damped: u64,
}

impl Damping {
    /// Records the state of the link at `now`. Returns true if the link counts as up.
    pub fn update(&mut self, settings: &DampingSettings, is_up: bool, now: Time) -> bool {
        self.expire(now);
        if self.was_up && !is_up {
            self.flaps.push_back(now);
        }
        self.was_up = is_up;
        while self.flaps.len() > settings.flaps.max(1) as usize
            || self
                .flaps
                .front()
                .is_some_and(|flap| now.since(*flap) > settings.window)
        {
            self.flaps.pop_front();
        }
        if self.flaps.len() >= settings.flaps.max(1) as usize {
            self.flaps.clear();
            self.damped += 1;
            self.until = Some(now + settings.hold_down);
        } else if self.until.is_some() && self.flaps.back() == Some(&now) && !is_up {
            self.until = Some(now + settings.hold_down);
        }
        is_up && self.until.is_none()
    }

    /// Returns the time until which the link counts as down; `None` if it is not damped.
    pub fn until(&self) -> Option<Time> {
        self.until
    }

    /// Ends the hold-down time if it is over at `now`. Returns true if a hold-down time ended.
    pub fn expire(&mut self, now: Time) -> bool {
        self.until.take_if(|until| now >= *until).is_some()
    }

    /// Returns the number of times that the link was damped.
    pub fn times_damped(&self) -> u64 {
        self.damped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: DampingSettings = DampingSettings {
        flaps: 3,
        window: Duration::from_secs(5),
        hold_down: Duration::from_secs(30),
    };

    /// Changes a link, down at first, at each of these times in milliseconds. Returns its damped state after
    /// each change.
    fn run(times: &[u64]) -> (Damping, Vec<bool>) {
        let mut damping = Damping::default();
        let mut is_up = false;
        let mut seen = Vec::new();
        for at in times {
            is_up = !is_up;
            seen.push(damping.update(&SETTINGS, is_up, Time::from_millis(*at)));
        }
        (damping, seen)
    }

    #[test]
    fn three_flaps_in_five_seconds_hold_the_link_down_for_thirty() {
        let (mut damping, seen) = run(&[0, 1000, 1100, 2000, 2100, 3000, 3100]);
        assert_eq!(seen, [true, false, true, false, true, false, false]);
        assert_eq!(damping.until(), Some(Time::from_secs(33)));
        assert!(!damping.update(&SETTINGS, true, Time::from_millis(32_999)));
        assert!(damping.update(&SETTINGS, true, Time::from_secs(33)));
        assert_eq!((damping.until(), damping.times_damped()), (None, 1));
    }

    #[test]
    fn a_flap_while_damped_begins_the_time_again() {
        let (mut damping, _) = run(&[0, 1000, 1100, 2000, 2100, 3000, 3100, 20_000, 20_100]);
        assert_eq!(damping.until(), Some(Time::from_secs(50)));
        assert!(damping.update(&SETTINGS, true, Time::from_secs(50)));
        assert_eq!(damping.times_damped(), 1);
    }

    #[test]
    fn a_flap_after_the_hold_down_time_does_not_restart_it() {
        let (damping, seen) = run(&[0, 1000, 1100, 2000, 2100, 3000, 3100, 40_000, 40_100]);
        assert_eq!(seen.last(), Some(&true));
        assert_eq!((damping.until(), damping.times_damped()), (None, 1));
    }

    #[test]
    fn slow_flaps_are_not_damped() {
        let (damping, seen) = run(&[0, 1000, 1100, 4000, 4100, 6500, 6600, 10_000, 10_100]);
        assert_eq!(seen, [true, false, true, false, true, false, true, false, true]);
        assert_eq!(damping.times_damped(), 0);
    }

    #[test]
    fn a_hold_down_time_ends_without_the_state_of_the_link() {
        let (mut damping, _) = run(&[0, 100, 200, 300, 400, 500]);
        let until = damping.until().unwrap();
        assert!(!damping.expire(until - Duration::from_nanos(1)));
        assert!(damping.expire(until));
        assert_eq!(damping.until(), None);
        assert!(!damping.expire(until));
    }
}
