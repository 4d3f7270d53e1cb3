//! The sender of a request, and the objects that the request may reach.
//!
//! [`Principal`] is the user behind a session or an API key. [`Access`] is an object that the principal may
//! read. It is created only after a check of the model's permission table, so no handler can forget the
//! check. The API gives the same answer for an object that may not be read as for one that does not exist.
//! This module also records in the audit chain when the exchange's staff read members' data.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use millrace_ix_model::permission::{is_permitted, read_kind};
use millrace_ix_model::{
    AccountId, AccountKind, Actor, Draft, Key, ObjectId, OperationKind, Relation, ServiceKind, reason,
};
use millrace_listener::Connection;
use serde_json::json;

use crate::app::{App, actor_of};
use crate::events::Logged;
use crate::problem::{Problem, ProblemKind};
use crate::reads::COLLECTIONS;
use crate::service::Snapshot;
use crate::session::{ApiKeyRecord, KEY_PREFIX, KeyScope, TokenError, fingerprint, load_json, save_json};

/// The user behind a request.
#[derive(Debug, Clone)]
pub(crate) struct Principal {
    pub(crate) actor: Actor,
    /// The name that the user signs in with.
    pub(crate) name: String,
    /// The state of the exchange at the time of the request.
    pub(crate) snapshot: Arc<Snapshot>,
}

impl Principal {
    /// Returns the name of the actor in the audit chain and in the journal: the user's identifier.
    pub(crate) fn audit_name(&self) -> String {
        self.actor
            .user
            .map_or_else(|| self.name.clone(), |user| user.to_string())
    }

    /// Returns true if the actor may read an object.
    pub(crate) fn may_read(&self, object: impl Into<ObjectId>) -> bool {
        self.snapshot.exchange.may_read(&self.actor, object.into())
    }

    /// Returns true if the actor may know the identifier and the name of an account. Operators and regulators
    /// may know all accounts. Others may know discoverable accounts, accounts above or below their own, and the
    /// exchange's account.
    pub(crate) fn knows(&self, account: AccountId) -> bool {
        let exchange = &self.snapshot.exchange;
        let is_above = |own: AccountId| exchange.descendants(account).contains(&own);
        exchange.accounts.get(&account).is_some_and(|found| {
            found.discoverable
                || found.kind == AccountKind::Exchange
                || is_permitted(&self.actor, OperationKind::ReadAudit, Relation::Foreign)
                || exchange.relation(&self.actor, account.into()) != Relation::Foreign
                || self.actor.account.is_some_and(is_above)
        })
    }

    /// Returns true if the actor may read the object and it belongs to a circuit. The parties of a circuit
    /// know each other; the members of a peering LAN do not.
    pub(crate) fn is_of_circuit(&self, object: ObjectId) -> bool {
        let exchange = &self.snapshot.exchange;
        let service = match object {
            ObjectId::Service(id) => exchange.services.get(&id),
            ObjectId::Config(id) => exchange
                .configs
                .get(&id)
                .and_then(|config| exchange.services.get(&config.service)),
            _ => None,
        };
        service.is_some_and(|service| service.kind != ServiceKind::ExchangeLan) && self.may_read(object)
    }

    /// Returns the AS numbers of an account, which replace its name for principals that may not know the
    /// name. Returns `None` if the account has no AS numbers.
    pub(crate) fn asns_as_name(&self, account: AccountId) -> Option<String> {
        let found = self.snapshot.exchange.accounts.get(&account)?;
        let asns: Vec<String> = found.asns.iter().map(|asn| format!("AS{asn}")).collect();
        (!asns.is_empty()).then(|| asns.join(", "))
    }

    /// Returns true if the actor may perform an operation on an object.
    pub(crate) fn may(&self, kind: OperationKind, object: impl Into<ObjectId>) -> bool {
        self.snapshot.exchange.permits(&self.actor, kind, object.into())
    }

    /// Returns true if the actor's roles permit the operation on at least some objects.
    pub(crate) fn may_somewhere(&self, kind: OperationKind) -> bool {
        Relation::ALL
            .into_iter()
            .any(|relation| is_permitted(&self.actor, kind, relation))
    }

