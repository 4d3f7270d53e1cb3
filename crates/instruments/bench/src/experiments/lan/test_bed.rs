//! The test bed of the experiment `lan`: one switch between two hosts.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use millrace_lab::{Lab, Topology, UpOptions};

use crate::experiments::wan::link::WanLink;

use super::cpu::CpuTimes;
use super::error::LanError;
use super::iperf;
use super::record::{Cpu, Transfer};
use super::system::System;
use millrace_process::{ProcessError, is_installed, pause, program_path};

/// The time limit for hosts to reach each other, and for iperf3 to listen.
const REACHABLE: Duration = Duration::from_secs(15);
/// The time limit of iperf3 beyond the duration of its transfer, in seconds.
const SPARE_S: u64 = 20;
/// The port of iperf3, 5201, and the state LISTEN of a socket, as `/proc/net/tcp` writes them.
const PORT: &str = ":1451";
const LISTENS: &str = "0A";
const RECEIVER: &str = "10.0.0.2";
/// The role of the emulator in a lab. The emulator is not part of a switch.
const EMULATOR: &str = "millrace-wan";

/// A lab. Dropping the value removes it.
pub struct TestBed {
    system: System,
    lab: Lab,
    file: String,
}

/// Returns an error if a required program is not installed.
pub(super) fn check_programs() -> Result<(), ProcessError> {
    for program in ["iperf3", "ping"] {
        if !is_installed(program) {
            return Err(ProcessError::Start {
                program: program.to_owned(),
                source: std::io::ErrorKind::NotFound.into(),
            });
        }
    }
    Ok(())
}

/// Returns the version of a system; `None` if it is not installed.
pub(super) fn version(system: System, millraced: Option<&Path>) -> Option<String> {
    match system {
        System::Millrace => {
            let found = || program_path("millraced", "MILLRACED");
            millrace_process::version(millraced.map_or_else(found, Path::to_owned))
        }
        System::LinuxBridge => {
            let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
            Some(format!("Linux {}", release.trim()))
        }
        System::Ovs => millrace_process::version(Path::new("ovs-vswitchd")),
        System::OvsDpdk => {
            millrace_process::version(Path::new("/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"))
        }
    }
}

/// Returns the lab file: one switch, or two with an emulated path between them.
fn lab_file(name: &str, system: System, wan: Option<&WanLink>) -> String {
    let hosts = format!(
        "name = \"{name}\"\n\n[[host]]\nname = \"h1\"\nip = \"10.0.0.1/24\"\n\n[[host]]\nname = \"h2\"\n\
         ip = \"{RECEIVER}/24\"\n"
    );
    let switch = |name: &str, ports: &str| {
        let kind = system.name();
        format!("\n[[switch]]\nname = \"{name}\"\nkind = \"{kind}\"\nports = [{ports}]\n")
    };
    match wan {
        None => hosts + &switch("sw", "\"h1\", \"h2\""),
        Some(wan) => {
            let link = format!("\n[[link]]\nends = [\"s1\", \"s2\"]\nwan = {}\n", wan.toml());
            hosts + &switch("s1", "\"h1\"") + &switch("s2", "\"h2\"") + &link
        }
    }
}

/// Returns true if a socket in `/proc/net/tcp` or `tcp6` listens on the port of iperf3.
fn listens(sockets: &str) -> bool {
    sockets.lines().any(|line| {
        // The fields are number, local address, remote address, state.
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(1).is_some_and(|local| local.ends_with(PORT)) && fields.get(3) == Some(&LISTENS)
    })
}

impl TestBed {
    /// Builds the lab and waits until the hosts reach each other.
    ///
    /// # Errors
    /// [`LanError`]; the lab is removed then.
    pub fn up(system: System, millraced: Option<&Path>) -> Result<TestBed, LanError> {
        TestBed::between(system, millraced, None)
    }

    /// Sets up the test bed as [`TestBed::up`] does; with a path, each host has a switch of its own, and the path is
    /// between the switches.
    ///
    /// # Errors
    /// [`LanError`]; the lab is removed then.
    pub fn between(
        system: System,
        millraced: Option<&Path>,
        wan: Option<&WanLink>,
    ) -> Result<TestBed, LanError> {
        /// The number makes names unique within a process, as in tests.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("bench-{}-{number}", std::process::id());
        TestBed::of_file(system, lab_file(&name, system, wan), millraced)
    }

