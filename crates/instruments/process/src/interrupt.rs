//! Ctrl-C: a bench that is stopped must still end its programs and give huge pages back, so the signal only
//! sets a flag, which every wait looks at.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static WANTED: AtomicBool = AtomicBool::new(false);
static WATCH: Once = Once::new();

/// Returns true if SIGINT or SIGTERM came since [`watch`].
pub fn wanted() -> bool {
    WANTED.load(Ordering::Relaxed)
}

/// From now on SIGINT and SIGTERM set the flag; a second one ends the process at once.
pub fn watch() {
    WATCH.call_once(|| {
        // Without a thread or a runtime the signals keep their usual effect.
        let spawned = std::thread::Builder::new().name("signals".to_owned()).spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
            if let Ok(runtime) = runtime {
                runtime.block_on(listen());
            }
        });
        drop(spawned);
    });
}

async fn listen() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    for first in [true, false] {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if first {
            WANTED.store(true, Ordering::Relaxed);
        } else {
            std::process::exit(130);
        }
    }
}
