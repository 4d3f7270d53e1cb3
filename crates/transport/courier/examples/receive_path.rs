//! Row T14 of docs/gates.md: the bytes that the receive path handles per second of processor time, for three
//! paths. They are a memif, a socket with one datagram per call (as in 2019), and a socket with UDP_GRO.
//!
//! ```sh
//! cargo build --release -p millrace-courier --example receive_path
//! target/release/examples/receive_path [RUNS [MILLISECONDS]]      # 10 runs of 200 ms for each path; root for sockets over veth
//! ```
//!
//! Output: a JSON object a line for each path, `{"path":"memif","bytes_per_cpu_s":…,"cv":…,"opened_bytes_per_cpu_s":…,"runs":[…]}`;
//! paths are `memif`, `recv` and `gro`. `bytes_per_cpu_s` is the median of the runs, `cv` their standard deviation over their
//! mean, `opened_…` the same with each datagram decrypted and authenticated (AES-128-GCM).
//!
//! # Method
//! One thread alternates: it sends a batch of datagrams, then it receives them. Times are processor time of
//! this thread, which includes the kernel's work in its context. For a memif, only the receiving half counts:
//! ring, copy, and checks of the Ethernet, IP and UDP headers and of the UDP checksum. For a socket, sending
//! and receiving count, less the time of sending alone. That time is measured with a destination whose frames
//! the other end of the veth pair drops, because their MAC address is not its own. Allocation of the packet,
//! the veth pair and the soft interrupt up to IP therefore count as sending, and the kernel computes no
//! checksums over veth: both favour the sockets. The data are in the cache of the core in all cases.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program for measurements: it ends at the first error"
)]

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;

use millrace_courier::io::via::Via;
use millrace_courier::io::{DatagramIo, UdpIo};
use millrace_datapath::io::{
    Backend, Burst, DeviceOptions, DeviceSpec, HeapBackend, Opened, SocketAccess, VnicKind, VnicSpec,
};
use millrace_types::Mac;
use millrace_wire::{Builder, Frame};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{setsockopt, sockopt};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::gettid;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

/// Bytes of a datagram: those of a data packet at an MTU of 1,500 bytes.
const SIZE: usize = 1_472;
/// Datagrams that are sent before they are received.
const BATCH: usize = 512;
/// Bytes of a batch.
const BATCH_SIZE: usize = BATCH * SIZE;
/// The time that the kernel may take to deliver what was sent.
const PATIENCE: Duration = Duration::from_millis(200);

/// Returns the processor time of this thread.
fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

/// Handles received datagrams.
struct Work {
    key: LessSafeKey,
    opens: bool,
}

impl Work {
    fn nonce() -> Nonce {
        Nonce::assume_unique_for_key([1; 12])
    }

    /// Returns a sealed datagram that [`Work`] can open.
    fn datagram(&self) -> Vec<u8> {
        let mut bytes = vec![5; SIZE - AES_128_GCM.tag_len()];
        self.key
            .seal_in_place_append_tag(Work::nonce(), Aad::empty(), &mut bytes)
            .unwrap();
        bytes
    }

    fn take(&self, datagram: &mut [u8]) {
        if self.opens {
            self.key
                .open_in_place(Work::nonce(), Aad::empty(), datagram)
                .unwrap();
        }
    }
}

/// A receive path.
trait Path {
    fn name(&self) -> &'static str;

    /// Sends and receives a batch. Returns the bytes that arrived, and the processor time: of receiving alone
    /// where it can be measured separately, or else of sending and receiving.
    fn batch(&mut self, work: &Work) -> (usize, Duration);

    /// Returns the processor time of sending a batch in seconds, which is not part of the receive path.
    fn sending(&mut self, _time: Duration) -> f64 {
        0.0
    }
}

/// A memif; its other side is the datapath's device, as in the switch.
struct Memif {
    io: Box<dyn DatagramIo>,
    port: Opened<Frame>,
    frame: Vec<u8>,
    _folder: tempfile::TempDir,
}

