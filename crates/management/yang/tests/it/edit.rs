//! Edits of RFC 6241, section 7.2, on documents of the configuration.

use millrace_model::Config;
use millrace_yang::data::{completed, to_xml, trimmed};
use millrace_yang::edit::{Editor, Operation, Problem, from_json, from_xml};
use millrace_yang::schema::configuration;
use millrace_yang::xml::Element;
use millrace_yang::{NAMESPACE, data};
use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};

const BASE: &str = r#"
    [[bridge]]
    name = "br0"
    fail_mode = "standalone"
    [[bridge.port]]
    name = "p1"
    number = 1
    device = "memory"
    mtu = 9000
    trunks = [10, 20]
    [[bridge.port]]
    name = "p2"
    number = 2
    device = "memory"
"#;

fn base() -> Map<String, Json> {
    let config = Config::from_toml("test", BASE).unwrap();
    trimmed(configuration(), config.to_json().as_object().unwrap())
}

/// Applies the XML inside of `config` and returns the document, or the first problem.
fn edited(inner: &str, default: Operation) -> Result<Map<String, Json>, Problem> {
    let text = format!(
        r#"<config xmlns:nc="urn:ietf:params:xml:ns:netconf:base:1.0" xmlns:yang="urn:ietf:params:xml:ns:yang:1" xmlns="{NAMESPACE}">{inner}</config>"#
    );
    let element = Element::parse(text.as_bytes()).unwrap();
    let mut editor = Editor {
        stops_at_errors: true,
        ..Editor::default()
    };
    let edits = from_xml(
        configuration(),
        &element.children,
        NAMESPACE,
        "",
        &mut editor.errors,
    );
    let mut document = base();
    editor.apply(configuration(), &mut document, &edits, default, "");
    match editor.errors.into_iter().next() {
        None => Ok(document),
        Some(error) => Err(error.problem),
    }
}

fn port(inner: &str) -> String {
    format!("<bridge><name>br0</name><port>{inner}</port></bridge>")
}

