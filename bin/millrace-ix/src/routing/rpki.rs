//! Clients of RPKI caches (RTR, RFC 8210): one for each cache of the settings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use millrace_bgp::rtr::{Client, Vrp};
use millrace_ix_filter::VrpState;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Routing, Rpki};

/// The maximum number of payloads (VRPs) from one cache: ten times those of the whole Internet in 2026.
const VRPS_MAX: usize = 8_000_000;
/// Largest size in bytes of the queries that a cache has not read; a query is 8 or 12 bytes long.
const OUTPUT_MAX: usize = 4_096;
/// The shortest and the longest wait before another attempt to connect.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// The time limit for the Error Report that ends a connection.
const REPORT_TIME: Duration = Duration::from_secs(1);

/// The time limit for connecting.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// The payloads of each cache, by the index of the cache in the settings.
type Sets = Arc<Mutex<BTreeMap<usize, BTreeSet<Vrp>>>>;

/// Starts a client for each cache.
pub(super) fn start(rpki: &Rpki, routing: &Routing) -> Result<()> {
    if rpki.caches.is_empty() {
        return Ok(());
    }
    if let Some(cache) = rpki.caches.iter().find(|cache| !cache.contains(':')) {
        bail!("rpki.caches: {cache:?}: expected host and port, such as 127.0.0.1:323");
    }
    routing.shared.lock().set_vrps(VrpState::Stale);
    let sets = Sets::default();
    for (place, cache) in rpki.caches.iter().enumerate() {
        tokio::spawn(run(cache.clone(), place, Arc::clone(&sets), routing.clone()));
    }
    Ok(())
}

async fn run(cache: String, place: usize, sets: Sets, routing: Routing) {
    let mut client = Client::new(VRPS_MAX);
    let mut retry = RETRY_MIN;
    loop {
        let connecting = timeout(CONNECT_TIME, TcpStream::connect(&cache));
        let connected = until_expiry(connecting, place, &mut client, &sets, &routing).await;
        match connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
            Ok(stream) => {
                if let Err(reason) = converse(stream, &cache, place, &mut client, &sets, &routing).await {
                    tracing::warn!(cache, reason, "RPKI cache");
                }
                client.connection_lost();
                if client.has_loaded() {
                    retry = RETRY_MIN;
                }
            }
            Err(error) => tracing::warn!(cache, %error, "RPKI cache"),
        }
        if client.vrps(routing.now()).is_none() {
            publish(place, None, &sets, &routing);
        }
        until_expiry(tokio::time::sleep(retry), place, &mut client, &sets, &routing).await;
        retry = (retry * 2).min(RETRY_MAX);
    }
}

/// Waits for a future while the cache is not connected. Removes the payloads when they expire.
async fn until_expiry<T>(
    future: impl Future<Output = T>,
    place: usize,
    client: &mut Client,
    sets: &Sets,
    routing: &Routing,
) -> T {
    let mut future = std::pin::pin!(future);
    while let Some(expiry) = client.deadline() {
        tokio::select! {
            value = &mut future => return value,
            () = tokio::time::sleep(expiry.since(routing.now())) => {}
        }
        if client.poll(routing.now()) != Ok(false) {
            publish(place, None, sets, routing);
        }
    }
    future.await
}

/// Moves bytes between the connection and the client until either ends. The timers of the client run also while the
/// cache takes no bytes.
async fn converse(
    stream: impl AsyncRead + AsyncWrite,
    cache: &str,
    place: usize,
    client: &mut Client,
    sets: &Sets,
    routing: &Routing,
) -> Result<(), String> {
    client.connected(routing.now());
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut buffer = vec![0; 64 * 1024];
    // Queries, up to `OUTPUT_MAX` bytes.
    let mut output = Vec::new();
    let mut is_published = false;
    let mut lacked_data = false;
    loop {
        output.append(&mut client.take_output());
        if output.len() > OUTPUT_MAX {
            return Err("the cache sends, but does not read queries".to_owned());
        }
        let wait = client
            .deadline()
            .map_or(Duration::from_secs(60), |deadline| deadline.since(routing.now()));
        let received = tokio::select! {
            received = reader.read(&mut buffer) => Some(received.map_err(|error| error.to_string())?),
            written = writer.write(&output), if !output.is_empty() => {
                output.drain(..written.map_err(|error| error.to_string())?);
                None
            }
            () = tokio::time::sleep(wait) => None,
        };
        let now = routing.now();
        let mut has_changed = client.poll(now).map_err(|error| error.to_string())?;
        has_changed |= match received {
            Some(0) => return Err("the cache closed the connection".to_owned()),
            Some(len) => match client.receive(buffer.get(..len).unwrap_or_default(), now) {
                Ok(changed) => changed,
                Err(error) => {
                    // The Error Report is for the operator of the cache; a cache that does not read it misses it.
                    output.append(&mut client.take_output());
                    let _late = timeout(REPORT_TIME, writer.write_all(&output)).await;
                    return Err(error.to_string());
                }
            },
            None => false,
        };
        if client.lacks_data() && !lacked_data {
            tracing::warn!(cache, "the RPKI cache has no data yet");
        }
        lacked_data = client.lacks_data();
        match client.vrps(now) {
            // A new connection to a cache says nothing about the payloads until the cache has answered.
            Some(vrps) if has_changed || (client.has_loaded() && !is_published) => {
                is_published = true;
                tracing::info!(cache, payloads = vrps.len(), serial = client.serial(), "RPKI");
                publish(place, Some(vrps.clone()), sets, routing);
            }
            None if has_changed => {
                is_published = false;
                tracing::warn!(cache, "the payloads of the RPKI cache have expired");
                publish(place, None, sets, routing);
            }
            Some(_) | None => {}
        }
    }
}

