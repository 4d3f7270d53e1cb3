//! Notices: maintenance and incidents, whom they touch, and the letters that tell of them.
//!
//! A notice names objects of the fabric, and the exchange computes whom it touches each time that somebody reads it: members come
//! and go between the announcement and the night of the maintenance.

use std::collections::{BTreeMap, BTreeSet};

use millrace_ix_model::{
    AccountId, AccountKind, ConnectionId, ObjectId, ServiceId, ServiceKind, SwitchId, Timestamp,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::mail::calendar::Event;
use crate::mail::words::{self, Language, Told, Version};
use crate::mail::{Letter, MailSettings};
use crate::render::ViewContext;
use crate::routes::contacts::addresses;
use crate::service::Snapshot;
use crate::v2::records::Record;

/// The roles of contacts to whom notices go. Without such a contact, they go to the administrators of the account.
const ROLES: [&str; 2] = ["noc", "implementation"];

const HOUR_MILLIS: u64 = 3_600_000;

/// The kind of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NoticeKind {
    /// Work that is planned.
    Maintenance,
    /// Something that has happened.
    Incident,
}

/// A notice as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Notice {
    pub(crate) kind: NoticeKind,
    pub(crate) title: String,
    pub(crate) about: String,
    pub(crate) begins: Timestamp,
    /// The end; `None` while it is not known.
    pub(crate) ends: Option<Timestamp>,
    /// Sites, switches, trunks, connections and services. Without any, the notice concerns everybody.
    pub(crate) objects: Vec<ObjectId>,
    /// True if the public status page shows it.
    pub(crate) public: bool,
    pub(crate) cancelled: bool,
    /// The number of changes since the first announcement.
    pub(crate) sequence: u32,
    /// The time of this version.
    pub(crate) changed: Timestamp,
}

impl Record for Notice {
    const PREFIX: &'static str = "no";
}

impl Notice {
    /// Returns the state at a time: `planned`, `running`, `over` or `cancelled`.
    pub(crate) fn state(&self, now: Timestamp) -> &'static str {
        if self.cancelled {
            "cancelled"
        } else if now < self.begins {
            "planned"
        } else if self.ends.is_some_and(|ends| ends <= now) {
            "over"
        } else {
            "running"
        }
    }

    /// Returns the notice as an event of a calendar. While its end is not known, it lasts until the end of this hour.
    pub(crate) fn event(&self, id: &str, host: &str, now: Timestamp) -> Event<'_> {
        let last = if self.cancelled { self.changed } else { now };
        let hour = last.max(self.begins).millis() / HOUR_MILLIS + 1;
        let ends = self.ends.unwrap_or(Timestamp::from_millis(hour * HOUR_MILLIS));
        Event {
            uid: format!("{}@{host}", id.replace("no-", "notice-")),
            sequence: self.sequence,
            stamp: self.changed,
            begins: self.begins,
            ends,
            summary: &self.title,
            description: &self.about,
            cancelled: self.cancelled,
        }
    }
}

/// The objects that a notice touches: the connections and services of each account.
pub(crate) type Touched = BTreeMap<AccountId, BTreeSet<ObjectId>>;

