//! Transport sessions of IPFIX (RFC 7011, section 10): each has sequence numbers of its own, and begins with the templates.
//!
//! UDP sockets never block. A session over TCP has a thread, which connects, writes, and connects again; messages wait for it in
//! a queue that is bounded, and those that find it full are not sent, and counted.

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millrace_ipfix::{Body, Header};
use millrace_model::{IpfixCollector, IpfixTransport};
use parking_lot::Mutex;

/// The number of messages that wait for a TCP connection.
const QUEUE_LEN: usize = 256;
/// The longest time in which a collector accepts a connection, and takes a message.
const CONNECT_TIME: Duration = Duration::from_secs(5);
const WRITE_TIME: Duration = Duration::from_secs(10);
/// The pause before a connection is tried again.
const PAUSE: Duration = Duration::from_secs(2);
/// The interval at which a session that waits looks if it has to end.
const LOOK: Duration = Duration::from_millis(200);

/// A collector with its counters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IpfixCollectorStatus {
    /// The transport and the address.
    pub target: IpfixCollector,
    /// True if messages can be sent: always over UDP, while connected over TCP.
    pub is_connected: bool,
    /// The number of messages sent.
    pub messages: u64,
    /// The number of records of flows and packets sent, with those of options.
    pub records: u64,
    /// The number of bytes sent.
    pub bytes: u64,
    /// The number of records that were not sent: the kernel or the collector did not take them.
    pub not_sent: u64,
    /// The last error, until a message is sent.
    pub last_error: Option<String>,
}

/// The parts that a session and its thread share.
struct Shared {
    status: Mutex<IpfixCollectorStatus>,
    /// The first messages of a connection: the templates, and the records of options.
    opening: Mutex<Vec<Body>>,
    domain: u32,
    has_to_end: AtomicBool,
}

enum Transport {
    Udp(Result<UdpSocket, String>),
    Tcp {
        queue: SyncSender<Body>,
        thread: Option<JoinHandle<()>>,
    },
}

/// A session with a collector.
pub(super) struct Session {
    shared: Arc<Shared>,
    /// The number of data records that were sent in this session over UDP.
    sequence: u32,
    transport: Transport,
}

impl Session {
    pub(super) fn open(target: IpfixCollector, domain: u32, opening: &[Body]) -> Session {
        let shared = Arc::new(Shared {
            status: Mutex::new(IpfixCollectorStatus {
                target,
                is_connected: target.transport == IpfixTransport::Udp,
                messages: 0,
                records: 0,
                bytes: 0,
                not_sent: 0,
                last_error: None,
            }),
            opening: Mutex::new(opening.to_vec()),
            domain,
            has_to_end: AtomicBool::new(false),
        });
        let transport = match target.transport {
            IpfixTransport::Udp => Transport::Udp(socket(target.address)),
            IpfixTransport::Tcp => {
                let (queue, bodies) = sync_channel(QUEUE_LEN);
                let of_thread = Arc::clone(&shared);
                let thread = std::thread::Builder::new()
                    .name("ipfix".to_owned())
                    .spawn(move || run(&of_thread, &bodies));
                if let Err(error) = &thread {
                    shared.status.lock().last_error = Some(format!("no thread: {error}"));
                }
                Transport::Tcp {
                    queue,
                    thread: thread.ok(),
                }
            }
        };
        let mut session = Session {
            shared,
            sequence: 0,
            transport,
        };
        if matches!(session.transport, Transport::Udp(_)) {
            opening.iter().for_each(|body| session.send(body));
        }
        session
    }

    pub(super) fn target(&self) -> IpfixCollector {
        self.shared.status.lock().target
    }

    /// Returns true if the session can send, now or later.
    pub(super) fn is_open(&self) -> bool {
        !matches!(
            self.transport,
            Transport::Udp(Err(_)) | Transport::Tcp { thread: None, .. }
        )
    }

    pub(super) fn status(&self) -> IpfixCollectorStatus {
        let mut status = self.shared.status.lock().clone();
        if let Transport::Udp(Err(reason)) = &self.transport {
            status.last_error = Some(reason.clone());
            status.is_connected = false;
        }
        status
    }

