//! The exchange as one value, and its changes as lists of objects.
//!
//! An order never edits an [`Exchange`]. It fills a [`Draft`], which shows the exchange with the changes of
//! the order on top. A complete draft is committed as a whole; a draft that ends in a refusal is dropped. An
//! order is therefore executed completely or not at all, and a dry run is a draft that is not committed.

use core::fmt;
use core::str::FromStr;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::account::{Account, User};
use crate::approval::Approval;
use crate::fabric::{Site, Switch, Trunk};
use crate::filter::Filter;
use crate::id::{
    AccountId, ApprovalId, ConfigId, ConnectionId, FilterId, IdParseError, IpId, MacId, PolicyId, ServiceId,
    ServiceKeyId, SiteId, SwitchId, TrunkId, UserId, parse_number,
};
use crate::index::IndexCell;
use crate::persistent::{Numbered, PersistentMap};
use crate::service::{
    Config, Connection, LanPolicy, NumberHold, Pool, PoolKind, RegisteredIp, RegisteredMac, Service,
    ServiceKey,
};

/// Defines the collections of an exchange, and the types that hold one object of any of them.
macro_rules! collections {
    ($($(#[$meta:meta])* $field:ident: $kind:ident = $object:ty, $id:ident;)*) => {
        /// The desired state of an exchange. `Default` is an exchange without objects. A copy is cheap:
        /// original and copy share all objects that neither of them writes.
        #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
        pub struct Exchange {
            $($(#[$meta])* #[serde(default)] pub $field: PersistentMap<$id, $object>,)*
            /// The numbers that rest, by their type.
            #[serde(default)]
            pub pools: BTreeMap<PoolKind, Pool>,
            /// The number of the last identifier that was assigned.
            #[serde(default)]
            pub last_id: u32,
            #[serde(skip)]
            pub(crate) index: IndexCell,
        }

        /// The identifier of any object.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub enum ObjectId {
            $($(#[$meta])* $kind($id),)*
        }

        /// Any object.
        #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
        #[serde(tag = "object", rename_all = "snake_case")]
        #[allow(clippy::large_enum_variant, reason = "a draft holds a few objects and lives shortly")]
        pub enum Object {
            $($(#[$meta])* $kind($object),)*
        }

        impl fmt::Display for ObjectId {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(ObjectId::$kind(id) => fmt::Display::fmt(id, f),)*
                }
            }
        }

        impl ObjectId {
            /// Returns the identifier of a type, by its prefix, with a number; `None` if no type has the prefix.
            pub fn new(prefix: &str, number: u32) -> Option<ObjectId> {
                match prefix {
                    $(<$id>::PREFIX => Some(ObjectId::$kind($id(number))),)*
                    _ => None,
                }
            }

            /// Returns the prefix of the type.
            pub const fn prefix(self) -> &'static str {
                match self {
                    $(ObjectId::$kind(_) => <$id>::PREFIX,)*
                }
            }

            /// Returns the number.
            pub const fn number(self) -> u32 {
                match self {
                    $(ObjectId::$kind(id) => id.0,)*
                }
            }
        }

        $(
            impl From<$id> for ObjectId {
                fn from(id: $id) -> ObjectId {
                    ObjectId::$kind(id)
                }
            }

            impl Key for $id {
                type Object = $object;

                fn number(number: u32) -> $id {
                    $id(number)
                }

                fn stored(self, exchange: &Exchange) -> Option<&$object> {
                    exchange.$field.get(&self)
                }

                fn all(exchange: &Exchange) -> &PersistentMap<$id, $object> {
                    &exchange.$field
                }

                fn wrap(object: $object) -> Object {
                    Object::$kind(object)
                }

                fn unwrap(object: &Object) -> Option<&$object> {
                    match object {
                        Object::$kind(object) => Some(object),
                        _ => None,
                    }
                }

                fn range() -> core::ops::RangeInclusive<ObjectId> {
                    ObjectId::$kind($id(0))..=ObjectId::$kind($id(u32::MAX))
                }

                fn key(id: ObjectId) -> Option<$id> {
                    match id {
                        ObjectId::$kind(id) => Some(id),
                        _ => None,
                    }
                }
            }
        )*

        impl Exchange {
            /// Stores or removes one object. Does nothing if identifier and object differ in type.
            pub(crate) fn put(&mut self, id: ObjectId, object: Option<Object>) {
                match (id, object) {
                    $(
                        (ObjectId::$kind(id), Some(Object::$kind(object))) => {
                            self.$field.insert(id, object);
                        }
                        (ObjectId::$kind(id), None) => {
                            self.$field.remove(&id);
                        }
                    )*
                    _ => {}
                }
            }

            /// Returns one object.
            pub fn object(&self, id: ObjectId) -> Option<Object> {
                match id {
                    $(ObjectId::$kind(id) => self.$field.get(&id).cloned().map(Object::$kind),)*
                }
            }

            /// Returns the identifiers of all objects.
            pub fn ids(&self) -> impl Iterator<Item = ObjectId> + '_ {
                core::iter::empty()$(.chain(self.$field.keys().map(|id| ObjectId::$kind(*id))))*
            }
        }
    };
}

collections! {
    sites: Site = Site, SiteId;
    switches: Switch = Switch, SwitchId;
    trunks: Trunk = Trunk, TrunkId;
    accounts: Account = Account, AccountId;
    users: User = User, UserId;
    connections: Connection = Connection, ConnectionId;
    services: Service = Service, ServiceId;
    /// Ends of services.
    configs: Config = Config, ConfigId;
    /// MAC addresses.
    macs: Mac = RegisteredMac, MacId;
    /// IP addresses.
    ips: Ip = RegisteredIp, IpId;
    filters: Filter = Filter, FilterId;
    service_keys: ServiceKey = ServiceKey, ServiceKeyId;
    /// Policies of peering LANs.
    policies: Policy = LanPolicy, PolicyId;
    /// Orders that wait for a second person.
    approvals: Approval = Approval, ApprovalId;
}

impl ObjectId {
    /// Returns true if the identifier has the number 0: it stands for the newest object of its type that the
    /// same order creates.
    pub const fn is_placeholder(self) -> bool {
        self.number() == 0
    }

    /// Returns the identifier that a text is, if it is one. Most texts of objects are none, and are told apart without an error.
    pub fn find(text: &str) -> Option<ObjectId> {
        let (prefix, _) = text.split_once('-')?;
        ObjectId::new(prefix, parse_number(text, prefix)?)
    }
}

impl FromStr for ObjectId {
    type Err = IdParseError;

    fn from_str(text: &str) -> Result<ObjectId, IdParseError> {
        let found = ObjectId::find(text);
        found.ok_or_else(|| IdParseError::new(text, "the identifier of an object", "cn-5".to_owned()))
    }
}

impl TryFrom<String> for ObjectId {
    type Error = IdParseError;

    fn try_from(text: String) -> Result<ObjectId, IdParseError> {
        text.parse()
    }
}

impl From<ObjectId> for String {
    fn from(id: ObjectId) -> String {
        id.to_string()
    }
}

/// An identifier and the collection that it belongs to.
pub trait Key: Numbered + Into<ObjectId> + 'static {
    /// The type of the objects.
    type Object: Clone + PartialEq + 'static;
    /// Returns the identifier with this number.
    fn number(number: u32) -> Self;
    /// Returns the object in an exchange.
    fn stored(self, exchange: &Exchange) -> Option<&Self::Object>;
    /// Returns the collection of an exchange.
    fn all(exchange: &Exchange) -> &PersistentMap<Self, Self::Object>;
    /// Returns the object as an [`Object`].
    fn wrap(object: Self::Object) -> Object;
    /// Returns the object if it has this type.
    fn unwrap(object: &Object) -> Option<&Self::Object>;
    /// Returns the range of all identifiers of this type.
    fn range() -> core::ops::RangeInclusive<ObjectId>;
    /// Returns the identifier if it has this type.
    fn key(id: ObjectId) -> Option<Self>;
}

/// The objects that a committed order created, changed and deleted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Applied {
    /// The objects that were created.
    pub created: Vec<ObjectId>,
    /// The objects that were changed.
    pub changed: Vec<ObjectId>,
    /// The objects that were deleted.
    pub deleted: Vec<ObjectId>,
}

impl Applied {
    /// Returns the first created object of a type.
    pub fn first<K: Key>(&self) -> Option<K> {
        self.created.iter().find_map(|id| K::key(*id))
    }
}

/// An exchange with the changes of one order on top.
#[derive(Clone, Debug)]
pub struct Draft<'a> {
    base: &'a Exchange,
    changes: BTreeMap<ObjectId, Option<Object>>,
    released: BTreeMap<(PoolKind, u32), Option<NumberHold>>,
    last_id: u32,
}

