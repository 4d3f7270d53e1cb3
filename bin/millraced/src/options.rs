//! The command line of `millraced`.

use std::path::PathBuf;

use clap::Parser;

use crate::log::{Filter, Place};
use crate::simulate::SimulationOptions;

/// A software switch under OpenFlow control.
#[derive(Parser, Debug)]
#[command(name = "millraced", version, max_term_width = 100)]
pub(crate) struct Options {
    /// The configuration: a TOML file. It is imported if it is new or differs from the last imported version;
    /// otherwise, and without this option, the switch starts with the newest revision of the store.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Start with this revision of the store, which becomes the newest. Use it if the newest revision fails to start.
    /// The configuration file is not imported then.
    #[arg(long, value_name = "NUMBER", conflicts_with = "check")]
    pub(crate) revision: Option<u64>,

    /// The directory of the configuration store; overrides `system.state_dir`.
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,

    /// Run without DPDK: no NICs, no DPDK devargs and no `virtio-user`. Needs no huge pages, and root only for tap
    /// devices.
    #[arg(long)]
    pub(crate) no_dpdk: bool,

    /// Check the configuration file, print its errors, and exit. The check includes the cores and the memory of this
    /// machine, the directory of the store, the address of the REST API, and the files, interfaces, addresses and
    /// socket directories of ports, functions, emulated paths, listeners, sFlow and TLS; it creates nothing and loads no shared object. Run it as
    /// the user of the daemon.
    #[arg(long)]
    pub(crate) check: bool,

    /// The log levels: off, error, warn, info, debug or trace, followed by `,TARGET=LEVEL` for targets with another
    /// level: `warn,millrace_agent=debug,dpdk=info`. `millrace log` shows the targets, and changes the levels at run
    /// time.
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub(crate) log: Filter,

    /// Log JSON, one object per line.
    #[arg(long)]
    pub(crate) log_json: bool,

    /// The place of the log: `auto`, which is the journal if standard error is connected to it, and standard error
    /// otherwise; `stderr`; `journal`; or `journal:SOCKET`. Entries of the journal have a field for each value:
    /// `journalctl MILLRACE_BRIDGE=br0`.
    #[arg(
        long,
        value_name = "PLACE",
        default_value = "auto",
        conflicts_with = "log_json"
    )]
    pub(crate) log_to: Place,

    /// Print the man page.
    #[arg(long, hide = true)]
    pub(crate) man: bool,

    /// Print the man page of the configuration file.
    #[arg(long, hide = true)]
    pub(crate) man_config: bool,

    #[command(flatten)]
    pub(crate) simulation: SimulationOptions,
}
