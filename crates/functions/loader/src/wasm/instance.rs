//! Instances of a module, with bounds on memory, fuel and time.

use millrace_nf::Limits;
use wasmtime::{Instance, Memory, Module, Store, StoreLimits, StoreLimitsBuilder, Trap};

use super::clock::TimeLimits;

/// Fuel for creating a function, which fills its tables.
pub(super) const MAKE_FUEL: u64 = 2_000_000_000;
/// The default memory limit, in bytes.
const MEMORY: u64 = 64 << 20;
/// Limit of the entries of a table.
const TABLE_MAX: usize = 100_000;

/// An instance of a module.
pub(super) struct Instantiated {
    pub(super) store: Store<StoreLimits>,
    pub(super) instance: Instance,
    pub(super) memory: Memory,
    pub(super) time: TimeLimits,
}

/// Instantiates a module with memory, fuel and time for its start.
pub(super) fn instantiate(module: &Module, limits: &Limits) -> Result<Instantiated, String> {
    let bounds = StoreLimitsBuilder::new()
        .memory_size(usize::try_from(limits.memory.unwrap_or(MEMORY)).unwrap_or(usize::MAX))
        .table_elements(TABLE_MAX)
        .instances(1)
        .memories(1)
        .tables(4)
        .build();
    let mut store = Store::new(module.engine(), bounds);
    store.limiter(|bounds| bounds);
    let time = TimeLimits::new(limits);
    let wrong =
        |error: wasmtime::Error| format!("it cannot be instantiated: {}", reason(&error, MAKE_FUEL, time));
    store.set_fuel(MAKE_FUEL).map_err(wrong)?;
    store.set_epoch_deadline(time.make);
    let instance = Instance::new(&mut store, module, &[]).map_err(wrong)?;
    let memory = instance
        .get_memory(&mut store, "memory")
        .ok_or("it is no network function: it exports no `memory`")?;
    Ok(Instantiated {
        store,
        instance,
        memory,
        time,
    })
}

impl Instantiated {
    /// Returns a text of the module. The low half of `location` is its address, the high half is its size.
    pub(super) fn text(&self, location: u64) -> Result<String, String> {
        let (at, size) = ((location & 0xffff_ffff) as usize, (location >> 32) as usize);
        let bytes = self.memory.data(&self.store).get(at..at + size);
        let bytes =
            bytes.ok_or_else(|| format!("a text of {size} bytes at {at} is not within its memory"))?;
        // Valid texts are shorter.
        Ok(String::from_utf8_lossy(&bytes[..size.min(64 * 1024)]).into_owned())
    }
}

/// Returns the reason why a call failed.
#[cold]
pub(super) fn reason(error: &wasmtime::Error, fuel: u64, time: TimeLimits) -> String {
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => format!("it took more than its {fuel} units of fuel"),
        Some(Trap::Interrupt) => format!("it took longer than {time}"),
        Some(trap) => trap.to_string(),
        None => format!("{error:#}"),
    }
}
