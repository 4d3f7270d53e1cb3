//! The offload of a port to its device: decoding, encoding and rejection of devices without entries.

use millrace_model::{Config, OffloadMode, diff};

fn text(device: &str, offload: &str) -> String {
    format!(
        "[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"p1\"\nnumber = 1\ndevice = \"{device}\"\n{offload}\n"
    )
}

fn read(offload: &str) -> Config {
    Config::from_toml("m.toml", &text("nic:/run/nic.sock", offload)).unwrap()
}

#[track_caller]
fn assert_messages(text: &str, expected: &[&str]) {
    let errors = Config::from_toml("m.toml", text).unwrap_err();
    let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(messages, expected);
}

#[test]
fn the_offload_of_a_port_is_read_and_written_back_the_same() {
    let config =
        read("offload = { mode = \"trust\", entries = 100, operations_per_second = 5, drops = true }");
    let offload = config.bridges[0].ports[0].offload.as_ref().unwrap();
    assert_eq!(offload.mode, OffloadMode::Trust);
    assert_eq!(offload.entries.unwrap().get(), 100);
    assert_eq!((offload.operations_per_second.get(), offload.drops), (5, true));
    assert_eq!(Config::from_toml("again", &config.to_toml()).unwrap(), config);
    assert_eq!(Config::from_toml("full", &config.to_toml_full()).unwrap(), config);
    assert_eq!(Config::from_json(&config.to_json()).unwrap(), config);
    let defaults = read("offload = {}");
    let offload = defaults.bridges[0].ports[0].offload.as_ref().unwrap();
    assert_eq!((offload.mode, offload.entries), (OffloadMode::Auto, None));
    assert_eq!(
        (offload.operations_per_second.get(), offload.drops),
        (2000, false)
    );
    assert_eq!(read("").bridges[0].ports[0].offload, None);
}

#[test]
fn offload_begins_changes_and_ends_without_a_restart() {
    let all = [
        read(""),
        read("offload = {}"),
        read("offload = { mode = \"verify\" }"),
        read("offload = { drops = true }"),
        read(""),
    ];
    for pair in all.windows(2) {
        let changes = diff(&pair[0], &pair[1]);
        assert!(
            !changes.is_empty() && changes.iter().all(|change| !change.restart),
            "{changes:?}"
        );
    }
}

#[test]
fn a_device_without_entries_is_told() {
    for device in ["memory", "kernel:eth1"] {
        assert_messages(
            &text(device, "offload = { mode = \"auto\" }"),
            &[&format!(
                "m.toml:7:11: bridge[0].port[0].offload: {device} does not classify packets: expected nic:PATH or a device of DPDK, \
                 or no `offload`"
            )],
        );
    }
}

#[test]
fn drops_of_a_device_that_is_not_trusted_or_does_not_count_them_are_told() {
    assert_messages(
        &text(
            "nic:/run/nic.sock",
            "offload = { mode = \"verify\", drops = true }",
        ),
        &[
            "m.toml:7:38: bridge[0].port[0].offload.drops: a device drops packets only while its marks are trusted, and `mode` is \
           verify: expected \"trust\" or \"auto\", or no `drops`",
        ],
    );
    assert_messages(
        &text("0000:01:00.0", "offload = { mode = \"trust\", drops = true }"),
        &[
            "m.toml:7:37: bridge[0].port[0].offload.drops: 0000:01:00.0 does not count what it drops: expected nic:PATH, or no \
           `drops`",
        ],
    );
}

#[test]
fn a_device_of_dpdk_may_have_entries() {
    for device in ["0000:01:00.0", "net_af_packet0,iface=eth1"] {
        let config = Config::from_toml("m.toml", &text(device, "offload = { mode = \"verify\" }"));
        assert!(config.is_ok(), "{device}");
    }
}

#[test]
fn numbers_and_words_that_do_not_exist_are_told() {
    assert_messages(
        &text(
            "nic:/run/nic.sock",
            "[bridge.port.offload]\nmode = \"full\"\nentries = 0\noperations_per_second = 1000001",
        ),
        &[
            "m.toml:8:8: bridge[0].port[0].offload.mode: `full` is not a choice: expected \"auto\" or \"dispatch\" or \"verify\" or \
             \"trust\"",
            "m.toml:9:11: bridge[0].port[0].offload.entries: 0 is out of range: expected 1 to 65536 entries",
            "m.toml:10:25: bridge[0].port[0].offload.operations_per_second: 1000001 is out of range: expected 1 to 1000000 a second",
        ],
    );
}
