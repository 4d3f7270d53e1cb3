//! The C library of transfers: `include/millrace.h` says what each function does.
//!
//! ```text
//!   C ── pointers ──> ffi (unsafe) ── references, texts ──> transfer (safe) ──> millrace_courier::Session
//! ```

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "pointers of C; listed in ARCHITECTURE.md")]
mod ffi;
mod transfer;
