//! Lab files: valid content, its effect, and errors. Needs no root.

use std::collections::HashSet;

use millrace_lab::{Device, FailMode, Guest, Machine, SwitchKind, Topology};
use proptest::prelude::*;

const WHOLE: &str = r#"
name = "whole"
quiet = false

[[host]]
name = "h1"
ip = ["10.0.0.1/24", "10.1.0.1/24"]
ipv6 = "fd00::1/64"
mac = "02:00:00:00:00:aa"
mtu = 1400
routes = ["10.9.0.0/16 via 10.0.0.254", "fd09::/64 via fd00::fe"]
gateway = "10.0.0.254"

[[host]]
name = "h2"
ip = "10.0.0.2/24"
vlan = 7

[[switch]]
name = "br0"
kind = "millrace"
device = "af_packet"
fail_mode = "secure"
controllers = ["tcp:10.0.0.9:6653"]
listen = ["ptcp:6654:127.0.0.1"]
workers = 2
ports = ["h1", "h2"]

[[switch]]
name = "br1"
kind = "linux-bridge"

[[link]]
ends = ["br1:9", "h1"]
rate = "100Mbps"

[[link]]
ends = ["br0:1", "br1"]
mtu = 1300
"#;

#[test]
fn a_link_with_an_emulated_path_has_the_options_of_the_emulator() {
    let lab = r#"
[[host]]
name = "h1"
[[host]]
name = "h2"
[[link]]
ends = ["h1", "h2"]
wan = { delay = "50ms", rate = "100Mbps", seed = 7, a_to_b = { loss = "2%" } }
"#;
    let lab = Topology::parse("any.toml", lab).unwrap();
    let (wan, link) = lab.wans().next().unwrap();
    assert_eq!((wan.node.as_str(), link.a.node.as_str()), ("wan.1", "h1"));
    let expected = "--a-to-b loss=2% --delay 50ms --rate 100Mbps --seed 7";
    assert_eq!(wan.options.join(" "), expected);
}

