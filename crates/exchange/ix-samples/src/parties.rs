//! The parties of an exchange, as samples name them, and the packets that their filters already treat.

use std::collections::HashMap;

use millrace_ix_model::{AccountId, Exchange, Filter, FilterAction, FilterState, ServiceId, Timestamp};

use crate::{Observation, matches};

/// The packets that the filters of an account drop or limit.
pub(crate) struct Treated(Vec<Filter>);

impl Treated {
    pub(crate) fn of(exchange: &Exchange, account: AccountId, now: Timestamp) -> Treated {
        let treats = |filter: &&Filter| {
            filter.account == account
                && !matches!(filter.action, FilterAction::Count)
                && !matches!(
                    filter.state,
                    FilterState::Expired | FilterState::Refused(_) | FilterState::Suspended(_)
                )
                && filter.valid_until.is_none_or(|until| until > now)
        };
        Treated(exchange.filters.values().filter(treats).cloned().collect())
    }

    /// Returns true if a filter treats the packet, which comes from an account; `None` if that account is not known.
    pub(crate) fn contains(&self, packet: &Observation, from: Option<AccountId>) -> bool {
        self.0.iter().any(|filter| {
            let is_from_peer =
                filter.peers.is_empty() || from.is_some_and(|from| filter.peers.contains(&from));
            is_from_peer && filter.matches().any(|matching| matches(matching, packet))
        })
    }
}

/// The services and the accounts of ends, by their indices in the metadata of packets.
pub(crate) struct Parties {
    pub(crate) services: HashMap<u32, ServiceId>,
    pub(crate) ends: HashMap<(u32, u32), AccountId>,
}

impl Parties {
    pub(crate) fn of(exchange: &Exchange) -> Parties {
        let services = exchange.services.iter();
        let ends = exchange.configs.values().filter_map(|config| {
            let service = exchange.services.get(&config.service)?;
            Some(((service.index.raw(), config.index.raw()), config.account))
        });
        Parties {
            services: services.map(|(id, service)| (service.index.raw(), *id)).collect(),
            ends: ends.collect(),
        }
    }
}
