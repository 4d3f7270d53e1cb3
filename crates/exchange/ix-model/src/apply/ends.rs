//! Orders of the ends of services.

use std::collections::BTreeSet;

use super::{Order, Outcome};
use crate::id::{AccountId, ConfigId, ConnectionId, ConnectionIndex, ServiceId, ServiceKeyId};
use crate::operation::{Operation, OperationKind};
use crate::permission::{self, Relation};
use crate::reason;
use crate::refusal::{Refusal, RefusalCode};
use crate::service::{Config, Consent, EndRole, PoolKind, Quarantine, Service, ServiceKey, ServiceKind};
use crate::vlan::{VlanConfig, VlanId, VlanRequest};

/// The largest number of ends of a multipoint service with flooding: each end gets a copy of a flooded frame.
const MULTIPOINT_ENDS_MAX: usize = 64;

/// The parts of an end that the order gives.
struct NewEnd {
    service: ServiceId,
    connection: ConnectionId,
    vlan: VlanRequest,
    capacity_mbps: Option<u32>,
    role: EndRole,
    asns: BTreeSet<u32>,
    external_ref: Option<String>,
    /// True if a service key was redeemed: the end may belong to any account.
    by_key: bool,
}

/// Refuses a rate that none of the service keys permits. Without keys every rate is permitted.
fn check_rate(keys: &[ServiceKey], capacity_mbps: Option<u32>) -> Outcome {
    let bounds: Option<Vec<u32>> = keys.iter().map(|key| key.capacity_mbps).collect();
    match bounds.and_then(|bounds| bounds.into_iter().max()) {
        Some(max) if capacity_mbps.is_none_or(|rate| rate > max) => {
            Err(Refusal::invalid("capacity_mbps", reason::key_rate(max)))
        }
        _ => Ok(()),
    }
}

