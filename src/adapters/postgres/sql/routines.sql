-- The claim routines of one region: they write its own leaf and read all. Installed again whenever their text changes; a
-- change of the columns needs a migration that drops them first.
--
-- VOLATILE on purpose: each statement inside gets a new snapshot, so the loser of a race sees the
-- winner's row and the answer is never empty (docs/protocol.md#rule-5). The statement that writes
-- holds the gate (0001_schema.sql) at its version and approved boot: once a change of the gate is
-- committed, no older claim can commit. Where nothing was written, the gate is read to say why.

create or replace function onceway.claim(
    p_tenant text, p_key bytea, p_gate bigint, p_nonce uuid, p_request_id uuid,
    p_fp_raw bytea, p_fp_canonical bytea, p_hold_ms bigint, p_promised_ms bigint, p_skew_ms bigint, p_tombstone_ms bigint,
    p_route text, p_path text, p_principal bytea, p_risk text[], p_settle_ms bigint, p_recovery int
) returns table ({returned}) language plpgsql volatile as $claim$
#variable_conflict use_column
begin
    for round in 1..10 loop
        -- First, because a replay then writes nothing and takes no lock.
        return query
            select case when r.origin = '{origin}' and r.state = 1 and r.nonce = p_nonce then 'won' else 'found' end,
                   {columns}
              from onceway.records r where r.tenant = p_tenant and r.key = p_key;
        if found then return; end if;

        return query
            with g as materialized (
                select epoch from onceway.hold_gate(p_gate)
            )
            insert into {records} as r (
                tenant, key, origin, state, epoch, attempt, nonce, fp_raw, fp_canonical, risk, request_id,
                held_at, held_ms, hold_ms, settle_ms, {lifetime_columns}
            )
            select p_tenant, p_key, '{origin}', 1, g.epoch, {first_attempt}, p_nonce, p_fp_raw, p_fp_canonical, p_risk, p_request_id,
                   clock_timestamp(), {start}, p_hold_ms, p_settle_ms, {lifetime}
              from g
            on conflict do nothing
            returning 'won', {columns};
        if found then return; end if;

        perform from onceway.gate where version = p_gate and boot_started = pg_postmaster_start_time();
        if not found then
            verdict := 'gate';
            return next;
            return;
        end if;
    end loop;
    raise exception 'the row of a claim keeps vanishing' using errcode = 'OW001';
end
$claim$;

-- A claim that stands on known rows: a compare-and-set on the own one, or a first own row beside rows of other origins. Each row of
-- another origin must yield, in the statement that writes: one that replication brought after the claim's look is not superseded
-- knowingly. What the own row superseded before stays superseded, or a doubt that it masked would come back.
create or replace function onceway.reclaim(
    p_tenant text, p_key bytea, p_gate bigint, p_nonce uuid, p_request_id uuid,
    p_fp_raw bytea, p_fp_canonical bytea, p_hold_ms bigint, p_promised_ms bigint, p_skew_ms bigint, p_tombstone_ms bigint,
    p_route text, p_path text, p_principal bytea, p_risk text[], p_settle_ms bigint, p_recovery int,
    p_attempt int, p_own_epoch bigint, p_own_attempt int, p_own_nonce uuid, p_over jsonb
) returns table ({returned}) language plpgsql volatile as $reclaim$
#variable_conflict use_column
begin
    if p_own_nonce is not null then
        return query
            with g as materialized (
                select epoch from onceway.hold_gate(p_gate)
            )
            update {records} as r
               set state = 1, epoch = g.epoch, attempt = {next_attempt}, nonce = p_nonce, request_id = p_request_id,
                   fp_raw = p_fp_raw, fp_canonical = p_fp_canonical, risk = p_risk,
                   over = {over_kept}, doubted = {doubted},
                   doubt_status = null, held_at = clock_timestamp(), held_ms = {start}, hold_ms = p_hold_ms, settle_ms = p_settle_ms,
                   ({lifetime_columns}) = ({lifetime})
              from g
             where r.tenant = p_tenant and r.key = p_key and r.origin = '{origin}'
               and r.epoch = p_own_epoch and r.attempt = p_own_attempt and r.nonce = p_own_nonce
               and (r.state in (2, 3) or (r.state = 1 and r.held_ms + r.hold_ms <= {now}))
               and {others_yield}
            returning 'won', {columns};
    else
        return query
            with g as materialized (
                select epoch from onceway.hold_gate(p_gate)
            )
            insert into {records} as r (
                tenant, key, origin, state, epoch, attempt, nonce, fp_raw, fp_canonical, over, doubted, risk, request_id,
                held_at, held_ms, hold_ms, settle_ms, {lifetime_columns}
            )
            select p_tenant, p_key, '{origin}', 1, g.epoch, {next_attempt}, p_nonce, p_fp_raw, p_fp_canonical, p_over, {doubted}, p_risk,
                   p_request_id, clock_timestamp(), {start}, p_hold_ms, p_settle_ms, {lifetime}
              from g
             where {others_yield}
            on conflict do nothing
            returning 'won', {columns};
    end if;
    if found then return; end if;

    -- The own claim, written by an earlier call whose commit was not confirmed: before the gate, which may have moved since.
    return query
        select 'won', {columns} from {records} r
         where r.tenant = p_tenant and r.key = p_key and r.origin = '{origin}' and r.state = 1 and r.nonce = p_nonce;
    if found then return; end if;

    perform from onceway.gate where version = p_gate and boot_started = pg_postmaster_start_time();
    if not found then
        verdict := 'gate';
        return next;
        return;
    end if;

    return query
        select 'found', {columns} from onceway.records r where r.tenant = p_tenant and r.key = p_key;
    if not found then
        raise exception 'the rows that a claim stood on are gone' using errcode = 'OW002';
    end if;
