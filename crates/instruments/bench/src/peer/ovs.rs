//! Open vSwitch with DPDK. Its database, sockets and logs are in a directory of their own, and an Open vSwitch of the
//! machine is not touched.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::rate::rate_between;
use super::{Forwarding, Installation, Load, Peer, PeerError, Resources, START, WarmUp, core_mask, ofctl};
use crate::workload::Sink;
use millrace_process::{
    ProcessError, Running, command_line, is_installed, resident_memory, run_tool, tail, version,
};

/// The path of the daemon with DPDK in Debian's packages, and the path of the schema of the database.
pub(crate) const DAEMON: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// The largest number of packets for the shared pool. The pool for all ports with an MTU of 1500 has 262,144 buffers
/// (`MAX_NB_MBUF` in lib/netdev-dpdk.c). The replaying driver keeps one for each packet; the others are for packets in
/// transit.
const SHARED_POOL_PACKETS_MAX: usize = 240_000;
/// The huge pages of that pool and its devices in MiB.
const MEMORY_MIB: u64 = 1024;
/// The largest number of descriptors of a queue. With `per-port-memory`, the pool of a port has a buffer for each
/// descriptor of each queue that was requested, even if the device has only one queue (Open vSwitch,
/// Documentation/topics/dpdk/memory.rst).
const DESCRIPTORS_MAX: usize = 4096;
/// The size of a buffer of a port with an MTU of 1500 in bytes, with its metadata.
const BUFFER_SIZE: u64 = 3200;
/// Numbers of packets that separate the warm-up times: with more flows, caches fill more slowly.
const FEW: usize = 1000;
const SOME: usize = 20_000;
const MANY: usize = 200_000;

/// The configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tuning {
    Shipped,
    /// For many flows, as Open vSwitch documents it: Documentation/topics/dpdk/bridge.rst and ovs-vswitchd.conf.db(5).
    Tuned,
}

/// The system under test.
#[derive(Debug, Clone, Copy)]
pub struct OvsDpdk(pub Tuning);

struct Forwarder {
    switchd: Running,
    // The database server must end after the switch, which otherwise logs errors.
    _database: Running,
    target: String,
    statistics: Command,
    /// The commands that print the size of the MAC table, and that clear it.
    fdb: [Command; 2],
    commands: Vec<String>,
    installation: Installation,
}

impl OvsDpdk {
    /// Returns the settings of the database: cores, memory, and those of the tuning.
    fn settings(self, resources: &Resources, load: &Load) -> Vec<String> {
        let mut settings = vec![
            "dpdk-init=true".to_owned(),
            format!("dpdk-lcore-mask={:#x}", 1_u64 << resources.control_core),
            format!("pmd-cpu-mask={}", core_mask(&resources.cores)),
        ];
        let memory = memory_mib(load);
        if load.packets_len > SHARED_POOL_PACKETS_MAX {
            settings.push("per-port-memory=true".to_owned());
        }
        let extra = format!("--no-pci --no-telemetry --file-prefix ovs{}", std::process::id());
        if resources.huge_pages_mib >= memory {
            settings.push(format!("dpdk-socket-mem={memory}"));
            settings.push(format!("dpdk-extra={extra} --in-memory"));
        } else {
            settings.push(format!("dpdk-extra={extra} --no-huge --legacy-mem -m {memory}"));
        }
        if self.0 == Tuning::Tuned {
            settings.extend(
                [
                    "smc-enable=true",
                    "emc-insert-inv-prob=1",
                    "flow-limit=2000000",
                    "max-idle=120000",
                ]
                .map(str::to_owned),
            );
        }
        settings
    }
}

/// The tools of Open vSwitch with a private database.
pub(crate) struct Database {
    dir: PathBuf,
    commands: Vec<String>,
}

/// A private Open vSwitch with an empty bridge `br0`.
pub(crate) struct PrivateOvs {
    pub(crate) switchd: Running,
    // The database server must end after the switch, which otherwise logs errors.
    server: Running,
    pub(crate) database: Database,
}

