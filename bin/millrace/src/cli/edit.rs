//! `bridge`, `port` and `controller`: one item of the configuration is added, changed or removed.

use clap::{Args, Subcommand};

use super::change::{CHANGE_EXIT_STATUS, ChangeArgs};

/// How settings are written in `bridge`, `port` and `controller`.
const SETTINGS_HELP: &str = "A setting is KEY=VALUE, with the keys of docs/configuration.md; KEY= gives the key its \
    default again. Items of a list are separated by commas. A value in brackets or braces is TOML, and KEY.KEY=VALUE sets \
    a key of a table.";

#[derive(Debug, Subcommand)]
pub(crate) enum BridgeCommand {
    /// Add a bridge
    #[command(after_help = format!("Examples:\n  \
        millrace bridge add br0\n  \
        millrace bridge add br0 fail_mode=standalone dpid=0000000000000001 listen=punix:/run/millrace/br0.mgmt\n\n\
        {SETTINGS_HELP}\n\n{CHANGE_EXIT_STATUS}"))]
    Add(BridgeAdd),
    /// Change settings of a bridge
    #[command(after_help = format!("Examples:\n  \
        millrace bridge set br0 fail_mode=secure\n  \
        millrace bridge set br0 description.datapath=\"Rack 4\" mac_ageing_s=\n\n\
        {SETTINGS_HELP}\n\n{CHANGE_EXIT_STATUS}"))]
    Set(BridgeSet),
    /// Remove a bridge with its ports
    #[command(after_help = CHANGE_EXIT_STATUS)]
    Remove(BridgeRemove),
}

#[derive(Debug, Args)]
pub(crate) struct BridgeAdd {
    /// The name of the bridge
    pub(crate) bridge: String,
    #[command(flatten)]
    pub(crate) settings: Settings,
    #[command(flatten)]
    pub(crate) exists: MayExist,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BridgeSet {
    /// The bridge
    pub(crate) bridge: String,
    #[command(flatten)]
    pub(crate) settings: RequiredSettings,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BridgeRemove {
    /// The bridge
    pub(crate) bridge: String,
    #[command(flatten)]
    pub(crate) exists: IfExists,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PortCommand {
    /// Add a port to a bridge
    #[command(after_help = format!("Examples:\n  \
        millrace port add br0 eth3\n  \
        millrace port add br0 uplink --device 0000:01:00.0 --number 10 mtu=9000\n  \
        millrace port add br0 eth4 vlan=100\n  \
        millrace port add br0 vx1 --device vxlan:remote=192.0.2.2,local=192.0.2.1,underlay=eth3,key=7\n  \
        millrace port add br0 to-br1 --device link:patch0 --peer br1/to-br0\n\n\
        {SETTINGS_HELP}\n\n{CHANGE_EXIT_STATUS}"))]
    Add(PortAdd),
    /// Change settings of a port
    #[command(after_help = format!("Examples:\n  \
        millrace port set br0 eth3 trunks=100,200\n  \
        millrace port set br0 eth3 down=true vlan=\n\n\
        {SETTINGS_HELP}\n\n{CHANGE_EXIT_STATUS}"))]
    Set(PortSet),
    /// Remove a port from a bridge
    #[command(after_help = CHANGE_EXIT_STATUS)]
    Remove(PortRemove),
    /// Set the counters of a port, or of all ports of a bridge, to zero, for everyone who reads them
    Reset {
        /// The bridge
        bridge: String,
        /// The port, by name or number; all ports unless given
        port: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct PortAdd {
    /// The bridge
    pub(crate) bridge: String,
    /// The name of the port
    pub(crate) port: String,
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// The device of the port; unless given, the interface of the kernel with the name of the port (kernel:PORT)
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// The OpenFlow port number; unless given, the lowest that no port and no chain of the bridge has
    #[arg(long, value_name = "NUMBER")]
    pub(crate) number: Option<u32>,
    /// With a device `link:NAME` or `wan:NAME,a`: also add the port at the other end, to the same or another bridge
    #[arg(long, value_name = "BRIDGE/PORT", requires = "device")]
    pub(crate) peer: Option<BridgePort>,
    #[command(flatten)]
    pub(crate) exists: MayExist,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PortSet {
    /// The bridge
    pub(crate) bridge: String,
    /// The name of the port
    pub(crate) port: String,
    #[command(flatten)]
    pub(crate) settings: RequiredSettings,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PortRemove {
    /// The bridge
    pub(crate) bridge: String,
    /// The name of the port
    pub(crate) port: String,
    /// Also remove the port at the other end of its link or emulated path
    #[arg(long)]
    pub(crate) peer: bool,
    #[command(flatten)]
    pub(crate) exists: IfExists,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

/// A port of a bridge, `BRIDGE/PORT`.
#[derive(Debug, Clone)]
pub(crate) struct BridgePort {
    pub(crate) bridge: String,
    pub(crate) port: String,
}

impl std::str::FromStr for BridgePort {
    type Err = String;

    fn from_str(text: &str) -> Result<BridgePort, String> {
        match text.split_once('/') {
            Some((bridge, port)) if !bridge.is_empty() && !port.is_empty() => Ok(BridgePort {
                bridge: bridge.to_owned(),
                port: port.to_owned(),
            }),
            _ => Err("expected BRIDGE/PORT, such as br1/to-br0".to_owned()),
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum ControllerCommand {
    /// Add a controller that a bridge connects to
    #[command(after_help = format!("Examples:\n  \
        millrace controller add br0 tcp:192.0.2.10:6653\n  \
        millrace controller add br0 tls:controller.example:6653 max_backoff_s=8\n\n\
        {SETTINGS_HELP}\n\n{CHANGE_EXIT_STATUS}"))]
    Add(ControllerAdd),
    /// Remove a controller of a bridge, or all
    #[command(after_help = CHANGE_EXIT_STATUS)]
    Remove(ControllerRemove),
}

#[derive(Debug, Args)]
pub(crate) struct ControllerAdd {
    /// The bridge
    pub(crate) bridge: String,
    /// The address of the controller: tcp:HOST:PORT or tls:HOST:PORT
    pub(crate) target: String,
    #[command(flatten)]
    pub(crate) settings: Settings,
    #[command(flatten)]
    pub(crate) exists: MayExist,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ControllerRemove {
    /// The bridge
    pub(crate) bridge: String,
    /// The address of the controller
    #[arg(required_unless_present = "all")]
    pub(crate) target: Option<String>,
    /// Remove all controllers of the bridge
    #[arg(long, conflicts_with = "target")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) exists: IfExists,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

/// Settings of an item.
#[derive(Debug, Args)]
pub(crate) struct Settings {
    /// Settings of it
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,
}

/// Settings of an item, at least one.
#[derive(Debug, Args)]
pub(crate) struct RequiredSettings {
    /// Settings of it
    #[arg(value_name = "KEY=VALUE", required = true)]
    pub(crate) settings: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct MayExist {
    /// If it exists, only change the given settings of it
    #[arg(long)]
    pub(crate) may_exist: bool,
}

#[derive(Debug, Args)]
pub(crate) struct IfExists {
    /// Do nothing if it does not exist
    #[arg(long)]
    pub(crate) if_exists: bool,
}
