//! The router of a switch: reconciliation with a configuration, and the thread of the RIB, started with the first VRF.

use std::sync::{Arc, OnceLock};

use millrace_datapath::Datapath;
use millrace_datapath::io::Backend;
use millrace_model as model;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::interfaces;
use super::plan::Plan;
use super::state::State;
use super::thread::RibThread;
use crate::control::BridgeHandle;
use crate::observe::Observer;
use crate::problem::Problem;

/// The router of a switch.
pub struct Router<B: Backend> {
    datapath: Arc<Datapath<B>>,
    seed: u64,
    /// Started with the first VRF.
    running: OnceLock<Running<B>>,
    /// The observer of neighbours, if there is one.
    observer: OnceLock<Observer>,
    disturbances: watch::Sender<u64>,
}

struct Running<B: Backend> {
    state: Arc<Mutex<State<B>>>,
    _thread: RibThread,
}

impl<B: Backend> Router<B> {
    pub(crate) fn new(datapath: Arc<Datapath<B>>, seed: u64) -> Router<B> {
        Router {
            datapath,
            seed,
            running: OnceLock::new(),
            observer: OnceLock::new(),
            disturbances: watch::Sender::new(0),
        }
    }

    /// Returns the number of times at which another program took away what the router had made of the configuration, and its
    /// changes.
    pub(crate) fn disturbances(&self) -> watch::Receiver<u64> {
        self.disturbances.subscribe()
    }

    /// Sets the observer of neighbours, before the first VRF. The first call counts.
    pub(crate) fn observe(&self, observer: Observer) {
        // A second observer would be a mistake of the caller, and changes nothing.
        let _first = self.observer.set(observer);
    }

    /// Removes interfaces and VRFs that are not configured, or that must be made again, and takes the router out of bridges
    /// without interfaces and of those for which `stays` is false. Call it before bridges are removed.
    pub(crate) fn withdraw(
        &self,
        config: &model::Config,
        bridge: impl Fn(&str) -> Option<BridgeHandle<B>>,
        stays: impl Fn(&str) -> bool,
    ) {
        if let Some(running) = self.running.get() {
            interfaces::withdraw(&running.state, Plan::of(config), bridge, stays);
        }
    }

    /// Makes the router equal to the configuration, as far as possible, and returns the differences. The bridges run.
    pub(crate) fn apply(
        &self,
        config: &model::Config,
        bridge: impl Fn(&str) -> Option<BridgeHandle<B>>,
    ) -> Vec<Problem> {
        let plan = Plan::of(config);
        if plan.vrfs.is_empty() && self.running.get().is_none() {
            return Vec::new();
        }
        match self.start() {
            Ok(running) => interfaces::apply(&running.state, plan, bridge),
            Err(reason) => vec![Problem::new("router", reason)],
        }
    }

    /// Returns the VRFs whose routes are not as their source has them.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        self.state().map(|state| state.problems()).unwrap_or_default()
    }

    fn start(&self) -> Result<&Running<B>, String> {
        if let Some(running) = self.running.get() {
            return Ok(running);
        }
        let (state, inputs) = State::new(&self.datapath, self.seed, self.disturbances.clone());
        let state = Arc::new(Mutex::new(state));
        let thread = RibThread::start(
            Arc::clone(&self.datapath),
            &state,
            inputs,
            self.observer.get().cloned(),
        )
        .map_err(|error| format!("the thread of the RIB cannot be started: {error}"))?;
        Ok(self.running.get_or_init(|| Running {
            state,
            _thread: thread,
        }))
    }

    pub(super) fn state(&self) -> Option<MutexGuard<'_, State<B>>> {
        self.running.get().map(|running| running.state.lock())
    }
}
