//! Datagrams over frames: a user-space UDP endpoint on a link that carries Ethernet frames, such as a memif or a DPDK device.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use millrace_endpoint::{Config, Endpoint, Event, FrameWriter, InterfaceAddress, Received};
use millrace_types::Time;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Burst, DatagramIo};

/// The maximum time from the opening of a link until it is up.
const LINK_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of datagrams in one call. The same number of frames may wait for a neighbour's MAC
/// address.
const SEGMENTS_MAX: usize = 64;

/// A link that carries Ethernet frames. One thread owns it, and nothing in it blocks.
pub trait FrameLink: FrameWriter + Send {
    /// Moves to the next frame that arrived; returns false if there is none.
    ///
    /// # Errors
    /// If the link cannot continue.
    fn advance(&mut self) -> io::Result<bool>;

    /// Returns the frame that the last successful [`FrameLink::advance`] moved to.
    fn frame(&mut self) -> &mut [u8];

    /// Sends the frames that were written.
    ///
    /// # Errors
    /// If the link cannot continue.
    fn flush(&mut self) -> io::Result<()>;

    /// Returns true if frames can be sent.
    fn is_up(&self) -> bool;

    /// Returns a descriptor. After [`FrameLink::advance`] has found no frame, the descriptor becomes readable
    /// when a frame may be there.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Returns the time at which the link has work that no frame triggers.
    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    /// Does the work that is due.
    ///
    /// # Errors
    /// If the link cannot continue.
    fn on_timeout(&mut self, now: Instant) -> io::Result<()> {
        let _ = now;
        Ok(())
    }
}

/// UDP datagrams of one port of an endpoint.
pub struct FrameIo<L> {
    link: L,
    endpoint: Endpoint,
    address: SocketAddr,
    start: Instant,
    /// True if the caller uses IPv4-mapped IPv6 addresses.
    maps_ipv4: bool,
}

impl<L: FrameLink> FrameIo<L> {
    /// Opens a UDP port; waits until the link is up and the addresses have passed duplicate address detection.
    ///
    /// # Errors
    /// If the link stays down, the configuration cannot work, or another host uses an address.
    pub fn open(mut link: L, config: Config, port: u16) -> io::Result<FrameIo<L>> {
        let deadline = Instant::now() + LINK_TIMEOUT;
        while !link.is_up() {
            let now = Instant::now();
            if now >= deadline {
                let text =
                    "the other end of the link did not answer; check that the switch runs and has this port";
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            link.on_timeout(now)?;
            while link.advance()? {}
            sleep(link.descriptor(), link.next_timeout(), deadline)?;
        }
        let own: Vec<IpAddr> = config.addresses.iter().map(InterfaceAddress::ip).collect();
        // With addresses of both IP versions, the local address is an IPv6 address, so that the caller uses both.
        let first = own.iter().find(|ip| ip.is_ipv6()).or(own.first()).copied();
        let start = Instant::now();
        let mut endpoint = Endpoint::new(config, Time::ZERO).map_err(io::Error::other)?;
        endpoint.bind(port).map_err(io::Error::other)?;
        let ip = first.ok_or(io::ErrorKind::InvalidInput)?;
        let mut io = FrameIo {
            link,
            endpoint,
            address: SocketAddr::new(ip, port),
            start,
            maps_ipv4: false,
        };
        loop {
            // This thread may be late: queued answers to probes arrived in time, and count.
            while io.receive()?.is_some() {}
            let now = Instant::now();
            io.on_timeout(now)?;
            io.flush()?;
            if io.endpoint.is_probed() {
                break;
            }
            let soon = now + Duration::from_secs(1);
            sleep(io.link.descriptor(), io.next_timeout(), soon)?;
        }
        if let Some(ip) = own.iter().find(|ip| !io.endpoint.is_usable(**ip)) {
            let text = format!("another host has the address {ip}; give another one with address=");
            return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
        }
        Ok(io)
    }

    /// Returns the endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn now(&self) -> Time {
        let nanos = self.start.elapsed().as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Sends the endpoint's own frames, and logs its events.
    fn drain(&mut self) -> io::Result<()> {
        let mut sends = false;
        while let Some(frame) = self.endpoint.poll_transmit() {
            self.link
                .write_frame(frame.len(), std::iter::once(frame.as_slice()));
            sends = true;
        }
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Usable { .. } => {}
                Event::Conflict { address, mac, .. } => {
                    tracing::warn!(%address, %mac, "another host uses an own address");
                }
                Event::Unreachable { to, reason } => tracing::debug!(%to, %reason, "unreachable"),
                Event::PathMtu { to, mtu } => tracing::info!(%to, mtu, "path MTU"),
            }
        }
        if sends {
            self.link.flush()?;
        }
        Ok(())
    }

    /// Moves to the next datagram; returns its sender, its bytes in the frame, and its congestion mark.
    fn next_datagram(&mut self) -> io::Result<Option<(SocketAddr, Range<usize>, bool)>> {
        while self.link.advance()? {
            let now = self.now();
            let received = self.endpoint.receive(now, self.link.frame());
            match received {
                // No protocol here uses empty datagrams.
                Received::Datagram { payload, .. } if payload.is_empty() => {}
                Received::Datagram {
                    from,
                    payload,
                    congestion_experienced,
                    ..
                } => return Ok(Some((from, payload, congestion_experienced))),
                Received::Handled | Received::Dropped(_) => self.drain()?,
            }
        }
        Ok(None)
    }
}

