//! Lists of members of peering LANs for other programs: the member list in the format of Euro-IX, and the
//! clients of route servers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use millrace_bird::SessionState;
use millrace_ix_model::{AccountId, ConfigId, Exchange, OperationKind, ServiceId, ServiceKind};
use serde_json::{Value, json};

use super::documents::public_document;
use crate::access::Principal;
use crate::app::App;
use crate::problem::Problem;
use crate::v2::{Session, is_listed, sessions};

/// The identifier of the exchange in the member list, which contains only this exchange.
const IXP: u32 = 1;

/// Returns the peering LANs with their identifiers.
fn lans(exchange: &Exchange) -> impl Iterator<Item = (ServiceId, &millrace_ix_model::Service)> {
    let services = exchange.services.iter();
    services
        .filter(|(_, service)| service.kind == ServiceKind::ExchangeLan)
        .map(|(id, service)| (*id, service))
}

/// Returns the addresses of members with an established session at a route server, as far as the route servers are read.
fn connected(app: &App) -> BTreeSet<IpAddr> {
    let mut connected = BTreeSet::new();
    for server in &app.settings.route_servers {
        let status = app.engine.route_server_status(server);
        let sessions = status.report.iter().flat_map(|(_, report)| &report.sessions);
        let up = sessions.filter(|session| session.state == SessionState::Established);
        connected.extend(up.map(|session| session.neighbor));
    }
    connected
}

/// Returns the entries of an end in `vlan_list`, each with an IPv4 part, an IPv6 part or both: the schema has room for
/// one address of each family in an entry.
fn vlan_list(
    exchange: &Exchange,
    lan: ServiceId,
    config: ConfigId,
    sessions: &[Session],
    connected: &BTreeSet<IpAddr>,
) -> Vec<Value> {
    let mut found: BTreeMap<&'static str, Vec<Value>> = BTreeMap::new();
    for (id, ip) in exchange.ips.iter().filter(|(_, ip)| ip.config == config) {
        let session = sessions.iter().find(|session| session.ip == *id);
        let (family, as_macro, max_prefix) = match ip.address {
            IpAddr::V4(_) => (
                "ipv4",
                session.and_then(|session| session.as_set_v4.as_ref()),
                session.and_then(|session| session.max_prefix_v4),
            ),
            IpAddr::V6(_) => (
                "ipv6",
                session.and_then(|session| session.as_set_v6.as_ref()),
                session.and_then(|session| session.max_prefix_v6),
            ),
        };
        let has_session = session.is_some() || connected.contains(&ip.address);
        let mut entry = json!({ "address": ip.address, "routeserver": has_session });
        if let Some(as_macro) = as_macro {
            entry["as_macro"] = json!(as_macro.to_string());
        }
        if let Some(max_prefix) = max_prefix {
            entry["max_prefix"] = json!(max_prefix);
        }
        found.entry(family).or_default().push(entry);
    }
    let rows = found.values().map(Vec::len).max().unwrap_or(0);
    let mut list = vec![json!({ "vlan_id": lan.0 }); rows.max(1)];
    for (family, entries) in found {
        for (vlan, entry) in list.iter_mut().zip(entries) {
            vlan[family] = entry;
        }
    }
    list
}

/// Returns the entries of a LAN in `vlan`, each with an IPv4 network, an IPv6 network or both: the schema has room for one network of
/// each family in an entry.
fn vlans(id: ServiceId, lan: &millrace_ix_model::Service) -> Vec<Value> {
    let of = |is_ipv6: bool| {
        let networks = lan.networks.iter();
        networks.filter(move |network| network.is_ipv6() == is_ipv6)
    };
    let rows = of(false).count().max(of(true).count());
    let mut list = vec![json!({ "id": id.0, "name": lan.name }); rows.max(1)];
    for (family, is_ipv6) in [("ipv4", false), ("ipv6", true)] {
        for (vlan, network) in list.iter_mut().zip(of(is_ipv6)) {
            vlan[family] = json!({ "prefix": network.address(), "mask_length": network.len() });
        }
    }
    list
}

/// Returns the route servers as members, one for each AS number: a member of the type `ixp` whose addresses offer the
/// service of a route server.
fn route_servers(app: &App, exchange: &Exchange) -> Vec<Value> {
    let mut members: BTreeMap<u32, Vec<Value>> = BTreeMap::new();
    for server in &app.settings.route_servers {
        let Some((lan, _)) = lans(exchange).find(|(_, lan)| lan.name == server.lan) else {
            continue;
        };
        let part = |address: IpAddr| json!({ "address": address, "routeserver": false, "services": [{ "type": "ixrouteserver" }] });
        let [v4, v6] = server.addresses();
        members.entry(server.asn).or_default().push(json!({
            "ixp_id": IXP,
            "state": "active",
            "if_list": [],
            "vlan_list": [{ "vlan_id": lan.0, "ipv4": part(v4), "ipv6": part(v6) }],
        }));
    }
    let name = format!("{} route servers", app.settings.name);
    let member = |(asn, connections): (u32, Vec<Value>)| json!({ "asnum": asn, "member_type": "ixp", "name": name, "connection_list": connections });
    members.into_iter().map(member).collect()
}

