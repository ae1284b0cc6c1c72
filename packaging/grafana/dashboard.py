#!/usr/bin/env python3
"""dashboard.py > whimbrel.json: the dashboard for Grafana, from the table below.

A panel is a title, a unit of Grafana, what it tells, and its queries with their legends. Names of metrics are those of docs/metrics.md; counters
stand in `rate` or `increase`, gauges do not.
"""

import json
import sys

AT = 'job=~"$job",instance=~"$instance"'
EVERY = "$__rate_interval"

STAT, LINES = "stat", "timeseries"


def rate(metric, by=""):
    """The rate of a counter at each broker, by its labels if some are named."""
    labels = ",".join(["instance", *by.split(",")] if by else ["instance"])
    return f"sum by ({labels}) (rate({metric}{{{AT}}}[{EVERY}]))"


def quantile(share, metric, by=""):
    """That share of what a histogram has seen at each broker took no longer, by its labels if some are named."""
    labels = ",".join(["instance", *by.split(","), "le"] if by else ["instance", "le"])
    return f"histogram_quantile({share}, sum by ({labels}) (rate({metric}_bucket{{{AT}}}[{EVERY}])))"


def gauge(metric, by=""):
    labels = ",".join(["instance", *by.split(",")] if by else ["instance"])
    return f"max by ({labels}) ({metric}{{{AT}}})"


