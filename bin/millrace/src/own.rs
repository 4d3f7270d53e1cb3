//! `millrace own` and `millrace show owners`: the owners of objects of the configuration.

use anyhow::Result;
use millrace_api::client::ChangeOptions;
use millrace_api::view::{OwnRequest, Owned};

use crate::cli::Own;
use crate::output::{Session, author};
use crate::table::Table;

pub(crate) fn run(session: &Session, args: &Own) -> Result<()> {
    let request = OwnRequest {
        objects: args.objects.clone(),
        owner: args.origin.clone().unwrap_or_else(|| "local".to_owned()),
    };
    let options = ChangeOptions {
        author: author(),
        comment: args.why.comment.clone(),
        ..ChangeOptions::default()
    };
    let revision = session.client()?.own(&request, &options)?;
    session.print(&revision, |revision| {
        let belongs = if request.objects.len() == 1 {
            "belongs"
        } else {
            "belong"
        };
        format!(
            "{} {belongs} to {}: revision {}\n",
            request.objects.join(", "),
            request.owner,
            revision.number
        )
    })
}

/// Returns the objects of the configuration with their owners, as a table.
pub(crate) fn table(owners: &[Owned]) -> Table {
    let mut table = Table::new(&["OBJECT", "OWNER"], "no object");
    for owned in owners {
        table.row([owned.object.clone(), owned.owner.clone()]);
    }
    table
}

/// Returns the objects that a change leaves alone, one on each line.
pub(crate) fn left_alone(objects: &[Owned]) -> String {
    let line = |owned: &Owned| {
        format!(
            "= {} belongs to {} and stays as it is\n",
            owned.object.replacen('/', " ", 1),
            owned.owner
        )
    };
    objects.iter().map(line).collect()
}
