//! The permission table: operation x role x relation. Nothing else decides.
//!
//! A row lists, for each relation of the actor to the object, the roles that may execute the operation.
//! Foreign objects that an actor may not even read are reported as absent.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::account::{Actor, Role};
use crate::exchange::{Draft, Exchange, ObjectId};
use crate::id::{AccountId, ServiceId};
use crate::operation::OperationKind;
use crate::refusal::{Refusal, RefusalCode};
use crate::service::ServiceKind;

/// The relation of an actor's account to an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// The object belongs to the actor's account.
    Own,
    /// The object belongs to an account below the actor's.
    Child,
    /// The object is a service to which the actor's account is invited or has an end, or an end of the actor's service.
    Counterpart,
    /// Any other object, and objects of the exchange itself.
    Foreign,
}

impl Relation {
    /// All relations.
    pub const ALL: [Relation; 4] = [
        Relation::Own,
        Relation::Child,
        Relation::Counterpart,
        Relation::Foreign,
    ];
}

/// A set of roles.
#[derive(Clone, Copy)]
struct Roles(u16);

impl Roles {
    const NONE: Roles = Roles(0);

    const fn of(roles: &[Role]) -> Roles {
        let mut bits = 0;
        let mut at = 0;
        while at < roles.len() {
            bits |= 1 << roles[at] as u16;
            at += 1;
        }
        Roles(bits)
    }

    const fn and(self, other: Roles) -> Roles {
        Roles(self.0 | other.0)
    }

    const fn contains(self, role: Role) -> bool {
        self.0 & 1 << role as u16 != 0
    }
}

const ADMIN: Roles = Roles::of(&[Role::MemberAdmin]);
/// The roles of a member's people and programs that give orders.
const TECH: Roles = Roles::of(&[Role::MemberAdmin, Role::MemberTech, Role::ApiClient]);
/// The roles of a member that act in an incident.
const NOC: Roles = TECH.and(Roles::of(&[Role::MemberNoc]));
/// All roles of a member.
const MEMBER: Roles = NOC.and(Roles::of(&[Role::MemberBilling]));
const RESELLER: Roles = Roles::of(&[Role::Reseller]);
const OPERATOR_NOC: Roles = Roles::of(&[Role::OperatorNoc, Role::OperatorAdmin]);
const PROVISIONING: Roles = Roles::of(&[Role::OperatorProvisioning, Role::OperatorAdmin]);
const OPERATOR_ADMIN: Roles = Roles::of(&[Role::OperatorAdmin]);
const OPERATORS: Roles = OPERATOR_NOC.and(PROVISIONING);
const REGULATOR: Roles = Roles::of(&[Role::Regulator]);
const EVERYBODY: Roles = MEMBER.and(RESELLER).and(OPERATORS).and(REGULATOR);