impl PrivateOvs {
    /// Starts the database server and the switch with these settings.
    pub(crate) fn start(
        mut database: Database,
        settings: &[String],
        nice: i32,
    ) -> Result<PrivateOvs, ProcessError> {
        let dir = database.dir.clone();
        let file = dir.join("conf.db");
        let mut create = database.command("ovsdb-tool");
        create.arg("create").arg(&file).arg(SCHEMA);
        database.run(create)?;
        let remote = format!("unix:{}", database.socket().display());
        let args = [file.display().to_string(), format!("--remote=p{remote}")];
        let server = database.daemon("ovsdb-server", &args, &dir.join("ovsdb-server.ctl"), 0)?;
        database.vsctl(["--no-wait", "init"])?;
        let mut args = vec![
            "--no-wait".to_owned(),
            "set".to_owned(),
            "Open_vSwitch".to_owned(),
            ".".to_owned(),
        ];
        args.extend(settings.iter().map(|setting| quoted(setting)));
        database.vsctl(&args)?;
        // `--disable-system` leaves the datapath of the kernel to the Open vSwitch of the machine.
        let args = [remote, "--disable-system".to_owned()];
        let switchd = database.daemon(DAEMON, &args, &dir.join("ovs-vswitchd.ctl"), nice)?;
        database.vsctl([
            "add-br",
            "br0",
            "--",
            "set",
            "bridge",
            "br0",
            "datapath_type=netdev",
            "fail_mode=secure",
            "protocols=OpenFlow13",
        ])?;
        Ok(PrivateOvs {
            switchd,
            server,
            database,
        })
    }
}

impl Database {
    /// Returns the tools for a database in this folder, which must exist.
    pub(crate) fn new(dir: &Path) -> Database {
        Database {
            dir: dir.to_owned(),
            commands: Vec::new(),
        }
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("db.sock")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for key in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(key, &self.dir);
        }
        command
    }

    fn run(&mut self, mut command: Command) -> Result<(), ProcessError> {
        self.commands.push(command_line(&command));
        run_tool(&mut command).map(drop)
    }

    pub(crate) fn vsctl<S: AsRef<str>>(
        &mut self,
        args: impl IntoIterator<Item = S>,
    ) -> Result<(), ProcessError> {
        let mut command = self.command("ovs-vsctl");
        command.arg(format!("--db=unix:{}", self.socket().display()));
        command.arg(format!("--timeout={}", START.as_secs()));
        command.args(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self.run(command)
    }

    /// Starts a daemon and waits for its control socket.
    fn daemon(
        &mut self,
        program: &str,
        args: &[String],
        control: &Path,
        nice: i32,
    ) -> Result<Running, ProcessError> {
        let mut command = self.command(program);
        command.args(args);
        command.arg(format!("--unixctl={}", control.display()));
        command.args(["-vconsole:info", "-vsyslog:off", "-vfile:off", "--no-chdir"]);
        self.commands.push(format!("{} &", command_line(&command)));
        let name = Path::new(program)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let mut running = Running::start(&name, &command, nice, &self.dir.join(format!("{name}.log")))?;
        running.wait_for("its control socket", START, |_| {
            Ok(control.exists().then_some(()))
        })?;
        Ok(running)
    }

    /// Adds a DPDK port; `ovs-vsctl` waits until the switch has it.
    pub(crate) fn add_port(
        &mut self,
        number: u32,
        devargs: &str,
        options: &[String],
    ) -> Result<(), ProcessError> {
        let devargs = format!("options:dpdk-devargs={devargs}");
        let mut settings = vec![devargs.as_str()];
        settings.extend(options.iter().map(String::as_str));
        self.add_interface(&format!("p{number}"), number, "dpdk", &settings)
    }

    /// Adds a port of a type, with further settings of its interface.
    pub(crate) fn add_interface(
        &mut self,
        name: &str,
        number: u32,
        kind: &str,
        settings: &[&str],
    ) -> Result<(), ProcessError> {
        let kind = format!("type={kind}");
        let number = format!("ofport_request={number}");
        let words = [
            "add-port",
            "br0",
            name,
            "--",
            "set",
            "interface",
            name,
            &kind,
            &number,
        ];
        self.vsctl(words.iter().chain(settings).copied())
    }

    /// Returns a command for the running daemon.
    fn appctl(&self, args: &[&str]) -> Command {
        let mut command = self.command("ovs-appctl");
        command
            .arg("-t")
            .arg(self.dir.join("ovs-vswitchd.ctl"))
            .args(args);
        command
    }
}

