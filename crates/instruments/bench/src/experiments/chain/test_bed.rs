//! The test bed of Millrace: one daemon with one worker.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use millrace_api::client::{ChangeOptions, Client};
use serde_json::{Value as Json, json};

use super::error::{ChainBenchError, failed};
use super::plan::{FAR, Kind, NEAR, OfferedLoad, Plan, SINK, SOURCE, START, WARM_UP};
use super::results::Results;
use super::steered::{Socket, Switch, steer};
use millrace_process::{Running, free_port, pause};

const BRIDGE: &str = "br0";

/// A running daemon with its sink, its source and its functions.
pub(super) struct TestBed {
    daemon: Running,
    client: Client,
    target: String,
    /// The ports of functions: number and device.
    functions: Vec<(u32, String)>,
    dir: tempfile::TempDir,
}

impl TestBed {
    /// Starts the daemon with its worker on `core`.
    pub(super) fn start(millraced: &Path, core: usize) -> Result<TestBed, ChainBenchError> {
        let dir = tempfile::tempdir().map_err(failed(Path::new("/tmp")))?;
        let openflow = free_port()?;
        let at = dir.path().display();
        let text = format!(
            "[system]\nworker_cores = [{core}]\nidle = \"busy\"\nhuge_pages = \"auto\"\nstate_dir = \"{at}/state\"\n\
             [api]\nsocket = \"{at}/api.sock\"\n\
             [[bridge]]\nname = \"{BRIDGE}\"\nlisten = [\"ptcp:{openflow}:127.0.0.1\"]\n\
             [[bridge.port]]\nname = \"sink\"\nnumber = {SINK}\ndevice = \"net_null_sink,no-rx=1\"\n"
        );
        let file = dir.path().join("millraced.toml");
        std::fs::write(&file, text).map_err(failed(&file))?;
        let mut command = Command::new(millraced);
        command.arg("--config").arg(&file);
        let mut daemon = Running::start("millraced", &command, -10, &dir.path().join("log"))?;
        let client = Client::new(&format!("unix:{}/api.sock", dir.path().display()), None, None)?;
        daemon.wait_for("readiness", START, |_| {
            Ok(client.ready().is_ok_and(|ready| ready.ready).then_some(()))
        })?;
        Ok(TestBed {
            daemon,
            client,
            target: format!("tcp:127.0.0.1:{openflow}"),
            functions: Vec::new(),
            dir,
        })
    }

    /// Replaces the source, the ports of functions and the chains in the configuration. Keeps the sink.
    fn configure(&self, source: Option<OfferedLoad>, chain: Json) -> Result<(), ChainBenchError> {
        let (mut config, revision) = self.client.config()?;
        let bridge = &mut config["bridge"][0];
        let sink = json!({"name": "sink", "number": SINK, "device": "net_null_sink,no-rx=1"});
        let source = source.map(|offer| {
            let device = format!("net_null_{},size={}", offer.frame, offer.size());
            let mut source =
                json!({"name": "source", "number": SOURCE, "device": device, "backpressure": true});
            if let Some(rate) = offer.metered() {
                source["policer"] = json!({"kind": "srtcm", "cir": rate.to_string(), "yellow": "drop"});
            }
            source
        });
        let functions = self.functions.iter().map(
            |(number, device)| json!({"name": format!("f{number}"), "number": number, "device": device, "backpressure": true}),
        );
        bridge["port"] = [Some(sink), source]
            .into_iter()
            .flatten()
            .chain(functions)
            .collect();
        bridge["chain"] = chain;
        let options = ChangeOptions::default();
        self.client.replace_config(&config, Some(revision), &options)?;
        Ok(())
    }

    fn packets_out(&self) -> Result<u64, ChainBenchError> {
        let ports = self.client.ports(BRIDGE)?;
        let sink = ports.iter().find(|port| port.number == SINK);
        Ok(sink.map_or(0, |port| port.tx.packets))
    }

