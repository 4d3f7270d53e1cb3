//! AS numbers and AS-SETs: values by which an account speaks for a network on the Internet. Route servers accept routes, and
//! filters drop traffic, because of them.
//!
//! ```text
//!   number of an account   new: from the staff, or from a person whose sign-in proves it (OpenID Connect)
//!   number of an end       one of its account, or of an account above or below it
//!   AS-SET                 registered by the staff for the account, or named after one of its numbers: AS64500:AS-CUSTOMERS
//! ```

use std::collections::BTreeSet;

use super::{Order, Outcome};
use crate::as_set::AsSet;
use crate::exchange::{Draft, Exchange};
use crate::id::{AccountId, ConfigId};
use crate::reason;
use crate::refusal::{Refusal, RefusalCode};
use crate::service::Config;

impl Order<'_> {
    /// Refuses AS numbers of an account that are reserved or that another account has, and new numbers that the actor has
    /// not proven. `before` are the numbers that the account has.
    pub(super) fn check_asns(
        &self,
        id: Option<AccountId>,
        before: &BTreeSet<u32>,
        asns: &BTreeSet<u32>,
    ) -> Outcome {
        check_not_reserved(asns)?;
        // An unproven number gets the same answer whether another account has it or not.
        let unproven = asns
            .difference(before)
            .find(|asn| !self.is_staff() && !self.actor.proven_asns.contains(*asn));
        if let Some(asn) = unproven {
            return Err(Refusal::new(RefusalCode::Forbidden, reason::asn_unproven(asn)).field("asns"));
        }
        for (other, account) in self.draft.all::<AccountId>() {
            if Some(other) != id
                && let Some(asn) = asns.intersection(&account.asns).next()
            {
                return Err(self.asn_taken(other, *asn));
            }
        }
        Ok(())
    }

    /// Refuses AS numbers of an end that are reserved, and those that neither its account nor an account above or below it
    /// has. Customers of one reseller are unrelated, but each of them may use the numbers of the reseller.
    pub(super) fn check_end_asns(&self, account: AccountId, asns: &BTreeSet<u32>) -> Outcome {
        check_not_reserved(asns)?;
        let own = self.draft.shared_asns(account);
        let Some(foreign) = asns.difference(&own).next() else {
            return Ok(());
        };
        let holder = self
            .draft
            .all::<AccountId>()
            .find(|(other, found)| found.asns.contains(foreign) && self.knows_account(*other));
        match holder {
            Some((other, _)) => Err(self.asn_taken(other, *foreign)),
            // A number that nobody has gets the same answer as one of an account that does not want to be found.
            None => Err(Refusal::conflict(reason::asn_not_of_account(foreign, account)).field("asns")),
        }
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

    /// Takes numbers that an account gave up away from the ends that may no longer use them.
    pub(super) fn give_up(&mut self, asns: &BTreeSet<u32>) {
        if asns.is_empty() {
            return;
        }
        let using: Vec<(ConfigId, Config)> = self
            .draft
            .all::<ConfigId>()
            .filter(|(_, config)| !config.asns.is_disjoint(asns))
            .map(|(id, config)| (id, config.clone()))
            .collect();
        for (id, mut config) in using {
            let own = self.draft.shared_asns(config.account);
            config.asns.retain(|asn| own.contains(asn));
            self.draft.put(id, config);
        }
    }

    /// Sets the AS-SET of an account.
    pub(super) fn set_as_set(&mut self, id: AccountId, text: String) -> Outcome {
        let mut account = self.object(id)?;
        if account.as_set.as_ref() == Some(&text) {
            return Ok(());
        }
        let set: AsSet = text
            .parse()
            .map_err(|_| Refusal::invalid("as_set", reason::as_set_invalid(text.escape_debug())))?;
        if !self.is_staff() && !self.draft.speaks_for(id, &set) {
            let reason = reason::as_set_unproven(&set, id);
            return Err(Refusal::new(RefusalCode::Forbidden, reason).field("as_set"));
        }
        account.as_set = Some(text);
        self.draft.put(id, account);
        Ok(())
    }
}

impl Draft<'_> {
    /// Returns the AS numbers that ends of an account may use: its own, and those of accounts above and below it.
    fn shared_asns(&self, account: AccountId) -> BTreeSet<u32> {
        let is_related = |other| self.is_below(account, other) || self.is_below(other, account);
        self.all::<AccountId>()
            .filter(|(other, found)| !found.asns.is_empty() && is_related(*other))
            .flat_map(|(_, found)| found.asns.iter().copied())
            .collect()
    }

    /// Returns true if an account may speak for an AS-SET: the staff registered it for the account, or its name begins with a
    /// number of the account. Both hold for the accounts above, too.
    fn speaks_for(&self, account: AccountId, set: &AsSet) -> bool {
        let mut above = self
            .all::<AccountId>()
            .filter(|(other, _)| self.is_below(account, *other));
        above.any(|(_, found)| {
            let registered = found
                .as_set
                .as_deref()
                .and_then(|text| text.parse::<AsSet>().ok());
            registered.as_ref() == Some(set) || set.owner().is_some_and(|asn| found.asns.contains(&asn))
        })
    }
}

impl Exchange {
    /// Returns the AS numbers of an end: those of the order, or all of its account if the order named none.
    pub fn asns_of(&self, end: &Config) -> BTreeSet<u32> {
        if !end.asns.is_empty() {
            return end.asns.clone();
        }
        let account = self.accounts.get(&end.account);
        account.map(|account| account.asns.clone()).unwrap_or_default()
    }

    /// Checks an AS-SET that an account names for its routes, and returns it.
    ///
    /// # Errors
    /// [`Refusal`] if the text is no AS-SET, or the account does not speak for it: neither has the staff registered it for
    /// the account or one above it, nor does its name begin with one of their AS numbers.
    pub fn as_set_of(&self, account: AccountId, text: &str) -> Result<AsSet, Refusal> {
        let set: AsSet = text
            .parse()
            .map_err(|_| Refusal::invalid("as_set", reason::as_set_invalid(text.escape_debug())))?;
        if Draft::new(self).speaks_for(account, &set) {
            return Ok(set);
        }
        let reason = reason::as_set_unproven(&set, account);
        Err(Refusal::new(RefusalCode::Forbidden, reason).field("as_set"))
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
