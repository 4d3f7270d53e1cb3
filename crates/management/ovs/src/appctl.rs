//! Commands of `ovs-appctl` (ovs-vswitchd(8), "Runtime management commands") and their answers, as Open vSwitch 3.1 prints them.

use std::fmt::Write as _;

use millrace_types::Mac;

use crate::state::{LacpState, LagMemberState, LagState, MacState, Participant, State};
use crate::trees::{self, Protocol};
use crate::tunnels;

/// A command of `ovs-appctl`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// `version`.
    Version,
    /// `list-commands`.
    List,
    /// `exit [--cleanup]`.
    Exit,
    /// `fdb/show BRIDGE`.
    FdbShow(String),
    /// `fdb/flush [BRIDGE]`; of all bridges without one.
    FdbFlush(Option<String>),
    /// `fdb/stats-show BRIDGE`.
    FdbCount(String),
    /// `fdb/add BRIDGE PORT VLAN MAC`.
    FdbAdd {
        bridge: String,
        port: String,
        vlan: u16,
        mac: Mac,
    },
    /// `fdb/del BRIDGE VLAN MAC`.
    FdbDelete { bridge: String, vlan: u16, mac: Mac },
    /// `vlog/set SPEC...`: the level, or `None` if nothing says one.
    LogSet(Option<&'static str>),
    /// `vlog/list`.
    LogList,
    /// `vlog/reopen`.
    LogReopen,
    /// `vlog/close`.
    LogClose,
    /// `ovs/route/show`.
    Routes,
    /// `tnl/neigh/show`, `tnl/arp/show`.
    Neighbours,
    /// A command that only shows the state.
    Show(Show),
}

/// A command that shows the state of the switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Show {
    /// `bond/list`.
    Bonds,
    /// `bond/show [PORT]`.
    Bond(Option<String>),
    /// `lacp/show [PORT]`.
    Lacp(Option<String>),
    /// `ofproto/list`.
    Bridges,
    /// `dpif/show`.
    Datapath,
    /// `dpif/dump-dps`.
    Datapaths,
    /// `stp/show [BRIDGE]`.
    Stp(Option<String>),
    /// `rstp/show [BRIDGE]`.
    Rstp(Option<String>),
    /// `tnl/ports/show`.
    TunnelPorts,
}

/// The commands, their arguments as `list-commands` prints them, and the least and the largest number of these.
const COMMANDS: [(&str, &str, usize, usize); 24] = [
    ("bond/list", "", 0, 0),
    ("bond/show", "[port]", 0, 1),
    ("dpif/dump-dps", "", 0, 0),
    ("dpif/show", "", 0, 0),
    ("exit", "[--cleanup]", 0, 1),
    ("fdb/add", "bridge port vlan mac", 4, 4),
    ("fdb/del", "bridge vlan mac", 3, 3),
    ("fdb/flush", "[bridge]", 0, 1),
    ("fdb/show", "bridge", 1, 1),
    ("fdb/stats-show", "bridge", 1, 1),
    ("lacp/show", "[port]", 0, 1),
    ("list-commands", "", 0, 0),
    ("ofproto/list", "", 0, 0),
    ("ovs/route/show", "", 0, 0),
    ("rstp/show", "[bridge]", 0, 1),
    ("stp/show", "[bridge]", 0, 1),
    ("tnl/arp/show", "", 0, 0),
    ("tnl/neigh/show", "", 0, 0),
    ("tnl/ports/show", "", 0, 0),
    ("version", "", 0, 0),
    ("vlog/close", "", 0, 0),
    ("vlog/list", "", 0, 0),
    ("vlog/reopen", "", 0, 0),
    ("vlog/set", "{spec | PATTERN:destination:pattern}", 0, usize::MAX),
];

