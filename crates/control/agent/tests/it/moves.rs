//! Devices that move from one bridge to another in one change.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::harness::TestSwitch;

/// Returns a configuration of two bridges with a link. The port at the second end of the link is on
/// `br<owner>`.
fn config(owner: usize) -> String {
    let mut text = String::new();
    for bridge in 0..2 {
        text += &format!("[[bridge]]\nname = \"br{bridge}\"\n");
        if bridge == 1 {
            text += "[[bridge.port]]\nname = \"stays\"\nnumber = 1\ndevice = \"link:patch\"\n";
        }
        if bridge == owner {
            text += "[[bridge.port]]\nname = \"moves\"\nnumber = 2\ndevice = \"link:patch\"\n";
        }
    }
    text
}

#[test]
fn a_device_moves_to_an_earlier_and_to_a_later_bridge_in_one_change() {
    let mut switch = TestSwitch::start(&config(1));
    for owner in [0, 1, 0] {
        assert_eq!(switch.apply(&config(owner)).problems, []);
        let ports = switch.switch.bridge(&format!("br{owner}")).unwrap();
        let names = ports.call_blocking(|control| {
            let ports = control.ports().values();
            ports.map(|port| port.model.name.to_string()).collect::<Vec<_>>()
        });
        assert!(names.unwrap().contains(&"moves".to_owned()));
    }
}
