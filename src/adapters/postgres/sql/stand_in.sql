-- A record in the place of other origins' attempts: settled ($21 is 4) or released (3) from its first moment. It stands on what a claim on
-- known rows does, in the statement that writes: the gate, the own row as it was seen, and each row of another origin must yield.
with g as materialized (
    select epoch from onceway.hold_gate($3)
), kept as (
    update {records} as r
       set state = $21, epoch = g.epoch, attempt = {next_attempt}, nonce = $4, request_id = $5, fp_raw = $6, fp_canonical = $7,
           risk = $15, over = {over_kept}, doubted = {doubted}, doubt_status = null, held_at = clock_timestamp(),
           held_ms = {start}, hold_ms = $8::bigint, ({lifetime_columns}) = ({lifetime}),
           answer_status = $22, answer_headers = $23, answer_body = $24, answer_coding = $25, answer_length = $26,
           settled_at = case $21::smallint when 4 then clock_timestamp() end
      from g
     where r.tenant = $1 and r.key = $2 and r.origin = '{origin}' and r.epoch = $17 and r.attempt = $18 and r.nonce = $19
       and (r.state in (2, 3) or (r.state = 1 and r.held_ms + r.hold_ms <= {now}))
       and {others_yield}
    returning r.tenant, r.key, r.epoch, r.attempt
), made as (
    insert into {records} as r (
        tenant, key, origin, state, epoch, attempt, nonce, fp_raw, fp_canonical, over, doubted, risk, request_id, held_at, held_ms,
        hold_ms, settle_ms, {lifetime_columns}, answer_status, answer_headers, answer_body, answer_coding, answer_length, settled_at
    )
    select $1, $2, '{origin}', $21, g.epoch, {next_attempt}, $4, $6, $7, $20, {doubted}, $15, $5, clock_timestamp(), {start},
           $8::bigint, 0, {lifetime}, $22, $23, $24, $25, $26,
           case $21::smallint when 4 then clock_timestamp() end
      from g
     where $19::uuid is null and {others_yield}
    on conflict do nothing
    returning r.tenant, r.key, r.epoch, r.attempt
), stands as (
    select * from kept union all select * from made
), journalled as (
    insert into onceway.journal (kind, tenant, key, origin, epoch, attempt, actor, reason, detail)
    select case $21::smallint when 4 then 'settled-by-hand' else 'released-by-hand' end, tenant, key, '{origin}', epoch, attempt,
           $27, $28, case $21::smallint when 4 then jsonb_build_object('status', $22::smallint, 'length', $26::int) else '{}' end
      from stands
     where $27::text is not null
), unlisted as (
    delete from onceway.doubts d using stands s where d.tenant = s.tenant and d.key = s.key
)
select 1 from stands