/// Returns the roles that may execute an operation on an object with this relation. This function is the
/// permission table.
const fn permitted(kind: OperationKind, relation: Relation) -> Roles {
    use OperationKind as K;
    // Columns: own, child, counterpart, foreign.
    let (own, child, counterpart, foreign) = match kind {
        // The exchange itself: inventory, members, policies.
        K::CreateSite
        | K::CreateSwitch
        | K::SetPorts
        | K::RetireSwitch
        | K::CreateTrunk
        | K::DeleteFabric => (Roles::NONE, Roles::NONE, Roles::NONE, PROVISIONING),
        K::DrainTrunk | K::WaiveQuarantine => (Roles::NONE, Roles::NONE, Roles::NONE, OPERATOR_NOC),
        K::Approve => (Roles::NONE, Roles::NONE, Roles::NONE, OPERATORS),
        K::WritePolicy | K::CreateLan => (Roles::NONE, Roles::NONE, Roles::NONE, OPERATOR_ADMIN),
        K::AddIp | K::RemoveIp => (Roles::NONE, Roles::NONE, Roles::NONE, PROVISIONING),
        // Accounts and users. A reseller creates accounts below its account.
        K::CreateAccount => (Roles::NONE, RESELLER, Roles::NONE, PROVISIONING),
        K::UpdateAccount => (ADMIN, RESELLER, Roles::NONE, PROVISIONING),
        K::DeleteAccount => (Roles::NONE, RESELLER, Roles::NONE, PROVISIONING),
        K::CreateUser | K::UpdateUser | K::DeleteUser => {
            (ADMIN.and(OPERATOR_ADMIN), RESELLER, Roles::NONE, OPERATOR_ADMIN)
        }
        // The exchange patches connections.
        K::CreateConnection | K::SetConnectionPorts | K::DeleteConnection => {
            (Roles::NONE, Roles::NONE, Roles::NONE, PROVISIONING)
        }
        // Services and ends. An end needs a connection of the actor's account, which the operation checks in
        // addition.
        K::CreateService
        | K::RenameService
        | K::DeleteService
        | K::CreateServiceKey
        | K::RevokeServiceKey => (TECH, RESELLER, Roles::NONE, PROVISIONING),
        K::ConfigureEnd => (TECH, RESELLER, TECH, PROVISIONING),
        K::Accept | K::Refuse => (Roles::NONE, Roles::NONE, TECH, PROVISIONING),
        K::RedeemServiceKey => (TECH, RESELLER, TECH, TECH.and(RESELLER).and(PROVISIONING)),
        K::MoveEnd | K::SetRate | K::DeleteEnd | K::AddMac | K::RemoveMac => {
            (TECH, RESELLER, Roles::NONE, PROVISIONING)
        }
        K::ShutDown => (NOC, RESELLER, Roles::NONE, OPERATORS),
        K::Lock => (TECH, RESELLER, Roles::NONE, OPERATORS),
        K::Unlock => (TECH, RESELLER, Roles::NONE, OPERATORS),
        K::WriteFilter => (NOC, RESELLER, Roles::NONE, OPERATOR_NOC),
        // Only the engine.
        K::Report => (Roles::NONE, Roles::NONE, Roles::NONE, Roles::NONE),
        // Reading.
        K::ReadPresence => (EVERYBODY, EVERYBODY, EVERYBODY, EVERYBODY),
        K::ReadAccount => (
            MEMBER.and(RESELLER).and(OPERATORS).and(REGULATOR),
            RESELLER,
            Roles::NONE,
            OPERATORS,
        ),
        K::ReadUsers => (ADMIN.and(OPERATORS), RESELLER, Roles::NONE, OPERATORS),
        K::ReadConnection => (MEMBER.and(RESELLER), RESELLER, Roles::NONE, OPERATORS),
        K::ReadService | K::ReadEnd => (MEMBER.and(RESELLER), RESELLER, MEMBER.and(RESELLER), OPERATORS),
        K::ReadServiceKey => (TECH, RESELLER, Roles::NONE, PROVISIONING),
        K::ReadFilter => (NOC, RESELLER, Roles::NONE, OPERATORS),
        K::ReadTraffic => (MEMBER.and(RESELLER), RESELLER, Roles::NONE, OPERATORS),
        K::ReadSamples => (NOC, Roles::NONE, Roles::NONE, OPERATOR_NOC),
        // A member orders the cable between its port and its cage; the exchange authorises and installs it.
        K::OrderCrossConnect => (TECH, RESELLER, Roles::NONE, PROVISIONING),
        // Announcements of maintenance and incidents.
        K::WriteNotice => (Roles::NONE, Roles::NONE, Roles::NONE, OPERATORS),
        K::ReadContact => (MEMBER.and(RESELLER), RESELLER, Roles::NONE, OPERATORS),
        K::WriteContact => (TECH, RESELLER, Roles::NONE, PROVISIONING),
        K::ReadWebhook | K::WriteWebhook => (TECH, RESELLER, Roles::NONE, OPERATOR_ADMIN),
        K::ReadPolicy | K::ReadStatus => (EVERYBODY, EVERYBODY, EVERYBODY, EVERYBODY),
        K::ReadFabric => (Roles::NONE, Roles::NONE, Roles::NONE, OPERATORS),
        K::ReadChanges => (MEMBER.and(RESELLER), RESELLER, MEMBER.and(RESELLER), OPERATORS),
        K::ReadAudit => (ADMIN, RESELLER, Roles::NONE, OPERATORS.and(REGULATOR)),
    };
    match relation {
        Relation::Own => own,
        Relation::Child => child,
        Relation::Counterpart => counterpart,
        Relation::Foreign => foreign,
    }
}