impl Peer for OvsDpdk {
    fn name(&self) -> &'static str {
        match self.0 {
            Tuning::Shipped => "ovs-dpdk",
            Tuning::Tuned => "ovs-dpdk-tuned",
        }
    }

    fn configuration(&self) -> &'static str {
        match self.0 {
            Tuning::Shipped => "as shipped: datapath_type=netdev",
            Tuning::Tuned => {
                "smc-enable=true emc-insert-inv-prob=1 flow-limit=2000000 max-idle=120000, upcall/set-flow-limit 2000000"
            }
        }
    }

    fn version(&self, _: &Resources) -> Option<String> {
        version(DAEMON)
    }

    fn sends_by_thread(&self) -> bool {
        true
    }

    fn warm_up(&self, load: &Load) -> WarmUp {
        match (self.0, load.packets_len) {
            (_, ..=FEW) => WarmUp::seconds(0, 4),
            (_, ..=SOME) => WarmUp::seconds(4, 12),
            // The rate does not settle: the flow limit grows for minutes, and flows expire after ten seconds.
            (Tuning::Shipped, _) => WarmUp::seconds(15, 20),
            (Tuning::Tuned, ..=MANY) => WarmUp::seconds(12, 20),
            (Tuning::Tuned, _) => WarmUp::seconds(40, 45),
        }
    }

    fn memory_mib(&self, load: &Load) -> u64 {
        memory_mib(load)
    }

    fn start(&self, resources: &Resources, load: &Load) -> Result<Box<dyn Forwarding>, PeerError> {
        self.bring_up(resources, load).map_err(|error| match error {
            // The error of the tool names only the timeout; the log of the daemon has the reason.
            PeerError::Process(ProcessError::Tool { command, output }) => {
                let log = std::fs::read(resources.dir.join("ovs-vswitchd-dpdk.log")).unwrap_or_default();
                let log = tail(&String::from_utf8_lossy(&log));
                PeerError::Process(ProcessError::Tool {
                    command,
                    output: format!("{output}\n{log}"),
                })
            }
            other => other,
        })
    }
}

impl OvsDpdk {
    /// Starts the switch, adds its sinks, installs the flow entries, and adds the ingress ports.
    fn bring_up(self, resources: &Resources, load: &Load) -> Result<Box<dyn Forwarding>, PeerError> {
        if !is_installed(DAEMON) {
            return Err(PeerError::Unsupported {
                system: self.name(),
                reason: format!(
                    "{DAEMON} does not exist. To fix it: apt-get install openvswitch-switch-dpdk"
                ),
            });
        }
        let settings = self.settings(resources, load);
        let PrivateOvs {
            switchd,
            server,
            mut database,
        } = PrivateOvs::start(Database::new(&resources.dir), &settings, resources.nice)?;
        for sink in Sink::ALL {
            let number = sink.port();
            database.add_port(number, &load.sink(sink), &[])?;
        }
        let target = format!("unix:{}", resources.dir.join("br0.mgmt").display());
        let (before, start) = (resident_memory(switchd.pid()), Instant::now());
        let add = ofctl::add_flows(&target, &load.flows, resources.nice)?;
        database.commands.push(add);
        let installation = Installation {
            seconds: start.elapsed().as_secs_f64(),
            memory: resident_memory(switchd.pid())
                .unwrap_or(0)
                .saturating_sub(before.unwrap_or(0)),
        };
        if self.0 == Tuning::Tuned {
            // The daemon raises the limit in steps of a thousand (`udpif_revalidator`), which takes minutes.
            database.run(database.appctl(&["upcall/set-flow-limit", "2000000"]))?;
        }
        let queues = load.packets_len.div_ceil(DESCRIPTORS_MAX) + 8;
        let options = if load.packets_len > SHARED_POOL_PACKETS_MAX {
            vec![
                format!("options:n_rxq={queues}"),
                format!("options:n_rxq_desc={DESCRIPTORS_MAX}"),
            ]
        } else {
            Vec::new()
        };
        for (number, devargs) in load.ports() {
            database.add_port(number, &devargs, &options)?;
        }
        Ok(Box::new(Forwarder {
            switchd,
            _database: server,
            target,
            statistics: database.appctl(&["dpif-netdev/pmd-stats-show"]),
            fdb: [["fdb/stats-show", "br0"], ["fdb/flush", "br0"]].map(|words| database.appctl(&words)),
            commands: database.commands,
            installation,
        }))
    }
}

