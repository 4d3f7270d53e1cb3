//! Readers of the route servers: one task for each control socket, around the client of `bird`.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use millrace_bird::{Client, Settings};
use millrace_ix_api::RouteServer;
use millrace_ix_api::route_servers::RouteServers;
use millrace_ix_service::Handle;
use millrace_types::Time;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// The first wait before another attempt to connect; the longest is the time between two rounds.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// The time limit for connecting, and for sending a command.
const SOCKET_TIME: Duration = Duration::from_secs(5);

/// Starts a reader for each route server with a control socket. Returns the statuses that the readers write.
pub(crate) fn read(servers: &[RouteServer], handle: &Handle) -> Result<RouteServers> {
    let statuses = RouteServers::default();
    for (number, server) in servers.iter().enumerate() {
        if server.poll_secs == 0 {
            bail!(
                "api.route_servers {}: poll_secs = 0: expected at least 1",
                server.fqdn
            );
        }
        let mut before = servers.iter().take(number);
        if before.any(|other| other.fqdn == server.fqdn && other.control.is_some()) {
            bail!(
                "api.route_servers {}: expected one entry with `control` for each name",
                server.fqdn
            );
        }
        if let Some(control) = &server.control {
            let (server, control, statuses, handle) =
                (server.clone(), control.clone(), statuses.clone(), handle.clone());
            tokio::spawn(async move { run(&server, &control, &statuses, &handle).await });
        }
    }
    Ok(statuses)
}

async fn run(server: &RouteServer, control: &Path, statuses: &RouteServers, handle: &Handle) {
    let start = Instant::now();
    let interval = Duration::from_secs(u64::from(server.poll_secs));
    let mut client = Client::new(Settings {
        asn: server.asn,
        reject_cause: server.reject_cause,
        interval,
    });
    let mut retry = RETRY_MIN;
    loop {
        let mut reports = 0_u64;
        let ended = converse(&mut client, control, start, |report| {
            reports += 1;
            if report.skipped_lines > 0 {
                tracing::debug!(
                    server = server.fqdn,
                    lines = report.skipped_lines,
                    "lines of BIRD were not understood"
                );
            }
            if reports == 1 {
                tracing::info!(
                    server = server.fqdn,
                    version = report.version,
                    sessions = report.sessions.len(),
                    "the route server is read"
                );
            }
            statuses.reported(&server.fqdn, handle.now(), report);
        })
        .await;
        client.connection_lost();
        if reports > 0 {
            retry = RETRY_MIN;
        }
        match ended {
            // The answers were too long. The next round opens a new connection.
            Ok(()) => tokio::time::sleep(interval).await,
            Err(error) => {
                let error = format!("{}: {error:#}", control.display());
                if statuses.failed(&server.fqdn, handle.now(), error.clone()) {
                    tracing::warn!(server = server.fqdn, error, "the route server cannot be read");
                }
                tokio::time::sleep(retry).await;
                retry = (retry * 2).min(interval);
            }
        }
    }
}

/// Reads a route server until the connection ends, and passes each report to `tell`.
async fn converse(
    client: &mut Client,
    control: &Path,
    start: Instant,
    mut tell: impl FnMut(millrace_bird::Report),
) -> Result<()> {
    let now = || Time::ZERO + start.elapsed();
    let stream = timeout(SOCKET_TIME, UnixStream::connect(control)).await;
    let mut stream = stream
        .unwrap_or_else(|elapsed| Err(elapsed.into()))
        .context("expected the control socket of a running BIRD, which the engine may read and write")?;
    client.connected(now());
    let mut buffer = vec![0; 64 * 1024];
    while let Some(deadline) = client.deadline() {
        let output = client.take_output();
        timeout(SOCKET_TIME, stream.write_all(&output))
            .await
            .map_err(|_| anyhow!("BIRD took no command within {} s", SOCKET_TIME.as_secs()))??;
        tokio::select! {
            received = stream.read(&mut buffer) => match received? {
                0 => bail!("BIRD closed the connection"),
                len => {
                    if let Some(report) = client.receive(buffer.get(..len).unwrap_or_default(), now())? {
                        tell(report);
                    }
                }
            },
            () = tokio::time::sleep(deadline.since(now())) => client.poll(now())?,
        }
    }
    Ok(())
}