/// Returns true if a role may execute an operation on an object with this relation. An operator also has the
/// permissions of the column `foreign` for every relation, because the exchange's account is not the parent
/// of members.
pub const fn allows(kind: OperationKind, role: Role, relation: Relation) -> bool {
    let by_relation = permitted(kind, relation).contains(role);
    by_relation || role.is_operator() && permitted(kind, Relation::Foreign).contains(role)
}

/// Returns true if one of the actor's roles may execute an operation on an object with this relation.
pub fn is_permitted(actor: &Actor, kind: OperationKind, relation: Relation) -> bool {
    actor.is_system() || actor.roles.iter().any(|role| allows(kind, *role, relation))
}

/// Returns the row of the permission table that lets an actor read an object.
pub const fn read_kind(object: ObjectId) -> OperationKind {
    use OperationKind as K;
    match object {
        ObjectId::Account(_) => K::ReadAccount,
        ObjectId::User(_) => K::ReadUsers,
        ObjectId::Connection(_) => K::ReadConnection,
        ObjectId::Service(_) => K::ReadService,
        ObjectId::Config(_) | ObjectId::Mac(_) | ObjectId::Ip(_) => K::ReadEnd,
        ObjectId::ServiceKey(_) => K::ReadServiceKey,
        ObjectId::Filter(_) => K::ReadFilter,
        ObjectId::Policy(_) => K::ReadPolicy,
        ObjectId::Site(_) | ObjectId::Switch(_) | ObjectId::Trunk(_) | ObjectId::Approval(_) => K::ReadFabric,
    }
}

impl Draft<'_> {
    /// Returns the account that an object belongs to; `None` for an absent object and for objects of the
    /// exchange itself.
    pub fn owner(&self, object: ObjectId) -> Option<AccountId> {
        match object {
            ObjectId::Account(id) => self.find(id).map(|_| id),
            ObjectId::User(id) => self.find(id).map(|user| user.account),
            ObjectId::Connection(id) => self.find(id).map(|connection| connection.account),
            ObjectId::Service(id) => self.find(id).map(|service| service.account),
            ObjectId::Config(id) => self.find(id).map(|config| config.account),
            ObjectId::Mac(id) => self.owner(self.find(id)?.config.into()),
            ObjectId::Ip(id) => self.owner(self.find(id)?.config.into()),
            ObjectId::Filter(id) => self.find(id).map(|filter| filter.account),
            ObjectId::ServiceKey(id) => self.owner(self.find(id)?.service.into()),
            ObjectId::Site(_)
            | ObjectId::Switch(_)
            | ObjectId::Trunk(_)
            | ObjectId::Policy(_)
            | ObjectId::Approval(_) => None,
        }
    }

    /// Returns the service that an object is part of.
    fn service_of(&self, object: ObjectId) -> Option<ServiceId> {
        match object {
            ObjectId::Service(id) => Some(id),
            ObjectId::Config(id) => self.find(id).map(|config| config.service),
            _ => None,
        }
    }

    /// Returns true if `account` is `ancestor` or below it.
    pub fn is_below(&self, account: AccountId, ancestor: AccountId) -> bool {
        // Orders create no cycle of parents. `seen` ends the loop even if the data contain a cycle.
        let mut seen = BTreeSet::new();
        let mut at = Some(account);
        while let Some(id) = at {
            if id == ancestor {
                return true;
            }
            if !seen.insert(id) {
                return false;
            }
            at = self.find(id).and_then(|account| account.parent);
        }
        false
    }

    /// Returns the relation of the actor to an account.
    pub fn relation_to_account(&self, actor: &Actor, account: AccountId) -> Relation {
        match actor.account {
            Some(own) if own == account => Relation::Own,
            Some(own) if self.is_below(account, own) => Relation::Child,
            _ => Relation::Foreign,
        }
    }

    /// Returns the relation of the actor to an object.
    pub fn relation(&self, actor: &Actor, object: ObjectId) -> Relation {
        let to_owner = match self.owner(object) {
            Some(owner) => self.relation_to_account(actor, owner),
            None => Relation::Foreign,
        };
        if to_owner != Relation::Foreign {
            return to_owner;
        }
        match (actor.account, self.service_of(object)) {
            (Some(account), Some(service)) if self.takes_part(account, service, object) => {
                Relation::Counterpart
            }
            _ => Relation::Foreign,
        }
    }

    /// Returns true if the account owns the service, is invited to it or has an end of it. Peering LANs are open to all
    /// accounts; their members do not see each other's ends.
    fn takes_part(&self, account: AccountId, service: ServiceId, object: ObjectId) -> bool {
        let Some(found) = self.find(service) else {
            return false;
        };
        if found.account == account || found.peer == Some(account) {
            return true;
        }
        if found.kind == ServiceKind::ExchangeLan {
            return object == ObjectId::Service(service);
        }
        self.ends_of(service).any(|(_, config)| config.account == account)
    }

    /// Returns true if the actor may execute an operation on an object that exists: by the permission table, or because who may
    /// delete a multipoint service may delete each end of it, whoever has joined with it.
    pub fn permits(&self, actor: &Actor, kind: OperationKind, object: ObjectId) -> bool {
        if is_permitted(actor, kind, self.relation(actor, object)) {
            return true;
        }
        let ObjectId::Config(end) = object else {
            return false;
        };
        let service = self.find(end).map(|config| config.service);
        let Some(found) = service.and_then(|service| self.find(service)) else {
            return false;
        };
        let relation = self.relation_to_account(actor, found.account);
        kind == OperationKind::DeleteEnd
            && matches!(found.kind, ServiceKind::P2mpVc | ServiceKind::Mp2mpVc)
            && is_permitted(actor, OperationKind::DeleteService, relation)
    }

    /// Checks that the actor may execute an operation on an object.
    ///
    /// # Errors
    /// A [`Refusal`]: `not_found` if the object is absent or the actor must not know of it, else `forbidden`.
    pub fn check(&self, actor: &Actor, kind: OperationKind, object: ObjectId) -> Result<(), Refusal> {
        let exists = match object {
            ObjectId::Site(id) => self.find(id).is_some(),
            ObjectId::Switch(id) => self.find(id).is_some(),
            ObjectId::Trunk(id) => self.find(id).is_some(),
            ObjectId::Policy(id) => self.find(id).is_some(),
            ObjectId::Approval(id) => self.find(id).is_some(),
            _ => self.owner(object).is_some(),
        };
        let relation = self.relation(actor, object);
        if exists && self.permits(actor, kind, object) {
            return Ok(());
        }
        if !exists || !is_permitted(actor, read_kind(object), relation) {
            return Err(Refusal::not_found(object));
        }
        let reason = crate::reason::forbidden_object(object);
        Err(Refusal::new(RefusalCode::Forbidden, reason).object(object))
    }

    /// Checks that the actor may execute an operation for an account.
    ///
    /// # Errors
    /// As [`Draft::check`].
    pub fn check_account(
        &self,
        actor: &Actor,
        kind: OperationKind,
        account: AccountId,
    ) -> Result<(), Refusal> {
        self.check(actor, kind, account.into())
    }
}

