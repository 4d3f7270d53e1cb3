//! The task of a session, which connects a [`Connection`] with a socket and a clock.

use std::collections::HashMap;
use std::io;

use millrace_listener::{Connection as Accepted, Eviction};
use millrace_openflow::{Message, SwitchFeatures};
use millrace_types::Time;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::Stream;
use super::session::{Command, Events, Handle, Peer, Session};
use crate::connection::{CloseReason, Connection, OperationId, Progress, Settings, SubmitError};
use crate::dump::Dump;
use crate::event::Event;
use crate::operation::{Applied, CommitError, DumpError, Outcome, RequestError};

/// Size of the read buffer, in bytes.
const READ_SIZE: usize = 64 * 1024;
/// The maximum number of commands that wait for the task; further callers wait.
const COMMANDS_LEN: usize = 16;
/// The maximum number of events that wait for the receiver. Further events wait in the connection, whose
/// queue is bounded.
const EVENTS_LEN: usize = 64;
/// The maximum time for sending the last messages before a connection is closed.
const CLOSING_TIMEOUT: core::time::Duration = core::time::Duration::from_secs(1);

/// The caller that waits for an operation.
enum Waiting {
    Dump(oneshot::Sender<Result<Box<Dump>, DumpError>>),
    Commit(oneshot::Sender<Result<(), CommitError>>),
    Reply(oneshot::Sender<Result<Box<Message>, RequestError>>),
}

struct Task {
    reader: ReadHalf<Stream>,
    writer: WriteHalf<Stream>,
    /// True if the writer may hold written bytes that are not flushed.
    needs_flush: bool,
    connection: Connection,
    epoch: Instant,
    waiting: HashMap<OperationId, Waiting>,
    /// The callers that wait for bytes of the switch.
    probes: Vec<oneshot::Sender<()>>,
    buffer: Vec<u8>,
}

/// Performs the handshake of a connection, and starts its task. The connection counts as `accepted` until it ends; it
/// ends early if it is closed for a newer one. `None` for a connection that the controller opened.
///
/// # Errors
/// The reason why the handshake failed.
pub(super) async fn start(
    stream: Stream,
    peer: Peer,
    settings: Settings,
    accepted: Option<(Accepted, Eviction)>,
) -> Result<Session, CloseReason> {
    let (reader, writer) = tokio::io::split(stream);
    let mut task = Task {
        reader,
        writer,
        needs_flush: false,
        connection: Connection::new(settings, Time::ZERO),
        epoch: Instant::now(),
        waiting: HashMap::new(),
        probes: Vec::new(),
        buffer: vec![0; READ_SIZE],
    };
    let (accepted, mut eviction) = accepted.unzip();
    let outcome = tokio::select! {
        outcome = task.handshake() => outcome,
        () = evicted(&mut eviction) => return Err(CloseReason::Evicted),
    };
    let features = match outcome {
        Ok(features) => features,
        Err(reason) => {
            task.finish().await;
            return Err(reason);
        }
    };
    let (commands, receiver) = mpsc::channel(COMMANDS_LEN);
    let (events, event_receiver) = mpsc::channel(EVENTS_LEN);
    let (closing, closed) = watch::channel(None);
    let dpid = features.dpid;
    let address = peer.address.clone();
    let counted = accepted.clone();
    tokio::spawn(async move {
        let _counted = counted;
        tracing::info!(%dpid, %address, "switch connected");
        let reason = tokio::select! {
            reason = task.serve(receiver, &events) => reason,
            () = evicted(&mut eviction) => CloseReason::Evicted,
        };
        tracing::info!(%dpid, %address, %reason, "switch disconnected");
        // A caller that finds the command channel closed reads the reason here.
        closing.send_replace(Some(reason));
        task.finish().await;
    });
    Ok(Session {
        features,
        peer,
        handle: Handle::new(commands, closed),
        accepted,
        events: Events::new(event_receiver),
    })
}

impl Task {
    fn now(&self) -> Time {
        let nanos = self.epoch.elapsed().as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn deadline(&self) -> Option<Instant> {
        let at = self.connection.deadline()?;
        Some(self.epoch + at.since(Time::ZERO))
    }

    async fn handshake(&mut self) -> Result<SwitchFeatures, CloseReason> {
        loop {
            let now = self.now();
            match self.connection.poll(now) {
                Some(Progress::Ready(features)) => return Ok(features),
                Some(Progress::Closed(reason)) => return Err(reason),
                Some(Progress::Done(..)) => {}
                None => self.step().await,
            }
        }
    }

    /// Waits for the socket or the deadline, and handles the event.
    async fn step(&mut self) {
        let deadline = self.deadline();
        let writes = self.needs_flush || !self.connection.output().is_empty();
        tokio::select! {
            read = self.reader.read(&mut self.buffer) => self.take_read(read),
            written = write(&mut self.writer, self.connection.output()), if writes => self.take_written(written),
            () = sleep_until(deadline) => {
                let now = self.now();
                self.connection.tick(now);
            }
        }
    }

    fn take_read(&mut self, read: io::Result<usize>) {
        match read {
            Ok(0) => self.connection.close(CloseReason::Eof),
            Ok(size) => {
                let now = self.now();
                self.connection.receive(&self.buffer[..size], now);
                for probe in self.probes.drain(..) {
                    // The send fails if the caller waits no longer.
                    let _late = probe.send(());
                }
            }
            // TLS streams often end without close_notify. A truncated message is detected by the length in
            // its header.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.connection.close(CloseReason::Eof);
            }
            Err(error) => self.connection.close(CloseReason::Io(error.to_string())),
        }
    }

