//! A commit: modifications that take effect together, in one bundle (ONF extension 230) followed by a
//! barrier.
//!
//! ```text
//!   stage: bundle    OPEN ─► reply ─► ADD… CLOSE ─► reply ─► COMMIT BARRIER ─► replies ─► next stage
//!                              │ unsupported     │ refused
//!                              ▼                 ▼
//!                          plan again        DISCARD BARRIER ─► reply ─► error, or plan again without meters
//!   stage: plain     messages… BARRIER ─► reply ─► next stage
//! ```
//!
//! The COMMIT is sent only after the reply to the CLOSE: a refused ADD does not close a bundle, so an earlier
//! COMMIT would apply the other messages.
//!
//! Open vSwitch accepts no meter_mod in a bundle. Meters are then added before the bundle and deleted after
//! it. A switch without bundles gets the messages one by one, in their order.

use millrace_openflow::{
    BundleAdd, BundleCommand, BundleControl, BundleFlags, ErrorCode, Message, MessageType, MeterModCommand,
};
use millrace_types::Xid;

use super::{Applied, CommitError, Received};
use crate::outgoing::Outgoing;

/// The messages that the switch accepts in a bundle, as far as this connection knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum BundleSupport {
    /// The switch accepts all modifications; assumed until it refuses one.
    #[default]
    Full,
    /// The switch accepts all modifications except meter_mod.
    WithoutMeters,
    None,
}

/// Messages that are sent together.
#[derive(Debug)]
struct Stage {
    is_bundle: bool,
    /// The indexes of the messages in the commit, in order.
    indexes: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The next stage begins.
    Begin,
    /// A bundle is being opened.
    Opening,
    /// Messages are being sent. The number counts the messages of the stage that were sent.
    Sending(u32),
    /// The bundle is being closed.
    Closing,
    /// The bundle is to be committed.
    Commit,
    /// The bundle is to be discarded.
    Discard,
    /// The last barrier of the stage is sent.
    Barrier,
}

/// A commit in progress. The switch applies all messages of a bundle stage, or none.
#[derive(Debug)]
pub(crate) struct Commit {
    messages: Vec<Message>,
    bundle: u32,
    stages: Vec<Stage>,
    /// The index of the current stage.
    stage: usize,
    phase: Phase,
    /// The xid of the first message of the stage; the other messages have the following xids.
    first: Xid,
    /// The xid of the last OPEN, CLOSE, COMMIT or DISCARD.
    control: Option<Xid>,
    /// The xid of the barrier that ends the stage.
    barrier: Option<Xid>,
    is_planned: bool,
    is_confirmed: bool,
    /// True if the stages must be planned again, because the switch refused a meter_mod in a bundle.
    plans_again: bool,
    is_partly_applied: bool,
    error: Option<CommitError>,
}

const FLAGS: BundleFlags = BundleFlags::ALL;

type CommitOutcome = Result<(), CommitError>;

impl Commit {
    /// Returns a commit that uses this bundle number.
    pub(crate) fn new(messages: Vec<Message>, bundle: u32) -> Commit {
        Commit {
            messages,
            bundle,
            stages: Vec::new(),
            stage: 0,
            phase: Phase::Begin,
            first: Xid(0),
            control: None,
            barrier: None,
            is_planned: false,
            is_confirmed: false,
            plans_again: false,
            is_partly_applied: false,
            error: None,
        }
    }

    /// Returns the part that the switch applies if the connection ends now.
    pub(crate) fn applied_if_closed(&self) -> Applied {
        let is_bundle = self.stages.get(self.stage).is_some_and(|stage| stage.is_bundle);
        match self.phase {
            _ if self.is_partly_applied => Applied::Partly,
            // When a connection ends, the switch discards its open bundles.
            Phase::Begin | Phase::Opening | Phase::Closing | Phase::Commit | Phase::Discard => {
                Applied::Nothing
            }
            Phase::Sending(sent) if is_bundle || sent == 0 => Applied::Nothing,
            Phase::Barrier if is_bundle && self.error.is_some() => Applied::Nothing,
            Phase::Barrier if is_bundle => Applied::Unknown,
            Phase::Sending(_) | Phase::Barrier => match self.error {
                // `applied` depends on whether messages of the stage were sent before the one that is too long.
                Some(CommitError::TooLong { applied, .. }) => applied,
                _ => Applied::Partly,
            },
        }
    }

    pub(crate) fn owns(&self, xid: Xid) -> bool {
        self.control == Some(xid) || self.barrier == Some(xid) || self.position(xid).is_some()
    }

    /// Returns the position of the message with this xid in the stage.
    fn position(&self, xid: Xid) -> Option<usize> {
        let len = self.stages.get(self.stage)?.indexes.len();
        let sent = match self.phase {
            Phase::Begin | Phase::Opening => 0,
            Phase::Sending(sent) => sent as usize,
            _ => len,
        };
        let position = xid.0.checked_sub(self.first.0)? as usize;
        (position < sent).then_some(position)
    }

