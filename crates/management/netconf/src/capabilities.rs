//! The capabilities of the server (RFC 6241, section 8), and the namespaces of the modules that it implements.

use millrace_yang::{MODULE, NAMESPACE, REVISION};

use crate::notification;

/// The capability of version 1.0.
pub const BASE_1_0: &str = "urn:ietf:params:netconf:base:1.0";
/// The capability of version 1.1.
pub const BASE_1_1: &str = "urn:ietf:params:netconf:base:1.1";
/// The namespace of with-defaults (RFC 6243, section 5).
pub(crate) const WITH_DEFAULTS: &str = "urn:ietf:params:xml:ns:yang:ietf-netconf-with-defaults";
/// The namespace of ietf-netconf-monitoring.
pub(crate) const MONITORING: &str = "urn:ietf:params:xml:ns:yang:ietf-netconf-monitoring";
/// The namespace of ietf-yang-library.
pub(crate) const LIBRARY: &str = "urn:ietf:params:xml:ns:yang:ietf-yang-library";

/// Returns the capabilities of the server (RFC 6241, section 8).
pub(crate) fn capabilities() -> Vec<String> {
    let of = |name: &str| format!("urn:ietf:params:netconf:capability:{name}");
    vec![
        BASE_1_0.to_owned(),
        BASE_1_1.to_owned(),
        of("candidate:1.0"),
        of("confirmed-commit:1.1"),
        of("rollback-on-error:1.0"),
        of("validate:1.1"),
        of("xpath:1.0"),
        of("notification:1.0"),
        of("interleave:1.0"),
        of("with-defaults:1.0?basic-mode=trim&also-supported=report-all"),
        of(&format!(
            "yang-library:1.0?revision=2016-06-21&module-set-id={REVISION}"
        )),
        format!("{MONITORING}?module=ietf-netconf-monitoring&revision=2010-10-04"),
        format!("{WITH_DEFAULTS}?module=ietf-netconf-with-defaults&revision=2011-06-01"),
        format!(
            "{}?module=ietf-netconf-notifications&revision=2012-02-06",
            notification::BASE
        ),
        format!("{LIBRARY}?module=ietf-yang-library&revision=2016-06-21"),
        format!("{NAMESPACE}?module={MODULE}&revision={REVISION}"),
    ]
}
