//! Faults that are built into the broker on purpose, to see whether tests notice: their list, and
//! the macro `fault!`, by which the code asks for one.
//!
//! There are faults only with the feature `mutants`, which tests switch on. Without it [`Faults`]
//! has size zero and `fault!` is constant `false`: a production build neither has faults nor pays
//! for them. The effect of a fault stands in its place in the code, behind `if fault!(..)`; a long
//! one stands here.

use whimbrel_event::{EventId, HostId};
use whimbrel_wire::Dest;

use crate::broker::Broker;
use crate::overlay::Overlay;

/// Whether a fault is built in, as in `fault!(self, SkipNack)`. The first argument has a field of
/// type [`Faults`] named `faults`, the second is a variant of `Mutant`.
#[cfg(feature = "mutants")]
macro_rules! fault {
    ($of:expr, $mutant:ident) => {
        $of.faults.has($crate::fault::Mutant::$mutant)
    };
}

/// Whether a fault is built in: constant `false`.
#[cfg(not(feature = "mutants"))]
macro_rules! fault {
    ($of:expr, $mutant:ident) => {
        $of.faults.has_any()
    };
}

/// Which fault is built into a part of the broker.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    #[cfg(feature = "mutants")]
    built_in: Option<Mutant>,
}

impl Faults {
    #[cfg(feature = "mutants")]
    pub(crate) fn has(self, mutant: Mutant) -> bool {
        self.built_in == Some(mutant)
    }

    /// Constant `false`.
    #[cfg(not(feature = "mutants"))]
    #[inline(always)]
    pub(crate) const fn has_any(self) -> bool {
        false
    }

    /// The network layer as it is.
    #[cfg(not(feature = "mutants"))]
    pub(crate) fn built_into(self, net: whimbrel_net::Net) -> whimbrel_net::Net {
        net
    }
}

#[cfg(feature = "mutants")]
impl Faults {
    /// Builds the fault into the network layer, if it is one of that.
    pub(crate) fn built_into(self, mut net: whimbrel_net::Net) -> whimbrel_net::Net {
        if let Some(Mutant::Net(fault)) = self.built_in {
            net.build_in(fault);
        }
        net
    }
}

#[cfg(feature = "mutants")]
impl Broker {
    /// Builds a fault in. The overlay takes it over when it is joined, not later.
    pub fn build_in(&mut self, mutant: Mutant) {
        self.set_faults(Faults { built_in: Some(mutant) });
    }
}

#[cfg(feature = "mutants")]
impl crate::store::Restoring {
    /// Builds a fault in, as [`Broker::build_in`].
    pub fn build_in(&mut self, mutant: Mutant) {
        self.faults = Faults { built_in: Some(mutant) };
    }
}

impl Broker {
    /// Builds the faults into this core, its cache, its own streams and its overlay. Those of the
    /// network layer are built in when that is opened.
    pub(crate) fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
        self.overlay.faults = faults;
        self.cache.faults = faults;
        self.streams.own.faults = faults;
    }
}

impl Overlay {
    /// Undoes the match of an event for destinations that cannot be reached: with the next event
    /// they are told silence in its place.
    pub(crate) fn take_back(&mut self, id: EventId, dests: &[(HostId, Dest)]) {
        for (host, dest) in dests {
            if !self.net.is_reachable(*host) {
                let number = self.destinations.number(*host).expect("it was just matched");
                let own = usize::from(id.pubend.index());
                self.destinations.get_mut(number).expect("it is served").last[own] = dest.previous;
            }
        }
    }
}