    /// Replaces what a new connection begins with, and sends it in this one: over UDP with the templates, which may have been
    /// lost (RFC 7011, section 8.4), over TCP only the records of options.
    pub(super) fn refresh(&mut self, opening: &[Body]) {
        *self.shared.opening.lock() = opening.to_vec();
        for body in opening {
            if body.records != 0 || matches!(self.transport, Transport::Udp(_)) {
                self.send(body);
            }
        }
    }

    /// Sends a message.
    pub(super) fn send(&mut self, body: &Body) {
        match &self.transport {
            Transport::Udp(Ok(socket)) => {
                let target = self.target();
                let message = body.emit(header(self.shared.domain, self.sequence));
                // A message that the kernel does not take is lost as one in the network: its numbers are missing.
                self.sequence = self.sequence.wrapping_add(body.records);
                let sent = socket.send_to(&message, target.address).map(|_| ());
                self.shared.count(body, message.len(), sent);
            }
            Transport::Udp(Err(_)) => {}
            Transport::Tcp { queue, .. } => match queue.try_send(body.clone()) {
                Ok(()) => {}
                Err(TrySendError::Full(body) | TrySendError::Disconnected(body)) => {
                    self.shared.status.lock().not_sent += u64::from(body.records);
                }
            },
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.has_to_end.store(true, Ordering::Release);
        // The thread ends by itself: a collector that takes nothing must not stop the control thread.
        if let Transport::Tcp {
            thread: Some(thread), ..
        } = &self.transport
        {
            thread.thread().unpark();
        }
    }
}

impl Shared {
    fn count(&self, body: &Body, size: usize, sent: io::Result<()>) {
        let mut status = self.status.lock();
        match sent {
            Ok(()) => {
                status.messages += 1;
                status.records += u64::from(body.records);
                status.bytes += size as u64;
                status.last_error = None;
            }
            Err(error) => {
                status.not_sent += u64::from(body.records);
                status.last_error = Some(error.to_string());
            }
        }
    }
}

fn header(domain: u32, sequence: u32) -> Header {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Header {
        // It has 32 bits until 2106.
        export_time: now.as_secs() as u32,
        sequence,
        domain,
    }
}

fn socket(address: SocketAddr) -> Result<UdpSocket, String> {
    let any = match address {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = || -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    socket().map_err(|error| {
        format!("no socket: {error}. To fix it: enable the address family, or name another collector")
    })
}

/// Runs a session over TCP until its queue is closed.
fn run(shared: &Shared, bodies: &Receiver<Body>) {
    let target = shared.status.lock().target;
    while !shared.has_to_end.load(Ordering::Acquire) {
        let ended = match TcpStream::connect_timeout(&target.address, CONNECT_TIME) {
            Ok(stream) => serve(shared, &stream, bodies),
            Err(error) => Err(error),
        };
        let mut status = shared.status.lock();
        status.is_connected = false;
        let Err(error) = ended else { return };
        status.last_error = Some(error.to_string());
        drop(status);
        std::thread::park_timeout(PAUSE);
    }
}

/// Sends messages over a connection. Returns when the session ends.
fn serve(shared: &Shared, stream: &TcpStream, bodies: &Receiver<Body>) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_TIME))?;
    stream.set_nodelay(true)?;
    let mut sequence: u32 = 0;
    let mut send = |body: &Body| -> io::Result<()> {
        let message = body.emit(header(shared.domain, sequence));
        let mut writer = stream;
        let sent = writer.write_all(&message);
        let kind = sent.as_ref().err().map(io::Error::kind);
        sequence = sequence.wrapping_add(body.records);
        shared.count(body, message.len(), sent);
        kind.map_or(Ok(()), |kind| Err(kind.into()))
    };
    shared.status.lock().is_connected = true;
    let opening = shared.opening.lock().clone();
    opening.iter().try_for_each(&mut send)?;
    loop {
        match bodies.recv_timeout(LOOK) {
            Ok(body) => send(&body)?,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) if shared.has_to_end.load(Ordering::Acquire) => return Ok(()),
            // A collector that closed the connection is found before the next message.
            Err(RecvTimeoutError::Timeout) => is_alive(stream)?,
        }
    }
}

/// # Errors
/// The collector closed the connection.
fn is_alive(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false)?;
    match peeked {
        Ok(0) => Err(io::Error::from(io::ErrorKind::ConnectionAborted)),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}
