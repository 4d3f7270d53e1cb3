//! Millrace as a system under test: the daemon is started with a configuration file, `ovs-ofctl` installs the flow
//! entries, and the ingress port is added over REST afterwards.

use std::fmt::Write as _;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use millrace_api::client::{ChangeOptions, Client};
use serde_json::json;

use super::rate::rate_between;
use super::{Forwarding, Installation, Load, Peer, PeerError, Resources, START, WarmUp, ofctl};
use crate::workload::Sink;
use millrace_process::{ProcessError, Running, command_line, free_port, resident_memory, version};

/// The name of the bridge.
pub(crate) const BRIDGE: &str = "br0";
/// The largest number of packets in transit.
const IN_TRANSIT_MAX: u64 = 16_384;
/// The size of a packet buffer in bytes: the frame, its headroom and the mbuf (`bin/millraced`).
const BUFFER_SIZE: u64 = 2560;

/// The size of the smallest MAC table that can be configured, in addresses.
const MAC_TABLE_MIN: u32 = 16;

/// The system under test.
#[derive(Debug, Clone, Copy)]
pub enum Millrace {
    /// As shipped, with workers that never sleep.
    Default,
    /// The same without the cache of traversals (ADR 4): every packet is looked up in every table.
    NoCache,
    /// The daemon of an earlier build (`--before`), as shipped, with workers that never sleep.
    Before,
}

/// A running daemon.
pub(crate) struct Forwarder {
    pub(crate) daemon: Running,
    pub(crate) client: Client,
    /// The OpenFlow address for `ovs-ofctl`.
    pub(crate) target: String,
    /// The commands that started the daemon.
    pub(crate) commands: Vec<String>,
    installation: Installation,
}

/// Returns the memory of the daemon in MiB. Half of the memory becomes packet buffers, whose number is a power of two
/// (`bin/millraced`). The replaying driver keeps one buffer for each packet.
fn memory_mib(load: &Load) -> u64 {
    let buffers = (load.packets_len as u64 + IN_TRANSIT_MAX).next_power_of_two();
    (buffers * BUFFER_SIZE * 2).div_ceil(1 << 20).max(512)
}

/// Returns the OpenFlow socket of the bridge.
fn socket(resources: &Resources) -> PathBuf {
    resources.dir.join("br0.mgmt")
}

/// Returns the Unix socket of the REST API.
fn api(resources: &Resources) -> PathBuf {
    resources.dir.join("api.sock")
}

impl Peer for Millrace {
    fn name(&self) -> &'static str {
        match self {
            Millrace::Default => "millrace",
            Millrace::NoCache => "millrace-no-cache",
            Millrace::Before => "millrace-before",
        }
    }

    fn configuration(&self) -> &'static str {
        match self {
            Millrace::Default | Millrace::Before => "system.idle = \"busy\"",
            Millrace::NoCache => "system.idle = \"busy\", flow_cache = \"off\"",
        }
    }

    fn version(&self, resources: &Resources) -> Option<String> {
        version(self.daemon(resources))
    }

    fn warm_up(&self, _: &Load) -> WarmUp {
        WarmUp::seconds(0, 6)
    }

    fn memory_mib(&self, load: &Load) -> u64 {
        memory_mib(load)
    }

    fn start(&self, resources: &Resources, load: &Load) -> Result<Box<dyn Forwarding>, PeerError> {
        Ok(Box::new(self.launch(resources, load)?))
    }
}

impl Millrace {
    /// Returns the path of the daemon.
    fn daemon(self, resources: &Resources) -> &Path {
        match (self, &resources.before) {
            (Millrace::Before, Some(before)) => before,
            _ => &resources.millraced,
        }
    }

    /// Returns the configuration file.
    fn file(self, resources: &Resources, load: &Load, openflow: u16) -> String {
        let memory = memory_mib(load);
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "[system]\nworker_cores = {:?}\nidle = \"{}\"\nmemory_mib = {memory}\nhuge_pages = \"{}\"\n\
             state_dir = \"{}\"\n\n\
             [api]\nsocket = \"{}\"\n\n\
             [[bridge]]\nname = \"{BRIDGE}\"\nlisten = [\"ptcp:{openflow}:127.0.0.1\", \"punix:{}\"]\n\
             flow_cache = \"{}\"\n",
            resources.cores,
            // Without ingress ports, the daemon has the default idle mode.
            if load.ingress.is_empty() {
                "adaptive"
            } else {
                "busy"
            },
            if resources.huge_pages_mib > 0 {
                "required"
            } else {
                "off"
            },
            resources.dir.join("state").display(),
            api(resources).display(),
            socket(resources).display(),
            match self {
                Millrace::Default | Millrace::Before => "auto",
                Millrace::NoCache => "off",
            },
        );
        for sink in Sink::ALL {
            let number = sink.port();
            let device = load.sink(sink);
            let _ = write!(
                text,
                "\n[[bridge.port]]\nname = \"p{number}\"\nnumber = {number}\ndevice = \"{device}\"\n"
            );
        }
        text
    }

    /// Starts the switch as [`Peer::start`] does, for experiments that change the configuration later.
    pub(crate) fn launch(&self, resources: &Resources, load: &Load) -> Result<Forwarder, PeerError> {
        let openflow = free_port()?;
        let path = resources.dir.join("millraced.toml");
        fs::write(&path, self.file(resources, load, openflow)).map_err(ProcessError::file(&path))?;
        let mut command = Command::new(self.daemon(resources));
        command.arg("--config").arg(&path);
        let mut commands = vec![format!("{} &", command_line(&command))];
        let mut daemon = Running::start(
            "millraced",
            &command,
            resources.nice,
            &resources.dir.join("millraced.log"),
        )?;
        let client = Client::new(&format!("unix:{}", api(resources).display()), None, None)?;
        daemon.wait_for("readiness", START, |_| {
            // The daemon listens, and runs as configured.
            let ready = client.ready().is_ok_and(|ready| ready.ready);
            Ok((ready && TcpStream::connect(("127.0.0.1", openflow)).is_ok()).then_some(()))
        })?;
        let (before, start) = (resident_memory(daemon.pid()), Instant::now());
        // `ovs-ofctl` connects by a Unix socket, as it does to Open vSwitch.
        let target = format!("unix:{}", socket(resources).display());
        commands.push(ofctl::add_flows(&target, &load.flows, resources.nice)?);
        let installation = Installation {
            seconds: start.elapsed().as_secs_f64(),
            memory: resident_memory(daemon.pid())
                .unwrap_or(0)
                .saturating_sub(before.unwrap_or(0)),
        };
        for (number, device) in load.ports() {
            let port = json!({"name": format!("p{number}"), "number": number, "device": device});
            commands.push(format!(
                "curl -X PUT -H 'content-type: application/json' -d '{port}' \
                 --unix-socket {} http://localhost/api/v1/config/bridges/{BRIDGE}/ports/p{number}",
                api(resources).display()
            ));
            add_port(&client, port)?;
        }
        daemon.wait_for("the ingress port", START, |_| {
            let there = client
                .ports(BRIDGE)
                .is_ok_and(|ports| ports.iter().any(|port| port.rx.packets > 0));
            Ok((there || load.ingress.is_empty() || load.memif.is_some()).then_some(()))
        })?;
        Ok(Forwarder {
            daemon,
            client,
            target,
            commands,
            installation,
        })
    }
}

