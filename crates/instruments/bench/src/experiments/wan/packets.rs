//! Load and capture: packet sockets of the kernel, which share no code with the emulator. The kernel stamps each captured
//! frame with the nanosecond at which it arrived at the interface (`SO_TIMESTAMPNS`).

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sched::{CloneFlags, setns};
use nix::sys::prctl::set_timerslack;
use nix::sys::socket::sockopt::{RcvBufForce, ReceiveTimestampns, SndBufForce};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, MultiHeaders, SockFlag, SockProtocol, SockType,
    SockaddrLike as _, bind, recvmmsg, sendmmsg, setsockopt, socket,
};
use nix::sys::time::TimeSpec;

use super::error::WanBenchError;
use crate::file_error::file;

/// The destination, the source and the EtherType of frames. No host of a lab has these addresses. The
/// EtherType is Local Experimental EtherType 1 (IEEE Std 802).
const HEADER: [u8; 14] = *b"\x02wan\x00\x02\x02wan\x00\x01\x88\xb5";
/// The offsets of the run number and of the frame number.
const RUN: usize = 14;
const NUMBER: usize = 18;
/// The number of bytes of a frame that a capture reads.
const READ: usize = 32;
/// The number of frames of one system call.
const BATCH: usize = 64;
/// The receive buffer of a capture, and the send buffer of a sender, in bytes.
const BUFFER: usize = 64 << 20;
/// The time for which a capture sleeps after it has read all frames.
const READ_INTERVAL: Duration = Duration::from_millis(1);
/// The approximate time between two system calls of a sender at high rates. One call sends the frames of this
/// time.
const QUANTUM: Duration = Duration::from_micros(100);

/// An interface in a network namespace.
#[derive(Debug, Clone)]
pub(super) struct NamespacedInterface {
    /// The path of the namespace.
    pub(super) namespace: PathBuf,
    pub(super) interface: &'static str,
}

/// A captured frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    /// The number of the frame in its run.
    pub(super) number: u64,
    /// The arrival in nanoseconds of the wall clock.
    pub(super) nanos: i64,
}

/// The frames of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// The number of the run. Frames of other runs are not counted.
    pub(super) run: u32,
    /// The size in bytes, without check sequence.
    pub(super) frame: usize,
    /// Frames per second.
    pub(super) pps: u32,
    pub(super) duration: Duration,
}

