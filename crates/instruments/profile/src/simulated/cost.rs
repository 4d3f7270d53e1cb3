//! Simulated events by stage and by function.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::callgrind::Output;
use crate::perf::Frame;
use crate::stage::{Stage, stage};

/// The number of functions that are kept.
const FUNCTIONS_MAX: usize = 40;

/// The cost of a stage of the packet path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageCost {
    /// The name of the stage.
    pub stage: String,
    /// The number of instructions.
    pub instructions: u64,
    /// The number of misses of the first-level data cache.
    pub l1d_misses: u64,
}

/// Instructions and cache misses of one function, as the simulated processor counts them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionCost {
    /// The name of the function.
    pub function: String,
    /// The name of its stage.
    pub stage: String,
    /// The number of instructions.
    pub instructions: u64,
    /// The number of misses of the first-level data cache.
    pub l1d_misses: u64,
}

const D1_MISSES: [&str; 2] = ["D1mr", "D1mw"];

/// The memory devices of the simulation: rings of packets in place of a NIC.
const DEVICES: (&str, [&str; 2]) = ("memory devices", ["crossbeam_queue::", "datapath::io::memory::"]);

/// Returns the stage of a function, and the name of the devices of the simulation, which are no stage of the switch; empty for
/// other functions.
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

/// Returns the name of a stage or of the devices.
fn name((stage, devices): (Stage, &str)) -> String {
    match devices {
        "" => stage.to_string(),
        devices => devices.to_owned(),
    }
}

/// Returns the costs by stage.
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

/// Returns the functions with the most instructions.
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
    fn the_cost_of_memory_devices_is_a_stage_of_its_own() {
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
