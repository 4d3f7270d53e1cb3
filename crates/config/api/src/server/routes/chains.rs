//! Running chains of network functions.

use axum::Json;
use axum::extract::State;

use crate::server::app::App;
use crate::server::extract::Path;
use crate::view::{Chain, Problem, Reloading, Restarted};

/// List the chains of a bridge
#[utoipa::path(get, path = "/api/v1/bridges/{bridge}/chains", tag = "bridges", params(("bridge" = String, Path, description = "Name of the bridge")),
    responses((status = 200, body = Vec<Chain>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn chains(
    State(app): State<App>,
    Path(bridge): Path<String>,
) -> Result<Json<Vec<Chain>>, Problem> {
    Ok(Json(app.with_live(move |live| live.chains(&bridge)).await??))
}

/// Re-create the functions of a hop
///
/// The state of the functions is lost. Packets wait at the entry of the chain meanwhile.
#[utoipa::path(post, path = "/api/v1/bridges/{bridge}/chains/{chain}/hops/{hop}/restart", tag = "bridges",
    params(("bridge" = String, Path, description = "Name of the bridge"), ("chain" = String, Path, description = "Name of the chain"),
        ("hop" = String, Path, description = "Name of the hop")),
    responses((status = 200, body = Restarted), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn restart(
    State(app): State<App>,
    Path((bridge, chain, hop)): Path<(String, String, String)>,
) -> Result<Json<Restarted>, Problem> {
    let restarted = Restarted {
        chain: chain.clone(),
        hop: hop.clone(),
    };
    app.with_live(move |live| live.restart_hop(&bridge, &chain, &hop))
        .await??;
    Ok(Json(restarted))
}

/// Load the files of a hop again, such as its rules
///
/// The functions keep their state. They use the old files until all new files are loaded; `shared` of the hop
/// shows the progress.
#[utoipa::path(post, path = "/api/v1/bridges/{bridge}/chains/{chain}/hops/{hop}/reload", tag = "bridges",
    params(("bridge" = String, Path, description = "Name of the bridge"), ("chain" = String, Path, description = "Name of the chain"),
        ("hop" = String, Path, description = "Name of the hop")),
    responses((status = 200, body = Reloading), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn reload(
    State(app): State<App>,
    Path((bridge, chain, hop)): Path<(String, String, String)>,
) -> Result<Json<Reloading>, Problem> {
    let reloading = Reloading {
        chain: chain.clone(),
        hop: hop.clone(),
    };
    app.with_live(move |live| live.reload_hop(&bridge, &chain, &hop))
        .await??;
    Ok(Json(reloading))
}
