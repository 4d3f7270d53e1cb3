//! References between the operations of one order: an identifier with the number 0, such as `sv-0`, stands for the newest
//! object of its type that an earlier operation of the order created.
//!
//! Only a field that has the type of an identifier is a reference. A name, a comment or a secret is a text, even if it
//! reads `sv-0`. The table at the end names every field of every operation: a new field does not compile before its type
//! says here whether it has identifiers.

use core::mem;
use core::net::IpAddr;
use std::collections::BTreeSet;

use millrace_types::{Dpid, Mac};

use crate::account::{AccountKind, Limits, Role};
use crate::exchange::{Key, ObjectId};
use crate::fabric::{PortId, SwitchPort, TrunkKind};
use crate::filter::{FilterAction, FilterMatch, FilterOrigin, FilterState};
use crate::operation::Operation;
use crate::prefix::Prefix;
use crate::service::{ConnectionKind, EndRole, LanPolicy, PoolKind, ServiceKind};
use crate::time::Timestamp;
use crate::vlan::VlanRequest;

impl Operation {
    /// Replaces the references to objects that earlier operations of the same order created, which are given in the order
    /// of their creation. A reference to a type of which none was created stays, and the operation is refused with it.
    pub fn resolve(&mut self, created: &[ObjectId]) {
        self.replace_ids(&|id| {
            let is_meant = |object: &&ObjectId| mem::discriminant(*object) == mem::discriminant(&id);
            let newest = created.iter().rev().find(is_meant);
            newest.copied().filter(|_| id.is_placeholder()).unwrap_or(id)
        });
    }
}

/// A value of an operation.
trait References {
    /// Replaces each identifier of an object in the value.
    fn replace_ids(&mut self, by: &dyn Fn(ObjectId) -> ObjectId);
}

impl<K: Key> References for K {
    fn replace_ids(&mut self, by: &dyn Fn(ObjectId) -> ObjectId) {
        if let Some(key) = K::key(by((*self).into())) {
            *self = key;
        }
    }
}

impl References for ObjectId {
    fn replace_ids(&mut self, by: &dyn Fn(ObjectId) -> ObjectId) {
        *self = by(*self);
    }
}

impl References for PortId {
    fn replace_ids(&mut self, by: &dyn Fn(ObjectId) -> ObjectId) {
        self.switch.replace_ids(by);
    }
}

impl<T: References> References for Option<T> {
    fn replace_ids(&mut self, by: &dyn Fn(ObjectId) -> ObjectId) {
        self.iter_mut().for_each(|value| value.replace_ids(by));
    }
}

impl<T: References> References for Vec<T> {
    fn replace_ids(&mut self, by: &dyn Fn(ObjectId) -> ObjectId) {
        self.iter_mut().for_each(|value| value.replace_ids(by));
    }
}

impl<T: References> References for [T; 2] {
    fn replace_ids(&mut self, by: &dyn Fn(ObjectId) -> ObjectId) {
        self.iter_mut().for_each(|value| value.replace_ids(by));
    }
}

impl<T: References + Ord> References for BTreeSet<T> {
    fn replace_ids(&mut self, by: &dyn Fn(ObjectId) -> ObjectId) {
        let values = mem::take(self).into_iter();
        self.extend(values.map(|mut value| {
            value.replace_ids(by);
            value
        }));
    }
}

/// Declares types without identifiers of objects.
macro_rules! without_references {
    ($($plain:ty),* $(,)?) => {$(
        impl References for $plain {
            fn replace_ids(&mut self, _: &dyn Fn(ObjectId) -> ObjectId) {}
        }
    )*};
}

without_references! {
    bool, u16, u32, (u16, u16), (PoolKind, u32), String, IpAddr, Mac, Dpid, Prefix, Timestamp, VlanRequest, SwitchPort,
    TrunkKind, AccountKind, ConnectionKind, ServiceKind, EndRole, Role, Limits, LanPolicy, FilterMatch, FilterAction,
    FilterOrigin, FilterState,
}

/// Implements [`References`] for operations with these fields.
macro_rules! fields {
    ($($operation:ident { $($field:ident),* })*) => {
        impl References for Operation {
            fn replace_ids(&mut self, by: &dyn Fn(ObjectId) -> ObjectId) {
                match self {
                    $(Operation::$operation { $($field),* } => {
                        $($field.replace_ids(by);)*
                    })*
                    Operation::Expire => {}
                }
            }
        }
    };
}

