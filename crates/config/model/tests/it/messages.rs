//! Messages for invalid files: all errors at once, each with its location.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use millrace_model::{Config, ConfigError, ConfigErrors, Path};
use serde_json::json;

/// Returns the error messages of a file.
fn messages(text: &str) -> Vec<String> {
    match Config::from_toml("m.toml", text) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

#[track_caller]
fn assert_messages(text: &str, expected: &[&str]) {
    assert_eq!(messages(text), expected);
}

/// Returns a bridge with ports of the given devices.
fn bridge(devices: &[&str]) -> String {
    let mut text = "[[bridge]]\nname = \"br0\"\n".to_owned();
    for (index, device) in devices.iter().enumerate() {
        let number = index + 1;
        text.push_str(&format!(
            "[[bridge.port]]\nname = \"p{number}\"\nnumber = {number}\ndevice = \"{device}\"\n"
        ));
    }
    text
}

#[test]
fn every_fault_of_a_file_is_told_at_once_with_line_and_column() {
    assert_messages(
        r#"[system]
worker = 2
memory_mib = 1
huge_pages = "on"

[api]
listen = 8080

[[bridge]]
name = "br 0"

[[bridge]]
name = "br1"
tables = 300
controllers = ["tcp:127.0.0.1:6653", "pssl:10.0.0.1:6653"]

  [[bridge.port]]
  name = "p1"
  number = 1
  device = "eth0"
  mtu = "big"

  [[bridge.port]]
  name = "p2"
  device = "memory"
"#,
        &[
            "m.toml:2:1: system.worker: unknown key `worker`: did you mean `workers`?",
            "m.toml:3:14: system.memory_mib: 1 is out of range: expected 64 to 1048576 MiB",
            "m.toml:4:14: system.huge_pages: `on` is not a choice: expected \"auto\" or \"required\" or \"off\"",
            "m.toml:7:10: api.listen: found the integer 8080: expected an IP address and a port, as in \"127.0.0.1:8080\"",
            "m.toml:10:8: bridge[0].name: `br 0` is not a valid bridge name: expected only letters, digits, `_`, `-` and `.`",
            "m.toml:14:10: bridge[1].tables: 300 is out of range: expected 1 to 255",
            "m.toml:15:38: bridge[1].controllers[1].target: `pssl:10.0.0.1:6653` is not a valid controller: the switch waits \
             there; expected tcp:HOST:PORT or tls:HOST:PORT here, and ptcp: or ptls: under `listen`",
            "m.toml:20:12: bridge[1].port[0].device: `eth0` is not a device: expected a PCI address (0000:01:00.0), \
             kernel:INTERFACE (kernel:eth1), DPDK devargs (net_af_xdp0,iface=eth1), pcap:rx=FILE,tx=FILE, link:NAME, wan:NAME,a, tap:NAME, a virtual NIC (vhost:PATH, \
             virtio-user:PATH or memif:PATH), nic:PATH, a tunnel \
             (vxlan:remote=IP,local=IP,underlay=PORT), a port of service paths \
             (nsh:remote=MAC,underlay=PORT,in=PATH/INDEX,out=PATH/INDEX), lag:NAME or memory; did you mean `kernel:eth0`?",
            "m.toml:21:9: bridge[1].port[0].mtu: found the text \"big\": expected a whole number from 68 to 9578 bytes",
            "m.toml:23:3: bridge[1].port[1]: missing key `number`: expected a whole number from 1 to 4294967040",
        ],
    );
}

#[test]
fn an_unknown_key_without_a_near_one_lists_the_keys_that_may_stand_there() {
    assert_messages(
        "speed = 1\n",
        &[
            "m.toml:1:1: speed: unknown key `speed`: expected one of system, api, ovsdb, bridge, wan, vrf, interface, acl",
        ],
    );
    assert_messages(
        "[[port]]\nname = \"p1\"\n",
        &["m.toml:1:3: port: unknown key `port`: the key belongs to `[[bridge.port]]`"],
    );
    assert_messages(
        "[[bridge]]\nname = \"b\"\n[[bridge.port]]\nname = \"p\"\nnumber = 1\ndevice = \"memory\"\ntag = 10\ndpid = \"1\"\n",
        &[
            "m.toml:7:1: bridge[0].port[0].tag: unknown key `tag`: did you mean `vlan`?",
            "m.toml:8:1: bridge[0].port[0].dpid: unknown key `dpid`: the key belongs to `[[bridge]]`",
        ],
    );
    assert_messages(
        "bridges = []\n",
        &["m.toml:1:1: bridges: unknown key `bridges`: did you mean `bridge`?"],
    );
}

#[test]
fn a_word_that_is_nearly_right_is_recognised() {
    let text = "[[bridge]]\nname = \"b\"\nfail_mode = \"Secure\"\n";
    assert_messages(
        text,
        &[
            "m.toml:3:13: bridge[0].fail_mode: `Secure` is not a choice: expected \"secure\" or \"standalone\"; did you mean \
           `secure`?",
        ],
    );
}

#[test]
fn text_that_is_not_toml_is_told_where_it_stops_being_toml() {
    let found = messages("[system]\nworkers = = 1\nx = [\n");
    assert!(found.len() >= 2, "{found:?}");
    assert!(found[0].starts_with("m.toml:2:11: not TOML: "), "{found:?}");
    let found = messages("[api]\n[api]\n");
    assert!(found[0].starts_with("m.toml:2:"), "{found:?}");
}

#[test]
fn a_key_that_is_there_twice_is_named() {
    let found = messages("[system]\nworkers = 1\nworkers = 2\n");
    assert_eq!(found, ["m.toml:3:1: not TOML: duplicate key `workers`"]);
    let found = messages("[api]\n[api]\n");
    assert_eq!(found, ["m.toml:2:2: not TOML: duplicate key `api`"]);
}

#[test]
fn bytes_that_are_not_utf8_are_told_with_their_place() {
    let error = Config::from_toml_bytes("m.toml", b"# f\xc3\xbcr\n# Z\xfcrich\n").unwrap_err();
    assert_eq!(
        error.to_string(),
        "m.toml:2:4: not TOML: byte 0xfc at offset 10 is not UTF-8: expected text in UTF-8"
    );
    assert!(Config::from_toml_bytes("m.toml", "# für\n".as_bytes()).is_ok());
}

#[test]
fn columns_count_characters_and_not_bytes() {
    assert_messages(
        "[[bridge]]\nname=\"b\"\ndescription = { hardware = \"äöü\", x = 1 }\n",
        &[
            "m.toml:3:35: bridge[0].description.x: unknown key `x`: expected one of manufacturer, hardware, software, serial, \
           datapath",
        ],
    );
}

#[test]
fn names_numbers_and_ids_that_occur_twice_are_told_with_their_first_use() {
    assert_messages(
        r#"[[bridge]]
name = "br0"
dpid = "1"
[[bridge.port]]
name = "p1"
number = 1
device = "memory"
[[bridge.port]]
name = "p1"
number = 1
device = "memory"
[[bridge]]
name = "br0"
dpid = "0x1"
"#,
        &[
            "m.toml:9:8: bridge[0].port[1].name: port name p1 is already used by bridge[0].port[0].name",
            "m.toml:10:10: bridge[0].port[1].number: port number 1 is already used by bridge[0].port[0].number",
            "m.toml:13:8: bridge[1].name: bridge name br0 is already used by bridge[0].name",
            "m.toml:14:8: bridge[1].dpid: datapath id 0000000000000001 is already used by bridge[0].dpid",
        ],
    );
}

#[test]
fn faults_between_values_are_told_beside_faults_of_values_and_name_the_places_of_the_file() {
    assert_messages(
        r#"[[bridge]]
name = "b"
[[bridge.port]]
name = "broken"
[[bridge.port]]
name = "p1"
number = 1
device = "memory"
[[bridge.port]]
name = "p2"
number = 1
device = "memory"
"#,
        &[
            "m.toml:3:1: bridge[0].port[0]: missing key `number`: expected a whole number from 1 to 4294967040",
            "m.toml:3:1: bridge[0].port[0]: missing key `device`: expected a PCI address, kernel:INTERFACE, DPDK devargs, \
             pcap:rx=FILE,tx=FILE, link:NAME, tap:NAME, vhost:PATH, virtio-user:PATH, memif:PATH, nic:PATH, a tunnel or memory, as in \"kernel:eth1\"",
            "m.toml:11:10: bridge[0].port[2].number: port number 1 is already used by bridge[0].port[1].number",
        ],
    );
}

#[test]
fn a_default_that_stands_in_for_a_wrong_value_is_not_blamed() {
    // The default of api.socket would conflict with the listener, but the file does not contain it.
    assert_messages(
        "[api]\nsocket = \"nowhere\"\n[[bridge]]\nname = \"b\"\nlisten = [\"punix:/run/millrace/millraced.sock\"]\n",
        &[
            "m.toml:2:10: api.socket: `nowhere` is not a valid socket: expected an absolute path of at most 107 bytes",
        ],
    );
    assert_messages(
        "[api]\nlisten = \"nowhere\"\n",
        &[
            "m.toml:2:10: api.listen: `nowhere` is not a socket address: expected IP:PORT as in 127.0.0.1:8080 or [::1]:8080",
        ],
    );
}

#[test]
fn one_device_cannot_be_two_ports() {
    for (first, second, what) in [
        ("0000:01:00.0", "01:00.0", "0000:01:00.0"),
        ("net_null0", "net_null0,size=64", "net_null0"),
        (
            "net_af_packet0,iface=veth1",
            "net_af_xdp0,iface=veth1",
            "iface=veth1",
        ),
        ("kernel:veth1", "net_af_packet0,iface=veth1", "iface=veth1"),
        ("pcap:rx=a,tx=out", "pcap:tx=out", "pcap:tx=out"),
    ] {
        assert_messages(
            &bridge(&[first, second]),
            &[&format!(
                "m.toml:10:10: bridge[0].port[1].device: device {what} is already used by bridge[0].port[0].device"
            )],
        );
    }
    assert_messages(
        &bridge(&[
            "net_null0",
            "net_null1",
            "memory",
            "memory",
            "pcap:rx=a",
            "pcap:rx=a",
        ]),
        &[],
    );
    assert_messages(
        &bridge(&[
            "net_af_xdp0,iface=e,start_queue=0",
            "net_af_xdp1,iface=e,start_queue=1",
        ]),
        &[],
    );
    assert_messages(
        &bridge(&["0000:01:00.0,representor=0", "0000:01:00.0,representor=1"]),
        &[],
    );
}

#[test]
fn a_link_has_two_ends() {
    assert_messages(&bridge(&["link:a", "link:a"]), &[]);
    assert_messages(
        &bridge(&["link:a", "link:a", "link:a", "link:b"]),
        &[
            "m.toml:14:10: bridge[0].port[2].device: link `a` already has two ends: expected another name",
            "m.toml:18:10: bridge[0].port[3].device: link `b` has one end: expected another port with this device",
        ],
    );
}

#[test]
fn listeners_that_clash_are_told() {
    assert_messages(
        "[api]\nlisten = \"127.0.0.1:6654\"\n[[bridge]]\nname = \"b\"\nlisten = [\"ptcp:6654\", \"ptcp:0\", \"ptcp:0\"]\n",
        &["m.toml:5:11: bridge[0].listen[0]: address 127.0.0.1:6654 is already used by api.listen"],
    );
    assert_messages(
        "[[bridge]]\nname = \"b\"\nlisten = [\"punix:/run/millrace/millraced.sock\"]\n",
        &[
            "m.toml:3:11: bridge[0].listen[0]: socket punix:/run/millrace/millraced.sock is already used by api.socket",
        ],
    );
    let wild = "{ target = \"ptcp:6654:[::]\", insecure = true }";
    assert_messages(
        &format!("[[bridge]]\nname = \"b\"\nlisten = [\"ptcp:6654:127.0.0.2\", {wild}]\n"),
        &["m.toml:3:34: bridge[0].listen[1]: address [::]:6654 is already used by bridge[0].listen[0]"],
    );
}

#[test]
fn encrypted_connections_need_files_and_there_are_eight_controllers_at_most() {
    assert_messages(
        "[[bridge]]\nname = \"b\"\ncontrollers = [\"ssl:ctl:6653\"]\nlisten = [\"pssl:6654:0.0.0.0\"]\n",
        &[
            "m.toml:3:16: bridge[0].controllers[0]: tls:ctl:6653 needs the `tls` of its bridge: expected `private_key`, \
             `certificate` and `ca_certificate` there",
            "m.toml:4:11: bridge[0].listen[0]: ptls:6654:0.0.0.0 needs the `tls` of its bridge: expected `private_key`, \
             `certificate` and `ca_certificate` there",
        ],
    );
    let many: Vec<String> = (1..=9).map(|host| format!("\"tcp:10.0.0.{host}\"")).collect();
    assert_messages(
        &format!("[[bridge]]\nname = \"b\"\ncontrollers = [{}]\n", many.join(", ")),
        &["m.toml:3:15: bridge[0].controllers: 9 controllers: expected at most 8"],
    );
}

#[test]
fn settings_are_for_tables_that_there_are_once() {
    assert_messages(
        "[[bridge]]\nname = \"b\"\ntables = 2\ntable = [{ number = 1 }, { number = 2 }, { number = 1, max_entries = 5 }]\n",
        &[
            "m.toml:4:37: bridge[0].table[1].number: there is no table 2: `tables` is 2, expected at most 1",
            "m.toml:4:53: bridge[0].table[2].number: table 1 is already used by bridge[0].table[0].number",
        ],
    );
}

#[test]
fn an_open_door_has_to_be_asked_for() {
    assert_messages(
        "[[bridge]]\nname = \"b\"\nlisten = [\"ptcp:6654:0.0.0.0\"]\n",
        &[
            "m.toml:3:11: bridge[0].listen[0]: whoever reaches 0.0.0.0:6654 could control the bridge: expected a loopback \
           address, ptls:, or { target = \"ptcp:6654:0.0.0.0\", insecure = true }",
        ],
    );
    assert_messages(
        "[api]\nlisten = \"0.0.0.0:80\"\ntls_cert = \"c\"\ntls_key = \"k\"\n",
        &[
            "m.toml:2:10: api.listen: 0.0.0.0:80 is reachable from other machines, and `token_file` is not given: expected a \
           loopback address, or `tls_cert`, `tls_key` and `token_file`",
        ],
    );
    assert_messages(
        "[api]\nlisten = \"0.0.0.0:80\"\ntls_cert = \"c\"\ntls_key = \"k\"\ntoken_file = \"t\"\n",
        &[],
    );
    assert_messages(
        "[api]\ntoken_file = \"t\"\n",
        &[
            "m.toml:2:14: api.token_file: `token_file` without `listen`: expected a TCP address in `listen`; the Unix \
             socket needs neither token nor TLS",
        ],
    );
    assert_messages(
        "[api]\nlisten = \"127.0.0.1:80\"\ntls_key = \"k\"\n",
        &["m.toml:3:11: api.tls_key: `tls_key` without `tls_cert`: expected both or neither"],
    );
}

#[test]
fn workers_and_cores_have_to_agree() {
    assert_messages(
        "[system]\nworkers = 3\nworker_cores = [1, 2, 1]\n",
        &["m.toml:3:23: system.worker_cores[2]: core 1 is already used by system.worker_cores[0]"],
    );
    assert_messages(
        "[system]\nworkers = 3\nworker_cores = [1, 2]\n",
        &[
            "m.toml:2:11: system.workers: 3 workers on 2 `worker_cores`: expected as many, or one of the two keys",
        ],
    );
}

#[test]
fn what_makes_no_sense_in_one_port_is_told() {
    let text = bridge(&["pcap:rx=a"]) + "queues = 2\nvlan = 5\ntrunks = [5, 6, 6]\n";
    assert_messages(
        &text,
        &[
            "m.toml:7:10: bridge[0].port[0].queues: 2 queues on capture files: expected 1",
            "m.toml:8:8: bridge[0].port[0].vlan: VLAN 5 is untagged by `vlan` and tagged by `trunks`: expected one of the two",
            "m.toml:9:17: bridge[0].port[0].trunks[2]: VLAN 6 is already used by bridge[0].port[0].trunks[1]",
        ],
    );
    let text = bridge(&["memory"]).replace("\"p1\"", "\"br0\"");
    assert_messages(
        &text,
        &[
            "m.toml:4:8: bridge[0].port[0].name: `br0` is the name of the bridge's LOCAL port: expected another",
        ],
    );
}

#[test]
fn json_faults_carry_pointers_and_serialize_as_problem_details() {
    let errors = Config::from_json(&json!({
        "system": {"memory_mib": -1, "workers": null},
        "bridge": [{"name": "b", "a/b~c": 1, "port": [{"name": "p", "number": 1.5, "device": "memory"}]}],
    }))
    .unwrap_err();
    assert_eq!(
        serde_json::to_value(&errors).unwrap(),
        json!([
            {"pointer": "/system/memory_mib", "code": "out-of-range",
             "detail": "-1 is out of range: expected 64 to 1048576 MiB"},
            {"pointer": "/bridge/0/a~1b~0c", "code": "unknown-key",
             "detail": "unknown key `a/b~c`: expected one of name, dpid, fail_mode, standalone_flows, flow_cache, select_hash, fragments, match_extensions, local, local_mtu, local_mac, tables, table, controllers, listen, \
                        tls, description, normal_vlans, flood_vlans, forward_bpdu, mac_ageing_s, mac_table_size, packet_in_rate, packet_in_burst, miss_send_len, sflow, ipfix, rstp, lldp, port, lag, mirror, chain"},
            {"pointer": "/bridge/0/port/0/number", "code": "wrong-type",
             "detail": "found the number 1.5: expected a whole number from 1 to 4294967040"},
        ])
    );
    assert_eq!(
        Config::from_json(&json!([])).unwrap_err().to_string(),
        "found a list of 0: expected a table with the keys system, api, ovsdb, bridge, wan, vrf, interface, acl"
    );
}

#[test]
fn numbers_of_any_size_are_refused_and_not_wrapped() {
    for number in [
        "-1",
        "256",
        "4294967297",
        "18446744073709551616",
        "99999999999999999999999999999999999999999",
        "1.0",
    ] {
        let found = messages(&format!("[[bridge]]\nname = \"b\"\ntables = {number}\n"));
        assert_eq!(found.len(), 1, "{number}");
        assert!(found[0].starts_with("m.toml:3:10: "), "{found:?}");
    }
}

#[test]
fn what_the_machine_lacks_is_placed_in_the_file_afterwards() {
    let text = "[system]\nworker_cores = [1,\n  900]\n[api]\ntoken_file = \"/nope\"\n";
    let system = Path::default().key("system").key("worker_cores").index(1);
    let token = Path::default().key("api").key("token_file");
    let errors = vec![
        ConfigError::unavailable(token, "/nope: not there".to_owned()),
        ConfigError::unavailable(system, "no core 900".to_owned()),
    ];
    let errors = ConfigErrors::unless_empty(errors).unwrap_err();
    assert_eq!(
        errors.to_string(),
        "/api/token_file: /nope: not there\n/system/worker_cores/1: no core 900"
    );
    assert_eq!(
        errors.with_locations("m.toml", text).to_string(),
        "m.toml:3:3: system.worker_cores[1]: no core 900\nm.toml:5:14: api.token_file: /nope: not there"
    );
    assert_eq!(ConfigErrors::unless_empty(Vec::new()), Ok(()));
}

#[test]
fn a_summary_counts_what_there_is() {
    let summary = |text: &str| Config::from_toml("m.toml", text).unwrap().summary();
    assert_eq!(summary("# nothing\n"), "0 bridges, 0 ports");
    assert_eq!(summary(&bridge(&["net_null0", "net_null1"])), "1 bridge, 2 ports");
    let controlled = format!(
        "[[bridge]]\nname = \"br9\"\ncontrollers = [\"tcp:127.0.0.1\"]\n{}",
        bridge(&["net_null0"])
    );
    assert_eq!(summary(&controlled), "2 bridges, 1 port, 1 controller");
}

#[test]
fn a_wrong_path_is_refused_at_its_key_with_what_was_expected() {
    let refused = |wan: &str, port: &str| {
        let text = format!("[[wan]]\nname = \"geo\"\n{wan}\n[[bridge]]\nname = \"br0\"\n{port}\n");
        let errors = Config::from_toml("m.toml", &text).unwrap_err();
        errors.to_string()
    };
    let port = |device: &str| format!("[[bridge.port]]\nname = \"p\"\nnumber = 1\ndevice = \"{device}\"");
    for (wan, port, place, expected) in [
        (
            "path = { delay = \"-1ms\" }",
            String::new(),
            "m.toml:3:18: wan[0].path.delay",
            "expected",
        ),
        (
            "path = { rate = \"0bps\" }",
            String::new(),
            "m.toml:3:17: wan[0].path.rate",
            "expected",
        ),
        (
            "path = { colour = \"red\" }",
            String::new(),
            "m.toml:3:10: wan[0].path.colour",
            "unknown key",
        ),
        (
            "path = { delay = \"10ms\" }",
            String::new(),
            "m.toml:2:8: wan[0].name",
            "memory",
        ),
        (
            "memory = \"1MiB\"\npath = { delay = \"10ms\", rate = \"1Gbps\" }",
            String::new(),
            "m.toml:3:10: wan[0].memory",
            "needs",
        ),
        ("[[wan]]\nname = \"geo\"", String::new(), "wan[1].name", "geo"),
        (
            "",
            port("wan:geo,a"),
            "m.toml:9:10: bridge[0].port[0].device",
            "wan:geo,b",
        ),
        (
            "",
            port("wan:leo,a"),
            "m.toml:9:10: bridge[0].port[0].device",
            "expected [[wan]]",
        ),
    ] {
        let message = refused(wan, &port);
        assert!(message.contains(place) && message.contains(expected), "{message}");
    }
}

/// Returns the processor time of this thread, which other programs on the machine do not lengthen.
fn processor_time() -> std::time::Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds = text.split_whitespace().next().unwrap().parse().unwrap();
    std::time::Duration::from_nanos(nanoseconds)
}

