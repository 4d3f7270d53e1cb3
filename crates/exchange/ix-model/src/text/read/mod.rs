//! The exchange of a text.

mod services;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use millrace_types::{Dpid, PortNo};

use super::TextError;
use super::form::{ConnectionForm, Form, Name, SwitchForm, TrunkForm};
use crate::account::{Account, User};
use crate::allocate;
use crate::allocate::lowest_free;
use crate::exchange::{Exchange, Key};
use crate::fabric::{PortId, Site, Switch, SwitchPort, TRUNK_MTU_MIN, Trunk};
use crate::id::{AccountId, ConnectionId, ConnectionIndex, GroupNumber, PolicyId, SwitchId, WireId};
use crate::service::{Connection, ConnectionKind, PoolKind, Released};
use crate::time::Timestamp;

/// Reads a text for an exchange: names that `base` has keep their identifiers and numbers, and everything that the text
/// does not name is removed. Service keys and waiting approvals stay, except those of removed services.
///
/// # Errors
/// [`TextError`] with line and key.
pub fn parse(text: &str, base: &Exchange, now: Timestamp) -> Result<Exchange, TextError> {
    let form: Form = toml::from_str(text).map_err(|error| TextError {
        line: error.span().map_or(1, |span| line_of(text, &span)),
        key: "text".to_owned(),
        message: error.message().to_owned(),
    })?;
    let mut reader = Reader {
        text,
        base,
        now,
        new: Exchange {
            pools: base.pools.clone(),
            last_id: base.last_id,
            ..Exchange::default()
        },
        connections: BTreeMap::new(),
        ports: BTreeMap::new(),
    };
    reader.read(form)?;
    reader.give_back();
    Ok(reader.new)
}

fn line_of(text: &str, span: &Range<usize>) -> usize {
    1 + text
        .bytes()
        .take(span.start)
        .filter(|byte| *byte == b'\n')
        .count()
}

struct Reader<'a> {
    text: &'a str,
    base: &'a Exchange,
    now: Timestamp,
    new: Exchange,
    /// Connections by `account/name`.
    connections: BTreeMap<String, ConnectionId>,
    /// The ports in use, with the names of their users.
    ports: BTreeMap<PortId, String>,
}

type Outcome<T = ()> = Result<T, TextError>;

/// Returns the numbers of a pool that an exchange uses.
type Numbers<'a> = &'a dyn Fn(&Exchange) -> Vec<u32>;

