//! The reader for a file, and the bytes that it is given.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use super::build::Builder;
use super::{Trace, TraceError, csv, encoding, gpx, gtfs};

/// The number of bytes of a CSV file, once decompressed, at most.
const MAX_STREAMED: u64 = 4 << 30;
/// The number of bytes of a file that is read as a whole, once decompressed, at most.
const MAX_WHOLE: u64 = 256 << 20;
/// The number of feed messages in a directory, at most.
const MAX_SNAPSHOTS: usize = 100_000;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[derive(Clone, Copy, PartialEq, Debug)]
enum Format {
    Csv,
    Gpx,
    Gtfs,
}

pub fn read(path: &Path) -> Result<Trace, TraceError> {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let mut builder = Builder::new(name);
    if path.is_dir() {
        for snapshot in snapshots(path)? {
            let input = open(&snapshot)?;
            match gtfs::read(&snapshot, &whole(&snapshot, input)?, &mut builder) {
                // One file that is not a feed message, such as a failed download, costs no others.
                Err(TraceError::Syntax { place, why }) => builder.malformed(place, why)?,
                read => read?,
            }
        }
        return builder.build();
    }
    let syntax = |why: String| TraceError::Syntax { place: path.display().to_string(), why };
    let mut input = open(path)?;
    let start = input.fill_buf().map_err(|source| unreadable(path, source))?;
    if let Some(unpacked) = packed(start) {
        return Err(syntax(format!("it is packed; unpack it first, with {unpacked}")));
    }
    match format(path, start) {
        Format::Csv if encoding::utf_16(start).is_some() => {
            let text = encoding::utf_16(&whole(path, input)?).unwrap_or_else(|| Ok(String::new())).map_err(syntax)?;
            csv::read(path, text.as_bytes(), &mut builder)?;
        }
        Format::Csv => csv::read(path, BufReader::new(Bounded { input, left: MAX_STREAMED }), &mut builder)?,
        Format::Gpx => {
            let bytes = whole(path, input)?;
            gpx::read(path, &encoding::xml(&bytes).map_err(syntax)?, &mut builder)?;
        }
        Format::Gtfs => gtfs::read(path, &whole(path, input)?, &mut builder)?,
    }
    builder.build()
}

/// The program that unpacks a file with this beginning, whatever its name is; `None` if it is not
/// packed.
fn packed(start: &[u8]) -> Option<&'static str> {
    match start {
        [0x1f, 0x8b, ..] => Some("gunzip"),
        [b'P', b'K', 3, 4, ..] => Some("unzip"),
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => Some("bunzip2"),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some("unxz"),
        _ => None,
    }
}

fn unreadable(path: &Path, source: io::Error) -> TraceError {
    TraceError::Unreadable { path: path.to_owned(), source }
}

/// The file's content, decompressed if it is compressed.
fn open(path: &Path) -> Result<BufReader<Box<dyn Read>>, TraceError> {
    let file = File::open(path).map_err(|source| unreadable(path, source))?;
    let mut file = BufReader::new(file);
    let start = file.fill_buf().map_err(|source| unreadable(path, source))?;
    let input: Box<dyn Read> = if start.starts_with(&ZSTD_MAGIC) {
        Box::new(Frames::new(file).map_err(|source| unreadable(path, source))?)
    } else {
        Box::new(file)
    };
    Ok(BufReader::new(input))
}

fn whole(path: &Path, input: impl Read) -> Result<Vec<u8>, TraceError> {
    let mut bytes = Vec::new();
    let mut input = Bounded { input, left: MAX_WHOLE };
    input.read_to_end(&mut bytes).map_err(|source| unreadable(path, source))?;
    Ok(bytes)
}

/// A reader that fails when there are more bytes than it may read.
struct Bounded<R> {
    input: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            io::Error::new(io::ErrorKind::FileTooLarge, "it is too large, once decompressed; cut it into smaller files")
        })?;
        Ok(read)
    }
}

/// The content of a zstd file's frames, one after the other.
struct Frames {
    current: Option<StreamingDecoder<BufReader<File>, FrameDecoder>>,
}

