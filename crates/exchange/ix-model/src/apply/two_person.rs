//! Deletion, and the orders that need a second person.

use super::{Order, Outcome};
use crate::approval::Approval;
use crate::exchange::{Key, ObjectId};
use crate::id::{ApprovalId, ConfigId, ConnectionId, ServiceId, ServiceKeyId, SwitchId, TrunkId, UserId};
use crate::operation::{Operation, OperationKind};
use crate::reason;
use crate::refusal::{Refusal, RefusalCode};
use crate::service::{PoolKind, ServiceKind};
use crate::state::CommercialState;

impl Order<'_> {
    /// Stores an order that needs a second person, and returns true. Returns false for all other orders.
    pub(super) fn waits_for_second_person(&mut self, operation: &Operation) -> Result<bool, Refusal> {
        if self.is_approved {
            return Ok(false);
        }
        let target = match operation {
            Operation::Delete { target } | Operation::Unlock { target } => *target,
            _ => return Ok(false),
        };
        let needs_second = match (operation, target) {
            (Operation::Delete { .. }, ObjectId::Service(id)) => self
                .draft
                .find(id)
                .is_some_and(|service| service.kind == ServiceKind::ExchangeLan),
            (Operation::Delete { .. }, ObjectId::Trunk(id)) => self.is_trunk_in_use(id),
            (Operation::Unlock { .. }, _) => {
                self.actor.is_operator() && self.locked_by(target).is_some_and(|by| self.is_foreign_lock(by))
            }
            _ => false,
        };
        if !needs_second {
            return Ok(false);
        }
        self.draft.check(self.actor, operation.kind(), target)?;
        self.check_exchange(OperationKind::Approve)?;
        let waiting = self
            .draft
            .all::<ApprovalId>()
            .find(|(_, approval)| *approval.operation == *operation);
        if let Some((id, _)) = waiting {
            return Err(Refusal::conflict(reason::approval_waits(id)).object(id));
        }
        self.draft.create::<ApprovalId>(Approval {
            operation: Box::new(operation.clone()),
            requested_by: self.actor.user,
            requested_at: self.now,
        });
        Ok(true)
    }

    /// Executes a waiting order, if the actor is not the person who requested it.
    pub(super) fn approve(&mut self, id: ApprovalId) -> Outcome {
        self.draft.check(self.actor, OperationKind::Approve, id.into())?;
        let approval = self.object(id)?;
        if approval.requested_by == self.actor.user {
            let reason = reason::approval_by_same_person(id);
            return Err(Refusal::new(RefusalCode::Forbidden, reason).object(id));
        }
        self.draft.delete(id);
        self.is_approved = true;
        self.execute(*approval.operation)
    }

    /// Returns true if the frames of a service cross between the two switches of a trunk.
    fn is_trunk_in_use(&self, id: TrunkId) -> bool {
        let Some(trunk) = self.draft.find(id) else {
            return false;
        };
        let [one, two] = trunk.ends.map(|end| end.switch);
        !self.services_over(one, two).is_empty()
    }

    pub(super) fn delete(&mut self, target: ObjectId, kind: OperationKind) -> Outcome {
        self.draft.check(self.actor, kind, target)?;
        if let Some(by) = self.locked_by(target) {
            return Err(Refusal::new(RefusalCode::Locked, reason::locked(target, by)).object(target));
        }
        match target {
            ObjectId::Service(id) => self.decommission(id),
            ObjectId::Config(id) => {
                let service = self.object(id)?.service;
                self.remove_end(id)?;
                self.renew_path(service, true)
            }
            ObjectId::Connection(id) => {
                self.refuse_users(target, |order| {
                    order.first::<ConfigId>(|config| config.connection == id)
                })?;
                let connection = self.object(id)?;
                self.release(PoolKind::ConnectionIndex, connection.index.raw());
                if let Some(group) = connection.group {
                    self.release(PoolKind::Group, group.raw());
                }
                self.draft.delete(id);
                Ok(())
            }
            ObjectId::Account(id) => {
                self.refuse_users(target, |order| {
                    order.first::<ConnectionId>(|found| found.account == id)
                })?;
                self.refuse_users(target, |order| {
                    order.first::<ServiceId>(|found| found.account == id || found.peer == Some(id))
                })?;
                self.refuse_users(target, |order| order.first::<UserId>(|found| found.account == id))?;
                self.refuse_users(target, |order| {
                    order.first::<crate::id::AccountId>(|found| found.parent == Some(id))
                })?;
                self.refuse_users(target, |order| {
                    order.first::<crate::id::FilterId>(|found| found.account == id)
                })?;
                let asns = self.object(id)?.asns;
                self.draft.delete(id);
                self.give_up(&asns);
                Ok(())
            }
            ObjectId::Site(id) => {
                self.refuse_users(target, |order| {
                    order.first::<SwitchId>(|switch| switch.site == id)
                })?;
                self.draft.delete(id);
                Ok(())
            }
            ObjectId::Switch(id) => {
                let uses = |ports: &[crate::fabric::PortId]| ports.iter().any(|port| port.switch == id);
                self.refuse_users(target, |order| {
                    order.first::<ConnectionId>(|found| uses(&found.ports))
                })?;
                self.refuse_users(target, |order| order.first::<TrunkId>(|found| uses(&found.ends)))?;
                let switch = self.object(id)?;
                self.release(PoolKind::Group, switch.group.raw());
                self.draft.delete(id);
                Ok(())
            }
            ObjectId::Trunk(id) => {
                let trunk = self.object(id)?;
                self.draft.delete(id);
                let [one, two] = trunk.ends.map(|end| end.switch);
                self.reroute(self.down)?;
                for service in self.services_over(one, two) {
                    self.check_reach(service)?;
                    self.check_contracts(service)?;
                }
                Ok(())
            }
            ObjectId::Policy(id) => {
                self.refuse_users(target, |order| {
                    order.first::<ServiceId>(|service| service.policy == Some(id))
                })?;
                self.draft.delete(id);
                Ok(())
            }
            ObjectId::User(id) => {
                self.draft.delete(id);
                Ok(())
            }
            ObjectId::Mac(id) => {
                self.draft.delete(id);
                Ok(())
            }
            ObjectId::Ip(id) => {
                self.draft.delete(id);
                Ok(())
            }
            ObjectId::Filter(id) => {
                self.draft.delete(id);
                Ok(())
            }
            ObjectId::ServiceKey(id) => {
                self.draft.delete(id);
                Ok(())
            }
            ObjectId::Approval(id) => {
                self.draft.delete(id);
                Ok(())
            }
        }
    }

    fn first<K: Key>(&self, uses: impl Fn(&K::Object) -> bool) -> Option<ObjectId> {
        self.draft
            .all::<K>()
            .find(|(_, object)| uses(object))
            .map(|(id, _)| id.into())
    }

    fn refuse_users(&self, target: ObjectId, user: impl FnOnce(&Self) -> Option<ObjectId>) -> Outcome {
        match user(self) {
            None => Ok(()),
            Some(user) => Err(Refusal::conflict(reason::in_use(user, target)).object(user)),
        }
    }

    /// Orders the end of a service. Its objects and numbers stay until no switch has its rules.
    fn decommission(&mut self, id: ServiceId) -> Outcome {
        let mut service = self.object(id)?;
        let locked = self
            .draft
            .ends_of(id)
            .find(|(_, config)| config.locked_by.is_some_and(|by| self.is_foreign_lock(by)));
        if let Some((config, _)) = locked {
            return Err(Refusal::new(RefusalCode::Locked, reason::far_end_locked(config)).object(config));
        }
        service.state = CommercialState::DecommissionRequested;
        self.draft.put(id, service);
        let keys: Vec<_> = self
            .draft
            .all::<ServiceKeyId>()
            .filter(|(_, key)| key.service == id)
            .map(|(key, _)| key)
            .collect();
        keys.into_iter().for_each(|key| self.draft.delete(key));
        Ok(())
    }
}
