//! A WebAssembly module as a kind of function.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use millrace_nf::{Description, Function, Kind, Limits, Setup};
use wasmtime::{Instance, Memory, Module, Store, StoreLimits, StoreLimitsBuilder};

use super::clock::{self, MAKE_EPOCHS};
use super::function::WasmFunction;
use crate::cache::{Cache, open_any};

/// Size limit of a module, in bytes.
const SIZE_MAX: u64 = 16 << 20;
/// Fuel for creating a function, which fills its tables.
pub(super) const MAKE_FUEL: u64 = 2_000_000_000;
/// The default memory limit, in bytes.
const MEMORY: u64 = 64 << 20;
/// Limit of the entries of a table.
const TABLE_MAX: usize = 100_000;

static CACHE: Cache = Cache::new();

/// Returns the kind of function that a file holds.
pub(crate) fn load(path: &Path) -> Result<&'static Kind, String> {
    CACHE.find(path, open_any, |file, size| {
        if size > SIZE_MAX {
            return Err(format!("a module of {size} bytes: expected {SIZE_MAX} at most"));
        }
        let mut bytes = Vec::new();
        let read = File::from(file).take(SIZE_MAX).read_to_end(&mut bytes);
        read.map_err(|error| format!("cannot be read: {error}"))?;
        from_bytes(&bytes)
    })
}

fn from_bytes(bytes: &[u8]) -> Result<&'static Kind, String> {
    if !bytes.starts_with(b"\0asm") {
        return Err("not a WebAssembly module: expected one built for wasm32-unknown-unknown".to_owned());
    }
    let engine = clock::engine()?;
    let module = Module::from_binary(engine, bytes).map_err(|error| format!("not a module: {error:#}"))?;
    if let Some(import) = module.imports().next() {
        return Err(format!(
            "it imports `{}.{}`: expected a module that imports nothing",
            import.module(),
            import.name()
        ));
    }
    let description = describe(&module)?;
    let writes = description.writes != millrace_nf::Access::NONE;
    Ok(description.into_kind(Box::new(move |setup: &Setup| {
        let function = WasmFunction::new(&module, setup, writes);
        let function = function.map_err(|reason| millrace_nf::SettingError::Refused { reason })?;
        Ok(Box::new(function) as Box<dyn Function>)
    })))
}

/// An instance of a module.
pub(super) struct Instantiated {
    pub(super) store: Store<StoreLimits>,
    pub(super) instance: Instance,
    pub(super) memory: Memory,
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
    let wrong = |error: wasmtime::Error| {
        format!(
            "it cannot be instantiated: {}",
            super::function::reason(&error, MAKE_FUEL)
        )
    };
    store.set_fuel(MAKE_FUEL).map_err(wrong)?;
    store.set_epoch_deadline(MAKE_EPOCHS);
    let instance = Instance::new(&mut store, module, &[]).map_err(wrong)?;
    let memory = instance
        .get_memory(&mut store, "memory")
        .ok_or("it is no network function: it exports no `memory`")?;
    Ok(Instantiated {
        store,
        instance,
        memory,
    })
}

impl Instantiated {
    /// Returns a text of the module, whose address is in the low half and whose size is in the high half of `location`.
    pub(super) fn text(&self, location: u64) -> Result<String, String> {
        let (at, size) = ((location & 0xffff_ffff) as usize, (location >> 32) as usize);
        let bytes = self.memory.data(&self.store).get(at..at + size);
        let bytes =
            bytes.ok_or_else(|| format!("a text of {size} bytes at {at} is not within its memory"))?;
        // All valid texts are shorter.
        Ok(String::from_utf8_lossy(&bytes[..size.min(64 * 1024)]).into_owned())
    }
}

fn describe(module: &Module) -> Result<Description, String> {
    let _ticker = clock::EpochTicker::new(module.engine());
    let mut instance = instantiate(module, &Limits::default())?;
    let call = instance
        .instance
        .get_typed_func::<(), u64>(&mut instance.store, "millrace_nf_describe");
    let call = call.map_err(|error| format!("it is no network function: {error:#}"))?;
    let location = call.call(&mut instance.store, ());
    let location = location.map_err(|error| super::function::reason(&error, MAKE_FUEL))?;
    Description::parse(&instance.text(location)?).map_err(|error| error.to_string())
}
