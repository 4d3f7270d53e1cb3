//! A function in a module: copies packets in, checks the results, and copies packets out.

use core::ops::Range;

use millrace_nf::{Buffer, Context, Counters, Function, Setup, Verdict, give_up};
use millrace_types::Time;
use wasmtime::{Memory, Module, Store, StoreLimits, TypedFunc, WasmParams, WasmResults};

use super::clock::{EpochTicker, TimeLimits};
use super::instance::{Instantiated, MAKE_FUEL, instantiate, reason};

/// The largest burst.
const BURST: usize = 64;
/// Bytes of a packet's descriptor.
const DESCRIPTOR: usize = 24;
/// Free bytes in front of a packet.
const HEADROOM: usize = 128;
/// Bytes of the burst buffer: 64 frames of 1518 bytes, or one of any size.
const BURST_BUFFER: usize = 128 << 10;

/// The default fuel for a burst: some hundred microseconds.
const FUEL: u64 = 1_000_000;

/// A function in a module.
pub(super) struct WasmFunction {
    store: Store<StoreLimits>,
    memory: Memory,
    process: TypedFunc<(u32, u64, u32), ()>,
    tick: Option<TypedFunc<u64, ()>>,
    /// The offsets of the burst buffer in the module's memory.
    burst_buffer: Range<usize>,
    counters: Counters,
    /// The offset of the counters in the module's memory.
    counters_at: usize,
    /// The fuel for a burst.
    fuel: u64,
    time: TimeLimits,
    /// True if the function's description declares that the function writes to packets.
    writes: bool,
    _ticker: EpochTicker,
}

