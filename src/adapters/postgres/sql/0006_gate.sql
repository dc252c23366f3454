-- Schema, version 6: a change of the gate goes first. Only adds: gateways of before lock the gate's
-- row, and a change waits for that as well.

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
