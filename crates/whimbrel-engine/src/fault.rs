//! Faults that are built in on purpose, to see whether tests notice, and the macro `fault!`, by
//! which the code asks for one. There are faults only with the feature `mutants`.

/// Whether a fault is built in, as in `fault!(self, CountAhead)`. The first argument has a field of
/// type [`EngineFaults`] named `faults`, the second is a variant of `EngineMutant`.
#[cfg(feature = "mutants")]
macro_rules! fault {
    ($of:expr, $mutant:ident) => {
        $of.faults.has($crate::fault::EngineMutant::$mutant)
    };
}

/// Whether a fault is built in: constant `false`.
#[cfg(not(feature = "mutants"))]
macro_rules! fault {
    ($of:expr, $mutant:ident) => {
        $of.faults.has_any()
    };
}

/// Which fault is built in.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineFaults {
    #[cfg(feature = "mutants")]
    built_in: Option<EngineMutant>,
}

impl EngineFaults {
    /// This fault.
    #[cfg(feature = "mutants")]
    pub(crate) fn of(mutant: EngineMutant) -> EngineFaults {
        EngineFaults { built_in: Some(mutant) }
    }

    #[cfg(feature = "mutants")]
    pub(crate) fn has(self, mutant: EngineMutant) -> bool {
        self.built_in == Some(mutant)
    }

    /// Constant `false`.
    #[cfg(not(feature = "mutants"))]
    #[inline(always)]
    pub(crate) const fn has_any(self) -> bool {
        false
    }
}

/// A fault that is built in on purpose, to see whether a test notices.
#[cfg(feature = "mutants")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineMutant {
    /// A record without an answer counts as appended.
    CountAhead,
    /// A refused record is appended again behind the record that is there.
    RefusalIgnored,
    /// The records of a segment are removed before the next one in its file is acknowledged.
    CutBeforeHeader,
    /// A record that a replica lacks is taken for one that never was.
    HoleBelieved,
    /// What is read last is taken for the end of the stream.
    EndBelieved,
    /// A start reads the stream and takes no epoch.
    ServesBeforeEpoch,
    /// What an owner appended after another one had taken the stream counts.
    OldEpochCounts,
    /// Bytes on the disk that the stream does not have stay there when files are made anew.
    TailKept,
    /// What the disk has and the stream does not stays there although another owner was there.
    TailAdopted,
    /// What the disk alone has acknowledged is given up, and not told of.
    TailDropped,
    /// A mark is stored before the files that it tells of are synced.
    MarkBeforeSync,
    /// What a start has begun to append and not finished counts.
    UnfinishedCounts,
}
