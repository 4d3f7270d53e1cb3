//! A guest that runs one script and ends, for experiments with a kernel other than this machine's.
//!
//! Such a guest is always emulated, and its clock counts its instructions (QEMU, "TCG Instruction Counting").
//! An instruction takes 1 ns. While all processes of the guest sleep, the clock jumps to the next timer.
//! Times that the guest measures therefore do not depend on the speed and the load of this machine.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::image::{Image, installed};
use super::{Accelerator, Kernel, PROGRAM, machine};
use crate::system::SystemError;
use crate::up::UpError;

/// The package of the shell of the guest.
const BUSYBOX: (&str, &str) = ("busybox", "busybox-static");
/// The last line of the output of a script that ended.
const END: &str = "[end of the script]";

/// A guest without network interfaces that runs a script.
#[derive(Debug, Clone, Default)]
pub struct ScriptGuest {
    /// The programs of this machine, which the guest has below `/programs` with their shared libraries.
    pub programs: Vec<PathBuf>,
    /// The files of this machine, which the guest has at the same paths.
    pub files: Vec<PathBuf>,
    /// The modules in dependency order, by their paths below `kernel/`.
    pub modules: Vec<&'static str>,
    /// The script for busybox's shell. The output of the script is the output of the guest.
    pub script: String,
    /// The memory in MiB.
    pub memory_mib: u32,
}

impl ScriptGuest {
    /// Writes the file system of the guest to `directory`, and returns the command that starts QEMU. The
    /// command outputs what the guest outputs.
    ///
    /// # Errors
    /// [`UpError::NoKernel`], or a program or a module is missing.
    pub fn command(&self, directory: &Path) -> Result<Command, UpError> {
        let kernel = Kernel::find()?;
        let qemu = installed(PROGRAM, "qemu-system-x86")?;
        let mut image = Image::new();
        image.program(&installed(BUSYBOX.0, BUSYBOX.1)?, "bin/busybox")?;
        for program in &self.programs {
            let name = program.file_name().unwrap_or_default().to_string_lossy();
            image.program(program, &format!("programs/{name}"))?;
        }
        for file in &self.files {
            image.file(file, &file.to_string_lossy())?;
        }
        for module in &self.modules {
            image.module(&kernel, module)?;
        }
        let init = self.init(&image.insert);
        let initrd = directory.join("initrd");
        fs::write(&initrd, image.finish(&init)?).map_err(SystemError::file("write", &initrd))?;
        let mut command = Command::new(qemu);
        command
            .args(machine(&kernel, &initrd, self.memory_mib, Accelerator::Tcg))
            .args(ScriptGuest::own_arguments());
        Ok(command)
    }

    /// Returns the output of the script; `None` if `output` does not contain the script's end.
    pub fn script_output(output: &str) -> Option<&str> {
        output.rsplit_once(END).map(|(before, _)| before)
    }

    /// Returns the QEMU arguments that only a script guest has: a processor with all features that QEMU can
    /// emulate, the clock that counts instructions, and one serial line.
    fn own_arguments() -> [OsString; 10] {
        [
            "-cpu",
            "max",
            "-icount",
            "shift=0,sleep=off",
            "-rtc",
            "clock=vm",
            "-serial",
            "stdio",
            "-append",
            "console=ttyS0 quiet panic=-1 no_timer_check ipv6.disable=1",
        ]
        .map(OsString::from)
    }

    /// Returns the script that the kernel starts.
    fn init(&self, insert: &str) -> String {
        format!(
            "#!/bin/busybox sh\n\
             /bin/busybox --install -s\n\
             export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/ TMPDIR=/tmp\n\
             mount -t proc proc /proc\n\
             mount -t sysfs sys /sys\n\
             mount -t devtmpfs dev /dev\n\
             ip link set lo up\n\
             {insert}{}\n\
             echo '{END}'\n\
             poweroff -f\n",
            self.script
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_script_that_did_not_end_is_none() {
        assert_eq!(ScriptGuest::script_output("one\ntwo\n"), None);
        let ended = format!("one\ntwo\n{END}\n[ 1.0] reboot: Power down\n");
        assert_eq!(ScriptGuest::script_output(&ended), Some("one\ntwo\n"));
    }

    #[test]
    fn modules_are_inserted_before_the_script_and_the_guest_ends_after_it() {
        let guest = ScriptGuest {
            script: "echo hello".to_owned(),
            ..ScriptGuest::default()
        };
        let init = guest.init("insmod /modules/veth.ko\n");
        let at = |text: &str| init.find(text).unwrap();
        assert!(at("insmod") < at("echo hello") && at("echo hello") < at(END) && at(END) < at("poweroff"));
    }
}