impl Order<'_> {
    pub(super) fn ends(&mut self, operation: Operation) -> Outcome {
        let kind = operation.kind();
        match operation {
            Operation::ConfigureEnd {
                service,
                connection,
                vlan,
                capacity_mbps,
                role,
                asns,
                external_ref,
            } => {
                self.draft.check(self.actor, kind, service.into())?;
                let account = self.object(connection)?.account;
                let keys = self.bounding_keys(service, account);
                check_rate(&keys, capacity_mbps)?;
                let vlan = self.within_keys(connection, None, vlan, &keys)?;
                self.add_end(NewEnd {
                    service,
                    connection,
                    vlan,
                    capacity_mbps,
                    role,
                    asns,
                    external_ref,
                    by_key: false,
                })
            }
            Operation::RedeemServiceKey {
                secret,
                connection,
                vlan,
                capacity_mbps,
                asns,
            } => self.redeem(&secret, connection, vlan, capacity_mbps, asns),
            Operation::MoveEnd {
                config: id,
                connection,
                vlan,
            } => {
                self.draft.check(self.actor, kind, id.into())?;
                self.move_end(id, connection, vlan)
            }
            Operation::SetRate {
                config: id,
                capacity_mbps,
            } => {
                self.draft.check(self.actor, kind, id.into())?;
                let mut config = self.object(id)?;
                check_rate(&self.bounding_keys(config.service, config.account), capacity_mbps)?;
                self.check_capacity(config.connection, Some(id), capacity_mbps)?;
                config.capacity_mbps = capacity_mbps;
                let service = config.service;
                self.draft.put(id, config);
                self.check_contracts(service)
            }
            Operation::ShutDown {
                config: id,
                shut_down,
            } => {
                self.draft.check(self.actor, kind, id.into())?;
                let mut config = self.object(id)?;
                config.shut_down = shut_down;
                self.draft.put(id, config);
                Ok(())
            }
            Operation::WaiveQuarantine { config: id, reason } => {
                self.draft.check(self.actor, kind, id.into())?;
                if reason.trim().is_empty() {
                    return Err(Refusal::invalid("reason", reason::waiver_without_reason()));
                }
                let mut config = self.object(id)?;
                if config.quarantine.is_over() {
                    return Err(Refusal::conflict(reason::not_in_quarantine(id)).object(id));
                }
                config.quarantine = Quarantine::Waived { reason };
                self.draft.put(id, config);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Checks that the actor may put ends on a connection, and returns the connection's account.
    fn check_connection(&self, connection: ConnectionId) -> Result<AccountId, Refusal> {
        let refusal = |refusal: Refusal| refusal.field("connection");
        let checked = self
            .draft
            .check(self.actor, OperationKind::MoveEnd, connection.into());
        checked.map_err(refusal)?;
        Ok(self.object(connection)?.account)
    }

    /// Checks the contracted rate of an end against the speed of its connection and the rates of the other ends there.
    /// `end` is the end itself, if it exists.
    fn check_capacity(
        &self,
        connection: ConnectionId,
        end: Option<ConfigId>,
        capacity_mbps: Option<u32>,
    ) -> Outcome {
        let found = self.object(connection)?;
        let speed = |port: &crate::fabric::PortId| {
            let switch = self.draft.find(port.switch)?;
            switch.port(port.port).map(|port| port.speed_mbps)
        };
        let total: u32 = found.ports.iter().filter_map(speed).sum();
        match capacity_mbps {
            Some(0) => Err(Refusal::invalid("capacity_mbps", reason::rate_min())),
            Some(rate) if rate > total => {
                let reason = reason::rate_of_connection(connection, total, rate);
                Err(Refusal::invalid("capacity_mbps", reason))
            }
            Some(rate) => self.check_contracted(connection, end, total, rate),
            None => Ok(()),
        }
    }

    /// Refuses a rate that makes the contracted rates of a connection exceed the share of its speed that the account's
    /// limits admit. An end without a rate counts nothing. The exchange's staff and the engine are exempt, and a rate may
    /// always be lowered.
    fn check_contracted(
        &self,
        connection: ConnectionId,
        end: Option<ConfigId>,
        total: u32,
        rate: u32,
    ) -> Outcome {
        if self.actor.is_operator() || self.actor.is_system() {
            return Ok(());
        }
        let before = end.and_then(|id| self.draft.base().configs.get(&id));
        let lowers = before.is_some_and(|config| {
            config.connection == connection && config.capacity_mbps.is_some_and(|before| rate <= before)
        });
        if lowers {
            return Ok(());
        }
        let others = self.draft.ends_on(connection).filter(|(id, _)| Some(*id) != end);
        let taken: u64 = others
            .filter_map(|(_, config)| config.capacity_mbps)
            .map(u64::from)
            .sum();
        let account = self.object(connection)?.account;
        let percent = self
            .draft
            .find(account)
            .map_or(100, |account| account.limits.connection_percent);
        let max = u64::from(total) * u64::from(percent) / 100;
        if taken + u64::from(rate) > max {
            let free = max.saturating_sub(taken);
            let reason = reason::connection_full(connection, max, taken, rate, free);
            return Err(Refusal::new(RefusalCode::Exhausted, reason)
                .field("capacity_mbps")
                .object(connection));
        }
        Ok(())
    }

    /// Returns the tags for an end on a connection.
    fn select_vlan(
        &self,
        connection: ConnectionId,
        except: Option<ConfigId>,
        request: VlanRequest,
    ) -> Result<VlanConfig, Refusal> {
        let others: Vec<_> = self
            .draft
            .ends_on(connection)
            .filter(|(id, _)| Some(*id) != except)
            .collect();
        let taken: Vec<_> = others.iter().map(|(_, config)| config.vlan).collect();
        if let Some(vlan) = request.select(&taken) {
            return Ok(vlan);
        }
        let holder = others
            .iter()
            .find(|(_, config)| request.select(&[config.vlan]).is_none())
            .map(|(id, config)| (*id, config.vlan));
        Err(match holder {
            Some((id, vlan)) => {
                let reason = reason::vlan_taken(id, vlan, connection);
                Refusal::conflict(reason).field("vlan").object(id)
            }
            None => {
                let reason = reason::vlans_exhausted(connection);
                Refusal::new(RefusalCode::Exhausted, reason).field("vlan")
            }
        })
    }

    /// Returns the index of an end in the metadata: the index of the connection, unless another end of the
    /// service has it.
    fn end_index(&self, service: ServiceId, connection: ConnectionId) -> Result<ConnectionIndex, Refusal> {
        let index = self.object(connection)?.index;
        let is_taken = self
            .draft
            .ends_of(service)
            .any(|(_, config)| config.index == index);
        if is_taken { self.new_index() } else { Ok(index) }
    }

    fn add_end(&mut self, new: NewEnd) -> Outcome {
        let service = self.object(new.service)?;
        let account = self.check_connection(new.connection)?;
        self.check_place(new.service, &service, account, new.by_key)?;
        self.check_ends_limit(account)?;
        self.check_capacity(new.connection, None, new.capacity_mbps)?;
        self.check_end_asns(account, &new.asns)?;
        self.check_external_ref::<ConfigId>(new.external_ref.as_deref(), |config| {
            config
                .external_ref
                .as_deref()
                .filter(|_| config.account == account)
        })?;
        if new.role == EndRole::Leaf && service.kind != ServiceKind::P2mpVc {
            return Err(Refusal::invalid("role", reason::leaves_of_p2mp_only()));
        }
        let vlan = self.select_vlan(new.connection, None, new.vlan)?;
        let index = self.end_index(new.service, new.connection)?;
        let meter = self.new_meter()?;
        let floods = matches!(service.kind, ServiceKind::P2mpVc | ServiceKind::Mp2mpVc);
        let group = if floods { Some(self.new_group()?) } else { None };
        let quarantine = match service.kind {
            ServiceKind::ExchangeLan => Quarantine::Running {
                clean_since: self.now,
            },
            _ => Quarantine::NotNeeded,
        };
        self.draft.create::<ConfigId>(Config {
            service: new.service,
            connection: new.connection,
            account,
            vlan,
            capacity_mbps: new.capacity_mbps,
            role: new.role,
            index,
            meter,
            group,
            shut_down: false,
            quarantine,
            asns: new.asns,
            external_ref: new.external_ref,
            locked_by: None,
        });
        if service.consent == Consent::Pending && self.is_of_peer(&service, account) {
            let mut service = service;
            service.consent = Consent::Accepted;
            self.draft.put(new.service, service);
        }
        self.renew_path(new.service, true)?;
        self.check_reach(new.service)?;
        self.check_leaves(new.service)?;
        self.check_contracts(new.service)
    }

    /// Returns true if an end of `account` counts as an end of the invited account. This holds for the
    /// invited account itself. It holds for an account below it if the invited account orders, or if the
    /// account is not below the inviting account, too.
    fn is_of_peer(&self, service: &Service, account: AccountId) -> bool {
        service.peer.is_some_and(|peer| {
            let may_speak =
                || self.actor.account == Some(peer) || !self.draft.is_below(account, service.account);
            account == peer || self.draft.is_below(account, peer) && may_speak()
        })
    }

    /// Refuses an end that the service cannot take: the service has ended, is full, or was refused by the
    /// invited account, or the account may not have an end, or another end, in it.
    fn check_place(&self, id: ServiceId, service: &Service, account: AccountId, by_key: bool) -> Outcome {
        if !service.state.is_carried() {
            return Err(Refusal::conflict(reason::service_ends(id)).object(id));
        }
        let ends: Vec<_> = self.draft.ends_of(id).map(|(_, config)| config.account).collect();
        let max = match service.kind {
            ServiceKind::P2pVc => 2,
            ServiceKind::P2mpVc | ServiceKind::Mp2mpVc => MULTIPOINT_ENDS_MAX,
            ServiceKind::ExchangeLan => usize::MAX,
        };
        if ends.len() >= max {
            let reason = reason::ends_full(id, max);
            return Err(Refusal::conflict(reason).field("service").object(id));
        }
        if let Consent::Refused { reason: words } = &service.consent {
            return Err(Refusal::conflict(reason::refused_by_peer(id, words)).object(id));
        }
        if service.kind == ServiceKind::P2pVc
            && let Some(peer) = service.peer
        {
            let is_peers = self.draft.is_below(account, peer);
            let side = |other: &AccountId| self.draft.is_below(*other, peer) == is_peers;
            if !is_peers && !self.draft.is_below(account, service.account) {
                let reason = reason::connection_of_neither(id, service.account, peer);
                return Err(Refusal::conflict(reason).field("connection").object(id));
            }
            if ends.iter().any(side) {
                let reason = reason::end_configured(id);
                return Err(Refusal::conflict(reason).field("service").object(id));
            }
        } else if !by_key
            && service.kind != ServiceKind::ExchangeLan
            && !self.draft.is_below(account, service.account)
        {
            let reason = reason::key_needed(id, service.account);
            return Err(Refusal::conflict(reason).field("connection").object(id));
        }
        Ok(())
    }

    fn redeem(
        &mut self,
        secret: &str,
        connection: ConnectionId,
        vlan: VlanRequest,
        capacity_mbps: Option<u32>,
        asns: BTreeSet<u32>,
    ) -> Outcome {
        // The actor needs no relation to the service: the secret is the permission.
        if !permission::is_permitted(self.actor, OperationKind::RedeemServiceKey, Relation::Foreign) {
            return Err(Refusal::new(RefusalCode::Forbidden, reason::key_forbidden()));
        }
        let unusable = || Refusal::new(RefusalCode::NotFound, reason::key_unknown()).field("secret");
        let found = self
            .draft
            .all::<ServiceKeyId>()
            .find(|(_, key)| key.secret == secret);
        let (id, mut key) = found.map(|(id, key)| (id, key.clone())).ok_or_else(unusable)?;
        if key.redeemed_by.is_some() || key.valid_until <= self.now {
            return Err(unusable());
        }
        check_rate(core::slice::from_ref(&key), capacity_mbps)?;
        let account = self.check_connection(connection)?;
        let mut service = self.object(key.service)?;
        let kind = service.kind;
        if kind == ServiceKind::P2pVc {
            if service.peer.is_some() {
                return Err(unusable());
            }
            service.peer = Some(account).filter(|peer| *peer != service.account);
            service.consent = Consent::Accepted;
            self.draft.put(key.service, service);
        }
        let vlan = self.within_key(connection, None, vlan, key.vlans)?;
        key.redeemed_by = Some(account);
        let role = match kind {
            ServiceKind::P2mpVc => EndRole::Leaf,
            _ => EndRole::Root,
        };
        let service = key.service;
        self.draft.put(id, key);
        self.add_end(NewEnd {
            service,
            connection,
            vlan,
            capacity_mbps,
            role,
            asns,
            external_ref: None,
            by_key: true,
        })
    }

    /// Returns the service keys that limit the ends of an account: the keys of the service that the account
    /// redeemed. Returns no keys if the actor may create service keys for this service.
    fn bounding_keys(&self, service: ServiceId, account: AccountId) -> Vec<ServiceKey> {
        let kind = OperationKind::CreateServiceKey;
        if self.draft.check(self.actor, kind, service.into()).is_ok() {
            return Vec::new();
        }
        let keys = self.draft.all::<ServiceKeyId>().map(|(_, key)| key);
        keys.filter(|key| key.service == service && key.redeemed_by == Some(account))
            .cloned()
            .collect()
    }

    /// Returns the request with tags that one of the service keys permits. Without keys every tag is permitted.
    fn within_keys(
        &self,
        connection: ConnectionId,
        except: Option<ConfigId>,
        request: VlanRequest,
        keys: &[ServiceKey],
    ) -> Result<VlanRequest, Refusal> {
        let mut refused = None;
        for key in keys {
            match self.within_key(connection, except, request, key.vlans) {
                Ok(request) => return Ok(request),
                Err(refusal) => refused = Some(refusal),
            }
        }
        refused.map_or(Ok(request), Err)
    }

    /// Returns the request with tags that a service key permits.
    fn within_key(
        &self,
        connection: ConnectionId,
        except: Option<ConfigId>,
        request: VlanRequest,
        vlans: Option<(u16, u16)>,
    ) -> Result<VlanRequest, Refusal> {
        let Some((first, last)) = vlans else {
            return Ok(request);
        };
        let is_permitted = |config: VlanConfig| {
            config
                .outer()
                .is_some_and(|vid| (first..=last).contains(&vid.raw()))
        };
        // Returns the request with an outer tag, if it has none.
        let with_outer = |vid: VlanId| match request {
            VlanRequest::Dot1q {
                vlan: None,
                ethertype,
            } => Some(VlanRequest::Dot1q {
                vlan: Some(vid),
                ethertype,
            }),
            VlanRequest::Qinq {
                outer: None,
                inner,
                ethertype,
            } => Some(VlanRequest::Qinq {
                outer: Some(vid),
                inner,
                ethertype,
            }),
            _ => None,
        };
        let is_open = matches!(
            request,
            VlanRequest::Dot1q { vlan: None, .. } | VlanRequest::Qinq { outer: None, .. }
        );
        let selected = if is_open {
            (first..=last)
                .filter_map(|vid| with_outer(VlanId::new(vid).ok()?))
                .find_map(|exact| self.select_vlan(connection, except, exact).ok())
        } else {
            Some(self.select_vlan(connection, except, request)?)
        };
        selected
            .filter(|config| is_permitted(*config))
            .map(VlanRequest::from)
            .ok_or_else(|| Refusal::invalid("vlan", reason::key_vlans(first, last)))
    }

    fn move_end(&mut self, id: ConfigId, connection: ConnectionId, vlan: VlanRequest) -> Outcome {
        let mut config = self.object(id)?;
        let account = self.check_connection(connection)?;
        if account != config.account {
            let reason = reason::move_between_accounts(connection, account);
            return Err(Refusal::conflict(reason).field("connection").object(connection));
        }
        self.check_capacity(connection, Some(id), config.capacity_mbps)?;
        let keys = self.bounding_keys(config.service, account);
        let vlan = self.within_keys(connection, Some(id), vlan, &keys)?;
        let vlan = self.select_vlan(connection, Some(id), vlan)?;
        if connection != config.connection {
            self.release_index(&config);
            let other_service = ServiceId(u32::MAX);
            let mut without = config.clone();
            without.service = other_service;
            self.draft.put(id, without);
            config.index = self.end_index(config.service, connection)?;
        }
        config.connection = connection;
        config.vlan = vlan;
        let service = config.service;
        self.draft.put(id, config);
        self.renew_path(service, false)?;
        self.check_reach(service)?;
        self.check_leaves(service)?;
        self.check_contracts(service)
    }

    /// Releases the index of an end, unless it is the index of its connection.
    pub(super) fn release_index(&mut self, config: &Config) {
        let of_connection = self
            .draft
            .find(config.connection)
            .map(|connection| connection.index);
        if of_connection != Some(config.index) {
            self.release(PoolKind::ConnectionIndex, config.index.raw());
        }
    }

    /// Removes an end and its addresses, and releases its numbers.
    pub(super) fn remove_end(&mut self, id: ConfigId) -> Outcome {
        let config = self.object(id)?;
        self.release_index(&config);
        self.release(PoolKind::Meter, config.meter.raw());
        if let Some(group) = config.group {
            self.release(PoolKind::Group, group.raw());
        }
        let macs: Vec<_> = self
            .draft
            .all::<crate::id::MacId>()
            .filter(|(_, mac)| mac.config == id)
            .map(|(mac, _)| mac)
            .collect();
        macs.into_iter().for_each(|mac| self.draft.delete(mac));
        let ips: Vec<_> = self
            .draft
            .all::<crate::id::IpId>()
            .filter(|(_, ip)| ip.config == id)
            .map(|(ip, _)| ip)
            .collect();
        ips.into_iter().for_each(|ip| self.draft.delete(ip));
        self.draft.delete(id);
        Ok(())
    }
}
