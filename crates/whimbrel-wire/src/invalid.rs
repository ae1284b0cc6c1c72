//! Errors in bytes that another broker sent.

use core::fmt;

/// Why bytes are not a frame: always a fault of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// The bytes end before the announced contents.
    Truncated,
    /// A frame says that it has more than [`crate::FRAME_BYTES_MAX`] bytes.
    TooLong,
    /// A frame of no bytes, which has no type.
    Empty,
    /// A type that this version does not know and that must not be skipped (128 and above).
    UnknownType(u8),
    /// A hello of another major version; the bytes behind its first one are not read.
    Major(u8),
    /// A number that is written with more bytes than it needs, or has more than 64 bits.
    Number,
    /// A number out of range.
    Range(&'static str),
    /// Text that is not UTF-8, or not of the required form.
    Text(&'static str),
    /// More bytes or more entries than allowed.
    TooMany(&'static str),
    /// Bits that must be zero are set, or a value is not written in its only form.
    Form(&'static str),
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Invalid::Truncated => f.write_str("it ends before what it announces"),
            Invalid::TooLong => write!(f, "a frame is longer than {} bytes", crate::FRAME_BYTES_MAX),
            Invalid::Empty => f.write_str("a frame has no type"),
            Invalid::UnknownType(number) => {
                write!(f, "frames of type {number} are unknown here and must not be skipped")
            }
            Invalid::Major(major) => {
                write!(f, "version {major} of the protocol is not spoken here, only {}", crate::MAJOR)
            }
            Invalid::Number => f.write_str("a number is longer than it needs to be, or than 64 bits"),
            Invalid::Range(what) => write!(f, "{what} is out of range"),
            Invalid::Text(what) => write!(f, "{what} is no text of the kind that is wanted"),
            Invalid::TooMany(what) => write!(f, "there is more of {what} than allowed"),
            Invalid::Form(what) => write!(f, "{what} is not written in the form that it has"),
        }
    }
}

impl core::error::Error for Invalid {}
