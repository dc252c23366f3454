-- Schema, version 1: everything that is alike in every region. Leaves, routines and rights are made per region.
-- Applied once; after a release, never edit an applied migration (its digest is compared), add the next one.

create schema onceway;

create table onceway.migrations (
    number int primary key,
    digest text not null,
    applied_at timestamptz not null default clock_timestamp()
);

-- What this store is. `routines` is the digest of the installed routines.
create table onceway.meta (
    one boolean primary key default true check (one),
    schema_version int not null,
    deployment text not null,
    routines text,
    -- The oldest schema that a gateway may have been made for and still run here. A migration that only adds (columns with a default
    -- or none, tables, routines beside those of before) leaves it; one that takes away what older gateways use ends with
    -- `select onceway.need_gateways(N)`, N its own number, and comes a version later than what took its place.
    gateways_from int not null default 1
);

-- What each record must be. Conditions in a function, since Postgres parses those of a CHECK anew for each statement, and for each row that
-- replication brings. As in a CHECK, a condition that is null holds.
create function onceway.is_whole(
    p_state smallint, p_epoch bigint, p_attempt int, p_fp_raw bytea, p_fp_canonical bytea, p_principal bytea, p_hold_ms bigint,
    p_settle_ms bigint, p_recovery int, p_tombstone_ms bigint, p_over jsonb, p_doubt_status smallint, p_answer_status smallint,
    p_answer_headers bytea, p_answer_body bytea, p_answer_coding smallint, p_answer_length int, p_settled_at timestamptz
) returns boolean language plpgsql immutable parallel safe as $whole$
begin
    return p_state between 1 and 5
        -- An accepted request that was never run has no attempt yet: its released row has attempt 0.
        and p_epoch >= 1 and (p_attempt >= 1 or (p_attempt = 0 and p_state in (3, 5)))
        and octet_length(p_fp_raw) = 32
        and (p_fp_canonical is null or octet_length(p_fp_canonical) = 32)
        and (p_principal is null or octet_length(p_principal) = 32)
        and p_hold_ms >= 0 and p_settle_ms >= 0 and p_tombstone_ms >= 0 and p_recovery between -1 and 1000
        and jsonb_typeof(p_over) = 'array'
        and (p_doubt_status is null or (p_state = 2 and p_doubt_status between 100 and 999))
        and (p_answer_status is null or p_answer_status between 100 and 999)
        -- A settled row without a body is an answer over the stored limit.
        and (p_state = 4) = (p_answer_status is not null)
        and (p_state = 4) = (p_answer_headers is not null)
        and (p_state = 4 or p_answer_body is null)
        and (p_answer_body is null) = (p_answer_length is null)
        and p_answer_coding in (0, 1)
        and (p_state in (4, 5) or p_settled_at is null)
        and (p_state <> 4 or p_settled_at is not null);
end
$whole$;

-- Numbers of `state`: 1 claimed, 2 in doubt, 3 released, 4 settled, 5 tombstone.
-- What is judged is in milliseconds of observed time, the counter in the own heartbeat; dates are for people and compared with nothing.
-- Text that is compared or indexed uses collation "C": an index must not change its order with the system's libraries.
create table onceway.records (
    tenant text collate "C" not null,
    key bytea not null,
    origin text collate "C" not null,
    state smallint not null,
    epoch bigint not null,
    attempt int not null,
    nonce uuid not null,
    fp_raw bytea not null,
    fp_canonical bytea,
    over jsonb not null default '[]',
    risk text[] not null default '{}',
    request_id uuid not null,
    doubt_status smallint,
    answer_status smallint,
    answer_headers bytea,
    answer_body bytea,
    held_at timestamptz not null,
    held_ms bigint not null,
    hold_ms bigint not null,
    -- How long the attempt may be inside the upstream after its hold. Both are zero once an answer has ended it.
    settle_ms bigint not null,
    -- The rule for the key while the attempt is in doubt: -1 probe, 0 park, else rerun while so many attempts may have happened.
    recovery int not null,
    settled_at timestamptz,
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz not null,
    -- The route that made the claim, and the request's path: whoever asks about the key without a client has only these.
    route text collate "C" not null default '',
    path text collate "C" not null default '',
    -- Digest of the principal that made the first request, where the route binds replays to it.
    principal bytea,
    -- A request of this key was accepted to be run without its client: released and accepted means "waiting to be run".
    accepted boolean not null default false,
    -- Attempts before the last one that may have happened.
    doubted int not null default 0,
    -- How answer_body is stored: 0 as it is, 1 zstd. Its length before that.
    answer_coding smallint not null default 0,
    answer_length int,
    -- When the reaper looks at the row next: at first the end of its stored life, which is longer than the promised one by the
    -- skew; of a tombstone, when it may be forgotten.
    due_ms bigint not null default 1000000000000000000,
    -- How long the tombstone stays.
    tombstone_ms bigint not null default 2592000000,
    primary key (tenant, key, origin),
    constraint is_whole check (onceway.is_whole(
        state, epoch, attempt, fp_raw, fp_canonical, principal, hold_ms, settle_ms, recovery, tombstone_ms, over, doubt_status,
        answer_status, answer_headers, answer_body, answer_coding, answer_length, settled_at
    ))
) partition by list (origin);

