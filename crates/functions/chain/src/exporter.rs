//! Sends the messages of functions to the targets of their `export` settings: datagrams to a collector, or bytes to a file.
//! Each chain has a thread for this, since files and pipes may block.

use std::fs::File;
use std::io::Write;
use std::net::UdpSocket;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use millrace_nf::{Outbox, Setup};
use millrace_wire::Packet;

use crate::control::Chain;

/// The interval at which outboxes are emptied.
const PERIOD: Duration = Duration::from_millis(20);

/// An outbox and its target.
struct Route {
    outbox: Outbox,
    to: String,
}

enum Sink {
    Datagrams(UdpSocket),
    Stream(File),
}

/// The exporter of one chain. Its thread runs only if a function exports, and ends when this is dropped.
pub struct Exporter {
    chain: String,
    routes: Option<mpsc::Sender<Vec<Route>>>,
}

impl Exporter {
    /// Returns an exporter without routes.
    pub fn new(chain: &str) -> Exporter {
        Exporter {
            chain: chain.to_owned(),
            routes: None,
        }
    }

    /// Exports the messages of a chain's functions from now on.
    pub fn export<P: Packet + 'static>(&mut self, chain: &Chain<P>) {
        let route = |(_, setup): (&str, &Setup)| {
            Some(Route {
                outbox: setup.outbox.clone(),
                to: setup.settings.all("export").next()?.to_owned(),
            })
        };
        let routes: Vec<Route> = chain.outboxes().filter_map(route).collect();
        if routes.is_empty() && self.routes.is_none() {
            return;
        }
        let sent = match &self.routes {
            Some(sender) => sender.send(routes),
            None => {
                let (sender, receiver) = mpsc::channel();
                let chain = self.chain.clone();
                let body = move || run(&chain, &receiver);
                let name = format!("nf-{}", self.chain);
                if let Err(error) = std::thread::Builder::new().name(name).spawn(body) {
                    tracing::warn!(chain = %self.chain, %error, "the exporter thread of the chain cannot be started");
                }
                let sent = sender.send(routes);
                self.routes = Some(sender);
                sent
            }
        };
        if sent.is_err() {
            self.routes = None;
        }
    }
}

fn run(chain: &str, routes: &mpsc::Receiver<Vec<Route>>) {
    let mut open: Vec<(Route, Option<Sink>)> = Vec::new();
    loop {
        match routes.recv_timeout(PERIOD) {
            Ok(wanted) => {
                empty(chain, &mut open);
                // Targets that stay are not opened again.
                let mut before = core::mem::take(&mut open);
                for route in wanted {
                    let held = before.iter().position(|(held, _)| held.to == route.to);
                    let sink = match held {
                        Some(at) => before.swap_remove(at).1,
                        None => connect(chain, &route.to),
                    };
                    open.push((route, sink));
                }
            }
            Err(RecvTimeoutError::Timeout) => empty(chain, &mut open),
            Err(RecvTimeoutError::Disconnected) => return empty(chain, &mut open),
        }
    }
}

fn empty(chain: &str, open: &mut [(Route, Option<Sink>)]) {
    for (route, sink) in open {
        let mut failure = None;
        while route.outbox.receive(|message| {
            let sent = match sink {
                Some(Sink::Datagrams(socket)) => socket.send(message).map(|_| ()),
                Some(Sink::Stream(file)) => file.write_all(message),
                None => Ok(()),
            };
            failure = failure.take().or(sent.err());
        }) {}
        if let Some(error) = failure {
            tracing::debug!(chain, to = %route.to, %error, "message not exported");
        }
    }
}

fn connect(chain: &str, to: &str) -> Option<Sink> {
    let sink = match to.split_once(':') {
        Some(("udp", address)) => UdpSocket::bind("[::]:0")
            .or_else(|_| UdpSocket::bind("0.0.0.0:0"))
            .and_then(|socket| connect_to(socket, address))
            .map(Sink::Datagrams),
        Some(("file", path)) => File::options()
            .create(true)
            .append(true)
            .open(path)
            .map(Sink::Stream),
        _ => Err(std::io::Error::other("expected udp:HOST:PORT or file:PATH")),
    };
    sink.inspect_err(|error| tracing::warn!(chain, to, %error, "export target cannot be opened"))
        .ok()
}

fn connect_to(socket: UdpSocket, address: &str) -> std::io::Result<UdpSocket> {
    match socket.connect(address) {
        Ok(()) => Ok(socket),
        // The address is of the other family.
        Err(_) => {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.connect(address)?;
            Ok(socket)
        }
    }
}
