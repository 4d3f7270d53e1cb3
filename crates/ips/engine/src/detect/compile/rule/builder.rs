//! A rule under construction.

use std::collections::BTreeMap;

use millrace_ips_rules::Syntax;
use millrace_ips_rules::header::Protocol;

use crate::detect::compile::bytes::{self, List};
use crate::detect::compile::fast_pattern::Candidate;
use crate::detect::compile::interner::Interner;
use crate::detect::program::{
    AppTest, BufferTest, Disabled, Effect, FlowTest, Operation, PacketTest, StateTest, Store,
};
/// A rule under construction.
pub(super) struct Builder<'a> {
    pub(super) interner: &'a mut Interner,
    pub(super) names: bytes::Names,
    pub(super) list: List,
    /// The list of the last option that searches, tests or reads bytes: relative options of rules without a sticky buffer
    /// continue there.
    pub(super) last_list: List,
    /// True after `base64_data`: operations belong to the last Base64 decoding of the list.
    pub(super) is_decoded: bool,
    pub(super) payload: Vec<Operation>,
    pub(super) buffers: Vec<BufferTest>,
    pub(super) candidates: Vec<Candidate>,
    pub(super) packet: Vec<PacketTest>,
    pub(super) headers: Vec<BufferTest>,
    pub(super) flow: FlowTest,
    pub(super) app: Vec<AppTest>,
    pub(super) store: Option<Store>,
    pub(super) state: Vec<StateTest>,
    pub(super) effects: Vec<Effect>,
    pub(super) is_silent: bool,
    pub(super) alerts_on_pass: bool,
    pub(super) bypasses: bool,
    pub(super) disables: Option<Disabled>,
    /// The rule file, whose folder has the files that options name.
    pub(super) file: &'a str,
    /// The syntax of the rule.
    pub(super) syntax: Syntax,
    /// The protocol of the header.
    pub(super) protocol: Protocol,
    pub(super) data: &'a BTreeMap<(String, String), Vec<u8>>,
    /// True if a content of the payload is anchored at its beginning.
    pub(super) is_anchored: bool,
}
