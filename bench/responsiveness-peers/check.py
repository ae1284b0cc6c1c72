#!/usr/bin/env python3
"""What of the comparison can be judged without brokers and namespaces: the troubles, what no router can do better, the links, and the counts."""

import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests"))

import relay
import scene
from checks import check, run

MS = 1_000_000


@check
def the_troubles_are_those_of_the_lab():
    # As `slots_of_a_seed_are_the_same_for_ever` has them in crates/whimbrel-lab/src/responsiveness/scene.rs.
    found = [[link for link, is_bad in enumerate(slot) if is_bad] for slot in scene.drawn(1)]
    assert found == [[], [], [0, 1, 5, 8], [], [], [5], [1, 6, 7], [9], [], [2, 5, 8]], found


@check
def the_floor_takes_any_path_and_is_cut_off_without_one():
    well = [False] * len(scene.MESH)
    assert scene.fastest(1, 0, scene.delays(well, "slow")) == 16, "2-1 itself takes 16 ms, over 5 it takes 18"
    direct = [link == scene.link_of(1, 0) for link in range(len(scene.MESH))]
    assert scene.fastest(1, 0, scene.delays(direct, "hole")) == 18
    around = [0 in ends for ends, _ in scene.MESH]
    assert scene.fastest(1, 0, scene.delays(around, "slow")) == 100
    assert scene.fastest(1, 0, scene.delays(around, "hole")) == math.inf


@check
def shares_over_many_seeds_are_those_that_were_computed_before():
    seeds = range(1, 2001)
    late = sum(scene.floors(seed, "slow")["late"] for seed in seeds) / len(seeds)
    lost = sum(scene.floors(seed, "hole")["lost"] for seed in seeds) / len(seeds)
    direct = sum(scene.direct(seed) for seed in seeds) / len(seeds)
    assert 0.03 < late < 0.09 and 0.02 < lost < 0.07 and 11 < direct < 13, (late, lost, direct)


@check
def links_follow_their_slots():
    links = relay.Relay([], 1, "hole", 1000 * MS)
    links.follow(5000 * MS)
    assert links.now_is[0][1] == 16 * MS, "before the first slot is known all are well"
    links.first_slot = 10_000 * MS
    seen = []
    for at in range(9_500, 21_500, 1000):
        links.follow(at * MS)
        seen.append(links.now_is[1][0])
    assert seen == [16 * MS] * 3 + [None] + [16 * MS] * 8, seen


@check
def packets_come_out_in_the_order_in_which_they_are_due():
    reads, writes = os.pipe()
    links = relay.Relay([writes] * scene.BROKERS, 1, "slow", 1000 * MS)
    links.flying = [(10, 3, 3, b"a"), (30, 1, 1, b"b"), (50, 2, 2, b"c")]
    links.give(30)
    assert os.read(reads, 10) == b"ab" and links.carried == 2
    links.give(50)
    assert os.read(reads, 10) == b"c" and not links.flying


@check
def an_event_is_late_after_the_deadline_and_lost_without_an_arrival():
    sent = [0, 10 * MS, 20 * MS, 30 * MS, 40 * MS]
    received = [(0, 1), (1, 60 * MS), (1, 90 * MS), (2, 70 * MS + 1), (4, 41 * MS)]
    tally = scene.judge(sent, received, 10 * MS, 40 * MS)
    assert (tally.sent, tally.late, tally.lost, tally.repeated) == (3, 2, 1, 1), tally
    assert abs(tally.share("late") - 200 / 3) < 1e-9


@check
def ours_is_ahead_only_with_less():
    assert scene.is_ahead(0, 0) and scene.is_ahead(1, 2)
    assert not scene.is_ahead(1, 1) and not scene.is_ahead(2, 1)


if __name__ == "__main__":
    run(*sys.argv[1:])
