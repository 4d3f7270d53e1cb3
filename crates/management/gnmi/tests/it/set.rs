//! Set and the Commit extension.

use millrace_gnmi::proto::gnmi::typed_value::Value;
use millrace_gnmi::proto::gnmi::{SetRequest, TypedValue, Update};
use millrace_gnmi::proto::gnmi_ext::{
    Commit, CommitCancel, CommitConfirm, CommitRequest, CommitSetRollbackDuration, Extension, commit,
    extension,
};
use millrace_gnmi::set;
use proptest::prelude::*;
use serde_json::json;
use tonic::Code;

use super::fake::{Switch, path, update};

fn updates(list: Vec<Update>) -> SetRequest {
    SetRequest {
        update: list,
        ..SetRequest::default()
    }
}

fn replaces(list: Vec<Update>) -> SetRequest {
    SetRequest {
        replace: list,
        ..SetRequest::default()
    }
}

fn deletes(paths: &[&str]) -> SetRequest {
    SetRequest {
        delete: paths.iter().map(|text| path(text)).collect(),
        ..SetRequest::default()
    }
}

#[test]
fn one_leaf_of_an_entry_that_exists_is_set_without_the_rest() {
    let mut switch = Switch::new();
    let response = set(
        &updates(vec![update("/bridge[name=br0]/port[name=p1]/mtu", json!(1400))]),
        &mut switch,
        9,
    )
    .unwrap();
    assert_eq!(
        (switch.port(0, "mtu"), switch.port(0, "vlan")),
        (json!(1400), json!(7))
    );
    assert_eq!((response.timestamp, response.response.len()), (9, 1));
    let scalar = Update {
        val: Some(TypedValue {
            value: Some(Value::UintVal(1500)),
        }),
        ..update("/bridge[name=br0]/port[name=p1]/mtu", json!(0))
    };
    set(&updates(vec![scalar]), &mut switch, 9).unwrap();
    assert_eq!(switch.port(0, "mtu"), json!(1500));
}

#[test]
fn replace_removes_what_is_not_given_and_update_does_not() {
    let value = json!({"number": 2, "device": "memory"});
    let mut switch = Switch::new();
    set(
        &updates(vec![update("/bridge[name=br0]/port[name=p2]", value.clone())]),
        &mut switch,
        0,
    )
    .unwrap();
    assert_eq!(switch.port(1, "mtu"), json!(9000));
    set(
        &replaces(vec![update("/bridge[name=br0]/port[name=p2]", value)]),
        &mut switch,
        0,
    )
    .unwrap();
    assert_eq!(
        (switch.port(1, "mtu"), switch.port(1, "trunks")),
        (json!(1500), json!([]))
    );
    let list = json!([{"name": "p9", "number": 9, "device": "memory"}]);
    set(
        &replaces(vec![update("/bridge[name=br0]/port", list)]),
        &mut switch,
        0,
    )
    .unwrap();
    assert_eq!(
        (switch.port(0, "name"), switch.port(1, "name")),
        (json!("p9"), json!(null))
    );
}

#[test]
fn deletes_come_first_and_what_does_not_exist_is_deleted_already() {
    let mut switch = Switch::new();
    let request = SetRequest {
        delete: vec![path("/bridge[name=br0]/port[name=*]"), path("/bridge[name=br9]")],
        update: vec![update(
            "/bridge[name=br0]/port[name=p3]",
            json!({"number": 3, "device": "memory"}),
        )],
        ..SetRequest::default()
    };
    set(&request, &mut switch, 0).unwrap();
    assert_eq!(
        (switch.port(0, "name"), switch.port(1, "name")),
        (json!("p3"), json!(null))
    );
    assert_eq!(switch.head(), 1);
}

