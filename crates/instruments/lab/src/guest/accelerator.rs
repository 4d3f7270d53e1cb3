//! Selection of the accelerator of guests. The presence of `/dev/kvm` does not suffice: on some machines a guest
//! starts under KVM and makes no progress. Therefore a trial guest that ends right after its start is booted with a
//! time limit.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::image;
use super::kernel::Kernel;
use super::machine::{Accelerator, PROGRAM, machine};
use crate::process::MARK;
use crate::progress::Progress;
use crate::state::Journal;
use crate::system::{SystemError, not_started};
use crate::up::UpError;

/// The environment variable that selects `kvm` or `tcg` without a trial.
const VARIABLE: &str = "MILLRACE_GUEST_ACCEL";
/// The time limit of the trial; under KVM a guest boots in one to two seconds.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(8);
const LOOK: Duration = Duration::from_millis(20);
const MEMORY_MIB: u32 = 128;

/// Returns the accelerator of guests on this machine, and the reason.
pub(super) fn choose(
    journal: &Journal,
    kernel: &Kernel,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Accelerator, UpError> {
    let (accelerator, why) = match std::env::var(VARIABLE).as_deref() {
        Ok("kvm") => (Accelerator::Kvm, format!("set by {VARIABLE}")),
        Ok("tcg") => (Accelerator::Tcg, format!("set by {VARIABLE}")),
        _ => match OpenOptions::new().read(true).write(true).open("/dev/kvm") {
            Err(error) => (Accelerator::Tcg, format!("/dev/kvm: {error}")),
            Ok(_) if starts(journal, kernel)? => (Accelerator::Kvm, "a guest starts under it".to_owned()),
            Ok(_) => (
                Accelerator::Tcg,
                format!("no guest starts under KVM within {} s", TRIAL_TIMEOUT.as_secs()),
            ),
        },
    };
    progress(Progress::Accelerator {
        accelerator,
        why: &why,
    });
    Ok(accelerator)
}

/// Returns true if a trial guest ends within the time limit.
fn starts(journal: &Journal, kernel: &Kernel) -> Result<bool, UpError> {
    let initrd = journal.directory().node("probe.initrd");
    let image = image::build(kernel, image::PROBE)?;
    fs::write(&initrd, image).map_err(SystemError::file("write", &initrd))?;
    let ended = within(journal, kernel, &initrd);
    // If this removal fails, the file is removed with the lab.
    let _ = fs::remove_file(&initrd);
    ended
}

fn within(journal: &Journal, kernel: &Kernel, initrd: &Path) -> Result<bool, UpError> {
    let mut command = Command::new(PROGRAM);
    command
        .args(machine(kernel, initrd, MEMORY_MIB, Accelerator::Kvm))
        .args(["-append", "quiet panic=-1"])
        .env(MARK, &journal.state.mark)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| not_started(&command, &error))?;
    let deadline = Instant::now() + TRIAL_TIMEOUT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.success()),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(LOOK),
            _ => {
                end(&mut child);
                return Ok(false);
            }
        }
    }
}

fn end(child: &mut Child) {
    // The process may already have ended, so errors are ignored.
    let _ = child.kill();
    let _ = child.wait();
}
