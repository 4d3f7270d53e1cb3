//! Converts peering LANs, service keys and orders with two persons into values of the API.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use data_encoding::HEXLOWER;
use millrace_ix_model::{
    AccountId, Approval, ApprovalId, Config, ConfigId, Key, ObjectId, Operation, OperationKind, Prefix,
    Quarantine, Reason, Service, ServiceId, ServiceKey, ServiceKeyId,
};

use super::{ViewContext, word};
use crate::observed::{Check, Finding, Quarantined};
use crate::view;

/// The time for which a check fails after an offending frame.
const FAILING: Duration = Duration::from_secs(60);

impl ViewContext<'_> {
    /// Returns the findings of the quarantine of an end, oldest first.
    fn findings(&self, end: ConfigId) -> impl DoubleEndedIterator<Item = &Finding> {
        let quarantined = self.snapshot.quarantine.get(&end);
        quarantined
            .into_iter()
            .flat_map(|quarantined| &quarantined.findings)
    }

    /// Returns the newest offending frame of an end, if it is not older than a minute.
    pub(super) fn newest_finding(&self, end: ConfigId) -> Option<Reason> {
        let newest = self.findings(end).next_back()?;
        (self.now.since(newest.at) < FAILING).then(|| Reason {
            text: newest.text.clone(),
            coded: newest.coded.clone(),
        })
    }

    /// Returns the checklist of an end; `None` if the end is not in quarantine.
    pub(super) fn checklist(&self, id: ConfigId, config: &Config) -> Option<view::Checklist> {
        let Quarantine::Running { clean_since } = config.quarantine else {
            return None;
        };
        let exchange = &self.snapshot.exchange;
        let policy = exchange
            .services
            .get(&config.service)
            .and_then(|service| exchange.policies.get(&service.policy?));
        let seconds = policy.map_or(900, |policy| policy.quarantine_secs);
        let is_seen = self
            .snapshot
            .quarantine
            .get(&id)
            .is_some_and(Quarantined::is_seen);
        let state = |check: Check| match self.findings(id).rfind(|finding| finding.check == check) {
            None if !is_seen => "unchecked",
            None => "clean",
            Some(finding) if self.now.since(finding.at) < FAILING => "failing",
            Some(_) => "fixed",
        };
        Some(view::Checklist {
            clean_since: clean_since.to_string(),
            ends: clean_since
                .after(Duration::from_secs(u64::from(seconds)))
                .to_string(),
            seconds,
            seen: is_seen,
            checks: Check::ALL
                .into_iter()
                .map(|check| view::Check {
                    check: check.name().to_owned(),
                    state: state(check).to_owned(),
                })
                .collect(),
            findings: self
                .findings(id)
                .rev()
                .map(|finding| view::Finding {
                    at: finding.at.to_string(),
                    check: finding.check.name().to_owned(),
                    count: finding.count,
                    text: finding.text.clone(),
                    coded: view::coded(&finding.coded),
                    frame: HEXLOWER.encode(&finding.frame),
                })
                .collect(),
        })
    }

    /// Returns the registered IP addresses of an end if `own` is true; otherwise none.
    pub(super) fn ips(&self, id: ConfigId, own: bool) -> Vec<view::RegisteredIp> {
        let ips = self.snapshot.index().ips.get(&id).filter(|_| own);
        let ips = ips.map(Vec::as_slice).unwrap_or_default();
        let exchange = &self.snapshot.exchange;
        let service = exchange.configs.get(&id).map(|config| config.service);
        let service = service.and_then(|service| exchange.services.get(&service));
        let networks = service.map(|service| &service.networks[..]).unwrap_or_default();
        ips.iter()
            .filter_map(|ip| Some((ip, exchange.ips.get(ip)?)))
            .map(|(id, ip)| view::RegisteredIp {
                id: id.to_string(),
                address: ip.address.to_string(),
                length: length(ip.address, networks),
            })
            .collect()
    }

    /// Returns the rules of a peering LAN.
    pub(super) fn rules(&self, service: &Service) -> Option<view::LanRules> {
        let policy = self.snapshot.exchange.policies.get(&service.policy?)?;
        Some(view::LanRules::of(policy))
    }

    /// Returns the discoverable members of a peering LAN and the principal's own account, with their ends
    /// that are not in quarantine.
    pub(crate) fn presences(&self, id: ServiceId) -> Vec<view::Presence> {
        let exchange = &self.snapshot.exchange;
        let own = self.principal.actor.account;
        let ends = self
            .snapshot
            .index()
            .by_service
            .get(&id)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let mut found: BTreeMap<AccountId, (BTreeSet<String>, BTreeSet<std::net::IpAddr>)> = BTreeMap::new();
        for (end, config) in ends
            .iter()
            .filter_map(|end| Some((*end, exchange.configs.get(end)?)))
        {
            let is_public = exchange
                .accounts
                .get(&config.account)
                .is_some_and(|account| account.discoverable);
            if !(is_public || Some(config.account) == own || self.principal.actor.is_operator())
                || !config.quarantine.is_over()
            {
                continue;
            }
            let entry = found.entry(config.account).or_default();
            entry.0.insert(self.site_of(config.connection));
            let ips = self
                .snapshot
                .index()
                .ips
                .get(&end)
                .map(Vec::as_slice)
                .unwrap_or_default();
            entry
                .1
                .extend(ips.iter().filter_map(|ip| Some(exchange.ips.get(ip)?.address)));
        }
        found
            .into_iter()
            .map(|(account, (sites, addresses))| view::Presence {
                account: self.account_name(account),
                sites: sites.into_iter().collect(),
                addresses: addresses.iter().map(ToString::to_string).collect(),
                own: Some(account) == own,
            })
            .collect()
    }

    pub(crate) fn service_key(&self, id: ServiceKeyId, key: &ServiceKey) -> view::ServiceKey {
        view::ServiceKey {
            id: id.to_string(),
            service: key.service.to_string(),
            name: self.name_of(key.service.into()),
            valid_until: key.valid_until.to_string(),
            redeemed_by: key.redeemed_by.map(|account| self.account_name(account)),
            can: self.can(id, &[OperationKind::RevokeServiceKey]),
        }
    }

    pub(crate) fn approval(&self, id: ApprovalId, approval: &Approval) -> view::Approval {
        let target = match *approval.operation {
            Operation::Delete { target } | Operation::Unlock { target } => Some(target),
            _ => None,
        };
        let person = approval.requested_by.map(|user| {
            let found = self.snapshot.exchange.users.get(&user);
            found.map_or_else(|| user.to_string(), |user| user.name.clone())
        });
        view::Approval {
            id: id.to_string(),
            operation: word(&approval.operation.kind()),
            object: target.map(|target| target.to_string()),
            name: target.map(|target| self.name_of(target)).unwrap_or_default(),
            requested_by: person,
            requested_at: approval.requested_at.to_string(),
            own: approval.requested_by == self.principal.actor.user,
            revision: self.snapshot.revision_of(id.into()),
            can: self.can(id, &[OperationKind::Approve]),
        }
    }

    /// Returns the name of an object, or its identifier if it has none.
    pub(crate) fn name_of(&self, object: ObjectId) -> String {
        let exchange = &self.snapshot.exchange;
        let name = match object {
            ObjectId::Site(id) => id.stored(exchange).map(|found| &found.name),
            ObjectId::Switch(id) => id.stored(exchange).map(|found| &found.name),
            ObjectId::Trunk(id) => id.stored(exchange).map(|found| &found.name),
            ObjectId::Account(id) => id.stored(exchange).map(|found| &found.name),
            ObjectId::User(id) => id.stored(exchange).map(|found| &found.name),
            ObjectId::Connection(id) => id.stored(exchange).map(|found| &found.name),
            ObjectId::Service(id) => id.stored(exchange).map(|found| &found.name),
            _ => None,
        };
        name.map_or_else(|| object.to_string(), Clone::clone)
    }
}

/// Returns the length of the longest prefix that contains an address. For a link-local address, returns 64
/// (RFC 4291, section 2.5.6).
fn length(address: IpAddr, networks: &[Prefix]) -> Option<u8> {
    let around = networks.iter().filter(|network| network.contains(address));
    let longest = around.map(|network| network.len()).max();
    let is_link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    longest.or(is_link_local.then_some(64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_length_of_the_longest_network_that_contains_it() {
        let networks = ["192.0.0.0/16", "192.0.2.0/24", "192.0.20.0/22", "2001:db8::/48"];
        let networks = networks.map(|text| text.parse().unwrap());
        let of = |address: &str| length(address.parse().unwrap(), &networks);
        assert_eq!(of("192.0.2.1"), Some(24));
        assert_eq!(of("192.0.21.1"), Some(22));
        assert_eq!(of("192.0.24.1"), Some(16));
        assert_eq!(of("2001:db8:0:1::1"), Some(48));
        assert_eq!(of("fe80::1"), Some(64));
        assert_eq!(of("198.51.100.1"), None);
        assert_eq!(of("2001:db9::1"), None);
    }
}
