//! Limits of accounts, so that no member uses up the numbers that all members share.

use std::collections::BTreeSet;

use super::{Order, Outcome};
use crate::account::{AccountKind, Limits};
use crate::id::{AccountId, ConfigId, ServiceId};
use crate::reason::{self, Reason};
use crate::refusal::{Refusal, RefusalCode};

impl Order<'_> {
    /// Refuses another service of an account that has reached its limit of services.
    pub(super) fn check_services_limit(&self, account: AccountId) -> Outcome {
        let services = || self.draft.all::<ServiceId>().map(|(_, service)| service.account);
        self.check_limit(account, |limits| limits.services, services, reason::services_full)
    }

    /// Refuses another service over trunks of an account that has reached its limit of such services.
    pub(super) fn check_carried_limit(&self, account: AccountId) -> Outcome {
        let services = || {
            let services = self.draft.all::<ServiceId>();
            let carried = services.filter(|(_, service)| service.wire_id.is_some());
            carried.map(|(_, service)| service.account)
        };
        self.check_limit(account, |limits| limits.carried, services, reason::carried_full)
    }

    /// Refuses another end of an account that has reached its limit of ends.
    pub(super) fn check_ends_limit(&self, account: AccountId) -> Outcome {
        let ends = || self.draft.all::<ConfigId>().map(|(_, config)| config.account);
        self.check_limit(account, |limits| limits.ends, ends, reason::account_ends_full)
    }

    /// Refuses another object of an account if the account, or an account above it, has reached its limit.
    /// Objects of accounts below an account count towards its limit. The exchange's staff and the engine are
    /// exempt, and so is the exchange's own account.
    fn check_limit<I: Iterator<Item = AccountId>>(
        &self,
        account: AccountId,
        limit: impl Fn(Limits) -> u32,
        owners: impl Fn() -> I,
        full: impl Fn(AccountId, u32) -> Reason,
    ) -> Outcome {
        if self.actor.is_operator() || self.actor.is_system() {
            return Ok(());
        }
        let mut seen = BTreeSet::new();
        let mut at = Some(account);
        while let Some(id) = at.filter(|id| seen.insert(*id)) {
            let Some(found) = self.draft.find(id) else { break };
            let max = limit(found.limits);
            at = found.parent;
            if found.kind == AccountKind::Exchange {
                continue;
            }
            let counted = self.draft.base().descendants(id);
            let count = owners().filter(|owner| counted.contains(owner)).count();
            if count >= max as usize {
                // An account that the actor may not know of is not named.
                let named = if self.knows_account(id) { id } else { account };
                return Err(Refusal::new(RefusalCode::Exhausted, full(named, max)).object(named));
            }
        }
        Ok(())
    }
}
