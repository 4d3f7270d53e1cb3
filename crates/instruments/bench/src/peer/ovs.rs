//! Open vSwitch with DPDK, started by hand: database, sockets and logs are in a directory of its own, and
//! the machine's own Open vSwitch, if there is one, is not touched.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{
    Forwarding, Installation, Load, Peer, PeerError, START, Site, WarmUp, core_mask, ofctl, rate_between,
};
use crate::workload::Sink;
use millrace_process::{ProcessError, Running, in_path, memory, shown, tail, tool, version};

/// Where Debian's packages have the daemon with DPDK, and the schema of the database.
pub(crate) const DAEMON: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Its pool for all ports of an MTU of 1500 has 262,144 buffers (`MAX_NB_MBUF` in lib/netdev-dpdk.c), of which
/// the replaying driver keeps one a packet; the rest must do for what is under way.
const SHARED_POOL_PACKETS_MAX: usize = 240_000;
/// What that pool and its devices take of huge pages, MiB.
const MEMORY_MIB: u64 = 1024;
/// With `per-port-memory`, a port's pool has a buffer for each descriptor of each queue that was asked for
/// (Documentation/topics/dpdk/memory.rst), also where the device has only one: the most that can be asked.
const DESCRIPTORS_MAX: usize = 4096;
/// What a buffer of a port with an MTU of 1500 takes, bytes, its metadata included.
const BUFFER_SIZE: u64 = 3200;
/// More packets than this are many flows: caches fill slowly.
const FEW: usize = 1000;
const SOME: usize = 20_000;
const MANY: usize = 200_000;

/// How it is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tuning {
    /// As the package comes.
    Shipped,
    /// For many flows, as its documentation says: `Documentation/topics/dpdk/bridge.rst` and
    /// ovs-vswitchd.conf.db(5).
    Tuned,
}

/// The peer.
#[derive(Debug, Clone, Copy)]
pub struct OvsDpdk(pub Tuning);

struct Forwarder {
    switchd: Running,
    // Ended after the switch, which would otherwise complain.
    _database: Running,
    target: String,
    statistics: Command,
    /// What its MAC table holds, and that it is to forget all of it.
    fdb: [Command; 2],
    commands: Vec<String>,
    installation: Installation,
}

