//! VRFs, interfaces and access lists: defaults, ranges and conflicts.

use std::fmt::Write as _;

use millrace_model::{AclRule, Config, InterfaceAddress, RouteSource, UnicastMac};

fn parse(text: &str) -> Result<Config, String> {
    Config::from_toml("test.toml", text).map_err(|errors| errors.to_string())
}

/// Returns a configuration with bridge `br0`, whose port has number 1, VRFs `red` and `blue`, and these interfaces.
fn config(interfaces: &[&str]) -> String {
    let mut text =
        "[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"p1\"\nnumber = 1\ndevice = \"memory\"\n\
                    [[vrf]]\nname = \"red\"\n[[vrf]]\nname = \"blue\"\nnetns = \"blue\"\n\
                    [[acl]]\nname = \"edge\"\nrules = [\"permit tcp,tp_dst=22\", \"deny ip\"]\n"
            .to_owned();
    for interface in interfaces {
        write!(text, "[[interface]]\nbridge = \"br0\"\n{interface}\n").unwrap();
    }
    text
}

#[test]
fn a_vrf_and_an_interface_need_a_name_and_a_bridge() {
    let text = config(&[
        "name = \"v10\"\nvrf = \"blue\"\nvlan = 10\naddress = [\"10.0.10.1/24\", \"2001:db8::1/64\"]",
    ]);
    let config = parse(&text).unwrap();
    let interface = &config.interfaces[0];
    assert_eq!((interface.mtu.get(), interface.vid().raw()), (1500, 10));
    assert_eq!(config.vrfs[1].table.get(), 254);
    assert_eq!(config.vrfs[1].routes, RouteSource::Netlink);
    assert_eq!(parse(&config.to_toml()).unwrap(), config);
    let mac = interface.mac_address();
    assert!(
        !mac.is_multicast() && mac.0[0] & 2 != 0,
        "{mac} is locally administered"
    );
    let mut other = interface.clone();
    other.name = "v11".parse().unwrap();
    assert_ne!(other.mac_address(), mac);
}

#[test]
fn values_that_cannot_work_are_refused_with_the_reason() {
    let v10 = "name = \"v10\"\nvrf = \"red\"\nvlan = 10\naddress = [\"10.0.10.1/24\"]";
    for (interfaces, said) in [
        (vec!["name = \"v10\"\nvrf = \"green\""], "there is no VRF `green`"),
        (
            vec!["name = \"v10\"\nvrf = \"red\"\nacl_in = \"none\""],
            "there is no access list `none`",
        ),
        (
            vec!["name = \"v10\"\nvrf = \"red\"\nnumber = 1"],
            "1 is the number of port `p1`",
        ),
        (
            vec!["name = \"v10\"\nvrf = \"red\"\negress = \"tables\""],
            "expected `number`",
        ),
        (
            vec![v10, "name = \"v11\"\nvrf = \"red\"\nvlan = 10"],
            "VLAN with an interface",
        ),
        (
            vec![v10, "name = \"v10\"\nvrf = \"red\"\nvlan = 11"],
            "interface name",
        ),
        (
            vec![
                v10,
                "name = \"v11\"\nvrf = \"red\"\nvlan = 11\naddress = [\"10.0.10.1/16\"]",
            ],
            "address of a VRF",
        ),
        (
            vec![
                v10,
                "name = \"v11\"\nvrf = \"red\"\nvlan = 11\naddress = [\"10.0.11.1/16\"]",
            ],
            "networks that do not overlap",
        ),
        (
            vec!["name = \"v10\"\nvrf = \"red\"\nmtu = 1000\naddress = [\"2001:db8::1/64\"]"],
            "at least 1280 for IPv6",
        ),
        (
            vec!["name = \"v10\"\nvrf = \"red\"\naddress = [\"10.0.10.0/24\"]"],
            "expected an address of a host",
        ),
        (
            vec!["name = \"v10\"\nvrf = \"red\"\nmac = \"01:00:00:00:00:01\""],
            "whose first byte is even",
        ),
    ] {
        let error = parse(&config(&interfaces)).unwrap_err();
        assert!(error.contains(said), "{interfaces:?}: {error}");
    }
    // The same network in another VRF, and link-local addresses anywhere, are no conflict.
    let other_vrf = "name = \"v11\"\nvrf = \"blue\"\nvlan = 11\naddress = [\"10.0.10.1/24\", \"fe80::1/64\"]";
    let link_local = "name = \"v12\"\nvrf = \"blue\"\nvlan = 12\naddress = [\"fe80::2/64\"]";
    parse(&config(&[v10, other_vrf, link_local])).unwrap();
}