-- Runs at risk are few, and looked for again and again.
create index records_at_risk on onceway.records (tenant, key) where risk <> '{}';

-- `observed_ms` is the time that the origin's gateways saw pass: it stands still while none runs, and no clock's step moves it. One heartbeat
-- adds at most `step_ms`. So what is judged reads `observed_ms`, and what begins now begins at `observed_ms + step_ms` at the latest.
create table onceway.heartbeats (
    origin text collate "C" primary key,
    seq bigint not null check (seq >= 0),
    epoch bigint not null check (epoch >= 1),
    max_ballot bigint not null default 0,
    beat_at timestamptz not null,
    observed_ms bigint not null default 0,
    step_ms bigint not null default 0 check (step_ms >= 0)
) partition by list (origin);

-- Exactly one row, never published. `boot_*` is the approved boot; null before the first approval.
create table onceway.gate (
    one boolean primary key default true check (one),
    origin text collate "C" not null,
    version bigint not null,
    epoch bigint not null check (epoch >= 1),
    boot_system bigint,
    boot_timeline int,
    boot_started timestamptz,
    view jsonb,
    pending jsonb,
    since jsonb not null default '[]',
    waivers jsonb not null default '[]',
    constraint boot_is_whole check (
        (boot_system is null) = (boot_started is null) and (boot_timeline is null) = (boot_started is null)
    )
) with (fillfactor = 50);

create table onceway.peer_memory (
    origin text collate "C" primary key,
    applied bigint not null check (applied >= 0),
    max_ballot bigint not null default 0,
    lag_ms bigint check (lag_ms >= 0),
    remembered_at timestamptz not null,
    -- Up to which heartbeat of the origin its rows were imported from survivors.
    imported bigint not null default 0 check (imported >= 0)
);

-- From `p_from` on only gateways of this schema or newer run here. One that runs already asks when it reads the gate, so the gate moves: no claim
-- of before passes. And no boot is approved any more, so each looks, and one that is too old says so and closes. The first that fits approves
-- the boot as after a restart: the system and its timeline are still those that were approved.
create function onceway.need_gateways(p_from int) returns void language sql as $$
    update onceway.meta set gateways_from = p_from;
    update onceway.gate set version = version + 1, boot_started = 'epoch' where boot_started is not null;
$$;
revoke all on function onceway.need_gateways(int) from public;

-- The one way in which a statement that writes relies on the gate: its boot is approved, its version
-- the given one, if one is given, and both stay so until the transaction ends.
--
-- The lock is waited for in a queue that is fair: whoever comes behind a change that waits, waits.
-- The gate is read behind the lock, in a statement of its own, which in a volatile routine has a
-- snapshot of its own. The one around it may be older than the change that the lock waited for.
-- Under any other isolation both have one snapshot, and a gate that was replaced would read as if it
-- stood. The lock comes before any row's: else a writer, a change and another writer may wait for
-- each other. Its number may be any that stays ("onceway2").
create function onceway.hold_gate(p_version bigint) returns table (epoch bigint) rows 1
language plpgsql volatile as $hold$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'the gate is held under read committed only' using errcode = 'OW003';
    end if;
    perform pg_advisory_xact_lock_shared(8029464473093896498);
    return query
        select g.epoch from onceway.gate g
         where (p_version is null or g.version = p_version)
           and g.boot_started = pg_postmaster_start_time();
end
$hold$;

-- Whatever changes the gate comes behind all that hold it and before all that ask later. So what was
-- written under the gate of before is committed before the change is.
create function onceway.replace_gate() returns trigger language plpgsql as $replace$
begin
    perform pg_advisory_xact_lock(8029464473093896498);
    return null;
end
$replace$;
create trigger replaces before update or delete or truncate on onceway.gate
    for each statement execute function onceway.replace_gate();

revoke all on function onceway.hold_gate(bigint), onceway.replace_gate() from public;

-- Keys of this region that somebody has to look at: the operator's list. A row may outlive its doubt; whoever reads it compares
-- with the record. Never published.
create table onceway.doubts (
    tenant text collate "C" not null,
    key bytea not null,
    since timestamptz not null default clock_timestamp(),
    -- The beginning of what the upstream said when it left the attempt in doubt, for people.
    excerpt text,
    primary key (tenant, key)
);

-- What people must be able to read later: operators' acts with their reasons, and what the gateway found suspect. Append only, never
-- published.
create table onceway.journal (
    id bigint generated always as identity primary key,
    at timestamptz not null default clock_timestamp(),
    kind text not null,
    tenant text collate "C",
    key bytea,
    origin text collate "C",
    epoch bigint,
    attempt int,
    actor text,
    reason text,
    detail jsonb not null default '{}'
);

