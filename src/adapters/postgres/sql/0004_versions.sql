-- Schema, version 4: which gateways may run over this store; runs at risk are found without looking at all rows, and each
-- has doubles of its own.

-- The oldest schema that a gateway may have been made for and still run here. A migration that only adds (columns with a default or none,
-- tables, routines beside those of before) leaves it; one that takes away what older gateways use ends with
-- `select onceway.need_gateways(N)`, N its own number, and comes a version later than what took its place.
alter table onceway.meta add column gateways_from int not null default 3;

-- From here on only gateways of this schema or newer run here. One that runs already asks when it reads the gate, so the gate moves: no claim
-- of before passes. And no boot is approved any more, so each looks, and one that is too old says so and closes. The first that fits approves
-- the boot as after a restart: the system and its timeline are still those that were approved.
create function onceway.need_gateways(p_from int) returns void language sql as $$
    update onceway.meta set gateways_from = p_from;
    update onceway.gate set version = version + 1, boot_started = 'epoch' where boot_started is not null;
$$;
revoke all on function onceway.need_gateways(int) from public;

-- Runs at risk are few, and looked for again and again. Claims wait while it is built: every row is looked at once.
create index records_at_risk on onceway.records (tenant, key) where risk <> '{}';

-- A double is journalled once for each run: two runs at risk may each have one with the same row.
drop index onceway.journal_doubles;
create unique index journal_doubles on onceway.journal (tenant, key, origin, (detail ->> 'with')) where kind = 'double';
