//! The connection with the server, as a stream of bytes.

use std::io;
use std::time::Duration;

use millrace_model::{Host, OvsdbTarget, Tls};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::tls;

/// The longest time in which a server accepts a connection, with the handshake of TLS.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// A stream of bytes in both directions.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Opens a connection.
pub(crate) async fn connect(target: &OvsdbTarget, tls: Option<&Tls>) -> io::Result<Box<dyn Stream>> {
    let opened = tokio::time::timeout(CONNECT_TIME, open(target, tls)).await;
    opened.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)))
}

async fn open(target: &OvsdbTarget, tls: Option<&Tls>) -> io::Result<Box<dyn Stream>> {
    Ok(match target {
        OvsdbTarget::Unix(path) => Box::new(UnixStream::connect(path.as_str()).await?),
        OvsdbTarget::Tcp(address) => {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Box::new(stream)
        }
        OvsdbTarget::Tls { host, port } => {
            // The model demands the files.
            let files = tls.ok_or_else(|| io::Error::other("expected the files of [ovsdb.tls]"))?;
            let stream = match host {
                Host::Ip(address) => TcpStream::connect((*address, *port)).await?,
                Host::Name(name) => TcpStream::connect((name.as_str(), *port)).await?,
            };
            stream.set_nodelay(true)?;
            Box::new(tls::handshake(stream, host, files).await?)
        }
    })
}
