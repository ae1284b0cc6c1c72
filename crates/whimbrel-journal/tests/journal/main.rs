//! The journal as those who use it see it. One program, so that what the tests share is built and
//! linked once.

mod common;
mod copies;
mod crash;
mod damage;
mod disk;
mod fixtures;
mod full;
mod handle;
mod map;
mod map_crash;
mod moves;
mod reads;
mod recovery;
mod space;
mod streams;
