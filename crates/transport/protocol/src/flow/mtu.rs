//! Path MTU of one flow (RFC 8899, DPLPMTUD, with packets of data as probes).
//!
//! ```text
//!   full size ── three probes that only bring feedback ──> base size
//!      ^                                               │ a packet of the full size, after 1 s, 2 s, … 10 min
//!      └──────────── it is acknowledged ───────────────┘
//! ```
//!
//! A path that loses the packets of one size is a black hole: small packets pass, so that the receiver answers reports and
//! acknowledges no data. Then one packet of the full size at a time tries again; if it is lost, its bytes are repaired in small packets.

use millrace_types::{Duration, Time};

/// IP packets of this size pass every path (RFC 8899, section 5.1.2, BASE_PLPMTU).
pub const BASE_MTU: u16 = 1_200;
/// Probes without an acknowledgement of data after which the full size is given up.
const SILENT: u32 = 3;
const FIRST_PROBE: Duration = Duration::from_secs(1);
const LAST_PROBE: Duration = Duration::from_secs(600);

/// Returns the payload of packets of the base size, if `overhead` bytes of an IP packet are no payload.
pub(crate) fn base_payload(full: u16, overhead: u16) -> u16 {
    // Sixteen is the unit of offsets in large extents.
    full.min(BASE_MTU.saturating_sub(overhead) & !15)
}

/// The payload sizes of one flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathMtu {
    full: u16,
    base: u16,
    reduced: Option<Reduced>,
}

#[derive(Clone, Copy, Debug)]
struct Reduced {
    /// The first acknowledgement at the base size starts the wait.
    probe_at: Option<Time>,
    wait: Duration,
}

impl PathMtu {
    /// Returns the state of a flow with this payload at the full size; `overhead` is what an IP packet has beside it.
    pub(super) fn new(full: u16, overhead: u16) -> PathMtu {
        PathMtu {
            full,
            base: base_payload(full, overhead),
            reduced: None,
        }
    }

    /// Returns the payload of packets that are no probes.
    pub(super) fn payload(&self) -> u16 {
        if self.reduced.is_some() {
            self.base
        } else {
            self.full
        }
    }

    /// Returns the full payload if one packet is to try it.
    pub(super) fn probe(&self, now: Time) -> Option<u16> {
        let at = self.reduced?.probe_at?;
        (now >= at).then_some(self.full)
    }

    /// Learns that a packet of the full size left.
    pub(super) fn on_probe(&mut self, now: Time) {
        if let Some(reduced) = &mut self.reduced {
            reduced.wait = (2 * reduced.wait).min(LAST_PROBE);
            reduced.probe_at = Some(now + reduced.wait);
        }
    }

    /// Learns that a packet with this payload was acknowledged.
    pub(super) fn on_acked(&mut self, now: Time, payload: u16) {
        if let Some(reduced) = &mut self.reduced {
            if payload > self.base {
                self.reduced = None;
            } else if reduced.probe_at.is_none() {
                reduced.probe_at = Some(now + reduced.wait);
            }
        }
    }

    /// Learns that this many probes brought feedback and no acknowledgement of data.
    pub(super) fn on_timeout(&mut self, timeouts: u32) {
        if timeouts >= SILENT && self.full > self.base && self.reduced.is_none() {
            self.reduced = Some(Reduced {
                probe_at: None,
                wait: FIRST_PROBE,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_leads_to_the_base_size_and_one_packet_at_a_time_tries_the_full_one_again() {
        let mut mtu = PathMtu::new(1_428, 72);
        mtu.on_timeout(2);
        assert_eq!(mtu.payload(), 1_428);
        mtu.on_timeout(3);
        assert_eq!((mtu.payload(), mtu.probe(Time::from_secs(4))), (1_120, None));
        mtu.on_acked(Time::from_secs(5), 1_120);
        let probes = (5..9).map(|at| {
            let probe = mtu.probe(Time::from_secs(at));
            probe.inspect(|_| {
                mtu.on_probe(Time::from_secs(at));
            })
        });
        assert_eq!(probes.collect::<Vec<_>>(), [None, Some(1_428), None, Some(1_428)]);
        assert_eq!(mtu.payload(), 1_120);
        mtu.on_acked(Time::from_secs(9), 1_428);
        assert_eq!((mtu.payload(), mtu.probe(Time::from_secs(99))), (1_428, None));
    }
}
