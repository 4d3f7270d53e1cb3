//! netem compared with the emulator, in a guest on Debian's cloud kernel, whose package has `sch_netem`.
//!
//! ```text
//!   load.c --> h1 ---veth--- m1 [ netem behind a bridge, or millrace-wan ] m2 ---veth--- h2
//!                            '-- capture                                                 '-- capture
//! ```
//!
//! Both systems get the same options as the same text (`millrace-wan --netem`), the same load, and the same judges. The guest's
//! clock counts its instructions ([`ScriptGuest`]): delays are exact though the guest is emulated, and other load on this machine
//! does not change them. Speed is not compared: an instruction of the guest takes 1 ns, whatever it does.

mod cases;
mod observed;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use millrace_lab::ScriptGuest;
use millrace_process::{Running, is_installed, run_tool};

use self::cases::{BASELINE, CASES, Figure, INTERVAL_US, LONGEST_MS};
use self::observed::Observed;
use super::error::WanBenchError;
use super::recorder::Recorder;
use crate::file_error::file;
use crate::gated::Gate;
use crate::gated::recorder::{Case, case};
use crate::record::Record;

/// The source of the program that sends and captures in the guest.
const LOAD: &str = include_str!("load.c");
/// The modules of the guest, in dependency order.
const MODULES: [&str; 5] = [
    "drivers/net/veth.ko",
    "net/llc/llc.ko",
    "net/802/stp.ko",
    "net/bridge/bridge.ko",
    "net/sched/sch_netem.ko",
];
/// The memory of the guest in MiB: its file system, the emulator's path and the captures.
const MEMORY_MIB: u32 = 1024;
/// The time limit of the guest; it needs some minutes on a busy machine.
const WITHIN: Duration = Duration::from_secs(1800);
/// The nice level of the guest. Its clock counts instructions, so waiting for the processor does not disturb
/// it.
const NICE: i32 = 10;
/// The queue limit of netem in packets, unless a case sets another limit.
const LIMIT: &str = "limit 100000";
/// The programs that the measurement needs, and their packages.
const PROGRAMS: [&str; 5] = ["qemu-system-x86_64", "busybox", "ip", "tc", "cc"];

/// The systems: the kernel's netem behind a bridge, and `millrace-wan`.
const SYSTEMS: [&str; 2] = ["netem", "millrace-wan"];

/// Measures all cases.
pub(super) fn run(recorder: &mut Recorder<'_>, program: &Path) -> Result<(), WanBenchError> {
    if let Some(reason) = obstacle(program) {
        let rows = SYSTEMS.into_iter().flat_map(|system| {
            let figures = CASES
                .iter()
                .flat_map(|of| of.figures.iter().map(move |figure| (of, *figure)));
            figures.map(move |(of, figure)| row(system, of, figure))
        });
        return recorder.all_missing(rows, &reason);
    }
    let frames = recorder.length.guest_frames;
    let folder = tempfile::tempdir().map_err(file(Path::new("/tmp")))?;
    let load = compiled(folder.path())?;
    let mut guest = ScriptGuest {
        programs: vec![load, program.to_owned()],
        modules: MODULES.to_vec(),
        script: script(frames, program),
        memory_mib: MEMORY_MIB,
        ..ScriptGuest::default()
    };
    guest
        .programs
        .extend(["ip", "tc"].iter().filter_map(|name| installed(name)));
    guest.files.extend(table("normal"));
    let output = output(&guest, folder.path())?;
    let version = output.lines().find_map(|line| line.strip_prefix("KERNEL "));
    recorder.log(Record::System {
        system: "netem in a guest".to_owned(),
        version: version.map(|text| text.trim().to_owned()),
        configuration: "emulated processor, 1 ns for each instruction".to_owned(),
    })?;
    let runs = runs(&output, frames);
    for system in SYSTEMS {
        record(recorder, system, &runs)?;
    }
    Ok(())
}

/// Returns the reason why the guest cannot be used; `None` if it can.
fn obstacle(program: &Path) -> Option<String> {
    if let Some(missing) = PROGRAMS.iter().find(|program| !is_installed(program)) {
        return Some(format!(
            "{missing} is not installed. To fix it: scripts/setup.sh guests"
        ));
    }
    (!program.is_file()).then(|| {
        format!(
            "millrace-wan does not exist at {}. To fix it: make build, or name it with --program",
            program.display()
        )
    })
}

