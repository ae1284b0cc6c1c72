//! The password file: one user a line, `user:$argon2id$…`.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, Params, PasswordHasher, PasswordVerifier};
use ring::rand::{SecureRandom, SystemRandom};
use whimbrel_access::Principal;

/// The longest password, in bytes.
pub const PASSWORD_MAX: usize = 1024;

/// The largest password file, in bytes: about 250,000 users.
const FILE_MAX: u64 = 32 << 20;

/// The most memory that one hash may take, in KiB; each thread that hashes takes that much.
const MEMORY_MAX: u32 = 256 << 10;

/// The most passes over that memory.
const PASSES_MAX: u32 = 32;

/// The most lanes.
const LANES_MAX: u32 = 16;

/// Bytes of salt.
const SALT: usize = 16;

/// What is wrong with a password or key file, and in which line.
#[derive(Debug)]
pub struct FileFault {
    /// The file.
    pub path: PathBuf,
    /// Number of the line, from 1; `None`: the file as a whole.
    pub line: Option<usize>,
    /// What is wrong.
    pub cause: String,
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path.display(), self.cause),
            None => write!(f, "{}: {}", self.path.display(), self.cause),
        }
    }
}

impl std::error::Error for FileFault {}

/// The users of a password file, with the hashes of their passwords.
#[derive(Clone)]
pub struct Passwords {
    users: BTreeMap<Principal, PasswordHash>,
    /// Hash that passwords of unknown users are compared with, so that they cost as much as known
    /// ones.
    nobody: PasswordHash,
}

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passwords").field("users", &self.users.len()).finish_non_exhaustive()
    }
}

impl Passwords {
    /// Reads a password file.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not a user with an accepted hash: which, and why.
    pub fn read(path: &Path) -> Result<Passwords, FileFault> {
        let text = read_text(path, FILE_MAX)?;
        Passwords::parse(&text).map_err(|(line, cause)| FileFault { path: path.to_owned(), line: Some(line), cause })
    }

    fn parse(text: &str) -> Result<Passwords, (usize, String)> {
        let mut users = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let Some((user, hash)) = split(line) else {
                if is_comment(line) {
                    continue;
                }
                return Err((number, "it is not `user:$argon2id$…`; `whimbrel passwd` writes such lines".into()));
            };
            let principal = Principal::new(user).map_err(|error| (number, format!("{user:?} is no user: {error}")))?;
            let hash = read_hash(hash).map_err(|cause| (number, format!("the hash of {user:?} {cause}")))?;
            if users.insert(principal, hash).is_some() {
                return Err((number, format!("{user:?} is there a second time; remove one of the lines")));
            }
        }
        let params = users.values().next().and_then(|hash| Params::try_from(hash).ok()).unwrap_or(Params::DEFAULT);
        // What it hashes does not matter: it lets no user in.
        let nobody = Argon2::from(params).hash_password_with_salt(b"", &[0; SALT]);
        let nobody = nobody.map_err(|error| (0, format!("argon2 does not work here: {error}")))?;
        Ok(Passwords { users, nobody })
    }

    /// Number of users.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Whether there is no user.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// The users.
    pub fn users(&self) -> impl Iterator<Item = &Principal> {
        self.users.keys()
    }

    /// Users that are in both files with different passwords.
    pub fn changed_from(&self, before: &Passwords) -> Vec<String> {
        let is_changed = |(user, hash): &(&Principal, &PasswordHash)| {
            before.users.get(*user).is_some_and(|old| old.to_string() != hash.to_string())
        };
        self.users.iter().filter(is_changed).map(|(user, _)| format!("{:?}", user.name())).collect()
    }

    /// The user with that name, if the password is right. Takes tens of milliseconds, whether or
    /// not the user exists.
    pub fn verify(&self, user: &str, password: &[u8]) -> Option<Principal> {
        let known = Principal::new(user).ok().and_then(|user| self.users.get_key_value(&user));
        let hash = known.map_or(&self.nobody, |(_, hash)| hash);
        let is_right = password.len() <= PASSWORD_MAX && Argon2::default().verify_password(password, hash).is_ok();
        known.filter(|_| is_right).map(|(user, _)| user.clone())
    }
}

