//! The settings of ports that a controller changes, and the changes of their devices.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::harness::{TestSwitch, config, port_down};
use millrace_openflow::{Message, PortReason};
use millrace_types::{Mac, PortNo};

#[test]
fn a_port_that_a_controller_set_down_stays_down_when_the_configuration_is_applied_again() {
    let text = config(2, "");
    let mut switch = TestSwitch::start(&text);
    let mut controller = switch.controller();
    controller.send(&port_down(2, true));
    controller.barrier();
    let is_down = |switch: &TestSwitch| {
        let bridge = switch.switch.bridge("br0").unwrap();
        let port = PortNo::from_raw(2);
        let config = bridge.call_blocking(move |control| control.ports()[&port].config);
        config.unwrap().has(millrace_pipeline::PortConfig::DOWN)
    };
    let no_flood = text.clone() + "no_flood = true\n";
    for text in [&text, &no_flood] {
        assert_eq!(switch.apply(text).problems, []);
        assert!(is_down(&switch));
    }
    let down = no_flood.clone() + "down = true\n";
    // A setting takes effect when it changes, whatever a controller has set before.
    for (text, expected) in [(&down, true), (&no_flood, false)] {
        switch.apply(text);
        assert_eq!(is_down(&switch), expected);
    }
}

#[test]
fn a_device_that_gets_another_address_is_reported() {
    let switch = TestSwitch::start(&config(2, ""));
    let mut controller = switch.controller();
    let mac = Mac([2, 0, 0, 0, 0, 9]);
    switch.peer(2).set_mac(mac);
    let (_, Message::PortStatus(status)) = controller.receive().unwrap() else {
        panic!("no port_status")
    };
    assert_eq!(
        (status.reason, status.port.number, status.port.mac),
        (PortReason::Modify, PortNo::from_raw(2), mac)
    );
}