/// The changes of a draft, apart from the exchange that it was made for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ChangeSet {
    /// The new contents of each object; `None` for a deleted object.
    pub objects: BTreeMap<ObjectId, Option<Object>>,
    /// The numbers that were released (`Some`) or may be used again (`None`).
    pub released: Vec<(PoolKind, u32, Option<NumberHold>)>,
    /// The number of the last identifier that was assigned.
    pub last_id: u32,
}

impl<'a> Draft<'a> {
    /// Returns a draft without changes.
    pub fn new(base: &'a Exchange) -> Draft<'a> {
        Draft {
            base,
            changes: BTreeMap::new(),
            released: BTreeMap::new(),
            last_id: base.last_id,
        }
    }

    /// Returns the exchange without the changes.
    pub fn base(&self) -> &'a Exchange {
        self.base
    }

    /// Returns an object.
    pub fn find<K: Key>(&self, id: K) -> Option<&K::Object> {
        match self.changes.get(&id.into()) {
            Some(change) => change.as_ref().and_then(K::unwrap),
            None => id.stored(self.base),
        }
    }

    /// Returns all objects of a type. Objects that the draft changed come last.
    pub fn all<K: Key>(&self) -> impl Iterator<Item = (K, &K::Object)> {
        let kept = K::all(self.base)
            .iter()
            .map(|(id, object)| (*id, object))
            .filter(|(id, _)| !self.changes.contains_key(&(*id).into()));
        kept.chain(self.changed::<K>())
    }

