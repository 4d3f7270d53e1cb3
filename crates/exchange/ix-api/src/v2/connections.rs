//! Connections, and the ports that they consist of.

use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::StatusCode;
use millrace_ix_model::{
    AccountId, ConnectionId, ConnectionKind, Exchange, Key as _, Operation, OperationKind, PortId, SiteId,
    SwitchId,
};
use millrace_types::PortNo;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::contacts::check_assignments;
use super::orders::{check_reference, created, ix_api_properties, order, put_properties, renewed};
use super::problem::IxProblem;
use super::query::{FilterParams, Filters};
use super::view::{
    Billed, BilledUpdate, Owned, OwnedUpdate, State, Stateful, check_text, id, invalid, medium, nullable,
    unchanged,
};
use crate::access::{Access, Principal};
use crate::app::App;
use crate::problem::Problem;
use crate::request::{Body, Conditions};

/// The way in which the ports of a connection form one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    Standalone,
    LagStatic,
    LagLacp,
}

impl From<ConnectionKind> for Mode {
    fn from(kind: ConnectionKind) -> Mode {
        match kind {
            ConnectionKind::Standalone => Mode::Standalone,
            ConnectionKind::LagStatic => Mode::LagStatic,
            ConnectionKind::LagLacp => Mode::LagLacp,
        }
    }
}

impl From<Mode> for ConnectionKind {
    fn from(mode: Mode) -> ConnectionKind {
        match mode {
            Mode::Standalone => ConnectionKind::Standalone,
            Mode::LagStatic => ConnectionKind::LagStatic,
            Mode::LagLacp => ConnectionKind::LagLacp,
        }
    }
}

/// The interval of LACP frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LacpTimeout {
    Slow,
    Fast,
}

/// A connection.
#[derive(Serialize, ToSchema)]
#[schema(as = IxConnection)]
pub(crate) struct Connection {
    /// The identifier.
    id: String,
    #[serde(flatten)]
    stateful: Stateful,
    #[serde(flatten)]
    owned: Owned,
    #[serde(flatten)]
    billed: Billed,
    /// The name.
    name: String,
    /// The way in which the ports form one link.
    mode: Mode,
    /// The interval of LACP frames.
    lacp_timeout: Option<String>,
    /// The speed of all ports in Mbit/s.
    speed: u32,
    /// The ports.
    ports: Vec<String>,
    /// The types of tags that ends on this connection may have.
    vlan_types: Vec<String>,
    /// The EtherTypes that outer tags may have.
    outer_vlan_ethertypes: Vec<String>,
}

/// Returns true if a connection or a trunk uses a port.
pub(crate) fn is_used(exchange: &Exchange, switch: SwitchId, number: PortNo) -> bool {
    let port = PortId { switch, port: number };
    let by_connection = exchange
        .connections
        .values()
        .any(|connection| connection.ports.contains(&port));
    by_connection || exchange.trunks.values().any(|trunk| trunk.ends.contains(&port))
}

fn speed_of(exchange: &Exchange, port: PortId) -> u32 {
    let switch = exchange.switches.get(&port.switch);
    switch
        .and_then(|switch| switch.port(port.port))
        .map_or(0, |port| port.speed_mbps)
}

fn speed_of_all(exchange: &Exchange, ports: &[PortId]) -> u32 {
    ports.iter().map(|port| speed_of(exchange, *port)).sum()
}

/// Returns the connections of an account, with the references of their orders.
fn siblings(
    exchange: &Exchange,
    account: AccountId,
) -> impl Iterator<Item = (ConnectionId, Option<&String>)> {
    let all = exchange.connections.iter();
    let own = all.filter(move |(_, found)| found.account == account);
    own.map(|(id, found)| (*id, found.external_ref.as_ref()))
}

fn view(app: &App, principal: &Principal, id: ConnectionId) -> Result<Connection, Problem> {
    let exchange = &principal.snapshot.exchange;
    let found = id.stored(exchange).ok_or_else(|| Problem::absent(id))?;
    let facts = ix_api_properties(app, id);
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    Ok(Connection {
        id: id.to_string(),
        stateful: Stateful::plain(State::Production),
        owned: facts.owned(found.account, found.external_ref.as_ref()),
        billed: facts.billed(found.account),
        name: found.name.clone(),
        mode: found.kind.into(),
        lacp_timeout: facts.lacp_timeout,
        speed: speed_of_all(exchange, &found.ports),
        ports: found.ports.iter().map(ToString::to_string).collect(),
        vlan_types: texts(&["port", "dot1q", "qinq"]),
        outer_vlan_ethertypes: texts(&["0x8100", "0x88a8"]),
    })
}

