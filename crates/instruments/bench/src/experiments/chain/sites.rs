//! Chains over two sites (E5 in docs/gates.md): the functions are at the first site, an emulated path is between the
//! sites, and the rate is that of one TCP stream from a host at one site to a host at the other.
//!
//! ```text
//!  h1 --- s1 [function] ... [function] === path === s2 --- h2
//! ```
//!
//! Frames of both directions pass the chain. Its functions are `monitor`, which leaves frames as they are: a TCP stream
//! would not survive changed addresses.

use std::path::Path;
use std::time::{Duration, Instant};

use millrace_api::client::{ChangeOptions, Client};
use millrace_process::{ProcessError, pause};
use serde_json::{Value as Json, json};

use super::error::ChainBenchError;
use super::plan::{FAR, Kind, NEAR, START};
use super::results::Results;
use crate::experiments::lan::{self, LanError, System};
use crate::experiments::wan::link::WanLink;

/// The ports of the first site's switch: the host, and the path.
const HOST: u32 = 1;
const PATH: u32 = 2;
/// The name of that switch, and its address for OpenFlow in its namespace.
const SWITCH: &str = "s1";
const TARGET: &str = "tcp:127.0.0.1:6653";
/// The size of the frames in bytes, check sequence included, and the TCP payload in it: without 20 bytes of IPv4, 20 of
/// TCP and 12 of time stamps.
const FRAME: u16 = 1518;
const PAYLOAD: f64 = 1448.0;

/// Returns the name of a kind in the results; `None` for one that is not measured over a path.
pub(super) fn name(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Inline => Some("wan-inline"),
        Kind::Ring => Some("wan-ring"),
        _ => None,
    }
}

fn lab_file(wan: &WanLink) -> String {
    format!(
        "name = \"sites-{}\"\n\n[[host]]\nname = \"h1\"\nip = \"10.0.0.1/24\"\n\n[[host]]\nname = \"h2\"\n\
         ip = \"10.0.0.2/24\"\n\n[[switch]]\nname = \"{SWITCH}\"\nkind = \"millrace\"\nports = [\"h1\"]\n\
         listen = [\"ptcp:6653:127.0.0.1\"]\n\n[[switch]]\nname = \"s2\"\nkind = \"millrace\"\nports = [\"h2\"]\n\n\
         [[link]]\nends = [\"{SWITCH}:{PATH}\", \"s2:{PATH}\"]\nwan = {}\n",
        std::process::id(),
        wan.toml()
    )
}

/// Two sites with a path between them.
pub(super) struct Sites {
    hosts: lan::TestBed,
    client: Client,
}

impl Sites {
    /// Builds both sites, with flow entries that send all frames of the first one through its chain.
    pub(super) fn up(wan: &WanLink, millraced: &Path) -> Result<Sites, ChainBenchError> {
        let hosts = lan::TestBed::of_file(System::Millrace, lab_file(wan), Some(millraced))?;
        let daemons = hosts.lab().status().daemons;
        let socket = daemons
            .iter()
            .find(|daemon| daemon.switch == SWITCH && daemon.role == "millraced")
            .and_then(|daemon| Some(Path::new(&daemon.log).parent()?.join("api.sock")))
            .unwrap_or_default();
        let client = Client::new(&format!("unix:{}", socket.display()), None, None)?;
        Ok(Sites { hosts, client })
    }

    /// Adds a flow entry that forwards from one port to another.
    fn steer(&self, from: u32, to: u32) -> Result<(), ChainBenchError> {
        let entry = format!("in_port={from},actions=output:{to}");
        let command = ["ovs-ofctl", "-O", "OpenFlow13", "add-flow", TARGET, &entry];
        let failed = |output: String| ProcessError::Tool {
            command: command.join(" "),
            output,
        };
        let lab = self.hosts.lab();
        let output = lab
            .output(SWITCH, &command)
            .map_err(|error| failed(error.to_string()))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()).into()),
        }
    }

    /// Sets the length of the chain, and waits until frames pass it.
    fn set_length(&self, kind: Kind, length: u16) -> Result<(), ChainBenchError> {
        let hop =
            |number: u16| json!({"name": format!("f{number}"), "function": "monitor", "class": kind.class()});
        let hops: Json = (0..length).map(hop).collect();
        let (mut config, revision) = self.client.config()?;
        let bridge = &mut config["bridge"][0];
        bridge["chain"] = json!([{"name": "chain", "number": NEAR, "far": FAR, "hop": hops}]);
        let bridge = bridge["name"].as_str().unwrap_or_default().to_owned();
        self.client
            .replace_config(&config, Some(revision), &ChangeOptions::default())?;
        for (from, to) in [(HOST, NEAR), (FAR, PATH), (PATH, FAR), (NEAR, HOST)] {
            self.steer(from, to)?;
        }
        let deadline = Instant::now() + START;
        loop {
            // A ping passes the chain twice.
            let ping = self
                .hosts
                .lab()
                .output("h1", &["ping", "-c", "1", "-W", "1", "10.0.0.2"])
                .map_err(LanError::from)?;
            let chains = self.client.chains(&bridge)?;
            let hops = chains.first().map_or(&[][..], |chain| &chain.hops);
            let ready = |hops: &[_]| hops.len() == usize::from(length);
            if ping.status.success()
                && ready(hops)
                && hops.iter().all(|hop| hop.state == "up" && hop.packets > 0)
            {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(ChainBenchError::NoPackets {
                    length,
                    kind: kind.name(),
                    reason: "no ping passes the chain and the path".to_owned(),
                    log: String::new(),
                });
            }
            pause(Duration::from_millis(100))?;
        }
    }

    /// Measures chains of these lengths.
    pub(super) fn chain(
        &self,
        (kind, name): (Kind, &'static str),
        lengths: &[u16],
        window: Duration,
        results: &mut Results,
    ) -> Result<(), ChainBenchError> {
        for length in lengths {
            self.set_length(kind, *length)?;
            let (_, transfer) = self.hosts.transfer(0, window)?;
            results.add(name, *length, FRAME, transfer.bytes / PAYLOAD / transfer.seconds)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lab_has_two_sites_and_a_path_between_them() {
        let wan: WanLink = "delay=10ms,rate=1Gbps".parse().unwrap();
        let topology = millrace_lab::Topology::parse("sites.toml", &lab_file(&wan)).unwrap();
        assert_eq!((topology.switches.len(), topology.wans().count()), (2, 1));
    }
}
