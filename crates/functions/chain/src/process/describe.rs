//! Functions that only their process may load say there what they are.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};

use millrace_nf::{Description, Kind, SettingError};

use super::output::summary;
use super::{command, let_in, users};
use crate::cgroup;
use crate::plan::HopPlan;

/// How long a function may take to say what it is.
const DESCRIBE: std::time::Duration = std::time::Duration::from_secs(5);
/// How often is looked whether it has.
const DESCRIBE_LOOK: std::time::Duration = std::time::Duration::from_millis(5);
/// Bytes of what it says that are read.
const DESCRIBE_MAX: u64 = 64 << 10;

/// What was described already, by the text: a kind stays for as long as the program.
static DESCRIBED: Mutex<BTreeMap<String, &'static Kind>> = Mutex::new(BTreeMap::new());

/// Has a function that only its process may load say what it is, and be made with its settings, in a process that has no
/// more rights than the one that will run it.
///
/// # Errors
/// What is wrong with it, in its own words.
pub(crate) fn describe(program: &Path, plan: &HopPlan) -> Result<&'static Kind, String> {
    let failed = |error: io::Error| format!("{}: {error}", program.display());
    // Until the process has ended.
    let user = users::allocate().map_err(|error| error.to_string())?;
    let mut command = command(program, plan, user.as_ref());
    command
        .arg("--describe")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let (group, mut limits) = cgroup::for_function(plan);
    let mut child = command.spawn().map_err(failed)?;
    let_in(&mut child, &group, &mut limits);
    let began = std::time::Instant::now();
    let status = loop {
        match child.try_wait().map_err(failed)? {
            Some(status) => break status,
            None if began.elapsed() < DESCRIBE => std::thread::sleep(DESCRIBE_LOOK),
            None => {
                child.kill().map_err(failed)?;
                child.wait().map_err(failed)?;
                return Err(format!("it does not say within {DESCRIBE:?} what it is"));
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
    for (pipe, said) in both {
        if let Some(pipe) = pipe {
            let mut bytes = Vec::new();
            let _as_much_as_came = pipe.take(DESCRIBE_MAX).read_to_end(&mut bytes);
            *said = String::from_utf8_lossy(&bytes).into_owned();
        }
    }
    if !status.success() {
        let text = summary(&problem);
        return Err(match text.is_empty() {
            true => format!("it cannot say what it is: {status}"),
            false => text,
        });
    }
    let description = Description::parse(&text).map_err(|error| error.to_string())?;
    let mut described = DESCRIBED.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(described.entry(text).or_insert_with(|| {
        description.into_kind(Box::new(|_| {
            Err(SettingError::Refused {
                reason: "it is loaded by its process alone".to_owned(),
            })
        }))
    }))
}
