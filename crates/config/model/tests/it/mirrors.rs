//! Mirrors in the configuration: what is accepted, and the message for each mistake.

use millrace_model::Config;

const BRIDGE: &str = r#"
    [[bridge]]
    name = "br0"

    [[bridge.port]]
    name = "p1"
    number = 1
    device = "memory"

    [[bridge.port]]
    name = "p2"
    number = 2
    device = "memory"

    [[bridge.port]]
    name = "snoop0"
    number = 3
    device = "memory"

    [[bridge.port]]
    name = "bond0"
    number = 4
    device = "lag:bond0"

    [[bridge.port]]
    name = "vx"
    number = 5
    device = "vxlan:remote=192.0.2.2,local=192.0.2.1,underlay=p2"

    [[bridge.lag]]
    name = "bond0"

    [[bridge.lag.member]]
    name = "m1"
    number = 11
    device = "kernel:eth11"
"#;

fn mirrors(list: &[&str]) -> String {
    let mut text = BRIDGE.to_owned();
    for mirror in list {
        text += "\n[[bridge.mirror]]\n";
        text += mirror;
    }
    text
}

fn errors(text: &str) -> Vec<String> {
    match Config::from_toml("m.toml", text) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.to_string().lines().map(str::to_owned).collect(),
    }
}

#[test]
fn a_mirror_of_all_packets_copies_those_of_all_ports_but_its_output() {
    let text = mirrors(&["name = \"m0\"\nselect_all = true\noutput_port = \"snoop0\""]);
    let config = Config::from_toml("m.toml", &text).unwrap();
    let bridge = &config.bridges[0];
    let mirror = &bridge.mirrors[0];
    let names: Vec<String> = mirror.received(bridge).iter().map(ToString::to_string).collect();
    assert_eq!(names, ["p1", "p2", "bond0", "vx"]);
    assert_eq!(mirror.received(bridge), mirror.sent(bridge));
    let again = Config::from_toml("m.toml", &config.to_toml()).unwrap();
    assert_eq!(again, config);
    let local = text.replace("name = \"br0\"", "name = \"br0\"\nlocal = \"tap\"");
    let config = Config::from_toml("m.toml", &local).unwrap();
    let bridge = &config.bridges[0];
    assert_eq!(bridge.mirrors[0].received(bridge)[0].as_str(), "br0");
}

#[test]
fn several_mirrors_may_have_one_output_and_copy_vlans_with_a_limit() {
    let text = mirrors(&[
        "name = \"m0\"\nselect_received = [\"p1\", \"bond0\"]\nselect_vlans = [0, 10, 4095]\noutput_port = \"snoop0\"\nsnaplen = 14",
        "name = \"m1\"\nselect_sent = [\"p1\"]\noutput_port = \"snoop0\"\nsnaplen = 65535",
        "name = \"m2\"\nselect_sent = [\"p1\"]\noutput_vlan = 900",
    ]);
    assert!(errors(&text).is_empty(), "{:?}", errors(&text));
}

#[test]
fn each_mistake_has_a_message_that_says_what_was_expected() {
    const OUT: &str = "output_port = \"snoop0\"";
    let one = |settings: &str| mirrors(&[&format!("name = \"m0\"\n{settings}")]);
    for (text, expected) in [
        (
            one(&format!("select_received = [\"p9\"]\n{OUT}")),
            "the bridge has no port `p9`",
        ),
        (
            one("select_all = true\noutput_port = \"p9\""),
            "the bridge has no port `p9`",
        ),
        (
            one(&format!("select_sent = [\"m1\"]\n{OUT}")),
            "expected the port of the LAG",
        ),
        (
            one(&format!("select_sent = [\"br0\"]\n{OUT}")),
            "no LOCAL port `br0`",
        ),
        (
            one(&format!("select_sent = [\"snoop0\"]\n{OUT}")),
            "`snoop0` is the output port of mirror `m0`",
        ),
        (
            mirrors(&[
                "name = \"m0\"\nselect_sent = [\"p1\"]\noutput_port = \"snoop0\"",
                "name = \"m1\"\nselect_sent = [\"snoop0\"]\noutput_vlan = 9",
            ]),
            "`snoop0` is the output port of mirror `m0`",
        ),
        (
            one(&format!("select_all = true\noutput_vlan = 9\n{OUT}")),
            "expected one of them; two mirrors",
        ),
        (one("select_all = true"), "the mirror has no output"),
        (one(OUT), "the mirror selects nothing"),
        (
            one(&format!("select_all = true\nselect_sent = [\"p1\"]\n{OUT}")),
            "`select_sent` with `select_all`",
        ),
        (one(&format!("select_sent = [\"p1\", \"p1\"]\n{OUT}")), "port"),
        (
            one(&format!("select_all = true\nselect_vlans = [1, 1]\n{OUT}")),
            "VLAN",
        ),
        (
            one(&format!("select_all = true\nsnaplen = 13\n{OUT}")),
            "expected 14 to 65535 bytes",
        ),
        (
            one(&format!("select_all = true\nsnaplen = 65536\n{OUT}")),
            "expected 14 to 65535 bytes",
        ),
        (
            one(&format!("select_all = true\nselect_vlans = [4096]\n{OUT}")),
            "expected 0 to 4095",
        ),
        (one("select_all = true\noutput_vlan = 0"), "expected 1 to 4094"),
        (
            one("select_all = true\noutput_port = \"p2\""),
            "`p2` is the underlay of a tunnel",
        ),
        (
            mirrors(&[
                "name = \"m0\"\nselect_all = true\noutput_port = \"snoop0\"",
                "name = \"m0\"\nselect_all = true\noutput_port = \"snoop0\"",
            ]),
            "mirror name m0 is already used",
        ),
        (
            mirrors(
                &(0..33)
                    .map(|number| format!("name = \"m{number}\"\nselect_all = true\n{OUT}"))
                    .collect::<Vec<_>>()
                    .iter()
                    .map(String::as_str)
                    .collect::<Vec<_>>(),
            ),
            "33 mirrors: expected at most 32",
        ),
    ] {
        let errors = errors(&text);
        assert_eq!(errors.len(), 1, "{expected}: {errors:?}");
        assert!(errors[0].contains(expected), "{expected}: {errors:?}");
    }
}