    /// Rejects a request about the exchange itself that the actor's roles do not permit.
    pub(crate) fn require(&self, kind: OperationKind) -> Result<(), Problem> {
        if self.may_somewhere(kind) {
            return Ok(());
        }
        Err(Problem::because(ProblemKind::Forbidden, reason::forbidden()).with_code("forbidden"))
    }
}

impl Logged {
    /// Returns the objects that a principal may know of. If there are none, the principal does not get the
    /// event.
    pub(crate) fn visible_to(&self, principal: &Principal) -> Vec<ObjectId> {
        let account = principal.actor.account;
        let may = |object: ObjectId, audience: &BTreeSet<AccountId>| {
            // The audience consists of accounts. A user of such an account may lack a role that reads such
            // objects.
            principal.may_somewhere(read_kind(object))
                && (principal.actor.is_operator()
                    || account.is_some_and(|account| audience.contains(&account)))
        };
        self.objects
            .iter()
            .filter(|(object, audience)| may(*object, audience))
            .map(|(object, _)| *object)
            .collect()
    }
}

impl FromRequestParts<App> for Principal {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Principal, Problem> {
        let snapshot = app.snapshot();
        let found = match bearer(&parts.headers) {
            Some(key) => {
                let user = key_user(app, key, &parts.method).await?;
                user.map(|user| (user, BTreeSet::new()))
            }
            None => app
                .sessions
                .find(&parts.headers, app.now())
                .await
                .map(|session| (session.user, session.proven_asns)),
        };
        let found = found.and_then(|(id, proven_asns)| {
            let actor = Actor {
                proven_asns,
                ..actor_of(&snapshot, id)?
            };
            Some((actor, snapshot.exchange.users.get(&id)?.name.clone()))
        });
        let (actor, name) = found.ok_or_else(|| {
            Problem::new(ProblemKind::Unauthorized, "there is no session, or it has ended").with_next_step(
                "sign in at POST /api/v1/session, or send `Authorization: Bearer` with an API key",
            )
        })?;
        // At the limit the request is answered all the same, and newer connections may close this one.
        if let Some(connection) = parts.extensions.get::<Connection>()
            && let Err(error) = connection.establish()
        {
            tracing::debug!(%error, "a connection of the API stays pending");
        }
        let principal = Principal {
            actor,
            name,
            snapshot,
        };
        if matches!(parts.method, Method::GET | Method::HEAD) {
            note_read(app, &principal, parts.uri.path()).await;
        }
        Ok(principal)
    }
}

/// Adds an entry to the audit chain if the path names data of a member and a user of the exchange's staff
/// reads it.
///
/// If the entry cannot be written, the read itself still succeeds, and the next read tries to add the entry
/// again.
async fn note_read(app: &App, principal: &Principal, path: &str) {
    let Some(user) = principal.actor.user.filter(|_| principal.actor.is_operator()) else {
        return;
    };
    let mut segments = path.trim_start_matches("/api/").split('/').skip(1);
    let Some(collection) = segments.next() else {
        return;
    };
    let object = segments.find_map(|text| text.parse::<ObjectId>().ok());
    let seen = match object {
        Some(object) => {
            let owner = Draft::new(&principal.snapshot.exchange).owner(object);
            if owner.is_none() || owner == principal.actor.account {
                return;
            }
            object.to_string()
        }
        None if COLLECTIONS.contains(&collection) => collection.to_owned(),
        None => return,
    };
    if !app.reads.is_new(user, &seen, app.uptime()) {
        return;
    }
    let recorded = app
        .record(&principal.audit_name(), "read", &seen, json!({ "path": path }))
        .await;
    if let Err(problem) = recorded {
        tracing::warn!(%user, object = seen, reason = %problem.detail, "a read is not in the audit chain yet");
        app.reads.forget(user, &seen);
    }
}

/// Returns the bearer token in the request: an API key, or an access token made from one.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

