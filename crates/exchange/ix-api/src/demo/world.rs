//! A running engine between simulated switches, a database in memory and clocks that a test moves. What an engine observes
//! comes by the same ways as in production: datagrams of sFlow, messages of BGP, answers of BIRD, frames of ends, values of
//! series.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millrace_ix_engine::{Mode, SwitchStatus, SyncState};
use millrace_ix_model::{Actor, ConfigId, Exchange, Operation, Quarantine, Refusal, SwitchId, Timestamp};
use millrace_ix_plan::layout::{CookieFields, CookieKind};
use millrace_ix_samples::Shared;
use millrace_ix_service::simulation::{Controls, Medium, SimulatedClocks, SimulatedFabric, fill, hasty};
use millrace_ix_service::{Handle, OrderError, Service, Settings, StartError};
use millrace_ix_store::{Sqlite, StoreError, UnixMillis};
use tempfile::TempDir;

use super::exchange::now;
use super::{RouteServerReads, bird, frames, routes, series, traffic};
use crate::counters::FilterCounters;
use crate::engine::Engine;
use crate::route_servers::{RouteServer, RouteServers};

/// The world could not be started.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Order(#[from] OrderError),
    #[error(transparent)]
    Series(#[from] millrace_ix_series::SeriesError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The text says what is still under way.
    #[error("the engine does not come to rest: {0}")]
    Restless(String),
}

/// A running engine and what surrounds it.
pub struct World {
    pub engine: Arc<Engine>,
    pub handle: Handle,
    pub fabric: SimulatedFabric,
    pub clocks: SimulatedClocks,
    /// The medium of the database.
    pub medium: Arc<Controls>,
    /// The receiver of sFlow.
    pub samples: Shared,
    pub counters: FilterCounters,
    route_servers: RouteServers,
    /// The folder of the series, as long as the world exists.
    series: TempDir,
}

impl Drop for World {
    fn drop(&mut self) {
        self.handle.stop();
    }
}

/// Returns the ends in quarantine.
fn quarantined(exchange: &Exchange) -> Vec<ConfigId> {
    let ends = exchange.configs.iter();
    let running = ends.filter(|(_, end)| matches!(end.quarantine, Quarantine::Running { .. }));
    running.map(|(id, _)| *id).collect()
}

impl World {
    /// Starts an engine over an exchange, and waits until the switches are in sync. The clean time of ends in quarantine begins
    /// now, and their routers have sent a good frame each.
    ///
    /// # Errors
    /// [`WorldError`].
    pub async fn start(exchange: Exchange) -> Result<World, WorldError> {
        World::start_with(exchange, SimulatedClocks::default()).await
    }

    /// Starts like [`World::start`], with these clocks.
    ///
    /// # Errors
    /// [`WorldError`].
    pub async fn start_with(mut exchange: Exchange, clocks: SimulatedClocks) -> Result<World, WorldError> {
        for config in quarantined(&exchange) {
            let begins = Operation::ReportQuarantine { config, clean: false };
            exchange.apply(&Actor::system(), now(), begins)?;
        }
        let (mut medium, controls) = Medium::over(Sqlite::in_memory()?);
        // Time has passed since the orders that made the exchange.
        fill(&mut medium, &exchange, UnixMillis(0))?;
        let fabric = SimulatedFabric::default();
        let settings = Settings {
            engine: hasty(),
            extensions: true,
            audit_key: None,
        };
        let requests = fabric.clone();
        let service = Service::start_with_clocks(
            Box::new(medium),
            settings,
            Arc::new(clocks.clone()),
            move |request| requests.request(request),
        )?;
        let handle = service.handle();
        fabric.connect_all(handle.fabric(), &exchange);
        for config in quarantined(&exchange) {
            if let Some(frame) = frames::arp(&exchange, config) {
                arrive(&fabric, &exchange, config, frame);
            }
        }
        // The events of the start are over when the first one listens.
        settle(&handle, &fabric).await?;
        let counters = FilterCounters::default();
        let filters = routes::filters(&exchange, now());
        let engine = Engine::with_filters(handle.clone(), Some(filters), counters.clone());
        let (samples, route_servers) = (Shared::new(1), RouteServers::default());
        engine.set_samples(samples.clone());
        engine.set_route_servers(route_servers.clone());
        Ok(World {
            engine,
            handle,
            fabric,
            clocks,
            medium: controls,
            samples,
            counters,
            route_servers,
            series: TempDir::new()?,
        })
    }

    /// Waits until the engine has done what was sent to it before.
    ///
    /// # Errors
    /// [`WorldError`] if the engine has ended.
    pub async fn wait(&self) -> Result<(), WorldError> {
        wait(&self.handle).await
    }

    /// Waits until no change is under way and the switches are in sync. A world in which a switch is away, answers nothing or
    /// refuses a change, or which waits for an operator, does not come to rest, and its caller goes on when the engine has done what was sent to it.
    ///
    /// # Errors
    /// [`WorldError`] if the engine does not come to rest in a minute.
    pub async fn settle(&self) -> Result<(), WorldError> {
        settle(&self.handle, &self.fabric).await
    }

