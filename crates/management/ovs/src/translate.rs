//! The rows of a database as bridges of a configuration.

use std::collections::BTreeMap;

use millrace_model as model;
use millrace_ovsdb::{Replica, Uuid};
use millrace_types::PortNo;

use crate::addresses;
use crate::bond;
use crate::bridge;
use crate::controller;
use crate::fault::Faults;
use crate::interface::{self, Found};
use crate::links::links;
use crate::mirror;
use crate::numbers::{Numbers, Request};
use crate::one::One;
use crate::place::{BridgeRow, InterfaceRow, PortRow, Translation};
use crate::port;
use crate::rows::View;
use crate::spanning_tree;
use crate::trees::Protocol;
use crate::unread;

/// The context of a translation.
#[derive(Debug)]
pub struct Context<'a> {
    /// The directory of the management sockets `BRIDGE.mgmt`; without one, bridges have none.
    pub run_dir: Option<&'a str>,
    /// The numbers of ports that earlier translations gave.
    pub numbers: &'a mut Numbers,
}

/// The default interval of statistics (ovs-vswitchd.conf.db(5), `stats-update-interval`), which is also the shortest.
const STATISTICS_INTERVAL_MS: u64 = 5000;

/// Returns the configuration that the rows ask for.
pub fn translate(replica: &Replica, context: &mut Context<'_>) -> Translation {
    let mut translation = Translation {
        statistics_interval_ms: STATISTICS_INTERVAL_MS,
        ..Translation::default()
    };
    let root = replica.rows("Open_vSwitch").next();
    let Some(root) = root.and_then(|(uuid, _)| View::of(replica, "Open_vSwitch", uuid)) else {
        return translation;
    };
    let mut faults = Faults::default();
    translation.root = Some(root.uuid);
    translation.next_cfg = root.integer("next_cfg").unwrap_or(0);
    translation.lacks_version = !root.has("ovs_version");
    translation.lacks_db_version = !root.has("db_version");
    translation.statistics_interval_ms = statistics_interval(&root, &mut faults);
    unread::check(&root, &root.named("."), &mut faults);
    for ssl in root.refer(replica, "ssl", "SSL") {
        unread::check(&ssl, &ssl.named("."), &mut faults);
    }
    let mut views = root.refer(replica, "bridges", "Bridge");
    // The order of UUIDs means nothing to people.
    views.sort_by_key(|bridge| bridge.text("name").unwrap_or("").to_owned());
    let bridges: Vec<Uuid> = views.iter().map(|bridge| bridge.uuid).collect();
    context.numbers.retain(&bridges);
    collector_sets(replica, &mut faults);
    let links = links(replica, &views);
    for view in views {
        let mut one = One {
            replica,
            tls: tls(replica, &root),
            faults: &mut faults,
            links: &links,
            tree: spanning_tree::protocol(&view),
        };
        let (row, bridge) = translate_bridge(&mut one, &view, context);
        translation.bridges.extend(bridge);
        translation.rows.push(row);
    }
    translation.faults = faults.0;
    translation.faults.sort();
    translation.faults.dedup();
    translation
}

/// Returns the interval of statistics in milliseconds.
fn statistics_interval(root: &View<'_>, faults: &mut Faults) -> u64 {
    let Some(text) = root.map("other_config").get("stats-update-interval").copied() else {
        return STATISTICS_INTERVAL_MS;
    };
    let interval = text.parse().unwrap_or_else(|_| {
        faults.ignore(
            &root.named("."),
            format!("other_config:stats-update-interval={text} has no effect: expected milliseconds"),
        );
        STATISTICS_INTERVAL_MS
    });
    interval.max(STATISTICS_INTERVAL_MS)
}

/// Names the sets of collectors of the action `sample`.
fn collector_sets(replica: &Replica, faults: &mut Faults) {
    for (uuid, _) in replica.rows("Flow_Sample_Collector_Set") {
        let Some(view) = View::of(replica, "Flow_Sample_Collector_Set", uuid) else {
            continue;
        };
        let bridges = view.refer(replica, "bridge", "Bridge");
        let of = bridges
            .first()
            .map_or("", |bridge| bridge.text("name").unwrap_or(""));
        let id = view.integer("id").unwrap_or(0);
        faults.refuse(
            &view.named(&format!("{id} of {of}")),
            "flow entries have no action sample: expected the column ipfix of the bridge",
        );
    }
}

fn tls(replica: &Replica, root: &View<'_>) -> Option<model::Tls> {
    let ssl = root.refer(replica, "ssl", "SSL").into_iter().next()?;
    let path = |column| ssl.text(column).map(std::path::PathBuf::from);
    let mut tls = model::Tls::new(path("private_key")?, path("certificate")?, path("ca_cert")?);
    // Open vSwitch accepts any certificate of the authority.
    tls.check_names = false;
    Some(tls)
}