    pub(crate) fn pump(&mut self, support: &mut BundleSupport, out: &mut Outgoing) -> Option<CommitOutcome> {
        while out.has_room() {
            match self.phase {
                Phase::Begin => {
                    if let Some(outcome) = self.begin(*support, out) {
                        return Some(outcome);
                    }
                }
                Phase::Sending(sent) => self.send(sent, out),
                Phase::Commit => {
                    self.put_control(BundleCommand::Commit, out);
                    self.put_barrier(out);
                }
                Phase::Discard => {
                    self.put_control(BundleCommand::Discard, out);
                    self.put_barrier(out);
                }
                Phase::Opening | Phase::Closing | Phase::Barrier => return None,
            }
        }
        None
    }

    /// Starts the next stage, or ends the commit.
    fn begin(&mut self, support: BundleSupport, out: &mut Outgoing) -> Option<CommitOutcome> {
        if !self.is_planned {
            if let Some(error) = self.not_a_modification() {
                return Some(Err(error));
            }
            self.is_planned = true;
            self.stages = plan(&self.messages, support);
            self.stage = 0;
        }
        let Some(stage) = self.stages.get(self.stage) else {
            return Some(Ok(()));
        };
        // The length fits into 32 bits, because `plan` numbers the messages with u32.
        self.first = out.reserve(stage.indexes.len() as u32);
        self.is_confirmed = !stage.is_bundle;
        if stage.is_bundle {
            self.put_control(BundleCommand::Open, out);
            self.phase = Phase::Opening;
        } else {
            self.phase = Phase::Sending(0);
        }
        None
    }

    fn not_a_modification(&self) -> Option<CommitError> {
        let mut types = self.messages.iter().map(Message::type_).enumerate();
        let (index, type_) = types.find(|(_, type_)| !type_.can_be_bundled())?;
        Some(CommitError::NotAModification { index, type_ })
    }

    /// Sends the next message of the stage. After the last one, sends the message that ends the stage.
    fn send(&mut self, sent: u32, out: &mut Outgoing) {
        let Some(stage) = self.stages.get(self.stage) else {
            return;
        };
        let is_bundle = stage.is_bundle;
        // After the switch has refused a message, the messages after it are not sent.
        let next = stage.indexes.get(sent as usize).filter(|_| self.error.is_none());
        let Some(&index) = next else {
            if is_bundle && !self.plans_again && self.error.is_none() {
                self.put_control(BundleCommand::Close, out);
                self.phase = Phase::Closing;
            } else if is_bundle {
                self.phase = Phase::Discard;
            } else {
                self.put_barrier(out);
            }
            return;
        };
        let xid = Xid(self.first.0 + sent);
        let index = index as usize;
        let outcome = if is_bundle {
            // The message is moved into a bundle_add message for encoding, and back.
            let message = core::mem::replace(&mut self.messages[index], Message::BarrierRequest);
            let wrapped = Message::BundleAdd(BundleAdd {
                bundle: self.bundle,
                flags: FLAGS,
                message: Box::new(message),
            });
            let outcome = out.put(&wrapped, xid);
            if let Message::BundleAdd(add) = wrapped {
                self.messages[index] = *add.message;
            }
            outcome
        } else {
            out.put(&self.messages[index], xid)
        };
        match outcome {
            Ok(()) => self.phase = Phase::Sending(sent + 1),
            Err(_) => {
                let applied = if (is_bundle || sent == 0) && !self.is_partly_applied {
                    Applied::Nothing
                } else {
                    Applied::Partly
                };
                self.error = Some(CommitError::TooLong { index, applied });
            }
        }
    }

    fn put_control(&mut self, command: BundleCommand, out: &mut Outgoing) {
        let xid = out.xid();
        let control = BundleControl {
            bundle: self.bundle,
            command,
            flags: FLAGS,
        };
        let _fits = out.put(&Message::BundleControl(control), xid);
        self.control = Some(xid);
    }

    fn put_barrier(&mut self, out: &mut Outgoing) {
        let xid = out.xid();
        let _fits = out.put(&Message::BarrierRequest, xid);
        self.barrier = Some(xid);
        self.phase = Phase::Barrier;
    }

    pub(crate) fn receive(
        &mut self,
        xid: Xid,
        received: Received,
        support: &mut BundleSupport,
    ) -> Option<CommitOutcome> {
        match received {
            Received::Error(error) => self.take_error(xid, error.code, support),
            Received::Message(Message::BundleControl(reply), _)
                if self.control == Some(xid) && reply.bundle == self.bundle =>
            {
                match (self.phase, reply.command) {
                    (Phase::Opening, BundleCommand::OpenReply) => self.phase = Phase::Sending(0),
                    (Phase::Closing, BundleCommand::CloseReply)
                        if self.error.is_none() && !self.plans_again =>
                    {
                        self.phase = Phase::Commit;
                    }
                    (Phase::Closing, BundleCommand::CloseReply) => self.phase = Phase::Discard,
                    (Phase::Barrier, BundleCommand::CommitReply) => self.is_confirmed = true,
                    _ => {}
                }
                None
            }
            Received::Message(Message::BarrierReply, _) if self.barrier == Some(xid) => self.end_stage(),
            // Other messages are no answers to a commit. If no answer arrives, the deadline ends the commit.
            Received::Message(..) | Received::Malformed(_) => None,
        }
    }