/// List connections
#[utoipa::path(get, path = "/api/v2/connections", tag = "connections", operation_id = "connections_list", params(FilterParams),
    responses((status = 200, body = Vec<Connection>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn list(
    Shared(app): Shared<App>,
    principal: Principal,
    filters: Filters,
) -> Result<Json<Vec<Value>>, Problem> {
    let all = principal.snapshot.exchange.connections.keys();
    let seen = all.filter(|id| principal.may_read(**id));
    let seen: Result<Vec<_>, _> = seen.map(|id| view(&app, &principal, *id)).collect();
    filters.list(seen?)
}

/// Read a connection
#[utoipa::path(get, path = "/api/v2/connections/{id}", tag = "connections", operation_id = "connections_read", params(("id" = String, Path, description = "The connection")),
    responses((status = 200, body = Connection), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn read(
    Shared(app): Shared<App>,
    access: Access<ConnectionId>,
) -> Result<Json<Connection>, Problem> {
    view(&app, access.principal(), access.id()).map(Json)
}

/// A new connection. The exchange patches ports: only its staff, or programs of its staff, add connections.
/// The request names the ports, or the exchange chooses them at a point of presence.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ConnectionRequest {
    #[serde(flatten)]
    owned: Owned,
    #[serde(flatten)]
    billed: Billed,
    /// The way in which the ports form one link.
    mode: Mode,
    /// The interval of LACP frames.
    #[serde(default)]
    lacp_timeout: Option<LacpTimeout>,
    /// The name; one is made if it is null.
    #[serde(default)]
    #[schema(max_length = 80)]
    name: Option<String>,
    /// The ports.
    #[serde(default)]
    ports: Vec<String>,
    /// The point of presence at which ports are chosen if none are named.
    #[serde(default)]
    pop: Option<String>,
    /// The number of ports that are chosen; the default is 1.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 8)]
    port_quantity: Option<u8>,
    /// The speed of a chosen port in Mbit/s.
    #[serde(default)]
    port_speed: Option<u32>,
    /// The speed of all ports in Mbit/s: the exchange does not shape a connection below it.
    #[serde(default)]
    speed: Option<u32>,
}

/// Returns free ports of one switch at a point of presence.
fn choose(exchange: &Exchange, given: &ConnectionRequest) -> Result<Vec<PortId>, Problem> {
    let Some(pop) = &given.pop else {
        return Err(invalid(
            "ports",
            "name the ports, or a pop at which they are chosen",
        ));
    };
    let site: SiteId = id("pop", pop)?;
    let count = usize::from(given.port_quantity.unwrap_or(1)).max(1);
    for (switch, found) in exchange.switches.iter().filter(|(_, found)| found.site == site) {
        let free = found
            .ports
            .iter()
            .filter(|port| given.port_speed.is_none_or(|speed| speed == port.speed_mbps))
            .filter(|port| !is_used(exchange, *switch, port.number));
        let ports: Vec<PortId> = free
            .take(count)
            .map(|port| PortId {
                switch: *switch,
                port: port.number,
            })
            .collect();
        if ports.len() == count {
            return Ok(ports);
        }
    }
    Err(invalid(
        "pop",
        format!("{pop} has no device with {count} free ports of this speed"),
    ))
}

/// Add a connection
#[utoipa::path(post, path = "/api/v2/connections", tag = "connections", operation_id = "connections_create", request_body = ConnectionRequest,
    responses((status = 201, body = Connection), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn create(
    Shared(app): Shared<App>,
    principal: Principal,
    conditions: Conditions,
    Body(given): Body<ConnectionRequest>,
) -> Result<(StatusCode, Json<Connection>), Problem> {
    let account = given.owned.check(&principal)?;
    given.billed.check(&principal)?;
    super::orders::require(&principal, OperationKind::CreateConnection, account)?;
    check_assignments(&app, &principal, &given.billed.role_assignments)?;
    check_text("name", given.name.as_deref().unwrap_or_default(), 80)?;
    let exchange = &principal.snapshot.exchange;
    let ports = if given.ports.is_empty() {
        choose(exchange, &given)?
    } else {
        let ports = given.ports.iter().map(|text| {
            text.parse::<PortId>()
                .map_err(|error| invalid("ports", error.to_string()))
        });
        ports.collect::<Result<Vec<_>, _>>()?
    };
    let speed = speed_of_all(exchange, &ports);
    if given.speed.is_some_and(|wanted| wanted != speed) {
        let detail = format!("the ports have {speed} Mbit/s: expected this, or no speed");
        return Err(invalid("speed", detail));
    }
    let others = siblings(exchange, account).map(|(other, _)| (other, None));
    check_reference(&app, given.owned.external_ref.as_ref(), others)?;
    let name = given.name.clone().unwrap_or_else(|| {
        let first = ports.first().map(ToString::to_string).unwrap_or_default();
        format!("connection {first}")
    });
    let operation = Operation::CreateConnection {
        account: Some(account),
        name: name.trim().to_owned(),
        kind: given.mode.into(),
        ports,
        external_ref: given.owned.external_ref.clone(),
    };
    let applied = order(&app, &principal, &conditions, vec![operation], &given).await?;
    let id: ConnectionId = created(&applied)?;
    let mut facts = ix_api_properties(&app, id);
    facts.managing_account = Some(given.owned.managing_account);
    facts.billed = Some(given.billed);
    facts.lacp_timeout = given.lacp_timeout.map(|timeout| crate::render::word(&timeout));
    put_properties(&app, &principal, id, &facts).await?;
    Ok((
        StatusCode::CREATED,
        Json(view(&app, &renewed(&app, &principal), id)?),
    ))
}

/// Changes of a connection; absent properties stay.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ConnectionUpdate {
    #[serde(flatten)]
    owned: OwnedUpdate,
    /// The speed of all ports in Mbit/s, which cannot change without them.
    #[serde(default)]
    speed: Option<u32>,
    /// The way in which the ports form one link.
    #[serde(default)]
    mode: Option<Mode>,
    /// The interval of LACP frames.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<LacpTimeout>)]
    lacp_timeout: Option<Option<LacpTimeout>>,
    #[serde(flatten)]
    billed: BilledUpdate,
}

async fn change(
    app: &App,
    access: &Access<ConnectionId>,
    conditions: &Conditions,
    given: ConnectionUpdate,
) -> Result<Json<Connection>, Problem> {
    let (id, principal) = (access.id(), access.principal());
    access.require(OperationKind::SetConnectionPorts)?;
    let found = access.object()?;
    let exchange = &principal.snapshot.exchange;
    let mut facts = ix_api_properties(app, id);
    let mut owned = facts.owned(found.account, found.external_ref.as_ref());
    given.owned.clone().apply(&mut owned)?;
    if let Some(reference) = &given.owned.external_ref {
        let others = siblings(exchange, found.account).filter(|(other, _)| *other != id);
        check_reference(app, reference.as_ref(), others)?;
        facts.external_ref = Some(reference.clone().unwrap_or_default());
    }
    unchanged(
        "speed",
        given.speed.as_ref(),
        &speed_of_all(exchange, &found.ports),
    )?;
    if let Some(timeout) = &given.lacp_timeout {
        facts.lacp_timeout = timeout.as_ref().map(crate::render::word);
    }
    let mut billed = facts.billed(found.account);
    given.billed.clone().apply(&mut billed);
    billed.check(principal)?;
    check_assignments(app, principal, &billed.role_assignments)?;
    if let Some(mode) = given
        .mode
        .map(ConnectionKind::from)
        .filter(|mode| *mode != found.kind)
    {
        let operation = Operation::SetConnectionPorts {
            connection: id,
            kind: mode,
            ports: found.ports.clone(),
        };
        order(app, principal, conditions, vec![operation], &given).await?;
    }
    facts.billed = Some(billed);
    put_properties(app, principal, id, &facts).await?;
    view(app, &renewed(app, principal), id).map(Json)
}

/// Change a connection
#[utoipa::path(patch, path = "/api/v2/connections/{id}", tag = "connections", operation_id = "connections_partial_update", request_body = ConnectionUpdate, params(("id" = String, Path, description = "The connection")),
    responses((status = 200, body = Connection), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn update(
    Shared(app): Shared<App>,
    access: Access<ConnectionId>,
    conditions: Conditions,
    Body(given): Body<ConnectionUpdate>,
) -> Result<Json<Connection>, Problem> {
    change(&app, &access, &conditions, given).await
}

/// Change a connection; absent properties stay
#[utoipa::path(put, path = "/api/v2/connections/{id}", tag = "connections", operation_id = "connections_update", request_body = ConnectionUpdate, params(("id" = String, Path, description = "The connection")),
    responses((status = 200, body = Connection), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn replace(
    Shared(app): Shared<App>,
    access: Access<ConnectionId>,
    conditions: Conditions,
    Body(given): Body<ConnectionUpdate>,
) -> Result<Json<Connection>, Problem> {
    change(&app, &access, &conditions, given).await
}

/// Delete a connection without ends
#[utoipa::path(delete, path = "/api/v2/connections/{id}", tag = "connections", operation_id = "connections_destroy", params(("id" = String, Path, description = "The connection")),
    responses((status = 200, body = Connection), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn delete(
    Shared(app): Shared<App>,
    access: Access<ConnectionId>,
    conditions: Conditions,
) -> Result<Json<Connection>, Problem> {
    access.require(OperationKind::DeleteConnection)?;
    let mut gone = view(&app, access.principal(), access.id())?;
    let target = access.id().into();
    let operations = vec![Operation::Delete { target }];
    order(&app, access.principal(), &conditions, operations, &()).await?;
    gone.stateful = Stateful::plain(State::Decommissioned);
    Ok(Json(gone))
}

/// A port of a connection.
#[derive(Serialize, ToSchema)]
#[schema(as = IxPort)]
pub(crate) struct Port {
    /// The identifier: switch and number.
    id: String,
    #[serde(flatten)]
    stateful: Stateful,
    #[serde(flatten)]
    owned: Owned,
    #[serde(flatten)]
    billed: Billed,
    /// The name.
    name: String,
    /// The speed in Mbit/s.
    speed: u32,
    /// The medium. It names only the speed, because the exchange does not record optics.
    media_type: String,
    /// The switch.
    device: String,
    /// The point of presence.
    pop: String,
    /// The connection.
    connection: Option<String>,
}

fn all_ports(app: &App, principal: &Principal) -> Vec<Port> {
    let exchange = &principal.snapshot.exchange;
    let connections = exchange.connections.iter();
    let seen = connections.filter(|(id, _)| principal.may_read(**id));
    let mut ports = Vec::new();
    for (id, connection) in seen {
        let facts = ix_api_properties(app, id);
        for port in &connection.ports {
            let speed = speed_of(exchange, *port);
            let site = exchange.switches.get(&port.switch).map(|switch| switch.site);
            ports.push(Port {
                id: port.to_string(),
                stateful: Stateful::plain(State::Production),
                owned: facts.owned(connection.account, None),
                billed: facts.billed(connection.account),
                name: port.to_string(),
                speed,
                media_type: medium(speed),
                device: port.switch.to_string(),
                pop: site.map(|site| site.to_string()).unwrap_or_default(),
                connection: Some(id.to_string()),
            });
        }
    }
    ports
}

/// List the ports of connections
#[utoipa::path(get, path = "/api/v2/ports", tag = "ports", operation_id = "ports_list", params(FilterParams),
    responses((status = 200, body = Vec<Port>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn ports(
    Shared(app): Shared<App>,
    principal: Principal,
    filters: Filters,
) -> Result<Json<Vec<Value>>, Problem> {
    filters.list(all_ports(&app, &principal))
}

/// Read a port of a connection
#[utoipa::path(get, path = "/api/v2/ports/{id}", tag = "ports", operation_id = "ports_read", params(("id" = String, Path, description = "The port")),
    responses((status = 200, body = Port), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn port(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<Port>, Problem> {
    let found = all_ports(&app, &principal).into_iter().find(|port| port.id == id);
    found
        .map(Json)
        .ok_or_else(|| Problem::absent(id.chars().take(40).collect::<String>()))
}

/// The membership of a port in a connection.
#[derive(Serialize, ToSchema)]
pub(crate) struct PortReservation {
    /// The identifier.
    id: String,
    #[serde(flatten)]
    stateful: Stateful,
    /// The connection.
    connection: Option<String>,
    /// The port.
    port: String,
}

fn all_reservations(app: &App, principal: &Principal) -> Vec<PortReservation> {
    let ports = all_ports(app, principal).into_iter();
    let all = ports.map(|port| PortReservation {
        id: format!("reservation-{}", port.id),
        stateful: port.stateful,
        connection: port.connection,
        port: port.id,
    });
    all.collect()
}

/// List the memberships of ports in connections
#[utoipa::path(get, path = "/api/v2/port-reservations", tag = "ports", operation_id = "port_reservations_list", params(FilterParams),
    responses((status = 200, body = Vec<PortReservation>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn reservations(
    Shared(app): Shared<App>,
    principal: Principal,
    filters: Filters,
) -> Result<Json<Vec<Value>>, Problem> {
    filters.list(all_reservations(&app, &principal))
}

/// Read the membership of a port in a connection
#[utoipa::path(get, path = "/api/v2/port-reservations/{id}", tag = "ports", operation_id = "port_reservations_read", params(("id" = String, Path, description = "The membership")),
    responses((status = 200, body = PortReservation), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn reservation(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<PortReservation>, Problem> {
    let mut all = all_reservations(&app, &principal).into_iter();
    all.find(|found| found.id == id)
        .map(Json)
        .ok_or_else(|| Problem::absent(id.chars().take(40).collect::<String>()))
}
