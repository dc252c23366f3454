-- The three roles of a region's store, made by a DBA, so that `onceway store init` needs neither superuser nor the right to make roles.
-- Postgres 16 or newer; on 15 only a superuser may create subscriptions. Run it in the region's database, as a superuser:
--   export ONCEWAY_OWNER_PASSWORD=... ONCEWAY_GATEWAY_PASSWORD=... ONCEWAY_REPLICATION_PASSWORD=...
--   psql --no-psqlrc --set ON_ERROR_STOP=1 --dbname onceway --file deploy/postgres/roles.sql
-- then give `onceway store init` the owner's URL (ONCEWAY_ADMIN_URL). Roles that exist keep their passwords; run it as often as you like.
\getenv owner_password ONCEWAY_OWNER_PASSWORD
\getenv gateway_password ONCEWAY_GATEWAY_PASSWORD
\getenv replication_password ONCEWAY_REPLICATION_PASSWORD

begin;

-- Owns the schema and the subscriptions. Used by `onceway store init`, `store check` and `store reseed` only; gateways never have it. REPLICATION is
-- for one act: dropping the slot of a region that left the ring.
select format('create role onceway_owner login replication password %L', :'owner_password')
 where not exists (select from pg_roles where rolname = 'onceway_owner') \gexec
select format('grant create on database %I to onceway_owner', current_database()) \gexec
grant pg_create_subscription to onceway_owner;
-- To see whether a subscription still points where the region file says.
grant select (subconninfo) on pg_subscription to onceway_owner;

-- The gateways': reads all leaves, writes its own region's; `store init` grants that, as the owner of what it makes.
select format('create role onceway_gateway login password %L', :'gateway_password')
 where not exists (select from pg_roles where rolname = 'onceway_gateway') \gexec
-- What `store init` would set, were it allowed to change roles.
select format('alter role onceway_gateway in database %I set %I = %L', current_database(), name, value)
  from (values ('synchronous_commit', 'on'),
               ('default_transaction_isolation', 'read committed'),
               ('enable_seqscan', 'off'),
               ('enable_hashjoin', 'off'),
               ('enable_mergejoin', 'off'),
               ('jit', 'off'),
               ('search_path', 'onceway')) as setting (name, value) \gexec

-- The other regions' Postgres come as this one: it reads the leaves of this region, and makes the slots.
select format('create role onceway_replication login replication password %L', :'replication_password')
 where not exists (select from pg_roles where rolname = 'onceway_replication') \gexec

commit;
