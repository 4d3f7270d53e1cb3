//! Tunnels that VRFs carry, as the configuration has them and as they run.

use std::collections::BTreeMap;

use millrace_model as model;
use millrace_router::{TunnelEnd, UnderlayPort};
use millrace_types::{Duration, PortNo, Time};

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
    pub(super) end: TunnelEnd,
}

/// A tunnel that runs.
#[derive(Debug)]
pub(super) struct RunningTunnel {
    pub(super) plan: TunnelPlan,
    /// The port of the bridge to the VRF; none until it is made.
    pub(super) underlay: Option<UnderlayPort>,
    /// The way that the bridge was told last.
    pub(super) told: Option<TunnelRoute>,
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
            if let model::Device::Tunnel(tunnel) = &port.device
                && let model::Underlay::Vrf(vrf) = tunnel.underlay()
            {
                let plan = TunnelPlan {
                    name: port.name.to_string(),
                    vrf: vrf.to_string(),
                    end: TunnelEnd {
                        kind: tunnel.kind(),
                        udp_port: tunnel.udp_port(),
                        local: tunnel.local(),
                        remote: tunnel.remote(),
                        key: tunnel_key(tunnel),
                    },
                };
                found.insert((bridge.name.to_string(), port.number), plan);
            }
        }
    }
    found
}
