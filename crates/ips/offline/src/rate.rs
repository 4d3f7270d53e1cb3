//! The rate of the engine over a mix. Each pass has new connections, and only the time in the engine counts.

use std::time::{Duration, Instant};

use millrace_ips_engine::detect::Ruleset;
use millrace_ips_engine::{Engine, Event, Events, Frame, LinkType, Mode, Settings};

use crate::mixes::{Mix, frames};

/// Connections in each pass.
pub const CONNECTIONS: u32 = 400;

/// The work of the engine on a mix of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateSummary {
    pub passes: u32,
    pub frames: u64,
    /// Bytes of the frames.
    pub bytes: u64,
    pub alerts: u64,
    /// Time spent in the engine.
    pub engine: Duration,
}

impl RateSummary {
    /// Returns the rate in megabits per second, counted over whole frames.
    pub fn megabits_per_second(&self) -> f64 {
        self.bytes as f64 * 8e-6 / self.engine.as_secs_f64().max(1e-9)
    }

    /// Returns the rate in frames per second.
    pub fn frames_per_second(&self) -> f64 {
        self.frames as f64 / self.engine.as_secs_f64().max(1e-9)
    }
}

/// Passes connections of a mix through an engine until the engine has worked for `least`. The first pass
/// warms up and is not counted.
pub fn rate(mix: Mix, rules: &Ruleset, mode: Mode, least: Duration) -> RateSummary {
    let settings = Settings {
        mode,
        ..Settings::default()
    };
    let mut engine = Engine::new(settings, [1, 2]);
    let mut events = Events::default();
    let mut summary = RateSummary::default();
    let mut number = 0;
    for pass in 0.. {
        let mut frames = frames(mix, pass, CONNECTIONS);
        let start = Instant::now();
        for frame in &mut frames {
            number += 1;
            let frame = Frame {
                bytes: &mut frame.bytes,
                link: LinkType(LinkType::ETHERNET),
                time: frame.time,
                number,
            };
            engine.frame(rules, frame, &mut events);
        }
        let time = start.elapsed();
        if pass > 0 {
            summary.passes += 1;
            summary.frames += frames.len() as u64;
            summary.bytes += frames.iter().map(|frame| frame.bytes.len() as u64).sum::<u64>();
            let is_alert = |event: &&Event| matches!(event, Event::Alert(_));
            summary.alerts += events.list.iter().filter(is_alert).count() as u64;
            summary.engine += time;
        }
        events.list.clear();
        if pass > 0 && summary.engine >= least {
            break;
        }
    }
    summary
}
