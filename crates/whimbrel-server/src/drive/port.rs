//! Output of one connection.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rustls::pki_types::CertificateDer;
use socket2::SockRef;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::time::Instant;
use whimbrel_access::Principal;
use whimbrel_mqtt::LOW_WATER;

/// Spent buffers that one thread keeps for reuse.
const SPENT_MAX: usize = 64;

/// Bytes up to which a spent buffer is kept; a larger one goes back to the allocator.
const SPENT_BYTES_MAX: usize = 256 << 10;

/// A publisher is held up at most this long at once; what it sends after that may hold it up again.
const HOLD_MAX: Duration = Duration::from_millis(100);

/// Bytes written at once. Bounds how long the machine waits for the lock when it has more output
/// for the same connection.
const WRITE_MAX: usize = 64 << 10;

thread_local! {
    static SPENT: std::cell::RefCell<Vec<Vec<u8>>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// An empty buffer, a spent one if there is any.
pub(super) fn fresh() -> Vec<u8> {
    SPENT.with_borrow_mut(|spent| spent.pop().unwrap_or_default())
}

/// Keeps a buffer for reuse.
pub(super) fn give_back(mut buffer: Vec<u8>) {
    if buffer.capacity() == 0 || buffer.capacity() > SPENT_BYTES_MAX {
        return;
    }
    buffer.clear();
    SPENT.with_borrow_mut(|spent| {
        if spent.len() < SPENT_MAX {
            spent.push(buffer);
        }
    });
}

/// Output that waits to be written, and what happens when it has been.
#[derive(Debug, Default)]
struct Outbound {
    buffer: Vec<u8>,
    written: usize,
    /// The socket takes no more now; the connection's task waits until it does.
    blocked: bool,
    /// The machine wants to know when little is left.
    notify_drained: bool,
    /// The machine has let go of the connection.
    closing: bool,
    /// Writing failed: the peer is gone.
    broken: bool,
    task: Option<Waker>,
}

impl Outbound {
    fn unsent(&self) -> usize {
        self.buffer.len() - self.written
    }

    fn advance(&mut self, bytes: usize) {
        self.written += bytes;
        if self.written == self.buffer.len() {
            give_back(std::mem::take(&mut self.buffer));
            self.written = 0;
        }
    }

    fn fail(&mut self) {
        self.broken = true;
        self.buffer = Vec::new();
        self.written = 0;
    }

    fn wake(&self) {
        if let Some(task) = &self.task {
            task.wake_by_ref();
        }
    }
}

/// Next step of the connection's task.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) enum Next {
    /// Go on.
    Continue,
    /// Tell the machine that little is left to be written.
    Drained,
    /// The machine has let go and everything is written, or the peer is gone.
    End,
}

/// One connection's output. Plain TCP is written by the thread that has output for it; other
/// transports by the connection's task.
#[derive(Debug)]
pub(super) struct Port {
    outbound: Mutex<Outbound>,
    held_until: Mutex<Option<Instant>>,
    /// The connection is not to be read until the machine says so.
    paused: AtomicBool,
    /// What the peer has already sent is to be read, even if `paused`.
    to_read_out: AtomicBool,
    direct: Option<OwnedWriteHalf>,
    caller: Caller,
}

/// The peer of a connection.
#[derive(Debug, Default)]
pub struct Caller {
    /// The peer's address, if it is known.
    pub address: Option<SocketAddr>,
    /// The peer's identity, if it has shown a certificate that is believed, and the certificates.
    pub known: Option<(Principal, Box<[CertificateDer<'static>]>)>,
    /// [`super::Hub::trust_round`] when the TLS handshake began.
    pub round: u64,
}

impl Port {
    pub(super) fn new(direct: Option<OwnedWriteHalf>, caller: Caller) -> Self {
        let outbound = Mutex::new(Outbound::default());
        Port {
            outbound,
            direct,
            caller,
            held_until: Mutex::new(None),
            paused: AtomicBool::new(false),
            to_read_out: AtomicBool::new(false),
        }
    }

    /// The connection's peer.
    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Sets the task to wake when there is something to do.
    pub(super) fn attend(&self, waker: &Waker) {
        let mut outbound = self.outbound.lock();
        if !outbound.task.as_ref().is_some_and(|known| known.will_wake(waker)) {
            outbound.task = Some(waker.clone());
        }
    }

    /// Wakes the connection's task.
    pub(super) fn wake(&self) {
        self.outbound.lock().wake();
    }

    /// Stops reading from the connection for `span`, at most [`HOLD_MAX`].
    pub(super) fn hold(&self, span: Duration) {
        *self.held_until.lock() = Some(Instant::now() + span.min(HOLD_MAX));
    }

    /// When a hold that was asked for ends; `None` once it has been taken.
    pub(super) fn take_hold(&self) -> Option<Instant> {
        self.held_until.lock().take()
    }

    /// Stops reading from the connection until [`Port::resume`].
    pub(super) fn pause(&self) {
        self.paused.store(true, Ordering::SeqCst);
    }

    /// Reads from the connection again.
    pub(super) fn resume(&self) {
        self.paused.store(false, Ordering::SeqCst);
        self.wake();
    }

    /// Whether the connection is paused. If so, its task is woken by [`Port::resume`].
    pub(super) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst)
    }