    /// Measures chains of one kind. The chain is edited while packets flow.
    pub(super) fn chain(
        &mut self,
        kind: Kind,
        function: &str,
        plan: &Plan,
        results: &mut Results,
    ) -> Result<(), ChainBenchError> {
        for (from, to) in [(SOURCE, NEAR), (FAR, SINK)] {
            steer(&self.target, from, to)?;
        }
        for offer in plan.offers() {
            for length in &plan.lengths {
                let rate = self.rate((kind, function), *length, offer, plan.window)?;
                results.add(kind.name(), *length, offer.frame, rate)?;
            }
            // A source must be removed before another one is added.
            self.configure(None, json!([]))?;
        }
        Ok(())
    }

    /// Returns this switch with functions behind virtual NICs instead of hops.
    pub(super) fn with_virtual_nics(&mut self, kind: Kind) -> VirtualNics<'_> {
        VirtualNics { test_bed: self, kind }
    }

    /// Returns the packets per second through a chain of `length` functions.
    fn rate(
        &mut self,
        (kind, function): (Kind, &str),
        length: u16,
        offer: OfferedLoad,
        window: Duration,
    ) -> Result<f64, ChainBenchError> {
        let hop =
            |number: u16| json!({"name": format!("f{number}"), "function": function, "class": kind.class()});
        let hops: Json = (0..length).map(hop).collect();
        let chain = json!([{"name": "chain", "number": NEAR, "far": FAR, "hop": hops, "parallel": kind == Kind::RingParallel}]);
        self.configure(Some(offer), chain)?;
        let deadline = Instant::now() + START;
        let mut before = self.packets_out()?;
        loop {
            pause(WARM_UP)?;
            self.daemon.check()?;
            let chains = self.client.chains(BRIDGE)?;
            let hops = chains.first().map_or(&[][..], |chain| &chain.hops);
            let ready = hops.len() == usize::from(length)
                && hops
                    .iter()
                    .all(|hop| hop.class == kind.class() && hop.state == "up" && hop.packets > 0);
            let now = self.packets_out()?;
            if ready && now > before {
                break;
            }
            before = now;
            if Instant::now() > deadline {
                let problems = self.client.status()?.problems;
                return Err(ChainBenchError::NoPackets {
                    length,
                    kind: kind.name(),
                    reason: problems.first().map_or_else(
                        || "its hops do not start".to_owned(),
                        |problem| problem.message.clone(),
                    ),
                    log: self.daemon.tail(),
                });
            }
        }
        pause(WARM_UP)?;
        let (from, start) = (self.packets_out()?, Instant::now());
        pause(window)?;
        let (to, elapsed) = (self.packets_out()?, start.elapsed());
        Ok((to - from) as f64 / elapsed.as_secs_f64())
    }
}

/// The daemon with functions in processes behind its virtual NICs.
pub(super) struct VirtualNics<'a> {
    test_bed: &'a mut TestBed,
    kind: Kind,
}

impl Switch for VirtualNics<'_> {
    fn add_function(&mut self, number: u32) -> Result<Socket, ChainBenchError> {
        let dir = self.test_bed.dir.path();
        let (device, socket) = match self.kind {
            Kind::Memif => {
                let path = dir.join("memif");
                let device = format!("memif:{},id={number}", path.display());
                (device, Socket::Memif(path, number))
            }
            _ => {
                let path = dir.join(format!("f{number}"));
                (format!("vhost:{}", path.display()), Socket::Vhost(path))
            }
        };
        self.test_bed.functions.push((number, device));
        self.test_bed.configure(None, json!([]))?;
        let (client, daemon) = (&self.test_bed.client, &mut self.test_bed.daemon);
        daemon.wait_for("the port of a function", START, |_| {
            let ports = client.ports(BRIDGE).unwrap_or_default();
            Ok(ports.iter().any(|port| port.number == number).then_some(()))
        })?;
        Ok(socket)
    }

    fn set_source(&mut self, offer: Option<OfferedLoad>) -> Result<(), ChainBenchError> {
        // The old source must be removed before another one is added.
        self.test_bed.configure(None, json!([]))?;
        self.test_bed.configure(offer, json!([]))
    }

    fn target(&self) -> &str {
        &self.test_bed.target
    }

    fn delivered(&mut self) -> Result<u64, ChainBenchError> {
        self.test_bed.daemon.check()?;
        self.test_bed.packets_out()
    }

    fn tail(&self) -> String {
        self.test_bed.daemon.tail()
    }
}
