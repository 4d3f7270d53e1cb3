//! State that describes the server: `netconf-state` (RFC 6022) and `modules-state` (RFC 7895).

use millrace_yang::xml::Element;
use millrace_yang::{MODULE, NAMESPACE, REVISION};

use crate::capabilities::{LIBRARY, MODULES, MONITORING, capabilities};
use crate::notification::{STREAM, STREAMS};
use crate::shared::Listed;

fn leaf(namespace: &str, name: &str, text: impl Into<String>) -> Element {
    Element::new(namespace, name).with_text(text)
}

/// Returns capabilities, schemas and sessions.
pub(super) fn netconf_state(sessions: &[Listed]) -> Element {
    let of = |name: &str| Element::new(MONITORING, name);
    let mut list = of("capabilities");
    for capability in capabilities() {
        list = list.with(leaf(MONITORING, "capability", capability));
    }
    let mut schema = of("schema")
        .with(leaf(MONITORING, "identifier", MODULE))
        .with(leaf(MONITORING, "version", REVISION))
        .with(leaf(MONITORING, "format", "yang"))
        .with(leaf(MONITORING, "namespace", NAMESPACE))
        .with(leaf(MONITORING, "location", "NETCONF"));
    schema.keys = 3;
    let mut open = of("sessions");
    for Listed { id, user, login } in sessions {
        let mut session = of("session")
            .with(leaf(MONITORING, "session-id", id.to_string()))
            .with(leaf(MONITORING, "transport", "netconf-ssh"))
            .with(leaf(MONITORING, "username", user.as_str()))
            .with(leaf(MONITORING, "login-time", login.as_str()));
        session.keys = 1;
        open = open.with(session);
    }
    of("netconf-state")
        .with(list)
        .with(of("schemas").with(schema))
        .with(open)
}

/// Returns the streams of notifications (RFC 5277, section 3.2.5.1).
pub(super) fn streams() -> Element {
    let of = |name: &str| Element::new(STREAMS, name);
    let mut stream = of("stream")
        .with(leaf(STREAMS, "name", STREAM))
        .with(leaf(STREAMS, "description", "Changes of the configuration."))
        .with(leaf(STREAMS, "replaySupport", "false"));
    stream.keys = 1;
    of("netconf").with(of("streams").with(stream))
}

/// Returns the modules of the server.
pub(super) fn modules_state() -> Element {
    let of = |name: &str| Element::new(LIBRARY, name);
    let mut state = of("modules-state").with(leaf(LIBRARY, "module-set-id", REVISION));
    for known in &MODULES {
        let mut module = of("module")
            .with(leaf(LIBRARY, "name", known.name))
            .with(leaf(LIBRARY, "revision", known.revision))
            .with(leaf(LIBRARY, "namespace", known.namespace));
        for feature in known.features {
            module = module.with(leaf(LIBRARY, "feature", *feature));
        }
        module = module.with(leaf(LIBRARY, "conformance-type", "implement"));
        module.keys = 2;
        state = state.with(module);
    }
    state
}
