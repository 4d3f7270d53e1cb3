//! Route servers as features of peering LANs, and the members' sessions with them.

mod change;

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::StatusCode;
use millrace_ix_model::{AsSet, ConfigId, Exchange, IpId, OperationKind, ServiceId, ServiceKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

pub(crate) use self::change::{__path_replace_config, __path_update_config, replace_config, update_config};
use super::problem::IxProblem;
use super::query::{FilterParams, Filters};
use super::records::Record;
use super::view::{Billed, Owned, State, Stateful, check_text, id as identifier, invalid};
use crate::access::Principal;
use crate::app::App;
use crate::idempotency::RequestMark;
use crate::problem::{Problem, ProblemKind};
use crate::request::Body;
use crate::service::Snapshot;
use crate::session::CredentialError;

/// An address family.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AddressFamily {
    AfInet,
    AfInet6,
}

/// The side that opens the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BgpSessionType {
    Active,
    Passive,
}

/// The kind of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SessionMode {
    Public,
    Collector,
}

/// A route server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NetworkFeature {
    /// The identifier.
    pub(crate) id: String,
    /// `route_server`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The name.
    name: String,
    /// True if members must have a session.
    required: bool,
    /// The peering LAN.
    network_service: String,
    /// The roles of contacts that a session needs: none.
    nfc_required_contact_roles: Vec<String>,
    /// Properties of the exchange: none.
    flags: Vec<Value>,
    /// The autonomous system.
    asn: u32,
    /// The name in the DNS.
    fqdn: String,
    /// The address of a looking glass.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    looking_glass_url: Option<String>,
    /// The address families.
    address_families: Vec<AddressFamily>,
    /// The kind of sessions.
    session_mode: SessionMode,
    /// The sides that can open the connection.
    available_bgp_session_types: Vec<BgpSessionType>,
    /// The IPv4 address.
    ip_v4: String,
    /// The IPv6 address.
    ip_v6: String,
}

/// Returns the route servers of a peering LAN.
pub(crate) fn features_of(app: &App, exchange: &Exchange, service: ServiceId) -> Vec<NetworkFeature> {
    let Some(lan) = exchange
        .services
        .get(&service)
        .filter(|lan| lan.kind == ServiceKind::ExchangeLan)
    else {
        return Vec::new();
    };
    let all = app.settings.route_servers.iter().enumerate();
    all.filter(|(_, server)| server.lan == lan.name)
        .map(|(number, server)| NetworkFeature {
            id: format!("rs-{}-{}", service.0, number + 1),
            kind: "route_server",
            name: server.fqdn.chars().take(80).collect(),
            required: false,
            network_service: service.to_string(),
            nfc_required_contact_roles: Vec::new(),
            flags: Vec::new(),
            asn: server.asn,
            fqdn: server.fqdn.clone(),
            looking_glass_url: server.looking_glass_url.clone(),
            address_families: vec![AddressFamily::AfInet, AddressFamily::AfInet6],
            session_mode: SessionMode::Public,
            available_bgp_session_types: vec![BgpSessionType::Passive, BgpSessionType::Active],
            ip_v4: server.ip_v4.to_string(),
            ip_v6: server.ip_v6.to_string(),
        })
        .collect()
}

fn all(app: &App, principal: &Principal) -> Vec<NetworkFeature> {
    let exchange = &principal.snapshot.exchange;
    let services = exchange.services.keys();
    let seen = services.filter(|id| principal.may_read(**id));
    seen.flat_map(|id| features_of(app, exchange, *id)).collect()
}

