//! The desired state of an exchange point as one value, and the orders that change it.
//!
//! [`Exchange`] holds every object. [`Exchange::apply`] is the only way in which people change it: it checks
//! permission, validity and uniqueness, allocates numbers, and executes an [`Operation`] completely or not at
//! all. [`Exchange::draft`] does the same without the last step: it is the dry run. [`state::shown`] returns
//! the displayed state, [`permission`] decides who may execute which operation, [`path`] finds paths over
//! trunks and adds up contracts.
//!
//! The crate is pure: it has no clock ([`Timestamp`] is an argument), no randomness and no IO.

#![forbid(unsafe_code)]

mod account;
pub mod allocate;
mod apply;
mod approval;
mod as_set;
mod conflict;
mod exchange;
mod fabric;
mod filter;
mod id;
mod index;
mod inverse;
mod ip_protocol;
mod lookup;
mod operation;
pub mod path;
pub mod permission;
mod persistent;
mod prefix;
pub mod reason;
mod reference;
mod refusal;
mod serde_text;
mod service;
pub mod state;
mod time;
mod vlan;

pub use account::{Account, AccountKind, Actor, Limits, Role, User, is_mail_address};
pub use apply::{Drafted, FILTER_VALIDITY_MAX, KEY_VALIDITY_MAX, Steps};
pub use approval::Approval;
pub use as_set::{AsSet, AsSetError};
pub use conflict::FilterConflict;
pub use exchange::{Applied, ChangeSet, Draft, Exchange, Key, Object, ObjectId};
pub use fabric::{PortId, PortIdParseError, Site, Switch, SwitchPort, TRUNK_MTU_MIN, Trunk, TrunkKind};
pub use filter::{
    Filter, FilterAction, FilterMatch, FilterOrigin, FilterState, FragmentMatch, Ports, TcpFlagsMatch,
    filter_rank,
};
pub use id::{
    AccountId, ApprovalId, ConfigId, ConnectionId, ConnectionIndex, FilterId, GroupNumber, IdParseError,
    IpId, MacId, MeterNumber, NumberError, PolicyId, ServiceId, ServiceIndex, ServiceKeyId, SiteId, SwitchId,
    TrunkId, UserId, WireId,
};
pub use ip_protocol::IpProtocol;
pub use operation::{Operation, OperationKind};
pub use permission::Relation;
pub use persistent::{Iter, Numbered, PersistentMap};
pub use prefix::{Prefix, PrefixError};
pub use reason::{Coded, Reason};
pub use refusal::{Refusal, RefusalCode};
pub use service::{
    ArpMode, Config, Connection, ConnectionKind, Consent, EndRole, LanPolicy, NumberHold, Pool, PoolKind,
    Quarantine, RegisteredIp, RegisteredMac, Service, ServiceKey, ServiceKind, link_local,
};
pub use time::{Timestamp, TimestampParseError};
pub use vlan::{TagType, VlanConfig, VlanId, VlanIdError, VlanRequest};
