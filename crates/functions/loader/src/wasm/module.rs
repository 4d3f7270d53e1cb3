//! A module as a kind of function.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use millrace_nf::{Description, Function, Kind, Limits, Setup};
use wasmtime::{Instance, Memory, Module, Store, StoreLimits, StoreLimitsBuilder};

use super::clock::{self, MAKE_EPOCHS};
use super::function::WasmFunction;
use crate::cache::{Cache, open_any};

/// Bytes of a module.
const SIZE_MAX: u64 = 16 << 20;
/// Fuel for a function to be made, which fills its tables.
const MAKE_FUEL: u64 = 2_000_000_000;
/// Bytes of memory, unless the operator says so.
const MEMORY: u64 = 64 << 20;
/// Entries of the table of functions.
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

/// A module with its memory.
pub(super) struct Made {
    pub(super) store: Store<StoreLimits>,
    pub(super) instance: Instance,
    pub(super) memory: Memory,
}

/// Gives a module its memory, and fuel and time for what it does at first.
pub(super) fn instantiate(module: &Module, limits: &Limits) -> Result<Made, String> {
    let bounds = StoreLimitsBuilder::new()
        .memory_size(usize::try_from(limits.memory.unwrap_or(MEMORY)).unwrap_or(usize::MAX))
        .table_elements(TABLE_MAX)
        .instances(1)
        .memories(1)
        .tables(4)
        .build();
    let mut store = Store::new(module.engine(), bounds);
    store.limiter(|bounds| bounds);
    let wrong =
        |error: wasmtime::Error| format!("it cannot begin: {}", super::function::reason(&error, MAKE_FUEL));
    store.set_fuel(MAKE_FUEL).map_err(wrong)?;
    store.set_epoch_deadline(MAKE_EPOCHS);
    let instance = Instance::new(&mut store, module, &[]).map_err(wrong)?;
    let memory = instance
        .get_memory(&mut store, "memory")
        .ok_or("it is no network function: it exports no `memory`")?;
    Ok(Made {
        store,
        instance,
        memory,
    })
}

impl Made {
    /// A text that the module has told the place of: the address in the low half, the size in the high one.
    pub(super) fn text(&self, place: u64) -> Result<String, String> {
        let (at, size) = ((place & 0xffff_ffff) as usize, (place >> 32) as usize);
        let bytes = self.memory.data(&self.store).get(at..at + size);
        let bytes =
            bytes.ok_or_else(|| format!("a text of {size} bytes at {at} is not within its memory"))?;
        // What is longer says nothing that anybody reads.
        Ok(String::from_utf8_lossy(&bytes[..size.min(64 * 1024)]).into_owned())
    }
}

fn describe(module: &Module) -> Result<Description, String> {
    let _ticking = clock::Ticking::new(module.engine());
    let mut made = instantiate(module, &Limits::default())?;
    let call = made
        .instance
        .get_typed_func::<(), u64>(&mut made.store, "millrace_nf_describe");
    let call = call.map_err(|error| format!("it is no network function: {error:#}"))?;
    let place = call.call(&mut made.store, ());
    let place = place.map_err(|error| super::function::reason(&error, MAKE_FUEL))?;
    Description::parse(&made.text(place)?).map_err(|error| error.to_string())
}
