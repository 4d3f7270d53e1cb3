//! Events by their names, and sets of them.

use super::names::{DECODE_EVENTS, REFUSED, STREAM_EVENTS};

/// An event of a packet, by its number: those of the decoder, then those of the TCP engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PacketEvent(u8);

impl PacketEvent {
    /// Returns the name in rules.
    pub fn name(self) -> &'static str {
        let at = usize::from(self.0);
        let name = DECODE_EVENTS
            .get(at)
            .or_else(|| STREAM_EVENTS.get(at.wrapping_sub(DECODE_EVENTS.len())));
        name.copied().unwrap_or_default()
    }
}

/// A set of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketEvents([u64; 4]);

impl PacketEvents {
    /// The empty set.
    pub const NONE: PacketEvents = PacketEvents([0; 4]);

    /// Returns the set as bits.
    pub fn bits(self) -> [u64; 4] {
        self.0
    }

    /// Returns the set with these bits.
    pub fn from_bits(bits: [u64; 4]) -> PacketEvents {
        PacketEvents(bits)
    }

    /// Returns true if there is no event.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == [0; 4]
    }

    /// Returns true if the set has an event.
    pub fn has(self, event: PacketEvent) -> bool {
        self.0[usize::from(event.0) / 64] >> (event.0 % 64) & 1 != 0
    }

    /// Adds the event of the decoder with a name.
    pub(crate) fn decode(&mut self, name: &str) {
        if let Ok(at) = DECODE_EVENTS.binary_search(&name) {
            self.0[at / 64] |= 1 << (at % 64);
        }
    }

    /// Adds the event of the TCP engine with a name.
    pub(crate) fn stream(&mut self, name: &str) {
        if let Ok(at) = STREAM_EVENTS.binary_search(&name) {
            let at = at + DECODE_EVENTS.len();
            self.0[at / 64] |= 1 << (at % 64);
        }
    }

    /// Adds all events of another set.
    pub(crate) fn add(&mut self, other: PacketEvents) {
        for (word, more) in self.0.iter_mut().zip(other.0) {
            *word |= more;
        }
    }

    /// Returns the names of the decoder's events.
    pub fn decode_names(self) -> impl Iterator<Item = &'static str> {
        (0..DECODE_EVENTS.len() as u8)
            .map(PacketEvent)
            .filter(move |event| self.has(*event))
            .map(PacketEvent::name)
    }

    /// Returns the names of the TCP engine's events.
    pub fn stream_names(self) -> impl Iterator<Item = &'static str> {
        self.names().skip(self.decode_names().count())
    }

    /// Returns the names of the events.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let all = DECODE_EVENTS.len() + STREAM_EVENTS.len();
        (0..all as u8)
            .map(PacketEvent)
            .filter(move |event| self.has(*event))
            .map(PacketEvent::name)
    }
}

/// Returns the event of the decoder with a name.
///
/// # Errors
/// The reason why there is no such event.
pub(crate) fn decode(name: &str) -> Result<PacketEvent, &'static str> {
    // Older rules have a dot, and the engine's name of the group.
    let name = name
        .strip_prefix("decoder.")
        .unwrap_or(name)
        .replace(".frag.", ".frag_");
    let name = match name.as_str() {
        "ipv4.frag_too_large" => "ipv4.frag_pkt_too_large",
        "ipv6.frag_too_large" => "ipv6.frag_pkt_too_large",
        name => name,
    };
    of(DECODE_EVENTS, 0, name)
}

/// Returns the event of the TCP engine with a name.
///
/// # Errors
/// The reason why there is no such event.
pub(crate) fn stream(name: &str) -> Result<PacketEvent, &'static str> {
    let name = name.strip_prefix("stream.").unwrap_or(name);
    of(STREAM_EVENTS, DECODE_EVENTS.len(), name)
}

fn of(list: &[&str], first: usize, name: &str) -> Result<PacketEvent, &'static str> {
    match list.binary_search(&name) {
        Ok(at) => Ok(PacketEvent((first + at) as u8)),
        Err(_) => Err(REFUSED
            .iter()
            .find(|(refused, _)| *refused == name)
            .map_or("there is no event with this name", |(_, why)| why)),
    }
}
