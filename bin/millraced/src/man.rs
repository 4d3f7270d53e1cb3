//! The man page, from the definition of the options.

use std::io::Write;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_mangen::Man;

use crate::options::Options;

/// The sections after the options.
const REST: &str = r#".SH SIGNALS
.TP
SIGTERM, SIGINT
The daemon disconnects controllers, closes devices, stops processes of network functions, and exits.
.TP
SIGHUP
The daemon opens the files that functions export to again, as after their rotation. It does not load the configuration again.
.SH EXIT STATUS
.TP
0
The daemon was ended by a signal; with \fB\-\-check\fR, the configuration is valid.
.TP
1
The switch does not start, or the configuration is rejected. Standard error gives the reason.
.TP
2
An option is invalid.
.SH FILES
.TP
/etc/millrace/millraced.toml
The configuration of the service that \fBmake install\fR installs; see \fBmillraced.toml\fR(5).
.TP
/var/lib/millrace
The store of configurations, unless \fBsystem.state_dir\fR or \fB\-\-state\-dir\fR names another directory.
.TP
/var/lib/millrace/flows
The flow entries, groups and meters of each bridge for the next start, with \fBsystem.keep_flows\fR.
.TP
/run/millrace/millraced.sock
The socket of the REST API, unless \fBapi.socket\fR names another.
.TP
/var/lib/millrace/api-token
The generated token for TCP (\fBapi.listen\fR), unless \fBapi.token_file\fR names another file.
.SH SEE ALSO
\fBmillraced.toml\fR(5), \fBmillrace\fR(1), \fBmillrace\-apply\fR(1), \fBmillrace\-log\fR(1), \fBmillrace\-doctor\fR(1)
"#;

/// Writes `millraced(8)` to standard output.
pub(crate) fn print() -> Result<()> {
    let man = Man::new(Options::command()).section("8");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    page.extend(REST.as_bytes());
    let mut out = std::io::stdout();
    out.write_all(&page).context("standard output cannot be written")
}