ROWS = [
    ("At a glance", [
        (STAT, "Brokers up", "none", "Brokers that were scraped. One that is missing here is down, or its HTTP listener cannot be reached.",
         [(f"count(whimbrel_uptime_seconds{{{AT}}})", "up")]),
        (STAT, "Clients", "none", "Clients that are connected, at all brokers.", [(f"sum(whimbrel_clients{{{AT}}})", "clients")]),
        (STAT, "Sessions in all", "none", "Sessions, of clients that are connected or away.", [(f"sum(whimbrel_sessions{{{AT}}})", "sessions")]),
        (STAT, "Events accepted", "ops", "Events per second that got their id, at all brokers.",
         [(f"sum(rate(whimbrel_events_accepted_total{{{AT}}}[{EVERY}]))", "events")]),
        (STAT, "Delivered", "ops", "Deliveries per second to clients, at all brokers.",
         [(f"sum(rate(whimbrel_deliveries_total{{{AT}}}[{EVERY}]))", "deliveries")]),
        (STAT, "Gaps in an hour", "none", "Places at which some subscriber may have missed something that was promised, in the last hour. 0 is what one wants to see.",
         [(f"sum(increase(whimbrel_gaps_total{{{AT},reason!=\"best-effort\"}}[1h]))", "gaps")]),
        (STAT, "Journals full or failed", "none", "Brokers whose journal takes nothing. Anything but 0 needs somebody.",
         [(f"sum(whimbrel_journal_full{{{AT}}}) + sum(whimbrel_journal_failed{{{AT}}})", "journals")]),
        (STAT, "Links between brokers", "none", "Links that are up, counted at both of their ends.", [(f"sum(whimbrel_links{{{AT}}})", "links")]),
    ]),
    ("Traffic", [
        (LINES, "Events", "ops", "Events that were accepted here, those of them that were logged, and those that nobody here or elsewhere wanted.",
         [(rate("whimbrel_events_accepted_total"), "{{instance}} accepted"), (rate("whimbrel_events_logged_total"), "{{instance}} logged"),
          (rate("whimbrel_events_unwanted_total"), "{{instance}} unwanted")]),
        (LINES, "Deliveries", "ops", "Deliveries to clients; those that came out of the cache to subscribers who had been away; and those that were sent again.",
         [(rate("whimbrel_deliveries_total"), "{{instance}}"), (rate("whimbrel_deliveries_recovered_total"), "{{instance}} recovered"),
          (rate("whimbrel_deliveries_repeated_total"), "{{instance}} repeated")]),
        (LINES, "Latency", "s", "From the moment at which an event was accepted until it was handed to a client that was connected all the time: half of the deliveries, and all but one in a hundred, by what their subscriptions are promised.",
         [(quantile(0.5, "whimbrel_delivery_seconds", "class"), "{{instance}} {{class}} 50 %"), (quantile(0.99, "whimbrel_delivery_seconds", "class"), "{{instance}} {{class}} 99 %")]),
        (LINES, "Bytes", "Bps", "MQTT from and to clients.",
         [(rate("whimbrel_bytes_received_total"), "{{instance}} received"), (rate("whimbrel_bytes_sent_total"), "{{instance}} sent")]),
        (LINES, "Selectors", "ops", "Evaluations of selectors that the index could not avoid, and those that came out true. Many more of the first than of the second: look for an expensive selector.",
         [(rate("whimbrel_selectors_evaluations_total"), "{{instance}} evaluated"), (rate("whimbrel_selectors_matches_total"), "{{instance}} true")]),
        (LINES, "Expensive selectors", "ops", "Steps of evaluation per second, by the selectors that cost most.",
         [(f"topk(10, {rate('whimbrel_selector_steps_total', 'selector,filter')})", "{{instance}} {{filter}} {{selector}}")]),
        (LINES, "Waiting for clients", "bytes", "Bytes in memory that wait for clients which do not keep up or are away.",
         [(gauge("whimbrel_queued_bytes"), "{{instance}}")]),
    ]),
    ("Connections and sessions", [
        (LINES, "Connections", "none", "Client connections, those of them whose CONNECT was accepted, and how many are allowed.",
         [(gauge("whimbrel_connections"), "{{instance}} open"), (gauge("whimbrel_clients"), "{{instance}} accepted"),
          (gauge("whimbrel_connections_max"), "{{instance}} allowed")]),
        (LINES, "Connections opened", "ops", "New connections per second, by listener.",
         [(rate("whimbrel_connections_opened_total", "listener"), "{{instance}} {{listener}}")]),
        (LINES, "Connections lost", "ops", "Connections that broke off, that were silent for too long, that never said CONNECT, and clients that read too slowly.",
         [(rate("whimbrel_connections_lost_total"), "{{instance}} lost"), (rate("whimbrel_keep_alive_timeouts_total"), "{{instance}} silent"),
          (rate("whimbrel_connect_timeouts_total"), "{{instance}} no CONNECT"), (rate("whimbrel_kicked_slow_total"), "{{instance}} too slow")]),
        (LINES, "Refused", "ops", "CONNECTs and publishes that were refused, by reason code of MQTT 5 (0x97: a bound was reached), and connections that came to nothing below MQTT.",
         [(rate("whimbrel_connections_refused_total", "reason"), "{{instance}} CONNECT {{reason}}"),
          (rate("whimbrel_publishes_refused_total", "reason"), "{{instance}} PUBLISH {{reason}}"),
          (rate("whimbrel_listener_failures_total", "listener,cause"), "{{instance}} {{listener}} {{cause}}")]),
        (LINES, "Sessions", "none", "Sessions, and those whose client is connected. The difference is away, and may hold the journal.",
         [(gauge("whimbrel_sessions"), "{{instance}}"), (gauge("whimbrel_sessions_attached"), "{{instance}} connected")]),
        (LINES, "Subscriptions", "none", "Subscriptions; those that are semi-durable or have notices; and those of these that are behind.",
         [(gauge("whimbrel_subscriptions"), "{{instance}}"), (gauge("whimbrel_subscriptions_tracked"), "{{instance}} tracked"),
          (gauge("whimbrel_subscriptions_lagging"), "{{instance}} behind")]),
        (LINES, "Sessions that moved", "ops", "Sessions that came from other brokers with their client, that went on from a deputy's copy because their broker was gone, and that were given away.",
         [(rate("whimbrel_sessions_came_total"), "{{instance}} came"), (rate("whimbrel_sessions_from_copies_total"), "{{instance}} from a copy"),
          (rate("whimbrel_sessions_went_total"), "{{instance}} went")]),
        (LINES, "Connections that wait for their sessions", "none", "Clients that have said CONNECT and whose session is being fetched. More than a few for long: some broker does not answer.",
         [(gauge("whimbrel_sessions_sought"), "{{instance}}")]),
        (LINES, "Sessions that could not be had", "ops", "CONNECTs refused with 0x88 because nobody who has the session could be reached, and copies that could not be made.",
         [(rate("whimbrel_sessions_unreachable_total"), "{{instance}} unreachable"), (rate("whimbrel_session_copies_too_large_total"), "{{instance}} too large"),
          (rate("whimbrel_session_copies_refused_total"), "{{instance}} refused")]),
    ]),
    ("Losses by class", [
        (LINES, "Nondurable: dropped", "ops", "Deliveries that nobody gets: best-effort ones to clients that read too slowly, too large for their client, and of sessions that ended or were full.",
         [(rate("whimbrel_dropped_slow_total"), "{{instance}} slow"), (rate("whimbrel_dropped_too_large_total"), "{{instance}} too large"),
          (rate("whimbrel_dropped_queue_full_total"), "{{instance}} queue full"), (rate("whimbrel_dropped_session_ended_total"), "{{instance}} session ended")]),
        (LINES, "Lost by class", "ops", "What subscriptions lost by what they are promised: dropped deliveries of those that are promised nothing, gaps of all but those of best effort.",
         [(rate("whimbrel_lost_total", "class"), "{{instance}} {{class}}")]),
        (LINES, "Gaps by class and reason", "ops", "Gaps by reason. overwritten: the cache was too small; lost: a stream ended or a broker lost that part; released: given up by max_retain, or acknowledged before; not-buffered: nobody here had asked for it; best-effort: nothing was promised of it.",
         [(rate("whimbrel_class_gaps_total", "class,reason"), "{{instance}} {{class}} {{reason}}")]),
        (LINES, "Clients with most gaps", "ops", "Gaps by client id, of the clients that have most.",
         [(f"topk(10, {rate('whimbrel_client_gaps_total', 'client')})", "{{instance}} {{client}}")]),
        (LINES, "Durable: given up, order broken", "ops", "Ranges that were declared lost to other brokers, brokers for which nothing is kept any more, and events passed before one that their publisher had published elsewhere before.",
         [(rate("whimbrel_overlay_ranges_lost_total"), "{{instance}} ranges lost"), (rate("whimbrel_overlay_debts_forfeited_total"), "{{instance}} given up"),
          (rate("whimbrel_overlay_order_breaks_total"), "{{instance}} order broken")]),
        (LINES, "Expired", "ops", "Deliveries that were dropped because their event had expired. That is what its publisher asked for, and no loss.",
         [(rate("whimbrel_dropped_expired_total"), "{{instance}}")]),
    ]),
    ("Cache", [
        (LINES, "Cache", "bytes", "Bytes of each partition, its bookkeeping included.", [(gauge("whimbrel_partition_bytes", "partition,filter"), "{{instance}} {{partition}} {{filter}}")]),
        (LINES, "Events in the cache", "none", "Events in each partition, and those that are kept for their importance.",
         [(gauge("whimbrel_partition_events", "partition,filter"), "{{instance}} {{partition}} {{filter}}"),
          (gauge("whimbrel_partition_protected", "partition,filter"), "{{instance}} {{partition}} {{filter}} protected")]),
        (LINES, "Written and overwritten", "ops", "Events per second that came into each partition, and that had to go. Events in the partition divided by the first is about how long an absence it covers, in seconds.",
         [(rate("whimbrel_partition_written_total", "partition,filter"), "{{instance}} {{partition}} {{filter}} written"),
          (rate("whimbrel_partition_overwritten_total", "partition,filter"), "{{instance}} {{partition}} {{filter}} overwritten")]),
    ]),
    ("Journal", [
        (LINES, "Journal", "bytes", "Bytes of the journal's files, and bytes of the events in them that are kept for somebody. When the files reach max_log, publishes that must be logged are refused.",
         [(gauge("whimbrel_journal_bytes"), "{{instance}} files"), (gauge("whimbrel_journal_retained_bytes"), "{{instance}} kept")]),
        (LINES, "Commits", "ops", "Commits per second, each with one sync, and the records that they made durable.",
         [(rate("whimbrel_journal_commits_total"), "{{instance}} commits"), (rate("whimbrel_journal_records_total"), "{{instance}} records")]),
        (LINES, "Time to commit", "s", "How long what is given to the journal takes to become durable: half of it, and 99 of 100, took no longer. Publishers of logged events wait that long at least.",
         [(quantile(0.5, "whimbrel_journal_commit_seconds"), "{{instance}} 50 %"), (quantile(0.99, "whimbrel_journal_commit_seconds"), "{{instance}} 99 %")]),
        (LINES, "Use of max_log", "percentunit", "Bytes of the journal's files as a share of those that they may take.",
         [(f"max by (instance) (whimbrel_journal_bytes{{{AT}}} / (whimbrel_journal_max_bytes{{{AT}}} > 0))", "{{instance}}")]),
        (LINES, "Clients held up by the disk", "percentunit", "Share of the time in which clients were not read because too much waited for the disk.",
         [(rate("whimbrel_journal_congested_seconds_total"), "{{instance}}")]),
        (LINES, "Bytes written", "Bps", "Bytes to the disk with directories and padding, the records in them, and records that were written again to free their files.",
         [(rate("whimbrel_journal_written_bytes_total"), "{{instance}} written"), (rate("whimbrel_journal_record_bytes_total"), "{{instance}} records"),
          (rate("whimbrel_journal_moved_bytes_total"), "{{instance}} moved")]),
        (LINES, "Reading back", "ops", "Parts of the journal that were read for subscriptions that lag.", [(rate("whimbrel_journal_reads_total"), "{{instance}}")]),
        (LINES, "Full, failed, damaged", "none", "1 while the journal is full or has failed, and how many damaged parts were found in the time that is shown.",
         [(gauge("whimbrel_journal_full"), "{{instance}} full"), (gauge("whimbrel_journal_failed"), "{{instance}} failed"),
          (f"sum by (instance) (increase(whimbrel_journal_damaged_total{{{AT}}}[$__range]))", "{{instance}} damaged")]),
    ]),
    ("Links between brokers", [
        (LINES, "Delay", "s", "Delay of each link in one direction, by probes.", [(gauge("whimbrel_link_delay_seconds", "peer"), "{{instance}} to {{peer}}")]),
        (LINES, "Age of events", "s", "How old events were when they came over a link for the first time: all but one in a hundred.",
         [(quantile(0.99, "whimbrel_link_event_age_seconds", "peer"), "{{instance}} from {{peer}}")]),
        (LINES, "Loss", "percentunit", "Share of each link's last 64 probes that was lost.", [(gauge("whimbrel_link_loss_ratio", "peer"), "{{instance}} to {{peer}}")]),
        (LINES, "Packets lost", "ops", "Packets per second that QUIC found lost, and sent again where that matters.",
         [(rate("whimbrel_link_lost_packets_total", "peer"), "{{instance}} to {{peer}}")]),
        (LINES, "Bytes over links", "Bps", "Frames sent and received.",
         [(rate("whimbrel_link_frame_bytes_sent_total", "peer"), "{{instance}} to {{peer}}"),
          (rate("whimbrel_link_frame_bytes_received_total", "peer"), "{{instance}} from {{peer}}")]),
        (LINES, "Events over links", "ops", "Events sent, and events that were not because too much was unsent: the link is too slow for what is wanted over it.",
         [(rate("whimbrel_link_events_sent_total", "peer"), "{{instance}} to {{peer}}"),
          (rate("whimbrel_link_events_held_back_total", "peer"), "{{instance}} to {{peer}} held back")]),
        (LINES, "Unsent", "bytes", "Bytes that wait to be sent over a link, where they are more than 64 KiB.", [(gauge("whimbrel_link_unsent_bytes", "peer"), "{{instance}} to {{peer}}")]),
        (LINES, "Brokers", "none", "Brokers to which each broker has a way, and those that it knows, both with itself. Less reachable than known: the overlay is split, or a broker is down.",
         [(gauge("whimbrel_brokers_reachable"), "{{instance}} reachable"), (gauge("whimbrel_brokers_known"), "{{instance}} known")]),
        (LINES, "Links", "none", "Links that are up at each broker.", [(gauge("whimbrel_links"), "{{instance}}")]),
        (LINES, "Links lost and refused", "ops", "Links that ended, and links that came to nothing, by cause.",
         [(rate("whimbrel_overlay_links_lost_total"), "{{instance}} ended"), (rate("whimbrel_link_failures_total", "cause"), "{{instance}} {{cause}}")]),
        (LINES, "Repair", "ops", "Questions for what is missing, events sent again to who lacked them, ways changed because a link was down, and events to which there was no way.",
         [(rate("whimbrel_overlay_nacks_out_total"), "{{instance}} asked"), (rate("whimbrel_overlay_events_answered_total"), "{{instance}} sent again"),
          (rate("whimbrel_overlay_repairs_total"), "{{instance}} other ways"), (rate("whimbrel_overlay_unreachable_total"), "{{instance}} no way")]),
        (LINES, "Reading the logs of others", "ops", "Events that were read from other brokers' logs, and that others read here.",
         [(rate("whimbrel_overlay_events_borrowed_total"), "{{instance}} read"), (rate("whimbrel_overlay_events_lent_total"), "{{instance}} told")]),
        (LINES, "Clocks", "s", "How far the neighbour's clock was ahead when the link came up, and how far the system's clock is ahead of the broker's.",
         [(gauge("whimbrel_link_clock_ahead_seconds", "peer"), "{{instance}} {{peer}}"), (gauge("whimbrel_clock_offset_seconds"), "{{instance}} system")]),
    ]),
    ("Process", [
        (LINES, "CPU", "percentunit", "CPU time per second; 100 % is one CPU.", [(rate("process_cpu_seconds_total"), "{{instance}}")]),
        (LINES, "Memory", "bytes", "Resident memory.", [(gauge("process_resident_memory_bytes"), "{{instance}}")]),
        (LINES, "Open files", "none", "Open files, and how many are allowed.", [(gauge("process_open_fds"), "{{instance}}"), (gauge("process_max_fds"), "{{instance}} allowed")]),
        (LINES, "Uptime", "s", "Time since the start.", [(gauge("whimbrel_uptime_seconds"), "{{instance}}")]),
    ]),
]

