//! Orders of accounts and users.

use std::collections::BTreeSet;

use super::{Order, Outcome};
use crate::account::{Account, AccountKind, Limits, Role, User, is_mail_address};
use crate::id::{AccountId, UserId};
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
                self.check_appearance::<AccountId>(None, &name, |account| &account.name)?;
                self.check_external_ref::<AccountId>(external_ref.as_deref(), |account| {
                    account
                        .external_ref
                        .as_deref()
                        .filter(|_| account.parent == parent)
                })?;
                self.check_asns(None, &BTreeSet::new(), &asns)?;
                let account = self.draft.create::<AccountId>(Account {
                    name,
                    kind,
                    parent,
                    asns,
                    discoverable,
                    as_set: None,
                    external_ref,
                    limits: Limits::default(),
                });
                match as_set {
                    Some(as_set) => self.set_as_set(account, as_set),
                    None => Ok(()),
                }
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
                if let Some(name) = name.filter(|name| *name != account.name) {
                    // Others know an account by its name: in invitations, and on the member list.
                    if !self.is_staff() && self.actor.account == Some(id) {
                        let reason = reason::name_by_staff(id);
                        return Err(Refusal::new(RefusalCode::Forbidden, reason).field("name"));
                    }
                    self.check_name(Some(id), &name, |account: &Account| &account.name, |_| true)?;
                    self.check_appearance(Some(id), &name, |account: &Account| &account.name)?;
                    account.name = name;
                }
                let before = account.asns.clone();
                if let Some(asns) = asns {
                    self.check_asns(Some(id), &account.asns, &asns)?;
                    account.asns = asns;
                }
                account.discoverable = discoverable.unwrap_or(account.discoverable);
                if let Some(limits) = limits {
                    if !self.is_staff() {
                        return Err(
                            Refusal::new(RefusalCode::Forbidden, reason::staff_only()).field("limits")
                        );
                    }
                    account.limits = limits;
                }
                let given_up: BTreeSet<u32> = before.difference(&account.asns).copied().collect();
                self.draft.put(id, account);
                self.give_up(&given_up);
                match as_set {
                    Some(as_set) => self.set_as_set(id, as_set),
                    None => Ok(()),
                }
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
                self.check_appearance::<UserId>(None, &name, |user| &user.name)?;
                self.check_roles(account, &roles)?;
                check_mail(email.as_deref())?;
                self.draft.create::<UserId>(User {
                    name,
                    account,
                    roles,
                    email,
                    language,
                    deactivated: false,
                });
                Ok(())
            }
            Operation::UpdateUser {
                user: id,
                roles,
                email,
                language,
                deactivated,
            } => {
                self.draft.check(self.actor, operation_kind, id.into())?;
                let mut user = self.object(id)?;
                check_mail(email.as_deref())?;
                // An account keeps at least the person who gives the order.
                if deactivated == Some(true) && self.actor.user == Some(id) {
                    return Err(Refusal::invalid("deactivated", reason::not_oneself()));
                }
                if let Some(roles) = roles {
                    self.check_roles(user.account, &roles)?;
                    user.roles = roles;
                }
                user.email = email.or(user.email);
                user.language = language.or(user.language);
                user.deactivated = deactivated.unwrap_or(user.deactivated);
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
}

/// Refuses a text that is no mail address.
fn check_mail(address: Option<&str>) -> Outcome {
    match address.filter(|address| !is_mail_address(address)) {
        None => Ok(()),
        Some(address) => {
            let shown: String = address.escape_debug().take(80).collect();
            Err(Refusal::invalid("email", reason::mail_invalid(shown)))
        }
    }
}
