//! Ports of switches, and addresses of peering LANs, as the exchange's staff enters them.

use core::net::IpAddr;
use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use millrace_ix_model::{ConfigId, IpId, Operation, OperationKind, PortId, SwitchId, SwitchPort};
use millrace_types::PortNo;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ends::order_object;
use super::orders::order_about;
use crate::access::Access;
use crate::app::App;
use crate::problem::Problem;
use crate::request::{Body, Conditions, OrderParams, PageParams, Query};
use crate::view::{List, Ordered};

/// A port of a switch, with what uses it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct InventoryPort {
    /// The port: `sw-1:3`.
    id: String,
    /// The OpenFlow port number.
    number: u32,
    /// The speed in Mbit/s.
    speed_mbps: u32,
    /// True if the port has a link; null if the switch is not reachable.
    #[schema(required)]
    up: Option<bool>,
    /// The name of the connection or trunk that uses it; null for a free port.
    #[schema(required)]
    used_by: Option<String>,
}

/// List the ports of a switch with what uses them
#[utoipa::path(get, path = "/api/v1/switches/{id}/ports", tag = "fabric", params(PageParams, ("id" = String, Path, description = "The switch")),
    responses((status = 200, body = List<InventoryPort>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn ports(
    access: Access<SwitchId>,
    Query(page): Query<PageParams>,
) -> Result<Json<List<InventoryPort>>, Problem> {
    let snapshot = &access.principal().snapshot;
    let exchange = &snapshot.exchange;
    let mut used: BTreeMap<PortId, &str> = BTreeMap::new();
    for connection in exchange.connections.values() {
        used.extend(
            connection
                .ports
                .iter()
                .map(|port| (*port, connection.name.as_str())),
        );
    }
    for trunk in exchange.trunks.values() {
        used.extend(trunk.ends.iter().map(|port| (*port, trunk.name.as_str())));
    }
    let all: Vec<(usize, &SwitchPort)> = access.object()?.ports.iter().enumerate().collect();
    page.page(&all, |_, port| {
        let id = PortId {
            switch: access.id(),
            port: port.number,
        };
        InventoryPort {
            id: id.to_string(),
            number: port.number.raw(),
            speed_mbps: port.speed_mbps,
            up: snapshot.is_up(id),
            used_by: used.get(&id).map(|name| (*name).to_owned()),
        }
    })
    .map(Json)
}

/// A port in the inventory.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct NewPort {
    /// The OpenFlow port number.
    number: u32,
    /// The speed in Mbit/s.
    speed_mbps: u32,
}

/// The ports of a switch.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct SetPorts {
    /// The ports. They replace the present ones; a port that something uses stays in the list.
    ports: Vec<NewPort>,
}

/// Replace the ports of a switch
#[utoipa::path(put, path = "/api/v1/switches/{id}/ports", tag = "fabric", request_body = SetPorts, params(OrderParams, ("id" = String, Path, description = "The switch"),
        ("if-match" = String, Header, description = "The ETag that the client has read"), ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn set_ports(
    State(app): State<App>,
    access: Access<SwitchId>,
    conditions: Conditions,
    Body(given): Body<SetPorts>,
) -> Result<Response, Problem> {
    let ports = given.ports.iter().map(|port| {
        let number = PortNo::ordinary(port.number).map_err(|error| Problem::invalid("/ports", error))?;
        Ok(SwitchPort {
            number,
            speed_mbps: port.speed_mbps,
        })
    });
    let operation = Operation::SetPorts {
        switch: access.id(),
        ports: ports.collect::<Result<Vec<_>, Problem>>()?,
    };
    order_object(&app, &access, &conditions, operation, &given).await
}

/// An IP address of a peering LAN.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct NewIp {
    /// The address, in a network of the LAN.
    address: String,
}

/// Assign an IP address of a peering LAN to an end
#[utoipa::path(post, path = "/api/v1/configs/{id}/ips", tag = "services", request_body = NewIp, params(OrderParams, ("id" = String, Path, description = "The end"),
        ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 201, body = Ordered), (status = 200, body = Ordered, description = "Dry run"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn add_ip(
    State(app): State<App>,
    access: Access<ConfigId>,
    conditions: Conditions,
    Body(given): Body<NewIp>,
) -> Result<Response, Problem> {
    access.require(OperationKind::AddIp)?;
    let address: IpAddr = given.address.trim().parse().map_err(|_| {
        let shown: String = given.address.chars().take(60).collect();
        let detail = format!("\"{shown}\" is no IP address: expected one such as 192.0.2.7 or 2001:db8::7");
        Problem::invalid("/address", detail)
    })?;
    let operation = Operation::AddIp {
        config: access.id(),
        address,
        valid_until: None,
    };
    order_about(&app, &access, &conditions, None, vec![(operation, "")], &given).await
}

/// Remove an IP address from its end
#[utoipa::path(delete, path = "/api/v1/ips/{id}", tag = "services", params(OrderParams, ("id" = String, Path, description = "The address"),
        ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn remove_ip(
    State(app): State<App>,
    access: Access<IpId>,
    conditions: Conditions,
) -> Result<Response, Problem> {
    access.require(OperationKind::RemoveIp)?;
    let operation = Operation::RemoveIp { ip: access.id() };
    order_about(&app, &access, &conditions, None, vec![(operation, "")], &()).await
}
