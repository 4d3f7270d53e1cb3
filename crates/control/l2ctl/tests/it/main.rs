//! Scenarios in virtual time: systems that exchange frames over simulated links.

mod lacp;
mod rstp;
