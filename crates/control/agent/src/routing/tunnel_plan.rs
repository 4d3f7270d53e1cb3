//! Tunnels that VRFs carry, as the configuration has them and as they run.

use std::collections::BTreeMap;
use std::net::IpAddr;

use millrace_model as model;
use millrace_pipeline::TunnelKey;
use millrace_router::{TunnelEnd, UnderlayPort};
use millrace_types::{Duration, PortNo, Time, TunnelKind};

use crate::control::{TunnelRoute, tunnel_key};

/// The least time between two looks at the ways of all tunnels.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// The longest time between two looks. A next hop that tunnels use counts as used at each look, and one without MAC address
/// is asked for.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The key of a tunnel: the name of its bridge, and the number of its port.
pub(super) type TunnelPort = (String, PortNo);

/// A desired tunnel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TunnelPlan {
    /// The name of the port.
    pub(super) name: String,
    /// The name of the VRF.
    pub(super) vrf: String,
    pub(super) kind: TunnelKind,
    pub(super) udp_port: u16,
    /// The configured local address; none if the routes say it.
    pub(super) local: Option<IpAddr>,
    pub(super) remote: IpAddr,
    pub(super) key: TunnelKey,
}

/// A tunnel that runs.
#[derive(Debug)]
pub(super) struct RunningTunnel {
    pub(super) plan: TunnelPlan,
    /// The port of the bridge to the VRF; none until it is made.
    pub(super) underlay: Option<UnderlayPort>,
    /// The local address; none while no route says it.
    pub(super) local: Option<IpAddr>,
    /// The way that the bridge was told last.
    pub(super) told: Option<TunnelRoute>,
}

impl RunningTunnel {
    /// Returns the local end as workers have it, once all of it is known.
    pub(super) fn end(&self) -> Option<(TunnelEnd, UnderlayPort)> {
        let plan = &self.plan;
        let end = TunnelEnd {
            kind: plan.kind,
            udp_port: plan.udp_port,
            local: self.local?,
            remote: plan.remote,
            key: plan.key,
        };
        Some((end, self.underlay?))
    }
}

/// The times of the looks.
#[derive(Debug, Default)]
pub(super) struct Looks {
    last: Option<Time>,
    is_due: bool,
}

impl Looks {
    /// Notes that ways may have changed.
    pub(super) fn note(&mut self) {
        self.is_due = true;
    }

    /// Returns true if it is time to look.
    pub(super) fn take(&mut self, now: Time) -> bool {
        let since = self.last.map(|last| now.since(last));
        let looks = since.is_none_or(|since| since >= LOOK_AGAIN || self.is_due && since >= LOOK_INTERVAL);
        if looks {
            self.last = Some(now);
            self.is_due = false;
        }
        looks
    }
}

/// Returns the tunnels of a configuration that VRFs carry.
pub(super) fn planned(config: &model::Config) -> BTreeMap<TunnelPort, TunnelPlan> {
    let mut found = BTreeMap::new();
    for bridge in &config.bridges {
        for port in &bridge.ports {
            let model::Device::Tunnel(tunnel) = &port.device else {
                continue;
            };
            let vrf = match tunnel.underlay() {
                model::Underlay::Port(_) => continue,
                model::Underlay::Vrf(vrf) => vrf.to_string(),
                model::Underlay::Host => model::Vrf::of_host().name.to_string(),
            };
            let plan = TunnelPlan {
                name: port.name.to_string(),
                vrf,
                kind: tunnel.kind(),
                udp_port: tunnel.udp_port(),
                local: tunnel.local(),
                remote: tunnel.remote(),
                key: tunnel_key(tunnel),
            };
            found.insert((bridge.name.to_string(), port.number), plan);
        }
    }
    found
}
