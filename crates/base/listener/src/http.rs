//! HTTP/1.1 on one connection, with time limits for a client that is slow or silent.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::Connection;

/// Serves HTTP/1.1 until either side closes the connection, or until `closing`, after which the request in progress
/// ends. The connection is busy while `answer` runs. `head` is the longest duration of a request's head, and of the pause between two requests. Give writes a
/// limit, too, with [`WriteTimeout`](crate::WriteTimeout). The connection is an extension of each request.
pub async fn serve<S, F>(
    stream: S,
    connection: Connection,
    head: Duration,
    closing: impl Future<Output = ()>,
    answer: impl Fn(Request<Incoming>) -> F,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = Result<Response<Body>, Infallible>>,
{
    let answer = |mut request: Request<Incoming>| {
        let busy = connection.busy();
        request.extensions_mut().insert(connection.clone());
        let answer = answer(request);
        async move {
            let _busy = busy;
            answer.await
        }
    };
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .serve_connection(TokioIo::new(stream), service_fn(answer));
    tokio::pin!(serving, closing);
    tokio::select! {
        // A broken connection concerns only its client: nothing is logged.
        _ = serving.as_mut() => {}
        () = &mut closing => {
            serving.as_mut().graceful_shutdown();
            let _ = serving.await;
        }
    }
}
