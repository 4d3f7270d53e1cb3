//! The root of the configuration and the sections of the whole process.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::bridge::Bridge;
use crate::choice::{HugePages, Idle, Spread};
use crate::name::DescriptionText;
use crate::number::{CoreId, FunctionUid, MemoryMib, WorkerCount};
use crate::ovsdb::Ovsdb;
use crate::routing::{Acl, Interface, Vrf};
use crate::section::{deserialize, section};
use crate::target::SocketPath;
use crate::wan::Wan;

section! {
    /// The configuration of a switch.
    pub struct Config (live) {
        required {}
        optional {
            /// The machine resources of the process.
            pub system: System = System::new(),
            /// The REST API.
            pub api: Api = Api::new(),
            /// The Open vSwitch database whose bridges the switch makes.
            pub ovsdb: Ovsdb = Ovsdb::new(),
            /// The bridges.
            pub bridges as "bridge": Vec<Bridge> = Vec::new(),
            /// The emulated wide-area paths.
            pub wans as "wan": Vec<Wan> = Vec::new(),
            /// The VRFs of the router; see docs/routing.md.
            pub vrfs as "vrf": Vec<Vrf> = Vec::new(),
            /// The interfaces of the router.
            pub interfaces as "interface": Vec<Interface> = Vec::new(),
            /// The access lists of the router.
            pub acls as "acl": Vec<Acl> = Vec::new(),
        }
    }
}

section! {
    /// The machine resources of the process.
    pub struct System (restart) {
        required {}
        optional {
            /// The number of worker threads that forward packets. Unset, one, or one for each of `worker_cores`.
            pub workers: Option<WorkerCount> = None,
            /// The cores that workers are pinned to, one worker each; the other threads of the switch, and processes
            /// of network functions, run on the remaining cores while there are any. Empty, the operating system
            /// schedules the workers.
            pub worker_cores: Vec<CoreId> = Vec::new(),
            /// The size of packet memory. If no port of the configuration at the start needs DPDK, the daemon takes a
            /// small part of it, and huge pages only with `huge_pages = "required"`: start again after such a port is added.
            pub memory_mib: MemoryMib = MemoryMib::DEFAULT,
            /// Use of huge pages for packet memory.
            pub huge_pages: HugePages = HugePages::Auto,
            /// The behaviour of a worker without work.
            pub idle: Idle = Idle::Adaptive,
            /// Handoff of flows between workers, which distributes the packets of one receive queue over several
            /// workers.
            pub spread: Spread = Spread::Auto,
            /// The first of 384 user ids for processes of network functions, one id for each process, if millraced
            /// runs as root. No account and no other program may use these ids.
            pub function_uid_base: FunctionUid = FunctionUid::DEFAULT,
            /// If true, a restart keeps flow entries, groups and meters: a clean stop and `millrace flow save` write them
            /// to `flows` in the state directory, and the next start restores them before the bridges have ports
            /// (docs/from-open-vswitch.md#flow-entries-after-a-restart). If false, a stop removes these files.
            pub keep_flows: bool = false,
            /// The directory of the configuration store. Only the configuration file of a start selects it: a change of
            /// the running switch to another directory is refused.
            pub state_dir: PathBuf = PathBuf::from("/var/lib/millrace"),
        }
    }
}

section! {
    /// The REST API, metrics and the change stream.
    pub struct Api (restart) {
        required {}
        optional {
            /// If true, the API is served.
            pub enabled: bool = true,
            /// The Unix socket of the API (mode 0600): root and the daemon's own user may connect.
            pub socket: SocketPath = SocketPath::api(),
            /// A group of this machine whose members may connect to the socket, too (mode 0660). They may do everything that
            /// root may do with the switch: the group is for programs such as millrace-mgmt.
            pub group: Option<DescriptionText<32>> = None,
            /// A TCP address at which the API is served as well. Every request there must carry a bearer token. An
            /// address that is not loopback is rejected without `tls_cert`, `tls_key` and `token_file`.
            pub listen: Option<SocketAddr> = None,
            /// The certificate chain of the TCP address, PEM.
            pub tls_cert: Option<PathBuf> = None,
            /// The private key of the certificate, PEM.
            pub tls_key: Option<PathBuf> = None,
            /// A file whose first line is the bearer token. Unset, the daemon generates a token in
            /// `api-token` in its state directory (mode 0600), and keeps the token until that file is
            /// removed. The file must belong to root or the daemon's user, with mode 0600 or 0640.
            pub token_file: Option<PathBuf> = None,
        }
    }
}

deserialize!(System, Api);

impl Default for Config {
    fn default() -> Config {
        Config::new()
    }
}

impl Default for System {
    fn default() -> System {
        System::new()
    }
}

impl Default for Api {
    fn default() -> Api {
        Api::new()
    }
}

impl Config {
    /// Returns the bridge with this name.
    pub fn bridge(&self, name: &str) -> Option<&Bridge> {
        self.bridges.iter().find(|bridge| bridge.name.as_str() == name)
    }

    /// Returns a summary on one line: `1 bridge, 2 ports`; chains and controllers are listed only if there are any.
    pub fn summary(&self) -> String {
        let count = |of: fn(&Bridge) -> usize| self.bridges.iter().map(of).sum::<usize>();
        let text = |count: usize, what: &str| match count {
            1 => format!("1 {what}"),
            _ => format!("{count} {what}s"),
        };
        let mut parts = vec![
            text(self.bridges.len(), "bridge"),
            text(count(|bridge| bridge.ports.len()), "port"),
        ];
        for (count, what) in [
            (count(|bridge| bridge.chains.len()), "chain"),
            (count(|bridge| bridge.controllers.len()), "controller"),
        ] {
            if count > 0 {
                parts.push(text(count, what));
            }
        }
        parts.join(", ")
    }

    /// Returns true if any port needs DPDK; otherwise the switch runs without DPDK.
    pub fn needs_dpdk(&self) -> bool {
        self.bridges
            .iter()
            .flat_map(Bridge::devices)
            .any(|(_, device)| device.needs_dpdk())
    }
}

impl System {
    /// Returns the number of workers: the configured number, or else the number of configured cores, or else one.
    pub fn worker_count(&self) -> usize {
        match self.workers {
            Some(count) => usize::from(count.get()),
            None => self.worker_cores.len().max(1),
        }
    }
}