fields! {
    CreateSite { name }
    CreateSwitch { name, site, dpid, ports }
    SetPorts { switch, ports }
    UpdateSwitch { switch, site, dpid }
    RetireSwitch { switch, retired }
    CreateTrunk { name, kind, ends, cost, capacity_mbps, mtu, risk_group, contract_percent }
    UpdateTrunk { trunk, ends, cost, capacity_mbps, mtu, risk_group, contract_percent }
    DrainTrunk { trunk, drained }
    CreateAccount { name, kind, parent, asns, discoverable, as_set, external_ref }
    UpdateAccount { account, name, asns, discoverable, as_set, limits }
    CreateUser { name, account, roles, email, language }
    UpdateUser { user, roles, email, language, deactivated }
    CreateConnection { account, name, kind, ports, external_ref }
    SetConnectionPorts { connection, kind, ports }
    CreateService { account, kind, name, peer, policy, networks, external_ref }
    SetNetworks { service, networks }
    RenameService { service, name }
    ConfigureEnd { service, connection, vlan, capacity_mbps, role, asns, external_ref }
    Accept { service }
    Refuse { service, reason }
    MoveEnd { config, connection, vlan }
    SetRate { config, capacity_mbps }
    ShutDown { config, shut_down }
    WaiveQuarantine { config, reason }
    Lock { target }
    Unlock { target }
    Delete { target }
    Approve { approval }
    CreateServiceKey { service, secret, valid_until, vlans, capacity_mbps }
    RedeemServiceKey { secret, connection, vlan, capacity_mbps, asns }
    AddMac { config, address, valid_from, valid_until }
    SetMacEnd { mac, valid_until }
    RemoveMac { mac }
    AddIp { config, address, valid_until }
    RemoveIp { ip }
    CreatePolicy { policy }
    UpdatePolicy { id, policy }
    CreateFilter {
        account, matching, alternatives, peers, action, origin, rank, order, state, valid_until, exempt_until, comment,
        external_ref
    }
    UpdateFilter { filter, state, rank, valid_until }
    DeleteFilter { filter }
    RevokeServiceKey { key }
    ReportInPlace { service, generation }
    ReportRemoved { service }
    ReportQuarantine { config, clean }
    ReportRulesGone { numbers }
    ReportTrunksDown { trunks }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{AccountId, ServiceId, SiteId, SwitchId};

    /// Returns an operation whose references are resolved among created objects.
    fn resolved(operation: &str, created: &[ObjectId]) -> String {
        let mut operation: Operation = serde_json::from_str(operation).unwrap();
        operation.resolve(created);
        serde_json::to_string(&operation).unwrap()
    }

    #[test]
    fn a_reference_stands_for_the_newest_object_of_its_type() {
        let created = [
            ObjectId::from(SiteId(3)),
            ServiceId(4).into(),
            SiteId(5).into(),
            SwitchId(6).into(),
        ];
        let switch = r#"{"operation":"create_switch","name":"st-0","site":"st-0","dpid":"1","ports":[]}"#;
        let text = resolved(switch, &created);
        assert!(text.contains(r#""name":"st-0","site":"st-5""#), "{text}");
        let text = resolved(r#"{"operation":"delete","target":"sv-0"}"#, &created);
        assert!(text.contains(r#""target":"sv-4""#), "{text}");
        let trunk = r#"{"operation":"create_trunk","name":"t","kind":"vxlan","ends":["sw-0:1","sw-2:0"],
            "capacity_mbps":1,"mtu":1700}"#;
        let trunk = trunk.replace("sw-2:0", "sw-2:9");
        let text = resolved(&trunk, &created);
        assert!(text.contains(r#""ends":["sw-6:1","sw-2:9"]"#), "{text}");
    }

    #[test]
    fn texts_that_read_like_a_reference_and_identifiers_with_a_number_stay() {
        let created = [ObjectId::from(SiteId(3)), AccountId(4).into()];
        let account = r#"{"operation":"create_account","name":"st-0","kind":"member","external_ref":"st-0","parent":"ac-2"}"#;
        let text = resolved(account, &created);
        assert!(
            text.contains(r#""name":"st-0""#) && text.contains(r#""parent":"ac-2""#),
            "{text}"
        );
        assert!(text.contains(r#""external_ref":"st-0""#), "{text}");
        let filter = r#"{"operation":"create_filter","matching":{"destination":"192.0.2.1/32"},"peers":["ac-0","ac-9"],
            "action":{"type":"drop"},"origin":"api","order":"ac-0","state":{"name":"refused","reason":"ac-0"},
            "comment":"ac-0","external_ref":"st-0"}"#;
        let text = resolved(filter, &created);
        assert!(text.contains(r#""peers":["ac-4","ac-9"]"#), "{text}");
        assert_eq!(text.matches("\"ac-0\"").count(), 3, "{text}");
        assert_eq!(text.matches("\"st-0\"").count(), 1, "{text}");
    }

    #[test]
    fn a_reference_to_a_type_that_was_not_created_stays() {
        let text = resolved(r#"{"operation":"accept","service":"sv-0"}"#, &[SiteId(3).into()]);
        assert!(text.contains(r#""service":"sv-0""#), "{text}");
    }
}
