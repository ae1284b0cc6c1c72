//! The bytes of a connection, shown to the application as they pass.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::transport::Stream;

/// Sees the bytes of one connection as they pass, unencrypted also over TLS
/// ([`crate::Options::tap`]). Each call has the bytes of one read or write, which may end within a
/// packet. The tap is dropped when the connection is over.
pub trait Tap: fmt::Debug + Send + Sync {
    /// These bytes have been handed to the network.
    fn sent(&self, bytes: &[u8]);
    /// These bytes have arrived.
    fn received(&self, bytes: &[u8]);
}

/// A stream with a tap.
pub(crate) struct Tapped {
    stream: Box<dyn Stream>,
    tap: Arc<dyn Tap>,
}

impl Tapped {
    pub(crate) fn new(stream: Box<dyn Stream>, tap: Arc<dyn Tap>) -> Tapped {
        Tapped { stream, tap }
    }
}

impl AsyncRead for Tapped {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        self.tap.received(&into.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tapped {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.tap.sent(&bytes[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[derive(Debug, Default)]
    struct Seen(Mutex<[Vec<u8>; 2]>);

    impl Tap for Seen {
        fn sent(&self, bytes: &[u8]) {
            self.0.lock().expect("nobody panics with it")[0].extend_from_slice(bytes);
        }

        fn received(&self, bytes: &[u8]) {
            self.0.lock().expect("nobody panics with it")[1].extend_from_slice(bytes);
        }
    }

    #[tokio::test]
    async fn both_directions_are_seen_as_they_pass() {
        // The pipe holds 4 bytes, so that a write takes several steps.
        let (here, mut there) = duplex(4);
        let seen = Arc::new(Seen::default());
        let mut tapped = Tapped::new(Box::new(here), seen.clone());
        let mut got = [0; 10];
        let (written, read) = tokio::join!(tapped.write_all(b"what I say"), there.read_exact(&mut got));
        written.expect("somebody reads");
        read.expect("somebody writes");
        there.write_all(b"yes").await.expect("it has room");
        let mut answer = [0; 3];
        tapped.read_exact(&mut answer).await.expect("there is an answer");
        assert_eq!(*seen.0.lock().expect("nobody panics with it"), [b"what I say".to_vec(), b"yes".to_vec()]);
    }
}