    /// Returns the objects of a type that the draft created or changed.
    pub(crate) fn changed<K: Key>(&self) -> impl Iterator<Item = (K, &K::Object)> {
        let changed = self.changes.range(K::range());
        changed.filter_map(|(id, object)| Some((K::key(*id)?, K::unwrap(object.as_ref()?)?)))
    }

    /// Returns the new contents of each object; `None` for a deleted object.
    pub(crate) fn changes(&self) -> &BTreeMap<ObjectId, Option<Object>> {
        &self.changes
    }

    /// Adds an object under a new identifier.
    pub fn create<K: Key>(&mut self, object: K::Object) -> K {
        self.last_id = self.last_id.saturating_add(1);
        let id = K::number(self.last_id);
        self.put(id, object);
        id
    }

    /// Replaces an object.
    pub fn put<K: Key>(&mut self, id: K, object: K::Object) {
        self.changes.insert(id.into(), Some(K::wrap(object)));
    }

    /// Deletes an object.
    pub fn delete<K: Key>(&mut self, id: K) {
        self.changes.insert(id.into(), None);
    }

    /// Records that a number was released, or may be used again.
    pub fn set_released(&mut self, kind: PoolKind, number: u32, released: Option<NumberHold>) {
        self.released.insert((kind, number), released);
    }

    /// Returns the released numbers of a type.
    pub fn released(&self, kind: PoolKind) -> BTreeMap<u32, NumberHold> {
        let mut released = self
            .base
            .pools
            .get(&kind)
            .map(|pool| pool.released.clone())
            .unwrap_or_default();
        for ((other, number), change) in &self.released {
            match change {
                _ if *other != kind => {}
                Some(rest) => {
                    released.insert(*number, *rest);
                }
                None => {
                    released.remove(number);
                }
            }
        }
        released
    }

    /// Returns the changes.
    pub fn into_changes(self) -> ChangeSet {
        let released = self.released.into_iter();
        ChangeSet {
            objects: self.changes,
            released: released
                .map(|((kind, number), change)| (kind, number, change))
                .collect(),
            last_id: self.last_id,
        }
    }
}

impl Exchange {
    /// Makes the changes of a draft and returns the names of the objects concerned. Objects that stay equal
    /// are left out.
    pub fn commit(&mut self, changes: ChangeSet) -> Applied {
        let mut applied = Applied::default();
        let mut written = Vec::with_capacity(changes.objects.len());
        for (id, after) in changes.objects {
            let before = self.object(id);
            match (&before, &after) {
                (None, Some(_)) => applied.created.push(id),
                (Some(_), None) => applied.deleted.push(id),
                (Some(before), Some(after)) if before != after => applied.changed.push(id),
                _ => continue,
            }
            written.push((id, before, after));
        }
        self.write(written);
        for (kind, number, change) in changes.released {
            let pool = self.pools.entry(kind).or_default();
            match change {
                Some(rest) => pool.released.insert(number, rest),
                None => pool.released.remove(&number),
            };
        }
        self.pools.retain(|_, pool| !pool.released.is_empty());
        self.last_id = self.last_id.max(changes.last_id);
        applied
    }

    /// Returns the ends of a service, in the order of their identifiers.
    pub fn ends(&self, service: ServiceId) -> impl Iterator<Item = (ConfigId, &Config)> {
        let ends: Vec<ConfigId> = self.index().ends_of(service).collect();
        ends.into_iter()
            .filter_map(|id| Some((id, self.configs.get(&id)?)))
    }

    /// Returns an account and all accounts below it.
    pub fn descendants(&self, account: AccountId) -> BTreeSet<AccountId> {
        let mut found = BTreeSet::from([account]);
        loop {
            let children = self
                .accounts
                .iter()
                .filter(|(_, child)| child.parent.is_some_and(|parent| found.contains(&parent)));
            let before = found.len();
            found = found.iter().copied().chain(children.map(|(id, _)| *id)).collect();
            if found.len() == before {
                return found;
            }
        }
    }
}
