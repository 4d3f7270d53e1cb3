//! `millrace wan`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use millrace_wan_control::args::{BetweenArgs, DirectionArgs};

use super::duration::between;

/// Emulated paths.
#[derive(Debug, Subcommand)]
pub(crate) enum Wan {
    /// Forward between two interfaces through an emulated path, until SIGINT or SIGTERM
    #[command(
        after_help = "Settings, `--netem` and presets are described in docs/wan.md. Examples:\n  \
        millrace wan between eth1 eth2 --delay 100ms --jitter 5ms,normal,half-life=50ms --loss ge:1%,burst=8 --rate 1Gbps --memory 128MiB\n  \
        millrace wan between eth1 eth2 --preset geo --rate 20Mbps --b-to-a \"rate=2Mbps\"\n  \
        millrace wan between eth1 eth2 --netem \"delay 100ms 10ms loss gemodel 1% 10%\" --memory 256MiB"
    )]
    Between(Box<BetweenArgs>),
    /// Show paths: settings, frames by outcome, and requested and realised delays
    Show(WanName),
    /// Show rates and outcomes of paths, live
    Watch {
        #[command(flatten)]
        of: WanName,
        /// Time between two readings, 100ms to 1h
        #[arg(long, value_name = "TIME", default_value = "1s", value_parser = between("100ms", "1h"))]
        interval: Duration,
        /// End after this many readings
        #[arg(long, value_name = "COUNT")]
        count: Option<u32>,
    },
    /// Change settings of a path, for frames from now on
    #[command(after_help = "`none` unsets a key. Examples:\n  \
        millrace wan set --delay 200ms\n  \
        millrace wan set geo --loss none --a-to-b \"loss=2%\"")]
    Set {
        #[command(flatten)]
        of: WanName,
        #[command(flatten)]
        settings: Box<DirectionArgs>,
    },
}

/// A path of a millrace-wan process, selected by its control socket, or a path of the daemon.
#[derive(Debug, Args)]
pub(crate) struct WanName {
    /// The path: a name of `[[wan]]`, or two interfaces as in eth1+eth2; the only one, or all of them, unless given
    pub(crate) name: Option<String>,
    /// The control socket of a millrace-wan
    #[arg(long, value_name = "SOCKET", env = "MILLRACE_WAN", hide_env_values = true)]
    pub(crate) control: Option<PathBuf>,
}
