//! The kernel as a peer, over a tap device in a network namespace of the test's thread. The tests need root;
//! without it they print a line and pass.

use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use millrace_datapath::io::{Backend, Burst, DeviceOptions, DeviceSpec, HeapBackend, Opened};
use millrace_endpoint::{Config, DropReason, Endpoint, Event, Received, UnreachableReason};
use millrace_types::Time;
use millrace_wire::Frame;
use nix::sched::{CloneFlags, unshare};

use crate::link::{Frames, PORT, mac};

/// The longest time that the kernel may take.
const BOUND: Duration = Duration::from_secs(60);

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

/// An endpoint whose frames pass through a tap device.
struct TapEndpoint {
    endpoint: Endpoint,
    device: Opened<Frame>,
    start: Instant,
    arrived: Vec<Vec<u8>>,
    events: Vec<Event>,
}

impl TapEndpoint {
    /// Returns an endpoint at 192.0.2.1 and 2001:db8::1 with the kernel as its gateway, which has the same addresses with 2 in
    /// the end; `None` if that is not permitted.
    fn start() -> Option<TapEndpoint> {
        if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET) {
            eprintln!("SKIPPED: a tap device in a network namespace needs root ({errno})");
            return None;
        }
        let spec = DeviceSpec::Tap("tap0".to_owned());
        let device = HeapBackend::new().open(&spec, DeviceOptions::PLAIN).unwrap();
        ip("link set tap0 up");
        ip("address add 192.0.2.2/24 dev tap0");
        ip("address add 2001:db8::2/64 dev tap0 nodad");
        let mut config = Config::new(mac(1), "192.0.2.1/24".parse().unwrap(), 1);
        config.addresses.push("2001:db8::1/64".parse().unwrap());
        config.gateways = vec!["192.0.2.2".parse().unwrap(), "2001:db8::2".parse().unwrap()];
        config.probe_interval = Duration::from_millis(50);
        let mut endpoint = Endpoint::new(config, Time::ZERO).unwrap();
        endpoint.bind(PORT).unwrap();
        let mut host = TapEndpoint {
            endpoint,
            device,
            start: Instant::now(),
            arrived: Vec::new(),
            events: Vec::new(),
        };
        host.run_until("the addresses are usable", |host| {
            ["192.0.2.1", "2001:db8::1"]
                .iter()
                .all(|address| host.endpoint.is_usable(address.parse().unwrap()))
        });
        Some(host)
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.start.elapsed().as_nanos() as u64)
    }

    fn poll(&mut self) {
        let now = self.now();
        self.endpoint.on_timeout(now);
        let mut burst = Burst::new();
        self.device.rx[0].rx_burst(&mut burst);
        for frame in &burst {
            if let Received::Datagram { payload, .. } = self.endpoint.receive(now, frame.bytes()) {
                self.arrived.push(frame.bytes()[payload].to_vec());
            }
        }
        while let Some(frame) = self.endpoint.poll_transmit() {
            self.transmit(&frame);
        }
        self.events
            .extend(std::iter::from_fn(|| self.endpoint.poll_event()));
    }

    fn transmit(&mut self, frame: &[u8]) {
        let mut burst: Burst<Frame> = std::iter::once(Frame::new(frame)).collect();
        self.device.tx[0].tx_burst(&mut burst);
        assert!(burst.is_empty(), "the tap's queue holds a thousand frames");
    }

    fn send(&mut self, to: &str, bytes: &[u8], segment: usize) {
        let mut frames = Frames::default();
        let now = self.now();
        self.endpoint
            .send(now, PORT, to.parse().unwrap(), &[bytes], segment, &mut frames)
            .unwrap();
        for frame in frames.0 {
            self.transmit(&frame);
        }
    }

    fn run_until(&mut self, what: &str, mut is_so: impl FnMut(&TapEndpoint) -> bool) {
        let deadline = Instant::now() + BOUND;
        while !is_so(self) {
            assert!(
                Instant::now() < deadline,
                "not in {BOUND:?}: {what}; {:?}",
                self.endpoint.counters()
            );
            self.poll();
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Waits for a program of the kernel's side; returns its output.
    fn finish(&mut self, mut child: Child) -> String {
        self.run_until("the program ends", |_| child.try_wait().unwrap().is_some());
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}");
        text
    }
}

