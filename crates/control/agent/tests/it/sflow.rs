//! sFlow of a whole switch: a collector on the loopback address gets samples, counters and notifications.

use std::fs::File;
use std::net::UdpSocket;

use millrace_sflow::{CounterSample, Datagram, DiscardedPacket, DropCode, FlowSample, Output, Sample};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::harness::{PATIENCE, TestSwitch, packet, patch, wait_for};

/// A collector with all that it received.
struct Collector {
    socket: UdpSocket,
    datagrams: Vec<Datagram>,
}

impl Collector {
    fn new() -> Collector {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        Collector {
            socket,
            datagrams: Vec::new(),
        }
    }

    /// Returns the configuration of a bridge that has two ports and sends sFlow to this collector.
    fn config(&self, settings: &str) -> String {
        let address = self.socket.local_addr().unwrap();
        crate::harness::config(
            2,
            &format!("sflow = {{ agent = \"192.0.2.1\", collectors = [\"{address}\"], {settings} }}"),
        )
    }

    fn receive(&mut self) {
        let mut bytes = [0; 65_535];
        while let Ok(size) = self.socket.recv(&mut bytes) {
            self.datagrams.push(Datagram::parse(&bytes[..size]).unwrap());
        }
    }

    /// Waits until `look` returns a value.
    fn wait_for<T>(&mut self, what: &str, mut look: impl FnMut(&Collector) -> Option<T>) -> T {
        wait_for(what, || {
            self.receive();
            look(self)
        })
    }

    fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.datagrams.iter().flat_map(|datagram| &datagram.samples)
    }

    fn flows(&self) -> Vec<&FlowSample> {
        let mut found = Vec::new();
        for sample in self.samples() {
            if let Sample::Flow(flow) = sample {
                found.push(flow);
            }
        }
        found
    }

    fn counters(&self) -> Vec<&CounterSample> {
        let mut found = Vec::new();
        for sample in self.samples() {
            if let Sample::Counters(counters) = sample {
                found.push(counters);
            }
        }
        found
    }

    fn discards(&self) -> Vec<&DiscardedPacket> {
        let mut found = Vec::new();
        for sample in self.samples() {
            if let Sample::Discarded(discard) = sample {
                found.push(discard);
            }
        }
        found
    }
}

/// Sends packets to port 1, and waits until each of them left by port 2.
fn pass(switch: &TestSwitch, packets: usize) {
    let (from, to) = (switch.peer(1), switch.peer(2));
    for _ in 0..packets {
        assert!(from.send(&packet(100)));
        assert!(to.receive_within(PATIENCE).is_some());
    }
}

#[test]
fn a_collector_gets_samples_with_gapless_numbers_and_the_counters_of_each_port() {
    let mut collector = Collector::new();
    let switch = TestSwitch::start(&collector.config("sampling_rate = 1, polling_interval_s = 1"));
    switch.controller().add([patch(1, 2)]);
    pass(&switch, 50);
    collector.wait_for("the samples", |collector| {
        (collector.flows().len() == 50).then_some(())
    });
    for (number, flow) in (1..).zip(collector.flows()) {
        assert_eq!((flow.sequence, flow.pool, flow.drops), (number, number, 0));
        assert_eq!(
            (flow.source, flow.rate, flow.input, flow.output),
            (1, 1, 1, Output::Interface(2))
        );
        assert_eq!(
            (flow.frame_size, flow.header.as_slice()),
            (100, packet(100).as_slice())
        );
    }
    for (number, datagram) in (1..).zip(&collector.datagrams) {
        assert_eq!(
            (datagram.sequence, datagram.agent),
            (number, [192, 0, 2, 1].into())
        );
        assert!(datagram.emit().len() <= 1400);
    }
    collector.wait_for("the counters after the traffic", |collector| {
        let counters = collector.counters();
        let of = |source| counters.iter().rev().find(|sample| sample.source == source);
        let (one, two) = (of(1)?, of(2)?);
        let openflow = one.openflow.unwrap();
        assert_eq!((openflow.number, one.name.as_deref()), (1, Some("p1")));
        let (one, two) = (one.counters.unwrap(), two.counters.unwrap());
        let is_complete = (one.in_packets, one.in_octets, two.out_packets) == (50, 5_000, 50);
        is_complete.then_some(())
    });
}

