//! Every field of the exchange as text: a text in which it differs is applied, or refused with the name of the field.

use std::collections::BTreeSet;

use millrace_ix_engine::Settings;
use millrace_ix_model::Actor;
use millrace_ix_service::text::{Document, document};
use millrace_ix_service::{ApplyOptions, Core, Now, OrderError, OrderOptions, Ordered};
use millrace_ix_store::{Sqlite, UnixMillis};
use millrace_types::Time;
use serde_json::{Value, json};

const NOW: Now = Now {
    time: Time::ZERO,
    wall: UnixMillis(1_700_000_000_000),
};

/// Returns a text with every kind of object, in which every field has a value.
fn whole() -> Value {
    let ports: Vec<Value> = [1, 2, 3, 100, 101]
        .map(|number| json!({"number": number, "speed_mbps": 10_000}))
        .into();
    json!({
        "site": [{"name": "Makuhari"}, {"name": "Otemachi"}],
        "switch": [
            {"name": "mak-1", "site": "Makuhari", "dpid": "0000000000000002", "ports": ports},
            {"name": "old-1", "site": "Makuhari", "dpid": "0000000000000003", "ports": ports, "retired": true},
            {"name": "ote-1", "site": "Otemachi", "dpid": "0000000000000001", "ports": ports},
        ],
        "trunk": [{"name": "t1", "kind": "vxlan", "ends": ["ote-1:100", "mak-1:100"], "cost": 10, "capacity_mbps": 10_000,
            "mtu": 1700, "risk_group": "duct", "drained": false, "contract_percent": 80}],
        "account": [
            {"name": "A", "kind": "member", "asns": [64510], "discoverable": false},
            {"name": "B", "kind": "member", "parent": "R", "discoverable": false},
            {"name": "R", "kind": "reseller", "asns": [64501], "discoverable": true, "as_set": "AS-R", "external_ref": "r-1",
                "limits": {"services": 100}},
        ],
        "policy": [{"name": "lan", "ethertypes": [0x0800, 0x0806, 0x86dd], "macs_max": 4, "broadcast_pps": 100,
            "multicast_pps": 100, "arp": "unicast", "quarantine_secs": 900}],
        "connection": [
            {"account": "A", "name": "a1", "kind": "standalone", "ports": ["ote-1:1"], "external_ref": "x-1"},
            {"account": "A", "name": "a2", "kind": "standalone", "ports": ["ote-1:2"]},
            {"account": "R", "name": "r1", "kind": "standalone", "ports": ["mak-1:1"]},
        ],
        "service": [
            {"account": "A", "name": "circuit", "kind": "p2p_vc", "peer": "R", "external_ref": "s-1", "end": [
                {"connection": ["A", "a1"], "vlan": {"type": "dot1q", "vlan": 100}, "capacity_mbps": 200,
                    "external_ref": "e-1"},
                {"connection": ["R", "r1"], "vlan": {"type": "dot1q", "vlan": 100}, "capacity_mbps": 200},
            ]},
            {"account": "A", "name": "lan", "kind": "exchange_lan", "policy": "lan", "networks": ["192.0.2.0/24"], "end": [
                {"connection": ["A", "a2"], "vlan": {"type": "dot1q", "vlan": 10}, "asns": [64510],
                    "macs": ["02:00:00:00:00:01"], "ips": ["192.0.2.1"]},
            ]},
            {"account": "A", "name": "tree", "kind": "p2mp_vc", "end": [
                {"connection": ["A", "a1"], "vlan": {"type": "dot1q", "vlan": 20}, "role": "root"},
                {"connection": ["A", "a2"], "vlan": {"type": "dot1q", "vlan": 21}, "role": "leaf"},
            ]},
        ],
        "filter": [{"account": "A", "peers": ["B"], "rank": 100, "order": "a", "exempt_until": "2023-11-20T00:00:00.000Z",
            "valid_until": "2023-11-20T00:00:00.000Z", "comment": "ticket 7", "external_ref": "f-1", "action": {"type": "drop"},
            "matching": packets("192.0.2.0/28"), "alternatives": [packets("192.0.2.1/32")]}],
    })
}