/// Returns what objects of the fabric touch. The other parties of a circuit are touched by what happens at one end; the members
/// of a peering LAN are not.
pub(crate) fn touched(scope: &ViewContext<'_>, snapshot: &Snapshot, objects: &[ObjectId]) -> Touched {
    let exchange = &snapshot.exchange;
    let mut connections: BTreeSet<ConnectionId> = BTreeSet::new();
    let mut services: BTreeSet<ServiceId> = BTreeSet::new();
    let mut switches: BTreeSet<SwitchId> = BTreeSet::new();
    for object in objects {
        match object {
            ObjectId::Site(site) => {
                let here = exchange
                    .switches
                    .iter()
                    .filter(|(_, switch)| switch.site == *site);
                switches.extend(here.map(|(id, _)| *id));
            }
            ObjectId::Switch(switch) => {
                switches.insert(*switch);
            }
            ObjectId::Trunk(trunk) => {
                if let Some(trunk) = exchange.trunks.get(trunk) {
                    let [a, b] = trunk.ends.map(|end| end.switch);
                    services.extend(scope.services_on(a, b));
                }
            }
            ObjectId::Connection(connection) => {
                connections.insert(*connection);
            }
            ObjectId::Service(service) => {
                services.insert(*service);
            }
            _ => {}
        }
    }
    let there = exchange.connections.iter();
    let there = there.filter(|(_, connection)| {
        connection
            .ports
            .iter()
            .any(|port| switches.contains(&port.switch))
    });
    connections.extend(there.map(|(id, _)| *id));
    let mut touched = Touched::new();
    for id in &connections {
        let Some(connection) = exchange.connections.get(id) else {
            continue;
        };
        touched
            .entry(connection.account)
            .or_default()
            .insert((*id).into());
        for end in snapshot.index().by_connection.get(id).into_iter().flatten() {
            let Some(end) = exchange.configs.get(end) else {
                continue;
            };
            touched.entry(end.account).or_default().insert(end.service.into());
            let is_circuit = exchange
                .services
                .get(&end.service)
                .is_some_and(|service| service.kind != ServiceKind::ExchangeLan);
            if is_circuit {
                services.insert(end.service);
            }
        }
    }
    for id in services {
        let Some(service) = exchange.services.get(&id) else {
            continue;
        };
        if service.kind != ServiceKind::ExchangeLan {
            touched.entry(service.account).or_default().insert(id.into());
        }
        for end in snapshot.index().by_service.get(&id).into_iter().flatten() {
            if let Some(end) = exchange.configs.get(end) {
                touched.entry(end.account).or_default().insert(id.into());
            }
        }
    }
    touched
}

/// Returns the accounts that a notice concerns: those that it touches, or all members.
pub(crate) fn concerned(snapshot: &Snapshot, notice: &Notice, touched: Touched) -> Touched {
    if !notice.objects.is_empty() {
        return touched;
    }
    let members = snapshot.exchange.accounts.iter();
    members
        .filter(|(_, account)| matches!(account.kind, AccountKind::Member | AccountKind::Reseller))
        .map(|(id, _)| (*id, BTreeSet::new()))
        .collect()
}

/// Returns the name of an object that a notice can have; `None` if it does not exist any more.
pub(crate) fn name_of(snapshot: &Snapshot, object: ObjectId) -> Option<String> {
    let exchange = &snapshot.exchange;
    Some(match object {
        ObjectId::Site(id) => exchange.sites.get(&id)?.name.clone(),
        ObjectId::Switch(id) => exchange.switches.get(&id)?.name.clone(),
        ObjectId::Trunk(id) => exchange.trunks.get(&id)?.name.clone(),
        ObjectId::Connection(id) => exchange.connections.get(&id)?.name.clone(),
        ObjectId::Service(id) => exchange.services.get(&id)?.name.clone(),
        _ => return None,
    })
}

/// Returns the names of objects.
pub(crate) fn names(snapshot: &Snapshot, objects: &BTreeSet<ObjectId>) -> Vec<String> {
    objects
        .iter()
        .filter_map(|object| name_of(snapshot, *object))
        .collect()
}

/// A person or a contact to whom letters go.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Recipient {
    address: String,
    language: Language,
    account: AccountId,
}

/// Returns the recipients of a notice, each address once for an account: a letter names what the notice touches of one account only.
fn recipients(app: &App, snapshot: &Snapshot, settings: &MailSettings, touched: &Touched) -> Vec<Recipient> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for account in touched.keys() {
        let contacts = addresses(app, *account, &ROLES);
        let mut own: Vec<(String, Language)> = contacts
            .into_iter()
            .map(|address| (address, settings.language()))
            .collect();
        if own.is_empty() {
            let users = snapshot.exchange.users.values();
            let admins = users.filter(|user| {
                let is_admin = user.roles.iter().any(|role| {
                    matches!(
                        role,
                        millrace_ix_model::Role::MemberAdmin | millrace_ix_model::Role::Reseller
                    )
                });
                user.account == *account && is_admin && !user.deactivated
            });
            own.extend(admins.filter_map(|user| {
                let language = Language::of(user.language.as_deref(), settings.language());
                Some((user.email.clone()?, language))
            }));
        }
        for (address, language) in own {
            if seen.insert((address.to_lowercase(), *account)) {
                found.push(Recipient {
                    address,
                    language,
                    account: *account,
                });
            }
        }
    }
    found
}

/// Returns what a letter in a language says of a notice.
pub(crate) fn text(
    exchange: &str,
    notice: &Notice,
    version: Version,
    language: Language,
    touches: &[String],
) -> words::Text {
    let told = Told {
        exchange,
        is_maintenance: notice.kind == NoticeKind::Maintenance,
        version,
        title: &notice.title,
        about: &notice.about,
        begins: notice.begins,
        ends: notice.ends,
        touches,
    };
    words::notice(language, &told)
}