/// User and hash of a line.
fn split(line: &str) -> Option<(&str, &str)> {
    // A hash has no colon, a user may have one.
    if is_comment(line) { None } else { line.trim_end().rsplit_once(':') }
}

fn is_comment(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with('#')
}

fn read_hash(text: &str) -> Result<PasswordHash, String> {
    let hash = PasswordHash::new(text).map_err(|error| format!("is none: {error}; write the line anew"))?;
    if hash.algorithm.as_str() != "argon2id" {
        return Err(format!("is of {}, not of argon2id; write the line anew", hash.algorithm));
    }
    if hash.salt.is_none() || hash.hash.is_none() {
        return Err("lacks its salt or the hash itself; write the line anew".into());
    }
    let params = Params::try_from(&hash).map_err(|error| format!("has bad parameters: {error}"))?;
    if params.m_cost() > MEMORY_MAX || params.t_cost() > PASSES_MAX || params.p_cost() > LANES_MAX {
        return Err(format!(
            "asks for more than the broker gives: at most m={MEMORY_MAX}, t={PASSES_MAX}, p={LANES_MAX}; write the line anew"
        ));
    }
    Ok(hash)
}

/// Reads a text file that must not be larger than `most`.
pub(super) fn read_text(path: &Path, most: u64) -> Result<String, FileFault> {
    let fault = |cause: String| FileFault { path: path.to_owned(), line: None, cause };
    match fs::metadata(path) {
        Ok(about) if !about.is_file() => Err(fault("it is no file".into())),
        Ok(about) if about.len() > most => Err(fault(format!("it is larger than {most} bytes"))),
        _ => fs::read_to_string(path).map_err(|error| fault(error.to_string())),
    }
}

/// Why a password file was not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The user name or the password is not allowed.
    #[error("{0}")]
    Refused(String),
    /// The user does not exist.
    #[error("{} has no user {user:?}: nothing is changed", .path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The user to be removed.
        user: String,
    },
    /// The file has lines that cannot be kept.
    #[error("{0}. Nothing is changed; mend the file first")]
    File(#[from] FileFault),
    /// The file cannot be written.
    #[error("cannot write {}: {cause}. Nothing is changed; may you write to its directory?", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
}

/// Sets a user's password, or creates the user, and the file, which only its owner may read; `None`
/// removes the user. The file is replaced as a whole, and keeps its owner and permissions. Returns
/// whether the user existed before.
///
/// # Errors
/// The user name or password is not allowed, the file has other lines in it, or it cannot be
/// written. Nothing is changed then.
pub fn change(path: &Path, user: &str, password: Option<&[u8]>) -> Result<bool, ChangeError> {
    Principal::new(user).map_err(|error| ChangeError::Refused(format!("{user:?} is no user: {error}")))?;
    let line = password.map(|password| hash(password).map(|hash| format!("{user}:{hash}\n"))).transpose()?;
    let before = if path.exists() { read_text(path, FILE_MAX)? } else { String::new() };
    Passwords::parse(&before).map_err(|(line, cause)| FileFault { path: path.to_owned(), line: Some(line), cause })?;
    let is_of_user = |line: &str| split(line).is_some_and(|(other, _)| other == user);
    let was_there = before.lines().any(is_of_user);
    let mut after = String::new();
    for other in before.lines() {
        match &line {
            _ if !is_of_user(other) => after = after + other + "\n",
            Some(line) => after += line,
            None => {}
        }
    }
    match (line, was_there) {
        (Some(line), false) => after += &line,
        (None, false) => return Err(ChangeError::Unknown { path: path.to_owned(), user: user.to_owned() }),
        _ => {}
    }
    replace(path, &after).map_err(|cause| ChangeError::Write { path: path.to_owned(), cause })?;
    Ok(was_there)
}

