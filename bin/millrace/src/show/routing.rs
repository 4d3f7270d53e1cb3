//! `millrace show vrfs|interfaces|routes|nexthops|neighbours`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use millrace_api::client::{Client, ClientError, RouteOptions};
use millrace_api::view::{
    Neighbour, NextHopGroup, Route, RouteKind, RouteNextHop, RouteSourceState, RouterInterface, Vrf,
};
use serde::Serialize;

use crate::cli::{Routes, VrfSelection};
use crate::output::{Session, say};
use crate::table::Table;

/// The number of routes of a page.
const PAGE_LEN: usize = 10_000;

pub(super) fn vrfs(list: &[Vrf]) -> Table {
    let mut table = Table::new(
        &[
            "VRF",
            "NAMESPACE",
            ">TABLE",
            "ROUTES FROM",
            "STATE",
            ">IPV4",
            ">IPV6",
            ">NEXT HOPS",
            ">NEIGHBOURS",
            ">MEMORY",
            ">OVERRUNS",
        ],
        "no VRF",
    );
    for vrf in list {
        let state = match vrf.state {
            RouteSourceState::Reading => "reading",
            RouteSourceState::Synchronised => "synchronised",
            RouteSourceState::Away => "FRR is away",
            RouteSourceState::NoNamespace => "no namespace",
        };
        table.row([
            vrf.name.clone(),
            vrf.netns.clone().unwrap_or_else(|| "-".to_owned()),
            vrf.table.to_string(),
            vrf.source.clone(),
            state.to_owned(),
            vrf.ipv4_routes.to_string(),
            vrf.ipv6_routes.to_string(),
            vrf.nexthop_groups.to_string(),
            vrf.neighbours.to_string(),
            format!("{} KiB", vrf.fib_bytes.div_ceil(1024)),
            vrf.overruns.to_string(),
        ]);
    }
    table
}

/// Returns a row for each interface, and with `drops` a row for each reason of dropped packets below.
pub(super) fn interfaces(list: &[RouterInterface], drops: bool) -> String {
    let mut table = Table::new(
        &[
            "INTERFACE",
            "VRF",
            "BRIDGE",
            ">VLAN",
            "LINK",
            ">MTU",
            "ADDRESSES",
            ">RX",
            ">TX",
            ">TO KERNEL",
            ">ERRORS SENT",
            ">DROPPED",
        ],
        "no interface",
    );
    for interface in list {
        let dropped: u64 = interface.drops.iter().map(|drop| drop.packets).sum();
        table.row([
            interface.name.clone(),
            interface.vrf.clone(),
            interface.bridge.clone(),
            interface
                .vlan
                .map_or_else(|| "-".to_owned(), |vlan| vlan.to_string()),
            if interface.up { "up" } else { "down" }.to_owned(),
            interface.mtu.to_string(),
            [&interface.addresses[..], &interface.other_macs]
                .concat()
                .join(" "),
            interface.rx_packets.to_string(),
            interface.tx_packets.to_string(),
            interface.to_kernel.to_string(),
            interface.icmp_errors.to_string(),
            dropped.to_string(),
        ]);
    }
    let mut text = table.to_string();
    if drops {
        let mut reasons = Table::new(
            &["INTERFACE", "REASON", ">PACKETS", "MEANING"],
            "no dropped packet",
        );
        for interface in list {
            for drop in &interface.drops {
                reasons.row([
                    interface.name.clone(),
                    drop.reason.clone(),
                    drop.packets.to_string(),
                    drop.description.clone(),
                ]);
            }
        }
        // Writing to a String cannot fail.
        let _written = write!(text, "\n{reasons}");
    }
    text
}

/// Returns a next hop as `ip route` writes it: `via 10.0.20.2 dev v20 weight 2`.
fn nexthop(hop: &RouteNextHop) -> String {
    let mut text = match (&hop.gateway, &hop.interface) {
        (Some(gateway), Some(interface)) => format!("via {gateway} dev {interface}"),
        (Some(gateway), None) => format!("via {gateway}"),
        (None, Some(interface)) => format!("dev {interface}"),
        (None, None) => "-".to_owned(),
    };
    let _written = match hop.weight {
        0 | 1 => Ok(()),
        weight => write!(text, " weight {weight}"),
    };
    if !hop.live {
        text.push_str(" dead");
    }
    text
}

fn destination(route: &Route) -> String {
    let kind = match route.kind {
        RouteKind::Local => "local",
        RouteKind::Blackhole => "blackhole",
        RouteKind::Unreachable => "unreachable",
        RouteKind::Prohibit => "prohibit",
        RouteKind::Unicast => {
            return match route.nexthops.as_slice() {
                [] => "-".to_owned(),
                hops => hops.iter().map(nexthop).collect::<Vec<_>>().join(", "),
            };
        }
    };
    kind.to_owned()
}

