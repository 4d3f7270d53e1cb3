//! The order of one packet through the engine.

use millrace_types::Time;

use crate::detect::{Detector, Ruleset};
use crate::event::Events;
use crate::packet::LinkType;
use crate::settings::Settings;
use crate::verdict::Verdict;

/// A frame as it arrives.
#[derive(Debug)]
pub struct Frame<'a> {
    /// The bytes, which the normaliser may change in mode `ips`.
    pub bytes: &'a mut [u8],
    /// The link layer.
    pub link: LinkType,
    /// Time of arrival.
    pub time: Time,
    /// Number of the frame, from 1.
    pub number: u64,
}

/// One lane of intrusion prevention.
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    detector: Detector,
}

impl Engine {
    /// Returns an engine without flows. `seed` keys the hash of the flow table.
    pub fn new(settings: Settings, _seed: [u64; 2]) -> Engine {
        Engine {
            settings,
            detector: Detector::default(),
        }
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Inspects a frame and returns the decision about it.
    pub fn frame(&mut self, _rules: &Ruleset, _frame: Frame<'_>, _out: &mut Events) -> Verdict {
        let _ = &self.detector;
        Verdict::Pass
    }

    /// Ends the flows that are idle at `now`, each with a last inspection.
    pub fn expire(&mut self, _rules: &Ruleset, _now: Time, _out: &mut Events) {}

    /// Ends all flows, each with a last inspection, and forgets all state of the capture.
    pub fn finish(&mut self, _rules: &Ruleset, _out: &mut Events) {}
}