SOURCE = {"type": "prometheus", "uid": "${source}"}
WIDTH = 24


def panel(number, place, kind, title, unit, text, queries):
    shown = {
        "id": number, "type": kind, "title": title, "description": text, "datasource": SOURCE, "gridPos": place,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": query, "legendFormat": legend, "range": kind == LINES, "instant": kind == STAT}
            for at, (query, legend) in enumerate(queries)
        ],
    }
    if title == "Clocks":
        del shown["fieldConfig"]["defaults"]["min"]
    if kind == STAT:
        shown["options"] = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "graphMode": "none", "colorMode": "none"}
    else:
        shown["fieldConfig"]["defaults"]["custom"] = {"fillOpacity": 8, "lineWidth": 1, "showPoints": "never", "spanNulls": False}
        shown["options"] = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    return shown


def panels():
    y, number = 0, 0
    for row, members in ROWS:
        number += 1
        yield {"id": number, "type": "row", "title": row, "collapsed": False, "panels": [], "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": y}}
        y, x = y + 1, 0
        for kind, *rest in members:
            width, height = (3, 4) if kind == STAT else (8, 8)
            if x + width > WIDTH:
                x, y = 0, y + height
            number += 1
            yield panel(number, {"h": height, "w": width, "x": x, "y": y}, kind, *rest)
            x += width
        y += height


