//! Faults that are built into the network layer on purpose, to see whether tests notice, and the
//! macro `fault!`, by which the code asks for one.
//!
//! There are faults only with the feature `mutants`, which tests switch on. Without it
//! [`NetFaults`] has size zero and `fault!` is constant `false`.

/// Whether a fault is built in, as in `fault!(self, RepairLoop)`. The first argument has a field of
/// type [`NetFaults`] named `faults`, the second is a variant of `NetMutant`.
#[cfg(feature = "mutants")]
macro_rules! fault {
    ($of:expr, $mutant:ident) => {
        $of.faults.has($crate::fault::NetMutant::$mutant)
    };
}

/// Whether a fault is built in: constant `false`.
#[cfg(not(feature = "mutants"))]
macro_rules! fault {
    ($of:expr, $mutant:ident) => {
        $of.faults.has_any()
    };
}

/// The method of the network layer by which a test builds a fault in; nothing without the feature.
macro_rules! build_in {
    () => {
        /// Builds a fault in.
        #[cfg(feature = "mutants")]
        pub fn build_in(&mut self, mutant: $crate::NetMutant) {
            self.faults = $crate::fault::NetFaults::of(mutant);
        }
    };
}

/// Which fault is built into the network layer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NetFaults {
    #[cfg(feature = "mutants")]
    built_in: Option<NetMutant>,
}

impl NetFaults {
    #[cfg(feature = "mutants")]
    pub(crate) fn of(mutant: NetMutant) -> NetFaults {
        NetFaults { built_in: Some(mutant) }
    }

    #[cfg(feature = "mutants")]
    pub(crate) fn has(self, mutant: NetMutant) -> bool {
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
pub enum NetMutant {
    /// Hashes of the ranges of a replicated map are not compared.
    RetainedNotCompared,
    /// An interest is not passed on.
    InterestStays,
    /// An event from transit is answered with the silence of another broker's interest.
    SilenceOfOtherInterest,
    /// Nacks for different ranges that end in the same event are answered alike.
    MergedRangeNacks,
    /// The brokers that have repaired the path of an event are not remembered.
    RepairLoop,
    /// The least time of a link is a constant under the differences of two clocks, not a line.
    HullWithoutSlope,
    /// Events age by the delay of a link as it was measured last, not by their own time on it.
    AgeWithoutExcess,
    /// A turn of this broker that came late counts as silence of its neighbours.
    OwnSilence,
    /// A link that was dark is good again with the first echo.
    NoHysteresis,
    /// Only what has arrived late makes a link bad, not what has not arrived.
    MissingReportsAreGood,
    /// A direction on which frames are lost is good as long as reports of it arrive.
    LossBelievedGood,
    /// Brokers are told of a link that has changed by link states only.
    FlashNotFlooded,
    /// The whole margin of an event may be used on one link.
    BudgetNotSplit,
    /// Of urgent events that wait for a link those leave first that have the most time.
    SlackInverted,
    /// A broker that knows an event does not pass on a further copy of it.
    KnownCopyEnds,
    /// Both paths of an event are the same one.
    SamePathTwice,
    /// A path that is changed on the way may lead over any broker.
    DetourLeavesDomain,
    /// A neighbour is told any retained message.
    RetainLeavesDomain,
    /// No event is repeated behind the next one.
    NoRepeats,
    /// Repeats are taken although their event has arrived by itself, and the other way round.
    RepeatsNotKnown,
    /// Reports tell of an event whose repeat has arrived.
    RepeatsReported,
}
