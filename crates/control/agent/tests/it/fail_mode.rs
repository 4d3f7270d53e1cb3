//! `fail_mode = "standalone"` after a controller is gone whose entries send packets to it.

use std::net::TcpListener;

use crate::controllers::flows;
use crate::harness::{Controller, SILENCE, TestSwitch, config, flow, output, packet, wait_for};
use millrace_openflow::{Hello, Message};
use millrace_types::PortNo;

/// Returns a standalone bridge with a controller that has sent an entry for every packet, as a learning application does,
/// and is gone; the listener takes its next connection.
fn abandoned(settings: &str) -> (TestSwitch, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap();
    let switch = TestSwitch::start(&config(
        2,
        &format!(
            "fail_mode = \"standalone\"\n{settings}\n\
             controllers = [{{ target = \"tcp:{target}\", echo_interval_s = 1, max_backoff_s = 1 }}]"
        ),
    ));
    let mut controller = Controller::on(listener.accept().unwrap().0);
    controller.add([flow(0, &[], &[output(PortNo::CONTROLLER.raw())])]);
    drop(controller);
    wait_for("a packet for the controller that is gone", || {
        switch.peer(1).send(&packet(80));
        let drops = |bridge: &mut millrace_agent::BridgeControl<_>| {
            bridge.tables().drops(millrace_pipeline::DropReason::NoController)
        };
        (switch.switch.bridge("br0").unwrap().call_blocking(drops).unwrap() > 0).then_some(())
    });
    wait_for("the learning bridge", || {
        switch.peer(1).send(&packet(80));
        switch.peer(2).receive_within(SILENCE)
    });
    (switch, listener)
}

#[test]
fn a_standalone_bridge_takes_over_from_the_entries_of_a_controller_that_is_gone() {
    let (switch, listener) = abandoned("");
    let mut controller = Controller::on(listener.accept().unwrap().0);
    assert_eq!(flows(&mut controller).len(), 0, "as in Open vSwitch");
    while switch.peer(2).receive().is_some() {}
    switch.peer(1).send(&packet(80));
    assert_eq!(
        switch.peer(2).receive_within(SILENCE),
        None,
        "the controller decides"
    );
}

#[test]
fn a_standalone_bridge_can_keep_the_entries_for_the_return_of_the_controller() {
    let (switch, listener) = abandoned("standalone_flows = \"keep\"");
    // A controller that leaves after the handshake does not control the bridge.
    let mut refuses = Controller::silent(listener.accept().unwrap().0);
    refuses.send(&Message::Hello(Hello::OURS));
    assert!(matches!(
        refuses.ask(&Message::FeaturesRequest),
        Message::FeaturesReply(_)
    ));
    drop(refuses);
    wait_for("the learning bridge", || {
        switch.peer(1).send(&packet(80));
        switch.peer(2).receive_within(SILENCE)
    });
    let mut controller = Controller::on(listener.accept().unwrap().0);
    assert_eq!(flows(&mut controller).len(), 1);
    while switch.peer(2).receive().is_some() {}
    switch.peer(1).send(&packet(80));
    assert_eq!(
        switch.peer(2).receive_within(SILENCE),
        None,
        "the entry is in effect"
    );
}
