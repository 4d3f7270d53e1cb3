//! The verification of changes before their flip, and their effect in words.
//!
//! ```text
//!  dumps, confirmed commits --> mirror of what the switches report ---\
//!                                                                      +--> after the flip? after the removal? --> verdict
//!  a change: flip, removed entries, the exchange after it ------------/
//! ```
//! The verifier runs in a thread of its own, so that no order waits for it. Its requests are in the order of the events.

mod request;
mod verifier;

pub use request::{ChangeToVerify, Deltas, Preview, VerifyRequest};
pub use verifier::Verifier;

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_ix_engine::Event;
use millrace_ix_model::{AccountId, Actor, Exchange, ObjectId, Role, Timestamp};
use millrace_ix_verify::Finding;
use tokio::sync::oneshot;

use crate::core::Core;
use crate::fabric::Fabric;
use crate::output::{FabricRequest, Output};

/// Returns the accounts about which an actor may read the effects of its dry run; `None` for staff, who read all.
pub(crate) fn reader(exchange: &Exchange, actor: &Actor) -> Option<BTreeSet<AccountId>> {
    if actor.is_system() || actor.is_operator() {
        return None;
    }
    let Some(own) = actor.account else {
        return Some(BTreeSet::new());
    };
    Some(if actor.roles.contains(&Role::Reseller) {
        exchange.descendants(own)
    } else {
        BTreeSet::from([own])
    })
}

impl Core {
    /// Asks for the verification of a change.
    pub(crate) fn ask_verification(&mut self, id: u64, flip: Deltas, clean: Deltas) {
        let Some(change) = self.open.get(&id) else {
            return;
        };
        let mut objects: BTreeSet<ObjectId> = change.redo.objects.keys().copied().collect();
        if change.validity.is_some() {
            // Validities begin without a write of an object.
            objects.extend(
                change
                    .concerns
                    .services()
                    .iter()
                    .map(|service| ObjectId::Service(*service)),
            );
        }
        let exchange = Arc::new(self.exchange_in_switches(Some(id)));
        self.outputs
            .push(Output::Verify(VerifyRequest::Change(Box::new(ChangeToVerify {
                change: id,
                exchange,
                at: self.planned_at,
                objects,
                flip,
                clean,
            }))));
    }

    /// Asks for the verification of everything that the switches report.
    pub(crate) fn ask_about_all(&mut self, reply: oneshot::Sender<Vec<Finding>>) {
        let exchange = Arc::new(self.exchange_in_switches(None));
        let all = VerifyRequest::All(exchange, self.planned_at, reply);
        self.outputs.push(Output::Verify(all));
    }

    /// Returns the exchange whose entries the switches use, after the flip of a change if one is given: without the other
    /// changes in progress that have not flipped. Those that are between are about other parts
    /// ([`millrace_ix_engine::Scope`]).
    fn exchange_in_switches(&self, id: Option<u64>) -> Exchange {
        let mut exchange = Exchange::clone(&self.exchange);
        let pending = self.open.iter().rev();
        for (_, other) in pending.filter(|(other, change)| Some(**other) != id && change.is_pending()) {
            exchange.commit(other.undo.clone());
            // The time of the plan is beyond that of a change which has not flipped: what has ended then is still in the
            // switches, and what has begun is not.
            let Some((then, now)) = other.validity else {
                continue;
            };
            let is_between = |moment: Timestamp| then < moment && moment <= now;
            let macs: Vec<_> = exchange.macs.iter().map(|(id, mac)| (*id, mac.clone())).collect();
            for (mac, mut registered) in macs {
                if registered.begin().is_some_and(is_between) {
                    exchange.macs.remove(&mac);
                } else if registered.valid_until.is_some_and(is_between) {
                    registered.valid_until = None;
                    exchange.macs.insert(mac, registered);
                }
            }
            let ips: Vec<_> = exchange.ips.iter().map(|(id, ip)| (*id, ip.clone())).collect();
            for (ip, mut registered) in ips {
                if registered.valid_until.is_some_and(is_between) {
                    registered.valid_until = None;
                    exchange.ips.insert(ip, registered);
                }
            }
        }
        exchange
    }

    /// Tells the verifier what a switch reports or confirms, before the engine handles the event.
    pub(crate) fn mirror(&mut self, event: &Event<Fabric>) {
        if self.engine.settings().verification.is_none() {
            return;
        }
        match event {
            Event::Dumped {
                switch,
                content: Ok(content),
                session,
            } if self.engine.is_session(*switch, *session) => {
                let (switch, content) = (*switch, content.clone());
                self.outputs
                    .push(Output::Verify(VerifyRequest::Reported { switch, content }));
                // The listing may be older than the modifications that were confirmed meanwhile.
                let modifications = self.during_dump.remove(&switch).unwrap_or_default();
                self.outputs.push(Output::Verify(VerifyRequest::Confirmed {
                    switch,
                    modifications,
                }));
            }
            Event::Committed {
                switch,
                session,
                commit,
            } if self.engine.is_session(*switch, *session) => {
                if let Some((number, modifications)) = self.sent.remove(switch)
                    && number == *commit
                {
                    let switch = *switch;
                    if let Some(during) = self.during_dump.get_mut(&switch) {
                        during.extend(modifications.iter().cloned());
                    }
                    self.outputs.push(Output::Verify(VerifyRequest::Confirmed {
                        switch,
                        modifications,
                    }));
                }
            }
            _ => {}
        }
    }

    /// Notes what is asked of a switch, for [`Core::mirror`].
    pub(crate) fn note_request(&mut self, request: &FabricRequest) {
        if self.engine.settings().verification.is_none() {
            return;
        }
        match request {
            FabricRequest::Dump { switch, .. } => drop(self.during_dump.insert(switch.0, Vec::new())),
            FabricRequest::Commit {
                switch,
                commit,
                modifications,
                ..
            } => {
                let after = modifications
                    .iter()
                    .map(|change| (change.key.clone(), change.to.clone()));
                self.sent.insert(switch.0, (*commit, after.collect()));
            }
            FabricRequest::PacketOut { .. } => {}
        }
    }
}