#[test]
fn two_vrfs_have_two_tables_or_two_namespaces() {
    let error = parse("[[vrf]]\nname = \"red\"\n[[vrf]]\nname = \"blue\"\n").unwrap_err();
    assert!(error.contains("network namespace and table"), "{error}");
    parse("[[vrf]]\nname = \"red\"\n[[vrf]]\nname = \"blue\"\ntable = 10\n").unwrap();
}

#[test]
fn anybody_who_reaches_fpm_sets_routes_so_it_listens_on_loopback() {
    let error = parse("[[vrf]]\nname = \"red\"\nroutes = \"fpm:192.0.2.1:2620\"\n").unwrap_err();
    assert!(error.contains("expected a loopback address"), "{error}");
    parse("[[vrf]]\nname = \"red\"\nroutes = \"fpm:[::1]:2620\"\n").unwrap();
}

#[test]
fn an_address_of_an_interface_is_one_of_a_host() {
    for text in [
        "10.0.0.1/24",
        "10.0.0.0/31",
        "10.0.0.1/31",
        "10.0.0.0/32",
        "2001:db8::/64",
        "fe80::1/10",
        "::1/128",
    ] {
        assert_eq!(text.parse::<InterfaceAddress>().unwrap().to_string(), text);
    }
    for text in [
        "",
        "/",
        "10.0.0.1",
        "10.0.0.1/",
        "10.0.0.1/33",
        "10.0.0.1/+8",
        "10.0.0.1/0",
        "10.0.0.255/24",
        "0.0.0.0/8",
        "224.0.0.1/24",
        "255.255.255.255/32",
        "240.0.0.1/8",
        "::/64",
        "ff02::1/64",
        "2001:db8::1/129",
        "10.0.0.1/24/8",
    ] {
        let error = text.parse::<InterfaceAddress>().unwrap_err().to_string();
        assert!(error.contains("expected"), "{text}: {error}");
    }
}

#[test]
fn sources_macs_and_rules_that_are_none_say_what_was_expected() {
    for text in ["netlink", "fpm:127.0.0.1:2620", "fpm:[::1]:2620"] {
        assert_eq!(text.parse::<RouteSource>().unwrap().to_string(), text);
    }
    for text in ["", "fpm", "fpm:", "fpm:host:2620", "fpm:127.0.0.1:0", "kernel"] {
        assert!(
            text.parse::<RouteSource>()
                .unwrap_err()
                .to_string()
                .contains("expected")
        );
    }
    for text in ["00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "x"] {
        assert!(
            text.parse::<UnicastMac>()
                .unwrap_err()
                .to_string()
                .contains("expected")
        );
    }
    for text in [
        "permit tcp,nw_src=192.0.2.0/24,tp_dst=22",
        "deny ip",
        "permit ipv6,ipv6_src=2001:db8::/32",
        "deny icmp6",
    ] {
        let rule = text.parse::<AclRule>().unwrap();
        assert_eq!(rule.to_string().parse::<AclRule>().unwrap(), rule, "{text}");
        assert_eq!(rule.permits(), text.starts_with("permit"));
    }
    for text in [
        "",
        "deny",
        "drop ip",
        "permit",
        "permit any",
        "deny arp",
        "permit in_port=1,ip",
        "deny ip,dl_src=02:00:00:00:00:01",
        "permit tcp,tp_dst=x",
    ] {
        let error = text.parse::<AclRule>().unwrap_err().to_string();
        assert!(error.contains("expected"), "{text}: {error}");
    }
}

#[test]
fn tunnels_that_the_machine_routes_have_its_routes_for_themselves() {
    let tunnels = |devices: &[&str]| {
        let mut text = "[[bridge]]\nname = \"br0\"\n".to_owned();
        for (index, device) in devices.iter().enumerate() {
            write!(
                text,
                "[[bridge.port]]\nname = \"t{index}\"\nnumber = {}\ndevice = \"{device}\"\n",
                index + 1
            )
            .unwrap();
        }
        text
    };
    let (one, other) = (
        "vxlan:remote=192.0.2.2,underlay=host",
        "vxlan:remote=192.0.2.2,underlay=host,key=7",
    );
    parse(&tunnels(&[one, other])).unwrap();
    let error = parse(&tunnels(&[one, one])).unwrap_err();
    assert!(error.contains("tunnel"), "{error}");
    let elsewhere = "[[vrf]]\nname = \"blue\"\nnetns = \"blue\"\n[[vrf]]\nname = \"red\"\ntable = 10\n";
    parse(&(tunnels(&[one]) + elsewhere)).unwrap();
    for vrf in ["name = \"red\"", "name = \"host\"\ntable = 10"] {
        let error = parse(&format!("{}[[vrf]]\n{vrf}\n", tunnels(&[one]))).unwrap_err();
        assert!(error.contains("`underlay=host` beside VRF"), "{error}");
        parse(&format!("[[vrf]]\n{vrf}\n")).unwrap();
    }
}