fn routes(list: &[Route]) -> Table {
    let mut table = Table::new(&["PREFIX", "NEXT HOPS", "SET BY", ">METRIC"], "no route");
    for route in list {
        table.row([
            route.prefix.clone(),
            destination(route),
            route.protocol.clone(),
            route.metric.to_string(),
        ]);
    }
    table
}

/// Prints the routes. The text comes page by page, so that a full table begins at once and needs the memory of a page;
/// JSON is one object.
pub(super) fn show_routes(session: &Session, wanted: &Routes) -> Result<()> {
    if session.json() {
        let read = |client: &Client, vrf: &str| {
            let mut list = Vec::new();
            each_page::<ClientError>(client, vrf, wanted, |page| {
                list.extend(page);
                Ok(())
            })?;
            Ok(list)
        };
        return per_vrf(session, &wanted.of, read, routes);
    }
    let client = session.client()?;
    let names = vrf_names(client, &wanted.of)?;
    if names.is_empty() {
        return say("no VRF is configured\n");
    }
    for (at, vrf) in names.iter().enumerate() {
        if names.len() > 1 {
            let gap = if at == 0 { "" } else { "\n" };
            say(&format!("{gap}VRF {vrf}\n"))?;
        }
        let mut is_first = true;
        each_page::<anyhow::Error>(client, vrf, wanted, |page| {
            let text = routes(&page).to_string();
            // Only the first page has headings.
            let rows = text.split_once('\n').map_or("", |(_, rows)| rows);
            say(if std::mem::replace(&mut is_first, false) {
                &text
            } else {
                rows
            })
        })?;
    }
    Ok(())
}

/// Reads the pages of the wanted routes of a VRF one by one.
fn each_page<E: From<ClientError>>(
    client: &Client,
    vrf: &str,
    wanted: &Routes,
    mut take: impl FnMut(Vec<Route>) -> Result<(), E>,
) -> Result<(), E> {
    let mut left = wanted.limit.unwrap_or(usize::MAX);
    let mut options = RouteOptions {
        to: wanted.to.clone(),
        within: wanted.within.clone(),
        after: wanted.after.clone(),
        ..RouteOptions::default()
    };
    while left > 0 {
        options.limit = Some(left.min(PAGE_LEN));
        let page = client.routes(vrf, &options)?;
        left = left.saturating_sub(page.routes.len());
        take(page.routes)?;
        match page.next {
            Some(next) => options.after = Some(next),
            None => break,
        }
    }
    Ok(())
}

pub(super) fn nexthops(list: &[NextHopGroup]) -> Table {
    let mut table = Table::new(&[">GROUP", ">ROUTES", "NEXT HOP", "MAC"], "no next hop");
    for group in list {
        for (index, hop) in group.nexthops.iter().enumerate() {
            let first = |text: String| if index == 0 { text } else { String::new() };
            table.row([
                first(group.group.to_string()),
                first(group.routes.to_string()),
                nexthop(hop),
                hop.mac.clone().unwrap_or_else(|| "-".to_owned()),
            ]);
        }
    }
    table
}

pub(super) fn neighbours(list: &[Neighbour]) -> Table {
    let mut table = Table::new(&["INTERFACE", "ADDRESS", "MAC", "STATE"], "no neighbour");
    for neighbour in list {
        table.row([
            neighbour.interface.clone(),
            neighbour.address.clone(),
            neighbour.mac.clone().unwrap_or_else(|| "-".to_owned()),
            neighbour.state.clone(),
        ]);
    }
    table
}

/// Returns the name of the wanted VRF, or those of all.
fn vrf_names(client: &Client, of: &VrfSelection) -> Result<Vec<String>, ClientError> {
    Ok(match &of.vrf {
        Some(vrf) => vec![vrf.clone()],
        None => client.vrfs()?.into_iter().map(|vrf| vrf.name).collect(),
    })
}

/// Prints one table for each VRF, with a heading if there are several; JSON is an object by VRF.
pub(super) fn per_vrf<T: Serialize>(
    session: &Session,
    of: &VrfSelection,
    ask: impl Fn(&Client, &str) -> Result<Vec<T>, ClientError>,
    table: impl Fn(&[T]) -> Table,
) -> Result<()> {
    let client = session.client()?;
    let names = vrf_names(client, of)?;
    let mut lists = BTreeMap::new();
    for name in names {
        let list = ask(client, &name)?;
        lists.insert(name, list);
    }
    session.print(&lists, |lists| {
        if lists.is_empty() {
            return "no VRF is configured\n".to_owned();
        }
        let part = |(name, list): (&String, &Vec<T>)| match lists.len() {
            1 => table(list).to_string(),
            _ => format!("VRF {name}\n{}", table(list)),
        };
        lists.iter().map(part).collect::<Vec<_>>().join("\n")
    })
}