/// Waits until a descriptor is readable or the earlier of two times has come.
fn sleep(descriptor: BorrowedFd<'_>, first: Option<Instant>, second: Instant) -> io::Result<()> {
    let until = first.map_or(second, |first| first.min(second));
    let remaining = until.saturating_duration_since(Instant::now());
    let millis = u16::try_from(remaining.as_millis() + 1).unwrap_or(u16::MAX);
    let mut fds = [PollFd::new(descriptor, PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::from(millis)) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl<L: FrameLink> DatagramIo for FrameIo<L> {
    fn local_address(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    fn segments_max(&self) -> usize {
        SEGMENTS_MAX
    }

    fn send(&mut self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        self.send_segments(to, &[IoSlice::new(datagram)], datagram.len())
    }

    fn send_segments(&mut self, to: SocketAddr, parts: &[IoSlice<'_>], segment: usize) -> io::Result<()> {
        self.maps_ipv4 |= matches!(to.ip(), IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some());
        let (now, port) = (self.now(), self.address.port());
        let sent = self.endpoint.send(now, port, to, parts, segment, &mut self.link);
        if let Err(error) = sent {
            // A datagram that the path refuses counts as lost, as with a socket.
            tracing::debug!(%error, "datagrams were not sent");
        }
        self.drain()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.link.flush()
    }

    fn receive(&mut self) -> io::Result<Option<Burst<'_>>> {
        let Some((from, payload, congestion_experienced)) = self.next_datagram()? else {
            return Ok(None);
        };
        let from = match from.ip() {
            IpAddr::V4(ip) if self.maps_ipv4 => SocketAddr::new(ip.to_ipv6_mapped().into(), from.port()),
            _ => from,
        };
        let segment = payload.len();
        Ok(Some(Burst {
            from,
            bytes: &mut self.link.frame()[payload],
            segment,
            congestion_experienced,
        }))
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.link.descriptor()
    }

    fn next_timeout(&self) -> Option<Instant> {
        let endpoint = self.endpoint.next_timeout();
        let endpoint = endpoint.map(|at| self.start + Duration::from_nanos(at.nanos()));
        [endpoint, self.link.next_timeout()].into_iter().flatten().min()
    }

    fn on_timeout(&mut self, now: Instant) -> io::Result<()> {
        self.link.on_timeout(now)?;
        self.endpoint.on_timeout(self.now());
        self.drain()
    }

    fn path_mtu(&self, to: SocketAddr) -> u16 {
        self.endpoint.path_mtu(to.ip().to_canonical())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    use millrace_types::Mac;
    use millrace_wire::{Builder, arp};

    use super::*;

    const PROBE_INTERVAL: Duration = Duration::from_millis(10);

    /// A link with another host, which answers the last probe while the thread of the port does not run.
    struct Late {
        answer: Option<Vec<u8>>,
        frame: Vec<u8>,
        probes: u32,
        is_late: Cell<bool>,
        sockets: [UnixDatagram; 2],
    }

    impl FrameWriter for Late {
        fn write_frame<'a>(&mut self, _: usize, _: impl Iterator<Item = &'a [u8]>) -> bool {
            self.probes += 1;
            self.is_late.set(self.probes == 3);
            true
        }
    }

    impl FrameLink for Late {
        fn advance(&mut self) -> io::Result<bool> {
            let has_answered = self.probes >= 3 && !self.is_late.get();
            match self.answer.take_if(|_| has_answered) {
                Some(answer) => self.frame = answer,
                None => return Ok(false),
            }
            Ok(true)
        }

        fn frame(&mut self) -> &mut [u8] {
            &mut self.frame
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn is_up(&self) -> bool {
            true
        }

        fn descriptor(&self) -> BorrowedFd<'_> {
            if self.is_late.replace(false) {
                std::thread::sleep(2 * PROBE_INTERVAL);
            }
            self.sockets[0].as_fd()
        }
    }

    #[test]
    fn an_answer_to_a_probe_that_waits_is_handled_before_the_time_for_answers_ends() {
        let (own, other) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        let reply = arp::Repr {
            op: arp::REPLY,
            sha: other,
            spa: [192, 0, 2, 1].into(),
            tha: own,
            tpa: [0, 0, 0, 0].into(),
        };
        let reply = Builder::ethernet(own, other).arp(reply).build();
        let link = Late {
            answer: Some(reply),
            frame: Vec::new(),
            probes: 0,
            is_late: Cell::new(false),
            sockets: UnixDatagram::pair().unwrap().into(),
        };
        let mut config = Config::new(own, "192.0.2.1/24".parse().unwrap(), 1);
        config.probe_interval = PROBE_INTERVAL;
        let error = FrameIo::open(link, config, 1).err().map(|error| error.kind());
        assert_eq!(error, Some(io::ErrorKind::AddrInUse));
    }
}
