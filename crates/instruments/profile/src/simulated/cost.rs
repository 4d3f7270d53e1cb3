//! Which stages and functions the simulated events belong to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::callgrind::Output;
use crate::perf::Frame;
use crate::stage::{Stage, stage};

/// How many functions are kept.
const FUNCTIONS_MAX: usize = 40;

/// What a stage of a packet's way costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageCost {
    /// Its name.
    pub stage: String,
    /// Instructions.
    pub instructions: u64,
    /// Data that were not in the first-level cache.
    pub l1d_misses: u64,
}

/// What a function costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionCost {
    /// Its name.
    pub function: String,
    /// The stage that it belongs to.
    pub stage: String,
    /// Instructions.
    pub instructions: u64,
    /// Data that were not in the first-level cache.
    pub l1d_misses: u64,
}

const D1_MISSES: [&str; 2] = ["D1mr", "D1mw"];

/// What feeds and drains the switch here: rings of packets that stand for a NIC's.
const DEVICES: (&str, [&str; 2]) = ("memory devices", ["crossbeam_queue::", "datapath::io::memory::"]);

/// The stage of a function; what belongs to the devices of the simulation is no stage of the switch.
fn stage_of(function: &str, object: &str) -> (Stage, &'static str) {
    let (devices, parts) = DEVICES;
    if parts.iter().any(|part| function.contains(part)) {
        return (Stage::Other, devices);
    }
    let frame = Frame {
        symbol: function.to_owned(),
        object: object.to_owned(),
    };
    (stage(&[frame]), "")
}

/// Its name.
fn name((stage, devices): (Stage, &str)) -> String {
    match devices {
        "" => stage.to_string(),
        devices => devices.to_owned(),
    }
}

pub(super) fn stages(output: &Output) -> Vec<StageCost> {
    let mut sums: BTreeMap<(Stage, &str), (u64, u64)> = BTreeMap::new();
    for (function, object, instructions, misses) in output.functions(&["Ir"], &D1_MISSES) {
        let sum = sums.entry(stage_of(function, object)).or_default();
        *sum = (sum.0 + instructions, sum.1 + misses);
    }
    sums.into_iter()
        .filter(|(_, sum)| sum.0 > 0)
        .map(|(stage, (instructions, l1d_misses))| StageCost {
            stage: name(stage),
            instructions,
            l1d_misses,
        })
        .collect()
}

pub(super) fn functions(output: &Output) -> Vec<FunctionCost> {
    let mut functions: Vec<FunctionCost> = output
        .functions(&["Ir"], &D1_MISSES)
        .map(|(function, object, instructions, l1d_misses)| FunctionCost {
            function: function.to_owned(),
            stage: name(stage_of(function, object)),
            instructions,
            l1d_misses,
        })
        .collect();
    functions.sort_by(|a, b| {
        b.instructions
            .cmp(&a.instructions)
            .then(a.function.cmp(&b.function))
    });
    functions.truncate(FUNCTIONS_MAX);
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_devices_of_the_simulation_cost_is_not_the_switchs() {
        let output = Output::parse(
            "events: Ir D1mr D1mw\nob=/x\nfn=crossbeam_queue::array_queue::ArrayQueue<T>::pop\n0 50 1\n\
            fn=<millrace_datapath::io::memory::Rx<P> as millrace_datapath::io::RxQueue<P>>::rx_burst\n0 30 0 2\n\
            fn=millrace_flow::classify::hash::find\n0 20 4\ntotals: 100 5 2\n",
        )
        .unwrap();
        let found: Vec<(String, u64, u64)> = stages(&output)
            .into_iter()
            .map(|stage| (stage.stage, stage.instructions, stage.l1d_misses))
            .collect();
        assert_eq!(
            found,
            [
                ("lookup: hash".to_owned(), 20, 4),
                ("memory devices".to_owned(), 80, 3)
            ]
        );
        assert_eq!(functions(&output)[0].stage, "memory devices");
    }
}
