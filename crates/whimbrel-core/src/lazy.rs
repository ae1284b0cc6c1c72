//! Memory only for what is in use.

use core::ops::{Deref, DerefMut};

/// What most owners of a thing have of it at rest: the same for all.
pub(crate) trait AtRest: Default + 'static {
    /// The thing as it is while it is not in use.
    fn at_rest() -> &'static Self;
}

/// A thing that takes memory only once it is changed, until [`Lazy::rest`].
#[derive(Debug)]
pub(crate) struct Lazy<T>(Option<Box<T>>);

impl<T> Default for Lazy<T> {
    fn default() -> Self {
        Lazy(None)
    }
}

impl<T> Lazy<T> {
    /// Gives the memory back: the thing is as if it never had been in use.
    pub(crate) fn rest(&mut self) {
        self.0 = None;
    }
}

impl<T: AtRest> Deref for Lazy<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or_else(|| T::at_rest())
    }
}

impl<T: AtRest> DerefMut for Lazy<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

/// Says how a type is at rest, which has to be what its `Default` makes.
macro_rules! at_rest {
    ($type:ty, $value:expr) => {
        impl crate::lazy::AtRest for $type {
            fn at_rest() -> &'static Self {
                static AT_REST: $type = $value;
                &AT_REST
            }
        }
    };
}

pub(crate) use at_rest;
