//! SIGINT and SIGTERM. An instrument that is interrupted must still end its programs and release huge pages, so the
//! first signal only sets a flag, which every wait polls.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);
static HANDLER: Once = Once::new();

/// Returns true if SIGINT or SIGTERM was received since [`install_handler`].
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Makes the first SIGINT or SIGTERM set the flag; the second one ends the process at once.
pub fn install_handler() {
    HANDLER.call_once(|| {
        // If the thread or its runtime cannot be started, the signals keep their default action.
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
            REQUESTED.store(true, Ordering::Relaxed);
        } else {
            std::process::exit(130);
        }
    }
}