/// Returns all packets to a destination, with every field.
fn packets(destination: &str) -> Value {
    json!({"destination": destination, "source": null, "protocol": null, "source_ports": [], "destination_ports": [],
        "icmp_type": null, "icmp_code": null, "fragment": null, "tcp_flags": null, "dscp": null})
}

/// The effect of a field that differs.
enum Effect {
    /// The exchange gets the value.
    Applied,
    /// The text is refused, and the message has these words.
    Refused(&'static [&'static str]),
    /// No other value exists: the text is not read.
    Unreadable,
}

use Effect::{Applied, Refused, Unreadable};

/// Returns each field as JSON pointer, with another value.
fn rows() -> Vec<(&'static str, Value, Effect)> {
    let fewer: Vec<Value> = [1, 2, 3, 100]
        .map(|number| json!({"number": number, "speed_mbps": 10_000}))
        .into();
    vec![
        ("/site/0/name", json!("Chiba"), Applied),
        ("/switch/0/name", json!("mak-2"), Refused(&["0000000000000002"])),
        ("/switch/0/site", json!("Otemachi"), Applied),
        ("/switch/0/dpid", json!("00000000000000ff"), Applied),
        ("/switch/0/ports", json!(fewer), Applied),
        ("/switch/1/retired", json!(false), Applied),
        ("/trunk/0/name", json!("t2"), Refused(&["ends", ":100"])),
        ("/trunk/0/kind", json!("s_tag"), Refused(&["trunk t1", "kind"])),
        ("/trunk/0/ends", json!(["ote-1:101", "mak-1:101"]), Applied),
        (
            "/trunk/0/ends",
            json!(["ote-1:101", "old-1:101"]),
            Refused(&["trunk t1", "ends"]),
        ),
        ("/trunk/0/cost", json!(20), Applied),
        ("/trunk/0/capacity_mbps", json!(1000), Applied),
        (
            "/trunk/0/capacity_mbps",
            json!(100),
            Refused(&["trunk t1", "200 Mbit/s"]),
        ),
        ("/trunk/0/mtu", json!(9000), Applied),
        ("/trunk/0/risk_group", json!("bridge"), Applied),
        ("/trunk/0/risk_group", Value::Null, Applied),
        ("/trunk/0/drained", json!(true), Applied),
        ("/trunk/0/contract_percent", json!(120), Applied),
        (
            "/trunk/0/contract_percent",
            json!(1),
            Refused(&["trunk t1", "100 Mbit/s"]),
        ),
        ("/account/1/name", json!("C"), Applied),
        (
            "/account/1/kind",
            json!("reseller"),
            Refused(&["account B", "kind"]),
        ),
        (
            "/account/1/parent",
            Value::Null,
            Refused(&["account B", "parent"]),
        ),
        ("/account/2/asns", json!([64501, 64502]), Applied),
        ("/account/2/discoverable", json!(false), Applied),
        ("/account/2/as_set", json!("AS-R2"), Applied),
        (
            "/account/2/as_set",
            Value::Null,
            Refused(&["account R", "as_set"]),
        ),
        (
            "/account/2/external_ref",
            json!("r-2"),
            Refused(&["account R", "external_ref"]),
        ),
        ("/account/2/limits", json!({"services": 200}), Applied),
        ("/policy/0/name", json!("lan-2"), Applied),
        ("/policy/0/ethertypes", json!([0x0800, 0x0806]), Applied),
        ("/policy/0/macs_max", json!(2), Applied),
        ("/policy/0/broadcast_pps", json!(50), Applied),
        ("/policy/0/multicast_pps", json!(50), Applied),
        ("/policy/0/arp", json!("flood"), Unreadable),
        ("/policy/0/quarantine_secs", json!(60), Applied),
        ("/connection/2/account", json!("A"), Refused(&["port"])),
        ("/connection/2/name", json!("r2"), Refused(&["port"])),
        ("/connection/1/kind", json!("lag_static"), Applied),
        ("/connection/1/ports", json!(["ote-1:3"]), Applied),
        (
            "/connection/0/external_ref",
            json!("x-2"),
            Refused(&["connection A/a1", "external_ref"]),
        ),
        (
            "/connection/0/external_ref",
            Value::Null,
            Refused(&["connection A/a1", "external_ref"]),
        ),
        ("/service/2/account", json!("R"), Refused(&["service key"])),
        (
            "/service/0/account",
            json!("R"),
            Refused(&["its own account", "peer"]),
        ),
        ("/service/2/name", json!("star"), Refused(&["VLAN 20"])),
        (
            "/service/2/kind",
            json!("mp2mp_vc"),
            Refused(&["service A/tree", "kind"]),
        ),
        (
            "/service/0/peer",
            Value::Null,
            Refused(&["service A/circuit", "peer"]),
        ),
        (
            "/service/1/policy",
            Value::Null,
            Refused(&["service A/lan", "policy"]),
        ),
        (
            "/service/1/networks",
            json!(["192.0.2.0/24", "2001:db8::/64"]),
            Applied,
        ),
        (
            "/service/1/networks",
            json!(["198.51.100.0/24"]),
            Refused(&["192.0.2.1"]),
        ),
        (
            "/service/0/external_ref",
            json!("s-2"),
            Refused(&["service A/circuit", "external_ref"]),
        ),
        ("/service/2/end", json!([]), Applied),
        ("/service/2/end/1/connection", json!(["A", "a1"]), Applied),
        (
            "/service/2/end/1/vlan",
            json!({"type": "dot1q", "ethertype": "0x8100", "vlan": 22}),
            Applied,
        ),
        ("/service/0/end/0/capacity_mbps", json!(300), Applied),
        (
            "/service/2/end/1/role",
            json!("root"),
            Refused(&["service A/tree", "role"]),
        ),
        ("/service/0/end/0/shut_down", json!(true), Applied),
        (
            "/service/1/end/0/asns",
            json!([]),
            Refused(&["service A/lan", "asns"]),
        ),
        (
            "/service/0/end/0/external_ref",
            json!("e-2"),
            Refused(&["service A/circuit", "external_ref"]),
        ),
        ("/service/1/end/0/macs", json!(["02:00:00:00:00:02"]), Applied),
        ("/service/1/end/0/ips", json!(["192.0.2.2"]), Applied),
        ("/filter/0/account", json!("R"), Applied),
        ("/filter/0/peers", json!(["R"]), Applied),
        ("/filter/0/rank", json!(200), Applied),
        ("/filter/0/order", json!("b"), Applied),
        (
            "/filter/0/exempt_until",
            json!("2023-11-21T00:00:00.000Z"),
            Applied,
        ),
        (
            "/filter/0/valid_until",
            json!("2023-11-21T00:00:00.000Z"),
            Applied,
        ),
        ("/filter/0/comment", json!("ticket 8"), Applied),
        ("/filter/0/external_ref", json!("f-2"), Applied),
        ("/filter/0/action", json!({"type": "count"}), Applied),
        ("/filter/0/matching", packets("192.0.2.0/27"), Applied),
        (
            "/filter/0/alternatives",
            json!([packets("192.0.2.2/32")]),
            Applied,
        ),
    ]
}

