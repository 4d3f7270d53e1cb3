//! Files in Lagopus' DSL.

use millrace_import::{Weight, lagopus};

use crate::{differences, findings, has, is_valid};

/// As Lagopus' own example, with every kind of object.
pub(crate) const FILE: &str = "\
# all the log objects' attribute
log -syslog -ident lagopus -debuglevel 0
datastore -addr 0.0.0.0 -port 12345 -protocol tcp -tls false
agent -channelq-size 1000 -channelq-max-batches 1000

interface if01 create -type ethernet-rawsock -device eth1 -mtu 1500
interface if02 create -type ethernet-dpdk-phy -device 0000:02:00.0 -mtu 9000
interface if03 create -type ethernet-dpdk-phy -port-number 2
interface p0 create -type ethernet-dpdk-phy -device \"eth_pipe0\"
interface p1 create -type ethernet-dpdk-phy -device \"eth_pipe1,attach=eth_pipe0\"
policer-action pa01 create -type discard
policer pol01 create -action pa01 -bandwidth-limit 10000000 -burst-size-limit 11000
queue q1 create -type two-rate -id 1 -priority 50 -color color-blind -committed-information-rate 1000000 -peak-information-rate 2000000
port port01 create -interface if01 -policer pol01 -queue q1
port port02 create -interface if02
port port03 create -interface if03
port port04 create -interface p0
port port05 create -interface p1
channel ch01 create -dst-addr 192.0.2.1 -protocol tcp
channel ch02 create -dst-addr 2001:db8::1 -dst-port 6653 -local-addr 0.0.0.0 -local-port 0
controller c01 create -channel ch01 -role equal -connection-type main
controller c02 create -channel ch02 -role equal -connection-type main
controller c03 create -channel ch02 -role equal -connection-type auxiliary
bridge br01 create -controller c01 -controller c02 -controller c03 -port port01 1 -port port02 2 -port port03 7 -dpid 0x1 -fail-mode secure
bridge br02 create -port port04 1 -port port05 2 -dpid 2 -l2-bridge True -mactable-ageing-time 600 -mactable-max-entries 8192
bridge br01 enable
bridge br02 enable
";

#[test]
fn a_file_with_every_kind_of_object_is_a_configuration() {
    let imported = lagopus::read("l.dsl", FILE.as_bytes()).unwrap();
    is_valid(&imported);
    has(
        &imported.config.to_toml(),
        &[
            "name = \"br01\"\ndpid = \"0000000000000001\"",
            "tcp:192.0.2.1:6633",
            "tcp:[2001:db8::1]:6653",
            "auxiliary = 1",
            "number = 1\ndevice = \"kernel:eth1\"",
            "number = 2\ndevice = \"0000:02:00.0\"",
            "mtu = 9000",
            "number = 7\ndevice = \"memory\"",
            "device = \"link:pipe0\"",
            "mac_ageing_s = 600",
            "cir = \"10Mbps\"",
            "min_rate = \"1Mbps\"",
            "max_rate = \"2Mbps\"",
            "weight = 50",
            "fail_mode = \"standalone\"",
        ],
    );
    let differences = differences(&imported);
    has(
        &differences,
        &[
            "l.dsl:8: interface if03: -port-number 2 counts the NICs that DPDK found: expected the PCI address",
            "l.dsl:25: -l2-bridge true",
        ],
    );
    assert_eq!(differences.lines().count(), 2, "{differences}");
    has(
        &findings(&imported, Weight::Note),
        &["l.dsl:2: log: ", "l.dsl:3: datastore: ", "l.dsl:4: agent: "],
    );
}

#[test]
fn every_line_that_cannot_be_said_is_named() {
    let imported = lagopus::read(
        "l.dsl",
        b"interface t create -type vxlan -dst-addr 192.0.2.1\nport p create -interface t -hue red\nport lost create -interface none\n\
          bridge b create -port p 1 -port lost 2 -port gone 3 -dpid one\nflow b add in_port=1 apply_actions=output:2\nwonder w create\n\
          bridge way-too-long-name-of-it create -dpid 5\n",
    )
    .unwrap();
    is_valid(&imported);
    has(
        &differences(&imported),
        &[
            "l.dsl:1: interface t: type vxlan: expected a device `vxlan:remote=IP",
            "l.dsl:2: -hue red: not known here",
            "l.dsl:3: interface none is not in the file",
            "l.dsl:4: port gone is not in the file",
            "l.dsl:4: -dpid one: expected a number",
            "l.dsl:5: flow b add in_port=1 apply_actions=output:2: flow entries are no configuration: expected `millrace flow add`",
            "l.dsl:6: wonder w create: not known here",
            "l.dsl:7: bridge[1].name is left out: ",
        ],
    );
}

#[test]
fn lagoshs_syntax_and_other_texts_are_refused_by_name() {
    let reason = |text: &str| lagopus::read("l", text.as_bytes()).unwrap_err().to_string();
    has(
        &reason("interface {\n  if01 {\n"),
        &["l:1: lagosh's configuration syntax", "lagosh --dsl-encode"],
    );
    has(&reason("hello\n"), &["no object of Lagopus"]);
}