fn number(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(4 * at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

impl WasmFunction {
    pub(super) fn new(module: &Module, setup: &Setup, writes: bool) -> Result<WasmFunction, String> {
        let ticker = EpochTicker::new(module.engine());
        let mut instance = instantiate(module, &setup.limits)?;
        let texts: Vec<String> = setup.settings.texts().collect();
        let text = texts.join("\n");
        let size = u32::try_from(text.len()).map_err(|_| "its settings are too long")?;
        let at: u32 = instance.call("millrace_nf_text", size)?;
        let range = within(&instance, at, text.len())?;
        instance.memory.data_mut(&mut instance.store)[range].copy_from_slice(text.as_bytes());
        let failure: u64 = instance.call("millrace_nf_make", (size, setup.seed, setup.zero_unix_millis))?;
        if failure != 0 {
            return Err(instance.text(failure)?);
        }
        let at: u32 = instance.call("millrace_nf_room", BURST_BUFFER as u32)?;
        let burst_buffer = within(&instance, at, BURST_BUFFER)?;
        let at: u32 = instance.call("millrace_nf_counters", ())?;
        let counters_at = within(&instance, at, 8 * setup.counters.len())?.start;
        let process = instance.function("millrace_nf_process")?;
        let tick = instance.function("millrace_nf_tick").ok();
        Ok(WasmFunction {
            memory: instance.memory,
            store: instance.store,
            process,
            tick,
            burst_buffer,
            counters: setup.counters.clone(),
            counters_at,
            fuel: setup.limits.fuel.unwrap_or(FUEL),
            time: instance.time,
            writes,
            _ticker: ticker,
        })
    }

    /// Sets fuel and time for a call.
    #[inline]
    fn prepare(&mut self) {
        // `set_fuel` fails only if the engine does not count fuel.
        let _counted = self.store.set_fuel(self.fuel);
        self.store.set_epoch_deadline(self.time.burst);
    }

    /// Copies as many packets in as the burst buffer holds. Returns their number, and the offsets of their slots in `starts`.
    fn give(&mut self, burst: &[&mut dyn Buffer], starts: &mut [usize; BURST]) -> usize {
        let (mut len, mut used) = (0, 0);
        for packet in burst.iter().take(BURST) {
            used += DESCRIPTOR + slot_size(packet.head().len());
            if used > BURST_BUFFER {
                break;
            }
            len += 1;
        }
        let memory = self.memory.data_mut(&mut self.store);
        let Some(buffer) = memory.get_mut(self.burst_buffer.clone()) else {
            give_up("its burst buffer is no longer within its memory");
        };
        let (descriptors, slots) = buffer.split_at_mut(len * DESCRIPTOR);
        let mut at = 0;
        let given = burst.iter().zip(descriptors.chunks_exact_mut(DESCRIPTOR));
        for ((packet, descriptor), start) in given.zip(starts) {
            let head = packet.head();
            let size = slot_size(head.len());
            // The last two numbers are the verdict `Next`.
            let numbers = [size, HEADROOM, head.len(), packet.len(), 0, 0];
            descriptor.copy_from_slice(numbers.map(|number| (number as u32).to_le_bytes()).as_flattened());
            slots[at + HEADROOM..at + HEADROOM + head.len()].copy_from_slice(head);
            *start = at;
            at += size;
        }
        len
    }

    /// Applies the module's verdicts and changes to packets.
    fn take(&mut self, burst: &mut [&mut dyn Buffer], starts: &[usize; BURST], verdicts: &mut [Verdict]) {
        let Some(buffer) = self.memory.data(&self.store).get(self.burst_buffer.clone()) else {
            give_up("its burst buffer is no longer within its memory");
        };
        let (descriptors, slots) = buffer.split_at(burst.len() * DESCRIPTOR);
        let answers = descriptors.chunks_exact(DESCRIPTOR).zip(starts);
        for ((packet, verdict), (descriptor, slot)) in burst.iter_mut().zip(verdicts).zip(answers) {
            let (start, size) = (number(descriptor, 1) as usize, number(descriptor, 2) as usize);
            let end = HEADROOM + packet.head().len();
            if start.checked_add(size) != Some(end) {
                give_up(format!(
                    "it reports a packet of {size} bytes at {start}, which does not end at {end}"
                ));
            }
            let (what, operand) = (number(descriptor, 4), number(descriptor, 5));
            let Some(result) = Verdict::from_raw(what, operand) else {
                give_up(format!(
                    "it returned the unknown verdict {what} with operand {operand}"
                ));
            };
            *verdict = result;
            if !self.writes {
                if start != HEADROOM {
                    give_up("it changed the size of a packet, although it declares `writes 0`");
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
            // A packet that cannot grow as the module says is dropped.
            match changed && packet.head().len() == size {
                true => packet
                    .head_mut()
                    .copy_from_slice(&slots[slot + start..slot + end]),
                false => *verdict = Verdict::Drop,
            }
        }
    }
}

/// Returns the bytes of a packet's slot.
fn slot_size(head: usize) -> usize {
    (HEADROOM + head).next_multiple_of(64)
}

/// Returns the range of `size` bytes at an address that a module has returned, if it is within the module's memory.
fn within(instance: &Instantiated, at: u32, size: usize) -> Result<Range<usize>, String> {
    let (at, memory) = (at as usize, instance.memory.data_size(&instance.store));
    match at + size <= memory {
        true => Ok(at..at + size),
        false => Err(format!(
            "{size} bytes at {at} are not within its memory of {memory}"
        )),
    }
}

impl Instantiated {
    fn function<P: WasmParams, R: WasmResults>(&mut self, name: &str) -> Result<TypedFunc<P, R>, String> {
        let function = self.instance.get_typed_func(&mut self.store, name);
        function.map_err(|error| format!("it is no network function: {error:#}"))
    }

    fn call<P: WasmParams, R: WasmResults>(&mut self, name: &str, parameters: P) -> Result<R, String> {
        let function = self.function::<P, R>(name)?;
        let result = function.call(&mut self.store, parameters);
        result.map_err(|error| format!("{name}: {}", reason(&error, MAKE_FUEL, self.time)))
    }
}

impl Function for WasmFunction {
    fn process(&mut self, context: &Context, burst: &mut [&mut dyn Buffer], verdicts: &mut [Verdict]) {
        let mut from = 0;
        let mut starts = [0; BURST];
        while from < burst.len() {
            let len = self.give(&burst[from..], &mut starts);
            if len == 0 {
                // The packet exceeds the burst buffer.
                verdicts[from] = Verdict::Drop;
                from += 1;
                continue;
            }
            self.prepare();
            let parameters = (len as u32, context.now.nanos(), context.direction.to_raw());
            if let Err(error) = self.process.call(&mut self.store, parameters) {
                give_up(reason(&error, self.fuel, self.time));
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
            give_up(reason(&error, self.fuel, self.time));
        }
        let counters = self.memory.data(&self.store).get(self.counters_at..);
        for index in 0..self.counters.len() {
            let value = counters.and_then(|bytes| bytes.get(8 * index..)?.first_chunk());
            self.counters
                .set(index, value.map_or(0, |value| u64::from_le_bytes(*value)));
        }
    }
}