/// Returns the user of an API key, or of an access token made from one. Fails if the scope of the key does
/// not permit the method.
pub(crate) async fn key_user(
    app: &App,
    key: &str,
    method: &Method,
) -> Result<Option<millrace_ix_model::UserId>, Problem> {
    let stored = if key.starts_with(KEY_PREFIX) || !key.contains('.') {
        format!("key/{}", fingerprint(key))
    } else {
        match app.tokens.verify(key, app.now()) {
            Ok(print) => format!("key/{print}"),
            Err(TokenError::Invalid) => return Ok(None),
            Err(error @ TokenError::Expired) => {
                let problem = Problem::new(ProblemKind::Unauthorized, error.to_string());
                return Err(problem.with_code("token-expired"));
            }
        }
    };
    let Some(record) = load_json::<ApiKeyRecord>(&*app.credentials, &stored).await? else {
        return Ok(None);
    };
    if record.scope == KeyScope::Read && !matches!(*method, Method::GET | Method::HEAD) {
        let problem = Problem::because(ProblemKind::Forbidden, reason::read_only_key());
        return Err(problem.with_code("forbidden"));
    }
    let now = app.now();
    if record
        .last_used
        .is_none_or(|last| now.since(last).as_secs() >= 60)
    {
        // The record is read again under the lock, because writing the old record would restore a key that
        // was deleted meanwhile.
        let _changing = app.lock_credentials().await;
        let Some(mut record) = load_json::<ApiKeyRecord>(&*app.credentials, &stored).await? else {
            return Ok(None);
        };
        record.last_used = Some(now);
        // A full disk does not keep programs out, as it does not end sessions.
        if let Err(error) = save_json(&*app.credentials, &stored, &record).await {
            tracing::warn!(%error, "the time of an API key's last request is not stored");
        }
    }
    Ok(Some(record.user))
}

/// An object that the principal may read, or a hidden object whose order may be a repetition.
#[derive(Debug, Clone)]
pub(crate) struct Access<K> {
    principal: Principal,
    id: K,
    /// True if the request has an idempotency key, and the object does not exist or may not be read. The
    /// first order with the key may have deleted the object. The request can then get only the stored answer
    /// to that order.
    hidden: bool,
}

impl<K: Key> Access<K> {
    /// Returns access to an object that the principal may read.
    ///
    /// # Errors
    /// [`Problem::absent`], both for an object that does not exist and for one that may not be read.
    pub(crate) fn to(principal: Principal, id: K) -> Result<Access<K>, Problem> {
        let object: ObjectId = id.into();
        if principal.may_read(object) {
            Ok(Access {
                principal,
                id,
                hidden: false,
            })
        } else {
            Err(Problem::absent(object))
        }
    }

    /// Returns the identifier.
    pub(crate) fn id(&self) -> K {
        self.id
    }

    /// Returns true if the principal must not learn whether the object exists. The request can then get only
    /// a stored answer.
    pub(crate) fn is_hidden(&self) -> bool {
        self.hidden
    }

    /// Returns the principal.
    pub(crate) fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Returns the object.
    pub(crate) fn object(&self) -> Result<&K::Object, Problem> {
        self.id
            .stored(&self.principal.snapshot.exchange)
            .filter(|_| !self.hidden)
            .ok_or_else(|| Problem::absent(self.id.into()))
    }

    /// Rejects an operation on this object that the permission table does not permit.
    pub(crate) fn require(&self, kind: OperationKind) -> Result<(), Problem> {
        if self.hidden || self.principal.may(kind, self.id) {
            return Ok(());
        }
        let object: ObjectId = self.id.into();
        let reason = reason::forbidden_object(object);
        Err(Problem::because(ProblemKind::Forbidden, reason).with_code("forbidden"))
    }
}

impl<K: Key + std::str::FromStr + Send> FromRequestParts<App> for Access<K> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Access<K>, Problem> {
        let principal = Principal::from_request_parts(parts, app).await?;
        let Path(text) = Path::<String>::from_request_parts(parts, app)
            .await
            .map_err(|error| Problem::new(ProblemKind::BadRequest, error.body_text()))?;
        // Text that is not an identifier gets the same answer as an identifier without an object.
        let id = text
            .parse::<K>()
            .map_err(|_| Problem::absent(text.chars().take(40).collect::<String>()))?;
        let may_repeat = !matches!(parts.method, Method::GET | Method::HEAD)
            && parts.uri.path().starts_with("/api/v1/")
            && parts.headers.contains_key("idempotency-key");
        if may_repeat && !principal.may_read(id) {
            return Ok(Access {
                principal,
                id,
                hidden: true,
            });
        }
        Access::to(principal, id)
    }
}
