//! A switch that a generator feeds at full rate. Used for workloads with more packets than the packet pool of
//! a replaying system holds.
//!
//! A [`Feed`] is a [`Forwarding`], so that an experiment measures it like a switch that replays a file. Its rates are
//! those of the packets that return to the generator, by sink. They are limited by what one core can send, receive and
//! check; the rate of testpmd in place of the switch shows that limit.

use std::time::Duration;

use super::{Generator, Scheduling, socket, wired};
use crate::peer::{Forwarding, Installation, Load, Peer, PeerError, Resources};
use millrace_process::pin_process;

/// A switch and its generator. Dropping the value ends both.
pub struct Feed {
    generator: Generator,
    running: Box<dyn Forwarding>,
}

impl Feed {
    /// Starts a switch with flow entries as [`Peer::start`] does, connects a generator to it, and sends the packets of
    /// `load` at full rate. The generator runs on [`Resources::control_core`].
    ///
    /// # Errors
    /// The errors of [`Peer::start`] and [`Generator::start`].
    pub fn start(peer: &dyn Peer, resources: &Resources, load: &Load) -> Result<Feed, PeerError> {
        let wired = wired(load, socket(&resources.dir));
        let running = peer.start(resources, &wired)?;
        pin_process(running.pid(), resources.control_core);
        let generator = Generator::start(resources, &wired, peer, Scheduling::Normal)?;
        Ok(Feed { generator, running })
    }
}

impl Forwarding for Feed {
    fn pid(&self) -> u32 {
        self.running.pid()
    }

    fn rate(&mut self, window: Duration) -> Result<[f64; 2], PeerError> {
        let end = self.generator.run(None, window)?;
        let by_sink = end.counters.received_by;
        Ok([by_sink[0], by_sink[1]].map(|count| count as f64 / end.seconds.max(1e-9)))
    }

    fn target(&self) -> Option<String> {
        self.running.target()
    }

    fn lost(&mut self) -> Result<Option<u64>, PeerError> {
        self.running.lost()
    }

    fn lookups(&mut self) -> Option<String> {
        self.running.lookups()
    }

    fn tail(&self) -> String {
        self.running.tail()
    }

    fn commands(&self) -> Vec<String> {
        let mut commands = self.running.commands();
        commands.push(self.generator.command().to_owned());
        commands
    }

    fn installation(&self) -> Option<Installation> {
        self.running.installation()
    }
}
