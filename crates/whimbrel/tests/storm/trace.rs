//! What `strace -f -yy` wrote: system calls with their files, bytes and results, each split into
//! its beginning and its end.

/// What happened at one place of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Begin(Call),
    /// The call returned that.
    End(Call, i64),
}

/// One system call with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub name: String,
    /// The descriptor. A socket is told by it alone: what strace knows of its addresses comes and
    /// goes.
    pub descriptor: u32,
    /// The path, or what is known of the socket.
    pub file: String,
    /// The bytes of all its strings; of a call that reads, at its end only.
    pub bytes: Vec<u8>,
}

impl Call {
    pub fn is_socket(&self) -> bool {
        self.file.starts_with("TCP") || self.file.starts_with("socket:")
    }

    pub fn reads(&self) -> bool {
        matches!(self.name.as_str(), "read" | "readv" | "recvfrom" | "recvmsg")
    }

    pub fn writes(&self) -> bool {
        matches!(self.name.as_str(), "write" | "writev" | "sendto" | "sendmsg" | "pwrite64" | "pwritev" | "pwritev2")
    }

    pub fn syncs(&self) -> bool {
        matches!(self.name.as_str(), "fsync" | "fdatasync")
    }
}

/// The calls that have to be traced, as strace wants them named.
pub const CALLS: &str =
    "trace=read,readv,recvfrom,recvmsg,write,writev,sendto,sendmsg,pwrite64,pwritev,pwritev2,fsync,fdatasync,close";

/// Reads a whole trace. Lines that are no calls with a file are left out.
pub fn read(text: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    // Calls that have begun: thread, the text up to where it was cut.
    let mut open: Vec<(&str, &str)> = Vec::new();
    for line in text.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if let Some(begun) = rest.strip_suffix("<unfinished ...>") {
            open.push((thread, begun));
            steps.extend(call(begun).map(Step::Begin));
        } else if rest.starts_with("<... ") {
            let Some(index) = open.iter().position(|(of, _)| *of == thread) else { continue };
            let (_, begun) = open.swap_remove(index);
            let Some((_, ended)) = rest.split_once("resumed>") else { continue };
            steps.extend(whole(&format!("{begun}{ended}")));
        } else if let Some(end) = whole(rest) {
            let Step::End(call, _) = &end else { continue };
            let mut begun = call.clone();
            if begun.reads() {
                begun.bytes.clear();
            }
            steps.extend([Step::Begin(begun), end]);
        }
    }
    steps
}

/// A call with its result: `name(3<file>, "bytes", 5) = 5`.
fn whole(text: &str) -> Option<Step> {
    let (before, result) = text.rsplit_once(" = ")?;
    let result = result.split([' ', '<']).next()?.parse().ok()?;
    Some(Step::End(call(before)?, result))
}

/// A call, perhaps cut off within its arguments.
fn call(text: &str) -> Option<Call> {
    let (name, arguments) = text.split_once('(')?;
    let (descriptor, rest) = arguments.split_once('<')?;
    let descriptor = descriptor.parse().ok()?;
    // A socket's name has an arrow in it: the end is the first `>` that is none.
    let end = rest.match_indices('>').find(|(at, _)| !rest[..*at].ends_with('-'))?.0;
    let (file, rest) = (rest[..end].to_owned(), &rest[end + 1..]);
    Some(Call { name: name.to_owned(), descriptor, file, bytes: strings(rest) })
}

/// The bytes of all strings among the arguments, one behind the other.
fn strings(text: &str) -> Vec<u8> {
    let text = text.as_bytes();
    let mut bytes = Vec::new();
    let mut at = 0;
    let mut inside = false;
    while at < text.len() {
        match (inside, text[at]) {
            (_, b'"') => inside = !inside,
            (true, b'\\') => {
                at += 1;
                at += escaped(&text[at..], &mut bytes);
                continue;
            }
            (true, byte) => bytes.push(byte),
            (false, _) => {}
        }
        at += 1;
    }
    bytes
}

/// One escaped byte as C writes it; gives how many bytes it took.
fn escaped(text: &[u8], bytes: &mut Vec<u8>) -> usize {
    let octal = text.iter().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
    if octal > 0 {
        let value = text[..octal].iter().fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0'));
        bytes.push(value as u8);
        return octal;
    }
    let Some(byte) = text.first() else { return 0 };
    bytes.push(match byte {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'v' => 11,
        b'f' => 12,
        other => *other,
    });
    1
}