create index journal_of_key on onceway.journal (tenant, key) where tenant is not null;
-- A double is journalled once for each run, whoever finds it: detail says with whom. Two runs at risk may each have one with the same row.
create unique index journal_doubles on onceway.journal (tenant, key, origin, (detail ->> 'with')) where kind = 'double';

-- Accepted requests that wait to be run (state 1), and dead letters that wait for an operator (2). The request itself is stored,
-- sealed where the region has a key for that; it goes with the job, or at forget_ms. `nonce` names the worker that has it. Never published.
create table onceway.jobs (
    tenant text collate "C" not null,
    key bytea not null,
    request_id uuid not null,
    state smallint not null default 1,
    runs int not null default 0,
    nonce uuid,
    next_ms bigint not null,
    accepted_at timestamptz not null default clock_timestamp(),
    forget_ms bigint not null,
    sealed boolean not null,
    request bytea,
    trouble text,
    primary key (tenant, key),
    constraint state_is_known check (state in (1, 2)),
    constraint runs_are_counted check (runs >= 0),
    constraint only_letters_are_erased check (request is not null or state = 2)
) with (fillfactor = 70);

create index jobs_next on onceway.jobs (next_ms) where state = 1;
create index jobs_dead on onceway.jobs (forget_ms) where state = 2;
-- Each tenant's waiting jobs in their order, so that those of others are found behind any number of one's own.
create index jobs_turn on onceway.jobs (tenant, next_ms) where state = 1;

-- Exactly one row, made with the store; whoever makes it anew makes another acceptor. `state` is null while it holds nothing.
-- Never published.
create table onceway.acceptor (
    one boolean primary key default true check (one),
    id uuid not null,
    version bigint not null default 1,
    state jsonb
) with (fillfactor = 50);

-- Every chosen view that was seen here. Never published.
create table onceway.views (
    epoch bigint primary key check (epoch >= 1),
    view jsonb not null,
    stored_at timestamptz not null default clock_timestamp(),
    stored_ms bigint not null
);

-- Claims of other regions that were lodged here before anything was sent for them. All is in this store's own observed time: due_ms is
-- the end of the row's life, look_ms when the reaper looks at it next. `promised_ms` is null for a key that is kept for ever. Never published.
create table onceway.escrows (
    tenant text collate "C" not null,
    key bytea not null,
    origin text collate "C" not null,
    epoch bigint not null,
    attempt int not null,
    nonce uuid not null,
    fp_raw bytea not null,
    fp_canonical bytea,
    request_id uuid not null,
    hold_ms bigint not null,
    settle_ms bigint not null,
    recovery int not null,
    promised_ms bigint,
    skew_ms bigint not null,
    tombstone_ms bigint not null,
    route text collate "C" not null,
    path text collate "C" not null,
    principal bytea,
    answer_status smallint,
    answer_headers bytea,
    answer_body bytea,
    answer_coding smallint not null default 0,
    answer_length int,
    answered_at timestamptz,
    stored_at timestamptz not null,
    expires_at timestamptz not null,
    stored_ms bigint not null,
    due_ms bigint not null,
    look_ms bigint not null,
    primary key (tenant, key, origin),
    constraint token_is_positive check (epoch >= 1 and attempt >= 1),
    constraint digests_are_whole check (
        octet_length(fp_raw) = 32 and octet_length(fp_canonical) = 32 and octet_length(principal) = 32
    ),
    constraint spans_are_spans check (
        hold_ms >= 0 and settle_ms >= 0 and skew_ms >= 0 and tombstone_ms >= 0 and recovery between -1 and 1000
    ),
    constraint answered_has_answer check (
        (answered_at is null) = (answer_status is null)
        and (answer_status is null) = (answer_headers is null)
        and (answer_body is null) = (answer_length is null)
        and (answer_status is not null or answer_body is null)
    ),
    constraint status_is_http check (answer_status is null or answer_status between 100 and 999),
    constraint coding_is_known check (answer_coding in (0, 1))
) with (fillfactor = 80);

create index escrows_of_origin on onceway.escrows (origin, tenant, key);
create index escrows_look on onceway.escrows (look_ms);

-- Rows of other origins that a survivor handed over: their leaves are replication's alone. The origin is written with a '!' behind it, so
-- that look-ups over all leaves find them, and nothing that names an origin does. `due_ms` is the end of the tombstone, too, in this store's
-- own observed time.
create table onceway.records_imported partition of onceway.records (
    constraint origin_is_marked check (origin like '%!')
) default;
create index records_imported_due on onceway.records_imported (due_ms);

-- Exactly one row: the greatest token of a row that was ever reaped here. New keys begin above it. It is raised when a row becomes a tombstone,
-- and so is committed long before that row is gone: a claim that finds the key absent sees it, without a lock. Never published.
create table onceway.forgotten (
    one boolean primary key default true check (one),
    epoch bigint not null default 0,
    attempt int not null default 0
) with (fillfactor = 50);
insert into onceway.forgotten default values;