#[test]
fn rates_change_under_traffic_without_a_lost_packet_and_each_packet_is_in_one_pool() {
    let mut collector = Collector::new();
    let mut switch = TestSwitch::start(&collector.config("sampling_rate = 1, polling_interval_s = 0"));
    switch.controller().add([patch(1, 2)]);
    let mut packets = 0;
    for settings in [
        "sampling_rate = 3, polling_interval_s = 0",
        "sampling_rate = 3, polling_interval_s = 0, header_size = 64",
        "sampling_rate = 1, polling_interval_s = 0, sub_agent = 4",
    ] {
        pass(&switch, 100);
        assert_eq!(switch.apply(&collector.config(settings)).problems, []);
        packets += 100;
    }
    pass(&switch, 1);
    let pool = collector.wait_for("the last sample", |collector| {
        let last = *collector.flows().last()?;
        let is_last = last.rate == 1 && collector.datagrams.last()?.sub_agent == 4;
        is_last.then_some(last.pool)
    });
    assert_eq!(pool, packets + 1);
    let flows = collector.flows();
    let mut before = 0;
    for flow in &flows {
        assert_eq!(flow.sequence, before + 1, "no sample is lost");
        before = flow.sequence;
    }
    assert!(flows.iter().any(|flow| flow.rate == 3 && flow.header.len() == 64));
    // Without sFlow, the collector receives nothing.
    assert_eq!(switch.apply(&crate::harness::config(2, "")).problems, []);
    pass(&switch, 10);
    let status = switch.switch.bridge("br0").unwrap();
    assert_eq!(
        status.call_blocking(|bridge| bridge.sflow_status()).unwrap(),
        None
    );
}

#[test]
fn dropped_packets_are_notified_and_sampled_with_the_code_of_sflow_and_the_name_of_millrace() {
    let mut collector = Collector::new();
    let switch = TestSwitch::start(
        &collector.config("sampling_rate = 1, polling_interval_s = 0, discard_limit = 100"),
    );
    for _ in 0..5 {
        assert!(switch.peer(2).send(&packet(80)));
    }
    collector.wait_for("samples and notifications", |collector| {
        (collector.flows().len() == 5 && collector.discards().len() == 5).then_some(())
    });
    for (number, discard) in (1..).zip(collector.discards()) {
        assert_eq!(
            (discard.sequence, discard.source, discard.input, discard.output),
            (number, 2, 2, 0)
        );
        assert_eq!((discard.reason, discard.frame_size), (DropCode::ACL, 80));
        assert_eq!(discard.millrace.as_ref().unwrap().drop_reason, "table_miss");
    }
    for flow in collector.flows() {
        assert_eq!(flow.output, Output::Dropped(DropCode::ACL));
        assert_eq!(flow.millrace.as_ref().unwrap().drop_reason, "table_miss");
    }
}

#[test]
fn the_notifications_of_each_port_have_numbers_of_their_own() {
    let mut collector = Collector::new();
    let switch = TestSwitch::start(&collector.config("polling_interval_s = 0, discard_limit = 100"));
    for number in 1..=4 {
        let port = if number % 2 == 1 { 1 } else { 2 };
        assert!(switch.peer(port).send(&packet(80)));
        collector.wait_for("a notification", |collector| {
            (collector.discards().len() == number).then_some(())
        });
    }
    let discards = collector.discards();
    let numbers = discards.iter().map(|discard| (discard.source, discard.sequence));
    assert_eq!(numbers.collect::<Vec<_>>(), [(1, 1), (2, 1), (1, 2), (2, 2)]);
    let bridge = switch.switch.bridge("br0").unwrap();
    let status = bridge.call_blocking(|bridge| bridge.sflow_status()).unwrap();
    assert_eq!(status.unwrap().discards, 4);
}

#[test]
fn a_source_address_that_the_machine_does_not_have_is_a_problem_with_a_next_step() {
    let collector = Collector::new();
    let mut switch = TestSwitch::start(&collector.config("polling_interval_s = 0"));
    let status = switch.apply(&collector.config("source = \"192.0.2.77\""));
    let problem = status.problems.first().expect("no problem");
    assert!(
        problem.object.contains("sflow, collector 127.0.0.1:"),
        "{}",
        problem.object
    );
    assert!(problem.reason.contains("To fix it"), "{}", problem.reason);
    assert_eq!(
        switch.apply(&collector.config("polling_interval_s = 1")).problems,
        []
    );
}

#[test]
fn a_socket_to_a_collector_that_did_not_open_is_tried_again_with_the_same_configuration() {
    // The limit of open files holds for the whole process.
    millrace_testing::own_process!();
    let mut collector = Collector::new();
    let mut switch = TestSwitch::start(&crate::harness::config(2, ""));
    // The connection stays open, so that its descriptor is not free for the socket of the agent.
    let mut controller = switch.controller();
    controller.add([patch(1, 2)]);
    let config = collector.config("sampling_rate = 1, polling_interval_s = 0");
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 256, hard).unwrap();
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    let failed = switch.apply(&config).problems;
    drop(files);
    assert!(
        failed
            .iter()
            .any(|problem| problem.object.contains("sflow, collector 127.0.0.1:")),
        "{failed:?}"
    );
    assert_eq!(switch.apply(&config).problems, []);
    pass(&switch, 1);
    collector.wait_for("the sample", |collector| {
        (!collector.flows().is_empty()).then_some(())
    });
}