def variable(name, label, query):
    return {
        "name": name, "label": label, "type": "query", "datasource": SOURCE, "query": {"query": query, "refId": name}, "definition": query,
        "includeAll": True, "multi": True, "allValue": ".+", "refresh": 2, "sort": 1, "current": {"text": ["All"], "value": ["$__all"]},
    }


dashboard = {
    "uid": "whimbrel", "title": "Whimbrel", "description": "Brokers of Whimbrel: traffic, losses, cache, journal, links.", "tags": ["whimbrel", "mqtt"],
    "schemaVersion": 39, "version": 1, "editable": True, "graphTooltip": 1, "refresh": "10s", "time": {"from": "now-1h", "to": "now"},
    "templating": {"list": [
        {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1, "includeAll": False, "multi": False},
        variable("job", "Job", "label_values(whimbrel_uptime_seconds, job)"),
        variable("instance", "Broker", 'label_values(whimbrel_uptime_seconds{job=~"$job"}, instance)'),
    ]},
    "annotations": {"list": [{
        "name": "Starts", "datasource": SOURCE, "enable": True, "iconColor": "orange", "titleFormat": "started", "textFormat": "{{instance}}",
        "expr": f"whimbrel_uptime_seconds{{{AT}}} < 15",
    }]},
    "panels": list(panels()),
}
json.dump(dashboard, sys.stdout, indent=1, ensure_ascii=False)
print()
