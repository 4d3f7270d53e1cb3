//! A function in a module: packets in, verdicts out, and nothing believed.

use core::ops::Range;

use millrace_nf::{Buffer, Context, Counters, Function, Setup, Verdict, give_up};
use millrace_types::Time;
use wasmtime::{Memory, Module, Store, StoreLimits, Trap, TypedFunc, WasmParams, WasmResults};

use super::clock::{BURST_EPOCHS, BURST_MILLIS, Ticking};
use super::module::{Made, instantiate};

/// Packets of a burst.
const BURST: usize = 64;
/// Bytes of a description.
const DESCRIPTION: usize = 24;
/// Free bytes in front of a packet.
const HEADROOM: usize = 128;
/// Bytes of the room for a burst: 64 frames of 1518 bytes, or one of any size.
const ROOM: usize = 128 << 10;

/// Fuel for a burst, unless the operator says so: some hundred thousand nanoseconds.
const FUEL: u64 = 1_000_000;

/// A function in a module.
pub(super) struct WasmFunction {
    store: Store<StoreLimits>,
    memory: Memory,
    process: TypedFunc<(u32, u64, u32), ()>,
    tick: Option<TypedFunc<u64, ()>>,
    room: Range<usize>,
    counters: Counters,
    /// Where the module has them.
    counts: usize,
    fuel: u64,
    /// Whether it says that it writes into packets.
    writes: bool,
    _ticking: Ticking,
}

