//! Descriptions of functions that only their own process loads: a process prints the description.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::Ordering;

use millrace_nf::{Description, Kind, SettingError};
use millrace_types::{Duration, Time};
use parking_lot::Mutex;

use super::output::summary;
use super::watch::{POLL_INTERVAL, Process, millis};
use super::{command, release, users};
use crate::cgroup;
use crate::plan::HopPlan;

/// Time limit for a description. Time in which the process could not run does not count.
const DESCRIBE: Duration = Duration::from_secs(5);
/// Interval at which the end of the process is polled.
const DESCRIBE_POLL: Duration = Duration::from_millis(5);
/// Maximum size of standard output and of standard error, in bytes each; the rest is not read.
const DESCRIBE_MAX: u64 = 64 << 10;

/// Kinds by their descriptions. A kind stays in memory until the program ends.
static DESCRIBED: Mutex<BTreeMap<String, &'static Kind>> = Mutex::new(BTreeMap::new());

/// Returns the kind of a function that only its own process loads. A process creates the function with its
/// settings, and prints its description. The process has the same rights as the one that will run the function.
///
/// # Errors
/// The reason that the process gives, or the kernel's error.
pub(crate) fn describe(program: &Path, plan: &HopPlan) -> Result<&'static Kind, String> {
    let failed = |error: io::Error| format!("{}: {error}", program.display());
    // The user id stays in use until the process has ended.
    let user = users::allocate().map_err(|error| error.to_string())?;
    let mut command = command(program, plan, user.as_ref());
    command
        .arg("--describe")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let (group, mut limits) = cgroup::for_function(plan, false);
    let mut child = command.spawn().map_err(failed)?;
    release(&mut child, &group, &mut limits, None);
    let process = match Process::of(&child, Vec::new()) {
        Ok(process) => process,
        Err(error) => {
            end(&mut child).map_err(failed)?;
            return Err(failed(error));
        }
    };
    let (mut now, mut polled) = (Time::ZERO, std::time::Instant::now());
    let status = loop {
        match child.try_wait().map_err(failed)? {
            Some(status) => break status,
            None if process.chances.load(Ordering::Relaxed) < millis(DESCRIBE) => {
                std::thread::sleep(DESCRIBE_POLL);
                // If this thread could not run either, little of that time counts.
                now = now + polled.elapsed().min(POLL_INTERVAL);
                polled = std::time::Instant::now();
                process.look(now);
            }
            None => {
                end(&mut child).map_err(failed)?;
                return Err(format!("it does not describe itself within {DESCRIBE:?}"));
            }
        }
    };
    let (mut text, mut problem) = (String::new(), String::new());
    let both = [
        (
            child
                .stdout
                .take()
                .map(|pipe| Box::new(pipe) as Box<dyn io::Read>),
            &mut text,
        ),
        (
            child
                .stderr
                .take()
                .map(|pipe| Box::new(pipe) as Box<dyn io::Read>),
            &mut problem,
        ),
    ];
    for (pipe, output) in both {
        if let Some(pipe) = pipe {
            let mut bytes = Vec::new();
            let _as_much_as_came = pipe.take(DESCRIBE_MAX).read_to_end(&mut bytes);
            *output = String::from_utf8_lossy(&bytes).into_owned();
        }
    }
    if !status.success() {
        let text = summary(&problem);
        return Err(match text.is_empty() {
            true => format!("it cannot describe itself: {status}"),
            false => text,
        });
    }
    let description = Description::parse(&text).map_err(|error| error.to_string())?;
    let mut described = DESCRIBED.lock();
    Ok(described.entry(text).or_insert_with(|| {
        description.into_kind(Box::new(|_| {
            Err(SettingError::Refused {
                reason: "only its own process loads it".to_owned(),
            })
        }))
    }))
}

/// Kills a process, and waits for its end.
fn end(child: &mut Child) -> io::Result<()> {
    child.kill()?;
    child.wait()?;
    Ok(())
}
