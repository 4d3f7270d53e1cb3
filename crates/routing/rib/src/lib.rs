//! Routes from the kernel and from FPM as changes of the FIB, without IO or clock.

#![forbid(unsafe_code)]
