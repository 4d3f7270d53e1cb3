//! Cache, TLB and branch behaviour of Millrace on machines without hardware counters: `millraced` forwards the packets
//! of a case with one thread between memory devices, under callgrind. All results are marked as simulated.
//!
//! Three runs of the same work simulate different caches. In the first run, the last-level cache follows the
//! first level. In the second, the second-level cache follows the first level. In the third, the lines of the
//! caches are pages, so the caches are TLBs.

mod callgrind;
mod cost;
mod error;
mod model;
mod text;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use self::callgrind::{Caches, Output};
pub use self::cost::{FunctionCost, StageCost};
pub use self::error::SimulateError;
use self::error::failed;
pub use self::model::{Geometry, LIMITS, Model};
pub use self::text::text;
pub use self::text::{ComparisonRow, LINES};
use millrace_process::{Running, command_line, is_installed, version};

/// The number of times that each flow passes before counting: the cache of traversals stores a flow at the fifth
/// packet at the latest.
const PASSES_BEFORE: usize = 6;
/// The largest deviation of the share of a port from the share of a correct switch. The number of counted
/// packets is not a multiple of the number of flows, so the shares vary.
const SHARE_TOLERANCE: f64 = 0.02;
/// The folder in which the kernel describes the caches of the first core.
const CACHES: &str = "/sys/devices/system/cpu/cpu0/cache";

/// The name of the file with the flow entries, in the folder of a scenario.
pub const FLOWS: &str = "flows.txt";
/// The name of the capture file with the packets, in the folder of a scenario.
pub const PACKETS: &str = "packets.pcap";

/// The input of a simulated run.
#[derive(Debug, Clone, Copy)]
pub struct Scenario<'a> {
    /// The name of the case.
    pub case: &'a str,
    /// The title of the case.
    pub title: &'a str,
    /// The folder with the files [`FLOWS`] and [`PACKETS`].
    pub dir: &'a Path,
    /// The number of flow entries.
    pub entries: usize,
    /// The number of different packets.
    pub flows: usize,
    /// The shares of the packets that a correct switch sends to ports 2 and 3.
    pub shares: [f64; 2],
}

/// The result of a simulated run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Simulated {
    /// The label of the result: simulated, with the limits of the model.
    pub label: String,
    /// The system: `millrace`.
    pub system: String,
    /// The case of `bench forward`.
    pub case: String,
    /// The title of the case.
    pub title: String,
    /// The number of flow entries.
    pub entries: usize,
    /// The number of flows.
    pub flows: usize,
    /// The number of packets that were counted.
    pub packets: u64,
    /// The number of packets that were forwarded before the counted packets.
    pub warm_up: u64,
    /// The simulated processor.
    pub model: Model,
    /// The events of all packets.
    pub counts: Events,
    /// The structure of each table that has entries.
    pub tables: Vec<String>,
    /// The costs by stage, in the order of the packet path.
    pub stages: Vec<StageCost>,
    /// The functions with the most instructions, without their callees.
    pub functions: Vec<FunctionCost>,
    /// The commands that repeat the run, in a folder with `flows.txt` and `packets.pcap`.
    pub commands: Vec<String>,
}

/// The simulated events of all packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Events {
    pub instructions: u64,
    /// Instructions that read memory.
    pub data_reads: u64,
    /// Instructions that write to memory.
    pub data_writes: u64,
    /// Conditional and indirect branches.
    pub branches: u64,
    /// Mispredicted branches.
    pub branch_misses: u64,
    /// Instruction fetches that missed the first-level cache.
    pub l1i_misses: u64,
    /// Data reads that missed the first-level cache.
    pub l1d_read_misses: u64,
    /// Data writes that missed the first-level cache.
    pub l1d_write_misses: u64,
    /// Instruction fetches and data accesses that missed the second-level cache.
    pub l2_misses: u64,
    /// Instruction fetches and data accesses that missed the last-level cache.
    pub llc_misses: u64,
    /// Instruction fetches that missed the first-level TLB.
    pub itlb_misses: u64,
    /// Data accesses that missed the first-level TLB.
    pub dtlb_misses: u64,
    /// Accesses that missed the second-level TLB: page walks.
    pub page_walks: u64,
}

impl Events {
    /// Combines the events of the three runs.
    fn of(last: &Output, second: &Output, pages: &Output) -> Events {
        const MISSES: [&str; 3] = ["ILmr", "DLmr", "DLmw"];
        Events {
            instructions: last.total("Ir"),
            data_reads: last.total("Dr"),
            data_writes: last.total("Dw"),
            branches: last.sum(&["Bc", "Bi"]),
            branch_misses: last.sum(&["Bcm", "Bim"]),
            l1i_misses: last.total("I1mr"),
            l1d_read_misses: last.total("D1mr"),
            l1d_write_misses: last.total("D1mw"),
            l2_misses: second.sum(&MISSES),
            llc_misses: last.sum(&MISSES),
            itlb_misses: pages.total("I1mr"),
            dtlb_misses: pages.sum(&["D1mr", "D1mw"]),
            page_walks: pages.sum(&MISSES),
        }
    }