    /// Builds the lab of a file with the hosts h1 and h2, and waits until they reach each other.
    ///
    /// # Errors
    /// [`LanError`]; the lab is removed then.
    pub(crate) fn of_file(
        system: System,
        file: String,
        millraced: Option<&Path>,
    ) -> Result<TestBed, LanError> {
        let topology =
            Topology::parse("lan.toml", &file).map_err(|error| LanError::File(error.to_string()))?;
        let options = UpOptions {
            millraced: millraced.map(Path::to_owned),
            ..UpOptions::default()
        };
        let lab = Lab::up(&topology, &options, &mut |_| {})?;
        let test_bed = TestBed { system, lab, file };
        test_bed.wait_until_reachable()?;
        Ok(test_bed)
    }

    /// Returns the lab.
    pub(crate) fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Returns the processes of the switch.
    pub fn pids(&self) -> Vec<i32> {
        let daemons = self.lab.status().daemons;
        daemons
            .into_iter()
            .filter(|daemon| daemon.role != EMULATOR)
            .filter_map(|daemon| Some(daemon.process?.pid))
            .collect()
    }

    /// Returns the process that forwards; `None` for the kernel's bridge.
    pub fn forwarder(&self) -> Option<i32> {
        let daemons = self.lab.status().daemons;
        daemons
            .into_iter()
            .filter(|daemon| daemon.alive && ![EMULATOR, "ovsdb-server"].contains(&daemon.role.as_str()))
            .find_map(|daemon| Some(daemon.process?.pid))
    }

    fn wait_until_reachable(&self) -> Result<(), LanError> {
        let start = Instant::now();
        while start.elapsed() < REACHABLE {
            let ping = self.lab.output("h1", &["ping", "-c", "1", "-W", "1", RECEIVER])?;
            if ping.status.success() {
                return Ok(());
            }
            pause(Duration::from_millis(100))?;
        }
        Err(LanError::Unreachable {
            system: self.system.name(),
            within: REACHABLE,
        })
    }

    /// Waits until iperf3 listens in the receiving host.
    fn wait_until_it_listens(&self) -> Result<(), LanError> {
        let start = Instant::now();
        while start.elapsed() < REACHABLE {
            let sockets = self
                .lab
                .output("h2", &["cat", "/proc/net/tcp", "/proc/net/tcp6"])?;
            if listens(&String::from_utf8_lossy(&sockets.stdout)) {
                return Ok(());
            }
            pause(Duration::from_millis(50))?;
        }
        Err(LanError::Iperf(iperf::IperfError::Failed(
            "the server does not listen".to_owned(),
        )))
    }

    /// Returns a counter of a host's interface.
    fn counter(&self, host: &'static str, name: &str) -> Result<u64, LanError> {
        let path = format!("/sys/class/net/eth0/statistics/{name}");
        let output = self.lab.output(host, &["cat", &path])?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        text.parse().map_err(|_| LanError::Counter { host, path, text })
    }

    /// Returns the number of frames that the switch received from both hosts.
    ///
    /// # Errors
    /// [`LanError::Counter`].
    pub fn packets(&self) -> Result<u64, LanError> {
        Ok(self.counter("h1", "tx_packets")? + self.counter("h2", "tx_packets")?)
    }