/// Returns the path of an installed program.
fn installed(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(Path::new);
    folders
        .into_iter()
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// Returns the path of the table file of a delay distribution, which `tc` reads.
fn table(distribution: &str) -> Option<PathBuf> {
    let folders = ["/usr/lib/tc", "/usr/lib/x86_64-linux-gnu/tc", "/usr/share/tc"].map(Path::new);
    let name = format!("{distribution}.dist");
    folders
        .into_iter()
        .map(|folder| folder.join(&name))
        .find(|path| path.is_file())
}

/// Compiles the load for the guest, statically, and returns its path.
fn compiled(folder: &Path) -> Result<PathBuf, WanBenchError> {
    let (source, program) = (folder.join("load.c"), folder.join("load"));
    fs::write(&source, LOAD).map_err(file(&source))?;
    let mut command = Command::new("cc");
    command.args(["-O2", "-static", "-o"]).arg(&program).arg(&source);
    run_tool(&mut command)?;
    Ok(program)
}

/// Returns the output of the guest's script.
fn output(guest: &ScriptGuest, folder: &Path) -> Result<String, WanBenchError> {
    let command = guest.command(folder)?;
    let mut running = Running::start("qemu-system-x86_64", &command, NICE, &folder.join("console"))?;
    let ended = running.wait_for("the end of its script", WITHIN, |running| {
        Ok(ScriptGuest::script_output(&running.log()).map(str::to_owned))
    });
    match ended {
        Ok(output) => Ok(output),
        // QEMU ends right after the script.
        Err(error) => ScriptGuest::script_output(&running.log())
            .map(str::to_owned)
            .ok_or_else(|| error.into()),
    }
}

/// Returns the settings of all runs by their numbers: the baseline, and the cases.
fn settings() -> impl Iterator<Item = (usize, &'static str, &'static [&'static str])> {
    let none: &[&str] = &[];
    let cases = CASES.iter().map(|case| (case.netem, case.more));
    std::iter::once((BASELINE, none))
        .chain(cases)
        .enumerate()
        .map(|(number, (netem, more))| (number, netem, more))
}

/// Returns the script of the guest. Each run prints its number and its system, then a line for each frame.
fn script(frames: usize, program: &Path) -> String {
    let program = program.file_name().unwrap_or_default().to_string_lossy();
    let load = format!("/programs/load h1 m1 h2 {frames} {INTERVAL_US} {LONGEST_MS}");
    let mut text = String::from(
        "echo KERNEL $(uname -r)\n\
         /programs/ip link add h1 type veth peer name m1\n\
         /programs/ip link add m2 type veth peer name h2\n\
         for each in h1 m1 m2 h2; do /programs/ip link set $each up; done\n\
         /programs/ip link add br0 type bridge\n\
         for each in m1 m2; do /programs/ip link set $each master br0; done\n\
         /programs/ip link set br0 up\n",
    );
    for (number, netem, more) in settings() {
        if !more.is_empty() {
            continue;
        }
        let limit = if netem.contains("limit") { "" } else { LIMIT };
        text += &format!(
            "echo RUN {number} {}\n\
             /programs/tc qdisc add dev m2 root netem {limit} {netem} && {load}\n\
             /programs/tc qdisc del dev m2 root\n",
            SYSTEMS[0]
        );
    }
    text += "/programs/ip link del br0\n";
    for (number, netem, more) in settings() {
        text += &format!(
            "echo RUN {number} {}\n\
             /programs/{program} between m1 m2 --memory 32MiB --seed 1 --control /tmp/{number} --netem '{netem}' {} >/dev/null & emulator=$!\n\
             tries=0; while [ ! -S /tmp/{number} ] && [ $tries -lt 1000 ]; do sleep 0.01; tries=$((tries + 1)); done\n\
             {load}\n\
             kill $emulator; wait $emulator\n",
            SYSTEMS[1],
            more.join(" "),
        );
    }
    text + "echo RUN end\n"
}

/// Returns the result of each run by its number and system: the observed frames, or the reason why they
/// cannot be read.
fn runs(output: &str, frames: usize) -> HashMap<(usize, &str), Result<Observed, String>> {
    let sections = output.split("RUN ").skip(1);
    sections
        .filter_map(|section| {
            let (title, lines) = section.split_once('\n')?;
            let (number, system) = title.trim_end().split_once(' ')?;
            Some(((number.parse().ok()?, system), Observed::parse(lines, frames)))
        })
        .collect()
}

/// Returns the row of a figure. Rows of netem have no gate: they are for comparison.
fn row(system: &str, of: &cases::Case, figure: Figure) -> Case {
    let (quantity, asked, gate, unit) = figure.row(of.netem);
    let gate = if system == SYSTEMS[1] { gate } else { Gate::None };
    let name = format!("W5 in a guest, {}: {quantity}, {system}", of.text());
    case(name, asked, gate, unit)
}

/// Records the figures of a system.
fn record(
    recorder: &mut Recorder<'_>,
    system: &str,
    runs: &HashMap<(usize, &str), Result<Observed, String>>,
) -> Result<(), WanBenchError> {
    let run = |number: usize| match runs.get(&(number, system)) {
        Some(Ok(observed)) => Ok(observed),
        Some(Err(reason)) => Err(reason.as_str()),
        None => Err("the guest did not measure it"),
    };
    let baseline = run(0).and_then(|observed| {
        let mut delays: Vec<f64> = observed.delays_ms().collect();
        delays.sort_by(f64::total_cmp);
        match delays.is_empty() {
            true => Err("no frame arrived without delay"),
            false => Ok(millrace_report::stats::quantile(&delays, 0.5)),
        }
    });
    for (number, of) in (1..).zip(&CASES) {
        let observed = match (system == SYSTEMS[0], of.more.is_empty()) {
            (true, false) => Err("netem has no such option: its jitter reorders"),
            _ => run(number),
        };
        for figure in of.figures {
            let row = row(system, of, *figure);
            match (observed, baseline) {
                (Ok(observed), Ok(baseline)) => match figure.value(observed, baseline) {
                    Some(value) => recorder.value(&row, 0, value)?,
                    None => {
                        let (lost, all) = (observed.lost_count(), observed.len());
                        recorder.missing(
                            &row,
                            &format!("too few frames to judge: {lost} of {all} were lost"),
                        )?;
                    }
                },
                (Err(reason), _) | (_, Err(reason)) => recorder.missing(&row, reason)?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_systems_get_the_same_options_and_netem_a_limit_that_is_long_enough() {
        let text = script(100, Path::new("/x/millrace-wan"));
        assert!(text.contains("netem limit 100000 delay 50ms 5ms 50% distribution normal && "));
        assert!(text.contains("--netem 'delay 50ms 5ms 50% distribution normal' "));
        assert!(
            text.contains("netem  limit 20 delay 50ms && ") && text.contains("--netem 'limit 20 delay 50ms'")
        );
        assert!(text.contains("--netem 'delay 50ms 5ms distribution normal' --order ordered >/dev/null &"));
    }

    #[test]
    fn the_options_of_all_cases_are_known_to_the_emulator() {
        for (_, netem, _) in settings() {
            let parsed = millrace_wan_emulator::netem::parse(netem);
            assert!(parsed.is_ok(), "{netem}: {parsed:?}");
        }
    }

    #[test]
    fn runs_are_found_by_number_and_system_and_one_that_failed_has_its_reason() {
        let output = "KERNEL 6.1\nRUN 0 netem\n0 5\nRUN 1 netem\nError: Unknown qdisc\nRUN 0 millrace-wan\n0 -\nRUN end\n";
        let runs = runs(output, 1);
        assert_eq!(runs.len(), 3);
        assert_eq!(runs[&(0, "netem")], Observed::parse("0 5", 1));
        assert!(
            runs[&(1, "netem")]
                .as_ref()
                .unwrap_err()
                .contains("Unknown qdisc")
        );
        assert_eq!(runs[&(0, "millrace-wan")].as_ref().unwrap().lost_count(), 1);
    }
}
