//! A backup of the running broker: the journal as it is at one moment, sent to a client.
//!
//! Under its lock and in microseconds, the journal records what belongs to that moment, and
//! releases nothing of it until it is sent; publishing goes on meanwhile. A backup is a line of
//! JSON ([`Manifest`]), the files, and another line ([`Finished`]) by which the reader knows that
//! nothing is missing.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use whimbrel_journal::file::segment_name;
use whimbrel_journal::{Cut, CutFile, Log, Need, Refused};

use super::answers::{BackupFile, Finished, Manifest};
use super::{Shared, refuse};
use crate::http::Lasting;
use crate::store::Disk;

/// Media type of a backup.
pub(super) const MEDIA_TYPE: &str = "application/x-whimbrel-backup";

/// Bytes that are read and sent at once.
const PIECE: usize = 1 << 20;

/// Pieces that wait for the reader, at most.
const PIECES: usize = 4;

/// A backup whose reader takes nothing for this long is given up: it keeps the journal from
/// releasing space.
const STALL: Duration = Duration::from_secs(60);

/// Period between two looks whether the journal has become full meanwhile.
const ROOM_EVERY: Duration = Duration::from_millis(250);

/// Keeps the journal from releasing what belongs to the backup, until this is dropped.
struct Held {
    journal: Arc<Disk>,
    cut: Cut,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Held {
    fn drop(&mut self) {
        let ended = self.journal.submit(|log| {
            log.end_cut();
            Ok(())
        });
        ended.expect("letting go is not refused");
    }
}

/// Why a backup was not finished.
enum Stopped {
    /// The reader has gone, or has stalled.
    Reader,
    /// The disk failed, or publishing needs the space.
    Failed(String),
}

pub(super) async fn send(State(shared): State<Arc<Shared>>, lasting: Option<Extension<Lasting>>) -> Response {
    let Some(journal) = shared.hub.look(|_, store, _| store.map(|store| store.journal())) else {
        let error = "this broker has no data directory (--data): there is nothing to back up";
        return refuse(StatusCode::CONFLICT, error);
    };
    let Ok(permit) = shared.backups.clone().try_acquire_owned() else {
        return refuse(StatusCode::CONFLICT, "another backup is being made; wait until it is done");
    };
    if let Some(Extension(lasting)) = lasting {
        lasting.begin();
    }
    let began = Instant::now();
    let cut = journal.submit(|log| Ok(log.begin_cut())).expect("marking is not refused");
    let pause = began.elapsed();
    let taken = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let held = Held { journal, cut, _permit: permit };
    let file = |file: CutFile| BackupFile { name: segment_name(file.slot), bytes: file.bytes, used: file.used };
    let manifest = Manifest {
        format: Manifest::FORMAT,
        name: shared.about.name.clone(),
        version: shared.about.version.clone(),
        taken_ms: u64::try_from(taken.as_millis()).unwrap_or(u64::MAX),
        files: held.cut.files().map(file).collect(),
    };
    let bytes: u64 = manifest.files.iter().map(|file| file.used).sum();
    tracing::info!(files = manifest.files.len(), bytes, ?pause, "a backup begins");
    let (sender, receiver) = mpsc::channel(PIECES);
    let handle = Handle::current();
    tokio::task::spawn_blocking(move || {
        let give = |piece: io::Result<Bytes>| {
            let given = handle.block_on(tokio::time::timeout(STALL, sender.send(piece)));
            given.is_ok_and(|given| given.is_ok()).then_some(()).ok_or(Stopped::Reader)
        };
        match run(&held, &manifest, &give) {
            Ok(()) => tracing::info!(took = ?began.elapsed(), "the backup is sent"),
            Err(Stopped::Reader) => tracing::warn!("the backup is given up: its reader has gone, or does not read"),
            Err(Stopped::Failed(error)) => {
                tracing::error!(error, "the backup has failed");
                // The backup ends without its last line, so the reader knows.
                let _ = give(Err(io::Error::other(error)));
            }
        }
    });
    let pieces = futures_util::stream::unfold(receiver, async |mut receiver| {
        let piece: io::Result<Bytes> = receiver.recv().await?;
        Some((piece, receiver))
    });
    ([(CONTENT_TYPE, MEDIA_TYPE)], Body::from_stream(pieces)).into_response()
}

fn line(what: &impl Serialize) -> Bytes {
    Bytes::from(serde_json::to_string(what).expect("it is JSON") + "\n")
}

fn run(
    held: &Held,
    manifest: &Manifest,
    give: &impl Fn(io::Result<Bytes>) -> Result<(), Stopped>,
) -> Result<(), Stopped> {
    let was_full = is_full(&held.journal);
    let mut looked = Instant::now();
    give(Ok(line(manifest)))?;
    for CutFile { slot, used, .. } in held.cut.files() {
        let mut offset = 0;
        while offset < used {
            let mut piece = vec![0; PIECE.min((used - offset) as usize)];
            let read = held.cut.read(held.journal.storage(), slot, offset, &mut piece);
            read.map_err(|fault| Stopped::Failed(fault.to_string()))?;
            offset += piece.len() as u64;
            give(Ok(Bytes::from(piece)))?;
            if looked.elapsed() > ROOM_EVERY {
                looked = Instant::now();
                if !was_full && is_full(&held.journal) {
                    let error = "the journal has become full, as nothing is given back during a backup. Make it when less is published, \
                                 or raise `max_log` in [journal]";
                    return Err(Stopped::Failed(error.into()));
                }
            }
        }
    }
    give(Ok(line(&Finished { finished: true })))
}

/// Whether the journal refuses events.
fn is_full(journal: &Disk) -> bool {
    let need = Need { streams: 1, records: 1, bytes: 1, ..Need::default() };
    journal.submit(|log: &mut Log| log.require(need)) == Err(Refused::Full)
}