    /// Returns the number of data reads and writes.
    pub fn data_accesses(self) -> u64 {
        self.data_reads + self.data_writes
    }

    /// Returns the number of data accesses that missed the first-level cache.
    pub fn l1d_misses(self) -> u64 {
        self.l1d_read_misses + self.l1d_write_misses
    }
}

/// The output of `millraced --simulate`.
#[derive(Debug, Deserialize)]
struct SimulationOutput {
    packets: u64,
    warm_up: u64,
    sent: [u64; 3],
    simd: String,
    tables: Vec<String>,
}

/// Simulates a case. Each flow first passes several times; then `packets` packets are counted.
///
/// # Errors
/// [`SimulateError`].
pub fn simulate(
    scenario: &Scenario<'_>,
    millraced: &Path,
    packets: usize,
) -> Result<Simulated, SimulateError> {
    if !is_installed("valgrind") {
        return Err(SimulateError::Missing);
    }
    let dir = scenario.dir;
    let warm_up = (2 * packets).max(PASSES_BEFORE * scenario.flows);

    let tool = version("valgrind").unwrap_or_else(|| "valgrind".to_owned());
    let mut model = Model::of(Path::new(CACHES), format!("callgrind ({tool})"));
    let behind_first = |ll| Caches {
        i1: model.l1i,
        d1: model.l1d,
        ll,
    };
    let caches = [
        ("last", behind_first(model.llc)),
        ("second", behind_first(model.l2)),
        (
            "pages",
            Caches {
                i1: model.itlb,
                d1: model.dtlb,
                ll: model.stlb,
            },
        ),
    ];
    let program = |folder: &Path| {
        let mut program = Command::new(millraced);
        program.arg("--simulate").arg(folder);
        program.arg(format!("--simulate-packets={packets}"));
        program.arg(format!("--simulate-warm-up={warm_up}"));
        program
    };
    let mut running = Vec::new();
    for (name, caches) in caches {
        let out = dir.join(name);
        let command = callgrind::command(caches, &out, &program(dir));
        let log = dir.join(format!("{name}.log"));
        running.push((Running::start("valgrind", &command, 0, &log)?, out));
    }
    let (mut outputs, mut output) = (Vec::new(), String::new());
    for (mut running, out) in running {
        output = running.finish()?;
        let text = fs::read_to_string(&out).map_err(failed(&out))?;
        outputs.push(Output::parse(&text)?);
    }
    let [last, second, pages] = outputs.as_slice() else {
        return Err(SimulateError::NotCounted {
            millraced: millraced.to_owned(),
        });
    };
    // The output may also have warnings of valgrind.
    let line = output
        .lines()
        .find(|line| line.starts_with('{'))
        .unwrap_or(&output);
    let simulated: SimulationOutput = serde_json::from_str(line).map_err(|_| SimulateError::Output {
        millraced: millraced.to_owned(),
        text: line.chars().take(200).collect(),
    })?;
    if [last, second, pages].iter().any(|output| output.total("Ir") == 0) {
        return Err(SimulateError::NotCounted {
            millraced: millraced.to_owned(),
        });
    }
    check(scenario, &simulated)?;
    model.simd.clone_from(&simulated.simd);
    let named = |(name, caches)| {
        command_line(&callgrind::command(
            caches,
            Path::new(name),
            &program(Path::new(".")),
        ))
    };
    Ok(Simulated {
        label: format!("simulated, not measured: {LIMITS}"),
        system: "millrace".to_owned(),
        case: scenario.case.to_owned(),
        title: scenario.title.to_owned(),
        entries: scenario.entries,
        flows: scenario.flows,
        packets: simulated.packets,
        warm_up: simulated.warm_up,
        counts: Events::of(last, second, pages),
        tables: simulated.tables,
        stages: cost::stages(last),
        functions: cost::functions(last),
        commands: caches.map(named).to_vec(),
        model,
    })
}

/// Returns an error unless the packets left by the ports of a correct switch.
fn check(scenario: &Scenario<'_>, simulated: &SimulationOutput) -> Result<(), SimulateError> {
    let shares = scenario.shares;
    let [_, first, second] = simulated.sent;
    let is_right = [first, second].iter().zip(shares).all(|(sent, share)| {
        (*sent as f64 / simulated.packets.max(1) as f64 - share).abs() <= SHARE_TOLERANCE
    });
    match is_right {
        true => Ok(()),
        false => Err(SimulateError::WrongPorts {
            case: scenario.case.to_owned(),
            sent: simulated.sent,
            shares,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_leave_by_another_port_are_an_error() {
        let scenario = Scenario {
            case: "one-rule",
            title: "one entry",
            dir: Path::new("."),
            entries: 1,
            flows: 1,
            shares: [1.0, 0.0],
        };
        let simulated = |sent| SimulationOutput {
            packets: 1000,
            warm_up: 0,
            sent,
            simd: "avx2".to_owned(),
            tables: Vec::new(),
        };
        assert!(check(&scenario, &simulated([0, 1000, 0])).is_ok());
        let error = check(&scenario, &simulated([0, 0, 0])).unwrap_err().to_string();
        assert!(
            error.contains("one-rule") && error.contains("[1.0, 0.0]"),
            "{error}"
        );
    }
}
