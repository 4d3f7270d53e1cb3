//! The messages of gNMI 0.10.0 and the trait of its service, as prost and tonic generate them (`proto/generate.sh`).

/// Extensions of messages.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "generated code"
)]
pub mod gnmi_ext {
    include!("generated/gnmi_ext.rs");
}

/// Messages and service.
#[allow(
    missing_docs,
    unreachable_pub,
    deprecated,
    clippy::all,
    clippy::pedantic,
    clippy::semicolon_if_nothing_returned,
    reason = "generated code"
)]
pub mod gnmi {
    include!("generated/gnmi.rs");
}
