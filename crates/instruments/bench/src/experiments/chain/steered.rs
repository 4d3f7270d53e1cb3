//! Functions in processes of their own, behind virtual NICs of any switch: flow entries lead from one to the next.
//!
//! All processes share one core, and leave it to each other while nothing comes. One process more is started for each
//! length, so that a chain is not kept from the core by functions that are not in it.
//!
//! Behind vhost-user ports they are `millrace-nf` with its own virtio driver, or processes with DPDK's, behind either
//! switch alike.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use super::{ChainBenchError, Offer, Plan, Results, SINK, SOURCE, START, WARM_UP, failed};
use crate::generate;
use millrace_process::{ProcessError, Running, beside, pause, tool};

/// The port of the first function.
const FIRST: u32 = 11;

/// A switch with a source, a sink, and ports for functions.
pub(super) trait Switch {
    /// Makes a port, and says what its function is to connect to.
    fn add_function(&mut self, number: u32) -> Result<Socket, ChainBenchError>;

    /// Makes a source of such frames, in place of the one that there is.
    fn set_source(&mut self, offer: Option<Offer>) -> Result<(), ChainBenchError>;

    /// Where OpenFlow clients connect to.
    fn target(&self) -> &str;

    /// Packets that have come to the sink.
    fn carried(&mut self) -> Result<u64, ChainBenchError>;

    /// Returns the end of its log.
    fn tail(&self) -> String;
}

/// What a switch has made for a function.
pub(super) enum Socket {
    /// The socket of a vhost-user port.
    Vhost(PathBuf),
    /// That of an interface of a memif, by its number.
    Memif(PathBuf, u32),
}

/// Whose virtio driver functions have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VirtioDriver {
    Own,
    Dpdk,
}

/// Leads what comes by one port out of another.
pub(super) fn steer(target: &str, from: u32, to: u32) -> Result<(), ProcessError> {
    let mut ofctl = Command::new("ovs-ofctl");
    ofctl.args(["-O", "OpenFlow13", "add-flow", target]);
    tool(ofctl.arg(format!("in_port={from},actions=output:{to}"))).map(drop)
}

/// The processes.
pub(super) struct Functions {
    driver: VirtioDriver,
    core: usize,
    running: Vec<Running>,
}

impl Functions {
    /// None yet; all will be on this core.
    pub(super) fn new(core: usize, driver: VirtioDriver) -> Functions {
        Functions {
            driver,
            core,
            running: Vec::new(),
        }
    }

    /// What starts a function, and what it says once packets may come.
    fn command(&self, socket: &Socket) -> (&'static str, Command, &'static str) {
        let core = self.core.to_string();
        let device = match (socket, self.driver) {
            (Socket::Vhost(path), VirtioDriver::Own) => {
                let mut command = Command::new(beside("millrace-nf", "MILLRACE_NF"));
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
        // It polls by then; a link that is up comes a moment later.
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

/// The measurement of one switch.
pub(super) struct Course {
    pub(super) kind: &'static str,
    pub(super) plan: Plan,
    pub(super) functions: Functions,
}

impl Course {
    /// Does it.
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

    fn rate(&mut self, switch: &mut dyn Switch, length: u16) -> Result<f64, ChainBenchError> {
        let (deadline, before) = (Instant::now() + START, switch.carried()?);
        while switch.carried()? == before {
            if Instant::now() > deadline {
                return Err(ChainBenchError::Silent {
                    length,
                    kind: self.kind,
                    reason: "nothing reaches the sink".to_owned(),
                    log: switch.tail(),
                });
            }
            pause(WARM_UP)?;
        }
        pause(WARM_UP)?;
        let (from, start) = (switch.carried()?, Instant::now());
        pause(self.plan.window)?;
        let (to, elapsed) = (switch.carried()?, start.elapsed());
        for function in &mut self.functions.running {
            function.check()?;
        }
        Ok((to - from) as f64 / elapsed.as_secs_f64())
    }
}
