//! Orders of accounts and users.

use std::collections::BTreeSet;

use super::{Order, Outcome};
use crate::account::{Account, AccountKind, Limits, Role, User};
use crate::id::{AccountId, ConfigId, UserId};
use crate::operation::Operation;
use crate::permission::{self, Relation};
use crate::reason;
use crate::refusal::{Refusal, RefusalCode};

impl Order<'_> {
    pub(super) fn people(&mut self, operation: Operation) -> Outcome {
        let operation_kind = operation.kind();
        match operation {
            Operation::CreateAccount {
                name,
                kind,
                parent,
                asns,
                discoverable,
                as_set,
                external_ref,
            } => {
                // A new account is foreign to all accounts except the accounts above it.
                let relation = match (parent, self.actor.account) {
                    (Some(parent), Some(own)) if self.draft.is_below(parent, own) => Relation::Child,
                    _ => Relation::Foreign,
                };
                if !permission::is_permitted(self.actor, operation_kind, relation) {
                    let reason = reason::accounts_by_staff();
                    return Err(Refusal::new(RefusalCode::Forbidden, reason).field("parent"));
                }
                if let Some(parent) = parent {
                    self.object(parent)?;
                }
                if relation == Relation::Child && kind != AccountKind::Member {
                    return Err(Refusal::invalid("kind", reason::reseller_makes_members()));
                }
                self.check_name::<AccountId>(None, &name, |account| &account.name, |_| true)?;
                self.check_external_ref::<AccountId>(external_ref.as_deref(), |account| {
                    account
                        .external_ref
                        .as_deref()
                        .filter(|_| account.parent == parent)
                })?;
                self.check_asns(None, parent, &asns)?;
                self.draft.create::<AccountId>(Account {
                    name,
                    kind,
                    parent,
                    asns,
                    discoverable,
                    as_set,
                    external_ref,
                    limits: Limits::default(),
                });
                Ok(())
            }
            Operation::UpdateAccount {
                account: id,
                name,
                asns,
                discoverable,
                as_set,
                limits,
            } => {
                self.draft.check(self.actor, operation_kind, id.into())?;
                let mut account = self.object(id)?;
                if let Some(name) = name {
                    self.check_name(Some(id), &name, |account: &Account| &account.name, |_| true)?;
                    account.name = name;
                }
                if let Some(asns) = asns {
                    self.check_asns(Some(id), account.parent, &asns)?;
                    account.asns = asns;
                }
                account.discoverable = discoverable.unwrap_or(account.discoverable);
                account.as_set = as_set.or(account.as_set);
                if let Some(limits) = limits {
                    if !self.actor.is_operator() && !self.actor.is_system() {
                        return Err(
                            Refusal::new(RefusalCode::Forbidden, reason::staff_only()).field("limits")
                        );
                    }
                    account.limits = limits;
                }
                self.draft.put(id, account);
                Ok(())
            }
            Operation::CreateUser {
                name,
                account,
                roles,
                email,
                language,
            } => {
                let account = self.account_or_own(account)?;
                self.draft.check_account(self.actor, operation_kind, account)?;
                self.check_name::<UserId>(None, &name, |user| &user.name, |_| true)?;
                self.check_roles(account, &roles)?;
                self.draft.create::<UserId>(User {
                    name,
                    account,
                    roles,
                    email,
                    language,
                });
                Ok(())
            }
            Operation::UpdateUser {
                user: id,
                roles,
                email,
                language,
            } => {
                self.draft.check(self.actor, operation_kind, id.into())?;
                let mut user = self.object(id)?;
                if let Some(roles) = roles {
                    self.check_roles(user.account, &roles)?;
                    user.roles = roles;
                }
                user.email = email.or(user.email);
                user.language = language.or(user.language);
                self.draft.put(id, user);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Refuses roles that users of the account cannot have.
    fn check_roles(&self, account: AccountId, roles: &BTreeSet<Role>) -> Outcome {
        let kind = self.object(account)?.kind;
        if let Some(role) = roles.iter().find(|role| !role.suits(kind)) {
            return Err(Refusal::invalid("roles", reason::role_of_account(account, role)));
        }
        if roles.is_empty() {
            return Err(Refusal::invalid("roles", reason::roles_none()));
        }
        Ok(())
    }

    /// Refuses AS numbers of an account that are reserved, that another account has, or that ends of
    /// unrelated accounts have.
    fn check_asns(&self, id: Option<AccountId>, parent: Option<AccountId>, asns: &BTreeSet<u32>) -> Outcome {
        check_not_reserved(asns)?;
        for (other, account) in self.draft.all::<AccountId>() {
            if Some(other) != id
                && let Some(asn) = asns.intersection(&account.asns).next()
            {
                return Err(self.asn_taken(other, *asn));
            }
        }
        // A reseller's ends may have numbers of its customers, and customers' ends may have numbers of their
        // reseller.
        let is_related = |other: AccountId| {
            Some(other) == id
                || parent.is_some_and(|parent| self.draft.is_below(parent, other))
                || id.is_some_and(|id| self.draft.is_below(other, id))
        };
        for (_, config) in self.draft.all::<ConfigId>() {
            if let Some(asn) = asns.intersection(&config.asns).next()
                && !is_related(config.account)
            {
                return Err(self.asn_taken(config.account, *asn));
            }
        }
        Ok(())
    }

    /// Refuses AS numbers of an end that are reserved, or that an unrelated account or its ends have.
    /// Accounts are related if one is below the other. Customers of one reseller are unrelated, but each of
    /// them may use the numbers of the reseller.
    pub(super) fn check_end_asns(&self, account: AccountId, asns: &BTreeSet<u32>) -> Outcome {
        check_not_reserved(asns)?;
        let mut inherited: BTreeSet<u32> = BTreeSet::new();
        for (other, found) in self.draft.all::<AccountId>() {
            let Some(asn) = asns.intersection(&found.asns).next() else {
                continue;
            };
            if self.draft.is_below(account, other) {
                inherited.extend(&found.asns);
            } else if !self.draft.is_below(other, account) {
                return Err(self.asn_taken(other, *asn));
            }
        }
        for (_, config) in self.draft.all::<ConfigId>() {
            let other = config.account;
            let taken = asns
                .intersection(&config.asns)
                .find(|asn| !inherited.contains(*asn));
            if let Some(asn) = taken
                && !self.draft.is_below(account, other)
                && !self.draft.is_below(other, account)
            {
                return Err(self.asn_taken(other, *asn));
            }
        }
        Ok(())
    }

    /// Returns the refusal of a number that another account has. The refusal names that account only if the
    /// actor may know of it.
    fn asn_taken(&self, holder: AccountId, asn: u32) -> Refusal {
        if self.knows_account(holder) {
            return Refusal::conflict(reason::asn_taken(holder, asn))
                .field("asns")
                .object(holder);
        }
        Refusal::conflict(reason::asn_of_another(asn)).field("asns")
    }
}

/// Refuses AS numbers that are reserved.
fn check_not_reserved(asns: &BTreeSet<u32>) -> Outcome {
    // RFC 7607 reserves AS 0, RFC 6793 reserves AS_TRANS, and RFC 7300 reserves the last 16-bit and 32-bit
    // numbers.
    let reserved = [0, 23_456, 65_535, u32::MAX];
    match reserved.into_iter().find(|asn| asns.contains(asn)) {
        Some(asn) => Err(Refusal::invalid("asns", reason::asn_reserved(asn))),
        None => Ok(()),
    }
}
