-- Schema, version 2: what the life of a key after its answer needs, and requests that are run without their client.

-- Their arguments and columns changed; the new ones are installed after the migrations.
drop function if exists onceway.claim(text, bytea, bigint, uuid, uuid, bytea, bytea, bigint, bigint);
drop function if exists onceway.reclaim(
    text, bytea, bigint, uuid, uuid, bytea, bytea, bigint, bigint, integer, bigint, integer, uuid, jsonb
);

alter table onceway.records
    -- The route that made the claim, and the request's path: whoever asks about the key without a client has only these.
    add column route text collate "C" not null default '',
    add column path text collate "C" not null default '',
    -- Digest of the principal that made the first request, where the route binds replays to it.
    add column principal bytea,
    -- A request of this key was accepted to be run without its client: released and accepted means "waiting to be run".
    add column accepted boolean not null default false,
    -- How answer_body is stored: 0 as it is, 1 zstd. Its length before that.
    add column answer_coding smallint not null default 0,
    add column answer_length int,
    -- When the reaper looks at the row next: at first the end of its stored life, which is longer than the promised one by the
    -- skew; of a tombstone, when it may be forgotten.
    add column due_at timestamptz not null default 'infinity',
    -- How long the tombstone stays.
    add column tombstone interval not null default interval '30 days',
    -- An accepted request that was never run has no attempt yet: its released row has attempt 0.
    drop constraint token_is_positive,
    add constraint token_is_positive check (epoch >= 1 and (attempt >= 1 or (attempt = 0 and state in (3, 5)))),
    add constraint principal_is_a_digest check (octet_length(principal) = 32),
    add constraint coding_is_known check (answer_coding in (0, 1)),
    add constraint length_is_there check ((answer_body is null) = (answer_length is null)),
    add constraint tombstone_is_a_span check (tombstone >= interval '0');

-- Keys of this region that somebody has to look at: the operator's list. A row may outlive its doubt; whoever reads it compares
-- with the record. Never published.
create table onceway.doubts (
    tenant text collate "C" not null,
    key bytea not null,
    since timestamptz not null default clock_timestamp(),
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

-- Accepted requests that wait to be run (state 1), and dead letters that wait for an operator (2). The request itself is stored,
-- sealed where the region has a key for that; it goes with the job, or at forget_at. `nonce` names the worker that has it. Never published.
create table onceway.jobs (
    tenant text collate "C" not null,
    key bytea not null,
    request_id uuid not null,
    state smallint not null default 1,
    runs int not null default 0,
    nonce uuid,
    next_at timestamptz not null default clock_timestamp(),
    accepted_at timestamptz not null default clock_timestamp(),
    forget_at timestamptz not null,
    sealed boolean not null,
    request bytea,
    trouble text,
    primary key (tenant, key),
    constraint state_is_known check (state in (1, 2)),
    constraint runs_are_counted check (runs >= 0),
    constraint only_letters_are_erased check (request is not null or state = 2)
) with (fillfactor = 70);

create index jobs_next on onceway.jobs (next_at) where state = 1;
create index jobs_dead on onceway.jobs (forget_at) where state = 2;
