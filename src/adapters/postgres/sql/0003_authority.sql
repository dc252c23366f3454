-- Schema, version 3: views, the acceptor, escrows, and rows of other origins that came from a survivor.

-- They take one more argument; the new ones are installed after the migrations.
drop function if exists onceway.claim(
    text, bytea, bigint, uuid, uuid, bytea, bytea, bigint, bigint, bigint, bigint, text, text, bytea
);
drop function if exists onceway.reclaim(
    text, bytea, bigint, uuid, uuid, bytea, bytea, bigint, bigint, bigint, bigint, text, text, bytea,
    integer, bigint, integer, uuid, jsonb
);
drop function if exists onceway.accept(
    text, bytea, bigint, uuid, uuid, bytea, bytea, bigint, bigint, bigint, bigint, text, text, bytea,
    integer, bigint, integer, uuid, jsonb, bigint, boolean, bytea
);

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
    stored_at timestamptz not null default clock_timestamp()
);

-- Claims of other regions that were lodged here before anything was sent for them. All dates are of this store's own clock: due_at is
-- the end of the row's life, look_at when the reaper looks at it next. `promised` is null for a key that is kept for ever. Never published.
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
    hold interval not null,
    promised interval,
    skew interval not null,
    tombstone interval not null,
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
    due_at timestamptz not null,
    look_at timestamptz not null,
    primary key (tenant, key, origin),
    constraint token_is_positive check (epoch >= 1 and attempt >= 1),
    constraint digests_are_whole check (
        octet_length(fp_raw) = 32 and octet_length(fp_canonical) = 32 and octet_length(principal) = 32
    ),
    constraint spans_are_spans check (hold >= interval '0' and skew >= interval '0' and tombstone >= interval '0'),
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
create index escrows_look on onceway.escrows (look_at);

-- Rows of other origins that a survivor handed over: their leaves are replication's alone. The origin is written with a '!' behind it, so
-- that look-ups over all leaves find them, and nothing that names an origin does. `due_at` is the end of the tombstone, too.
create table onceway.records_imported partition of onceway.records default;
alter table onceway.records_imported add constraint origin_is_marked check (origin like '%!');
create index records_imported_due on onceway.records_imported (due_at);

alter table onceway.peer_memory
    -- Up to which heartbeat of the origin its rows were imported from survivors.
    add column imported bigint not null default 0 check (imported >= 0);

-- A double is journalled once, whoever finds it: detail says with whom.
create unique index journal_doubles on onceway.journal (tenant, key, (detail ->> 'with')) where kind = 'double';
