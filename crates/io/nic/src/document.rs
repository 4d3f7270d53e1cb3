//! The documents that are written from the tables of this crate: a SystemVerilog package for the hardware, and
//! docs/nic-interface.md, from which others can write a driver.

mod markdown;
mod verilog;

pub use markdown::markdown;
pub use verilog::package;

/// Path of the SystemVerilog package in the repository.
pub const PACKAGE: &str = "rtl/pkg/millrace_nic_pkg.sv";
/// Path of the page in the repository.
pub const PAGE: &str = "docs/nic-interface.md";
