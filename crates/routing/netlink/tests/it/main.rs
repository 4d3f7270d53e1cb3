//! The kernel, FRR and BIRD as peers, in network namespaces of the tests' threads. The tests need root; without it they print a
//! line and pass.

mod bed;
mod damage;
mod fpm;
mod frr;
mod kernel;
mod oracle;
mod overrun;
mod settings;
mod shadow;
