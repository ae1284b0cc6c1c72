//! A connection that its client has lost without its broker noticing: the way between them ends,
//! and the broker's end of it stays open.

use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The way of one connection to a broker.
pub struct Ghost {
    url: String,
    is_lost: watch::Sender<bool>,
    way: JoinHandle<()>,
}

impl Ghost {
    /// A way to the broker at `url`, for the next connection to [`Ghost::url`].
    pub async fn new(url: &str) -> Ghost {
        let broker = url.strip_prefix("mqtt://").expect("brokers of the rig speak plain MQTT").to_owned();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let url = format!("mqtt://{}", listener.local_addr().expect("it is bound"));
        let (is_lost, lost) = watch::channel(false);
        Ghost { url, is_lost, way: tokio::spawn(carry(listener, broker, lost)) }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Neither end hears of the other from now on.
    pub fn lose(&self) {
        self.is_lost.send_replace(true);
    }

    /// Waits until the broker has closed its end.
    pub async fn closed(self) {
        self.way.await.expect("it does not panic");
    }
}

async fn carry(listener: TcpListener, broker: String, mut lost: watch::Receiver<bool>) {
    let Ok((mut client, _)) = listener.accept().await else { return };
    // A broker that is not there refuses, and so does its way.
    let Ok(mut broker) = TcpStream::connect(broker).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut broker) => return,
        _ = lost.wait_for(|lost| *lost) => drop(client),
    }
    let mut unheard = [0; 4096];
    while broker.read(&mut unheard).await.is_ok_and(|bytes| bytes > 0) {}
}
