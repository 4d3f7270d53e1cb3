//! Sockets of BGP, RPKI, the routing registry and route servers around the pure crates `bgp`, `bird` and `ix-filter`.
//!
//! ```text
//!   TCP sessions ─ sessions.rs ─┐
//!   RTR caches ─── rpki.rs ─────┼─► Shared (Authority) ──► filters.rs ──► orders of the system
//!   IRR ────────── registry.rs ─┘        ▲ accounts, addresses, filters
//!
//!   control sockets of BIRD ─ route_servers.rs ─► RouteServers ─► API
//! ```

mod context;
mod filters;
mod registry;
pub(crate) mod route_servers;
mod rpki;
mod sessions;
mod settings;
mod tcp;

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use millrace_ix_filter::{FilterController, Shared};
use millrace_ix_service::Handle;
use millrace_types::Time;
use tokio::sync::Notify;

use context::Routing;
pub(crate) use settings::{Bgp, Irr, Rpki};

/// Starts the listener of BGP sessions and the clients of RPKI and registry. Returns the authority over
/// filters, or `None` if no BGP listener, RPKI cache or registry is configured.
pub(crate) async fn serve(
    bgp: &Bgp,
    rpki: &Rpki,
    irr: Option<&Irr>,
    extensions: bool,
    handle: &Handle,
) -> Result<Option<Shared>> {
    if bgp.listen.is_empty() && rpki.caches.is_empty() && irr.is_none() {
        return Ok(None);
    }
    let start = Instant::now();
    let settings = bgp.filter_settings(extensions)?;
    let authority = FilterController::new(settings, irr.is_some(), Time::ZERO, handle.now());
    let routing = Routing {
        handle: handle.clone(),
        shared: Shared::new(authority),
        start,
        changed: Arc::new(Notify::new()),
    };
    {
        let mut authority = routing.shared.lock();
        bgp.check_peers()?;
        for peer in &bgp.peer {
            let (info, settings) = bgp.peer_settings(peer).context("bgp.peer")?;
            authority.put_peer(peer.address, info, settings, Time::ZERO);
        }
    }
    let protection = bgp.protection()?;
    let connections = Arc::default();
    for address in &bgp.listen {
        sessions::listen(*address, &protection, &connections, &routing)?;
    }
    rpki::start(rpki, &routing)?;
    if let Some(irr) = irr {
        registry::start(irr, &routing);
    }
    filters::start(bgp, &routing);
    Ok(Some(routing.shared.clone()))
}
