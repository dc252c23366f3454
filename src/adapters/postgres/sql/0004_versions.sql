-- Schema, version 4: which gateways may run over this store; runs at risk are found without looking at all rows, and each
-- has doubles of its own.

-- The oldest schema that a gateway may have been made for and still run here. A migration that only adds (columns with a default or none,
-- tables, routines beside those of before) leaves it; one that takes away what older gateways use sets it to its own number, and comes a version
-- later than what took its place.
alter table onceway.meta add column gateways_from int not null default 3;

-- Runs at risk are few, and looked for again and again. Claims wait while it is built: every row is looked at once.
create index records_at_risk on onceway.records (tenant, key) where risk <> '{}';

-- A double is journalled once for each run: two runs at risk may each have one with the same row.
drop index onceway.journal_doubles;
create unique index journal_doubles on onceway.journal (tenant, key, origin, (detail ->> 'with')) where kind = 'double';