/// Returns the member list, without ends that are in quarantine, shut down, or not to be listed.
fn euro_ix(app: &App) -> Value {
    let snapshot = app.snapshot();
    let exchange = &snapshot.exchange;
    let vlans = lans(exchange).flat_map(|(id, lan)| vlans(id, lan));
    let switches = exchange.switches.iter().map(|(id, switch)| {
        let site = exchange.sites.get(&switch.site).map(|site| site.name.clone());
        json!({ "id": id.0, "name": switch.name, "colo": site.unwrap_or_default() })
    });
    let ixp = json!({
        "ixp_id": IXP,
        // The schema requires the number; an exchange that has not registered with IX-F has none yet.
        "ixf_id": app.settings.ixf_id.unwrap_or(0),
        "shortname": app.settings.name,
        "name": app.settings.name,
        "vlan": vlans.collect::<Vec<_>>(),
        "switch": switches.collect::<Vec<_>>(),
    });
    let all: Vec<Session> = sessions(app);
    let connected = connected(app);
    let mut members: BTreeMap<(u32, AccountId), Vec<Value>> = BTreeMap::new();
    for (id, config) in &exchange.configs {
        let Some((lan, _)) = lans(exchange).find(|(lan, _)| *lan == config.service) else {
            continue;
        };
        let Some(account) = exchange.accounts.get(&config.account) else {
            continue;
        };
        if !config.quarantine.is_over() || config.shut_down || !is_listed(app, *id, account) {
            continue;
        }
        let own: Vec<Session> = all
            .iter()
            .filter(|session| session.config == *id)
            .cloned()
            .collect();
        // An account may have several numbers; the end speaks for the one of its session.
        let of_session = own.first().map(|session| session.asn);
        let Some(asn) = of_session.or_else(|| exchange.asns_of(config).pop_first()) else {
            continue;
        };
        let vlans = vlan_list(exchange, lan, *id, &own, &connected);
        let ports = exchange
            .connections
            .get(&config.connection)
            .map(|connection| &connection.ports);
        let interfaces = ports.into_iter().flatten().map(|port| {
            let speed = exchange
                .switches
                .get(&port.switch)
                .and_then(|switch| switch.port(port.port))
                .map_or(0, |port| port.speed_mbps);
            json!({ "switch_id": port.switch.0, "if_speed": speed })
        });
        members.entry((asn, config.account)).or_default().push(json!({
            "ixp_id": IXP,
            "state": "active",
            "if_list": interfaces.collect::<Vec<_>>(),
            "vlan_list": vlans,
        }));
    }
    let servers = route_servers(app, exchange);
    let members = members.into_iter().map(|((asn, account), connections)| {
        let name = exchange
            .accounts
            .get(&account)
            .map(|account| account.name.clone());
        json!({
            "asnum": asn,
            "member_type": "peering",
            "name": name.unwrap_or_default(),
            "connection_list": connections,
        })
    });
    let now = app.now().to_string();
    json!({
        "version": "1.0",
        "timestamp": format!("{}Z", now.get(..19).unwrap_or(&now)),
        "generator": concat!("millrace-ix ", env!("CARGO_PKG_VERSION")),
        "ixp_list": [ixp],
        "member_list": servers.into_iter().chain(members).collect::<Vec<_>>(),
    })
}

/// Read the member list of the peering LANs (Euro-IX JSON schema 1.0)
///
/// Everybody may read it. It contains members that want to be listed and are not in quarantine, without MAC
/// addresses.
#[utoipa::path(get, path = "/api/v1/exports/euro-ix.json", tag = "exports", security(()),
    responses((status = 200, body = Object)))]
pub(crate) async fn member_list(State(app): State<App>, headers: HeaderMap) -> Response {
    let mut list = euro_ix(&app);
    let body = list.to_string();
    // The list of another time with the same members is the same.
    list["timestamp"] = Value::Null;
    public_document(&headers, "application/json", body, &list.to_string())
}

/// Read the clients of the route servers in the format of arouteserver (`clients.yml`; JSON is YAML)
#[utoipa::path(get, path = "/api/v1/exports/arouteserver-clients.json", tag = "exports",
    responses((status = 200, body = Object), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn route_server_clients(
    State(app): State<App>,
    principal: Principal,
) -> Result<Json<Value>, Problem> {
    principal.require(OperationKind::ReadFabric)?;
    let exchange = &principal.snapshot.exchange;
    let mut clients = Vec::new();
    for session in sessions(&app) {
        let (Some(ip), Some(config)) = (
            exchange.ips.get(&session.ip),
            exchange.configs.get(&session.config),
        ) else {
            continue;
        };
        if !config.quarantine.is_over() || config.shut_down {
            continue;
        }
        let name = exchange
            .accounts
            .get(&config.account)
            .map(|account| account.name.clone());
        let (as_set, max_prefix, limit) = match ip.address {
            IpAddr::V4(_) => (session.as_set_v4, session.max_prefix_v4, "limit_ipv4"),
            IpAddr::V6(_) => (session.as_set_v6, session.max_prefix_v6, "limit_ipv6"),
        };
        // arouteserver expects the source before the name, as an AS-SET writes it: RIPE::AS-EXAMPLE.
        let as_sets: Vec<String> = as_set.iter().map(ToString::to_string).collect();
        let mut filtering = json!({ "irrdb": { "as_sets": as_sets } });
        if let Some(max_prefix) = max_prefix {
            filtering["max_prefix"] = json!({ limit: max_prefix });
        }
        clients.push(json!({
            "asn": session.asn,
            "ip": [ip.address],
            "description": name.unwrap_or_default(),
            "cfg": { "filtering": filtering },
        }));
    }
    Ok(Json(json!({ "clients": clients })))
}