/// Why a call came to no end.
#[cold]
pub(super) fn reason(error: &wasmtime::Error, fuel: u64) -> String {
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => format!("it took more than its {fuel} units of fuel"),
        Some(Trap::Interrupt) => {
            format!("it took longer than {BURST_MILLIS} ms over a burst, or 2 s to begin")
        }
        Some(trap) => trap.to_string(),
        None => format!("{error:#}"),
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(4 * at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

impl WasmFunction {
    pub(super) fn new(module: &Module, setup: &Setup, writes: bool) -> Result<WasmFunction, String> {
        let ticking = Ticking::new(module.engine());
        let mut made = instantiate(module, &setup.limits)?;
        let texts: Vec<String> = setup.settings.texts().collect();
        let text = texts.join("\n");
        let size = u32::try_from(text.len()).map_err(|_| "its settings are too long")?;
        let at: u32 = made.call("millrace_nf_text", size)?;
        let range = within(&made, at, text.len())?;
        made.memory.data_mut(&mut made.store)[range].copy_from_slice(text.as_bytes());
        let refused: u64 = made.call("millrace_nf_make", (size, setup.seed, setup.zero_unix_millis))?;
        if refused != 0 {
            return Err(made.text(refused)?);
        }
        let at: u32 = made.call("millrace_nf_room", ROOM as u32)?;
        let room = within(&made, at, ROOM)?;
        let at: u32 = made.call("millrace_nf_counters", ())?;
        let counts = within(&made, at, 8 * setup.counters.len())?.start;
        let process = made.function("millrace_nf_process")?;
        let tick = made.function("millrace_nf_tick").ok();
        Ok(WasmFunction {
            memory: made.memory,
            store: made.store,
            process,
            tick,
            room,
            counters: setup.counters.clone(),
            counts,
            fuel: setup.limits.fuel.unwrap_or(FUEL),
            writes,
            _ticking: ticking,
        })
    }

    /// Fuel and time for a call.
    #[inline]
    fn prepare(&mut self) {
        // The engine counts fuel, so that this cannot be refused.
        let _counted = self.store.set_fuel(self.fuel);
        self.store.set_epoch_deadline(BURST_EPOCHS);
    }

    /// Copies as many packets in as there is room for. Returns how many.
    fn give(&mut self, burst: &[&mut dyn Buffer], starts: &mut [usize; BURST]) -> usize {
        let (mut len, mut used) = (0, 0);
        for packet in burst.iter().take(BURST) {
            used += DESCRIPTION + place_size(packet.head().len());
            if used > ROOM {
                break;
            }
            len += 1;
        }
        let memory = self.memory.data_mut(&mut self.store);
        let Some(room) = memory.get_mut(self.room.clone()) else {
            give_up("its room for bursts is no longer within its memory");
        };
        let (descriptions, places) = room.split_at_mut(len * DESCRIPTION);
        let mut at = 0;
        let given = burst.iter().zip(descriptions.chunks_exact_mut(DESCRIPTION));
        for ((packet, description), start) in given.zip(starts) {
            let head = packet.head();
            let size = place_size(head.len());
            // The last two are the verdict: on to the next hop, unless the function says otherwise.
            let numbers = [size, HEADROOM, head.len(), packet.len(), 0, 0];
            description.copy_from_slice(numbers.map(|number| (number as u32).to_le_bytes()).as_flattened());
            places[at + HEADROOM..at + HEADROOM + head.len()].copy_from_slice(head);
            *start = at;
            at += size;
        }
        len
    }

    /// Does to packets what the module did to its copies.
    fn take(&mut self, burst: &mut [&mut dyn Buffer], starts: &[usize; BURST], verdicts: &mut [Verdict]) {
        let Some(room) = self.memory.data(&self.store).get(self.room.clone()) else {
            give_up("its room for bursts is no longer within its memory");
        };
        let (descriptions, places) = room.split_at(burst.len() * DESCRIPTION);
        let answers = descriptions.chunks_exact(DESCRIPTION).zip(starts);
        for ((packet, verdict), (description, place)) in burst.iter_mut().zip(verdicts).zip(answers) {
            let (start, size) = (number(description, 1) as usize, number(description, 2) as usize);
            let end = HEADROOM + packet.head().len();
            if start.checked_add(size) != Some(end) {
                give_up(format!(
                    "it lies about a packet: {size} bytes at {start}, where it ended at {end}"
                ));
            }
            let (what, operand) = (number(description, 4), number(description, 5));
            let Some(said) = Verdict::from_raw(what, operand) else {
                give_up(format!("verdict {what} with {operand}, which is none"));
            };
            *verdict = said;
            if !self.writes {
                if start != HEADROOM {
                    give_up("it changed the size of a packet, and says that it writes nothing");
                }
                continue;
            }
            let changed = match HEADROOM.checked_sub(start) {
                Some(growth) => packet.prepend(growth).is_ok(),
                None => {
                    packet.trim_front(start - HEADROOM);
                    true
                }
            };
            // One that cannot become what it should be goes nowhere.
            match changed && packet.head().len() == size {
                true => packet
                    .head_mut()
                    .copy_from_slice(&places[place + start..place + end]),
                false => *verdict = Verdict::Drop,
            }
        }
    }
}

/// Bytes that a packet takes in the room.
fn place_size(head: usize) -> usize {
    (HEADROOM + head).next_multiple_of(64)
}

/// A range of a module's memory that it has told the beginning of.
fn within(made: &Made, at: u32, size: usize) -> Result<Range<usize>, String> {
    let (at, memory) = (at as usize, made.memory.data_size(&made.store));
    match at + size <= memory {
        true => Ok(at..at + size),
        false => Err(format!(
            "{size} bytes at {at} are not within its memory of {memory}"
        )),
    }
}

impl Made {
    fn function<P: WasmParams, R: WasmResults>(&mut self, name: &str) -> Result<TypedFunc<P, R>, String> {
        let function = self.instance.get_typed_func(&mut self.store, name);
        function.map_err(|error| format!("it is no network function: {error:#}"))
    }

    fn call<P: WasmParams, R: WasmResults>(&mut self, name: &str, parameters: P) -> Result<R, String> {
        let function = self.function::<P, R>(name)?;
        let result = function.call(&mut self.store, parameters);
        result.map_err(|error| format!("{name}: {}", reason(&error, u64::MAX)))
    }
}

impl Function for WasmFunction {
    fn process(&mut self, context: &Context, burst: &mut [&mut dyn Buffer], verdicts: &mut [Verdict]) {
        let mut from = 0;
        let mut starts = [0; BURST];
        while from < burst.len() {
            let len = self.give(&burst[from..], &mut starts);
            if len == 0 {
                // Longer than any frame.
                verdicts[from] = Verdict::Drop;
                from += 1;
                continue;
            }
            self.prepare();
            let parameters = (len as u32, context.now.nanos(), context.direction.to_raw());
            if let Err(error) = self.process.call(&mut self.store, parameters) {
                give_up(reason(&error, self.fuel));
            }
            let to = from + len;
            self.take(&mut burst[from..to], &starts, &mut verdicts[from..to]);
            from = to;
        }
    }

    fn tick(&mut self, now: Time) {
        self.prepare();
        if let Some(tick) = &self.tick
            && let Err(error) = tick.call(&mut self.store, now.nanos())
        {
            give_up(reason(&error, self.fuel));
        }
        let counts = self.memory.data(&self.store).get(self.counts..);
        for place in 0..self.counters.len() {
            let value = counts.and_then(|bytes| bytes.get(8 * place..)?.first_chunk());
            self.counters
                .set(place, value.map_or(0, |value| u64::from_le_bytes(*value)));
        }
    }
}
