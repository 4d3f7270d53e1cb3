//! The resource of LAGs, with the state of LACP and the counters of members.

use axum::Json;
use axum::extract::State;

use crate::server::app::App;
use crate::server::live::Live;
use crate::view::{Lag, Problem};

/// List the LAGs with the state of LACP and the counters of their members
#[utoipa::path(get, path = "/api/v1/lags", tag = "bridges",
    responses((status = 200, body = Vec<Lag>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn lags(State(app): State<App>) -> Result<Json<Vec<Lag>>, Problem> {
    app.with_live(<dyn Live>::lags).await.map(Json)
}
