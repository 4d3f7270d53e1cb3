//! Records of accounts at the exchange, as parts of the operator's text: contacts, joining rules, sessions with route servers. Names
//! stand for identifiers. A record that differs is deleted and created again.

use std::collections::BTreeMap;
use std::net::IpAddr;

use millrace_ix_model::{AccountId, ConfigId, Exchange, IpId, ServiceId, ServiceKind};
use millrace_ix_service::text::{ContactText, Document, JoiningRuleText, Kept, RouteServerSessionText};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::app::App;
use crate::idempotency::RequestMark;
use crate::problem::Problem;
use crate::render::word;
use crate::routes::contacts::{check_roles, roles_of, set_roles};
use crate::v2::contacts::{ContactRequest, forget};
use crate::v2::features::{
    FeatureConfigRecord, FeatureConfigRequest, FeatureType, SessionMode, SessionProperties, existing,
};
use crate::v2::joining::RuleRequest;
use crate::v2::view::{Billed, Owned};

/// The numbers of records that a text adds and removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeptChanges {
    /// New records, and changed ones.
    pub added: usize,
    /// Removed records, and changed ones.
    pub removed: usize,
}

/// The names of an exchange.
struct Names<'a>(&'a Exchange);

impl Names<'_> {
    fn account(&self, id: &str) -> Option<String> {
        let id: AccountId = id.parse().ok()?;
        Some(self.0.accounts.get(&id)?.name.clone())
    }

    fn service(&self, id: ServiceId) -> Option<[String; 2]> {
        let service = self.0.services.get(&id)?;
        let account = self.0.accounts.get(&service.account)?;
        Some([account.name.clone(), service.name.clone()])
    }

    fn account_id(&self, name: &str) -> Result<AccountId, String> {
        let mut accounts = self.0.accounts.iter();
        let found = accounts.find(|(_, account)| account.name == name);
        found
            .map(|(id, _)| *id)
            .ok_or_else(|| format!("there is no account {name:?}"))
    }

    fn service_id(&self, [account, name]: &[String; 2]) -> Result<ServiceId, String> {
        let owner = self.account_id(account)?;
        let mut services = self.0.services.iter();
        // A service that is being removed may have the name of a new one.
        let found = services.rfind(|(_, service)| service.account == owner && service.name == *name);
        found
            .map(|(id, _)| *id)
            .ok_or_else(|| format!("there is no service {account}/{name}"))
    }

    /// Returns the address of a member in a LAN, and the end that has it.
    fn ip(&self, lan: ServiceId, text: &str) -> Result<(IpId, ConfigId), String> {
        let address: IpAddr = text
            .parse()
            .map_err(|_| format!("{text:?} is no address: expected one of an end of the LAN"))?;
        let mut ips = self.0.ips.iter().filter(|(_, ip)| ip.address == address);
        let found = ips.find(|(_, ip)| {
            let end = self.0.configs.get(&ip.config);
            end.is_some_and(|end| end.service == lan)
        });
        found
            .map(|(id, ip)| (*id, ip.config))
            .ok_or_else(|| format!("no end of the LAN has the address {text}"))
    }
}

/// Reads a word of the API.
fn parsed<T: DeserializeOwned>(text: &str, expected: &str) -> Result<T, String> {
    serde_json::from_value(Value::from(text)).map_err(|_| format!("{text:?}: expected {expected}"))
}

/// Returns the records that a text does not have, and the parts of the text that no record has.
fn difference<T: Ord + Clone>(present: &[(String, T)], wanted: &[T]) -> (Vec<String>, Vec<T>) {
    let mut counts: BTreeMap<&T, usize> = BTreeMap::new();
    for text in wanted {
        *counts.entry(text).or_default() += 1;
    }
    let mut gone = Vec::new();
    for (id, text) in present {
        match counts.get_mut(text) {
            Some(count) if *count > 0 => *count -= 1,
            _ => gone.push(id.clone()),
        }
    }
    let new = counts
        .into_iter()
        .flat_map(|(text, count)| std::iter::repeat_n(text.clone(), count));
    (gone, new.collect())
}

