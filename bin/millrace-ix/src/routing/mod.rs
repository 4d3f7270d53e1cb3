//! Sockets of BGP, RPKI and the routing registry around the pure crates `bgp` and `ix-filter`.
//!
//! ```text
//!   TCP sessions ─ sessions.rs ─┐
//!   RTR caches ─── rpki.rs ─────┼─► Shared (Authority) ──► filters.rs ──► orders of the system
//!   IRR ────────── registry.rs ─┘        ▲ accounts, addresses, filters
//! ```

mod filters;
mod registry;
mod rpki;
mod sessions;
mod settings;

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use millrace_ix_filter::{Authority, Shared};
use millrace_ix_model::Timestamp;
use millrace_ix_service::Handle;
use millrace_types::Time;
use tokio::sync::Notify;

pub(crate) use settings::{Bgp, Irr, Rpki};

/// The parts of the process that all tasks of routing share: the engine, the authority, the clock of sessions, and the signal
/// that asks for a comparison.
#[derive(Clone)]
struct Routing {
    handle: Handle,
    shared: Shared,
    start: Instant,
    changed: Arc<Notify>,
}

impl Routing {
    /// Returns the time since the start of the process.
    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Returns the time of the wall clock.
pub(crate) fn wall() -> Timestamp {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Starts the listener of BGP sessions and the clients of RPKI and registry. Returns the authority over filters; `None` if
/// nothing is configured from which ownership could follow.
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
    let authority = Authority::new(settings, irr.is_some(), Time::ZERO, wall());
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
    let connections = Arc::default();
    for address in &bgp.listen {
        sessions::listen(*address, &connections, &routing).await?;
    }
    rpki::start(rpki, &routing)?;
    if let Some(irr) = irr {
        registry::start(irr, &routing);
    }
    filters::start(bgp, &routing);
    Ok(Some(routing.shared.clone()))
}
