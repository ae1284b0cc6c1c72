#![doc = include_str!("../README.md")]

mod compiled;
mod content;
mod cover;
mod facts;
mod fence;
mod index;
mod json;
mod like;
mod matching;
mod number;
mod program;
mod selector;
mod store;
mod subject;
mod topic;

pub use compiled::{Compiled, Scan};
pub use content::{Cost, EXPENSIVE_MAX, GroupId, SelectorId};
pub use fence::{
    FENCE_NAME_MAX, FENCE_POSITIONS_MAX, FENCES_MAX, FENCES_POSITIONS_MAX, FenceChanges, FenceError, FenceWork, Fences,
    FencesBuilder,
};
pub use index::FilterIndex;
pub use matching::{Expensive, MatchIndex, Place};
pub use selector::{
    CANONICAL_MAX, Comparison, Condition, DEPTH_MAX, Field, JsonPath, Literal, OPERATIONS_MAX, Operand, Operation,
    Pattern, Piece, SELECTOR_MAX, Selector, SelectorError, Step,
};
pub use subject::{Datum, Number, Subject};
pub use topic::{LEVELS_MAX, SharedFilter, TEXT_MAX, TopicError, TopicFilter, TopicName};