/// Returns the texts of records, sorted; `None` if there are none.
fn sorted<T: Ord>(present: Vec<(String, T)>) -> Option<Vec<T>> {
    let mut texts: Vec<T> = present.into_iter().map(|(_, text)| text).collect();
    texts.sort();
    (!texts.is_empty()).then_some(texts)
}

fn words(problem: &Problem) -> String {
    problem.detail.to_string()
}

impl App {
    /// Returns what accounts keep.
    pub fn kept(&self) -> Kept {
        Kept {
            contacts: sorted(self.contact_texts()),
            joining_rules: sorted(self.rule_texts()),
            route_server_sessions: sorted(self.session_texts()),
        }
    }

    /// Checks what a text says about what accounts keep, before the rest of the text is applied.
    ///
    /// # Errors
    /// The first fault in words, or that accounts have changed what they keep since the export and `overwrite` is false.
    pub fn check_kept(&self, document: &Document, overwrite: bool) -> Result<(), String> {
        let wanted = document.kept();
        if wanted == Kept::default() {
            return Ok(());
        }
        let base = document.base().and_then(|base| base.kept.as_ref());
        let present = self.kept();
        if !overwrite && present != wanted && base.is_some_and(|base| *base != present.digest()) {
            return Err(
                "contacts, joining rules or sessions with route servers have changed since the text was exported: export it \
                 again and edit that text, or overwrite what was changed since with --overwrite"
                    .to_owned(),
            );
        }
        let snapshot = self.snapshot();
        let names = Names(&snapshot.exchange);
        let account = |part: &str, name: &String| {
            let is_known = document.has_account(name) || names.account_id(name).is_ok();
            is_known
                .then_some(())
                .ok_or_else(|| format!("{part}: there is no account {name:?}"))
        };
        let service = |part: &str, key: &[String; 2]| {
            let is_known = document.has_service(key) || names.service_id(key).is_ok();
            is_known
                .then_some(())
                .ok_or_else(|| format!("{part}: there is no service {}", key.join("/")))
        };
        for text in wanted.contacts.iter().flatten() {
            account("contact", &text.account)?;
            if let Some(managing) = &text.managing_account {
                account("contact", managing)?;
            }
            let contact = contact_of(text, AccountId(0), AccountId(0));
            let roles: Vec<String> = text.roles.iter().cloned().collect();
            let checked = contact.check().and_then(|()| check_roles(&roles, &contact));
            checked.map_err(|problem| format!("contact of {}: {}", text.account, words(&problem)))?;
        }
        for text in wanted.joining_rules.iter().flatten() {
            account("joining_rule", &text.account)?;
            service("joining_rule", &text.service)?;
            parsed::<crate::v2::joining::Effect>(&text.effect, "allow or deny")?;
        }
        for text in wanted.route_server_sessions.iter().flatten() {
            service("route_server_session", &text.service)?;
            account("route_server_session", &text.billing_account)?;
            self.feature(ServiceId(0), text)?;
            parsed::<crate::v2::features::BgpSessionType>(&text.bgp_session_type, "active or passive")?;
        }
        Ok(())
    }