fn memory_mib(load: &Load) -> u64 {
    if load.packets_len > SHARED_POOL_PACKETS_MAX {
        MEMORY_MIB + (load.packets_len as u64 * BUFFER_SIZE).div_ceil(1 << 20)
    } else {
        MEMORY_MIB
    }
}

/// Returns the second number in `Current/maximum MAC entries in the table: 1/8192`.
fn mac_table_size(text: &str) -> Option<usize> {
    let line = text.lines().find(|line| line.contains("maximum MAC entries"))?;
    line.rsplit('/').next()?.trim().parse().ok()
}

/// Returns a setting `key=value`, with the value quoted for `ovs-vsctl`.
fn quoted(setting: &str) -> String {
    match setting.split_once('=') {
        Some((key, value)) => format!("other_config:{key}=\"{value}\""),
        None => setting.to_owned(),
    }
}

impl Forwarding for Forwarder {
    fn pid(&self) -> u32 {
        self.switchd.pid()
    }

    fn rate(&mut self, window: Duration) -> Result<[f64; 2], PeerError> {
        self.switchd.check()?;
        rate_between(window, || {
            let ports = ofctl::ports(&self.target)?;
            Ok(Sink::ALL.map(|sink| ports.get(&sink.port()).map_or(0, |port| port.tx)))
        })
    }

    fn lookups(&mut self) -> Option<String> {
        run_tool(&mut self.statistics).ok()
    }

    fn mac_table_size(&mut self) -> Result<Option<usize>, PeerError> {
        let text = run_tool(&mut self.fdb[0])?;
        match mac_table_size(&text) {
            Some(size) => Ok(Some(size)),
            None => Err(PeerError::Unreadable {
                system: "ovs-dpdk",
                what: "expected a line `Current/maximum MAC entries in the table: NUMBER/NUMBER` in fdb/stats-show",
                text,
            }),
        }
    }

    fn forget_macs(&mut self, _: &mut dyn FnMut() -> Result<(), PeerError>) -> Result<(), PeerError> {
        run_tool(&mut self.fdb[1])?;
        Ok(())
    }

    fn target(&self) -> Option<String> {
        Some(self.target.clone())
    }

    fn tail(&self) -> String {
        self.switchd.tail()
    }

    fn commands(&self) -> Vec<String> {
        self.commands.clone()
    }

    fn installation(&self) -> Option<Installation> {
        Some(self.installation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_spaces_are_quoted() {
        assert_eq!(
            quoted("dpdk-extra=--no-pci --in-memory"),
            "other_config:dpdk-extra=\"--no-pci --in-memory\""
        );
    }

    #[test]
    fn the_size_of_the_mac_table_is_read() {
        let text = "Statistics for bridge \"br0\":\n  Current/maximum MAC entries in the table: 17/8192\n  \
                    Current static MAC entries in the table : 0\n";
        assert_eq!(mac_table_size(text), Some(8192));
        assert_eq!(mac_table_size("no bridge br0"), None);
    }

    #[test]
    fn the_two_configurations_differ_only_in_their_tuning() {
        let resources = Resources {
            dir: PathBuf::new(),
            cores: vec![1],
            control_core: 0,
            huge_pages_mib: 2048,
            nice: 0,
            millraced: PathBuf::new(),
            before: None,
        };
        let load = Load {
            flows: PathBuf::new(),
            flows_len: 1,
            ingress: vec![PathBuf::new()],
            packets_len: 512,
            first_sink: None,
            memif: None,
        };
        let (shipped, tuned) = (
            OvsDpdk(Tuning::Shipped).settings(&resources, &load),
            OvsDpdk(Tuning::Tuned).settings(&resources, &load),
        );
        assert_eq!(tuned[..shipped.len()], shipped);
        assert_eq!(tuned.len() - shipped.len(), 4);
        assert!(shipped.contains(&"pmd-cpu-mask=0x2".to_owned()));
    }
}
