//! BFD, continuity checks and flap damping between two bridges that a link connects.

use millrace_agent::control::OamStatus;
use millrace_flow::{Action, Bucket, Field};
use millrace_openflow::{GroupMod, GroupModCommand, GroupType, Message, PortState};
use millrace_types::{GroupId, PortNo};

use crate::harness::{Controller, PATIENCE, TestSwitch, flow, packet, wait_for};

/// Returns two bridges whose ports 1 have these settings and are the ends of a link. On `br0`, port 2 is the
/// backup of port 1, and the traffic arrives at port 3.
fn config(settings: [&str; 2]) -> String {
    let mut text = String::new();
    for (bridge, settings) in ["br0", "br1"].into_iter().zip(settings) {
        text += &format!("[[bridge]]\nname = \"{bridge}\"\nlisten = [\"ptcp:0\"]\n");
        text +=
            &format!("[[bridge.port]]\nname = \"p1\"\nnumber = 1\ndevice = \"link:between\"\n{settings}\n");
        for number in 2..=3 {
            text +=
                &format!("[[bridge.port]]\nname = \"p{number}\"\nnumber = {number}\ndevice = \"memory\"\n");
        }
    }
    text
}

fn oam(switch: &TestSwitch, bridge: &str) -> OamStatus {
    switch
        .switch
        .bridge(bridge)
        .unwrap()
        .call_blocking(|bridge| bridge.oam_status(PortNo::from_raw(1)))
        .unwrap()
        .unwrap()
}

fn state(switch: &TestSwitch) -> PortState {
    let mut controller = switch.controller();
    port_state(&mut controller)
}

fn port_state(controller: &mut Controller) -> PortState {
    use millrace_openflow::multipart::{MultipartReply, MultipartRequest, ReplyBody, RequestBody};
    let asked = Message::MultipartRequest(MultipartRequest::new(RequestBody::PortDesc));
    match controller.ask(&asked) {
        Message::MultipartReply(MultipartReply {
            body: ReplyBody::PortDesc(ports),
            ..
        }) => {
            ports
                .iter()
                .find(|port| port.number == PortNo::from_raw(1))
                .unwrap()
                .state
        }
        other => panic!("{other}"),
    }
}

/// Adds a fast-failover group of ports 1 and 2, and sends the packets of port 3 to it.
fn protect(controller: &mut Controller) {
    let bucket = |port| Bucket {
        weight: 0,
        watch_port: PortNo::from_raw(port),
        watch_group: GroupId::ANY,
        actions: [Action::output(PortNo::from_raw(port))].into(),
    };
    controller.send(&Message::GroupMod(GroupMod {
        command: GroupModCommand::Add,
        type_: GroupType::FastFailover,
        group: GroupId(7),
        buckets: [bucket(1), bucket(2)].into(),
    }));
    controller.add([flow(1, &[(Field::InPort, 3)], &[Action::Group(GroupId(7))])]);
}

/// Makes the port of `br1` silent: it sends nothing, and its link stays up.
fn silence(switch: &mut TestSwitch, settings: &str, is_silent: bool) {
    let silent = format!("{settings}\nno_fwd = {is_silent}");
    let status = switch.apply(&config([settings, &silent]));
    assert_eq!(status.problems, []);
}

/// Checks that traffic moves to the backup on a failure, and back afterwards. `settings` returns the settings
/// of a port with this wait-to-restore time in seconds.
fn fails_over_and_back(settings: impl Fn(u32) -> String, is_up: impl Fn(&OamStatus) -> bool) {
    let (short, long) = (&*settings(1), &*settings(3600));
    let mut switch = TestSwitch::start(&config([short, short]));
    for bridge in ["br0", "br1"] {
        wait_for("both ends to be up", || {
            is_up(&oam(&switch, bridge)).then_some(())
        });
    }
    wait_for("the live bit", || {
        state(&switch).contains(PortState::LIVE).then_some(())
    });
    let mut controller = switch.controller();
    protect(&mut controller);
    // On a busy machine, the session may be down for a moment, and a packet may then use the backup.
    let liveness = || {
        let oam = oam(&switch, "br0");
        (oam.is_live, oam.bfd.map(|bfd| bfd.counters.flaps))
    };
    let mut size = 64;
    wait_for("a packet while the session is up", || {
        let before = liveness();
        size += 1;
        switch.peer(3).send(&packet(size));
        let received = switch
            .peer(2)
            .receive_within(std::time::Duration::from_millis(50));
        if !before.0 || liveness() != before {
            return None;
        }
        assert_ne!(received, Some(packet(size)), "the group uses the first port");
        received.is_none().then_some(())
    });

    silence(&mut switch, long, true);
    wait_for("the end of the session", || {
        (!oam(&switch, "br0").is_live).then_some(())
    });
    let now = port_state(&mut controller);
    assert!(
        !now.contains(PortState::LIVE) && !now.contains(PortState::LINK_DOWN),
        "{now}"
    );
    switch.peer(3).send(&packet(1000));
    wait_for("the backup that the group uses", || {
        (switch.peer(2).receive_within(PATIENCE)? == packet(1000)).then_some(())
    });

    silence(&mut switch, long, false);
    let waiting = wait_for("the wait to restore", || {
        let oam = oam(&switch, "br0");
        oam.restores_in.is_some().then_some(oam)
    });
    assert!(!waiting.is_live, "{waiting:?}");
    assert!(
        waiting.restores_in <= Some(std::time::Duration::from_secs(3600)),
        "{waiting:?}"
    );
    assert!(!state(&switch).contains(PortState::LIVE));
    silence(&mut switch, short, false);
    wait_for("the live bit", || {
        state(&switch).contains(PortState::LIVE).then_some(())
    });
}

