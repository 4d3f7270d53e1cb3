//! VLANs and MAC addresses of ports and bridges: modes and conflicts.

use millrace_model::{Config, VlanMode};

fn bridge(settings: &str, port: &str) -> Result<Config, String> {
    let text = format!(
        "[[bridge]]\nname = \"br0\"\n{settings}\n[[bridge.port]]\nname = \"p1\"\nnumber = 1\ndevice = \"tap:p1\"\n{port}\n"
    );
    Config::from_toml("test.toml", &text).map_err(|errors| errors.to_string())
}

#[test]
fn the_mode_of_a_port_follows_from_its_keys() {
    for (keys, is_it) in [
        (
            "",
            (|mode| matches!(mode, VlanMode::TrunkAll)) as fn(VlanMode<'_>) -> bool,
        ),
        ("vlan = 5", |mode| matches!(mode, VlanMode::Access(_))),
        ("vlan = 5\ntrunks = [6]", |mode| {
            matches!(mode, VlanMode::Native { .. })
        }),
        ("vlan = 5\nvlan_tagged = true", |mode| {
            matches!(mode, VlanMode::NativeTagged { others: [], .. })
        }),
        ("vlan = 5\ntrunks = [6]\nvlan_tagged = true", |mode| {
            matches!(mode, VlanMode::NativeTagged { others: [_], .. })
        }),
        (
            "vlan = 5\ndot1q_tunnel = {}",
            |mode| matches!(mode, VlanMode::Tunnel { customer, .. } if customer.customer_vlans.is_empty()),
        ),
    ] {
        let config = bridge("", keys).unwrap();
        assert!(is_it(config.bridges[0].ports[0].vlan_mode()), "{keys}");
    }
}

#[test]
fn the_datapath_id_is_that_of_the_local_mac_address_unless_one_is_given() {
    let id = |settings: &str| bridge(settings, "").unwrap().bridges[0].datapath_id().0;
    let local = "local = \"tap\"\nlocal_mac = \"02:00:00:00:00:07\"";
    assert_eq!(id(local), 0x0200_0000_0007);
    assert_eq!(id(&format!("{local}\ndpid = \"0000000000000009\"")), 9);
    let config = bridge(local, "mac = \"02:00:00:00:00:08\"").unwrap();
    let macs: Vec<_> = config.bridges[0]
        .all_ports()
        .map(|port| port.mac.unwrap().to_string())
        .collect();
    assert_eq!(macs, ["02:00:00:00:00:07", "02:00:00:00:00:08"]);
}

#[test]
fn values_that_cannot_work_are_refused_with_the_reason() {
    for (settings, port, said) in [
        ("", "vlan_tagged = true", "`vlan_tagged` without `vlan`"),
        ("", "dot1q_tunnel = {}", "`dot1q_tunnel` without `vlan`"),
        ("", "vlan = 5\ntrunks = [6]\ndot1q_tunnel = {}", "beside `trunks`"),
        (
            "",
            "vlan = 5\nvlan_tagged = true\ndot1q_tunnel = {}",
            "beside `vlan_tagged`",
        ),
        ("", "vlan = 5\ndot1q_tunnel = { customer_vlans = [7, 7] }", "VLAN"),
        (
            "",
            "vlan = 5\ndot1q_tunnel = { service_tag = \"802.1x\" }",
            "802.1ad",
        ),
        ("", "mac = \"01:00:00:00:00:01\"", "whose first byte is even"),
        ("", "mac = \"00:00:00:00:00:00\"", "not zero"),
        (
            "local_mac = \"02:00:00:00:00:01\"",
            "",
            "the bridge has no LOCAL port",
        ),
        ("flood_vlans = [7, 7]", "", "VLAN"),
    ] {
        let error = bridge(settings, port).unwrap_err();
        assert!(error.contains(said), "{settings} {port}: {error}");
    }
    let text = "[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"p1\"\nnumber = 1\ndevice = \"kernel:e1\"\nmac = \"02:00:00:00:00:01\"\n";
    let error = Config::from_toml("test.toml", text).unwrap_err().to_string();
    assert!(
        error.contains("kernel:e1 has a MAC address of its own"),
        "{error}"
    );
}