impl Frames {
    fn new(file: BufReader<File>) -> io::Result<Frames> {
        Ok(Frames { current: Some(StreamingDecoder::new(file).map_err(io::Error::other)?) })
    }
}

impl Read for Frames {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(frame) = &mut self.current {
            let read = frame.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            if frame.get_mut().fill_buf()?.is_empty() {
                self.current = None;
            } else if let Some((file, decoder)) = self.current.take().map(StreamingDecoder::into_parts) {
                let next = StreamingDecoder::new_with_decoder(file, decoder).map_err(io::Error::other)?;
                self.current = Some(next);
            }
        }
        Ok(0)
    }
}

/// The feed messages in a directory, by name.
fn snapshots(directory: &Path) -> Result<Vec<PathBuf>, TraceError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(|source| unreadable(directory, source))? {
        let path = entry.map_err(|source| unreadable(directory, source))?.path();
        if by_name(&path) != Some(Format::Gtfs) {
            continue;
        }
        if found.len() == MAX_SNAPSHOTS {
            let name = directory.display().to_string();
            return Err(TraceError::TooLarge { name, what: "files", limit: MAX_SNAPSHOTS });
        }
        found.push(path);
    }
    if found.is_empty() {
        let place = directory.display().to_string();
        return Err(TraceError::Syntax { place, why: "no GTFS-realtime files (*.pb) in this directory".to_owned() });
    }
    found.sort();
    Ok(found)
}

fn format(path: &Path, start: &[u8]) -> Format {
    by_name(path).unwrap_or_else(|| by_content(start))
}

fn by_name(path: &Path) -> Option<Format> {
    let ending = |path: &Path| path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase);
    let outer = ending(path)?;
    let ending = if outer == "zst" { ending(Path::new(path.file_stem()?))? } else { outer };
    match &*ending {
        "csv" => Some(Format::Csv),
        "gpx" => Some(Format::Gpx),
        "pb" | "pbf" => Some(Format::Gtfs),
        _ => None,
    }
}

/// A feed message has bytes that no text has, such as the length of its header; GPX begins with a
/// tag. A byte order mark of UTF-16 is the beginning of a text.
fn by_content(start: &[u8]) -> Format {
    let start = start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(start);
    let first = start.iter().find(|byte| !byte.is_ascii_whitespace());
    let is_text = |byte: &u8| !byte.is_ascii_control() || byte.is_ascii_whitespace();
    match first {
        Some(b'<') => Format::Gpx,
        _ if start.starts_with(b"\xff\xfe<\0") || start.starts_with(b"\xfe\xff\0<") => Format::Gpx,
        _ if start.starts_with(b"\xff\xfe") || start.starts_with(b"\xfe\xff") => Format::Csv,
        _ if start.iter().all(is_text) => Format::Csv,
        _ => Format::Gtfs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_decide_first() {
        for (name, format) in [
            ("a.csv", Some(Format::Csv)),
            ("a.CSV.zst", Some(Format::Csv)),
            ("a.gpx", Some(Format::Gpx)),
            ("a.pb", Some(Format::Gtfs)),
            ("a.pb.zst", Some(Format::Gtfs)),
            ("a.zst", None),
            ("a.txt", None),
            ("a", None),
        ] {
            assert_eq!(by_name(Path::new(name)), format, "{name}");
        }
    }

    #[test]
    fn content_decides_else() {
        assert_eq!(by_content(b"\xef\xbb\xbf\n <?xml version"), Format::Gpx);
        assert_eq!(by_content(b"\nvehicle,lat,lon,time\r\nb\xc3\xa9,"), Format::Csv);
        assert_eq!(by_content(b"\x0a\x0b\x0a\x032.0\x18\xb0\xbd"), Format::Gtfs);
        assert_eq!(by_content(b"\xff\xfe<\0?\0"), Format::Gpx);
        assert_eq!(by_content(b"\xff\xfev\0e\0"), Format::Csv);
        assert_eq!(by_content(b""), Format::Csv);
    }
}
