//! The connection with the server, as a stream of bytes.

use std::io;
use std::time::Duration;

use millrace_model::OvsdbTarget;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// The longest time in which a server accepts a connection.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// A stream of bytes in both directions.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Opens a connection.
pub(crate) async fn connect(target: &OvsdbTarget) -> io::Result<Box<dyn Stream>> {
    let opened = tokio::time::timeout(CONNECT_TIME, open(target)).await;
    opened.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)))
}

async fn open(target: &OvsdbTarget) -> io::Result<Box<dyn Stream>> {
    Ok(match target {
        OvsdbTarget::Unix(path) => Box::new(UnixStream::connect(path.as_str()).await?),
        OvsdbTarget::Tcp(address) => {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Box::new(stream)
        }
    })
}