    /// Asks for what the peer has already sent to be read.
    pub(super) fn ask_to_read_out(&self) {
        self.to_read_out.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Whether that has been asked for, see [`Port::ask_to_read_out`].
    pub(super) fn is_to_be_read_out(&self) -> bool {
        self.to_read_out.load(Ordering::SeqCst)
    }

    /// Whether that has been asked for since the last call, see [`Port::ask_to_read_out`].
    pub(super) fn take_read_out(&self) -> bool {
        self.to_read_out.swap(false, Ordering::SeqCst)
    }

    /// Drops all output: the connection has ended.
    pub(super) fn abandon(&self) {
        self.outbound.lock().fail();
    }

    pub(super) fn send(&self, bytes: &mut Vec<u8>) {
        let mut outbound = self.outbound.lock();
        if outbound.broken {
            bytes.clear();
        } else if outbound.buffer.is_empty() {
            outbound.buffer = std::mem::replace(bytes, fresh());
        } else {
            outbound.buffer.append(bytes);
        }
    }

    pub(super) fn close(&self) {
        let mut outbound = self.outbound.lock();
        outbound.closing = true;
        outbound.wake();
    }

    pub(super) fn backlog(&self) -> usize {
        self.outbound.lock().unsent()
    }

    pub(super) fn notify_drained(&self) {
        let mut outbound = self.outbound.lock();
        outbound.notify_drained = true;
        // With nothing left unsent, the write that would have told has already happened.
        outbound.wake();
    }

    /// Writes output as far as the socket takes it; the connection's task writes the rest.
    pub(super) fn flush(&self) {
        let mut outbound = self.outbound.lock();
        let Some(socket) = &self.direct else { return outbound.wake() };
        while outbound.unsent() > 0 {
            if outbound.blocked {
                return;
            }
            let end = outbound.buffer.len().min(outbound.written + WRITE_MAX);
            match socket.try_write(&outbound.buffer[outbound.written..end]) {
                Ok(bytes) => {
                    outbound.advance(bytes);
                    // The machine may wait for this lock.
                    MutexGuard::bump(&mut outbound);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    outbound.blocked = true;
                    return outbound.wake();
                }
                Err(_) => {
                    outbound.fail();
                    return outbound.wake();
                }
            }
        }
        // The task may have looked between `close` and this write, and found bytes left to write.
        if outbound.notify_drained || outbound.closing {
            outbound.wake();
        }
    }

    /// For plain TCP: goes on writing when the socket takes more.
    pub(super) fn poll_direct(&self, cx: &mut Context<'_>) -> Next {
        let Some(socket) = &self.direct else { return Next::Continue };
        while self.outbound.lock().blocked {
            match socket.as_ref().poll_write_ready(cx) {
                Poll::Pending => break,
                Poll::Ready(_) => {
                    self.outbound.lock().blocked = false;
                    self.flush();
                }
            }
        }
        self.next()
    }

    /// For plain TCP: tells the peer that no more bytes follow.
    pub(super) fn finish(&self) {
        if let Some(socket) = &self.direct {
            // The peer may be gone already, so a failure is ignored.
            let _ = SockRef::from(socket.as_ref()).shutdown(Shutdown::Write);
        }
    }

    /// For other transports: writes with `write` as far as it goes; `true` if anything was written.
    pub(super) fn poll_write(&self, mut write: impl FnMut(&[u8]) -> Poll<io::Result<usize>>) -> (bool, Next) {
        let mut wrote = false;
        let mut outbound = self.outbound.lock();
        while outbound.unsent() > 0 {
            match write(&outbound.buffer[outbound.written..]) {
                Poll::Pending => break,
                Poll::Ready(Ok(bytes)) if bytes > 0 => {
                    wrote = true;
                    outbound.advance(bytes);
                }
                Poll::Ready(_) => outbound.fail(),
            }
        }
        drop(outbound);
        (wrote, self.next())
    }

    fn next(&self) -> Next {
        let mut outbound = self.outbound.lock();
        if outbound.broken || (outbound.closing && outbound.unsent() == 0) {
            Next::End
        } else if outbound.notify_drained && outbound.unsent() <= LOW_WATER {
            outbound.notify_drained = false;
            Next::Drained
        } else {
            Next::Continue
        }
    }

    /// Whether the machine has let go of the connection.
    pub(super) fn is_closing(&self) -> bool {
        self.outbound.lock().closing
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// With several threads the task may look after `close` and before the write: then the write
    /// must wake it again.
    #[tokio::test]
    async fn a_task_that_looks_between_close_and_flush_is_woken_by_the_flush() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let _client = client.expect("the listener accepts");
        let (_read, write) = accepted.expect("a client connects").0.into_split();
        write.writable().await.expect("a fresh socket takes bytes");
        let port = Port::new(Some(write), Caller::default());
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        port.attend(&waker);
        port.send(&mut b"goodbye".to_vec());
        port.close();
        let woken = count.0.load(Ordering::SeqCst);
        assert_eq!(port.poll_direct(&mut Context::from_waker(&waker)), Next::Continue);
        port.flush();
        assert_eq!(port.poll_direct(&mut Context::from_waker(&waker)), Next::End);
        assert!(count.0.load(Ordering::SeqCst) > woken);
    }
}
