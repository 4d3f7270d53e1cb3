//! The running chains of a bridge, and their plans from the configuration.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use millrace_chain::{Chain, ChainError, ChainPlan, ChainStats, Class, Exporter, HopPlan, OnFailure};
use millrace_datapath::io::Backend;
use millrace_datapath::service::ServiceId;
use millrace_model as model;
use millrace_nf::{Limits, MakeError, Settings, Spread};
use millrace_types::Time;

/// A running chain, and the services of its lanes.
pub(super) struct RunningChain<B: Backend> {
    pub(super) chain: Chain<B::Packet>,
    pub(super) services: Vec<ServiceId>,
    pub(super) exporter: Exporter,
}

/// The chains of one bridge, by name.
pub(super) struct Chains<B: Backend> {
    pub(super) running: BTreeMap<String, RunningChain<B>>,
    /// The reasons why chains differ from the configuration, by chain.
    pub(super) problems: BTreeMap<String, String>,
    /// Keys the hash tables of functions.
    pub(super) seed: u64,
    /// The number of chains added so far; it selects the first worker of the next chain.
    pub(super) added: usize,
    /// True if the hop board may hold hops of a chain.
    pub(super) had_any: bool,
}

impl<B: Backend> Chains<B> {
    pub(super) fn new(seed: u64) -> Chains<B> {
        Chains {
            running: BTreeMap::new(),
            problems: BTreeMap::new(),
            seed,
            added: 0,
            had_any: false,
        }
    }

    /// Returns the counters of all chains and their hops.
    pub(super) fn stats(&mut self) -> Vec<ChainStats> {
        self.running
            .values_mut()
            .map(|running| running.chain.stats())
            .collect()
    }
}

/// Returns the text of an error, with the next step if waiting does not help.
pub(super) fn explain(error: &ChainError) -> String {
    let next_step = match error {
        ChainError::Class { .. } => return error.to_string(),
        ChainError::Make { source, .. } => match source {
            MakeError::Unknown { .. } => "name another one under `function`",
            MakeError::Load { .. } => {
                "put a file there that is a function and that the daemon may load, or name another under `function`; it is \
                 tried again every 5 s"
            }
            MakeError::Setting { .. } => "correct the `settings` of the hop",
        },
    };
    format!("{error}. To fix it: {next_step}")
}

/// Returns true if a port belongs to a chain.
pub(super) fn is_of(port: &model::Port, chain: &str) -> bool {
    matches!(&port.device, model::Device::Chain(name) if name.as_str() == chain)
}

/// Returns the Unix time, in milliseconds, at which the workers' clock was zero.
pub(super) fn zero_unix_millis(now: Time) -> u64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH);
    let unix = unix.map_or(0, |unix| unix.as_millis() as u64);
    unix.saturating_sub(now.nanos() / 1_000_000)
}

/// Returns the plan of a configured chain; the error names the hop.
pub(super) fn plan_of(chain: &model::Chain) -> Result<ChainPlan, String> {
    let hop = |hop: &model::Hop| {
        let settings =
            Settings::parse(&hop.settings).map_err(|error| format!("hop {}: {error}", hop.name))?;
        Ok(HopPlan {
            name: hop.name.to_string(),
            function: hop.function.to_string(),
            class: match hop.class {
                model::HopClass::Inline => Class::Inline,
                model::HopClass::Ring => Class::Ring,
                model::HopClass::Isolated => Class::Isolated,
            },
            settings,
            limits: Limits {
                memory: hop.memory_mib.map(|mib| u64::from(mib.get()) << 20),
                fuel: hop.fuel.map(model::Fuel::get),
                burst_time: None,
            },
            weight: hop.weight.get(),
            cpu_percent: hop.cpu_percent.map(model::CpuPercent::get),
            instances: hop.instances.get(),
            on_failure: match hop.on_failure {
                model::OnFailure::Closed => OnFailure::Closed,
                model::OnFailure::Open => OnFailure::Open,
                model::OnFailure::Bypass => OnFailure::Bypass,
            },
            number: hop.number,
            steer: hop.steer,
            drained: hop.drained,
        })
    };
    Ok(ChainPlan {
        name: chain.name.to_string(),
        near: chain.number,
        far: chain.far_end(),
        lanes: chain.lanes.get(),
        spread: chain.spread.map(|spread| match spread {
            model::ChainSpread::Flow => Spread::Flow,
            model::ChainSpread::Addresses => Spread::Addresses,
        }),
        parallel: chain.parallel,
        hops: chain.hops.iter().map(hop).collect::<Result<_, String>>()?,
    })
}
