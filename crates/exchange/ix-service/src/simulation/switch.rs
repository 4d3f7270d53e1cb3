//! A switch in memory, for simulations of an exchange.

use std::collections::BTreeMap;

use millrace_ix_engine::{Content, Event, Modification, Session};
use millrace_ix_model::SwitchId;

use crate::fabric::{Entry, Fabric, FabricKey};
use crate::output::FabricRequest;

/// A switch of a simulated exchange: it applies commits to a map and counts them.
#[derive(Debug, Default)]
pub struct ModelSwitch {
    pub content: Content<Fabric>,
    /// The number of times that each entry was written.
    pub writes: BTreeMap<FabricKey, u32>,
    pub session: Option<Session>,
    pub commits: u32,
    /// True if the switch refuses commits that add flow entries.
    pub is_full: bool,
    /// The error with which the switch refuses commits that remove entries.
    pub refuses_removals: Option<&'static str>,
    /// True if the switch answers nothing.
    pub is_deaf: bool,
}

impl ModelSwitch {
    /// Executes a commit.
    ///
    /// # Errors
    /// The error of the switch in words; nothing of the commit is executed then.
    pub fn apply(&mut self, modifications: Vec<Modification<FabricKey, Entry>>) -> Result<(), String> {
        let adds = |change: &Modification<FabricKey, Entry>| {
            change.from.is_none() && matches!(change.key, FabricKey::Flow(_))
        };
        if self.is_full && modifications.iter().any(adds) {
            return Err("OFPFMFC_TABLE_FULL".to_owned());
        }
        if let Some(error) = self.refuses_removals
            && modifications.iter().any(|change| change.to.is_none())
        {
            return Err(error.to_owned());
        }
        self.commits += 1;
        for Modification { key, to, .. } in modifications {
            *self.writes.entry(key.clone()).or_default() += 1;
            match to {
                Some(entry) => self.content.insert(key, entry),
                None => self.content.remove(&key),
            };
        }
        Ok(())
    }

    /// Executes a request, and returns its answer; `None` for a frame.
    pub fn answer(&mut self, request: FabricRequest) -> Option<Event<Fabric>> {
        match request {
            FabricRequest::Dump { switch, session } => Some(Event::Dumped {
                switch: switch.0,
                session,
                content: Ok(self.content.clone()),
            }),
            FabricRequest::Commit {
                switch: SwitchId(switch),
                session,
                commit,
                modifications,
            } => Some(match self.apply(modifications) {
                Ok(()) => Event::Committed {
                    switch,
                    session,
                    commit,
                },
                Err(reason) => Event::Refused {
                    switch,
                    session,
                    commit,
                    reason,
                    partly: false,
                },
            }),
            FabricRequest::PacketOut { .. } => None,
        }
    }
}
