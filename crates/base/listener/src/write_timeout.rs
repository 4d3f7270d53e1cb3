//! A stream with a time limit for writes: a client that reads nothing loses its connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream whose writes fail with [`io::ErrorKind::TimedOut`] after `timeout` without progress. Time without a
/// pending write does not count.
#[derive(Debug)]
pub struct WriteTimeout<S> {
    stream: S,
    timeout: Duration,
    /// The time at which the pending write fails.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    /// Returns a stream whose writes may stand still for `timeout`.
    pub fn new(stream: S, timeout: Duration) -> WriteTimeout<S> {
        WriteTimeout {
            stream,
            timeout,
            deadline: None,
        }
    }

    /// Returns the result of a write, or an error if it is pending for longer than the limit.
    fn check<T>(&mut self, context: &mut Context<'_>, write: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if write.is_ready() {
            self.deadline = None;
            return write;
        }
        let timeout = self.timeout;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client does not read",
        )))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check(context, write)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.check(context, write)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flush = Pin::new(&mut self.stream).poll_flush(context);
        // The flush of a socket is always ready: it must not reset the deadline of a pending write.
        match flush {
            Poll::Ready(Ok(())) => flush,
            flush => self.check(context, flush),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shutdown = Pin::new(&mut self.stream).poll_shutdown(context);
        self.check(context, shutdown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test(start_paused = true)]
    async fn a_write_that_nobody_reads_fails_and_one_that_is_read_slowly_goes_on() {
        const LIMIT: Duration = Duration::from_secs(10);
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut stream = WriteTimeout::new(ours, LIMIT);
        let reader = tokio::spawn(async move {
            let mut chunk = [0; 16];
            for _ in 0..20 {
                tokio::time::sleep(LIMIT - Duration::from_secs(1)).await;
                theirs.read_exact(&mut chunk).await.unwrap();
            }
            theirs
        });
        // The transfer takes 180 s, with progress every 9 s. Silence between two writes may last any time.
        stream.write_all(&[0; 16 * 20]).await.unwrap();
        let theirs = reader.await.unwrap();
        tokio::time::sleep(100 * LIMIT).await;
        stream.write_all(&[0; 16]).await.unwrap();
        let begun = tokio::time::Instant::now();
        let failed = stream.write_all(&[0; 16]).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), LIMIT.as_secs());
        drop(theirs);
    }
}
