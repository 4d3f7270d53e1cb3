//! The capabilities of the server (RFC 6241, section 8), and the namespaces of the modules that it implements.

use millrace_yang::edit::NETCONF;
use millrace_yang::ietf;
use millrace_yang::schema::namespace_of;
use millrace_yang::{MODULE, NAMESPACE, REVISION};

use crate::notification::{self, NOTIFICATION, STREAMS};

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

/// The name of the set of modules: another one after each change of the set.
pub(crate) const MODULE_SET: &str = "millrace-2026-11-29-2";

/// A module of the server.
#[derive(Clone, Copy)]
pub(crate) struct Module {
    pub(crate) name: &'static str,
    pub(crate) revision: &'static str,
    pub(crate) namespace: &'static str,
    pub(crate) features: &'static [&'static str],
    /// False for a module of types alone, which others import.
    pub(crate) is_implemented: bool,
}

/// Returns the modules of the server: its own, those of the protocol, and those of the views.
pub(crate) fn modules() -> impl Iterator<Item = Module> {
    let of_views = ietf::MODULES.iter().map(|known| Module {
        name: known.name,
        revision: known.revision,
        namespace: namespace_of(known.name),
        features: known.features,
        is_implemented: known.is_implemented,
    });
    MODULES.into_iter().chain(of_views)
}

const MODULES: [Module; 8] = [
    module(MODULE, REVISION, NAMESPACE, &[]),
    module(
        "ietf-netconf",
        "2011-06-01",
        NETCONF,
        &[
            "candidate",
            "confirmed-commit",
            "rollback-on-error",
            "validate",
            "xpath",
        ],
    ),
    module("ietf-netconf-monitoring", "2010-10-04", MONITORING, &[]),
    module("ietf-netconf-with-defaults", "2011-06-01", WITH_DEFAULTS, &[]),
    module(
        "ietf-netconf-notifications",
        "2012-02-06",
        notification::BASE,
        &[],
    ),
    module("notifications", "2008-07-14", NOTIFICATION, &[]),
    module("nc-notifications", "2008-07-14", STREAMS, &[]),
    module("ietf-yang-library", "2016-06-21", LIBRARY, &[]),
];

const fn module(
    name: &'static str,
    revision: &'static str,
    namespace: &'static str,
    features: &'static [&'static str],
) -> Module {
    Module {
        name,
        revision,
        namespace,
        features,
        is_implemented: true,
    }
}

impl Module {
    /// Returns the capability that announces the module (RFC 6020, section 5.6.4).
    fn capability(&self) -> String {
        let Module {
            name,
            revision,
            namespace,
            features,
            ..
        } = self;
        let list = match features.is_empty() {
            true => String::new(),
            false => format!("&features={}", features.join(",")),
        };
        format!("{namespace}?module={name}&revision={revision}{list}")
    }
}

/// Returns the capabilities of the server (RFC 6241, section 8).
pub(crate) fn capabilities() -> Vec<String> {
    let of = |name: &str| format!("urn:ietf:params:netconf:capability:{name}");
    [
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
            "yang-library:1.0?revision=2016-06-21&module-set-id={MODULE_SET}"
        )),
    ]
    .into_iter()
    .chain(modules().map(|module| module.capability()))
    .collect()
}
