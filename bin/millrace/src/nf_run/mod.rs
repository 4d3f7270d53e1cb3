//! `millrace nf run`: runs a function over a capture file without a switch, or as a hop of a running chain.

mod offline;

use anyhow::{Context as _, Result};
use millrace_model::{ChainName, FunctionName, Hop, HopClass, HopName};

use crate::chain_edit::change_chain;
use crate::cli::Run;
use crate::output::Session;

pub(crate) fn run(session: &Session, wanted: &Run) -> Result<()> {
    match &wanted.read {
        Some(file) => offline::run(session, wanted, file),
        None => in_chain(session, wanted),
    }
}

/// Inserts a hop into a configured chain: before the given hop, or at the end.
fn in_chain(session: &Session, wanted: &Run) -> Result<()> {
    let (Some(bridge), Some(chain), Some(name)) = (&wanted.bridge, &wanted.chain, &wanted.hop) else {
        anyhow::bail!("expected --read FILE, or a bridge, a chain and a hop: --bridge, --chain, --hop");
    };
    let function: FunctionName = wanted.function.parse()?;
    let name: HopName = name.parse()?;
    let chain: ChainName = chain.parse()?;
    let mut hop = Hop::new(name.clone(), function);
    hop.class = match wanted.class {
        crate::cli::RunClass::Inline => HopClass::Inline,
        crate::cli::RunClass::Ring => HopClass::Ring,
        crate::cli::RunClass::Isolated => HopClass::Isolated,
    };
    let settings = wanted.settings.iter().map(|text| text.parse());
    hop.settings = settings.collect::<Result<_, _>>()?;
    let why = format!("run {} in {chain}/{name}", wanted.function);
    change_chain(session, bridge, chain.as_str(), &why, |wanted_chain| {
        let at = match &wanted.before {
            None => wanted_chain.hops.len(),
            Some(before) => wanted_chain
                .hops
                .iter()
                .position(|held| held.name.as_str() == before)
                .with_context(|| format!("chain {chain} has no hop {before}"))?,
        };
        wanted_chain.hops.insert(at, hop);
        Ok(())
    })
}
