//! The context of the translation of one bridge.

use std::collections::BTreeMap;

use millrace_model as model;
use millrace_ovsdb::{Replica, Uuid};

use crate::fault::Faults;
use crate::links::Link;
use crate::trees::Protocol;

/// The translation of one bridge.
pub(crate) struct One<'a, 'f> {
    pub(crate) replica: &'a Replica,
    pub(crate) tls: Option<model::Tls>,
    pub(crate) faults: &'f mut Faults,
    pub(crate) links: &'f BTreeMap<Uuid, Link>,
    /// The protocol of the spanning tree of the bridge.
    pub(crate) tree: Option<Protocol>,
}
