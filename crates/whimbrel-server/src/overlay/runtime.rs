//! Runtime of the overlay's QUIC endpoint: timers that are seldom set, and a socket that is not
//! read again when it has just been emptied.
//!
//! Each packet moves a connection's deadline, nearly always to a later moment. Without this, each
//! wake-up for packets would end with a system call that finds none.

use std::future::Future;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use quinn::udp::{RecvMeta, Transmit, UdpSocketState};
use quinn::{AsyncTimer, AsyncUdpSocket, UdpPoller};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Sleep, sleep_until};

use super::dscp::{self, Dscp};

/// The runtime of the overlay's endpoint.
#[derive(Debug)]
pub(super) struct Runtime {
    /// How all packets are marked.
    pub(super) dscp: Dscp,
}

impl quinn::Runtime for Runtime {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(Timer { at, sleep: Box::pin(sleep_until(at.into())) })
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        tokio::spawn(future);
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        Ok(Arc::new(Datagrams::new(socket, self.dscp)?))
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

/// A timer that is set anew only for an earlier moment. For a later one it is checked again when
/// the old moment has come.
#[derive(Debug)]
struct Timer {
    at: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl AsyncTimer for Timer {
    fn reset(mut self: Pin<&mut Self>, at: Instant) {
        self.at = at;
        if at < self.sleep.deadline().into_std() {
            self.sleep.as_mut().reset(at.into());
        }
    }

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let at = self.at.into();
        loop {
            ready!(Future::poll(self.sleep.as_mut(), cx));
            if self.sleep.deadline() >= at {
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(at);
        }
    }
}

/// The overlay's socket, registered with the runtime for reading only: each packet that has left
/// makes room, and would wake a thread to say so.
#[derive(Debug)]
struct Datagrams {
    socket: AsyncFd<UdpSocket>,
    state: UdpSocketState,
    dscp: Dscp,
    /// Number of times that the socket took nothing.
    refusals: AtomicU64,
}

impl Datagrams {
    fn new(socket: UdpSocket, dscp: Dscp) -> io::Result<Datagrams> {
        let state = UdpSocketState::new((&socket).into())?;
        Ok(Datagrams { socket: watch(socket, Interest::READABLE)?, state, dscp, refusals: AtomicU64::new(0) })
    }
}

/// Registers a socket for one kind of readiness.
#[expect(deprecated, reason = "it is unsound for what may give another descriptor the next time; a socket does not")]
fn watch(socket: UdpSocket, interest: Interest) -> io::Result<AsyncFd<UdpSocket>> {
    AsyncFd::with_interest(socket, interest)
}

impl AsyncUdpSocket for Datagrams {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Writable { seen: 0, datagrams: self, full: None })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let socket = self.socket.get_ref();
        let marked = self.dscp.is_on().then(|| self.dscp.send(socket, transmit));
        let sent = match marked {
            Some(marked) if !marked.as_ref().is_err_and(dscp::is_for_library) => marked,
            _ => self.state.send(socket.into(), transmit),
        };
        if matches!(&sent, Err(error) if error.kind() == ErrorKind::WouldBlock) {
            self.refusals.fetch_add(1, Ordering::Relaxed);
        }
        sent
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.socket.poll_read_ready(cx))?;
            match self.state.recv(self.socket.get_ref().into(), buffers, metas) {
                Ok(came) => {
                    // Fewer than there was room for: the socket is empty, and will say when it is
                    // not.
                    if came < metas.len() {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(came));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get_ref().local_addr()
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }

    fn max_transmit_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.state.gro_segments()
    }
}

/// Waits, for one connection, for the socket to take more.
#[derive(Debug)]
struct Writable {
    datagrams: Arc<Datagrams>,
    /// Refusals that have been waited for.
    seen: u64,
    /// The socket, registered for writing while it is full.
    full: Option<AsyncFd<UdpSocket>>,
}

impl UdpPoller for Writable {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let refusals = self.datagrams.refusals.load(Ordering::Relaxed);
        if refusals == self.seen {
            return Poll::Ready(Ok(()));
        }
        if self.full.is_none() {
            self.full = Some(watch(self.datagrams.socket.get_ref().try_clone()?, Interest::WRITABLE)?);
        }
        let full = self.full.as_ref().expect("it was just set");
        drop(ready!(full.poll_write_ready(cx))?);
        (self.full, self.seen) = (None, refusals);
        Poll::Ready(Ok(()))
    }
}
