//! The root of the configuration and the sections that concern the whole process.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::bridge::Bridge;
use crate::choice::{HugePages, Idle, Spread};
use crate::number::{CoreId, FunctionUid, MemoryMib, WorkerCount};
use crate::section::{deserialize, section};
use crate::target::SocketPath;

section! {
    /// Everything that a person decides about a switch.
    pub struct Config (live) {
        required {}
        optional {
            /// What the process takes of the machine.
            pub system: System = System::new(),
            /// The REST API.
            pub api: Api = Api::new(),
            /// The bridges.
            pub bridges as "bridge": Vec<Bridge> = Vec::new(),
        }
    }
}

section! {
    /// What the process takes of the machine.
    pub struct System (restart) {
        required {}
        optional {
            /// How many worker threads forward packets. Unset, one, or one for each of `worker_cores`.
            pub workers: Option<WorkerCount> = None,
            /// The cores that workers are pinned to, one worker each; the rest of the switch, and processes of network
            /// functions, keep to the others while there are any. Empty, the system places them.
            pub worker_cores: Vec<CoreId> = Vec::new(),
            /// Memory for packets. Taken only if a port needs DPDK.
            pub memory_mib: MemoryMib = MemoryMib::DEFAULT,
            /// Whether that memory is of huge pages.
            pub huge_pages: HugePages = HugePages::Auto,
            /// What a worker does when there is nothing to do.
            pub idle: Idle = Idle::Adaptive,
            /// Whether workers give flows to each other: what one receive queue brings is then not the work of one.
            pub spread: Spread = Spread::Auto,
            /// The first of the 384 user ids that processes of network functions run as, each with one of its own, where
            /// millraced is root. No account and no other program may have them.
            pub function_uid_base: FunctionUid = FunctionUid::DEFAULT,
            /// The directory of the configuration store.
            pub state_dir: PathBuf = PathBuf::from("/var/lib/millrace"),
        }
    }
}

section! {
    /// The REST API, metrics and the change stream.
    pub struct Api (restart) {
        required {}
        optional {
            /// Whether it is served at all.
            pub enabled: bool = true,
            /// The Unix socket that the daemon serves (mode 0600): root and the daemon's own user may connect.
            pub socket: SocketPath = SocketPath::api(),
            /// A TCP address to serve as well. Every request there must carry a bearer token. An address that is not
            /// loopback is refused without `tls_cert`, `tls_key` and `token_file`.
            pub listen: Option<SocketAddr> = None,
            /// The certificate chain of the TCP address, PEM.
            pub tls_cert: Option<PathBuf> = None,
            /// Its private key, PEM.
            pub tls_key: Option<PathBuf> = None,
            /// A file whose first line is the bearer token. Unset, the daemon generates one into `api-token` in its
            /// state directory (mode 0600), and keeps it until the file is removed.
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
    /// The bridge of that name.
    pub fn bridge(&self, name: &str) -> Option<&Bridge> {
        self.bridges.iter().find(|bridge| bridge.name.as_str() == name)
    }

    /// How much it holds, on one line: `1 bridge, 2 ports`; chains and controllers only if there are any.
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

    /// Whether any port needs DPDK: if none does, the switch runs without it.
    pub fn needs_dpdk(&self) -> bool {
        self.bridges
            .iter()
            .flat_map(|bridge| &bridge.ports)
            .any(|port| port.device.needs_dpdk())
    }
}

impl System {
    /// How many workers run: as configured, or else one for each core named, or else one.
    pub fn worker_count(&self) -> usize {
        match self.workers {
            Some(count) => usize::from(count.get()),
            None => self.worker_cores.len().max(1),
        }
    }
}
