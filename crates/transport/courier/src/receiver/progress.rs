//! Progress of each sender's files.

use super::state::{Server, Stage};
use crate::event::{Event, Limit};
use std::time::Duration;

/// The interval of progress events.
pub(super) const PROGRESS: Duration = Duration::from_millis(500);

impl Server<'_, '_, '_> {
    /// Reports the progress of all sessions since the last call.
    pub(super) fn progress(&mut self) {
        for (link, peer) in &mut self.peers {
            let Stage::Serving(session) = &mut peer.stage else {
                continue;
            };
            if !session.is_running() {
                continue;
            }
            let rtt = self.control.rtt(*link).unwrap_or_default();
            session.grow_pool(self.clock.now(), rtt);
            let total = session.bytes();
            let new = session.verified_bytes - session.last_verified;
            session.last_verified = session.verified_bytes;
            let rate_bps = (new as f64 * 8.0 / PROGRESS.as_secs_f64()) as u64;
            let left = total - session.verified_bytes.min(total);
            if let Some(observer) = &mut peer.observer {
                observer.on_progress(session.verified_bytes, total, rate_bps);
            }
            (self.events)(Event::Progress {
                peer: peer.name.clone(),
                verified: session.verified_bytes,
                bytes: total,
                rate_bps,
                eta_s: (rate_bps > 0).then(|| left * 8 / rate_bps),
                rtt_ms: rtt.as_secs_f64() * 1e3,
                loss: 0.0,
                limit: Limit::Network,
                mtu: None,
            });
        }
    }
}