fn apply(core: &mut Core, text: &Value, dry_run: bool) -> Result<Ordered, OrderError> {
    let text: Document = serde_json::from_value(text.clone()).unwrap();
    let options = OrderOptions {
        dry_run,
        ..OrderOptions::default()
    };
    core.apply(text, ApplyOptions::default(), &Actor::system(), &options, NOW)
}

/// Returns an exchange as a text says.
fn core(text: &Value) -> Core {
    let store = Box::new(Sqlite::in_memory().unwrap());
    let mut core = Core::start(store, Settings::default(), false, NOW).unwrap();
    apply(&mut core, text, false).unwrap();
    core
}

/// Sets a field of a text; `null` removes it.
fn set(text: &mut Value, pointer: &str, value: &Value) {
    let (object, field) = pointer.rsplit_once('/').unwrap();
    let object = text.pointer_mut(object).unwrap().as_object_mut().unwrap();
    if value.is_null() {
        object.remove(field);
    } else {
        object.insert(field.to_owned(), value.clone());
    }
}

/// Returns the contradiction to an effect, if there is one.
fn contradiction(whole: &Value, pointer: &str, value: &Value, effect: &Effect) -> Option<String> {
    let mut text = whole.clone();
    set(&mut text, pointer, value);
    if matches!(effect, Unreadable) {
        let read = serde_json::from_value::<Document>(text);
        return read.is_ok().then(|| "the text is read".to_owned());
    }
    let mut core = core(whole);
    let planned = apply(&mut core, &text, true);
    if let Refused(words) = effect {
        let Err(OrderError::Refused(refusal)) = planned else {
            return Some(format!("not refused: {planned:?}"));
        };
        let said = format!("{} {:?}", refusal.message, refusal.field);
        let missing = words.iter().find(|word| !said.contains(**word));
        return missing.map(|word| format!("{word} is not in: {said}"));
    }
    let planned = match planned {
        Ok(planned) => planned,
        Err(error) => return Some(format!("refused: {error}")),
    };
    let applied = &planned.applied;
    if applied.created.len() + applied.changed.len() + applied.deleted.len() == 0 {
        return Some("the plan names nothing".to_owned());
    }
    apply(&mut core, &text, false).unwrap();
    let after = serde_json::to_value(document(core.exchange())).unwrap();
    let (object, field) = pointer.rsplit_once('/').unwrap();
    let (list, _) = object.rsplit_once('/').unwrap();
    let objects = after.pointer(list).and_then(Value::as_array).unwrap();
    let is_default = [json!(false), json!([])].contains(value);
    let has_value = |object: &Value| match object.get(field) {
        Some(found) => found == value || field == "limits" && found["services"] == value["services"],
        None => value.is_null() || is_default,
    };
    if !objects.iter().any(has_value) {
        return Some(format!("the exchange has not the value: {objects:?}"));
    }
    let again = apply(&mut core, &text, false).unwrap();
    (again.change.is_some()).then(|| "a second application changes something".to_owned())
}

