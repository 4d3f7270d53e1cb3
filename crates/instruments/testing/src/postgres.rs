//! A PostgreSQL server of a test program: its own processes in a temporary folder, under a user without rights, on a Unix socket.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

/// The folder of Debian's programs of PostgreSQL 15.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// Starts the server, and ends it and removes its folder when standard input ends: also if the test program is killed.
const SUPERVISOR: &str = r#"
folder=$1; programs=$2; shift 2
as="$*"
export LC_ALL=C
$as "$programs/initdb" -D "$folder/data" -U millrace -A trust -E UTF8 -N >"$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
$as "$programs/postgres" -D "$folder/data" -k "$folder" -c listen_addresses= -c fsync=off -c max_connections=200 \
    >>"$folder/log" 2>&1 &
server=$!
until [ -S "$folder/.s.PGSQL.5432" ] && "$programs/pg_isready" -q -h "$folder"; do
    kill -0 $server 2>/dev/null || { cat "$folder/log" >&2; exit 1; }
    sleep 0.05
done
echo ready
read -r line
kill -QUIT $server
wait $server 2>/dev/null
rm -rf "$folder"
"#;

/// The processes of a test program's server.
#[derive(Debug)]
struct Server {
    folder: PathBuf,
    /// The server ends when this is closed.
    _life: ChildStdin,
    _supervisor: Mutex<Child>,
    databases: AtomicU32,
}

impl Server {
    fn start() -> Server {
        let folder = tempfile::Builder::new()
            .prefix("millrace-pg-")
            .tempdir()
            .unwrap()
            .keep();
        let mut user = Vec::new();
        if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
            // The server refuses to run as root.
            user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"].to_vec();
            std::os::unix::fs::chown(&folder, Some(65534), Some(65534)).unwrap();
        }
        let mut supervisor = Command::new("sh")
            .args(["-c", SUPERVISOR, "sh"])
            .arg(&folder)
            .arg(PROGRAMS)
            .args(user)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(supervisor.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n", "the server did not start");
        Server {
            folder,
            _life: supervisor.stdin.take().unwrap(),
            _supervisor: Mutex::new(supervisor),
            databases: AtomicU32::new(0),
        }
    }
}

/// Returns true if PostgreSQL 15 is installed; says otherwise that the calling test is skipped.
fn is_installed() -> bool {
    let is_there = Path::new(PROGRAMS).join("postgres").exists();
    if !is_there {
        eprintln!("skipped: {PROGRAMS} has no postgres; scripts/setup.sh exchange installs it");
    }
    is_there
}

/// Returns the connection of a new database in the server of this program, as libpq writes it; `None` if PostgreSQL is not
/// installed.
pub fn postgres_database() -> Option<String> {
    static SERVER: OnceLock<Server> = OnceLock::new();
    if !is_installed() {
        return None;
    }
    let server = SERVER.get_or_init(Server::start);
    let name = format!("test{}", server.databases.fetch_add(1, Ordering::Relaxed));
    let connection = format!("host={} user=millrace dbname=", server.folder.display());
    postgres_sql(
        &format!("{connection}postgres"),
        &format!("CREATE DATABASE {name}"),
    );
    Some(format!("{connection}{name}"))
}

/// Runs SQL by psql, and returns its rows.
pub fn postgres_sql(connection: &str, sql: &str) -> String {
    let mut psql = Command::new("psql")
        .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", connection])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    psql.stdin.take().unwrap().write_all(sql.as_bytes()).unwrap();
    let output = psql.wait_with_output().unwrap();
    assert!(output.status.success(), "{sql}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
