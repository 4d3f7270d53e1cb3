//! Probes on trunks: one LLDP frame every five seconds in each direction, which goes out by packet_out and comes back by
//! packet_in of the other switch.
//!
//! A probe that arrives measures an upper bound of its trunk's delay: the measurement includes the paths to
//! and from the controller. The engine waits for twice that time before it removes old entries. A probe that
//! arrives at another trunk shows wrong cabling. The nonce of a probe is a keyed hash and valid once, so that
//! nobody else can make or replay a probe.

mod state;

pub(crate) use state::Probes;

use std::collections::BTreeMap;
use std::hash::BuildHasher as _;

use millrace_ix_engine::Event;
use millrace_ix_model::{PortId, SwitchId, Trunk, TrunkId};
use millrace_ix_plan::layout::{LLDP, PROBE_MAC};
use millrace_types::Duration;

use crate::core::Core;
use crate::event::EventKind;
use crate::now::Now;
use crate::quarantine::ENGINE_MAC;

/// The time between two probes of a trunk in one direction.
const INTERVAL: Duration = Duration::from_secs(5);
/// The probes in a row that may be lost before operators are notified.
const LOST_MAX: u32 = 3;
/// The number of recent measurements that are kept. The smallest one counts: larger ones include the wait for
/// a busy engine.
const DELAYS_LEN: usize = 8;
/// The organisation and type of the TLV with trunk, side and nonce (IEEE 802.1AB-2016, section 8.6); the organisation is a
/// locally administered identifier.
const ORGANISATION: [u8; 4] = [0x02, 0x4d, 0x49, 0x01];

