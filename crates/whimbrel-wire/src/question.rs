//! An operator's questions to all brokers, asked of each in a message. This crate does not define
//! the texts.

use crate::body::Body;
use crate::bytes::{Put, Reader};
use crate::{Invalid, QUESTION_BYTES_MAX, REPLY_BYTES_MAX};

/// A question to another broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question<'a> {
    /// The asking broker's number for it; a repetition has the same number.
    pub number: u64,
    /// The question, at most [`QUESTION_BYTES_MAX`] bytes.
    pub text: &'a str,
}

impl<'a> Body<'a> for Question<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        Ok(Question { number: input.varint()?, text: input.text(QUESTION_BYTES_MAX, "a question")? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.number);
        out.put_bytes(self.text.as_bytes(), QUESTION_BYTES_MAX, "a question");
    }
}

/// The answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The asking broker's number for the question.
    pub number: u64,
    /// The answer, at most [`REPLY_BYTES_MAX`] bytes.
    pub text: &'a str,
}

impl<'a> Body<'a> for Reply<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        Ok(Reply { number: input.varint()?, text: input.text(REPLY_BYTES_MAX, "a reply")? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.number);
        out.put_bytes(self.text.as_bytes(), REPLY_BYTES_MAX, "a reply");
    }
}