#[test]
fn a_wrong_setting_of_an_emulated_path_is_refused_at_its_place() {
    for (wan, column, word) in [
        (r#"{ delay = "-1ms" }"#, 17, "delay"),
        (r#"{ rate = "1Gbps", color = "red" }"#, 33, "color"),
        (r#"{ a_to_b = "1%" }"#, 18, "table"),
        (r#"{ delay = 1.5 }"#, 17, "text"),
        (r#"{ seed = "x" }"#, 16, "number"),
    ] {
        let lab = format!(
            "[[host]]\nname = \"h1\"\n[[host]]\nname = \"h2\"\n[[link]]\nends = [\"h1\", \"h2\"]\nwan = {wan}\n"
        );
        let error = Topology::parse("any.toml", &lab).unwrap_err();
        assert_eq!((error.line, error.column), (7, column), "{error}");
        let text = error.to_string();
        assert!(text.contains("expected") && text.contains(word), "{text}");
    }
}

#[test]
fn every_key_has_its_effect() {
    let lab = Topology::parse("any.toml", WHOLE).unwrap();
    assert_eq!((lab.name.as_str(), lab.quiet), ("whole", false));
    assert_eq!(lab.namespace("h1"), "mr-whole-h1");

    let [eth0, eth1] = lab.hosts[0].interfaces.as_slice() else {
        panic!("two links, two interfaces")
    };
    let addresses =
        |list: &[millrace_lab::IpPrefix]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(addresses(&eth0.addresses), ["10.0.0.1/24", "fd00::1/64"]);
    assert_eq!(addresses(&eth1.addresses), ["10.1.0.1/24"]);
    assert_eq!(eth0.mac.to_string(), "02:00:00:00:00:aa");
    assert_eq!(eth1.mac.to_string(), "02:00:00:01:00:01");
    let routes: Vec<_> = lab.hosts[0]
        .routes
        .iter()
        .map(|route| route.destination.to_string())
        .collect();
    assert_eq!(routes, ["10.9.0.0/16", "fd09::/64", "0.0.0.0/0"]);
    assert_eq!(lab.hosts[1].interfaces[0].vlan.unwrap().raw(), 7);

    let SwitchKind::Millrace {
        device,
        control,
        workers,
    } = &lab.switches[0].kind
    else {
        panic!("kind")
    };
    assert_eq!(
        (*device, control.fail_mode, *workers),
        (Device::AfPacket, FailMode::Secure, Some(2))
    );
    assert_eq!(control.controllers, ["tcp:10.0.0.9:6653"]);
    assert_eq!(control.listen, ["ptcp:6654:127.0.0.1"]);
    let ports = |switch: usize| {
        let ports = lab.switches[switch].ports.iter();
        ports
            .map(|port| (port.number.raw(), port.interface.clone()))
            .collect::<Vec<_>>()
    };
    // The second link claims port 1 of br0, so `ports` begins with 2.
    assert_eq!(
        ports(0),
        [(1, "br1".to_owned()), (2, "h1".to_owned()), (3, "h2".to_owned())]
    );
    assert_eq!(ports(1), [(1, "br0".to_owned()), (9, "h1".to_owned())]);

    let mtus: Vec<_> = lab.links.iter().map(|link| link.mtu).collect();
    assert_eq!(mtus, [1400, 1500, 1400, 1300]);
    assert_eq!(lab.links[2].rate.unwrap().to_string(), "100Mbps");
}

#[test]
fn the_examples_are_legal_and_named_after_their_files_or_themselves() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/lab");
    let mut count = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        Topology::parse(&path.display().to_string(), &text).unwrap();
        count += 1;
    }
    assert!(count >= 3);
    let unnamed = Topology::parse("some/where/tiny.toml", "[[host]]\nname = \"h1\"\n").unwrap();
    assert_eq!(unnamed.name, "tiny");
}

#[test]
fn two_links_between_the_same_nodes_have_names_of_their_own() {
    let text = "[[host]]\nname = \"h\"\n[[switch]]\nname = \"s\"\nkind = \"ovs\"\nports = [\"h\", \"h\"]\n";
    let lab = Topology::parse("lab.toml", text).unwrap();
    let names: Vec<_> = lab.switches[0]
        .ports
        .iter()
        .map(|port| port.interface.as_str())
        .collect();
    assert_eq!(names, ["h", "h_2"]);
}

/// Each error: a line to add to a small valid file, and the message after the line number.
#[test]
fn every_fault_is_shown_where_it_stands_with_what_was_expected() {
    let host = "name = \"lab\"\n[[host]]\nname = \"h1\"\n";
    let switch = format!("{host}[[switch]]\nname = \"br0\"\nkind = \"millrace\"\n");
    let bridge = format!("{host}[[switch]]\nname = \"br0\"\nkind = \"linux-bridge\"\n");
    let faults: &[(&str, &str, &str)] = &[
        (
            host,
            "ip = \"10.0.0.1\"",
            "with a prefix length: expected the form 10.0.0.1/24",
        ),
        (host, "ip = 7", "expected a string or a list of strings"),
        (
            host,
            "ip = \"10.0.0.1/24\"",
            "host `h1` has too few interfaces for 1 values",
        ),
        (host, "mac = \"zz\"", "is not a MAC address"),
        (host, "mac = \"01:00:00:00:00:00\"", "is a group address"),
        (host, "mtu = 20", "is not an MTU: expected 68 to 9578"),
        (host, "vlan = 4095", "is not a VLAN of a host: expected 1 to 4094"),
        (host, "gateway = \"there\"", "is not an IP address"),
        (
            host,
            "routes = [\"10.0.0.0/8 via fd00::1\"]",
            "is not a route: expected the form",
        ),
        (
            host,
            "colour = 1",
            "unknown field `colour`, expected one of `name`, `ip`",
        ),
        (
            host,
            "[[host]]\nname = \"h1\"",
            "is already the name of a host or switch",
        ),
        (
            host,
            "[[host]]\nname = \"H1\"",
            "is not a name: expected 1 to 12 of a-z",
        ),
        (host, "[[host]]\nname = \"lo\"", "is a reserved name"),
        (
            host,
            "[[switch]]\nname = \"s\"\nkind = \"hub\"",
            "is not a kind of switch: expected \"millrace\"",
        ),
        (host, "[[link]]\nends = [\"h1\"]", "a link has two ends, found 1"),
        (
            host,
            "[[link]]\nends = [\"h1\", \"h1\"]",
            "`h1` is linked to itself",
        ),
        (
            host,
            "[[link]]\nends = [\"h1\", \"h9\"]",
            "there is no host or switch `h9`: expected one of h1",
        ),
        (&switch, "ports = [\"h1:4\"]", "port numbers belong to switches"),
        (&switch, "ports = [\"br0\"]", "`br0` is linked to itself"),
        (
            &switch,
            "[[link]]\nends = [\"h1\", \"br0:0\"]",
            "with a port from 1 to 65279",
        ),
        (
            &switch,
            "[[link]]\nends = [\"h1\", \"br0:x\"]",
            "with a port from 1 to 65279",
        ),
        (
            &switch,
            "[[link]]\nends = [\"h1\", \"br0\"]\nrate = \"fast\"",
            "is not a bit rate",
        ),
        (
            &switch,
            "[[link]]\nends = [\"h1\", \"br0\"]\nrate = \"1bps\"",
            "too low for the shaper",
        ),
        (
            &switch,
            "device = \"dpdk\"",
            "is not a device of the lab: expected \"auto\"",
        ),
        (
            &switch,
            "fail_mode = \"open\"",
            "is not a fail mode: expected \"standalone\"",
        ),
        (&switch, "workers = 0", "expected 1 to 128"),
        (
            &switch,
            "controllers = [\"udp:1.2.3.4:1\"]",
            "is not a controller: expected the form tcp:",
        ),
        (
            &switch,
            "listen = [\"ptcp:6653\\\"\"]",
            "is not a listener: expected the form ptcp:",
        ),
        (
            &bridge,
            "device = \"auto\"",
            "`device` is not for a switch of kind \"linux-bridge\": expected it only with kind = \"millrace\"",
        ),
        (
            &bridge,
            "workers = 2",
            "`workers` is not for a switch of kind \"linux-bridge\": expected it only with kind = \"millrace\"",
        ),
        (
            &bridge,
            "listen = []",
            "expected it only with kind = \"millrace\", \"ovs\" or \"ovs-dpdk\"",
        ),
    ];
    for (base, fault, message) in faults {
        let text = format!("{base}{fault}\n");
        let error = Topology::parse("lab.toml", &text).expect_err(fault).to_string();
        assert!(error.contains(message), "{fault}: {error}");
        let (file, rest) = error.split_once(':').unwrap();
        let line: usize = rest.split(':').next().unwrap().parse().unwrap();
        let last = text.lines().count();
        assert!(
            file == "lab.toml" && line > base.lines().count() && line <= last,
            "{fault}: {error}"
        );
    }
}

#[test]
fn a_port_that_two_links_claim_and_an_address_that_two_hosts_have_are_refused() {
    let hosts =
        "name = \"lab\"\n[[host]]\nname = \"h1\"\nmac = \"02:00:00:00:00:09\"\n[[host]]\nname = \"h2\"\n";
    let switch = "[[switch]]\nname = \"br0\"\nkind = \"ovs\"\n";
    let links = "[[link]]\nends = [\"h1\", \"br0:2\"]\n[[link]]\nends = [\"h2\", \"br0:2\"]\n";
    let error = Topology::parse("lab.toml", &format!("{hosts}{switch}{links}")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "lab.toml:13:8: port 2 of switch `br0` is already taken: expected a unique number"
    );
    let twice = format!("{hosts}mac = \"02:00:00:00:00:09\"\n{switch}ports = [\"h1\", \"h2\"]\n");
    let error = Topology::parse("lab.toml", &twice).unwrap_err().to_string();
    assert!(
        error.starts_with("lab.toml:7:7: 02:00:00:00:00:09 is already the address of `h1`"),
        "{error}"
    );
}

#[test]
fn a_millrace_switch_takes_no_link_with_frames_that_its_devices_cannot_carry() {
    let text = |kind: &str| {
        let link = "[[link]]\nends = [\"h1\", \"br0\"]\nmtu = 9000\n";
        format!(
            "name = \"lab\"\n[[host]]\nname = \"h1\"\n[[switch]]\nname = \"br0\"\nkind = \"{kind}\"\n{link}"
        )
    };
    let error = Topology::parse("lab.toml", &text("millrace"))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("lab.toml:5:8: a link of `br0` has an MTU of 9000"),
        "{error}"
    );
    assert!(Topology::parse("lab.toml", &text("ovs")).is_ok());
}

#[test]
fn open_vswitch_comes_with_and_without_dpdk_and_has_no_devices_of_ours() {
    let text = |kind: &str, more: &str| {
        let host = "name = \"lab\"\n[[host]]\nname = \"h1\"\n";
        format!("{host}[[switch]]\nname = \"br0\"\nkind = \"{kind}\"\nports = [\"h1\"]\n{more}")
    };
    for kind in ["ovs", "ovs-dpdk"] {
        let topology = Topology::parse("lab.toml", &text(kind, "")).unwrap();
        assert_eq!(topology.switches[0].kind.keyword(), kind);
        let error = Topology::parse("lab.toml", &text(kind, "workers = 2\n"))
            .unwrap_err()
            .to_string();
        assert!(error.contains(kind) && error.contains("workers"), "{error}");
    }
}

#[test]
fn a_file_without_hosts_or_that_is_not_toml_is_refused() {
    assert!(
        Topology::parse("lab.toml", "")
            .unwrap_err()
            .to_string()
            .contains("at least one [[host]]")
    );
    let error = Topology::parse("lab.toml", "name = \"lab\"\nhost = [[\n").unwrap_err();
    assert_eq!(error.line, 2);
}

#[derive(Debug, Clone)]
struct Sketch {
    hosts: usize,
    switches: usize,
    /// The ends as indices into hosts, then switches.
    links: Vec<(usize, usize)>,
}

fn sketch() -> impl Strategy<Value = Sketch> {
    (1..6usize, 0..5usize).prop_flat_map(|(hosts, switches)| {
        let nodes = hosts + switches;
        let links = proptest::collection::vec((0..nodes, 0..nodes), 0..20);
        links.prop_map(move |links| Sketch {
            hosts,
            switches,
            links,
        })
    })
}

fn render(sketch: &Sketch) -> String {
    let name = |node: usize| match node.checked_sub(sketch.hosts) {
        None => format!("h{node}"),
        Some(switch) => format!("s{switch}"),
    };
    let mut text = String::from("name = \"sketch\"\n");
    (0..sketch.hosts).for_each(|node| text += &format!("[[host]]\nname = \"{}\"\n", name(node)));
    for node in sketch.hosts..sketch.hosts + sketch.switches {
        text += &format!("[[switch]]\nname = \"{}\"\nkind = \"linux-bridge\"\n", name(node));
    }
    for (a, b) in &sketch.links {
        text += &format!("[[link]]\nends = [\"{}\", \"{}\"]\n", name(*a), name(*b));
    }
    text
}

proptest! {
    #[test]
    fn names_numbers_and_addresses_are_unique_and_fit(sketch in sketch()) {
        let result = Topology::parse("sketch.toml", &render(&sketch));
        if sketch.links.iter().any(|(a, b)| a == b) {
            prop_assert!(result.is_err());
            return Ok(());
        }
        let lab = result.unwrap();
        prop_assert_eq!(lab.links.len(), sketch.links.len());
        let ends = || lab.links.iter().flat_map(|link| [&link.a, &link.b]);
        let places: HashSet<_> = ends().map(|end| (&end.node, &end.interface)).collect();
        prop_assert_eq!(places.len(), 2 * lab.links.len());
        // IFNAMSIZ is 16 with the terminator.
        prop_assert!(ends().all(|end| end.interface.len() <= 15));
        let macs: HashSet<_> = ends().map(|end| end.mac).collect();
        prop_assert_eq!(macs.len(), 2 * lab.links.len());
        for switch in &lab.switches {
            let numbers: Vec<_> = switch.ports.iter().map(|port| port.number.raw()).collect();
            prop_assert_eq!(numbers, (1..=switch.ports.len() as u32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_damaged_file_is_read_or_refused_at_one_of_its_lines(at in 0..WHOLE.len(), new in any::<char>(), cut in 0..30usize) {
        let end = (at + cut).min(WHOLE.len());
        let text = format!("{}{new}{}", &WHOLE[..at], &WHOLE[end..]);
        if let Err(error) = Topology::parse("whole.toml", &text) {
            prop_assert!(error.line >= 1 && error.line <= text.lines().count() + 1, "{}", error);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        let _ = Topology::parse("any.toml", &text);
    }
}

#[test]
fn a_guest_is_a_host_whose_links_are_ports_of_its_switch() {
    let text = r#"
        [[host]]
        name = "h1"
        [[guest]]
        name = "vm1"
        ip = ["10.0.0.1/24"]
        memory_mib = 192
        tso = true
        [[guest]]
        name = "hop"
        forward = true
        [[switch]]
        name = "br0"
        kind = "millrace"
        ports = ["h1", "vm1", "hop", "hop"]
    "#;
    let lab = Topology::parse("lab.toml", text).unwrap();
    let kinds: Vec<_> = lab.hosts.iter().map(|host| host.machine.clone()).collect();
    let guest = |memory_mib, forward, tso| {
        Machine::Guest(Guest {
            memory_mib,
            mtu: 1500,
            forward,
            tso,
        })
    };
    assert_eq!(
        kinds,
        [
            Machine::Namespace,
            guest(192, false, true),
            guest(128, true, false)
        ]
    );
    assert_eq!(lab.links.len(), 1, "the host's alone");
    assert_eq!(lab.hosts[2].interfaces.len(), 2);
    let nics = lab.switches[0].ports.iter().map(|port| port.guest.as_ref());
    let nics: Vec<_> = nics
        .map(|nic| nic.map(|nic| (nic.guest.as_str(), nic.interface.as_str(), nic.tso)))
        .collect();
    let wanted = [
        None,
        Some(("vm1", "eth0", true)),
        Some(("hop", "eth0", false)),
        Some(("hop", "eth1", false)),
    ];
    assert_eq!(nics, wanted);
}

#[test]
fn what_a_guest_cannot_have_is_told_where_it_stands() {
    let with = |guest: &str, rest: &str| {
        let text = format!("[[guest]]\nname = \"vm1\"\n{guest}\n[[host]]\nname = \"h1\"\n{rest}");
        Topology::parse("lab.toml", &text).unwrap_err().to_string()
    };
    let millrace = "[[switch]]\nname = \"br0\"\nkind = \"millrace\"\nports = [\"vm1\"]\n";
    for (guest, rest, wanted) in [
        (
            "memory_mib = 8",
            millrace,
            "3:14: 8 is not the memory of a guest in MiB: expected 96 to 65536",
        ),
        (
            "vlan = 5",
            millrace,
            "3:8: `vlan` is not for a [[guest]]: expected it only in a [[host]]",
        ),
        (
            "",
            "tso = true",
            "6:7: `tso` is not for a [[host]]: expected it only in a [[guest]]",
        ),
        (
            "",
            "forward = true",
            "6:11: `forward` is not for a [[host]]: expected it only in a [[guest]]",
        ),
        (
            "",
            "[[switch]]\nname = \"br0\"\nkind = \"ovs\"\nports = [\"vm1\"]\n",
            "guest `vm1` is linked to `br0`, which is not a switch of kind \"millrace\" or \"ovs-dpdk\": expected one",
        ),
        (
            "",
            "[[link]]\nends = [\"vm1\", \"h1\"]\n",
            "guest `vm1` is linked to `h1`, which is not a switch of kind \"millrace\" or \"ovs-dpdk\": expected one",
        ),
    ] {
        let error = with(guest, rest);
        assert!(error.contains(wanted), "{error}\n{wanted}");
    }
}
