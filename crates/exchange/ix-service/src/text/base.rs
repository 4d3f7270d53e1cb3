//! The exchange from which a text was exported, and the deletions that a text asks for.
//!
//! ```text
//!   export ── base = digest of the text ──► edit ──► apply: is the exchange still as the base, or as the newest
//!                                                    application of a text with this base has left it?
//!                                                      yes: the text is applied      no: it is refused
//! ```
//! The digest covers what the text says and nothing else, so that the progress of changes, users and filters do not
//! count as differences.

use std::collections::BTreeSet;

use millrace_ix_model::state::CommercialState;
use millrace_ix_model::{ChangeSet, Exchange, Object, ObjectId, Refusal};
use millrace_ix_store::{Revision, sha256_hex};
use serde::{Deserialize, Serialize};

use super::{Document, Kept, document};
use crate::revisions::Revisions;

/// The setting that holds the results of applied texts.
pub(crate) const BASES: &str = "text_bases";
/// The number of bases whose results are kept.
const BASES_MAX: usize = 64;
/// The number of services, ends and connections that a text deletes without a further word.
pub const DELETIONS_MAX: usize = 10;
/// The number of objects that a refusal names.
const NAMED_MAX: usize = 8;

/// The exchange from which a text was exported.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Base {
    /// The revision of the database.
    pub revision: u64,
    /// The SHA-256 of the text without this table, and without what accounts keep, in hexadecimal digits.
    pub digest: String,
    /// The SHA-256 of what accounts keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

impl Document {
    /// Returns the text of an exchange with its base.
    pub fn exported(exchange: &Exchange, revision: Revision) -> Document {
        let mut text = document(exchange);
        text.base = Some(Base {
            revision: revision.0,
            digest: text.digest(),
            kept: None,
        });
        text
    }

    /// Returns the base, if the text has one.
    pub fn base(&self) -> Option<&Base> {
        self.base.as_ref()
    }

    fn digest(&self) -> String {
        let plain = Document {
            base: None,
            ..self.clone()
        }
        .with_kept(Kept::default());
        // A document has only strings as keys, so that it always has a JSON form.
        sha256_hex(serde_json::to_string(&plain).unwrap_or_default().as_bytes())
    }
}

/// The results of the newest applications by base: a text may be applied, edited and applied again.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Bases(Vec<(String, String)>);

impl Bases {
    /// Returns the results with that of an application.
    pub(crate) fn with(mut self, base: &Base, after: &Exchange) -> Bases {
        self.0.retain(|(digest, _)| *digest != base.digest);
        self.0.push((base.digest.clone(), document(after).digest()));
        let excess = self.0.len().saturating_sub(BASES_MAX);
        self.0.drain(..excess);
        self
    }

    /// Refuses a text if others have changed since its base what a text says.
    pub(crate) fn check(
        &self,
        base: &Base,
        exchange: &Exchange,
        revisions: &Revisions,
    ) -> Result<(), Refusal> {
        let present = document(exchange).digest();
        let is_result = |(digest, result): &(String, String)| *digest == base.digest && *result == present;
        if present == base.digest || self.0.iter().any(is_result) {
            return Ok(());
        }
        let newer = revisions
            .iter()
            .filter(|(id, revision)| revision.0 > base.revision && is_in_text(*id));
        let newer: BTreeSet<ObjectId> = newer.map(|(id, _)| id).collect();
        let names: Vec<String> = newer.into_iter().map(|id| name(exchange, id)).collect();
        let shown = names
            .get(..NAMED_MAX.min(names.len()))
            .unwrap_or_default()
            .join(", ");
        let more = names.len().saturating_sub(NAMED_MAX);
        let list = match (names.is_empty(), more) {
            (true, _) => "objects were deleted".to_owned(),
            (false, 0) => format!("among the objects that were written: {shown}"),
            (false, more) => format!("among the objects that were written: {shown}, and {more} more"),
        };
        Err(Refusal::conflict(format!(
            "the text was exported at revision {}, and the exchange has changed since ({list}): export it again and edit that \
             text, or overwrite what was ordered since with --overwrite",
            base.revision
        ))
        .field("base"))
    }
}

/// Returns true for objects that a text contains.
const fn is_in_text(id: ObjectId) -> bool {
    !matches!(
        id,
        ObjectId::User(_) | ObjectId::ServiceKey(_) | ObjectId::Filter(_) | ObjectId::Approval(_)
    )
}

/// Returns the kind, the name and the identifier of an object, such as "service Aoba/first (sv-9)".
pub(crate) fn name(exchange: &Exchange, id: ObjectId) -> String {
    let account = |id| {
        let found = exchange.accounts.get(&id);
        found.map_or_else(
            || id.to_string(),
            |account: &millrace_ix_model::Account| account.name.clone(),
        )
    };
    let text = match exchange.object(id) {
        Some(Object::Site(found)) => format!("site {}", found.name),
        Some(Object::Switch(found)) => format!("switch {}", found.name),
        Some(Object::Trunk(found)) => format!("trunk {}", found.name),
        Some(Object::Account(found)) => format!("account {}", found.name),
        Some(Object::Policy(found)) => format!("policy {}", found.name),
        Some(Object::Connection(found)) => format!("connection {}/{}", account(found.account), found.name),
        Some(Object::Service(found)) => format!("service {}/{}", account(found.account), found.name),
        Some(Object::Config(found)) => {
            let service = exchange.services.get(&found.service);
            let name = service.map_or_else(
                || found.service.to_string(),
                |service| format!("{}/{}", account(service.account), service.name),
            );
            format!("end of {name}, {}", found.vlan)
        }
        _ => return id.to_string(),
    };
    format!("{text} ({id})")
}

/// Returns the services, ends and connections that changes delete, by name. A service is deleted when its decommissioning
/// is ordered, although its object stays until the switches have removed its entries.
pub(crate) fn deletions(before: &Exchange, changes: &ChangeSet) -> Vec<String> {
    let is_ending = |object: Option<&Object>| matches!(object, Some(Object::Service(service)) if service.state == CommercialState::DecommissionRequested);
    let gone = changes.objects.iter().filter(|(id, after)| match id {
        ObjectId::Service(_) => {
            let found = before.object(**id);
            (after.is_none() || is_ending(after.as_ref())) && found.is_some() && !is_ending(found.as_ref())
        }
        ObjectId::Config(_) | ObjectId::Connection(_) => after.is_none() && before.object(**id).is_some(),
        _ => false,
    });
    gone.map(|(id, _)| name(before, *id)).collect()
}