#[test]
fn one_bad_path_of_twenty_changes_nothing() {
    let mut switch = Switch::new();
    let mut list: Vec<Update> = (0..19)
        .map(|n| update("/bridge[name=br0]/tables", json!(n + 1)))
        .collect();
    list.push(update("/bridge[name=br0]/tabels", json!(1)));
    assert_eq!(
        set(&updates(list), &mut switch, 0).unwrap_err().code(),
        Code::InvalidArgument
    );
    assert_eq!(switch.head(), 0);
    // Well formed, but the switch refuses it: two ports with one number.
    let double = updates(vec![update("/bridge[name=br0]/port[name=p1]/number", json!(2))]);
    assert_eq!(
        set(&double, &mut switch, 0).unwrap_err().code(),
        Code::InvalidArgument
    );
    assert_eq!(switch.head(), 0);
}

#[test]
fn interfaces_of_openconfig_change_ports_and_nothing_that_they_cannot_say() {
    let mut switch = Switch::new();
    let one = "/interfaces/interface[name=br0|p1]";
    let list = vec![
        update(&format!("{one}/config/enabled"), json!(false)),
        update(
            &format!("{one}/openconfig-if-ethernet:ethernet/openconfig-vlan:switched-vlan/config"),
            json!({"openconfig-vlan:interface-mode": "TRUNK", "native-vlan": 7, "trunk-vlans": ["10..12", 20]}),
        ),
    ];
    // access-vlan is still there.
    assert_eq!(
        set(&updates(list.clone()), &mut switch, 0).unwrap_err().code(),
        Code::InvalidArgument
    );
    set(&replaces(list), &mut switch, 0).unwrap();
    assert_eq!(
        (switch.port(0, "down"), switch.port(0, "device")),
        (json!(true), json!("memory"))
    );
    assert_eq!(
        (switch.port(0, "vlan"), switch.port(0, "trunks")),
        (json!(7), json!([10, 11, 12, 20]))
    );
    // An empty replace of config brings the defaults; the VLANs are elsewhere.
    set(
        &replaces(vec![update(&format!("{one}/config"), json!({}))]),
        &mut switch,
        0,
    )
    .unwrap();
    assert_eq!(
        (switch.port(0, "down"), switch.port(0, "vlan")),
        (json!(false), json!(7))
    );
    // Replacing the list removes the others.
    let keep = json!({"interface": [{"name": "br0/p2", "config": {"name": "br0/p2", "mtu": 1400}}]});
    set(&replaces(vec![update("/interfaces", keep)]), &mut switch, 0).unwrap();
    assert_eq!(
        (
            switch.port(0, "name"),
            switch.port(0, "mtu"),
            switch.port(1, "name")
        ),
        (json!("p2"), json!(1400), json!(null))
    );
    assert_eq!(switch.port(0, "number"), json!(2));
    let new = updates(vec![update(
        "/interfaces/interface[name=br0|p9]/config/mtu",
        json!(1400),
    )]);
    assert!(
        set(&new, &mut switch, 0)
            .unwrap_err()
            .message()
            .contains("needs a device")
    );
    let state = updates(vec![update(
        "/interfaces/interface[name=br0|p2]/state/mtu",
        json!(1400),
    )]);
    assert_eq!(
        set(&state, &mut switch, 0).unwrap_err().code(),
        Code::InvalidArgument
    );
    assert_eq!(
        set(&deletes(&["/switch_state"]), &mut switch, 0)
            .unwrap_err()
            .code(),
        Code::InvalidArgument
    );
}

#[test]
fn a_set_applies_to_what_a_faster_client_left_and_gives_up_in_the_end() {
    let request = updates(vec![update("/bridge[name=br0]/tables", json!(9))]);
    let mut switch = Switch::new();
    switch.rivals = 3;
    set(&request, &mut switch, 0).unwrap();
    assert_eq!(switch.head(), 4);
    switch.rivals = 100;
    assert_eq!(set(&request, &mut switch, 0).unwrap_err().code(), Code::Aborted);
}

