//! The route servers of the exchange: their settings, and the last reading of their sessions and rejected
//! routes.
//!
//! ```text
//!   task of each route server ── reported, failed ──► RouteServers ── statuses ──► lists of the API
//! ```

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millrace_bird::{CausePattern, Report};
use millrace_ix_model::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Deserializer};

/// The number of intervals without an answer after which a report is stale.
const STALE_INTERVALS: u32 = 3;

/// A route server of the exchange, from the settings of the process.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteServer {
    /// The name of the peering LAN.
    pub lan: String,
    /// The DNS name.
    pub fqdn: String,
    /// The AS number.
    pub asn: u32,
    /// The IPv4 address.
    pub ip_v4: Ipv4Addr,
    /// The IPv6 address.
    pub ip_v6: Ipv6Addr,
    /// The address of a looking glass.
    #[serde(default)]
    pub looking_glass_url: Option<String>,
    /// The path of BIRD's control socket. Without it, sessions and rejected routes are not read.
    #[serde(default)]
    pub control: Option<PathBuf>,
    /// The pattern of the communities whose last number is a reject cause: arouteserver's `reject_cause`.
    #[serde(default = "usual_reject_cause", deserialize_with = "cause_pattern")]
    pub reject_cause: CausePattern,
    /// The interval between two readings of the control socket, in seconds.
    #[serde(default = "usual_poll_secs")]
    pub poll_secs: u32,
}

impl RouteServer {
    /// Returns both addresses.
    pub(crate) fn addresses(&self) -> [IpAddr; 2] {
        [self.ip_v4.into(), self.ip_v6.into()]
    }

    /// Returns the age at which a report is stale.
    fn stale_after(&self) -> Duration {
        Duration::from_secs(u64::from(self.poll_secs)) * STALE_INTERVALS
    }
}

/// Returns the communities in arouteserver's examples: `65520:*`.
pub fn usual_reject_cause() -> CausePattern {
    CausePattern::standard(65_520)
}

/// Returns the default interval between two readings of a control socket, in seconds: half a minute.
pub const fn usual_poll_secs() -> u32 {
    30
}

fn cause_pattern<'de, D: Deserializer<'de>>(deserializer: D) -> Result<CausePattern, D::Error> {
    String::deserialize(deserializer)?
        .parse()
        .map_err(serde::de::Error::custom)
}

/// The failure to read a route server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The time of the first failed attempt since the last report.
    pub since: Timestamp,
    /// The error of the newest attempt.
    pub error: String,
}

/// The newest information about a route server.
#[derive(Debug, Clone, Default)]
pub struct RouteServerStatus {
    /// The newest report and its time; `None` before the first.
    pub report: Option<(Timestamp, Arc<Report>)>,
    /// The failure; `None` if no attempt has failed since the report.
    pub failure: Option<Failure>,
}

/// The freshness of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// There is no report yet, and no attempt has failed.
    Pending,
    Fresh,
    /// The report is older than three intervals.
    Stale,
    /// There is no report, and all attempts failed.
    Unreachable,
}

impl Freshness {
    /// Returns the name of the freshness in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Freshness::Pending => "pending",
            Freshness::Fresh => "fresh",
            Freshness::Stale => "stale",
            Freshness::Unreachable => "unreachable",
        }
    }
}

impl RouteServerStatus {
    /// Returns the freshness of the report.
    pub fn freshness(&self, server: &RouteServer, now: Timestamp) -> Freshness {
        match (&self.report, &self.failure) {
            (Some((at, _)), _) if now.since(*at) > server.stale_after() => Freshness::Stale,
            (Some(_), _) => Freshness::Fresh,
            (None, Some(_)) => Freshness::Unreachable,
            (None, None) => Freshness::Pending,
        }
    }
}

/// The statuses of route servers by DNS name. Clones share them: the tasks of route servers write, and the
/// API reads.
#[derive(Debug, Clone, Default)]
pub struct RouteServers(Arc<Mutex<BTreeMap<String, RouteServerStatus>>>);

impl RouteServers {
    /// Stores a report, and clears a failure.
    pub fn reported(&self, fqdn: &str, at: Timestamp, report: Report) {
        self.change(fqdn, |status| {
            status.report = Some((at, Arc::new(report)));
            status.failure = None;
        });
    }

    /// Stores a failure, and keeps the last report. Returns true for the first failure after a report.
    pub fn failed(&self, fqdn: &str, at: Timestamp, error: String) -> bool {
        self.change(fqdn, |status| {
            let since = status.failure.as_ref().map(|failure| failure.since);
            status.failure = Some(Failure {
                since: since.unwrap_or(at),
                error,
            });
            since.is_none()
        })
    }

    /// Forgets what was read of a route server, as after a start.
    #[cfg(feature = "demo")]
    pub(crate) fn forget(&self, fqdn: &str) {
        self.change(fqdn, |status| *status = RouteServerStatus::default());
    }

    /// Returns the status of a route server.
    pub fn status(&self, fqdn: &str) -> RouteServerStatus {
        let statuses = self.0.lock();
        statuses.get(fqdn).cloned().unwrap_or_default()
    }

    fn change<T>(&self, fqdn: &str, change: impl FnOnce(&mut RouteServerStatus) -> T) -> T {
        let mut statuses = self.0.lock();
        change(statuses.entry(fqdn.to_owned()).or_default())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn server() -> RouteServer {
        serde_json::from_value(serde_json::json!({
            "lan": "LAN", "fqdn": "rs1.ix.example", "asn": 64_999, "ip_v4": "192.0.2.250", "ip_v6": "2001:db8::fa",
        }))
        .unwrap()
    }

    fn report() -> Report {
        Report {
            version: "BIRD 2.0.12".to_owned(),
            sessions: Vec::new(),
            is_truncated: false,
            skipped_lines: 0,
        }
    }

    #[test]
    fn a_failure_keeps_the_report_and_the_time_since_when_it_lasts() {
        let (servers, server) = (RouteServers::default(), server());
        let at = Timestamp::from_secs;
        let freshness = |secs| servers.status(&server.fqdn).freshness(&server, at(secs));
        assert_eq!(freshness(100), Freshness::Pending);
        assert!(servers.failed(&server.fqdn, at(100), "no such file".to_owned()));
        assert_eq!(freshness(100), Freshness::Unreachable);
        servers.reported(&server.fqdn, at(130), report());
        assert_eq!(servers.status(&server.fqdn).failure, None);
        assert!(servers.failed(&server.fqdn, at(160), "connection refused".to_owned()));
        assert!(!servers.failed(&server.fqdn, at(190), "no such file".to_owned()));
        let failure = servers.status(&server.fqdn).failure.unwrap();
        assert_eq!((failure.since, failure.error.as_str()), (at(160), "no such file"));
        assert_eq!(
            (freshness(220), freshness(221)),
            (Freshness::Fresh, Freshness::Stale)
        );
    }

    #[test]
    fn a_reject_cause_that_is_no_pattern_is_refused_with_what_was_expected() {
        let settings = serde_json::json!({
            "lan": "LAN", "fqdn": "rs1", "asn": 64_999, "ip_v4": "192.0.2.250", "ip_v6": "2001:db8::fa", "reject_cause": "65520",
        });
        let error = serde_json::from_value::<RouteServer>(settings)
            .unwrap_err()
            .to_string();
        assert!(error.contains("65520:*"), "{error}");
        assert_eq!(server().reject_cause, "65520:*".parse().unwrap());
    }
}
