//! Carries what functions have to say to where their `export` setting wants it: datagrams to a collector, or a file.
//! A thread of its own, since files and pipes may make one wait.

use std::fs::File;
use std::io::Write;
use std::net::UdpSocket;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use millrace_nf::{Outbox, Setup};
use millrace_wire::Packet;

use crate::control::Chain;

/// How often outboxes are looked at.
const PERIOD: Duration = Duration::from_millis(20);

/// An outbox and where its messages go.
struct Route {
    outbox: Outbox,
    to: String,
}

enum Sink {
    Datagrams(UdpSocket),
    Stream(File),
}

/// The thread of one chain; there is none while no function has something to say. Ends when this is dropped.
pub struct Carrier {
    chain: String,
    routes: Option<mpsc::Sender<Vec<Route>>>,
}

impl Carrier {
    /// Carries nothing yet.
    pub fn new(chain: &str) -> Carrier {
        Carrier {
            chain: chain.to_owned(),
            routes: None,
        }
    }

    /// Carries what the functions of the chain say from now on.
    pub fn carry<P: Packet + 'static>(&mut self, chain: &Chain<P>) {
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
                    tracing::warn!(chain = %self.chain, %error, "nobody carries what functions export");
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
                // A file that goes on is not begun again.
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
            tracing::debug!(chain, to = %route.to, %error, "not exported");
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
    sink.inspect_err(|error| tracing::warn!(chain, to, %error, "nothing is exported"))
        .ok()
}

fn connect_to(socket: UdpSocket, address: &str) -> std::io::Result<UdpSocket> {
    match socket.connect(address) {
        Ok(()) => Ok(socket),
        // A socket of the other family.
        Err(_) => {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.connect(address)?;
            Ok(socket)
        }
    }
}
