//! Refusals of a device, and what a planner learns from them.

use std::collections::BTreeSet;

use millrace_flow::{Field, FlowKey, Layer};
use millrace_types::{Duration, Time};

/// The reason why a device did not install an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Refusal {
    /// The device takes no entry with these fields; it will refuse the next one, too.
    Shape,
    /// The device has no room.
    Capacity,
    /// The device did not answer in time, or failed for another reason that may pass.
    Transient,
}

/// The fields that an entry matches, as far as a device may refuse them: EtherType, IP protocol and headers.
type Shape = (u16, u8, u8);

/// The first pause after a failure, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Interval at which a limit that was found grows by a tenth.
const GROWTH_INTERVAL: Duration = Duration::from_secs(60);

fn shape_of(key: &FlowKey) -> Shape {
    let layers = [Layer::Ip, Layer::L4, Layer::Mpls, Layer::Pbb];
    let bits = (0..)
        .zip(layers)
        .fold(0, |bits, (at, layer)| bits | u8::from(key.has(layer)) << at);
    (
        key.field(Field::EthType) as u16,
        key.field(Field::IpProto) as u8,
        bits,
    )
}

/// The knowledge from refusals.
#[derive(Debug)]
pub(crate) struct Refusals {
    shapes: BTreeSet<Shape>,
    /// The number of slots of the device.
    slots: usize,
    /// The number of slots that fitted, and the time at which it grows.
    limit: Option<(usize, Time)>,
    pause: Duration,
    paused_until: Option<Time>,
}

impl Refusals {
    pub(crate) fn new(slots: usize) -> Refusals {
        Refusals {
            shapes: BTreeSet::new(),
            slots,
            limit: None,
            pause: PAUSE_MIN,
            paused_until: None,
        }
    }

    /// Forgets all, as the device has restarted.
    pub(crate) fn clear(&mut self) {
        *self = Refusals::new(self.slots);
    }

    /// Returns true if the device refuses entries like that of a key.
    pub(crate) fn refuses(&self, key: &FlowKey) -> bool {
        self.shapes.contains(&shape_of(key))
    }

    /// Returns the number of slots that may be in use.
    pub(crate) fn limit(&self) -> usize {
        self.limit.map_or(self.slots, |(limit, _)| limit)
    }

    /// Returns true while no installation is tried.
    pub(crate) fn is_paused(&self, now: Time) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }

    /// Lets a limit grow by a tenth a minute.
    pub(crate) fn tick(&mut self, now: Time) {
        if let Some((limit, grows_at)) = self.limit
            && now >= grows_at
        {
            let grown = limit + (limit / 10).max(1);
            self.limit = (grown < self.slots).then_some((grown, now + GROWTH_INTERVAL));
        }
    }

    /// Notes a success: failures before it are forgotten.
    pub(crate) fn succeeded(&mut self) {
        self.pause = PAUSE_MIN;
        self.paused_until = None;
    }

    /// Learns from a refusal; `installed` slots are in use.
    pub(crate) fn refused(&mut self, refusal: Refusal, key: &FlowKey, installed: usize, now: Time) {
        match refusal {
            Refusal::Shape => {
                self.shapes.insert(shape_of(key));
            }
            Refusal::Capacity => self.limit = Some((installed, now + GROWTH_INTERVAL)),
            Refusal::Transient => {
                self.paused_until = Some(now + self.pause);
                self.pause = (self.pause * 2).min(PAUSE_MAX);
            }
        }
    }
}
