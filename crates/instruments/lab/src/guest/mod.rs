//! Guests: hosts that are virtual machines, with vhost-user NICs of a Millrace switch, or of Open vSwitch with DPDK.
//!
//! A guest boots Debian's cloud kernel with a small file system in memory that is built here from programs of the
//! machine: busybox, iperf3, ethtool, and the kernel's bridge as a forwarder. QEMU creates the sockets of its NICs and
//! the switch connects to them, so that guests keep running when the switch is killed, and reconnect when it is back.
//! Commands reach a guest over a serial line.

mod accelerator;
mod archive;
pub(crate) mod console;
mod image;
mod kernel;
mod machine;
mod script;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) use kernel::Kernel;
pub use machine::Accelerator;
use machine::{PROGRAM, machine};
pub use script::ScriptGuest;

use crate::directory::LabDirectory;
use crate::launch::{Daemon, Running, launch};
use crate::progress::Progress;
use crate::state::Journal;
use crate::system::SystemError;
use crate::topology::{Guest, Host, Machine, Topology};
use crate::up::{UpError, UpOptions};

/// The command line of a guest's kernel. Without `no_timer_check`, the kernel of an emulated guest panics if
/// this machine is so busy that the first timer interrupts are late ("IO-APIC + timer doesn't work").
const APPEND: &str = "console=ttyS0 quiet panic=-1 no_timer_check";

/// The role of a guest's process, and the name of its log.
const ROLE: &str = "qemu";
/// The time limit from the start of a guest until it accepts commands; emulation on a busy machine is slow.
const BOOT: Duration = Duration::from_secs(120);
/// The polling interval.
const LOOK: Duration = Duration::from_millis(50);

/// Returns the socket of a guest's interface, which QEMU creates.
pub(crate) fn nic_socket(directory: &LabDirectory, guest: &str, interface: &str) -> PathBuf {
    directory.node(guest).join(format!("{interface}.sock"))
}

/// Returns the socket of a guest's command line.
pub(crate) fn console_socket(directory: &LabDirectory, guest: &str) -> PathBuf {
    directory.node(guest).join("console.sock")
}

/// A started guest.
pub(crate) struct Started<'a> {
    host: &'a Host,
    running: Running,
    began: Instant,
}

/// Starts all guests of a lab. The guests boot only after the switch has connected to their NICs.
pub(crate) fn start<'a>(
    topology: &'a Topology,
    journal: &mut Journal,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Started<'a>>, UpError> {
    let guests = topology.hosts.iter().filter_map(|host| match &host.machine {
        Machine::Guest(guest) => Some((host, guest)),
        Machine::Namespace => None,
    });
    let guests: Vec<(&Host, &Guest)> = guests.collect();
    if guests.is_empty() {
        return Ok(Vec::new());
    }
    let kernel = Kernel::find()?;
    let accelerator = accelerator::choose(journal, &kernel, progress)?;
    let start = |(host, guest): (&'a Host, &Guest)| {
        let dir = journal.directory().node(&host.name);
        fs::create_dir_all(&dir).map_err(SystemError::file("create", &dir))?;
        let initrd = dir.join("initrd");
        let image = image::build(&kernel, &image::settings(host, guest, topology.quiet))?;
        fs::write(&initrd, image).map_err(SystemError::file("write", &initrd))?;
        let daemon = Daemon {
            switch: &host.name,
            role: ROLE,
            program: Path::new(PROGRAM),
            args: arguments(journal.directory(), host, guest, &kernel, &initrd, accelerator),
            environment: &[],
        };
        Ok(Started {
            host,
            running: launch(journal, &daemon)?,
            began: Instant::now(),
        })
    };
    guests.into_iter().map(start).collect()
}

/// Waits until a guest accepts commands.
pub(crate) fn wait(
    started: &Started<'_>,
    directory: &LabDirectory,
    options: &UpOptions,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(), UpError> {
    let guest = &started.host.name;
    let failed = |problem: String| UpError::Guest {
        guest: guest.clone(),
        problem,
        log: started.running.log.clone(),
        tail: started.running.tail(),
    };
    let socket = console_socket(directory, guest);
    let bound = BOOT.max(options.ready_within);
    loop {
        if let Some(status) = started.running.ended() {
            return Err(failed(format!("QEMU ended with {status}")));
        }
        let left = bound.saturating_sub(started.began.elapsed());
        if left.is_zero() {
            return Err(failed(format!("takes no commands after {} s", bound.as_secs())));
        }
        if console::is_ready(&socket, left.min(Duration::from_secs(1))) {
            progress(Progress::Guest {
                guest,
                took: started.began.elapsed(),
            });
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
}

fn arguments(
    directory: &LabDirectory,
    host: &Host,
    guest: &Guest,
    kernel: &Kernel,
    initrd: &Path,
    accelerator: Accelerator,
) -> Vec<OsString> {
    let mut args = machine(kernel, initrd, guest.memory_mib, accelerator);
    let console = console_socket(directory, &host.name);
    // The kernel's messages go to the log, which is the first serial line; the second one takes commands.
    for word in [
        "-append",
        APPEND,
        "-serial",
        "stdio",
        "-serial",
        &format!("unix:{},server=on,wait=off", console.display()),
    ] {
        args.push(word.into());
    }
    // Without KVM, QEMU 7.2 crashes when vhost starts with interrupt vectors (SIGSEGV in msix_set_vector_notifiers).
    let vectors = match accelerator {
        Accelerator::Kvm => "",
        Accelerator::Tcg => ",vectors=0",
    };
    for (number, interface) in host.interfaces.iter().enumerate() {
        let socket = nic_socket(directory, &host.name, &interface.name);
        for word in [
            "-chardev",
            &format!("socket,id=c{number},path={},server=on,wait=off", socket.display()),
            "-netdev",
            &format!("vhost-user,id=n{number},chardev=c{number}"),
            "-device",
            &format!("virtio-net-pci,netdev=n{number},mac={}{vectors}", interface.mac),
        ] {
            args.push(word.into());
        }
    }
    args
}
