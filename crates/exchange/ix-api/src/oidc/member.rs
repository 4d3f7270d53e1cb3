//! Derives the account and the role of a person from the networks in the provider's claims. PeeringDB sends
//! them in the claim `networks`: `[{"asn": 64500, "perms": 15}]`.

use std::collections::BTreeSet;

use millrace_ix_model::{AccountId, Exchange, Role, UserId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::session::fingerprint;

/// The bit of the permission to read.
const READ: u64 = 1;
/// The bit of the permission to update existing objects.
const UPDATE: u64 = 2;
/// The bits of all permissions: read, update, create and delete.
const ALL: u64 = 15;

/// A network of a person, from the claims of the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network {
    /// The AS number.
    pub(crate) asn: u32,
    /// The permission bits: 1 read, 2 update, 4 create, 8 delete.
    pub(crate) perms: u64,
}

/// Reads the claim `networks`. Skips entries without AS number or permissions.
pub(crate) fn networks(claim: Option<&Value>) -> Vec<Network> {
    let entries = claim.and_then(Value::as_array).into_iter().flatten();
    entries
        .filter_map(|entry| {
            Some(Network {
                asn: entry.get("asn")?.as_u64()?.try_into().ok()?,
                perms: entry.get("perms")?.as_u64()?,
            })
        })
        .collect()
}

/// Returns the role for permissions: administrator for all permissions, technician for update, and billing
/// for read only. Billing may order nothing.
fn role(perms: u64) -> Option<Role> {
    if perms & ALL == ALL {
        Some(Role::MemberAdmin)
    } else if perms & UPDATE != 0 {
        Some(Role::MemberTech)
    } else if perms & READ != 0 {
        Some(Role::MemberBilling)
    } else {
        None
    }
}

/// Returns the AS numbers of the networks of which the person is an administrator. The provider has verified that the holder
/// of the number named the person.
pub(crate) fn administered(networks: &[Network]) -> BTreeSet<u32> {
    let own = networks.iter().filter(|network| network.perms & ALL == ALL);
    own.map(|network| network.asn).collect()
}

/// Returns the account in which the person's role has the most rights, and that role. If several accounts
/// give the same role, returns the oldest account. Only members and resellers are considered, so that no
/// provider can give an operator's role.
pub(crate) fn membership(exchange: &Exchange, networks: &[Network]) -> Option<(AccountId, Role)> {
    let accounts = exchange.accounts.iter();
    accounts
        .filter_map(|(id, account)| {
            let own = networks
                .iter()
                .filter(|network| account.asns.contains(&network.asn));
            // `Role` lists the roles of members in descending order of rights, so the minimum has the most.
            let role = own.filter_map(|network| role(network.perms)).min()?;
            role.suits(account.kind).then_some((role, *id))
        })
        .min()
        .map(|(role, id)| (id, role))
}

/// The stored link from a person to the user in an account.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Link {
    pub(crate) user: UserId,
}

/// Returns the key under which the link of a person to an account is stored. Issuer and subject identify the
/// person (OpenID Connect Core 1.0, section 5.7), because names and mail addresses can change their owner.
pub(crate) fn link_key(issuer: &str, subject: &str, account: AccountId) -> String {
    format!("oidc/{}/{account}", fingerprint(&format!("{issuer}\n{subject}")))
}

/// Returns a set that contains one role.
pub(crate) fn roles(role: Role) -> BTreeSet<Role> {
    BTreeSet::from([role])
}

/// Returns a user name that is not in use, for a new user.
pub(crate) fn name(exchange: &Exchange, username: Option<&str>, subject: &str, provider: &str) -> String {
    let clean = |text: &str| -> String {
        let text: String = text.chars().filter(|character| !character.is_control()).collect();
        text.trim().chars().take(60).collect()
    };
    let is_free = |name: &str| {
        let mut users = exchange.users.values();
        !users.any(|user| user.name.eq_ignore_ascii_case(name))
    };
    let (username, subject) = (clean(username.unwrap_or_default()), clean(subject));
    let provider: String = clean(provider).chars().take(20).collect();
    let named = (!username.is_empty()).then(|| format!("{username}@{provider}"));
    let plain = format!("{subject}@{provider}");
    let numbered = (2..).map(|number| format!("{subject}-{number}@{provider}"));
    named
        .into_iter()
        .chain([plain])
        .chain(numbered)
        .find(|name| is_free(name))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use millrace_ix_model::{AccountKind, Actor, Operation, Timestamp};
    use serde_json::json;

    use super::*;

    fn exchange(accounts: &[(&str, AccountKind, u32)]) -> Exchange {
        let mut exchange = Exchange::default();
        for (name, kind, asn) in accounts {
            let operation = Operation::CreateAccount {
                name: (*name).to_owned(),
                kind: *kind,
                parent: None,
                asns: BTreeSet::from([*asn]),
                discoverable: false,
                as_set: None,
                external_ref: None,
            };
            exchange
                .apply(&Actor::system(), Timestamp::from_secs(1), operation)
                .unwrap();
        }
        exchange
    }

    #[test]
    fn an_unknown_network_gives_nothing_and_a_known_one_its_account() {
        let exchange = exchange(&[
            ("IX", AccountKind::Exchange, 64_999),
            ("Aoba", AccountKind::Member, 64_500),
            ("Baikal", AccountKind::Member, 64_501),
        ]);
        let of = |claim: Value| membership(&exchange, &networks(Some(&claim)));
        let one = |asn: u32, perms: u32| of(json!([{"asn": asn, "perms": perms, "name": "x"}]));
        assert_eq!(one(64_500, 15), Some((AccountId(2), Role::MemberAdmin)));
        assert_eq!(one(64_500, 3), Some((AccountId(2), Role::MemberTech)));
        assert_eq!(one(64_500, 1), Some((AccountId(2), Role::MemberBilling)));
        assert_eq!(one(64_500, 0), None);
        assert_eq!(one(64_502, 15), None, "an unknown AS");
        assert_eq!(one(64_999, 15), None, "nobody becomes an operator");
        assert_eq!(of(json!({"asn": 64_500})), None);
        assert_eq!(of(json!([{"asn": "64500", "perms": 15}, 7, null])), None);
        let several =
            json!([{"asn": 64_500, "perms": 1}, {"asn": 64_501, "perms": 15}, {"asn": 7, "perms": 15}]);
        assert_eq!(of(several), Some((AccountId(3), Role::MemberAdmin)));
    }

    #[test]
    fn a_new_user_gets_a_name_that_nobody_has() {
        let mut exchange = exchange(&[("Aoba", AccountKind::Member, 64_500)]);
        for expected in ["kim@PeeringDB", "77@PeeringDB", "77-2@PeeringDB"] {
            let name = name(&exchange, Some(" kim\n"), "77", "PeeringDB");
            assert_eq!(name, expected);
            let user = Operation::CreateUser {
                name: name.to_uppercase(),
                account: Some(AccountId(1)),
                roles: roles(Role::MemberTech),
                email: None,
                language: None,
            };
            exchange
                .apply(&Actor::system(), Timestamp::from_secs(1), user)
                .unwrap();
        }
        assert_eq!(name(&exchange, None, "78", "PeeringDB"), "78@PeeringDB");
    }

    #[test]
    fn a_person_is_issuer_and_subject() {
        let account = AccountId(1);
        let own = link_key("https://a", "1", account);
        assert_ne!(own, link_key("https://b", "1", account));
        assert_ne!(own, link_key("https://a", "2", account));
        assert_ne!(own, link_key("https://a", "1", AccountId(2)));
    }
}
