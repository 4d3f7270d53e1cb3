//! Progress of each sender's files.

use super::state::{Server, Stage};
use crate::event::{Event, Limit};

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
            let now = self.clock.now();
            session.grow_pool(now, rtt);
            let total = session.bytes();
            let rate_bps = session.progress.rate_bps(now, session.verified_bytes) as u64;
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
