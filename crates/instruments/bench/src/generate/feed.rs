//! A switch that is fed from a generator, flat out: for workloads whose packets do not fit into the pool of a
//! system that would replay them.
//!
//! A [`Feed`] is a [`Forwarding`]: an experiment measures it as it measures a switch that replays a file. Rates are
//! what the generator got back, by sink; so they are no higher than what one core can send, receive and check, which
//! testpmd in the switch's place shows.

use std::time::Duration;

use super::{Generator, Share, socket, wired};
use crate::peer::{Forwarding, Installation, Load, Peer, PeerError, Site};
use millrace_process::confine;

/// A switch and what feeds it; dropping it ends both.
pub struct Feed {
    generator: Generator,
    running: Box<dyn Forwarding>,
}

impl Feed {
    /// Starts a switch with flow entries as [`Peer::start`] does, wires it to a generator, and lets the packets
    /// of `load` come flat out. The generator runs on [`Site::control_core`].
    ///
    /// # Errors
    /// As [`Peer::start`] and [`Generator::start`].
    pub fn start(peer: &dyn Peer, site: &Site, load: &Load) -> Result<Feed, PeerError> {
        let wired = wired(load, socket(&site.dir));
        let running = peer.start(site, &wired)?;
        confine(running.pid(), site.control_core);
        let generator = Generator::start(site, &wired, peer, Share::Usual)?;
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