#[test]
fn each_operation_does_what_rfc_6241_says() {
    let merge = |inner: &str| edited(inner, Operation::Merge);
    let p1 = |document: &Map<String, Json>| document["bridge"][0]["port"][0].clone();

    let set = merge(&port("<name>p1</name><mtu>2000</mtu>")).unwrap();
    assert_eq!(
        (p1(&set)["mtu"].as_u64(), p1(&set)["device"].as_str()),
        (Some(2000), Some("memory"))
    );

    let replaced = merge(
        &port(r#"<name>p1</name><number>1</number><device>memory</device>"#)
            .replace("<port>", r#"<port nc:operation="replace">"#),
    )
    .unwrap();
    assert_eq!(
        p1(&replaced),
        json!({"name": "p1", "number": 1, "device": "memory"})
    );

    let create = |name: &str| {
        merge(
            &port(&format!(
                "<name>{name}</name><number>3</number><device>memory</device>"
            ))
            .replace("<port>", r#"<port nc:operation="create">"#),
        )
    };
    assert_eq!(create("p1"), Err(Problem::DataExists));
    assert_eq!(create("p3").unwrap()["bridge"][0]["port"][2]["name"], "p3");

    let remove = |operation: &str, name: &str| {
        merge(
            &port(&format!("<name>{name}</name>"))
                .replace("<port>", &format!(r#"<port nc:operation="{operation}">"#)),
        )
    };
    assert_eq!(remove("delete", "p9"), Err(Problem::DataMissing));
    assert_eq!(remove("remove", "p9").unwrap(), base());
    assert_eq!(
        remove("delete", "p1").unwrap()["bridge"][0]["port"]
            .as_array()
            .unwrap()
            .len(),
        1
    );

    // `none` only leads to operations, and to nothing that does not exist.
    let none = |inner: &str| edited(inner, Operation::None);
    assert_eq!(none(&port("<name>p1</name><mtu>1</mtu>")).unwrap(), base());
    assert_eq!(none(&port("<name>p9</name>")), Err(Problem::DataMissing));
    let set = none(&port(r#"<name>p1</name><mtu nc:operation="merge">2000</mtu>"#)).unwrap();
    assert_eq!(p1(&set)["mtu"], 2000);
}

#[test]
fn a_value_that_equals_its_default_does_not_exist() {
    let operation = |operation: &str, value: &str| {
        edited(
            &port(&format!(
                r#"<name>p2</name><mtu nc:operation="{operation}">{value}</mtu>"#
            )),
            Operation::Merge,
        )
    };
    assert_eq!(operation("delete", ""), Err(Problem::DataMissing));
    assert_eq!(operation("create", "1500").unwrap(), base());
    assert_eq!(
        operation("create", "1400").unwrap()["bridge"][0]["port"][1]["mtu"],
        1400
    );
}

#[test]
fn values_of_a_leaf_list_are_entries_with_places() {
    let trunks = |inner: &str| {
        let document = edited(&port(&format!("<name>p1</name>{inner}")), Operation::Merge)?;
        Ok::<Json, Problem>(
            document["bridge"][0]["port"][0]
                .get("trunks")
                .cloned()
                .unwrap_or_default(),
        )
    };
    assert_eq!(trunks("<trunks>30</trunks>").unwrap(), json!([10, 20, 30]));
    assert_eq!(trunks("<trunks>10</trunks>").unwrap(), json!([10, 20]));
    assert_eq!(
        trunks(r#"<trunks yang:insert="first">30</trunks>"#).unwrap(),
        json!([30, 10, 20])
    );
    assert_eq!(
        trunks(r#"<trunks yang:insert="before" yang:value="20">30</trunks>"#).unwrap(),
        json!([10, 30, 20])
    );
    assert_eq!(
        trunks(r#"<trunks yang:insert="after" yang:value="20">10</trunks>"#).unwrap(),
        json!([20, 10])
    );
    assert_eq!(
        trunks(r#"<trunks nc:operation="delete">10</trunks>"#).unwrap(),
        json!([20])
    );
    assert_eq!(
        trunks(r#"<trunks nc:operation="delete">11</trunks>"#),
        Err(Problem::DataMissing)
    );
    assert!(matches!(
        trunks(r#"<trunks yang:insert="before" yang:value="9">30</trunks>"#),
        Err(Problem::BadAttribute(..))
    ));
    assert!(matches!(
        trunks("<trunks>5000</trunks>"),
        Err(Problem::InvalidValue(_))
    ));
}

#[test]
fn entries_keep_their_order_and_may_be_moved() {
    let names = |inner: &str| {
        let document = edited(&port(inner), Operation::Merge).unwrap();
        let ports = document["bridge"][0]["port"].as_array().unwrap().clone();
        ports
            .iter()
            .map(|port| port["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names("<name>p1</name><mtu>1400</mtu>"), ["p1", "p2"]);
    let moved = r#"<bridge><name>br0</name><port yang:insert="first"><name>p2</name></port></bridge>"#;
    let document = edited(moved, Operation::Merge).unwrap();
    assert_eq!(document["bridge"][0]["port"][0]["name"], "p2");
    let after = r#"<bridge><name>br0</name><port yang:insert="after" yang:key="[name='p2']"><name>p1</name></port></bridge>"#;
    let document = edited(after, Operation::Merge).unwrap();
    assert_eq!(document["bridge"][0]["port"][1]["name"], "p1");
}

#[test]
fn what_the_schema_does_not_have_is_named() {
    let problem = |inner: &str| edited(inner, Operation::Merge).unwrap_err();
    assert!(matches!(problem("<brigde/>"), Problem::UnknownElement(name, _) if name == "brigde"));
    assert!(matches!(problem(r#"<bridge xmlns="urn:x"/>"#), Problem::UnknownNamespace(ns) if ns == "urn:x"));
    assert_eq!(
        problem("<bridge><fail_mode>secure</fail_mode></bridge>"),
        Problem::MissingKey("name".to_owned())
    );
    assert!(matches!(
        problem(r#"<bridge nc:operation="move"><name>br0</name></bridge>"#),
        Problem::BadAttribute(..)
    ));
    assert!(matches!(
        problem("<bridge><name>br0</name><fail_mode>open</fail_mode></bridge>"),
        Problem::InvalidValue(_)
    ));
}

#[test]
fn content_that_a_node_does_not_have_is_refused() {
    let problem = |inner: &str| edited(inner, Operation::Merge).unwrap_err();
    let bad = |inner: &str| matches!(problem(inner), Problem::BadElement(_));
    assert!(bad(
        "<bridge><name>br0</name><tables>2</tables><tables>3</tables></bridge>"
    ));
    assert!(bad("<bridge><name>br0</name><name>br1</name></bridge>"));
    assert!(bad("<bridge><name>br0</name><lldp/><lldp/></bridge>"));
    assert!(bad("<bridge><name>br0</name>text</bridge>"));
    assert!(bad(
        "<bridge><name>br0</name><fail_mode><secure/></fail_mode></bridge>"
    ));
    for operation in ["delete", "remove"] {
        let key = format!(r#"<name nc:operation="{operation}">p1</name>"#);
        assert!(
            matches!(problem(&port(&key)), Problem::BadAttribute(..)),
            "{operation}"
        );
    }
    // Without its namespace, an operation would not be done: the element would be merged.
    let bare = r#"<port operation="delete"><name>p1</name></port>"#;
    assert!(matches!(
        problem(&format!("<bridge><name>br0</name>{bare}</bridge>")),
        Problem::BadAttribute(name, _) if name == "operation"
    ));
    // Entries of lists and of leaf-lists may occur many times.
    let twice = "<bridge><name>br0</name><port><name>p1</name><trunks>1</trunks><trunks>2</trunks></port><port><name>p2</name></port></bridge>";
    assert!(edited(twice, Operation::Merge).is_ok());
}

#[test]
fn json_of_rfc_7951_makes_the_same_edits() {
    let object =
        json!({"millrace:bridge": [{"name": "br0", "port": [{"name": "p1", "mtu": 1400, "trunks": [7]}]}]});
    let edits = from_json(configuration(), object.as_object().unwrap(), "").unwrap();
    let mut document = base();
    let mut editor = Editor::default();
    editor.apply(configuration(), &mut document, &edits, Operation::Merge, "");
    assert_eq!(editor.errors, []);
    let port = &document["bridge"][0]["port"][0];
    assert_eq!((&port["mtu"], &port["trunks"]), (&json!(1400), &json!([7])));
    for bad in [
        json!({"nothing": 1}),
        json!({"bridge": {}}),
        json!({"bridge": [1]}),
        json!({"system": 1}),
    ] {
        assert!(
            from_json(configuration(), bad.as_object().unwrap(), "").is_err(),
            "{bad}"
        );
    }
}

#[test]
fn a_document_written_as_xml_and_merged_into_nothing_is_the_same_document() {
    let document = base();
    let elements = to_xml(configuration(), &document, NAMESPACE);
    let text: String = elements.iter().map(ToString::to_string).collect();
    let read = Element::parse(format!("<c>{text}</c>").as_bytes()).unwrap();
    let mut editor = Editor::default();
    let edits = from_xml(configuration(), &read.children, NAMESPACE, "", &mut editor.errors);
    let mut result = Map::new();
    editor.apply(configuration(), &mut result, &edits, Operation::Merge, "");
    assert_eq!((editor.errors, &result), (vec![], &document));
    let config = Config::from_json(&Json::Object(completed(configuration(), &result))).unwrap();
    assert_eq!(config, Config::from_toml("test", BASE).unwrap());
    assert_eq!(data::trimmed(configuration(), &result), document);
}

proptest! {
    /// Any text is read or refused, and any element can be applied.
    #[test]
    fn no_message_makes_the_editor_panic(text in "(<(bridge|port|name|mtu|x)( nc:operation=\"(delete|replace|create)\")?>|</(bridge|port|name|mtu|x)>|br0|p1|1){0,30}") {
        let text = format!(r#"<config xmlns:nc="urn:ietf:params:xml:ns:netconf:base:1.0" xmlns="{NAMESPACE}">{text}</config>"#);
        if let Ok(element) = Element::parse(text.as_bytes()) {
            let mut editor = Editor::default();
            let edits = from_xml(configuration(), &element.children, NAMESPACE, "", &mut editor.errors);
            let mut document = base();
            editor.apply(configuration(), &mut document, &edits, Operation::Merge, "");
            prop_assert_eq!(data::trimmed(configuration(), &document), document);
        }
    }
}
