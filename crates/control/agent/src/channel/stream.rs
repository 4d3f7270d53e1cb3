//! Sockets of controllers: TCP, with and without TLS, UDP, and Unix sockets.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcp};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener as StdUnix, UnixStream as StdUnixStream};
use std::path::Path;

use millrace_datapath::io::SocketFile;
use millrace_model::ListenTarget;
use millrace_openflow::Header;
use tokio::io::{Interest, Ready};
use tokio::net::{TcpListener, TcpStream, UdpSocket, UnixListener, UnixStream};

use super::tls::TlsStream;

/// A connection with a controller.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream>),
    Unix(UnixStream),
    /// A connected socket; each message is a datagram.
    Udp(UdpSocket),
}

/// Size of the largest payload of UDP over IPv4, in bytes.
const DATAGRAM_SIZE_MAX: usize = 65_507;

impl Stream {
    /// Returns the TCP socket, if it has one.
    fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Stream::Tcp(stream) => Some(stream),
            Stream::Tls(stream) => Some(stream.tcp()),
            Stream::Unix(_) | Stream::Udp(_) => None,
        }
    }

    /// Switches Nagle's algorithm off, so that small messages are sent at once.
    pub(super) fn set_nodelay(&self) {
        if let Some(stream) = self.tcp() {
            // Without the option, small messages are late but complete.
            let _late = stream.set_nodelay(true);
        }
    }

    /// Returns the address of the peer, if it has one.
    pub(super) fn peer_address(&self) -> Option<SocketAddr> {
        match self {
            Stream::Udp(socket) => socket.peer_addr().ok(),
            other => other.tcp()?.peer_addr().ok(),
        }
    }

    /// Returns the address of the peer for the log; the peers of a Unix socket have none.
    pub(super) fn peer_name(&self) -> String {
        match self.peer_address() {
            Some(address) => address.to_string(),
            None => "local".to_owned(),
        }
    }

    /// Returns the local address, if it has one.
    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        self.tcp()?.local_addr().ok()
    }

    /// Returns true if [`Stream::try_write`] accepted bytes that [`Stream::flush`] still has to send.
    pub(super) fn wants_write(&self) -> bool {
        match self {
            Stream::Tls(stream) => stream.wants_write(),
            Stream::Tcp(_) | Stream::Unix(_) | Stream::Udp(_) => false,
        }
    }

    pub(super) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        match self {
            Stream::Tcp(stream) => stream.ready(interest).await,
            Stream::Tls(stream) if interest.is_readable() && stream.has_plaintext() => Ok(Ready::READABLE),
            Stream::Tls(stream) => stream.tcp().ready(interest).await,
            Stream::Unix(stream) => stream.ready(interest).await,
            Stream::Udp(socket) => socket.ready(interest).await,
        }
    }

    pub(super) fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.try_read(buffer),
            Stream::Tls(stream) => stream.try_read(buffer),
            Stream::Unix(stream) => stream.try_read(buffer),
            Stream::Udp(socket) => match socket.try_recv(buffer)? {
                // An empty datagram is not the end of the stream.
                0 => Err(io::ErrorKind::WouldBlock.into()),
                size => Ok(size),
            },
        }
    }

    pub(super) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.try_write(bytes),
            Stream::Tls(stream) => stream.try_write(bytes),
            Stream::Unix(stream) => stream.try_write(bytes),
            Stream::Udp(socket) => send_one(socket, bytes),
        }
    }

    /// Sends buffered bytes until the socket accepts no more.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Tls(stream) => stream.flush(),
            Stream::Tcp(_) | Stream::Unix(_) | Stream::Udp(_) => Ok(()),
        }
    }

    /// Announces the end of the stream, if the transport has a message for it (TLS: close_notify).
    pub(super) fn close_notify(&mut self) {
        if let Stream::Tls(stream) = self {
            stream.close_notify();
        }
    }
}

/// Sends the first of these messages as a datagram, and returns its size. A message that is too long is dropped.
fn send_one(socket: &UdpSocket, bytes: &[u8]) -> io::Result<usize> {
    let length = Header::parse(bytes).map_or(bytes.len(), |header| usize::from(header.length));
    let size = length.min(bytes.len());
    if size <= DATAGRAM_SIZE_MAX {
        socket.try_send(&bytes[..size])?;
    }
    Ok(size)
}

/// A listening socket. Dropping it removes its socket file.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        _file: SocketFile,
    },
}

impl Listener {
    /// Binds a listener in the current runtime.
    pub(super) fn bind(target: &ListenTarget) -> io::Result<Listener> {
        match target {
            ListenTarget::Tcp(address) | ListenTarget::Tls(address) => {
                let listener = StdTcp::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok(Listener::Tcp(TcpListener::from_std(listener)?))
            }
            ListenTarget::Unix(path) => {
                let path = Path::new(path.as_str());
                remove_stale(path)?;
                let listener = StdUnix::bind(path)?;
                let file = SocketFile::of(path)?;
                // A process that can connect can control the bridge, so only the owner gets permission.
                fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
                listener.set_nonblocking(true)?;
                Ok(Listener::Unix {
                    listener: UnixListener::from_std(listener)?,
                    _file: file,
                })
            }
        }
    }

    /// Returns the bound address, with the port that the kernel chose; `None` for a Unix socket.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            Listener::Unix { .. } => None,
        }
    }

    pub(super) async fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => Ok(Stream::Tcp(listener.accept().await?.0)),
            Listener::Unix { listener, .. } => Ok(Stream::Unix(listener.accept().await?.0)),
        }
    }
}

/// Removes a socket file on which no process listens, such as the file of a killed process. Any other file
/// stays, and the bind fails.
fn remove_stale(path: &Path) -> io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let is_refused =
        || StdUnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_socket && is_refused() {
        fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &Path) -> ListenTarget {
        format!("punix:{}", path.display()).parse().unwrap()
    }

    #[tokio::test]
    async fn a_socket_file_is_private_is_removed_with_its_listener_and_is_replaced_if_stale() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("br0.mgmt");
        // The standard library does not remove the file.
        drop(StdUnix::bind(&path).unwrap());
        let listener = Listener::bind(&target(&path)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let in_use = Listener::bind(&target(&path)).unwrap_err();
        assert_eq!(in_use.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_socket_file_of_another_listener_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("br0.mgmt");
        let listener = Listener::bind(&target(&path)).unwrap();
        // Both files exist at the same time, so that they differ in their inode numbers.
        fs::rename(&path, folder.path().join("old")).unwrap();
        let other = StdUnix::bind(&path).unwrap();
        drop(listener);
        assert!(
            StdUnixStream::connect(&path).is_ok(),
            "the other listener is reached"
        );
        drop(other);
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        fs::write(&path, "data").unwrap();
        assert!(Listener::bind(&target(&path)).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"data");
    }
}
