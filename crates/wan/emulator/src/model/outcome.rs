//! The outcome of a frame: released copies with their times, or a drop with its reason.

use arrayvec::ArrayVec;
use millrace_types::Time;

use super::corrupt::Flips;

/// The outcomes of the copies of a frame: one, or two if it was duplicated.
pub type Outcomes = ArrayVec<Outcome, 2>;

/// The outcome of one copy of a frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Outcome {
    /// The copy does not arrive.
    Dropped(DropReason),
    /// The copy arrives.
    Released(Release),
}

/// A frame that arrives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Release {
    /// The time at which the frame is released, not before its arrival.
    pub at: Time,
    /// The time at which the link has sent the frame's last bit. Without a rate, it is the arrival.
    pub sent: Time,
    /// The delay that was drawn for the frame, in nanoseconds. Ordered mode, reordering and duplication may
    /// add to it.
    pub drawn_delay: u64,
    /// True if the reorder stage moved the frame.
    pub reordered: bool,
    /// The bits that are inverted.
    pub flips: Option<Flips>,
}

macro_rules! reasons {
    ($($variant:ident $name:literal $help:literal)+) => {
        /// The reason why a frame does not arrive.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum DropReason {
            $(#[doc = $help] $variant),+
        }

        impl DropReason {
            /// Every reason, in the order of the stages.
            pub const ALL: [DropReason; [$($name),+].len()] = [$(DropReason::$variant),+];

            /// Returns the name of the counter.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name),+ }
            }

            /// Returns a line of help.
            pub const fn help(self) -> &'static str {
                match self { $(DropReason::$variant => $help),+ }
            }
        }
    };
}

reasons! {
    OverMtu "over_mtu" "The packet is longer than the emulated MTU."
    QueueFull "queue_full" "The queue of the link is full (tail drop)."
    RedEarly "red_early" "Random early detection dropped the frame."
    LossBernoulli "loss_bernoulli" "Lost by probability."
    LossGilbertElliott "loss_gilbert_elliott" "Lost by the Gilbert-Elliott channel."
    LossFourState "loss_4_state" "Lost by the channel of four states."
    LossEveryNth "loss_every_nth" "Lost as every n-th frame."
    LossBitError "loss_bit_error" "Lost by an inverted bit."
    LossOutage "loss_outage" "Lost during an outage."
    LossTrace "loss_trace" "Lost by the trace."
    Corrupted "corrupted" "The check sequence of the link failed."
    NoMemory "no_memory" "There was no memory for a further frame on its way."
}

impl serde::Serialize for DropReason {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