/// Returns the host in identifiers of events, which are the same in letters and calendars. An exchange without the address of its page
/// has a name that no other exchange has.
pub(crate) fn host(app: &App) -> String {
    let page = app.settings.mail.as_ref().map(|settings| settings.page(""));
    let host = page.as_deref().and_then(|page| page.split("://").nth(1));
    let host = host.and_then(|host| host.split(['/', ':']).next());
    let host = host.filter(|host| !host.is_empty());
    host.map_or_else(
        || format!("{}.invalid", app.sealer.name("calendar")),
        str::to_owned,
    )
}

/// Returns notices as a calendar.
pub(crate) fn calendar<'a>(app: &App, notices: impl IntoIterator<Item = (&'a str, &'a Notice)>) -> String {
    let (host, now) = (host(app), app.now());
    let events: Vec<Event<'a>> = notices
        .into_iter()
        .map(|(id, notice)| notice.event(id, &host, now))
        .collect();
    let organizer = app.settings.mail.as_ref().map(MailSettings::sender);
    crate::mail::calendar::calendar(&app.settings.name, organizer, &events)
}

/// Returns the letters about a notice. An exchange without mail writes none.
pub(crate) fn letters(
    app: &App,
    snapshot: &Snapshot,
    (id, notice): (&str, &Notice),
    version: Version,
    touched: &Touched,
) -> Vec<Letter> {
    let Some(settings) = &app.settings.mail else {
        return Vec::new();
    };
    let calendar = calendar(app, [(id, notice)]);
    let recipients = recipients(app, snapshot, settings, touched).into_iter();
    recipients
        .map(|recipient| {
            let touches = touched
                .get(&recipient.account)
                .map(|objects| names(snapshot, objects))
                .unwrap_or_default();
            let text = text(&app.settings.name, notice, version, recipient.language, &touches);
            Letter {
                calendar: Some(calendar.clone()),
                ..Letter::new(recipient.address, text, app.now())
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::{World, demo};

    #[test]
    fn a_notice_is_planned_then_running_then_over_and_a_cancelled_one_is_cancelled() {
        let at = |seconds: u64| Timestamp::from_secs(seconds);
        let mut notice = Notice {
            kind: NoticeKind::Maintenance,
            title: "Card swap".to_owned(),
            about: String::new(),
            begins: at(100),
            ends: Some(at(200)),
            objects: Vec::new(),
            public: true,
            cancelled: false,
            sequence: 0,
            changed: at(0),
        };
        assert_eq!(
            [99, 100, 199, 200].map(|second| notice.state(at(second))),
            ["planned", "running", "running", "over"]
        );
        notice.ends = None;
        assert_eq!(notice.state(at(1_000_000)), "running");
        notice.cancelled = true;
        assert_eq!(notice.state(at(150)), "cancelled");
        let event = |notice: &Notice, now: u64| {
            let event = notice.event("no-7", "ix.example", at(now));
            (event.uid, event.ends)
        };
        let uid = "notice-7@ix.example".to_owned();
        assert_eq!(
            event(&notice, 4000),
            (uid.clone(), at(3600)),
            "it was cancelled at 0"
        );
        notice.cancelled = false;
        assert_eq!(event(&notice, 50), (uid.clone(), at(3600)));
        assert_eq!(event(&notice, 3600), (uid.clone(), at(7200)));
        notice.ends = Some(at(200));
        assert_eq!(event(&notice, 3600), (uid, at(200)));
    }

    #[tokio::test]
    async fn a_notice_without_objects_concerns_every_member_and_no_authority() {
        let exchange = demo().unwrap();
        let members = exchange
            .accounts
            .values()
            .filter(|account| matches!(account.kind, AccountKind::Member | AccountKind::Reseller))
            .count();
        let world = World::start(exchange.clone()).await.unwrap();
        let snapshot = world.engine.snapshot();
        let notice = Notice {
            kind: NoticeKind::Incident,
            title: String::new(),
            about: String::new(),
            begins: Timestamp::from_secs(0),
            ends: None,
            objects: Vec::new(),
            public: false,
            cancelled: false,
            sequence: 0,
            changed: Timestamp::from_secs(0),
        };
        assert_eq!(concerned(&snapshot, &notice, Touched::new()).len(), members);
    }
}
