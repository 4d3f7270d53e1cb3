//! The treatment of packets whose flows a function shuns.

use arrayvec::ArrayVec;
use millrace_datapath::io::Burst;
use millrace_nf::ShunAction;
use millrace_types::Time;
use millrace_wire::Packet;

use crate::hop::Instance;
use crate::packets::{Packets, bits};

/// The packets of a burst that belong to shunned flows.
#[derive(Clone, Copy, Default)]
pub(crate) struct Shunned {
    pub(crate) passed: Packets,
    pub(crate) dropped: Packets,
}

/// Treats the packets of `here` that belong to flows which the function shuns.
#[inline]
pub(crate) fn treat_shunned<P: Packet>(
    instance: &mut Instance<P>,
    burst: &Burst<P>,
    here: Packets,
    now: Time,
) -> Shunned {
    match &instance.shunned {
        // The policy of a hop that is down applies to all packets.
        Some(shunned) if shunned.len() != 0 && !instance.down => look_up_shunned(instance, burst, here, now),
        _ => Shunned::default(),
    }
}

/// The treatment of a packet whose flow a process shuns, and the number of packets that the process must have
/// returned before the packet passes it; `None` for a packet that the process gets.
pub(crate) type Treatment = Option<(ShunAction, u64)>;

/// Returns true if all packets of a burst pass a process now.
#[inline]
pub(crate) fn all_pass<P: Packet>(instance: &Instance<P>, treatments: &[Treatment]) -> bool {
    treatments
        .iter()
        .all(|treatment| matches!(treatment, Some((ShunAction::Pass, since)) if instance.may_pass(*since)))
}

/// Returns the treatment of a packet by a process.
#[inline]
pub(crate) fn shunned_by<P: Packet>(instance: &mut Instance<P>, packet: &P, now: Time) -> Treatment {
    let shunned = instance.shunned.as_mut().filter(|shunned| shunned.len() != 0)?;
    let mut ended = ArrayVec::new();
    let treatment = shunned.action(packet, now, &mut ended);
    if !ended.is_empty() {
        instance.end_shuns(&mut ended);
    }
    treatment
}

fn look_up_shunned<P: Packet>(
    instance: &mut Instance<P>,
    burst: &Burst<P>,
    here: Packets,
    now: Time,
) -> Shunned {
    let mut treated = Shunned::default();
    let Some(shunned) = &mut instance.shunned else {
        return treated;
    };
    let mut ended = ArrayVec::new();
    for index in bits(here) {
        match shunned.action(&burst[index], now, &mut ended) {
            None => {}
            Some((ShunAction::Pass, _)) => treated.passed |= 1 << index,
            Some((ShunAction::Drop, _)) => treated.dropped |= 1 << index,
        }
    }
    let counters = &instance.counters;
    counters.shunned_passed.add(treated.passed.count_ones().into());
    counters.shunned_dropped.add(treated.dropped.count_ones().into());
    if !ended.is_empty() {
        instance.end_shuns(&mut ended);
    }
    treated
}
