//! The resource of the daemon's log: its filter is read and changed.

use axum::Json;
use axum::extract::State;

use crate::server::app::App;
use crate::server::extract::Body;
use crate::server::live::Live;
use crate::view::{Log, LogChange, Problem};

/// Read the filter of the log, and the valid levels and targets
#[utoipa::path(get, path = "/api/v1/log", tag = "switch",
    responses((status = 200, body = Log), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn read(State(app): State<App>) -> Result<Json<Log>, Problem> {
    app.with_live(<dyn Live>::log).await.map(Json)
}

/// Change the filter of the log
///
/// The change lasts until the next one, or until the daemon ends: it is not part of the configuration.
#[utoipa::path(put, path = "/api/v1/log", tag = "switch", request_body = LogChange,
    responses((status = 200, body = Log), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn change(
    State(app): State<App>,
    Body(change): Body<LogChange>,
) -> Result<Json<Log>, Problem> {
    Ok(Json(
        app.with_live(move |live| live.set_log(&change.filter)).await??,
    ))
}
