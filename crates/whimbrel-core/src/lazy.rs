//! Values that take memory only while they are in use.

use core::ops::{Deref, DerefMut};

/// A type with one value at rest that all its owners share.
pub(crate) trait AtRest: Default + 'static {
    /// The value while it is not in use.
    fn at_rest() -> &'static Self;
}

/// A value that takes memory only from its first change until [`Lazy::rest`].
#[derive(Debug)]
pub(crate) struct Lazy<T>(Option<Box<T>>);

impl<T> Default for Lazy<T> {
    fn default() -> Self {
        Lazy(None)
    }
}

impl<T> Lazy<T> {
    /// A value at rest.
    pub(crate) const fn new() -> Self {
        Lazy(None)
    }

    /// Whether the value is not in use.
    #[inline]
    pub(crate) fn is_at_rest(&self) -> bool {
        self.0.is_none()
    }

    /// The value, if it is in use: for changes that matter to such a value only.
    pub(crate) fn in_use(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }

    /// Gives the memory back: the value is as if it never had been in use.
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

/// Defines the value of a type at rest, which has to equal its `Default`.
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