#[test]
fn every_field_of_a_text_is_applied_or_refused_by_name() {
    let whole = whole();
    let rows = rows().into_iter();
    let wrong: Vec<String> = rows
        .filter_map(|(pointer, value, effect)| {
            let wrong = contradiction(&whole, pointer, &value, &effect)?;
            Some(format!("{pointer} = {value}: {wrong}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns the fields of the object at a pointer, as the parser lists them.
fn fields(whole: &Value, object: &str) -> Vec<String> {
    let mut text = whole.clone();
    set(&mut text, &format!("{object}/nowhere"), &json!(0));
    let error = serde_json::from_value::<Document>(text).unwrap_err().to_string();
    let list = error
        .split_once("expected ")
        .unwrap_or_else(|| panic!("{object}: unknown fields are accepted: {error}"))
        .1;
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_table_has_every_field_of_the_text() {
    let whole = whole();
    let mut missing = BTreeSet::new();
    for object in [
        "/site/0",
        "/switch/0",
        "/trunk/0",
        "/account/0",
        "/policy/0",
        "/connection/0",
        "/service/0",
        "/service/0/end/0",
        "/filter/0",
    ] {
        let kind: String = object.chars().filter(|letter| !letter.is_ascii_digit()).collect();
        for field in fields(&whole, object) {
            let wanted = format!("{kind}/{field}");
            let has = rows().iter().any(|(pointer, ..)| {
                let plain: String = pointer
                    .chars()
                    .filter(|letter| !letter.is_ascii_digit())
                    .collect();
                plain == wanted
            });
            if !has {
                missing.insert(wanted);
            }
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}
