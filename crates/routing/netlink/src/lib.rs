//! Links, addresses, neighbours and routes of the kernel by netlink; routes of FRR by FPM.

#![forbid(unsafe_code)]
