//! The thread that receives datagrams of the switches.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use millrace_ix_model::Timestamp;
use millrace_sflow::Datagram;
use thiserror::Error;

use crate::Shared;

/// The interval at which the thread checks whether it must end, while no datagrams arrive.
const POLL: Duration = Duration::from_millis(100);

/// The address of the collector, and those of the switches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The UDP address.
    pub listen: SocketAddr,
    /// The addresses from which datagrams are accepted. All other datagrams are refused, because sFlow has no
    /// authentication.
    pub switches: BTreeSet<IpAddr>,
}

/// The reason why the receiver cannot start.
#[derive(Debug, Error)]
pub enum ListenError {
    /// The socket cannot be bound.
    #[error(
        "sFlow: {address} cannot be bound: {source}. To fix it: free the port, or set another address as `listen` in [sflow]"
    )]
    Bind {
        address: SocketAddr,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The kernel refused a thread.
    #[error("sFlow: the thread cannot be started: {0}. To fix it: raise the limit of threads (ulimit -u)")]
    Thread(#[source] io::Error),
}

/// A running receiver. Dropping it ends its thread.
pub struct Receiver {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Receiver {
    /// Binds the socket, and starts the thread that feeds `shared`.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn start(settings: &Settings, shared: Shared) -> Result<Receiver, ListenError> {
        let bind = || -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind(settings.listen)?;
            socket.set_read_timeout(Some(POLL))?;
            Ok(socket)
        };
        let source = |source| ListenError::Bind {
            address: settings.listen,
            source,
        };
        let socket = bind().map_err(source)?;
        let address = socket.local_addr().map_err(source)?;
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (stop, switches) = (Arc::clone(&stop), settings.switches.clone());
            std::thread::Builder::new()
                .name("sflow".to_owned())
                .spawn(move || receive(&socket, &switches, &shared, &stop))
                .map_err(ListenError::Thread)?
        };
        Ok(Receiver {
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// Returns the address of the socket.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that receives sFlow panicked");
        }
    }
}

fn receive(socket: &UdpSocket, switches: &BTreeSet<IpAddr>, shared: &Shared, stop: &AtomicBool) {
    let mut bytes = vec![0; 65_535];
    while !stop.load(Ordering::Relaxed) {
        // The error is a timeout, or reports an ICMP message. Neither says anything about the next datagram.
        let Ok((size, from)) = socket.recv_from(&mut bytes) else {
            continue;
        };
        if !switches.contains(&from.ip().to_canonical()) {
            shared.count_refused();
            continue;
        }
        let now = Timestamp::from(SystemTime::now());
        match bytes.get(..size).map(Datagram::parse) {
            Some(Ok(datagram)) => shared.take(&datagram, now),
            _ => shared.count_malformed(),
        }
    }
}