impl OvsDpdk {
    fn settings(self, site: &Site, load: &Load) -> Vec<String> {
        let mut settings = vec![
            "dpdk-init=true".to_owned(),
            format!("dpdk-lcore-mask={:#x}", 1_u64 << site.control_core),
            format!("pmd-cpu-mask={}", core_mask(&site.cores)),
        ];
        let memory = memory_mib(load);
        if load.packets_len > SHARED_POOL_PACKETS_MAX {
            settings.push("per-port-memory=true".to_owned());
        }
        let extra = format!("--no-pci --no-telemetry --file-prefix ovs{}", std::process::id());
        if site.huge_pages_mib >= memory {
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

/// The tools of Open vSwitch on the private database.
pub(crate) struct Database {
    dir: PathBuf,
    commands: Vec<String>,
}

/// A private Open vSwitch with an empty bridge `br0`.
pub(crate) struct Private {
    pub(crate) switchd: Running,
    // Ended after the switch, which would otherwise complain.
    server: Running,
    pub(crate) database: Database,
}

impl Private {
    /// Starts it, with these settings of its own.
    pub(crate) fn start(
        mut database: Database,
        settings: &[String],
        nice: i32,
    ) -> Result<Private, ProcessError> {
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
        // --disable-system: the kernel's datapath is the machine's, not ours.
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
        Ok(Private {
            switchd,
            server,
            database,
        })
    }
}

impl Database {
    /// In this folder, which is there.
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
        self.commands.push(shown(&command));
        tool(&mut command).map(drop)
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
        self.commands.push(format!("{} &", shown(&command)));
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

    /// Adds a port; `ovs-vsctl` waits until the switch has it.
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

    /// Adds a port of a type, with whatever else is to be set of its interface.
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

    /// Asks a running daemon.
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

    fn version(&self, _: &Site) -> Option<String> {
        version(DAEMON)
    }

    fn sends_by_thread(&self) -> bool {
        true
    }

    fn warm_up(&self, load: &Load) -> WarmUp {
        match (self.0, load.packets_len) {
            (_, ..=FEW) => WarmUp::seconds(0, 4),
            (_, ..=SOME) => WarmUp::seconds(4, 12),
            // It does not settle: its flow limit grows for minutes, and what it has goes after ten seconds.
            (Tuning::Shipped, _) => WarmUp::seconds(15, 20),
            (Tuning::Tuned, ..=MANY) => WarmUp::seconds(12, 20),
            (Tuning::Tuned, _) => WarmUp::seconds(40, 45),
        }
    }

    fn memory_mib(&self, load: &Load) -> u64 {
        memory_mib(load)
    }

    fn start(&self, site: &Site, load: &Load) -> Result<Box<dyn Forwarding>, PeerError> {
        self.bring_up(site, load).map_err(|error| match error {
            // The tool only says that it waited; the daemon says for what.
            PeerError::Process(ProcessError::Tool { command, output }) => {
                let log = std::fs::read(site.dir.join("ovs-vswitchd-dpdk.log")).unwrap_or_default();
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
    fn bring_up(self, site: &Site, load: &Load) -> Result<Box<dyn Forwarding>, PeerError> {
        if !in_path(DAEMON) {
            return Err(PeerError::Unsuited {
                system: self.name(),
                reason: format!("{DAEMON} is not there. To fix it: apt-get install openvswitch-switch-dpdk"),
            });
        }
        let settings = self.settings(site, load);
        let Private {
            switchd,
            server,
            mut database,
        } = Private::start(Database::new(&site.dir), &settings, site.nice)?;
        for sink in Sink::ALL {
            let number = sink.port();
            database.add_port(number, &load.sink(sink), &[])?;
        }
        let target = format!("unix:{}", site.dir.join("br0.mgmt").display());
        let (before, start) = (memory(switchd.pid()), Instant::now());
        let add = ofctl::add_flows(&target, &load.flows, site.nice)?;
        database.commands.push(add);
        let installation = Installation {
            seconds: start.elapsed().as_secs_f64(),
            memory: memory(switchd.pid())
                .unwrap_or(0)
                .saturating_sub(before.unwrap_or(0)),
        };
        if self.0 == Tuning::Tuned {
            // The limit is worked up to in steps of a thousand (`udpif_revalidator`), which takes minutes.
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

/// Returns the second number of `Current/maximum MAC entries in the table: 1/8192`.
fn mac_table_size(text: &str) -> Option<usize> {
    let line = text.lines().find(|line| line.contains("maximum MAC entries"))?;
    line.rsplit('/').next()?.trim().parse().ok()
}

/// A `key=value` whose value `ovs-vsctl` takes as it is.
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
        tool(&mut self.statistics).ok()
    }

    fn mac_table_size(&mut self) -> Result<Option<usize>, PeerError> {
        let text = tool(&mut self.fdb[0])?;
        match mac_table_size(&text) {
            Some(size) => Ok(Some(size)),
            None => Err(PeerError::Unreadable {
                system: "ovs-dpdk",
                what: "no line `Current/maximum MAC entries in the table: NUMBER/NUMBER` in fdb/stats-show",
                text,
            }),
        }
    }

    fn forget_macs(&mut self, _: &mut dyn FnMut() -> Result<(), PeerError>) -> Result<(), PeerError> {
        tool(&mut self.fdb[1])?;
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
    fn values_with_blanks_reach_the_database_whole() {
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
    fn tuning_is_what_differs_between_the_two_configurations() {
        let site = Site {
            dir: PathBuf::new(),
            cores: vec![1],
            control_core: 0,
            huge_pages_mib: 2048,
            nice: 0,
            millraced: PathBuf::new(),
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
            OvsDpdk(Tuning::Shipped).settings(&site, &load),
            OvsDpdk(Tuning::Tuned).settings(&site, &load),
        );
        assert_eq!(tuned[..shipped.len()], shipped);
        assert_eq!(tuned.len() - shipped.len(), 4);
        assert!(shipped.contains(&"pmd-cpu-mask=0x2".to_owned()));
    }
}