/// Returns a probe of a trunk from one of its ends.
fn frame(trunk: TrunkId, side: u8, nonce: u64) -> Vec<u8> {
    let tlv = |kind: u8, value: &[u8]| {
        let size = u8::try_from(value.len()).unwrap_or(u8::MAX);
        [&[kind << 1, size], value].concat()
    };
    // Subtype 7: locally assigned (IEEE 802.1AB-2016, tables 8-2 and 8-3).
    let name = [&[7], trunk.to_string().as_bytes()].concat();
    let own = [
        &ORGANISATION[..],
        &trunk.0.to_be_bytes(),
        &[side],
        &nonce.to_be_bytes(),
    ];
    let parts = [
        PROBE_MAC.0.to_vec(),
        ENGINE_MAC.0.to_vec(),
        LLDP.to_be_bytes().to_vec(),
        tlv(1, &name),
        tlv(2, &[7, side]),
        tlv(3, &20_u16.to_be_bytes()),
        tlv(127, &own.concat()),
        tlv(0, &[]),
    ];
    let mut frame = parts.concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

/// Returns trunk, side and nonce of a probe.
fn parse(frame: &[u8]) -> Option<(TrunkId, u8, u64)> {
    let mut rest = frame.get(14..)?;
    loop {
        let (&[kind, size], after) = rest.split_first_chunk::<2>()?;
        let (value, next) = after.split_at_checked(usize::from(size))?;
        match kind >> 1 {
            0 => return None,
            127 if value.starts_with(&ORGANISATION) => {
                let (trunk, tail) = value.get(4..)?.split_first_chunk::<4>()?;
                let (side, tail) = tail.split_first()?;
                let nonce = tail.first_chunk::<8>()?;
                return Some((
                    TrunkId(u32::from_be_bytes(*trunk)),
                    *side,
                    u64::from_be_bytes(*nonce),
                ));
            }
            _ => rest = next,
        }
    }
}

fn end(trunk: &Trunk, side: u8) -> PortId {
    trunk.ends[usize::from(side & 1)]
}

impl Core {
    /// Sends the probes that are due, and notifies operators of trunks that lost the last three probes.
    pub(crate) fn probe_trunks(&mut self, now: Now) {
        if now.time < self.probes.next {
            return;
        }
        self.probes.next = now.time + INTERVAL;
        let trunks = self.exchange.trunks.clone();
        self.probes
            .directions
            .retain(|(id, _), _| trunks.contains_key(id));
        for (id, trunk) in &trunks {
            let is_up = crate::links::trunk_up(&self.ports, trunk.ends) == Some(true);
            for side in [0, 1] {
                let key = (*id, side);
                if !is_up {
                    self.probes.directions.remove(&key);
                    continue;
                }
                self.probes.count += 1;
                let nonce = self.probes.key.hash_one((self.probes.count, id.0, side));
                let is_first = !self.probes.directions.contains_key(&key);
                let direction = self.probes.directions.entry(key).or_default();
                if !is_first && !direction.is_answered {
                    direction.lost += 1;
                }
                let is_silent = direction.lost == LOST_MAX;
                direction.is_answered = false;
                direction.nonce = nonce;
                direction.sent = now.time;
                if is_silent {
                    let text = format!(
                        "trunk {} passes no probe from {} to {}, although both ports are up",
                        trunk.name,
                        end(trunk, side),
                        end(trunk, 1 - side)
                    );
                    self.tell_probe(end(trunk, side).switch, text, now);
                }
                self.send_frame(end(trunk, side), frame(*id, side, nonce));
            }
        }
    }

    /// Handles a probe that has arrived at an end of a trunk.
    pub(crate) fn probe_arrived(&mut self, at: (TrunkId, u8), frame: &[u8], now: Now) {
        let Some((id, side, nonce)) = parse(frame) else {
            return;
        };
        let Some(direction) = self
            .probes
            .directions
            .get_mut(&(id, side))
            .filter(|direction| direction.nonce == nonce && !direction.is_answered)
        else {
            return;
        };
        direction.is_answered = true;
        direction.lost = 0;
        let (Some(trunk), Some(found)) = (self.exchange.trunks.get(&id), self.exchange.trunks.get(&at.0))
        else {
            return;
        };
        let switch = end(trunk, side).switch;
        if at != (id, 1 - side) {
            if !direction.is_miswired {
                direction.is_miswired = true;
                let text = format!(
                    "wrong cabling: {} of trunk {} leads to {} of trunk {}, and not to {}",
                    end(trunk, side),
                    trunk.name,
                    end(found, at.1),
                    found.name,
                    end(trunk, 1 - side)
                );
                self.tell_probe(switch, text, now);
            }
            return;
        }
        direction.is_miswired = false;
        if direction.delays.len() == DELAYS_LEN {
            direction.delays.pop_front();
        }
        direction.delays.push_back(now.time.since(direction.sent));
        let delay = self.delay_from(switch);
        let actions = self.engine.handle(
            Event::Delay {
                switch: switch.0,
                delay,
            },
            now.time,
        );
        self.queue.extend(actions);
        self.drain(now);
    }

    /// Returns the largest delay of a switch's trunks. The delay of a trunk is its smallest recent
    /// measurement.
    fn delay_from(&self, switch: SwitchId) -> Duration {
        let directions = self.probes.directions.iter();
        let of_switch = directions.filter(|((id, side), _)| {
            let trunk = self.exchange.trunks.get(id);
            trunk.is_some_and(|trunk| end(trunk, *side).switch == switch)
        });
        let smallest = of_switch.filter_map(|(_, direction)| direction.delays.iter().min().copied());
        smallest.max().unwrap_or_default()
    }

    /// Returns the times that a probe takes there and back over each trunk whose probes arrive in both directions: its
    /// smallest recent measurements, with the paths between the controller and both switches.
    pub(crate) fn round_trips(&self) -> BTreeMap<TrunkId, Duration> {
        let of = |id: TrunkId, side: u8| {
            let direction = self.probes.directions.get(&(id, side))?;
            let is_alive = direction.lost < LOST_MAX && !direction.is_miswired;
            direction.delays.iter().min().copied().filter(|_| is_alive)
        };
        let trunks = self.exchange.trunks.keys();
        trunks
            .filter_map(|id| Some((*id, of(*id, 0)? + of(*id, 1)?)))
            .collect()
    }

    fn tell_probe(&mut self, switch: SwitchId, text: String, now: Now) {
        tracing::warn!(%switch, "{text}");
        let notice = EventKind::Notice {
            text,
            switch: Some(switch),
            change: None,
        };
        self.tell(notice, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_read_back_and_anything_else_is_none() {
        let probe = frame(TrunkId(77), 1, 0x0123_4567_89ab_cdef);
        assert_eq!(parse(&probe), Some((TrunkId(77), 1, 0x0123_4567_89ab_cdef)));
        for size in 0..54 {
            assert_eq!(parse(&probe[..size.min(40)]), None, "{size}");
        }
        assert_eq!(parse(&[0xff; 100]), None);
    }
}
