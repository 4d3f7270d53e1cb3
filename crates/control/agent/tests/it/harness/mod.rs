//! A switch in this process, on memory ports, and a scripted controller.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_agent::Switch;
use millrace_agent::channel::{ChannelKind, ChannelStatus};
use millrace_datapath::io::{HeapBackend, MemoryPeer};
use millrace_datapath::{Datapath, Idle, Spread, Workers};
use millrace_flow::{Action, Field, Instructions, Match};
use millrace_model::Config;
use millrace_openflow::{
    ErrorCode, FlowMod, Header, Hello, Message, PortConfig, PortFeatures, PortMod, decode, encode,
};
use millrace_types::{Mac, PortNo, Priority, TableId, Xid};
use millrace_wire::{Builder, Frame};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBuf;

/// The longest wait for an event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The time after which an event that must not happen counts as absent.
pub(crate) const SILENCE: Duration = Duration::from_millis(100);

/// A switch in this process, with memory devices and a control runtime of its own.
pub(crate) struct TestSwitch {
    pub(crate) switch: Arc<Switch<HeapBackend>>,
    pub(crate) backend: Arc<HeapBackend>,
    pub(crate) runtime: tokio::runtime::Runtime,
    revision: u64,
}

/// Returns a configuration whose listener sends no echo requests, so that a controller may be silent for any time.
pub(crate) fn without_echo(config: &str) -> String {
    config.replace("\"ptcp:0\"", "{ target = \"ptcp:0\", echo_interval_s = 0 }")
}

/// Returns a bridge `br0` with ports `p1` to `p<ports>`, a listener, and more settings.
pub(crate) fn config(ports: u32, settings: &str) -> String {
    let mut text = format!("[[bridge]]\nname = \"br0\"\nlisten = [\"ptcp:0\"]\n{settings}\n");
    for number in 1..=ports {
        text += &format!("[[bridge.port]]\nname = \"p{number}\"\nnumber = {number}\ndevice = \"memory\"\n");
    }
    text
}

impl TestSwitch {
    pub(crate) fn start(config: &str) -> TestSwitch {
        let mut test = TestSwitch::without_bridges();
        let status = test.apply(config);
        assert_eq!(status.problems, []);
        test
    }

    /// Returns a switch to which no configuration was applied.
    pub(crate) fn without_bridges() -> TestSwitch {
        let backend = Arc::new(HeapBackend::new());
        let workers = Workers {
            cores: vec![None],
            idle: Idle::Adaptive,
            spread: Spread::Auto,
        };
        let datapath = Arc::new(Datapath::start(Arc::clone(&backend), &workers).unwrap());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let switch = Arc::new(Switch::new(datapath, runtime.handle().clone(), 7));
        TestSwitch {
            switch,
            backend,
            runtime,
            revision: 0,
        }
    }

    pub(crate) fn apply(&mut self, config: &str) -> millrace_agent::Status {
        let config = Config::from_toml("test.toml", config).unwrap();
        self.revision += 1;
        self.switch.apply(self.revision, &config)
    }

    /// Returns the peer of port `p<number>`.
    pub(crate) fn peer(&self, number: u32) -> MemoryPeer<Frame> {
        self.backend.memory(&format!("br0/p{number}"))
    }

    pub(crate) fn channels(&self) -> Vec<ChannelStatus> {
        self.switch.channels("br0").unwrap()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        let listener = |status: &ChannelStatus| status.kind == ChannelKind::Listener;
        wait_for("the listener", || {
            self.channels().into_iter().find(listener)?.address
        })
    }

    pub(crate) fn controller(&self) -> Controller {
        Controller::connect(self.address())
    }

    /// Returns a controller whose receive buffer holds 64 KiB. The kernel enlarges the buffers of other
    /// sockets to tens of MiB, so a test cannot predict how much a controller takes while it does not read.
    pub(crate) fn controller_with_small_buffer(&self) -> Controller {
        let stream = TcpStream::connect(self.address()).unwrap();
        setsockopt(&stream, RcvBuf, &(32 << 10)).unwrap();
        Controller::on(stream)
    }
}

impl Drop for TestSwitch {
    fn drop(&mut self) {
        // A test that has stopped the switch itself decided what is kept.
        if !self.switch.bridge_names().is_empty() {
            self.switch.stop(false);
        }
    }
}

/// Waits until `look` returns a value, for [`PATIENCE`] at most.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A controller on a real socket.
pub(crate) struct Controller {
    pub(crate) stream: TcpStream,
    bytes: Vec<u8>,
    next_xid: u32,
}

impl Controller {
    /// Connects and exchanges HELLO.
    pub(crate) fn connect(address: SocketAddr) -> Controller {
        Controller::on(TcpStream::connect(address).unwrap())
    }

    /// Exchanges HELLO.
    pub(crate) fn on(stream: TcpStream) -> Controller {
        let mut controller = Controller::silent(stream);
        controller.send(&Message::Hello(Hello::OURS));
        let (_, hello) = controller.receive().unwrap();
        assert_eq!(hello, Message::Hello(Hello::OURS));
        // An answer shows that the control thread has the connection.
        controller.barrier();
        controller
    }

    /// Returns a controller that has not sent HELLO.
    pub(crate) fn silent(stream: TcpStream) -> Controller {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Controller {
            stream,
            bytes: Vec::new(),
            next_xid: 100,
        }
    }