#[test]
fn bfd_moves_fast_failover_groups_on_a_loss_one_way_and_back_after_the_time_to_restore() {
    let settings = |restore| {
        format!("wait_to_restore_s = {restore}\nbfd = {{ min_tx_ms = 50, min_rx_ms = 50, multiplier = 6 }}")
    };
    fails_over_and_back(settings, |oam| {
        oam.bfd
            .as_ref()
            .is_some_and(|bfd| bfd.state == millrace_oam::bfd::State::Up)
    });
}

#[test]
fn continuity_checks_move_fast_failover_groups_on_a_loss_one_way_and_back() {
    let settings = "wait_to_restore_s = 1\nccm = { mep = 1, interval = \"100ms\" }";
    let other = "wait_to_restore_s = 1\nccm = { mep = 2, interval = \"100ms\" }";
    let switch = TestSwitch::start(&config([settings, settings]));
    // Both ends have the same MEP identifier, which is a defect.
    wait_for("a defect", || {
        (oam(&switch, "br0").ccm?.counters.defects > 0).then_some(())
    });
    assert!(!state(&switch).contains(PortState::LIVE));
    drop(switch);
    let mut switch = TestSwitch::start(&config([settings, other]));
    wait_for("the live bit", || {
        state(&switch).contains(PortState::LIVE).then_some(())
    });
    let silent = format!("{other}\nno_fwd = true");
    switch.apply(&config([settings, &silent]));
    wait_for("the loss", || (!oam(&switch, "br0").is_live).then_some(()));
    // The far end still receives messages of the near end. They report that the messages of the far end do
    // not arrive.
    wait_for("the remote defect", || {
        oam(&switch, "br1").ccm?.has_rdi.then_some(())
    });
    wait_for("the other end", || (!oam(&switch, "br1").is_live).then_some(()));
}

#[test]
fn new_checks_and_a_new_peer_begin_as_if_the_port_were_new() {
    let bfd = |remote: &str| {
        format!(
            "wait_to_restore_s = 3600\nbfd = {{ min_tx_ms = 200, min_rx_ms = 200, multiplier = 50{remote} }}"
        )
    };
    let ccm = |mep: u32| format!("wait_to_restore_s = 3600\nccm = {{ mep = {mep}, interval = \"100ms\" }}");
    let mut switch = TestSwitch::start(&config([&ccm(1), &ccm(2)]));
    let is_live = |switch: &TestSwitch| oam(switch, "br0").is_live.then_some(());
    wait_for("continuity", || is_live(&switch));
    // The session comes up for the first time, so that the port does not wait for an hour.
    let same = bfd("");
    assert_eq!(switch.apply(&config([&same, &same])).problems, []);
    wait_for("the session", || {
        let oam = oam(&switch, "br0");
        (oam.is_live && oam.bfd?.state == millrace_oam::bfd::State::Up).then_some(())
    });
    // The session with the former peer could be up for ten seconds without a packet.
    let other = bfd(", remote = \"169.254.1.9\"");
    assert_eq!(switch.apply(&config([&other, &same])).problems, []);
    let oam = oam(&switch, "br0");
    assert_eq!((oam.is_live, oam.restores_in), (false, None));
    assert!(!state(&switch).contains(PortState::LIVE));
}

#[test]
fn a_link_that_flaps_three_times_is_held_down_and_says_so() {
    let (switch, mut controller) = flaps_three_times(3600);
    let held = port_state(&mut controller);
    assert!(
        held.contains(PortState::LINK_DOWN) && held.contains(PortState::BLOCKED),
        "{held}"
    );
    let damping = oam(&switch, "br0").damping.unwrap();
    assert_eq!((damping.damped, damping.left.is_some()), (1, true));
    // An operator who removes `damping` has the link back at once.
    let (mut switch, mut controller) = flaps_three_times(3600);
    let without = damped(3600)
        .lines()
        .filter(|line| !line.starts_with("damping"))
        .fold(String::new(), |text, line| text + line + "\n");
    assert_eq!(switch.apply(&without).problems, []);
    let free = port_state(&mut controller);
    assert!(
        free.contains(PortState::LIVE) && !free.contains(PortState::BLOCKED),
        "{free}"
    );
    let (switch, mut controller) = flaps_three_times(1);
    wait_for("the end of damping", || {
        port_state(&mut controller)
            .contains(PortState::LIVE)
            .then_some(())
    });
    let damping = oam(&switch, "br0").damping.unwrap();
    assert_eq!((damping.damped, damping.left), (1, None));
}

/// Returns a switch whose link went down three times and is up again. The switch treats the link as down for
/// `hold_down` seconds.
fn flaps_three_times(hold_down: u32) -> (TestSwitch, Controller) {
    let switch = TestSwitch::start(&damped(hold_down));
    let mut controller = switch.controller();
    for round in 0..3 {
        for is_up in [false, true] {
            switch.peer(1).set_link(is_up);
            if round < 2 || !is_up {
                wait_for("the link", || {
                    (port_state(&mut controller).contains(PortState::LINK_DOWN) != is_up).then_some(())
                });
            }
        }
    }
    (switch, controller)
}

/// Returns a bridge with a port whose flap damping has this hold-down time in seconds.
fn damped(hold_down: u32) -> String {
    format!(
        "[[bridge]]\nname = \"br0\"\nlisten = [\"ptcp:0\"]\n[[bridge.port]]\nname = \"p1\"\nnumber = 1\n\
         device = \"memory\"\ndamping = {{ window_s = 3600, hold_down_s = {hold_down} }}\n"
    )
}
