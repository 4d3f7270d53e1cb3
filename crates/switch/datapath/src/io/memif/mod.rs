//! memif as a device: the process at the other side of the Unix socket need not be trusted.
//!
//! A thread for each socket exchanges the messages: [`server`] for sockets that the switch serves, [`client`] for
//! those that it connects to. When a connection is established, that thread posts the ends of its rings to mailboxes
//! ([`ring_mailbox`]), from which workers take them. A worker that detects a protocol violation returns its end and
//! reports the violation to the thread, which closes the connection. A worker's poll therefore costs the test of one
//! flag while nothing changes, and it never waits.
//!
//! ```text
//!   worker: Rx, Tx <--- RingMailbox <--- post --- control thread (server or client) <--- socket --- peer
//!                  ---> retired     ---> collect ->     ^
//!                  ---> violations  --------------------+
//! ```
//!
//! The crate `memif` documents which values of a peer are trusted, and why a peer cannot do harm.

mod client;
mod interface;
mod queue;
mod ring_mailbox;
mod server;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use millrace_memif::region::UnsealedPolicy;
use millrace_types::Mac;
use millrace_wire::Packet;
use parking_lot::Mutex;

use self::client::Client;
use self::interface::Interface;
use self::queue::{Rx, Tx};
pub(super) use self::ring_mailbox::{ConnectedRing, RingMailbox};
use self::server::Server;
use super::allocate::Empty;
use super::peer::{WakeEvent, failed, mac_of};
use super::vnic::{SocketAccess, VnicSpec};
use super::{Device, DeviceInfo, DeviceOptions, DeviceStats, OpenError, Opened, PortModes, RxQueue, TxQueue};

/// The sockets that the switch serves, by path. Interfaces may share a socket.
pub(super) struct Sockets {
    servers: Mutex<Vec<(PathBuf, Weak<Server>)>>,
    unsealed: UnsealedPolicy,
}

impl Sockets {
    /// Returns an empty set. `accepts_unsealed` is true if this process survives when a peer shrinks shared
    /// memory.
    pub(super) fn new(accepts_unsealed: bool) -> Sockets {
        Sockets {
            servers: Mutex::default(),
            unsealed: match accepts_unsealed {
                true => UnsealedPolicy::Accept,
                false => UnsealedPolicy::Reject,
            },
        }
    }

    /// Opens interface `id`. `empty` supplies packets to be filled with received frames.
    ///
    /// # Errors
    /// Returns [`OpenError`], which has the next step.
    pub(super) fn open<P: Packet + 'static>(
        &self,
        spec: &VnicSpec,
        id: u32,
        options: DeviceOptions,
        empty: &Empty<P>,
    ) -> Result<Opened<P>, OpenError> {
        let queues = if options.only_if_spread {
            1
        } else {
            options.queues.max(1)
        };
        let (interface, thread) = match &spec.access {
            None => {
                let wake = Arc::new(WakeEvent::new().map_err(|error| failed(spec, &error))?);
                let interface = Interface::new(spec, id, queues, options.mtu, Arc::clone(&wake));
                let interface = Arc::new(interface);
                let client = Client::start(&spec.path, &interface, wake)?;
                (interface, ConnectionThread::Client(client))
            }
            Some(access) => {
                let server = self.server(&spec.path, access)?;
                let interface = Interface::new(spec, id, queues, options.mtu, server.wake());
                let interface = Arc::new(interface);
                server.add(&interface)?;
                (interface, ConnectionThread::Server(server))
            }
        };
        let rx = (0..queues).map(|queue| {
            let rx = Rx::new(Arc::clone(&interface), queue, Arc::clone(empty));
            Box::new(rx) as Box<dyn RxQueue<P>>
        });
        Ok(Opened {
            rx: rx.collect(),
            tx: vec![Box::new(Tx::new(Arc::clone(&interface))) as Box<dyn TxQueue<P>>],
            device: Box::new(Memif {
                mac: mac_of(spec),
                mtu: options.mtu,
                rx_queues: queues,
                interface,
                thread,
            }),
        })
    }

    /// Returns the server of a path, and starts one if there is none.
    fn server(&self, path: &Path, access: &SocketAccess) -> Result<Arc<Server>, OpenError> {
        let mut servers = self.servers.lock();
        servers.retain(|(_, server)| server.strong_count() > 0);
        let known = servers.iter().find(|(served, _)| served == path);
        if let Some(server) = known.and_then(|(_, server)| server.upgrade()) {
            return Ok(server);
        }
        let server = Arc::new(Server::start(path, access, self.unsealed)?);
        servers.push((path.to_owned(), Arc::downgrade(&server)));
        Ok(server)
    }
}

/// The thread that handles the connections of an interface.
enum ConnectionThread {
    Server(Arc<Server>),
    /// The client's thread ends when this is dropped.
    Client(#[expect(dead_code, reason = "held for its end")] Client),
}

struct Memif {
    mac: Mac,
    mtu: u16,
    rx_queues: u16,
    interface: Arc<Interface>,
    thread: ConnectionThread,
}

impl Device for Memif {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            driver: "memif".to_owned(),
            mac: self.mac,
            speed_mbps: None,
            link_up: self.interface.is_connected(),
            modes: PortModes::default(),
            mtu: self.mtu,
            numa_node: None,
            rx_queues: self.rx_queues,
            rss: None,
            offload: None,
        }
    }

    fn stats(&self) -> DeviceStats {
        self.interface.counters.read()
    }

    /// Does nothing: the link is up while a peer is connected.
    fn set_link(&mut self, _up: bool) {}
}

impl Drop for Memif {
    fn drop(&mut self) {
        if let ConnectionThread::Server(server) = &self.thread {
            server.remove(&self.interface);
        }
        self.interface.notifier.close();
    }
}

#[cfg(test)]
mod tests;