impl Command {
    /// Reads a command.
    ///
    /// # Errors
    /// The error for `ovs-appctl`, in the words of Open vSwitch where it has them.
    pub fn parse(name: &str, arguments: &[String]) -> Result<Command, String> {
        let Some((_, _, min, max)) = COMMANDS.iter().find(|(known, ..)| *known == name) else {
            return Err(format!(
                "\"{name}\" is not a valid command (use \"list-commands\" to see a list of valid commands)"
            ));
        };
        if arguments.len() < *min {
            return Err(format!("\"{name}\" command requires at least {min} arguments"));
        }
        if arguments.len() > *max {
            return Err(format!("\"{name}\" command takes at most {max} arguments"));
        }
        let first = arguments.first().cloned();
        Ok(match (name, arguments) {
            ("version", _) => Command::Version,
            ("exit", _) => Command::Exit,
            ("fdb/show", [bridge]) => Command::FdbShow(bridge.clone()),
            ("fdb/flush", _) => Command::FdbFlush(first),
            ("fdb/stats-show", [bridge]) => Command::FdbCount(bridge.clone()),
            ("fdb/add", [bridge, port, vlan, mac]) => Command::FdbAdd {
                bridge: bridge.clone(),
                port: port.clone(),
                vlan: vlan_of(vlan)?,
                mac: mac_of(mac)?,
            },
            ("fdb/del", [bridge, vlan, mac]) => Command::FdbDelete {
                bridge: bridge.clone(),
                vlan: vlan_of(vlan)?,
                mac: mac_of(mac)?,
            },
            ("vlog/set", specs) => Command::LogSet(level_of(specs)?),
            ("vlog/list", _) => Command::LogList,
            ("vlog/reopen", _) => Command::LogReopen,
            ("vlog/close", _) => Command::LogClose,
            ("bond/list", _) => Command::Show(Show::Bonds),
            ("bond/show", _) => Command::Show(Show::Bond(first)),
            ("lacp/show", _) => Command::Show(Show::Lacp(first)),
            ("ofproto/list", _) => Command::Show(Show::Bridges),
            ("dpif/show", _) => Command::Show(Show::Datapath),
            ("dpif/dump-dps", _) => Command::Show(Show::Datapaths),
            ("stp/show", _) => Command::Show(Show::Stp(first)),
            ("rstp/show", _) => Command::Show(Show::Rstp(first)),
            ("ovs/route/show", _) => Command::Routes,
            ("tnl/arp/show" | "tnl/neigh/show", _) => Command::Neighbours,
            ("tnl/ports/show", _) => Command::Show(Show::TunnelPorts),
            _ => Command::List,
        })
    }
}

/// Reads a VLAN, 0 for packets without one. Open vSwitch takes any number here.
fn vlan_of(text: &str) -> Result<u16, String> {
    let vlan = text.parse().ok().filter(|vlan| *vlan < 4096);
    vlan.ok_or_else(|| format!("{text}: expected a VLAN of 0 to 4095"))
}

fn mac_of(text: &str) -> Result<Mac, String> {
    text.parse().map_err(|_| "bad MAC address".to_owned())
}

/// The levels of Open vSwitch, and ours.
const LEVELS: [(&str, &str); 6] = [
    ("off", "off"),
    ("emer", "error"),
    ("err", "error"),
    ("warn", "warn"),
    ("info", "info"),
    ("dbg", "debug"),
];

/// Words of `vlog/set` that name places of the log and modules. There is one log here, whose modules are others.
const PLACES: [&str; 5] = ["any", "console", "file", "syslog", LOG_MODULE];

/// The name of all modules together in `vlog/list`.
const LOG_MODULE: &str = "millrace";

/// Returns the level that the words of `vlog/set` say last.
fn level_of(specs: &[String]) -> Result<Option<&'static str>, String> {
    let mut level = None;
    for spec in specs
        .iter()
        .filter(|spec| !spec.to_ascii_uppercase().starts_with("PATTERN:"))
    {
        for word in spec.split([' ', ',', ':']).filter(|word| !word.is_empty()) {
            let lower = word.to_ascii_lowercase();
            match LEVELS.iter().find(|(known, _)| *known == lower) {
                Some((_, ours)) => level = Some(*ours),
                None if PLACES.contains(&lower.as_str()) => {}
                None => return Err(format!("no destination, level, or module \"{word}\"")),
            }
        }
    }
    Ok(level)
}

/// Returns the answer to `vlog/list`, for the filter of the log: a level, and those of single targets.
pub fn log_list(filter: &str) -> String {
    let general = filter.split(',').find(|part| !part.contains('='));
    let level = match general.map_or("info", str::trim) {
        "error" => "ERR",
        "warn" => "WARN",
        "debug" | "trace" => "DBG",
        "off" => "OFF",
        _ => "INFO",
    };
    format!(
        "                 console    syslog    file\n                 -------    ------    ------\n\
         {LOG_MODULE:<16}  {level:<4}       {level:<4}       {level}\n"
    )
}

