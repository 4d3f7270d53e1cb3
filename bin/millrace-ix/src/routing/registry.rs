//! The routing registry: AS-SETs and route objects of members, by the protocol of IRRd.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use millrace_ix_filter::RouteObjects;
use millrace_ix_filter::irr::{Head, asns, head, prefixes};
use millrace_ix_model::{AccountId, AsSet, Exchange};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::{Irr, Routing};

/// The time limit for one answer.
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// The time limit for all queries of one account. A member chooses its AS-SET, and an AS-SET with half of the
/// Internet must not delay the other accounts.
const ACCOUNT_TIME: Duration = Duration::from_secs(300);
/// The maximum number of prefixes of one account: more than any network has, and a fifth of the routes of the
/// Internet.
const PREFIXES_MAX: usize = 250_000;
/// The time between two searches for accounts that have changed or are to be checked again.
const TICK: Duration = Duration::from_millis(500);
/// The wait after a failed query.
const RETRY: Duration = Duration::from_secs(30);

/// The AS numbers and the AS-SET of an account, which determine the queries.
type Subject = (BTreeSet<u32>, Option<String>);

/// Starts the client of the registry.
pub(super) fn start(irr: &Irr, routing: &Routing) {
    tokio::spawn(run(irr.clone(), routing.clone()));
}

async fn run(irr: Irr, routing: Routing) {
    // For each account: the AS numbers and the AS-SET of the last query, and the time of the next query.
    let mut asked: BTreeMap<AccountId, (Subject, Instant)> = BTreeMap::new();
    loop {
        let rechecks = routing.shared.lock().take_rechecks();
        let exchange = std::sync::Arc::clone(&routing.handle.snapshot().exchange);
        asked.retain(|account, _| exchange.accounts.contains_key(account));
        let now = Instant::now();
        let due = subjects(&exchange).into_iter().filter(|(account, subject)| {
            rechecks.contains(account)
                || asked
                    .get(account)
                    .is_none_or(|(before, next)| before != subject || *next <= now)
        });
        for (account, subject) in due.collect::<Vec<_>>() {
            let answer = timeout(ACCOUNT_TIME, query(&irr, &subject)).await;
            let wait = match answer.unwrap_or_else(|_| Err(too_slow())) {
                Ok(mut objects) => {
                    objects.expires = routing.handle.now().after(Duration::from_secs(irr.expire_secs));
                    tracing::info!(
                        %account,
                        asns = objects.asns.len(),
                        prefixes = objects.origins.len(),
                        "objects of the routing registry"
                    );
                    routing.shared.lock().set_route_objects(account, objects);
                    routing.changed.notify_one();
                    Duration::from_secs(irr.refresh_secs)
                }
                Err(error) => {
                    tracing::warn!(%account, error = format!("{error:#}"), "routing registry {}", irr.server);
                    RETRY
                }
            };
            asked.insert(account, (subject, Instant::now() + wait));
        }
        tokio::time::sleep(TICK).await;
    }
}

fn too_slow() -> anyhow::Error {
    anyhow!(
        "the queries of the account took more than {} s: expected an AS-SET with fewer members",
        ACCOUNT_TIME.as_secs()
    )
}

/// Returns the accounts with AS numbers or an AS-SET.
fn subjects(exchange: &Exchange) -> BTreeMap<AccountId, Subject> {
    exchange
        .accounts
        .iter()
        .filter(|(_, account)| !account.asns.is_empty() || account.as_set.is_some())
        .map(|(id, account)| (*id, (account.asns.clone(), account.as_set.clone())))
        .collect()
}

