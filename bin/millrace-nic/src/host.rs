//! The host side: the socket, and one driver at a time.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use millrace_datapath::io::{SocketAccess, SocketFile};
use millrace_nic::connection::{Received, receive, send_memory};
use millrace_nic::memory::{Layout, Memory};
use millrace_nic_model::{Fault, SoftwareNic};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};

use crate::rtl::Simulator;

/// Number of polls after which the sockets are looked at.
const POLLS: u32 = 256;
/// Maximum number of frames that one call of [`Host::transmit`] takes: a burst.
const FRAMES_MAX: usize = 64;

/// The socket, and the driver that is connected.
pub(crate) struct Host {
    listener: OwnedFd,
    layout: Layout,
    driver: Option<Driver>,
    polls: u32,
    buffer: Vec<u8>,
    /// The simulator of the RTL, and the file of its input.
    rtl: Option<(PathBuf, Option<PathBuf>)>,
    /// Removes the socket file when it is dropped.
    _file: SocketFile,
}

struct Driver {
    nic: SoftwareNic,
    socket: OwnedFd,
    /// The number of wrong numbers that the log has.
    violations: u64,
}

impl Host {
    pub(crate) fn listen(path: &Path, layout: Layout) -> Result<Host> {
        let access = SocketAccess {
            owner: None,
            group: None,
            mode: 0o600,
        };
        let (listener, file) =
            open_listener(path, &access).with_context(|| format!("--socket {}", path.display()))?;
        Ok(Host {
            listener,
            layout,
            driver: None,
            polls: 0,
            buffer: Vec::new(),
            rtl: None,
            _file: file,
        })
    }

    /// Runs the simulator of the RTL beside the model from the next driver on. Its input is written to `records`.
    pub(crate) fn compare_with(&mut self, program: &Path, records: Option<&Path>) {
        self.rtl = Some((program.to_owned(), records.map(Path::to_owned)));
    }

    /// Sets the fault of the device from now on, or ends it.
    pub(crate) fn set_fault(&mut self, fault: Option<Fault>) {
        if let Some(driver) = &mut self.driver {
            driver.nic.set_fault(fault);
        }
    }

    /// Takes commands, and looks at the sockets from time to time. Returns the number of commands.
    pub(crate) fn poll(&mut self) -> Result<usize> {
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(POLLS) {
            self.look_at_sockets()?;
        }
        let Some(driver) = &mut self.driver else {
            return Ok(0);
        };
        let commands = driver.nic.poll();
        if let Some(difference) = driver.nic.difference() {
            bail!("the RTL differs from the model:\n{difference}");
        }
        let violations = driver.nic.violations();
        // A wrong index stays wrong at each poll: a line each time that their number has doubled.
        if violations > 2 * driver.violations {
            tracing::warn!(
                violations,
                "the driver wrote numbers that are out of range; they were ignored"
            );
            driver.violations = violations;
        }
        Ok(commands)
    }

    fn look_at_sockets(&mut self) -> Result<()> {
        if let Some(driver) = &self.driver
            && matches!(receive(&driver.socket), Received::Closed)
        {
            tracing::info!("driver disconnected");
            self.driver = None;
        }
        let socket = match accept_with(&self.listener, SocketFlags::CLOEXEC) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(()),
            Err(error) => return Err(error).context("the socket accepts no connection"),
        };
        if self.driver.is_some() {
            tracing::warn!("a second driver was turned away: expected one switch at the socket");
            return Ok(());
        }
        let (memory, file) = Memory::create(self.layout)?;
        let mut nic = SoftwareNic::new(memory)?;
        if let Some((program, records)) = &self.rtl {
            nic = nic.with_twin(Box::new(Simulator::start(program, records.as_deref())?));
        }
        if let Err(error) = send_memory(&socket, &file) {
            tracing::warn!(%error, "a driver was gone before it had the memory");
            return Ok(());
        }
        tracing::info!("driver connected");
        self.driver = Some(Driver {
            nic,
            socket,
            violations: 0,
        });
        Ok(())
    }

    /// Returns true while a driver is connected that has set its buckets. Before, frames stay in the interface's queue.
    pub(crate) fn is_ready(&self) -> bool {
        self.driver
            .as_ref()
            .is_some_and(|driver| driver.nic.has_buckets())
    }

    /// Takes a frame from the wire.
    pub(crate) fn receive(&mut self, frame: &[u8], time: u32) {
        if let Some(driver) = &mut self.driver {
            driver.nic.receive(0, frame, time);
        }
    }

    /// Calls `each` with the frames that the driver sends.
    pub(crate) fn transmit(&mut self, each: &mut dyn FnMut(&[u8])) {
        if let Some(driver) = &mut self.driver {
            driver.nic.transmit(FRAMES_MAX, &mut self.buffer, each);
        }
    }
}

/// Creates the socket with its access rights.
fn open_listener(path: &Path, access: &SocketAccess) -> Result<(OwnedFd, SocketFile)> {
    let open = || -> rustix::io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(&listener, &SocketAddrUnix::new(path)?)?;
        listen(&listener, 4)?;
        Ok(listener)
    };
    // The error of the socket itself is not one of its file.
    let (file, listener) = SocketFile::make(path, access, || Ok(open()))?;
    Ok((listener?, file))
}
