//! The control socket: the API over a Unix socket that only its owner can open. The permission of
//! the file is the authorisation.

pub mod socket;

use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::UnixStream;

use crate::access::{Access, ByFile};
use crate::api::Api;
use crate::api::access::{Authorizer, Remote};
use crate::http;
use socket::Listening;

/// The socket's name in the data directory.
pub const SOCKET: &str = "control.sock";

/// Connections at once. More wait in the system's queue.
const MAX_CONNECTIONS: usize = 16;

/// Name in the audit of requests over the socket.
const OWNER: &str = "control socket";

/// Place of the control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The path.
    pub path: PathBuf,
    /// The path is in the data directory, which no other broker uses at the same time.
    pub is_guarded: bool,
}

/// Serves until the task is dropped.
pub(crate) async fn serve(listening: Listening, api: Api, access: Arc<Access>) {
    let listener = listening.listener.try_clone().and_then(tokio::net::UnixListener::from_std);
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the control socket cannot be served"),
    };
    let authorizer: Arc<dyn Authorizer> = Arc::new(ByFile { access, name: OWNER });
    let routes = api.router(&authorizer);
    let listener = &listener;
    let accept = move || async move { Ok(listener.accept().await?.0) };
    let answer = |stream: UnixStream| {
        // The connection is already authorised; without the user's number only the audit lacks it.
        let remote = stream.peer_cred().map(|who| Remote::of_user(who.uid())).unwrap_or_default();
        http::answer("control socket", stream, routes.clone(), remote)
    };
    http::each_connection("control socket", MAX_CONNECTIONS, accept, answer).await;
}
