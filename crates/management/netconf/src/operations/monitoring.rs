//! State that describes the server: `netconf-state` (RFC 6022) and `modules-state` (RFC 7895).

use millrace_yang::ietf;
use millrace_yang::schema::namespace_of;
use millrace_yang::xml::Element;
use millrace_yang::{MODULE, REVISION, module};

use crate::capabilities::{LIBRARY, MODULE_SET, MONITORING, capabilities, modules};
use crate::notification::{STREAM, STREAMS};
use crate::shared::Listed;

fn leaf(namespace: &str, name: &str, text: impl Into<String>) -> Element {
    Element::new(namespace, name).with_text(text)
}

/// A module that `get-schema` hands out.
pub(super) struct Schema {
    pub(super) name: &'static str,
    pub(super) revision: &'static str,
    pub(super) text: String,
}

/// Returns the modules that `get-schema` hands out: the one of the switch, those of the views, and what they import.
pub(super) fn schemas() -> impl Iterator<Item = Schema> {
    let own = std::iter::once_with(|| Schema {
        name: MODULE,
        revision: REVISION,
        text: module::text(),
    });
    own.chain(ietf::MODULES.iter().map(|known| Schema {
        name: known.name,
        revision: known.revision,
        text: known.text.to_owned(),
    }))
}

/// Returns capabilities, schemas and sessions.
pub(super) fn netconf_state(sessions: &[Listed]) -> Element {
    let of = |name: &str| Element::new(MONITORING, name);
    let mut list = of("capabilities");
    for capability in capabilities() {
        list = list.with(leaf(MONITORING, "capability", capability));
    }
    let mut all = of("schemas");
    for known in schemas() {
        let mut schema = of("schema")
            .with(leaf(MONITORING, "identifier", known.name))
            .with(leaf(MONITORING, "version", known.revision))
            .with(leaf(MONITORING, "format", "yang"))
            .with(leaf(MONITORING, "namespace", namespace_of(known.name)))
            .with(leaf(MONITORING, "location", "NETCONF"));
        schema.keys = 3;
        all = all.with(schema);
    }
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
    of("netconf-state").with(list).with(all).with(open)
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
    let mut state = of("modules-state").with(leaf(LIBRARY, "module-set-id", MODULE_SET));
    for known in modules() {
        let mut module = of("module")
            .with(leaf(LIBRARY, "name", known.name))
            .with(leaf(LIBRARY, "revision", known.revision))
            .with(leaf(LIBRARY, "namespace", known.namespace));
        for feature in known.features {
            module = module.with(leaf(LIBRARY, "feature", *feature));
        }
        let conformance = match known.is_implemented {
            true => "implement",
            false => "import",
        };
        module = module.with(leaf(LIBRARY, "conformance-type", conformance));
        module.keys = 2;
        state = state.with(module);
    }
    state
}