/// A file in another format has an error on each of its lines. The time for all errors grows linearly with
/// their number; quadratic growth would take minutes here.
#[test]
fn eighty_thousand_mistakes_are_placed_in_a_moment() {
    let lines: String = (0..80_000).map(|number| format!("k{number} = 1\n")).collect();
    let one_line = (0..80_000).map(|number| format!("k{number} = 1, "));
    let texts = [
        (
            "[[bridge]]\nname = \"br0\"\n".to_owned() + &lines,
            "m.toml:80002:1: bridge[0].k79999: ",
        ),
        (
            format!("system = {{ {}workers = 1 }}\n", one_line.collect::<String>()),
            "m.toml:1:948890: system.k79999: ",
        ),
    ];
    let began = processor_time();
    for (text, last) in texts {
        let errors = Config::from_toml("m.toml", &text).unwrap_err();
        assert_eq!(errors.iter().len(), 80_000);
        assert_eq!(errors.shown().len(), 20);
        let text = errors.iter().last().unwrap().to_string();
        assert!(text.starts_with(last), "{text}");
    }
    let took = processor_time() - began;
    assert!(took.as_secs() < 10, "{took:?}");
}

#[test]
fn an_address_that_is_none_is_named_with_an_example() {
    assert_messages(
        "[[bridge]]\nname = \"br0\"\n[bridge.sflow]\nagent = \"eth0\"\ncollectors = [\"192.0.2.9\"]\n",
        &[
            "m.toml:4:9: bridge[0].sflow.agent: `eth0` is not an IP address: expected one as in 169.254.1.1 or fe80::1",
        ],
    );
}
