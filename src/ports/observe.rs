//! Every metric name and label in one place, with its help text.
//!
//! A label must not hold a key, a token or any text that a client chose freely. Labels are routes,
//! regions, codes and kinds, and verified tenants, of which one process labels a bounded number
//! (`gateway::telemetry::labels`).

/// The target of all spans: a collector's layer looks for it, and no log does.
pub const SPANS: &str = "onceway_spans";

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows.
    Counter,
    /// A number that goes up and down.
    Gauge,
    /// A distribution, in seconds.
    Histogram,
}

/// Bounds of all histograms, in seconds. Alerts may only ask for these.
pub const BUCKETS: [f64; 13] =
    [0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// A metric, its kind and its meaning.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The Prometheus name.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Its help text, with unit and labels.
    pub help: &'static str,
}

macro_rules! metrics {
    ($($konst:ident = $kind:ident $name:literal $help:literal;)*) => {
        $(#[doc = $help] pub const $konst: &str = $name;)*

        /// All metrics, in the order in which they are documented.
        pub const ALL: &[Metric] = &[$(Metric { name: $name, kind: Kind::$kind, help: $help }),*];
    };
}

metrics! {
    BUILD_INFO = Gauge "onceway_build_info" "1, with the version of this build.";
    ANSWERS = Counter "onceway_answers_total" "Answers on keyed routes by route, tenant and verdict (settled, released, replayed, accepted, in_progress, key_reused, key_expired, in_doubt, refused).";
    REFUSALS = Counter "onceway_refusals_total" "Requests refused with a problem, by code; overloaded are those that `[listen.limits]` leaves no room for, and upstream-unavailable, store-unavailable, not-founded, gateway-outdated, escrow-unavailable, home-unavailable and not-authoritative those of which a part that they need is missing.";
    DUPLICATES = Counter "onceway_duplicates_total" "Keyed requests that met a record of their key, by tenant: retries of every kind, and keys reused for something else.";
    QUOTA_EXCEEDED = Counter "onceway_quota_exceeded_total" "Requests refused because their tenant was over a quota, by tenant and quota (new_keys, look_ups, misses, live_keys); nothing was stored or sent.";
    LIVE_KEYS = Gauge "onceway_live_keys" "Keys of each tenant that its region remembers of those that it started, as counted last; counted only where `[quota] live_keys` is set, and no further than that.";
    WEAK_KEYS = Counter "onceway_weak_keys_total" "Requests whose key is one of a client's habit of making keys badly, by route, tenant and kind (sequential, clock_like, many_bodies).";
    CONNECTIONS_CUT = Counter "onceway_connections_cut_total" "Client connections that this gateway ended, by reason (crowded: one address held too many, late: did not begin in time, idle, stalled: did not read its answer, given_up: asked only to reset).";
    PASSED = Counter "onceway_passed_total" "Requests without key handling passed to the upstream, by result (answered, not_sent, unknown).";
    SHADOW = Counter "onceway_shadow_total" "Shadow mode: what would have become of requests, by route, verdict (run, replayed, in_doubt, unprotected, unjudged, refused) and code of a refusal.";
    SHADOW_DIVERGED = Counter "onceway_shadow_diverged_total" "Shadow mode: copies of one request whose final answers had different statuses, by route.";
    CONFIG_RELOADS = Counter "onceway_config_reloads_total" "Times that the configuration was read again, by result (ok, failed). After a failed one everything goes on as before.";
    CONFIG_LOADED = Gauge "onceway_config_loaded_timestamp_seconds" "When the configuration that counts was read, in seconds since 1970.";
    CONFIG_CURRENT = Gauge "onceway_config_current" "1 while everything that the files say is running; 0 where they are wrong, or say what waits for a restart.";
    FORWARDS = Counter "onceway_forwards_total" "Requests forwarded to a key's owner, by peer and result (answered, not_sent, unknown, not_owner, silent, version: the peer speaks none that is spoken here).";
    LOCAL_REPLAYS = Counter "onceway_local_replays_total" "Replays served from this region's copy of another region's record.";
    ATTACHED = Counter "onceway_attached_total" "Duplicates that waited for a running attempt, by result (replayed, waited_out).";
    ATTEMPTS = Counter "onceway_attempts_total" "Requests sent to the upstream under a claim, by route and outcome (final, nothing_happened, unknown).";
    PROBES = Counter "onceway_probes_total" "Questions to the upstream about keys in doubt, by result (happened, did_not_happen, too_early, cannot_say).";
    JOBS = Counter "onceway_jobs_total" "Accepted requests and runs of their jobs, by route and result (accepted, settled, retried, waited, dead).";
    JOBS_WAITING = Gauge "onceway_jobs_waiting" "Accepted requests of this region that wait to be run or are being run.";
    JOBS_DEAD = Gauge "onceway_jobs_dead" "Dead letters of this region: accepted requests that wait for an operator.";
    JOBS_OLDEST_SECONDS = Gauge "onceway_jobs_oldest_seconds" "Age of the oldest accepted request that waits to be run, in seconds.";
    CLAIMS_LOST = Counter "onceway_claims_lost_total" "Outcomes that found no claim of their token left, by route and tenant. There should be none.";
    CLAIMS_FAILED = Counter "onceway_claims_failed_total" "Requests refused because the store did not take their claim, by route and tenant; nothing was sent.";
    CLAIMS_UNCONFIRMED = Counter "onceway_claims_unconfirmed_total" "Claims whose commit was not confirmed at first; each was read again by its nonce, none was sent unconfirmed.";
    SENDS_REFUSED = Counter "onceway_sends_refused_total" "Claims released unsent because their time to send or the right to it was over.";
    ESCROWS = Counter "onceway_escrows_total" "Claims and answers to be lodged with another region, by result (lodged, alone: no other region serves, refused, stale: the regions go by different views, unavailable, answer_lodged, answer_failed).";
    RUNS_AT_RISK = Counter "onceway_runs_at_risk_total" "Claims of keys that a lost region may have run without a trace here, by route.";
    LATE_ANSWERS = Counter "onceway_late_answers_total" "Answers to attempts that were not this region's any more, by route; each is in the journal once (`onceway audit`), and an error in the log.";
    SETTLES_RETRIED = Counter "onceway_settles_retried_total" "Outcomes that could not be stored at once and were tried again.";
    REAPED = Counter "onceway_reaped_total" "Rows that the reaper looked at, by result (expired: the answer went, forgotten: the key is new again, kept: put off).";
    SWEPT = Counter "onceway_swept_total" "Keys that the sweep moved on without a client, by result (abandoned: a claim whose hold is over is in doubt now, settled, released).";
    DOUBTS = Gauge "onceway_doubts" "Keys in doubt, as this region lists them for the operator: its own attempts, and those of other regions under keys that it owns.";
    CLOCK_AHEAD = Gauge "onceway_clock_ahead_seconds" "Time that the database's clock moved ahead of this gateway's boot clock since the process started, in seconds; below 0: behind. Nothing is judged by that clock.";
    LOOP_DIED = Counter "onceway_loop_died_total" "Loops of the gateway that ended though it was not stopping, by loop. It gives its lease up and leaves, with exit code 4.";
    STORE_ERRORS = Counter "onceway_store_errors_total" "Failed store calls by operation and kind (definite, unknown).";
    STORE_BREAKER = Gauge "onceway_store_breaker_open" "1 while the store does not answer calls about keys, so that further ones are refused at once and only probes are made, else 0, by calls (reads, writes).";
    STORE_SPARED = Counter "onceway_store_spared_total" "Calls about keys that were refused at once because the store did not answer those before; nothing was sent. By calls (reads, writes).";
    STORE_SECONDS = Histogram "onceway_store_seconds" "Duration of store calls by operation and route, in seconds.";
    UPSTREAM_SECONDS = Histogram "onceway_upstream_seconds" "Time from sending a request under a claim to its whole answer or its failure, by route, in seconds.";
    REQUEST_SECONDS = Histogram "onceway_request_seconds" "Time from the arrival of a client's request at the public door to the head of its answer, in seconds, by route (`-` where no route takes it), verdict and where (here, forwarded: sent on to the key's owner). The verdict is the log's word: settled, released, replayed, accepted, in_progress, key_reused, key_expired, in_doubt, passed, looked_up (a status address or a page of onceway's own), refused with a 4xx; but failed for a refusal with a 5xx.";
    OVERHEAD_SECONDS = Histogram "onceway_overhead_seconds" "The part of a keyed request's time, as in onceway_request_seconds, that onceway took, in seconds, by route: less the waits for its client's body, the upstream and an earlier attempt. Left out are forwarded requests, whose upstream time is not known here, those that were not admitted, and those that pass.";
    REQUESTS_AT_ONCE = Gauge "onceway_requests_at_once" "Requests that are here now, from their head until their answer was sent, by whose they are (of: clients, peers). Those beyond `[listen.limits]` are refused as overloaded.";
    IN_FLIGHT = Gauge "onceway_in_flight_requests" "Keyed requests being worked on now.";
    EPOCH = Gauge "onceway_epoch" "Epoch of the view this gateway goes by.";
    PROTOCOL = Gauge "onceway_protocol_version" "Version of what regions say to each other that the view goes by.";
    LEASE_HELD = Gauge "onceway_lease_held" "1 while this gateway holds its region's lease, else 0. Without it no key is run here.";
    LEASE_SECONDS = Gauge "onceway_lease_left_seconds" "How much longer the lease may be relied on without a renewal, in seconds.";
    HINDRANCES = Gauge "onceway_hindrances" "What keeps keys that this region gained from starting: how many things are missing. 0 means open.";
    HINDRANCES_OPERATOR = Gauge "onceway_hindrances_for_operator" "How many of these only an operator can lift.";
    WINDOW_LEFT_SECONDS = Gauge "onceway_window_left_seconds" "How much longer keys of a lost region are kept closed so that rows on their way arrive: the longest such wait, in seconds. 0 while none runs.";
    REGION_STANDING = Gauge "onceway_region_serving" "1 for a region that the view lets own arcs, else 0, by member (a region of the view).";
    UPSTREAM_SICK = Gauge "onceway_upstream_sick" "1 while this region's upstream has failed every check for long enough to ask for a drain, else 0; 0 where it is not checked.";
    DRAINED_BY_HEALTH = Counter "onceway_drains_by_health_total" "Drains of this region that this gateway asked for because its upstream was sick.";
    DOUBLES = Counter "onceway_doubles_total" "Keys that were found to have run in two regions, as this region's journal has them: each counted once, the same at all gateways of the region and over restarts. There should be none: see `onceway audit`.";
    UNEXPLAINED = Counter "onceway_unexplained_doubles_total" "Those of onceway_doubles_total that nothing explains: no run at risk, and no claim that knew of the other. Each is a bug: keep `onceway audit export` and report it.";
    AUDIT_AGE = Gauge "onceway_audit_age_seconds" "Since the last whole look over all records for keys that ran in two regions began, in seconds; since the gateway started, if there was none. What came later may not have been looked at.";
    AUDIT_PASSES = Counter "onceway_audit_passes_total" "Whole looks over all records for keys that ran in two regions that this gateway ended.";
    STORE_UP = Gauge "onceway_store_up" "1 while this region's store answers and its gate is open, else 0.";
    HEARTBEAT = Gauge "onceway_heartbeat_seq" "Number of this region's newest heartbeat.";
    PEER_UP = Gauge "onceway_peer_up" "1 while a peer answers pings, else 0, by peer.";
    PEER_FOREIGN = Gauge "onceway_peer_foreign" "1 while a peer speaks no protocol version that this process speaks, so that nothing is exchanged with it, else 0, by peer.";
    PEER_DISAGREES = Gauge "onceway_peer_disagrees" "1 while a peer, as it said last, does not agree with this region, else 0, by peer: its shared settings are others (routes.toml, ring.toml), its ring before the founding, its view of the same epoch, or the build of its store; `onceway status` says which.";
    PEER_REFUSED = Counter "onceway_peer_refusals_total" "Messages of peers that were refused because their sender may not send them, or because their numbers are out of bounds, by sender (region, joining, former, witness, stranger): nothing was done. There should be none, but a few of a region that is joining.";
    PEER_RTT_SECONDS = Gauge "onceway_peer_rtt_seconds" "Newest measured round trip to a peer, in seconds, by peer.";
    LAG_SECONDS = Gauge "onceway_observed_lag_seconds" "Observed replication lag behind a region, an upper bound, in seconds, by origin.";
    LAG_MAX_SECONDS = Gauge "onceway_observed_lag_max_seconds" "Largest observed replication lag of the trailing ten minutes, kept over restarts, in seconds, by origin.";
    SLOT_RETAINED_BYTES = Gauge "onceway_slot_retained_bytes" "WAL that this region's Postgres keeps on its disk for a replication slot, in bytes, by slot; 0 once the slot is lost or dropped.";
    SLOT_LOST = Gauge "onceway_slot_lost" "1 for a replication slot whose WAL was given up (max_slot_wal_keep_size): its subscriber must be rebuilt; else 0, by slot.";
    OTLP_SPANS = Counter "onceway_otlp_spans_total" "Spans for the collector that [otlp] names, by result (exported, dropped: the queue was full, failed: the collector did not take them).";
    LOG_DROPPED = Counter "onceway_log_lines_dropped_total" "Lines of the log that were dropped because whoever reads standard error stood still; a line tells of them once it goes on.";
    CERTIFICATE_EXPIRES = Gauge "onceway_certificate_expires_timestamp_seconds" "When the first certificate of a file in use expires, in seconds since 1970, by what it is for (of: peer, authority, public, admin, store: what the store is shown); of store_authority, the authorities that the store's server is believed by, the last.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_follow_prometheus() {
        for (index, metric) in ALL.iter().enumerate() {
            assert!(metric.name.starts_with("onceway_"), "{}", metric.name);
            assert!(metric.help.ends_with('.'), "{}", metric.name);
            assert!(ALL[index + 1..].iter().all(|other| other.name != metric.name), "{}", metric.name);
            assert_eq!(metric.kind == Kind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
        }
    }
}
