//! A function in a WebAssembly module: what [`export!`](crate::export) makes of it.
//!
//! # The interface, version 1
//! A module imports nothing, and exports `memory` and these functions; numbers in memory are little-endian.
//!
//! | export | what |
//! | --- | --- |
//! | `millrace_nf_describe() -> i64` | where its description is (see `describe.rs`): the address in the low half, the size in the high one |
//! | `millrace_nf_text(size: i32) -> i32` | room for a text of that size |
//! | `millrace_nf_make(size: i32, seed: i64, zero_unix_millis: i64) -> i64` | makes the function with the settings in that room, a line each: 0, or where the reason is why not |
//! | `millrace_nf_room(size: i32) -> i32` | room for bursts, of that size |
//! | `millrace_nf_counters() -> i32` | where its counters are, eight bytes each |
//! | `millrace_nf_process(packets: i32, now: i64, direction: i32)` | has it look at the burst in the room; direction 0 is forward |
//! | `millrace_nf_tick(now: i64)` | tells it the time, in nanoseconds; may be missing |
//!
//! The room of a burst holds a description of 24 bytes for each packet, then their places, in the same order. A
//! description is six numbers of four bytes: the size of the place; where in it the packet begins; its bytes there; its
//! bytes in all segments; its verdict and the operand of that ([`Verdict::to_raw`](crate::Verdict::to_raw)). The function
//! writes the second, the third, and the last two; a packet ends where it ended.

use std::cell::RefCell;

use arrayvec::ArrayVec;
use millrace_types::Time;

use crate::describe::Description;
use crate::function::{Context, Direction, Function};
use crate::kind::{Kind, Setup};
use crate::settings::Settings;
use crate::slot::{BURST, Slot};

/// Bytes of a description.
const DESCRIPTION: usize = 24;

/// What a module holds. The switch writes into `text` and `room` between calls.
#[derive(Default)]
struct Guest {
    text: Vec<u8>,
    room: Vec<u8>,
    made: Option<(Box<dyn Function>, Setup)>,
}

thread_local! {
    static GUEST: RefCell<Guest> = RefCell::default();
}

/// Where a text is, that stays.
fn place_of(text: String) -> u64 {
    let text = text.leak();
    text.as_ptr() as u64 | (text.len() as u64) << 32
}

/// Where the description of the function is.
pub fn describe(kind: &Kind) -> u64 {
    place_of(Description::from(kind).to_string())
}

/// Room for a text.
pub fn text(size: u32) -> u32 {
    GUEST.with_borrow_mut(|guest| {
        guest.text = vec![0; size as usize];
        guest.text.as_mut_ptr() as u32
    })
}

/// Makes the function: 0, or where the reason is why not.
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
                guest.made = Some(made);
                0
            }
            Err::<_, String>(reason) => place_of(reason),
        }
    })
}

/// Room for bursts.
pub fn room(size: u32) -> u32 {
    GUEST.with_borrow_mut(|guest| {
        guest.room = vec![0; size as usize];
        guest.room.as_mut_ptr() as u32
    })
}

/// Where the counters are; 0 before there is a function.
pub fn counters() -> u32 {
    GUEST.with_borrow(|guest| {
        let made = guest.made.as_ref();
        made.map_or(0, |(_, setup)| setup.counters.place() as u32)
    })
}

/// Has the function look at the burst in the room.
pub fn process(packets: u32, now: u64, direction: u32) {
    GUEST.with_borrow_mut(|guest| {
        let Guest { room, made, .. } = guest;
        let Some((function, _)) = made else { return };
        let packets = (packets as usize).min(BURST);
        let Some((descriptions, mut places)) = room.split_at_mut_checked(packets * DESCRIPTION) else {
            return;
        };
        let mut slots = ArrayVec::<Slot<'_>, BURST>::new();
        for description in descriptions.chunks_exact(DESCRIPTION) {
            let number = |at: usize| -> usize {
                let bytes = description.get(4 * at..).and_then(<[u8]>::first_chunk);
                bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize
            };
            let size = number(0).min(places.len());
            let (place, rest) = core::mem::take(&mut places).split_at_mut(size);
            places = rest;
            slots.push(Slot::new(place, number(1), number(2), number(3)));
        }
        let context = Context {
            now: Time::from_nanos(now),
            direction: Direction::from_raw(direction),
        };
        let verdicts = Slot::process(&mut slots, &mut **function, &context);
        let answers = slots.iter().map(Slot::bounds).zip(verdicts);
        for (description, ((start, size), verdict)) in descriptions.chunks_exact_mut(DESCRIPTION).zip(answers)
        {
            let (what, operand) = verdict.to_raw();
            for (at, number) in [(1, start as u32), (2, size as u32), (4, what), (5, operand)] {
                if let Some(bytes) = description.get_mut(4 * at..4 * at + 4) {
                    bytes.copy_from_slice(&number.to_le_bytes());
                }
            }
        }
    });
}

/// Tells the function the time.
pub fn tick(now: u64) {
    GUEST.with_borrow_mut(|guest| {
        if let Some((function, _)) = &mut guest.made {
            function.tick(Time::from_nanos(now));
        }
    });
}
