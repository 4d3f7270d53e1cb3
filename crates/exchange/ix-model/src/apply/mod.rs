//! Execution of orders. Each other file of this folder holds the orders of one kind of object. This file
//! dispatches orders, and has the shared parts: uniqueness, allocation, and the path of a service over
//! trunks.

mod ends;
mod fabric;
mod filters;
mod lan;
mod limits;
mod numbers;
mod paths;
mod people;
mod reports;
mod services;
mod steps;
#[cfg(test)]
pub(crate) mod tests;
mod two_person;
mod update;

pub use filters::FILTER_VALIDITY_MAX;
pub use services::KEY_VALIDITY_MAX;
pub use steps::{Drafted, Steps};

use std::collections::BTreeSet;

use crate::account::Actor;
use crate::allocate;
use crate::exchange::{Applied, ChangeSet, Draft, Exchange, Key, ObjectId};
use crate::id::{
    AccountId, ConnectionIndex, GroupNumber, MeterNumber, ServiceId, ServiceIndex, SwitchId, TrunkId,
};
use crate::operation::Operation;
use crate::permission::Relation;
use crate::reason;
use crate::refusal::{Refusal, RefusalCode};
use crate::service::{NumberHold, PoolKind};
use crate::time::Timestamp;

/// The maximum length of a name in characters.
const NAME_LEN_MAX: usize = 100;

impl Exchange {
    /// Executes an order completely or not at all.
    ///
    /// # Errors
    /// [`Refusal`] if the actor may not order this, the order is invalid, or a pool has no free number.
    pub fn apply(&mut self, actor: &Actor, now: Timestamp, operation: Operation) -> Result<Applied, Refusal> {
        let changes = self.draft(actor, now, operation)?;
        Ok(self.commit(changes))
    }

    /// Returns the changes that an order would make: a dry run. [`Exchange::commit`] makes them.
    ///
    /// # Errors
    /// As [`Exchange::apply`].
    pub fn draft(&self, actor: &Actor, now: Timestamp, operation: Operation) -> Result<ChangeSet, Refusal> {
        self.draft_with_down(actor, now, operation, &BTreeSet::new())
    }

    /// Returns the changes that an order would make while some trunks are down: circuits get paths over the others.
    ///
    /// # Errors
    /// As [`Exchange::apply`].
    pub fn draft_with_down(
        &self,
        actor: &Actor,
        now: Timestamp,
        operation: Operation,
        down: &BTreeSet<TrunkId>,
    ) -> Result<ChangeSet, Refusal> {
        let mut order = Order {
            draft: Draft::new(self),
            actor,
            now,
            down,
            is_approved: false,
        };
        order.execute(operation)?;
        Ok(order.draft.into_changes())
    }
}

/// An order in progress.
struct Order<'a> {
    draft: Draft<'a>,
    actor: &'a Actor,
    now: Timestamp,
    /// The trunks that are down.
    down: &'a BTreeSet<TrunkId>,
    /// True if a second person has approved the order.
    is_approved: bool,
}

type Outcome = Result<(), Refusal>;