impl Forwarder {
    /// Adds a port to the bridge.
    pub(crate) fn add_port(&self, port: serde_json::Value) -> Result<(), PeerError> {
        add_port(&self.client, port)
    }

    /// Sets a key of the bridge; `null` restores its default.
    fn set_bridge(&self, key: &str, value: &serde_json::Value) -> Result<(), PeerError> {
        let (mut config, revision) = self.client.config()?;
        if let Some(bridge) = config.pointer_mut("/bridge/0") {
            bridge[key] = value.clone();
        }
        self.client
            .replace_config(&config, Some(revision), &ChangeOptions::default())?;
        Ok(())
    }

    /// Sets a key of a port; `null` restores its default.
    pub(crate) fn set_port(
        &self,
        number: u32,
        key: &str,
        value: &serde_json::Value,
    ) -> Result<(), PeerError> {
        let (mut config, revision) = self.client.config()?;
        let ports = config
            .pointer_mut("/bridge/0/port")
            .and_then(serde_json::Value::as_array_mut);
        for port in ports.into_iter().flatten() {
            if port["number"] == number {
                port[key] = value.clone();
            }
        }
        self.client
            .replace_config(&config, Some(revision), &ChangeOptions::default())?;
        Ok(())
    }
}

/// Adds a port to the running switch.
fn add_port(client: &Client, port: serde_json::Value) -> Result<(), PeerError> {
    let (mut config, revision) = client.config()?;
    let ports = config
        .pointer_mut("/bridge/0/port")
        .and_then(serde_json::Value::as_array_mut);
    let Some(ports) = ports else {
        return Err(PeerError::Unreadable {
            system: "millrace",
            what: "expected the list of ports in the configuration",
            text: config.to_string(),
        });
    };
    ports.push(port);
    client.replace_config(&config, Some(revision), &ChangeOptions::default())?;
    Ok(())
}

impl Forwarding for Forwarder {
    fn pid(&self) -> u32 {
        self.daemon.pid()
    }

    fn rate(&mut self, window: Duration) -> Result<[f64; 2], PeerError> {
        self.daemon.check()?;
        rate_between(window, || {
            let ports = self.client.ports(BRIDGE)?;
            Ok(Sink::ALL.map(|sink| {
                ports
                    .iter()
                    .find(|port| port.number == sink.port())
                    .map_or(0, |port| port.tx.packets)
            }))
        })
    }

    fn target(&self) -> Option<String> {
        Some(self.target.clone())
    }

    fn lost(&mut self) -> Result<Option<u64>, PeerError> {
        let drops = self.client.drops()?;
        Ok(Some(drops.iter().map(|drop| drop.packets).sum()))
    }

    fn mac_table_size(&mut self) -> Result<Option<usize>, PeerError> {
        let (config, _) = self.client.config()?;
        match config
            .pointer("/bridge/0/mac_table_size")
            .map(serde_json::Value::as_u64)
        {
            Some(Some(size)) => Ok(Some(size as usize)),
            other => Err(PeerError::Unreadable {
                system: "millrace",
                what: "expected mac_table_size of the bridge in the configuration, a number",
                text: format!("{other:?}"),
            }),
        }
    }

    fn forget_macs(&mut self, teach: &mut dyn FnMut() -> Result<(), PeerError>) -> Result<(), PeerError> {
        self.set_bridge("mac_table_size", &json!(MAC_TABLE_MIN))?;
        teach()?;
        self.set_bridge("mac_table_size", &serde_json::Value::Null)
    }

    fn tail(&self) -> String {
        self.daemon.tail()
    }

    fn commands(&self) -> Vec<String> {
        self.commands.clone()
    }

    fn installation(&self) -> Option<Installation> {
        Some(self.installation)
    }
}