/// Passes the payloads of the first cache that has payloads to the authority.
fn publish(place: usize, vrps: Option<BTreeSet<Vrp>>, sets: &Sets, routing: &Routing) {
    let mut sets = sets.lock();
    match vrps {
        Some(vrps) => {
            sets.insert(place, vrps);
        }
        None if sets.remove(&place).is_none() => return,
        None => {}
    }
    let state = match sets.values().next() {
        Some(vrps) => VrpState::Fresh(vrps.iter().copied().collect()),
        None => VrpState::Stale,
    };
    routing.shared.lock().set_vrps(state);
    routing.changed.notify_one();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

    use millrace_ix_filter::{FilterController, Shared};
    use millrace_ix_model::Timestamp;
    use millrace_types::Time;

    use super::super::Bgp;
    use super::*;
    use crate::log_lines::LogLines;

    /// Returns the state of a process, and a client that has loaded a set whose 600 s have passed.
    fn expired() -> (Routing, Client, Sets) {
        loaded_before(Duration::from_secs(600))
    }

    /// Returns the state of a process, and a client that has loaded a set, which is valid for 600 s, this time before.
    fn loaded_before(age: Duration) -> (Routing, Client, Sets) {
        let settings = Bgp::default().filter_settings(false).unwrap();
        let authority = FilterController::new(settings, false, Time::ZERO, Timestamp::from_secs(0));
        let routing = Routing::in_memory(Shared::new(authority), age);
        // Cache Response and End of Data, with an expire interval of 600 s.
        let mut bytes = vec![1, 3, 0, 7, 0, 0, 0, 8, 1, 7, 0, 7, 0, 0, 0, 24];
        bytes.extend(
            [5_u32, 100, 10, 600]
                .iter()
                .flat_map(|number| number.to_be_bytes()),
        );
        let mut client = Client::new(10);
        client.connected(Time::ZERO);
        assert_eq!(client.receive(&bytes, Time::ZERO), Ok(true));
        client.connection_lost();
        let sets = Sets::default();
        sets.lock().insert(0, BTreeSet::new());
        (routing, client, sets)
    }

    #[tokio::test]
    async fn payloads_expire_although_the_cache_does_not_answer_a_connection() {
        let (routing, mut client, sets) = expired();
        tokio::select! {
            () = until_expiry(std::future::pending(), 0, &mut client, &sets, &routing) => {}
            () = routing.changed.notified() => {}
        }
        assert!(sets.lock().is_empty());
        routing.handle.stop();
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_says_nothing_of_the_payloads_until_the_cache_has_answered() {
        let (routing, mut client, sets) = loaded_before(Duration::from_secs(1));
        sets.lock().clear();
        let log = LogLines::default();
        let _logged = tracing::dispatcher::set_default(&log.dispatch());
        let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
        let cache = async {
            // A Reset Query.
            let mut query = [0; 8];
            theirs.read_exact(&mut query).await.unwrap();
            assert_eq!(query[1], 2);
            tokio::time::sleep(Duration::from_secs(30)).await;
            assert!(sets.lock().is_empty());
            assert_eq!(log.count("payloads="), 0);
            // Nothing has changed: a Cache Response, and the End of Data.
            let mut answer = vec![1, 3, 0, 7, 0, 0, 0, 8, 1, 7, 0, 7, 0, 0, 0, 24];
            let numbers = [5_u32, 100, 10, 600];
            answer.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
            theirs.write_all(&answer).await.unwrap();
            while sets.lock().is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(log.count("payloads="), 1);
        };
        tokio::select! {
            ended = converse(ours, "cache", 0, &mut client, &sets, &routing) => panic!("{ended:?}"),
            () = cache => {}
        }
        routing.handle.stop();
    }

    #[tokio::test(start_paused = true)]
    async fn a_cache_that_asks_for_queries_and_reads_none_is_left() {
        let (routing, mut client, sets) = expired();
        let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
        // An empty set, and a Cache Reset, which the client answers with a query.
        let set: [&[u8]; 3] = [
            &[1, 3, 0, 7, 0, 0, 0, 8],
            &[
                1, 7, 0, 7, 0, 0, 0, 24, 0, 0, 0, 5, 0, 0, 0, 100, 0, 0, 0, 10, 0, 0, 2, 88,
            ],
            &[1, 8, 0, 0, 0, 0, 0, 8],
        ];
        let stream = set.concat().repeat(2_048);
        tokio::spawn(async move { while theirs.write_all(&stream).await.is_ok() {} });
        let conversation = converse(ours, "cache", 0, &mut client, &sets, &routing);
        let ended = timeout(Duration::from_secs(10), conversation).await.unwrap();
        assert!(ended.unwrap_err().contains("does not read"));
        routing.handle.stop();
    }

    #[tokio::test(start_paused = true)]
    async fn payloads_expire_although_the_cache_takes_no_query() {
        let (routing, mut client, sets) = expired();
        let (ours, _theirs) = tokio::io::duplex(1);
        let expiry = async {
            tokio::select! {
                ended = converse(ours, "cache", 0, &mut client, &sets, &routing) => ended,
                () = routing.changed.notified() => Ok(()),
            }
        };
        let limit = Duration::from_secs(60);
        assert_eq!(timeout(limit, expiry).await, Ok(Ok(())));
        assert!(sets.lock().is_empty());
        routing.handle.stop();
    }
}
