//! The devices of ports that classify packets.

use axum::Json;
use axum::extract::State;
use millrace_types::PortNo;

use crate::server::app::App;
use crate::server::extract::Path;
use crate::view::{NicEntry, NicRegister, Problem};

/// Read the registers of a port's device (`nic:PATH`)
#[utoipa::path(get, path = "/api/v1/bridges/{bridge}/ports/{port}/nic-registers", tag = "bridges",
    params(("bridge" = String, Path, description = "Name of the bridge"), ("port" = String, Path, description = "Name or OpenFlow number of the port")),
    responses((status = 200, body = Vec<NicRegister>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn registers(
    State(app): State<App>,
    Path((bridge, port)): Path<(String, String)>,
) -> Result<Json<Vec<NicRegister>>, Problem> {
    let number = PortNo::from_raw(app.port(bridge.clone(), port).await?.number);
    let registers = app.with_live(move |live| live.nic_registers(&bridge, number));
    Ok(Json(registers.await??))
}

/// List the entries that the switch has in a port's device
#[utoipa::path(get, path = "/api/v1/bridges/{bridge}/ports/{port}/nic-entries", tag = "bridges",
    params(("bridge" = String, Path, description = "Name of the bridge"), ("port" = String, Path, description = "Name or OpenFlow number of the port")),
    responses((status = 200, body = Vec<NicEntry>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn entries(
    State(app): State<App>,
    Path((bridge, port)): Path<(String, String)>,
) -> Result<Json<Vec<NicEntry>>, Problem> {
    let number = PortNo::from_raw(app.port(bridge.clone(), port).await?.number);
    let entries = app.with_live(move |live| live.nic_entries(&bridge, number));
    Ok(Json(entries.await??))
}