#[test]
fn union_replace_and_unknown_extensions_are_refused_by_name() {
    let mut switch = Switch::new();
    let request = SetRequest {
        union_replace: vec![update("/", json!({}))],
        ..SetRequest::default()
    };
    let refused = set(&request, &mut switch, 0).unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    assert!(refused.message().contains("union_replace"));
    let request = SetRequest {
        extension: vec![Extension {
            ext: Some(extension::Ext::MasterArbitration(Default::default())),
        }],
        ..updates(vec![update("/bridge[name=br0]/tables", json!(9))])
    };
    assert_eq!(
        set(&request, &mut switch, 0).unwrap_err().code(),
        Code::Unimplemented
    );
    assert_eq!(switch.head(), 0);
}

fn with_commit(request: SetRequest, id: &str, action: commit::Action) -> SetRequest {
    SetRequest {
        extension: vec![Extension {
            ext: Some(extension::Ext::Commit(Commit {
                id: id.to_owned(),
                action: Some(action),
            })),
        }],
        ..request
    }
}

fn commit_for(seconds: i64) -> commit::Action {
    commit::Action::Commit(CommitRequest {
        rollback_duration: Some(prost_types::Duration { seconds, nanos: 0 }),
    })
}

#[test]
fn a_commit_is_confirmed_extended_or_cancelled_by_its_id() {
    let change = || updates(vec![update("/bridge[name=br0]/tables", json!(9))]);
    let none = SetRequest::default;
    let mut switch = Switch::new();
    let confirm = || commit::Action::Confirm(CommitConfirm {});
    let fails = |switch: &mut Switch, request: SetRequest, code: Code| {
        assert_eq!(set(&request, switch, 0).unwrap_err().code(), code);
    };
    fails(
        &mut switch,
        with_commit(none(), "a", confirm()),
        Code::FailedPrecondition,
    );
    fails(
        &mut switch,
        with_commit(change(), "", commit_for(60)),
        Code::InvalidArgument,
    );
    fails(
        &mut switch,
        with_commit(change(), "a", commit_for(0)),
        Code::InvalidArgument,
    );
    fails(
        &mut switch,
        with_commit(change(), "a", confirm()),
        Code::InvalidArgument,
    );
    set(&with_commit(change(), "a", commit_for(60)), &mut switch, 0).unwrap();
    assert_eq!(switch.pending, Some(1));
    fails(
        &mut switch,
        with_commit(change(), "b", commit_for(60)),
        Code::FailedPrecondition,
    );
    fails(
        &mut switch,
        with_commit(none(), "b", confirm()),
        Code::FailedPrecondition,
    );
    let extend = commit::Action::SetRollbackDuration(CommitSetRollbackDuration {
        rollback_duration: Some(prost_types::Duration {
            seconds: 90,
            nanos: 0,
        }),
    });
    set(&with_commit(none(), "a", extend), &mut switch, 0).unwrap();
    assert_eq!(switch.pending, Some(2));
    set(&with_commit(none(), "a", confirm()), &mut switch, 0).unwrap();
    assert_eq!(
        (switch.pending, switch.document()["bridge"][0]["tables"].clone()),
        (None, json!(9))
    );

    let mut switch = Switch::new();
    set(&with_commit(change(), "c", commit_for(60)), &mut switch, 0).unwrap();
    set(
        &with_commit(none(), "c", commit::Action::Cancel(CommitCancel {})),
        &mut switch,
        0,
    )
    .unwrap();
    assert_eq!(
        (switch.pending, switch.document()["bridge"][0]["tables"].clone()),
        (None, json!(64))
    );
}

proptest! {
    /// Any path and any JSON is a change or a refusal.
    #[test]
    fn no_request_makes_a_set_panic(
        text in "(/(bridge|port|interfaces|interface|config|name|mtu|trunks|\\*)(\\[name=(br0|p1|\\*|br0\\|p1)\\])?){0,5}",
        value in prop_oneof![Just(json!({})), Just(json!([])), Just(json!(1)), Just(json!("x")), Just(json!({"name": "p1", "mtu": 1})), Just(json!([{"name": "p1"}])), Just(json!(null))],
        how in 0..3
    ) {
        let request = match how {
            0 => deletes(&[&text]),
            1 => replaces(vec![update(&text, value)]),
            _ => updates(vec![update(&text, value)]),
        };
        let _ = set(&request, &mut Switch::new(), 0);
    }
}
