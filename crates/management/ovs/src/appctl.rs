//! Commands of `ovs-appctl` (ovs-vswitchd(8), "Runtime management commands") and their answers, as Open vSwitch 3.1 prints them.

use std::fmt::Write as _;

use crate::state::{LacpState, LagMemberState, LagState, MacState, Participant, State};

/// A command of `ovs-appctl`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// `version`.
    Version,
    /// `list-commands`.
    List,
    /// `fdb/show BRIDGE`.
    FdbShow(String),
    /// `fdb/flush [BRIDGE]`; of all bridges without one.
    FdbFlush(Option<String>),
    /// `fdb/stats-show BRIDGE`.
    FdbCount(String),
    /// `bond/list`.
    BondList,
    /// `bond/show [PORT]`.
    BondShow(Option<String>),
    /// `lacp/show [PORT]`.
    LacpShow(Option<String>),
}

/// The commands and their arguments, as `list-commands` prints them.
const COMMANDS: [(&str, &str); 8] = [
    ("bond/list", ""),
    ("bond/show", "[port]"),
    ("fdb/flush", "[bridge]"),
    ("fdb/show", "bridge"),
    ("fdb/stats-show", "bridge"),
    ("lacp/show", "[port]"),
    ("list-commands", ""),
    ("version", ""),
];

impl Command {
    /// Reads a command.
    ///
    /// # Errors
    /// The error for `ovs-appctl`, in the words of Open vSwitch where it has them.
    pub fn parse(name: &str, arguments: &[String]) -> Result<Command, String> {
        let first = || arguments.first().cloned();
        let required = || first().ok_or_else(|| format!("\"{name}\" command requires at least 1 arguments"));
        let (command, max) = match name {
            "version" => (Command::Version, 0),
            "list-commands" => (Command::List, 0),
            "fdb/show" => (Command::FdbShow(required()?), 1),
            "fdb/flush" => (Command::FdbFlush(first()), 1),
            "fdb/stats-show" => (Command::FdbCount(required()?), 1),
            "bond/list" => (Command::BondList, 0),
            "bond/show" => (Command::BondShow(first()), 1),
            "lacp/show" => (Command::LacpShow(first()), 1),
            _ => {
                return Err(format!(
                    "\"{name}\" is not a valid command (use \"list-commands\" to see a list of valid commands)"
                ));
            }
        };
        if arguments.len() > max {
            return Err(format!("\"{name}\" command takes at most {max} arguments"));
        }
        Ok(command)
    }
}

/// Returns the answer to `list-commands`.
pub fn list_commands() -> String {
    let mut text = String::from("The available commands are:\n");
    for (name, arguments) in COMMANDS {
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
        let _infallible = writeln!(
            text,
            "{port:>5}  {:>4}  {}  {:>3}",
            entry.vlan, entry.mac, entry.age_s
        );
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
pub fn bonds(state: &State) -> String {
    let mut text = String::from("Bond\tType\tRecircID\tMembers\n");
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
pub fn bond_show(state: &State, name: Option<&str>) -> Result<String, String> {
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
pub fn lacp_show(state: &State, name: Option<&str>) -> Result<String, String> {
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
