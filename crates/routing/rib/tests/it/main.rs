//! The RIB by its events: the kernel's rules, FPM, dumps, and a slow model.

mod fpm;
mod hosts;
mod kernel_rules;
mod properties;
mod sweeps;
mod world;