impl Memif {
    fn new(datagram: &[u8]) -> Memif {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m");
        let spec = VnicSpec {
            kind: VnicKind::Memif { id: 0 },
            path: path.clone(),
            access: Some(SocketAccess {
                owner: None,
                group: None,
                mode: 0o600,
            }),
        };
        let port = HeapBackend::new()
            .open(&DeviceSpec::Vnic(spec), DeviceOptions::PLAIN)
            .unwrap();
        let text = format!("memif:{},address=192.0.2.1/24", path.display());
        let via: Via = text.parse().unwrap();
        let io = via.open_memif(7_800).unwrap().unwrap();
        let frame = Builder::ethernet(Mac([2, 0, 192, 0, 2, 1]), Mac([2, 0, 0, 0, 0, 2]))
            .ipv4([192, 0, 2, 2], [192, 0, 2, 1])
            .udp(9, 7_800)
            .payload(datagram)
            .build();
        Memif {
            io,
            port,
            frame,
            _folder: folder,
        }
    }
}

impl Path for Memif {
    fn name(&self) -> &'static str {
        "memif"
    }

    fn batch(&mut self, work: &Work) -> (usize, Duration) {
        let mut left = BATCH;
        while left > 0 {
            let len = left.min(32);
            let mut burst: Burst<Frame> = (0..len).map(|_| Frame::new(&self.frame)).collect();
            self.port.tx[0].tx_burst(&mut burst);
            left -= len - burst.len();
        }
        let (before, mut bytes) = (cpu(), 0);
        while let Some(mut burst) = self.io.receive().unwrap() {
            bytes += burst.bytes.len();
            burst.datagrams().for_each(|datagram| work.take(datagram));
        }
        (bytes, cpu() - before)
    }
}

/// A socket behind a veth pair, with one datagram per call.
struct Recv {
    link: Veth,
    socket: UdpSocket,
}

impl Path for Recv {
    fn name(&self) -> &'static str {
        "recv"
    }

    fn batch(&mut self, work: &Work) -> (usize, Duration) {
        let before = cpu();
        self.link.send(self.link.to);
        let (mut bytes, mut buffer) = (0, [0; SIZE + 1]);
        while bytes < BATCH_SIZE
            && let Ok((size, _)) = self.socket.recv_from(&mut buffer)
        {
            bytes += size;
            work.take(&mut buffer[..size]);
        }
        (bytes, cpu() - before)
    }

    fn sending(&mut self, time: Duration) -> f64 {
        self.link.sending(time)
    }
}

/// A socket behind a veth pair, with UDP_GRO.
struct Gro {
    link: Veth,
    io: UdpIo,
}

impl Path for Gro {
    fn name(&self) -> &'static str {
        "gro"
    }

    fn batch(&mut self, work: &Work) -> (usize, Duration) {
        let before = cpu();
        self.link.send(self.link.to);
        let mut bytes = 0;
        while bytes < BATCH_SIZE {
            if let Some(mut burst) = self.io.receive().unwrap() {
                bytes += burst.bytes.len();
                burst.datagrams().for_each(|datagram| work.take(datagram));
                continue;
            }
            // Waits for the soft interrupt of the other end.
            let mut fds = [PollFd::new(self.io.descriptor(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(PATIENCE).unwrap();
            if poll(&mut fds, timeout).unwrap() == 0 {
                break;
            }
        }
        (bytes, cpu() - before)
    }

    fn sending(&mut self, time: Duration) -> f64 {
        self.link.sending(time)
    }
}

/// The sending end of a veth pair. The other end is in another namespace.
struct Veth {
    socket: UdpSocket,
    datagram: Vec<u8>,
    to: SocketAddr,
    /// An address with a MAC address that no interface has: the other end drops the frames.
    nowhere: SocketAddr,
}

fn run(program: &str, arguments: &str) {
    let status = Command::new(program).args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "{program} {arguments}");
}

impl Veth {
    /// Creates the veth pair `number`. Returns its sending end and the result of `receiver`, which runs in
    /// the other namespace.
    fn new<T: Send + 'static>(
        number: u8,
        gro: &'static str,
        datagram: &[u8],
        receiver: impl FnOnce(SocketAddr) -> T + Send + 'static,
    ) -> (Veth, T) {
        let (mine, theirs) = (format!("v{number}"), format!("w{number}"));
        let own: SocketAddr = format!("10.0.{number}.2:7800").parse().unwrap();
        let (report, reported) = channel();
        let (begin, begun) = channel::<()>();
        let interface = theirs.clone();
        // The namespace lives as long as the socket in it.
        let other = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            report.send(gettid()).unwrap();
            begun.recv().unwrap();
            run("ip", &format!("link set {interface} address 02:00:00:00:00:02"));
            run("ip", &format!("address add {}/24 dev {interface}", own.ip()));
            run("ip", &format!("link set {interface} up"));
            run("ethtool", &format!("-K {interface} gro {gro}"));
            receiver(own)
        });
        let tid = reported.recv().unwrap();
        run("ip", &format!("link add {mine} type veth peer name {theirs}"));
        run("ip", &format!("link set {theirs} netns {tid}"));
        run("ip", &format!("address add 10.0.{number}.1/24 dev {mine}"));
        run("ip", &format!("link set {mine} up"));
        run("ethtool", &format!("-K {mine} tso off gso off"));
        for (last, mac) in [(2, "02:00:00:00:00:02"), (3, "02:00:00:00:00:99")] {
            let neighbour = format!("neighbour add 10.0.{number}.{last} lladdr {mac} dev {mine}");
            run("ip", &neighbour);
        }
        begin.send(()).unwrap();
        let made = other.join().unwrap();
        let link = Veth {
            socket: UdpSocket::bind(format!("10.0.{number}.1:0")).unwrap(),
            datagram: datagram.to_vec(),
            to: own,
            nowhere: format!("10.0.{number}.3:7800").parse().unwrap(),
        };
        (link, made)
    }

    fn send(&self, to: SocketAddr) {
        for _ in 0..BATCH {
            self.socket.send_to(&self.datagram, to).unwrap();
        }
    }

    fn sending(&self, time: Duration) -> f64 {
        let (before, mut batches) = (cpu(), 0_u32);
        while cpu() - before < time {
            self.send(self.nowhere);
            batches += 1;
        }
        (cpu() - before).as_secs_f64() / f64::from(batches)
    }
}