impl Order<'_> {
    fn execute(&mut self, operation: Operation) -> Outcome {
        if self.waits_for_second_person(&operation)? {
            return Ok(());
        }
        match operation {
            Operation::CreateSite { .. }
            | Operation::CreateSwitch { .. }
            | Operation::SetPorts { .. }
            | Operation::RetireSwitch { .. }
            | Operation::CreateTrunk { .. }
            | Operation::DrainTrunk { .. }
            | Operation::CreateConnection { .. }
            | Operation::SetConnectionPorts { .. } => self.fabric(operation),
            Operation::UpdateSwitch { .. }
            | Operation::UpdateTrunk { .. }
            | Operation::SetNetworks { .. } => self.update(operation),
            Operation::CreateAccount { .. }
            | Operation::UpdateAccount { .. }
            | Operation::CreateUser { .. }
            | Operation::UpdateUser { .. } => self.people(operation),
            Operation::CreateService { .. }
            | Operation::RenameService { .. }
            | Operation::Accept { .. }
            | Operation::Refuse { .. }
            | Operation::Lock { .. }
            | Operation::Unlock { .. }
            | Operation::CreateServiceKey { .. }
            | Operation::RevokeServiceKey { .. } => self.services(operation),
            Operation::ConfigureEnd { .. }
            | Operation::RedeemServiceKey { .. }
            | Operation::MoveEnd { .. }
            | Operation::SetRate { .. }
            | Operation::ShutDown { .. }
            | Operation::WaiveQuarantine { .. } => self.ends(operation),
            Operation::AddMac { .. }
            | Operation::SetMacEnd { .. }
            | Operation::RemoveMac { .. }
            | Operation::AddIp { .. }
            | Operation::RemoveIp { .. }
            | Operation::CreatePolicy { .. }
            | Operation::UpdatePolicy { .. } => self.lan(operation),
            Operation::CreateFilter { .. }
            | Operation::UpdateFilter { .. }
            | Operation::DeleteFilter { .. } => self.filters(operation),
            Operation::Delete { target } => self.delete(target, operation.kind()),
            Operation::Approve { approval } => self.approve(approval),
            Operation::ReportInPlace { .. }
            | Operation::ReportRemoved { .. }
            | Operation::ReportQuarantine { .. }
            | Operation::ReportRulesGone { .. }
            | Operation::ReportTrunksDown { .. }
            | Operation::Expire => self.reports(operation),
        }
    }

    /// Returns a copy of an object, or a refusal if it is absent.
    fn object<K: Key>(&self, id: K) -> Result<K::Object, Refusal> {
        self.draft.find(id).cloned().ok_or_else(|| Refusal::not_found(id))
    }

    /// Returns the account that an order names, or the actor's own.
    fn account_or_own(&self, account: Option<AccountId>) -> Result<AccountId, Refusal> {
        account
            .or(self.actor.account)
            .ok_or_else(|| Refusal::invalid("account", reason::account_needed()))
    }

    /// Returns true for the exchange's staff, its command line and the engine.
    fn is_staff(&self) -> bool {
        self.actor.is_system() || self.actor.is_operator()
    }

    /// Returns true if the actor may know of an account. An account that is neither discoverable nor related
    /// to the actor is treated as absent.
    fn knows_account(&self, account: AccountId) -> bool {
        self.draft.find(account).is_some_and(|found| {
            found.discoverable
                || self.is_staff()
                || self.draft.relation_to_account(self.actor, account) != Relation::Foreign
        })
    }

    /// Refuses the name if it is empty, too long or has control characters, or if another object of the same type has it
    /// and `competes`.
    fn check_name<K: Key>(
        &self,
        id: Option<K>,
        name: &str,
        name_of: impl Fn(&K::Object) -> &str,
        competes: impl Fn(&K::Object) -> bool,
    ) -> Outcome {
        let is_text =
            !name.trim().is_empty() && !name.chars().any(|char| char.is_control() || is_invisible(char));
        if !is_text || name.chars().count() > NAME_LEN_MAX || name != name.trim() {
            return Err(Refusal::invalid(
                "name",
                reason::name_invalid(name.escape_debug()),
            ));
        }
        let same = self
            .draft
            .all::<K>()
            .find(|(other, object)| Some(*other) != id && competes(object) && name_of(object) == name);
        match same {
            None => Ok(()),
            Some((other, _)) => {
                let other: ObjectId = other.into();
                let reason = reason::name_taken(other, name);
                Err(Refusal::conflict(reason).field("name").object(other))
            }
        }
    }

    /// Refuses a name that looks like that of another object of the same type: it differs in case only, or in letters of other
    /// scripts that people confuse with its own (UTS 39, section 4).
    fn check_appearance<K: Key>(
        &self,
        id: Option<K>,
        name: &str,
        name_of: impl Fn(&K::Object) -> &str,
    ) -> Outcome {
        let appearance = Appearance::new(name);
        let same = self
            .draft
            .all::<K>()
            .find(|(other, object)| Some(*other) != id && appearance.is_of(name_of(object)));
        match same {
            None => Ok(()),
            Some(_) => Err(Refusal::conflict(reason::name_looks_alike(name)).field("name")),
        }
    }

    /// Refuses a reference that another object of the same type has. The reference is the key with which
    /// clients retry.
    fn check_external_ref<K: Key>(
        &self,
        reference: Option<&str>,
        matches: impl Fn(&K::Object) -> Option<&str>,
    ) -> Outcome {
        let Some(reference) = reference else {
            return Ok(());
        };
        match self
            .draft
            .all::<K>()
            .find(|(_, object)| matches(object) == Some(reference))
        {
            None => Ok(()),
            Some((other, _)) => {
                let other: ObjectId = other.into();
                let reason = reason::external_ref_taken(other, reference);
                Err(Refusal::conflict(reason).field("external_ref").object(other))
            }
        }
    }

    /// Returns the lowest free number of a pool.
    fn allocate(&self, kind: PoolKind, range: (u32, u32)) -> Result<u32, Refusal> {
        let (taken, released) = (self.draft.taken(kind), self.draft.released(kind));
        allocate::lowest_free(range, &taken, &released, self.now).ok_or_else(|| {
            let reason = reason::pool_empty(format_args!("{kind:?}"), range.0, range.1);
            Refusal::new(RefusalCode::Exhausted, reason)
        })
    }

    /// Returns the number of free numbers of a pool.
    fn free_numbers(&self, kind: PoolKind, range: (u32, u32)) -> usize {
        allocate::free(
            range,
            &self.draft.taken(kind),
            &self.draft.released(kind),
            self.now,
        )
    }

    /// Records that a number is no longer used. The number is held until the engine has confirmed that no
    /// switch has it.
    fn release(&mut self, kind: PoolKind, number: u32) {
        self.draft
            .set_released(kind, number, Some(NumberHold::InSwitches));
    }

    fn new_index(&self) -> Result<ConnectionIndex, Refusal> {
        let range = (ConnectionIndex::MIN, ConnectionIndex::MAX);
        let number = self.allocate(PoolKind::ConnectionIndex, range)?;
        ConnectionIndex::new(number).map_err(out_of_range)
    }

    fn new_service_index(&self) -> Result<ServiceIndex, Refusal> {
        let number = self.allocate(PoolKind::ServiceIndex, (ServiceIndex::MIN, ServiceIndex::MAX))?;
        ServiceIndex::new(number).map_err(out_of_range)
    }

    fn new_meter(&self) -> Result<MeterNumber, Refusal> {
        let number = self.allocate(PoolKind::Meter, (MeterNumber::MIN, MeterNumber::MAX))?;
        MeterNumber::new(number).map_err(out_of_range)
    }

    fn new_group(&self) -> Result<GroupNumber, Refusal> {
        let number = self.allocate(PoolKind::Group, (GroupNumber::MIN, GroupNumber::MAX))?;
        GroupNumber::new(number).map_err(out_of_range)
    }

    /// Returns the switches at which a service has ends.
    fn switches_of(&self, service: ServiceId) -> BTreeSet<SwitchId> {
        let ends = self.draft.ends_of(service);
        ends.filter_map(|(_, config)| self.draft.switch_of(config.connection))
            .collect()
    }
}