#[test]
fn the_kernel_pings_the_endpoint_over_ipv4_and_ipv6() {
    let Some(mut host) = TapEndpoint::start() else {
        return;
    };
    for (address, size) in [
        ("192.0.2.1", "56"),
        ("192.0.2.1", "1472"),
        ("2001:db8::1", "1452"),
    ] {
        // Each ping sends one request. With several requests, ping waits for the last answer for two round
        // trips only.
        for _ in 0..3 {
            let ping = Command::new("ping")
                .args(["-c", "1", "-W", "20", "-s", size, address])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let text = host.finish(ping);
            assert!(text.contains("1 received"), "{text}");
        }
    }
}

#[test]
fn datagrams_pass_to_the_kernel_and_back_as_they_were() {
    let Some(mut host) = TapEndpoint::start() else {
        return;
    };
    for (local, to) in [
        ("192.0.2.2:9000", "192.0.2.1:7800"),
        ("[2001:db8::2]:9000", "[2001:db8::1]:7800"),
    ] {
        let socket = UdpSocket::bind(local).unwrap();
        socket.set_read_timeout(Some(BOUND)).unwrap();
        let bytes: Vec<u8> = (0..20_001_u32).map(|at| (at * at) as u8).collect();
        host.send(local, &bytes, 1_401);
        // The answer to the question for the kernel's address comes first.
        host.run_until("frames have left", |host| host.endpoint.counters().unsent == 0);
        let mut echoed = 0;
        let mut buffer = [0; 2_000];
        socket.set_nonblocking(true).unwrap();
        host.run_until("all are echoed", |_| {
            while let Ok((size, from)) = socket.recv_from(&mut buffer) {
                assert_eq!(from, to.parse().unwrap());
                assert_eq!(buffer[..size], bytes[echoed..echoed + size]);
                socket.send_to(&buffer[..size], from).unwrap();
                echoed += size;
            }
            echoed == bytes.len()
        });
        host.run_until("all came back", |host| host.arrived.concat().len() == bytes.len());
        assert_eq!(std::mem::take(&mut host.arrived).concat(), bytes);
    }
    assert_eq!(host.endpoint.counters().dropped(DropReason::Checksum), 0);
}

#[test]
fn the_kernel_reports_closed_ports_and_packets_that_are_too_big_for_its_next_link() {
    let Some(mut host) = TapEndpoint::start() else {
        return;
    };
    for to in ["192.0.2.2:9", "[2001:db8::2]:9"] {
        let unreachable = Event::Unreachable {
            to: to.parse().unwrap(),
            reason: UnreachableReason::Port,
        };
        host.send(to, b"x", 1);
        host.run_until("the port is closed", |host| host.events.contains(&unreachable));
    }
    ip("link add far0 mtu 1300 type veth peer name far1 mtu 1300");
    ip("link set far0 up");
    ip("link set far1 up");
    ip("address add 198.51.100.1/24 dev far0");
    ip("address add 2001:db8:1::1/64 dev far0 nodad");
    ip("neighbour add 198.51.100.7 lladdr 02:00:00:00:00:77 dev far0");
    ip("neighbour add 2001:db8:1::7 lladdr 02:00:00:00:00:77 dev far0");
    for path in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        // The files are those of this thread's namespace.
        std::fs::write(format!("/proc/sys/net/{path}"), "1").unwrap();
    }
    for to in ["198.51.100.7:9", "[2001:db8:1::7]:9"] {
        let address = to.parse::<std::net::SocketAddr>().unwrap().ip();
        host.send(to, &[0; 1_400], 1_400);
        let too_big = Event::PathMtu {
            to: address,
            mtu: 1_300,
        };
        host.run_until("the kernel reports its MTU", |host| {
            host.events.contains(&too_big)
        });
        assert_eq!(host.endpoint.path_mtu(address), 1_300);
    }
}
