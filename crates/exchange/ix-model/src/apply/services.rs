//! Orders of services: creation, invitation, locks and service keys.

use core::time::Duration;

use super::{Order, Outcome};
use crate::exchange::ObjectId;
use crate::id::{AccountId, ServiceId, ServiceKeyId};
use crate::operation::Operation;
use crate::reason;
use crate::refusal::{Refusal, RefusalCode};
use crate::service::{Consent, Service, ServiceKey, ServiceKind};
use crate::state::CommercialState;

/// The longest validity of a service key.
pub const KEY_VALIDITY_MAX: Duration = Duration::from_secs(90 * 86_400);
/// The minimum length of a secret in characters: 128 bits in base 64.
const SECRET_LEN_MIN: usize = 22;

impl Order<'_> {
    pub(super) fn services(&mut self, operation: Operation) -> Outcome {
        let operation_kind = operation.kind();
        match operation {
            Operation::CreateService {
                account,
                kind,
                name,
                peer,
                policy,
                networks,
                external_ref,
            } => {
                let account = self.account_or_own(account)?;
                self.draft.check_account(self.actor, operation_kind, account)?;
                let of_account = |service: &Service| service.account == account;
                self.check_name::<ServiceId>(None, &name, |service| &service.name, of_account)?;
                self.check_external_ref::<ServiceId>(external_ref.as_deref(), |service| {
                    service.external_ref.as_deref().filter(|_| of_account(service))
                })?;
                self.check_peer(kind, account, peer)?;
                self.check_services_limit(account)?;
                match (kind, policy) {
                    (ServiceKind::ExchangeLan, Some(policy)) => drop(self.object(policy)?),
                    (ServiceKind::ExchangeLan, None) => {
                        return Err(Refusal::invalid("policy", reason::policy_needed()));
                    }
                    (_, Some(_)) => {
                        return Err(Refusal::invalid("policy", reason::policy_of_lan_only()));
                    }
                    (_, None) if !networks.is_empty() => {
                        return Err(Refusal::invalid("networks", reason::networks_of_lan_only()));
                    }
                    (_, None) => {}
                }
                let index = self.new_service_index()?;
                let consent = match peer {
                    Some(_) => Consent::Pending,
                    None => Consent::NotNeeded,
                };
                self.draft.create::<ServiceId>(Service {
                    kind,
                    account,
                    name,
                    index,
                    generation: 0,
                    wire_id: None,
                    via: Vec::new(),
                    peer,
                    consent,
                    state: CommercialState::Requested,
                    policy,
                    networks,
                    external_ref,
                    locked_by: None,
                });
                Ok(())
            }
            Operation::RenameService { service: id, name } => {
                self.draft.check(self.actor, operation_kind, id.into())?;
                let mut service = self.object(id)?;
                let account = service.account;
                let of_account = |other: &Service| other.account == account;
                self.check_name(Some(id), &name, |other: &Service| &other.name, of_account)?;
                service.name = name;
                self.draft.put(id, service);
                Ok(())
            }
            Operation::Accept { service } => self.answer(service, operation_kind, Consent::Accepted),
            Operation::Refuse { service, reason } => {
                if reason.trim().is_empty() {
                    return Err(Refusal::invalid("reason", reason::refusal_without_reason()));
                }
                self.answer(service, operation_kind, Consent::Refused { reason })
            }
            Operation::Lock { target } => self.lock(target, operation_kind),
            Operation::Unlock { target } => self.unlock(target, operation_kind),
            Operation::CreateServiceKey {
                service: id,
                secret,
                valid_until,
                vlans,
                capacity_mbps,
            } => {
                self.draft.check(self.actor, operation_kind, id.into())?;
                let service = self.object(id)?;
                if service.kind == ServiceKind::ExchangeLan {
                    return Err(Refusal::conflict(reason::key_of_lan()));
                }
                if service.kind == ServiceKind::P2pVc && service.peer.is_some() {
                    return Err(Refusal::conflict(reason::invited_already()).object(id));
                }
                if valid_until <= self.now || valid_until.since(self.now) > KEY_VALIDITY_MAX {
                    return Err(Refusal::invalid("valid_until", reason::key_validity()));
                }
                if secret.len() < SECRET_LEN_MIN || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
                    return Err(Refusal::invalid("secret", reason::key_secret_weak()));
                }
                if self
                    .draft
                    .all::<ServiceKeyId>()
                    .any(|(_, key)| key.secret == secret)
                {
                    return Err(Refusal::conflict(reason::key_secret_taken()).field("secret"));
                }
                if let Some((first, last)) = vlans
                    && (first == 0 || last > 4094 || first > last)
                {
                    return Err(Refusal::invalid("vlans", reason::vlans_wrong(first, last)));
                }
                self.draft.create::<ServiceKeyId>(ServiceKey {
                    service: id,
                    secret,
                    valid_until,
                    vlans,
                    capacity_mbps,
                    redeemed_by: None,
                });
                Ok(())
            }
            Operation::RevokeServiceKey { key } => {
                self.draft.check(self.actor, operation_kind, key.into())?;
                self.draft.delete(key);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Refuses an invited account if the service is not a `p2p_vc`, or if the actor may not know of the
    /// account.
    fn check_peer(&self, kind: ServiceKind, account: AccountId, peer: Option<AccountId>) -> Outcome {
        let Some(peer) = peer else {
            return Ok(());
        };
        if kind != ServiceKind::P2pVc {
            return Err(Refusal::invalid("peer", reason::peer_of_p2p_only()));
        }
        if account == peer {
            return Err(Refusal::invalid("peer", reason::peer_is_own()));
        }
        if self.knows_account(peer) {
            Ok(())
        } else {
            Err(Refusal::not_found(peer).field("peer"))
        }
    }

    /// Records the answer of the invited account.
    fn answer(&mut self, id: ServiceId, kind: crate::operation::OperationKind, answer: Consent) -> Outcome {
        self.draft.check(self.actor, kind, id.into())?;
        let mut service = self.object(id)?;
        let may_answer =
            self.actor.is_system() || self.actor.is_operator() || service.peer == self.actor.account;
        if service.peer.is_none() || !may_answer {
            return Err(Refusal::conflict(reason::not_invited(id)).object(id));
        }
        if service.consent != Consent::Pending {
            return Err(Refusal::conflict(reason::answered_already(id)).object(id));
        }
        let is_refused = matches!(answer, Consent::Refused { .. });
        service.consent = answer;
        self.draft.put(id, service);
        if !is_refused {
            return Ok(());
        }
        // A refused service reserves nothing: its ends give back their VLANs and contracted rates. The service itself stays,
        // so that its account reads the reason.
        let ends: Vec<_> = self.draft.ends_of(id).map(|(end, _)| end).collect();
        for end in ends {
            self.remove_end(end)?;
        }
        self.renew_path(id, true)
    }

    /// Returns the account that locked an object.
    pub(super) fn locked_by(&self, target: ObjectId) -> Option<AccountId> {
        match target {
            ObjectId::Service(id) => self.draft.find(id)?.locked_by,
            ObjectId::Config(id) => self.draft.find(id)?.locked_by,
            ObjectId::Connection(id) => self.draft.find(id)?.locked_by,
            _ => None,
        }
    }

    fn set_lock(&mut self, target: ObjectId, by: Option<AccountId>) -> Outcome {
        match target {
            ObjectId::Service(id) => {
                let mut service = self.object(id)?;
                service.locked_by = by;
                self.draft.put(id, service);
            }
            ObjectId::Config(id) => {
                let mut config = self.object(id)?;
                config.locked_by = by;
                self.draft.put(id, config);
            }
            ObjectId::Connection(id) => {
                let mut connection = self.object(id)?;
                connection.locked_by = by;
                self.draft.put(id, connection);
            }
            _ => {
                return Err(Refusal::invalid("target", reason::not_lockable(target)).object(target));
            }
        }
        Ok(())
    }

    fn lock(&mut self, target: ObjectId, kind: crate::operation::OperationKind) -> Outcome {
        self.draft.check(self.actor, kind, target)?;
        if let Some(by) = self.locked_by(target) {
            return Err(Refusal::new(RefusalCode::Locked, reason::locked_already(target, by)).object(target));
        }
        let owner = self.draft.owner(target);
        self.set_lock(target, self.actor.account.or(owner))
    }

    /// Removes a lock. At this point, a second person has approved the removal of another account's lock.
    fn unlock(&mut self, target: ObjectId, kind: crate::operation::OperationKind) -> Outcome {
        self.draft.check(self.actor, kind, target)?;
        match self.locked_by(target) {
            None => return Err(Refusal::conflict(reason::not_locked(target)).object(target)),
            Some(by) if self.is_foreign_lock(by) && !self.is_approved => {
                return Err(
                    Refusal::new(RefusalCode::Locked, reason::foreign_lock(target, by)).object(target),
                );
            }
            Some(_) => {}
        }
        self.set_lock(target, None)
    }

    /// Returns true if the lock belongs to an account that is neither the actor's nor below it.
    pub(super) fn is_foreign_lock(&self, by: AccountId) -> bool {
        !self.actor.is_system()
            && self.draft.relation_to_account(self.actor, by) == crate::permission::Relation::Foreign
    }
}
