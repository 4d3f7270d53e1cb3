//! Tests of the requests Capabilities and Get of gNMI.

use millrace_gnmi::proto::gnmi::get_request::DataType;
use millrace_gnmi::proto::gnmi::typed_value::Value;
use millrace_gnmi::proto::gnmi::{Encoding, GetRequest, GetResponse, Path};
use millrace_gnmi::{capabilities, get};
use serde_json::{Value as Json, json};
use tonic::Code;

use super::fake::{Switch, path};

fn request(text: &str) -> GetRequest {
    GetRequest {
        path: vec![path(text)],
        encoding: Encoding::JsonIetf.into(),
        ..GetRequest::default()
    }
}

fn values(response: &GetResponse) -> Vec<Json> {
    let updates = response.notification.iter().flat_map(|one| &one.update);
    updates
        .map(
            |update| match update.val.as_ref().and_then(|val| val.value.as_ref()) {
                Some(Value::JsonIetfVal(bytes) | Value::JsonVal(bytes)) => {
                    serde_json::from_slice(bytes).unwrap()
                }
                other => panic!("{other:?}"),
            },
        )
        .collect()
}

fn ask(text: &str) -> Vec<Json> {
    values(&get(&request(text), &Switch::new().view(), 1).unwrap())
}

#[test]
fn capabilities_list_the_models_and_encodings_that_work() {
    let response = capabilities();
    let names: Vec<&str> = response
        .supported_models
        .iter()
        .map(|model| model.name.as_str())
        .collect();
    assert!(
        names.contains(&"openconfig-interfaces") && names.contains(&"millrace"),
        "{names:?}"
    );
    assert_eq!(response.g_nmi_version, "0.10.0");
}

#[test]
fn the_configuration_is_read_by_its_own_names() {
    assert_eq!(ask("/bridge[name=br0]/port[name=p2]/mtu"), [json!(9000)]);
    assert_eq!(
        ask("/millrace:bridge[name=br0]/port[name=p2]/trunks"),
        [json!([10, 20])]
    );
    assert_eq!(ask("/bridge[name=br0]/port/name"), [json!("p1"), json!("p2")]);
    assert_eq!(ask("/bridge[name=*]/port[name=*]/number"), [json!(1), json!(2)]);
    // Integers of 64 bits are strings in JSON_IETF.
    assert_eq!(
        ask("/switch_state/port[bridge=br0][name=p1]/rx/packets"),
        [json!("5")]
    );
}

#[test]
fn ports_are_interfaces_of_openconfig() {
    let state = "/interfaces/interface[name=br0|p1]/state";
    assert_eq!(ask(&format!("{state}/oper-status")), [json!("UP")]);
    assert_eq!(ask(&format!("{state}/counters/in-octets")), [json!("320")]);
    let vlan = ask("/interfaces/interface[name=br0|p2]/ethernet/switched-vlan/config");
    assert_eq!(
        vlan,
        [json!({"interface-mode": "TRUNK", "trunk-vlans": [10, 20]})]
    );
    let whole = ask("/openconfig-interfaces:interfaces/interface[name=br0|p1]");
    assert_eq!(
        whole[0]["openconfig-if-ethernet:ethernet"]["openconfig-vlan:switched-vlan"]["config"]["access-vlan"],
        7
    );
    assert_eq!(whole[0]["config"]["type"], "iana-if-type:ethernetCsmacd");
}

#[test]
fn the_root_has_both_models_and_an_origin_one() {
    let top = |origin: &str| {
        let mut asked = request("");
        asked.path = vec![Path {
            origin: origin.to_owned(),
            ..Path::default()
        }];
        let response = get(&asked, &Switch::new().view(), 1).unwrap();
        let updates = response.notification[0].update.iter();
        updates
            .map(|one| one.path.as_ref().unwrap().elem[0].name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(top("openconfig"), ["interfaces"]);
    assert!(
        top("millrace").contains(&"bridge".to_owned()) && !top("millrace").contains(&"interfaces".to_owned())
    );
    assert!(top("").contains(&"bridge".to_owned()) && top("").contains(&"interfaces".to_owned()));
}

#[test]
fn configuration_and_state_are_told_apart() {
    let of = |kind: DataType| {
        let mut asked = request("/interfaces/interface[name=br0|p1]");
        asked.r#type = kind.into();
        values(&get(&asked, &Switch::new().view(), 1).unwrap()).remove(0)
    };
    let (config, state) = (of(DataType::Config), of(DataType::State));
    assert!(
        config.get("config").is_some() && config.get("state").is_none(),
        "{config}"
    );
    assert!(
        state.get("state").is_some() && state.get("config").is_none() && state["name"] == "br0/p1",
        "{state}"
    );
}

#[test]
fn a_path_without_a_node_is_invalid_and_one_without_data_is_not_found() {
    let code = |text: &str| get(&request(text), &Switch::new().view(), 1).unwrap_err().code();
    assert_eq!(code("/bridges"), Code::InvalidArgument);
    assert_eq!(
        code("/bridge[name=br0]/port[name=p1]/mtu/x"),
        Code::InvalidArgument
    );
    assert_eq!(code("/bridge[id=br0]"), Code::InvalidArgument);
    assert_eq!(code("/system[name=x]"), Code::InvalidArgument);
    assert_eq!(code("/.../mtu"), Code::InvalidArgument);
    assert_eq!(code("/bridge[name=br9]"), Code::NotFound);
    assert_eq!(code("/bridge[name=br9]/nothing"), Code::InvalidArgument);
    assert_eq!(ask("/bridge[name=*]/lag[name=*]"), [] as [Json; 0]);
    let mut asked = request("/bridge");
    asked.encoding = Encoding::Ascii.into();
    assert_eq!(
        get(&asked, &Switch::new().view(), 1).unwrap_err().code(),
        Code::Unimplemented
    );
    asked = request("/bridge");
    asked.path[0].origin = "cli".to_owned();
    assert_eq!(
        get(&asked, &Switch::new().view(), 1).unwrap_err().code(),
        Code::InvalidArgument
    );
}

#[test]
fn a_prefix_goes_before_each_path_and_its_target_comes_back() {
    let mut asked = request("port[name=p1]/vlan");
    asked.prefix = Some(Path {
        target: "switch1".to_owned(),
        origin: "millrace".to_owned(),
        ..path("/bridge[name=br0]")
    });
    asked.encoding = Encoding::Proto.into();
    let response = get(&asked, &Switch::new().view(), 7).unwrap();
    let notification = &response.notification[0];
    assert_eq!(
        (
            notification.timestamp,
            notification.prefix.as_ref().unwrap().target.as_str()
        ),
        (7, "switch1")
    );
    let update = &notification.update[0];
    assert_eq!(update.path.as_ref().unwrap().origin, "millrace");
    assert_eq!(update.val.as_ref().unwrap().value, Some(Value::UintVal(7)));
}
