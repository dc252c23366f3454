-- Schema, version 7: what has to be known before anything is forgotten. Only adds.

-- Exactly one row: how time passed here as gateways saw it. `observed` is null before the first look. Never published.
create table onceway.observed (
    one boolean primary key default true check (one),
    version bigint not null default 1,
    observed jsonb
) with (fillfactor = 50);
insert into onceway.observed default values;

-- Exactly one row: the greatest token of a row that was ever reaped here. New keys begin above it. It is raised when a row becomes a tombstone,
-- and so is committed long before that row is gone: a claim that finds the key absent sees it, without a lock. Never published.
create table onceway.forgotten (
    one boolean primary key default true check (one),
    epoch bigint not null default 0,
    attempt int not null default 0
) with (fillfactor = 50);
insert into onceway.forgotten default values;