    /// Makes what accounts keep equal to a text, whose other parts are applied. A dry run only counts.
    ///
    /// # Errors
    /// The first fault in words; what was written before stays, and the text can be applied again.
    pub async fn apply_kept(&self, document: &Document, dry_run: bool) -> Result<KeptChanges, String> {
        let wanted = document.kept();
        let (contacts, rules, sessions) = (self.contact_texts(), self.rule_texts(), self.session_texts());
        let contacts = wanted.contacts.map(|wanted| difference(&contacts, &wanted));
        let rules = wanted.joining_rules.map(|wanted| difference(&rules, &wanted));
        let sessions = wanted
            .route_server_sessions
            .map(|wanted| difference(&sessions, &wanted));
        let (contacts, rules, sessions) = (
            contacts.unwrap_or_default(),
            rules.unwrap_or_default(),
            sessions.unwrap_or_default(),
        );
        let changes = KeptChanges {
            added: contacts.1.len() + rules.1.len() + sessions.1.len(),
            removed: contacts.0.len() + rules.0.len() + sessions.0.len(),
        };
        if dry_run || changes == KeptChanges::default() {
            return Ok(changes);
        }
        let detail = json!({ "added": changes.added, "removed": changes.removed });
        let noted = self.record("system", "apply_kept", "", detail).await;
        noted.map_err(|problem| words(&problem))?;
        let snapshot = self.snapshot();
        let names = Names(&snapshot.exchange);
        let mark = RequestMark {
            mark: None,
            now: self.now(),
        };
        for id in &contacts.0 {
            forget(self, id).await.map_err(|problem| words(&problem))?;
        }
        for text in &contacts.1 {
            let own = names.account_id(&text.account)?;
            let managing = text.managing_account.as_ref();
            let managing = managing.map_or(Ok(own), |name| names.account_id(name))?;
            let contact = contact_of(text, own, managing);
            let id = self.records.create(&contact, &mark).await;
            let id = id.map_err(|error| error.to_string())?;
            let roles: Vec<String> = text.roles.iter().cloned().collect();
            let set = set_roles(self, &id, &roles, &mark).await;
            set.map_err(|problem| words(&problem))?;
        }
        for id in &rules.0 {
            self.records.delete(id).await.map_err(|error| error.to_string())?;
        }
        for text in &rules.1 {
            let service = names.service_id(&text.service)?;
            let owner = snapshot
                .exchange
                .services
                .get(&service)
                .map(|found| found.account);
            let account = names.account_id(&text.account)?;
            let mut rule = RuleRequest::allowing(owner.unwrap_or(account), service, account);
            rule.effect = parsed(&text.effect, "allow or deny")?;
            (rule.capacity_min, rule.capacity_max) = (text.capacity_min, text.capacity_max);
            rule.owned.external_ref.clone_from(&text.external_ref);
            let created = self.records.create(&rule, &mark).await;
            created.map_err(|error| error.to_string())?;
        }
        // A session that differs keeps its password, which no text has.
        let mut passwords = BTreeMap::new();
        for (id, record) in existing(self).filter(|(id, _)| sessions.0.contains(id)) {
            let key = (record.request.network_feature, record.request.session.ip);
            passwords.insert(key, record.sealed);
            self.records
                .delete(&id)
                .await
                .map_err(|error| error.to_string())?;
        }
        for text in &sessions.1 {
            let mut record = self.session_of(&names, text)?;
            let key = (
                record.request.network_feature.clone(),
                record.request.session.ip.clone(),
            );
            record.sealed = passwords.remove(&key).flatten();
            let created = self.records.create(&record, &mark).await;
            created.map_err(|error| error.to_string())?;
        }
        Ok(changes)
    }

    fn contact_texts(&self) -> Vec<(String, ContactText)> {
        let snapshot = self.snapshot();
        let names = Names(&snapshot.exchange);
        let all = self.records.all::<ContactRequest>().into_iter();
        all.filter_map(|(id, contact)| {
            let account = names.account(&contact.owned.consuming_account)?;
            let managing = names.account(&contact.owned.managing_account);
            let text = ContactText {
                managing_account: managing.filter(|managing| *managing != account),
                name: contact.name,
                email: contact.email,
                telephone: contact.telephone,
                external_ref: contact.owned.external_ref,
                roles: roles_of(self, &id).into_iter().collect(),
                account,
            };
            Some((id, text))
        })
        .collect()
    }

    fn rule_texts(&self) -> Vec<(String, JoiningRuleText)> {
        let snapshot = self.snapshot();
        let names = Names(&snapshot.exchange);
        let all = self.records.all::<RuleRequest>().into_iter();
        all.filter_map(|(id, rule)| {
            let text = JoiningRuleText {
                service: names.service(rule.service()?)?,
                account: names.account(&rule.owned.consuming_account)?,
                effect: word(&rule.effect),
                capacity_min: rule.capacity_min,
                capacity_max: rule.capacity_max,
                external_ref: rule.owned.external_ref,
            };
            Some((id, text))
        })
        .collect()
    }

