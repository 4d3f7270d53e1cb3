//! A commit: modifications that take effect together, in one bundle (ONF extension 230), and a barrier behind them.
//!
//! ```text
//!   stage: bundle    OPEN ─► reply ─► ADD… CLOSE ─► reply ─► COMMIT BARRIER ─► replies ─► next stage
//!                              │ unsupported     │ refused
//!                              ▼                 ▼
//!                          plan again        DISCARD BARRIER ─► reply ─► error, or plan again without meters
//!   stage: plain     messages… BARRIER ─► reply ─► next stage
//! ```
//!
//! The COMMIT is not sent before the CLOSE is answered: a refused ADD does not close a bundle, so that a COMMIT behind it
//! would carry out the rest.
//!
//! Open vSwitch takes no meter_mod into a bundle. Meters are then added before the bundle and deleted behind it. A switch
//! without bundles gets the messages one by one, in their order.

use millrace_openflow::{
    BundleAdd, BundleCommand, BundleControl, BundleFlags, ErrorCode, Message, MessageType, MeterModCommand,
};
use millrace_types::Xid;

use super::{Applied, CommitError, Received};
use crate::outgoing::Outgoing;

/// The messages that a switch takes into a bundle, as far as this connection knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum BundleSupport {
    /// All modifications; assumed until the switch refuses one.
    #[default]
    Full,
    /// All but meter_mod.
    WithoutMeters,
    None,
}

/// Messages that are sent together.
#[derive(Debug)]
struct Stage {
    is_bundle: bool,
    /// Indexes of the messages, in order.
    indexes: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The next stage begins.
    Begin,
    /// A bundle is being opened.
    Opening,
    /// Messages are sent; the number of messages of the stage that were sent.
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

/// Messages that a switch applies all or none, in stages that follow one another.
#[derive(Debug)]
pub(crate) struct Commit {
    messages: Vec<Message>,
    bundle: u32,
    stages: Vec<Stage>,
    /// The index of the stage.
    stage: usize,
    phase: Phase,
    /// The xid of the first message of the stage; the others follow.
    first: Xid,
    /// The xids of the last OPEN, CLOSE, COMMIT or DISCARD, and of the barrier.
    control: Option<Xid>,
    barrier: Option<Xid>,
    is_planned: bool,
    is_confirmed: bool,
    /// True if the stages are to be planned again, because the switch refused a meter_mod in a bundle.
    plans_again: bool,
    is_partly_applied: bool,
    error: Option<CommitError>,
}

const FLAGS: BundleFlags = BundleFlags::ALL;

type CommitOutcome = Result<(), CommitError>;

impl Commit {
    /// Begins a commit, as the bundle with this number.
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

    /// Returns the part that is carried out if the connection ends now.
    pub(crate) fn applied_if_closed(&self) -> Applied {
        let is_bundle = self.stages.get(self.stage).is_some_and(|stage| stage.is_bundle);
        match self.phase {
            _ if self.is_partly_applied => Applied::Partly,
            // A switch discards the open bundles of a connection that ends.
            Phase::Begin | Phase::Opening | Phase::Closing | Phase::Commit | Phase::Discard => {
                Applied::Nothing
            }
            Phase::Sending(_) if is_bundle => Applied::Nothing,
            Phase::Barrier if is_bundle && self.error.is_some() => Applied::Nothing,
            Phase::Barrier if is_bundle => Applied::Unknown,
            Phase::Sending(_) | Phase::Barrier => Applied::Partly,
        }
    }

    pub(crate) fn owns(&self, xid: Xid) -> bool {
        self.control == Some(xid) || self.barrier == Some(xid) || self.position(xid).is_some()
    }

    /// Returns the position in the stage of the message with this xid.
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

    /// Begins the next stage, or ends the commit.
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
        // The length fits: a commit has at most u32::MAX messages, which `plan` ensures by its indexes.
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

    /// Sends the next message of the stage, or its end.
    fn send(&mut self, sent: u32, out: &mut Outgoing) {
        let Some(stage) = self.stages.get(self.stage) else {
            return;
        };
        let is_bundle = stage.is_bundle;
        // The messages behind one that the switch refused are not sent.
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
            // The message moves into the one around it and back.
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
                let applied = if is_bundle && !self.is_partly_applied {
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
            // Other messages do not answer a commit; without an answer the deadline ends it.
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
        if code == ErrorCode::OFPBFC_MSG_UNSUP
            && *support == BundleSupport::Full
            && let Some(index) = index
            && self.messages.get(index).map(Message::type_) == Some(MessageType::MeterMod)
        {
            *support = BundleSupport::WithoutMeters;
            self.plans_again = true;
            return None;
        }
        if self.plans_again && index.is_some() {
            return None;
        }
        // A failed DISCARD leaves a bundle that the switch forgets with the connection.
        match &mut self.error {
            Some(CommitError::Refused { more_errors, .. }) => *more_errors += 1,
            Some(_) => {}
            None => {
                let error = self.refusal(index, xid, code);
                self.error = Some(error);
            }
        }
        match self.phase {
            // A bundle that cannot be closed is discarded.
            Phase::Closing if self.control == Some(xid) => self.phase = Phase::Discard,
            _ => {}
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

    /// Ends a stage, whose barrier is answered.
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

/// Returns the stages of a commit. Each message is in exactly one.
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
    // A commit without messages is a barrier.
    if stages.is_empty() {
        stages.push(stage(false, Vec::new()));
    }
    stages
}

/// Returns true for a message that deletes meters, false for one that adds or modifies one, `None` for others.
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
