//! The readers of effects. Staff read names and headers as they are. A member reads about frames that it sends or gets, and
//! nothing that the exchange shows only to another member: of another's end its account and its site, no addresses, no filters.

use std::collections::BTreeSet;

use millrace_flow::Field;
use millrace_ix_model::{AccountId, ConfigId, Exchange, ServiceId};

use crate::check::Checker;
use crate::register::filter_of;
use crate::space::{Cube, Var};
use crate::trace::{Outcome, Way, Why};

/// The reader of the effects of a change.
#[derive(Clone, Copy, Debug)]
pub enum Reader<'a> {
    /// The exchange's staff.
    Staff,
    Member {
        /// The member's account, and those that it may give orders for.
        accounts: &'a BTreeSet<AccountId>,
        /// The exchange before and after the change.
        exchanges: [&'a Exchange; 2],
    },
}

/// The outcome of a way, as a reader is told it.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) words: String,
    /// True if the reader gets the frames, or drops them by a filter.
    pub(crate) is_receiver: bool,
}

impl Reader<'_> {
    /// Returns the owner of an end.
    fn account_of(&self, end: ConfigId) -> Option<AccountId> {
        match self {
            Reader::Staff => None,
            Reader::Member { exchanges, .. } => {
                let found = exchanges.iter().find_map(|exchange| exchange.configs.get(&end));
                found.map(|config| config.account)
            }
        }
    }

    /// Returns true if the reader may read everything about an account.
    fn is_own(&self, account: Option<AccountId>) -> bool {
        match self {
            Reader::Staff => true,
            Reader::Member { accounts, .. } => account.is_some_and(|account| accounts.contains(&account)),
        }
    }

    /// Returns true if an end is the reader's.
    pub(crate) fn owns_end(&self, end: ConfigId) -> bool {
        self.is_own(self.account_of(end))
    }

    /// Returns true if the reader has ordered a service.
    pub(crate) fn owns_service(&self, service: ServiceId) -> bool {
        match self {
            Reader::Staff => true,
            Reader::Member { exchanges, .. } => {
                let found = exchanges
                    .iter()
                    .find_map(|exchange| exchange.services.get(&service));
                self.is_own(found.map(|service| service.account))
            }
        }
    }

    /// Returns an end in words; `name` is its name for its owner.
    pub(crate) fn end(&self, id: ConfigId, name: &str, service: &str) -> String {
        match self {
            Reader::Member { exchanges, .. } if !self.owns_end(id) => {
                let [mut account, mut site] = ["another network", "another site"];
                for exchange in exchanges {
                    let Some(config) = exchange.configs.get(&id) else {
                        continue;
                    };
                    if let Some(found) = exchange.accounts.get(&config.account) {
                        account = &found.name;
                    }
                    let connection = exchange.connections.get(&config.connection);
                    let port = connection.and_then(|connection| connection.ports.first());
                    let switch = port.and_then(|port| exchange.switches.get(&port.switch));
                    if let Some(found) = switch.and_then(|switch| exchange.sites.get(&switch.site)) {
                        site = &found.name;
                    }
                    break;
                }
                format!("the end of {account} at {site} of \"{service}\"")
            }
            _ => format!("{name} of \"{service}\""),
        }
    }

    /// Returns the outcome of a way.
    pub(crate) fn outcome(&self, checker: &Checker<'_>, way: &Way) -> Told {
        let Reader::Member { exchanges, .. } = self else {
            return Told {
                words: checker.outcome(way),
                is_receiver: true,
            };
        };
        match way.outcome {
            Outcome::Delivered { switch, port } => match checker.left(switch, port, &way.frames.tags) {
                Some(left) => {
                    let service = checker.register.services.get(&left.end.service);
                    let name = service.map_or("", |service| &service.name);
                    Told {
                        words: format!("leave at {}", self.end(left.id, &left.end.name, name)),
                        is_receiver: self.owns_end(left.id),
                    }
                }
                None => Told {
                    words: "leave at a port without such an end".to_owned(),
                    is_receiver: false,
                },
            },
            Outcome::Dropped { why, .. } => {
                let filter = match why {
                    Why::Entry { cookie, .. } => filter_of(cookie),
                    _ => None,
                };
                let filter = filter
                    .and_then(|id| exchanges.iter().find_map(|exchange| exchange.filters.get(&id)))
                    .filter(|filter| self.is_own(Some(filter.account)));
                Told {
                    words: filter.map_or_else(
                        || "are dropped".to_owned(),
                        |filter| format!("are dropped by the filter for {}", filter.matching.destination),
                    ),
                    is_receiver: filter.is_some(),
                }
            }
            Outcome::Unreported { .. } => Told {
                words: "reach a switch that has not reported its entries".to_owned(),
                is_receiver: false,
            },
            Outcome::Controller { .. } | Outcome::Loop { .. } | Outcome::Unknown { .. } => Told {
                words: "do not leave".to_owned(),
                is_receiver: false,
            },
        }
    }

    /// Returns the headers of frames that a reader is told. Another member's filters split frames by addresses and ports, and
    /// its register has MAC and IP addresses.
    pub(crate) fn headers(&self, cube: &Cube, sends: bool, receives: bool) -> Cube {
        match self {
            Reader::Staff => cube.clone(),
            Reader::Member { .. } => cube.without_fields(|var| match (var, receives) {
                (Var::Field(Field::EthType), _) => false,
                (Var::Field(Field::EthSrc | Field::ArpSpa | Field::ArpTpa | Field::Ipv6NdTarget), true) => {
                    !sends
                }
                (_, receives) => !receives,
            }),
        }
    }
}
