//! The test bed of live rows: a sender and ten receivers, and an emulated path between them.
//!
//! ```text
//!  h0 --- s1 (bridge) === millrace-wan, last core === s2 (bridge) --- r1, r2, … r10
//! ```
//!
//! Hosts are network namespaces; all their programs share the other cores. Files are in memory (`/dev/shm`).

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use millrace_lab::{Lab, Topology, UpOptions};
use millrace_process::{Running, is_installed, pause, pin_process};
use serde_json::Value;
use tempfile::TempDir;

use super::error::{TransportBenchError, output};
use crate::file_error::file;

/// The number of receivers.
pub(super) const RECEIVERS: usize = 10;
/// The host that sends.
pub(super) const SENDER: &str = "h0";
/// The namespace of the emulator.
const EMULATOR: &str = "wan.1";
/// The programs that the test bed needs.
const PROGRAMS: [&str; 5] = ["ip", "ethtool", "iperf3", "taskset", "ping"];
/// TCP buffers of up to 256 MiB: about five times the bandwidth-delay product of 1 Gbit/s x 400 ms, which is
/// 50 MB.
const TCP_BUFFERS: &str = "4096 131072 268435456";
/// The time limit for hosts to reach each other.
const REACHABLE: Duration = Duration::from_secs(15);

/// The settings of the path: the round-trip time, and further settings of the direction to the receivers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PathSettings {
    pub(super) rtt_ms: f64,
    /// Settings of the direction to the receivers: `loss=1% jitter=5ms,normal`; empty for none.
    pub(super) forward: String,
}

impl PathSettings {
    /// Returns a path with a round-trip time and a loss in percent.
    pub(super) fn new(rtt_ms: f64, loss_percent: f64) -> PathSettings {
        let forward = match loss_percent {
            0.0 => String::new(),
            percent => format!("loss={percent}%"),
        };
        PathSettings { rtt_ms, forward }
    }
}

/// Returns the reason why live rows cannot be measured; `None` if they can.
pub(super) fn obstacle(program: &Path) -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("network namespaces need root".to_owned());
    }
    if let Some(missing) = PROGRAMS.iter().find(|program| !is_installed(program)) {
        return Some(format!("{missing} is not installed. To fix it: make setup"));
    }
    if millrace_process::version(program).is_none() {
        return Some(format!(
            "millrace does not run at {}. To fix it: make build",
            program.display()
        ));
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores < 2).then(|| "one core is for the emulator, and this machine has no other".to_owned())
}

/// The hosts. Dropping the value removes them.
pub(super) struct TestBed {
    lab: Lab,
    program: PathBuf,
    directory: TempDir,
    cores: String,
    pub(super) link_bps: f64,
    next: Cell<u32>,
}

