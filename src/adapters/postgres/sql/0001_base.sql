-- Schema, version 1: everything that is alike in every region. Leaves, routines and rights are made per region.
-- Applied once; never edit an applied migration (its digest is compared), add the next one.

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
    routines text
);

-- Numbers of `state`: 1 claimed, 2 in doubt, 3 released, 4 settled, 5 tombstone.
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
    hold interval not null,
    settled_at timestamptz,
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz not null,
    primary key (tenant, key, origin),
    constraint state_is_known check (state between 1 and 5),
    constraint token_is_positive check (epoch >= 1 and attempt >= 1),
    constraint digests_are_whole check (octet_length(fp_raw) = 32 and octet_length(fp_canonical) = 32),
    constraint hold_is_a_span check (hold >= interval '0'),
    constraint over_is_a_list check (jsonb_typeof(over) = 'array'),
    -- A settled row without a body is an answer over the stored limit.
    constraint settled_has_answer check (
        (state = 4) = (answer_status is not null)
        and (state = 4) = (answer_headers is not null)
        and (state = 4 or answer_body is null)
        and (state in (4, 5) or settled_at is null)
        and (state <> 4 or settled_at is not null)
    ),
    constraint status_of_doubt check (doubt_status is null or state = 2),
    constraint statuses_are_http check (
        (doubt_status is null or doubt_status between 100 and 999)
        and (answer_status is null or answer_status between 100 and 999)
    )
) partition by list (origin);

create table onceway.heartbeats (
    origin text collate "C" primary key,
    seq bigint not null check (seq >= 0),
    epoch bigint not null check (epoch >= 1),
    max_ballot bigint not null default 0,
    beat_at timestamptz not null
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
    remembered_at timestamptz not null
);