/// Returns the answer to a command that shows the state.
///
/// # Errors
/// The error for `ovs-appctl`.
pub fn show(command: &Show, state: &State) -> Result<String, String> {
    Ok(match command {
        Show::Bonds => bonds(state),
        Show::Bond(name) => bond_show(state, name.as_deref())?,
        Show::Lacp(name) => lacp_show(state, name.as_deref())?,
        Show::Bridges => state.bridges.keys().map(|name| format!("{name}\n")).collect(),
        Show::Datapaths => {
            let names = state.bridges.keys();
            names.map(|name| format!("netdev@{name}\n")).collect()
        }
        Show::Datapath => datapath(state),
        Show::Stp(name) => trees::show(state, Protocol::Stp, name.as_deref())?,
        Show::Rstp(name) => trees::show(state, Protocol::Rstp, name.as_deref())?,
        Show::TunnelPorts => tunnels::ports(state),
    })
}

/// Returns the answer to `dpif/show`. Every packet is looked up in the tables: none is missed.
fn datapath(state: &State) -> String {
    let ports = || state.bridges.values().flat_map(|bridge| bridge.ports.values());
    let hit: i64 = ports().filter_map(|port| port.statistics.get("rx_packets")).sum();
    let mut text = format!("netdev@ovs-netdev: hit:{hit} missed:0\n");
    for (name, bridge) in &state.bridges {
        let _infallible = writeln!(text, "  {name}:");
        // A LAG is shown by its members.
        for (name, port) in bridge
            .ports
            .iter()
            .filter(|(name, _)| !bridge.lags.contains_key(*name))
        {
            let number = match port.number {
                number if number == millrace_types::PortNo::LOCAL.raw() => 65_534,
                number => number,
            };
            let peer = port
                .peer
                .as_ref()
                .map(|peer| format!(": peer={peer}"))
                .unwrap_or_default();
            let _infallible = writeln!(text, "    {name} {number}/none: ({}{peer})", port.kind);
        }
    }
    text
}

/// Returns the answer to `list-commands`.
pub fn list_commands() -> String {
    let mut text = String::from("The available commands are:\n");
    for (name, arguments, ..) in COMMANDS {
        let _infallible = writeln!(text, "  {name:<23} {arguments}");
    }
    text
}

/// Returns the answer to `fdb/show`.
pub fn fdb(macs: &[MacState]) -> String {
    let mut text = String::from(" port  VLAN  MAC                Age\n");
    for entry in macs {
        let port = match entry.port {
            port if port == millrace_types::PortNo::LOCAL.raw() => "LOCAL".to_owned(),
            port => port.to_string(),
        };
        let age = match entry.is_static {
            true => "static".to_owned(),
            false => entry.age_s.to_string(),
        };
        let _infallible = writeln!(text, "{port:>5}  {:>4}  {}  {age:>3}", entry.vlan, entry.mac);
    }
    text
}

/// Returns the LAGs of all bridges that are meant, by the name of their port.
///
/// # Errors
/// There is no such LAG.
fn meant<'a>(
    state: &'a State,
    name: Option<&str>,
    unknown: &str,
) -> Result<Vec<(&'a str, &'a LagState)>, String> {
    let all = state.bridges.values().flat_map(|bridge| &bridge.lags);
    let meant: Vec<_> = all
        .map(|(port, lag)| (port.as_str(), lag))
        .filter(|(port, _)| name.is_none_or(|name| name == *port))
        .collect();
    match (meant.is_empty(), name) {
        (true, Some(_)) => Err(unknown.to_owned()),
        _ => Ok(meant),
    }
}

fn bond_mode(lag: &LagState) -> &'static str {
    // Without a partner, one member of a LAG with a fallback carries packets.
    let is_alone = lag.has_fallback && !lag.members.iter().any(has_partner);
    if is_alone { "active-backup" } else { "balance-tcp" }
}

fn has_partner(member: &LagMemberState) -> bool {
    member.lacp.as_ref().is_some_and(|lacp| lacp.partner.is_some())
}

fn lacp_status(lag: &LagState) -> &'static str {
    match lag.mode.as_str() {
        "on" => "off",
        _ if lag.members.iter().any(has_partner) => "negotiated",
        _ => "configured",
    }
}

