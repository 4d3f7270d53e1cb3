//! Arguments of `millrace import`.

use std::path::PathBuf;

use clap::Subcommand;

/// The switch whose configuration is read.
#[derive(Debug, Subcommand)]
#[command(
    after_help = "The configuration goes to standard output, as TOML, and each thing that it does not say to standard error, \
    with what comes closest. Exit status: 0 the switch will do what the other did; 4 it differs in what is listed as a difference; \
    1 the file cannot be read. Examples:\n  \
    millrace import ovs /etc/openvswitch/conf.db > switch.toml\n  \
    millrace import ovs setup-bridges.sh > switch.toml\n  \
    millrace import lagopus /usr/local/etc/lagopus/lagopus.dsl > switch.toml\n  \
    millrace import linux > switch.toml\n  \
    millraced --check --config switch.toml"
)]
pub(crate) enum Import {
    /// Open vSwitch: a standalone database (conf.db), or a script of ovs-vsctl commands
    Ovs {
        /// The file
        file: PathBuf,
    },
    /// Lagopus: its configuration in DSL syntax
    Lagopus {
        /// The file
        file: PathBuf,
    },
    /// Bridges of Linux: of this network namespace, or of files
    Linux {
        /// Files with the output of `ip -d -j link`, `ip -j address`, `bridge -j vlan` and `bridge -j fdb`; without one,
        /// these commands run here
        files: Vec<PathBuf>,
    },
}