impl TestBed {
    /// Builds the test bed. The emulator runs on `core`.
    pub(super) fn up(program: &Path, core: usize) -> Result<TestBed, TransportBenchError> {
        /// The number makes names unique within a process, as in tests.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut text = format!(
            "name = \"send-{}-{number}\"\n\n[[host]]\nname = \"{SENDER}\"\nip = \"10.0.0.100/24\"\n",
            std::process::id()
        );
        let names: Vec<String> = (1..=RECEIVERS).map(|number| format!("r{number}")).collect();
        for (index, name) in names.iter().enumerate() {
            text += &format!("\n[[host]]\nname = \"{name}\"\nip = \"{}/24\"\n", address(index));
        }
        for (switch, ports) in [
            ("s1", format!("{SENDER:?}")),
            ("s2", format!("{:?}", names.join("\", \"")).replace("\\\"", "\"")),
        ] {
            text +=
                &format!("\n[[switch]]\nname = \"{switch}\"\nkind = \"linux-bridge\"\nports = [{ports}]\n");
        }
        text += "\n[[link]]\nends = [\"s1\", \"s2\"]\nwan = { rate = \"1Gbps\", queue = \"100ms\", memory = \"512MiB\" }\n";
        let topology = Topology::parse("transport.toml", &text)
            .map_err(|error| TransportBenchError::LabFile(error.to_string()))?;
        let shared = Path::new("/dev/shm");
        let parent = if shared.is_dir() {
            shared.to_owned()
        } else {
            std::env::temp_dir()
        };
        let directory = tempfile::Builder::new()
            .prefix("millrace-bench.")
            .tempdir_in(&parent)
            .map_err(file(&parent))?;
        // A `TestBed` removes its lab when it is dropped. Between this line and the creation of the
        // `TestBed`, no error may return.
        let lab = Lab::up(&topology, &UpOptions::default(), &mut |_| {})?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let others: Vec<String> = (0..cores)
            .filter(|other| *other != core)
            .map(|core| core.to_string())
            .collect();
        let test_bed = TestBed {
            program: program.to_owned(),
            directory,
            cores: others.join(","),
            link_bps: 1e9,
            next: Cell::new(0),
            lab,
        };
        let daemons = test_bed.lab.status().daemons;
        for process in daemons.iter().filter_map(|daemon| daemon.process) {
            if let Ok(pid) = u32::try_from(process.pid) {
                pin_process(pid, core as u32);
            }
        }
        let hosts = std::iter::once(SENDER.to_owned()).chain(names);
        for host in hosts {
            for key in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
                let setting = format!("{key}={TCP_BUFFERS}");
                test_bed.run(&host, &["sysctl", "-q", "-w", &setting])?;
            }
        }
        test_bed.wait_until_reachable()?;
        Ok(test_bed)
    }

    fn wait_until_reachable(&self) -> Result<(), TransportBenchError> {
        let start = std::time::Instant::now();
        let last = address(RECEIVERS - 1);
        while start.elapsed() < REACHABLE {
            if self
                .run(SENDER, &["ping", "-q", "-c", "1", "-W", "1", &last])
                .is_ok()
            {
                return Ok(());
            }
            pause(Duration::from_millis(100))?;
        }
        Err(output(
            "ping",
            format!("{last} was not reached within {} s", REACHABLE.as_secs()),
        ))
    }

    /// Creates a new directory in memory, and returns its path. Each call creates another one.
    pub(super) fn directory(&self, name: &str) -> Result<PathBuf, TransportBenchError> {
        self.next.set(self.next.get() + 1);
        let path = self.directory.path().join(format!("{name}.{}", self.next.get()));
        std::fs::create_dir_all(&path).map_err(file(&path))?;
        Ok(path)
    }

    /// Returns the path of `millrace`.
    pub(super) fn program(&self) -> &str {
        self.program.to_str().unwrap_or("millrace")
    }

    /// Returns a command on the cores of the hosts, in the namespace of one.
    pub(super) fn command(&self, host: &str, argv: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &format!("mr-{}-{host}", self.lab.name())])
            .args(["taskset", "-c", &self.cores])
            .args(argv)
            .env("HOME", self.directory.path())
            .env_remove("XDG_CONFIG_HOME");
        command
    }

    /// Starts a program in a host.
    pub(super) fn start(
        &self,
        name: &str,
        host: &str,
        argv: &[&str],
    ) -> Result<Running, TransportBenchError> {
        let log = self.directory(name)?.join("log");
        Ok(Running::start(name, &self.command(host, argv), 0, &log)?)
    }

    /// Runs a program in a host to its end, and returns its output.
    pub(super) fn run(&self, host: &str, argv: &[&str]) -> Result<String, TransportBenchError> {
        let result = self.lab.output(host, argv)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if result.status.success() {
            return Ok(text(&result.stdout));
        }
        Err(output(&argv.join(" "), text(&result.stderr)))
    }

    /// Waits until a socket of a host is bound to a port.
    pub(super) fn wait_for_port(
        &self,
        host: &str,
        protocol: &str,
        port: u16,
        program: &mut Running,
    ) -> Result<(), TransportBenchError> {
        let wanted = format!(":{port:04X} ");
        let files = [format!("/proc/net/{protocol}"), format!("/proc/net/{protocol}6")];
        program.wait_for("its socket", REACHABLE, |_| {
            let argv = ["cat", &files[0], &files[1]];
            let Ok(text) = self.run(host, &argv) else {
                return Ok(None);
            };
            Ok(text.contains(&wanted).then_some(()))
        })?;
        Ok(())
    }

    /// Sets the path. Its rate is the rate of the link. Its queue is 100 ms or the round-trip time, whichever
    /// is larger.
    pub(super) fn set_path(&self, path: &PathSettings) -> Result<(), TransportBenchError> {
        let delay = format!("{}us", (path.rtt_ms * 500.0).round());
        let queue = format!("{}ms", path.rtt_ms.max(100.0).round());
        let rate = format!("{}bps", self.link_bps.round());
        let mut argv = vec![
            self.program(),
            "wan",
            "set",
            "--delay",
            &delay,
            "--queue",
            &queue,
            "--rate",
            &rate,
        ];
        for key in ["--loss", "--jitter", "--corrupt"] {
            argv.extend([key, "none"]);
        }
        argv.extend(["--order", "ordered"]);
        if !path.forward.is_empty() {
            argv.extend(["--a-to-b", &path.forward]);
        }
        self.run(EMULATOR, &argv).map(drop)
    }

    /// Returns the bytes of frames that the sender's host received and sent.
    pub(super) fn frames(&self) -> Result<[f64; 2], TransportBenchError> {
        let mut counters = [0.0; 2];
        for (counter, name) in counters.iter_mut().zip(["rx_bytes", "tx_bytes"]) {
            let path = format!("/sys/class/net/eth0/statistics/{name}");
            let text = self.run(SENDER, &["cat", &path])?;
            *counter = text.parse().map_err(|_| output(&path, text))?;
        }
        Ok(counters)
    }
}