/// Returns the members of an account's AS-SET and their route objects.
async fn query(irr: &Irr, (numbers, as_set): &Subject) -> Result<RouteObjects> {
    let stream = timeout(ANSWER_TIME, TcpStream::connect(&irr.server))
        .await
        .context("no connection within 60 s")??;
    let mut stream = BufReader::new(stream);
    stream.write_all(b"!!\n").await?;
    if !irr.sources.is_empty() {
        choose(&mut stream, &irr.sources).await?;
    }
    let mut objects = RouteObjects {
        asns: numbers.clone(),
        ..RouteObjects::default()
    };
    if let Some(name) = as_set {
        let name: AsSet = name.parse().with_context(|| format!("{name:?} is no AS-SET"))?;
        match members(&mut stream, irr, &name).await? {
            Some(members) => objects.asns.extend(members),
            None => tracing::warn!(
                as_set = %name,
                "the routing registry {} has no such AS-SET: only the AS numbers of the account count",
                irr.server
            ),
        }
    }
    for asn in &objects.asns {
        for query in [format!("!gAS{asn}"), format!("!6AS{asn}")] {
            for prefix in prefixes(&ask(&mut stream, &query).await?.unwrap_or_default()) {
                objects.origins.entry(prefix).or_default().insert(*asn);
            }
            if objects.origins.len() > PREFIXES_MAX {
                bail!(
                    "the account has more than {PREFIXES_MAX} prefixes: expected an AS-SET with fewer members"
                );
            }
        }
    }
    stream.write_all(b"!q\n").await?;
    Ok(objects)
}

/// Chooses the sources of further answers.
async fn choose(stream: &mut BufReader<TcpStream>, sources: &str) -> Result<()> {
    ask(stream, &format!("!s{sources}")).await?;
    Ok(())
}

/// Returns the members of an AS-SET, recursively; `None` if it does not exist. The name in a query has no registry (RFC 2622,
/// section 5.1): the registry is chosen before, and the usual sources again behind it.
async fn members(
    stream: &mut BufReader<TcpStream>,
    irr: &Irr,
    name: &AsSet,
) -> Result<Option<BTreeSet<u32>>> {
    let query = format!("!i{},1", name.name());
    let Some(source) = name.source() else {
        return Ok(ask(stream, &query).await?.as_deref().map(asns));
    };
    let usual = if irr.sources.is_empty() {
        ask(stream, "!s-lc").await?.unwrap_or_default().trim().to_owned()
    } else {
        irr.sources.clone()
    };
    let found = match choose(stream, source).await {
        Ok(()) => ask(stream, &query).await?,
        Err(error) => {
            tracing::warn!(as_set = %name, error = format!("{error:#}"), "routing registry {}", irr.server);
            None
        }
    };
    if !usual.is_empty() {
        choose(stream, &usual).await?;
    }
    Ok(found.as_deref().map(asns))
}

/// Returns the data of an answer, which may be empty; `None` if the object does not exist.
async fn ask(stream: &mut BufReader<TcpStream>, query: &str) -> Result<Option<String>> {
    let answer = async {
        stream.write_all(format!("{query}\n").as_bytes()).await?;
        let mut line = String::new();
        read_line(stream, &mut line).await?;
        match head(&line).with_context(|| format!("{line:?} is no answer of IRRd"))? {
            Head::NotFound => Ok(None),
            Head::Empty => Ok(Some(String::new())),
            Head::Refused(text) => bail!("{text}"),
            Head::Data(size) => {
                let mut data = vec![0; size];
                stream.read_exact(&mut data).await?;
                line.clear();
                read_line(stream, &mut line).await?;
                if head(&line) != Some(Head::Empty) {
                    bail!("{line:?} behind the data: expected C");
                }
                Ok(Some(String::from_utf8_lossy(&data).into_owned()))
            }
        }
    };
    timeout(ANSWER_TIME, answer)
        .await
        .context("no answer within 60 s")?
        .with_context(|| format!("the query {query}"))
}

/// Reads a line of at most 1,000 bytes.
async fn read_line(stream: &mut BufReader<TcpStream>, line: &mut String) -> Result<()> {
    let mut limited = stream.take(1000);
    if limited.read_line(line).await? == 0 || !line.ends_with('\n') {
        bail!("the registry closed the connection");
    }
    Ok(())
}
