//! The log of the daemon: its filter, and the lines about controllers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use millrace_flow::{Action, Field, Instructions, Match, SetField};
use millrace_openflow::{FlowMod, Header, Hello, Message, encode};
use millrace_types::{Priority, TableId, Xid};

use crate::start::{Daemon, GOOD, Site, has};

/// A controller that has sent HELLO.
struct Controller {
    stream: TcpStream,
    xid: u32,
}

impl Controller {
    /// Connects to the only listener.
    fn connect(daemon: &Daemon) -> Controller {
        let log = daemon.wait_for_log(|log| log.contains("configuration applied"));
        let line = log
            .lines()
            .find(|line| line.contains("listening for controllers"));
        let (_, address) = line.unwrap().split_once("address=").unwrap();
        let address: SocketAddr = address.trim().parse().unwrap();
        let stream = TcpStream::connect(address).unwrap();
        let mut controller = Controller { stream, xid: 0 };
        controller.send(&Message::Hello(Hello {
            versions: Some(1 << 4),
        }));
        controller
    }

    fn send(&mut self, message: &Message) {
        self.xid += 1;
        let mut bytes = Vec::new();
        encode(message, Xid(self.xid), &mut bytes).unwrap();
        self.stream.write_all(&bytes).unwrap();
    }

    /// Sends a flow_mod that removes nothing, and waits until it has taken effect.
    fn change(&mut self) {
        self.send(&Message::FlowMod(FlowMod::delete(TableId::ALL, Match::default())));
        self.barrier();
    }

    /// Sends a barrier request and waits for its reply.
    fn barrier(&mut self) {
        self.send(&Message::BarrierRequest);
        loop {
            let mut header = [0; 8];
            self.stream.read_exact(&mut header).unwrap();
            let header = Header::parse(&header).unwrap();
            let mut body = vec![0; usize::from(header.length) - 8];
            self.stream.read_exact(&mut body).unwrap();
            if header.xid == Xid(self.xid) {
                return;
            }
        }
    }
}

/// Returns an entry that sets the DSCP of packets that need not be IP.
fn refused_flow_mod() -> FlowMod {
    let set_dscp = Action::SetField(SetField::new(Field::IpDscp, 7).unwrap());
    FlowMod::add(
        TableId(0),
        Priority(1),
        Match::default(),
        Instructions::apply([set_dscp]),
    )
}

fn site() -> Site {
    Site::new(&GOOD.replace("name = \"br0\"\n", "name = \"br0\"\nlisten = [\"ptcp:0\"]\n"))
}

#[test]
fn a_controller_that_changes_something_is_one_line_each_way_and_one_that_only_asks_is_none() {
    let site = site();
    let daemon = site.start(&[]).unwrap();
    let mut asking = Controller::connect(&daemon);
    asking.barrier();
    let asking = asking.stream.local_addr().unwrap().to_string();
    let mut controller = Controller::connect(&daemon);
    controller.change();
    let address = controller.stream.local_addr().unwrap().to_string();
    drop(controller);
    let log = daemon.wait_for_log(|log| log.contains("controller disconnected"));
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(&address)).collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert!(!log.contains(&asking), "{log}");
    has(lines[0], &["INFO", "controller connected", "bridge=br0"]);
    has(
        lines[1],
        &[
            "INFO",
            "controller disconnected",
            "reason=the controller closed the connection",
        ],
    );
    for debug in ["Some(", "None", "Err(", "Ok("] {
        assert!(
            !daemon.startup_log.contains(debug) && !log.contains(debug),
            "{debug}: {log}"
        );
    }
}

