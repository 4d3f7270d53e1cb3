//! Chains of network functions with their counters.

use millrace_agent::BridgeControl;
use millrace_api::server::LiveError;
use millrace_api::view;
use millrace_chain::{ChainStats, HopState, HopStats, Limit, SharedStatus};
use millrace_datapath::io::Backend;
use millrace_model as model;

/// Returns all chains of a bridge, ordered by name: running chains, and configured chains that do not run.
pub(super) fn chains<B: Backend>(control: &mut BridgeControl<B>) -> Vec<view::Chain> {
    let stats = control.chain_stats().into_iter();
    let running = |chain: ChainStats| view::Chain {
        name: chain.name,
        near: chain.near,
        far: chain.far,
        lanes: chain.lanes as u32,
        state: HopState::Up.as_str().to_owned(),
        problem: String::new(),
        hops: chain.hops.into_iter().map(hop).collect(),
    };
    let mut chains: Vec<view::Chain> = stats.map(running).collect();
    for wanted in &control.config().chains {
        if !chains.iter().any(|chain| chain.name == wanted.name.as_str()) {
            chains.push(missing(wanted));
        }
    }
    for chain in &mut chains {
        chain.problem = control.chain_problem(&chain.name).unwrap_or_default().to_owned();
    }
    chains.sort_by(|one, other| one.name.cmp(&other.name));
    chains
}

/// Returns the view of a chain that does not run.
fn missing(wanted: &model::Chain) -> view::Chain {
    let hop = |hop: &model::Hop| view::ChainHop {
        name: hop.name.to_string(),
        function: hop.function.to_string(),
        class: hop.class.to_string(),
        state: HopState::Down.as_str().to_owned(),
        ..view::ChainHop::default()
    };
    view::Chain {
        name: wanted.name.to_string(),
        near: wanted.number.raw(),
        far: wanted.far_end().raw(),
        lanes: 0,
        state: HopState::Down.as_str().to_owned(),
        problem: String::new(),
        hops: wanted.hops.iter().map(hop).collect(),
    }
}

fn hop(stats: HopStats) -> view::ChainHop {
    let counter = |(name, value): (&str, u64)| view::FunctionCounter {
        name: name.to_owned(),
        value,
    };
    view::ChainHop {
        name: stats.name,
        function: stats.function,
        class: stats.class.to_owned(),
        state: stats.state.as_str().to_owned(),
        parallel: stats.parallel.map(|group| group as u32),
        instances: stats.instances as u32,
        restarts: stats.restarts,
        failure: stats.failure,
        limits: stats.limits.into_iter().map(limit).collect(),
        shared: stats.shared.map(shared),
        packets: stats.packets,
        bytes: stats.bytes,
        next: stats.next,
        skipped: stats.skipped,
        dropped: stats.dropped,
        to_port: stats.to_port,
        passed: stats.passed,
        lost: stats.lost,
        depth: stats.depth,
        shunned_flows: stats.shunned_flows,
        shunned_passed: stats.shunned_passed,
        shunned_dropped: stats.shunned_dropped,
        sent: stats.sent,
        not_sent: stats.not_sent,
        nanos_per_packet: stats.nanos_per_packet,
        latency_nanos: stats.latency_nanos,
        counters: stats.counters.into_iter().map(counter).collect(),
        report: stats.report.lines().map(str::to_owned).collect(),
    }
}

fn limit(limit: Limit) -> view::FunctionLimit {
    view::FunctionLimit {
        name: limit.name.to_owned(),
        value: limit.value,
        by: limit.by.to_owned(),
        problem: limit.problem,
    }
}

fn shared(status: SharedStatus) -> view::SharedState {
    let state = match (status.is_compiling, status.failure.is_empty()) {
        (true, _) => "loading",
        (false, true) => "loaded",
        (false, false) => "failed",
    };
    view::SharedState {
        state: state.to_owned(),
        summary: status.summary,
        failure: status.failure,
        loads: status.compilations,
    }
}

/// Loads the files of a hop again.
pub(super) fn reload<B: Backend>(
    control: &mut BridgeControl<B>,
    bridge: &str,
    chain: &str,
    hop: &str,
) -> Result<(), LiveError> {
    if control.reload_hop(chain, hop) {
        return Ok(());
    }
    let chains = control.chain_stats();
    let is_hop = chains
        .iter()
        .any(|held| held.name == chain && held.hops.iter().any(|held| held.name == hop));
    Err(match is_hop {
        true => LiveError::NothingToLoad {
            bridge: bridge.to_owned(),
            hop: format!("{chain}/{hop}"),
        },
        false => no_hop(chains, bridge, chain, hop),
    })
}

/// Returns the error for a hop that the bridge does not have.
fn no_hop(chains: Vec<ChainStats>, bridge: &str, chain: &str, hop: &str) -> LiveError {
    let hops = chains.into_iter().flat_map(|chain| {
        let name = chain.name;
        chain
            .hops
            .into_iter()
            .map(move |hop| format!("{name}/{}", hop.name))
    });
    LiveError::NoHop {
        bridge: bridge.to_owned(),
        hop: format!("{chain}/{hop}"),
        hops: hops.collect(),
    }
}

/// Restarts the functions of a hop.
pub(super) fn restart<B: Backend>(
    control: &mut BridgeControl<B>,
    bridge: &str,
    chain: &str,
    hop: &str,
) -> Result<(), LiveError> {
    match control.restart_hop(chain, hop) {
        Ok(true) => Ok(()),
        Ok(false) => Err(no_hop(control.chain_stats(), bridge, chain, hop)),
        Err(error) => Err(LiveError::Contradicted {
            message: error.to_string(),
            next_step: "correct its settings; until then the running functions are not changed".to_owned(),
        }),
    }
}
