//! `millrace show lag`.

use std::fmt::Write as _;

use anyhow::{Result, bail};
use millrace_api::view::{LacpParticipant, Lag, LagMember, LinkState};

use crate::human::{bps, or_dash, span};
use crate::output::Session;
use crate::table::Table;

/// Prints all LAGs, or one with its members.
pub(super) fn show(session: &Session, name: Option<&str>) -> Result<()> {
    let mut lags = session.client()?.lags()?;
    let Some(name) = name else {
        return session.print_table(&lags, |list| table(list));
    };
    let names: Vec<String> = lags.iter().map(|lag| lag.name.clone()).collect();
    lags.retain(|lag| lag.name == name || lag.port == name);
    if lags.is_empty() {
        let known = match names.is_empty() {
            true => "the switch has none".to_owned(),
            false => format!("expected {}", names.join(" or ")),
        };
        bail!("there is no LAG `{name}`: {known}");
    }
    session.print(&lags, |list| list.iter().map(text).collect::<Vec<_>>().join("\n"))
}

fn link(state: LinkState) -> &'static str {
    match state {
        LinkState::Up => "up",
        LinkState::Down => "down",
        LinkState::Missing => "missing",
    }
}

fn speed(speed: Option<u64>) -> String {
    or_dash(speed.map(|rate| bps(rate as f64)))
}

/// Returns a row for each LAG.
fn table(list: &[Lag]) -> Table {
    let headings = [
        "LAG", "BRIDGE", "PORT", ">NUMBER", "MODE", "LINK", ">SPEED", ">MEMBERS", "PARTNER", ">RX", ">TX",
        ">DROPS",
    ];
    let mut table = Table::new(&headings, "no LAGs: [[bridge.lag]] defines one");
    for lag in list {
        let carrying = lag.members.iter().filter(|member| member.distributing);
        let partner = carrying
            .clone()
            .find_map(|member| member.lacp.as_ref()?.partner.as_ref());
        table.row([
            lag.name.clone(),
            lag.bridge.clone(),
            lag.port.clone(),
            lag.number.to_string(),
            match lag.mode.as_str() {
                "on" => "on".to_owned(),
                mode => format!("{mode}, {}", lag.rate),
            },
            link(lag.link).to_owned(),
            speed(lag.speed_bps),
            format!("{}/{}", carrying.count(), lag.members.len()),
            or_dash(partner.map(|partner| partner.system.clone())),
            lag.rx.packets.to_string(),
            lag.tx.packets.to_string(),
            (lag.rx.drops + lag.tx.drops).to_string(),
        ]);
    }
    table
}

/// Returns a LAG with its members, and with both sides of LACP.
fn text(lag: &Lag) -> String {
    let mut out = format!(
        "LAG {}, port {} ({}) of bridge {}: {}\n  mode {}, rate {}, min_links {}, fallback {}\n  system {}.{}, MAC address {}, \
         speed {}\n\n",
        lag.name,
        lag.port,
        lag.number,
        lag.bridge,
        link(lag.link),
        lag.mode,
        lag.rate,
        lag.min_links,
        lag.fallback,
        lag.system_priority,
        lag.system,
        lag.mac,
        speed(lag.speed_bps),
    );
    let mut members = Table::new(
        &[
            "MEMBER", ">NUMBER", "DEVICE", "LINK", ">SPEED", "CARRIES", ">SINCE", ">RX", ">TX", ">DROPS",
        ],
        "no members",
    );
    for member in &lag.members {
        members.row([
            member.name.clone(),
            member.number.to_string(),
            member.device.clone(),
            link(member.link).to_owned(),
            speed(member.speed_bps),
            match (member.collecting, member.distributing) {
                (true, true) => "both ways",
                (true, false) => "receives",
                (false, true) => "sends",
                (false, false) => "nothing",
            }
            .to_owned(),
            or_dash(member.since_s.map(|since| span(since as f64))),
            member.rx.packets.to_string(),
            member.tx.packets.to_string(),
            (member.rx.drops + member.tx.drops).to_string(),
        ]);
    }
    // Writing to a string cannot fail.
    let _ = write!(out, "{members}");
    let with_lacp: Vec<&LagMember> = lag
        .members
        .iter()
        .filter(|member| member.lacp.is_some())
        .collect();
    if !with_lacp.is_empty() {
        let _ = write!(out, "\n{}\n{STATE_LETTERS}\n", lacp(&with_lacp));
    }
    out
}

/// The letters of states, as [`LacpParticipant::letters`] writes them.
const STATE_LETTERS: &str = "STATE: A active, P passive; S short timeout, L long; G aggregable, I individual; s+ in sync, s- not;\n\
                             C collecting, D distributing; d defaulted, X expired";

/// Returns two rows for each member: this side and its partner.
fn lacp(members: &[&LagMember]) -> Table {
    let headings = [
        "MEMBER", "SIDE", "SYSTEM", ">KEY", ">PORT", "STATE", "RECEIVE", "MUX", "SELECTED", "CHURN",
        ">LACPDUS", ">FLAPS",
    ];
    let mut table = Table::new(&headings, "no LACP");
    for member in members {
        let Some(lacp) = &member.lacp else { continue };
        let side = |side: &LacpParticipant| {
            [
                format!("{}.{}", side.system_priority, side.system),
                side.key.to_string(),
                format!("{}.{}", side.port_priority, side.port),
                side.letters(),
            ]
        };
        let [system, key, port, state] = side(&lacp.actor);
        table.row([
            member.name.clone(),
            "actor".to_owned(),
            system,
            key,
            port,
            state,
            lacp.receive.clone(),
            lacp.mux.clone(),
            lacp.selected.clone(),
            lacp.actor_churn.clone(),
            lacp.tx_lacpdus.to_string(),
            lacp.flaps.to_string(),
        ]);
        let unknown = || ["-", "-", "-", "-"].map(str::to_owned);
        let [system, key, port, state] = lacp.partner.as_ref().map_or_else(unknown, side);
        let blank = String::new;
        table.row([
            blank(),
            "partner".to_owned(),
            system,
            key,
            port,
            state,
            blank(),
            blank(),
            blank(),
            lacp.partner_churn.clone(),
            lacp.rx_lacpdus.to_string(),
            blank(),
        ]);
    }
    table
}
