//! The machine of a guest, as arguments of QEMU.

use std::ffi::OsString;
use std::path::Path;

use super::kernel::Kernel;

pub(super) const PROGRAM: &str = "qemu-system-x86_64";

/// The accelerator of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// Hardware virtualization.
    Kvm,
    /// Emulation by QEMU: valid for functional tests, not for measurements.
    Tcg,
}

impl Accelerator {
    /// Returns QEMU's name of the accelerator.
    pub fn keyword(self) -> &'static str {
        match self {
            Accelerator::Kvm => "kvm",
            Accelerator::Tcg => "tcg",
        }
    }
}

/// Returns the common arguments of every guest: a machine with the named devices only.
pub(super) fn machine(
    kernel: &Kernel,
    initrd: &Path,
    memory_mib: u32,
    accelerator: Accelerator,
) -> Vec<OsString> {
    let mut args: Vec<OsString> = Vec::new();
    let memory = format!("memory-backend-memfd,id=memory,size={memory_mib}M,share=on");
    let text = [
        "-accel",
        accelerator.keyword(),
        "-machine",
        "q35,memory-backend=memory",
        "-object",
        &memory,
        "-m",
        &format!("{memory_mib}M"),
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
        "-kernel",
    ];
    args.extend(text.map(OsString::from));
    args.push(kernel.image().into());
    args.push("-initrd".into());
    args.push(initrd.into());
    if accelerator == Accelerator::Kvm {
        args.extend(["-cpu", "host"].map(OsString::from));
    }
    args
}