/// The appearance of a name to people.
struct Appearance<'a> {
    name: &'a str,
    skeleton: String,
}

impl Appearance<'_> {
    fn new(name: &str) -> Appearance<'_> {
        Appearance {
            name,
            skeleton: skeleton_of(name),
        }
    }

    /// Returns true if another name looks like this one.
    fn is_of(&self, other: &str) -> bool {
        // Most names are ASCII. Their letters and digits are told apart by people who read carefully: "AS1" and "ASl" are two
        // names, and an import of thousands of accounts computes no skeletons.
        if self.name.is_ascii() && other.is_ascii() {
            return self.name.eq_ignore_ascii_case(other);
        }
        self.skeleton == skeleton_of(other)
    }
}

/// Returns the skeleton of a name (UTS 39, section 4), without case. Names with the same skeleton look alike.
fn skeleton_of(name: &str) -> String {
    unicode_security::skeleton(&name.to_lowercase()).collect()
}

/// Returns true for characters that show nothing and change how the text around them is read: embeddings, overrides and
/// isolates of Unicode's bidirectional algorithm (UAX 9, section 2), the zero width space, and separators of lines. A name with
/// such a character could look like another name.
const fn is_invisible(char: char) -> bool {
    matches!(char, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Returns a refusal for a number outside the range of its type.
#[allow(clippy::needless_pass_by_value, reason = "an argument of map_err")]
fn out_of_range(error: crate::id::NumberError) -> Refusal {
    Refusal::new(RefusalCode::Exhausted, error.to_string())
}