impl Reader<'_> {
    fn error<T>(&self, at: &Range<usize>, key: &str, message: impl Into<String>) -> Outcome<T> {
        Err(TextError {
            line: line_of(self.text, at),
            key: key.to_owned(),
            message: message.into(),
        })
    }

    /// Returns the identifier of the object that `is_same` finds in the base and the text has not used, or a new one.
    fn identify<K: Key>(&mut self, is_same: impl Fn(K, &K::Object) -> bool) -> K {
        let used = K::all(&self.new);
        let mut same = K::all(self.base)
            .iter()
            .filter(|(id, object)| !used.contains_key(id) && is_same(**id, object));
        if let Some((id, _)) = same.next() {
            return *id;
        }
        self.new.last_id += 1;
        K::number(self.new.last_id)
    }

    /// Returns the object that a reference names.
    fn named<K: Key>(&self, reference: &Name, key: &str, name_of: impl Fn(&K::Object) -> &str) -> Outcome<K> {
        let found = K::all(&self.new)
            .iter()
            .find(|(_, object)| name_of(object) == reference.get_ref());
        match found {
            Some((id, _)) => Ok(*id),
            None => {
                let message = format!("nothing above is named \"{}\"", reference.get_ref());
                self.error(&reference.span(), key, message)
            }
        }
    }

    fn account(&self, reference: &Name, key: &str) -> Outcome<AccountId> {
        self.named::<AccountId>(reference, key, |account| &account.name)
    }

    fn optional_account(&self, reference: Option<&Name>, key: &str) -> Outcome<Option<AccountId>> {
        reference
            .map(|reference| self.account(reference, key))
            .transpose()
    }

    /// Refuses a name that another object of the type has.
    fn check_new<K: Key>(&self, name: &Name, key: &str, is_same: impl Fn(&K::Object) -> bool) -> Outcome {
        let text = name.get_ref();
        if text.trim() != text || text.is_empty() || text.chars().any(char::is_control) {
            return self.error(&name.span(), key, format!("{text:?} is no name"));
        }
        match K::all(&self.new).values().any(is_same) {
            true => self.error(&name.span(), key, format!("\"{text}\" is named twice")),
            false => Ok(()),
        }
    }

    /// Returns the lowest free number of a pool, where numbers of the base count as taken.
    fn allocate(
        &self,
        at: &Range<usize>,
        kind: PoolKind,
        range: (u32, u32),
        of: impl Fn(&Exchange) -> Vec<u32>,
    ) -> Outcome<u32> {
        let taken = of(self.base).into_iter().chain(of(&self.new));
        let none = BTreeMap::new();
        let released = self.base.pools.get(&kind).map_or(&none, |pool| &pool.released);
        match lowest_free(range, taken, released, self.now) {
            Some(number) => Ok(number),
            None => self.error(at, "number", format!("the pool of {kind:?} has no free number")),
        }
    }

    fn new_group(&self, at: &Range<usize>) -> Outcome<GroupNumber> {
        let number = self.allocate(at, PoolKind::Group, (GroupNumber::MIN, GroupNumber::MAX), groups)?;
        self.in_range(at, GroupNumber::new(number))
    }

    fn new_index(&self, at: &Range<usize>) -> Outcome<ConnectionIndex> {
        let range = (ConnectionIndex::MIN, ConnectionIndex::MAX);
        let number = self.allocate(at, PoolKind::ConnectionIndex, range, indexes)?;
        self.in_range(at, ConnectionIndex::new(number))
    }

    fn in_range<T>(&self, at: &Range<usize>, number: Result<T, crate::id::NumberError>) -> Outcome<T> {
        number.or_else(|error| self.error(at, "number", error.to_string()))
    }

    fn read(&mut self, form: Form) -> Outcome {
        for site in form.sites {
            self.check_new::<crate::id::SiteId>(&site.name, "site.name", |other| {
                other.name == *site.name.get_ref()
            })?;
            let id = self.identify(|_, other: &Site| other.name == *site.name.get_ref());
            self.new.sites.insert(
                id,
                Site {
                    name: site.name.into_inner(),
                },
            );
        }
        form.switches
            .into_iter()
            .try_for_each(|switch| self.switch(&switch))?;
        form.trunks.into_iter().try_for_each(|trunk| self.trunk(trunk))?;
        for policy in form.policies {
            let span = policy.span();
            let policy = policy.into_inner();
            if self.new.policies.values().any(|other| other.name == policy.name) {
                return self.error(
                    &span,
                    "policy.name",
                    format!("\"{}\" is named twice", policy.name),
                );
            }
            let id = self.identify(|_: PolicyId, other| other.name == policy.name);
            self.new.policies.insert(id, policy);
        }
        let mut parents = Vec::new();
        for account in form.accounts {
            self.check_new::<AccountId>(&account.name, "account.name", |other| {
                other.name == *account.name.get_ref()
            })?;
            let id = self.identify(|_, other: &Account| other.name == *account.name.get_ref());
            parents.extend(account.parent.map(|parent| (id, parent)));
            self.new.accounts.insert(
                id,
                Account {
                    name: account.name.into_inner(),
                    kind: account.kind,
                    parent: None,
                    asns: account.asns,
                    discoverable: account.discoverable,
                    as_set: account.as_set,
                    external_ref: account.external_ref,
                },
            );
        }
        for (id, parent) in parents {
            let found = self.account(&parent, "account.parent")?;
            if self.new.descendants(id).contains(&found) {
                return self.error(
                    &parent.span(),
                    "account.parent",
                    "the accounts are each other's parents",
                );
            }
            if let Some(account) = self.new.accounts.get_mut(&id) {
                account.parent = Some(found);
            }
        }
        for user in form.users {
            self.check_new::<crate::id::UserId>(&user.name, "user.name", |other| {
                other.name == *user.name.get_ref()
            })?;
            let account = self.account(&user.account, "user.account")?;
            let id = self.identify(|_, other: &User| other.name == *user.name.get_ref());
            self.new.users.insert(
                id,
                User {
                    name: user.name.into_inner(),
                    account,
                    roles: user.roles,
                    email: user.email,
                    language: user.language,
                },
            );
        }
        form.connections
            .into_iter()
            .try_for_each(|connection| self.connection(connection))?;
        form.services
            .into_iter()
            .try_for_each(|service| self.service(service))?;
        form.filters
            .into_iter()
            .try_for_each(|filter| self.filter(filter))?;
        let services = &self.new.services;
        let keys = self
            .base
            .service_keys
            .iter()
            .filter(|(_, key)| services.contains_key(&key.service));
        self.new.service_keys = keys.map(|(id, key)| (*id, key.clone())).collect();
        self.new.approvals = self.base.approvals.clone();
        Ok(())
    }

    fn switch(&mut self, form: &SwitchForm) -> Outcome {
        let name = form.name.get_ref().clone();
        self.check_new::<SwitchId>(&form.name, "switch.name", |other| other.name == name)?;
        let site = self.named::<crate::id::SiteId>(&form.site, "switch.site", |site| &site.name)?;
        let Ok(dpid) = form.dpid.get_ref().parse::<Dpid>() else {
            return self.error(&form.dpid.span(), "switch.dpid", "expected 1 to 16 hex digits");
        };
        if self.new.switches.values().any(|other| other.dpid == dpid) {
            return self.error(
                &form.dpid.span(),
                "switch.dpid",
                format!("two switches have {dpid}"),
            );
        }
        let mut ports = BTreeMap::new();
        for (range, speed_mbps) in &form.ports {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let ends = first.parse::<u32>().ok().zip(last.parse::<u32>().ok());
            let is_range = |(first, last): &(u32, u32)| {
                first <= last
                    && last - first < 100_000
                    && PortNo::ordinary(*first).and(PortNo::ordinary(*last)).is_ok()
            };
            let Some((first, last)) = ends.filter(is_range) else {
                return self.error(
                    &form.name.span(),
                    "switch.ports",
                    format!("\"{range}\" is no port and no range such as 1-40"),
                );
            };
            for number in first..=last {
                let port = SwitchPort {
                    number: PortNo::from_raw(number),
                    speed_mbps: *speed_mbps,
                };
                if ports.insert(number, port).is_some() {
                    return self.error(
                        &form.name.span(),
                        "switch.ports",
                        format!("port {number} is named twice"),
                    );
                }
            }
        }
        let id = self.identify(|_, other: &Switch| other.name == name);
        let group = match self.base.switches.get(&id) {
            Some(known) => known.group,
            None => self.new_group(&form.name.span())?,
        };
        self.new.switches.insert(
            id,
            Switch {
                name,
                site,
                dpid,
                group,
                ports: ports.into_values().collect(),
            },
        );
        Ok(())
    }

    /// Returns the port that a text names, and notes its user.
    fn port(&mut self, reference: &Name, key: &str, user: &str) -> Outcome<PortId> {
        let text = reference.get_ref();
        let parts = text
            .rsplit_once(':')
            .and_then(|(switch, number)| Some((switch, number.parse::<u32>().ok()?)));
        let found = parts.and_then(|(switch, number)| {
            let (id, found) = self.new.switches.iter().find(|(_, found)| found.name == switch)?;
            let port = found.port(PortNo::from_raw(number))?.number;
            Some(PortId { switch: *id, port })
        });
        let Some(port) = found else {
            let message = format!("no switch above has the port \"{text}\": expected switch:number");
            return self.error(&reference.span(), key, message);
        };
        match self.ports.insert(port, user.to_owned()) {
            Some(other) => self.error(
                &reference.span(),
                key,
                format!("\"{other}\" uses port \"{text}\" already"),
            ),
            None => Ok(port),
        }
    }

    fn trunk(&mut self, form: TrunkForm) -> Outcome {
        let name = form.name.get_ref().clone();
        self.check_new::<crate::id::TrunkId>(&form.name, "trunk.name", |other| other.name == name)?;
        let one = self.port(&form.ends[0], "trunk.ends", &name)?;
        let two = self.port(&form.ends[1], "trunk.ends", &name)?;
        if one.switch == two.switch {
            return self.error(&form.ends[1].span(), "trunk.ends", "both ends are at one switch");
        }
        if form.mtu < TRUNK_MTU_MIN {
            let message = format!("{} is too small: expected at least {TRUNK_MTU_MIN}", form.mtu);
            return self.error(&form.name.span(), "trunk.mtu", message);
        }
        let id = self.identify(|_, other: &Trunk| other.name == name);
        self.new.trunks.insert(
            id,
            Trunk {
                name,
                kind: form.kind,
                ends: [one, two],
                cost: form.cost,
                capacity_mbps: form.capacity_mbps,
                mtu: form.mtu,
                risk_group: form.risk_group,
                drained: form.drained,
            },
        );
        Ok(())
    }

    fn connection(&mut self, form: ConnectionForm) -> Outcome {
        let account = self.account(&form.account, "connection.account")?;
        let name = form.name.get_ref().clone();
        self.check_new::<ConnectionId>(&form.name, "connection.name", |other| {
            other.account == account && other.name == name
        })?;
        let full = format!("{}/{name}", form.account.get_ref());
        let mut ports = Vec::new();
        for port in &form.ports {
            ports.push(self.port(port, "connection.ports", &full)?);
        }
        let is_one_switch = ports.iter().all(|port| port.switch == ports[0].switch);
        let is_lag = form.kind != ConnectionKind::Standalone;
        if ports.is_empty() || !is_one_switch || !is_lag && ports.len() != 1 {
            let message = "expected one port, or for a LAG ports of one switch";
            return self.error(&form.name.span(), "connection.ports", message);
        }
        let locked_by = self.optional_account(form.locked_by.as_ref(), "connection.locked_by")?;
        let id = self.identify(|_, other: &Connection| other.account == account && other.name == name);
        let known = self.base.connections.get(&id);
        let index = match known {
            Some(known) => known.index,
            None => self.new_index(&form.name.span())?,
        };
        let group = match known.and_then(|known| known.group) {
            _ if !is_lag => None,
            Some(group) => Some(group),
            None => Some(self.new_group(&form.name.span())?),
        };
        self.connections.insert(full, id);
        self.new.connections.insert(
            id,
            Connection {
                account,
                name,
                kind: form.kind,
                ports,
                index,
                group,
                external_ref: form.external_ref,
                locked_by,
            },
        );
        Ok(())
    }

    /// Notes the numbers that only the base used: they rest until the switches do not have them.
    fn give_back(&mut self) {
        let wire_ids = |exchange: &Exchange| {
            exchange
                .services
                .values()
                .filter_map(|service| service.wire_id.map(WireId::raw))
                .collect()
        };
        let services = |exchange: &Exchange| {
            exchange
                .services
                .values()
                .map(|service| service.index.raw())
                .collect()
        };
        let meters = |exchange: &Exchange| {
            exchange
                .configs
                .values()
                .map(|config| config.meter.raw())
                .collect()
        };
        let of: [(PoolKind, Numbers<'_>); 5] = [
            (PoolKind::ConnectionIndex, &indexes),
            (PoolKind::ServiceIndex, &services),
            (PoolKind::WireId, &wire_ids),
            (PoolKind::Meter, &meters),
            (PoolKind::Group, &groups),
        ];
        for (kind, numbers) in of {
            let kept: BTreeSet<_> = numbers(&self.new).into_iter().collect();
            for number in numbers(self.base)
                .into_iter()
                .filter(|number| !kept.contains(number))
            {
                self.new
                    .pools
                    .entry(kind)
                    .or_default()
                    .released
                    .insert(number, Released::InSwitches);
            }
            if let Some(pool) = self.new.pools.get_mut(&kind) {
                pool.released
                    .retain(|number, rest| !kept.contains(number) || allocate::rests(*rest, self.now));
            }
        }
        self.new.pools.retain(|_, pool| !pool.released.is_empty());
    }
}

fn groups(exchange: &Exchange) -> Vec<u32> {
    let lags = exchange
        .connections
        .values()
        .filter_map(|connection| connection.group);
    let copies = exchange.configs.values().filter_map(|config| config.group);
    let switches = exchange.switches.values().map(|switch| switch.group);
    lags.chain(copies).chain(switches).map(GroupNumber::raw).collect()
}

fn indexes(exchange: &Exchange) -> Vec<u32> {
    let connections = exchange
        .connections
        .values()
        .map(|connection| connection.index.raw());
    connections
        .chain(exchange.configs.values().map(|config| config.index.raw()))
        .collect()
}
