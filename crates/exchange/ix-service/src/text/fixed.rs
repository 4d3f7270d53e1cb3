//! The fields that no order changes: a text that changes one is refused with the name of the field.

use millrace_ix_model::{Account, AccountId, Config, Connection, Exchange, Refusal, Service, Trunk};

use super::{AccountText, ConnectionText, EndText, ServiceText, TrunkText};

/// Refuses a field whose value differs.
fn same<T: PartialEq + core::fmt::Debug>(
    object: &str,
    field: &str,
    found: &T,
    text: &T,
    instead: &str,
) -> Result<(), Refusal> {
    if found == text {
        return Ok(());
    }
    let shown = |value: &T| {
        let value = serde_free(value);
        if value == "None" {
            "nothing".to_owned()
        } else {
            value
        }
    };
    Err(Refusal::invalid(
        field,
        format!(
            "{object}: {field} is {} in the exchange and {} in the text, and no order changes it: {instead}",
            shown(found),
            shown(text)
        ),
    ))
}

/// Returns a value in words: the inner value of an optional one.
fn serde_free<T: core::fmt::Debug>(value: &T) -> String {
    let text = format!("{value:?}");
    text.strip_prefix("Some(")
        .and_then(|text| text.strip_suffix(')'))
        .map_or(text.clone(), str::to_owned)
}

const KEEP: &str = "write the value of the exchange";

pub(super) fn trunk(found: &Trunk, text: &TrunkText) -> Result<(), Refusal> {
    let instead = "delete the trunk with `millrace-ix delete`, and give the new one another name";
    same(
        &format!("trunk {}", text.name),
        "kind",
        &found.kind,
        &text.kind,
        instead,
    )
}

pub(super) fn account(exchange: &Exchange, found: &Account, text: &AccountText) -> Result<(), Refusal> {
    let object = format!("account {}", text.name);
    same(
        &object,
        "kind",
        &found.kind,
        &text.kind,
        "add another account of this kind",
    )?;
    let parent = found.parent.map(|id| account_name(exchange, id));
    same(
        &object,
        "parent",
        &parent,
        &text.parent,
        "add another account below that one",
    )?;
    same(
        &object,
        "external_ref",
        &found.external_ref,
        &text.external_ref,
        KEEP,
    )?;
    // An order sets an AS-SET, and none takes it away.
    match &text.as_set {
        None => same(&object, "as_set", &found.as_set, &text.as_set, KEEP),
        Some(_) => Ok(()),
    }
}

pub(super) fn connection(found: &Connection, text: &ConnectionText) -> Result<(), Refusal> {
    let object = format!("connection {}/{}", text.account, text.name);
    same(
        &object,
        "external_ref",
        &found.external_ref,
        &text.external_ref,
        KEEP,
    )
}

pub(super) fn service(exchange: &Exchange, found: &Service, text: &ServiceText) -> Result<(), Refusal> {
    let object = format!("service {}/{}", text.account, text.name);
    let anew = "delete the service, and order it anew under another name";
    same(&object, "kind", &found.kind, &text.kind, anew)?;
    let peer = found.peer.map(|id| account_name(exchange, id));
    // A text may name the account itself as the peer, which means none.
    let wanted = text.peer.clone().filter(|peer| *peer != text.account);
    same(&object, "peer", &peer, &wanted, anew)?;
    let policy = found.policy.and_then(|id| exchange.policies.get(&id));
    let policy = policy.map(|policy| policy.name.clone());
    same(
        &object,
        "policy",
        &policy,
        &text.policy,
        "change the policy itself",
    )?;
    same(
        &object,
        "external_ref",
        &found.external_ref,
        &text.external_ref,
        KEEP,
    )
}

pub(super) fn end(service: &ServiceText, found: &Config, text: &EndText) -> Result<(), Refusal> {
    let [account, connection] = &text.connection;
    let object = format!(
        "end of service {}/{} at connection {account}/{connection}",
        service.account, service.name
    );
    let anew = "apply the text without the end, then with it";
    same(&object, "role", &found.role, &text.role, anew)?;
    same(&object, "asns", &found.asns, &text.asns, anew)?;
    same(
        &object,
        "external_ref",
        &found.external_ref,
        &text.external_ref,
        KEEP,
    )
}

fn account_name(exchange: &Exchange, id: AccountId) -> String {
    let found = exchange.accounts.get(&id);
    found.map_or_else(|| id.to_string(), |account| account.name.clone())
}