/// Runs `work` on a thread of its own in the namespace.
pub(super) fn within<T: Send>(
    namespace: &Path,
    work: impl FnOnce() -> Result<T, WanBenchError> + Send,
) -> Result<T, WanBenchError> {
    let inside = || {
        let handle = File::open(namespace).map_err(file(namespace))?;
        setns(handle, CloneFlags::CLONE_NEWNET).map_err(|errno| file(namespace)(errno.into()))?;
        work()
    };
    thread::scope(|scope| match scope.spawn(inside).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

impl NamespacedInterface {
    fn failed(&self, doing: &'static str) -> impl Fn(Errno) -> WanBenchError {
        let namespace = self.namespace.display().to_string();
        let interface = self.interface.to_owned();
        move |errno| WanBenchError::Socket {
            doing,
            interface: interface.clone(),
            namespace: namespace.clone(),
            errno,
        }
    }

    /// Opens a packet socket bound to the interface.
    fn open(&self) -> Result<OwnedFd, WanBenchError> {
        within(&self.namespace, || {
            let opened = socket(
                AddressFamily::Packet,
                SockType::Raw,
                SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
                SockProtocol::EthAll,
            )
            .map_err(self.failed("socket"))?;
            let mut addresses = getifaddrs().map_err(self.failed("getifaddrs"))?;
            let link = addresses
                .find_map(|entry| {
                    let address = entry.address.filter(|_| entry.interface_name == self.interface)?;
                    (address.family() == Some(AddressFamily::Packet)).then_some(())?;
                    address.as_link_addr().copied()
                })
                .ok_or_else(|| self.failed("interface")(Errno::ENODEV))?;
            // The address names no protocol, so the socket keeps the protocol with which it was created: all.
            bind(opened.as_raw_fd(), &link).map_err(self.failed("bind"))?;
            Ok(opened)
        })
    }
}

/// A capture of all frames that arrive at an interface.
pub(super) struct Capture {
    socket: OwnedFd,
    interface: NamespacedInterface,
}

impl Capture {
    pub(super) fn open(interface: &NamespacedInterface) -> Result<Capture, WanBenchError> {
        let socket = interface.open()?;
        setsockopt(&socket, RcvBufForce, &BUFFER).map_err(interface.failed("SO_RCVBUFFORCE"))?;
        setsockopt(&socket, ReceiveTimestampns, &true).map_err(interface.failed("SO_TIMESTAMPNS"))?;
        Ok(Capture {
            socket,
            interface: interface.clone(),
        })
    }

    /// Returns the frames of run `run` that arrive until `stop` is set, in the order of arrival.
    pub(super) fn read(&self, run: u32, stop: &AtomicBool) -> Result<Vec<Stamp>, WanBenchError> {
        let mut stamps = Vec::new();
        loop {
            // After `stop` is set, one more read takes the frames that arrived before.
            let last = stop.load(Ordering::Acquire);
            while self.read_batch(run, &mut stamps)? == BATCH {}
            if last {
                return Ok(stamps);
            }
            thread::sleep(READ_INTERVAL);
        }
    }

    /// Appends the frames of run `run` that one system call reads. Returns the number of frames read, of all runs.
    fn read_batch(&self, run: u32, stamps: &mut Vec<Stamp>) -> Result<usize, WanBenchError> {
        let mut bytes = [[0_u8; READ]; BATCH];
        let mut slices: Vec<[IoSliceMut<'_>; 1]> =
            bytes.iter_mut().map(|bytes| [IoSliceMut::new(bytes)]).collect();
        let mut headers = MultiHeaders::<LinkAddr>::preallocate(BATCH, Some(cmsg_space!(TimeSpec)));
        let received = recvmmsg(
            self.socket.as_raw_fd(),
            &mut headers,
            &mut slices,
            MsgFlags::MSG_DONTWAIT,
            None,
        );
        let messages = match received {
            Ok(messages) => messages,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(0),
            Err(errno) => return Err(self.interface.failed("recvmmsg")(errno)),
        };
        let mut count = 0;
        for message in messages {
            count += 1;
            let nanos = message.cmsgs().ok().and_then(|mut parts| {
                parts.find_map(|part| match part {
                    ControlMessageOwned::ScmTimestampns(at) => {
                        Some(at.tv_sec() * 1_000_000_000 + at.tv_nsec())
                    }
                    _ => None,
                })
            });
            let number = message.iovs().next().and_then(|bytes| number(bytes, run));
            if let (Some(nanos), Some(number)) = (nanos, number) {
                stamps.push(Stamp { number, nanos });
            }
        }
        Ok(count)
    }
}

/// Returns the number of a frame; `None` for one that is not of this run.
fn number(bytes: &[u8], run: u32) -> Option<u64> {
    let ours = bytes.get(..RUN)? == HEADER && bytes.get(RUN..NUMBER)? == run.to_be_bytes();
    let number = bytes.get(NUMBER..NUMBER + 8)?;
    ours.then(|| number.try_into().ok().map(u64::from_be_bytes))?
}

/// A sender of numbered frames.
pub(super) struct Sender {
    socket: OwnedFd,
    interface: NamespacedInterface,
}

impl Sender {
    pub(super) fn open(interface: &NamespacedInterface) -> Result<Sender, WanBenchError> {
        let socket = interface.open()?;
        setsockopt(&socket, SndBufForce, &BUFFER).map_err(interface.failed("SO_SNDBUFFORCE"))?;
        Ok(Sender {
            socket,
            interface: interface.clone(),
        })
    }

    /// Sends the frames of a run, and returns their number. Ends early if `stop` is set.
    pub(super) fn send(&self, load: Load, stop: &AtomicBool) -> Result<u64, WanBenchError> {
        // If the kernel refuses, the timer slack keeps its default of 50 us.
        let _default = set_timerslack(1);
        let interval = Duration::from_secs(1) / load.pps;
        let burst = (QUANTUM.as_nanos() / interval.as_nanos().max(1)).clamp(1, BATCH as u128) as u64;
        let quantum = interval * u32::try_from(burst).unwrap_or(1);
        let frames = (load.duration.as_nanos() / interval.as_nanos().max(1)) as u64;
        let mut bytes = vec![vec![0_u8; load.frame.max(READ)]; burst as usize];
        for frame in &mut bytes {
            frame[..RUN].copy_from_slice(&HEADER);
            frame[RUN..NUMBER].copy_from_slice(&load.run.to_be_bytes());
        }
        let (mut sent, mut due) = (0, Instant::now());
        while sent < frames && !stop.load(Ordering::Acquire) {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let count = burst.min(frames - sent);
            for (frame, number) in bytes.iter_mut().zip(sent..sent + count) {
                frame[NUMBER..NUMBER + 8].copy_from_slice(&number.to_be_bytes());
            }
            self.send_batch(&bytes[..count as usize])?;
            sent += count;
            due += quantum;
        }
        Ok(sent)
    }

    /// Sends frames by one system call, or more if the kernel takes only some.
    fn send_batch(&self, frames: &[Vec<u8>]) -> Result<(), WanBenchError> {
        let mut rest = frames;
        while !rest.is_empty() {
            let slices: Vec<[IoSlice<'_>; 1]> = rest.iter().map(|frame| [IoSlice::new(frame)]).collect();
            let addresses = vec![None::<LinkAddr>; rest.len()];
            let mut headers = MultiHeaders::<LinkAddr>::preallocate(rest.len(), None);
            let fd = self.socket.as_raw_fd();
            let sent = match sendmmsg(fd, &mut headers, &slices, &addresses, [], MsgFlags::MSG_DONTWAIT) {
                Ok(sent) => sent.count().max(1),
                // A queueing discipline dropped the frame.
                Err(Errno::ENOBUFS) => 1,
                Err(Errno::EAGAIN | Errno::EINTR) => {
                    thread::yield_now();
                    0
                }
                Err(errno) => return Err(self.interface.failed("sendmmsg")(errno)),
            };
            rest = rest.get(sent..).unwrap_or_default();
        }
        Ok(())
    }
}