/// Returns the bytes for each second of processor time of a path.
fn measure(path: &mut dyn Path, work: &Work, time: Duration) -> f64 {
    let sending = path.sending(time);
    let (mut bytes, mut spent, mut batches) = (0, Duration::ZERO, 0_u32);
    while spent < time {
        let (arrived, took) = path.batch(work);
        bytes += arrived;
        spent += took;
        batches += 1;
    }
    let lost = batches as usize * BATCH_SIZE - bytes;
    assert!(
        lost * 100 <= bytes,
        "{}: {lost} bytes beside {bytes} were lost",
        path.name()
    );
    bytes as f64 / (spent.as_secs_f64() - sending * f64::from(batches))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Returns the standard deviation over the mean.
fn variation(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / values.len() as f64).sqrt() / mean
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<u64>().unwrap());
    let runs = arguments.next().unwrap_or(10).max(1);
    let time = Duration::from_millis(arguments.next().unwrap_or(200));
    let mut work = Work {
        key: LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &[7; 16]).unwrap()),
        opens: false,
    };
    let datagram = work.datagram();
    let mut paths: Vec<Box<dyn Path>> = vec![Box::new(Memif::new(&datagram))];
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
        eprintln!("receive_path: sockets over veth need root ({error}); the memif alone is measured");
    } else {
        let (link, socket) = Veth::new(1, "off", &datagram, |address| {
            let socket = UdpSocket::bind(address).unwrap();
            // The buffer is as large as that of the memif path.
            setsockopt(&socket, sockopt::RcvBufForce, &(16 << 20)).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        });
        paths.push(Box::new(Recv { link, socket }));
        let (link, io) = Veth::new(2, "on", &datagram, |address| UdpIo::bind(address).unwrap());
        paths.push(Box::new(Gro { link, io }));
    }
    let mut results = vec![(Vec::new(), Vec::new()); paths.len()];
    // The first run warms caches and is not counted.
    for run in 0..=runs {
        for (path, result) in paths.iter_mut().zip(&mut results) {
            for opens in [false, true] {
                work.opens = opens;
                let rate = measure(&mut **path, &work, time);
                let values = if opens { &mut result.1 } else { &mut result.0 };
                if run > 0 {
                    values.push(rate);
                }
            }
        }
    }
    for (path, (taken, opened)) in paths.iter().zip(results) {
        let object = serde_json::json!({
            "path": path.name(),
            "datagram_bytes": SIZE,
            "bytes_per_cpu_s": median(&taken),
            "cv": variation(&taken),
            "opened_bytes_per_cpu_s": median(&opened),
            "opened_cv": variation(&opened),
            "runs": taken,
        });
        println!("{object}");
    }
}
