//! Outputs of iproute2 as text.

use millrace_import::{Weight, linux};

use crate::{differences, findings, has, is_valid};

pub(crate) const LINKS: &str = r#"[
 {"ifname":"lo","linkinfo":{}},
 {"ifname":"br0","linkinfo":{"info_kind":"bridge","info_data":{"ageing_time":60000,"stp_state":0,"vlan_filtering":1,"vlan_protocol":"802.1Q","mcast_snooping":1,"group_fwd_mask":"0"}}},
 {"ifname":"br1","linkinfo":{"info_kind":"bridge","info_data":{"ageing_time":30000,"stp_state":1,"priority":4096,"hello_time":200,"max_age":2000,"forward_delay":1500,"vlan_filtering":0,"mcast_snooping":0}}},
 {"ifname":"a","master":"br0","linkinfo":{"info_kind":"veth","info_slave_kind":"bridge","info_slave_data":{"no":"0x2","cost":2,"flood":true,"mcast_flood":true,"bcast_flood":true,"learning":true}}},
 {"ifname":"b","master":"br0","linkinfo":{"info_slave_kind":"bridge","info_slave_data":{"no":"0x1","hairpin":true,"isolated":true,"flood":false,"mcast_flood":false,"bcast_flood":false}}},
 {"ifname":"c","master":"br0","linkinfo":{"info_slave_kind":"bridge","info_slave_data":{"no":"0x3","flood":false,"mcast_flood":true,"bcast_flood":true}}},
 {"ifname":"vx","master":"br1","linkinfo":{"info_kind":"vxlan","info_data":{"id":42,"remote":"192.0.2.1","local":"192.0.2.2"},"info_slave_kind":"bridge","info_slave_data":{"no":"0x1","cost":100,"guard":true}}},
 {"ifname":"br1.10","link":"br1","linkinfo":{"info_kind":"vlan","info_data":{"id":10}}}
]"#;
const VLANS: &str = r#"[
 {"ifname":"a","vlans":[{"vlan":10,"flags":["PVID","Egress Untagged"]}]},
 {"ifname":"b","vlans":[{"vlan":1,"flags":["PVID","Egress Untagged"]},{"vlan":20,"vlanEnd":22},{"vlan":30,"flags":["Egress Untagged"]}]},
 {"ifname":"br0","vlans":[{"vlan":10,"flags":["PVID","Egress Untagged"]}]}
]"#;
const ADDRESSES: &str = r#"[{"ifname":"br0","addr_info":[{"family":"inet","local":"192.0.2.9","prefixlen":24,"scope":"global"},{"family":"inet6","local":"fe80::1","prefixlen":64,"scope":"link"}]}]"#;
const ENTRIES: &str = r#"[{"mac":"02:00:00:00:00:09","ifname":"a","master":"br0","state":"static"},{"mac":"33:33:00:00:00:01","ifname":"a","flags":["self"],"state":"permanent"}]"#;

#[test]
fn bridges_with_vlans_stp_addresses_and_vxlan_are_a_configuration() {
    let texts = [
        ("links", LINKS),
        ("vlans", VLANS),
        ("addresses", ADDRESSES),
        ("fdb", ENTRIES),
    ];
    let texts: Vec<(&str, &[u8])> = texts
        .iter()
        .map(|(name, text)| (*name, text.as_bytes()))
        .collect();
    let imported = linux::read(&texts).unwrap();
    is_valid(&imported);
    let text = imported.config.to_toml();
    has(
        &text,
        &[
            "mac_ageing_s = 600",
            "name = \"b\"\nnumber = 1\ndevice = \"kernel:b\"\nvlan = 1\ntrunks = [20, 21, 22, 30]\nno_flood = true",
            "name = \"a\"\nnumber = 2\ndevice = \"kernel:a\"\nvlan = 10",
            // A port without VLANs carries nothing.
            "name = \"c\"\nnumber = 3\ndevice = \"kernel:c\"\nno_recv = true\nno_fwd = true",
            "name = \"host\"\nnumber = 4\ndevice = \"tap:br0\"\nvlan = 10",
            "version = \"stp\"\npriority = 4096",
            "bpdu_guard = true",
            "local = \"tap\"",
            "fail_mode = \"standalone\"",
        ],
    );
    let differences = differences(&imported);
    has(
        &differences,
        &[
            "br0, b: hairpin on: ",
            "br0, b: isolated on: ",
            "br0, b: VLAN 30 leaves without a tag",
            "br0, c: flood off",
            "br0: the static entry 02:00:00:00:00:09 at a: expected `millrace flow add br0 eth_dst=02:00:00:00:00:09,actions=output:a`",
            "br1: br1.10: an interface of kind vlan above br1",
        ],
    );
    assert_eq!(differences.lines().count(), 6, "{differences}");
    has(
        &findings(&imported, Weight::Note),
        &[
            "mcast_snooping 1",
            "address 192.0.2.9/24",
            "vxlan:remote=192.0.2.1,local=192.0.2.2,underlay=PORT,key=42",
        ],
    );
}

#[test]
fn outputs_without_details_or_bridges_are_refused_by_name() {
    let reason = |text: &str| linux::read(&[("l", text.as_bytes())]).unwrap_err().to_string();
    has(
        &reason(r#"[{"ifname":"a","master":"br0"}]"#),
        &["l: interfaces without their kinds", "with -d"],
    );
    has(&reason("[]"), &["l: no bridge"]);
    has(&reason("{"), &["l: no JSON"]);
    has(&reason("3"), &["expected a list"]);
    has(
        &reason(r#"[{"ifname":"a","vlans":[{"vlan":5000}]}]"#),
        &["a: VLAN 5000", "1 to 4094"],
    );
}
