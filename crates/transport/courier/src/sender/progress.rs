//! Progress of each receiver: rate, loss, the limiting resource, and stalls.

use super::state::{Sender, Stage};
use crate::event::{Event, Limit};
use millrace_transport::flow;
use std::time::{Duration, Instant};

/// Time without a new verified extent after which a peer counts as stalled.
const STALLED: Duration = Duration::from_secs(10);
/// The minimum time between two events of heavy loss of a peer.
const HEAVY_LOSS_INTERVAL: Duration = Duration::from_secs(10);

impl Sender<'_> {
    /// Reports the progress of all running peers since the last call, and passes their rates to the control
    /// links.
    pub(super) fn progress(&mut self, now: Instant) {
        self.limit_mtus();
        let total = self.layout.bytes();
        let interval = now.saturating_duration_since(self.reported_at);
        let busy = interval.saturating_sub(self.waiting);
        let time = self.clock.time(now);
        for peer in &mut self.peers {
            let Stage::Running(member) = peer.stage else {
                continue;
            };
            let Some(flow) = self.group.flow(member) else {
                continue;
            };
            let stats = flow.stats();
            let share = f64::from(flow.payload()) / flow.path_mtu() as f64;
            let rate_bps = (peer.delivered.rate_bps(time, flow.delivered()) * share) as u64;
            let (sent, lost) = (stats.sent - peer.last.0, stats.lost.saturating_sub(peer.last.1));
            let rate = flow.controller().bandwidth().map_or(0, |rate| rate.bps() / 8);
            if let Some(link) = peer.link {
                self.control.set_window(link, rate, flow.rtt());
            }
            peer.last = (stats.sent, stats.lost);
            let left = total.saturating_sub(peer.verified_bytes);
            let limit = match flow.limit() {
                flow::Limit::Peer => Limit::PeerDisk,
                // Everything has arrived; the receiver writes, verifies and names files.
                flow::Limit::Nothing if left > 0 => Limit::PeerDisk,
                flow::Limit::Nothing => Limit::Nothing,
                flow::Limit::Source => Limit::OwnDisk,
                flow::Limit::Network if busy * 20 > interval * 19 => Limit::Cpu,
                flow::Limit::Network => match self.options.rate {
                    Some(rate) if rate_bps * 20 > rate.bps() * 17 => Limit::Rate,
                    _ => Limit::Network,
                },
            };
            (self.events)(Event::Progress {
                peer: peer.target.name.clone(),
                verified: peer.verified_bytes,
                bytes: total,
                rate_bps,
                eta_s: (rate_bps > 0).then(|| left * 8 / rate_bps),
                rtt_ms: flow.rtt().as_secs_f64() * 1e3,
                loss: if sent == 0 {
                    0.0
                } else {
                    (lost as f64 / sent as f64).min(1.0)
                },
                limit,
                mtu: Some(flow.path_mtu()),
            });
            let is_news = peer
                .loss_told_at
                .is_none_or(|at| now.saturating_duration_since(at) >= HEAVY_LOSS_INTERVAL);
            if stats.breaks > peer.breaks && is_news {
                peer.loss_told_at = Some(now);
                (self.events)(Event::HeavyLoss {
                    peer: peer.target.name.clone(),
                    loss: stats.lost as f64 / stats.sent.max(1) as f64,
                });
            }
            peer.breaks = stats.breaks;
            let silent = now.saturating_duration_since(peer.progress_at);
            if silent >= STALLED && peer.stalled.is_none() {
                peer.stalled = Some(silent.as_secs());
                (self.events)(Event::Stalled {
                    peer: peer.target.name.clone(),
                    seconds: silent.as_secs(),
                });
            }
        }
        (self.reported_at, self.waiting) = (now, Duration::ZERO);
    }
}
