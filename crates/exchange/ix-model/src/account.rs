//! Accounts, users and their roles, and the actor of an order.

use core::fmt;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::id::{AccountId, UserId};

/// The type of an account.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccountKind {
    /// The operator of the exchange. Only its users have operator roles.
    Exchange,
    /// A reseller: manages the accounts below it.
    Reseller,
    Member,
    /// An authority that supervises the exchange. Its users have the role `regulator` only.
    Authority,
}

/// A member, a reseller's customer, or the exchange itself: the owner of connections and services.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Account {
    /// The name, unique in the exchange.
    pub name: String,
    pub kind: AccountKind,
    /// The account that manages this one.
    #[serde(default)]
    pub parent: Option<AccountId>,
    /// The autonomous systems.
    #[serde(default)]
    pub asns: BTreeSet<u32>,
    /// True if other accounts see identifier, name and presence.
    #[serde(default)]
    pub discoverable: bool,
    /// The AS-SET that describes the member's customers in an IRR, with the meaning of [`AsSet`](crate::AsSet).
    #[serde(default)]
    pub as_set: Option<String>,
    /// The reference of the orderer, unique among the accounts below one parent. IX-API clients use it as the
    /// key for retries.
    #[serde(default)]
    pub external_ref: Option<String>,
    /// The largest numbers of objects, which the exchange's staff sets.
    #[serde(default)]
    pub limits: Limits,
}

/// The largest numbers of objects of an account and the accounts below it. They limit the orders of members,
/// and not the orders of the exchange's staff.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Services that the accounts ordered.
    pub services: u32,
    /// Services that the accounts ordered and that trunks carry.
    pub carried: u32,
    /// Ends of the accounts.
    pub ends: u32,
    /// The share of a connection's speed that the contracted rates of its ends may fill, in percent; more than 100 sells
    /// the speed more than once.
    pub connection_percent: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            services: 500,
            carried: 250,
            ends: 2000,
            connection_percent: 100,
        }
    }
}

impl Limits {
    /// Returns true if the limits have their default values.
    pub fn is_default(&self) -> bool {
        *self == Limits::default()
    }
}

