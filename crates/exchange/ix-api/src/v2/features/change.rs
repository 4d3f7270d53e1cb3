//! Changes of sessions with route servers.

use axum::Json;
use axum::extract::{Path, State as Shared};
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;

use super::{
    BgpSessionType, FeatureConfigRecord, FeatureType, NetworkFeatureConfig, SessionMode, check, check_free,
    find, require, seal,
};
use crate::access::Principal;
use crate::app::App;
use crate::problem::Problem;
use crate::request::Body;
use crate::v2::problem::IxProblem;
use crate::v2::view::{BilledUpdate, OwnedUpdate, nullable, unchanged};

/// Changes of a session; absent properties stay.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct FeatureConfigUpdate {
    /// The type, which cannot change.
    #[serde(default, rename = "type")]
    kind: Option<FeatureType>,
    #[serde(flatten)]
    owned: OwnedUpdate,
    #[serde(flatten)]
    billed: BilledUpdate,
    /// The route server, which cannot change.
    #[serde(default)]
    network_feature: Option<String>,
    /// The end of the peering LAN, which cannot change.
    #[serde(default)]
    network_service_config: Option<String>,
    /// The kind of the session, which cannot change.
    #[serde(default)]
    session_mode: Option<SessionMode>,
    /// The AS-SET for IPv4.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    as_set_v4: Option<Option<String>>,
    /// The AS-SET for IPv6.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    as_set_v6: Option<Option<String>>,
    /// The largest number of IPv4 prefixes.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<u32>)]
    max_prefix_v4: Option<Option<u32>>,
    /// The largest number of IPv6 prefixes.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<u32>)]
    max_prefix_v6: Option<Option<u32>>,
    /// True if the route server's AS is inserted into the AS path.
    #[serde(default)]
    insert_ixp_asn: Option<bool>,
    /// The autonomous system of the member.
    #[serde(default)]
    asn: Option<u32>,
    /// The side that opens the connection.
    #[serde(default)]
    bgp_session_type: Option<BgpSessionType>,
    /// The IP address of the member, by its identifier.
    #[serde(default)]
    ip: Option<String>,
    /// The password of the session.
    #[serde(default)]
    #[schema(max_length = 128, write_only)]
    password: Option<String>,
}

async fn change(
    app: &App,
    principal: &Principal,
    id: String,
    given: FeatureConfigUpdate,
) -> Result<Json<NetworkFeatureConfig>, Problem> {
    let (FeatureConfigRecord { mut request, sealed }, config) = find(app, principal, &id)?;
    unchanged("type", given.kind.as_ref(), &request.kind)?;
    unchanged(
        "network_feature",
        given.network_feature.as_ref(),
        &request.network_feature,
    )?;
    let config_before = &request.network_service_config;
    unchanged(
        "network_service_config",
        given.network_service_config.as_ref(),
        config_before,
    )?;
    given.owned.apply(&mut request.owned)?;
    given.billed.apply(&mut request.billed);
    let session = &mut request.session;
    unchanged("session_mode", given.session_mode.as_ref(), &session.session_mode)?;
    session.as_set_v4 = given.as_set_v4.unwrap_or(session.as_set_v4.take());
    session.as_set_v6 = given.as_set_v6.unwrap_or(session.as_set_v6.take());
    session.max_prefix_v4 = given.max_prefix_v4.unwrap_or(session.max_prefix_v4);
    session.max_prefix_v6 = given.max_prefix_v6.unwrap_or(session.max_prefix_v6);
    session.insert_ixp_asn = given.insert_ixp_asn.unwrap_or(session.insert_ixp_asn);
    session.asn = given.asn.unwrap_or(session.asn);
    session.bgp_session_type = given.bgp_session_type.unwrap_or(session.bgp_session_type);
    session.ip = given.ip.unwrap_or(std::mem::take(&mut session.ip));
    let keeps = given.password.is_none();
    request.password = given.password;
    check(app, principal, &request)?;
    require(principal, config)?;
    check_free(app, Some(&id), &request)?;
    let mut record = seal(app, request)?;
    if keeps {
        record.sealed = sealed;
    }
    app.record(
        &principal.audit_name(),
        "update_route_server_session",
        &id,
        json!(record.request),
    )
    .await?;
    app.records.put(&id, &record).await?;
    Ok(Json(record.view(id)))
}

/// Change a session with a route server
#[utoipa::path(patch, path = "/api/v2/network-feature-configs/{id}", tag = "network-feature-configs", operation_id = "network_feature_configs_partial_update", request_body = FeatureConfigUpdate, params(("id" = String, Path, description = "The session")),
    responses((status = 200, body = NetworkFeatureConfig), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn update_config(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
    Body(given): Body<FeatureConfigUpdate>,
) -> Result<Json<NetworkFeatureConfig>, Problem> {
    change(&app, &principal, id, given).await
}

/// Change a session with a route server; absent properties stay
#[utoipa::path(put, path = "/api/v2/network-feature-configs/{id}", tag = "network-feature-configs", operation_id = "network_feature_configs_update", request_body = FeatureConfigUpdate, params(("id" = String, Path, description = "The session")),
    responses((status = 200, body = NetworkFeatureConfig), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn replace_config(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
    Body(given): Body<FeatureConfigUpdate>,
) -> Result<Json<NetworkFeatureConfig>, Problem> {
    change(&app, &principal, id, given).await
}