/// A fault that is built in on purpose, to see whether a test notices.
#[cfg(feature = "mutants")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// One of the network layer.
    Net(whimbrel_net::NetMutant),
    /// A position is written as if no event had come since all streams stood at the position base.
    Unmarked,
    /// A durable subscription is told a gap in another broker's stream instead of reading its log.
    GapTaken,
    /// The part of a log that another broker released early passes for silence.
    FarEarlyIsSilence,
    /// The answer to one reader of another broker's log is taken for the answer to every reader.
    KeptForAll,
    /// A broker that resumes from a replica assigns tags that the client may still use for
    /// deliveries of the former owner.
    TagsTrusted,
    /// A publisher's first event at another broker does not wait for its previous one.
    PredecessorIgnored,
    /// After a standstill a broker takes the time in which it heard nothing for silence of others.
    StandstillUnnoticed,
    /// The predecessors of a moved publisher's next event are not written.
    PredecessorUnwritten,
    /// When the cache is divided anew, partitions forget what they knew to be missing.
    ForgottenOverwriting,
    /// Silence is declared over events that wait for the disk.
    ClosesOverWaiting,
    /// After a restart the empty cache is taken for complete.
    CacheBelieved,
    /// A publisher is answered before its event is durable.
    AnswersBeforeCommit,
    /// An event is passed on before it is durable.
    PassesBeforeCommit,
    /// An answer that need not wait for the log does not wait for earlier answers either.
    AnswerOvertakes,
    /// The log is released although a subscription has not acknowledged what it holds.
    ReleasesInFlight,
    /// A session that is not attached has no retention hold.
    ForgetsAbsent,
    /// After a restart positions are forgotten.
    HoldLost,
    /// A new selector counts also for earlier events.
    SelectorAtOnce,
    /// An exactly-once delivery is sent before the record of it is durable.
    PublishBeforePut,
    /// A client is told to forget a tag before it is durable that the client has the event.
    ReleaseBeforePut,
    /// A publisher's number is not written with its event.
    SeqApart,
    /// A repeated event is acknowledged before the first one is durable.
    RepeatAnswered,
    /// After a restart reserved ticks are assigned again.
    TickReused,
    /// The log is believed for the time before a subscription was confirmed.
    LogBeforeStart,
    /// The part of the own log that was released early is taken for silence.
    EarlyIsSilence,
    /// A client is told that the position which it keeps is recorded before that is durable.
    AcknowledgedBeforePut,
    /// A subscription that another connection asked for begins at the position named there.
    BeginsForAnother,
    /// A client is told of its new session before the old one is durably forgotten.
    OldSessionBack,
    /// A subscription that waits for its confirmation is not named in filter records.
    WishUnnamed,
    /// A broker with a retention hold is not named in filter records.
    DebtorUnnamed,
    /// A reader that does not find the next event in its chain takes the chain for ended.
    ChainBelieved,
    /// Holes in other brokers' streams are not asked for.
    SkipNack,
    /// Holes are asked for while copies of their events are on their way.
    NoCopyGrace,
    /// Silence of a stream is told while copies of its events are on their way.
    SilenceBeforeCopies,
    /// Silence counts under old versions of the interest, too.
    OldVersionBelieved,
    /// The first silence of a broker counts also for events before the version it is told under.
    FirstSilenceBelieved,
    /// Positions in streams that are not known yet are forgotten.
    StrangersForgotten,
    /// An event that comes a second time is passed on a second time.
    DeliverTwice,
    /// An event that was not sent, for lack of a way, is taken for silence when the next one is
    /// sent.
    PreviousNotMoved,
    /// Each nack is answered with silence.
    AnswersNothing,
    /// A range that the cache has overwritten is answered with silence.
    AnswersFromHoles,
    /// A subscription is answered before other brokers know of it.
    ConfirmEarly,
    /// The retained message that was known first stays.
    RetainedOlderWins,
    /// A new subscription does not get a retained message, as the event may come anyway.
    RetainedWithheld,
    /// Silence is told up to a moment in the future.
    SilenceAhead,
    /// Events are sent to all brokers that want anything.
    SentToAll,
    /// A client that comes back is not told that its interest was not in force.
    ReturnsWithoutGap,
    /// A broker that was restarted as the same host is taken for its former incarnation.
    IncarnationIgnored,
    /// The silence before an event is believed under each version of the interest.
    IntervalAcrossVersions,
    /// Events that another broker's durable interest wants are not logged for it.
    OwedNotLogged,
    /// A retention hold is told to the other broker before it is durable.
    OwedToldEarly,
    /// The tick of a given retention hold is not written.
    HoldUnwritten,
    /// A report lifts the hold altogether.
    HoldLifted,
    /// A moved session's position is what its broker had passed, not what its client had
    /// acknowledged.
    CarriedAhead,
    /// A moved session forgets its publisher's last number.
    CarriedWithoutNumber,
    /// A moved session forgets its exactly-once deliveries in flight.
    CarriedWithoutFlights,
    /// A session that was given away is dropped before it is safe elsewhere.
    SettledAtOnce,
    /// The owner of an older session is not told of the newer one.
    NewerIgnored,
    /// A directory broker is believed that has not been told everything.
    UnsyncedBelieved,
    /// A replica keeps the first copy of a session.
    CopyStale,
    /// A session is copied with its will, whatever its domains.
    SessionCopyLeavesDomain,
    /// A broker's question for a log is answered with events that it may not carry.
    LogReadLeavesDomain,
    /// Events with a deadline go to the streams of those without one.
    DeadlineInOrdinaryStream,
}
