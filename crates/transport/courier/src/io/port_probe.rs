//! Closed ports of receivers, which their hosts report by ICMP.
//!
//! The socket of a session serves many peers, so the kernel cannot tell it which of them a report is about. A socket that is
//! connected to one address, and sends one datagram of a byte that no peer answers, gets the report as its own error
//! (`ECONNREFUSED`, udp(7)). Without a report (a filter, an open port) nothing is learned.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use super::DatagramIo;

/// The datagram. Its first byte is of no packet of QUIC (RFC 9000, section 17.2: the fixed bit is 0) and of no session.
const DATAGRAM: [u8; 1] = [0];

/// Asks the hosts of a peer's addresses for closed ports, if the kernel would report them.
pub(crate) fn probe_ports(io: &dyn DatagramIo, addresses: &[SocketAddr]) -> PortProbes {
    match io.local_address() {
        Ok(local) if io.reports_closed_ports() => PortProbes::send(local, addresses),
        _ => PortProbes::default(),
    }
}

/// The addresses of one peer that are dialled.
#[derive(Debug, Default)]
pub(crate) struct PortProbes {
    probes: Vec<PortProbe>,
}

#[derive(Debug)]
struct PortProbe {
    address: SocketAddr,
    /// `None` if no datagram could be sent.
    socket: Option<UdpSocket>,
    is_refused: bool,
}

impl PortProbes {
    /// Sends a datagram to each address, from the network of a socket with this local address.
    fn send(local: SocketAddr, addresses: &[SocketAddr]) -> PortProbes {
        let probes = addresses.iter().map(|address| PortProbe {
            address: *address,
            socket: connected(local, *address).ok(),
            is_refused: false,
        });
        PortProbes {
            probes: probes.collect(),
        }
    }

    /// Returns the reason if the hosts of all addresses have reported that nothing listens there.
    pub(crate) fn refusal(&mut self) -> Option<String> {
        for probe in &mut self.probes {
            let error = probe.socket.as_ref().and_then(|socket| socket.take_error().ok()?);
            // The error is reported once.
            probe.is_refused |= error.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
        }
        let all = !self.probes.is_empty() && self.probes.iter().all(|probe| probe.is_refused);
        all.then(|| {
            let addresses: Vec<String> = self
                .probes
                .iter()
                .map(|probe| probe.address.to_string())
                .collect();
            format!("nothing listens at UDP port {}", addresses.join(", "))
        })
    }
}

/// Sends the datagram from a socket that is connected to an address.
fn connected(local: SocketAddr, to: SocketAddr) -> io::Result<UdpSocket> {
    let to = SocketAddr::new(to.ip().to_canonical(), to.port());
    let local = local.ip().to_canonical();
    let from = match (
        local.is_ipv4() == to.is_ipv4() && !local.is_unspecified(),
        to.is_ipv4(),
    ) {
        (true, _) => SocketAddr::new(local, 0),
        (false, true) => SocketAddr::from(([0, 0, 0, 0], 0)),
        (false, false) => SocketAddr::from(([0_u16; 8], 0)),
    };
    let socket = UdpSocket::bind(from)?;
    socket.set_nonblocking(true)?;
    socket.connect(to)?;
    socket.send(&DATAGRAM)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_peer_is_refused_when_all_its_ports_are_closed_and_not_before() {
        let local = "0.0.0.0:0".parse().unwrap();
        let open = UdpSocket::bind("127.0.0.1:0").unwrap();
        let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut refused = PortProbes::send(local, &[closed]);
        let mut partly = PortProbes::send(local, &[closed, open.local_addr().unwrap()]);
        let deadline = Instant::now() + Duration::from_secs(60);
        let reason = loop {
            if let Some(reason) = refused.refusal() {
                break reason;
            }
            assert!(Instant::now() < deadline, "the kernel reports a closed port");
            std::thread::yield_now();
        };
        assert_eq!(reason, format!("nothing listens at UDP port {closed}"));
        assert!(refused.refusal().is_some(), "the answer stays");
        // The datagrams to both ports left before the report above was read.
        assert_eq!(partly.refusal(), None);
        assert_eq!(PortProbes::default().refusal(), None);
    }
}