    /// Runs a transfer of this length from h1 to h2.
    ///
    /// # Errors
    /// [`LanError`].
    pub fn transfer(&self, round: usize, length: Duration) -> Result<(iperf::Report, Transfer), LanError> {
        let seconds = length.as_secs().max(1);
        let limit = (seconds + SPARE_S).to_string();
        // Both ends run under `timeout`, so that neither waits for the other for ever.
        let server = ["timeout", &limit, "iperf3", "--server", "--one-off", "--json"];
        let time = seconds.to_string();
        let client = [
            "timeout",
            &limit,
            "iperf3",
            "--client",
            RECEIVER,
            "--time",
            &time,
            "--interval",
            "1",
            "--json",
        ];
        let pids = self.pids();
        std::thread::scope(|scope| {
            let served = scope.spawn(|| self.lab.output("h2", &server));
            let run = || -> Result<(iperf::Report, Transfer), LanError> {
                self.wait_until_it_listens()?;
                let sent = self.counter("h1", "tx_packets")?;
                let received = self.counter("h2", "rx_packets")?;
                let before = CpuTimes::now(&pids);
                let output = self.lab.output("h1", &client)?;
                let times = CpuTimes::now(&pids).since(before);
                let report = iperf::Report::parse(&String::from_utf8_lossy(&output.stdout))?;
                let transfer = Transfer {
                    system: self.system.name().to_owned(),
                    round,
                    seconds: report.seconds,
                    bytes: report.bytes,
                    retransmits: report.retransmits,
                    frames_sent: self.counter("h1", "tx_packets")?.saturating_sub(sent),
                    frames_received: self.counter("h2", "rx_packets")?.saturating_sub(received),
                    cpu: Cpu {
                        machine_s: times.machine_s,
                        switch_s: times.programs_s,
                        hosts_s: report.cpu_s,
                        steal_s: times.steal_s,
                    },
                    commands: self.commands(&server, &client),
                };
                Ok((report, transfer))
            };
            let result = run();
            // A server without a client ends by its `timeout`. Only the error of the client is reported.
            if result.is_ok() {
                drop(served.join());
            }
            result
        })
    }

    fn commands(&self, server: &[&str], client: &[&str]) -> Vec<String> {
        let name = self.lab.name();
        let mut lines = vec![format!("cat > {name}.toml <<'END'")];
        lines.extend(self.file.lines().map(str::to_owned));
        lines.push("END".to_owned());
        lines.push(format!("millrace lab up {name}.toml"));
        lines.push(format!("millrace lab run --lab {name} h2 {} &", server.join(" ")));
        lines.push(format!("millrace lab run --lab {name} h1 {}", client.join(" ")));
        lines.push(format!("millrace lab down {name}"));
        lines
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_listens_in_either_family_and_a_connection_to_it_does_not() {
        let zeros = "0".repeat(32);
        let head = "  sl  local_address                         remote_address     st tx_queue\n";
        assert!(listens(&format!(
            "{head}   0: {zeros}:1451 {zeros}:0000 0A 00000000:00000000\n"
        )));
        assert!(listens(
            "   0: 00000000:1451 00000000:0000 0A 00000000:00000000\n"
        ));
        assert!(!listens(
            "   0: 0200000A:1451 0100000A:9C40 01 00000000:00000000\n"
        ));
        assert!(!listens(head) && !listens("") && !listens("garbage"));
    }

    #[test]
    fn a_transfer_through_the_kernels_bridge_is_measured_and_its_lab_removed() {
        if !nix::unistd::geteuid().is_root() || check_programs().is_err() || !is_installed("ethtool") {
            eprintln!("skipped: needs root, iperf3, ping and ethtool");
            return;
        }
        let test_bed = TestBed::up(System::LinuxBridge, None).unwrap();
        let name = test_bed.lab.name().to_owned();
        assert_eq!((test_bed.pids(), test_bed.forwarder()), (Vec::new(), None));
        let (report, transfer) = test_bed.transfer(3, Duration::from_secs(2)).unwrap();
        assert!((2..=3).contains(&report.intervals.len()), "{report:?}");
        assert!(transfer.bytes > 1e6 && transfer.frames_sent > 1000 && transfer.round == 3);
        assert!(transfer.cpu.machine_s > 0.0 && transfer.cpu.switch_s == 0.0);
        // Without offloads a frame carries no more than 1,448 bytes of payload.
        assert!(
            transfer.bytes / transfer.frames_received as f64 <= 1448.0,
            "{transfer:?}"
        );
        drop(test_bed);
        assert!(!Lab::names().unwrap().contains(&name));
    }

    #[test]
    fn every_system_is_a_kind_of_switch_that_the_lab_knows() {
        for system in System::ALL {
            let topology = Topology::parse("lan.toml", &lab_file("bench-1-0", system, None)).unwrap();
            assert_eq!(topology.switches[0].kind.keyword(), system.name());
            assert_eq!(topology.hosts.len(), 2);
            let wan: WanLink = "delay=10ms,rate=1Gbps".parse().unwrap();
            let file = lab_file("bench-1-0", system, Some(&wan));
            let topology = Topology::parse("lan.toml", &file).unwrap();
            assert_eq!((topology.switches.len(), topology.wans().count()), (2, 1));
        }
    }
}
