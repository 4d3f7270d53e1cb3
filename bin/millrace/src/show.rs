//! `millrace show`: the desired and the running state.

mod flows;
mod ipfix;
mod lag;
mod lldp;
mod mirrors;
mod oam;
mod offload;
mod openflow;
mod ovsdb;
mod ports;
mod queues;
mod routing;
mod rstp;
mod sflow;
mod status;
mod workers;

use std::collections::BTreeMap;
use std::fmt::Display;

use anyhow::Result;
use millrace_api::client::{Client, ClientError};
use millrace_api::view::{self, format_utc};
use millrace_model::Config;
use serde::Serialize;

use crate::bridges::bridge_names;
use crate::cli::{BridgeSelection, Show};
use crate::output::{Session, say};
use crate::own;
use crate::table::Table;

use status::Status;

pub(crate) use status::problems;
pub(crate) use workers::{dropped, workers};

pub(crate) fn run(session: &Session, args: &Show) -> Result<()> {
    let client = session.client()?;
    match args {
        Show::Status => session.print(&status::status(client)?, Status::text),
        Show::Bridges => session.print_table(&client.bridges()?, |list| openflow::bridges(list)),
        Show::Ports(of) => per_bridge(session, of, Client::ports, ports::advised_ports),
        Show::Flows(wanted) => flows::show(session, wanted),
        Show::Tables(of) => per_bridge(session, of, Client::tables, openflow::tables),
        Show::Groups(of) => per_bridge(session, of, Client::groups, openflow::groups),
        Show::Meters(of) => per_bridge(session, of, Client::meters, openflow::meters),
        Show::Queues(of) => per_bridge(session, of, Client::queues, queues::table),
        Show::Policers(of) => per_bridge(session, of, queues::policed, queues::policers),
        Show::Offload(of) => per_bridge(session, of, offload::ports, offload::table),
        Show::Oam(of) => per_bridge(session, of, oam::monitored, oam::table),
        Show::Lldp(of) => per_bridge(session, of, lldp::ports, lldp::table),
        Show::Lag { name } => lag::show(session, name.as_deref()),
        Show::Rstp(of) => per_bridge(session, of, rstp::ports, rstp::table),
        Show::Mirrors(of) => per_bridge(session, of, Client::mirrors, mirrors::table),
        Show::Sflow(of) => per_bridge(session, of, Client::sflow, sflow::text),
        Show::Ipfix(of) => per_bridge(session, of, Client::ipfix, ipfix::text),
        Show::Ovsdb => session.print(&client.ovsdb()?, ovsdb::text),
        Show::Vrfs => session.print_table(&client.vrfs()?, |list| routing::vrfs(list)),
        Show::Interfaces { drops } => session.print(&client.router_interfaces()?, |list| {
            routing::interfaces(list, *drops)
        }),
        Show::Routes(wanted) => routing::show_routes(session, wanted),
        Show::Nexthops(of) => routing::per_vrf(session, of, Client::nexthops, routing::nexthops),
        Show::Neighbours(of) => routing::per_vrf(session, of, Client::neighbours, routing::neighbours),
        Show::Controllers(of) => per_bridge(session, of, Client::controllers, openflow::controllers),
        Show::Workers => session.print_table(&client.workers()?, |list| workers(list)),
        Show::Drops { all } => {
            let mut drops = client.drops()?;
            drops.retain(|drop| *all || drop.packets > 0);
            session.print_table(&drops, |list| dropped(list))
        }
        Show::Macs(of) => per_bridge(session, of, Client::macs, openflow::macs),
        Show::Config { revision, full } => config(session, *revision, *full),
        Show::Owners => session.print_table(&client.owners()?.objects, |list| own::table(list)),
        Show::History { limit } => session.print(&client.revisions((*limit).into())?, history),
    }
}

/// Prints one table for each bridge, with a heading if there are several; JSON is an object by bridge.
fn per_bridge<T: Serialize, D: Display>(
    session: &Session,
    of: &BridgeSelection,
    ask: impl Fn(&Client, &str) -> Result<Vec<T>, ClientError>,
    table: impl Fn(&[T]) -> D,
) -> Result<()> {
    let client = session.client()?;
    let mut lists = BTreeMap::new();
    for name in bridge_names(client, of)? {
        let list = ask(client, &name)?;
        lists.insert(name, list);
    }
    session.print(&lists, |lists| {
        if lists.is_empty() {
            return "no bridge runs\n".to_owned();
        }
        let several = lists.len() > 1;
        let part = |(name, list): (&String, &Vec<T>)| {
            let heading = if several {
                format!("bridge {name}\n")
            } else {
                String::new()
            };
            format!("{heading}{}", table(list))
        };
        lists.iter().map(part).collect::<Vec<_>>().join("\n")
    })
}

fn config(session: &Session, revision: Option<u64>, full: bool) -> Result<()> {
    let client = session.client()?;
    let json = match revision {
        Some(number) => client.revision(number)?.config,
        None => client.config()?.0,
    };
    if session.json() {
        return session.print(&json, |_| String::new());
    }
    // A configuration is shown even if a function rejects its settings.
    let config: Config = serde_json::from_value(json)?;
    say(&if full {
        config.to_toml_full()
    } else {
        config.to_toml()
    })
}

/// Returns the operation that made a revision in words.
pub(crate) fn operation(operation: view::Operation) -> String {
    match operation {
        view::Operation::Initial => "initial".to_owned(),
        view::Operation::Commit => "commit".to_owned(),
        view::Operation::Own => "change of owners".to_owned(),
        view::Operation::Rollback { to } => format!("rollback to {to}"),
        view::Operation::Expired { to } => format!("not confirmed, back to {to}"),
        view::Operation::Cancelled { to } => format!("cancelled, back to {to}"),
    }
}

fn history(revisions: &view::Revisions) -> String {
    let mut table = Table::new(
        &[">REVISION", "TIME", "ORIGIN", "AUTHOR", "OPERATION", "COMMENT"],
        "no revision",
    );
    for given in &revisions.revisions {
        let waits = revisions
            .pending
            .is_some_and(|pending| pending.revision == given.number);
        let note = if waits { " (waits to be confirmed)" } else { "" };
        let number = match given.replaces {
            Some(first) => format!("{first}-{}", given.number),
            None => given.number.to_string(),
        };
        let origin = match given.external {
            Some(external) => format!("{} {external}", given.origin),
            None => given.origin.clone(),
        };
        table.row([
            number,
            format_utc(given.time),
            origin,
            given.author.clone(),
            operation(given.operation) + note,
            given.comment.replace('\n', " "),
        ]);
    }
    table.to_string()
}