fn hash(password: &[u8]) -> Result<PasswordHash, ChangeError> {
    let refused = |why: String| ChangeError::Refused(why);
    if password.is_empty() || password.len() > PASSWORD_MAX {
        return Err(refused(format!("a password has from 1 to {PASSWORD_MAX} bytes")));
    }
    let mut salt = [0; SALT];
    SystemRandom::new().fill(&mut salt).map_err(|_| refused("the system has no randomness to give".into()))?;
    let hash = Argon2::default().hash_password_with_salt(password, &salt);
    hash.map_err(|error| refused(format!("the password cannot be hashed: {error}")))
}

/// Replaces a file. The new one keeps the readers of the old one; without an old one only its owner
/// may read it.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    // The target of a link is replaced, so that the link stays.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or_else(|| io::Error::other("it names no file"))?;
    let mut new = name.to_os_string();
    new.push(format!(".{}.new", std::process::id()));
    let new = directory.join(new);
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        if let Ok(about) = fs::metadata(&path) {
            // The broker may run as another user than the caller; only root can keep that owner.
            let _ = std::os::unix::fs::fchown(&file, Some(about.uid()), Some(about.gid()));
            // Where the group could not be kept, its permissions go.
            let kept = if file.metadata()?.gid() == about.gid() { 0o777 } else { 0o707 };
            file.set_permissions(fs::Permissions::from_mode(about.mode() & kept))?;
        }
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(directory)?.sync_all()
    })();
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn users_come_and_go_and_others_stay() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("passwords");
        assert!(!change(&path, "ann", Some(b"one")).expect("a new file"));
        assert!(!change(&path, "bob", Some(b"two")).expect("a new user"));
        let mode = fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let passwords = Passwords::read(&path).expect("what was written can be read");
        assert_eq!(passwords.verify("ann", b"one").map(|user| user.name().to_owned()).as_deref(), Some("ann"));
        assert!(passwords.verify("ann", b"two").is_none() && passwords.verify("eve", b"one").is_none());
        assert!(passwords.verify("ann", b"").is_none() && passwords.verify("anonymous", b"one").is_none());
        assert!(change(&path, "ann", Some(b"three")).expect("another password"));
        assert!(change(&path, "bob", None).expect("bob goes"));
        assert!(matches!(change(&path, "bob", None), Err(ChangeError::Unknown { .. })));
        let passwords = Passwords::read(&path).expect("it can be read");
        assert!(passwords.len() == 1 && passwords.verify("ann", b"three").is_some());
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1, "nothing is left over");
    }

    #[test]
    fn a_bad_line_is_named_and_nothing_is_overwritten() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("passwords");
        let sound = hash(b"x").expect("a hash");
        let weak = sound.to_string().replace("argon2id", "argon2i");
        let hungry = sound.to_string().replace("m=19456", "m=4000000");
        for (text, line, cause) in [
            ("ann\n".to_owned(), 1, "it is not"),
            ("# users\n\nann:secret\n".to_owned(), 3, "is none"),
            (format!("ann:{sound}\nbob:{weak}\n"), 2, "not of argon2id"),
            (format!("ann:{sound}\nann:{sound}\n"), 2, "a second time"),
            (format!("anonymous:{sound}\n"), 1, "do not say who they are"),
            (format!("ann:{hungry}\n"), 1, "more than the broker gives"),
        ] {
            fs::write(&path, &text).expect("the file can be written");
            let fault = Passwords::read(&path).expect_err("a bad line");
            assert_eq!(fault.line, Some(line), "{fault}");
            assert!(fault.to_string().contains(cause), "{fault}");
            assert!(change(&path, "carol", Some(b"x")).is_err());
            assert_eq!(fs::read_to_string(&path).expect("it is there"), text);
        }
    }
}
