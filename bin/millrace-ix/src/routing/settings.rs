//! `[bgp]`, `[rpki]` and `[irr]`.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use millrace_bgp::{FamilySet, LargeCommunity, Limits, PeerSettings, SessionSettings};
use millrace_ix_filter::{PeerInfo, SessionKind, Settings};
use serde::Deserialize;

use super::tcp::Protection;

/// The longest restart time, in seconds: the capability has 12 bits (RFC 4724, section 3).
const RESTART_SECS_MAX: u16 = 0xfff;
/// The memory in bytes that a session may use for each prefix of `prefixes_max`, including its attributes.
const PREFIX_SIZE_MAX: usize = 512;

/// `[bgp]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Bgp {
    /// The addresses of the listeners; none without BGP.
    pub(crate) listen: Vec<SocketAddr>,
    /// The AS number of the exchange.
    pub(crate) asn: u32,
    /// The BGP Identifier.
    pub(crate) router_id: Ipv4Addr,
    /// The hold time in seconds: 0, or 3 and more.
    pub(crate) hold_secs: u16,
    /// Communities that request blackholing, in addition to 65535:666. Example: `64500:666`.
    pub(crate) blackhole_communities: Vec<String>,
    /// Large communities that request blackholing. Example: `64500:666:0`.
    pub(crate) blackhole_large_communities: Vec<String>,
    /// Next hops that request blackholing.
    pub(crate) blackhole_next_hops: BTreeSet<IpAddr>,
    /// The seconds for which a filter stays after its owner has lost the prefix.
    pub(crate) ownership_hold_secs: u64,
    /// The seconds for which routes are kept while a peer, or this process, restarts: 0 to 4095.
    pub(crate) restart_secs: u16,
    /// The maximum rate of an account's changes of BGP rules, per second, 1 or more. Further changes are
    /// delayed.
    pub(crate) changes_per_sec: u32,
    pub(crate) peer: Vec<Peer>,
}

impl Default for Bgp {
    fn default() -> Bgp {
        Bgp {
            listen: Vec::new(),
            asn: 0,
            router_id: Ipv4Addr::UNSPECIFIED,
            hold_secs: 90,
            blackhole_communities: Vec::new(),
            blackhole_large_communities: Vec::new(),
            blackhole_next_hops: BTreeSet::new(),
            ownership_hold_secs: 300,
            restart_secs: 120,
            changes_per_sec: 50,
            peer: Vec::new(),
        }
    }
}

/// The type of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// A router of one account.
    #[default]
    Member,
    /// A route server, which leaves AS paths and next hops as they are.
    RouteServer,
}

/// `[[bgp.peer]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Peer {
    /// The address from which the peer connects.
    pub(crate) address: IpAddr,
    /// The AS number.
    pub(crate) asn: u32,
    #[serde(default)]
    pub(crate) kind: Kind,
    /// The name or the identifier of a member's account.
    #[serde(default)]
    pub(crate) account: Option<String>,
    /// The maximum number of prefixes. Default: 10,000 for a member, 3,000,000 for a route server.
    #[serde(default)]
    pub(crate) prefixes_max: Option<usize>,
    /// The maximum number of Flowspec rules. Default: 1,000.
    #[serde(default)]
    pub(crate) rules_max: Option<usize>,
    /// A file with the key of TCP MD5 (RFC 2385), of 1 to 80 bytes, mode 0600; a newline at its end is no part of the key.
    /// Segments of the address without a right signature are dropped.
    #[serde(default)]
    pub(crate) md5_key_file: Option<PathBuf>,
    /// True if segments of the address are dropped that a router has forwarded: GTSM (RFC 5082).
    #[serde(default)]
    pub(crate) gtsm: bool,
}

/// `[rpki]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Rpki {
    /// The caches, preferred first: `127.0.0.1:323`. The first cache that has payloads is used.
    pub(crate) caches: Vec<String>,
}