#[test]
fn a_refused_flow_mod_is_a_warning_with_the_field_and_what_it_needs_and_many_are_few_lines() {
    let site = site();
    let daemon = site.start(&[]).unwrap();
    let mut controller = Controller::connect(&daemon);
    for _ in 0..500 {
        controller.send(&Message::FlowMod(refused_flow_mod()));
    }
    controller.barrier();
    let log = daemon.wait_for_log(|log| log.contains("flow_mod refused"));
    let lines: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("flow_mod refused"))
        .collect();
    assert!((1..50).contains(&lines.len()), "{} lines", lines.len());
    has(
        lines[0],
        &[
            "WARN",
            "bridge=br0",
            "xid=2",
            "OFPBAC_MATCH_INCONSISTENT",
            "set_field ip_dscp needs eth_type=0x800 or 0x86dd in the match or from an earlier action",
        ],
    );
}

#[test]
fn a_flow_mod_that_cannot_be_decoded_is_a_warning_with_the_field() {
    let site = site();
    let daemon = site.start(&[]).unwrap();
    let mut controller = Controller::connect(&daemon);
    let mut bytes = Vec::new();
    let flow_mod = FlowMod {
        match_: Match::exact(&[(Field::EthType, 0x0800), (Field::IpProto, 6)]).unwrap(),
        ..refused_flow_mod()
    };
    encode(&Message::FlowMod(flow_mod), Xid(77), &mut bytes).unwrap();
    let eth_type = [0x80, 0x00, 0x0a, 0x02, 0x08, 0x00];
    let at = bytes.windows(6).position(|window| window == eth_type).unwrap();
    // The changed byte makes the field vlan_vid=0x1000, of the same size, so that the match has no eth_type.
    bytes[at + 2] = 6 << 1;
    bytes[at + 4] = 0x10;
    controller.stream.write_all(&bytes).unwrap();
    controller.barrier();
    let log = daemon.wait_for_log(|log| log.contains("flow_mod refused"));
    has(
        &log,
        &[
            "WARN",
            "xid=77",
            "OFPBMC_BAD_PREREQ",
            "ip_proto needs eth_type=0x800 or 0x86dd in the same match",
        ],
    );
}

#[test]
fn the_levels_of_the_log_change_while_the_daemon_runs() {
    let site = site();
    let daemon = site.start(&[
        "--log",
        "warn,millraced=info,millrace_api=info,millrace_agent=info",
    ]);
    let daemon = daemon.unwrap();
    let begun = "warn,millrace_agent=info,millrace_api=info,millraced=info";
    assert_eq!(daemon.client.log().unwrap().filter, begun);
    // The next filter suppresses these lines, so they are awaited first.
    daemon.wait_for_log(|log| log.contains("configuration applied"));
    assert_eq!(daemon.client.set_log("warn").unwrap().filter, "warn");
    Controller::connect(&daemon).change();
    assert_eq!(daemon.client.set_log("info").unwrap().filter, "info");
    // A controller that stays is logged, even if it only asks.
    let mut controller = Controller::connect(&daemon);
    controller.barrier();
    let address = controller.stream.local_addr().unwrap().to_string();
    let log = daemon.wait_for_log(|log| log.contains(&address));
    assert_eq!(log.matches("controller connected").count(), 1, "{log}");
    has(
        &log,
        &[
            &format!("log filter changed old={begun} new=warn"),
            "log filter changed old=warn new=info",
        ],
    );
    let message = daemon
        .client
        .set_log("millrace_agnet=debug")
        .unwrap_err()
        .to_string();
    has(&message, &["`millrace_agnet` is not a target", "millrace_agent"]);
    assert_eq!(
        daemon.client.log().unwrap().filter,
        "info",
        "a refused filter changes nothing"
    );
}

#[test]
fn an_unknown_level_or_target_is_refused_by_a_start_and_by_a_check() {
    let site = Site::new(GOOD);
    for (filter, message) in [
        (
            "inof",
            "`inof` is not a level: expected off, error, warn, info, debug, trace",
        ),
        (
            "info,dpkd=debug",
            "`dpkd` is not a target: expected dpdk, millrace_agent",
        ),
    ] {
        for options in [&["--check", "--log", filter][..], &["--log", filter]] {
            let output = site.command(options).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{options:?}");
            has(&String::from_utf8(output.stderr).unwrap(), &[message]);
        }
    }
}
