//! Functions in processes behind the virtual NICs of a switch. Flow entries steer packets from one to the next.
//!
//! All processes share one core, and yield it while they have no packets. A process is started when a length first
//! needs it, so that functions outside of the chain do not use the core.
//!
//! Behind vhost-user ports a function is `millrace-nf` with our virtio driver, or a process with DPDK's driver. The
//! processes are the same for both switches.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use super::error::{ChainBenchError, failed};
use super::plan::{OfferedLoad, Plan, SINK, SOURCE, START, WARM_UP};
use super::results::Results;
use crate::generate;
use millrace_process::{ProcessError, Running, pause, program_path, run_tool};

/// The number of the port of the first function.
const FIRST: u32 = 11;

/// A switch with a source, a sink, and ports for functions.
pub(super) trait Switch {
    /// Adds a port, and returns the socket for its function.
    fn add_function(&mut self, number: u32) -> Result<Socket, ChainBenchError>;

    /// Replaces the source; `None` removes it.
    fn set_source(&mut self, offer: Option<OfferedLoad>) -> Result<(), ChainBenchError>;

    /// Returns the address for OpenFlow clients.
    fn target(&self) -> &str;

    /// Returns the number of packets that reached the sink.
    fn delivered(&mut self) -> Result<u64, ChainBenchError>;

    /// Returns the last lines of the log.
    fn tail(&self) -> String;
}

/// The socket of a function.
pub(super) enum Socket {
    /// The socket of a vhost-user port.
    Vhost(PathBuf),
    /// The socket of a memif, and the identifier of the interface.
    Memif(PathBuf, u32),
}

/// The virtio driver of functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VirtioDriver {
    Own,
    Dpdk,
}

/// Adds a flow entry that forwards from one port to another.
pub(super) fn steer(target: &str, from: u32, to: u32) -> Result<(), ProcessError> {
    let mut ofctl = Command::new("ovs-ofctl");
    ofctl.args(["-O", "OpenFlow13", "add-flow", target]);
    run_tool(ofctl.arg(format!("in_port={from},actions=output:{to}"))).map(drop)
}

/// The processes of functions.
pub(super) struct Functions {
    driver: VirtioDriver,
    core: usize,
    running: Vec<Running>,
}

impl Functions {
    /// Returns an empty set whose processes will run on `core`.
    pub(super) fn new(core: usize, driver: VirtioDriver) -> Functions {
        Functions {
            driver,
            core,
            running: Vec::new(),
        }
    }

    /// Returns the name and the command of a function, and the text in its log that shows that it is ready.
    fn command(&self, socket: &Socket) -> (&'static str, Command, &'static str) {
        let core = self.core.to_string();
        let device = match (socket, self.driver) {
            (Socket::Vhost(path), VirtioDriver::Own) => {
                let mut command = Command::new(program_path("millrace-nf", "MILLRACE_NF"));
                command.arg("--vhost").arg(path);
                command.args(["--function", "macswap", "--core", &core]);
                return ("millrace-nf", command, "connected to");
            }
            (Socket::Vhost(path), VirtioDriver::Dpdk) => {
                let path = path.display();
                format!("net_virtio_user0,path={path},queue_size=1024,mrg_rxbuf=1,in_order=1")
            }
            (Socket::Memif(path, id), _) => {
                let path = path.display();
                format!("net_memif0,role=client,id={id},socket={path},socket-abstract=no,rsize=10")
            }
        };
        let mut command = Command::new(generate::program());
        command.args(["--reflect", "--swap", "--tx", &device, "--core", &core]);
        command.args(["--buffers", "4095"]);
        // The link is up a moment after the process polls.
        ("millrace-generator", command, "\"up\":true")
    }

    fn start(&mut self, socket: &Socket, log: &std::path::Path) -> Result<(), ProcessError> {
        let (name, command, sign) = self.command(socket);
        let mut running = Running::start(name, &command, -10, log)?;
        running.wait_for("readiness", START, |running| {
            Ok(running.log().contains(sign).then_some(()))
        })?;
        self.running.push(running);
        Ok(())
    }
}

/// The measurement of steered functions with one switch.
pub(super) struct SteeredRun {
    pub(super) kind: &'static str,
    pub(super) plan: Plan,
    pub(super) functions: Functions,
}

impl SteeredRun {
    /// Measures all lengths and loads.
    ///
    /// # Errors
    /// [`ChainBenchError`].
    pub(super) fn run(
        mut self,
        switch: &mut dyn Switch,
        results: &mut Results,
    ) -> Result<(), ChainBenchError> {
        let logs = tempfile::tempdir().map_err(failed(std::path::Path::new("/tmp")))?;
        for length in self.plan.lengths.clone() {
            while self.functions.running.len() < usize::from(length) {
                let number = FIRST + self.functions.running.len() as u32;
                let socket = switch.add_function(number)?;
                self.functions
                    .start(&socket, &logs.path().join(format!("f{number}.log")))?;
            }
            let last = FIRST + u32::from(length) - 1;
            let stops = std::iter::once(SOURCE).chain(FIRST..=last);
            for (from, to) in stops.zip((FIRST..=last).chain([SINK])) {
                steer(switch.target(), from, to)?;
            }
            for offer in self.plan.offers() {
                switch.set_source(Some(offer))?;
                let rate = self.rate(switch, length)?;
                results.add(self.kind, length, offer.frame, rate)?;
            }
            switch.set_source(None)?;
        }
        Ok(())
    }

    /// Returns the packets per second that reach the sink, after the first one has arrived.
    fn rate(&mut self, switch: &mut dyn Switch, length: u16) -> Result<f64, ChainBenchError> {
        let (deadline, before) = (Instant::now() + START, switch.delivered()?);
        while switch.delivered()? == before {
            if Instant::now() > deadline {
                return Err(ChainBenchError::NoPackets {
                    length,
                    kind: self.kind,
                    reason: "no packet reaches the sink".to_owned(),
                    log: switch.tail(),
                });
            }
            pause(WARM_UP)?;
        }
        pause(WARM_UP)?;
        let (from, start) = (switch.delivered()?, Instant::now());
        pause(self.plan.window)?;
        let (to, elapsed) = (switch.delivered()?, start.elapsed());
        for function in &mut self.functions.running {
            function.check()?;
        }
        Ok((to - from) as f64 / elapsed.as_secs_f64())
    }
}