/// A role of a user.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everything of its own account, users included.
    MemberAdmin,
    /// Services, ends and addresses of its own account.
    MemberTech,
    /// Filters, shut-downs and reading for its own account.
    MemberNoc,
    /// Reading of what is billed.
    MemberBilling,
    /// The accounts below its own, and their services.
    Reseller,
    /// The exchange's operation: drains, locks, quarantine.
    OperatorNoc,
    /// The exchange's inventory and members.
    OperatorProvisioning,
    /// Everything of the exchange.
    OperatorAdmin,
    /// Reading of status, incidents, policies and the audit chain.
    Regulator,
    /// A program of a member, with the operations that IX-API has.
    ApiClient,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 10] = [
        Role::MemberAdmin,
        Role::MemberTech,
        Role::MemberNoc,
        Role::MemberBilling,
        Role::Reseller,
        Role::OperatorNoc,
        Role::OperatorProvisioning,
        Role::OperatorAdmin,
        Role::Regulator,
        Role::ApiClient,
    ];

    /// Returns true for the roles of the exchange's staff.
    pub const fn is_operator(self) -> bool {
        matches!(
            self,
            Role::OperatorNoc | Role::OperatorProvisioning | Role::OperatorAdmin
        )
    }

    /// Returns true if users of an account of this type may have the role.
    pub const fn suits(self, kind: AccountKind) -> bool {
        match self {
            Role::OperatorNoc | Role::OperatorProvisioning | Role::OperatorAdmin => {
                matches!(kind, AccountKind::Exchange)
            }
            Role::Regulator => matches!(kind, AccountKind::Authority),
            Role::Reseller => matches!(kind, AccountKind::Reseller),
            Role::MemberAdmin | Role::MemberTech | Role::MemberNoc | Role::MemberBilling => {
                matches!(kind, AccountKind::Member | AccountKind::Reseller)
            }
            Role::ApiClient => !matches!(kind, AccountKind::Authority),
        }
    }

    /// Returns the name in texts: `member_admin`.
    pub const fn name(self) -> &'static str {
        match self {
            Role::MemberAdmin => "member_admin",
            Role::MemberTech => "member_tech",
            Role::MemberNoc => "member_noc",
            Role::MemberBilling => "member_billing",
            Role::Reseller => "reseller",
            Role::OperatorNoc => "operator_noc",
            Role::OperatorProvisioning => "operator_provisioning",
            Role::OperatorAdmin => "operator_admin",
            Role::Regulator => "regulator",
            Role::ApiClient => "api_client",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A user. Passwords and keys are not part of it: the store of credentials keeps them separately.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct User {
    /// The name with which the user signs in, unique in the exchange.
    pub name: String,
    pub account: AccountId,
    pub roles: BTreeSet<Role>,
    /// The mail address.
    #[serde(default)]
    pub email: Option<String>,
    /// The language of pages and mails: `en`, `ja` or `ko`.
    #[serde(default)]
    pub language: Option<String>,
    /// True if the user may not sign in: sessions and API keys of the user permit nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deactivated: bool,
}

/// The person or program that orders or reads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Actor {
    /// The user; `None` for the engine itself and for the command line of the exchange's host.
    pub user: Option<UserId>,
    /// The account for which the actor acts; `None` for the engine itself.
    pub account: Option<AccountId>,
    pub roles: BTreeSet<Role>,
    /// The AS numbers whose holder named this person as an administrator: the sign-in by a provider of OpenID Connect proves
    /// them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub proven_asns: BTreeSet<u32>,
}

impl Actor {
    /// Returns the engine itself. Every operation is permitted to it, and only the engine may give the
    /// `Report…` operations and `Expire`.
    pub fn system() -> Actor {
        Actor {
            user: None,
            account: None,
            roles: BTreeSet::new(),
            proven_asns: BTreeSet::new(),
        }
    }

    /// Returns true for the engine itself.
    pub fn is_system(&self) -> bool {
        self.account.is_none()
    }

    /// Returns true if one of the roles is an operator's.
    pub fn is_operator(&self) -> bool {
        self.roles.iter().any(|role| role.is_operator())
    }
}

/// Returns true if a text has the form of a mail address: a local part and a domain with a dot (RFC 5321, section 4.1.2,
/// without quoted local parts and address literals). Only a message that arrives shows that the address exists.
pub fn is_mail_address(text: &str) -> bool {
    let Some((local, domain)) = text.split_once('@') else {
        return false;
    };
    let is_atom = |text: &str| {
        let is_plain = |char: char| char.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(char);
        !text.is_empty() && text.chars().all(is_plain)
    };
    let is_label = |label: &str| {
        let is_plain = |char: char| char.is_alphanumeric() || char == '-';
        !label.is_empty()
            && label.len() <= 63
            && label.chars().all(is_plain)
            && label.trim_matches('-') == label
    };
    local.len() <= 64
        && text.len() <= 254
        && local.split('.').all(is_atom)
        && domain.contains('.')
        && domain.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mail_address_has_a_local_part_and_a_domain_with_a_dot() {
        for good in [
            "noc@example.net",
            "a.b+c@x-y.example",
            "n@例え.jp",
            "o'hara@example.org",
        ] {
            assert!(is_mail_address(good), "{good}");
        }
        for bad in [
            "not-a-mail",
            "@example.net",
            "noc@",
            "noc@localhost",
            "a@b@example.net",
            "a b@example.net",
            "noc@example..net",
            "noc@-x.net",
            ".a@example.net",
            "noc@example.net\n",
            "",
        ] {
            assert!(!is_mail_address(bad), "{bad}");
        }
    }
}
