//! The signals of a server.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that a server handles.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    user: Signal,
}

impl Signals {
    pub(super) fn new() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            user: signal(SignalKind::user_defined1())?,
        })
    }

    pub(super) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::End,
            _ = self.interrupt.recv() => Asked::End,
            _ = self.hangup.recv() => Asked::Reload,
            _ = self.user.recv() => Asked::AcceptClock,
        }
    }

    /// Waits for the next SIGTERM or SIGINT; a server that ends ignores other signals.
    pub(super) async fn termination(&mut self) {
        while self.next().await != Asked::End {}
    }
}

/// Request made by a signal.
#[derive(PartialEq)]
pub(super) enum Asked {
    /// SIGTERM, SIGINT.
    End,
    /// SIGHUP.
    Reload,
    /// SIGUSR1.
    AcceptClock,
}