/// `[irr]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Irr {
    /// The registry, which speaks the protocol of IRRd: `rr.ntt.net:43`.
    pub(crate) server: String,
    /// The sources, preferred first: `RIPE,RADB`. If empty, all sources of the server are used.
    #[serde(default)]
    pub(crate) sources: String,
    /// The seconds between two queries for an account.
    #[serde(default = "hour")]
    pub(crate) refresh_secs: u64,
    /// The age in seconds above which the objects of an account permit no new filter.
    #[serde(default = "day")]
    pub(crate) expire_secs: u64,
}

const fn hour() -> u64 {
    3600
}

const fn day() -> u64 {
    86_400
}

/// Parses numbers with colons between them.
fn numbers<const N: usize>(text: &str) -> Option<[u32; N]> {
    let numbers: Option<Vec<u32>> = text.split(':').map(|number| number.parse().ok()).collect();
    numbers?.try_into().ok()
}

impl Bgp {
    /// Returns the settings of filters.
    pub(crate) fn filter_settings(&self, extensions: bool) -> Result<Settings> {
        if !self.listen.is_empty() && (self.asn == 0 || self.router_id.is_unspecified()) {
            bail!("bgp.listen needs bgp.asn and bgp.router_id");
        }
        if matches!(self.hold_secs, 1 | 2) {
            bail!("bgp.hold_secs {}: expected 0, or 3 and more", self.hold_secs);
        }
        if self.restart_secs > RESTART_SECS_MAX {
            bail!(
                "bgp.restart_secs {}: expected 0 to {RESTART_SECS_MAX}",
                self.restart_secs
            );
        }
        if self.changes_per_sec == 0 {
            bail!("bgp.changes_per_sec 0: expected 1 or more, or no rule would ever become a filter");
        }
        let community = |text: &String| match numbers::<2>(text) {
            Some([high @ 0..=0xffff, low @ 0..=0xffff]) => Ok(high << 16 | low),
            _ => bail!(
                "bgp.blackhole_communities: {text:?}: expected two numbers of 16 bits, such as 64500:666"
            ),
        };
        let large = |text: &String| {
            let [one, two, three] = numbers::<3>(text).with_context(|| {
                format!(
                    "bgp.blackhole_large_communities: {text:?}: expected three numbers, such as 64500:666:0"
                )
            })?;
            anyhow::Ok(LargeCommunity {
                global_administrator: one,
                local_data_1: two,
                local_data_2: three,
            })
        };
        Ok(Settings {
            extensions,
            blackhole_communities: self
                .blackhole_communities
                .iter()
                .map(community)
                .collect::<Result<_>>()?,
            blackhole_large: self
                .blackhole_large_communities
                .iter()
                .map(large)
                .collect::<Result<_>>()?,
            blackhole_next_hops: self.blackhole_next_hops.clone(),
            changes_per_sec: self.changes_per_sec,
            hold: Duration::from_secs(self.ownership_hold_secs),
            restart: Duration::from_secs(u64::from(self.restart_secs)),
        })
    }

    /// Checks that no two peers have the same address, and that IPv4 addresses are not in the mapped IPv6
    /// form.
    pub(crate) fn check_peers(&self) -> Result<()> {
        let mut addresses = BTreeSet::new();
        for peer in &self.peer {
            let canonical = peer.address.to_canonical();
            if canonical != peer.address {
                bail!("bgp.peer {}: expected the IPv4 address {canonical}", peer.address);
            }
            if !addresses.insert(peer.address) {
                bail!("bgp.peer {}: expected one entry for each address", peer.address);
            }
        }
        Ok(())
    }

    /// Returns the protection of the sessions, with the keys from their files.
    pub(super) fn protection(&self) -> Result<Protection> {
        let mut protection = Protection::default();
        for peer in &self.peer {
            if let Some(path) = &peer.md5_key_file {
                let key = crate::keys::read(path, "bgp.peer.md5_key_file")?;
                let key = key.strip_suffix(b"\n").unwrap_or(&key).to_vec();
                protection.keys.push((peer.address, key));
            }
            if peer.gtsm {
                protection.gtsm.insert(peer.address);
            }
        }
        Ok(protection)
    }