impl TestBed {
    /// Returns the number of frames to the receivers that the emulator delivered with inverted bits so far.
    pub(super) fn corrupted(&self) -> Result<u64, TransportBenchError> {
        let text = self.run(EMULATOR, &[self.program(), "--json", "wan", "show"])?;
        corrupted(&text).ok_or_else(|| output("millrace wan show", text))
    }

    /// Returns the bytes of frames that a host received.
    pub(super) fn received(&self, host: &str) -> Result<f64, TransportBenchError> {
        let path = "/sys/class/net/eth0/statistics/rx_bytes";
        let text = self.run(host, &["cat", path])?;
        text.parse().map_err(|_| output(path, text))
    }
}

impl Drop for TestBed {
    fn drop(&mut self) {
        // `millrace lab status` lists the parts that could not be removed.
        if let Err(error) = Lab::down(self.lab.name()) {
            eprintln!("millrace: {error}");
        }
    }
}

/// Returns the corrupted frames from a to b in the output of `millrace --json wan show` for one path.
fn corrupted(text: &str) -> Option<u64> {
    let paths: Value = serde_json::from_str(text).ok()?;
    let mut directions = paths[0]["directions"].as_array()?.iter();
    directions.find(|direction| direction["direction"] == "a_to_b")?["corrupted"].as_u64()
}

/// Returns the address of a receiver by its index.
pub(super) fn address(receiver: usize) -> String {
    format!("10.0.0.{}", receiver + 1)
}

/// Returns the name of a receiver's host by its index.
pub(super) fn host(receiver: usize) -> String {
    format!("r{}", receiver + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corrupted_frames_of_the_direction_to_the_receivers_are_read() {
        let text = r#"[{"name":"wan","directions":[{"direction":"b_to_a","corrupted":1},{"direction":"a_to_b","corrupted":7}]}]"#;
        assert_eq!(corrupted(text), Some(7));
        assert_eq!(corrupted("[]"), None);
    }
}
