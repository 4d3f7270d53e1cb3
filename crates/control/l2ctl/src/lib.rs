//! LACP, RSTP and LLDP, without IO or clock.

#![forbid(unsafe_code)]