fn translate_bridge<'a>(
    one: &mut One<'a, '_>,
    view: &View<'a>,
    context: &mut Context<'_>,
) -> (BridgeRow, Option<model::Bridge>) {
    let name = view.text("name").unwrap_or("");
    let mut row = BridgeRow {
        uuid: view.uuid,
        name: name.to_owned(),
        error: None,
        ports: Vec::new(),
        controllers: Vec::new(),
        has_stp: one.tree == Some(Protocol::Stp),
        hwaddr: None,
        mirrors: Vec::new(),
    };
    let ports = view.refer(one.replica, "ports", "Port");
    let made = name
        .parse::<model::BridgeName>()
        .map_err(|error| error.to_string());
    let made = made.and_then(|model_name| bridge::bridge(one, view, model_name));
    let mut bridge = match made {
        Ok(bridge) => bridge,
        Err(reason) => {
            one.faults.refuse(&view.row_name(), &*reason);
            row.ports = ports
                .iter()
                .map(|port| without_bridge(one, port, name, &reason))
                .collect();
            row.error = Some(reason);
            return (row, None);
        }
    };
    row.hwaddr = addresses::hwaddr(view, &mut bridge, one.faults);
    row.controllers = controller::controllers(one, view, &mut bridge);
    if let Some(run_dir) = context.run_dir {
        let target = format!("punix:{run_dir}/{name}.mgmt");
        match target.parse() {
            Ok(target) => bridge.listen.push(model::Listener::new(target)),
            Err(error) => one
                .faults
                .refuse(&view.row_name(), format!("the management socket: {error}")),
        }
    }
    let requests: Vec<Request> = ports.iter().flat_map(|port| requests(one, port, name)).collect();
    let numbers = context.numbers.assign(view.uuid, &requests);
    row.ports = ports
        .iter()
        .map(|port| translate_port(one, port, &mut bridge, &numbers))
        .collect();
    row.mirrors = mirror::mirrors(one, view, &row.ports, &mut bridge);
    (row, Some(bridge))
}

/// Returns the numbers that a port needs: one, and for a bond also one for each member.
fn requests(one: &One<'_, '_>, port: &View<'_>, bridge: &str) -> Vec<Request> {
    let interfaces = port.refer(one.replica, "interfaces", "Interface");
    let first = |column| interfaces.iter().find_map(|interface| interface.integer(column));
    let mut requests = Vec::new();
    if interfaces.len() > 1 {
        requests.push(Request {
            row: port.uuid,
            wanted: first("ofport_request"),
            earlier: first("ofport"),
        });
        requests.extend(interfaces.iter().map(|member| {
            Request {
                row: member.uuid,
                wanted: member
                    .map("other_config")
                    .get("lacp-port-id")
                    .and_then(|text| text.parse().ok()),
                earlier: None,
            }
        }));
        return requests;
    }
    let own = interfaces
        .iter()
        .filter(|interface| interface.text("name") != Some(bridge));
    requests.extend(own.map(|interface| Request {
        row: interface.uuid,
        wanted: interface.integer("ofport_request"),
        earlier: interface.integer("ofport"),
    }));
    requests
}

fn translate_port<'a>(
    one: &mut One<'a, '_>,
    port: &View<'a>,
    bridge: &mut model::Bridge,
    numbers: &BTreeMap<Uuid, PortNo>,
) -> PortRow {
    let interfaces = port.refer(one.replica, "interfaces", "Interface");
    for interface in &interfaces {
        unread::check(interface, &interface.row_name(), one.faults);
    }
    if interfaces.len() > 1 {
        return bond::bond(one, port, &interfaces, bridge, numbers);
    }
    let rows = interfaces.iter().map(|interface| {
        let mut row = InterfaceRow::of(interface);
        let number = numbers.get(&interface.uuid).copied();
        match interface::port(one, interface, bridge, number) {
            Ok(Found::Local) => {
                port::local(one, port, interface, bridge);
                row.number = Some(PortNo::LOCAL);
            }
            Ok(Found::Port(mut made)) => {
                port::settings(one, port, interface, bridge, &mut made);
                addresses::of_port(interface, &mut made, one.faults);
                row.number = Some(made.number);
                row.error = interface::without_peer(one, interface, &made);
                bridge.ports.push(*made);
            }
            Err(reason) => {
                one.faults.refuse(&interface.row_name(), &*reason);
                row.error = Some(reason);
            }
        }
        row
    });
    let rows = rows.collect();
    PortRow::of(port, false, rows)
}

fn without_bridge<'a>(one: &mut One<'a, '_>, port: &View<'a>, bridge: &str, reason: &str) -> PortRow {
    let interfaces = port.refer(one.replica, "interfaces", "Interface");
    let rows = interfaces.iter().map(|interface| InterfaceRow {
        error: Some(format!("bridge {bridge} is not in effect: {reason}")),
        ..InterfaceRow::of(interface)
    });
    PortRow::of(port, interfaces.len() > 1, rows.collect())
}
