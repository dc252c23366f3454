-- Only where the running server is the approved one: a store that was put back has forgotten what it promised. An acceptor that accepted
-- nothing has promised nothing. The gate is read and not held: a renewal must not
-- wait for claims, and while the server runs only a migration takes an approval back.
update onceway.acceptor
   set version = version + 1, state = $2
 where version = $1 and id = $3
   and (
       coalesce(state -> 'accepted', 'null') = 'null'
       or exists (select from onceway.gate where boot_started = pg_postmaster_start_time())
   )
returning 1