/// List network features: route servers
#[utoipa::path(get, path = "/api/v2/network-features", tag = "network-features", operation_id = "network_features_list", params(FilterParams),
    responses((status = 200, body = Vec<NetworkFeature>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn list(
    Shared(app): Shared<App>,
    principal: Principal,
    filters: Filters,
) -> Result<Json<Vec<Value>>, Problem> {
    filters.list(all(&app, &principal))
}

/// Read a network feature
#[utoipa::path(get, path = "/api/v2/network-features/{id}", tag = "network-features", operation_id = "network_features_read", params(("id" = String, Path, description = "The feature")),
    responses((status = 200, body = NetworkFeature), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn read(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<NetworkFeature>, Problem> {
    let found = all(&app, &principal).into_iter().find(|feature| feature.id == id);
    found
        .map(Json)
        .ok_or_else(|| Problem::absent(id.chars().take(40).collect::<String>()))
}

/// The properties of a session that its member can change.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct SessionProperties {
    /// The AS-SET for IPv4: `AS-EXAMPLE@RIPE`.
    #[serde(default)]
    #[schema(max_length = 100)]
    pub(crate) as_set_v4: Option<String>,
    /// The AS-SET for IPv6.
    #[serde(default)]
    #[schema(max_length = 100)]
    pub(crate) as_set_v6: Option<String>,
    /// The largest number of IPv4 prefixes.
    #[serde(default)]
    pub(crate) max_prefix_v4: Option<u32>,
    /// The largest number of IPv6 prefixes.
    #[serde(default)]
    pub(crate) max_prefix_v6: Option<u32>,
    /// True if the route server's AS is inserted into the AS path.
    #[serde(default)]
    pub(crate) insert_ixp_asn: bool,
    /// The autonomous system of the member.
    pub(crate) asn: u32,
    /// The kind of the session.
    pub(crate) session_mode: SessionMode,
    /// The side that opens the connection.
    pub(crate) bgp_session_type: BgpSessionType,
    /// The IP address of the member, by its identifier.
    pub(crate) ip: String,
}

/// A new session with a route server.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct FeatureConfigRequest {
    /// `route_server`.
    #[serde(rename = "type")]
    pub(crate) kind: FeatureType,
    #[serde(flatten)]
    pub(crate) owned: Owned,
    #[serde(flatten)]
    pub(crate) billed: Billed,
    /// The route server.
    pub(crate) network_feature: String,
    /// The end of the peering LAN.
    pub(crate) network_service_config: String,
    #[serde(flatten)]
    pub(crate) session: SessionProperties,
    /// The password of the session (TCP MD5). It is stored sealed, and not shown.
    #[serde(default, skip_serializing_if = "crate::v2::view::is_secret")]
    #[schema(max_length = 128, write_only)]
    pub(crate) password: Option<String>,
}

/// The type of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FeatureType {
    RouteServer,
}

/// A session as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FeatureConfigRecord {
    #[serde(flatten)]
    pub(crate) request: FeatureConfigRequest,
    /// The sealed password.
    #[serde(default)]
    pub(crate) sealed: Option<Vec<u8>>,
}

impl Record for FeatureConfigRecord {
    const PREFIX: &'static str = "nfc";
}

/// A session with a route server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NetworkFeatureConfig {
    /// The identifier.
    id: String,
    #[serde(flatten)]
    stateful: Stateful,
    #[serde(flatten)]
    request: FeatureConfigRequest,
}

impl FeatureConfigRecord {
    pub(crate) fn config(&self) -> Option<ConfigId> {
        self.request.network_service_config.parse().ok()
    }

    fn view(&self, id: String) -> NetworkFeatureConfig {
        NetworkFeatureConfig {
            id,
            stateful: Stateful::plain(State::Production),
            request: self.request.clone(),
        }
    }
}

/// A session with the route servers, for exports.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) config: ConfigId,
    pub(crate) ip: IpId,
    pub(crate) asn: u32,
    pub(crate) as_set_v4: Option<AsSet>,
    pub(crate) as_set_v6: Option<AsSet>,
    pub(crate) max_prefix_v4: Option<u32>,
    pub(crate) max_prefix_v6: Option<u32>,
}

/// Returns true if the end of a record exists.
fn has_end(snapshot: &Snapshot, record: &FeatureConfigRecord) -> bool {
    let config = record.config();
    config.is_some_and(|config| snapshot.exchange.configs.contains_key(&config))
}

/// Returns the records of ends that exist. The records of a deleted end stay until [`sweep`]: if a switch refuses the
/// deletion, the end and its sessions are there again.
pub(crate) fn existing(app: &App) -> impl Iterator<Item = (String, FeatureConfigRecord)> + use<> {
    let snapshot = app.snapshot();
    let all = app.records.all().into_iter();
    all.filter(move |(_, record)| has_end(&snapshot, record))
}

