//! The stream of a Subscribe request.
//!
//! Messages wait in a bounded queue. While a client does not take them, samples are left out, and a change that finds no room
//! ends the stream with `RESOURCE_EXHAUSTED`: the client would otherwise hold a wrong state.

use std::time::{Duration, Instant};

use millrace_gnmi::proto::gnmi::subscribe_request::Request;
use millrace_gnmi::proto::gnmi::subscribe_response::Response;
use millrace_gnmi::proto::gnmi::subscription_list::Mode;
use millrace_gnmi::proto::gnmi::{Notification, SubscribeRequest, SubscribeResponse};
use millrace_gnmi::subscribe::Subscriptions;
use tokio::sync::mpsc::{Sender, channel, error::TrySendError};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::clock::nanos;
use super::tree::Tree;

/// The number of messages that wait for a client.
const QUEUE_LEN: usize = 256;
/// Values that were read so recently serve further samples.
const RECENT: Duration = Duration::from_millis(50);

type Item = Result<SubscribeResponse, Status>;

/// Returns the responses of a stream of requests.
pub(super) fn subscribe(requests: Streaming<SubscribeRequest>, tree: Tree) -> ReceiverStream<Item> {
    let (sender, receiver) = channel(QUEUE_LEN);
    tokio::spawn(async move {
        if let Err(status) = run(requests, &tree, &sender).await {
            let _ = sender.send(Err(status)).await;
        }
    });
    ReceiverStream::new(receiver)
}

fn response(response: Response) -> SubscribeResponse {
    SubscribeResponse {
        response: Some(response),
        ..SubscribeResponse::default()
    }
}

/// Sends messages, and waits while the queue is full. Returns false if the client is gone.
async fn send(sender: &Sender<Item>, messages: Vec<Notification>) -> bool {
    for message in messages {
        if sender
            .send(Ok(response(Response::Update(message))))
            .await
            .is_err()
        {
            return false;
        }
    }
    true
}

async fn sync(sender: &Sender<Item>) -> bool {
    sender
        .send(Ok(response(Response::SyncResponse(true))))
        .await
        .is_ok()
}

async fn run(
    mut requests: Streaming<SubscribeRequest>,
    tree: &Tree,
    sender: &Sender<Item>,
) -> Result<(), Status> {
    let first = requests.next().await.transpose()?;
    let Some(Request::Subscribe(list)) = first.and_then(|first| first.request) else {
        return Err(Status::invalid_argument(
            "the first message: expected a SubscriptionList",
        ));
    };
    let started = tree.epoch;
    let mut subscriptions = Subscriptions::new(&list, started.elapsed())?;
    let mut changes = tree.changes();
    changes.mark_unchanged();
    let view = tree.read(Instant::now()).await?;
    if !send(sender, subscriptions.snapshot(&view, nanos())?).await || !sync(sender).await {
        return Ok(());
    }
    match subscriptions.mode {
        Mode::Once => Ok(()),
        Mode::Poll => poll(requests, tree, sender, &mut subscriptions).await,
        Mode::Stream => follow(requests, tree, sender, &mut subscriptions, started, &mut changes).await,
    }
}

async fn poll(
    mut requests: Streaming<SubscribeRequest>,
    tree: &Tree,
    sender: &Sender<Item>,
    subscriptions: &mut Subscriptions,
) -> Result<(), Status> {
    while let Some(request) = requests.next().await {
        if !matches!(request?.request, Some(Request::Poll(_))) {
            return Err(Status::invalid_argument("expected a Poll"));
        }
        let view = tree.read(Instant::now()).await?;
        if !send(sender, subscriptions.snapshot(&view, nanos())?).await || !sync(sender).await {
            break;
        }
    }
    Ok(())
}

async fn follow(
    mut requests: Streaming<SubscribeRequest>,
    tree: &Tree,
    sender: &Sender<Item>,
    subscriptions: &mut Subscriptions,
    started: Instant,
    changes: &mut tokio::sync::watch::Receiver<u64>,
) -> Result<(), Status> {
    let mut is_half_closed = false;
    loop {
        let due = subscriptions.next_due().map(|due| started + due);
        let sleep = async {
            match due {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sender.closed() => return Ok(()),
            request = requests.next(), if !is_half_closed => match request {
                Some(Ok(_)) => return Err(Status::invalid_argument("a stream has one SubscriptionList")),
                Some(Err(status)) => return Err(status),
                // A client that has said everything still listens.
                None => is_half_closed = true,
            },
            changed = changes.changed() => {
                if changed.is_err() {
                    return Err(Status::unavailable("the events of the switch ended"));
                }
                // While the switch is away, its values stay; the next event brings what changed.
                let Ok(view) = tree.read(Instant::now()).await else { continue };
                for message in subscriptions.changed(&view, nanos())? {
                    match sender.try_send(Ok(response(Response::Update(message)))) {
                        Ok(()) => {}
                        Err(TrySendError::Full(_)) => {
                            let text = "the client takes messages more slowly than values change";
                            return Err(Status::resource_exhausted(text));
                        }
                        Err(TrySendError::Closed(_)) => return Ok(()),
                    }
                }
            }
            () = sleep => {
                let now = Instant::now();
                // Samples of a client that is slow are left out: later ones hold newer values.
                if sender.capacity() < QUEUE_LEN / 2 {
                    subscriptions.skip(started.elapsed());
                    continue;
                }
                let view = tree.read(now.checked_sub(RECENT).unwrap_or(now)).await?;
                let messages = subscriptions.due(&view, started.elapsed(), nanos())?;
                if !send(sender, messages).await {
                    return Ok(());
                }
            }
        }
    }
}