    fn take_written(&mut self, written: io::Result<Option<usize>>) {
        match written {
            Ok(None) => self.needs_flush = false,
            Ok(Some(0)) => self.connection.close(CloseReason::Eof),
            Ok(Some(size)) => {
                let now = self.now();
                self.connection.wrote(size, now);
                self.needs_flush = true;
            }
            Err(error) => self.connection.close(CloseReason::Io(error.to_string())),
        }
    }

    /// Serves the connection until it ends, and returns the reason.
    async fn serve(
        &mut self,
        mut commands: mpsc::Receiver<Command>,
        events: &mpsc::Sender<Event>,
    ) -> CloseReason {
        let mut is_received = true;
        loop {
            let now = self.now();
            match self.connection.poll(now) {
                Some(Progress::Done(id, outcome)) => {
                    self.answer(id, outcome);
                    continue;
                }
                Some(Progress::Closed(reason)) => {
                    while let Some(event) = self.connection.poll_event() {
                        if events.try_send(event).is_err() {
                            break;
                        }
                    }
                    return reason;
                }
                Some(Progress::Ready(_)) => continue,
                None => {}
            }
            let deadline = self.deadline();
            let writes = self.needs_flush || !self.connection.output().is_empty();
            let has_event = is_received && self.connection.has_event();
            tokio::select! {
                read = self.reader.read(&mut self.buffer) => self.take_read(read),
                written = write(&mut self.writer, self.connection.output()), if writes => self.take_written(written),
                permit = events.reserve(), if has_event => match permit {
                    Ok(permit) => {
                        if let Some(event) = self.connection.poll_event() {
                            permit.send(event);
                        }
                    }
                    Err(_) => is_received = false,
                },
                command = commands.recv() => match command {
                    Some(command) => self.take_command(command),
                    None => self.connection.close(CloseReason::Local),
                },
                () = sleep_until(deadline) => {
                    let now = self.now();
                    self.connection.tick(now);
                }
            }
        }
    }

    fn take_command(&mut self, command: Command) {
        match command {
            Command::Dump(filter, reply) => match self.connection.dump(filter) {
                Ok(id) => drop(self.waiting.insert(id, Waiting::Dump(reply))),
                Err(error) => drop(reply.send(Err(DumpError::Closed(not_submitted(error))))),
            },
            Command::Commit(messages, reply) => match self.connection.commit(messages) {
                Ok(id) => drop(self.waiting.insert(id, Waiting::Commit(reply))),
                Err(error) => drop(reply.send(Err(CommitError::Closed {
                    reason: not_submitted(error),
                    applied: Applied::Nothing,
                }))),
            },
            Command::Request(message, reply) => match self.connection.request(*message) {
                Ok(id) => drop(self.waiting.insert(id, Waiting::Reply(reply))),
                Err(error) => drop(reply.send(Err(RequestError::Closed(not_submitted(error))))),
            },
            // The send fails if the caller no longer waits for the answer, which is not an error. The same
            // holds below.
            Command::Send(message, reply) => drop(reply.send(self.connection.send(&message))),
            Command::Probe(reply) => {
                // If the switch does not read, nothing can be sent, but bytes of it may still arrive.
                let _unread = self.connection.send(&Message::EchoRequest(Box::default()));
                self.probes.retain(|probe| !probe.is_closed());
                self.probes.push(reply);
            }
            Command::Close => self.connection.close(CloseReason::Local),
        }
    }

    fn answer(&mut self, id: OperationId, outcome: Outcome) {
        match (self.waiting.remove(&id), outcome) {
            (Some(Waiting::Dump(reply)), Outcome::Dump(outcome)) => drop(reply.send(outcome)),
            (Some(Waiting::Commit(reply)), Outcome::Commit(outcome)) => drop(reply.send(outcome)),
            (Some(Waiting::Reply(reply)), Outcome::Reply(outcome)) => drop(reply.send(outcome)),
            _ => {}
        }
    }

    /// Sends the last messages, and closes the stream.
    async fn finish(&mut self) {
        let last = async {
            while !self.connection.output().is_empty() {
                let size = self.writer.write(self.connection.output()).await?;
                if size == 0 {
                    break;
                }
                self.connection.wrote(size, Time::ZERO);
            }
            self.writer.shutdown().await
        };
        // The send fails if the switch is gone, which is not an error.
        let _sent = tokio::time::timeout(CLOSING_TIMEOUT, last).await;
    }
}

/// Returns the close reason for an operation that was not accepted.
fn not_submitted(error: SubmitError) -> CloseReason {
    match error {
        SubmitError::Closed => CloseReason::Local,
        error => CloseReason::NotSubmitted(error),
    }
}

/// Writes some of these bytes, and returns their number. Without bytes, flushes the stream and returns `None`.
/// A cancelled call has written nothing.
async fn write(writer: &mut WriteHalf<Stream>, bytes: &[u8]) -> io::Result<Option<usize>> {
    if bytes.is_empty() {
        return writer.flush().await.map(|()| None);
    }
    writer.write(bytes).await.map(Some)
}

/// Returns when an accepted connection must be closed for a newer one.
async fn evicted(eviction: &mut Option<Eviction>) {
    match eviction {
        Some(eviction) => eviction.evicted().await,
        None => core::future::pending().await,
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => core::future::pending().await,
    }
}
