//! A function in a WebAssembly module: the code that [`export!`](crate::export) calls.
//!
//! # The interface, version 1
//! A module imports nothing. It exports `memory` and the functions below. Numbers in memory are little-endian. A text is
//! returned as its address in the low half and its size in the high half of an `i64`.
//!
//! | export | function |
//! | --- | --- |
//! | `millrace_nf_describe() -> i64` | returns the description (see `describe.rs`) |
//! | `millrace_nf_text(size: i32) -> i32` | returns the address of a text buffer of that size |
//! | `millrace_nf_make(size: i32, seed: i64, zero_unix_millis: i64) -> i64` | creates the function with the settings in the text buffer, one on each line; returns 0, or the reason of the failure as a text |
//! | `millrace_nf_room(size: i32) -> i32` | returns the address of a burst buffer of that size |
//! | `millrace_nf_counters() -> i32` | returns the address of the counters, eight bytes each |
//! | `millrace_nf_process(packets: i32, now: i64, direction: i32)` | processes the burst in the burst buffer; direction 0 is forward |
//! | `millrace_nf_tick(now: i64)` | reports the time in nanoseconds; optional |
//!
//! The burst buffer holds a descriptor of 24 bytes for each packet, and after them a slot for each packet, in the same
//! order:
//!
//! ```text
//!   0           4        8               12          16        20        24
//!   +-----------+--------+---------------+-----------+---------+---------+
//!   | slot size | offset | first segment | all bytes | verdict | operand |   descriptor
//!   +-----------+--------+---------------+-----------+---------+---------+
//! ```
//! The offset is that of the packet in its slot. The function writes the offset, the size of the first segment, the verdict
//! and its operand ([`Verdict::to_raw`](crate::Verdict::to_raw)); the end of the packet in the slot does not move.

use std::cell::RefCell;

use arrayvec::ArrayVec;
use millrace_types::Time;

use crate::burst::{BURST, Context, Direction};
use crate::describe::Description;
use crate::effects::Effects;
use crate::function::Function;
use crate::kind::{Kind, Setup};
use crate::settings::Settings;
use crate::slot::Slot;

/// Bytes of a descriptor.
const DESCRIPTOR: usize = 24;

/// The state of a module. The switch writes into `text` and `burst` between calls.
#[derive(Default)]
struct Guest {
    text: Vec<u8>,
    burst: Vec<u8>,
    function: Option<(Box<dyn Function>, Setup)>,
}

thread_local! {
    static GUEST: RefCell<Guest> = RefCell::default();
}

/// Returns address and size of a text, whose memory is never freed.
fn address_of(text: String) -> u64 {
    let text = text.leak();
    text.as_ptr() as u64 | (text.len() as u64) << 32
}

/// Returns the description of a kind of function as a text.
pub fn describe(kind: &Kind) -> u64 {
    address_of(Description::from(kind).to_string())
}

/// Returns the address of a text buffer.
pub fn text(size: u32) -> u32 {
    GUEST.with_borrow_mut(|guest| {
        guest.text = vec![0; size as usize];
        guest.text.as_mut_ptr() as u32
    })
}

/// Creates the function. Returns 0, or the reason of the failure as a text.
pub fn make(kind: &'static Kind, size: u32, seed: u64, zero_unix_millis: u64) -> u64 {
    GUEST.with_borrow_mut(|guest| {
        let text = guest.text.get(..size as usize).unwrap_or_default();
        let made = || {
            let text = core::str::from_utf8(text).map_err(|error| error.to_string())?;
            let settings = Settings::parse(text.lines()).map_err(|error| error.to_string())?;
            let setup = kind.setup(&settings, seed, zero_unix_millis);
            let function = kind.make_function(&setup).map_err(|error| error.to_string())?;
            Ok((function, setup))
        };
        match made() {
            Ok(made) => {
                guest.function = Some(made);
                0
            }
            Err::<_, String>(reason) => address_of(reason),
        }
    })
}

/// Returns the address of a burst buffer.
pub fn room(size: u32) -> u32 {
    GUEST.with_borrow_mut(|guest| {
        guest.burst = vec![0; size as usize];
        guest.burst.as_mut_ptr() as u32
    })
}

/// Returns the address of the counters, or 0 before there is a function.
pub fn counters() -> u32 {
    GUEST.with_borrow(|guest| {
        let function = guest.function.as_ref();
        function.map_or(0, |(_, setup)| setup.counters.address() as u32)
    })
}

/// Processes the burst in the burst buffer.
pub fn process(packets: u32, now: u64, direction: u32) {
    GUEST.with_borrow_mut(|guest| {
        let Guest { burst, function, .. } = guest;
        let Some((function, _)) = function else { return };
        let packets = (packets as usize).min(BURST);
        let Some((descriptors, mut memory)) = burst.split_at_mut_checked(packets * DESCRIPTOR) else {
            return;
        };
        let mut slots = ArrayVec::<Slot<'_>, BURST>::new();
        for descriptor in descriptors.chunks_exact(DESCRIPTOR) {
            let number = |at: usize| -> usize {
                let bytes = descriptor.get(4 * at..).and_then(<[u8]>::first_chunk);
                bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize
            };
            let size = number(0).min(memory.len());
            let (slot, rest) = core::mem::take(&mut memory).split_at_mut(size);
            memory = rest;
            slots.push(Slot::new(slot, number(1), number(2), number(3)));
        }
        let context = Context::new(Time::from_nanos(now), Direction::from_raw(direction));
        let verdicts = Slot::process(&mut slots, &mut **function, &context, &mut Effects::refusing());
        let results = slots.iter().map(Slot::bounds).zip(verdicts);
        for (descriptor, ((start, size), verdict)) in descriptors.chunks_exact_mut(DESCRIPTOR).zip(results) {
            let (what, operand) = verdict.to_raw();
            for (at, number) in [(1, start as u32), (2, size as u32), (4, what), (5, operand)] {
                if let Some(bytes) = descriptor.get_mut(4 * at..4 * at + 4) {
                    bytes.copy_from_slice(&number.to_le_bytes());
                }
            }
        }
    });
}

/// Reports the time to the function.
pub fn tick(now: u64) {
    GUEST.with_borrow_mut(|guest| {
        if let Some((function, _)) = &mut guest.function {
            function.tick(Time::from_nanos(now));
        }
    });
}
