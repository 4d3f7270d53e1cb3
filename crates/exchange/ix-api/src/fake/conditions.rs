//! Conditions that tests set: clocks, failures of the database, results of readings, frames of ends in quarantine.

use std::time::Duration;

use millrace_ix_model::{ConfigId, ObjectId, Operation, Reason};

use super::{FakeExchange, RouteServerReads, State, now};
use crate::observed::{Check, Finding};

impl FakeExchange {
    /// Sets the lag of the engine's clock behind the system's clock, as after a jump of the system's clock.
    pub fn set_clock_behind(&self, behind: Duration) {
        self.state().behind = behind;
    }

    /// Sets the time by which the engine's clock is ahead of the system's clock: time passes for the engine only.
    pub fn set_clock_ahead(&self, ahead: Duration) {
        self.state().ahead = ahead;
    }

    /// Makes orders fail as they do without a database.
    pub fn set_unavailable(&self, unavailable: bool) {
        let mut inner = self.state();
        inner.unavailable = unavailable;
        inner.publish();
        drop(inner);
        self.tell("mode", Vec::new(), None);
    }

    /// Makes entries of the audit chain fail as they do if the database cannot be written.
    pub fn set_audit_unavailable(&self, unavailable: bool) {
        self.state().audit_unavailable = unavailable;
    }

    /// Sets an operation that is executed before the next order of an IP address, as if another user were faster.
    pub fn get_in_before(&self, operation: Operation) {
        self.state().interloper = Some(operation);
    }

    /// Sets the result of reading the route server.
    pub fn set_route_server(&self, reads: RouteServerReads) {
        self.state().reads = reads;
    }

    /// Reports an offending frame of every end in quarantine.
    pub fn offend(&self, check: Check, reason: &Reason, frame: &[u8]) {
        self.each_quarantined(|state, config| {
            state.report(now(), config, false);
            state
                .quarantine
                .entry(config)
                .or_default()
                .findings
                .push_back(Finding {
                    at: now(),
                    check,
                    text: reason.text.clone(),
                    coded: reason.coded.clone(),
                    frame: frame.to_vec(),
                    count: 1,
                });
        });
    }

    /// Ends the quarantine of every end, as if the time without offending frames had passed.
    pub fn pass_quarantine(&self) {
        self.each_quarantined(|state, config| {
            let later = now().after(Duration::from_secs(86_400));
            state.report(later, config, true);
        });
    }

    fn each_quarantined(&self, act: impl Fn(&mut State, ConfigId)) {
        let mut state = self.state();
        let ends: Vec<ConfigId> = state.quarantined().collect();
        let mut objects = Vec::new();
        for config in ends {
            act(&mut state, config);
            objects.push(ObjectId::from(config));
        }
        state.publish();
        drop(state);
        self.tell("object", objects, None);
    }
}
