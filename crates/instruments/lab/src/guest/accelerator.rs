//! What runs a guest's instructions. `/dev/kvm` alone does not tell: on some machines a guest is begun under it and never
//! gets anywhere. So one is booted, with a bound, that ends as soon as it has started.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Kernel, PROGRAM, image, machine};
use crate::process::MARK;
use crate::progress::Progress;
use crate::state::Journal;
use crate::system::{SystemError, not_started};
use crate::up::UpError;

/// Decides without a trial: `kvm` or `tcg`.
const VARIABLE: &str = "MILLRACE_GUEST_ACCEL";
/// Under KVM a guest boots in a second or two.
const PATIENCE: Duration = Duration::from_secs(8);
const LOOK: Duration = Duration::from_millis(20);
const MEMORY_MIB: u32 = 128;

/// How a guest is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// By the processor.
    Kvm,
    /// By QEMU, instruction by instruction: good for showing that something works, and not for how fast it is.
    Tcg,
}

impl Accelerator {
    /// QEMU's word.
    pub fn word(self) -> &'static str {
        match self {
            Accelerator::Kvm => "kvm",
            Accelerator::Tcg => "tcg",
        }
    }
}

/// What guests run under on this machine.
pub(super) fn choose(
    journal: &Journal,
    kernel: &Kernel,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Accelerator, UpError> {
    let (accelerator, why) = match std::env::var(VARIABLE).as_deref() {
        Ok("kvm") => (Accelerator::Kvm, format!("{VARIABLE} says so")),
        Ok("tcg") => (Accelerator::Tcg, format!("{VARIABLE} says so")),
        _ => match OpenOptions::new().read(true).write(true).open("/dev/kvm") {
            Err(error) => (Accelerator::Tcg, format!("/dev/kvm: {error}")),
            Ok(_) if starts(journal, kernel)? => (Accelerator::Kvm, "a guest starts under it".to_owned()),
            Ok(_) => (
                Accelerator::Tcg,
                format!("no guest starts under KVM within {} s", PATIENCE.as_secs()),
            ),
        },
    };
    progress(Progress::Accelerator {
        accelerator,
        why: &why,
    });
    Ok(accelerator)
}

/// Whether a guest that ends at once ends within the bound.
fn starts(journal: &Journal, kernel: &Kernel) -> Result<bool, UpError> {
    let initrd = journal.place().node("probe.initrd");
    let image = image::build(kernel, image::PROBE)?;
    fs::write(&initrd, image).map_err(SystemError::file("write", &initrd))?;
    let ended = within(journal, kernel, &initrd);
    // Removed with the lab, if not now.
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
    let deadline = Instant::now() + PATIENCE;
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
    // It may have ended in between, which is what is wanted.
    let _ = child.kill();
    let _ = child.wait();
}