    fn take_error(
        &mut self,
        xid: Xid,
        code: ErrorCode,
        support: &mut BundleSupport,
    ) -> Option<CommitOutcome> {
        if self.phase == Phase::Opening && self.control == Some(xid) {
            if is_unsupported(code) {
                *support = BundleSupport::None;
                self.is_planned = false;
                self.phase = Phase::Begin;
                return None;
            }
            return Some(Err(self.refusal(None, xid, code)));
        }
        let index = self.position(xid).and_then(|position| {
            let stage = self.stages.get(self.stage)?;
            stage.indexes.get(position).map(|index| *index as usize)
        });
        if self.phase == Phase::Closing && self.control == Some(xid) {
            // If a bundle cannot be closed, it is discarded.
            self.phase = Phase::Discard;
        }
        if code == ErrorCode::OFPBFC_MSG_UNSUP
            && *support == BundleSupport::Full
            && let Some(index) = index
            && self.messages.get(index).map(Message::type_) == Some(MessageType::MeterMod)
        {
            *support = BundleSupport::WithoutMeters;
            self.plans_again = true;
            return None;
        }
        if self.plans_again {
            // The bundle is discarded, so errors of its other messages, of the CLOSE and of the DISCARD are ignored.
            return None;
        }
        // If a DISCARD fails, the switch discards the bundle when the connection ends.
        match &mut self.error {
            Some(CommitError::Refused { more_errors, .. }) => *more_errors += 1,
            Some(_) => {}
            None => {
                let error = self.refusal(index, xid, code);
                self.error = Some(error);
            }
        }
        None
    }

    fn refusal(&self, index: Option<usize>, xid: Xid, code: ErrorCode) -> CommitError {
        let is_bundle = self.stages.get(self.stage).is_some_and(|stage| stage.is_bundle);
        let applied = if is_bundle && !self.is_partly_applied {
            Applied::Nothing
        } else {
            Applied::Partly
        };
        CommitError::Refused {
            index,
            xid,
            message: index.and_then(|index| self.messages.get(index).cloned().map(Box::new)),
            code,
            more_errors: 0,
            applied,
        }
    }

    /// Ends a stage after the reply to its barrier.
    fn end_stage(&mut self) -> Option<CommitOutcome> {
        if let Some(error) = self.error.take() {
            return Some(Err(error));
        }
        let control = self.control.take();
        self.barrier = None;
        self.phase = Phase::Begin;
        if core::mem::take(&mut self.plans_again) {
            self.is_planned = false;
            self.stage = 0;
            return None;
        }
        if !self.is_confirmed {
            // The switch answered the barrier but not the COMMIT before it.
            let xid = control.unwrap_or(Xid(0));
            let mut error = self.refusal(None, xid, ErrorCode::OFPBFC_UNKNOWN);
            if let CommitError::Refused { applied, .. } = &mut error {
                *applied = Applied::Unknown;
            }
            return Some(Err(error));
        }
        self.is_partly_applied = true;
        self.stage += 1;
        None
    }
}

/// Returns the stages of a commit. Each message is in exactly one stage.
fn plan(messages: &[Message], support: BundleSupport) -> Vec<Stage> {
    let select = |of: fn(&Message) -> bool| -> Vec<u32> {
        let mut selected = Vec::new();
        for (index, message) in (0u32..).zip(messages) {
            if of(message) {
                selected.push(index);
            }
        }
        selected
    };
    let stage = |is_bundle, indexes| Stage { is_bundle, indexes };
    let mut stages = match support {
        BundleSupport::Full => vec![stage(true, select(|_| true))],
        BundleSupport::None => vec![stage(false, select(|_| true))],
        BundleSupport::WithoutMeters => vec![
            stage(
                false,
                select(|message| meter_command(message).is_some_and(|is_delete| !is_delete)),
            ),
            stage(true, select(|message| meter_command(message).is_none())),
            stage(false, select(|message| meter_command(message) == Some(true))),
        ],
    };
    stages.retain(|stage| !stage.indexes.is_empty());
    // A commit without messages consists of a barrier.
    if stages.is_empty() {
        stages.push(stage(false, Vec::new()));
    }
    stages
}

/// Returns true for a message that deletes meters, false for a message that adds or modifies a meter, and
/// `None` for others.
fn meter_command(message: &Message) -> Option<bool> {
    match message {
        Message::MeterMod(meter_mod) => Some(meter_mod.command == MeterModCommand::Delete),
        _ => None,
    }
}

fn is_unsupported(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::OFPBRC_BAD_EXPERIMENTER | ErrorCode::OFPBRC_BAD_EXP_TYPE | ErrorCode::OFPBRC_BAD_TYPE
    )
}
