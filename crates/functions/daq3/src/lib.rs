//! The module of Millrace for libdaq 3. libdaq loads this shared object and reads the one symbol that it exports.

#![allow(unsafe_code, reason = "an exported symbol")]

use millrace_daq::v3::Module;

/// The module, under the name that libdaq looks up.
// SAFETY: no other symbol of this program has the name; libdaq reads the value and never writes it.
#[unsafe(no_mangle)]
pub static DAQ_MODULE_DATA: Module = millrace_daq::v3::MODULE;