end
$reclaim$;

-- A request that is run later: its record, released and accepted, and its job, in one statement. A basis of null is "no row of any
-- origin"; else a compare-and-set on the own released row, or a first own row beside rows of other origins, as in a claim.
create or replace function onceway.accept(
    p_tenant text, p_key bytea, p_gate bigint, p_nonce uuid, p_request_id uuid,
    p_fp_raw bytea, p_fp_canonical bytea, p_hold_ms bigint, p_promised_ms bigint, p_skew_ms bigint, p_tombstone_ms bigint,
    p_route text, p_path text, p_principal bytea, p_risk text[], p_settle_ms bigint, p_recovery int,
    p_attempt int, p_own_epoch bigint, p_own_attempt int, p_own_nonce uuid, p_over jsonb,
    p_keep_ms bigint, p_sealed boolean, p_request bytea
) returns table ({returned}) language plpgsql volatile as $accept$
#variable_conflict use_column
begin
    for round in 1..10 loop
        -- The own row of an earlier call first: before the gate, which may have moved since. Where no row was expected, any.
        return query
            select case when r.origin = '{origin}' and r.nonce = p_nonce then 'won' else 'found' end, {columns}
              from onceway.records r
             where r.tenant = p_tenant and r.key = p_key
               and (p_over is null or (r.origin = '{origin}' and r.nonce = p_nonce));
        if found then return; end if;

        return query
            with g as materialized (
                select epoch from onceway.hold_gate(p_gate)
            ), kept as (
                update {records} as r
                   set state = 3, epoch = g.epoch, attempt = p_attempt, nonce = p_nonce, request_id = p_request_id,
                       fp_raw = p_fp_raw, fp_canonical = p_fp_canonical, risk = p_risk,
                       over = {over_kept}, doubted = {doubted},
                       doubt_status = null, held_at = clock_timestamp(), held_ms = {start}, hold_ms = p_hold_ms, settle_ms = p_settle_ms,
                       accepted = true, ({lifetime_columns}) = ({lifetime})
                  from g
                 where r.tenant = p_tenant and r.key = p_key and r.origin = '{origin}'
                   and r.epoch = p_own_epoch and r.attempt = p_own_attempt and r.nonce = p_own_nonce
                   and r.state = 3
                   and {others_yield}
                returning r.*
            ), made as (
                insert into {records} as r (
                    tenant, key, origin, state, epoch, attempt, nonce, fp_raw, fp_canonical, over, doubted, risk, request_id,
                    held_at, held_ms, hold_ms, settle_ms, accepted, {lifetime_columns}
                )
                select p_tenant, p_key, '{origin}', 3, g.epoch, p_attempt, p_nonce, p_fp_raw, p_fp_canonical,
                       coalesce(p_over, '[]'), {doubted}, p_risk, p_request_id, clock_timestamp(), {start}, p_hold_ms, p_settle_ms, true,
                       {lifetime}
                  from g
                 where p_own_nonce is null and {others_yield}
                on conflict do nothing
                returning r.*
            ), r as (
                select * from kept union all select * from made
            ), j as (
                insert into onceway.jobs (tenant, key, request_id, next_ms, forget_ms, sealed, request)
                select p_tenant, p_key, p_request_id, {now}, {start} + p_keep_ms, p_sealed, p_request
                  from r
                -- A job that is left of a forgotten record has nothing to run any more.
                on conflict (tenant, key) do update
                   set request_id = excluded.request_id, state = 1, runs = 0, nonce = null, next_ms = excluded.next_ms,
                       accepted_at = excluded.accepted_at, forget_ms = excluded.forget_ms, sealed = excluded.sealed,
                       request = excluded.request, trouble = null
            )
            select 'won', {columns} from r;
        if found then return; end if;

        perform from onceway.gate where version = p_gate and boot_started = pg_postmaster_start_time();
        if not found then
            verdict := 'gate';
            return next;
            return;
        end if;

        -- A concurrent call of the same nonce may have been faster.
        return query
            select case when r.origin = '{origin}' and r.nonce = p_nonce then 'won' else 'found' end, {columns}
              from onceway.records r where r.tenant = p_tenant and r.key = p_key;
        if found then return; end if;
        if p_over is not null then
            raise exception 'the rows that an acceptance stood on are gone' using errcode = 'OW002';
        end if;
    end loop;
    raise exception 'the row of an acceptance keeps vanishing' using errcode = 'OW001';
end
$accept$;

revoke all on function {claim_signature}, {reclaim_signature}, {accept_signature} from public;