/// Returns one session for each IP address that has sessions with route servers, in the order of their creation. A record
/// keeps what its member was entitled to when it ordered; a session has only what the end is entitled to now. Without an
/// AS-SET, a route server accepts routes of the session's own AS.
pub(crate) fn sessions(app: &App) -> Vec<Session> {
    let snapshot = app.snapshot();
    let exchange = &snapshot.exchange;
    let mut seen = BTreeSet::new();
    let all = existing(app);
    all.filter_map(|(_, record)| {
        let config = record.config()?;
        let session = record.request.session;
        let ip: IpId = session.ip.parse().ok()?;
        let end = exchange.configs.get(&config)?;
        if !exchange.asns_of(end).contains(&session.asn) {
            return None;
        }
        let entitled = |text: Option<String>| exchange.as_set_of(end.account, &text?).ok();
        seen.insert(ip).then_some(Session {
            config,
            ip,
            asn: session.asn,
            as_set_v4: entitled(session.as_set_v4),
            as_set_v6: entitled(session.as_set_v6),
            max_prefix_v4: session.max_prefix_v4,
            max_prefix_v6: session.max_prefix_v6,
        })
    })
    .collect()
}

/// Returns the identifiers of the sessions of an end.
pub(crate) fn configs_of(app: &App, config: ConfigId) -> Vec<String> {
    existing(app)
        .filter(|(_, record)| record.config() == Some(config))
        .map(|(id, _)| id)
        .collect()
}

/// Removes the records of ends that do not exist, when the engine starts.
pub(crate) async fn sweep(app: &App) -> Result<(), CredentialError> {
    let snapshot = app.snapshot();
    let all = app.records.all().into_iter();
    for (id, _) in all.filter(|(_, record)| !has_end(&snapshot, record)) {
        app.records.delete(&id).await?;
    }
    Ok(())
}

/// Returns true if the principal manages an end.
fn manages(principal: &Principal, config: ConfigId) -> bool {
    let found = principal.snapshot.exchange.configs.get(&config);
    found.is_some_and(|found| principal.may_read(config) && principal.may_read(found.connection))
}

fn find(app: &App, principal: &Principal, id: &str) -> Result<(FeatureConfigRecord, ConfigId), Problem> {
    let found: Option<FeatureConfigRecord> = app.records.find(id);
    found
        .and_then(|record| Some((record.config()?, record)))
        .filter(|(config, _)| manages(principal, *config))
        .map(|(config, record)| (record, config))
        .ok_or_else(|| Problem::absent(id.chars().take(40).collect::<String>()))
}

/// Rejects an order for an end that the principal may read but not change.
fn require(principal: &Principal, config: ConfigId) -> Result<(), Problem> {
    if principal.may(OperationKind::MoveEnd, config) {
        return Ok(());
    }
    let detail = format!("your roles do not permit this for {config}");
    Err(Problem::new(ProblemKind::Forbidden, detail).with_code("forbidden"))
}

/// Checks a session, and returns the end that it belongs to.
fn check(app: &App, principal: &Principal, request: &FeatureConfigRequest) -> Result<ConfigId, Problem> {
    request.owned.check(principal)?;
    request.billed.check(principal)?;
    super::contacts::check_assignments(app, principal, &request.billed.role_assignments)?;
    let exchange = &principal.snapshot.exchange;
    let config: ConfigId = identifier("network_service_config", &request.network_service_config)?;
    let found = exchange
        .configs
        .get(&config)
        .filter(|_| manages(principal, config));
    let found = found.ok_or_else(|| invalid("network_service_config", format!("there is no {config}")))?;
    let features = features_of(app, exchange, found.service);
    if !features
        .iter()
        .any(|feature| feature.id == request.network_feature)
    {
        let detail = "the service of the config has no such feature: see its network_features";
        return Err(invalid("network_feature", detail));
    }
    let session = &request.session;
    let ip: IpId = identifier("ip", &session.ip)?;
    if exchange.ips.get(&ip).is_none_or(|ip| ip.config != config) {
        return Err(invalid("ip", format!("{config} has no {ip}")));
    }
    if session.session_mode != SessionMode::Public {
        return Err(invalid(
            "session_mode",
            "the route servers have public sessions only",
        ));
    }
    // An end without AS numbers, such as one that was ordered on the page, has those of its account.
    if !exchange.asns_of(found).contains(&session.asn) {
        let detail = format!(
            "AS {} is not one of the config: expected one of its asns, or one of its account if it has none",
            session.asn
        );
        return Err(invalid("asn", detail));
    }
    let sets = [
        ("as_set_v4", &session.as_set_v4),
        ("as_set_v6", &session.as_set_v6),
    ];
    for (property, set) in sets
        .into_iter()
        .filter_map(|(property, set)| Some((property, set.as_ref()?)))
    {
        let checked = exchange.as_set_of(found.account, set);
        checked.map_err(|refusal| crate::refusal::problem(&refusal.field(property)))?;
    }
    if session.as_set_v4.is_none() && session.as_set_v6.is_none() {
        return Err(invalid("as_set_v4", "expected an AS-SET for IPv4 or for IPv6"));
    }
    check_text("password", request.password.as_deref().unwrap_or_default(), 128)?;
    Ok(config)
}