    /// Lets time pass, and what is due happen.
    ///
    /// # Errors
    /// [`WorldError`].
    pub async fn pass(&self, time: Duration) -> Result<(), WorldError> {
        self.clocks.pass(time);
        self.settle().await
    }

    /// Makes the database refuse writes, or accept them again.
    pub fn set_full(&self, is_full: bool) {
        self.medium.is_full.store(is_full, Ordering::SeqCst);
    }

    /// Lets the router of each end in quarantine send a frame of LLDP.
    ///
    /// # Errors
    /// [`WorldError`].
    pub async fn offend(&self) -> Result<(), WorldError> {
        let exchange = Arc::clone(&self.handle.snapshot().exchange);
        for config in quarantined(&exchange) {
            arrive(&self.fabric, &exchange, config, frames::LLDP.to_vec());
        }
        self.settle().await
    }

    /// Lets the clean time of the ends in quarantine pass.
    ///
    /// # Errors
    /// [`WorldError`].
    pub async fn pass_quarantine(&self) -> Result<(), WorldError> {
        let exchange = Arc::clone(&self.handle.snapshot().exchange);
        let longest = exchange
            .policies
            .values()
            .map(|policy| policy.quarantine_secs)
            .max();
        self.pass(Duration::from_secs(u64::from(longest.unwrap_or_default()) + 1))
            .await
    }

    /// Returns the first switch.
    pub fn first_switch(&self) -> Option<SwitchId> {
        self.handle.snapshot().exchange.switches.keys().next().copied()
    }

    /// Sets the outcomes of reading a route server.
    pub fn read_route_server(&self, server: &RouteServer, reads: RouteServerReads) {
        bird::read(&self.route_servers, server, reads);
    }

    /// Records a day of values of all series, and the figures of the last month.
    ///
    /// # Errors
    /// [`WorldError`].
    pub fn record_series(&self) -> Result<(), WorldError> {
        let found = series::record(self.series.path(), &self.handle.snapshot().exchange, now())?;
        self.engine.set_series(found);
        Ok(())
    }

    /// Receives the samples of the switches from a time to another one.
    pub fn sample(&self, script: &mut traffic::Script, until: Timestamp) {
        script.run(
            &self.samples,
            &self.counters,
            &self.handle.snapshot().exchange,
            until,
        );
    }
}

/// Passes a frame of an end to the engine.
fn arrive(fabric: &SimulatedFabric, exchange: &Exchange, config: ConfigId, frame: Vec<u8>) {
    let end = exchange.configs.get(&config);
    let connection = end.and_then(|end| exchange.connections.get(&end.connection));
    let cookie = CookieFields {
        kind: CookieKind::End,
        object: config.0,
        generation: 0,
    };
    if let Some(switch) = connection.and_then(millrace_ix_model::Connection::switch) {
        fabric.packet_in(switch, cookie.cookie(), frame);
    }
}

/// Starts the exchange of the demonstrations and the API over it, without route servers, page, mail or provider of sign-ins.
#[cfg(test)]
pub(crate) async fn start_api(credentials: Arc<crate::session::MemoryCredentials>) -> (World, crate::App) {
    let settings = crate::Settings {
        name: "Test IX".to_owned(),
        page: crate::Page::default(),
        route_servers: Vec::new(),
        webhooks_to_private: false,
        oidc: None,
        mail: None,
        ixf_id: None,
    };
    let exchange = super::demo().expect("the exchange of the demonstrations");
    let world = World::start(exchange).await.expect("a running engine");
    let sealer = crate::session::Sealer::new(&[7; 32]).expect("a sealer");
    let app = crate::App::new(Arc::clone(&world.engine), credentials, sealer, settings).await;
    (world, app.expect("the API"))
}

/// Waits until the engine has done what was sent to it before.
async fn wait(handle: &Handle) -> Result<(), WorldError> {
    handle.store(|_, _| Ok(())).await?;
    Ok(())
}

/// Waits until an engine and its switches are at rest, as far as they come to rest.
async fn settle(handle: &Handle, fabric: &SimulatedFabric) -> Result<(), WorldError> {
    let rest = async {
        loop {
            wait(handle).await?;
            let snapshot = handle.snapshot();
            let differs = snapshot.switches.values().any(|switch| !is_in_sync(switch));
            let waits = fabric.is_late() || snapshot.mode != Mode::Normal || !snapshot.stuck.is_empty();
            if waits || snapshot.change_objects.is_empty() && !differs {
                return Ok(());
            }
        }
    };
    let rested = tokio::time::timeout(Duration::from_secs(60), rest).await;
    rested.unwrap_or_else(|_| {
        let snapshot = handle.snapshot();
        let text = format!("{:?} {:?}", snapshot.changes, snapshot.switches);
        Err(WorldError::Restless(text))
    })
}

/// Returns true if a switch has the entries of the plan.
fn is_in_sync(switch: &SwitchStatus) -> bool {
    matches!(switch.state, SyncState::Known { differing: 0 })
}
