//! The thread that sends the RIB's requests about neighbours to the kernel of a namespace, in batches.
//!
//! A request waits for the kernel's lock of all network settings, which `ip -batch` and zebra take for milliseconds, so that
//! the RIB does not send requests itself.
//!
//! Static neighbours are left alone: `NTF_USE`, with or without `NTF_EXT_MANAGED`, takes `NUD_PERMANENT` and the MAC address
//! from them (`__neigh_update` in net/core/neighbour.c). The RIB may not have read yet that a neighbour is static, so the
//! kernel is asked before each batch, and a neighbour that it does not know is made only if it still does not. One that it
//! knows, and that becomes static in the microseconds between question and request, loses its MAC address all the same: the
//! kernel has no request that would not.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use nix::errno::Errno;

use crate::message::Requests;
use crate::socket::{Received, Socket};
use crate::status::Shared;
use crate::wire::{Content, Messages};

/// The maximum number of requests that are sent together. The answers fit into the receive buffer that a socket has unasked.
const BATCH_LEN: usize = 64;
/// How often a request is tried whose neighbour comes or goes at the same time.
const ATTEMPTS_MAX: usize = 3;
/// The maximum number of probes that wait. A probe that is dropped is repeated by the next packet to its neighbour.
const PROBES_MAX: usize = 4096;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    ifindex: u32,
    address: IpAddr,
    kind: Kind,
}

impl Request {
    fn neighbour(&self) -> (u32, IpAddr) {
        (self.ifindex, self.address)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Manage,
    Unmanage,
    Probe,
}

/// The sending end of the thread's queue.
pub(crate) struct Requester {
    requests: Sender<Request>,
    probes: Arc<AtomicUsize>,
    status: Arc<Shared>,
}

impl Requester {
    /// Returns the requester, and the body of its thread, which ends when the requester is dropped.
    pub(crate) fn new(socket: Socket, status: Arc<Shared>) -> (Requester, impl FnOnce() + Send) {
        let (requests, queue) = std::sync::mpsc::channel();
        let probes = Arc::new(AtomicUsize::new(0));
        let worker = Worker {
            socket,
            queue,
            probes: Arc::clone(&probes),
            managed: HashSet::new(),
            status: Arc::clone(&status),
        };
        let requester = Requester {
            requests,
            probes,
            status,
        };
        (requester, move || worker.run())
    }

    /// Makes the kernel keep a neighbour fresh, or no longer.
    pub(crate) fn manage(&self, ifindex: u32, address: IpAddr, managed: bool) {
        let kind = if managed { Kind::Manage } else { Kind::Unmanage };
        self.send(ifindex, address, kind);
    }

    /// Makes the kernel resolve or confirm a neighbour now.
    pub(crate) fn probe(&self, ifindex: u32, address: IpAddr) {
        if self.probes.fetch_add(1, Ordering::Relaxed) < PROBES_MAX {
            self.send(ifindex, address, Kind::Probe);
        } else {
            self.probes.fetch_sub(1, Ordering::Relaxed);
            self.status.change(|status| status.dropped_probes += 1);
        }
    }

    fn send(&self, ifindex: u32, address: IpAddr, kind: Kind) {
        // The thread ends only after the requester.
        let _sent = self.requests.send(Request {
            ifindex,
            address,
            kind,
        });
    }
}

struct Worker {
    socket: Socket,
    queue: Receiver<Request>,
    probes: Arc<AtomicUsize>,
    /// The neighbours that the kernel keeps fresh: `NTF_USE` without `NTF_EXT_MANAGED` would end that.
    managed: HashSet<(u32, IpAddr)>,
    status: Arc<Shared>,
}

/// The kernel's knowledge of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    Nothing,
    Static,
    /// It can be asked for.
    Dynamic,
}

