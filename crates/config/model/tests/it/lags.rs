//! LAGs in the configuration: what is accepted, and the message for each mistake.

use millrace_model::{Config, LagFallback, LagMode, LagRate};

const BRIDGE: &str = r#"
    [[bridge]]
    name = "br0"

    [[bridge.port]]
    name = "uplink"
    number = 5
    device = "lag:uplink"

    [[bridge.port]]
    name = "p1"
    number = 1
    device = "kernel:eth1"
"#;

const MEMBERS: &str = r#"
    [[bridge.lag.member]]
    name = "u1"
    number = 11
    device = "kernel:eth11"

    [[bridge.lag.member]]
    name = "u2"
    number = 12
    device = "kernel:eth12"
"#;

fn lag(settings: &str, members: &str) -> String {
    format!("{BRIDGE}\n[[bridge.lag]]\nname = \"uplink\"\n{settings}\n{members}")
}

fn errors(text: &str) -> Vec<String> {
    match Config::from_toml("m.toml", text) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.to_string().lines().map(str::to_owned).collect(),
    }
}

#[test]
fn a_lag_has_the_defaults_of_most_systems_and_is_the_device_of_a_port() {
    let config = Config::from_toml("m.toml", &lag("", MEMBERS)).unwrap();
    let bridge = &config.bridges[0];
    let lag = bridge.lag_of(&bridge.ports[0]).unwrap();
    assert_eq!(
        (lag.mode, lag.rate, lag.fallback),
        (LagMode::Active, LagRate::Slow, LagFallback::None)
    );
    assert_eq!((lag.min_links.get(), lag.system_priority.get()), (1, 32_768));
    assert_eq!(lag.system_address(bridge).to_u64(), bridge.datapath_id().0);
    assert_eq!(lag.mac_address(bridge).0[0], 0x02, "locally administered");
    assert!(bridge.lag_of(&bridge.ports[1]).is_none());
    let again = Config::from_toml("m.toml", &config.to_toml()).unwrap();
    assert_eq!(again, config);
}

#[test]
fn each_mistake_has_a_message_that_says_what_was_expected() {
    let other = |member: &str| lag("", &format!("{MEMBERS}\n[[bridge.lag.member]]\n{member}"));
    let second = format!(
        "{}\n[[bridge.lag]]\nname = \"other\"\n[[bridge.lag.member]]\nname = \"o1\"\nnumber = 13\ndevice = \"kernel:eth12\"",
        lag("", MEMBERS)
    );
    for (text, expected) in [
        (
            other("name = \"u3\"\nnumber = 13\ndevice = \"kernel:eth1\""),
            "iface=eth1",
        ),
        (second.clone(), "iface=eth12"),
        (second, "expected a [[bridge.port]] with the device lag:other"),
        (
            other("name = \"p1\"\nnumber = 13\ndevice = \"kernel:eth13\""),
            "port name",
        ),
        (
            other("name = \"u3\"\nnumber = 1\ndevice = \"kernel:eth13\""),
            "port number",
        ),
        (
            other("name = \"u3\"\nnumber = 65536\ndevice = \"kernel:eth13\""),
            "expected at most 65535",
        ),
        (
            other("name = \"u3\"\nnumber = 13\ndevice = \"lag:uplink\""),
            "a LAG has no LAGs as members",
        ),
        (
            other(
                "name = \"u3\"\nnumber = 13\ndevice = \"vxlan:remote=1.2.3.4,local=1.2.3.5,underlay=p1,key=7\"",
            ),
            "a tunnel has no link of its own",
        ),
        (lag("", ""), "0 members: expected 1 to 16"),
        (lag("min_links = 3", MEMBERS), "expected at most that"),
        (BRIDGE.to_owned(), "expected a [[bridge.lag]] with this name"),
        (
            lag("", MEMBERS).replace(
                "device = \"lag:uplink\"",
                "device = \"lag:uplink\"\nrate = \"1Gbps\"",
            ),
            "expected none, or rates of flows by meters",
        ),
        (
            lag("", MEMBERS).replace("device = \"lag:uplink\"", "device = \"lag:uplink\"\nqueues = 2"),
            "expected `queues` at its members",
        ),
        (
            lag("", MEMBERS).replace("number = 5", "number = 2000"),
            "expected at most 1023, or `mode = \"on\"`",
        ),
        (
            lag("", MEMBERS).replace("device = \"kernel:eth1\"", "device = \"lag:uplink\""),
            "expected one port for each LAG",
        ),
        (
            lag("system = \"01:00:00:00:00:00\"", MEMBERS),
            "01:00:00:00:00:00",
        ),
        (lag("mode = \"trunk\"", MEMBERS), "active"),
    ] {
        let found = errors(&text);
        assert!(
            found.iter().any(|message| message.contains(expected)),
            "{expected}: {found:#?}\n{text}"
        );
    }
}

#[test]
fn a_static_lag_takes_any_port_number() {
    let text = lag("mode = \"on\"", MEMBERS).replace("number = 5", "number = 2000");
    assert_eq!(errors(&text), Vec::<String>::new());
}