    fn session_texts(&self) -> Vec<(String, RouteServerSessionText)> {
        let snapshot = self.snapshot();
        let exchange = &snapshot.exchange;
        let names = Names(exchange);
        existing(self)
            .filter_map(|(id, record)| {
                let lan = exchange.configs.get(&record.config()?)?.service;
                let FeatureConfigRequest {
                    owned,
                    billed,
                    network_feature,
                    session,
                    ..
                } = record.request;
                let number = network_feature.rsplit('-').next()?.parse::<usize>().ok()?;
                let server = self.settings.route_servers.get(number.checked_sub(1)?)?;
                let ip: IpId = session.ip.parse().ok()?;
                let text = RouteServerSessionText {
                    service: names.service(lan)?,
                    server: server.fqdn.clone(),
                    ip: exchange.ips.get(&ip)?.address.to_string(),
                    asn: session.asn,
                    as_set_v4: session.as_set_v4,
                    as_set_v6: session.as_set_v6,
                    max_prefix_v4: session.max_prefix_v4,
                    max_prefix_v6: session.max_prefix_v6,
                    insert_ixp_asn: session.insert_ixp_asn,
                    bgp_session_type: word(&session.bgp_session_type),
                    billing_account: names.account(&billed.billing_account)?,
                    purchase_order: billed.purchase_order,
                    contract_ref: billed.contract_ref,
                    external_ref: owned.external_ref,
                };
                Some((id, text))
            })
            .collect()
    }

    /// Returns the identifier of a route server of a LAN.
    fn feature(&self, lan: ServiceId, text: &RouteServerSessionText) -> Result<String, String> {
        let [_, name] = &text.service;
        let mut servers = self.settings.route_servers.iter();
        let number = servers.position(|server| server.fqdn == text.server && server.lan == *name);
        number
            .map(|number| format!("rs-{}-{}", lan.0, number + 1))
            .ok_or_else(|| {
                format!(
                    "the settings have no route server {} of the LAN {name}: expected one of api.route_servers",
                    text.server
                )
            })
    }

    fn session_of(
        &self,
        names: &Names<'_>,
        text: &RouteServerSessionText,
    ) -> Result<FeatureConfigRecord, String> {
        let lan = names.service_id(&text.service)?;
        let found = names.0.services.get(&lan);
        if !found.is_some_and(|found| found.kind == ServiceKind::ExchangeLan) {
            return Err(format!("{} is no peering LAN", text.service.join("/")));
        }
        let (ip, config) = names.ip(lan, &text.ip)?;
        let owner = names.0.configs.get(&config).map(|end| end.account.to_string());
        let owner = owner.unwrap_or_default();
        let request = FeatureConfigRequest {
            kind: FeatureType::RouteServer,
            owned: Owned {
                managing_account: owner.clone(),
                consuming_account: owner,
                external_ref: text.external_ref.clone(),
            },
            billed: Billed {
                billing_account: names.account_id(&text.billing_account)?.to_string(),
                purchase_order: text.purchase_order.clone(),
                contract_ref: text.contract_ref.clone(),
                role_assignments: Vec::new(),
            },
            network_feature: self.feature(lan, text)?,
            network_service_config: config.to_string(),
            session: SessionProperties {
                as_set_v4: text.as_set_v4.clone(),
                as_set_v6: text.as_set_v6.clone(),
                max_prefix_v4: text.max_prefix_v4,
                max_prefix_v6: text.max_prefix_v6,
                insert_ixp_asn: text.insert_ixp_asn,
                asn: text.asn,
                session_mode: SessionMode::Public,
                bgp_session_type: parsed(&text.bgp_session_type, "active or passive")?,
                ip: ip.to_string(),
            },
            password: None,
        };
        Ok(FeatureConfigRecord {
            request,
            sealed: None,
        })
    }
}

fn contact_of(text: &ContactText, account: AccountId, managing: AccountId) -> ContactRequest {
    ContactRequest {
        owned: Owned {
            managing_account: managing.to_string(),
            consuming_account: account.to_string(),
            external_ref: text.external_ref.clone(),
        },
        name: text.name.clone(),
        email: text.email.clone(),
        telephone: text.telephone.clone(),
    }
}
