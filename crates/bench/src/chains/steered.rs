//! Functions in processes of their own, behind virtual NICs of any switch: flow entries lead from one to the next.
//!
//! All processes share one core, and leave it to each other while nothing comes. One process more is started for each
//! length, so that a chain is not kept from the core by functions that are not in it.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use super::{ChainBenchError, Offer, Plan, Results, SINK, SOURCE, START, WARM_UP, failed};
use crate::generate;
use crate::process::{ProcessError, Running, pause, tool};

/// The port of the first function.
const FIRST: u32 = 11;

/// A switch with a source, a sink, and ports for functions.
pub(super) trait Switch {
    /// Makes a port, and says what device its function is to have.
    fn add_function(&mut self, number: u32) -> Result<String, ChainBenchError>;

    /// Makes a source of such frames, in place of the one that there is.
    fn set_source(&mut self, offer: Option<Offer>) -> Result<(), ChainBenchError>;

    /// Where OpenFlow clients connect to.
    fn target(&self) -> &str;

    /// Packets that have come to the sink.
    fn carried(&mut self) -> Result<u64, ChainBenchError>;

    /// The end of its log.
    fn tail(&self) -> String;
}

/// The devargs of a function whose switch made the socket `path`.
pub(super) fn virtio_user(path: &str) -> String {
    format!("net_virtio_user0,path={path},queue_size=1024,mrg_rxbuf=1,in_order=1")
}

/// Leads what comes by one port out of another.
pub(super) fn steer(target: &str, from: u32, to: u32) -> Result<(), ProcessError> {
    let mut ofctl = Command::new("ovs-ofctl");
    ofctl.args(["-O", "OpenFlow13", "add-flow", target]);
    tool(ofctl.arg(format!("in_port={from},actions=output:{to}"))).map(drop)
}

/// The processes.
pub(super) struct Functions {
    program: PathBuf,
    core: usize,
    running: Vec<Running>,
}

impl Functions {
    /// None yet; all will be on this core.
    pub(super) fn new(core: usize) -> Functions {
        Functions {
            program: generate::program(),
            core,
            running: Vec::new(),
        }
    }

    fn start(&mut self, device: &str, log: &std::path::Path) -> Result<(), ProcessError> {
        let mut command = Command::new(&self.program);
        command.args([
            "--reflect",
            "--swap",
            "--tx",
            device,
            "--core",
            &self.core.to_string(),
        ]);
        command.args(["--buffers", "4095"]);
        let mut running = Running::start("millrace-generator", &command, -10, log)?;
        // Once it says so it polls; a link that is up comes a moment later.
        running.wait_for("readiness", START, |running| {
            Ok(running.log().contains("\"up\":true").then_some(()))
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
                let device = switch.add_function(number)?;
                self.functions
                    .start(&device, &logs.path().join(format!("f{number}.log")))?;
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
