//! A WebAssembly module as a kind of function.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use millrace_nf::{Description, Function, Kind, Limits, Setup};
use wasmtime::Module;

use super::clock;
use super::function::WasmFunction;
use super::instance::{MAKE_FUEL, instantiate, reason};
use crate::cache::{Cache, open_any};

/// Size limit of a module, in bytes.
const SIZE_MAX: u64 = 16 << 20;

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

fn describe(module: &Module) -> Result<Description, String> {
    let _ticker = clock::EpochTicker::new(module.engine());
    let mut instance = instantiate(module, &Limits::default())?;
    let call = instance
        .instance
        .get_typed_func::<(), u64>(&mut instance.store, "millrace_nf_describe");
    let call = call.map_err(|error| format!("it is no network function: {error:#}"))?;
    let location = call.call(&mut instance.store, ());
    let location = location.map_err(|error| reason(&error, MAKE_FUEL, instance.time))?;
    Description::parse(&instance.text(location)?).map_err(|error| error.to_string())
}