/// Returns the answer to `bond/list`.
fn bonds(state: &State) -> String {
    let mut text = String::from("bond\ttype\trecircID\tmembers\n");
    for (name, lag) in state.bridges.values().flat_map(|bridge| &bridge.lags) {
        let members: Vec<&str> = lag.members.iter().map(|member| member.name.as_str()).collect();
        let _infallible = writeln!(text, "{name}\t{}\t-\t{}", bond_mode(lag), members.join(", "));
    }
    text
}

/// Returns the answer to `bond/show`.
///
/// # Errors
/// The error for `ovs-appctl`.
fn bond_show(state: &State, name: Option<&str>) -> Result<String, String> {
    let mut text = String::new();
    for (name, lag) in meant(state, name, "no such bond")? {
        let yes_no = |is| if is { "yes" } else { "no" };
        let _infallible = writeln!(
            text,
            "---- {name} ----\nbond_mode: {}\nbond may use recirculation: {}, Recirc-ID : -1\nbond-hash-basis: 0\n\
             lb_output action: disabled, bond-id: -1\nupdelay: 0 ms\ndowndelay: 0 ms\nlacp_status: {}\nlacp_fallback_ab: {}\n\
             active-backup primary: <none>",
            bond_mode(lag),
            yes_no(false),
            lacp_status(lag),
            lag.has_fallback,
        );
        let active = lag.active_member();
        let _infallible = match active {
            Some(member) => writeln!(text, "active member mac: {}({})", member.mac, member.name),
            None => writeln!(text, "active member mac: 00:00:00:00:00:00(none)"),
        };
        for member in &lag.members {
            let is_active = active.is_some_and(|active| active.name == member.name);
            let state = if member.is_enabled { "enabled" } else { "disabled" };
            let _infallible = writeln!(text, "\nmember {}: {state}", member.name);
            if is_active {
                text.push_str("  active member\n");
            }
            let _infallible = writeln!(text, "  may_enable: {}", member.is_enabled);
        }
        text.push('\n');
    }
    Ok(text)
}

/// Returns the answer to `lacp/show`.
///
/// # Errors
/// The error for `ovs-appctl`.
fn lacp_show(state: &State, name: Option<&str>) -> Result<String, String> {
    let mut text = String::new();
    for (name, lag) in meant(state, name, "no such lacp object")? {
        if lag.mode == "on" {
            continue;
        }
        let key = lag
            .members
            .iter()
            .find_map(|member| Some(member.lacp.as_ref()?.actor.key));
        let _infallible = writeln!(
            text,
            "---- {name} ----\n  status: {}{}\n  sys_id: {}\n  sys_priority: {}\n  aggregation key: {}\n  lacp_time: {}",
            lag.mode,
            match lacp_status(lag) {
                "negotiated" => " negotiated",
                _ => "",
            },
            lag.system,
            lag.system_priority,
            key.unwrap_or_default(),
            if lag.is_fast { "fast" } else { "slow" },
        );
        for member in &lag.members {
            if let Some(lacp) = &member.lacp {
                write_member(&mut text, member, lacp);
            }
        }
        text.push('\n');
    }
    Ok(text)
}

fn write_member(text: &mut String, member: &LagMemberState, lacp: &LacpState) {
    let status = match lacp.receive.as_str() {
        "port-disabled" | "lacp-disabled" => "defaulted",
        status => status,
    };
    let attached = if lacp.is_selected { "attached" } else { "detached" };
    let _infallible = writeln!(
        text,
        "\nmember: {}: {status} {attached}\n  port_id: {}\n  port_priority: {}\n  may_enable: {}\n",
        member.name, lacp.actor.port, lacp.actor.port_priority, member.is_enabled,
    );
    let unknown = Participant {
        system: "00:00:00:00:00:00".to_owned(),
        ..Participant::default()
    };
    for (side, who) in [
        ("actor", &lacp.actor),
        ("partner", lacp.partner.as_ref().unwrap_or(&unknown)),
    ] {
        let _infallible = writeln!(
            text,
            "  {side} sys_id: {}\n  {side} sys_priority: {}\n  {side} port_id: {}\n  {side} port_priority: {}\n  {side} key: {}\n  \
             {side} state: {}{}",
            who.system,
            who.system_priority,
            who.port,
            who.port_priority,
            who.key,
            who.state.join(" "),
            if side == "actor" { "\n" } else { "" },
        );
    }
}