    pub(crate) fn send(&mut self, message: &Message) -> Xid {
        let mut bytes = Vec::new();
        self.next_xid += 1;
        let xid = Xid(self.next_xid);
        encode(message, xid, &mut bytes).unwrap();
        self.stream.write_all(&bytes).unwrap();
        xid
    }

    /// Writes at least one of the bytes, or fails without waiting. Returns the number of bytes written.
    pub(crate) fn write_some(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.set_nonblocking(true)?;
        let written = self.stream.write(bytes);
        self.stream.set_nonblocking(false)?;
        written
    }

    /// Returns the bytes of the next message.
    fn next_bytes(&mut self) -> std::io::Result<Vec<u8>> {
        let mut chunk = [0; 65536];
        loop {
            if let Some(header) = Header::parse(&self.bytes) {
                let size = usize::from(header.length);
                assert!(size >= 8);
                if self.bytes.len() >= size {
                    let rest = self.bytes.split_off(size);
                    return Ok(core::mem::replace(&mut self.bytes, rest));
                }
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(size) => self.bytes.extend_from_slice(&chunk[..size]),
                // A signal interrupted the call.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the bytes of the next message; `None` if the switch closed the connection.
    pub(crate) fn receive_bytes(&mut self) -> Option<Vec<u8>> {
        match self.next_bytes() {
            Ok(bytes) => Some(bytes),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
                ) =>
            {
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Decodes a message; `None` for an echo request, which is answered.
    fn understand(&mut self, bytes: &[u8]) -> std::io::Result<Option<(Header, Message)>> {
        let (header, message) = decode(bytes).unwrap_or_else(|error| panic!("{error}: {bytes:x?}"));
        let Message::EchoRequest(data) = message else {
            return Ok(Some((header, message)));
        };
        let mut reply = Vec::new();
        encode(&Message::EchoReply(data), header.xid, &mut reply).unwrap();
        self.stream.write_all(&reply)?;
        Ok(None)
    }

    /// Returns the next message that is no echo request; `None` if the switch closed the connection. Echo requests are
    /// answered, for [`PATIENCE`] at most.
    pub(crate) fn receive(&mut self) -> Option<(Header, Message)> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "nothing but echo requests comes");
            let bytes = self.receive_bytes()?;
            if let Some(received) = self.understand(&bytes).unwrap() {
                return Some(received);
            }
        }
    }

    /// Returns an asynchronous message; `None` after [`SILENCE`], or after an echo request, which is answered.
    pub(crate) fn unasked(&mut self) -> Option<Message> {
        self.poll().unwrap()
    }

    /// Returns an asynchronous message as [`Controller::unasked`] does, or the error with which the connection ended.
    pub(crate) fn poll(&mut self) -> std::io::Result<Option<Message>> {
        self.stream.set_read_timeout(Some(SILENCE))?;
        let received = self.next_bytes();
        self.stream.set_read_timeout(Some(PATIENCE))?;
        match received {
            Ok(bytes) => Ok(self.understand(&bytes)?.map(|(_, message)| message)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the reply to a request; asynchronous messages before it are skipped.
    pub(crate) fn ask(&mut self, message: &Message) -> Message {
        let xid = self.send(message);
        loop {
            let (header, message) = self.receive().unwrap();
            if header.xid == xid {
                return message;
            }
        }
    }

    /// Waits for a barrier; fails on an error.
    pub(crate) fn barrier(&mut self) {
        let xid = self.send(&Message::BarrierRequest);
        loop {
            match self.receive().unwrap() {
                (header, Message::BarrierReply) if header.xid == xid => return,
                (_, Message::Error(error)) => panic!("{}", error.code),
                _ => {}
            }
        }
    }

    /// Returns the error code of the reply to a request.
    pub(crate) fn error_of(&mut self, message: &Message) -> ErrorCode {
        match self.ask(message) {
            Message::Error(error) => error.code,
            other => panic!("expected an error, found {other}"),
        }
    }

    /// Adds flow entries, and waits until workers use them.
    pub(crate) fn add(&mut self, flows: impl IntoIterator<Item = FlowMod>) {
        for flow in flows {
            self.send(&Message::FlowMod(flow));
        }
        self.barrier();
    }
}

/// Returns an entry of table 0.
pub(crate) fn flow(priority: u16, fields: &[(Field, u128)], actions: &[Action]) -> FlowMod {
    FlowMod::add(
        TableId(0),
        Priority(priority),
        Match::exact(fields).unwrap(),
        Instructions::apply(actions),
    )
}

/// Returns an entry that sends all packets of one port to another.
pub(crate) fn patch(from: u32, to: u32) -> FlowMod {
    flow(10, &[(Field::InPort, from.into())], &[output(to)])
}

/// Returns a port_mod that sets a port down or up.
pub(crate) fn port_down(number: u32, is_down: bool) -> Message {
    Message::PortMod(PortMod {
        number: PortNo::from_raw(number),
        mac: Mac::ZERO,
        config: if is_down {
            PortConfig::PORT_DOWN
        } else {
            PortConfig::NONE
        },
        mask: PortConfig::PORT_DOWN,
        advertise: PortFeatures::NONE,
    })
}

pub(crate) fn output(port: u32) -> Action {
    Action::output(PortNo::from_raw(port))
}

/// Returns a UDP packet of `size` bytes.
pub(crate) fn packet(size: usize) -> Vec<u8> {
    let payload = vec![0x5a; size - 42];
    Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]))
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(1000, 2000)
        .payload(&payload)
        .build()
}