impl Worker {
    fn run(mut self) {
        let mut messages = Requests::default();
        let mut buffer = vec![0; 1 << 16];
        while let Ok(first) = self.queue.recv() {
            let mut batch = vec![first];
            batch.extend(self.queue.try_iter().take(BATCH_LEN - 1));
            let probes = batch.iter().filter(|request| request.kind == Kind::Probe).count();
            self.probes.fetch_sub(probes, Ordering::Relaxed);
            for _ in 0..ATTEMPTS_MAX {
                let done = self.ask(&batch, &mut messages, &mut buffer).and_then(|known| {
                    messages.clear();
                    batch.retain(|request| self.add(*request, known.of(request), &mut messages));
                    self.execute(&messages, &batch, &mut buffer)
                });
                match done {
                    Ok(left) => batch = left,
                    Err(error) => {
                        self.refuse(format!("requests about neighbours: {error}"));
                        batch.clear();
                    }
                }
                if batch.is_empty() {
                    break;
                }
            }
            for request in batch {
                self.refuse(format!(
                    "{} came and went while it was asked for",
                    request.address
                ));
            }
        }
    }

    /// Asks the kernel what it knows of the neighbours of requests.
    fn ask(&self, batch: &[Request], messages: &mut Requests, buffer: &mut [u8]) -> io::Result<Answers> {
        messages.clear();
        for request in batch {
            messages.neighbour(request.ifindex, request.address);
        }
        let mut answers = Answers::default();
        // The kernel answers before `send` returns: with the neighbour, or that there is none.
        self.socket.send(messages.bytes())?;
        while let Received::Datagram(size) = self.socket.receive(buffer)? {
            for message in Messages::new(buffer.get(..size).unwrap_or_default()).flatten() {
                if let Ok(Content::Neighbour(_, neighbour)) = message.content() {
                    let known = if neighbour.is_static() {
                        Known::Static
                    } else {
                        Known::Dynamic
                    };
                    answers.0.insert((neighbour.interface, neighbour.address), known);
                }
            }
        }
        Ok(answers)
    }

    /// Adds a request to the messages, unless its neighbour is static. Returns true if it was added.
    fn add(&mut self, request: Request, known: Known, messages: &mut Requests) -> bool {
        let key = request.neighbour();
        if known == Known::Static {
            self.managed.remove(&key);
            return false;
        }
        let is_managed = match request.kind {
            Kind::Manage => {
                self.managed.insert(key);
                true
            }
            Kind::Unmanage => {
                self.managed.remove(&key);
                false
            }
            Kind::Probe => self.managed.contains(&key),
        };
        messages.resolve(
            request.ifindex,
            request.address,
            is_managed,
            known == Known::Nothing,
        );
        true
    }

    /// Sends requests. The kernel answers those that it refuses before `send` returns, and the others not at all. Returns those
    /// whose neighbour has come or gone since the kernel was asked.
    fn execute(&self, messages: &Requests, batch: &[Request], buffer: &mut [u8]) -> io::Result<Vec<Request>> {
        let mut left = Vec::new();
        self.socket.send(messages.bytes())?;
        while let Received::Datagram(size) = self.socket.receive(buffer)? {
            for message in Messages::new(buffer.get(..size).unwrap_or_default()).flatten() {
                let Ok(Content::Error(number)) = message.content() else {
                    continue;
                };
                if number == 0 {
                    continue;
                }
                let request = (message.sequence as usize)
                    .checked_sub(1)
                    .and_then(|at| batch.get(at));
                match (Errno::from_raw(number), request) {
                    (Errno::EEXIST | Errno::ENOENT, Some(request)) => left.push(*request),
                    _ => {
                        let error = io::Error::from_raw_os_error(number);
                        self.refuse(format!("a request about a neighbour: {error}"));
                    }
                }
            }
        }
        Ok(left)
    }

    fn refuse(&self, error: String) {
        self.status.change(|status| {
            status.refused_requests += 1;
            status.last_error = error;
        });
    }
}

/// The kernel's knowledge, by neighbour.
#[derive(Default)]
struct Answers(HashMap<(u32, IpAddr), Known>);

impl Answers {
    fn of(&self, request: &Request) -> Known {
        self.0
            .get(&request.neighbour())
            .copied()
            .unwrap_or(Known::Nothing)
    }
}