impl Exchange {
    /// Returns true if the actor may read an object.
    pub fn may_read(&self, actor: &Actor, object: ObjectId) -> bool {
        Draft::new(self).check(actor, read_kind(object), object).is_ok()
    }

    /// Returns the relation of the actor to an object.
    pub fn relation(&self, actor: &Actor, object: ObjectId) -> Relation {
        Draft::new(self).relation(actor, object)
    }

    /// Returns true if the actor may execute an operation on an object that exists.
    pub fn permits(&self, actor: &Actor, kind: OperationKind, object: ObjectId) -> bool {
        Draft::new(self).permits(actor, kind, object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OperationKind as K;

    /// Returns the permission from a second copy of the table, written down role by role instead of row by row.
    fn expected(kind: K, role: Role, relation: Relation) -> bool {
        let reads_all = [K::ReadPresence, K::ReadPolicy, K::ReadStatus].contains(&kind);
        let own_reads = [
            K::ReadAccount,
            K::ReadConnection,
            K::ReadService,
            K::ReadEnd,
            K::ReadTraffic,
            K::ReadChanges,
            K::ReadContact,
        ];
        let shared_reads = [K::ReadService, K::ReadEnd, K::ReadChanges];
        let orders = [
            K::CreateService,
            K::RenameService,
            K::DeleteService,
            K::CreateServiceKey,
            K::RevokeServiceKey,
            K::ConfigureEnd,
            K::RedeemServiceKey,
            K::MoveEnd,
            K::SetRate,
            K::DeleteEnd,
            K::AddMac,
            K::RemoveMac,
            K::ShutDown,
            K::Lock,
            K::Unlock,
            K::WriteFilter,
            K::ReadServiceKey,
            K::ReadFilter,
            K::WriteContact,
            K::OrderCrossConnect,
            K::ReadWebhook,
            K::WriteWebhook,
        ];
        let people = [K::CreateUser, K::UpdateUser, K::DeleteUser];
        let member_reads = match relation {
            Relation::Own => own_reads.contains(&kind),
            Relation::Counterpart => shared_reads.contains(&kind),
            Relation::Child | Relation::Foreign => false,
        };
        let tech = match relation {
            Relation::Own => orders.contains(&kind) || kind == K::ReadSamples,
            Relation::Counterpart => {
                [K::ConfigureEnd, K::Accept, K::Refuse, K::RedeemServiceKey].contains(&kind)
            }
            Relation::Foreign => kind == K::RedeemServiceKey,
            Relation::Child => false,
        };
        let own = relation == Relation::Own;
        reads_all
            || match role {
                Role::MemberAdmin => {
                    let admin = [K::UpdateAccount, K::ReadUsers, K::ReadAudit];
                    member_reads || tech || own && (people.contains(&kind) || admin.contains(&kind))
                }
                Role::MemberTech | Role::ApiClient => member_reads || tech,
                Role::MemberNoc => {
                    let acts = [K::ShutDown, K::WriteFilter, K::ReadFilter, K::ReadSamples];
                    member_reads || own && acts.contains(&kind)
                }
                Role::MemberBilling => member_reads,
                Role::Reseller => {
                    let accounts = [
                        K::CreateAccount,
                        K::UpdateAccount,
                        K::DeleteAccount,
                        K::ReadUsers,
                        K::ReadAudit,
                    ];
                    let child = orders.contains(&kind)
                        || people.contains(&kind)
                        || accounts.contains(&kind)
                        || own_reads.contains(&kind);
                    member_reads
                        || relation == Relation::Child && child
                        || relation == Relation::Foreign && kind == K::RedeemServiceKey
                }
                Role::Regulator => {
                    own && kind == K::ReadAccount || relation == Relation::Foreign && kind == K::ReadAudit
                }
                Role::OperatorNoc => {
                    let acts = [
                        K::DrainTrunk,
                        K::WaiveQuarantine,
                        K::Approve,
                        K::ShutDown,
                        K::Lock,
                        K::Unlock,
                        K::WriteFilter,
                        K::WriteNotice,
                    ];
                    let hidden = [K::ReadServiceKey, K::ReadWebhook];
                    acts.contains(&kind) || kind.is_read() && !hidden.contains(&kind)
                }
                Role::OperatorProvisioning => {
                    let not_theirs = [
                        K::DrainTrunk,
                        K::WaiveQuarantine,
                        K::WritePolicy,
                        K::CreateLan,
                        K::CreateUser,
                        K::UpdateUser,
                        K::DeleteUser,
                        K::WriteFilter,
                        K::Report,
                        K::ReadSamples,
                        K::ReadWebhook,
                        K::WriteWebhook,
                    ];
                    !not_theirs.contains(&kind)
                }
                Role::OperatorAdmin => kind != K::Report,
            }
    }

    #[test]
    fn the_whole_table_is_as_each_role_is_described() {
        let mut seen = BTreeSet::new();
        for kind in K::ALL {
            assert!(seen.insert(kind), "{kind:?} is twice in the list");
            for role in Role::ALL {
                for relation in Relation::ALL {
                    assert_eq!(
                        allows(kind, role, relation),
                        expected(kind, role, relation),
                        "{kind:?} {role:?} {relation:?}"
                    );
                }
            }
        }
        assert_eq!(seen.len(), K::ALL.len());
        assert_eq!(
            K::ReadStatus as usize + 1,
            K::ALL.len(),
            "a kind is missing in the list"
        );
    }

    #[test]
    fn nobody_but_operators_writes_to_foreign_objects() {
        for kind in K::ALL
            .into_iter()
            .filter(|kind| !kind.is_read() && *kind != K::RedeemServiceKey)
        {
            for role in Role::ALL.into_iter().filter(|role| !role.is_operator()) {
                assert!(!allows(kind, role, Relation::Foreign), "{kind:?} {role:?}");
            }
        }
    }
}