    /// Returns the settings of a peer.
    pub(crate) fn peer_settings(&self, peer: &Peer) -> Result<(PeerInfo, PeerSettings)> {
        let is_member = peer.kind == Kind::Member;
        if is_member != peer.account.is_some() {
            bail!(
                "{}: expected an account for a member, and none for a route server",
                peer.address
            );
        }
        let limits = Limits::default();
        let info = PeerInfo {
            kind: if is_member {
                SessionKind::Member
            } else {
                SessionKind::RouteServer
            },
            account: None,
            asn: peer.asn,
        };
        let unicast = peer
            .prefixes_max
            .unwrap_or(if is_member { limits.unicast } else { 3_000_000 });
        let bytes = if is_member { limits.bytes } else { 2 << 30 };
        let settings = PeerSettings {
            session: SessionSettings {
                local_as: self.asn,
                router_id: self.router_id,
                peer_as: peer.asn,
                hold_secs: self.hold_secs,
                families: FamilySet::ALL,
                add_path: !is_member,
                enforce_first_as: is_member,
                restart_secs: self.restart_secs,
            },
            limits: Limits {
                unicast,
                flowspec: peer.rules_max.unwrap_or(limits.flowspec),
                bytes: bytes.max(unicast.saturating_mul(PREFIX_SIZE_MAX)),
            },
        };
        Ok((info, settings))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn communities_and_peers_are_checked() {
        let text = "listen = [\"127.0.0.1:179\"]\nasn = 64500\nrouter_id = \"192.0.2.1\"\n";
        let bgp = |more: &str| toml::from_str::<Bgp>(&format!("{text}{more}")).unwrap();
        let settings = bgp("blackhole_communities = [\"64500:666\"]")
            .filter_settings(true)
            .unwrap();
        assert!(settings.blackhole_communities.contains(&(64_500 << 16 | 666)));
        assert!(
            bgp("blackhole_communities = [\"64500\"]")
                .filter_settings(true)
                .is_err()
        );
        assert!(
            bgp("blackhole_communities = [\"4200000000:1\"]")
                .filter_settings(true)
                .is_err()
        );
        for wrong in ["hold_secs = 2", "restart_secs = 4096", "changes_per_sec = 0"] {
            assert!(bgp(wrong).filter_settings(true).is_err(), "{wrong}");
        }
        let member = bgp("[[peer]]\naddress = \"192.0.2.2\"\nasn = 64501\naccount = \"A\"");
        assert!(
            member
                .peer_settings(&member.peer[0])
                .unwrap()
                .1
                .session
                .enforce_first_as
        );
        let bytes = |max: usize| {
            let peer = "[[peer]]\naddress = \"192.0.2.2\"\nasn = 64501\naccount = \"A\"\nprefixes_max";
            let bgp = bgp(&format!("{peer} = {max}"));
            let limits = bgp.peer_settings(&bgp.peer[0]).unwrap().1.limits;
            assert_eq!(limits.unicast, max);
            limits.bytes
        };
        assert_eq!(bytes(1000), Limits::default().bytes);
        assert_eq!(bytes(1_000_000), 512_000_000);
        let nobody = bgp("[[peer]]\naddress = \"192.0.2.2\"\nasn = 64501");
        assert!(nobody.peer_settings(&nobody.peer[0]).is_err());
    }

    #[test]
    fn a_peer_that_could_never_connect_or_would_replace_another_is_refused() {
        let bgp = |addresses: &[&str]| {
            let peers = addresses
                .iter()
                .map(|address| format!("[[peer]]\naddress = \"{address}\"\nasn = 64501\n"));
            toml::from_str::<Bgp>(&peers.collect::<String>()).unwrap()
        };
        assert!(bgp(&["192.0.2.2", "2001:db8::2"]).check_peers().is_ok());
        assert!(bgp(&["192.0.2.2", "192.0.2.2"]).check_peers().is_err());
        assert!(bgp(&["::ffff:192.0.2.2"]).check_peers().is_err());
    }
}
