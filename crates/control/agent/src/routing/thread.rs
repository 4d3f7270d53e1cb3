//! The thread of the RIB: the single writer of all FIBs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::thread::JoinHandle;
use std::time::Duration;

use millrace_datapath::Datapath;
use millrace_datapath::io::Backend;
use millrace_rib::Action;
use millrace_rib::event::{Change as EventChange, Object};
use millrace_router::{Change, Glean};
use millrace_types::Time;
use parking_lot::Mutex;

use super::reports::NeighbourReports;
use super::state::{Inputs, State};
use crate::observe::Observer;

/// The longest wait for events while workers may have neighbours to ask for: the delay of the first packet to one.
const BUSY_WAIT: Duration = Duration::from_millis(1);
/// The longest wait for events otherwise.
const IDLE_WAIT: Duration = Duration::from_millis(10);
/// The maximum number of batches that are applied before the others get the state.
const BATCHES_MAX: usize = 16;
/// The least time between two requests to apply the configuration again.
const DISTURBANCE_INTERVAL: millrace_types::Duration = millrace_types::Duration::from_secs(1);
/// The number of rounds without work after which the thread waits longer.
const IDLE_ROUNDS: u32 = 100;

/// The running thread. Dropping it ends the thread.
pub(super) struct RibThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RibThread {
    pub(super) fn start<B: Backend>(
        datapath: Arc<Datapath<B>>,
        state: &Arc<Mutex<State<B>>>,
        inputs: Inputs,
        observer: Option<Observer>,
    ) -> std::io::Result<RibThread> {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name("rib".to_owned()).spawn({
            let (state, stop) = (Arc::clone(state), Arc::clone(&stop));
            move || run(&datapath, &state, &inputs, observer.as_ref(), &stop)
        })?;
        Ok(RibThread {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for RibThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the RIB panicked");
        }
    }
}

fn run<B: Backend>(
    datapath: &Datapath<B>,
    state: &Mutex<State<B>>,
    inputs: &Inputs,
    observer: Option<&Observer>,
    stop: &AtomicBool,
) {
    let mut idle_rounds = 0;
    // True while interfaces may not receive where the kernel does.
    let mut is_behind = true;
    let mut reports = NeighbourReports::default();
    // True while the configuration must be applied again, and the time before which it is not asked for.
    let (mut is_disturbed, mut not_before) = (false, Time::ZERO);
    while !stop.load(Ordering::Acquire) {
        let wait = if idle_rounds < IDLE_ROUNDS {
            BUSY_WAIT
        } else {
            IDLE_WAIT
        };
        let first = match inputs.events.recv_timeout(wait) {
            Ok(batch) => Some(batch),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let mut state = state.lock();
        let now = datapath.now();
        let mut is_busy = first.is_some();
        for batch in first
            .into_iter()
            .chain(inputs.events.try_iter().take(BATCHES_MAX))
        {
            for event in batch {
                if !matches!(
                    event.change,
                    EventChange::There(Object::Route(_)) | EventChange::Gone(Object::Route(_))
                ) {
                    reports.note();
                }
                is_behind |= matches!(
                    event.change,
                    EventChange::There(Object::Link(_) | Object::Address(_))
                        | EventChange::Gone(Object::Link(_) | Object::Address(_))
                        | EventChange::DumpEnds(_)
                );
                is_disturbed |= state.is_disturbed_by(&event);
                state.rib.handle(event, now);
            }
        }
        for (interface, up) in inputs.links.try_iter() {
            set_link(&mut state, interface, up);
            is_busy = true;
        }
        if is_busy {
            state.looks.note();
        }
        is_busy |= ask_for_neighbours(&mut state);
        if state.rib.next_due().is_some_and(|due| due <= now) {
            state.rib.tick(now);
        }
        if is_behind || !state.untold.is_empty() {
            is_behind = !state.follow_addresses();
            is_disturbed |= state.has_other_passive();
        }
        if is_disturbed && now >= not_before {
            state.disturbances.send_modify(|count| *count += 1);
            (is_disturbed, not_before) = (false, now + DISTURBANCE_INTERVAL);
        }
        for glean in state.follow_tunnels(now) {
            ask_for(&state, &glean);
        }
        state.act();
        state.reclaim();
        state.router.lock().collect();
        if let Some(observer) = observer {
            reports.run(&state, observer, now);
        }
        idle_rounds = if is_busy { 0 } else { idle_rounds.saturating_add(1) };
    }
}

/// Passes a change of a link on: to workers, and to the kernel as carrier.
fn set_link<B: Backend>(state: &mut State<B>, index: u16, up: bool) {
    let held = state
        .interfaces
        .values_mut()
        .find(|held| held.interface.index == index);
    if let Some(held) = held {
        if held.interface.is_up == up {
            return;
        }
        let interface = Arc::make_mut(&mut held.interface);
        interface.is_up = up;
        let change = Change::Interface(Arc::clone(&held.interface));
        let mut router = state.router.lock();
        router.change(&mut vec![change]);
        router.set_carrier(index, up);
        tracing::info!(interface = %held.plan.config.name, up, "link of an interface");
    }
}

/// Asks the kernel for the neighbours that packets wait for. Returns true if there are any.
fn ask_for_neighbours<B: Backend>(state: &mut State<B>) -> bool {
    let mut found = false;
    loop {
        let Some(glean) = state.router.lock().next_glean() else {
            return found;
        };
        found = true;
        ask_for(state, &glean);
    }
}

/// Asks the kernel for a neighbour.
fn ask_for<B: Backend>(state: &State<B>, glean: &Glean) {
    let held = state
        .interfaces
        .iter()
        .find(|(_, held)| held.interface.index == glean.interface);
    let Some(((vrf, _), netns, ifindex)) = held.map(|(key, held)| (key, held.netns, held.ifindex)) else {
        return;
    };
    let by_route = state
        .vrfs
        .get(vrf)
        .and_then(|vrf| state.rib.link_towards(vrf.id, glean.neighbour, glean.interface));
    let Some(ifindex) = by_route.or(ifindex) else {
        return;
    };
    let probe = Action::Probe {
        netns,
        ifindex,
        address: glean.neighbour,
    };
    for namespace in state.namespaces.values() {
        namespace.kernel.execute(&probe);
    }
}