/// Refuses a second session of an address with a route server.
fn check_free(app: &App, except: Option<&str>, request: &FeatureConfigRequest) -> Result<(), Problem> {
    let mut same = existing(app).filter(|(id, other)| {
        Some(id.as_str()) != except
            && other.request.network_feature == request.network_feature
            && other.request.session.ip == request.session.ip
    });
    match same.next() {
        None => Ok(()),
        Some((id, _)) => Err(Problem::new(
            ProblemKind::Conflict,
            format!("{id} is the session of this address with the route server"),
        )),
    }
}

/// Returns a session with its password sealed.
fn seal(app: &App, mut request: FeatureConfigRequest) -> Result<FeatureConfigRecord, Problem> {
    let password = request.password.take().filter(|password| !password.is_empty());
    let sealed = password
        .map(|password| app.sealer.seal("bgp password", password.as_bytes()))
        .transpose()
        .map_err(|error| Problem::new(ProblemKind::Internal, error.to_string()))?;
    Ok(FeatureConfigRecord { request, sealed })
}

/// List sessions with route servers
#[utoipa::path(get, path = "/api/v2/network-feature-configs", tag = "network-feature-configs", operation_id = "network_feature_configs_list", params(FilterParams),
    responses((status = 200, body = Vec<NetworkFeatureConfig>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn configs(
    Shared(app): Shared<App>,
    principal: Principal,
    filters: Filters,
) -> Result<Json<Vec<Value>>, Problem> {
    let all = app.records.all::<FeatureConfigRecord>().into_iter();
    let seen = all.filter(|(_, record)| record.config().is_some_and(|config| manages(&principal, config)));
    filters.list(seen.map(|(id, record)| record.view(id)).collect())
}

/// Read a session with a route server
#[utoipa::path(get, path = "/api/v2/network-feature-configs/{id}", tag = "network-feature-configs", operation_id = "network_feature_configs_read", params(("id" = String, Path, description = "The session")),
    responses((status = 200, body = NetworkFeatureConfig), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn config(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<NetworkFeatureConfig>, Problem> {
    let (record, _) = find(&app, &principal, &id)?;
    Ok(Json(record.view(id)))
}

/// Order a session with a route server
#[utoipa::path(post, path = "/api/v2/network-feature-configs", tag = "network-feature-configs", operation_id = "network_feature_configs_create", request_body = FeatureConfigRequest,
    responses((status = 201, body = NetworkFeatureConfig), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn configure(
    Shared(app): Shared<App>,
    principal: Principal,
    mark: RequestMark,
    Body(given): Body<FeatureConfigRequest>,
) -> Result<(StatusCode, Json<NetworkFeatureConfig>), Problem> {
    let config = check(&app, &principal, &given)?;
    require(&principal, config)?;
    check_free(&app, None, &given)?;
    let record = seal(&app, given)?;
    app.record(
        &principal.audit_name(),
        "create_route_server_session",
        config,
        json!(record.request),
    )
    .await?;
    let id = app.records.create(&record, &mark).await?;
    Ok((StatusCode::CREATED, Json(record.view(id))))
}

/// Delete a session with a route server
#[utoipa::path(delete, path = "/api/v2/network-feature-configs/{id}", tag = "network-feature-configs", operation_id = "network_feature_configs_destroy", params(("id" = String, Path, description = "The session")),
    responses((status = 200, body = NetworkFeatureConfig), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn delete_config(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<NetworkFeatureConfig>, Problem> {
    let (record, config) = find(&app, &principal, &id)?;
    require(&principal, config)?;
    app.record(
        &principal.audit_name(),
        "delete_route_server_session",
        &id,
        json!({}),
    )
    .await?;
    app.records.delete(&id).await?;
    let mut gone = record.view(id);
    gone.stateful = Stateful::plain(State::DecommissionRequested);
    Ok(Json(gone))
}
