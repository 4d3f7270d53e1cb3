//! A session with a switch, for use by the exchange: handle and events.

use millrace_listener::{Connection, EstablishError};
use millrace_openflow::flow_monitor::FlowMonitorRequest;
use millrace_openflow::multipart::{MultipartRequest, RequestBody};
use millrace_openflow::{ErrorCode, Message, RequestedRole, RoleMessage, SwitchFeatures};
use millrace_types::{Duration, Xid};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};

use crate::connection::{CloseReason, SubmitError};
use crate::dump::{Dump, DumpFilter};
use crate::event::Event;
use crate::operation::{Applied, CommitError, DumpError, RequestError};

/// The identity of a switch on the transport layer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Peer {
    /// The address of the switch; "local" for a Unix socket.
    pub address: String,
    /// The certificate of a TLS connection, in DER; `None` without TLS. A trusted authority has signed it.
    /// The caller decides whether it is valid for the datapath id.
    pub certificate: Option<Vec<u8>>,
}

/// The reason why the switch refused a role.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RoleRefused {
    /// A controller with a later generation_id has become master: this controller is no longer the leader.
    #[error("the switch knows a later generation_id: another controller leads")]
    Stale,
    /// The request failed for another reason.
    #[error(transparent)]
    Request(RequestError),
}

/// A request to the task of a session.
pub(super) enum Command {
    Dump(DumpFilter, oneshot::Sender<Result<Box<Dump>, DumpError>>),
    Commit(Vec<Message>, oneshot::Sender<Result<(), CommitError>>),
    Request(Box<Message>, oneshot::Sender<Result<Box<Message>, RequestError>>),
    Send(Box<Message>, oneshot::Sender<Result<Xid, SubmitError>>),
    /// Sends ECHO_REQUEST, and answers when bytes of the switch arrive.
    Probe(oneshot::Sender<()>),
    Close,
}

/// Sends requests to a switch. Clones use the same connection.
#[derive(Clone, Debug)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
    closed: watch::Receiver<Option<CloseReason>>,
}

impl Handle {
    pub(super) fn new(
        commands: mpsc::Sender<Command>,
        closed: watch::Receiver<Option<CloseReason>>,
    ) -> Handle {
        Handle { commands, closed }
    }

