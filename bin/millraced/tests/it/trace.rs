//! The texts of `millrace trace` that explain a table miss, a flood, and an assumed ingress port.

use std::io::{Read, Write};
use std::net::TcpListener;

use millrace_api::view::{FlowModCommand, FlowMods, Trace, TraceRequest};
use millrace_openflow::{Header, Hello, Message, encode};
use millrace_types::Xid;

use crate::start::{Daemon, Site};

/// Starts a daemon whose bridge has two ports and these settings.
fn start(settings: &str) -> (Site, Daemon) {
    let site = Site::new(&format!(
        "[api]\nsocket = \"@/api.sock\"\n[[bridge]]\nname = \"br0\"\n{settings}\n[[bridge.port]]\nname = \"p1\"\nnumber = 1\n\
         device = \"memory\"\n[[bridge.port]]\nname = \"p2\"\nnumber = 2\ndevice = \"memory\"\n"
    ));
    let daemon = site.start(&[]).unwrap();
    daemon.wait_for_log(|log| log.contains("configuration applied"));
    (site, daemon)
}

fn trace(daemon: &Daemon, packet: &str) -> Trace {
    let request = TraceRequest {
        packet: Some(packet.to_owned()),
        hex: None,
    };
    daemon.client.trace("br0", &request).unwrap()
}

/// Returns the effects of all steps, in order.
fn effects(trace: &Trace) -> Vec<&str> {
    let steps = trace.steps.iter();
    steps
        .flat_map(|step| step.effects.iter().map(String::as_str))
        .collect()
}

#[test]
fn a_miss_in_standalone_mode_is_forwarded_by_normal_which_says_why_it_floods() {
    let (_site, daemon) = start("fail_mode = \"standalone\"");
    for (destination, reason) in [
        ("ff:ff:ff:ff:ff:ff", "the destination is broadcast: flood"),
        ("01:00:5e:00:00:01", "the destination is multicast: flood"),
        (
            "02:00:00:00:00:02",
            "the destination is not in the MAC table: flood",
        ),
    ] {
        let trace = trace(
            &daemon,
            &format!("in_port=1,dl_src=02:00:00:00:00:01,dl_dst={destination},udp"),
        );
        assert_eq!(
            effects(&trace),
            [
                "forwarded by NORMAL, because fail_mode is standalone and no controller is connected",
                &format!("NORMAL: {reason}"),
                "output to port 2 (p2)",
            ],
            "{trace:?}"
        );
        assert_eq!(trace.notes, [""; 0], "in_port was given");
    }
}

#[test]
fn a_miss_in_secure_mode_is_dropped_because_of_the_mode() {
    let (_site, daemon) = start("fail_mode = \"secure\"");
    let trace = trace(&daemon, "in_port=1,udp");
    let effects = effects(&trace);
    assert_eq!(effects[0], "not forwarded by NORMAL, because fail_mode is secure");
    assert!(trace.dropped.is_some() && trace.outputs.is_empty(), "{trace:?}");
}

#[test]
fn a_packet_for_a_controller_that_is_absent_is_dropped_by_name() {
    let (_site, daemon) = start("fail_mode = \"secure\"");
    let entry = FlowMods {
        command: FlowModCommand::Add,
        strict: false,
        flows: vec!["priority=0,actions=CONTROLLER".to_owned()],
        author: String::new(),
    };
    daemon.client.flow_mods("br0", &entry).unwrap();
    let trace = trace(&daemon, "in_port=1,udp");
    assert_eq!(trace.dropped.as_deref(), Some("no_controller"), "{trace:?}");
    assert!(trace.outputs.is_empty(), "{trace:?}");
}

#[test]
fn a_packet_of_a_controller_is_traced_from_the_port_controller() {
    let (_site, daemon) = start("fail_mode = \"standalone\"");
    let trace = trace(
        &daemon,
        "in_port=CONTROLLER,dl_src=02:00:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff,udp",
    );
    let effects = effects(&trace);
    for port in ["output to port 1 (p1)", "output to port 2 (p2)"] {
        assert!(effects.contains(&port), "{trace:?}");
    }
    assert_eq!(trace.notes, [""; 0], "in_port was given");
}

#[test]
fn a_miss_under_a_controller_is_dropped_because_the_controller_is_connected() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap();
    let (_site, daemon) = start(&format!(
        "fail_mode = \"standalone\"\ncontrollers = [\"tcp:{target}\"]"
    ));
    let (mut controller, _) = listener.accept().unwrap();
    let mut hello = Vec::new();
    encode(&Message::Hello(Hello::OURS), Xid(1), &mut hello).unwrap();
    encode(&Message::BarrierRequest, Xid(2), &mut hello).unwrap();
    controller.write_all(&hello).unwrap();
    // The reply to a barrier is sent when the tables are published for which the controller counts as connected.
    loop {
        let mut header = [0; 8];
        controller.read_exact(&mut header).unwrap();
        let header = Header::parse(&header).unwrap();
        let mut body = vec![0; usize::from(header.length) - 8];
        controller.read_exact(&mut body).unwrap();
        if header.xid == Xid(2) {
            break;
        }
    }
    let trace = trace(&daemon, "in_port=1,udp");
    assert_eq!(
        effects(&trace)[0],
        "not forwarded by NORMAL, because a controller is connected"
    );
    assert!(trace.outputs.is_empty(), "{trace:?}");
}

#[test]
fn a_trace_without_in_port_says_which_port_it_assumes() {
    let (_site, daemon) = start("fail_mode = \"secure\"");
    let trace = trace(&daemon, "udp");
    assert_eq!(trace.in_port, 1);
    assert_eq!(trace.notes, ["in_port is not given: port 1 (p1) is assumed"]);
}
