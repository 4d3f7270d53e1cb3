//! Gate N13: the mode `auto` on each case of `forward` and `hostile`, behind an ideal device, beside a switch without offload.

use std::path::Path;
use std::process::Command;

use super::Recorder;
use crate::case::EXPERIMENTS;
use crate::gated::Gate;
use crate::gated::program::{ProgramError, said, value_of};
use crate::gated::recorder::case;
use crate::workload::{Sizes, Workload};

/// The seed of the workloads.
const SEED: u64 = 13;
/// The experiments whose cases are measured.
const NAMES: [&str; 2] = ["forward", "hostile"];
/// The share of the rate without offload that `auto` must reach.
const SHARE: f64 = 0.98;

/// Measures each case once in each round.
pub(super) fn measure(
    recorder: &mut Recorder<'_>,
    examples: &Path,
    round: usize,
) -> Result<(), ProgramError> {
    let asked =
        "measured: auto / off in turn in one process, one worker, ideal device that copies each frame";
    let cases = EXPERIMENTS
        .iter()
        .filter(|experiment| NAMES.contains(&experiment.name))
        .flat_map(|experiment| experiment.cases);
    for wanted in cases {
        let row = case(
            format!("N13 {}: auto / off", wanted.name),
            asked,
            Gate::AtLeast(SHARE),
            "",
        );
        let workload = Workload::new(wanted.shape, SEED).repeated(wanted.packets_min);
        let text = written(&workload).map(|folder| {
            let mut command = Command::new(examples.join("governor"));
            command.arg(folder.path().join("flows"));
            command.arg(folder.path().join("packets.pcap"));
            command.arg(recorder.length.governed_seconds.to_string());
            said(&mut command)
        });
        let text = match text {
            Ok(text) => text?,
            Err(error) => Err(format!("the workload cannot be written: {error}")),
        };
        match text.as_deref().map(|text| value_of(text, "auto / off")) {
            Ok(Some(ratio)) => recorder.value(&row, round, ratio)?,
            Ok(None) => recorder.missing(&row, "governor did not print it")?,
            Err(reason) => {
                let build = "cargo build --release -p millrace-datapath --example governor";
                recorder.missing(&row, &format!("{reason}. To fix it: {build}"))?;
            }
        }
    }
    Ok(())
}

/// Returns a folder with the flow entries and the packets of a workload.
fn written(workload: &Workload) -> std::io::Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("flows"), workload.lines())?;
    workload.write_packets(&folder.path().join("packets.pcap"), &Sizes::SMALLEST, SEED)?;
    Ok(folder)
}