    /// Returns the reason why the connection ended; `None` while it is open.
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.closed.borrow().clone()
    }

    fn reason(&self) -> CloseReason {
        self.close_reason().unwrap_or(CloseReason::Local)
    }

    /// Waits until the connection ends, and returns the reason.
    pub async fn closed(&mut self) -> CloseReason {
        // An error means that the task has ended, and the connection with it.
        drop(self.closed.wait_for(Option::is_some).await);
        self.reason()
    }

    async fn call<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        self.commands.send(command(sender)).await.ok()?;
        receiver.await.ok()
    }

    /// Lists the contents of the switch.
    ///
    /// # Errors
    /// [`DumpError`]: the content of the switch is unknown.
    pub async fn dump(&self, filter: DumpFilter) -> Result<Dump, DumpError> {
        match self.call(|reply| Command::Dump(filter, reply)).await {
            Some(outcome) => outcome.map(|dump| *dump),
            None => Err(DumpError::Closed(self.reason())),
        }
    }

    /// Applies modifications together. Returns when the switch uses them.
    ///
    /// # Errors
    /// [`CommitError`], which names the refused message and the part that the switch applied.
    pub async fn commit(&self, messages: Vec<Message>) -> Result<(), CommitError> {
        match self.call(|reply| Command::Commit(messages, reply)).await {
            Some(outcome) => outcome,
            None => Err(CommitError::Closed {
                reason: self.reason(),
                applied: Applied::Unknown,
            }),
        }
    }

    /// Returns the reply to a request. If OpenFlow defines no reply, a barrier follows the request, and its
    /// reply is returned.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn request(&self, message: Message) -> Result<Message, RequestError> {
        match self
            .call(|reply| Command::Request(Box::new(message), reply))
            .await
        {
            Some(outcome) => outcome.map(|message| *message),
            None => Err(RequestError::Closed(self.reason())),
        }
    }

    /// Sends a message without waiting for an answer, such as a packet_out. An error arrives as [`Event::Error`].
    ///
    /// # Errors
    /// [`SubmitError`]; the message is dropped.
    pub async fn send(&self, message: Message) -> Result<Xid, SubmitError> {
        let outcome = self.call(|reply| Command::Send(Box::new(message), reply)).await;
        outcome.unwrap_or(Err(SubmitError::Closed))
    }

    /// Asks the switch for a sign of life by ECHO_REQUEST (OpenFlow 1.3.5, section 7.5.2). Returns true if any bytes arrive
    /// within `patience`, and false if none do or the connection is closed. A probe does not wait for the operations before it.
    pub async fn is_alive(&self, patience: Duration) -> bool {
        let probe = self.call(Command::Probe);
        matches!(tokio::time::timeout(patience, probe).await, Ok(Some(())))
    }

    /// Requests a role, and returns the role that the switch confirms. `generation_id` is the number of the
    /// leader election (OpenFlow 1.3.5, section 6.3.4).
    ///
    /// # Errors
    /// [`RoleRefused::Stale`] if another controller has been elected since.
    pub async fn set_role(
        &self,
        role: RequestedRole,
        generation_id: u64,
    ) -> Result<RoleMessage, RoleRefused> {
        let asked = Message::RoleRequest(RoleMessage { role, generation_id });
        match self.request(asked).await {
            Ok(Message::RoleReply(role)) => Ok(role),
            Ok(other) => Err(RoleRefused::Request(RequestError::UnexpectedReply {
                request: millrace_openflow::MessageType::RoleRequest,
                found: other.type_(),
            })),
            Err(RequestError::Refused { code, .. }) if code == ErrorCode::OFPRRFC_STALE => {
                Err(RoleRefused::Stale)
            }
            Err(error) => Err(RoleRefused::Request(error)),
        }
    }

    /// Starts flow monitors (ONF extension 187). Their updates arrive as [`Event::FlowUpdates`].
    ///
    /// # Errors
    /// [`RequestError::Refused`] by a switch without flow monitors.
    pub async fn monitor(&self, monitors: &[FlowMonitorRequest]) -> Result<(), RequestError> {
        let body = RequestBody::Experimenter(FlowMonitorRequest::encode_all(monitors));
        let asked = Message::MultipartRequest(MultipartRequest::new(body));
        self.request(asked).await.map(|_| ())
    }

    /// Closes the connection.
    pub async fn close(&self) {
        // If the task has ended, the connection is closed already.
        let _closed = self.commands.send(Command::Close).await;
    }
}

/// The events of a session.
#[derive(Debug)]
pub struct Events {
    receiver: mpsc::Receiver<Event>,
}

impl Events {
    pub(super) fn new(receiver: mpsc::Receiver<Event>) -> Events {
        Events { receiver }
    }

    /// Returns the next event; `None` after the connection is closed and all events have been returned.
    pub async fn next(&mut self) -> Option<Event> {
        self.receiver.recv().await
    }
}

/// A session with a switch, after its handshake.
#[derive(Debug)]
pub struct Session {
    /// The description of the switch, with its datapath id.
    pub features: SwitchFeatures,
    /// The identity of the switch on the transport layer.
    pub peer: Peer,
    /// Sends requests.
    pub handle: Handle,
    pub events: Events,
    /// The count of the connection at its listener; `None` if the controller opened the connection.
    pub(super) accepted: Option<Connection>,
}

impl Session {
    /// Keeps the connection, which its listener may otherwise close for newer ones. The caller knows the switch by its
    /// datapath id and its certificate.
    ///
    /// # Errors
    /// The listener serves no more switches, or has closed the connection.
    pub fn establish(&self) -> Result<(), EstablishError> {
        match &self.accepted {
            Some(accepted) => accepted.establish(),
            None => Ok(()),
        }
    }
}
